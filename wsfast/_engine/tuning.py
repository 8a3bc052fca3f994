"""The options that affect latency: gathering, polling, socket options, time stamps.

This module checks them before wsfast connects.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from wsfast._common.logging import guarded
from wsfast._common.options import check_bools, count, seconds

SocketOption = tuple[int, int, int | bytes]

# Python has the constant from 3.14 on. Almost all architectures use this number (asm-generic/socket.h).
_SO_BUSY_POLL = getattr(socket, "SO_BUSY_POLL", 46)

# The largest value of a socket option.
_MAX_INT = 2**31 - 1


class Histogram(Protocol):
    """The interface of ``ping_histogram``; ``HdrHistogram`` of the package hdrhistogram has it."""

    def record_value(self, value: int, /) -> Any:
        """Count one round trip of `value` nanoseconds."""


def record(histogram: Histogram | None, nanoseconds: int, logger: Any) -> None:
    """Count a round trip. A bug of the histogram is logged with its traceback; it ends no connection."""
    if histogram is not None:
        try:
            histogram.record_value(nanoseconds)
        except Exception as exc:
            guarded(logger.error, "exception in ping_histogram.record_value()", exc_info=exc)


class Tuning:
    """The arguments of ``ws_connect`` and ``connect`` that affect latency."""

    def __init__(
        self,
        *,
        write_policy: str = "immediate",
        busy_poll: float = 0,
        timestamps: str | None = None,
        max_read_size: int | None = None,
        quickack: bool = False,
        so_busy_poll: int = 0,
        sockopts: Sequence[SocketOption] = (),
        ping_histogram: Histogram | None = None,
    ) -> None:
        if write_policy not in ("immediate", "gather"):
            raise ValueError(f"write_policy must be 'immediate' or 'gather', not {write_policy!r}")
        self.busy_poll = seconds("busy_poll", busy_poll, none=None)
        if timestamps not in (None, "user", "kernel"):
            raise ValueError(f"timestamps must be None, 'user' or 'kernel', not {timestamps!r}")
        if timestamps == "kernel" and sys.platform != "linux":
            raise NotImplementedError("timestamps='kernel' is implemented for Linux only")
        most = count("max_read_size", max_read_size, least=1, none="for no limit")
        check_bools(quickack=quickack)
        if quickack and not hasattr(socket, "TCP_QUICKACK"):
            raise NotImplementedError("quickack: this system has no TCP_QUICKACK")
        microseconds = count("so_busy_poll", so_busy_poll)
        if microseconds and sys.platform != "linux":
            raise NotImplementedError("so_busy_poll: this system has no SO_BUSY_POLL")
        if ping_histogram is not None and not hasattr(ping_histogram, "record_value"):
            raise TypeError(
                f"ping_histogram must have a method record_value(), unlike {type(ping_histogram).__name__}"
            )
        self.gather = write_policy == "gather"
        self.timestamps = timestamps
        self.max_read_size = sys.maxsize if most is None else min(most, sys.maxsize)
        self.quickack = quickack
        self.ping_histogram = ping_histogram
        self.sockopts = _checked(sockopts)
        if microseconds:
            self.sockopts.append((socket.SOL_SOCKET, _SO_BUSY_POLL, min(microseconds, _MAX_INT)))

    def check_kernel_stamps(self, is_plain_tcp: bool) -> None:
        """Refuse ``timestamps="kernel"`` unless wsfast itself reads a TCP socket, without TLS."""
        if self.timestamps == "kernel" and not is_plain_tcp:
            raise ValueError(
                "timestamps='kernel' needs plain TCP, a TCP socket that wsfast itself reads:"
                " the kernel knows no records of TLS"
            )


def _checked(sockopts: Sequence[SocketOption]) -> list[SocketOption]:
    if not isinstance(sockopts, Iterable):
        raise TypeError(f"sockopts must be tuples (level, name, value), not {sockopts!r}")
    options = list(sockopts)
    for option in options:
        if not isinstance(option, tuple) or len(option) != 3:
            raise TypeError(f"sockopts must be tuples (level, name, value), not {option!r}")
        level, name, value = option
        if not (isinstance(level, int) and isinstance(name, int) and isinstance(value, (int, bytes))):
            raise TypeError(f"sockopts must be tuples of two ints and an int or bytes, not {option!r}")
    return options


def set_options(sock: socket.socket, sockopts: Sequence[SocketOption]) -> None:
    """Set socket options. An error names the option that the kernel refused.

    :raises OSError: the kernel refused an option; PermissionError if it needs a privilege
    """
    for level, name, value in sockopts:
        try:
            sock.setsockopt(level, name, value)
        except OSError as exc:
            what = f"setsockopt({level}, {name}, {value!r})"
            if (level, name) == (socket.SOL_SOCKET, _SO_BUSY_POLL):
                what = f"so_busy_poll={value!r}: more than sysctl net.core.busy_read needs CAP_NET_ADMIN"
            raise OSError(exc.errno, f"{what}: {exc.strerror}") from exc
