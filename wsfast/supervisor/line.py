"""One connection of a supervisor, from its opening to its end, and the handling of its messages."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from wsfast._engine.messages import Messages, show_messages
from wsfast._engine.transport import WSListener, WSTransport
from wsfast._engine.tuning import Tuning, tuning_of
from wsfast.asyncio.client import connect
from wsfast.asyncio.connection import ClientConnection
from wsfast.exceptions import ConnectionClosed
from wsfast.listener import ListenerFactory, Overseeing, make_listener, ws_connect
from wsfast.supervisor._inspector import Inspector, Keys
from wsfast.supervisor.liveness import Liveness
from wsfast.supervisor.outbox import Outbox
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.subscriptions import Subscription, SubscriptionState

__all__ = ["Line", "open_line"]

# Seconds that a server has to end the TCP connection once it has sent CLOSE. No message can follow the CLOSE, and the
# supervisor waits for the end of the connection before it opens the next one.
_GOODBYE = 1.0

_TUNING = Tuning()


class Merging(Protocol):
    """The object that merges a line with another one, as the line knows it: see merger.py."""

    def join(self, new: Line) -> bool: ...
    def brought(self, line: Line, payload: Any, key: Hashable, is_in: bool) -> bool | list[Any]: ...
    def fragment(self, line: Line, size: int) -> bool | list[Any]: ...


async def open_line(
    shared: Shared,
    number: int,
    target: tuple[str, dict[str, Any]],
    merger: Merging | None,
    lost: Callable[[Line], None],
    lines: set[Line],
) -> Line:
    """Connect. If this raises, no connection is left open. Most parameters are those of :class:`Line`.

    :param lines: the line is added when it is made
    """
    url, overrides = target
    options = {**shared.options, **overrides}
    tuning = tuning_of(options.get("tuning"), _TUNING)
    if tuning.ping_histogram is None:
        tuning = dataclasses.replace(tuning, ping_histogram=shared.rtt)
    options["tuning"] = tuning
    close_timeout: float | None = options.get("close_timeout", 10)
    opened: list[Line] = []

    def make(
        transport: WSTransport, receiver: WSListener, connection: ClientConnection | None = None
    ) -> None:
        if close_timeout is None or close_timeout > _GOODBYE:
            transport._set_close_timeout(_GOODBYE)
        opened.append(Line(shared, number, transport, receiver, connection, close_timeout, merger, lost))
        lines.add(opened[0])

    try:
        if shared.listener_factory is None:
            make_connection = options.pop("create_connection", None) or ClientConnection

            def create(*args: Any, **kwargs: Any) -> ClientConnection:
                connection: ClientConnection = make_connection(*args, **kwargs)
                make(connection.protocol, connection.listener, connection)
                return connection

            await connect(url, create_connection=create, **options)
        else:
            await ws_connect(_Factory(shared.listener_factory, make), url, **options)
    except BaseException:
        for line in opened:
            line.stop()
            lines.discard(line)
        raise
    opened[0].open()
    return opened[0]


class Line:
    """One connection, made when its opening handshake is over, before its first message.

    It inspects messages only while a function of the program, an acknowledgement or a merger needs them. Otherwise the
    engine delivers them to the program as if there were no supervisor.

    :param number: counted from 1
    :param receiver: the object that the engine delivers to
    :param merger: merges this line, as the new one, with another
    :param lost: called once, when the connection has ended or failed
    """

    def __init__(
        self,
        shared: Shared,
        number: int,
        transport: WSTransport,
        receiver: WSListener,
        connection: ClientConnection | None,
        close_timeout: float | None,
        merger: Merging | None,
        lost: Callable[[Line], None],
    ) -> None:
        self._shared = shared
        self.number = number
        self.transport = transport
        self.connection = connection
        self._close_timeout = close_timeout
        self._lost = lost
        self.opened_at = time.monotonic()
        #: Done when the transport has disconnected.
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ending: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._is_closing = self._is_lost = False
        #: The number of gaps before its first message.
        self.gaps = 0
        #: The server has announced that it will end the connection.
        self.is_announced = False
        #: Why the program does not want it any more.
        self.unwanted: Exception | None = None
        #: The frames go to a listener as they are.
        self.gets_frames = connection is None and not isinstance(receiver, Messages)
        #: The keys of the messages that it has brought.
        self.keys = Keys(shared.settings.remember)
        #: These, and those of the lines before with which it overlapped, as far as they are remembered.
        self.history = [self.keys]
        # Until this line has brought this key, or so many messages, it may lag behind the line before.
        self._last_of_former: Hashable = None
        self._may_lag_for = 0
        self._merger = merger if merger is not None and merger.join(self) else None
        # Its messages are kept out of its inbox. But fragments are in it, until the last one comes.
        self._is_held = self._merger is not None
        self._has_first = self._merger is None or shared.rollover.first is None
        # Why messages are shown; None: they are not.
        self._shown_for: tuple[bool, bool] | None = None
        self._is_awaiting_acks = False
        #: It is not read, see pause().
        self.is_paused = False
        self.outbox = Outbox(transport, shared, self._report, self.fail, self._changed)
        self.liveness = Liveness(transport, self.outbox, shared, self.fail)
        self._show_or_not(receiver)

    def open(self) -> None:
        """The connection is open."""
        self._ending = asyncio.get_running_loop().create_task(self._wait_ended())
        self._ending.add_done_callback(self._has_ended)

    def _report(self, subscription: Subscription, state: SubscriptionState, why: Any) -> None:
        self._shared.reporter.report(self.number, subscription, state, why)

    async def _wait_ended(self) -> None:
        await self.transport.wait_disconnected()

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.transport.abort()  # the program has cancelled all tasks of the loop
        else:
            task.exception()  # mark it as retrieved; close_info has it too
        self.stop()
        if not self.ended.done():
            self.ended.set_result(None)
        self._report_loss()

    def _report_loss(self) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._lost(self)
        self._shared.changed.notify()

    # ---- state

    @property
    def is_open(self) -> bool:
        return not self.ended.done() and self._failure is None and not self._is_closing

    @property
    def is_spent(self) -> bool:
        """The connection has ended, and the program has received all of its messages."""
        return self.ended.done() and self.waiting == 0

    @property
    def waiting(self) -> int:
        """The number of frames that the program has not received yet."""
        return 0 if self.connection is None else self.connection.listener.frames

    @property
    def is_behind(self) -> bool:
        """The program has yet to receive messages, and more may have arrived that are not read before."""
        return self.waiting > 0 and self.is_open and self.connection.backlog.age is None  # type: ignore[union-attr]

    @property
    def taken(self) -> int:
        """This changes when the program receives a message, unless there is an `overflow` that drops some."""
        return 0 if self.connection is None else self.connection.listener._head

    @property
    def is_in(self) -> bool:
        """It may take the place of another line: its subscriptions are in, and the message for ``Rollover.first`` has
        come."""
        return self._has_first and self.outbox.is_in

    @property
    def dropped(self) -> int:
        """The number of received messages that the program will never get."""
        return 0 if self.connection is None else self.connection.listener.dropped

    @property
    def dropped_by_policy(self) -> int:
        """The number of messages that `overflow` dropped."""
        return 0 if self.connection is None else self.dropped - self.connection.listener.discarded

    @property
    def life(self) -> float:
        """Seconds since the connection was opened."""
        return time.monotonic() - self.opened_at

    @property
    def error(self) -> BaseException:
        """The error that ended the connection."""
        if self._failure is not None:
            return self._failure
        info, handshake = self.transport.close_info, self.transport.close_handshake
        # If the server has sent CLOSE, its code says why, and not how the connection ended afterwards.
        said_why = handshake is not None and handshake.recv is not None
        if (
            info is not None
            and info.cause is not None
            and not said_why
            and not isinstance(info.cause, EOFError)
        ):
            return info.cause
        closed: ConnectionClosed = self.transport._closed()
        return closed

    # ---- the end

    def fail(self, exc: BaseException) -> None:
        """Drop the connection at once because of `exc`. The server may be dead, so its CLOSE is not waited for."""
        if self.ended.done() or self._failure is not None:
            return
        self._failure = exc
        self.stop()
        self.transport._fail(1011, str(exc), exc)
        self.transport.abort()
        self._report_loss()

    def stop(self) -> None:
        """Stop sending, and stop the timers for acknowledgements, heartbeats and silence."""
        self.outbox.stop()
        self.liveness.stop()

    def close(self, code: int = 1000, timeout: float | None = None) -> None:
        """Begin to close the connection. Messages that the server has sent before are still delivered.

        :param timeout: seconds until the connection is dropped; None is ``close_timeout``
        """
        self._is_closing = True
        self.stop()
        if self.ended.done():
            return
        self.transport._set_close_timeout(self._close_timeout if timeout is None else timeout)
        self.transport.send_close(code)
        self.resume()
        if self.connection is not None:
            self.connection._read_on()

    def abort(self) -> None:
        self._is_closing = True
        self.stop()
        if not self.ended.done():
            self.transport.abort()

    # ---- for a merger

    def merge(self, merger: Merging | None) -> None:
        """Show this merger all messages; None: no one does any more."""
        self._merger = merger
        self._is_held = False
        self._show_or_not()

    def succeed(self, former: Line) -> None:
        """Drop messages with the keys of the line before, until this line has brought the last of them."""
        for keys in former.history:
            if sum(map(len, self.history[1:])) < self._shared.settings.remember:
                self.history.append(keys)
        # The line before may itself lag behind the one before it.
        last = former._last_of_former if former._may_lag_for > 0 else former.keys.last
        if last is not None and last not in self.keys:
            self._last_of_former = last
            self._may_lag_for = self._shared.settings.remember
            self._show_or_not()

    def deliver(self, held: list[Any]) -> None:
        """Deliver what was held, see show_messages()."""
        if self.connection is not None:
            self.connection.listener.put_back(held)
            return
        for deliver, args in held:
            if self.ended.done() or self.transport.is_disconnected:
                return  # its listener has been told so
            try:
                deliver(*args)
            except Exception as exc:
                self.transport._callback_raised("on_ws_frame", exc)  # type: ignore[attr-defined]
                if self._shared.options.get("disconnect_on_exception", True):
                    return

    def pause(self) -> None:
        """Stop reading until :meth:`resume`."""
        if not self.is_paused and not self.ended.done():
            self.is_paused = True
            self.transport.underlying_transport.pause_reading()

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            if not self.ended.done() and not self.transport.underlying_transport.is_closing():
                self.transport.underlying_transport.resume_reading()

    # ---- inspecting messages

    def _changed(self) -> None:
        """Subscriptions were sent, acknowledged or ended."""
        self._show_or_not()
        self._shared.changed.notify()

    def _show_or_not(self, receiver: WSListener | None = None) -> None:
        """Begin to inspect messages if something needs that, and stop if nothing does.

        :param receiver: the object that the connection will deliver to, if it is not open yet
        """
        awaits_acks = self.outbox.expects_replies or self._is_held
        is_alone = self._merger is None and self._may_lag_for == 0
        is_awaited = (
            self.outbox.awaits_replies or not self._has_first or self._shared.rollover.when is not None
        )
        needs = is_alone, is_awaited
        shown_for = needs if self._shared.inspects or is_awaited or not is_alone else None
        if shown_for != self._shown_for and not self.ended.done():
            self._shown_for = shown_for
            inspector = Inspector(self, self._shared, self.liveness, is_alone, is_awaited)
            show_messages(self.transport, None if shown_for is None else inspector.inspect, receiver)
        if self.connection is not None and self._is_awaiting_acks != awaits_acks:
            self._is_awaiting_acks = awaits_acks
            if awaits_acks:
                self.connection._read_on(self)  # they may be behind messages without room
            else:
                self.connection._read_no_further(self)

    def look_for_awaited(self, message: Any) -> None:
        """Show a message to the functions that look for acknowledgements, announcements and the first message."""
        call, rollover = self._shared.callbacks.call, self._shared.rollover
        accepted = self.outbox.awaits_replies and self.outbox.take_reply(message)
        when, first = rollover.when, rollover.first
        if when is not None and not self.is_announced and call("when", False, when, message):
            self.is_announced = True
            self._shared.changed.notify()
        if (
            not self._has_first
            and not accepted
            and first is not None
            and call("first", False, first, message)
        ):
            self._has_first = True
            asyncio.get_running_loop().call_soon(self._changed)

    def brought(self, payload: Any, key: Hashable, was_in: bool) -> bool | list[Any]:
        """Handle a message that another line may bring, or may have brought: the result is that of show_messages().

        :param was_in: `is_in` before the message came
        """
        merger = self._merger
        came_before = self._may_lag_for > 0 and key is not None and self._came_before(key)
        if merger is None:
            return came_before
        # A function of the program may have made a subscription.
        verdict = merger.brought(self, payload, key, was_in and self.is_in)
        return came_before or verdict

    def brought_fragment(self, size: int) -> bool | list[Any]:
        """Handle a part of a message: a listener that gets frames shows only its size."""
        return False if self._merger is None else self._merger.fragment(self, size)

    def _came_before(self, key: Hashable) -> bool:
        """True if an earlier line has brought a message with this key."""
        self._may_lag_for -= 1
        came_before = False
        try:
            if key == self._last_of_former:
                self._may_lag_for = 0
            came_before = any(key in keys for keys in self.history[1:])
        except (Exception, asyncio.CancelledError) as exc:  # of __eq__ or __hash__ of the key
            self._shared.callbacks.raised("key", exc)
        if self._may_lag_for == 0:
            self._show_or_not()
        self._shared.duplicates += came_before
        return came_before


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
