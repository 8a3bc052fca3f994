"""The loop of a supervisor: one connection after the other, or in place of the other."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import time
from collections import Counter, deque
from typing import Any

from wsfast._opening.reconnecting import least_delay, process_exception
from wsfast.exceptions import ConnectionClosed, WebSocketException
from wsfast.supervisor.backoff import Backoff
from wsfast.supervisor.errors import SupervisorTimeout
from wsfast.supervisor.leg import Leg
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.states import Announcer, State, StateChange
from wsfast.supervisor.targets import Decision

__all__ = ["Core"]

# Connections whose messages are still to be received, at most: a program that does not receive is not connected again
# and again. Each holds what an inbox holds.
_MOST_FEEDS = 3


class _NoTargetError(Exception):
    """The program's function has not said where to connect to; the cause is why."""


class Core:
    """One task does everything here, so there is never more than one attempt to connect at a time.

    None of the program's functions is called amid a change of this object: on_state and the log have turns of the event
    loop of their own, and whatever else is called is called where nothing is half done.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._backoff = Backoff(shared.delays, shared.min_lifetime, shared.max_attempts, shared.max_downtime)
        self.state = State.CONNECTING
        self.cause: BaseException | None = None
        self.next_attempt: float | None = None
        #: The open connection that messages are sent on.
        self.leg: Leg | None = None
        #: The connections to receive from, in their order.
        self.feeds: deque[Leg] = deque()
        #: Why there will be no other connection; None if the program has closed the supervisor.
        self.error: BaseException | None = None
        self.is_over = False
        #: All connections that are not gone.
        self.legs: set[Leg] = set()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._announcer: Announcer
        self._is_closing = False
        self._is_wanted = False  # a rollover
        # Servers that announce their end one soon after the other: how soon the announcements are heeded.
        self._successions = Backoff(shared.delays, shared.min_lifetime)
        # When announcements are heeded, and when it is tried again to roll over: by time.monotonic().
        self._heeds_at = self._retries_at = 0.0
        self._asked_until = 0.0  # likewise: by Retry-After, for an attempt to roll over
        self._asked: set[asyncio.Future[bool]] = set()  # for one: who wants to know what became of it
        # Done when it is over.
        self._over: asyncio.Future[None]
        # Counters.
        self.connects = self.rollovers = self.rollovers_failed = self.gaps = self.silences = 0
        self.failures: Counter[str] = Counter()
        self._downtime = 0.0
        self._down_since: float | None = None
        # Of connections that are gone.
        self.messages_sent = self.frames_received = self.bytes_received = self.dropped = 0

    # ---- begin and end

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._over = self._loop.create_future()
        self._announcer = Announcer(self._shared.on_state, self._shared.callbacks, self._shared.logger)
        self._shared.lost = self._lost
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._finished)

    @property
    def is_started(self) -> bool:
        return self._task is not None

    def check_thread(self) -> None:
        if self._task is not None and threading.get_ident() != self._thread:
            raise RuntimeError("a supervisor is used in the thread of its event loop")

    async def close(self) -> None:
        """End it, and wait for that."""
        if not self._stop() and asyncio.current_task() is not self._task:
            await self.wait_over()

    def abort(self) -> None:
        for leg in list(self.legs):
            leg.abort()
        self._stop()

    def _stop(self) -> bool:
        """Ask the task to end; True if it has."""
        if self._task is None:
            self.is_over = True
            self.state = State.CLOSED
        elif not self._over.done() and not self._is_closing:
            # Once: a second time would cut short the closing that the first began.
            self._is_closing = True
            self._task.cancel()
        return self.is_over

    @property
    def _is_cancelled(self) -> bool:
        """The task was cancelled. A function of the program's may have swallowed that, or have raised CancelledError on
        its own account."""
        if sys.version_info < (3, 11) or self._task is None:
            return self._is_closing
        return self._is_closing or self._task.cancelling() > 0

    async def wait_over(self) -> None:
        """Wait until it has ended."""
        await asyncio.wait([self._over])

    async def _run(self) -> None:
        try:
            await self._go_on()
        except asyncio.CancelledError as exc:
            # By close(), by whoever ends all tasks of the loop, or by a listener's method.
            if sys.version_info >= (3, 11) and not self._is_cancelled:
                raise RuntimeError("a function of the program's was cancelled") from exc
        finally:
            self.leg = None
            await self._close_all()

    async def _close_all(self) -> None:
        try:
            for leg in list(self.legs):
                leg.close()
            for leg in list(self.legs):
                await leg.wait_closed()
        except asyncio.CancelledError:  # it takes too long
            for leg in list(self.legs):
                leg.abort()

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self.error = task.exception()
        self.is_over = True
        self._down(time.monotonic())
        self._answer(False)
        urgent = list(self._shared.urgent)
        self._shared.urgent.clear()
        for message in urgent:
            message.sent(self.error or ConnectionClosed(None, None))
        self._over.set_result(None)
        self._set(State.CLOSED, self.error)
        self._shared.changed.tell()

    # ---- the loop

    async def _go_on(self) -> None:
        self._down_since = time.monotonic()
        self._backoff.begin(self._down_since)
        while True:
            leg: Leg | None = await self._connect()
            while leg is not None:
                self._take(leg)
                leg = await self._live(leg)

    async def _connect(self) -> Leg:
        """Try until a connection is open, or raise why not."""
        while True:
            while self._is_full():
                await self._shared.changed.wait()
            self._set(State.CONNECTING, self.cause)
            leg = Leg(self._shared)
            try:
                await self._open(leg)
            except Exception as exc:
                self._backoff.failed()
                error = _why(exc)
                self._shared.targets.failed(self._decide(error, _of_opening(exc)))
                await self._wait(error)
            else:
                return leg

    async def _open(self, leg: Leg) -> None:
        """Open a connection. What is raised is counted."""
        shared = self._shared
        try:
            url, options = await self._target()
            await leg.open(url, options)
        except (Exception, asyncio.CancelledError) as exc:
            error = self._not_cancelled(exc)
            self._count(_why(error))
            raise error from error.__cause__
        self.connects += 1
        leg.number = self.connects
        self.legs.add(leg)
        leg.ended.add_done_callback(lambda _: self._gone(leg))
        if self._is_cancelled:
            raise asyncio.CancelledError
        leg.outbox.pump()
        shared.changed.tell()

    async def _target(self) -> tuple[str, dict[str, Any]]:
        try:
            target = await self._shared.targets.target(self._shared.open_timeout)
        except (Exception, asyncio.CancelledError) as exc:
            raise _NoTargetError from self._not_cancelled(exc)
        if self._is_cancelled:
            raise asyncio.CancelledError
        return target

    def _not_cancelled(self, exc: BaseException) -> Exception:
        """What the program's functions have raised; raises CancelledError if the task was cancelled."""
        is_cancelled = self._is_cancelled
        if isinstance(exc, Exception) and not is_cancelled:
            return exc
        if is_cancelled or sys.version_info < (3, 11):  # it may have been cancelled
            raise asyncio.CancelledError
        error = RuntimeError("a function of the program's was cancelled")
        error.__cause__ = exc
        return error

    def _is_full(self) -> bool:
        """There are as many connections to receive from as there may be. Those that are gone and have nothing for the
        program do not count: it may only send."""
        if len(self.feeds) >= _MOST_FEEDS:
            self.feeds = deque(leg for leg in self.feeds if not leg.is_spent)
        return len(self.feeds) >= _MOST_FEEDS

    def _take(self, leg: Leg) -> None:
        """This connection is the current one from now on."""
        if self._down_since is not None and self.leg is None and self.connects > 1:
            self.gaps += 1
        if self._down_since is not None:
            self._downtime += time.monotonic() - self._down_since
            self._down_since = None
        self.leg = leg
        leg.gaps = self.gaps
        if leg.connection is not None:
            self.feeds.append(leg)
        leg.outbox.takes_urgent = True
        self._set(State.OPEN, None)
        if not leg.is_open:
            self._lost(leg)  # it has ended since it was opened
        leg.outbox.pump()
        self._shared.changed.tell()

    async def _live(self, leg: Leg) -> Leg | None:
        """Wait until the connection has ended (None), or another one is to take its place."""
        age = self._shared.rollover.age()
        due = math.inf if age is None else leg.opened_at + age
        while leg.is_open:
            left = (min(due, self._heeds_at) if leg.is_announced else due) - time.monotonic()
            if not self._is_wanted and left > 0:
                await self._sleep(None if left == math.inf else left)
                continue
            successor = await self._roll_over(leg)
            if successor is not None:
                return successor
            due = self._heeds_at = self._retries_at
        await self._reconnect(leg)
        return None

    def _lost(self, leg: Leg) -> None:
        """A connection has ended, or is of no use any more; called once, at once."""
        if leg.is_superseded:
            self._account(leg)
        if leg is not self.leg:
            return
        self.leg = None
        now = time.monotonic()
        self._down_since = now
        self._backoff.ended(leg.life, now)
        error = leg.error
        self._count(error)
        if self.state is State.ROLLING_OVER:
            self._set(State.CONNECTING, error)
        self._shared.changed.tell()

    def _account(self, leg: Leg) -> None:
        """A connection that was replaced has ended. If something may have been under way on it, there is a gap before
        the connections after it."""
        if leg.is_drained or self._is_cancelled:
            return
        self.gaps += 1
        for later in self.feeds:
            later.gaps += later.number > leg.number
        self._count(leg.error)
        self._announcer.log("a connection that was replaced has ended before its drain: %s", leg.error)

    async def _reconnect(self, leg: Leg) -> None:
        """Wait for the next attempt after the end of a connection."""
        self._is_wanted = False
        self._answer(False)
        error = leg.error
        decision = self._decide(error, _of_end(error))
        if leg.life >= self._shared.min_lifetime:
            self._shared.targets.lived()
        else:
            self._backoff.failed()
            self._shared.targets.failed(decision)
        await self._wait(error)

    async def _wait(self, error: BaseException) -> None:
        """Wait for the next attempt, or raise `error` if there is to be none."""
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
        """Wait until something changes, for so many seconds at most."""
        changed = self._shared.changed
        timer = None if timeout is None else self._loop.call_later(max(timeout, 0.0), changed.tell)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _gone(self, leg: Leg) -> None:
        self.legs.discard(leg)
        stats = leg.transport.stats
        self.messages_sent += leg.outbox.messages_sent
        self.frames_received += stats.frames_received
        self.bytes_received += stats.bytes_received
        self.dropped += leg.dropped

    # ---- rolling over

    def ask_to_roll_over(self) -> asyncio.Future[bool]:
        """What becomes of the next rollover; one is begun if none is under way."""
        asked: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.leg is None:
            asked.set_result(False)
        else:
            self._asked.add(asked)
            self._want_rollover()
        return asked

    def _want_rollover(self) -> None:
        if self.state is State.OPEN:
            self._is_wanted = True
            self._shared.changed.tell()

    async def _roll_over(self, old: Leg) -> Leg | None:
        """A connection that takes the place of this one, which is drained; None if there is none, and this one stays.

        If this one ends meanwhile, the new one takes its place as soon as it is open.
        """
        while self._is_full() and old.is_open:
            await self._shared.changed.wait()
        if not old.is_open:
            return None
        self._is_wanted = False
        self._set(State.ROLLING_OVER, None)
        new = Leg(self._shared, succeeds=True)
        try:
            await self._prepare(new, old)
            if not old.is_open:
                self._decide(old.error, _of_end(old.error))
        except Exception as exc:
            self.rollovers_failed += 1
            error = _why(exc)
            self._asked_until = time.monotonic() + least_delay(error)
            self._retries_at = max(time.monotonic() + self._shared.rollover.pause(), self._asked_until)
            self._announcer.log("rollover failed: %s: %s", type(error).__name__, error)
            if new.opened_at:
                new.abort()
            if old.is_open:
                self._set(State.OPEN, None)
            self._answer(False)
            return None
        if old.is_open:
            self.rollovers += 1
            self._heeds_at = self._next_heed(old.life)
            old.drain(self._shared.rollover.drain_timeout)
        self._answer(True)
        return new

    async def _prepare(self, new: Leg, old: Leg) -> None:
        """Open the new connection, and wait until it can take the place of the old one."""
        await self._open(new)
        timeout = self._shared.rollover.timeout
        until = self._loop.time() + timeout
        while new.is_open and old.is_open and not new.is_prepared:
            left = until - self._loop.time()
            if left <= 0:
                error = TimeoutError(f"no first message, or no acknowledgements, within {timeout:g} seconds")
                self._count(error)
                raise error
            await self._sleep(left)
        if not new.is_open:
            self._count(new.error)
            raise _EndedError from new.error

    def _next_heed(self, life: float) -> float:
        """When the new connection may be replaced because its server has announced its end, if the old one lived for so
        long: as soon as it would be connected to again, if it ended then."""
        now = time.monotonic()
        self._successions.ended(life, now)
        if life >= self._shared.min_lifetime:
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
        """What to do after an error; raises it if that is to give up."""
        decision = None
        if self._shared.classify is not None:
            decision = self._shared.callbacks.call("classify", None, self._shared.classify, error)
        if not isinstance(decision, Decision):
            decision = default
        if decision is Decision.GIVE_UP:
            raise error
        return decision

    def _count(self, error: BaseException) -> None:
        self.failures[type(error).__name__] += 1
        self.silences += isinstance(error, SupervisorTimeout)

    def _down(self, now: float) -> None:
        """Nothing will be open any more."""
        if self._down_since is not None:
            self._downtime += now - self._down_since
            self._down_since = None

    @property
    def downtime(self) -> float:
        since = self._down_since
        return self._downtime + (0.0 if since is None else time.monotonic() - since)

    def _set(self, state: State, cause: BaseException | None) -> None:
        previous, self.state, self.cause = self.state, state, cause
        number = None if self.leg is None else self.leg.number
        self._announcer.announce(StateChange(state, previous, cause, self.next_attempt), number)


class _EndedError(Exception):
    """The new connection has ended already; the cause is why."""


def _why(exc: BaseException) -> BaseException:
    """The error that is meant."""
    if isinstance(exc, (_NoTargetError, _EndedError)) and exc.__cause__ is not None:
        return exc.__cause__
    return exc


def _of_opening(exc: Exception) -> Decision:
    """What is done after an attempt that has failed, unless the program says otherwise."""
    if isinstance(exc, _NoTargetError):
        wrong = isinstance(exc.__cause__, (TypeError, ValueError))
        return Decision.GIVE_UP if wrong else Decision.NEXT_URL
    return Decision.NEXT_URL if process_exception(exc) is None else Decision.GIVE_UP


def _of_end(error: BaseException) -> Decision:
    """What is done after the end of a connection: an exception of the program's own is a bug, and would come again."""
    if isinstance(error, (WebSocketException, OSError, EOFError, asyncio.TimeoutError, TimeoutError)):
        return Decision.NEXT_URL
    return Decision.GIVE_UP
