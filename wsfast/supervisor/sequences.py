"""The numbers of messages: order, holes and their recovery. See :class:`Sequence`, docs/howto/sequences.md."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from wsfast._common.options import check_bools, check_callables, check_types, count, seconds
from wsfast.supervisor.window import Sent, Window

if TYPE_CHECKING:
    from wsfast._engine.transport import WSTransport
    from wsfast.supervisor.lifecycle import Lifecycle
    from wsfast.supervisor.shared import Shared

__all__ = ["Recovered", "Sequence", "Sequenced", "Sequencer"]

_Callback = Callable[[Hashable, Any], object]

#: The result of `recover`: first number, last number, message. The first number of a snapshot is None.
Recovered = tuple[int | None, int, Any] | Iterable[tuple[int | None, int, Any]] | None


class Sequence:
    """The way in which a server numbers its messages, and the cure for missing ones.

    :param of: gets a message, and returns ``(stream, first, last)``: the message brings the updates `first` to `last`
        of that stream, which any hashable value identifies. ``(stream, None, last)`` is a snapshot: it stands for all
        updates up to `last`. None: the message has no number, and is delivered at once, as one of the stream None.
    :param hold: seconds for which messages behind a hole wait for the missing one, since some servers send messages out
        of order; then the hole is a gap. They wait on while the program does not take messages that have arrived.
    :param limit: the number of messages of one stream that wait at most. More of them make a hole a gap at once; while
        a stream is being recovered, the oldest are dropped, and the recovery goes on until it covers them.
    :param per_connection: True: numbers begin anew with each connection
    :param on_gap: a function that gets stream, expected number and received number of each gap, in order with the
        messages: when those before the gap were delivered
    :param recover: a coroutine function that gets stream, expected number and received number. The expected one is None
        for the first message of a stream. It returns what is missing: one ``(first, last, message)``, ``(None, last,
        message)`` for a snapshot, or several of these in their order. None: nothing can be had, and the stream goes on
        behind the gap. The messages of the stream wait meanwhile. It is called again after one of the supervisor's
        `delays` if it raises, if a snapshot is older than the messages that wait, and if part of the hole is left.
    :param window: how often `recover` may be called: ``(calls, seconds)``, for all streams together
    :raises TypeError, ValueError: a value is invalid
    """

    __slots__ = ("hold", "limit", "of", "on_gap", "per_connection", "recover", "window")

    def __init__(
        self,
        of: Callable[[Any], tuple[Hashable, int | None, int] | None],
        *,
        hold: float = 0.05,
        limit: int = 10_000,
        per_connection: bool = False,
        on_gap: Callable[[Hashable, int | None, int], object] | None = None,
        recover: Callable[[Any, int | None, int | None], Awaitable[Recovered]] | None = None,
        window: Window | tuple[int, float] | None = None,
    ) -> None:
        check_callables(of=of, on_gap=on_gap, recover=recover)
        if of is None:
            raise TypeError("of must be a function, not None")
        check_bools(per_connection=per_connection)
        check_types(Window, tuple, window=window)
        self.of = of
        self.hold = seconds("hold", hold, none=None) or 0.0
        self.limit = count("limit", limit, least=1) or 1
        self.per_connection = per_connection
        self.on_gap = on_gap
        self.recover = recover
        self.window = Window(*window, reserve=0) if isinstance(window, tuple) else window


class _Feed(Protocol):
    """The supervisor."""

    @property
    def generation(self) -> int: ...
    @property
    def gaps(self) -> int: ...
    def __anext__(self) -> Coroutine[Any, Any, Any]: ...


class _Stream:
    """`expected` is the next number; None: the stream has not begun. `held` are the messages that wait, by their
    numbers: (first, arrival, last, message). Their hole has a timer until it is a gap, and then perhaps a task."""

    __slots__ = ("connection", "expected", "gaps", "held", "name", "task", "timer")

    def __init__(self, name: Hashable, connection: int, gaps: int) -> None:
        self.name = name
        self.connection = connection
        self.gaps = gaps
        self.expected: int | None = None
        self.held: list[tuple[int, int, int, Any]] = []
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None


class _Ordering:
    """The streams of a feed. Each method leaves all in its place before one of the program's functions runs."""

    def __init__(self, life: Lifecycle, shared: Shared, sequence: Sequence) -> None:
        if not isinstance(sequence, Sequence):
            raise TypeError(f"sequence must be a Sequence, not {sequence!r}")
        self._sequence = sequence
        self._life, self._shared = life, shared
        self._loop = asyncio.get_running_loop()
        self._sent = None if sequence.window is None else Sent(sequence.window)
        self._streams: dict[Hashable, _Stream] = {}
        # The names of those that have a hole, or are being recovered.
        self._waiting: set[Hashable] = set()
        self._arrivals = itertools.count()
        # What to deliver: (None, stream, message); and to report: (on_gap, stream, (expected, received)).
        self._out: deque[tuple[Callable[..., object] | None, Hashable, Any]] = deque()
        #: Holes that were not filled within `hold`.
        self.gaps = 0
        #: Messages that were dropped because their numbers had been delivered.
        self.duplicates = 0
        #: Messages that were dropped while a stream was being recovered, because they were more than `limit`, or
        #: because it began anew.
        self.dropped = 0

    def recover(self, stream: Hashable) -> None:
        """Begin the stream anew, by `recover` of the :class:`Sequence`: its checksum is wrong, say.

        :raises TypeError: there is no `recover`
        """
        if self._sequence.recover is None:
            raise TypeError("the Sequence has no recover=")
        found = self._streams.get(stream)
        if found is not None:
            self._forget(found)
            self._begin_recovery(found)

    def _take(self, message: Any, connection: int, gaps: int) -> None:
        """Place a message; then :meth:`_pop` what can be delivered."""
        numbers = None
        try:
            if self._shared.settings.parse is not None:
                message = self._shared.settings.parse(message)
            numbers = _numbers(self._sequence.of(message))
        except (Exception, asyncio.CancelledError) as exc:
            self._shared.callbacks.raised("of", exc)
        if numbers is None:
            self._out.append((None, None, message))
            return
        name, first, last = numbers
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = _Stream(name, connection, gaps)
        lost, moved = stream.gaps != gaps, stream.connection != connection
        if lost or moved:
            stream.gaps, stream.connection = gaps, connection
            self._change_connection(stream, first, last, lost, moved)
        if first is None:
            self._take_snapshot(stream, last, message, moved and not lost)
        else:
            self._take_update(stream, first, last, message)

    def _pop(self) -> tuple[Hashable, Any] | None:
        """The next stream and message; None if there is none. Reports the gaps before it."""
        while self._out:
            report, stream, content = self._out.popleft()
            if report is None:
                return stream, content
            self._shared.callbacks.call("on_gap", None, report, stream, *content)
        return None

    def _announce(self) -> None:
        """A timer or a recovery has made messages ready."""
        raise NotImplementedError

    def _finish(self) -> None:
        """No message will come any more."""
        for stream in self._streams.values():
            self._end_hole(stream)

    # ---- one message

    def _take_update(self, stream: _Stream, first: int, last: int, message: Any) -> None:
        expected = stream.expected
        if expected is None and self._sequence.recover is None:
            self._continue(stream, last, message)
        elif expected is None or first > expected:
            self._hold(stream, first, last, message)
        elif last < expected:
            self.duplicates += 1
        else:
            self._continue(stream, last, message)

    def _change_connection(
        self, stream: _Stream, first: int | None, last: int, lost: bool, moved: bool
    ) -> None:
        """The stream's message is the first by another connection, or after a gap of the feed."""
        expected = stream.expected
        restarts = self._sequence.per_connection and moved
        if not restarts and (not lost or first is None or expected is None or last >= expected):
            return  # the numbers go on, and tell whether messages are missing
        is_whole = expected is not None and stream.name not in self._waiting
        has_unreported_hole = stream.timer is not None
        if self._sequence.recover is None:
            self._end_hole(stream)
        else:
            self.dropped += len(stream.held)
            self._forget(stream)
        if expected is not None and (lost or (has_unreported_hole and stream.expected is None)):
            self._report(stream, expected, last if first is None else first)
        stream.expected = first if is_whole and not lost else None

    def _take_snapshot(self, stream: _Stream, last: int, message: Any, rolled_over: bool) -> None:
        if stream.expected is not None and last + 1 < stream.expected:
            if rolled_over:  # the former connection has brought more
                self.duplicates += 1
                return
            self.dropped += len(stream.held)  # the server has begun anew
            stream.held.clear()
        self._cancel_recovery(stream)
        self._continue(stream, last, message)

    def _continue(self, stream: _Stream, last: int, message: Any) -> None:
        """Deliver the next message of the stream, and those for which it made room."""
        self._out.append((None, stream.name, message))
        stream.expected = last + 1
        if stream.name in self._waiting:
            self._release(stream)
            if stream.held and stream.task is None:
                self._await_missing(stream)

    def _release(self, stream: _Stream) -> None:
        """Deliver the held messages whose turn has come."""
        held, expected, number = stream.held, stream.expected, 0
        assert expected is not None
        for first, _, last, message in held:
            if first > expected:
                break
            number += 1
            if last < expected:
                self.duplicates += 1
            else:
                self._out.append((None, stream.name, message))
                expected = last + 1
        del held[:number]
        stream.expected = expected
        self._cancel_timer(stream)
        if not held:
            self._cancel_recovery(stream)
            self._waiting.discard(stream.name)

    def _hold(self, stream: _Stream, first: int, last: int, message: Any) -> None:
        bisect.insort(stream.held, (first, next(self._arrivals), last, message))
        self._waiting.add(stream.name)
        is_full = len(stream.held) > self._sequence.limit
        if stream.task is not None:
            if is_full:
                del stream.held[0]
                self.dropped += 1
        elif stream.expected is None:
            self._begin_recovery(stream)
        elif is_full:
            self._miss(stream)
        elif stream.timer is None:
            self._await_missing(stream)

    # ---- holes

    def _await_missing(self, stream: _Stream) -> None:
        if self._sequence.hold:
            stream.timer = self._loop.call_later(self._sequence.hold, self._miss_late, stream, False)
        else:
            self._miss(stream)

    def _miss_late(self, stream: _Stream, looked: bool) -> None:
        """The time of a hole is over. But the event loop or the program may have been busy meanwhile, and the missing
        message may have arrived: look again after the loop has read, and when the program has taken all messages."""
        is_behind = self._is_behind()
        if self._life.is_over or (looked and not is_behind):
            self._miss(stream)
            self._announce()
        else:
            delay = self._sequence.hold / (1 if is_behind else 8)
            stream.timer = self._loop.call_later(delay, self._miss_late, stream, not is_behind)

    def _is_behind(self) -> bool:
        """True if messages may have arrived that were not taken."""
        return False

    def _miss(self, stream: _Stream) -> None:
        """The hole before the held messages is a gap."""
        self._cancel_timer(stream)
        first = stream.held[0][0]
        self._report(stream, stream.expected, first)
        if self._sequence.recover is not None:
            self._begin_recovery(stream)
            return
        stream.expected = first
        self._release(stream)
        if stream.held:
            self._await_missing(stream)

    def _report(self, stream: _Stream, expected: int | None, received: int) -> None:
        self.gaps += 1
        if self._sequence.on_gap is not None:
            self._out.append((self._sequence.on_gap, stream.name, (expected, received)))

    def _end_hole(self, stream: _Stream) -> None:
        """The missing messages will not come any more: deliver the held ones, but not those of a stream that is being
        recovered, because they are of no use without a snapshot."""
        if stream.task is not None or stream.expected is None:
            self.dropped += len(stream.held)
            self._forget(stream)
        while stream.held:
            first = stream.held[0][0]
            self._report(stream, stream.expected, first)
            stream.expected = first
            self._release(stream)

    def _forget(self, stream: _Stream) -> None:
        stream.held.clear()
        stream.expected = None
        self._cancel_timer(stream)
        self._cancel_recovery(stream)
        self._waiting.discard(stream.name)

    def _cancel_timer(self, stream: _Stream) -> None:
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None

    # ---- recovery

    def _begin_recovery(self, stream: _Stream) -> None:
        self._waiting.add(stream.name)
        stream.task = self._loop.create_task(self._recover(stream))

    def _cancel_recovery(self, stream: _Stream) -> None:
        task, stream.task = stream.task, None
        if task is not None and task is not asyncio.current_task(self._loop):
            task.cancel()

    async def _recover(self, stream: _Stream) -> None:
        task = asyncio.current_task(self._loop)
        try:
            for delay in self._shared.settings.delays():
                if self._life.is_over or await self._try_to_recover(stream, task):
                    break
                await asyncio.sleep(delay)
        finally:
            if stream.task is task:
                stream.task = None  # the stream's next message begins another one, if there is still a hole

    async def _try_to_recover(self, stream: _Stream, task: asyncio.Task[None] | None) -> bool:
        recover, sent = self._sequence.recover, self._sent
        assert recover is not None
        if sent is not None:
            while wait := sent.wait(time.monotonic()):  # noqa: ASYNC110
                await asyncio.sleep(wait)
            sent.message(time.monotonic())
        try:
            found = await recover(stream.name, stream.expected, stream.held[0][0] if stream.held else None)
            recovered = _recovered(found)
        except Exception as exc:
            self._shared.callbacks.raised("recover", exc)
            return False
        if stream.task is not task:
            return True  # the stream went on without it
        is_whole = self._apply(stream, recovered)
        self._announce()
        return is_whole

    def _apply(self, stream: _Stream, recovered: list[tuple[int | None, int, Any]]) -> bool:
        """Deliver these before the held messages. Returns False if there is still a hole."""
        if not recovered and stream.held:
            stream.expected = stream.held[0][0]
        for first, last, message in recovered:
            if first is None and stream.held and last + 1 < stream.held[0][0]:
                return False  # the snapshot is too old
            if first is None or stream.expected is None or last >= stream.expected:
                self._out.append((None, stream.name, message))
                stream.expected = last + 1
        if stream.expected is not None:
            self._release(stream)
        return not stream.held


