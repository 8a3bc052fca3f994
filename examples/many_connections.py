"""Ten connections at a time, each with its own task: python examples/many_connections.py [URL]"""

import asyncio
import sys

from wsfast import connect

URL = "ws://127.0.0.1:8765/"
SYMBOLS = ["ada", "bnb", "btc", "doge", "dot", "eth", "ltc", "sol", "trx", "xrp"]


async def last_price(url, symbol):
    async with connect(url) as ws:
        await ws.send(f"{symbol} 1.5")
        return await ws.recv()


async def main(url=URL):
    prices = await asyncio.gather(*(last_price(url, symbol) for symbol in SYMBOLS))
    print(*prices, sep="\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
