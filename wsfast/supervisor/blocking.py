"""A supervisor for a program that blocks: the supervisor runs in an event loop, and the loop in a thread of its own.

The loop's thread takes messages from the supervisor and puts them into a box, as long as there is room. The program
takes them out. When it finds the box empty, it asks for more. So a slow program makes the server wait.

Handlers of signals run in the program's thread, between any two steps of the Python code here, and may raise. So each
step leaves everything consistent: a message is removed from the box last, and what a wait began is asked for again by
the next call.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from wsfast._common.options import seconds
from wsfast._engine.threads import call_soon, run_soon
from wsfast.exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedOK, InvalidText
from wsfast.supervisor import supervise as supervise_in_loop
from wsfast.supervisor.states import State
from wsfast.supervisor.stats import SupervisorStats
from wsfast.supervisor.subscriptions import Message, Subscription
from wsfast.supervisor.supervisor import Supervisor
from wsfast.supervisor.targets import URLs
from wsfast.sync.environment import refuse_gevent

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from wsfast.supervisor.arguments import FeedOptions, SubscriptionOptions

__all__ = ["BlockingSupervisor", "supervise"]

_T = TypeVar("_T")

# The box is full with so many messages, or so many bytes and characters. One message may exceed that.
_MOST_MESSAGES = 64
_MOST_BYTES = 1 << 20

# Seconds that a program which exits waits for the thread of a supervisor that it has not closed.
_EXIT = 1.0


def supervise(url: URLs, **options: Unpack[FeedOptions]) -> BlockingSupervisor:
    """Keep a feed going for a program that has no event loop, as :func:`wsfast.supervise` does in one.

    ::

        with wsfast.sync.supervise("wss://...", max_silence=30) as feed:
            feed.subscribe('{"op": "subscribe", "channel": "book"}', ack=is_ack)
            for message in feed:
                ...

    The connections are those of the awaitable client. They live in an event loop in a thread of its own, which also
    answers PINGs, sends heartbeats and reconnects while the program computes. A message passes from that thread to the
    program, which takes longer than a ``recv()`` of :func:`wsfast.sync.client.connect`.

    The options are those of :func:`wsfast.supervise`, without `listener_factory`. Functions of the program, such as
    `key`, `ack` and `on_state`, run in the loop's thread. They may subscribe, unsubscribe, drop and close. Methods that
    wait raise RuntimeError there.
    """
    refuse_gevent()
    if "listener_factory" in options:
        raise TypeError("supervise() got an unexpected keyword argument 'listener_factory'")
    return BlockingSupervisor(supervise_in_loop(url, **options))


class _Box:
    """The messages that have come from the loop's thread and that the program has not taken."""

    def __init__(self) -> None:
        #: Messages, each with its generation and its gaps.
        self.messages: deque[tuple[Any, int, int]] = deque()
        #: Released when something has come; the program acquires it to wait.
        self.news = threading.Lock()
        self.news.acquire()
        #: The loop's thread holds it until it ends. Not its join(): one that is interrupted by the handler of a signal
        #: believes that the thread has ended (CPython 3.11).
        self.thread = threading.Lock()
        #: Nothing comes any more.
        self.is_over = False
        #: The reason why nothing comes any more; None if the program has closed the supervisor.
        self.error: BaseException | None = None
        #: The program has closed the supervisor: it holds what remains, which fits.
        self.is_closing = False
        self._is_full = False
        self._asked = asyncio.Event()

    # In the loop's thread:

    async def fill(self, feed: Supervisor) -> None:
        """Put all messages of `feed` into the box. Raises what :meth:`Supervisor.recv` raises in the end."""
        size = 0
        while True:
            message = await feed.recv()
            if not self.messages:
                size = 0
            size += len(message)
            self.messages.append((message, feed.generation, feed.gaps))
            self._notify()
            if len(self.messages) >= _MOST_MESSAGES or size >= _MOST_BYTES:
                await self._wait_until_empty()

    async def _wait_until_empty(self) -> None:
        # In this order: the program empties the box first, and then looks whether it was full.
        self._asked.clear()
        self._is_full = True
        while self.messages and not self.is_closing:
            await self._asked.wait()
            self._asked.clear()
        self._is_full = False

    def close(self) -> None:
        self.is_closing = True
        self._asked.set()

    def end(self, error: BaseException | None) -> None:
        self.error = None if self.is_closing and isinstance(error, ConnectionClosed) else error
        self.is_over = True
        self._notify()

    def _notify(self) -> None:
        if self.news.locked():
            self.news.release()

    # In the program's thread:

    def ask(self, loop: asyncio.AbstractEventLoop) -> None:
        """The box is empty: let the loop's thread fill it."""
        if self._is_full:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._asked.set)


