"""What a hostile server, or a value from somewhere else, must not be able to do, whichever face is used."""

from __future__ import annotations

import itertools
import json
import os
import ssl
import subprocess
import sys

import pytest
import trustme
from support import frames
from support.certificates import WAYS, authority, client_context, self_signed_context, server_context
from support.faces import FACES
from support.frames import PING, PONG
from support.memory import resident
from support.servers import Peer, echo, serve

from wsfast import tls
from wsfast.exceptions import InvalidURI

on_asyncio = pytest.mark.asyncio(loop_factories=["asyncio"])
faces = pytest.mark.parametrize("face", FACES)


# Certificates are verified unless somebody says not to. (the server's context, the client's, what the error says)


UNTRUSTED = {
    "an authority that the system does not know": (
        server_context,
        lambda: None,
        "issuer|UnknownIssuer|signed",
    ),
    "another authority": (
        server_context,
        lambda: ssl.create_default_context(cadata=other_authority()),
        "issuer|UnknownIssuer|BadSignature|signature",
    ),
    "self-signed": (
        self_signed_context,
        client_context,
        "self-signed|self signed|CaUsedAsEndEntity|UnknownIssuer",
    ),
    "expired": (lambda: server_context(expired=True), client_context, "expired"),
    "not valid yet": (lambda: server_context(early=True), client_context, "not yet valid|not valid yet"),
    "another host": (lambda: server_context("other.example"), client_context, "mismatch|not valid for name"),
    "another address": (lambda: server_context("127.0.0.2"), client_context, "mismatch|not valid for name"),
}


# The rows that the defaults must refuse as well, although they trust the authority.
UNTRUSTED_BY_DEFAULT = [why for why, (_, client, _) in UNTRUSTED.items() if client is client_context]


def other_authority() -> str:
    return trustme.CA().cert_pem.bytes().decode()


@pytest.fixture
def system_authority(tmp_path, monkeypatch):
    """The tests' authority is the system's, and what was cached for who gives no context is forgotten."""
    authority().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    tls._context.cache_clear()
    yield
    tls._context.cache_clear()


async def is_refused(face: str, server: ssl.SSLContext, client: ssl.SSLContext | None, message: str) -> None:
    async def never(peer: Peer) -> None:
        assert not await peer.reader.read(1), "something was sent to a server that is not trusted"

    async with serve(never, ssl_context=server) as served:
        with pytest.raises(ssl.SSLCertVerificationError, match=message):
            async with FACES[face](served.url, context=client):
                raise AssertionError("it is open")


@on_asyncio
@faces
@pytest.mark.parametrize("why", UNTRUSTED)
async def test_a_server_that_cannot_be_trusted_is_refused(face, why):
    server, client, message = UNTRUSTED[why]
    await is_refused(face, server(), client(), message)


@on_asyncio
@faces
@pytest.mark.parametrize("why", UNTRUSTED_BY_DEFAULT)
async def test_it_is_refused_by_default(face, why, system_authority):
    server, _, message = UNTRUSTED[why]
    await is_refused(face, server(), None, message)


# What a server that knows no later version says to any offer: a record with its ServerHello (RFC 4346 section 7.4.1.3).
TLS_1_1 = (
    b"\x16\x03\x02\x00\x2a" + b"\x02\x00\x00\x26" + b"\x03\x02" + bytes(32) + b"\x00" + b"\xc0\x13" + b"\x00"
)


@on_asyncio
@faces
async def test_a_version_of_tls_that_is_too_old_is_refused(face):
    async def server(peer: Peer) -> None:
        assert await peer.reader.read(3) == b"\x16\x03\x01", "the record of a ClientHello"
        peer.send(TLS_1_1)
        while await peer.reader.read(1 << 16):
            pass

    async with serve(server) as served:
        with pytest.raises(ssl.SSLError, match="(?i)version|protocol|Tls12"):
            async with FACES[face](served.url.replace("ws:", "wss:"), context=client_context()):
                raise AssertionError("it is open")


@on_asyncio
@faces
@pytest.mark.parametrize("context", [client_context, lambda: None], ids=["its context", "the default"])
async def test_a_server_that_can_be_trusted_is_not(face, context, system_authority):
    async with serve(echo, ssl_context=server_context()) as served:
        async with FACES[face](served.url, context=context()) as client:
            await client.send("hello")
            assert await client.recv() == "hello"
            await client.close()


# What a program is given by others, and passes on, cannot add headers to the request or end it.

WEBSOCKETS = {
    "headers": "additional_headers",
    "subprotocols": "subprotocols",
    "user_agent": "user_agent_header",
    "origin": "origin",
}
OPTIONS = {
    "listener": {"headers": "extra_headers", "subprotocols": "subprotocols"},
    "awaitable": WEBSOCKETS,
    "blocking": WEBSOCKETS,
}
PLACES = {
    "a header's value": ("headers", lambda text: {"X-Token": text}),
    "a header's name": ("headers", lambda text: {text: "x"}),
    "Host": ("headers", lambda text: {"Host": text}),
    "Sec-WebSocket-Protocol": ("headers", lambda text: {"Sec-WebSocket-Protocol": text}),
    "Sec-WebSocket-Extensions": ("headers", lambda text: {"Sec-WebSocket-Extensions": text}),
    "a subprotocol": ("subprotocols", lambda text: [text]),
    "the origin": ("origin", lambda text: text),
    "the user agent": ("user_agent", lambda text: text),
}
URIS = {
    "the host": "ws://127.0.0.1{}:9/",
    "the path": "ws://127.0.0.1:9/a{}b",
    "the query": "ws://127.0.0.1:9/?a={}b",
    "the user": "ws://u{}ser:password@127.0.0.1:9/",
    "the password": "ws://user:pass{}word@127.0.0.1:9/",
    "the password, escaped": "ws://user:%0d%0apass{}word@127.0.0.1:9/",
}
injections = pytest.mark.parametrize(
    "text", ["\r\nX-Injected: 1", "\nX-Injected: 1", "\rX-Injected: 1", "\0", "\r\n\r\n"], ids=repr
)


