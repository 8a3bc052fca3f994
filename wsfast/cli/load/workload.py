"""The messages that a load sends: made of random bytes or letters, or read from a file."""

from __future__ import annotations

import dataclasses
import random
import string

from wsfast import WSMsgType

__all__ = ["Workload", "parse_sizes"]

# How many messages of random sizes are made, and how many bytes they may be together.
_MANY = 1024
_BYTES = 64 * 2**20

_UNITS = {"": 1, "k": 2**10, "m": 2**20}


@dataclasses.dataclass(frozen=True)
class Workload:
    """What to send. All fields are JSON, so a worker process gets them as they are."""

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
        made = random.Random(self.seed)  # noqa: S311 - not a secret
        if self.least == self.most:
            return [self._make(made, self.most)]
        count = max(1, min(_MANY, _BYTES // max(self.most, 1)))
        return [self._make(made, made.randint(self.least, self.most)) for _ in range(count)]

    def _make(self, made: random.Random, size: int) -> bytes:
        if self.binary:
            return made.randbytes(size)
        return "".join(made.choices(string.ascii_letters + string.digits, k=size)).encode()

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
