"""The connections of a load, in a worker process: they send, and note when the answers come.

An answer belongs to the oldest unanswered message of its connection, because servers that echo or acknowledge answer in
order.
"""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Any

from wsfast import Tuning, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect
from wsfast.asyncio.client import process_exception
from wsfast.cli.load.plan import Plan, Schedule
from wsfast.cli.outcome import why
from wsfast.exceptions import ConnectionClosed, InvalidStatus
from wsfast.supervisor import full_jitter

__all__ = ["Loader"]

# The loop's timers are late by up to a millisecond, so the last stretch before a message is due is spent in the loop
# without sleeping.
_AWAKE = 2_000_000  # ns

# At most so many overdue messages are sent before answers are read again.
_BATCH = 64

# An open loop does not wait for a server that reads too slowly. This many bytes of a connection may wait to be sent.
_BACKLOG = 16 * 2**20

# At most so many connections are being opened at a time.
_OPENING = 64

# A connection that lived for so long is opened again at once. Otherwise the delays grow.
_MINIMUM_LIFE = 5_000_000_000  # ns

_CONTROL = WSMsgType.CLOSE  # the first type of control frames; the types of messages are below
_FOREVER = 2**62


class Pace:
    """The delays before a lost connection is opened again: random, and longer after each failure."""

    def __init__(self) -> None:
        self._delays = full_jitter()

    def after_life(self, nanoseconds: int) -> float:
        """The delay after a connection that lived for so long, in seconds."""
        if nanoseconds < _MINIMUM_LIFE:
            return next(self._delays)
        self._delays = full_jitter()
        return 0.0

    def after_failure(self, error: Exception) -> float | None:
        """The delay after an attempt that failed; None if no later one would succeed."""
        if process_exception(error) is not None:
            return None
        least = error.retry_after if isinstance(error, InvalidStatus) else None
        return max(next(self._delays), least or 0.0)


class Connection(WSListener):
    """One connection. It keeps the times at which its unanswered messages were due, the oldest first.

    :param pace: the delays before the connections that replace one another
    """

    transport: WSTransport

    def __init__(self, loader: Loader, pace: Pace) -> None:
        self.loader = loader
        self.pace = pace
        self.opened_at = monotonic_ns()  # and again when it is open
        self.waiting: deque[int] = deque()
        self.expected: deque[bytes] | None = deque() if loader.verify else None
        # How many bytes of the arriving answer were compared with its message. The answer may come in fragments.
        self.compared = 0
        self.same = True
        self.full = False

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.opened_at = monotonic_ns()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type >= _CONTROL:
            return
        if self.expected:
            self.compare(frame.get_payload_as_bytes())
        if frame.fin:
            self.answered()

    def answered(self) -> None:
        """A whole answer has arrived, and was compared with its message."""
        loader = self.loader
        if not self.waiting:
            loader.errors["message without a request"] += 1
            return
        now = monotonic_ns()
        due = self.waiting.popleft()
        loader.received += 1
        if loader.begins <= now < loader.ends:
            loader.counted += 1
        if due >= loader.begins:
            loader.latencies.append(now - due)
            loader.owed -= 1
        if self.expected is not None:
            if not self.same or self.compared != len(self.expected.popleft()):
                loader.errors["answer differs from its message"] += 1
            self.compared, self.same = 0, True
        if loader.closed_loop and loader.may_send(now):
            self.send(now)
        if not loader.sending or not loader.owed:
            loader.look_for_the_end()

    def begin(self) -> None:
        """Send the first messages of a closed loop."""
        for _ in range(self.loader.window if self.loader.closed_loop else 0):
            if self.loader.may_send(now := monotonic_ns()):
                self.send(now)

    def compare(self, part: bytes) -> None:
        """Compare a part of an answer with its part of the oldest message."""
        assert self.expected is not None
        self.same = self.same and self.expected[0].startswith(part, self.compared)
        self.compared += len(part)

    def send(self, due: int) -> None:
        """Send the next message of the workload."""
        loader = self.loader
        message = loader.next_message()
        if self.full:
            loader.errors["not sent: the server does not read"] += 1
            return
        self.waiting.append(due)
        if self.expected is not None:
            self.expected.append(message)
        loader.sent += 1
        try:
            self.transport.send(loader.msg_type, message)
        except ConnectionClosed:  # the server has sent CLOSE, but the connection has not ended yet
            if self.waiting:
                self.not_sent(due)

    def not_sent(self, due: int) -> None:
        """Undo the newest message, which was not sent."""
        loader = self.loader
        self.waiting.pop()
        if self.expected is not None:
            self.expected.pop()
        loader.sent -= 1
        loader.owed -= due >= loader.begins
        loader.errors["not sent: the connection was closing"] += 1

    def pause_writing(self) -> None:
        self.full = not self.loader.closed_loop

    def resume_writing(self) -> None:
        self.full = False

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.loader.lost(self, transport)


class CompressingConnection(Connection):
    """A connection that offers permessage-deflate."""

    def on_ws_message(self, transport: WSTransport, msg_type: WSMsgType, payload: Any) -> None:
        if self.expected:
            self.compare(payload.encode() if isinstance(payload, str) else bytes(payload))
        self.answered()


