"""Options that mean the same to several faces, as objects that check themselves.

Each ``connect`` makes them before it does anything else. A wrong type raises TypeError and a wrong value ValueError,
both with the name of the option.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from operator import index
from typing import Any

from wsfast.codes import WSAutoPingStrategy

__all__ = [
    "NO_LIMIT",
    "Limits",
    "Marks",
    "Pinging",
    "Timeouts",
    "check_address",
    "check_bools",
    "check_callables",
    "check_logger",
    "check_types",
    "count",
    "seconds",
]

# A larger limit on bytes than memory can be addressed with is none.
NO_LIMIT = 2**62

# A hundred years: as good as no end, while the timers of some event loops, and of Rust, end not much later.
_FOREVER = 100 * 365.25 * 86400

# A limit of two kinds, such as of messages and of fragments, or a high-water and a low-water mark.
Marks = int | tuple[int | None, int | None] | None


def seconds(name: str, value: Any, *, none: str | None, zero: bool = True) -> float | None:
    """A checked span of time; None for one that never ends.

    :param none: what None means, for the error; None if it is refused
    :param zero: whether 0 is allowed
    """
    if value is None and none is not None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")
    try:
        span = float(value)
    except OverflowError:  # an int
        span = math.inf if value > 0 else -math.inf  # type: ignore[operator]
    if not (span >= 0 if zero else span > 0):  # NaN is refused, too
        what = "must not be negative" if zero else "must be positive"
        raise ValueError(f"{name} {what}{f', or None {none}' if none else ''}, not {value!r}")
    if none is not None and span >= _FOREVER:
        return None
    return value if isinstance(value, (int, float)) else span


def count(name: str, value: Any, *, least: int = 0, none: str | None = None) -> int | None:
    """A checked number of bytes or of things.

    :param none: what None means, for the error; None if it is refused
    """
    if value is None and none is not None:
        return None
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int{' or None' if none else ''}, not {value!r}") from None
    if number < least:
        what = "must be positive" if least else "must not be negative"
        raise ValueError(f"{name} {what}{f', or None {none}' if none else ''}, not {value!r}")
    return min(number, NO_LIMIT)


def check_bools(**options: Any) -> None:
    """Refuse what is neither True nor False: "no" would be true."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, not {value!r}")


def check_callables(**options: Callable[..., Any] | None) -> None:
    """Refuse what cannot be called; None is the default of all of them."""
    for name, value in options.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, not {value!r}")


def check_types(*types: type, **options: Any) -> None:
    """Refuse what is of none of the types; None is the default of all of them."""
    for name, value in options.items():
        if value is not None and (not isinstance(value, types) or isinstance(value, bool)):
            expected = " or ".join(kind.__name__ for kind in types)
            raise TypeError(f"{name} must be {expected}, not {value!r}")


def check_address(name: str, value: Any) -> None:
    """Refuse what is no address: host and port, of IPv6 perhaps with two more numbers; None is the default."""
    if value is None:
        return
    if not (isinstance(value, (tuple, list)) and len(value) in (2, 4)):
        raise TypeError(f"{name} must be a host and a port, not {value!r}")
    check_types(str, bytes, **{f"the host of {name}": value[0]})
    check_types(int, str, **{f"the port of {name}": value[1]})


def check_logger(name: str, value: Any) -> None:
    """Refuse what is neither a logger nor an adapter of one; None is the default."""
    if value is not None and not (hasattr(value, "isEnabledFor") and hasattr(value, "warning")):
        raise TypeError(f"{name} must be a logger, not {value!r}")


class Timeouts:
    """How long opening and closing may take, in seconds; None is without end."""

    __slots__ = ("close", "handshake", "open")

    def __init__(
        self, open_timeout: Any, close_timeout: Any, websocket_handshake_timeout: Any = None
    ) -> None:
        no_limit = "for no limit"
        self.open = seconds("open_timeout", open_timeout, none=no_limit)
        self.close = seconds("close_timeout", close_timeout, none=no_limit)
        self.handshake = seconds("websocket_handshake_timeout", websocket_handshake_timeout, none=no_limit)


class Limits:
    """What a connection may hold: `message` and `fragment` in bytes, NO_LIMIT if there is none; `queue`, the marks in
    frames at which reading pauses and resumes; `write`, those in bytes at which sending does."""

    __slots__ = ("fragment", "message", "queue", "write")

    def __init__(self, max_size: Any, max_queue: Any, write_limit: Any = None) -> None:
        message, fragment = _pair("max_size", max_size)
        self.message = _bytes("max_size", message)
        self.fragment = _bytes("max_size", fragment)
        self.queue = _marks("max_queue", max_queue, "for no limit")
        self.write = _marks("write_limit", write_limit, "for asyncio's default")

    @staticmethod
    def of_frames(max_frame_size: Any) -> int:
        """The limit of a listener, in bytes."""
        return _bytes("max_frame_size", max_frame_size)


def _bytes(name: str, value: Any) -> int:
    limit = count(name, value, least=1, none="for no limit")
    return NO_LIMIT if limit is None else limit


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    if not isinstance(value, tuple):
        return value, None
    if len(value) != 2:
        raise ValueError(f"{name} must have two items if it is a tuple, not {len(value)}")
    return value


def _marks(name: str, value: Any, none: str) -> tuple[int | None, int | None]:
    high, low = _pair(name, value)
    high, low = (count(name, mark, none=none) for mark in (high, low))
    if high is None and low is not None:
        high = min(low * 4, NO_LIMIT)
    if high is not None and low is None:
        low = high // 4
    if high is not None and low is not None and high < low:
        raise ValueError(f"{name}: high must be greater than or equal to low")
    return high, low


class Pinging:
    """When PINGs are sent, and how long their answers may take, in seconds.

    `interval`: None sends none; `timeout`: None waits without end.
    """

    __slots__ = ("interval", "strategy", "timeout")

    def __init__(self, ping_interval: Any, ping_timeout: Any) -> None:
        self.interval = seconds("ping_interval", ping_interval, zero=False, none="to send no pings")
        self.timeout = seconds("ping_timeout", ping_timeout, zero=False, none="for no limit")
        self.strategy = WSAutoPingStrategy.PING_PERIODICALLY

    @classmethod
    def of_listener(cls, enabled: Any, idle_timeout: Any, reply_timeout: Any, strategy: Any) -> Pinging:
        """Of picows' options, which say by one of their own that no pings are sent."""
        check_bools(enable_auto_ping=enabled)
        seconds("auto_ping_idle_timeout", idle_timeout, zero=False, none=None)
        seconds("auto_ping_reply_timeout", reply_timeout, zero=False, none=None)
        if reply_timeout > idle_timeout:
            raise ValueError(
                f"auto_ping_reply_timeout must be at most auto_ping_idle_timeout, not {reply_timeout!r}"
            )
        pinging = cls(idle_timeout if enabled else None, reply_timeout)
        try:
            pinging.strategy = WSAutoPingStrategy(strategy)
        except ValueError:
            raise ValueError(f"auto_ping_strategy must be a WSAutoPingStrategy, not {strategy!r}") from None
        return pinging
