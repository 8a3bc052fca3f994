"""Pings that wsfast sends by itself: when, what counts as an answer, and what happens without one; round-trip times."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from contextlib import suppress

import pytest
from support import frames
from support.frames import CLOSE, PING, PONG, TEXT, Sent, frame, text
from support.listeners import Recorder, Scripted
from support.pair import pair
from support.servers import Peer, echo, serve

from wsfast import (
    ConnectionClosed,
    KeepaliveTimeout,
    WSAutoPingStrategy,
    WSListener,
    WSMsgType,
    ws_connect,
)

WHEN_IDLE, PERIODICALLY = WSAutoPingStrategy.PING_WHEN_IDLE, WSAutoPingStrategy.PING_PERIODICALLY
strategies = pytest.mark.parametrize("strategy", [WHEN_IDLE, PERIODICALLY], ids=["when idle", "periodically"])


def pinging(idle: float, reply: float | None = None, strategy: WSAutoPingStrategy = WHEN_IDLE) -> dict:
    return {
        "enable_auto_ping": True,
        "auto_ping_idle_timeout": idle,
        "auto_ping_reply_timeout": idle if reply is None else reply,
        "auto_ping_strategy": strategy,
    }


async def finish(transport) -> None:
    transport.disconnect()
    await transport.wait_disconnected()


async def until_close(peer: Peer) -> list[Sent]:
    """All frames up to CLOSE, or the end. A server that went on reading would have disconnect() wait for it."""
    got: list[Sent] = []
    with suppress(EOFError, ConnectionError):
        while not got or got[-1].opcode != CLOSE:
            got.append(await peer.frame())
    return got


async def mute(peer: Peer) -> list[Sent]:
    """Answers no ping; tells what came."""
    await peer.accept()
    return await until_close(peer)


@strategies
async def test_a_server_that_answers_keeps_the_connection(strategy):
    async def handler(peer: Peer) -> list[Sent]:
        await peer.accept()
        pings = []
        for _ in range(3):
            pings.append(await peer.frame())
            peer.send(frame(PONG, pings[-1].payload))
        peer.send(text("done"))
        await peer.frames_until_close()
        return pings

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(0.01, strategy=strategy))
        await listener.until(lambda: b"done" in listener.payloads)
        assert listener.payloads == [b"done"], "the answers to wsfast's pings are not delivered"
        await finish(transport)
        pings = await server.result()
        assert {ping.opcode for ping in pings} == {PING}
        assert len({ping.payload for ping in pings}) == 3, "a PONG can be told from an older one"


@strategies
async def test_a_server_that_answers_nothing_ends_the_connection_and_the_waiter(strategy):
    async with serve(mute) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(0.02, 0.01, strategy))
        with pytest.raises(KeepaliveTimeout) as info:
            await transport.wait_disconnected()
        assert isinstance(info.value, TimeoutError)
        assert transport.close_info == ("local", 1011, "keepalive ping timeout", info.value)
        assert listener.events == ["connected", "disconnected"]
        got = await server.result()
        assert [sent.opcode for sent in got] == [PING, CLOSE]
        assert frames.parse_close(got[-1].payload) == (1011, "keepalive ping timeout")


async def test_without_enable_auto_ping_none_is_sent():
    options = {**pinging(0.001), "enable_auto_ping": False}
    async with serve(mute) as server:
        transport, _ = await ws_connect(Recorder, server.url, **options)
        await asyncio.sleep(0.02)
        await finish(transport)
        assert [sent.opcode for sent in await server.result()] == [CLOSE]


# Answers of a server to each of four pings; the last is a long frame that never becomes complete.
SIGNS = {
    "messages": [text("x")] * 4,
    "pings": [frame(PING, b"?")] * 4,
    "foreign pongs": [frame(PONG, b"foreign")] * 4,
    "single bytes of a header": [b"\x82", b"\x7f", b"\x00", b"\x00"],
    "single bytes of a payload": [frames.header(2, 100) + b"x", b"x", b"x", b"x"],
}


@pytest.mark.parametrize("signs", SIGNS.values(), ids=SIGNS)
async def test_any_byte_is_a_sign_of_life(signs):
    """Also a part of a frame: a large one may take long (aiohttp #12030)."""

    async def handler(peer: Peer) -> None:
        await peer.accept()
        for sign in signs:
            while (await peer.frame()).opcode != PING:
                pass
            peer.send(sign)
        while (await peer.frame()).opcode != PING:
            pass
        done.set()
        await peer.rest()

    done = asyncio.Event()
    async with serve(handler) as server:
        transport, _ = await ws_connect(Recorder, server.url, **pinging(0.02))
        await done.wait()
        assert not transport.is_close_frame_sent
        transport.abort()


async def test_a_large_slow_frame_does_not_time_out():
    async def handler(peer: Peer) -> None:
        await peer.accept()
        data = frames.binary(frames.pattern(300_000))
        for at in range(0, len(data), 10_000):
            peer.send(data[at : at + 10_000])
            await asyncio.sleep(0.004)
        await peer.rest()

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(0.03, 0.02, PERIODICALLY))
        assert (await listener.received(1))[0].payload == frames.pattern(300_000)
        assert not transport.is_close_frame_sent
        transport.abort()


