"""The awaitable client: await send(), await recv(), iterate. python examples/awaitable.py [URL]"""

import asyncio
import sys

from wsfast import connect

URL = "ws://127.0.0.1:8765/"


async def main(url=URL):
    async with connect(url) as ws:
        await ws.send("buy 100")
        print("received", await ws.recv())
        await ws.send_many(["sell 1", "sell 2", "sell 3"])
        async for message in ws:
            print("received", message)
            if message == "sell 3":
                break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
