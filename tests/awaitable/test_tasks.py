"""What tasks, threads and event loops may do to recv() and send(), and to the objects that these return."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import weakref
from contextlib import suppress

import pytest
from support import frames
from support.awaiting import awaitable, beside, feed, finished_at_once, turns, woken, work
from support.frames import CLOSE, CONTINUATION, PING, PONG, TEXT, Sent, texts

from wsfast.asyncio._awaitable import Awaitable
from wsfast.asyncio._messaging import Messages, Receive, Send
from wsfast.asyncio.client import ClientConnection
from wsfast.exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedError, KeepaliveTimeout

# The task that waits in recv() runs inside the read, and may do anything there.


async def test_inside_the_read_everything_can_be_done():
    async with awaitable(close_timeout=0.05) as (ws, far):

        async def do():
            others = [await ws.recv(), await ws.recv()]
            await ws.send("sent")
            await ws.send_many(["a", "b"])
            await ws.ping(b"!")
            receiving = asyncio.ensure_future(ws.recv())
            await asyncio.sleep(0)
            await feed(ws, texts(4))
            return [*others, await receiving]

        assert await woken(ws, do) == ("1", ["2", "3", "4"])
        assert [sent.payload for sent in await far.frames(4)] == [b"sent", b"a", b"b", b"!"]


async def test_inside_the_read_the_connection_can_be_closed():
    async with awaitable(close_timeout=0.05) as (ws, far):
        assert await woken(ws, ws.close) == ("1", None)
        assert [await ws.recv(), await ws.recv()] == ["2", "3"]
        assert [sent.opcode for sent in await far.frames_until_eof()] == [CLOSE]


async def test_inside_the_read_the_task_may_cancel_itself_and_receive_later():
    async with awaitable() as (ws, _):

        async def do():
            asyncio.current_task().cancel()
            await ws.recv()

        with pytest.raises(asyncio.CancelledError):
            await woken(ws, do)
        # A task that is cancelled is so at its next wait; what was ready before is its own.
        assert await ws.recv() == "3"


async def test_inside_the_read_another_receiver_may_take_over():
    async with awaitable() as (ws, _):
        others = []

        async def do():
            others.append(asyncio.ensure_future(ws.recv()))

        await woken(ws, do)
        assert await others[0] == "2"
        assert await ws.recv() == "3"


@pytest.mark.parametrize("exception", [SystemExit, KeyboardInterrupt])
def test_inside_the_read_an_exit_leaves_the_event_loop(exception, loop):
    """As it leaves it from any other task."""

    async def main():
        async with awaitable() as (ws, _):

            async def receive():
                await ws.recv()
                raise exception("mine")

            receiving = asyncio.ensure_future(receive())
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(ws.protocol.data_received, texts(1, 2))
            with suppress(exception):
                await receiving

    with pytest.raises(exception, match="mine"):
        loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        task.cancel()
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)


async def test_a_task_whose_context_is_entered_is_woken_by_the_loop():
    """Two callbacks cannot be in one context at once."""
    async with awaitable() as (ws, _):
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        made = []
        context.run(lambda: made.append(asyncio.ensure_future(ws.recv())))
        shared = contextvars.Context()

        async def receive():
            return await ws.recv()

        if sys.version_info >= (3, 11):
            made[0].cancel()
            with suppress(asyncio.CancelledError):
                await made[0]
            made = [loop.create_task(receive(), context=shared)]
        await asyncio.sleep(0)
        loop.call_soon(shared.run, ws.protocol.data_received, texts(1))
        assert await made[0] == "1"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no eager tasks")
@pytest.mark.asyncio(loop_factories=["asyncio"])  # uvloop's create_task() does not pass the option on
async def test_eager_tasks():
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)
    async with awaitable() as (ws, far):
        assert await woken(ws, lambda: ws.send("x")) == ("1", None)
        eager = asyncio.ensure_future(ws.recv())
        assert eager.done()
        assert await eager == "2"
        assert await asyncio.gather(ws.recv()) == ["3"]
        waiting = asyncio.ensure_future(ws.recv())
        await feed(ws, texts(4))
        assert await waiting == "4"
        assert [sent.payload for sent in await far.frames(1)] == [b"x"]


async def test_tasks_written_in_python():
    """They are woken by the object that they wait for, and find out its loop."""
    async with awaitable() as (ws, far):

        async def answer():
            await ws.send(await ws.recv())
            return await ws.recv()

        task = asyncio.tasks._PyTask(answer(), loop=asyncio.get_running_loop())
        await asyncio.sleep(0)
        await feed(ws, texts(1) + texts(2))
        assert await task == "2"
        assert [sent.payload for sent in await far.frames(1)] == [b"1"]
        cancelled = asyncio.tasks._PyTask(answer(), loop=asyncio.get_running_loop())
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled


async def test_what_awaits_one_recv_twice_is_told_so():
    """As for a coroutine. The first one goes on waiting."""
    async with awaitable() as (ws, _):
        receiving = ws.recv()

        async def wait():
            return await receiving

        first = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="awaited already"):
            await wait()
        await feed(ws, texts(1))
        assert await first == "1"


async def test_a_receiver_that_was_thrown_away_while_it_waited_harms_no_later_one():
    async with awaitable(max_queue=None) as (ws, _):
        thrown_away = ws.recv()
        thrown_away.send(None)
        del thrown_away
        await feed(ws, texts(*range(3000)))
        assert [await ws.recv() for _ in range(3000)] == [str(number) for number in range(3000)]


async def test_cancelled_again_and_again():
    """The waiter is used again at once each time."""
    async with awaitable() as (ws, _):
        for number in range(20):
            receiving = [asyncio.ensure_future(ws.recv()) for _ in range(2)]
            await asyncio.sleep(0)
            receiving[0].cancel()
            later = asyncio.ensure_future(ws.recv())
            await asyncio.wait(receiving)
            assert isinstance(receiving[1].exception(), ConcurrencyError)
            await asyncio.sleep(0)
            await feed(ws, texts(number))
            assert (await ws.recv() if later.done() and later.exception() else await later) == str(number)


# The objects


async def test_objects_that_nobody_began_are_harmless():
    assert issubclass(Receive, Awaitable)
    async with awaitable() as (ws, _):
        for made in (Receive(), Send(), Receive.__new__(Receive)):
            with pytest.raises(RuntimeError, match="already awaited"):
                await made
            made.close()
        with pytest.raises(TypeError):
            Messages()
        with pytest.raises(TypeError):
            Messages(None)
        nothing = ClientConnection.__new__(ClientConnection)
        for pending in (nothing.recv(), nothing.send("x"), nothing.__aiter__().__anext__()):
            with pytest.raises(RuntimeError, match="not initialised"):
                await pending
        await feed(ws, texts(1))
        assert await ws.recv() == "1"


async def test_objects_are_used_again_and_remember_nothing():
    async with awaitable() as (ws, far):
        await feed(ws, frames.text("a") + frames.text("b") + frames.binary(b"c") + frames.text("d"))
        assert await ws.recv(decode=False) == b"a"
        assert await ws.recv() == "b"
        assert await ws.recv(decode=True) == "c"
        async for message in ws:
            assert message == "d"
            break
        receiving = asyncio.ensure_future(ws.recv())
        await ws.send("x", text=False)
        await ws.send(b"y", text=True)
        await ws.send("z")
        assert [sent.opcode for sent in await far.frames(3)] == [2, 1, 1]
        ws.protocol.abort()
        with pytest.raises(ConnectionClosedError):  # not StopAsyncIteration, as for the one before
            await receiving


async def test_a_message_is_forgotten_when_it_is_sent():
    class Text(str):
        pass

    async with awaitable(write_limit=1000) as (ws, _):
        message = Text("x" * 1_000_000)
        alive = weakref.ref(message)
        sending = asyncio.ensure_future(ws.send(message))
        del message
        await turns(3)
        assert not sending.done()  # it waits for room, and was copied
        assert alive() is None
        ws.protocol.abort()
        with pytest.raises(ConnectionClosed):
            await sending


async def test_a_pending_object_is_found_by_the_garbage_collector():
    async with awaitable() as (ws, _):

        class Cycle:
            pass

        cycle = Cycle()
        cycle.pending = ws.recv()
        cycle.mine = cycle.pending.send(None)
        ws.cycle = cycle
        alive = weakref.ref(cycle)
        del cycle, ws.cycle
        gc.collect()
        assert alive() is None
        await feed(ws, texts(1))
        assert await ws.recv() == "1"


async def test_a_closed_connection_needs_no_garbage_collector():
    """A program that turned it off for its latency reconnects for months."""
    gc.collect()
    gc.disable()
    try:
        async with awaitable(close_timeout=0.05) as (ws, _):
            await feed(ws, texts(*range(200)))
            assert [message async for message, _ in zip_async(ws, range(200))] == [str(n) for n in range(200)]
            await ws.send("x")
            await ws.close()
            alive = [weakref.ref(ws), weakref.ref(ws.protocol), weakref.ref(ws.listener)]
        del ws
        await turns(3)
        assert [reference() for reference in alive] == [None] * 3
    finally:
        gc.enable()


async def zip_async(iterator, numbers):
    remaining = iter(numbers)
    number = next(remaining)
    async for item in iterator:
        yield item, number
        try:
            number = next(remaining)
        except StopIteration:
            return


# Threads


async def test_another_thread_is_refused_even_if_a_message_is_there():
    raised = []
    async with awaitable() as (ws, _):
        await feed(ws, texts(*range(100)))

        def wrong_thread():
            for _ in range(3):
                try:
                    ws.recv().send(None)
                except RuntimeError as exc:
                    raised.append(str(exc))

        thread = threading.Thread(target=wrong_thread)
        thread.start()
        thread.join()
        assert len(raised) == 3
        assert all("wrong thread" in text for text in raised)
        assert await ws.recv() == "0"


# Fairness


async def test_a_flood_of_ready_fragments_lets_other_tasks_run():
    async with awaitable(max_queue=None) as (ws, _):
        await feed(
            ws,
            frames.frame(TEXT, b"x", fin=False)
            + frames.frame(CONTINUATION, b"x", fin=False) * 3000
            + frames.frame(CONTINUATION, b"x"),
        )
        count = 0
        async with beside() as other:
            async for _ in ws.recv_streaming():
                count += 1
                if count % 100 == 0:
                    work(0.0005)
        assert count == 3002
        assert other.turned >= 3


@pytest.mark.parametrize("inside", ["plain", "context"])
async def test_a_sender_that_changes_contexts_lets_other_tasks_run(inside):
    """What a program does with contexts between two sends is no turn of the event loop."""
    async with awaitable() as (ws, far):
        async with beside(far.drain()) as other:
            for _ in range(20_000):  # many slices of the processor's time, however busy the machine is
                if inside == "context":
                    contextvars.copy_context().run(int)
                await ws.send("x")
        assert other.turned >= 3


# Ends


def fails(ws, far):
    """The kernel refuses a write; connection_lost() comes in the loop's next iteration."""
    far.sock.close()
    finished_at_once(ws.send("x"))
    assert not ws._is_open


