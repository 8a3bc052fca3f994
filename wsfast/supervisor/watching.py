"""Heartbeats and silence on a blocking connection, in the thread that receives."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from wsfast.exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedOK
from wsfast.options import check_callables, check_types, seconds
from wsfast.supervisor.errors import HeartbeatTimeout, SilenceTimeout
from wsfast.supervisor.liveness import Heartbeat
from wsfast.supervisor.subscriptions import made

if TYPE_CHECKING:
    from wsfast.sync.connection import ClientConnection

__all__ = ["watch"]

# While another thread sends a fragmented message, the heartbeat is tried again after so many seconds.
_SOON = 0.05


def watch(
    ws: ClientConnection,
    *,
    heartbeat: Heartbeat | None = None,
    max_silence: float | None = None,
    silence_is_normal: Callable[[], object] | None = None,
    decode: Any = None,
) -> Iterator[Any]:
    """Iterate over the messages of a blocking connection, as ``for message in ws`` does, and check the server.

    ::

        for message in watch(ws, heartbeat=Heartbeat(15, "ping", is_pong), max_silence=30): ...

    The thread that iterates does all of this while it waits for the next message. So a busy program sends no heartbeat,
    just as it sends no PING.

    :param ws: a connection of :func:`wsfast.sync.client.connect`
    :param heartbeat: the message to send at intervals; answers to it are not delivered
    :param max_silence: seconds without a message
    :param silence_is_normal: a function that returns true if silence is normal now; the time then begins anew
    :param decode: as for :meth:`ClientConnection.recv`
    :raises HeartbeatTimeout: the server did not answer a heartbeat. The connection is dropped.
    :raises SilenceTimeout: no message arrived for `max_silence`. The connection is dropped.
    :raises ConnectionClosed: as the connection raises it
    """
    from wsfast.sync.connection import ClientConnection  # imported here, because it loads the crate

    if not isinstance(ws, ClientConnection):
        raise TypeError(f"ws must be a connection of wsfast.sync.client, not {ws!r}")
    check_types(Heartbeat, heartbeat=heartbeat)
    check_callables(silence_is_normal=silence_is_normal)
    limit = seconds("max_silence", max_silence, none="for no limit", zero=False)
    return _Watch(ws, heartbeat, limit, silence_is_normal).messages(decode)


class _Watch:
    def __init__(
        self,
        ws: ClientConnection,
        heartbeat: Heartbeat | None,
        limit: float | None,
        is_normal: Callable[[], object] | None,
    ) -> None:
        self._ws = ws
        self._heartbeat = heartbeat
        self._limit = math.inf if limit is None else limit
        self._is_normal = is_normal
        now = time.monotonic()
        self._heard_at = now
        self._beat_at = math.inf if heartbeat is None else now + heartbeat.every
        self._answer_by = math.inf

    def messages(self, decode: Any) -> Iterator[Any]:
        while True:
            wake = min(self._beat_at, self._answer_by, self._heard_at + self._limit)
            wait = None if wake == math.inf else max(wake - time.monotonic(), 0.0)
            try:
                message = self._ws.recv(wait, decode)
            except TimeoutError:
                # The socket is empty, so this is the server's silence, not messages that a slow program has not taken.
                self._judge(time.monotonic())
            except ConnectionClosedOK:
                return
            else:
                if not self._answers(message):
                    self._heard_at = time.monotonic()
                    yield message
            self._beat()

    def _answers(self, message: Any) -> bool:
        heartbeat = self._heartbeat
        if heartbeat is None or heartbeat.is_reply is None:
            return False
        if heartbeat.is_reply(message):
            self._answer_by = math.inf
            return True
        if time.monotonic() >= self._answer_by + heartbeat.timeout:
            self._fail(HeartbeatTimeout(heartbeat.timeout))  # the server sends without end, but no answer
        return False

    def _judge(self, now: float) -> None:
        if self._heartbeat is not None and now >= self._answer_by:
            self._fail(HeartbeatTimeout(self._heartbeat.timeout))
        if now >= self._heard_at + self._limit:
            if self._is_normal is None or not self._is_normal():
                self._fail(SilenceTimeout(self._limit))
            self._heard_at = time.monotonic()

    def _fail(self, exc: Exception) -> None:
        self._ws.abort()  # no close handshake: the server may be dead
        raise exc

    def _beat(self) -> None:
        heartbeat, now = self._heartbeat, time.monotonic()
        if heartbeat is None or now < self._beat_at:
            return
        self._beat_at = now + heartbeat.every
        with suppress(ConnectionClosed):  # recv() raises it, after the last message
            try:
                self._ws.send(made(heartbeat.message))
            except ConcurrencyError:
                self._beat_at = now + _SOON
                return
        if heartbeat.is_reply is not None and self._answer_by == math.inf:
            self._answer_by = time.monotonic() + heartbeat.timeout
