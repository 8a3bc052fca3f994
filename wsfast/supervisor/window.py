"""A strict rolling window, which limits when the next message may be sent. Pure arithmetic: the time is an argument."""

from __future__ import annotations

from collections import deque

from wsfast._common.options import count, seconds

__all__ = ["Sent", "Window"]


class Window:
    """At most `limit` messages in any `per` seconds, whenever these begin.

    A token bucket does not promise that: a full one lets `limit` messages pass at once, and more as it fills.

    Exchanges count PING and PONG frames too. wsfast counts those that it sends by itself, but cannot delay them.
    So the supervisor keeps `reserve` of the `limit` free for them: its own messages are at most `limit - reserve` in
    any `per` seconds. If more PINGs and PONGs than that are sent, they count, and the next message waits.

    **The promise**: no `per` seconds see more than `limit` frames leave, as long as no more than `reserve` of them are
    PINGs and PONGs. The default, 1, suits a server that pings no more often than every `per` seconds.

    Each connection has a window of its own. Servers count when frames arrive, and networks delay one frame more than
    the next. Give a `per` that is a little longer than the server's.

    :param limit: messages
    :param per: seconds
    :param reserve: of `limit`, for PINGs and PONGs
    :raises TypeError, ValueError: a value is invalid, or `reserve` leaves no room for messages
    """

    __slots__ = ("limit", "per", "reserve")

    def __init__(self, limit: int, per: float, *, reserve: int = 1) -> None:
        self.limit = count("limit", limit, least=1) or 1
        self.per = seconds("per", per, none=None, zero=False) or 0.0
        self.reserve = count("reserve", reserve) or 0
        if self.reserve >= self.limit:
            raise ValueError(f"reserve must be less than limit, {self.limit}, not {reserve!r}")

    def __repr__(self) -> str:
        return f"Window({self.limit}, {self.per}, reserve={self.reserve})"


class Sent:
    """The times at which one connection has sent frames within its window: `limit` of them at most.

    Frames that wsfast sends by itself are noticed after they left. They are noted with the time when they were noticed,
    which is later, so the window errs on the safe side.
    """

    def __init__(self, window: Window) -> None:
        self._per = window.per
        # The times of the last messages, at most as many as may be sent, and those of the last frames of any kind.
        self._messages: deque[float] = deque(maxlen=window.limit - window.reserve)
        self._frames: deque[float] = deque(maxlen=window.limit)
        self._now = float("-inf")

    def wait(self, now: float) -> float:
        """The seconds until a message may be sent; 0 if one may be sent now."""
        now = self._no_earlier(now)
        return max(self._wait(self._messages, now), self._wait(self._frames, now))

    def message(self, now: float) -> None:
        """A message is being sent."""
        now = self._no_earlier(now)
        self._messages.append(now)
        self._frames.append(now)

    def others(self, number: int, now: float) -> None:
        """`number` frames that are not messages were sent."""
        now = self._no_earlier(now)
        for _ in range(min(number, self._frames.maxlen or 0)):
            self._frames.append(now)

    def left_late(self, since: float, now: float) -> None:
        """The kernel took the frames of `since` and later only now, so they count as sent now."""
        now = self._no_earlier(now)
        for times in (self._messages, self._frames):
            late = sum(1 for time in times if time >= since)
            for _ in range(late):
                times.pop()
            times.extend([now] * late)

    def _wait(self, times: deque[float], now: float) -> float:
        if len(times) < (times.maxlen or 0):
            return 0.0
        # A frame may be sent when the oldest one has left the window. A frame at the very edge still counts.
        due = times[0] + self._per
        return 0.0 if now > due else max(due - now, 1e-6)

    def _no_earlier(self, now: float) -> float:
        """The latest time so far. So a clock that is set back does not empty the window."""
        self._now = max(self._now, now)
        return self._now
