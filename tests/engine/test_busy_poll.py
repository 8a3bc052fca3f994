"""busy_poll: nothing sleeps within the window, nothing is burnt after it, and nobody else has to wait."""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
import threading
import time
from contextlib import AsyncExitStack, suppress

import pytest
import uvloop
from support import certificates, frames
from support.frames import CLOSE, text
from support.listeners import Recorder, Scripted
from support.pair import pair
from support.servers import serve, websockets_echo

from wsfast import Tuning, WSMsgType, connect, ws_connect

# polling.pyx: how often a turn reads in vain, and how many connections are read directly.
ATTEMPTS, DIRECT = 16, 4


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def cpu_seconds_of(seconds: float) -> float:
    """The processor time of the process while this task sleeps."""
    start = time.process_time()
    await asyncio.sleep(seconds)
    return time.process_time() - start


async def stays_awake(happens) -> bool:
    """The process burns more than a thirtieth of the time that follows an event, which `happens()` waits for. On a busy
    machine it may get less than that, but not each time."""
    for _ in range(20):
        await happens()
        if await cpu_seconds_of(0.03) > 0.001:
            return True
    return False


async def polled(transport, listener, far) -> bool:
    """The far end says something from another thread, at any time, again and again until a direct look found it; what
    arrives while the loop asks the kernel is the loop's. Without the delay a busy machine would let it arrive before
    this task awaits, and so always just before the loop asks."""
    hits = transport.stats.poll_hits
    for number in range(len(listener.frames) + 1, 5000):
        thread = threading.Timer(random.random() * 1e-3, far.sock.send, [text("a")])
        thread.start()
        await listener.received(number)
        thread.join()
        if transport.stats.poll_hits > hits:
            return True
    return False


@pytest.mark.parametrize("busy_poll", [-1, -0.001, math.nan, -math.inf])
def test_a_window_that_makes_no_sense_is_refused(busy_poll):
    with pytest.raises(ValueError, match="busy_poll must not be negative"):
        Tuning(busy_poll=busy_poll)


@pytest.mark.parametrize("busy_poll", [0.2, math.inf])
async def test_what_arrives_is_read_without_being_announced(busy_poll):
    async with pair(tuning=Tuning(busy_poll=busy_poll)) as (transport, listener, far):
        for _ in range(10):
            assert await polled(transport, listener, far)
        assert listener.payloads == [b"a"] * len(listener.frames)
        assert transport.stats.reads == 1 + len(listener.frames)


async def test_nothing_is_polled_unless_asked_for():
    async with pair() as (transport, listener, far):
        far.sock.send(text("a"))
        await listener.received(1)
        await turns(50)
        assert transport.stats.poll_hits == transport.stats.poll_misses == 0


@pytest.mark.parametrize("tls", certificates.WAYS.values(), ids=certificates.WAYS)
async def test_the_loop_stays_awake_within_the_window_and_sleeps_after_it(tls):
    context = certificates.server_context() if tls else None
    client = tls and tls()
    async with websockets_echo(context) as url:
        transport, listener = await ws_connect(
            Recorder, url, ssl_context=client, tuning=Tuning(busy_poll=0.1)
        )

        async def answer():
            transport.send(WSMsgType.TEXT, "a")
            await listener.received(len(listener.frames) + 1)

        assert await stays_awake(answer)
        await asyncio.sleep(0.1)
        misses = transport.stats.poll_misses
        asleep = await cpu_seconds_of(0.3)
        assert transport.stats.poll_misses == misses
        assert (misses > 0) == (tls is not certificates.client_context)  # which the loop reads
        assert asleep < 0.015
        transport.disconnect()
        await transport.wait_disconnected()


async def test_the_loop_sleeps_when_the_last_connection_that_polls_for_ever_is_gone():
    async with (
        pair(tuning=Tuning(busy_poll=math.inf)) as (staying, _, _),
        pair(tuning=Tuning(busy_poll=math.inf)) as (going, _, _),
    ):
        going.abort()
        await going.wait_disconnected()
        misses = staying.stats.poll_misses
        await turns(3)
        assert staying.stats.poll_misses > misses
        staying.abort()
        await staying.wait_disconnected()
        assert await cpu_seconds_of(0.3) < 0.03


async def test_a_connection_that_goes_takes_its_window_along():
    async with (
        pair(tuning=Tuning(busy_poll=0.001)) as (staying, _, far),
        pair(tuning=Tuning(busy_poll=math.inf)) as (going, _, _),
    ):
        far.sock.send(text("a"))
        await asyncio.sleep(0.01)
        assert staying.stats.frames_received == 1
        going.abort()
        await going.wait_disconnected()
        assert await cpu_seconds_of(0.3) < 0.03


