"""A connection that comes back: python examples/reconnect.py [URL]

On the path /goodbye the echo server closes each connection after one message, as servers do that restart.
"""

import asyncio
import itertools
import sys

from wsfast import ConnectionClosed, connect

URL = "ws://127.0.0.1:8765/goodbye"


async def main(url=URL):
    sessions = 0
    # By default the first delay is random, below five seconds, and delays double while connecting fails.
    async for ws in connect(url, reconnect_delays=lambda: itertools.repeat(0.1)):
        try:
            await ws.send("subscribe")
            while True:
                print("received", await ws.recv())
        except ConnectionClosed as error:
            print("closed:", error.rcvd.code, error.rcvd.reason)
        sessions += 1
        if sessions == 2:
            return


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
