"""Connecting without an event loop: names, addresses, and what ends the wait for them."""

import contextlib
import errno
import functools
import inspect
import os
import signal
import socket
import threading

import pytest

from wsfast._opening.net import addresses, blocking
from wsfast._opening.net.blocking import Deadline
from wsfast._opening.route import Route, Routing
from wsfast._opening.uri import parse_uri
from wsfast.sync.client import connect

REAL = socket.getaddrinfo


def resolving(monkeypatch, *found, names=("exchange.test",)):
    """Have the names resolve to these pairs of address and port."""

    def getaddrinfo(host, port, family=0, type=0, proto=0, flags=0):
        if host not in names:
            return REAL(host, port, family, type, proto, flags)
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        return [info for ip, its in found for info in REAL(ip, its, family, type, proto)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def route(url="ws://exchange.test/", **arguments):
    return Route(Routing(parse_uri(url), None, None, **arguments))


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def refusing():
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()


@pytest.fixture
def deaf():
    """An address that does not answer: its queue of connections is full."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()


def test_the_first_that_answers(server, refusing, monkeypatch):
    resolving(monkeypatch, refusing, refusing, server.getsockname())
    with blocking.connect(route(), Deadline(5)) as sock:
        assert sock.getpeername() == server.getsockname()
        assert sock.gettimeout() is None


def test_an_address_that_does_not_answer_holds_nobody_up(server, deaf, monkeypatch):
    resolving(monkeypatch, deaf, server.getsockname())
    with blocking.connect(route(), Deadline(10), happy_eyeballs_delay=0.02) as sock:
        assert sock.getpeername() == server.getsockname()


def test_one_after_the_other(server, deaf, refusing, monkeypatch):
    resolving(monkeypatch, refusing, server.getsockname())
    with blocking.connect(route(), Deadline(10), happy_eyeballs_delay=None) as sock:
        assert sock.getpeername() == server.getsockname()
    resolving(monkeypatch, deaf, server.getsockname())
    with pytest.raises(TimeoutError, match="TCP connection"):
        blocking.connect(route(), Deadline(0.1), happy_eyeballs_delay=None)


def test_families_take_turns():
    infos = [(family, 1, 6, "", (str(i), 1)) for i, family in enumerate([10, 10, 10, 2, 2])]
    assert [info[4][0] for info in blocking._by_turns(infos)] == ["0", "3", "1", "4", "2"]


def test_the_error_names_each_address(refusing, monkeypatch):
    resolving(monkeypatch, refusing, ("127.0.0.2", refusing[1]))
    with pytest.raises(OSError, match="127.0.0.1 port .*: Connection refused; 127.0.0.2 port") as caught:
        blocking.connect(route(), Deadline(5))
    assert caught.value.errno == errno.ECONNREFUSED


def test_the_deadline_while_nobody_answers(deaf, monkeypatch):
    resolving(monkeypatch, deaf)
    text = f"the TCP connection to exchange.test \\(127.0.0.1 port {deaf[1]}\\) took too long: open_timeout is 0.1"
    with pytest.raises(TimeoutError, match=text):
        blocking.connect(route(), Deadline(0.1))


def test_a_source_address(server):
    where = route(f"ws://127.0.0.1:{server.getsockname()[1]}/")
    with blocking.connect(where, Deadline(5), local_addr=("127.0.0.2", 0)) as sock:
        assert sock.getsockname()[0] == "127.0.0.2"


# ---- looking up


@pytest.fixture
def slow(monkeypatch):
    """A look-up that does not end before the test does."""
    over, begun, ended = threading.Event(), threading.Event(), threading.Event()

    def getaddrinfo(host, *args):
        if host != "exchange.test" or args[-1] == socket.AI_NUMERICHOST:
            return REAL(host, *args)
        begun.set()
        over.wait()
        ended.set()
        raise socket.gaierror(socket.EAI_AGAIN, "later")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    before = set(threading.enumerate())
    yield begun
    over.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()


def test_the_deadline_holds_for_looking_up(slow):
    with pytest.raises(
        TimeoutError, match="the look-up of exchange.test took too long: open_timeout is 0.05 s"
    ):
        connect("ws://exchange.test/", open_timeout=0.05)


def test_ctrl_c_while_looking_up(slow):
    def interrupt():
        slow.wait()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        connect("ws://exchange.test/", open_timeout=None)
    thread.join()


def test_ctrl_c_while_nobody_answers(deaf):
    handler = functools.partial(os.kill, os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.05, handler)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        connect(f"ws://127.0.0.1:{deaf[1]}/", open_timeout=None)
    timer.join()


def test_no_such_name():
    with pytest.raises(socket.gaierror):
        connect("ws://exchange.invalid/", open_timeout=15)


# ---- the same delay with a loop


def test_happy_eyeballs_are_on_by_default():
    assert inspect.signature(addresses.connect).parameters["happy_eyeballs_delay"].default == 0.25
    assert blocking.HAPPY_EYEBALLS_DELAY == 0.25
