"""The supervisor: what a program has in its hands, whichever connection is open, and if none is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from types import TracebackType
from typing import Any

from wsfast._engine.transport import WSTransport
from wsfast.asyncio.connection import ClientConnection
from wsfast.codes import WSMsgType
from wsfast.exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedOK
from wsfast.supervisor.core import Core
from wsfast.supervisor.leg import Leg
from wsfast.supervisor.outbox import Urgent
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.states import State
from wsfast.supervisor.stats import RTT, SupervisorStats
from wsfast.supervisor.subscriptions import Message, Subscription, checked

__all__ = ["Supervisor"]

# What recv() was given, of what the engine makes of it.
_DECODE = {-1: None, 0: False, 1: True, 2: memoryview}


class Supervisor:
    """A feed that goes on. Made by :func:`wsfast.supervise`, not by hand.

    ::

        async with wsfast.supervise(url) as feed:
            async for message in feed: ...

    Use it in one event loop, and in its thread.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._core = Core(shared)
        self._receiving = False
        self._generation = self._gaps = 0
        # The connection that recv() goes to without a detour. It calls _after() when it is at its end.
        self._direct: ClientConnection | None = None
        self._next: Callable[[], Coroutine[Any, Any, Any]] = self._iterate

    # ---- begin and end

    async def __aenter__(self) -> Supervisor:
        """Begin to connect. It does not wait until a connection is open; :meth:`ready` does."""
        if self._core.is_started or self._core.is_over:
            raise RuntimeError("a supervisor is used once")
        self._core.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, make no other one, and wait until it is closed: ``close_timeout`` at most.

        What was received before remains for :meth:`recv`. Called again, it waits for the same. It may be called at any
        time and place, but who calls it in one of the supervisor's own callbacks needs a task:
        ``asyncio.ensure_future(feed.close())``.
        """
        await self._core.close()

    def abort(self) -> None:
        """Drop the connection at once, with everything that was not sent yet, and make no other one."""
        self._core.check_thread()
        self._core.abort()

    async def wait_closed(self) -> None:
        """Wait until it is over.

        :raises Exception: why it gave up; nothing is raised after :meth:`close`
        """
        self._check_started()
        await self._core.wait_over()
        if self._core.error is not None:
            raise self._core.error

    # ---- receiving

    def recv(self, decode: bool | type[memoryview] | None = None) -> Coroutine[Any, Any, Any]:
        """Receive the next message, of whichever connection.

        Messages of a connection come in their order, and all of them before those of the next one. :attr:`generation`
        tells which connection it was.

        :param decode: as for :meth:`ClientConnection.recv`
        :raises Exception: why the supervisor gave up, after the last message
        :raises ConnectionClosedOK: it was closed, and no message is left
        :raises ConcurrencyError: another task is in :meth:`recv`
        :raises TypeError: the messages go to a listener

        Cancelling it is safe: no message is lost.
        """
        if self._direct is not None:
            return self._direct.recv(decode)
        return self._receive(decode, False)

    def __aiter__(self) -> Supervisor:
        """The messages of each connection in turn. Ends when :meth:`close` is called, and raises why it gave up."""
        return self

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._next()

    def _iterate(self) -> Coroutine[Any, Any, Any]:
        return self._receive(None, True)

    def _after(self, decode: int, iterates: bool) -> Coroutine[Any, Any, Any]:
        """What the engine calls when the connection is at its end."""
        return self._receive(_DECODE[decode], iterates)

    async def _receive(self, decode: Any, iterates: bool) -> Any:
        """The next message, if another connection may have to be waited for, or messages be looked at."""
        self._check_started()
        if self._receiving:
            raise ConcurrencyError("cannot call recv while another coroutine is already running recv")
        if self._shared.listener_factory is not None:
            raise TypeError("there is nothing to receive: the messages go to a listener")
        self._receiving = True
        self._direct = None
        self._next = self._iterate
        try:
            while True:
                leg = await self._head(iterates)
                connection = leg.connection
                assert connection is not None
                connection._successor = None
                try:
                    message = await connection.recv(decode)
                except ConnectionClosed:
                    await asyncio.wait([leg.ended])  # the gaps are counted then
                    self._drop(leg)
                    continue
                if self._shared.is_duplicate(message):
                    continue
                self._generation, self._gaps = leg.number, leg.gaps
                if not self._shared.has_key:
                    connection._successor = self._after
                    self._direct = connection
                    self._next = connection.__aiter__().__anext__  # type: ignore[assignment]
                return message
        finally:
            self._receiving = False

    async def _head(self, iterates: bool) -> Leg:
        """The connection to receive from."""
        core = self._core
        while not core.feeds:
            if core.is_over:
                if core.error is not None:
                    raise core.error
                if iterates:
                    raise StopAsyncIteration
                raise ConnectionClosedOK(None, None)
            await self._shared.changed.wait()
        return core.feeds[0]

    def _drop(self, leg: Leg) -> None:
        feeds = self._core.feeds
        if feeds and feeds[0] is leg:
            feeds.popleft()
            self._shared.changed.tell()

    @property
    def generation(self) -> int:
        """Which connection the last received message came from, counted from 1; 0 before the first message."""
        return self._generation

    @property
    def gaps(self) -> int:
        """How many gaps there are before the last received message: where this changes, messages may have been lost.

        Where it does not change none was lost, if subscriptions demand acknowledgements and no `overflow` drops
        messages. ``stats.gaps`` counts also the gaps before messages that wait to be received. It is what a listener
        has.
        """
        return self._gaps

    # ---- sending

    async def send(self, message: str | bytes | bytearray | memoryview, *, text: bool | None = None) -> None:
        """Send a message ahead of all heartbeats and subscriptions, as soon as a connection is open and the window has
        room for it. It counts in the window.

        :param message: ``str`` is sent as text, a bytes-like object as binary
        :param text: True sends as text, False as binary, whatever the type of `message`
        :raises TypeError: `message` is of another type
        :raises Exception: the supervisor gave up before it was sent
        :raises ConnectionClosed: it was closed before

        If it is cancelled before the message is sent, the message is not sent. A message that was sent may be lost if
        the connection ends: no WebSocket client can tell.
        """
        self._check_started()
        message = checked("message", message)
        if callable(message):
            raise TypeError(f"message must be str or bytes-like, not {message!r}")
        as_text = isinstance(message, str) if text is None else text
        kind = WSMsgType.TEXT if as_text else WSMsgType.BINARY
        core = self._core
        if core.is_over:
            raise core.error or ConnectionClosedOK(None, None)
        if core.leg is not None and core.leg.outbox.is_idle:
            try:
                core.leg.transport.send(kind, message)
            except ConnectionClosed:
                pass  # it is closing: the next one will do
            else:
                core.leg.outbox.messages_sent += 1
                return
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def has_been_sent(exc: BaseException | None) -> None:
            if sent.done():
                return
            if exc is None:
                sent.set_result(None)
            else:
                sent.set_exception(exc)

        urgent = Urgent(message, kind, has_been_sent, lambda: not sent.done())
        self._shared.urgent.append(urgent)
        if core.leg is not None:
            core.leg.outbox.pump()
        try:
            await sent
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._shared.urgent.remove(urgent)
            raise

    def subscribe(
        self,
        message: Message,
        *,
        key: Hashable = None,
        ack: Callable[[Any], object] | None = None,
        ack_timeout: float = 10.0,
        retries: int = 3,
        max_silence: float | None = None,
    ) -> Subscription:
        """Send a message now, if a connection is open, and after each connect.

        :param message: str, bytes, or a function that makes it each time: with a fresh token, for instance. If the
            function raises, the supervisor gives up, unless ``classify`` says otherwise.
        :param key: what :meth:`unsubscribe` and ``topic`` know the subscription by; the message itself by default. A
            subscription with the key of another one takes its place.
        :param ack: gets each message that comes while the acknowledgement is waited for; true if it is that. The
            message is delivered, too. None demands none.
        :param ack_timeout: seconds until the message is sent again
        :param retries: how often it is sent again before the connection is ended with :class:`SubscriptionTimeout`
        :param max_silence: seconds without a message whose ``topic`` is `key`, after which the connection is ended with
            :class:`SilenceTimeout`
        """
        if max_silence is not None and self._shared.topic is None:
            raise TypeError(
                "max_silence of a subscription needs topic=, which says what a message belongs to"
            )
        self._core.check_thread()
        subscription = Subscription(message, key, ack, ack_timeout, retries, max_silence)
        former = self._shared.subscriptions.get(subscription.key)
        self._shared.subscriptions.add(subscription)
        for leg in list(self._core.legs):
            if leg.is_open:
                if former is not None:
                    leg.outbox.unsubscribe(former, None)
                leg.outbox.subscribe(subscription)
                leg.liveness.subscribed(subscription)
        return subscription

    def unsubscribe(self, key: Hashable, message: Message | None = None) -> bool:
        """Forget a subscription.

        :param key: that of the subscription, or the :class:`Subscription` itself
        :param message: is sent if the subscription was; None sends nothing
        :returns: False if there is no such subscription
        """
        self._core.check_thread()
        if isinstance(key, Subscription):
            if key not in self._shared.subscriptions:
                return False  # forgotten, or another one has taken its place
            key = key.key
        if message is not None:
            message = checked("message", message)
        subscription = self._shared.subscriptions.remove(key)
        if subscription is None:
            return False
        for leg in list(self._core.legs):
            if leg.is_open:
                leg.outbox.unsubscribe(subscription, message)
        return True

    async def ready(self) -> None:
        """Wait until a connection is open and all subscriptions are in: sent, and acknowledged if that is demanded.

        :raises Exception: why the supervisor gave up
        :raises ConnectionClosed: it was closed
        """
        self._check_started()
        core = self._core
        while core.leg is None or not core.leg.outbox.is_in:
            if core.is_over:
                raise core.error or ConnectionClosedOK(None, None)
            await self._shared.changed.wait()

    async def roll_over(self) -> bool:
        """Replace the connection by a new one, without a gap: see :class:`Rollover`. One that is under way serves.

        :returns: True if it was replaced; False if the new one failed and the old one stays, or nothing is open
        """
        self._check_started()
        return await self._core.ask_to_roll_over()

    # ---- sight

    @property
    def state(self) -> State:
        """What it is doing."""
        return self._core.state

    @property
    def cause(self) -> BaseException | None:
        """What ended the last connection or attempt; None if nothing has failed since a connection was last open."""
        return self._core.cause

    @property
    def next_attempt(self) -> float | None:
        """When the next attempt is due, by ``loop.time()``; None unless the state is WAITING."""
        return self._core.next_attempt

    @property
    def transport(self) -> WSTransport | None:
        """The current connection's transport; None if nothing is open."""
        return None if self._core.leg is None else self._core.leg.transport

    @property
    def connection(self) -> ClientConnection | None:
        """The current connection, if there is no listener factory; None if nothing is open. Send by the supervisor: a
        message that is sent here counts in the window only afterwards."""
        return None if self._core.leg is None else self._core.leg.connection

    @property
    def subscriptions(self) -> list[Subscription]:
        """All of them, in the order in which they were made."""
        return list(self._shared.subscriptions)

    @property
    def rtt(self) -> RTT:
        """The round-trip times of its PINGs, unless there is a ``ping_histogram``."""
        return self._shared.rtt

    @property
    def stats(self) -> SupervisorStats:
        """What it has counted so far. Any thread may read it; in another one than the event loop's it may be a moment
        old."""
        core, shared, leg = self._core, self._shared, self._core.leg
        # Copies, which no other thread's interpreter can interrupt: dashboards ask from threads of their own.
        legs, feeds = list(core.legs), list(core.feeds)
        current = [one.transport._stats() for one in legs]
        backlogs = [one.connection.backlog for one in {*legs, *feeds} if one.connection is not None]
        return SupervisorStats(
            connects=core.connects,
            failures=dict(core.failures),
            rollovers=core.rollovers,
            rollovers_failed=core.rollovers_failed,
            gaps=core.gaps,
            downtime=core.downtime,
            duplicates=shared.duplicates,
            silences=core.silences,
            subscriptions=len(shared.subscriptions),
            subscriptions_in=0 if leg is None else leg.outbox.number_in,
            messages_sent=core.messages_sent + sum(one.outbox.messages_sent for one in legs),
            frames_received=core.frames_received + sum(stats.frames_received for stats in current),
            bytes_received=core.bytes_received + sum(stats.bytes_received for stats in current),
            age=None if leg is None else leg.life,
            silence=None if leg is None else time.monotonic() - leg.liveness.data_at,
            callback_errors=shared.callbacks.errors,
            backlog=sum(backlog.depth for backlog in backlogs),
            backlog_age=max((backlog.age for backlog in backlogs if backlog.age is not None), default=None),
            dropped=core.dropped + sum(one.dropped for one in legs),
        )

    def __reduce__(self) -> Any:
        raise TypeError("a Supervisor cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"<Supervisor {self.state.value} {self._core.connects} connects>"

    def _check_started(self) -> None:
        if not self._core.is_started and not self._core.is_over:
            raise RuntimeError("a supervisor is begun by async with")
        self._core.check_thread()
