"""The supervisor: the object that a program uses, whether a connection is open or not, and whichever it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from wsfast._common.options import seconds
from wsfast._common.protocol_numbers import WSMsgType
from wsfast._engine.messages import DECODE, DECODE_BY_TYPE
from wsfast._engine.transport import WSTransport
from wsfast.asyncio._messaging import Messages, Successive, enter_methods
from wsfast.asyncio.connection import ClientConnection
from wsfast.exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedOK
from wsfast.supervisor.lifecycle import Lifecycle
from wsfast.supervisor.line import Line
from wsfast.supervisor.sequences import Sequence, Sequenced, Sequencer
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.states import State
from wsfast.supervisor.stats import RTT, SupervisorStats
from wsfast.supervisor.subscriptions import Message, Subscription, checked

__all__ = ["Supervisor"]


class Supervisor(Successive):
    """A feed that survives its connections. :func:`wsfast.supervise` makes it; do not make it by hand.

    ::

        async with wsfast.supervise(url) as feed:
            async for message in feed: ...

    Use it in one event loop, and only in the thread of that loop.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._life = Lifecycle(shared)
        self._receiving = False
        self._generation = self._gaps = 0
        self._messages = Messages(None, DECODE_BY_TYPE, self._receive_slowly)

    # ---- begin and end

    async def __aenter__(self) -> Supervisor:
        """Begin to connect. This does not wait until a connection is open; :meth:`ready` does."""
        if self._life.is_started or self._life.is_over:
            raise RuntimeError("a supervisor can be used only once")
        self._life.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, and wait until it is closed: at most ``close_timeout``. No other connection is made.

        Messages that were received before remain for :meth:`recv`. A second call waits for the same end. The program
        may call this at any time. In a callback of the supervisor it must do so in a task:
        ``asyncio.ensure_future(feed.close())``.
        """
        await self._life.close()

    def abort(self) -> None:
        """Drop the connection at once, with all messages that were not sent yet, and make no other connection."""
        self._life.check_thread()
        self._life.abort()

    async def wait_closed(self) -> None:
        """Wait until the supervisor is over.

        :raises Exception: the reason why the supervisor gave up; nothing is raised after :meth:`close`
        """
        self._check_started()
        await self._life.wait_over()
        if self._life.error is not None:
            raise self._life.error

    if not TYPE_CHECKING:  # type checkers find this mistake themselves

        def __enter__(self):
            raise TypeError("write `async with supervise(...)`, or use wsfast.sync.supervise for `with`")

        def __exit__(self, *exc_info):
            """Python looks for it before it enters."""

    # ---- receiving

    def __aiter__(self) -> AsyncIterator[str | bytes]:
        """Iterate over the messages of one connection after another. :meth:`close` ends the iteration. If the
        supervisor gave up, the iteration raises the reason."""
        self._messages.follow(self._direct)
        return self._messages

    def __anext__(self) -> Coroutine[Any, Any, str | bytes]:
        return self._messages.__anext__()

    def _bind(self, connection: ClientConnection | None) -> None:
        """Receive from this connection directly, which calls :meth:`_receive_slowly` when it has ended; None: by
        :meth:`_receive`."""
        self._direct = connection
        self._messages.follow(connection)

    def _receive_slowly(self, decode: int, iterates: bool, most: int) -> Coroutine[Any, Any, Any]:
        """The engine calls this when there is no connection, or when it has ended and no message of it is left."""
        return self._receive(DECODE[decode], iterates, most)

    async def _receive(self, decode: Any, iterates: bool, most: int) -> Any:
        """The next message, or a list of at most `most` if that is not 0, by the slow path: it can wait for another
        connection."""
        self._check_started()
        if self._receiving:
            raise ConcurrencyError("cannot call recv while another coroutine is already running recv")
        if self._shared.listener_factory is not None:
            raise TypeError("there is nothing to receive: the messages go to a listener")
        self._receiving = True
        self._life.feed.is_unread = False
        self._bind(None)
        try:
            while True:
                line = await self._head(iterates)
                connection = line.connection
                assert connection is not None
                connection._successor = None
                try:
                    if most:
                        message: Any = await connection.recv_many(most, decode=decode)
                    else:
                        message = await connection.recv(decode)
                except ConnectionClosed:
                    await asyncio.wait([line.ended])  # the gaps are counted then
                    self._drop(line)
                    continue
                finally:
                    connection._successor = self._receive_slowly  # also for a recv that the program has kept
                self._generation, self._gaps = line.number, line.gaps
                self._bind(connection)
                return message
        finally:
            self._receiving = False

    async def _head(self, iterates: bool) -> Line:
        """The connection from which to receive."""
        life = self._life
        while not life.feed.lines:
            if life.is_over:
                if life.error is not None:
                    raise life.error
                if iterates:
                    raise StopAsyncIteration
                raise ConnectionClosedOK(None, None)
            await self._shared.changed.wait()
        return life.feed.lines[0]

    def _drop(self, line: Line) -> None:
        feeds = self._life.feed.lines
        if feeds and feeds[0] is line:
            feeds.popleft()
            self._shared.changed.notify()

    @property
    def generation(self) -> int:
        """The number of the connection that received the last message, counted from 1; 0 before the first message."""
        return self._generation

    @property
    def gaps(self) -> int:
        """The number of gaps before the last received message. If it has changed, messages may have been lost.

        If it has not changed, no message was lost, provided that each connection brings its messages in the order in
        which the server published them, that subscriptions demand acknowledgements, and that no `overflow` drops
        messages. ``stats.gaps`` also counts the gaps before messages that wait to be received. A
        program with a listener reads ``stats.gaps``.
        """
        return self._gaps

    def sequenced(self, sequence: Sequence) -> Sequenced:
        """Receive messages in the order of their numbers, each once.

        ::

            async for stream, message in feed.sequenced(Sequence(numbers, recover=fetch_snapshot)):
                ...

        A message is the result of `parse`, if the supervisor has one. See :class:`Sequence`. Call this once.
        """
        return Sequenced(self._life, self._shared, sequence, self)

    def sequencer(self, sequence: Sequence, deliver: Callable[[Hashable, Any], object]) -> Sequencer:
        """The same for a program with a listener, which gives each message to :meth:`Sequencer.take`.

        :param deliver: gets stream and message
        """
        return Sequencer(self._life, self._shared, sequence, deliver)

    # ---- sending

    async def send(
        self,
        message: str | bytes | bytearray | memoryview,
        *,
        text: bool | None = None,
        ttl: float | None = None,
    ) -> None:
        """Send a message as soon as a connection is open, its subscriptions of stage 0 are in, and the window has room.
        The message is sent before all waiting heartbeats and later subscriptions, and counts in the window.

        :param message: ``str`` is sent as text, a bytes-like object as binary
        :param text: True sends as text, False as binary, whatever the type of `message`
        :param ttl: seconds; None is no limit. If the message has not left within this time, because there was no
            connection, or no room in the window or the socket, it is not sent any more.
        :raises SendExpired: the message was not sent within `ttl`
        :raises TypeError: `message` is of another type
        :raises Exception: the reason why the supervisor gave up before the message was sent
        :raises ConnectionClosed: the supervisor was closed before the message was sent

        If the caller is cancelled before the message is sent, the message is not sent. A message that was sent may be
        lost if the connection ends: no WebSocket client can detect that.
        """
        self._check_started()
        message = checked("message", message)
        if callable(message):
            raise TypeError(f"message must be str or bytes-like, not {message!r}")
        if ttl is not None:
            ttl = seconds("ttl", ttl, none="for no limit", zero=False)
        as_text = isinstance(message, str) if text is None else text
        kind = WSMsgType.TEXT if as_text else WSMsgType.BINARY
        life = self._life
        if life.is_over:
            raise life.error or ConnectionClosedOK(None, None)
        outbox = None if life.line is None else life.line.outbox
        if outbox is None or not outbox.send_at_once(kind, message):
            pump = None if outbox is None else outbox.pump
            await self._shared.messages.wait_sent(message, kind, ttl, pump)

    def subscribe(
        self,
        message: Message,
        *,
        key: Hashable = None,
        id: Hashable = None,
        stage: int = 1,
        ack: Callable[[Any], object] | None = None,
        ack_timeout: float = 10.0,
        retries: int = 3,
        max_silence: float | None = None,
    ) -> Subscription:
        """Send a message now, if a connection is open, and after each connect.

        :param message: str, bytes, or a function or coroutine function that makes it each time: with a fresh token, for
            instance. Coroutine functions run one after another, for ``open_timeout`` each at most. If a function
            raises, the supervisor gives up, unless ``classify`` decides otherwise; it connects again after an
            ``OSError`` or ``TimeoutError``.
        :param key: identifies the subscription for :meth:`unsubscribe` and ``topic``, and in logs and errors; the
            message itself by default. A subscription replaces another one with the same key. Give a login a key, so
            that its secrets are not logged.
        :param id: what ``reply_id`` returns for the message that acknowledges or refuses the subscription. An
            acknowledgement is demanded then. It costs the same for any number of subscriptions.
        :param stage: 0 is a login: :meth:`send` waits until it is in, too. A subscription is sent once all those of
            lower stages are in. If one is refused for which others wait, the supervisor gives up with
            :class:`SubscriptionRejected`, unless ``classify`` decides otherwise.
        :param ack: a function that gets each message while the acknowledgement is missing, and returns true for the
            acknowledgement. That message is delivered, too. With neither `ack` nor `id` no acknowledgement is demanded.
        :param ack_timeout: seconds until the message is sent again
        :param retries: how often it is sent again. If no acknowledgement comes, the supervisor ends the connection with
            :class:`SubscriptionTimeout`. But if the server has answered others of the same stage, and none wait for
            this one, it is left alone on this connection: see :attr:`SubscriptionState.LATE`.
        :param max_silence: seconds without a message whose ``topic`` is `key`, after which the supervisor ends the
            connection with :class:`SilenceTimeout`
        :raises ValueError: another subscription has the same id
        """
        if id is not None and self._shared.settings.reply_id is None:
            raise TypeError("id of a subscription needs reply_id=, a function that returns the id of a reply")
        if max_silence is not None and self._shared.settings.topic is None:
            raise TypeError(
                "max_silence of a subscription needs topic=, a function that returns the key of a message"
            )
        self._life.check_thread()
        subscription = Subscription(message, key, id, stage, ack, ack_timeout, retries, max_silence)
        former = self._shared.subscriptions.get(subscription.key)
        self._shared.subscriptions.add(subscription)
        for line in list(self._life.lines):
            if line.is_open:
                if former is not None:
                    line.outbox.unsubscribe(former, None)
                line.outbox.subscribe(subscription)
                line.liveness.subscribed(subscription)
        if self._life.feed.merger is not None:
            self._life.feed.merger.again()
        return subscription

    def unsubscribe(self, key: Hashable, message: Message | None = None) -> bool:
        """Forget a subscription.

        :param key: the key of the subscription, or the :class:`Subscription` itself
        :param message: is sent if the subscription was sent; None sends nothing
        :returns: False if there is no such subscription
        """
        self._life.check_thread()
        if isinstance(key, Subscription):
            if key not in self._shared.subscriptions:
                return False  # it was removed or replaced already
            key = key.key
        if message is not None:
            message = checked("message", message)
        subscription = self._shared.subscriptions.remove(key)
        if subscription is None:
            return False
        for line in list(self._life.lines):
            if line.is_open:
                line.outbox.unsubscribe(subscription, message)
        return True

    async def ready(self) -> None:
        """Wait until a connection is open and all subscriptions are in: sent, and acknowledged if they demand it. Those
        that the server has refused, and those that are late, do not count.

        :raises Exception: the reason why the supervisor gave up
        :raises ConnectionClosed: the supervisor was closed
        """
        self._check_started()
        life = self._life
        while life.line is None or not life.line.outbox.is_in:
            if life.is_over:
                raise life.error or ConnectionClosedOK(None, None)
            await self._shared.changed.wait()

    async def roll_over(self) -> bool:
        """Replace the connection by a new one, without a gap: see :class:`Rollover`. If a rollover is under way, wait
        for that one.

        :returns: True if the connection was replaced. False if the new one failed and the old one stays, or if no
            connection is open.
        """
        self._check_started()
        return await self._life.ask_to_roll_over()

    def drop(self, reason: str | Exception) -> None:
        """Replace the connection because the program does not trust it any more: its checksum is wrong, say.

        A new connection takes its place without a gap, see :class:`Rollover`. The messages of the old one are delivered
        until then: for twice ``Rollover.timeout`` at most. If that fails, or without ``overlap``, the connection ends,
        `classify` gets the reason, and the supervisor connects again. The connection is the one whose messages the
        program gets. If it is being replaced already, that goes on. Does nothing if no connection is open.

        :param reason: the error that ends the connection; a str becomes a :exc:`ConnectionAbortedError`
        """
        self._check_started()
        if not isinstance(reason, (str, Exception)):
            raise TypeError(f"reason must be a str or an exception, not {reason!r}")
        self._life.drop(ConnectionAbortedError(reason) if isinstance(reason, str) else reason)

    # ---- state and counts

    @property
    def state(self) -> State:
        """The current state."""
        return self._life.state

    @property
    def cause(self) -> BaseException | None:
        """The error of the last connection or attempt; None if nothing has failed since a connection was last open."""
        return self._life.cause

    @property
    def next_attempt(self) -> float | None:
        """The time of the next attempt, by ``loop.time()``; None unless the state is WAITING."""
        return self._life.next_attempt

    @property
    def transport(self) -> WSTransport | None:
        """The transport of the current connection; None if no connection is open."""
        return None if self._life.line is None else self._life.line.transport

    @property
    def connection(self) -> ClientConnection | None:
        """The current connection, if there is no listener factory; None if no connection is open. Send with the
        supervisor's :meth:`send`: the window counts messages that are sent on the connection only afterwards."""
        return None if self._life.line is None else self._life.line.connection

    @property
    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, in the order in which they were made."""
        return list(self._shared.subscriptions)

    @property
    def rtt(self) -> RTT:
        """The round-trip times of the PINGs of all connections. Empty if the program gave one of its own."""
        return self._shared.rtt

    @property
    def stats(self) -> SupervisorStats:
        """The counts so far. Any thread may read them; in a thread other than the event loop's they may be a moment
        old."""
        life, shared, line = self._life, self._shared, self._life.line
        merger = None if shared.listener_factory is not None else life.feed.merger
        # Copy the sets in one step each, because the event loop's thread may change them while another thread reads.
        lines, feeds = list(life.lines), list(life.feed.lines)
        current = [one.transport._stats() for one in lines]
        backlogs = [one.connection.backlog for one in {*lines, *feeds} if one.connection is not None]
        return SupervisorStats(
            connects=life.connects,
            failures=dict(life.failures),
            rollovers=life.rollovers,
            rollovers_failed=life.rollovers_failed,
            gaps=life.feed.gaps,
            downtime=life.downtime,
            duplicates=shared.duplicates,
            silences=life.silences,
            subscriptions=len(shared.subscriptions),
            subscriptions_in=0 if line is None else line.outbox.number_in,
            messages_sent=life.messages_sent + sum(one.outbox.messages_sent for one in lines),
            frames_received=life.frames_received + sum(stats.frames_received for stats in current),
            bytes_received=life.bytes_received + sum(stats.bytes_received for stats in current),
            age=None if line is None else line.life,
            silence=None if line is None else time.monotonic() - line.liveness.data_at,
            callback_errors=shared.callbacks.errors,
            backlog=sum(backlog.depth for backlog in backlogs) + (0 if merger is None else merger.held),
            backlog_age=max((backlog.age for backlog in backlogs if backlog.age is not None), default=None),
            dropped=life.dropped + life.feed.dropped + sum(one.dropped for one in lines),
        )

    def __reduce__(self) -> Any:
        raise TypeError("a Supervisor cannot be copied or pickled")

    def __repr__(self) -> str:
        return f"<Supervisor {self.state.value} {self._life.connects} connects>"

    def _check_started(self) -> None:
        if not self._life.is_started and not self._life.is_over:
            raise RuntimeError("a supervisor must be entered with async with")
        self._life.check_thread()


enter_methods(Supervisor)
