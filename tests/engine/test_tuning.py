"""Socket options, quick acknowledgements and the cap on reads: that they reach the kernel, and what is refused."""

from __future__ import annotations

import errno
import socket
import sys
from contextlib import suppress

import pytest
from support import certificates, frames
from support.frames import text
from support.listeners import Recorder
from support.pair import pair
from support.servers import Peer, serve, websockets_echo

from wsfast import Tuning, WSMsgType, connect, ws_connect

SO_BUSY_POLL = 46
linux = pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")


def option(transport, level: int, name: int) -> int:
    value: int = transport.underlying_transport.get_extra_info("socket").getsockopt(level, name)
    return value


async def finish(transport) -> None:
    transport.disconnect()
    await transport.wait_disconnected()


async def both_faces(url: str, **options):
    """A transport of each."""
    transport, _ = await ws_connect(Recorder, url, **options)
    ws = await connect(url, **options)
    return transport, ws.protocol


async def test_nagle_is_off_and_options_are_set():
    rows = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 33)]
    async with websockets_echo() as url:
        for transport in await both_faces(url, tuning=Tuning(sockopts=rows)):
            assert option(transport, socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert option(transport, socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert option(transport, socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 33
            await finish(transport)


async def test_options_are_set_before_the_socket_is_bound_and_connected():
    """Two sockets may have one local address only if both said so before they were bound."""
    shared = [(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)]
    async with websockets_echo() as one, websockets_echo() as other:
        first, _ = await ws_connect(
            Recorder, one, local_addr=("127.0.0.1", 0), tuning=Tuning(sockopts=shared)
        )
        address = first.underlying_transport.get_extra_info("sockname")
        with pytest.raises(OSError, match="in use") as caught:
            await ws_connect(Recorder, other, local_addr=address)
        assert caught.value.errno == errno.EADDRINUSE
        for transport in (
            first,
            (await ws_connect(Recorder, other, local_addr=address, tuning=Tuning(sockopts=shared)))[0],
        ):
            assert transport.underlying_transport.get_extra_info("sockname") == address
            await finish(transport)


@pytest.mark.parametrize("connected", [False, True])
async def test_options_are_set_on_the_user_s_own_socket(connected):
    calls = []

    class Noting(socket.socket):
        def setsockopt(self, *args):
            calls.append((args, self.connected()))
            return super().setsockopt(*args)

        def connected(self):
            try:
                return bool(self.getpeername())
            except OSError:
                return False

    def make(uri):
        sock = Noting()
        if connected:
            sock.connect((uri.host, uri.port))
        return sock

    wanted = (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    async with websockets_echo() as url:
        transport, _ = await ws_connect(Recorder, url, socket_factory=make, tuning=Tuning(sockopts=[wanted]))
        assert calls[0] == (wanted, connected)
        await finish(transport)


async def test_an_option_that_the_kernel_refuses_is_named():
    async with serve(Peer.read_request) as server:
        with pytest.raises(OSError, match=r"setsockopt\(6, 12345, 7\)") as caught:
            await ws_connect(Recorder, server.url, tuning=Tuning(sockopts=[(6, 12345, 7)]))
        assert caught.value.errno == errno.ENOPROTOOPT


@pytest.mark.parametrize(
    "sockopts", [[(1, 2)], [[1, 2, 3]], [("SOL_SOCKET", 2, 3)], [(1, 2, "3")], [(1, 2, None)], [5]]
)
def test_what_is_no_option_is_refused(sockopts):
    with pytest.raises(TypeError, match="sockopts must be tuples"):
        Tuning(sockopts=sockopts)


class Unprivileged(socket.socket):
    """May not ask for more polling than the administrator has allowed."""

    def setsockopt(self, level, name, value):
        if (level, name) == (socket.SOL_SOCKET, SO_BUSY_POLL):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return super().setsockopt(level, name, value)


@linux
async def test_so_busy_poll_is_set_or_its_refusal_is_explained():
    async with websockets_echo() as url:
        with suppress(PermissionError):  # who may not is told so, as below
            transport, _ = await ws_connect(Recorder, url, tuning=Tuning(so_busy_poll=50))
            assert option(transport, socket.SOL_SOCKET, SO_BUSY_POLL) == 50
            await finish(transport)
        with pytest.raises(PermissionError, match=r"so_busy_poll=50: .*CAP_NET_ADMIN.*not permitted"):
            await ws_connect(
                Recorder, url, tuning=Tuning(so_busy_poll=50), socket_factory=lambda uri: Unprivileged()
            )


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"so_busy_poll": -1}, ValueError, "so_busy_poll must not be negative"),
        ({"max_read_size": 0}, ValueError, "max_read_size must be positive"),
        ({"max_read_size": -5}, ValueError, "max_read_size must be positive"),
        ({"ping_histogram": object()}, TypeError, "record_value"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        Tuning(**options)


@linux
@pytest.mark.parametrize("tls", certificates.WAYS.values(), ids=certificates.WAYS)
async def test_quickack_is_rearmed_after_every_read(tls):
    """The kernel turns it off when it sees questions and answers, which may each carry the acknowledgement."""
    context = certificates.server_context() if tls else None
    client = tls and tls()
    seen = {}
    async with websockets_echo(context) as url:
        for quickack in (False, True):
            transport, listener = await ws_connect(
                Recorder, url, ssl_context=client, tuning=Tuning(quickack=quickack)
            )
            for number in range(20):
                transport.send(WSMsgType.TEXT, "a")
                await listener.received(number + 1)
            seen[quickack] = option(transport, socket.IPPROTO_TCP, socket.TCP_QUICKACK)
            await finish(transport)
    assert seen == {False: 0, True: 1}


@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_no_read_takes_more_than_it_may(use_aiofastnet):
    async with pair(tuning=Tuning(max_read_size=100), use_aiofastnet=use_aiofastnet) as (
        transport,
        listener,
        far,
    ):
        sent = [frames.pattern(size, size) for size in (10, 90, 98, 99, 250, 1000, 0, 70_000)]
        before = transport.stats
        await far.send(b"".join(map(frames.binary, sent)))
        await listener.received(len(sent))
        assert listener.payloads == sent
        after = transport.stats
        assert (after.bytes_received - before.bytes_received) / (after.reads - before.reads) <= 100


async def test_one_byte_at_a_time_is_enough_for_everything():
    async with pair(tuning=Tuning(max_read_size=1)) as (_, listener, far):
        await far.send(text("abc") + frames.frame(frames.PING, b"p") + frames.close(1000))
        await listener.received(2)
        assert listener.payloads[0] == b"abc"
        assert [sent.opcode for sent in await far.frames(2)] == [frames.PONG, frames.CLOSE]


@pytest.mark.parametrize("settings", [certificates.client_context, certificates.client_settings])
async def test_over_tls_the_cap_holds_too(settings):
    async with websockets_echo(certificates.server_context()) as url:
        client = settings()
        transport, listener = await ws_connect(
            Recorder, url, ssl_context=client, tuning=Tuning(max_read_size=50)
        )
        transport.send(WSMsgType.BINARY, frames.pattern(2000))
        await listener.received(1)
        assert listener.payloads == [frames.pattern(2000)]
        assert transport.stats.reads >= 40
        await finish(transport)
