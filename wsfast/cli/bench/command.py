"""``wsfast bench``: in a minute, wsfast beside the other clients that are installed, on this machine.

Short rounds of all clients alternate, so that a slow phase of the machine is every client's. The figures are medians of
the rounds, with the range of the middle half.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import select
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from wsfast.cli import loops, machine, target
from wsfast.cli.bench.contenders import CONTENDERS
from wsfast.cli.outcome import ERRORS, OK, Usage
from wsfast.cli.text import beside, table, write_json

__all__ = ["add_to", "noisy", "quartiles"]

# The length of one client's round, in seconds: longer than the machine's short interruptions, and short enough for many
# rounds.
_ROUND = 0.02

# A client that takes so many seconds for a round is considered hung.
_PATIENCE = 30.0

# A row is marked NOISY if the middle half of its rounds spreads over more than this part of the median.
_NOISE = 0.25

_LEAST_ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class Work:
    """A kind of exchange to measure: `batch` messages of `size` bytes each way."""

    name: str
    batch: int
    size: int


_WORKS = (
    Work("round trip, 512 B", 1, 512),
    Work("round trip, 64 KiB", 1, 65536),
    Work("100 out, 100 back, 512 B", 100, 512),
)


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="compare wsfast with the other clients that are installed, on this machine",
        description="Compare wsfast with the other WebSocket clients that are installed here. A server of its own, on "
        "another processor if there is one, answers each message with one of the same length.",
        epilog="exit codes: 0 all clients were measured, 1 a client failed or a row is too noisy, 2 wrong usage",
    )
    parser.set_defaults(run=_run)
    parser.add_argument(
        "--seconds", type=target.positive, default=30.0, metavar="N", help="for all of it, about (30)"
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="of the clients, by a part of its name; may be repeated",
    )
    parser.add_argument(
        "--loop", choices=loops.CHOICES, default="auto", help="event loop (uvloop if installed)"
    )
    parser.add_argument("--json", metavar="FILE", help="write all rounds as JSON; - is stdout")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")


class _Client:
    """A client in a process of its own, which waits for rounds."""

    def __init__(self, name: str, url: str, loop: str, processor: int | None, stack: ExitStack) -> None:
        self.name = name
        self.failure: str | None = None
        self.rounds: dict[str, list[float]] = {work.name: [] for work in _WORKS}
        self._exchanges: dict[str, int] = {}
        command = [sys.executable, "-m", "wsfast.cli.bench.contenders", name, url, loop]
        self._process = stack.enter_context(
            subprocess.Popen(  # noqa: S603
                [*command, "" if processor is None else str(processor)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self._process.kill)

    def warm_up(self, work: Work) -> None:
        """Run a few exchanges, and compute how many exchanges a round needs."""
        exchanges, seconds = 1, 0.0
        while self.failure is None and seconds < _ROUND / 2:
            seconds = self._time(work, exchanges)
            self._exchanges[work.name] = max(1, int(exchanges * _ROUND / max(seconds, 1e-9)))
            exchanges *= 4

    def round(self, work: Work) -> None:
        """Run a round, and keep its microseconds per exchange."""
        if self.failure is None:
            exchanges = self._exchanges[work.name]
            seconds = self._time(work, exchanges)
            if self.failure is None:
                self.rounds[work.name].append(seconds / exchanges * 1e6)

    def _time(self, work: Work, exchanges: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([work.batch, work.size, exchanges]) + "\n")
            self._process.stdin.flush()
            if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
                self._process.kill()
                self._process.communicate()
                self.failure = f"no answer within {_PATIENCE:g} s"
                return 0.0
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.kill()
            lines = self._process.communicate()[1].strip().splitlines()
            self.failure = lines[-1] if lines else f"ended with {self._process.returncode}"
            return 0.0
        return int(line) / 1e9


def quartiles(values: list[float]) -> tuple[float, float, float]:
    """First quartile, median and third quartile."""
    if len(values) < 2:
        return (values[0],) * 3
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, median, third


def noisy(values: list[float]) -> bool:
    """True if the middle half of the rounds spreads too far for the median to mean anything."""
    first, median, third = quartiles(values)
    return third - first > _NOISE * median


def _run(arguments: argparse.Namespace) -> int:
    loop = loops.factory(arguments.loop)[0]
    chosen = [
        name for name in CONTENDERS if not arguments.only or any(part in name for part in arguments.only)
    ]
    if not chosen:
        raise Usage(f"--only: there is no such client. There are: {', '.join(CONTENDERS)}")
    installed = [name for name in chosen if importlib.util.find_spec(CONTENDERS[name].module) is not None]
    missing = [name for name in chosen if name not in installed]
    before = machine.summary()
    with ExitStack() as stack:
        clients = _measure(installed, loop, arguments, stack)
    content = {
        "wsfast": machine.version_of("wsfast"),
        "machine": before,
        "event_loop": loop,
        "clients": [_client_json(client) for client in clients],
        "missing": [{"name": name, "package": CONTENDERS[name].package} for name in missing],
    }
    text, doubtful = _report(clients, missing, content)
    print(text, file=beside(arguments.json))
    if arguments.json is not None:
        write_json(arguments.json, content)
    return ERRORS if doubtful or any(client.failure for client in clients) else OK


def _measure(names: list[str], loop: str, arguments: argparse.Namespace, stack: ExitStack) -> list[_Client]:
    own, servers = _processors()
    server = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "wsfast.cli.bench.echo"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    stack.callback(server.kill)
    if servers is not None:
        os.sched_setaffinity(server.pid, {servers})
    assert server.stdout is not None
    url = f"ws://127.0.0.1:{int(server.stdout.readline())}/"
    clients = [_Client(name, url, loop, own, stack) for name in names]
    shows = sys.stderr.isatty() and not arguments.quiet
    began = time.monotonic()
    for work in _WORKS:
        for client in clients:
            client.warm_up(work)
    number = 0
    while number < _LEAST_ROUNDS or time.monotonic() - began < arguments.seconds:
        for work in _WORKS:
            # Each round begins with another client, so none always follows the same one.
            for place in range(len(clients)):
                clients[(place + number) % len(clients)].round(work)
        number += 1
        if shows:
            share = min((time.monotonic() - began) / arguments.seconds, 1)
            print(f"\r{share:4.0%}, {number} rounds", end="", file=sys.stderr, flush=True)
    if shows:
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)
    return clients


def _processors() -> tuple[int | None, int | None]:
    """The processor of the clients and that of the server; None if there is only one, or none can be chosen."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    available = sorted(os.sched_getaffinity(0))
    return (available[0], available[-1]) if len(available) > 1 else (None, None)


