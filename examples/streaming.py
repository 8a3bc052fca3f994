"""A long message, piece by piece: python examples/streaming.py [URL]

send() takes an iterable of fragments, and recv_streaming() yields what has arrived, so that neither side holds the
whole message in memory.
"""

import asyncio
import sys

from wsfast import connect

URL = "ws://127.0.0.1:8765/"


def rows():
    for number in range(1000):
        yield f"row {number}\n"


async def main(url=URL):
    async with connect(url) as ws:
        await ws.send(rows())
        size = 0
        async for piece in ws.recv_streaming():
            size += len(piece)
        print("received", size, "characters")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
