"""A first comparison, in seconds: wsfast and picows with the same server, on this machine. `make demo` runs it.

Short bursts of both libraries alternate in one process, each library on an event loop of its own, so that a slow phase
of the machine is a part of both. `make bench` runs the suite itself, with more clients, more work and floors in C.
"""

import asyncio
import gc
import math
import os
import platform
import ssl
from functools import partial
from statistics import median

import picows
import uvloop

import wsfast
from bench import stats
from bench.clients import listening, picows_listener, wsfast_listener
from bench.measure.harness import cpus, echo_server
from wsfast import WSListener, WSMsgType, mask_kernel, ws_connect

SIZE = 512
BURSTS = 60  # of each library; the first ten are the warm-up


class Trader(WSListener):
    """A listener that sends ten orders of 512 bytes, each when the echo of the last one arrives."""

    def on_ws_connected(self, transport):
        self.echoes = 0
        transport.send(WSMsgType.BINARY, b"o" * SIZE)

    def on_ws_frame(self, transport, frame):
        self.echoes += 1
        if self.echoes < 10:
            transport.send(WSMsgType.BINARY, frame.get_payload_as_memoryview())
        else:
            transport.disconnect()


async def trade():
    with echo_server(cpus("same")[0]) as server:
        transport, trader = await ws_connect(Trader, server.url)
        await transport.wait_disconnected()
    return trader.echoes, transport.close_info.code


class Side:
    """One library: an event loop, a connection, and a listener that goes round trip by round trip."""

    def __init__(self, connect, make_listener, url):
        self.loop = uvloop.new_event_loop()
        self.transport, self.listener = self.loop.run_until_complete(self.open(connect, make_listener, url))

    @staticmethod
    async def open(connect, make_listener, url):
        listener = make_listener()
        return await connect(lambda: listener, url)

    def burst(self, rounds):
        """The nanoseconds of each round."""
        return self.loop.run_until_complete(self.play(rounds))

    async def play(self, rounds):
        listener = self.listener
        listener.samples, listener.rounds = [], rounds
        listener.done = self.loop.create_future()
        listener.next(self.transport)
        return await listener.done

    def close(self):
        self.transport.disconnect()
        self.loop.run_until_complete(self.transport.wait_disconnected())
        self.loop.close()


def round_trips(library, client):
    return partial(listening.request_response, library.WSListener, client.send, SIZE, 0)


def batches(library, send_batch):
    return partial(listening.batch, library.WSListener, send_batch, SIZE, 100, 0)


def compare(ours, theirs, rounds):
    """The medians of each burst of both sides, in ns."""
    medians = [], []
    for burst in range(BURSTS):
        for side, kept in ((ours, medians[0]), (theirs, medians[1])):
            kept.append(median(side.burst(rounds)))
            if burst < 10:
                kept.clear()
    return medians


def row(name, ours, theirs, per):
    """One line: the medians of both, and the median of the ratios of neighbouring bursts, judged as in a report."""
    ratio = stats.ratios(ours, theirs)
    figures = f"{median(ours) / per:>9.2f}{median(theirs) / per:>9.2f}"
    verdict = "   noise" if stats.is_noise(ratio) else "   slower" if stats.is_slower(ratio) else ""
    return f"{name:<34}{figures}   {stats.shown(ratio)}{verdict}"


def measured(name, cores, listeners, *, tls=False, rounds=100, per=1000, **options):
    """Run one row of the table."""
    server_cpu, client_cpu = cpus(cores)
    os.sched_setaffinity(0, [client_cpu])
    with echo_server(server_cpu, tls=tls) as server:
        trust = {"ssl_context": wsfast.TLS(cafile=server.ca)} if tls else {}
        peer_trust = {"ssl_context": ssl.create_default_context(cafile=server.ca)} if tls else {}
        ours = Side(partial(wsfast.ws_connect, **trust, **options), listeners[0], server.url)
        theirs = Side(partial(picows.ws_connect, **peer_trust), listeners[1], server.url)
        line = row(name, *compare(ours, theirs, rounds), per)
        ours.close()
        theirs.close()
    return line


def main():
    if not hasattr(os, "sched_setaffinity"):
        raise SystemExit(
            "The demo needs Linux: it pins processes to processors, or its figures would say nothing."
        )
    echoes, code = asyncio.run(trade())
    print(
        f"A listener traded {echoes} frames of {SIZE} B with the echo server and closed with code {code}.\n"
    )

    usable = os.sched_getaffinity(0)
    two = "two" if len(usable) > 1 else "same"
    on_two = "pinned to two processors" if two == "two" else "on the only processor"
    single = round_trips(wsfast, wsfast_listener), round_trips(picows, picows_listener)
    hundred = batches(wsfast, wsfast_listener.send_corked), batches(picows, picows_listener.send_each)
    gc.collect()
    gc.disable()

    print(f"{'':<34}{'wsfast':>9}{'picows':>9}   wsfast / picows")
    rows = [
        ("round trip, µs", "same", single, {}),
        ("round trip over wss, µs", "same", single, {"tls": True}),
        ("100 out, 100 back, µs per message", two, hundred, {"rounds": 10, "per": 100_000}),
    ]
    if two == "two":
        rows.insert(2, ("round trip with busy_poll, µs", two, single, {"busy_poll": math.inf}))
    for name, cores, listeners, options in rows:
        print(measured(name, cores, listeners, **options), flush=True)
        os.sched_setaffinity(0, usable)
    print(
        f"\nwsfast is faster where the ratio is below 1: the median of {BURSTS - 10} pairs of bursts, with the "
        "95 % interval of\nthe median in brackets. The times are medians too. Noise: the interval is wide and has 1 "
        f"in it. All bursts\nare of one process. All messages have {SIZE} B, and every reply is checked.\n"
        "  round trip             one message out, its echo back; client and server share a processor, so the\n"
        "                         figure has every cycle of both\n"
        "  over wss               the same with TLS: wsfast on rustls, picows on OpenSSL, the server in C on OpenSSL\n"
        f"  with busy_poll         wsfast's event loop does not sleep while it waits, picows' does; {on_two}\n"
        f"  100 out, 100 back      wsfast corks a hundred messages, picows has one send() for each; {on_two}\n"
        f"Python {platform.python_version()}, uvloop {uvloop.__version__}, masks by {mask_kernel}, "
        f"load before {os.getloadavg()[0]:.1f}. More: make bench, docs/benchmarks.md."
    )


if __name__ == "__main__":
    main()
