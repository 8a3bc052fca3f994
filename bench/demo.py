"""A first comparison, in seconds: wsfast and picows with the same server, on this machine. `make demo` runs it.

It has four cases of the suite, measured as `make bench` measures all of them, with more clients and floors in C.
"""

import asyncio
import os
import platform
from dataclasses import replace
from statistics import median

import uvloop

from bench.measure.harness import cpus, echo_server, measure
from bench.suite import cases
from wsfast import WSListener, WSMsgType, mask_kernel, ws_connect
from wsfast.cli.bench import comparing

SIZE = 512


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


# Each row: its name, the case, and wsfast's contender.
ROWS = (
    ("round trip, µs", cases.request_response(SIZE), "wsfast_listener"),
    ("round trip over wss, µs", cases.request_response(SIZE, tls=True), "wsfast_listener"),
    ("round trip with busy_poll, µs", cases.request_response(SIZE, cores="two"), "wsfast_listener:busy_poll"),
    ("100 out, 100 back, µs per message", cases.batch(SIZE), "wsfast_listener"),
)
PEER = "picows_listener"


def row(name, result, ours):
    """A line: the medians of both, and the median of the ratios of bursts of the same turn, judged as in a report."""
    if result.gaps:
        return f"{name:<34} {'; '.join(result.gaps.values())}"
    ratio = result.ratio(ours, PEER)
    figures = "".join(f"{median(result.point(one)):>9.2f}" for one in (ours, PEER))
    verdict = "   noise" if comparing.is_noise(ratio) else "   slower" if comparing.is_slower(ratio) else ""
    return f"{name:<34}{figures}   {comparing.shown(ratio)}{verdict}"


def main():
    if not hasattr(os, "sched_setaffinity"):
        raise SystemExit(
            "The demo needs Linux: it pins processes to processors, or its figures would say nothing."
        )
    load = os.getloadavg()[0]
    echoes, code = asyncio.run(trade())
    print(
        f"A listener traded {echoes} frames of {SIZE} B with the echo server and closed with code {code}.\n"
    )
    one = len(os.sched_getaffinity(0)) == 1
    on_two = "on the only processor" if one else "pinned to two processors"
    print(f"{'':<34}{'wsfast':>9}{'picows':>9}   wsfast / picows")
    for name, case, ours in ROWS:
        if one and ":" in ours:
            continue
        case = replace(case, cores="same" if one else case.cores)
        print(row(name, measure(case, [ours, PEER], 1), ours), flush=True)
    print(
        f"\nwsfast is faster where the ratio is below 1: the median of {cases.BURSTS} pairs of bursts, with the 95 % "
        "interval of\nthe median in brackets. The times are medians too. Noise: the interval is wide and has 1 in it. "
        f"Each client\nis a process of its own. All messages have {SIZE} B, and every reply is checked.\n"
        "  round trip             one message out, its echo back; client and server share a processor, so the\n"
        "                         figure has every cycle of both\n"
        "  over wss               the same with TLS: wsfast on rustls, picows on OpenSSL, the server in C on OpenSSL\n"
        f"  with busy_poll         wsfast's event loop does not sleep while it waits, picows' does; {on_two}\n"
        f"  100 out, 100 back      wsfast corks a hundred messages, picows has one send() for each; {on_two}\n"
        f"Python {platform.python_version()}, uvloop {uvloop.__version__}, masks by {mask_kernel}, "
        f"load before {load:.1f}. More: make bench, docs/benchmarks.md."
    )


if __name__ == "__main__":
    main()
