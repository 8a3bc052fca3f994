"""A hundred orders in one write: python examples/batch.py [URL]"""

import asyncio
import sys

from wsfast import WSListener, WSMsgType, ws_connect

URL = "ws://127.0.0.1:8765/"
ORDERS = [f"order {number}" for number in range(100)]


class Desk(WSListener):
    def on_ws_connected(self, transport):
        self.confirmed = 0
        with transport.cork():  # the messages of this block leave together at its end
            for order in ORDERS:
                transport.send(WSMsgType.TEXT, order)
        self.writes = transport.stats.writes

    def on_ws_frame(self, transport, frame):
        self.confirmed += 1
        if self.confirmed == len(ORDERS):
            transport.disconnect()


async def main(url=URL):
    transport, desk = await ws_connect(Desk, url)
    await transport.wait_disconnected()
    print(desk.confirmed, "orders confirmed, sent in", desk.writes, "write")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
