"""A listener: wsfast calls a method for every frame. python examples/listener.py [URL]"""

import asyncio
import sys

from wsfast import WSListener, WSMsgType, ws_connect

URL = "ws://127.0.0.1:8765/"


class Bot(WSListener):
    def on_ws_connected(self, transport):
        transport.send(WSMsgType.TEXT, "buy 100")

    def on_ws_frame(self, transport, frame):
        print("received", frame.get_payload_as_utf8_text())
        transport.disconnect()


async def main(url=URL):
    transport, _ = await ws_connect(Bot, url)
    await transport.wait_disconnected()
    print("closed with", transport.close_info.code)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
