"""The TLS server of the wss rows: picows on uvloop, with a certificate made for this run.

    python -m bench.servers.tls_echo [cpu]

The server prints "PORT <n>" and "CA <path>" and serves wss://127.0.0.1 until its stdin closes. Then it removes the
file.
"""

import asyncio
import os
import ssl
import sys
import tempfile

import trustme
import uvloop
from picows import WSListener, WSMsgType, ws_create_server

from bench.worker import die_with_parent


class Echo(WSListener):
    def on_ws_frame(self, transport, frame):
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
        elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION):
            transport.send(frame.msg_type, frame.get_payload_as_memoryview(), frame.fin)


async def until_stdin_closes():
    closed = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(sys.stdin, lambda: closed.done() or closed.set_result(None))
    await closed


async def main():
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    server = await ws_create_server(lambda request: Echo(), "127.0.0.1", 0, ssl=context)
    with tempfile.NamedTemporaryFile(suffix=".pem") as ca:
        authority.cert_pem.write_to_path(ca.name)
        print(f"PORT {server.sockets[0].getsockname()[1]}\nCA {ca.name}", flush=True)
        await until_stdin_closes()


if __name__ == "__main__":
    die_with_parent()
    if len(sys.argv) > 1:
        os.sched_setaffinity(0, [int(sys.argv[1])])
    uvloop.run(main())
