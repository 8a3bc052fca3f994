"""A connection that blocks: websockets' sync connection, name for name.

There are no background threads. The crate does the work, without Python's lock. A thread that waits in a method here
does what is due meanwhile: it answers pings, sends keepalive pings, and completes the closing handshake.
"""

from __future__ import annotations

import functools
import os
import socket as socket_module
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, NoReturn, overload

from wsfast._common.closing import MAX_REASON, WSDisconnectInfo, cut_reason, disconnect_info, reason_for
from wsfast._common.connection import (
    BYTES_LIKE,
    ConnectionAttributes,
    DataLike,
    Request,
    State,
    control_payload,
)
from wsfast._common.options import Limits, Pinging, count, no_message, seconds
from wsfast._common.protocol_numbers import WSMsgType
from wsfast._common.upgrade import UpgradeRequest, UpgradeResponse
from wsfast._engine.frames.frame import FIN_BIT, close_code_valid
from wsfast._engine.frames.inspection import WSStats
from wsfast._engine.tuning import Histogram
from wsfast._rust._native import ffi, lib
from wsfast.deflate import AgreedDeflate
from wsfast.exceptions import (
    Close,
    ConcurrencyError,
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidText,
    ProtocolError,
)
from wsfast.sync import ending
from wsfast.sync._messaging import Connection, Cork, Fragments
from wsfast.sync.pings import Event, Pings, PongReceived
from wsfast.tls import TLSInfo

__all__ = ["ClientConnection"]

Data = str | bytes

# Seconds that a thread waits for another one, which receives, before it checks whether that goes on.
_NAP = 0.02

_NOTHING = object()