async def test_a_busy_connection_is_not_pinged_when_only_idle_ones_are():
    async def handler(peer: Peer) -> list[Sent]:
        await peer.accept()
        for _ in range(30):
            peer.send(text("x"))
            await asyncio.sleep(0.005)
        peer.send(text("end"))
        return await until_close(peer)

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(0.1))
        await listener.until(lambda: b"end" in listener.payloads)
        await finish(transport)
        assert [sent.opcode for sent in await server.result()] == [CLOSE]


async def test_a_busy_connection_is_pinged_periodically_all_the_same():
    async def handler(peer: Peer) -> list[Sent]:
        await peer.accept()

        async def chatter() -> None:
            while True:
                peer.send(text("x"))
                await asyncio.sleep(0.002)

        task = asyncio.ensure_future(chatter())
        got = [await peer.frame() for _ in range(3)]
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        peer.send(text("end"))
        await peer.frames_until_close()
        return got

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(0.02, strategy=PERIODICALLY))
        await listener.until(lambda: b"end" in listener.payloads)
        await finish(transport)
        assert {sent.opcode for sent in await server.result()} == {PING}


async def test_a_foreign_pong_is_delivered():
    async def handler(peer: Peer) -> None:
        await peer.accept()
        ping = await peer.frame()
        peer.send(
            frame(PONG, b"foreign") + frame(PONG) + frame(PONG, ping.payload) + frame(PONG, ping.payload)
        )
        await until_close(peer)

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(0.05))
        await listener.received(3)
        assert listener.payloads[:2] == [b"foreign", b""]
        assert len(listener.payloads[2]) == 8, "a second answer to one ping is a foreign one"
        await finish(transport)


async def test_a_ping_of_the_listener_s_own_gets_its_pong_delivered():
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(10))
        transport.send_ping(b"mine")
        await listener.received(1)
        assert listener.frames[0].msg_type is WSMsgType.PONG
        assert listener.payloads == [b"mine"]
        await finish(transport)


# Pings of the application's own kind


class AppPing(Recorder):
    """Text messages "ping" and "pong"."""

    def __init__(self) -> None:
        super().__init__()
        self.pings = 0
        self.asked: list[bytes] = []

    def send_user_specific_ping(self, transport) -> None:
        transport.send(WSMsgType.TEXT, "ping")
        self.pings += 1
        self.note("ping")

    def is_user_specific_pong(self, frame) -> bool:
        self.asked.append(bytes(frame))
        return frame.msg_type is WSMsgType.TEXT and bytes(frame) == b"pong"


async def app_server(peer: Peer) -> list[Sent]:
    await peer.accept()
    got = []
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            got.append(await peer.frame())
            if got[-1] == Sent(TEXT, b"ping"):
                peer.send(text("pong"))
            if got[-1].opcode == CLOSE:
                break
    return got


@strategies
async def test_an_application_s_own_ping_and_pong_keep_the_connection(strategy):
    async with serve(app_server) as server:
        transport, listener = await ws_connect(AppPing, server.url, **pinging(0.01, strategy=strategy))
        await listener.until(lambda: listener.pings == 3)
        await finish(transport)
        assert listener.payloads == [], "the answers are not delivered"
        assert PING not in [sent.opcode for sent in await server.result()]


async def test_an_application_s_own_ping_without_an_answer_ends_the_connection():
    async with serve(mute) as server:
        transport, listener = await ws_connect(AppPing, server.url, **pinging(0.02, 0.01))
        with pytest.raises(KeepaliveTimeout):
            await transport.wait_disconnected()
        assert listener.pings == 1
        assert [sent.opcode for sent in await server.result()] == [TEXT, CLOSE]


