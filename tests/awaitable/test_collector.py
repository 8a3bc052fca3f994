"""Pending awaits that the collector finds, objects that serve again, and event loops that are run inside themselves."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest
from support import frames
from support.awaiting import awaitable, feed

from wsfast.asyncio._messaging import Receive, Send

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.memory

# A loop that is closed while tasks wait in recv(): all of it becomes garbage at once.
PENDING = """
import asyncio, gc, sys
from support.servers import serve
from wsfast.asyncio.client import connect

async def accept(peer):
    await peer.accept()
    await peer.rest()

async def main(kept):
    context = serve(accept)
    server = await context.__aenter__()
    kept.append(context)
    ws = await connect(server.url, ping_interval=None)
    how = sys.argv[1]
    if how == "task":
        kept.append(asyncio.ensure_future(ws.recv()))
    elif how == "anext":
        kept.append(asyncio.ensure_future(ws.__aiter__().__anext__()))
    elif how == "wait_for":
        kept.append(asyncio.ensure_future(asyncio.wait_for(ws.recv(), 60)))
    elif how == "by hand":
        ws.itself = ws.recv()
        ws.itself.send(None)
    elif how == "delegated":
        ws.itself = ws.send(bytes(20_000_000))
        ws.itself.send(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

def run():
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *args: None)
    loop.run_until_complete(main(kept := []))
    loop.close()

sys.unraisablehook = lambda *args: None
import logging, warnings
logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
for _ in range(3):
    gc.disable()
    run()
    gc.enable()
    gc.collect()
assert (repr(None), type(None).__name__) == ("None", "NoneType")
print("passed")
"""


def run(program: str, *args: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, *args],
        cwd=TESTS,
        env=None,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.endswith("passed\n"), (ran.returncode, ran.stderr[-3000:])


@pytest.mark.parametrize("how", ["task", "anext", "wait_for", "by hand", "delegated"])
def test_the_collector_clears_a_pending_await(how):
    run(PENDING, how)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_an_object_that_was_finalized_does_not_serve_again():
    async with awaitable() as (ws, _):
        for make in (ws.recv, lambda: ws.send("x")):
            spare = make()
            cycle = [spare]
            cycle.append(cycle)
            number = id(spare)
            spare.close()
            del spare, cycle
            gc.collect()
            assert not any(
                id(thing) == number for thing in gc.get_objects() if type(thing) in (Receive, Send)
            )


async def test_a_spare_object_that_was_found_is_left_to_its_finder():
    async with awaitable() as (ws, _):
        await feed(ws, frames.texts(1, 2))
        assert await ws.recv() == "1"
        found = [thing for thing in gc.get_objects() if type(thing) is Receive]
        again = ws.recv()
        assert all(again is not thing for thing in found)
        assert await again == "2"
        for thing in found:
            with pytest.raises(RuntimeError):
                thing.send(None)


async def test_a_result_has_the_arguments_of_a_stop_iteration():
    async with awaitable() as (ws, _):
        await feed(ws, frames.texts("a", "b", "c"))
        for expected in "abc":
            with pytest.raises(StopIteration) as stop:
                next(iter(ws.recv()))
            assert (stop.value.args, stop.value.value) == ((expected,), expected)

        def through():
            return (yield from ws.recv())

        await feed(ws, frames.texts("d", "e"))
        for expected in "de":
            with pytest.raises(StopIteration) as stop:
                next(through())
            assert stop.value.args == (expected,)


async def test_a_stop_iteration_that_served_before_has_arguments_of_its_own():
    """From CPython 3.12 on, one serves every await; it is seen only by who calls next(), which marks it as used."""
    async with awaitable() as (ws, _):
        await feed(ws, frames.texts(*"abcdef"))
        for awaited, expected in ("ab", "cd", "ef"):
            assert await ws.recv() == awaited
            with pytest.raises(StopIteration) as stop:
                next(iter(ws.recv()))
            assert (stop.value.args, stop.value.value) == ((expected,), expected)


# nest_asyncio patches the loop's class for good, hence a process of its own.
NESTED = """
import asyncio, logging
import nest_asyncio
from support.frames import text
from support.servers import serve
from wsfast.asyncio.client import connect

class Errors(logging.Handler):
    def emit(self, record):
        raise SystemExit(record.getMessage())
logging.getLogger("asyncio").addHandler(Errors())

async def say(peer):
    await peer.accept()
    for number in range(10):
        await asyncio.sleep(0.01)  # so that it is waited for
        peer.send(text(str(number)))
    await peer.answer_close()

async def main():
    nest_asyncio.apply()
    async with serve(say) as server, connect(server.url) as ws:
        async def one():
            return await ws.recv()
        for number in range(0, 10, 2):
            assert await ws.recv() == str(number)  # by a task that the reader's callback has run, unless it must not
            assert asyncio.get_running_loop().run_until_complete(one()) == str(number + 1)
asyncio.run(main())
print("passed")
"""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="nest_asyncio loses the current task of CPython 3.14")
def test_a_loop_that_runs_inside_itself():
    pytest.importorskip("nest_asyncio")
    run(NESTED)


# The collector finalizes the coroutines of a task in any order: here, one that others await is the first. CPython does
# not survive a coroutine that is closed while it runs, hence a process of its own.
CLOSED_WHILE_CONNECTING = """
import asyncio, gc, inspect, logging, socket
from wsfast.asyncio.client import connect

logging.disable(logging.CRITICAL)
listening = socket.create_server(("127.0.0.1", 0))

async def main():
    await connect(f"ws://127.0.0.1:{listening.getsockname()[1]}/")

for turns in range(1, 5):
    loop = asyncio.new_event_loop()
    task = loop.create_task(main())
    for _ in range(turns):
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    [establishing] = [
        thing for thing in gc.get_objects() if inspect.iscoroutine(thing) and thing.__name__ == "establish"
    ]
    del task
    try:
        establishing.close()
    except RuntimeError as exc:
        assert "closed" in str(exc)
    del establishing
    gc.collect()
print("passed")
"""


def test_a_loop_that_is_dropped_while_it_connects():
    run(CLOSED_WHILE_CONNECTING)
