"""Options with the same meaning in several faces, as objects that check their values.

Each ``connect`` makes these objects before it does anything else. A wrong type raises TypeError and a wrong value
raises ValueError. Both errors contain the name of the option.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from operator import index
from typing import Any

from wsfast._common.option_names import NOT_GIVEN
from wsfast._common.protocol_numbers import WSAutoPingStrategy

__all__ = [
    "NO_LIMIT",
    "Limits",
    "Marks",
    "Overflow",
    "Pinging",
    "Timeouts",
    "as_logger",
    "check_address",
    "check_bools",
    "check_callables",
    "check_types",
    "count",
    "in_words",
    "no_message",
    "seconds",
]

# A limit on bytes that exceeds any address space, so it is never reached.
NO_LIMIT = 2**62

# A hundred years. A longer time-out counts as none, because the timers of some event loops, and of Rust, overflow not
# much later.
_FOREVER = 100 * 365.25 * 86400

# websockets' default of ping_interval and ping_timeout, in seconds.
_PING = 20

_DEFAULT_LOGGER = logging.getLogger("wsfast.client")

# One limit, or a pair: for messages and for fragments, or a high-water and a low-water mark.
Marks = int | tuple[int | None, int | None] | None


def seconds(name: str, value: Any, *, none: str | None, zero: bool = True) -> float | None:
    """Check a time span, and return it; None stands for an unlimited one.

    :param none: the meaning of the value None, for the text of errors; None refuses that value
    :param zero: whether 0 is allowed
    """
    if (
        type(value) in (int, float) and 0 < value < _FOREVER
    ):  # nearly all; the rest tells why others are refused
        return value  # type: ignore[no-any-return]
    if value is None and none is not None:
        return None
    from numbers import Real  # abstract classes, which take a millisecond to import

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


def in_words(span: float | None) -> str:
    """Return a time span as text, for an error."""
    return f"{span:g} second{'' if span == 1 else 's'}"


def no_message(name: str, value: object, kinds: str = "str or bytes-like") -> TypeError:
    """The error for a message that cannot be sent.

    :param kinds: those that can
    """
    hint = f": json.dumps({name}) makes a str" if isinstance(value, (Mapping, list)) else ""
    return TypeError(f"{name} must be {kinds}, not {type(value).__name__}{hint}")


def count(name: str, value: Any, *, least: int = 0, none: str | None = None) -> int | None:
    """Check a number of bytes or items, and return it.

    :param none: the meaning of the value None, for the text of errors; None refuses that value
    """
    if type(value) is int and least <= value <= NO_LIMIT:
        return value
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
    """Refuse values other than True and False, because a string such as "no" would count as true."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, not {value!r}")


def check_callables(**options: Callable[..., Any] | None) -> None:
    """Refuse values that cannot be called. None is allowed: it is the default of all these options."""
    for name, value in options.items():
        if value is not None and not callable(value):
            raise TypeError(f"{name} must be callable, not {type(value).__name__}")


def check_types(*types: type, **options: Any) -> None:
    """Refuse values of any other type. None is allowed: it is the default of all these options."""
    for name, value in options.items():
        if value is not None and (not isinstance(value, types) or isinstance(value, bool)):
            expected = " or ".join(kind.__name__ for kind in types)
            raise TypeError(f"{name} must be {expected}, not {value!r}")


def check_address(name: str, value: Any) -> None:
    """Refuse values that are not an address: host and port, for IPv6 perhaps with two more numbers. None is allowed."""
    if value is None:
        return
    if not (isinstance(value, (tuple, list)) and len(value) in (2, 4)):
        raise TypeError(f"{name} must be a host and a port, not {value!r}")
    check_types(str, bytes, **{f"the host of {name}": value[0]})
    check_types(int, str, **{f"the port of {name}": value[1]})


def as_logger(name: str, value: Any) -> Any:
    """A logger or an adapter of one, as it is given; of a str, the logger ``wsfast.<value>``; None is the default."""
    if value is None:
        return _DEFAULT_LOGGER
    if isinstance(value, str):
        return logging.getLogger(f"wsfast.{value or 'client'}")
    if not (hasattr(value, "isEnabledFor") and hasattr(value, "warning")):
        raise TypeError(f"{name} must be a logger, or the last part of its name, not {value!r}")
    return value


class Timeouts:
    """The time limits for opening and closing, in seconds; None is no limit."""

    __slots__ = ("close", "handshake", "open")

    def __init__(
        self, open_timeout: Any, close_timeout: Any, websocket_handshake_timeout: Any = None
    ) -> None:
        no_limit = "for no limit"
        self.open = seconds("open_timeout", open_timeout, none=no_limit)
        self.close = seconds("close_timeout", close_timeout, none=no_limit)
        self.handshake = seconds("websocket_handshake_timeout", websocket_handshake_timeout, none=no_limit)


