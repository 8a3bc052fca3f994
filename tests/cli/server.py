"""A server whose path says how it behaves. It prints its ports, and leaves its authority in ca.pem."""

import asyncio
import json
import ssl
import sys
from collections import Counter
from contextlib import suppress

import trustme
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

counts = Counter()


async def handle(ws):
    path = ws.request.path
    if path == "/headers":
        await ws.send(json.dumps(dict(ws.request.headers)))
    elif path == "/bytes":
        await ws.send(b"\x00\xff")
    elif path == "/terminal":
        await ws.send('{"a": "\\u001b[31m"}')
        await ws.send("\x1b[31mred")
    elif path == "/counts":
        await ws.send(json.dumps(counts))
    elif path == "/deaf":  # reads nothing from now on, not even a PING
        ws.transport.pause_reading()
        await asyncio.sleep(60)
    elif path == "/stream":
        with suppress(ConnectionClosed):
            while True:
                await ws.send("a" * 4096)
                await asyncio.sleep(0)  # PINGs are read, too
    elif path == "/bye":
        await ws.close(1001, "going away")
    async for message in ws:
        counts[path] += 1
        if path == "/fail":  # dies in the middle
            await ws.close(1011, "broken")
        elif path == "/vanish" and counts[path] % 50 == 0:
            ws.transport.abort()
        elif path == "/wrong":
            await ws.send(message[:-1] + type(message)(b"?" if isinstance(message, bytes) else "?"))
        elif path == "/fragments":
            await ws.send([message[:5], message[5:]])
        elif path != "/silent":
            if message == "late":
                await asyncio.sleep(60)
            await ws.send(message)


def process_request(connection, request):
    return connection.respond(403, "no entry\n") if request.path == "/forbidden" else None


def select(connection, offered):
    return offered[0] if offered else None


async def main():
    authority = trustme.CA()
    authority.cert_pem.write_to_path("ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    options = {"process_request": process_request, "select_subprotocol": select, "close_timeout": 1}
    plain = await serve(handle, "127.0.0.1", 0, **options)
    tls = await serve(handle, "127.0.0.1", 0, ssl=context, **options)
    ports = {"plain": plain.sockets[0].getsockname()[1], "tls": tls.sockets[0].getsockname()[1]}
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
