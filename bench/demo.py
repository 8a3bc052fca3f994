"""A first comparison, in seconds: wsfast and picows with the same server, on this machine. `make demo` runs it.

It measures two cases of the suite, shortened. `make bench` runs the suite itself, with more repeats and with floors.
"""

import asyncio
import os
import platform
from statistics import median

import uvloop

from bench import stats
from bench.cases import batch, request_response
from bench.harness import cpus, echo_server, measure
from wsfast import WSListener, WSMsgType, mask_kernel, ws_connect

CONTENDERS = ["wsfast_listener", "picows_listener"]
REPEATS = 5


class Trader(WSListener):
    """A listener that sends ten orders of 512 bytes, each when the echo of the last one arrives."""

    def on_ws_connected(self, transport):
        self.echoes = 0
        transport.send(WSMsgType.BINARY, b"o" * 512)

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


def row(name, result, point):
    """One line for a case: both medians, and the median and range of the ratios within each repeat."""
    ours, theirs = (result.point(contender, point) for contender in CONTENDERS)
    ratio = stats.ratios(ours, theirs)
    spread = f"{ratio['median']:.2f} ({ratio['low']:.2f}-{ratio['high']:.2f})"
    return f"{name:<34}{median(ours):>9.2f}{median(theirs):>9.2f}   {spread}"


def main():
    if not hasattr(os, "sched_setaffinity"):
        raise SystemExit(
            "The demo needs Linux: it pins processes to processors, or its figures would say nothing."
        )
    echoes, code = asyncio.run(trade())
    print(f"A listener traded {echoes} frames of 512 B with the echo server and closed with code {code}.\n")

    two_cores = "two" if len(os.sched_getaffinity(0)) > 1 else "same"
    round_trip = measure(request_response(512).shorter(2), CONTENDERS, REPEATS)
    corked = measure(batch(512, cores=two_cores), CONTENDERS, REPEATS)

    print(f"{'512 B':<34}{'wsfast':>9}{'picows':>9}   wsfast / picows")
    print(row("round trip, p50, µs", round_trip, "p50"))
    print(row("round trip, p99, µs", round_trip, "p99"))
    print(row("100 out, 100 back, µs per message", corked, "p50"))
    print(
        f"\nwsfast is faster where the ratio is below 1: the median of {REPEATS} repeats (lowest-highest).\n"
        "Each run is a fresh process against a fresh C echo server, the contenders alternate, every reply is\n"
        "checked, garbage collection is off.\n"
        f"Round trips: both pinned to one core. Batches: {'pinned to two' if two_cores == 'two' else 'on one'}, "
        "wsfast corked, picows by one send() each.\n"
        f"Python {platform.python_version()}, uvloop {uvloop.__version__}, masks by {mask_kernel}, "
        f"load before {os.getloadavg()[0]:.1f}. More: make bench, docs/benchmarks.md."
    )


if __name__ == "__main__":
    main()
