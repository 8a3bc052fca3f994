"""The life of a supervisor: one task connects, waits, and replaces connections.

| state        | event                                             | next                                       |
|--------------|---------------------------------------------------|--------------------------------------------|
| CONNECTING   | a connection is open                              | OPEN                                       |
|              | the attempt failed                                | WAITING, or CLOSED if it is time           |
| WAITING      | the delay is over                                 | CONNECTING                                 |
| OPEN         | the connection ended: a gap                       | WAITING, or CLOSED                         |
|              | a rollover is due                                 | ROLLING_OVER                               |
| ROLLING_OVER | the new connection is in, and takes over          | OPEN; the old one stays until merged       |
|              | the new one failed                                | OPEN with the old one                      |
|              | the old one ended: a gap                          | CONNECTING until the new one takes over    |
|              | without overlap: the old one is closed, a gap     | CONNECTING                                 |
| OPEN, two    | the old one ended: a gap unless there is a proof  | OPEN                                       |
| lines merged | the new one ended before the old one was closed   | OPEN with the old one                      |
| any          | close(), abort()                                  | CLOSED                                     |

merger.py says how the messages of two lines are merged meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections import Counter
from typing import Any

from wsfast._opening.reconnecting import least_delay, process_exception
from wsfast.exceptions import ConnectionClosed, WebSocketException
from wsfast.supervisor.backoff import Backoff
from wsfast.supervisor.errors import SubscriptionRejected, SupervisorTimeout
from wsfast.supervisor.feed import Feed
from wsfast.supervisor.line import Line, open_line
from wsfast.supervisor.merger import Merger, Phase
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.states import Announcer, State, StateChange
from wsfast.supervisor.targets import Decision

__all__ = ["Lifecycle"]

# If as many connections hold messages as may do so, and the program has received nothing for so many seconds, the
# messages of the oldest one are dropped: a program that only sends must not be left without a connection.
_PATIENCE = 5.0


class _NoTargetError(Exception):
    """The program's function has returned no target. ``__cause__`` is the reason."""


