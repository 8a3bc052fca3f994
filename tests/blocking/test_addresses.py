"""Names and addresses, by each network; and what ends the wait for them without an event loop."""

import asyncio
import contextlib
import errno
import functools
import inspect
import os
import signal
import socket
import threading

import pytest
import uvloop

from wsfast._opening.net import resolver, sockets
from wsfast._opening.net.addresses import HAPPY_EYEBALLS_DELAY
from wsfast._opening.net.blocking import Deadline, run
from wsfast._opening.net.loop import LoopNet
from wsfast._opening.reaching import reach, reach_blocking
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

    async def by_uvloop(network, host, port, family, proto, flags):
        """uvloop's own is in C, and calls no Python."""
        return getaddrinfo(host, port, family, socket.SOCK_STREAM, proto, flags)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(LoopNet, "getaddrinfo", by_uvloop)


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


def by_loop(new_loop, route, seconds, **options):
    async def reach_within():
        network = LoopNet(asyncio.get_running_loop())
        return await asyncio.wait_for(reach(network, route, None, options), seconds)

    loop = new_loop()
    try:
        sock = loop.run_until_complete(reach_within())
    except asyncio.TimeoutError:
        raise TimeoutError(route.phase_text()) from None
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    sock.setblocking(True)
    return sock


def by_blocking(route, seconds, **options):
    return reach_blocking(route, Deadline(seconds), **options)


NETWORKS = {
    "blocking": by_blocking,
    "asyncio": functools.partial(by_loop, asyncio.new_event_loop),
    "uvloop": functools.partial(by_loop, uvloop.new_event_loop),
}
networks = pytest.mark.parametrize("reaching", NETWORKS.values(), ids=NETWORKS)


@networks
def test_the_first_that_answers(reaching, server, refusing, monkeypatch):
    resolving(monkeypatch, refusing, refusing, server.getsockname())
    with reaching(route(), 5) as sock:
        assert sock.getpeername() == server.getsockname()
        assert sock.gettimeout() is None


@networks
def test_an_address_that_does_not_answer_holds_nobody_up(reaching, server, deaf, monkeypatch):
    resolving(monkeypatch, deaf, server.getsockname())
    with reaching(route(), 10, happy_eyeballs_delay=0.02) as sock:
        assert sock.getpeername() == server.getsockname()


@networks
def test_one_after_the_other(reaching, server, deaf, refusing, monkeypatch):
    resolving(monkeypatch, refusing, server.getsockname())
    with reaching(route(), 10, happy_eyeballs_delay=None) as sock:
        assert sock.getpeername() == server.getsockname()
    resolving(monkeypatch, deaf, server.getsockname())
    with pytest.raises(TimeoutError, match="TCP connection"):
        reaching(route(), 0.1, happy_eyeballs_delay=None)


@networks
def test_a_family_that_this_machine_has_not(reaching, server, monkeypatch):
    """Of addresses, and of sockets: the kernel refuses to make one."""
    infos = [
        (999, socket.SOCK_STREAM, 0, "", ("::1", 1)),
        *REAL(*server.getsockname(), type=socket.SOCK_STREAM),
    ]
    monkeypatch.setattr(resolver, "_numeric", lambda host, *_: infos if host == "exchange.test" else [])
    with reaching(route(), 5) as sock:
        assert sock.getpeername() == server.getsockname()


@pytest.mark.parametrize(("count", "order"), [(1, "03142"), (2, "01324")])
def test_families_take_turns(count, order):
    infos = [(family, 1, 6, "", (str(i), 1)) for i, family in enumerate([10, 10, 10, 2, 2])]
    assert "".join(info[4][0] for info in sockets._interleaved(infos, count)) == order


@networks
def test_the_error_names_each_address(reaching, refusing, monkeypatch):
    resolving(monkeypatch, refusing, ("127.0.0.2", refusing[1]))
    with pytest.raises(OSError, match="Connection refused: 127.0.0.1 port .*; .*: 127.0.0.2 port") as caught:
        reaching(route(), 5)
    assert caught.value.errno == errno.ECONNREFUSED


@networks
def test_a_name_without_an_address(reaching, monkeypatch):
    resolving(monkeypatch)
    with pytest.raises(OSError, match="the name has no address"):
        reaching(route(), 5)


@networks
def test_a_source_address(reaching, server, monkeypatch):
    """The first of those of the family that this machine has."""
    where = route(f"ws://127.0.0.1:{server.getsockname()[1]}/")
    with reaching(where, 5, local_addr=("127.0.0.2", 0)) as sock:
        assert sock.getsockname()[0] == "127.0.0.2"
    resolving(monkeypatch, ("::1", 0), ("203.0.113.1", 0), ("127.0.0.3", 0))
    with reaching(where, 5, local_addr=("exchange.test", 0)) as sock:
        assert sock.getsockname()[0] == "127.0.0.3"
    for address, text in (
        ("::1", "no address of the family"),
        ("203.0.113.1", "203.0.113.1 port 0: Cannot assign"),
    ):
        resolving(monkeypatch, (address, 0))
        with pytest.raises(OSError, match=text):
            reaching(where, 5, local_addr=("exchange.test", 0))


def test_the_deadline_while_nobody_answers(deaf, monkeypatch):
    resolving(monkeypatch, deaf)
    text = f"the TCP connection to exchange.test \\(127.0.0.1 port {deaf[1]}\\) took too long: open_timeout is 0.1"
    with pytest.raises(TimeoutError, match=text):
        by_blocking(route(), 0.1)


def test_a_blocking_opening_is_never_suspended():
    with pytest.raises(RuntimeError, match="suspended"):
        run(asyncio.sleep(0))


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
    delay = inspect.signature(sockets.connect_socket).parameters["happy_eyeballs_delay"].default
    assert delay == HAPPY_EYEBALLS_DELAY == 0.25
