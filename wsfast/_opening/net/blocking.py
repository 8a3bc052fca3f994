"""Connected sockets with blocking methods, perhaps through a proxy: the blocking part of `addresses` and `proxy`.

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
from collections.abc import Callable, Sequence
from typing import Any

from wsfast._common.options import in_words
from wsfast._engine.tuning import SocketOption, set_options
from wsfast._opening.net.addresses import HAPPY_EYEBALLS_DELAY, is_connected
from wsfast._opening.route import Addresses, Route
from wsfast.exceptions import ProxyError

__all__ = ["Deadline", "connect", "connect_to_first"]


# Seconds to sleep in one go, where nothing but the handler of a signal may end it: a signal that comes just before the
# thread sleeps does not wake it.
_PULSE = 0.25


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

    @property
    def is_over(self) -> bool:
        """Has it passed?"""
        return self._end is not None and self._end <= time.monotonic()

    def passed(self, step: str) -> TimeoutError:
        """What is raised then."""
        limit = "" if self._seconds is None else f": open_timeout is {in_words(self._seconds)}"
        return TimeoutError(f"{step} took too long{limit}")


def connect(
    route: Route,
    deadline: Deadline,
    *,
    sock: socket.socket | None = None,
    family: int = 0,
    **arguments: Any,
) -> socket.socket:
    """A socket that is connected to the server, or, of an https proxy, to the proxy.

    :param sock: of the user's, connected or not, to use instead of a new one
    :param family: of the addresses to connect to
    :param arguments: for `connect_to_first`
    :raises ProxyError: the proxy was not reached, refused, talked rubbish, or hung up
    :raises OSError: the server was not reached
    :raises TimeoutError: the deadline passed
    """
    if route.proxy is not None:
        return _through_proxy(route, deadline, family, arguments)
    if sock is not None:
        try:
            return _with_socket(sock, route, deadline, **arguments)
        except BaseException:
            sock.close()
            raise
    infos = _look_up(route, route.host, route.port, family, deadline, f"the look-up of {route.host}")
    route.resolved(route.host, infos)
    return connect_to_first(infos, deadline, route.phase_text(), **arguments)


def _with_socket(
    sock: socket.socket,
    route: Route,
    deadline: Deadline,
    *,
    local_addr: Any = None,
    sockopts: Sequence[SocketOption] = (),
    **_: Any,
) -> socket.socket:
    """As `connect`, without a proxy, with a socket of the user's."""
    if is_connected(sock):
        set_options(sock, sockopts)
        route.connected_by_user(sock)
        return sock
    infos = _look_up(route, route.host, route.port, sock.family, deadline, f"the look-up of {route.host}")
    route.resolved(route.host, infos)
    if local_addr is not None:
        sock.bind(tuple(local_addr))
    # After a failure it could not try another address everywhere.
    return connect_to_first(infos[:1], deadline, route.phase_text(), sockopts=sockopts, new=lambda _: sock)


def _through_proxy(route: Route, deadline: Deadline, family: int, arguments: dict[str, Any]) -> socket.socket:
    from wsfast._opening.proxy import negotiation

    proxy, host = route.proxy, route.host
    assert proxy is not None
    if not proxy.resolves:
        its_family = socket.AF_INET if proxy.scheme == "socks4" else 0
        infos = _look_up(route, host, route.port, its_family, deadline, f"the look-up of {host}")
        route.resolved(host, infos)
        host = infos[0][4][0]
    tunnel = route.new_tunnel(host)
    step = f"the connection to the proxy {proxy}"
    try:
        infos = _look_up(route, proxy.host, proxy.port, family, deadline, step)
        sock = connect_to_first(infos, deadline, step, **arguments)
    except TimeoutError:
        raise
    except OSError as exc:
        raise ProxyError(f"cannot connect to the proxy {proxy}: {exc}") from exc
    if not proxy.secure:
        step = f"the negotiation with the proxy {proxy}"
        try:
            negotiation.connect_blocking(sock, proxy, host, route.port, tunnel, lambda: deadline.left(step))
        except TimeoutError as exc:
            raise deadline.passed(step) from exc
    return sock


def _look_up(route: Route, host: str, port: int, family: int, deadline: Deadline, step: str) -> Addresses:
    if route.look_up is None:
        return _ask_system(host, port, family, deadline, step)
    from wsfast._opening.net import resolver

    own, cache = route.look_up

    def ask(host: str, port: int, family: int, _: int) -> Addresses:
        known = () if cache is None else cache.recall(host, port, family)
        return _ask_system(host, port, family, deadline, step, cache.patience if cache and known else None)

    return resolver.resolve_blocking(host, port, family=family, resolver=own, cache=cache, look_up=ask)