@pytest.mark.parametrize("awaken", ["send", "receive"])
async def test_an_event_opens_the_window_again(awaken):
    async with pair(tuning=Tuning(busy_poll=0.02)) as (transport, listener, far):
        await asyncio.sleep(0.05)
        misses = transport.stats.poll_misses
        await asyncio.sleep(0.05)
        assert transport.stats.poll_misses == misses
        for number in range(1, 100):  # on a busy machine the window may be over before a turn
            if awaken == "send":
                transport.send(WSMsgType.TEXT, "question")
            else:
                far.sock.send(text("news"))
                await listener.received(number)
            await turns(3)
            if transport.stats.poll_misses > misses:
                break
        assert transport.stats.poll_misses > misses
        assert await polled(transport, listener, far)


async def test_a_turn_is_short_and_leaves_the_loop_to_others():
    async with pair(tuning=Tuning(busy_poll=math.inf)) as (transport, _, _):
        await turns(3)
        misses = transport.stats.poll_misses
        fired = asyncio.Event()
        asyncio.get_running_loop().call_later(0.001, fired.set)
        await turns(100)
        done = transport.stats.poll_misses - misses
        assert 90 * ATTEMPTS <= done <= 110 * ATTEMPTS
        await fired.wait()


async def test_of_many_connections_a_few_are_read_directly_and_all_are_served():
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(pair(tuning=Tuning(busy_poll=math.inf))) for _ in range(30)]
        await turns(5)
        before = [transport.stats.poll_misses for transport, _, _ in opened]
        await turns(50)
        misses = [t.stats.poll_misses - earlier for (t, _, _), earlier in zip(opened, before)]
        assert sum(misses) <= ATTEMPTS * 55
        assert len([number for number in misses if number]) == DIRECT
        for _, _, far in opened:
            far.sock.send(text("a"))
        for transport, listener, _ in opened:
            await listener.received(1)
            assert transport.stats.reads == 2
        # The connection that had the last event is read directly.
        hot, listener, far = opened[7]
        far.sock.send(text("b"))
        await listener.received(2)
        assert await polled(hot, listener, far)


async def test_two_connections_are_read_by_turns():
    async with (
        pair(tuning=Tuning(busy_poll=math.inf)) as (one, _, _),
        pair(tuning=Tuning(busy_poll=math.inf)) as (other, _, _),
    ):
        await turns(3)
        before = one.stats.poll_misses, other.stats.poll_misses
        await turns(20)
        assert one.stats.poll_misses - before[0] == other.stats.poll_misses - before[1] >= 18 * ATTEMPTS / 2


async def test_nothing_is_read_while_reading_is_paused():
    async with pair(tuning=Tuning(busy_poll=math.inf)) as (transport, listener, far):
        await turns(3)
        transport.underlying_transport.pause_reading()
        far.sock.send(text("a"))
        await turns(20)
        assert listener.frames == []
        transport.underlying_transport.resume_reading()
        await listener.received(1)
        assert await polled(transport, listener, far)


async def test_a_callback_may_drop_another_connection_that_is_polled():
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(pair(tuning=Tuning(busy_poll=math.inf))) for _ in range(3)]
        listener = Scripted(on_ws_frame=lambda self, t, frame: [other.abort() for other, _, _ in others])
        _, _, far = await stack.enter_async_context(pair(listener, tuning=Tuning(busy_poll=math.inf)))
        for _, _, other in others:
            other.sock.send(text("too late or not"))
        far.sock.send(text("drop"))
        await listener.received(1)
        for transport, other, _ in others:
            await transport.wait_disconnected()
            assert other.events[-1] == "disconnected"
        far.sock.send(text("still polled"))
        await listener.received(2)


@pytest.mark.parametrize("how", ["abort", "disconnect"])
async def test_a_callback_may_end_its_own_connection(how):
    listener = Scripted(on_ws_frame=lambda self, transport, frame: getattr(transport, how)())
    async with pair(listener, tuning=Tuning(busy_poll=math.inf)) as (transport, _, far):
        far.sock.send(text("go"))
        await listener.received(1)
        far.sock.send(frames.close(1000))
        far.sock.close()
        await transport.wait_disconnected()
        assert listener.events == ["connected", "frame", "disconnected"]


