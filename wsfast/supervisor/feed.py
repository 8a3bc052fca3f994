"""The lines of a supervisor as one feed: in which order the program receives from them, and where gaps are."""

from __future__ import annotations

from collections import deque

from wsfast.supervisor.line import Line
from wsfast.supervisor.merger import Merger

__all__ = ["Feed"]

# At most so many connections may hold messages that the program has not received. Each may hold as much as an inbox
# does.
_MOST_LINES = 3


class Feed:
    """A gap is counted before the first message behind it is delivered, by a listener's connection too: as soon as a
    connection is lost, or in the moment in which the old one of two merged lines ends without a proof."""

    def __init__(self) -> None:
        #: The lines from which the program receives, in their order. There are none if it has a listener.
        self.lines: deque[Line] = deque()
        #: Set while there are two lines whose messages are merged.
        self.merger: Merger | None = None
        self.gaps = 0
        #: Messages were dropped because the program received none, and it has received none since.
        self.is_unread = False
        #: Messages that were dropped so that another connection could be opened.
        self.dropped = 0

    @property
    def is_full(self) -> bool:
        """True if as many lines hold messages as may do so. A line that has ended and holds no message does not count,
        because the program may only send and never receive."""
        if len(self.lines) >= _MOST_LINES:
            self.lines = deque(line for line in self.lines if not line.is_spent)
        return len(self.lines) >= _MOST_LINES

    def append(self, line: Line) -> None:
        """The program receives from this line after the others."""
        if line.connection is not None and line not in self.lines:
            self.lines.append(line)
        line.gaps = self.gaps

    def lost_old(self, merger: Merger) -> str | None:
        """The old one of two merged lines has ended. Returns why messages may be missing; None if there is a proof that
        none is. The new one's messages are still to be released."""
        why = merger.end_old()
        if why is not None:
            self._count_gap_after(merger.old)
        return why

    def release(self, merger: Merger) -> None:
        """Deliver the held messages. This runs the program's functions."""
        merger.release()
        if self.merger is merger:
            self.merger = None

    def withdraw(self, merger: Merger) -> None:
        """The new line does not take the place of the old one."""
        merger.withdraw()
        if self.merger is merger:
            self.merger = None
        self.lines = deque(line for line in self.lines if line is not merger.new)

    def discard_oldest(self) -> int:
        """Drop the messages of the oldest line, which has ended. Returns how many."""
        line = self.lines.popleft()
        self.is_unread = True
        assert line.connection is not None
        before = line.dropped
        line.connection.listener.forget()
        number = line.dropped - before
        self.dropped += number
        self._count_gap_after(line)
        return number

    def _count_gap_after(self, line: Line) -> None:
        self.gaps += 1
        for later in self.lines:
            later.gaps += later.number > line.number
