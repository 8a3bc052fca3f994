"""What networks do to a connection, in each of its phases, with each face and real servers: nothing is lost or comes
twice, and what cannot be survived raises what says so.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from support import certificates
from support.certificates import WAYS
from support.faces import FACES, Client
from support.frames import pattern
from support.kinds import kind_of
from support.proxy import Proxy, proxy
from support.servers import PEERS

from wsfast import TLS
from wsfast.exceptions import InvalidMessage, KeepaliveTimeout

pytestmark = [pytest.mark.asyncio(loop_factories=["asyncio"]), pytest.mark.parametrize("face", FACES)]

secure = pytest.mark.parametrize("secure", WAYS.values(), ids=WAYS)
over_tls = pytest.mark.parametrize("secure", list(WAYS.values())[1:], ids=list(WAYS)[1:])


MESSAGES = ["", "a", "żółw 🐢", pattern(125), "x" * 126, pattern(70_000), b"", "last"]


@asynccontextmanager
async def before_server(
    peer: str = "websockets",
    *,
    secure: Callable[[], ssl.SSLContext | TLS] | None = None,
    **options: bool | int,
) -> AsyncIterator[tuple[Proxy, ssl.SSLContext | TLS | None]]:
    """A proxy before the peer's echo server, and the client's context."""
    context = certificates.server_context() if secure else None
    async with PEERS[peer](context) as url, proxy(url, **options) as between:
        yield between, secure() if secure else None


async def exchange(client: Client, messages: list[str | bytes] = MESSAGES) -> None:
    for message in messages:
        await client.send(message)
    for message in messages:
        assert await client.recv() == message


# What is survived.


@secure
@pytest.mark.parametrize(("piece", "peer"), [(1, "websockets"), (7, "picows"), (1460, "aiohttp")])
async def test_split(face, peer, secure, piece):
    messages = MESSAGES[:5] if piece == 1 else MESSAGES
    async with before_server(peer, secure=secure, piece=piece) as (between, context):
        async with FACES[face](between.url, context=context) as client:
            await exchange(client, messages)
            await client.close()


@secure
@pytest.mark.parametrize("peer", PEERS)
async def test_coalesced_and_delayed(face, peer, secure):
    """Everything that the server says comes at once, and late."""
    async with before_server(peer, secure=secure) as (between, context):
        async with FACES[face](between.url, context=context) as client:
            between.hold()
            for message in MESSAGES:
                await client.send(message)
            await between.arrived(sum(len(message) for message in MESSAGES))
            between.release()
            for message in MESSAGES:
                assert await client.recv() == message
            await client.close()


# What is not.

FAULTS = pytest.mark.parametrize("fault", ["reset", "half_close", "cut"])
STALLED = 0.5  # seconds until a test gives up what nothing moves any more


async def refused(face: str, between: Proxy, context: ssl.SSLContext | TLS | None) -> BaseException:
    """What connecting raises."""
    with pytest.raises((OSError, InvalidMessage)) as raised:
        async with FACES[face](between.url, context=context):
            raise AssertionError("it is open")
    return raised.value


async def test_nobody_listens(face):
    async with before_server() as (between, context):
        pass
    assert type(await refused(face, between, context)) is ConnectionRefusedError


@over_tls
@FAULTS
@pytest.mark.parametrize("count", [0, 1, 100])
async def test_in_the_tls_handshake(face, secure, fault, count):
    async with before_server(secure=secure, held=True) as (between, context):
        connecting = asyncio.ensure_future(refused(face, between, context))
        await between.arrived(count or 1)
        between.forward(count)
        getattr(between, fault)()
        exc = await connecting
    assert type(exc) is (ConnectionResetError if fault == "reset" else ssl.SSLEOFError)


@secure
@FAULTS
@pytest.mark.parametrize("count", [0, 1, 20])
async def test_in_the_reply_to_the_upgrade(face, secure, fault, count):
    async with before_server(secure=secure) as (between, context):
        between.hold_at_request()
        connecting = asyncio.ensure_future(refused(face, between, context))
        await between.arrived(count or 1)
        between.forward(count)
        getattr(between, fault)()
        exc = await connecting
    if fault == "reset":
        assert type(exc) is ConnectionResetError
    else:
        assert kind_of(exc) is InvalidMessage
        assert isinstance(exc.__cause__, EOFError)


@asynccontextmanager
async def ended(face, secure, fault, sent=None):
    """A connection and what is between it and the server: the fault that the body causes ends it, without a message."""
    async with before_server(secure=secure) as (between, context):
        async with FACES[face](between.url, context=context) as client:
            yield between, client
            messages, end = await client.rest()
    assert messages == []
    assert (end.received, end.sent, kind_of(end.cause)) == (None, sent, behind(face, fault))


@secure
@FAULTS
@pytest.mark.parametrize("count", [0, 1, 10])
async def test_in_a_frame(face, secure, fault, count):
    async with ended(face, secure, fault) as (between, client):
        await exchange(client)
        between.hold()
        await client.send("cut short")
        await between.arrived(len("cut short") + 2)
        between.forward(count)
        getattr(between, fault)()


@secure
@FAULTS
async def test_between_frames(face, secure, fault):
    """What arrived before is there."""
    async with ended(face, secure, fault) as (between, client):
        for message in MESSAGES:
            await client.send(message)
        assert [await client.recv() for _ in MESSAGES] == MESSAGES
        getattr(between, fault)()


@secure
@FAULTS
async def test_in_the_closing_handshake(face, secure, fault):
    async with ended(face, secure, fault, sent=1000) as (between, client):
        await exchange(client)
        between.hold()
        closing = asyncio.ensure_future(client.close())
        await between.arrived()
        getattr(between, fault)()
        await closing


def behind(face: str, fault: str) -> type:
    """The cause of the end, in every face."""
    return ConnectionResetError if fault == "reset" else EOFError


# A connection on which nothing moves any more is ended by the time-out of its phase.


@secure
async def test_stalled_before_the_reply(face, secure):
    async with before_server(secure=secure) as (between, context):
        between.hold_at_request()
        with pytest.raises(TimeoutError):
            async with FACES[face](between.url, context=context, open_timeout=STALLED):
                raise AssertionError("it is open")


@over_tls
async def test_stalled_in_the_tls_handshake(face, secure):
    async with before_server(secure=secure, held=True) as (between, context):
        with pytest.raises(TimeoutError):
            async with FACES[face](between.url, context=context, open_timeout=STALLED):
                raise AssertionError("it is open")


@secure
async def test_stalled_between_frames(face, secure):
    keepalive = (
        {"enable_auto_ping": True, "auto_ping_idle_timeout": STALLED, "auto_ping_reply_timeout": STALLED}
        if face == "listener"
        else {"ping_interval": STALLED, "ping_timeout": STALLED}
    )
    async with before_server(secure=secure) as (between, context):
        async with FACES[face](between.url, context=context, close_timeout=STALLED, **keepalive) as client:
            await exchange(client)
            between.hold()
            messages, end = await client.rest()
    assert messages == []
    assert (end.received, end.sent, kind_of(end.cause)) == (None, 1011, KeepaliveTimeout)


@secure
async def test_stalled_in_the_closing_handshake(face, secure):
    async with before_server(secure=secure) as (between, context):
        async with FACES[face](between.url, context=context, close_timeout=STALLED) as client:
            await exchange(client)
            between.hold()
            await client.close()
            messages, end = await client.rest()
    assert messages == []
    assert (end.received, end.sent, kind_of(end.cause)) == (None, 1000, TimeoutError)
