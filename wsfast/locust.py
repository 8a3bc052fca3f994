"""Load from many processes and machines: a user class for Locust (``pip install locust``).

Locust runs each user in a greenlet of gevent, which patches the sockets and threads of its process. wsfast waits in
system calls of its own, which gevent does not see. So the connections of a process live in an event loop of their own,
in a native thread, and a greenlet that waits for one of them lets the others run. Times are taken in that thread, and
therefore contain no waiting for greenlets.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import gevent
import locust
from gevent import monkey
from gevent.event import Event
from gevent.threadpool import ThreadPool

import wsfast
from wsfast import Network
from wsfast.asyncio import ClientConnection

__all__ = ["WebSocketClient", "WebSocketUser"]

T = TypeVar("T")
Message = str | bytes

# Before gevent patched them.
_new_lock = monkey.get_original("threading", "Lock")
_selector = monkey.get_original("selectors", "DefaultSelector")
_getaddrinfo = monkey.get_original("socket", "getaddrinfo")


class _Loop:
    """An event loop in a native thread."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._loop = asyncio.SelectorEventLoop(_selector())
        self._pool = ThreadPool(1)
        self._pool.spawn(self._loop.run_forever)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, while the other greenlets of this thread go on. If the greenlet is killed, the
        coroutine is cancelled."""
        lock, waits = _new_lock(), True
        done = Event()
        watcher = gevent.get_hub().loop.async_()
        watcher.start(done.set)  # before the coroutine can end: a watcher that has not started misses it
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(self._loop.create_task(coroutine))
            tasks[0].add_done_callback(wake)

        def wake(task: asyncio.Task[T]) -> None:
            with lock:
                if waits:  # otherwise there is no watcher any more
                    watcher.send()

        self._loop.call_soon_threadsafe(start)
        try:
            done.wait()
        except BaseException:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            raise
        finally:
            with lock:
                waits = False
            watcher.stop()
            watcher.close()
        return tasks[0].result()


_loop: _Loop | None = None


def _running_loop() -> _Loop:
    """The loop of this process. A process that Locust forked makes its own."""
    global _loop
    if _loop is None or _loop.process != os.getpid():
        _loop = _Loop()
    return _loop


def _addresses(host: str, port: int) -> list[str]:
    # Python's own, for asyncio would look up names in threads that gevent has made greenlets of.
    return list(dict.fromkeys(str(info[4][0]) for info in _getaddrinfo(host, port)))


class WebSocketClient:
    """One connection of a user. It reports to Locust: requests of type ``WS``, with response times in milliseconds.

    A method that fails reports the error, and returns None. A lost connection is opened again by the next call, which
    reports a ``connect``, too. A request without an answer in time ends the connection.

    :param environment: Locust's, whose ``request`` event is fired
    :param url: ``ws://`` or ``wss://``
    :param timeout: for each answer, in seconds
    :param options: more arguments of :func:`wsfast.connect`
    """

    def __init__(self, environment: Any, url: str, *, timeout: float = 10, **options: Any) -> None:
        self._environment = environment
        self._url = url
        self._timeout = timeout
        network = options.pop("network", None) or Network()
        if network.resolver is None:
            network = dataclasses.replace(network, resolver=_addresses)
        self._options = {"network": network, **options}
        self._ws: ClientConnection | None = None

    def connect(self) -> bool:
        """Open the connection, unless it is open. Returns whether it is."""
        if self._ws is None or self._ws.close_code is not None:
            self._ws = self._measure("connect", self._connect, lambda ws: 0)
        return self._ws is not None

    def request(self, message: Message, name: str = "request") -> Message | None:
        """Send a message, and wait for the next one that arrives: the answer of a server that gives one to each.

        :param name: in Locust's statistics
        """
        return self._measure(name, lambda: self._request(message), _size) if self.connect() else None

    def send(self, message: Message, name: str = "send") -> None:
        """Send a message, and wait for nothing. Its response time is the time that sending took."""
        if self.connect():
            self._measure(name, lambda: self._send(message), lambda _: 0)

    def receive(self, name: str = "receive") -> Message | None:
        """Wait for a message, at most as long as for an answer."""
        return self._measure(name, self._receive, _size) if self.connect() else None

    def close(self) -> None:
        """Close the connection. Nothing is reported."""
        ws, self._ws = self._ws, None
        if ws is not None:
            _running_loop().call(ws.close())

    def _measure(
        self, name: str, call: Callable[[], Coroutine[Any, Any, T]], size: Callable[[T], int]
    ) -> T | None:
        """Run the call in the loop, take its time there, and report it."""

        async def timed() -> tuple[T | None, Exception | None, float]:
            began = time.perf_counter_ns()
            result, error = None, None
            try:
                result = await call()
            except Exception as exc:
                error = exc
            return result, error, (time.perf_counter_ns() - began) / 1e6

        result, error, milliseconds = _running_loop().call(timed())
        self._environment.events.request.fire(
            request_type="WS",
            name=name,
            response_time=milliseconds,
            response_length=size(result) if error is None else 0,  # type: ignore[arg-type]
            exception=error,
            context={},
        )
        return result

    async def _connect(self) -> ClientConnection:
        return await wsfast.connect(self._url, **self._options)

    async def _request(self, message: Message) -> Message:
        await self._send(message)
        try:
            return await self._receive()
        except BaseException:
            # Its answer may still come, and would be taken for the next request's.
            assert self._ws is not None
            self._ws.abort()
            raise

    async def _send(self, message: Message) -> None:
        assert self._ws is not None
        await self._ws.send(message)

    async def _receive(self) -> Message:
        assert self._ws is not None
        message: Message = await asyncio.wait_for(self._ws.recv(), self._timeout)
        return message


def _size(message: Message) -> int:
    return len(message.encode() if isinstance(message, str) else message)


class WebSocketUser(locust.User):
    """A user with one connection, ``self.ws``, to ``host``. Subclass it, and write tasks.

    ``url_path`` is appended to ``host``, and ``connect_options`` are more arguments of :func:`wsfast.connect`.
    """

    abstract = True
    url_path = "/"
    answer_timeout = 10.0
    connect_options: dict[str, Any] = {}  # noqa: RUF012 - Locust's users have settings as attributes of the class

    ws: WebSocketClient

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        if not self.host:
            raise locust.exception.LocustError("set host = 'ws://...' in the user class, or pass --host")
        url = f"{self.host.rstrip('/')}{self.url_path}"
        self.ws = WebSocketClient(environment, url, timeout=self.answer_timeout, **self.connect_options)

    def on_start(self) -> None:
        """Connect. What overrides this may leave it out: the first request connects, too."""
        self.ws.connect()

    def on_stop(self) -> None:
        """Close the connection."""
        self.ws.close()
