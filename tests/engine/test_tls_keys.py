"""A key of TLS 1.2 that is worn out: no record may be sent with it, and everybody is told.

That takes 2^24 records, and rustls has no option for the limit, so the test lowers it where rustls keeps it: in the
block of the session, to which the stream points. If a new rustls keeps it elsewhere, wear_out() fails, or the client
sends on and the test fails: it cannot pass by mistake. Whether rustls counts is for its own tests and for those of the
crate.
"""

import ctypes
import gc
import itertools
import ssl
from pathlib import Path

import pytest
from support import certificates, frames
from support.servers import serve
from support.tls_peer import TLSPeer

import wsfast
from wsfast import ConnectionClosed, ConnectionClosedError, Tuning, WSListener, WSMsgType, ws_connect
from wsfast._engine.sockets.tls_transport import TLSSession
from wsfast._rust import _native

pytestmark = pytest.mark.memory

LIMIT = 1 << 24
FEW = 40
OF_HEADER = 3 * ctypes.sizeof(
    ctypes.c_void_p
)  # a reference count, a type, Cython's table; then the crate's pointer


def words(address):
    """The numbers in a block of the C library's, which may be set."""
    libc = ctypes.CDLL(None)
    libc.malloc_usable_size.restype = ctypes.c_size_t
    size = libc.malloc_usable_size(ctypes.c_void_p(address))
    return (ctypes.c_uint64 * (size // 8)).from_address(address)


def areas(*names):
    """The memory of files with these names, or of none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, _, _, _, _, *path = line.split()
        if (path[0].split("/")[-1] if path else "") in names:
            yield range(*(int(end, 16) for end in area.split("-")))


def wear_out(transport):
    """Let the connection send no more than FEW records."""
    [session] = [part for part in gc.get_referents(transport) if isinstance(part, TLSSession)]
    stream = words(ctypes.c_void_p.from_address(id(session) + OF_HEADER).value)
    heap, library = list(areas("", "[heap]")), list(areas(Path(_native.__file__).name))
    # A pointer to a `dyn Session` is followed by one to its table of methods. Behind the stream's last field the block
    # may end in old bytes, so the first pair counts.
    block = next(
        words(one)
        for one, table in itertools.pairwise(stream)
        if any(one in area for area in heap) and any(table in area for area in library)
    )
    places = [place for place, number in enumerate(block) if number == LIMIT]
    assert len(places) == 1, "rustls keeps its limit of records elsewhere now: look for it"
    block[places[0]] = FEW


async def read_all(peer):
    """The number of frames, and the end of TLS at the client's side."""
    context = certificates.server_context.__wrapped__()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    server = TLSPeer(peer, context)
    await server.accept()
    parser = frames.Parser()
    count = 0
    while data := await server.read():
        count += sum(frame.opcode == frames.TEXT for frame in parser.feed(data))
    server.send(server.end())
    return count


async def listener(url):
    transport, _ = await ws_connect(WSListener, url, ssl_context=certificates.client_settings())
    wear_out(transport.underlying_transport)
    sent = 0
    with pytest.raises(ConnectionClosed):  # noqa: PT012 - after how many is the question
        for _ in range(10 * FEW):
            transport.send(WSMsgType.TEXT, "x")
            sent += 1
    await transport.wait_disconnected()
    return sent - 1, transport.close_info.cause


async def awaitable(url):
    async with wsfast.connect(
        url, ssl=certificates.client_settings(), tuning=Tuning(write_policy="immediate")
    ) as ws:
        wear_out(ws.transport)
        sent = 0
        with pytest.raises(ConnectionClosedError) as told:  # noqa: PT012 - likewise
            for _ in range(10 * FEW):
                await ws.send("x")
                sent += 1
        with pytest.raises(ConnectionClosedError):
            await ws.recv()
        return sent - 1, told.value.__cause__


@pytest.mark.parametrize("face", [listener, awaitable])
async def test_a_worn_out_key_ends_the_connection(face):
    """All that send() took before is received, and then close_notify."""
    async with serve(read_all) as served:
        sent, cause = await face(served.url.replace("ws:", "wss:"))
        assert FEW - 5 < sent <= FEW
        assert await served.result() == sent
    assert type(cause) is ssl.SSLError
    assert "no more records can be sent with this key" in str(cause)
