"""Heartbeats and silence on a blocking connection, in the thread that receives."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from wsfast.exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedOK
from wsfast.options import check_callables, check_types, seconds
from wsfast.supervisor.errors import HeartbeatTimeout, SilenceTimeout
from wsfast.supervisor.liveness import Grace, Heartbeat
from wsfast.supervisor.subscriptions import as_message

if TYPE_CHECKING:
    from wsfast.sync.connection import ClientConnection

__all__ = ["watch"]

# Seconds until a heartbeat is tried again that cannot be sent, because another thread is amid a fragmented message or
# the server does not read. Before a verdict it is also the time between two checks whether bytes still come.
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
    :param heartbeat: the message to send at intervals; answers to it are not delivered. While the server does not read,
        no heartbeat is sent: `max_silence` watches then
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


class _Deadline:
    """When something is missed, with the grace before the verdict: bytes may still lie in the socket, or wait for room
    there. One check without new bytes ends the grace, as recv() has waited for them meanwhile."""

    def __init__(self, ws: ClientConnection) -> None:
        self._ws = ws
        #: When to check, by time.monotonic().
        self.at = math.inf
        self._seconds = math.inf
        self._grace: Grace | None = None

    def set(self, now: float, seconds: float) -> None:
        self.at, self._seconds, self._grace = now + seconds, seconds, None

    def clear(self) -> None:
        self.at, self._grace = math.inf, None

    def _begun(self) -> Grace:
        self._grace = self._grace or Grace(self._ws, self._seconds, 1)
        return self._grace

    def is_over(self, now: float) -> bool:
        """Has all of the grace passed? It begins when this is asked first."""
        return now >= self._begun().until

    def is_missed(self, now: float) -> bool:
        """To be asked when the time has come and there is nothing to receive."""
        grace = self._begun()
        self.at = min(now + _SOON, grace.until)
        return not grace.lasts()

    def wait_for_program(self, seconds: float) -> None:
        """The program was busy for so long."""
        if self._grace is not None:
            self._grace.until += seconds


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
        self._answer, self._silence = _Deadline(ws), _Deadline(ws)
        now = time.monotonic()
        self._beat_at = math.inf if heartbeat is None else now + heartbeat.every
        self._silence.set(now, self._limit)

    def messages(self, decode: Any) -> Iterator[Any]:
        while True:
            now = time.monotonic()
            wake = min(self._beat_at, self._answer.at, self._silence.at)
            wait = None if wake == math.inf else max(wake - now, 0.0)
            try:
                message = self._ws.recv(wait, decode)
            except TimeoutError:
                # One that comes too soon was raised by a signal handler. The clocks may differ in the last digit.
                if wait is None or time.monotonic() < now + wait - 1e-3:
                    raise
                self._judge(time.monotonic())
            except ConnectionClosedOK:
                return
            else:
                if not self._answers(message):
                    now = time.monotonic()
                    self._silence.set(now, self._limit)
                    yield message
                    self._answer.wait_for_program(time.monotonic() - now)
            self._beat()

    def _answers(self, message: Any) -> bool:
        heartbeat = self._heartbeat
        if heartbeat is None or heartbeat.is_reply is None:
            return False
        if heartbeat.is_reply(message):
            self._answer.clear()
            return True
        now = time.monotonic()
        if now >= self._answer.at and self._answer.is_over(now):
            self._fail(HeartbeatTimeout(heartbeat.timeout))  # the server sends without end, and no answer
        return False

    def _judge(self, now: float) -> None:
        """Nothing is in the socket."""
        if self._heartbeat is not None and now >= self._answer.at and self._answer.is_missed(now):
            self._fail(HeartbeatTimeout(self._heartbeat.timeout))
        if now >= self._silence.at and self._silence.is_missed(now):
            if self._is_normal is None or not self._is_normal():
                self._fail(SilenceTimeout(self._limit))
            self._silence.set(time.monotonic(), self._limit)

    def _fail(self, exc: Exception) -> None:
        self._ws.abort()  # no close handshake: the server may be dead
        raise exc

    def _beat(self) -> None:
        heartbeat, now = self._heartbeat, time.monotonic()
        if heartbeat is None or now < self._beat_at:
            return
        self._beat_at = now + _SOON
        if self._ws._must_wait_to_send():
            return  # for a server that does not read: nothing would be watched meanwhile
        message = heartbeat.message
        message = as_message(message() if callable(message) else message)  # what it raises is the program's
        try:
            self._ws.send(message)
        except ConcurrencyError:
            return
        except ConnectionClosed:
            pass  # recv() says so, after the last message
        self._beat_at = now + heartbeat.every
        if heartbeat.is_reply is not None and self._answer.at == math.inf:
            self._answer.set(time.monotonic(), heartbeat.timeout)