async def test_send_on_a_transport_that_has_failed_says_why_it_failed():
    async with awaitable() as (ws, far):
        fails(ws, far)
        for pending in (ws.send("x"), ws.ping(), ws.pong(), ws.send(["x"]), ws.send_many(["x"]), ws.recv()):
            with pytest.raises(ConnectionClosedError) as caught:
                await pending
            assert isinstance(caught.value.__cause__, BrokenPipeError)


async def test_close_on_a_transport_that_has_failed():
    async with awaitable() as (ws, far):
        fails(ws, far)
        await ws.close()
        assert ws.close_code == 1006


async def test_the_keepalive_says_nothing_to_the_loop_when_the_transport_has_failed():
    async with awaitable(ping_interval=10) as (ws, far):
        fails(ws, far)
        ws._pings._ping()
        await ws.wait_closed()


async def test_a_program_that_blocks_its_loop_is_not_the_server_s_fault():
    """The PONG is there, and the timer is due before it is read."""
    async with awaitable(ping_interval=0.01, ping_timeout=0.5, close_timeout=0.01) as (ws, far):
        ping = (await far.frames(1))[0]
        assert ping.opcode == PING
        await far.send_and_block(frames.frame(PONG, ping.payload), 0.6)
        await turns(5)
        await ws.send("still open")
        got = await far.frames(1)
        while got[-1].opcode == PING:
            got += await far.frames(1)
        assert got[-1] == Sent(TEXT, b"still open")


async def test_a_silent_server_is_found_out_all_the_same():
    async with awaitable(ping_interval=0.01, ping_timeout=0.02, close_timeout=0.01) as (ws, _):
        with pytest.raises(ConnectionClosedError) as caught:
            await ws.recv()
        assert isinstance(caught.value.__cause__, KeepaliveTimeout)
