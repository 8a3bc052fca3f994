"""``wsfast bench``: in a minute, wsfast beside the other clients that are installed, on this machine.

Rounds of all clients alternate (``comparing``). The figures are medians of the rounds, with their middle half. A row is
marked NOISY if that spreads over more than a quarter of the median.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from wsfast.cli import loops, machine, target
from wsfast.cli.bench.comparing import NOISY, ContenderError, Waiting, by_turns, judged, ratios, with_spread
from wsfast.cli.bench.contenders import CONTENDERS
from wsfast.cli.outcome import ERRORS, OK, Usage
from wsfast.cli.text import beside, table, write_json

__all__ = ["add_to", "noisy"]

# The length of one client's round, in seconds: longer than the machine's short interruptions, and short enough for many
# rounds.
_ROUND = 0.02

# A client that takes so many seconds for a round is considered hung.
_PATIENCE = 30.0
_STARTING = 300.0  # for the server

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

    def __init__(self, name: str, url: str, loop: str, processor: str) -> None:
        self.name = name
        self.failure: str | None = None
        self.rounds: dict[str, list[float]] = {work.name: [] for work in _WORKS}
        self._exchanges: dict[str, int] = {}
        argv = [sys.executable, "-m", "wsfast.cli.bench.contenders", name, url, loop, processor]
        self.process = Waiting(name, argv, _PATIENCE)

    def round(self, work: Work) -> None:
        """Run a round, and keep its microseconds per exchange.

        :raises ContenderError: the client failed
        """
        exchanges = self._exchanges.get(work.name) or self._warm_up(work)
        self.rounds[work.name].append(self._time(work, exchanges) / exchanges * 1e6)

    def _warm_up(self, work: Work) -> int:
        """Run a few exchanges. Returns how many exchanges a round needs."""
        exchanges, seconds = 1, 0.0
        while seconds < _ROUND / 2:
            seconds = self._time(work, exchanges)
            self._exchanges[work.name] = max(1, int(exchanges * _ROUND / max(seconds, 1e-9)))
            exchanges *= 4
        return self._exchanges[work.name]

    def _time(self, work: Work, exchanges: int) -> float:
        return int(self.process.ask(json.dumps([work.batch, work.size, exchanges]))) / 1e9


def noisy(values: list[float]) -> bool:
    """True if the middle half of the rounds spreads too far for the median to mean anything."""
    spread = with_spread(values)
    return spread["q3"] - spread["q1"] > NOISY * spread["median"]


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
    argv = [sys.executable, "-m", "wsfast.cli.bench.echo", servers]
    server = stack.enter_context(Waiting("the server", argv, _STARTING))
    url = f"ws://127.0.0.1:{int(server.read())}/"
    clients = {}
    for name in names:
        clients[name] = _Client(name, url, loop, own)
        stack.enter_context(clients[name].process)
    turns = _turns(arguments.seconds, shows=sys.stderr.isatty() and not arguments.quiet)
    for name, outcome in by_turns({name: client.round for name, client in clients.items()}, turns).items():
        if isinstance(outcome, ContenderError):
            clients[name].failure = str(outcome)
    return list(clients.values())


def _turns(seconds: float, *, shows: bool) -> Iterator[Work]:
    """The works, again and again, until the time is over."""
    began = time.monotonic()
    number = 0
    while number < _LEAST_ROUNDS or time.monotonic() - began < seconds:
        yield from _WORKS
        number += 1
        if shows:
            share = min((time.monotonic() - began) / seconds, 1)
            print(f"\r{share:4.0%}, {number} rounds", end="", file=sys.stderr, flush=True)
    if shows:
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)


def _processors() -> tuple[str, str]:
    """The processors of the clients and of the server; empty if there is only one, or none can be chosen."""
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return (str(available[0]), str(available[-1])) if len(available) > 1 else ("", "")


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
            spread = with_spread(values)
            middle = f"{spread['q1']:.1f}-{spread['q3']:.1f}"
            reference = by_name.get(CONTENDERS[client.name].reference)
            ratio = judged(ratios(values, reference.rounds[work.name])) if reference is not None else ""
            note = "NOISY" if noisy(values) else ""
            doubtful |= bool(note)
            version = machine.version_of(CONTENDERS[client.name].package) or ""
            rows.append([client.name, version, f"{spread['median']:.1f}", middle, ratio, note])
        rounds = len(measured[0].rounds[work.name]) if measured else 0
        lines += ["", f"{work.name}, µs, {rounds} rounds"]
        lines.append(table(["", "version", "median", "middle half", "to wsfast's of its kind", ""], rows))
    lines += [f"\n{client.failure}" for client in clients if client.failure]
    if missing:
        packages = sorted({CONTENDERS[name].package for name in missing})
        lines.append(
            f"\nnot installed, so not compared: {', '.join(missing)} (pip install {' '.join(packages)})"
        )
    if doubtful:
        lines.append(
            "\nWARNING: rows marked NOISY mean little: the middle half of their rounds spreads over more than "
            f"{NOISY:.0%} of the median. Stop other programs, and repeat it."
        )
    return "\n".join(lines), doubtful