class Loader:
    """A run: opens connections, sends for a time, and waits for the last answers.

    :param number: which of the worker processes this is, from 0
    """

    def __init__(self, plan: Plan, number: int) -> None:
        self._plan = plan
        self._number = number
        self._messages: Sequence[bytes] = plan.workload.messages()
        self._index = 0
        self._connections: list[Connection] = []
        self._reopening: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(_OPENING)
        self._turn = 0
        self._ended = asyncio.Event()
        self.msg_type = plan.workload.msg_type
        self.verify = plan.verify
        self.closed_loop = plan.rate is None
        self.window = plan.window
        # The run measures between these two times, in nanoseconds of monotonic_ns().
        self.begins = self.ends = _FOREVER
        self.sending = self._stopped = False
        self.sent = self.received = self._given_up = 0
        self.reconnections = 0
        self.counted = 0  # answers that arrived in the measured time
        # In a closed loop with a number of messages: how many are still to be sent, and to be answered.
        self._budget = self.owed = _FOREVER
        if self.closed_loop and plan.messages is not None:
            self._budget = self.owed = plan.share(plan.messages, number)
        self.errors: Counter[str] = Counter()
        # The spans since the last report, in nanoseconds: from due to answered, and from due to sent.
        self.latencies, self.lags = array("q"), array("q")
        self._bytes_sent = self._bytes_received = 0  # by connections that are closed

    # opening

    async def open(self) -> dict[str, Any]:
        """Open the connections. Returns the report about them."""
        began = monotonic_ns()
        count = self._plan.share(self._plan.connections, self._number)
        await asyncio.gather(*(self._open_one(Pace()) for _ in range(count)))
        tls = self._connections[0].transport.tls if self._connections else None
        return {
            "connections": len(self._connections),
            "seconds": (monotonic_ns() - began) / 1e9,
            "tls": None if tls is None else f"{tls.version}, {tls.layer}",
        }

    async def _open_one(self, pace: Pace) -> Exception | None:
        """Open a connection. Returns the error if that failed; for one that has ended already, lost() was called."""
        compression = self._plan.compression

        def make() -> Connection:
            return (CompressingConnection if compression else Connection)(self, pace)

        target = self._plan.target
        options = {**target.options(), "websocket_handshake_timeout": target.open_timeout}
        if compression:
            options["compression"] = "deflate"
        async with self._gate:
            try:
                transport, connection = await ws_connect(
                    make, target.url, tuning=Tuning(write_policy="gather"), close_timeout=2, **options
                )
            except Exception as exc:
                self.errors[f"connecting: {why(exc)[:200]}"] += 1
                return exc
        assert isinstance(connection, Connection)
        connection.transport = transport
        if not transport.is_disconnected:
            transport.set_write_buffer_limits(high=_BACKLOG)
            self._connections.append(connection)
            if self.sending:
                connection.begin()
        return None

    @property
    def _gone(self) -> bool:
        """True if there is no connection, and none is being reopened."""
        return not self._connections and not self._reopening

    def _reopen(self, lost: Connection) -> None:
        """Replace a connection that was lost, after the delay of its pace."""

        async def reopen() -> None:
            delay: float | None = lost.pace.after_life(monotonic_ns() - lost.opened_at)
            while delay is not None:
                await asyncio.sleep(delay)
                if not self.sending:
                    return
                error = await self._open_one(lost.pace)
                if error is None:
                    self.reconnections += 1
                    return
                delay = lost.pace.after_failure(error)

        def ended(task: asyncio.Task[None]) -> None:
            self._reopening.discard(task)
            if not task.cancelled():
                task.result()
                self.look_for_the_end()

        task = asyncio.ensure_future(reopen())
        self._reopening.add(task)
        task.add_done_callback(ended)

    def lost(self, connection: Connection, transport: WSTransport) -> None:
        """A connection has ended. Its unanswered messages are errors, unless the run is over."""
        if connection in self._connections:
            self._connections.remove(connection)
        if self._ended.is_set():
            return
        self._add_bytes(transport)
        info = transport.close_info
        assert info is not None
        cause = "" if info.cause is None else f": {why(info.cause)}"
        reason = f" {info.reason!r}" if info.reason else ""
        self.errors[f"connection closed with {int(info.code)}{reason}{cause}"[:200]] += 1
        if connection.waiting:
            self.errors["unanswered: the connection was closed"] += len(connection.waiting)
            self.owed -= sum(due >= self.begins for due in connection.waiting)
            self._given_up += len(connection.waiting)
            connection.waiting.clear()
        if self._plan.reconnect and self.sending and self.owed:
            self._reopen(connection)
        if self.begins != _FOREVER:
            self.look_for_the_end()

    # sending

    def next_message(self) -> bytes:
        """The next message of the workload."""
        message = self._messages[self._index]
        self._index = (self._index + 1) % len(self._messages)
        return message

    def may_send(self, now: int) -> bool:
        """May a closed loop send another message? If their number is limited, this counts it."""
        if not self.sending or now >= self.ends:
            return False
        if now >= self.begins:
            if not self._budget:
                return False
            self._budget -= 1
        return True

    async def run(self, start: int) -> None:
        """Send until the time is over, or all messages are sent, and wait for the answers.

        :param start: when sending starts, in nanoseconds of ``monotonic_ns()``; all processes have the same
        """
        loop = asyncio.get_running_loop()
        while (left := start - monotonic_ns()) > 0:  # noqa: ASYNC110 - timers may be early
            await asyncio.sleep(left / 1e9)
        if self._stopped:
            return
        self.begins = start + int(self._plan.warmup * 1e9)
        if self._plan.duration is not None:
            self.ends = self.begins + int(self._plan.duration * 1e9)
        elif not self.closed_loop:
            assert self._plan.messages is not None
            assert self._plan.rate is not None
            self.ends = self.begins + int(self._plan.messages / self._plan.rate * 1e9)
        self.sending = True
        if not self._connections:
            self.look_for_the_end()
        elif self.closed_loop:
            for connection in list(self._connections):
                connection.begin()
        else:
            assert self._plan.rate is not None
            schedule = Schedule(start, self._plan.rate, self._number, self._plan.processes)
            loop.call_soon(self._send_due, schedule, loop)
            # The schedule ends the run, not the clock: a late message is still sent, and its delay counts.
            late = (self.ends - monotonic_ns()) / 1e9 + self._plan.drain
            loop.call_later(late, self._give_up, schedule)
        if self.closed_loop and self.ends != _FOREVER:
            loop.call_later((self.ends - monotonic_ns()) / 1e9, self._send_no_more)
        await self._ended.wait()
        unanswered = sum(len(connection.waiting) for connection in self._connections)
        if unanswered:
            self.errors[f"unanswered after {self._plan.drain:g} s"] += unanswered

    def _send_due(self, schedule: Schedule, loop: asyncio.AbstractEventLoop) -> None:
        """Send the messages that are due, and schedule the next call for the next one."""
        if not self.sending or self._gone:
            return
        for _ in range(_BATCH):
            now, due = monotonic_ns(), schedule.due()
            if due > now or due >= self.ends:
                break
            schedule.sent += 1
            if not self._connections:
                if due >= self.begins:
                    self.errors["not sent: there was no connection"] += 1
                continue
            self._turn = (self._turn + 1) % len(self._connections)
            if due >= self.begins:
                self.lags.append(now - due)
            self._connections[self._turn].send(due)
            if self._gone:
                return
        if due >= self.ends:
            self._send_no_more()
            return
        if due - now < _AWAKE and not self._plan.sleep:
            loop.call_soon(self._send_due, schedule, loop)
        else:
            margin = 0 if self._plan.sleep else _AWAKE / 2
            loop.call_later(max(0, due - now - margin) / 1e9, self._send_due, schedule, loop)

    # the end

    def stop(self) -> None:
        """End the run early. Only the answers until now are measured."""
        self._stopped = True
        if self.sending:
            self.ends = min(self.ends, monotonic_ns())
            self._send_no_more()

    def _give_up(self, schedule: Schedule) -> None:
        """End the run, because the client is far too late. Count the messages that it did not send as errors."""
        if self.sending:
            if left := schedule.left(self.ends):
                self.errors["not sent: the client is too slow for this rate"] += left
            self._send_no_more()

    def _send_no_more(self) -> None:
        """Stop sending. The run is over once the answers have arrived, or the time for them is up."""
        if self.sending:
            self.sending = False
            asyncio.get_running_loop().call_later(self._plan.drain, self._ended.set)
            self.look_for_the_end()

    def look_for_the_end(self) -> None:
        """End the run if no answer is missing, or no connection is left."""
        if not self.owed or self._gone:
            self.sending = False
            self.ends = min(self.ends, monotonic_ns())
        if not self.sending and (self.sent == self.received + self._given_up or self._gone):
            self._ended.set()

    def result(self) -> dict[str, int]:
        """The counts of the whole run. Bytes are counted in the connections' streams, with the headers of frames."""
        stats = [connection.transport.stats for connection in self._connections]
        return {
            "begins": self.begins,
            "ends": self.ends,
            "counted": self.counted,
            "bytes_sent": self._bytes_sent + sum(one.bytes_sent for one in stats),
            "bytes_received": self._bytes_received + sum(one.bytes_received for one in stats),
        }

    def _add_bytes(self, transport: WSTransport) -> None:
        self._bytes_sent += transport.stats.bytes_sent
        self._bytes_received += transport.stats.bytes_received

    async def close(self) -> None:
        """Close the connections."""
        self._ended.set()
        reopening = list(self._reopening)
        for task in reopening:
            task.cancel()
        await asyncio.gather(*reopening, return_exceptions=True)
        left = [connection.transport for connection in self._connections]
        for transport in left:
            transport.disconnect()
        await asyncio.gather(*(_closed(transport) for transport in left))


async def _closed(transport: WSTransport) -> None:
    with suppress(Exception):  # the run is over, and counted
        await transport.wait_disconnected()
