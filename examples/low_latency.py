"""A round trip that does not sleep: python examples/low_latency.py [URL]

busy_poll keeps the event loop awake for so many seconds after each message. It takes a whole processor.
"""

import asyncio
import sys
from statistics import median
from time import perf_counter

from wsfast import Tuning, WSListener, WSMsgType, ws_connect

URL = "ws://127.0.0.1:8765/"
ROUNDS = 200


class Pinger(WSListener):
    def on_ws_connected(self, transport):
        self.took = []
        self.go(transport)

    def go(self, transport):
        self.sent = perf_counter()
        transport.send(WSMsgType.BINARY, b"tick")

    def on_ws_frame(self, transport, frame):
        self.took.append(perf_counter() - self.sent)
        if len(self.took) < ROUNDS:
            self.go(transport)
        else:
            transport.disconnect()


async def main(url=URL):
    for busy_poll in (0, 0.001):
        transport, pinger = await ws_connect(Pinger, url, tuning=Tuning(busy_poll=busy_poll))
        await transport.wait_disconnected()
        print(f"busy_poll={busy_poll}: {median(pinger.took) * 1e6:.0f} µs per round trip")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
