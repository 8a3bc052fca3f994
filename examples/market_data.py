"""Ticks from JSON to objects, without a copy of the frame: python examples/market_data.py [URL]

It needs msgspec, whose decoder reads the memory that the frame arrived in.
"""

import asyncio
import sys

import msgspec

from wsfast import WSListener, WSMsgType, ws_connect

URL = "ws://127.0.0.1:8765/"


class Tick(msgspec.Struct):
    symbol: str
    price: float


class Feed(WSListener):
    decode = msgspec.json.Decoder(Tick).decode

    def on_ws_connected(self, transport):
        transport.send(WSMsgType.TEXT, '{"symbol": "BTCUSDT", "price": 42.5}')

    def on_ws_frame(self, transport, frame):
        tick = self.decode(frame.get_payload_as_memoryview())
        print(tick.symbol, "at", tick.price)
        transport.disconnect()


async def main(url=URL):
    transport, _ = await ws_connect(Feed, url)
    await transport.wait_disconnected()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
