"""websockets' asyncio server, which answers as servers/echo.c does.

python -m bench.servers.websockets_echo CPU      prints "PORT <n>" and serves 127.0.0.1 until its parent ends
"""

import asyncio
import contextlib
import os
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

from bench.clients.payloads import flooded
from bench.measure.worker import die_with_parent


async def echo(ws):
    with contextlib.suppress(ConnectionClosed):  # clients may leave without a CLOSE
        await answer(ws)


async def answer(ws):
    async for message in ws:
        if message[:6] in ("FLOOD ", b"FLOOD "):
            _, count, size, kind = message.split()
            text = kind in ("text", b"text")
            payload = flooded(int(size))
            for _ in range(int(count)):
                await ws.send(payload, text=text)
            await ws.send(b"DONE", text=text)
        else:
            await ws.send(message)


async def main():
    async with serve(echo, "127.0.0.1", 0, compression=None, max_size=None) as server:
        print(f"PORT {server.sockets[0].getsockname()[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    os.sched_setaffinity(0, [int(sys.argv[1])])
    asyncio.run(main())
