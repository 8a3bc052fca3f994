"""picows' server on uvloop, which answers as servers/echo.c does.

python -m bench.servers.picows_echo CPU      prints "PORT <n>" and serves 127.0.0.1 until its parent ends
"""

import os
import sys

import uvloop
from picows import WSListener, WSMsgType, ws_create_server

from bench.clients.payloads import flooded
from bench.measure.worker import die_with_parent

TEXT, BINARY, PING, CLOSE = WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.PING, WSMsgType.CLOSE


class Echo(WSListener):
    def on_ws_frame(self, transport, frame):
        if frame.msg_type == CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
        elif frame.msg_type in (TEXT, BINARY):
            message = frame.get_payload_as_bytes()
            if not message.startswith(b"FLOOD "):
                transport.send(frame.msg_type, message)
                return
            _, count, size, kind = message.split()
            payload, opcode = flooded(int(size)), TEXT if kind == b"text" else BINARY
            for _ in range(int(count)):
                transport.send(opcode, payload)
            transport.send(opcode, b"DONE")

    def pause_writing(self):
        """Do nothing: a flood fills the socket on purpose."""

    def resume_writing(self):
        pass


async def main():
    server = await ws_create_server(lambda request: Echo(), "127.0.0.1", 0)
    print(f"PORT {server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    os.sched_setaffinity(0, [int(sys.argv[1])])
    uvloop.run(main())
