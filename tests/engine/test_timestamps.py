"""When a frame was received: by this process, and by the kernel."""

from __future__ import annotations

import asyncio
import math
import socket
import time

import pytest
from support import certificates
from support.frames import text
from support.listeners import Recorder, Scripted
from support.pair import pair
from support.servers import Peer, serve

from wsfast import Tuning, ws_connect


class Stamps(Recorder):
    """Keeps the frames themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = []

    def on_ws_frame(self, transport, frame) -> None:
        self.kept.append(frame)
        super().on_ws_frame(transport, frame)


async def test_there_are_none_unless_asked_for():
    async with pair(Stamps()) as (_, listener, far):
        await far.send(text("a"))
        await listener.received(1)
        assert listener.kept[0].recv_time_ns is None
        assert listener.kept[0].kernel_time_ns is None


@pytest.mark.parametrize("busy_poll", [0, math.inf])
@pytest.mark.parametrize("use_aiofastnet", [None, False])
async def test_a_frame_says_when_the_read_that_completed_it_returned(busy_poll, use_aiofastnet):
    options = {"tuning": Tuning(timestamps="user", busy_poll=busy_poll), "use_aiofastnet": use_aiofastnet}
    async with pair(Stamps(), **options) as (transport, listener, far):
        before = time.monotonic_ns()
        await far.send(text("a") + text("b") + text("c")[:2])
        await listener.received(2)
        between = time.monotonic_ns()
        await far.send(text("c")[2:])
        await listener.received(3)
        after = time.monotonic_ns()
        first, second, third = (frame.recv_time_ns for frame in listener.kept)
        assert before < first == second < between < third < after
        assert listener.kept[0].kernel_time_ns is None
        assert transport.last_received == pytest.approx(third / 1e9, abs=1e-6)


async def test_measuring_a_round_trip_does_not_turn_stamps_off():
    async with pair(Stamps(), tuning=Tuning(timestamps="user")) as (transport, listener, far):
        measuring = asyncio.ensure_future(transport.measure_roundtrip_time(1))
        await far.frames(1)
        measuring.cancel()
        await far.send(text("a"))
        await listener.received(1)
        assert listener.kept[0].recv_time_ns is not None


async def test_pings_by_the_clock_give_frames_no_stamp():
    async with pair(Stamps(), enable_auto_ping=True) as (transport, listener, far):
        await far.send(text("a"))
        await listener.received(1)
        assert transport.last_received > 0
        assert listener.kept[0].recv_time_ns is None


async def test_a_poll_inside_a_callback_stamps_each_read():
    def poll(self, transport, frame):
        stamps.append(frame.recv_time_ns)
        if len(stamps) == 1:
            far.sock.send(text("later"))
            while len(stamps) < 3:
                transport.poll(1)

    stamps = []
    async with pair(Scripted(on_ws_frame=poll), tuning=Tuning(timestamps="user")) as (_, listener, far):
        await far.send(text("a") + text("b"))
        await listener.received(3)
        assert stamps[0] == stamps[1] < stamps[2]


async def test_a_poll_that_sleeps_does_so_with_the_kernel_s_stamps():
    async def say_nothing(peer: Peer) -> None:
        await peer.accept()
        await peer.rest()

    async with serve(say_nothing) as server:
        transport, _ = await ws_connect(Recorder, server.url, tuning=Tuning(timestamps="kernel"))
        assert transport.poll(0.3, sleep=True) is False
        assert transport.stats.poll_misses <= 5
        transport.abort()
        await transport.wait_disconnected()


@pytest.mark.parametrize("busy_poll", [0, math.inf])
async def test_the_kernel_s_stamp_tells_how_long_the_bytes_waited(busy_poll):
    async def say_and_dawdle(peer: Peer) -> tuple[int, int]:
        await peer.accept()
        while (await peer.frame()).payload != b"now":
            peer.send(text("not yet"))
        before = time.monotonic_ns()
        peer.send(text("a"))
        after = time.monotonic_ns()
        time.sleep(0.03)  # noqa: ASYNC251 - the client shares this loop, and cannot read
        await peer.frame()
        return before, after

    async with serve(say_and_dawdle) as server:
        transport, listener = await ws_connect(
            Stamps, server.url, tuning=Tuning(timestamps="kernel", busy_poll=busy_poll)
        )
        while not listener.kept or listener.kept[-1].kernel_time_ns is None:  # it takes a while to begin
            transport.send_ping()
            await listener.received(len(listener.kept) + 1)
        transport.send_ping("now")
        await listener.received(len(listener.kept) + 1)
        frame = listener.kept[-1]
        transport.send_ping()
        before, after = await server.result()
        # The clocks are read one after the other, and the wall clock is being steered: not exact to the nanosecond.
        assert before - 50_000 < frame.kernel_time_ns < after + 1_000_000
        assert frame.recv_time_ns - frame.kernel_time_ns > 25_000_000
        transport.abort()
        await transport.wait_disconnected()


async def test_with_kernel_stamps_the_end_of_the_stream_and_errors_are_noticed_as_ever():
    async def end(peer: Peer) -> None:
        await peer.accept(text("a"))
        if (await peer.frame()).payload == b"reset":
            peer.reset()

    async with serve(end) as server:
        for payload, cause in (("end", EOFError), ("reset", ConnectionResetError)):
            transport, listener = await ws_connect(Recorder, server.url, tuning=Tuning(timestamps="kernel"))
            await listener.received(1)
            assert transport.poll(0) is False
            transport.send_ping(payload)
            await transport.wait_disconnected()
            assert type(transport.close_info.cause) is cause


@pytest.mark.parametrize("timestamps", ["hardware", True, 0])
def test_other_stamps_are_refused(timestamps):
    with pytest.raises(ValueError, match="timestamps must be"):
        Tuning(timestamps=timestamps)


async def test_the_kernel_cannot_stamp_tls():
    context = certificates.client_context()
    with pytest.raises(ValueError, match="plain TCP"):
        await ws_connect(
            Recorder, "wss://127.0.0.1:9/", ssl_context=context, tuning=Tuning(timestamps="kernel")
        )


@pytest.mark.parametrize("ours", [False, True])
async def test_the_kernel_s_stamps_need_a_tcp_socket_that_wsfast_reads(ours):
    unix, far = socket.socketpair()
    with far, socket.create_server(("127.0.0.1", 0)) as server:
        tcp = socket.create_connection(server.getsockname())
        with pytest.raises(ValueError, match="TCP socket"):
            await ws_connect(
                Recorder,
                "ws://localhost/",
                socket_factory=lambda uri: unix if ours else tcp,
                use_aiofastnet=ours,
                tuning=Tuning(timestamps="kernel"),
            )
        assert (unix if ours else tcp).fileno() == -1
        (tcp if ours else unix).close()