class ClientConnection(Connection, ConnectionAttributes):
    """A WebSocket connection. Made by :func:`wsfast.sync.client.connect`, not by hand.

    ::

        for message in ws:
            ws.send(message)

    The iteration ends when the connection is closed normally, with code 1000, 1001 or none; otherwise it raises
    :exc:`ConnectionClosedError`.

    Any number of threads may use a connection: one of them receives, while others send, ping or close.
    """

    local_address: Any
    """The address of this end: ``(host, port)`` for IPv4, see ``socket.getsockname()``."""
    remote_address: Any
    """The address of the server: ``(host, port)`` for IPv4, see ``socket.getpeername()``."""
    response: UpgradeResponse
    """The server's reply to the upgrade request."""
    subprotocol: str | None
    """The subprotocol that the server picked, or None."""
    compression: AgreedDeflate | None
    """The agreement on compression; None if messages are not compressed."""
    tls: TLSInfo | None = None
    """The TLS of the connection: a :class:`~wsfast.tls.TLSInfo`, or None."""

    def __init__(
        self,
        handle: Any,
        *,
        request: UpgradeRequest,
        response: UpgradeResponse,
        subprotocol: str | None,
        compression: AgreedDeflate | None,
        limits: Limits,
        addresses: tuple[Any, Any],
        logger: Any,
        pinging: Pinging,
        close_timeout: float | None,
        ping_histogram: Histogram | None = None,
    ) -> None:
        if compression is not None:
            self._compress(compression, limits.message, limits.fragment)
        self._fragments = False
        self._pings = Pings(handle, logger, ping_histogram)
        self._cause: BaseException | None = None
        self._aborted = False
        self._ended: threading.Event = Event()
        self._final: ending.Ending | None = None
        self._socket: socket_module.socket | None = None
        self._base_logger = logger
        self._pinging = pinging
        self._close_timeout = close_timeout
        self._request = request
        self.local_address, self.remote_address = addresses
        self.response = response
        self.subprotocol = subprotocol
        self.compression = compression

    def __repr__(self) -> str:
        return f"<ClientConnection {self.state.name} {self.remote_address}>"

    def __del__(self) -> None:
        # One that is still CONNECTING never was the program's to close: connect() was interrupted.
        if self._handle is not None and self.state in (State.OPEN, State.CLOSING):
            warnings.warn(f"unclosed connection {self!r}", ResourceWarning, source=self, stacklevel=2)
        sock = getattr(self, "_socket", None)
        if sock is not None:
            sock.close()

    # ---- attributes

    @property
    def socket(self) -> socket_module.socket:
        """The socket, for its options. Reading from it or writing to it breaks the connection."""
        if self._socket is None:
            fd = lib.wst_dup(self._handle)
            if fd < 0:
                raise self._exception()
            self._socket = socket_module.socket(fileno=fd)
        return self._socket

    @property
    def request(self) -> Request:
        """The upgrade request."""
        return Request(self._request)

    @property
    def latency(self) -> float:
        """The seconds that the server took to answer the last ping; 0.0 before the first answer."""
        return float(lib.wst_latency(self._handle))

    @property
    def last_received(self) -> float:
        """When bytes were last received, by ``time.monotonic()``. It is 0.0 unless the connection is kept alive by
        pings, or was made with ``timestamps``.

        Bytes are received while a method waits, so bytes that came meanwhile may still lie in the kernel.
        """
        return float(lib.wst_last_received(self._handle))

    @property
    def protocol(self) -> ClientConnection:
        """The connection itself, which has the attributes that websockets' ``protocol`` has: ``state``, ``id``..."""
        return self

    def _life(self) -> State:
        return State(lib.wst_get_state(self._handle))

    def _received_close(self) -> Close | None:
        return ending.describe(self._handle).rcvd

    def _set_close_timeout(self, seconds: float | None) -> None:
        self._set_times(self._pinging, seconds)

    def _keep_alive(self, pinging: Pinging) -> None:
        self._set_times(pinging, self._close_timeout)

    def _set_times(self, pinging: Pinging, close_timeout: float | None) -> None:
        self._pinging, self._close_timeout = pinging, close_timeout
        times = (pinging.interval, pinging.timeout, close_timeout)
        lib.wst_set_times(self._handle, *(-1.0 if seconds is None else seconds for seconds in times))

    @property
    def close_info(self) -> WSDisconnectInfo | None:
        """The side that ended the connection, with code and reason; None until it is closed."""
        if self.state is not State.CLOSED:
            return None
        end = ending.describe(self._handle)
        then_sent = bool(end.rcvd_then_sent)
        return disconnect_info(end.rcvd, end.sent, then_sent, self._aborted, self._cause or end.cause)

    @property
    def stats(self) -> WSStats:
        """The counters of the connection. ``poll_hits`` and ``poll_misses`` count attempts of `busy_poll`."""
        counted = ffi.new("wst_stats *")
        lib.wst_get_stats(self._handle, counted)
        # No event loop wakes this face.
        return WSStats(*(getattr(counted, name, 0) for name in WSStats._fields))

    # ---- with

    def __enter__(self) -> ClientConnection:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(1000 if exc_type is None else 1011)

    # ---- receiving

    def __iter__(self) -> Iterator[Data]:
        return self.messages()

    @overload
    def messages(self, decode: Literal[True]) -> Iterator[str]: ...
    @overload
    def messages(self, decode: Literal[False]) -> Iterator[bytes]: ...
    @overload
    def messages(self, decode: type[memoryview]) -> Iterator[memoryview]: ...
    @overload
    def messages(self, decode: bool | None = None) -> Iterator[Data]: ...
    def messages(self, decode: Any = None) -> Iterator[Any]:
        """Iterate over the messages, as ``for message in ws`` does.

        :param decode: as for :meth:`recv`
        """
        try:
            while True:
                yield self.recv(decode=decode)
        except ConnectionClosedOK:
            return

    @overload
    def batches(self, max: int | None = None, *, decode: Literal[True]) -> Iterator[list[str]]: ...
    @overload
    def batches(self, max: int | None = None, *, decode: Literal[False]) -> Iterator[list[bytes]]: ...
    @overload
    def batches(self, max: int | None = None, *, decode: type[memoryview]) -> Iterator[list[memoryview]]: ...
    @overload
    def batches(self, max: int | None = None, *, decode: bool | None = None) -> Iterator[list[Data]]: ...
    def batches(self, max: int | None = None, *, decode: Any = None) -> Iterator[Any]:
        """Iterate over lists of messages, as :meth:`recv_many` returns them, until the connection is closed.

        :param max, decode: as for :meth:`recv_many`

        The iteration ends as that over the messages does.
        """
        most = count("max", max, least=1, none="for no limit")
        return self._batches(most, decode)

    def _batches(self, most: int | None, decode: Any) -> Iterator[Any]:
        try:
            while True:
                yield self.recv_many(most, decode=decode)
        except ConnectionClosedOK:
            return

    def recv_streaming(self, decode: bool | type[memoryview] | None = None) -> Iterator[Data | memoryview]:
        """Receive the next message as its fragments arrive.

        :param decode: as for :meth:`recv`; a character that is split between fragments arrives with the second
        :raises ConnectionClosed, ConcurrencyError: as :meth:`recv` does

        The iterator must be used up: until then :meth:`recv` and :meth:`recv_streaming` raise ConcurrencyError. If the
        handler of a signal raises, or there is no memory for a fragment, the iterator can be asked again.
        """
        return Fragments(self, decode)

    def _stopped(self, result: int, timeout: float | None) -> None:
        """The crate returned without a message. Returns if it shall go on."""
        if result == lib.WST_PONG:
            self._collect()
        elif result == lib.WST_TIMEOUT:
            raise TimeoutError(f"timed out in {timeout:.1f}s")
        elif result == lib.WST_NO_MEMORY:
            raise MemoryError
        else:
            # No bytes are left that could change how the connection ended.
            self._final = self._final or ending.describe(self._handle)
            raise self._exception()

    def _collect(self) -> None:
        """Take the notes of the crate for Python: answers to pings."""
        self._pings.collect()

    def _text_is_invalid(self, exc: UnicodeDecodeError, text: bool) -> NoReturn:
        """A message is not UTF-8. If it is binary, and only the caller wanted text, the messages behind it remain."""
        self._refuse(InvalidText.from_decode_error(exc), lib.wst_fail_receiving if text else lib.wst_fail)

    def _refuse(self, exc: ProtocolError, fail: Any = lib.wst_fail_receiving) -> NoReturn:
        """The server has broken a rule. That counts even if the connection has closed since."""
        if self._cause is None:
            self._cause = exc
        self._fail(exc.code, reason_for(exc), exc, fail)
        raise self._exception() from self._cause

    # ---- sending

    def _is_to_send_again(self, result: int) -> bool:
        """A frame did not leave at once. Waits; True if it is not even queued, so that it is to be sent again."""
        if result in (lib.WST_FULL, lib.WST_BLOCKED):
            self._flush()
            return bool(result == lib.WST_FULL)
        if result == lib.WST_NO_MEMORY:
            raise MemoryError
        if result == lib.WST_BUSY:
            raise ConcurrencyError("cannot call send while another thread is already running send")
        self._end()
        raise self._exception()

    def _flush(self) -> None:
        while result := lib.wst_flush(self._handle):
            if result == lib.WST_PONG:
                self._collect()
            elif result == lib.WST_NO_MEMORY:
                raise MemoryError
            elif result != lib.WST_INTERRUPTED:
                self._end()
                raise self._exception()

    def _send_fragments(self, message: Any, text: bool | None, override: int) -> None:
        if isinstance(message, Mapping):
            raise no_message("message", message, "str, bytes-like, or an iterable of them")
        if not isinstance(message, Iterable):
            raise TypeError("data must be str, bytes, or iterable")
        fragments = iter(message)
        fragment: Any = next(fragments, _NOTHING)
        if fragment is _NOTHING:
            return  # as websockets does
        kinds: Any = str if isinstance(fragment, str) else BYTES_LIKE
        if not isinstance(fragment, kinds):
            raise TypeError("iterable must contain bytes or str")
        as_text = text is not False if kinds is str else text is True
        # A first fragment that cannot be sent is refused before the message has begun.
        first = fragment.encode() if isinstance(fragment, str) else bytes(fragment)
        begun = False
        try:
            self._send_frame((WSMsgType.TEXT if as_text else WSMsgType.BINARY) | override, first)
            begun = self._fragments = True
            for fragment in fragments:
                if not isinstance(fragment, kinds):
                    raise TypeError("iterable must contain uniform types")
                self._send_frame(WSMsgType.CONTINUATION, fragment)
            self._send_frame(FIN_BIT | WSMsgType.CONTINUATION, b"")
        except ConnectionClosed:
            raise
        except BaseException as exc:
            if begun or not isinstance(exc, ConcurrencyError):
                # The message cannot be completed, and nothing else may be sent before it is.
                self._fail(1011, "error in fragmented message", exc)
            raise
        finally:
            if begun:
                self._fragments = False

    def send_many(
        self, messages: Iterable[DataLike], *, text: bool | None = None, compress: bool | None = None
    ) -> None:
        """Send every message of an iterable, all of them in one write (64 KiB at a time).

        :param messages: each ``str`` or bytes-like
        :param text, compress: as for :meth:`send`
        :raises ConnectionClosed: the connection is closed
        :raises TypeError: a message is of another type; those before it are sent
        """
        if isinstance(messages, (str, *BYTES_LIKE)):
            raise TypeError(f"messages must be an iterable of messages, not {type(messages).__name__}")
        with self.cork():
            for message in messages:
                if not isinstance(message, (str, *BYTES_LIKE)):
                    raise no_message("message", message)
                self.send(message, text=text, compress=compress)

    def cork(self) -> AbstractContextManager[None]:
        """``with ws.cork():`` sends the messages of its body together when it ends, 64 KiB at a time; it may be nested.

        Until then :meth:`send` does not wait for the kernel. The frames of other threads leave with the rest. A method
        that waits for the server, :meth:`recv` for instance, first sends the frames that are held back.
        """
        return Cork(self)

    # ---- pings

    def ping(self, data: DataLike | None = None, *, ack_on_close: bool = False) -> threading.Event:
        """Send a PING.

        :param data: its payload, at most 125 bytes; random by default
        :param ack_on_close: set the event when the connection is closed, too
        :returns: an event that is set when the pong is received. Its ``wait()`` receives, if no other thread does.
        :raises ConnectionClosed: the connection is closed
        :raises ConcurrencyError: another ping with the same `data` waits for its answer
        """
        payload = os.urandom(4) if data is None else control_payload(data)
        event = PongReceived(self, ack_on_close)
        if not self._pings.add(payload, event):
            raise ConcurrencyError("already waiting for a pong with the same data")
        try:
            self._send_ping(payload)
        except ConnectionClosed:
            self._pings.forget(payload)
            raise
        return event

    def _send_ping(self, payload: bytes) -> None:
        while result := lib.wst_send_ping(self._handle, payload, len(payload)):
            if not self._is_to_send_again(result):
                break

    def pong(self, data: DataLike = b"") -> None:
        """Send a PONG without a PING before it: a heartbeat in one direction.

        :param data: its payload, at most 125 bytes
        :raises ConnectionClosed: the connection is closed
        """
        self._send_frame(FIN_BIT | WSMsgType.PONG, control_payload(data))

    def measure_roundtrip_time(self, rounds: int) -> list[float]:
        """Measure how long the server takes to answer a PING; messages that come meanwhile are kept for :meth:`recv`.

        :param rounds: how many PINGs to send, one after the other
        :returns: a list of `rounds` times in seconds
        :raises ConnectionClosed: the connection ended meanwhile
        """
        times = []
        for _ in range(rounds):
            begin = time.perf_counter()
            if not self.ping().wait():
                raise self._exception()
            times.append(time.perf_counter() - begin)
        return times

    def _wait(self, event: threading.Event, timeout: float | None, for_pong: bool = False) -> bool:
        """Wait until `event` is set; receive meanwhile, unless another thread does. False if it will not be set.

        :param for_pong: the event is not set once no frame is looked at any more
        """
        timeout = seconds("timeout", timeout, none="for no limit")
        is_set = functools.partial(threading.Event.is_set, event)
        deadline = None if timeout is None else time.monotonic() + timeout
        while not is_set():
            left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
            result = lib.wst_pump(self._handle, left, for_pong)
            if result == lib.WST_PONG:
                self._collect()
            elif result == lib.WST_CLOSED:
                if self.state is State.CLOSED:
                    self._note_end()
                return is_set()
            elif result == lib.WST_NO_MEMORY:
                raise MemoryError
            elif result == lib.WST_BUSY:
                threading.Event.wait(event, _NAP if deadline is None else min(left, _NAP))
            if left == 0 or result == lib.WST_TIMEOUT:
                return is_set()
        return True

    # ---- closing

    def close(self, code: int | None = 1000, reason: str = "") -> None:
        """Close the connection, and wait until it is closed: ``close_timeout`` at most.

        Does nothing if the connection is closed. Messages that were received before remain for :meth:`recv`. Messages
        that the server sends while the connection closes can be received, too. But once 1 MiB more waits than
        `max_queue` allows, and no message was taken for a quarter of a second, all later messages are discarded.

        :param code: 1000-1014 as far as they may be sent, or 3000-4999; None sends none
        :param reason: at most 123 bytes in UTF-8
        :raises ProtocolError: `code` or `reason` must not be sent
        """
        text = reason.encode()
        if code is not None and not close_code_valid(code):
            raise ProtocolError(f"invalid close code: {code}")
        if code is None and text:
            raise ProtocolError("cannot send a reason without a code")
        if len(text) > MAX_REASON:
            raise ProtocolError(f"close reason of {len(text)} bytes is longer than {MAX_REASON}")
        if self._fragments:
            reason = "close during fragmented message"
            self._fail(1011, reason, ConcurrencyError(reason))
        else:
            self._close(0 if code is None else code, text)

    def _close(self, code: int, reason: bytes) -> None:
        self._end(lib.wst_close, code, reason)

    def wait_closed(self, timeout: float | None = None) -> bool:
        """Wait until the connection is closed. False if `timeout` passed before.

        Messages that come meanwhile are kept for :meth:`recv`, up to ``max_queue`` frames; then it is the server that
        waits.
        """
        return self._wait(self._ended, timeout)

    def _fail(self, code: int, reason: str, cause: BaseException, fail: Any = lib.wst_fail) -> None:
        """Close, and receive nothing more (RFC 6455 section 7.1.7)."""
        if self._cause is None and self.state is State.OPEN:
            self._cause = cause
        text = cut_reason(reason)
        if isinstance(cause, Exception):
            self._end(fail, code, text)
        else:  # the handler of a signal raised: do not wait
            fail(self._handle, code, text, len(text))
            self._abort()

    def _end(self, begin: Any = None, code: int = 0, reason: bytes = b"") -> None:
        """Begin to close, unless that has begun, and wait until the connection is closed: at the latest by the deadline
        that the first CLOSE has set."""
        try:
            if begin is not None:
                begin(self._handle, code, reason, len(reason))
            while lib.wst_finish(self._handle) == lib.WST_INTERRUPTED:
                pass
        except BaseException:
            # The handler of a signal raised. Nobody watches the deadline any longer, so others might wait forever.
            self._abort()
            raise
        self._note_end()

    def abort(self) -> None:
        """Drop the connection at once, with everything that was not sent yet. Threads that wait in it wake.

        Messages that were received before remain for :meth:`recv`. Does nothing if the connection is closed.
        """
        if self.state is not State.CLOSED:
            self._aborted = True
        self._abort()

    def _abort(self) -> None:
        lib.wst_abort(self._handle)
        self._note_end()

    def _note_end(self) -> None:
        """The connection is closed. The event is set last: a thread that sees it finds everything as it will be.

        If the handler of a signal raises in here, the next call does the rest.
        """
        if not self._ended.is_set():
            self._collect()
            self._pings.close()
            if self._socket is not None:
                self._socket.close()
            self._ended.set()

    def _exception(self) -> ConnectionClosed:
        """The exception of a call on the closed connection, or on one on which no frame is looked at any more."""
        if not self._ended.is_set() and self.state is State.CLOSED:
            self._note_end()
        return (self._final or ending.describe(self._handle)).exception(self._cause)