class Limits:
    """The limits on the memory of a connection. `message` and `fragment` are in bytes. `queue` is the pair of marks, in
    frames, at which reading pauses and resumes. `write` is the pair of marks, in bytes, at which sending pauses and
    resumes. None is no limit, or for `write` the default of asyncio."""

    __slots__ = ("fragment", "message", "queue", "write")

    def __init__(self, max_size: Any, max_queue: Any, write_limit: Any = None) -> None:
        message, fragment = _pair("max_size", max_size)
        self.message = _bytes("max_size", message)
        self.fragment = _bytes("max_size", fragment)
        self.queue = _marks("max_queue", max_queue, "for no limit")
        self.write = _marks("write_limit", write_limit, "for asyncio's default")

    @staticmethod
    def of_frames(max_frame_size: Any) -> int:
        """The size limit of a listener's frames or messages, in bytes; NO_LIMIT for None."""
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
    if type(value) is int and 0 <= value <= NO_LIMIT:
        return value, value // 4
    high, low = _pair(name, value)
    high, low = (count(name, mark, none=none) for mark in (high, low))
    if high is None and low is not None:
        high = min(low * 4, NO_LIMIT)
    if high is not None and low is None:
        low = high // 4
    if high is not None and low is not None and high < low:
        raise ValueError(f"{name}: high must be greater than or equal to low")
    return high, low


class Overflow:
    """The policy for messages that arrive faster than the program receives them: `policy` is one of POLICIES, `key`
    and `on_high_water` are the program's functions or None."""

    __slots__ = ("key", "on_high_water", "policy")

    POLICIES = ("pause", "drop_oldest", "drop_newest", "conflate", "fail")

    def __init__(self, overflow: Any, conflate_key: Any, on_high_water: Any, limits: Limits) -> None:
        if overflow not in self.POLICIES:
            policies = ", ".join(map(repr, self.POLICIES))
            raise ValueError(f"overflow must be one of {policies}, not {overflow!r}")
        check_callables(conflate_key=conflate_key, on_high_water=on_high_water)
        if (conflate_key is None) == (overflow == "conflate"):
            raise ValueError("conflate_key and overflow='conflate' are for each other")
        high = limits.queue[0]
        if overflow != "pause" and (high == 0 or (high is None and overflow != "conflate")):
            raise ValueError(f"max_queue must be positive with overflow={overflow!r}, not {high!r}")
        self.policy: str = overflow
        self.key: Callable[[bytes], Any] | None = conflate_key
        self.on_high_water: Callable[[Any], object] | None = on_high_water


class Pinging:
    """The interval of PINGs and the time-out of their answers, in seconds.

    `interval`: None sends no PINGs; `timeout`: None waits without a limit.
    """

    __slots__ = ("interval", "strategy", "timeout")

    def __init__(self, ping_interval: Any, ping_timeout: Any) -> None:
        ping_interval = _PING if ping_interval is NOT_GIVEN else ping_interval
        ping_timeout = _PING if ping_timeout is NOT_GIVEN else ping_timeout
        self.interval = seconds("ping_interval", ping_interval, zero=False, none="to send no pings")
        self.timeout = seconds("ping_timeout", ping_timeout, zero=False, none="for no limit")
        self.strategy = WSAutoPingStrategy.PING_PERIODICALLY

    @classmethod
    def of_listener(cls, enabled: Any, idle_timeout: Any, reply_timeout: Any, strategy: Any) -> Pinging:
        """Make a Pinging of picows' options, of which `enabled` is one."""
        check_bools(enable_auto_ping=enabled)
        seconds("auto_ping_idle_timeout", idle_timeout, zero=False, none=None)
        seconds("auto_ping_reply_timeout", reply_timeout, zero=False, none=None)
        if reply_timeout > idle_timeout:
            raise ValueError(
                f"auto_ping_reply_timeout must be at most auto_ping_idle_timeout, not {reply_timeout!r}"
            )
        pinging = cls(idle_timeout if enabled else None, reply_timeout)
        if type(strategy) is WSAutoPingStrategy:
            pinging.strategy = strategy
            return pinging
        try:
            pinging.strategy = WSAutoPingStrategy(strategy)
        except ValueError:
            raise ValueError(f"auto_ping_strategy must be a WSAutoPingStrategy, not {strategy!r}") from None
        return pinging