async def test_an_exception_in_a_callback_ends_its_connection_and_polling_goes_on():
    def explode(self, transport, frame):
        raise LookupError("mine")

    async with (
        pair(Scripted(on_ws_frame=explode), tuning=Tuning(busy_poll=math.inf)) as (failing, _, far),
        pair(tuning=Tuning(busy_poll=math.inf)) as (transport, listener, other),
    ):
        far.sock.send(text("a"))
        assert (await far.frames(1))[0].opcode == CLOSE
        far.sock.close()
        with pytest.raises(LookupError, match="mine"):
            await failing.wait_disconnected()
        assert await polled(transport, listener, other)


@pytest.mark.parametrize("reset", [False, True])
async def test_the_end_of_the_stream_is_noticed(reset):
    async def end(peer):
        await peer.accept()
        if reset:
            await peer.frame()
            peer.reset()

    async with serve(end) as server:
        transport, _ = await ws_connect(Recorder, server.url, tuning=Tuning(busy_poll=math.inf))
        if reset:
            transport.send(WSMsgType.TEXT, "a")
        await transport.wait_disconnected()
        assert transport.close_info.code == 1006
    assert await cpu_seconds_of(0.2) < 0.02


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_an_interrupt_in_a_callback_leaves_the_loop_and_polling_goes_on(new_loop):
    def interrupt(self, transport, frame):
        raise KeyboardInterrupt

    async def until_interrupted():
        connection = pair(Scripted(on_ws_frame=interrupt), tuning=Tuning(busy_poll=math.inf))
        _, _, far = await connection.__aenter__()
        staying = pair(tuning=Tuning(busy_poll=math.inf))
        opened.extend([connection, staying, *await staying.__aenter__()])
        far.sock.send(text("a"))
        await asyncio.get_running_loop().create_future()

    async def after():
        task.cancel()
        connection, staying, *rest = opened
        assert await polled(*rest)
        with suppress(KeyboardInterrupt):  # what has ended the connection
            await connection.__aexit__(None, None, None)
        await staying.__aexit__(None, None, None)

    opened = []
    loop = new_loop()
    task = loop.create_task(until_interrupted())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    loop.run_until_complete(after())
    loop.close()


async def test_callbacks_run_in_the_context_of_the_opening_as_they_do_without():
    color = contextvars.ContextVar("color", default="none")
    seen = []
    for busy_poll in (0, math.inf):
        listener = Scripted(on_ws_frame=lambda self, transport, frame: seen.append(color.get()))
        color.set("red")
        async with pair(listener, tuning=Tuning(busy_poll=busy_poll)) as (_, _, far):
            color.set("blue")
            far.sock.send(text("a"))
            await listener.received(1)
    assert seen == ["red", "red"]


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("tls", [None, certificates.client_settings], ids=["plain", "rustls"])
async def test_on_ws_disconnected_runs_in_the_context_of_the_opening_too(tls, end):
    async def handler(peer):
        await peer.accept()
        await go.wait()
        if end == "reset":
            peer.reset()

    color = contextvars.ContextVar("color", default="none")
    seen = []
    for busy_poll in (0, math.inf):
        go = asyncio.Event()
        listener = Scripted(on_ws_disconnected=lambda self, transport: seen.append(color.get()))
        context = certificates.server_context() if tls else None
        color.set("red")
        async with serve(handler, ssl_context=context) as server:
            options = {"ssl_context": tls and tls(), "tuning": Tuning(busy_poll=busy_poll)}
            transport, _ = await ws_connect(lambda listener=listener: listener, server.url, **options)
            color.set("blue")
            go.set()
            await transport.wait_disconnected()
    assert seen == ["red", "red"]


async def test_the_loop_s_own_transports_are_kept_awake_too():
    async with pair(tuning=Tuning(busy_poll=0.05), use_aiofastnet=False) as (_, listener, far):

        async def news():
            far.sock.send(text("a"))
            await listener.received(len(listener.frames) + 1)

        assert await stays_awake(news)
        await asyncio.sleep(0.08)
        assert await cpu_seconds_of(0.3) < 0.015


@pytest.mark.parametrize("tls", certificates.WAYS.values(), ids=certificates.WAYS)
async def test_the_awaitable_client_polls_too(tls):
    context = certificates.server_context() if tls else None
    options = {"ssl": tls()} if tls else {}
    async with websockets_echo(context) as url, connect(url, tuning=Tuning(busy_poll=0.05), **options) as ws:
        for number in range(10):
            await ws.send(f"{number}")
            assert await ws.recv() == f"{number}"
        stats = ws.protocol.stats
        assert stats.frames_received == 10
        assert (stats.poll_misses > 0) == (tls is not certificates.client_context)
        await asyncio.sleep(0.1)
        assert await cpu_seconds_of(0.2) < 0.02
