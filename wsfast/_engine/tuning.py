"""The options that affect latency, in one object: gathering, polling, socket options, time stamps."""

from __future__ import annotations

import dataclasses
import socket
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from wsfast._common.logging import guarded
from wsfast._common.option_names import hints_at_fields
from wsfast._common.options import check_bools, check_types, count, seconds

__all__ = ["Histogram", "SocketOption", "Tuning", "record", "set_options", "tuning_of"]

SocketOption = tuple[int, int, int | bytes]

# Python has the constant from 3.14 on. Almost all architectures use this number (asm-generic/socket.h).
_SO_BUSY_POLL = getattr(socket, "SO_BUSY_POLL", 46)

# The largest value of a socket option.
_MAX_INT = 2**31 - 1


class Histogram(Protocol):
    """The interface of :attr:`Tuning.ping_histogram`; ``HdrHistogram`` of the package hdrhistogram has it."""

    def record_value(self, value: int, /) -> Any:
        """Count one round trip of `value` nanoseconds."""


def record(histogram: Histogram | None, nanoseconds: int, logger: Any) -> None:
    """Count a round trip. A bug of the histogram is logged with its traceback; it ends no connection."""
    if histogram is not None:
        try:
            histogram.record_value(nanoseconds)
        except Exception as exc:
            guarded(logger.error, "exception in ping_histogram.record_value()", exc_info=exc)


@hints_at_fields
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """Options that affect latency: polling, gathering, socket options, time stamps. :doc:`latency` says what they cost.

    ::

        connect(uri, tuning=Tuning(busy_poll=50e-6, timestamps="user"))

    Immutable: connections may share one. ``dataclasses.replace()`` makes another one.

    :raises TypeError, ValueError: a value is invalid
    :raises NotImplementedError: this system does not have it
    """

    write_policy: Literal["immediate", "gather"] | None = None
    """``"immediate"`` writes every message at once. ``"gather"`` writes the first message of an event loop iteration at
    once, and those that follow together when the iteration ends. By default a listener's transport writes immediately,
    and the awaitable client gathers. The blocking client cannot gather: it has ``cork()`` and ``send_many()``."""
    busy_poll: float = 0
    """The seconds after each event, sent or received, in which the event loop does not sleep, and the socket is read
    without a wait for its readiness. In the blocking client: the seconds in which ``recv()`` asks the socket again and
    again before it sleeps. ``math.inf`` never sleeps, 0 sleeps at once."""
    timestamps: Literal["user", "kernel"] | None = None
    """``"user"`` keeps when each message was received, and how, as ``last_message`` of the connection, and sets
    :attr:`WSFrame.recv_time_ns`. ``"kernel"`` also tells when the kernel received the bytes, on plain TCP only."""
    max_read_size: int | None = None
    """Bytes to read at once, at most. By default 256 KiB, or as much as the longest recent frame; in the blocking
    client 128 KiB. Their frames are all delivered before anything else happens."""
    quickack: bool = False
    """Tell the kernel after every read to acknowledge at once, which costs a system call per read. Otherwise it is told
    once, and forgets it when it sees fit."""
    so_busy_poll: int = 0
    """``SO_BUSY_POLL``, in microseconds: the kernel asks the network card itself before it sleeps."""
    sockopts: Sequence[SocketOption] = ()
    """Tuples ``(level, name, value)`` for ``setsockopt``, set before the socket is connected."""
    ping_histogram: Histogram | None = None
    """Gets the round-trip time of every answered PING in nanoseconds by ``record_value(ns)``; for instance
    ``HdrHistogram`` of the package hdrhistogram, ``pip install hdrhistogram``."""

    def __post_init__(self) -> None:
        if self.write_policy not in (None, "immediate", "gather"):
            raise ValueError(f"write_policy must be 'immediate' or 'gather', not {self.write_policy!r}")
        self._set("busy_poll", seconds("busy_poll", self.busy_poll, none=None))
        if self.timestamps not in (None, "user", "kernel"):
            raise ValueError(f"timestamps must be None, 'user' or 'kernel', not {self.timestamps!r}")
        if self.timestamps == "kernel" and sys.platform != "linux":
            raise NotImplementedError("timestamps='kernel' is implemented for Linux only")
        self._set("max_read_size", count("max_read_size", self.max_read_size, least=1, none="for no limit"))
        check_bools(quickack=self.quickack)
        if self.quickack and not hasattr(socket, "TCP_QUICKACK"):
            raise NotImplementedError("quickack: this system has no TCP_QUICKACK")
        self._set("so_busy_poll", count("so_busy_poll", self.so_busy_poll))
        if self.so_busy_poll and sys.platform != "linux":
            raise NotImplementedError("so_busy_poll: this system has no SO_BUSY_POLL")
        self._set("sockopts", _checked(self.sockopts))
        histogram = self.ping_histogram
        if histogram is not None and not hasattr(histogram, "record_value"):
            raise TypeError(
                f"ping_histogram must have a method record_value(), unlike {type(histogram).__name__}"
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    # ---- for the clients

    @property
    def read_limit(self) -> int:
        """`max_read_size` as a number."""
        return sys.maxsize if self.max_read_size is None else min(self.max_read_size, sys.maxsize)

    @property
    def socket_options(self) -> Sequence[SocketOption]:
        """`sockopts`, and `so_busy_poll` as one of them."""
        if not self.so_busy_poll:
            return self.sockopts
        return (*self.sockopts, (socket.SOL_SOCKET, _SO_BUSY_POLL, min(self.so_busy_poll, _MAX_INT)))

    def check_kernel_stamps(self, is_plain_tcp: bool) -> None:
        """Refuse ``timestamps="kernel"`` unless wsfast itself reads a TCP socket, without TLS."""
        if self.timestamps == "kernel" and not is_plain_tcp:
            raise ValueError(
                "timestamps='kernel' needs plain TCP, a TCP socket that wsfast itself reads:"
                " the kernel knows no records of TLS"
            )


def tuning_of(given: Tuning | None, default: Tuning) -> Tuning:
    """The program's, with the `write_policy` of `default` if it says none; `default` if there is none."""
    if given is None:
        return default
    check_types(Tuning, tuning=given)
    if given.write_policy is not None:
        return given
    return dataclasses.replace(given, write_policy=default.write_policy)


def _checked(sockopts: Sequence[SocketOption]) -> tuple[SocketOption, ...]:
    if not isinstance(sockopts, Iterable):
        raise TypeError(f"sockopts must be tuples (level, name, value), not {sockopts!r}")
    options = tuple(sockopts)
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
