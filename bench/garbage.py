"""Counts the garbage collections during round trips that keep nothing, with `gc.callbacks`.

    python -m bench.garbage [--rounds N]

A collection starts when the program has made 700 tracked objects more than it has freed. So if each round trip leaves
one object behind, there is one collection per 700 round trips. No collection means that no object is left behind.
"""

import argparse
import asyncio
import gc
import math
from functools import partial

import picows
import uvloop

import wsfast
from bench.clients import listening
from bench.measure.harness import cpus, echo_server
from wsfast import Tuning

WARMUP = 2000
LIBRARIES = {
    "wsfast": (wsfast, {}),
    "wsfast, busy_poll": (wsfast, {"tuning": Tuning(busy_poll=math.inf)}),
    "wsfast, timestamps": (wsfast, {"tuning": Tuning(timestamps="kernel")}),
    "picows": (picows, {}),
}


async def collections(library, options, url, rounds):
    """The numbers of the round trips, after the warm-up, during which the collector ran."""
    binary = library.WSMsgType.BINARY

    def send(transport, payload):
        transport.send(binary, payload)

    listener = listening.request_response(library.WSListener, send, 512, WARMUP + rounds)
    seen = []

    def note(phase, info):
        if phase == "start":
            seen.append(len(listener.samples) - WARMUP)

    gc.callbacks.append(note)
    try:
        await listening.run(partial(library.ws_connect, **options), listener, url, None)
    finally:
        gc.callbacks.remove(note)
    return [number for number in seen if 0 <= number < rounds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1_000_000)
    rounds = parser.parse_args().rounds
    for new_loop in (uvloop.new_event_loop, asyncio.new_event_loop):
        for name, (library, options) in LIBRARIES.items():
            loop = new_loop()
            with echo_server(cpus("same")[0]) as server:
                found = loop.run_until_complete(collections(library, options, server.url, rounds))
            loop.close()
            kind = type(loop).__module__.split(".")[0]
            print(f"{kind:8} {name:20} {len(found)} collections in {rounds} round trips")


if __name__ == "__main__":
    main()