async def test_the_answer_may_be_told_from_outside():
    """notify_user_specific_pong_received(): only the application's decoding can tell what is an answer."""

    class Notifying(AppPing):
        def is_user_specific_pong(self, frame) -> bool:
            return False

        def on_ws_frame(self, transport, frame) -> None:
            super().on_ws_frame(transport, frame)
            if bytes(frame) == b"pong":
                transport.notify_user_specific_pong_received()

    async with serve(app_server) as server:
        transport, listener = await ws_connect(Notifying, server.url)
        times = await transport.measure_roundtrip_time(3)
        assert len(times) == 3
        assert all(time > 0 for time in times)
        transport.notify_user_specific_pong_received()  # nobody waits: nothing happens
        assert listener.payloads == [b"pong"] * 3
        await finish(transport)


@pytest.mark.parametrize("method", ["send_user_specific_ping", "is_user_specific_pong"])
async def test_an_exception_of_the_application_s_ping_or_pong_ends_the_connection(method):
    class Failing(AppPing):
        pass

    def fail(self, *args):
        raise LookupError("mine")

    setattr(Failing, method, fail)
    async with serve(app_server) as server:
        transport, listener = await ws_connect(Failing, server.url, **pinging(0.01))
        with pytest.raises(LookupError, match="mine"):
            await transport.wait_disconnected()
        assert transport.close_info.code == 1011
        assert listener.events[-1] == "disconnected"


async def test_an_application_s_ping_that_closes_the_connection_is_no_error():
    class Closing(AppPing):
        def send_user_specific_ping(self, transport) -> None:
            transport.disconnect()

    async with serve(app_server) as server:
        transport, _ = await ws_connect(Closing, server.url, **pinging(0.01))
        await transport.wait_disconnected()
        assert transport.close_info[:3] == ("local", 1000, "")


async def test_an_application_s_ping_that_closes_and_raises_leaves_no_exception_behind():
    class Failing(AppPing):
        def send_user_specific_ping(self, transport) -> None:
            transport.disconnect()
            raise LookupError("mine")

    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    async with serve(app_server) as server:
        transport, _ = await ws_connect(Failing, server.url)
        with pytest.raises(LookupError, match="mine"):
            await transport.measure_roundtrip_time(1)
        await transport.wait_disconnected()
    gc.collect()
    assert not reported


# The end of keepalive


async def test_no_ping_follows_a_close_frame():
    async with serve(mute) as server:
        transport, _ = await ws_connect(Recorder, server.url, close_timeout=0.05, **pinging(0.01))
        transport.send_close(1000)
        await transport.wait_disconnected()
        assert [sent.opcode for sent in await server.result()] == [CLOSE]
        assert transport.close_info.code == 1000


async def test_timers_end_with_the_connection():
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(0.01))
        transport.abort()
        with suppress(ConnectionClosed):  # on a slow machine a PONG is late before that
            await transport.wait_disconnected()
        events = list(listener.events)
        await asyncio.sleep(0.03)
        assert listener.events == events


async def test_keepalive_survives_a_garbage_collection():
    """aiohttp #8641: a ping task that nobody refers to is collected."""
    async with serve(mute) as server:
        transport, _ = await ws_connect(Recorder, server.url, **pinging(0.02, 0.01))
        gc.collect()
        with pytest.raises(KeepaliveTimeout):
            await transport.wait_disconnected()


@strategies
async def test_a_program_that_blocks_its_loop_is_not_the_server_s_fault(strategy):
    """The PONG is there, and the timer is due before it is read."""
    async with pair(**pinging(0.3, strategy=strategy)) as (transport, _, far):
        ping = (await far.frames(1))[0]
        assert ping.opcode == PING
        await far.send_and_block(frame(PONG, ping.payload), 0.4)
        again = (await far.frames(1))[0]
        assert again.opcode == PING
        assert not transport.is_disconnected


async def test_a_program_that_pauses_reading_is_not_told_that_the_server_is_silent():
    async with pair(**pinging(0.01)) as (transport, listener, far):
        transport.underlying_transport.pause_reading()
        pings = await far.frames(3)
        assert {ping.opcode for ping in pings} == {PING}
        await far.send(text("here") + frame(PONG, pings[-1].payload))
        transport.underlying_transport.resume_reading()
        await listener.until(lambda: listener.payloads == [b"here"])


