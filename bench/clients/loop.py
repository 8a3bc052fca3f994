"""An event loop alone: its primitives, and wsfast's own awaitables beside them. Only the latter need a connection."""

import asyncio
import socket
from time import perf_counter_ns as now

REQUIRES = "wsfast"


async def nothing():
    pass


async def sleep_0():
    await asyncio.sleep(0)


async def create_task():
    await asyncio.create_task(nothing())


async def gather_10():
    await asyncio.gather(*[nothing() for _ in range(10)])


async def gather_100():
    await asyncio.gather(*[nothing() for _ in range(100)])


def queue_put():
    queue = asyncio.Queue()

    async def step():
        await queue.put(1)
        await queue.get()

    return step


def event_wait():
    event = asyncio.Event()
    event.set()
    return event.wait


def lock_acquire():
    lock = asyncio.Lock()

    async def step():
        async with lock:
            pass

    return step


async def future_res():
    future = asyncio.get_running_loop().create_future()
    future.set_result(1)
    await future


async def call_soon():
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, 1)
    await future


async def call_later():
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_later(0, future.set_result, 1)
    await future


def semaphore():
    free = asyncio.Semaphore(1)

    async def step():
        async with free:
            pass

    return step


async def wait_for():
    await asyncio.wait_for(nothing(), 1)


async def recursion_20(depth=20):
    if depth:
        await recursion_20(depth - 1)


async def exception():
    try:
        raise ValueError
    except ValueError:
        pass


def sock_pair():
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    one.setblocking(False)
    other.setblocking(False)

    async def step():
        await loop.sock_sendall(one, b"x")
        await loop.sock_recv(other, 1)

    return step


# The seed's fifteen, in its order. A coroutine function is a step; a plain function prepares one.
LOOPS_OWN = [
    sleep_0, create_task, gather_10, gather_100, queue_put, event_wait, lock_acquire, future_res, call_soon,
    call_later, semaphore, wait_for, recursion_20, exception, sock_pair,
]  # fmt: skip


async def ws_send(ws):
    """Sends one message of 16 bytes. The echoes are received between the samples."""
    return ws.send


async def ws_recv_ready(ws):
    return ws.recv


async def ws_wait_for_recv(ws):
    async def step():
        await asyncio.wait_for(ws.recv(), 1)

    return step


async def ws_anext_ready(ws):
    return ws.__aiter__().__anext__


async def ws_cancel_recv(ws):
    async def step():
        waiting = asyncio.ensure_future(ws.recv())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    return step


OF_WSFAST = [ws_send, ws_recv_ready, ws_anext_ready, ws_wait_for_recv, ws_cancel_recv]
PRIMITIVES = [function.__name__ for function in LOOPS_OWN + OF_WSFAST]
AT_ONCE = 500  # messages that are ready before the steps that receive them


async def sample(step, rounds, *args):
    samples = []
    for _ in range(rounds):
        start = now()
        await step(*args)
        samples.append(now() - start)
    return samples


async def of_wsfast(prepare, url, rounds):
    from wsfast.asyncio.client import connect

    async with connect(url) as ws:
        step = await prepare(ws)
        if prepare is ws_cancel_recv:
            return await sample(step, rounds)
        samples = []
        while len(samples) < rounds:
            count = min(AT_ONCE, rounds - len(samples))
            if prepare is ws_send:
                samples += await sample(step, count, b"x" * 16)
                for _ in range(count):
                    await ws.recv()
            else:
                await ws.send(f"FLOOD {count} 16 binary")
                await asyncio.sleep(0.01)
                samples += await sample(step, count)
                await ws.recv()  # DONE
        return samples


async def primitive(url, how, rounds, ssl=None):
    function = globals()[how]
    if function in OF_WSFAST:
        return await of_wsfast(function, url, rounds)
    return await sample(function if asyncio.iscoroutinefunction(function) else function(), rounds)