def _client_json(client: _Client) -> dict[str, Any]:
    contender = CONTENDERS[client.name]
    return {
        "name": client.name,
        "version": machine.version_of(contender.package),
        "failure": client.failure,
        "us": {name: [round(value, 3) for value in values] for name, values in client.rounds.items()},
    }


def _report(clients: list[_Client], missing: list[str], content: dict[str, Any]) -> tuple[str, bool]:
    facts = content["machine"]
    lines = [
        f"{facts['processor']}, {facts['processors']} processors, {facts['system']}, {facts['python']}",
        f"event loop: {content['event_loop']}; load when it began: {facts['load']}",
    ]
    measured = [client for client in clients if client.failure is None]
    by_name = {client.name: client for client in measured}
    doubtful = False
    for work in _WORKS:
        rows = []
        for client in measured:
            values = client.rounds[work.name]
            first, median, third = quartiles(values)
            ratio = ""
            reference = by_name.get(CONTENDERS[client.name].reference)
            if reference is not None:
                # In pairs of the same round, which had the same machine.
                pairs = zip(values, reference.rounds[work.name], strict=True)
                ratios = [mine / its for mine, its in pairs]
                ratio = "noise" if noisy(ratios) else "x {1:.2f} ({0:.2f}-{2:.2f})".format(*quartiles(ratios))
            note = "NOISY" if noisy(values) else ""
            doubtful |= bool(note)
            version = machine.version_of(CONTENDERS[client.name].package) or ""
            rows.append([client.name, version, f"{median:.1f}", f"{first:.1f}-{third:.1f}", ratio, note])
        rounds = len(measured[0].rounds[work.name]) if measured else 0
        lines += ["", f"{work.name}, µs, {rounds} rounds"]
        lines.append(table(["", "version", "median", "middle half", "to wsfast's of its kind", ""], rows))
    lines += [f"\n{client.name} failed: {client.failure}" for client in clients if client.failure]
    if missing:
        packages = sorted({CONTENDERS[name].package for name in missing})
        lines.append(
            f"\nnot installed, so not compared: {', '.join(missing)} (pip install {' '.join(packages)})"
        )
    if doubtful:
        lines.append(
            "\nWARNING: rows marked NOISY mean little: the middle half of their rounds spreads over more than "
            f"{_NOISE:.0%} of the median. Stop other programs, and repeat it."
        )
    return "\n".join(lines), doubtful