async def test_a_time_out_ends_a_connection_whose_socket_is_blocked():
    async def handler(peer: Peer) -> None:
        await peer.accept()
        peer.writer.transport.pause_reading()
        await over.wait()

    over = asyncio.Event()
    async with serve(handler) as server:
        transport, _ = await ws_connect(Recorder, server.url, close_timeout=0.02, **pinging(0.02, 0.01))
        for _ in range(100):
            transport.send(WSMsgType.BINARY, bytes(100_000))
        with pytest.raises(KeepaliveTimeout):
            await transport.wait_disconnected()
        over.set()


async def test_pings_that_a_talkative_server_never_answers_are_forgotten():
    """Any byte keeps the connection, so the list of unanswered pings must not grow with its age."""

    async def handler(peer: Peer) -> None:
        await peer.accept()
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                await peer.frame()
                peer.send(text("x"))

    async with serve(handler) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(60, strategy=PERIODICALLY))
        [keepalive] = [
            each
            for each in gc.get_objects()
            if type(each).__name__ == "Keepalive" and each._transport is transport
        ]
        for pings in range(1, 41):
            keepalive._watch.stop()
            keepalive._idle()  # as if its time had come
            await listener.received(pings)
        assert len(keepalive._pings) < 10
        del keepalive
        transport.abort()
        await transport.wait_disconnected()


# Round-trip times


async def test_roundtrip_times_are_measured_with_pings_of_their_own():
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url)
        times = await transport.measure_roundtrip_time(5)
        assert len(times) == 5
        assert all(0 < time < 5 for time in times)
        assert listener.frames == []
        assert await transport.measure_roundtrip_time(0) == []
        await finish(transport)


async def test_two_measurements_at_once_do_not_take_each_other_s_answers():
    async with serve(echo) as server:
        transport, listener = await ws_connect(Recorder, server.url, **pinging(0.005))
        results = await asyncio.gather(*[transport.measure_roundtrip_time(10) for _ in range(3)])
        assert [len(times) for times in results] == [10, 10, 10]
        assert listener.frames == []
        await finish(transport)


async def measuring(server, **options):
    transport, listener = await ws_connect(Recorder, server.url, **options)
    tasks = [asyncio.ensure_future(transport.measure_roundtrip_time(2)) for _ in range(2)]
    for _ in range(3):
        await asyncio.sleep(0)
    return transport, listener, tasks


@pytest.mark.parametrize("end", ["disconnect", "abort"])
async def test_measurements_end_with_the_connection(end):
    async with serve(mute) as server:
        transport, _, tasks = await measuring(server)
        getattr(transport, end)()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, ConnectionClosed)
        with pytest.raises(ConnectionClosed):
            await transport.measure_roundtrip_time(1)


async def test_measurements_that_the_server_ends_tell_its_code():
    async def handler(peer: Peer) -> None:
        await peer.accept()
        await peer.frame()
        peer.send(frames.close(1012, "restart"))
        await peer.frames_until_close()

    async with serve(handler) as server:
        transport, _, tasks = await measuring(server)
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, ConnectionClosed)
            assert (result.code, result.reason) == (1012, "restart")
        await transport.wait_disconnected()


async def test_a_cancelled_measurement_lets_the_next_one_begin_and_is_not_taken_for_it():
    async def handler(peer: Peer) -> None:
        await peer.accept()
        await cancelled.wait()
        while (sent := await peer.frame()).opcode == PING:
            peer.send(frame(PONG, sent.payload))
        peer.send(frames.close(1000))

    cancelled = asyncio.Event()
    async with serve(handler) as server:
        transport, _, tasks = await measuring(server)
        for task in tasks:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        cancelled.set()
        assert len(await transport.measure_roundtrip_time(2)) == 2
        await finish(transport)


async def test_the_defaults_of_the_application_s_hooks_are_ping_and_pong():
    seen = []

    def note(self, transport, frame):
        seen.append(WSListener.is_user_specific_pong(self, frame))
        if not frame.payload_size:
            WSListener.send_user_specific_ping(self, transport)

    async def handler(peer: Peer) -> Sent:
        await peer.accept(glued=frame(PONG) + text("x"))
        sent = await peer.frame()
        await peer.answer_close()
        return sent

    async with serve(handler) as server:
        transport, listener = await ws_connect(lambda: Scripted(on_ws_frame=note), server.url)
        await listener.received(2)
        assert seen == [True, False]
        await finish(transport)
        assert await server.result() == Sent(PING, b"")
