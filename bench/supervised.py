"""Measures the cost of a message with a supervisor, and with an overflow policy.

    python -m bench.supervised             instructions of all rows, counted by callgrind; about a minute
    python -m bench.supervised listener    the rows whose name contains the word
    python -m bench.supervised --times 20  nanoseconds instead, of 20 turns

The program gives reads of a hundred text messages of 128 bytes to its own connection, all in one callback of the event
loop. So neither counts nor times have a part of the event loop, or of the kernel. A row fails unless all messages are
received. bench/counted.py counts them.

`--times` measures reads, on one processor, in turns: each turn runs each row once, in another order. A turn's figure
is the lower quartile of the reads in which nothing else took the processor.
"""

import argparse
import asyncio
import os
import random
import statistics
import struct
import time

import wsfast
from bench import counted
from bench.measure import harness
from wsfast.supervisor import Heartbeat, Sequence

PER_READ = 100


def read(number):
    """A hundred messages, each of them new."""
    first = number * PER_READ
    return b"".join(
        struct.pack("!BBH", 0x81, 126, 128) + b"%0128d" % n for n in range(first, first + PER_READ)
    )


READS = [read(number) for number in range(counted.MANY)]  # all in both runs, so that making them cancels out


taken = []  # the nanoseconds of each read


class Frames(wsfast.WSListener):
    def on_ws_frame(self, transport, frame):
        Frames.received += 1


class Texts(wsfast.WSListener):
    payload_type = str

    def on_ws_message(self, transport, msg_type, payload):
        Texts.received += 1


class Lists(wsfast.WSListener):
    payload_type = str

    def on_ws_messages(self, transport, messages):
        Lists.received += len(messages)


async def give(transport, reads):
    given = asyncio.get_running_loop().create_future()

    def give_all():
        for number in range(reads):
            began = time.perf_counter_ns()
            transport.data_received(READS[number])  # a task that waits for a message runs in here
            taken.append(time.perf_counter_ns() - began)
        given.set_result(None)

    asyncio.get_running_loop().call_soon(give_all)
    await given


def subscribe(feed, message, stage):
    """The echo is the acknowledgement."""
    feed.subscribe(message, stage=stage, ack=lambda reply: reply in (message, message.encode()))


async def listen(url, reads, listener, stages=(), **options):
    listener.received = 0
    if options.pop("supervised", True):
        async with wsfast.supervise(url, listener, **options) as feed:
            for stage, message in enumerate(stages):
                subscribe(feed, message, stage)
            await feed.ready()
            listener.received = 0
            await give(feed.transport, reads)
            feed.abort()
    else:
        transport, _ = await wsfast.ws_connect(listener, url)
        await give(transport, reads)
        transport.abort()
    assert listener.received == reads * PER_READ, listener.received


async def receive(url, reads, by, stages=(), **options):
    if options.pop("supervised", True):
        async with wsfast.supervise(url, compression=None, ping_interval=None, **options) as feed:
            for stage, message in enumerate(stages):
                subscribe(feed, message, stage)
            await feed.ready()
            await take(feed, feed.transport, reads, by)
            feed.abort()
    else:
        async with wsfast.connect(url, compression=None, ping_interval=None) as ws:
            await take(ws, ws.protocol, reads, by)
            ws.abort()


async def take(messages, transport, reads, by):
    receiving = asyncio.ensure_future(by(messages, reads * PER_READ))
    await asyncio.sleep(0)
    await give(transport, reads)
    await receiving


async def recv(messages, count):
    for _ in range(count):
        await messages.recv()


async def recv_many(messages, count):
    while count:
        count -= len(await messages.recv_many())


async def async_for(messages, count):
    async for _ in messages:
        count -= 1
        if count == 0:
            break


async def in_order(messages, count):
    async for _ in messages.sequenced(
        Sequence(lambda message: ("stream", int(message[-9:]), int(message[-9:])))
    ):
        count -= 1
        if count == 0:
            break


async def awaitable(url, reads, **options):
    """Nobody receives."""
    async with wsfast.connect(url, compression=None, ping_interval=None, **options) as ws:
        await give(ws.protocol, reads)
        ws.abort()


def slow(policy, **options):
    return lambda url, reads: awaitable(url, reads, overflow=policy, max_queue=64, **options)


# Functions that look into every message for an answer, and find none.
ASKED = {
    "alone": {"supervised": False},
    "supervised": {},
    "max_silence": {"max_silence": 60},
    "stages over": {"stages": ("login", "book")},
    "key": {"key": lambda message: message[-12:]},
    "topic": {"topic": lambda message: message[-12:]},
    "heartbeat": {"heartbeat": Heartbeat(60, "ping", lambda message: message == "pong")},
    "key, topic": {"key": lambda message: message[-12:], "topic": lambda message: message[-12:]},
}


def row(function, how, options):
    return lambda url, reads: function(url, reads, how, **options)


ROWS = {
    f"{name}, {asked}": row(function, how, options)
    for name, function, how in (
        ("recv", receive, recv),
        ("recv_many", receive, recv_many),
        ("async for", receive, async_for),
        ("on_ws_message", listen, Texts),
        ("on_ws_messages", listen, Lists),
        ("on_ws_frame", listen, Frames),
    )
    for asked, options in ASKED.items()
} | {
    "sequenced": row(receive, in_order, {}),
    "nobody receives, max_queue=None": lambda url, reads: awaitable(url, reads, max_queue=None),
    "nobody receives, drop_oldest": slow("drop_oldest"),
    "nobody receives, drop_newest": slow("drop_newest"),
    "nobody receives, conflate, 8 keys": slow("conflate", conflate_key=lambda payload: payload[-1:]),
}


def counts(names):
    rows = [("wsfast_supervised", name, 0) for name in names]
    for name, (few, many) in zip(names, counted.profiles(rows)):
        messages = (counted.MANY - counted.FEW) * PER_READ
        print(f"{name:45}{(counted.total(many) - counted.total(few)) / messages:8,.0f}")


def times(names, turns):
    """The lower and the upper quartile of the turns."""
    cpu, _ = harness.cpus("same")
    found = {name: [] for name in names}
    with harness.echo_server(cpu) as server:
        os.sched_setaffinity(0, {int(cpu)})
        for _ in range(turns):
            for name in random.sample(names, len(names)):
                taken.clear()
                asyncio.run(ROWS[name](server.url, counted.MANY))
                found[name].append(statistics.quantiles(taken, n=4)[0] / PER_READ)
    for name, turn in found.items():
        low, _, high = statistics.quantiles(turn, n=4)
        print(f"{name:45}{low:8,.0f} ns, to {high:,.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only the rows with these words in their names")
    parser.add_argument("--times", type=int, metavar="TURNS", help="measure nanoseconds")
    options = parser.parse_args()
    names = [name for name in ROWS if all(word in name for word in options.words)]
    if options.times:
        times(names, options.times)
    else:
        counts(names)


if __name__ == "__main__":
    main()
