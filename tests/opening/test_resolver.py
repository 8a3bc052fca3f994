"""Look-ups by a resolver of the user's, and from memory."""

import asyncio
import socket
import threading
from copy import copy

import pytest
from support.faces import FACES
from support.servers import echo, serve

from wsfast import Network
from wsfast._opening import redirects
from wsfast._opening.net.blocking import BlockingNet, Deadline, DeadlinePassed, run
from wsfast._opening.net.loop import LoopNet
from wsfast._opening.net.resolver import AddressCache, resolve
from wsfast.exceptions import SecurityError

HOST, PORT = "exchange.test", 443
DOWN = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def blocking(host=HOST, port=PORT, family=0, resolver=None, cache=None, seconds=None):
    network = BlockingNet(Deadline(seconds))
    return run(resolve(network, host, port, family, look_up=(resolver, cache)))


def awaiting(host=HOST, port=PORT, family=0, resolver=None, cache=None):
    async def look_up():
        network = LoopNet(asyncio.get_running_loop())
        return await resolve(network, host, port, family, look_up=(resolver, cache))

    return asyncio.run(look_up())


faces = pytest.mark.parametrize("face", [blocking, awaiting])


def answers(*addresses):
    def resolver(host, port):
        assert (host, port) == (HOST, PORT)
        return addresses

    return resolver


def fails(exc):
    def resolver(host, port):
        raise copy(exc)  # else the constant would keep the frames it passed, and the connections in them

    return resolver


def addresses(infos):
    return [info[4][0] for info in infos]


@faces
def test_resolver(face):
    infos = face(resolver=answers("10.0.0.1", "fd00::1", "fe80::1%1"))
    assert infos[0] == (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("10.0.0.1", PORT))
    assert [(info[0], info[4][1]) for info in infos[1:]] == 2 * [(socket.AF_INET6, PORT)]
    assert infos[2][4][3] == 1


@faces
def test_one_address(face):
    assert addresses(face(resolver=lambda host, port: "10.0.0.1")) == ["10.0.0.1"]


@faces
def test_family(face):
    resolver = answers("10.0.0.1", "fd00::1")
    assert addresses(face(resolver=resolver, family=socket.AF_INET6)) == ["fd00::1"]
    assert addresses(face(resolver=resolver, family=socket.AF_INET)) == ["10.0.0.1"]


def test_a_resolver_that_is_awaited():
    async def resolver(host, port):
        await asyncio.sleep(0)
        return ["10.0.0.1"]

    assert addresses(awaiting(resolver=resolver)) == ["10.0.0.1"]
    with pytest.raises(TypeError, match="resolver"):
        blocking(resolver=resolver)


@faces
@pytest.mark.parametrize("found", [[], ["exchange.test"], ["10.0.0.1", "10.0.0.256"]])
def test_no_addresses(face, found):
    with pytest.raises(socket.gaierror, match="resolver"):
        face(resolver=answers(*found))


@faces
@pytest.mark.parametrize("found", [None, [b"10.0.0.1"], [("10.0.0.1", 443)]])
def test_wrong_types(face, found):
    with pytest.raises(TypeError):
        face(resolver=lambda host, port: found)


@faces
def test_its_errors_are_raised(face):
    with pytest.raises(ZeroDivisionError):
        face(resolver=fails(ZeroDivisionError()))
    with pytest.raises(OSError, match="Temporary"):
        face(resolver=fails(DOWN), cache=AddressCache())


@faces
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_is_its_own(face, host):
    assert addresses(face(host, resolver=fails(ZeroDivisionError()))) == [host]


@faces
def test_without_a_resolver(face):
    assert "127.0.0.1" in addresses(face("localhost"))


# Memory.


def filled(*found, connected=None):
    cache = AddressCache(patience=0.05)
    infos = blocking(resolver=answers(*found))
    cache.remember(HOST, PORT, infos, connected)
    return cache


@faces
@pytest.mark.parametrize("exc", [DOWN, socket.gaierror(socket.EAI_FAIL, ""), OSError(), TimeoutError()])
def test_dns_is_down(face, exc):
    cache = filled("10.0.0.1", "10.0.0.2", connected=("10.0.0.2", PORT))
    assert addresses(face(resolver=fails(exc), cache=cache)) == ["10.0.0.2", "10.0.0.1"]


@faces
def test_there_is_no_such_name(face):
    with pytest.raises(socket.gaierror):
        face(resolver=fails(UNKNOWN), cache=filled("10.0.0.1"))


@faces
def test_it_is_not_asked_while_dns_works(face):
    assert addresses(face(resolver=answers("10.9.9.9"), cache=filled("10.0.0.1"))) == ["10.9.9.9"]


