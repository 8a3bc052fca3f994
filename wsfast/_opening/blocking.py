"""Connected sockets with blocking methods, perhaps through a proxy: as `addresses` and `proxied` for an event loop.

Everything here ends when the deadline passes, and whenever the handler of a signal raises: looking up a name, too, for
which Python has neither.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

from wsfast._opening.addresses import HAPPY_EYEBALLS_DELAY
from wsfast._opening.route import Addresses, Route
from wsfast.exceptions import ProxyError

__all__ = ["Deadline", "connect"]


class Deadline:
    """One deadline for several steps, each of which is named if it is the one that takes too long."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left(self, step: str) -> float | None:
        """The seconds that are left; None without end.

        :raises TimeoutError: there are none
        """
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.passed(step)
        return min(left, threading.TIMEOUT_MAX)  # what a socket takes

    def passed(self, step: str) -> TimeoutError:
        """What is raised then."""
        limit = "" if self._seconds is None else f": open_timeout is {self._seconds:g} seconds"
        return TimeoutError(f"{step} took too long{limit}")


def connect(route: Route, source: Any, deadline: Deadline) -> socket.socket:
    """A socket that is connected to the server, or, of an https proxy, to the proxy.

    :param source: the local address, or None
    :raises ProxyError: the proxy was not reached, refused, talked rubbish, or hung up
    :raises OSError: the server was not reached
    :raises TimeoutError: the deadline passed
    """
    if route.proxy is not None:
        return _through_proxy(route, source, deadline)
    route.phase = f"the look-up of {route.host}"
    infos = _look_up(route.host, route.port, 0, deadline, route.phase)
    route.resolved(route.host, infos)
    return _connect(infos, source, deadline, route.phase_text())


def _through_proxy(route: Route, source: Any, deadline: Deadline) -> socket.socket:
    from wsfast._opening import proxied

    proxy, host = route.proxy, route.host
    assert proxy is not None
    if not proxy.resolves:
        family = socket.AF_INET if proxy.scheme == "socks4" else 0
        infos = _look_up(host, route.port, family, deadline, f"the look-up of {host}")
        route.resolved(host, infos)
        host = infos[0][4][0]
    tunnel = route.new_tunnel(host)
    route.phase = f"the connection to the proxy {proxy}"
    try:
        infos = _look_up(proxy.host, proxy.port, 0, deadline, route.phase)
        sock = _connect(infos, source, deadline, route.phase)
    except TimeoutError:
        raise
    except OSError as exc:
        raise ProxyError(f"cannot connect to the proxy {proxy}: {exc}") from exc
    if not proxy.secure:
        step = f"the negotiation with the proxy {proxy}"
        try:
            proxied.connect_blocking(sock, proxy, host, route.port, tunnel, lambda: deadline.left(step))
        except TimeoutError as exc:
            raise deadline.passed(step) from exc
    return sock


def _look_up(host: str, port: int, family: int, deadline: Deadline, step: str) -> Addresses:
    """In a thread, which nobody waits for any longer when the time is over; it ends when the look-up does."""
    try:
        return socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    answers: queue.SimpleQueue[Addresses | BaseException] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM))
        except BaseException as exc:
            answers.put(exc)

    left = deadline.left(step)
    thread = threading.Thread(target=ask, name=f"wsfast: {step}", daemon=True)
    thread.start()
    try:
        answer = answers.get(timeout=left)
    except queue.Empty:
        raise deadline.passed(step) from None
    thread.join()
    if isinstance(answer, BaseException):
        raise answer
    return answer


# ---- happy eyeballs (RFC 8305): the next address is tried when one has failed, or has not answered for a while


def _connect(infos: Addresses, source: Any, deadline: Deadline, step: str) -> socket.socket:
    waiting = list(_by_turns(infos))
    connecting: dict[int, tuple[socket.socket, Any]] = {}
    failures: list[tuple[Any, OSError]] = []
    poll = select.poll()
    winner = None
    try:
        while winner is None and (waiting or connecting):
            if waiting:
                info = waiting.pop(0)
                try:
                    sock = _begin(info, source)
                except OSError as exc:
                    failures.append((info[4], exc))
                    continue
                connecting[sock.fileno()] = sock, info[4]
                poll.register(sock, select.POLLOUT)
            winner = _first(poll, connecting, failures, deadline, step, bool(waiting))
    finally:
        for sock, _ in connecting.values():
            if sock is not winner:
                sock.close()
    if winner is None:
        raise _together(failures)
    return winner


def _by_turns(infos: Addresses) -> Addresses:
    """One address of each family after the other, beginning with that of the first."""
    first = [info for info in infos if info[0] == infos[0][0]]
    others = [info for info in infos if info[0] != infos[0][0]]
    rest = [info for pair in zip(first, others) for info in pair]  # noqa: B905 - the longer one's rest follows
    shorter = min(len(first), len(others))
    return rest + first[shorter:] + others[shorter:]


def _begin(info: Any, source: Any) -> socket.socket:
    sock = socket.socket(*info[:3])
    try:
        sock.setblocking(False)
        if source is not None:
            sock.bind(source)
        with contextlib.suppress(BlockingIOError, InterruptedError):
            sock.connect(info[4])
    except BaseException:
        sock.close()
        raise
    return sock


def _first(
    poll: select.poll,
    connecting: dict[int, tuple[socket.socket, Any]],
    failures: list[tuple[Any, OSError]],
    deadline: Deadline,
    step: str,
    is_more: bool,
) -> socket.socket | None:
    """The first socket that is connected; None if another address is to be tried, or all have failed."""
    while connecting:
        left = deadline.left(step)
        wait = left
        if is_more:
            wait = HAPPY_EYEBALLS_DELAY if left is None else min(HAPPY_EYEBALLS_DELAY, left)
        events = poll.poll(None if wait is None else max(1, wait * 1000))
        for fd, _ in events:
            sock, address = connecting[fd]
            errno = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not errno:
                sock.setblocking(True)
                return sock
            poll.unregister(fd)
            del connecting[fd]
            sock.close()
            failures.append((address, _error(errno)))
        if is_more:
            return None
    return None


def _error(errno: int) -> OSError:
    return OSError(errno, os.strerror(errno))


def _together(failures: Sequence[tuple[Any, OSError]]) -> OSError:
    """One error that names each address with its reason."""
    if len(failures) == 1:
        return failures[0][1]
    errnos = {exc.errno for _, exc in failures}
    text = "; ".join(f"{address[0]} port {address[1]}: {exc.strerror or exc}" for address, exc in failures)
    return OSError(errnos.pop() if len(errnos) == 1 else None, text)
