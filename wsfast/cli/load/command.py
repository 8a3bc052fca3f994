"""``wsfast load``: send messages to a server that answers each, and measure how fast the answers come."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import signal
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from wsfast.cli import loops, machine, target
from wsfast.cli.load.plan import Plan, Workload, parse_sizes
from wsfast.cli.outcome import ERRORS, INTERRUPTED, OK, Usage, require
from wsfast.cli.text import beside, write_file, write_json

if TYPE_CHECKING:
    from wsfast.cli.load.results import Series
    from wsfast.cli.load.workers import Workers

__all__ = ["add_to"]

_EPILOG = """\
The server must answer each message of a connection, in their order, as one that echoes does.

closed loop (default): each connection sends a message when the one before was answered. It shows the
  most that the server can do with so many connections.
open loop (--rate): messages leave by a schedule that no answer and no stall moves, and a latency counts
  from the time when its message was due. It shows what clients would see at this rate.

  wsfast load ws://127.0.0.1:8765/ --connections 100 --duration 30
  wsfast load ws://127.0.0.1:8765/ --rate 5000 --size 64-8k --json result.json --html result.html
  wsfast load ws://127.0.0.1:8765/ --series 2 --runs 5"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "load",
        help="load a server, and measure throughput and latency",
        description="Load a server with messages, and measure throughput, latency and errors.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_run)
    target.add_arguments(parser)
    load = parser.add_argument_group("load")
    load.add_argument(
        "-c", "--connections", metavar="N", type=target.whole, default=10, help="at the same time (10)"
    )
    load.add_argument(
        "-r", "--rate", metavar="N", type=target.positive, help="messages per second over all connections"
    )
    load.add_argument(
        "-w",
        "--window",
        metavar="N",
        type=target.whole,
        default=1,
        help="unanswered messages per connection in the closed loop (1)",
    )
    length = load.add_mutually_exclusive_group()
    length.add_argument(
        "-d", "--duration", metavar="SECONDS", type=target.positive, help="of what is measured (10)"
    )
    length.add_argument(
        "-n", "--messages", metavar="N", type=target.whole, help="measure so many messages, not a time"
    )
    load.add_argument(
        "--warmup", metavar="SECONDS", type=target.not_negative, default=1.0, help="before that (1)"
    )
    load.add_argument(
        "--drain",
        metavar="SECONDS",
        type=target.not_negative,
        default=5.0,
        help="how long to wait for the last answers (5)",
    )
    load.add_argument("--runs", metavar="N", type=target.whole, default=1, help="runs of a series (1)")
    load.add_argument("--series", metavar="N", type=target.whole, default=1, help="series of runs (1)")
    load.add_argument(
        "--processes", metavar="N", type=target.whole, default=1, help="share the work among so many (1)"
    )
    load.add_argument(
        "--loop", choices=loops.CHOICES, default="auto", help="event loop (uvloop if installed)"
    )
    load.add_argument(
        "--sleep",
        action="store_true",
        help="sleep until the next message is due: saves a processor, adds up to 1 ms to latencies",
    )
    load.add_argument(
        "--reconnect",
        action="store_true",
        help="open a lost connection again, with growing delays; the loss is an error all the same",
    )
    load.add_argument("--compression", action="store_true", help="offer permessage-deflate")
    messages = parser.add_argument_group("messages")
    messages.add_argument(
        "-s",
        "--size",
        metavar="SIZE",
        type=_sizes,
        help="bytes, or a range of random sizes: 512, 4k, 64-8k (512)",
    )
    kind = messages.add_mutually_exclusive_group()
    kind.add_argument(
        "--text", dest="binary", action="store_false", default=False, help="send text (default)"
    )
    kind.add_argument("--binary", dest="binary", action="store_true", help="send binary messages")
    messages.add_argument("--messages-from", metavar="FILE", help="send the lines of a file, again and again")
    messages.add_argument("--seed", metavar="N", type=int, default=1, help="of random messages (1)")
    messages.add_argument(
        "--verify", action="store_true", help="the answer must be the message, as an echo's is"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", metavar="FILE", help="write all figures as JSON; - is stdout")
    output.add_argument("--html", metavar="FILE", help="write a page with plots that needs no other file")
    output.add_argument("-q", "--quiet", action="store_true", help="show no progress")


def _sizes(text: str) -> tuple[int, int]:
    try:
        return parse_sizes(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 512, 4k or 64-8k") from None


def _plan(arguments: argparse.Namespace) -> Plan:
    if arguments.size is not None and arguments.messages_from is not None:
        raise Usage("--size and --messages-from cannot be combined")
    if arguments.rate is not None and arguments.window != 1:
        raise Usage("--window is for the closed loop: an open loop (--rate) does not wait for answers")
    if arguments.processes > arguments.connections:
        raise Usage(f"--processes {arguments.processes}: there are only {arguments.connections} connections")
    if arguments.messages is not None and arguments.messages < arguments.processes:
        raise Usage(f"--messages {arguments.messages}: there are {arguments.processes} processes")
    least, most = arguments.size or (512, 512)
    workload = Workload(least, most, arguments.binary, arguments.messages_from, arguments.seed)
    try:
        workload.messages()
    except OSError as exc:
        raise Usage(f"{arguments.messages_from}: {exc.strerror}") from exc
    except ValueError as exc:
        raise Usage(str(exc)) from exc
    duration = 10.0 if arguments.duration is None and arguments.messages is None else arguments.duration
    checked = {"target": target.of_arguments(arguments), "workload": workload, "duration": duration}
    checked["loop"] = loops.factory(arguments.loop)[0]
    names = {field.name for field in dataclasses.fields(Plan)}
    return Plan(**{name: value for name, value in vars(arguments).items() if name in names} | checked)


def _run(arguments: argparse.Namespace) -> int:
    require("hdrh", "rich")
    from wsfast.cli.load import page, report

    plan = _plan(arguments)
    for path in (arguments.json, arguments.html):
        if path not in (None, "-"):
            write_file(path, "")  # report a path that cannot be written before the runs
    began = datetime.now(timezone.utc)
    series, interrupted = asyncio.run(_measure(plan, arguments))
    content = {
        "wsfast": machine.version_of("wsfast"),
        "url": plan.target.shown,
        "began": began.isoformat(timespec="seconds"),
        "machine": machine.summary(),
        "plan": report.settings(plan),
        **series.to_json(),
        "interrupted": interrupted,
    }
    print(report.text(plan, series), file=beside(arguments.json))
    if arguments.json is not None:
        write_json(arguments.json, content)
    if arguments.html is not None:
        write_file(arguments.html, page.page(content, series))
    return INTERRUPTED if interrupted else ERRORS if series.errors else OK


async def _measure(plan: Plan, arguments: argparse.Namespace) -> tuple[Series, bool]:
    """Do all runs. Returns them, and whether Ctrl-C ended them."""
    from wsfast.cli.load.progress import View
    from wsfast.cli.load.results import Run, Series
    from wsfast.cli.load.workers import Workers

    series = Series()
    current: list[Workers] = []
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        for workers in current:
            workers.stop()
        # A second Ctrl-C does not wait for answers.
        loop.remove_signal_handler(signal.SIGINT)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        with View(plan, arguments.series * arguments.runs, quiet=arguments.quiet) as view:
            for number in range(arguments.series * arguments.runs):
                run = Run(number // arguments.runs + 1, number % arguments.runs + 1)
                workers = Workers(plan, run, lambda: view.show(run, workers.starts))  # noqa: B023 - of this run
                current[:] = [workers]
                view.begin(number)
                await workers.measure()
                if run.sent or run.errors:
                    series.runs.append(run)
                if interrupted or not run.connections:
                    break
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    return series, interrupted