class BlockingSupervisor:
    """A feed that survives its connections, for a program that blocks. :func:`wsfast.sync.supervise` makes it.

    ::

        with wsfast.sync.supervise(url) as feed:
            for message in feed: ...

    Any number of threads may use it. One of them receives, while others send, subscribe or close.
    """

    def __init__(self, feed: Supervisor) -> None:
        self._feed = feed
        self._box = _Box()
        self._receiving = threading.Lock()
        self._generation = self._gaps = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # ---- begin and end

    def __enter__(self) -> BlockingSupervisor:
        """Begin to connect. This does not wait until a connection is open; :meth:`ready` does."""
        if self._thread is not None or self._box.is_over:
            raise RuntimeError("a supervisor can be used only once")
        self._loop = loop = asyncio.new_event_loop()
        # Not a reference to this object, which would live as long as the thread.
        self._thread = threading.Thread(
            target=_run, args=(loop, self._feed, self._box), name="wsfast.sync.supervise", daemon=True
        )
        self._box.thread.acquire()
        self._thread.start()
        _open.add(self)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, and wait until it is closed: at most ``close_timeout``. No other connection is made.

        Messages that were received before remain for :meth:`recv`. If Ctrl-C interrupts it, the connection is dropped
        without further waiting. In a function that the supervisor calls it does not wait.
        """
        if self._loop is None or self._thread is None:
            self._box.end(None)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._box.close)
            run_soon(self._loop, self._feed.close)
        if not self._is_in_loop and self._thread.is_alive():
            try:
                with self._box.thread:
                    pass
            except BaseException:  # of the handler of a signal
                self._abort()
                raise
            self._thread.join()

    def _abort(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._box.close)
                self._loop.call_soon_threadsafe(self._feed.abort)

    def __del__(self) -> None:
        self._abandon()

    def _abandon(self, wait: float = 0.0) -> None:
        """The program has not closed it."""
        if self._thread is not None and self._thread.is_alive():
            if not self._box.is_closing:
                warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self._abort()
            if wait:
                self._thread.join(wait)

    # ---- receiving

    @overload
    def recv(self, timeout: float | None, decode: Literal[True]) -> str: ...
    @overload
    def recv(self, timeout: float | None = None, *, decode: Literal[True]) -> str: ...
    @overload
    def recv(self, timeout: float | None, decode: Literal[False]) -> bytes: ...
    @overload
    def recv(self, timeout: float | None = None, *, decode: Literal[False]) -> bytes: ...
    @overload
    def recv(self, timeout: float | None, decode: type[memoryview]) -> memoryview: ...
    @overload
    def recv(self, timeout: float | None = None, *, decode: type[memoryview]) -> memoryview: ...
    @overload
    def recv(self, timeout: float | None = None, decode: bool | None = None) -> str | bytes: ...
    def recv(self, timeout: float | None = None, decode: Any = None) -> Any:
        """Receive the next message, whichever connection it comes from.

        :param timeout: in seconds; 0 takes a message only if the loop's thread has it ready
        :param decode: True gives ``str``, False ``bytes``, ``memoryview`` a view of ``bytes``; by default that depends
            on the message
        :raises TimeoutError: `timeout` passed. Nothing is lost: the next call goes on.
        :raises Exception: the reason why the supervisor gave up, after the last message
        :raises ConnectionClosedOK: the supervisor was closed, and no message is left
        :raises ConcurrencyError: another thread is in :meth:`recv`
        :raises InvalidText: `decode` is True, and a binary message is not UTF-8. The next call returns that message.
        """
        timeout = seconds("timeout", timeout, none="for no limit")
        if self._receiving.locked():
            raise ConcurrencyError("cannot call recv while another thread is already running recv")
        with self._receiving:
            box = self._box
            if not box.messages:
                self._wait(timeout)
            message, generation, gaps = box.messages[0]
            message = _decoded(message, decode)
            self._generation, self._gaps = generation, gaps
            box.messages.popleft()
            return message

    def _wait(self, timeout: float | None) -> None:
        """Wait until there is a message."""
        box = self._box
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            is_over = box.is_over  # first: nothing comes after that
            if box.messages:
                return
            if is_over:
                raise self._end
            box.ask(self._entered())
            left = -1 if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not box.news.acquire(timeout=left):
                raise TimeoutError(f"timed out in {timeout:.1f}s")

    def __iter__(self) -> Iterator[str | bytes]:
        """Iterate over the messages of one connection after another. :meth:`close` ends the iteration. If the
        supervisor gave up, the iteration raises the reason."""
        while True:
            try:
                message = self.recv()
            except ConnectionClosedOK:
                if self._box.error is not None:
                    raise
                return
            yield message

    @property
    def generation(self) -> int:
        """The number of the connection that received the last message, counted from 1; 0 before the first message."""
        return self._generation

    @property
    def gaps(self) -> int:
        """The number of gaps before the last message that :meth:`recv` returned: see :attr:`Supervisor.gaps`."""
        return self._gaps

    # ---- sending

    def send(
        self,
        message: str | bytes | bytearray | memoryview,
        *,
        text: bool | None = None,
        ttl: float | None = None,
    ) -> None:
        """Send a message as soon as a connection is open and the window has room: see :meth:`Supervisor.send`. If
        Ctrl-C interrupts it before the message is sent, the message is not sent."""
        self._await(functools.partial(self._feed.send, message, text=text, ttl=ttl))

    def subscribe(self, message: Message, **options: Unpack[SubscriptionOptions]) -> Subscription:
        """Send a message now, if a connection is open, and after each connect: see :meth:`Supervisor.subscribe`."""
        return self._call(functools.partial(self._feed.subscribe, message, **options))

    def unsubscribe(self, key: Hashable, message: Message | None = None) -> bool:
        """Forget a subscription: see :meth:`Supervisor.unsubscribe`."""
        return self._call(functools.partial(self._feed.unsubscribe, key, message))

    def ready(self, timeout: float | None = None) -> None:
        """Wait until a connection is open and all subscriptions are in: see :meth:`Supervisor.ready`.

        :raises TimeoutError: `timeout` passed
        """
        self._await(self._feed.ready, seconds("timeout", timeout, none="for no limit"))

    def drop(self, reason: str | Exception) -> None:
        """Replace the connection, or end it: see :meth:`Supervisor.drop`."""
        self._call(functools.partial(self._feed.drop, reason))

    def roll_over(self) -> bool:
        """Replace the connection by a new one, without a gap: see :meth:`Supervisor.roll_over`."""
        return self._await(self._feed.roll_over)

    # ---- state

    @property
    def state(self) -> State:
        """The current state."""
        return self._feed.state

    @property
    def stats(self) -> SupervisorStats:
        """The counts so far. They may be a moment old."""
        stats = self._feed.stats
        return stats._replace(backlog=stats.backlog + len(self._box.messages))

    def __repr__(self) -> str:
        return f"<BlockingSupervisor {self.state.value}>"

    # ---- calls into the loop's thread

    @property
    def _is_in_loop(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def _end(self) -> BaseException:
        """The reason why there is nothing to call any more."""
        return self._box.error or ConnectionClosedOK(None, None)

    def _entered(self) -> asyncio.AbstractEventLoop:
        """The loop of another thread, which runs."""
        if self._loop is None or self._thread is None:
            raise RuntimeError("a supervisor must be entered with a with statement")
        if self._is_in_loop:
            raise RuntimeError("a function that the supervisor calls must not wait for it")
        if not self._thread.is_alive() and not self._box.is_over:
            raise RuntimeError("a supervisor does not survive fork()")
        return self._loop

    def _call(self, function: Callable[[], _T]) -> _T:
        """The result of a function that does not wait."""
        if self._thread is None or self._is_in_loop:
            return function()
        return self._result(call_soon, function)  # type: ignore[no-any-return]

    def _await(self, function: Callable[[], Coroutine[Any, Any, _T]], timeout: float | None = None) -> _T:
        """The result of a coroutine function."""
        return self._result(run_soon, function, timeout)  # type: ignore[no-any-return]

    def _result(
        self,
        begin: Callable[..., concurrent.futures.Future[Any]],
        function: Callable[[], Any],
        timeout: float | None = None,
    ) -> Any:
        if self._box.is_over:
            raise self._end
        loop = self._entered()
        try:
            future = begin(loop, function)
            try:
                return future.result(timeout)
            except concurrent.futures.TimeoutError:
                if future.done():
                    raise
                raise TimeoutError(f"timed out in {timeout:.1f}s") from None
            finally:
                future.cancel()
        except (ConnectionClosed, RuntimeError, concurrent.futures.CancelledError):
            if not self._box.is_over:
                raise
        raise self._end  # the loop has ended meanwhile


def _decoded(message: Any, decode: Any) -> Any:
    if decode is None:
        return message
    if decode is not memoryview and decode:
        try:
            return message if isinstance(message, str) else message.decode()
        except UnicodeDecodeError as exc:
            raise InvalidText.from_decode_error(exc) from None
    payload = message.encode() if isinstance(message, str) else message
    return memoryview(payload) if decode is memoryview else payload


async def _supervise(feed: Supervisor, box: _Box) -> None:
    async with feed:
        await box.fill(feed)


def _run(loop: asyncio.AbstractEventLoop, feed: Supervisor, box: _Box) -> None:
    """The loop's thread."""
    try:
        loop.run_until_complete(_supervise(feed, box))
    except BaseException as exc:  # SystemExit, too, goes to the program
        box.end(exc)
    _cancel_all(loop)
    loop.close()
    box.thread.release()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks that functions of the program have left. If one of these functions has raised SystemExit, cancel
    all tasks; it may do so again."""
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        with contextlib.suppress(BaseException):
            loop.run_until_complete(asyncio.wait(tasks))
    with contextlib.suppress(BaseException):
        loop.run_until_complete(loop.shutdown_asyncgens())


#: The supervisors whose thread may be running.
_open: weakref.WeakSet[BlockingSupervisor] = weakref.WeakSet()


@atexit.register
def _exit() -> None:
    """A thread in an event loop must not outlive the interpreter's end."""
    for feed in list(_open):
        feed._abandon(_EXIT)