def _ask_system(
    host: str, port: int, family: int, deadline: Deadline, step: str, patience: float | None = None
) -> Addresses:
    """In a thread, which nobody waits for any longer when the time is over; it ends when the look-up does.

    :param patience: seconds that it may take, although the deadline is later
    """
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

    patient = Deadline(patience)
    thread = threading.Thread(target=ask, name=f"wsfast: {step}", daemon=True)
    thread.start()
    answer: Addresses | BaseException | None = None
    while answer is None:
        waits = [span for span in (deadline.left(step), patient.left(step)) if span is not None]
        with contextlib.suppress(queue.Empty):
            answer = answers.get(timeout=min([_PULSE, *waits]))
    thread.join()
    if isinstance(answer, BaseException):
        raise answer
    return answer


# ---- happy eyeballs (RFC 8305): the next address is tried when one has failed, or has not answered for a while


def connect_to_first(
    infos: Addresses,
    deadline: Deadline,
    step: str,
    *,
    local_addr: Any = None,
    happy_eyeballs_delay: float | None = HAPPY_EYEBALLS_DELAY,
    sockopts: Sequence[SocketOption] = (),
    new: Callable[[Any], socket.socket] = lambda info: socket.socket(*info[:3]),
) -> socket.socket:
    """Connect to the address that answers first.

    :param step: what this is, for the error
    :param happy_eyeballs_delay: seconds; None tries an address only when the one before has failed
    :param sockopts: set on each socket before it is bound or connected
    :param new: makes the socket for an address
    :raises OSError: no address could be bound or connected, or an option was refused
    """
    waiting = list(_by_turns(infos) if happy_eyeballs_delay is not None else infos)
    connecting: dict[int, tuple[socket.socket, Any]] = {}
    failures: list[tuple[Any, OSError]] = []
    poll = select.poll()
    winner = None
    try:
        while winner is None and (waiting or connecting):
            if waiting:
                info = waiting.pop(0)
                try:
                    sock = _begin(new(info), info[4], local_addr, sockopts)
                except OSError as exc:
                    failures.append((info[4], exc))
                    continue
                connecting[sock.fileno()] = sock, info[4]
                poll.register(sock, select.POLLOUT)
            delay = happy_eyeballs_delay if waiting else None
            winner = _first(poll, connecting, failures, deadline, step, delay, bool(waiting))
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


def _begin(
    sock: socket.socket, address: Any, local_addr: Any, sockopts: Sequence[SocketOption]
) -> socket.socket:
    try:
        sock.setblocking(False)
        set_options(sock, sockopts)
        if local_addr is not None:
            sock.bind(tuple(local_addr))
        with contextlib.suppress(BlockingIOError, InterruptedError):
            sock.connect(address)
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
    delay: float | None,
    is_more: bool,
) -> socket.socket | None:
    """The first socket that is connected; None if another address is to be tried, or all have failed.

    :param delay: after which another one is to be tried; None without end
    """
    while connecting:
        for fd, _ in _ready(poll, deadline, step, delay):
            sock, address = connecting[fd]
            number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not number:
                sock.setblocking(True)
                return sock
            poll.unregister(fd)
            del connecting[fd]
            sock.close()
            failures.append((address, _error(number)))
        if is_more and (delay is not None or not connecting):
            return None
    return None


def _ready(
    poll: select.poll, deadline: Deadline, step: str, delay: float | None
) -> Sequence[tuple[int, int]]:
    """The sockets that are connected or have failed; none if `delay` has passed."""
    patient = Deadline(delay)
    while True:
        left = deadline.left(step)
        try:
            waits = [span for span in (left, patient.left(step)) if span is not None]
        except TimeoutError:
            return ()
        ready = poll.poll(max(1, min([_PULSE, *waits]) * 1000))
        if ready:
            return ready


def _error(errno: int) -> OSError:
    return OSError(errno, os.strerror(errno))


def _together(failures: Sequence[tuple[Any, OSError]]) -> OSError:
    """One error that names each address with its reason."""
    if len(failures) == 1:
        return failures[0][1]
    if not failures:
        return OSError("the name has no address")
    errnos = {exc.errno for _, exc in failures}
    text = "; ".join(f"{address[0]} port {address[1]}: {exc.strerror or exc}" for address, exc in failures)
    return OSError(errnos.pop() if len(errnos) == 1 else None, text)