@faces
def test_it_knows_names_and_ports(face):
    with pytest.raises(OSError, match="Temporary"):
        face(port=444, resolver=fails(DOWN), cache=filled("10.0.0.1"))
    with pytest.raises(OSError, match="Temporary"):
        face(resolver=fails(DOWN), cache=filled("10.0.0.1"), family=socket.AF_INET6)


def test_dns_says_nothing():
    """There is something to fall back to, so it does not take the whole deadline."""

    async def resolver(host, port):
        await asyncio.Event().wait()

    assert addresses(awaiting(resolver=resolver, cache=filled("10.0.0.1"))) == ["10.0.0.1"]


def test_a_look_up_that_takes_longer_than_the_patience_or_the_deadline(monkeypatch):
    over, real = threading.Event(), socket.getaddrinfo

    def getaddrinfo(host, port, family, kind, proto, flags):
        if flags & socket.AI_NUMERICHOST:
            return real(host, port, family, kind, proto, flags)
        over.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    before = set(threading.enumerate())
    try:
        assert addresses(blocking(cache=filled("10.0.0.1"))) == ["10.0.0.1"]
        with pytest.raises(DeadlinePassed):
            blocking(cache=AddressCache(), seconds=0.01)
    finally:
        over.set()
        for thread in set(threading.enumerate()) - before:
            thread.join()


def test_its_size():
    cache = AddressCache(size=2)
    infos = blocking("127.0.0.1")
    for name in "a", "b", "a", "c":
        cache.remember(name, 1, infos)
    assert [bool(cache.recall(name, 1)) for name in "abc"] == [True, False, True]
    cache.remember("a", 1, [])
    assert cache.recall("a", 1)
    cache.clear()
    assert not cache.recall("a", 1)


@pytest.mark.parametrize("options", [{"patience": 0}, {"patience": -1}, {"size": 0}])
def test_wrong_arguments(options):
    with pytest.raises(ValueError, match="positive"):
        AddressCache(**options)


# ---- every face


every = pytest.mark.parametrize("face", FACES)


async def arrive(face, url, **options):
    async with FACES[face](url, **options) as client:
        await client.send("hello")
        assert await client.recv() == "hello"


@every
async def test_a_resolver_of_the_users(face):
    asked = []

    def resolver(host, port):
        asked.append((host, port))
        return ["127.0.0.1"]

    async with serve(echo) as server:
        await arrive(face, f"ws://{HOST}:{server.port}/", network=Network(resolver=resolver))
        assert asked == [(HOST, server.port)]


@pytest.mark.parametrize("face", ["listener", "awaitable"])
async def test_a_resolver_that_every_face_awaits(face):
    async def resolver(host, port):
        await asyncio.sleep(0)
        return ["127.0.0.1"]

    async with serve(echo) as server:
        await arrive(face, f"ws://{HOST}:{server.port}/", network=Network(resolver=resolver))


@every
async def test_what_a_resolver_raises_is_raised(face):
    def resolver(host, port):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await arrive(face, f"ws://{HOST}/", network=Network(resolver=resolver))


@every
async def test_the_cache_knows_where_the_last_connection_went(face):
    cache = AddressCache()
    results = iter([["127.0.0.9", "127.0.0.1"], None, None])

    def resolver(host, port):
        found = next(results)
        return fails(DOWN)(host, port) if found is None else found

    async with serve(echo) as server:
        url = f"ws://{HOST}:{server.port}/"
        await arrive(face, url, network=Network(resolver=resolver, address_cache=cache))
        assert addresses(cache.recall(HOST, server.port)) == ["127.0.0.1", "127.0.0.9"]
        await arrive(face, url, network=Network(resolver=resolver, address_cache=cache))
        with pytest.raises(socket.gaierror):
            await arrive(face, url, network=Network(resolver=resolver))


@every
async def test_a_redirect_does_not_get_around_the_rules_by_a_cache(face, monkeypatch):
    """Remembered addresses are judged like those just looked up."""
    monkeypatch.setattr(redirects, "is_public", lambda host: host in ("127.0.0.2", HOST))

    async def redirect(peer):
        await peer.read_request()
        peer.send(f"HTTP/1.1 302 Go\r\nLocation: ws://{HOST}/\r\nContent-Length: 0\r\n\r\n".encode())

    cache = AddressCache()
    cache.remember(HOST, 80, blocking("127.0.0.1", 80))
    async with serve(redirect, host="127.0.0.2") as server:
        with pytest.raises(SecurityError, match="127.0.0.1, which is private"):
            await arrive(face, server.url, network=Network(resolver=fails(DOWN), address_cache=cache))