class Lifecycle:
    """One task does everything here, so there is never more than one attempt to connect at a time.

    This object never calls a function of the program while its own state is half changed. on_state and the logger run
    in callbacks of the event loop. The other functions are called where the state is consistent.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._backoff = Backoff(
            shared.settings.delays,
            shared.settings.min_lifetime,
            shared.settings.max_attempts,
            shared.settings.max_downtime,
        )
        self.state = State.CONNECTING
        self.cause: BaseException | None = None
        self.next_attempt: float | None = None
        #: The open connection that messages are sent on.
        self.line: Line | None = None
        self.feed = Feed()
        #: The reason why the supervisor gave up; None if the program has closed it.
        self.error: BaseException | None = None
        self.is_over = False
        #: All connections whose transport has not disconnected yet.
        self.lines: set[Line] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._announcer: Announcer
        self._is_closing = False
        self._is_wanted = False  # the program has asked for a rollover
        # Limits how soon announcements are heeded if servers announce their end shortly after one another.
        self._successions = Backoff(shared.settings.delays, shared.settings.min_lifetime)
        # When announcements are heeded, and when the next rollover may be tried, by time.monotonic().
        self._heeds_at = self._retries_at = 0.0
        self._asked_until = 0.0  # no attempt before: the Retry-After of a failed rollover
        self._asked: set[asyncio.Future[bool]] = set()  # the futures of the callers of roll_over()
        # Done when the supervisor is over.
        self._over: asyncio.Future[None]
        # Counters.
        self.connects = self.rollovers = self.rollovers_failed = self.silences = 0
        self.failures: Counter[str] = Counter()
        self._downtime = 0.0
        self._down_since: float | None = None
        # The sums of the connections that have disconnected.
        self.messages_sent = self.frames_received = self.bytes_received = self.dropped = 0

    # ---- begin and end

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._over = self._loop.create_future()
        self._announcer = Announcer(
            self._shared.settings.on_state, self._shared.callbacks, self._shared.logger
        )
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._finished)

    @property
    def is_started(self) -> bool:
        return self._task is not None

    def check_thread(self) -> None:
        if self._task is not None and threading.get_ident() != self._thread:
            raise RuntimeError("a supervisor must be used in the thread of its event loop")

    async def close(self) -> None:
        """End the supervisor, and wait until it is over."""
        if not self._stop() and asyncio.current_task() is not self._task:
            await self.wait_over()

    def abort(self) -> None:
        for line in list(self.lines):
            line.abort()
        self._stop()

    def _stop(self) -> bool:
        """Ask the task to end. True if it has ended already."""
        if self._task is None:
            self.is_over = True
            self.state = State.CLOSED
        elif not self._over.done() and not self._is_closing:
            # Cancel only once: a second cancellation would cut short the closing that the first one began.
            self._is_closing = True
            self._task.cancel()
        return self.is_over

    @property
    def _is_cancelled(self) -> bool:
        """True if the task itself was cancelled. A caught CancelledError does not show that: a function of the program
        may have swallowed the cancellation, or may have raised CancelledError by itself."""
        if sys.version_info < (3, 11) or self._task is None:
            return self._is_closing
        return self._is_closing or self._task.cancelling() > 0

    async def wait_over(self) -> None:
        """Wait until the supervisor is over."""
        await asyncio.wait([self._over])

    async def _run(self) -> None:
        try:
            await self._go_on()
        except asyncio.CancelledError as exc:
            # The cause is close(), a program that cancels all tasks of the loop, or a method of a listener.
            if sys.version_info >= (3, 11) and not self._is_cancelled:
                raise RuntimeError("a function of the program was cancelled") from exc
        finally:
            self.line = None
            await self._close_all()

    async def _close_all(self) -> None:
        try:
            for line in list(self.lines):
                line.close()
            if self.lines:
                await asyncio.wait([line.ended for line in self.lines])
        except asyncio.CancelledError:  # the task was cancelled again: do not wait any longer
            for line in list(self.lines):
                line.abort()

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.error = task.exception()
        self.is_over = True
        self._down(time.monotonic())
        self._answer(False)
        self._shared.messages.fail(self.error or ConnectionClosed(None, None))
        self._over.set_result(None)
        self._set(State.CLOSED, self.error)
        self._shared.changed.notify()

    # ---- the loop

    async def _go_on(self) -> None:
        self._down_since = time.monotonic()
        self._backoff.begin(self._down_since)
        while True:
            line: Line | None = await self._connect()
            while line is not None:
                self._take(line)
                line = await self._live(line)

    async def _connect(self) -> Line:
        """Try until a connection is open. Raises the error of the last attempt if the supervisor gives up."""
        while True:
            await self._make_room(None)
            self._set(State.CONNECTING, self.cause)
            try:
                return await self._open(None)
            except Exception as exc:
                self._answer(False)
                self._backoff.failed()
                error = _why(exc)
                self._shared.targets.failed(self._decide(error, _of_opening(exc)))
                await self._wait(error)

    async def _open(self, merger: Merger | None) -> Line:
        """Open a connection. An exception is counted before it is raised."""
        shared = self._shared
        try:
            target = await self._target()
            if shared.settings.connects is not None:
                await shared.settings.connects.wait()
            line = await open_line(shared, self.connects + 1, target, merger, self._lost, self.lines)
        except (Exception, asyncio.CancelledError) as exc:
            error = self._not_cancelled(exc)
            self._count(_why(error))
            raise error from error.__cause__
        self.connects += 1
        line.ended.add_done_callback(lambda _: self._gone(line))
        if self._is_cancelled:
            raise asyncio.CancelledError
        line.outbox.pump()
        shared.changed.notify()
        return line

    async def _target(self) -> tuple[str, dict[str, Any]]:
        try:
            target = await self._shared.targets.target(self._shared.open_timeout)
        except (Exception, asyncio.CancelledError) as exc:
            raise _NoTargetError from self._not_cancelled(exc)
        if self._is_cancelled:
            raise asyncio.CancelledError
        return target

    def _not_cancelled(self, exc: BaseException) -> Exception:
        """The exception that a function of the program raised. Raises CancelledError if the task was cancelled."""
        is_cancelled = self._is_cancelled
        if isinstance(exc, Exception) and not is_cancelled:
            return exc
        if is_cancelled or sys.version_info < (3, 11):  # before 3.11 this is unknown
            raise asyncio.CancelledError
        error = RuntimeError("a function of the program was cancelled")
        error.__cause__ = exc
        return error

    async def _make_room(self, line: Line | None) -> None:
        """Wait until another connection may be opened, or the line has ended."""
        feed = self.feed
        while feed.is_full and (line is None or line.is_open):
            head, waiting = feed.lines[0], feed.lines[0].waiting
            until = time.monotonic() + (0.0 if feed.is_unread else _PATIENCE)
            while feed.is_full and feed.lines[0] is head and head.waiting == waiting:
                left = until - time.monotonic()
                if left > 0 or not head.ended.done():
                    await self._sleep(max(left, 0.1))
                    continue
                text = "the program receives nothing: %d messages were dropped, so that the supervisor can connect"
                self._announcer.log(text, feed.discard_oldest(), level="warning")

    def _take(self, line: Line) -> None:
        """Make this connection the current one."""
        if self._down_since is not None:
            self._downtime += time.monotonic() - self._down_since
            self._down_since = None
        self.line = line
        self.feed.append(line)
        for one in self.lines:
            one.outbox.is_current = one is line
        if self.feed.merger is not None and self.feed.merger.new is line:
            self.feed.merger.take_over()
        self._set(State.OPEN, None)
        self._answer(True)
        if not line.is_open:
            self._lost(line)  # it has ended since it was opened
        line.outbox.pump()
        self._shared.changed.notify()

    async def _live(self, line: Line) -> Line | None:
        """Wait until the connection has ended or was replaced. Returns the next connection, or None."""
        rollover = self._shared.rollover
        age = rollover.age()
        due = max(math.inf if age is None else line.opened_at + age, self._retries_at)
        while line.is_open:
            if line.unwanted is not None and not self._is_wanted:
                line.fail(line.unwanted)  # it could not be replaced
                break
            left = (min(due, self._heeds_at) if line.is_announced else due) - time.monotonic()
            if not self._is_wanted and left > 0:
                await self._sleep(None if left == math.inf else left)
                continue
            if not rollover.overlap:
                await self._close_first(line)
                return None
            successor = await self._roll_over(line)
            if successor is not None:
                return successor
            due = max(due, self._retries_at)
            self._heeds_at = max(self._heeds_at, self._retries_at)
        if self.line is not None:
            return self.line  # this one was to take the place of that one, and has ended before
        await self._reconnect(line)
        return None

    def _lost(self, line: Line) -> None:
        """A connection has ended or failed. This is called immediately, before the main task notices."""
        merger = self.feed.merger
        if merger is not None and line is merger.old and merger.phase in (Phase.HOLDING, Phase.CLOSING):
            self._lost_old(merger)
        elif merger is not None and line is merger.new and merger.has_taken_over:
            if merger.phase is Phase.HOLDING and merger.old.is_open:
                self._fall_back(merger)
            elif merger.phase is Phase.CLOSING:
                merger.old.abort()  # all that it could still bring is here
        if line is self.line:
            self._lost_current(line)

    def _lost_current(self, line: Line) -> None:
        self.line = None
        now = time.monotonic()
        self._down_since = now
        self._backoff.ended(line.life, now)
        merger = self.feed.merger
        if (merger is None or line is not merger.old) and not self._is_cancelled:
            self.feed.gaps += 1
        error = line.error
        self._count(error)
        if self.state is State.ROLLING_OVER:
            self._set(State.CONNECTING, error)
        self._shared.changed.notify()

    def _lost_old(self, merger: Merger) -> None:
        """The old one of two merged lines has ended. Count a gap before the new one's messages unless there is a proof
        that none is missing."""
        was_closing = merger.phase is Phase.CLOSING
        # Held messages remain for the program when it closes the supervisor.
        why = self.feed.lost_old(merger) if merger.held or not self._is_cancelled else merger.end_old()
        if why is not None and merger.has_taken_over and not self._is_cancelled:
            text = "messages may be missing after a connection was replaced: %s"
            self._announcer.log(text, why, level="warning")
        if not was_closing and merger.old is not self.line:
            self._count(merger.old.error)
        self._loop.call_soon(self._release, merger)  # not here: it runs the program's functions

    def _release(self, merger: Merger) -> None:
        self.feed.release(merger)
        self._shared.changed.notify()

    def _fall_back(self, merger: Merger) -> None:
        """The new one of two merged lines has ended, and the old one is still there."""
        new, old = merger.new, merger.old
        assert new is not None
        self.feed.withdraw(merger)
        self.rollovers -= 1
        self._rollover_failed(new.error)
        self._count(new.error)
        self._is_wanted = False  # the one asked for was of the new one
        self._answer(False)
        self.line = old
        old.outbox.is_current = True
        old.outbox.pump()

    async def _reconnect(self, line: Line) -> None:
        """Wait for the next attempt after the end of a connection."""
        self._is_wanted = False
        self._answer(False)
        error = line.error
        default = Decision.NEXT_URL if error is line.unwanted else _of_end(error)
        decision = self._decide(error, default)
        if line.life >= self._shared.settings.min_lifetime:
            self._shared.targets.lived()
        else:
            self._backoff.failed()
            self._shared.targets.failed(decision)
        await self._wait(error)

    async def _wait(self, error: BaseException) -> None:
        """Wait until the next attempt is due. Raises `error` if it is time to give up."""
        delay = self._backoff.delay(error, time.monotonic())
        if delay is None:
            raise error
        delay = max(delay, self._asked_until - time.monotonic())
        self.next_attempt = self._loop.time() + delay
        self._set(State.WAITING, error)
        try:
            await asyncio.sleep(delay)
        finally:
            self.next_attempt = None

    async def _sleep(self, timeout: float | None) -> None:
        """Wait until something changes, for at most `timeout` seconds."""
        changed = self._shared.changed
        timer = None if timeout is None else self._loop.call_later(max(timeout, 0.0), changed.notify)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _gone(self, line: Line) -> None:
        self.lines.discard(line)
        stats = line.transport.stats
        self.messages_sent += line.outbox.messages_sent
        self.frames_received += stats.frames_received
        self.bytes_received += stats.bytes_received
        self.dropped += line.dropped

    # ---- rolling over

    def ask_to_roll_over(self) -> asyncio.Future[bool]:
        """The future result of the next rollover. Begins a rollover if none is under way."""
        asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.line is None:
            asked.set_result(False)
        else:
            self._asked.add(asked)
            self._want_rollover()
        return asked

    def _want_rollover(self) -> None:
        if self.state is State.OPEN:
            self._is_wanted = True
            self._shared.changed.notify()

    def drop(self, reason: Exception) -> None:
        """Replace the connection whose messages the program gets. If that fails, end it because of `reason`."""
        merger = self.feed.merger
        if merger is not None and merger.has_taken_over and merger.phase in (Phase.HOLDING, Phase.CLOSING):
            merger.old.unwanted = reason  # it is being replaced; the new one may fail yet
        elif self.line is not None:
            self.line.unwanted = reason
            if self._shared.rollover.overlap:
                self._want_rollover()
            else:
                self.line.fail(reason)

    async def _roll_over(self, old: Line) -> Line | None:
        """Open a connection that takes the place of the old one. Returns the new connection, or None if the rollover
        failed or the old connection ended first.

        If the old connection ends while the new one is being prepared, the new one replaces it as soon as it is open.
        """
        while self.feed.merger is not None and old.is_open:  # it has taken the place of another one itself
            await self._shared.changed.wait()
        await self._make_room(old)
        if not old.is_open:
            return None
        self._is_wanted = False
        self._set(State.ROLLING_OVER, None)
        self.feed.merger = merger = Merger(old, self._shared)
        try:
            new = await self._prepare(merger)
            if not old.is_open:
                self._decide(old.error, _of_end(old.error))
        except Exception as exc:
            self._abandon(merger)
            self._rollover_failed(_why(exc))
            if old.is_open:
                self._set(State.OPEN, None)
            self._answer(False)
            return None
        except asyncio.CancelledError:
            self._abandon(merger)
            raise
        if old.is_open:
            self.rollovers += 1
            self._heeds_at = self._next_heed(old.life)
        return new

    def _abandon(self, merger: Merger) -> None:
        """The new line will not take the place of the old one."""
        self.feed.withdraw(merger)
        if merger.new is not None:
            merger.new.abort()

    def _rollover_failed(self, error: BaseException) -> None:
        self.rollovers_failed += 1
        self._asked_until = time.monotonic() + least_delay(error)
        self._retries_at = max(time.monotonic() + self._shared.rollover.pause(), self._asked_until)
        self._announcer.log("rollover failed: %s: %s", type(error).__name__, error)

    async def _prepare(self, merger: Merger) -> Line:
        """Open the new connection, and wait until it can take the place of the old one."""
        new, old = await self._open(merger), merger.old
        timeout = self._shared.rollover.timeout
        until = self._loop.time() + timeout
        while new.is_open and old.is_open and not new.is_in:
            left = until - self._loop.time()
            if left <= 0:
                error = TimeoutError(f"no acknowledgements, or no first message, within {timeout:g} seconds")
                self._count(error)
                raise error
            await self._sleep(left)
        if not new.is_open:
            self._count(new.error)
            raise _EndedError from new.error
        return new

    async def _close_first(self, line: Line) -> None:
        """Close the connection before the next one is opened, for servers that allow one only."""
        self._is_wanted = False
        self._set(State.ROLLING_OVER, None)
        self.rollovers += 1
        self.feed.gaps += 1
        self._heeds_at = self._next_heed(line.life)
        self._down_since = time.monotonic()
        self.line = None
        line.close(timeout=self._shared.rollover.drain_timeout)
        await asyncio.wait([line.ended])

    def _next_heed(self, life: float) -> float:
        """The time from which an announcement of the server may replace the new connection, by time.monotonic().

        `life` is the age of the old connection. If it lived for `min_lifetime`, announcements are heeded at once.
        Otherwise they are heeded after one of the `delays`, as a reconnect would wait.
        """
        now = time.monotonic()
        self._successions.ended(life, now)
        if life >= self._shared.settings.min_lifetime:
            return now
        delay = self._successions.delay(None, now)
        return math.inf if delay is None else now + delay

    def _answer(self, taken: bool) -> None:
        asked, self._asked = self._asked, set()
        for future in asked:
            if not future.done():
                future.set_result(taken)

    # ---- verdicts, counters, states

    def _decide(self, error: BaseException, default: Decision) -> Decision:
        """Decide what to do after an error. Raises the error if the decision is to give up."""
        decision = None
        if self._shared.settings.classify is not None:
            decision = self._shared.callbacks.call("classify", None, self._shared.settings.classify, error)
        if not isinstance(decision, Decision):
            decision = default
        if decision is Decision.GIVE_UP:
            raise error
        return decision

    def _count(self, error: BaseException) -> None:
        self.failures[type(error).__name__] += 1
        self.silences += isinstance(error, SupervisorTimeout)

    def _down(self, now: float) -> None:
        """No connection will be open any more: add the last downtime."""
        if self._down_since is not None:
            self._downtime += now - self._down_since
            self._down_since = None

    @property
    def downtime(self) -> float:
        since = self._down_since
        return self._downtime + (0.0 if since is None else time.monotonic() - since)

    def _set(self, state: State, cause: BaseException | None) -> None:
        previous, self.state, self.cause = self.state, state, cause
        number = None if self.line is None else self.line.number
        self._announcer.announce(StateChange(state, previous, cause, self.next_attempt), number)


class _EndedError(Exception):
    """The new connection has ended during a rollover. ``__cause__`` is the reason."""


def _why(exc: BaseException) -> BaseException:
    """The reason inside the private exceptions of this module; any other exception itself."""
    if isinstance(exc, (_NoTargetError, _EndedError)) and exc.__cause__ is not None:
        return exc.__cause__
    return exc


def _of_opening(exc: Exception) -> Decision:
    """The decision after a failed attempt, unless the program decides otherwise."""
    if isinstance(exc, _NoTargetError):
        wrong = isinstance(exc.__cause__, (TypeError, ValueError))
        return Decision.GIVE_UP if wrong else Decision.NEXT_URL
    return Decision.NEXT_URL if process_exception(exc) is None else Decision.GIVE_UP


def _of_end(error: BaseException) -> Decision:
    """The decision after the end of a connection. An exception of the program is a bug, which would occur again."""
    if isinstance(error, SubscriptionRejected):
        return Decision.GIVE_UP  # such as wrong credentials
    if isinstance(error, (WebSocketException, OSError, EOFError, asyncio.TimeoutError, TimeoutError)):
        return Decision.NEXT_URL
    return Decision.GIVE_UP
