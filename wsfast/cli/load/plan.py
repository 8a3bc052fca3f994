"""The plan of a run of the load tool, as its worker processes receive it."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import string
from typing import Any

from wsfast import WSMsgType
from wsfast.cli.target import Target

__all__ = ["Plan", "Schedule", "Workload", "parse_sizes"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """One run. Times are in seconds. Its fields are named as the options of the command."""

    target: Target
    workload: Workload
    connections: int
    rate: float | None
    """Messages per second over all connections; None is the closed loop."""
    duration: float | None
    messages: int | None
    """How many messages are measured; either this or `duration` is None."""
    warmup: float
    drain: float
    """How long to wait for the last answers."""
    window: int
    """Unanswered messages of a connection in the closed loop."""
    verify: bool
    compression: bool
    """Offer permessage-deflate."""
    reconnect: bool
    """Reopen lost connections."""
    sleep: bool
    """The open loop sleeps even when the next message is due within milliseconds."""
    processes: int
    loop: str

    def share(self, total: int, number: int) -> int:
        """The share of process `number` in `total`."""
        return total // self.processes + (number < total % self.processes)

    def dumps(self) -> str:
        """The plan as a line of JSON."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def loads(cls, line: str | bytes) -> Plan:
        """The plan of such a line."""
        fields: dict[str, Any] = json.loads(line)
        target, workload = Target(**fields.pop("target")), Workload(**fields.pop("workload"))
        return cls(target=target, workload=workload, **fields)


# How many messages of random sizes are made, and how many bytes they may be together.
_MANY = 1024
_BYTES = 64 * 2**20

_UNITS = {"": 1, "k": 2**10, "m": 2**20}


@dataclasses.dataclass(frozen=True)
class Workload:
    """The messages to send. All fields are JSON, so a worker process gets them as they are."""

    least: int
    most: int
    binary: bool
    file: str | None
    seed: int

    @property
    def msg_type(self) -> WSMsgType:
        """The type of all messages."""
        return WSMsgType.BINARY if self.binary else WSMsgType.TEXT

    def messages(self) -> list[bytes]:
        """The messages, to be sent in this order, again and again. Equal workloads make equal messages.

        :raises OSError: the file cannot be read
        :raises ValueError: the file is empty, or its text is not UTF-8
        """
        if self.file is not None:
            return self._of_file(self.file)
        generator = random.Random(self.seed)  # noqa: S311 - not a secret
        if self.least == self.most:
            return [self._make(generator, self.most)]
        count = max(1, min(_MANY, _BYTES // max(self.most, 1)))
        return [self._make(generator, generator.randint(self.least, self.most)) for _ in range(count)]

    def _make(self, generator: random.Random, size: int) -> bytes:
        if self.binary:
            return generator.randbytes(size)
        return "".join(generator.choices(string.ascii_letters + string.digits, k=size)).encode()

    def _of_file(self, path: str) -> list[bytes]:
        with open(path, "rb") as file:
            lines = file.read().splitlines()
        if not lines:
            raise ValueError(f"{path} has no messages: each line is one")
        if not self.binary:
            for number, line in enumerate(lines, 1):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    raise ValueError(f"{path}, line {number} is not UTF-8: use --binary") from None
        return lines


def parse_sizes(text: str) -> tuple[int, int]:
    """``512``, ``4k`` or ``64-8k`` as the least and the largest size in bytes.

    :raises ValueError: it is neither
    """
    least, dash, most = text.partition("-")
    pair = _bytes(least), _bytes(most if dash else least)
    if pair[0] > pair[1]:
        raise ValueError(text)
    return pair


def _bytes(text: str) -> int:
    number = text.rstrip("kKmM")
    if not number.isdecimal():
        raise ValueError(text)
    return int(number) * _UNITS[text[len(number) :].lower()]


class Schedule:
    """Message `i` of all processes is due at ``start + i / rate``; this process sends every `step`-th of them.

    :param start: in nanoseconds of ``time.monotonic_ns()``
    :param rate: messages per second, of all processes together
    :param first: the first message of this process, from 0
    :param step: how many processes there are
    """

    __slots__ = ("_first", "_interval", "_start", "_step", "sent")

    def __init__(self, start: int, rate: float, first: int = 0, step: int = 1) -> None:
        self._start = start
        self._interval = 1e9 / rate
        self._first = first
        self._step = step
        self.sent = 0

    def due(self) -> int:
        """The time of the next message. It is computed from the start, so rounding errors do not add up."""
        return self._start + int((self._first + self.sent * self._step) * self._interval)

    def left(self, end: int) -> int:
        """How many messages of this process are due before `end`, and were not sent."""
        return max(
            0, math.ceil(((end - self._start) / self._interval - self._first) / self._step) - self.sent
        )
