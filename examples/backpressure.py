"""A producer that waits for a slow network: python examples/backpressure.py [URL]"""

import asyncio
import sys

from wsfast import WSListener, WSMsgType, ws_connect

URL = "ws://127.0.0.1:8765/"
MESSAGES, SIZE = 50, 65536


class Upload(WSListener):
    def __init__(self):
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.echoed = 0

    def pause_writing(self):  # more is queued than the high-water mark
        self.may_write.clear()

    def resume_writing(self):
        self.may_write.set()

    def on_ws_frame(self, transport, frame):
        self.echoed += 1
        if self.echoed == MESSAGES:
            transport.disconnect()


async def main(url=URL):
    transport, upload = await ws_connect(Upload, url)
    for _ in range(MESSAGES):
        await upload.may_write.wait()
        transport.send(WSMsgType.BINARY, bytes(SIZE))
    await transport.wait_disconnected()
    print(upload.echoed, "messages echoed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
