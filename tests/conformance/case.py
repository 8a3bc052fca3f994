"""A row of the table."""

from __future__ import annotations

from typing import Any, NamedTuple

from support.frames import close


class Case(NamedTuple):
    """What a server says, and what must come of it.

    Every row must end. One without `fails` or `closes` goes on living: the server then closes with 1000, which must be
    answered.
    """

    name: str
    says: list[bytes]  # each in a write of its own
    gets: list[str | bytes] = []  # noqa: RUF012 - a tuple has no mutable state to share
    pongs: list[bytes] = []  # noqa: RUF012
    fails: int | None = None  # the client fails the connection with this code
    closes: bytes | None = None  # what the CLOSE frame among `says` carries, and its answer must
    options: dict[str, Any] = {}  # noqa: RUF012 - of connect()
    extensions: str = ""  # the header with which the server accepts them

    @property
    def everything(self) -> list[bytes]:
        return self.says if self.ends else [*self.says, close(1000)]

    @property
    def ends(self) -> bool:
        return self.fails is not None or self.closes is not None


def chopped(data: bytes, size: int = 1) -> list[bytes]:
    """In pieces of `size` bytes."""
    return [data[at : at + size] for at in range(0, len(data), size)]
