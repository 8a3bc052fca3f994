"""Statistics of the messages that wait on an awaitable connection."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Backlog"]


class Backlog(NamedTuple):
    """The messages that wait to be received, and those that `overflow` has dropped.

    With every `overflow` but ``"pause"`` no message is lost in silence: the messages that arrived are those that were
    received, plus `depth`, plus `dropped`.
    """

    depth: int
    """Messages that wait; with ``overflow="pause"`` fragments, too."""

    bytes: int
    """Bytes that they cost: their payloads, inflated, and 128 bytes for each."""

    age: float | None
    """The age of the oldest of them, in seconds; 0 if nothing waits. None with ``overflow="pause"``: that
    leaves messages in the kernel, where they have no known age."""

    dropped: int
    """Messages that were read and that no :meth:`recv` will return, since the connection was opened."""

    conflated: int
    """Those of the dropped messages that a newer one with the same key has replaced."""

    paused: bool
    """Reading is paused until messages are received."""
