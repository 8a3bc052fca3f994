"""All that a supervisor sends on one connection, in its order:

1. answers to the server's own pings (``answer=``),
2. the program's messages, once the subscriptions of stage 0 are in,
3. heartbeats,
4. subscriptions, stage by stage.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from wsfast._common.protocol_numbers import WSMsgType
from wsfast._engine.transport import WSTransport
from wsfast.exceptions import ConnectionClosed
from wsfast.supervisor.progress import Progress, Unsubscribing
from wsfast.supervisor.sending import QueuedMessage
from wsfast.supervisor.shared import Shared
from wsfast.supervisor.subscriptions import Subscription, SubscriptionState, as_message
from wsfast.supervisor.window import Sent

__all__ = ["Outbox"]

# At most so many messages are sent in one callback of the event loop.
_BATCH = 128

# Without a window: if more bytes than this are in the write buffer, the next message waits.
_BACKLOG = 64 * 1024

# If the kernel has not taken everything, check again in so many iterations of the loop, then at intervals in seconds.
_ITERATIONS, _PAUSE = 2, 0.005

# At most so many answers wait. A server that sends more pings than it reads answers gets the newest answers.
_ANSWERS = 16


class Outbox:
    """Sends on one connection.

    Timers and the methods of the supervisor call it. A task that sends waits for its message to be sent, not for this
    object. The only tasks here await the program's coroutine functions, one after another.

    :param report: called with a subscription, its new state on this connection, and the server's reason
    :param fail: ends the connection
    :param changed: called when subscriptions were sent, acknowledged or ended
    """

    def __init__(
        self,
        transport: WSTransport,
        shared: Shared,
        report: Callable[[Subscription, SubscriptionState, Any], None],
        fail: Callable[[Exception], None],
        changed: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._sent = None if shared.window is None else Sent(shared.window)
        # The number of frames that the window has counted. It begins at 0, even if PONGs were sent before.
        self._counted = 0
        self._answers: deque[QueuedMessage] = deque(maxlen=_ANSWERS)
        # The supervisor owns this queue: the next connection sends the messages that this one has not sent.
        self._messages = shared.messages
        self._heartbeats: deque[QueuedMessage] = deque()
        self._progress = Progress(shared, report, fail, self._progressed)
        self._making_timeout = shared.open_timeout  # seconds in which a coroutine function makes a message
        # The subscription whose message is being made or sent: it is in no queue.
        self._taken: Subscription | Unsubscribing | None = None
        self._making: asyncio.Task[str | bytes] | None = None
        self._made: deque[str | bytes] = deque(maxlen=1)  # the message of the taken one
        self._callbacks = shared.callbacks
        self._fail = fail
        self._changed = changed
        #: This is the current connection: it sends the program's messages.
        self.is_current = False
        self.messages_sent = 0
        self._timer: asyncio.Handle | None = None
        self._pumping = self._stopped = False
        self._waits = 0  # consecutive waits for the kernel
        self._unsent_since: float | None = None

    # ---- for the supervisor

    @property
    def is_in(self) -> bool:
        """All subscriptions are in, but for those that were refused or are late."""
        return self._taken is None and self._progress.is_in

    @property
    def expects_replies(self) -> bool:
        """Subscriptions wait for acknowledgements, which may lie behind messages that the program has not taken."""
        return not self._stopped and self._progress.expects_replies

    @property
    def awaits_replies(self) -> bool:
        """:meth:`take_reply` must get every message: a reply is due, or was due and may still come."""
        return not self._stopped and self._progress.takes_replies

    @property
    def number_in(self) -> int:
        """The number of subscriptions that are in."""
        return self._progress.number_in

    def has_in(self, subscription: Subscription) -> bool:
        return self._progress.has_in(subscription)

    @property
    def late(self) -> list[Subscription]:
        return self._progress.late

    def subscribe(self, subscription: Subscription) -> None:
        self._progress.subscribe(subscription)
        self.pump()

    def unsubscribe(self, subscription: Subscription, message: Any) -> None:
        self._progress.unsubscribe(subscription, message)
        self.pump()
        self._changed()

    def beat(self, heartbeat: QueuedMessage) -> None:
        self._heartbeats.append(heartbeat)
        self.pump()

    def answer(self, message: str | bytes) -> None:
        """Answer a ping of the server's, soon: this is called amid the delivery of a message."""
        self._answers.append(QueuedMessage(message, None, _nobody_waits, _always))
        self._loop.call_soon(self.pump)

    def take_reply(self, message: Any) -> bool:
        """True if a received message replies to a subscription. To be called while `awaits_replies`."""
        is_reply = not self._stopped and self._progress.take_reply(message)
        if is_reply:
            self._loop.call_soon(self.pump)  # not here, amid the delivery of a message
            self._changed()
        return is_reply

    def send_at_once(self, kind: WSMsgType, message: Any) -> bool:
        """Send a message of the program if it need not wait, and the kernel takes it now. False if it must wait."""
        if (
            self._sent is not None
            or self._pumping
            or self._stopped
            or self._messages
            or self._answers
            or self._transport.write_buffer_size
            or not self._is_logged_in()
        ):
            return False
        try:
            self._transport.send(kind, message)
        except ConnectionClosed:
            return False  # it is closing: the next connection sends the message
        self.messages_sent += 1
        return True

    def stop(self) -> None:
        """Send nothing more, because the connection has ended or is about to end."""
        self._stopped = True
        self._progress.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._making is not None:
            self._making.cancel()

    # ---- sending

    def pump(self) -> None:
        """Send the messages that may be sent now, and schedule the next call."""
        if self._pumping or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pumping = True
        was_in = self.is_in
        try:
            delay = self._send_some()
        finally:
            self._pumping = False
        if self._stopped:
            return
        if delay == 0:
            self._timer = self._loop.call_soon(self.pump)
        elif delay is not None:
            self._timer = self._loop.call_later(delay, self.pump)
        if self.is_in != was_in:
            self._changed()

    def _progressed(self) -> None:
        if not self._stopped:
            self.pump()
            self._changed()

    def _send_some(self) -> float | None:
        """Send until nothing is left, and return None; or return the seconds until the next message may be sent."""
        for _ in range(_BATCH):
            queue = self._queue()
            if queue is None:
                return None
            delay = self._wait(queue[0] if queue else None)
            if delay is not None:
                return delay
            try:
                item = queue.popleft()
            except IndexError:  # a finalizer of the program has just emptied the queue
                continue
            if isinstance(item, QueuedMessage):
                is_open = self._send_queued(item, queue)
            else:
                is_open = self._send_taken(item) if queue is self._made else self._take(item)
            if not is_open:
                return None
        return 0.0

    def _queue(self) -> deque[Any] | None:
        """The queue whose head is the next message; None if nothing is to be sent now."""
        if self._stopped:
            return None
        if self._answers:
            return self._answers
        if self.is_current and self._messages and self._is_logged_in():
            while self._messages and not self._messages[0].is_wanted():
                self._messages.popleft()
            if self._messages:
                return self._messages
        if self._heartbeats:
            return self._heartbeats
        if self._taken is not None:
            return self._made or None
        return self._progress.queue()

    def _is_logged_in(self) -> bool:
        """The subscriptions of stage 0 are in."""
        return (self._taken is None or self._taken.stage > 0) and self._progress.is_stage_in(0)

    def _wait(self, item: Any) -> float | None:
        """The seconds until a message may be sent; None if one may be sent now."""
        now = time.monotonic()
        must_leave = self._sent is not None or (isinstance(item, QueuedMessage) and item.expires)
        if self._transport.write_buffer_size > (0 if must_leave else _BACKLOG):
            self._waits += 1
            return 0.0 if self._waits <= _ITERATIONS else _PAUSE
        self._waits = 0
        if self._sent is None:
            return None
        if self._unsent_since is not None:  # the kernel has taken the messages only now, as far as is known
            self._sent.left_late(self._unsent_since, now)
            self._unsent_since = None
        frames = self._transport.stats.frames_sent
        self._sent.others(frames - self._counted, now)
        self._counted = frames
        return self._sent.wait(now) or None

    def _send_queued(self, item: QueuedMessage, queue: deque[QueuedMessage]) -> bool:
        """Send a message. False if the connection is closed; the message then remains in its queue."""
        try:
            message = as_message(item.message() if callable(item.message) else item.message)
            if not item.is_wanted():
                return True
            self._transmit(item.kind, message)
        except ConnectionClosed:
            queue.appendleft(item)
            self.stop()
            return False
        except (Exception, asyncio.CancelledError) as exc:  # it cannot be made, or not be encoded
            item.settle(exc)
            return True
        item.settle(None)
        return True

    def _transmit(self, kind: WSMsgType | None, message: str | bytes) -> None:
        if kind is None:
            kind = WSMsgType.TEXT if isinstance(message, str) else WSMsgType.BINARY
        before = time.monotonic()
        self._transport.send(kind, message)
        self.messages_sent += 1
        if self._sent is not None:
            self._sent.message(time.monotonic())
            self._counted += 1
            if self._transport.write_buffer_size:
                self._unsent_since = before if self._unsent_since is None else self._unsent_since

    # ---- subscriptions, whose messages a coroutine function may make

    def _take(self, item: Subscription | Unsubscribing) -> bool:
        """Make the message of a subscription, and send it if no coroutine function makes it."""
        self._taken = item
        try:
            message = item.message() if callable(item.message) else item.message
        except (Exception, asyncio.CancelledError) as exc:
            return self._cannot_send(item, exc)
        if not inspect.isawaitable(message):
            return self._send_taken(message)
        self._making = self._loop.create_task(self._make(message))
        self._making.add_done_callback(self._was_made)
        return True

    def _send_taken(self, message: Any) -> bool:
        """Send the message of the subscription that was taken. False if the connection is closed."""
        taken = self._taken
        assert taken is not None
        try:
            if self._progress.is_wanted(taken):  # the function that made it may have unsubscribed
                self._transmit(None, as_message(message))
                if isinstance(taken, Subscription):
                    self._progress.sent(taken)
        except ConnectionClosed:
            self.stop()
            return False
        except Exception as exc:
            return self._cannot_send(taken, exc)
        self._taken = None
        if self.expects_replies:
            self._changed()  # at once: a function that makes the next message may receive the reply
        return True

    async def _make(self, awaitable: Awaitable[Any]) -> str | bytes:
        try:
            return as_message(await asyncio.wait_for(awaitable, self._making_timeout))
        except asyncio.TimeoutError as exc:
            raise TimeoutError(
                f"the function that makes a message took longer than {self._making_timeout:g} seconds"
            ) from exc

    def _was_made(self, task: asyncio.Task[str | bytes]) -> None:
        self._making = None
        exc = asyncio.CancelledError() if task.cancelled() else task.exception()
        if self._stopped or self._taken is None:
            return
        if exc is None:
            self._made.append(task.result())
        else:
            self._cannot_send(self._taken, exc)
        self.pump()

    def _cannot_send(self, item: Subscription | Unsubscribing, exc: BaseException) -> bool:
        """The program's function has raised. That ends the connection if the program relies on the message."""
        self._callbacks.call("message", None, _raise, exc)
        if isinstance(item, Unsubscribing):
            self._taken = None
            return True
        error = exc if isinstance(exc, Exception) else RuntimeError("the function of a message was cancelled")
        self._fail(error)
        return False


def _raise(exc: BaseException) -> None:
    raise exc


def _always() -> bool:
    return True


def _nobody_waits(exc: BaseException | None) -> None:
    pass
