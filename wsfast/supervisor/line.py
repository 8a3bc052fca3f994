"""One connection of a supervisor, from its opening to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any

from wsfast._engine.messages import show_messages
from wsfast._engine.transport import WSListener, WSTransport
from wsfast.asyncio.client import connect
from wsfast.asyncio.connection import ClientConnection
from wsfast.codes import WSCloseCode
from wsfast.exceptions import ConnectionClosed
from wsfast.listener import ListenerFactory, Overseeing, make_listener, ws_connect
from wsfast.supervisor.liveness import Liveness
from wsfast.supervisor.outbox import Outbox
from wsfast.supervisor.shared import Shared

__all__ = ["Leg"]

# The interval of the checks whether a slow program has caught up with a connection that is to close, in seconds.
_CATCH_UP = 0.02

# Seconds that a server has to end the TCP connection once it has sent CLOSE. No message can follow the CLOSE, and the
# supervisor waits for the end of the connection before it opens the next one.
_GOODBYE = 1.0


class Leg:
    """One connection. There is no transport until :meth:`open` returns.

    A leg inspects messages only while a function of the program, an acknowledgement or a rollover needs them. Otherwise
    the engine delivers them to the program as if there were no supervisor.

    :param succeeds: this connection is to take the place of another one
    """

    transport: WSTransport
    outbox: Outbox
    liveness: Liveness

    def __init__(self, shared: Shared, succeeds: bool = False) -> None:
        self._shared = shared
        self.number = 0
        self.connection: ClientConnection | None = None
        self.opened_at = 0.0
        #: Done when the transport has disconnected.
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ending: asyncio.Task[None] | None = None
        self._close_timeout: float | None = None
        self._failure: Exception | None = None
        self.is_superseded = False
        #: How many gaps there are before its first message.
        self.gaps = 0
        self._dropped = 0
        #: The server has announced that it will end the connection.
        self.is_announced = False
        self.has_first = not succeeds
        self._is_shown = self._is_awaiting_acks = False
        self._draining: asyncio.Handle | None = None

    # ---- opening

    async def open(self, url: str, options: dict[str, Any]) -> None:
        """Connect. If this raises, no connection is left open."""
        shared = self._shared
        options = {**shared.options, **options}
        options.setdefault("ping_histogram", shared.rtt)
        self._close_timeout = options.get("close_timeout", 10)
        if shared.listener_factory is None:
            make = options.pop("create_connection", None) or ClientConnection

            def create(*args: Any, **kwargs: Any) -> ClientConnection:
                connection: ClientConnection = make(*args, **kwargs)
                self._show(connection.protocol, connection.listener)
                return connection

            self.connection = await connect(url, create_connection=create, **options)
            self.transport = self.connection.protocol
        else:
            self.transport, _ = await ws_connect(
                _Factory(shared.listener_factory, self._show), url, **options
            )
        self.opened_at = time.monotonic()
        self._ending = asyncio.get_running_loop().create_task(self._wait_ended())
        self._ending.add_done_callback(self._has_ended)
        self.outbox = Outbox(
            self.transport,
            shared.window,
            shared.urgent,
            shared.subscriptions,
            shared.callbacks,
            self.fail,
            self._subscriptions_changed,
        )
        self.liveness = Liveness(
            self.transport,
            self.outbox,
            shared.subscriptions,
            shared.max_silence,
            shared.silence_is_normal,
            shared.heartbeat,
            shared.callbacks,
            self.fail,
        )

    async def _wait_ended(self) -> None:
        await self.transport.wait_disconnected()

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.transport.abort()  # the program has cancelled all tasks of the loop
        else:
            task.exception()  # mark it as retrieved; close_info has it too
        self.outbox.stop()
        self.liveness.stop()
        was_open = self.is_open
        if not self.ended.done():
            self.ended.set_result(None)
        if was_open or self.is_superseded:
            self._shared.lost(self)
        self._shared.changed.notify()

    # ---- state

    @property
    def is_open(self) -> bool:
        return not self.ended.done() and self._failure is None and not self.is_superseded

    @property
    def is_spent(self) -> bool:
        """The connection has ended, and the program has received all of its messages."""
        return self.ended.done() and (self.connection is None or not self.connection.listener.frames)

    @property
    def is_prepared(self) -> bool:
        """It can take the place of another connection: its subscriptions are in, and its first message has arrived."""
        return self.has_first and self.outbox.is_in

    @property
    def is_drained(self) -> bool:
        """True if it has received all that its server sent until another connection had taken its place.

        The proof is a CLOSE of the server that answers the supervisor's CLOSE. Such an answer repeats the supervisor's
        code, or has none. A CLOSE that the server began may have been under way before the other connection had its
        subscriptions. No message may have been dropped meanwhile, either.
        """
        handshake = self.transport.close_handshake
        if handshake is None or handshake.recv is None or handshake.sent is None or handshake.recv_then_sent:
            return False
        if handshake.recv.code not in (handshake.sent.code, WSCloseCode.NO_INFO):
            return False
        return self.dropped == self._dropped

    @property
    def dropped(self) -> int:
        """How many received messages the program will never get."""
        return 0 if self.connection is None else self.connection.listener.dropped

    @property
    def life(self) -> float:
        """Seconds since the connection was opened."""
        return time.monotonic() - self.opened_at

    @property
    def error(self) -> BaseException:
        """The error that ended the connection."""
        if self._failure is not None:
            return self._failure
        info = self.transport.close_info
        if info is not None and info.cause is not None and not isinstance(info.cause, EOFError):
            return info.cause
        closed: ConnectionClosed = self.transport._closed()
        return closed

    # ---- the end

    def fail(self, exc: Exception) -> None:
        """Drop the connection at once because of `exc`. The server may be dead, so its CLOSE is not waited for."""
        if self.ended.done() or self._failure is not None:
            return
        self._failure = exc
        self.stop()
        self.transport._fail(1011, str(exc), exc)
        self.transport.abort()
        if not self.is_superseded:
            self._shared.lost(self)
        self._shared.changed.notify()

    def stop(self) -> None:
        """Stop sending, and stop the timers for acknowledgements, heartbeats and silence."""
        self.outbox.stop()
        self.liveness.stop()

    def close(self, code: int = 1000, timeout: float | None = None) -> None:
        """Begin to close the connection. Messages that the server has sent before are still delivered.

        :param timeout: seconds until the connection is dropped; None is ``close_timeout``
        """
        self.stop()
        if self.ended.done():
            return
        self.transport._set_close_timeout(self._close_timeout if timeout is None else timeout)
        self.transport.send_close(code)
        if self.connection is not None:
            self.connection._read_on()

    def abort(self) -> None:
        self.stop()
        if not self.ended.done():
            self.transport.abort()

    def drain(self, timeout: float) -> None:
        """Another connection has taken its place. Close this one once the program has caught up with it."""
        self.is_superseded = True
        self._dropped = self.dropped
        self.stop()
        self._catch_up(timeout)

    def _catch_up(self, timeout: float) -> None:
        if self.connection is not None and self.connection.listener.paused and not self.ended.done():
            self._draining = asyncio.get_running_loop().call_later(_CATCH_UP, self._catch_up, timeout)
        else:
            self.close(timeout=timeout)

    async def wait_closed(self) -> None:
        """Wait until the transport has disconnected."""
        if self._draining is not None:
            self._draining.cancel()
            self.close()
        await asyncio.wait([self.ended])

    # ---- inspecting messages

    @property
    def _must_look(self) -> bool:
        shared = self._shared
        return (
            shared.looks_at_all or not self.has_first or (self.opened_at > 0 and bool(self.outbox.in_flight))
        )

    def _show(self, transport: WSTransport, receiver: WSListener) -> None:
        """The client calls this before it delivers the first message."""
        if self._close_timeout is None or self._close_timeout > _GOODBYE:
            transport._set_close_timeout(_GOODBYE)
        if self._must_look:
            self._is_shown = True
            self.transport = transport
            self.liveness = _NotYet()  # type: ignore[assignment]
            self.outbox = _NotYet()  # type: ignore[assignment]
            show_messages(transport, self._look, receiver)

    def _subscriptions_changed(self) -> None:
        self._look_or_not()
        self._shared.changed.notify()

    def _look_or_not(self) -> None:
        """Begin to inspect messages if something needs that, and stop if nothing does."""
        must = self._must_look
        if must != self._is_shown and not self.ended.done():
            self._is_shown = must
            show_messages(self.transport, self._look if must else None)
        if self.connection is not None and self._is_awaiting_acks != bool(self.outbox.in_flight):
            self._is_awaiting_acks = bool(self.outbox.in_flight)
            if self._is_awaiting_acks:
                self.connection._read_on(self)  # they may be behind messages without room
            else:
                self.connection._read_no_further(self)

    def _look(self, payload: Any) -> bool:
        """Inspect a received message. True if it must not be delivered."""
        shared = self._shared
        call = shared.callbacks.call
        if shared.heartbeat is not None and self.liveness.is_reply(payload):
            return True
        accepted = bool(self.outbox.in_flight) and self.outbox.look(payload)
        if shared.topic is not None:
            call("topic", None, self._hear, shared.topic, payload)
        rollover = shared.rollover
        if (
            rollover.when is not None
            and not self.is_announced
            and call("when", False, rollover.when, payload)
        ):
            self.is_announced = True
            shared.changed.notify()
        first = rollover.first
        if not self.has_first and not accepted and (first is None or call("first", False, first, payload)):
            self.has_first = True
            asyncio.get_running_loop().call_soon(self._subscriptions_changed)
        return shared.listener_factory is not None and shared.is_duplicate(payload)

    def _hear(self, topic: Callable[[Any], Hashable], payload: Any) -> None:
        self.liveness.heard(topic(payload))


class _NotYet:
    """A placeholder for the outbox and the liveness, until :meth:`Leg.open` makes them. Messages may arrive before,
    together with the server's reply to the opening handshake."""

    in_flight = ()

    def is_reply(self, payload: Any) -> bool:
        return False

    def heard(self, topic: Hashable) -> None:
        pass


class _Factory(Overseeing):
    def __init__(
        self, factory: ListenerFactory[WSListener], oversee: Callable[[WSTransport, WSListener], None]
    ) -> None:
        self._factory = factory
        self._oversee = oversee

    def __call__(self, request: Any, response: Any) -> WSListener:
        return make_listener(self._factory, request, response)

    def oversee(self, transport: WSTransport, receiver: WSListener) -> None:
        self._oversee(transport, receiver)