class Sequencer(_Ordering):
    """Puts the messages of a listener in order. :meth:`Supervisor.sequencer` makes it. Use it in the thread of the
    event loop."""

    def __init__(self, life: Lifecycle, shared: Shared, sequence: Sequence, deliver: _Callback) -> None:
        super().__init__(life, shared, sequence)
        if not callable(deliver):
            raise TypeError(f"deliver must be callable, not {type(deliver).__name__}")
        self._deliver = deliver
        self._transport: WSTransport | None = None
        self._connection = 0
        self._is_delivering = False

    def take(self, transport: WSTransport, message: Any) -> None:
        """Take a message as it was received. `deliver` is called, now or later, with its stream, and with the message
        or the result of the supervisor's `parse`."""
        if transport is not self._transport:
            self._transport = transport
            self._connection += 1
        self._take(message, self._connection, self._life.feed.gaps)
        self._announce()

    def finish(self) -> None:
        """No message will come any more: deliver those that wait for a missing one. Those of a stream that is being
        recovered are dropped."""
        self._finish()
        self._announce()

    def _announce(self) -> None:
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while (entry := self._pop()) is not None:
                self._shared.callbacks.call("deliver", None, self._deliver, *entry)
        finally:
            self._is_delivering = False


class Sequenced(_Ordering):
    """Iterates over pairs of stream and message, in order. :meth:`Supervisor.sequenced` makes it. Leave the iteration
    and go on with the same object: nothing is lost. Do not receive from the supervisor otherwise.

    It ends as the supervisor's own iteration does. Messages that wait for a missing one are delivered before; those of
    a stream that is being recovered are not.
    """

    def __init__(self, life: Lifecycle, shared: Shared, sequence: Sequence, feed: _Feed) -> None:
        super().__init__(life, shared, sequence)
        self._feed = feed
        self._end: BaseException | None = None
        # While a stream waits: receives the next message, whatever else makes messages ready.
        self._receiving: asyncio.Task[Any] | None = None
        self._news: asyncio.Future[None] | None = None

    def __aiter__(self) -> Sequenced:
        return self

    async def __anext__(self) -> tuple[Hashable, Any]:
        feed = self._feed
        while not self._out or (entry := self._pop()) is None:
            if self._end is not None:
                raise self._end
            try:
                if self._receiving is None and not self._waiting:
                    message = await feed.__anext__()
                elif not await self._wait():
                    continue
                else:
                    receiving, self._receiving = self._receiving, None
                    assert receiving is not None
                    message = receiving.result()
            except (StopAsyncIteration, Exception) as exc:
                if not self._life.is_over:
                    raise
                self._end = exc
                self._finish()
            else:
                self._take(message, feed.generation, feed.gaps)
        return entry

    async def _wait(self) -> bool:
        """Wait until a message was received, and return True; or until a held one is ready."""
        if self._receiving is None:
            self._receiving = self._loop.create_task(self._receive())
            self._receiving.add_done_callback(_look_at)
        self._news = self._loop.create_future()
        either: set[asyncio.Future[Any]] = {self._receiving, self._news}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._news = None
        return self._receiving.done()

    def _is_behind(self) -> bool:
        return self._news is None or self._receiving is None or self._receiving.done()

    async def _receive(self) -> Any:
        return await self._feed.__anext__()

    def _announce(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


def _look_at(task: asyncio.Task[Any]) -> None:
    """asyncio must not report an error that the program never asks for, because it has left the iteration."""
    if not task.cancelled():
        task.exception()


def _numbers(result: Any) -> tuple[Hashable, int | None, int] | None:
    """The checked result of `of`."""
    if result is None:
        return None
    stream, first, last = result
    hash(stream)
    if type(first) is not int or type(last) is not int or first > last:
        _check(first, last)
    return result  # type: ignore[no-any-return]


def _recovered(result: Any) -> list[tuple[int | None, int, Any]]:
    """The checked result of `recover`."""
    parts = [] if result is None else [result] if isinstance(result, tuple) else list(result)
    for first, last, _ in parts:
        _check(first, last)
    return parts


def _check(first: Any, last: Any) -> None:
    if not isinstance(last, int) or not isinstance(first, (int, type(None))):
        raise TypeError(f"the numbers of a message must be int, not {first!r} and {last!r}")
    if first is not None and first > last:
        raise ValueError(f"the first number of a message must not be above the last one: {first}, {last}")
