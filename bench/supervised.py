"""Instructions per message of supervised connections and of overflow policies, counted by callgrind.

    python -m bench.supervised             all rows; about two minutes
    python -m bench.supervised listener    the rows whose name contains the word

Each row runs twice under valgrind. The program gives reads of a hundred frames of 128 bytes to its own connection, so
the counts do not depend on when bytes arrive, and the difference between both runs is the cost of the messages.
"""

import argparse
import asyncio
import struct
import sys

import wsfast
from bench.instructions import collected
from bench.measure.harness import cpus, echo_server
from wsfast.supervisor import Rollover

FEW, MANY, PER_READ = 10, 60, 100
READ = b"".join(struct.pack("!BBH", 0x82, 126, 128) + bytes([65 + i % 8]) * 128 for i in range(PER_READ))


class Listener(wsfast.WSListener):
    """A listener that does nothing with its frames."""

    def on_ws_frame(self, transport, frame):
        pass


def give(transport, reads):
    for _ in range(reads):
        transport.data_received(READ)


async def listener(url, reads):
    transport, _ = await wsfast.ws_connect(Listener, url)
    give(transport, reads)
    transport.abort()


async def supervised(url, reads, factory=Listener, during=None, **options):
    async with wsfast.supervise(url, factory, **options) as feed:
        await feed.ready()
        receiving = None if factory else asyncio.ensure_future(receive(feed))
        rolling = asyncio.ensure_future(feed.roll_over()) if during else None
        await asyncio.sleep(
            0.05
        )  # the echo server sends nothing, so the new connection waits for its first message
        give(feed.transport, reads)
        for task in filter(None, (receiving, rolling)):
            task.cancel()
        feed.abort()


async def receive(messages):
    async for _ in messages:
        pass


async def awaitable(url, reads, receives=True, **options):
    async with wsfast.connect(url, compression=None, ping_interval=None, **options) as ws:
        receiving = asyncio.ensure_future(receive(ws)) if receives else None
        await asyncio.sleep(0)
        give(ws.protocol, reads)
        if receiving:
            receiving.cancel()
        ws.abort()


def slow(policy, **options):
    return lambda url, reads: awaitable(url, reads, receives=False, overflow=policy, max_queue=64, **options)


ROWS = {
    "listener": listener,
    "listener, supervised": supervised,
    "listener, supervised, max_silence": lambda url, reads: supervised(url, reads, max_silence=60),
    "listener, supervised, key": lambda url, reads: supervised(url, reads, key=lambda payload: None),
    "listener, supervised, during a rollover": lambda url, reads: supervised(
        url, reads, during=True, rollover=Rollover()
    ),
    "awaitable": awaitable,
    "awaitable, supervised": lambda url, reads: supervised(url, reads, None, compression=None),
    "awaitable, supervised, max_silence": lambda url, reads: supervised(
        url, reads, None, compression=None, max_silence=60
    ),
    "nobody receives, max_queue=None": lambda url, reads: awaitable(url, reads, False, max_queue=None),
    "nobody receives, drop_oldest": slow("drop_oldest"),
    "nobody receives, drop_newest": slow("drop_newest"),
    "nobody receives, conflate, 8 keys": slow("conflate", conflate_key=lambda payload: payload[:1]),
}


def executed(name, reads):
    with echo_server(cpus("same")[0]) as server:
        words = [sys.executable, "-m", "bench.supervised", "--run", name, server.url, str(reads)]
        return collected(words, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only the rows with these words in their names")
    parser.add_argument("--run", nargs=3, metavar=("ROW", "URL", "READS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        name, url, reads = options.run
        asyncio.run(ROWS[name](url, int(reads)))
        return
    for name in ROWS:
        if all(word in name for word in options.words):
            cost = (executed(name, MANY) - executed(name, FEW)) / ((MANY - FEW) * PER_READ)
            print(f"{name:45}{cost:8,.0f}", flush=True)


if __name__ == "__main__":
    main()
