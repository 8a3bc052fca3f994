"""Sockets of the program. Those that it leaves to be connected go where a connection without them would go. `sock=`
stays the caller's after a refused argument; once connecting has begun, it is the connection's."""

from __future__ import annotations

import asyncio
import select
import signal
import socket

import pytest
from support import proxies
from support.faces import FACES
from support.servers import echo, serve

from opening.test_redirecting import Site, arrive
from wsfast import AddressCache, Network, Tuning
from wsfast._opening import redirects
from wsfast._opening.net.blocking import BlockingNet, Deadline, run
from wsfast._opening.net.sockets import connect_to_first
from wsfast.exceptions import InvalidStatus, SecurityError

faces = pytest.mark.parametrize("face", FACES)

NAME = "exchange.test"


def by(face, sock):
    return {"socket_factory": lambda _: sock} if face == "listener" else {"sock": sock}


@faces
async def test_an_unconnected_socket(face):
    async with serve(Site()) as server:
        sock = socket.socket()
        await arrive(face, server.url, **by(face, sock))
        assert sock.fileno() == -1


@faces
async def test_host_and_port(face):
    async with serve(Site()) as server:
        where = {"host": "127.0.0.1", "port": server.port}
        await arrive(face, f"ws://{NAME}/", **where, **by(face, socket.socket()))


@faces
async def test_resolver_and_address_cache(face):
    cache = AddressCache()
    async with serve(Site()) as server:
        where = {"network": Network(resolver=lambda host, port: ["127.0.0.1"], address_cache=cache)}
        await arrive(face, f"ws://{NAME}:{server.port}/", **where, **by(face, socket.socket()))
    assert [info[4] for info in cache.recall(NAME, server.port)] == [("127.0.0.1", server.port)]


@faces
async def test_a_refusal(face):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        sock = socket.socket()
        with pytest.raises(ConnectionRefusedError):
            await arrive(face, f"ws://127.0.0.1:{taken.getsockname()[1]}/", **by(face, sock))
        assert sock.fileno() == -1


@faces
async def test_local_addr(face):
    seen = []

    async def note(peer):
        seen.append(peer.writer.get_extra_info("peername")[0])
        await Site()(peer)

    async with serve(note) as server:
        await arrive(face, server.url, local_addr=("127.0.0.3", 0), **by(face, socket.socket()))
    assert seen == ["127.0.0.3"]


async def test_a_public_server_leads_it_into_no_private_network(monkeypatch):
    """Before it is connected there."""
    monkeypatch.setattr(redirects, "is_public", lambda host: host in ("127.0.0.2", NAME))
    public = Site()
    made = []

    def factory(_):
        made.append(socket.socket())
        return made[-1]

    where = {"network": Network(resolver=lambda host, port: ["127.0.0.1"]), "socket_factory": factory}
    with socket.create_server(("127.0.0.1", 0)) as private:
        public.to = {"/": f"ws://{NAME}:{private.getsockname()[1]}/end"}
        async with serve(public, host="127.0.0.2") as server:
            with pytest.raises(SecurityError, match="public server to 127.0.0.1, which is private"):
                await arrive("listener", server.url, **where)
        assert not select.select([private], [], [], 0)[0]
    assert [sock.fileno() for sock in made] == [-1, -1]


async def test_to_a_proxy():
    async with serve(Site()) as server:
        with proxies.http() as served:
            await arrive("listener", server.url, proxy=served.url, **by("listener", socket.socket()))
        assert served.asked == [f"127.0.0.1:{server.port}"]


@pytest.mark.parametrize("face", ["listener", "awaitable"])
async def test_an_address_of_another_family_than_the_one_asked_for(face):
    async with serve(Site()) as server:
        for family in socket.AF_INET6, socket.AF_UNIX:
            with pytest.raises(OSError, match="family|Address"):
                await arrive(face, server.url, family=family)
        await arrive(face, server.url, family=socket.AF_INET)


# While the blocking client waits for a connection, a signal may come just before it sleeps. So no sleep is long.


class _Poll:
    """select.poll, and a signal that comes just before the second sleep."""

    def __init__(self, sleeps):
        self.sleeps = sleeps

    def register(self, *_):
        pass

    def poll(self, milliseconds=None):
        self.sleeps.append(milliseconds)
        if len(self.sleeps) == 2:
            signal.raise_signal(signal.SIGINT)
        return []


def test_no_sleep_is_long(monkeypatch):
    sleeps = []
    monkeypatch.setattr(select, "poll", lambda: _Poll(sleeps))
    infos = socket.getaddrinfo("127.0.0.1", 1, type=socket.SOCK_STREAM)
    with pytest.raises(KeyboardInterrupt):
        run(connect_to_first(BlockingNet(Deadline(None)), infos))
    assert len(sleeps) == 2
    assert all(milliseconds <= 250 for milliseconds in sleeps)


FACES_WITH_SOCK = pytest.mark.parametrize("face", ["awaitable", "blocking"])


async def refused(face, sock, error, **options):
    with pytest.raises(error):
        async with FACES[face]("ws://elsewhere/", sock=sock, **options):
            pass


@FACES_WITH_SOCK
@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ValueError, {"max_size": -1}),
        (TypeError, {"nonsense": 1}),
        (TypeError, {"tuning": 1}),
        (ValueError, {"subprotocols": ["a b"]}),
    ],
)
async def test_an_argument_that_is_refused_leaves_the_socket_to_the_caller(face, error, options):
    async with serve(echo) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            await refused(face, sock, error, **options)
            assert sock.fileno() >= 0
            async with FACES[face]("ws://elsewhere/", sock=sock) as client:
                await client.send("x")
                assert await client.recv() == "x"


@FACES_WITH_SOCK
async def test_a_socket_whose_option_the_kernel_refuses_is_closed(face):
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as sock,
    ):
        await refused(face, sock, OSError, tuning=Tuning(sockopts=[(socket.SOL_SOCKET, 9999, 1)]))
        assert sock.fileno() == -1


@FACES_WITH_SOCK
async def test_a_socket_whose_server_refuses_is_closed(face):
    async def refuse(peer):
        await peer.read_request()
        peer.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with serve(refuse) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            await refused(face, sock, InvalidStatus)
            for _ in range(3):  # iterations, in which the transport closes it
                await asyncio.sleep(0)
            assert sock.fileno() == -1