@on_asyncio
@injections
@pytest.mark.parametrize(
    ("face", "place"),
    [(face, place) for face in FACES for place in PLACES if PLACES[place][0] in OPTIONS[face]],
)
async def test_no_argument_adds_headers(face, place, text):
    option, make = PLACES[place]
    options = {OPTIONS[face][option]: make("value" + text)}
    with pytest.raises(ValueError, match=r"control character|isn't a (token|header name)"):
        async with FACES[face]("ws://127.0.0.1:9/", **options):
            raise AssertionError("it is open")


@on_asyncio
@faces
@injections
@pytest.mark.parametrize("place", URIS)
async def test_no_uri_adds_headers(face, place, text):
    with pytest.raises(InvalidURI):
        async with FACES[face](URIS[place].format(text)):
            raise AssertionError("it is open")


# A server that floods makes this side neither hoard nor answer without bounds.


@on_asyncio
@faces
@pytest.mark.parametrize(
    ("opcode", "way"), [(PING, "plain"), (PONG, "plain"), (PING, "rustls"), (PING, "openssl")]
)
async def test_a_flood_of_control_frames_costs_no_memory_and_no_bandwidth(face, opcode, way):
    """The server reads nothing meanwhile, and 25 MB of frames call for as many answers."""
    flood = frames.frame(opcode, b"x" * 125) * 1000
    count, piece = 200, 10

    async def server(peer: Peer) -> int:
        await peer.accept(frames.text("begin"))
        peer.writer.transport.pause_reading()
        for number in range(count):
            peer.send(flood)
            await peer.writer.drain()
            if number % piece == piece - 1:
                peer.send(frames.text("a piece"))
        await peer.writer.drain()
        peer.writer.transport.resume_reading()
        answers = len(await peer.frames_until_close())
        peer.send(frames.close(1000))
        return answers

    make = WAYS[way]
    context = server_context() if make else None
    async with serve(server, receive_buffer=4096, ssl_context=context) as served:
        async with FACES[face](served.url, context=make and make()) as client:
            assert await client.recv() == "begin"
            sizes = []
            for _ in range(count // piece):
                assert await client.recv() == "a piece"
                sizes.append(resident())
            await client.close()
        answers = await served.result()
    # After the first quarter. The server is in this process too, and may grow it at once, but not with each piece.
    grown = sorted(after - before for before, after in itertools.pairwise(sizes[count // piece // 4 :]))
    assert sum(grown[:-3]) < 4 << 20
    # What the buffers of two sockets hold, and not one for each of 200,000.
    assert answers < 100_000


# Mask keys (RFC 6455 section 10.3: unpredictable to those who choose what is sent).

FRAMES = 1000


async def keys_of(face: str) -> list[bytes]:
    async def server(peer: Peer) -> list[bytes]:
        await peer.accept()
        for _ in range(FRAMES):
            await peer.frame()
        peer.send(frames.close(1000))
        await peer.frames_until_close()
        return peer._parser.keys

    async with serve(server) as served:
        async with FACES[face](served.url) as client:
            for _ in range(FRAMES):
                await client.send("a message that is always the same")
            await client.rest()
        return await served.result()


@on_asyncio
@faces
async def test_mask_keys_look_random(face):
    keys = await keys_of(face)
    assert len(keys) >= FRAMES
    # 1000 of 2^32 keys: two are the same once in 8600 runs, three times never.
    assert len(set(keys)) >= len(keys) - 2
    numbers = [int.from_bytes(key, "big") for key in keys]
    for bit in range(32):
        ones = sum(number >> bit & 1 for number in numbers)
        # Six standard deviations: once in 500 million for a bit.
        assert abs(ones - len(keys) / 2) < 6 * (len(keys) / 4) ** 0.5, f"bit {bit}"
    # No key tells the next: their differences are as different.
    assert len({(b - a) % 2**32 for a, b in itertools.pairwise(numbers)}) >= len(keys) - 3


FORKS = """
import asyncio, json, os, sys
sys.path[:0] = [os.path.dirname(sys.argv[1]), sys.argv[1]]
from test_security import keys_of
face = sys.argv[2]
first = asyncio.run(keys_of(face))
read, write = os.pipe()
children = [0, 0]
for n in range(2):
    children[n] = os.fork()
    if children[n] == 0:
        keys = asyncio.run(keys_of(face))
        os.write(write, json.dumps([key.hex() for key in keys[:200]]).encode() + b"\\n")
        os._exit(0)
rows = [[key.hex() for key in row[:200]] for row in (first, asyncio.run(keys_of(face)))]
for child in children:
    assert os.waitpid(child, 0)[1] == 0
os.close(write)
print(json.dumps(rows + [json.loads(line) for line in open(read)]))
"""


@pytest.mark.parametrize("face", FACES)
def test_mask_keys_differ_in_processes_and_forks(face):
    """A parent before and after it has forked, two children, and a process that knows nothing of them."""
    rows = []
    for _ in range(2):
        script = [sys.executable, "-c", FORKS, os.path.dirname(__file__), face]
        done = subprocess.run(script, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        rows += json.loads(done.stdout)
    keys = [key for row in rows for key in row]
    assert len(rows) == 8
    assert len(set(keys)) >= len(keys) - 2
