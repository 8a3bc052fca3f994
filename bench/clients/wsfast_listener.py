"""wsfast's listener face. It sends a batch corked; the variant `send_many` sends it with one call. The variant
`messages` receives with on_ws_message() instead of on_ws_frame(), and `many` with on_ws_messages().

The variants `busy_poll` do not sleep; `busy_poll_beside_100` has a hundred idle connections with the same option. The
variant `poll` bypasses the event loop; `sleeping_poll` does so and waits in the kernel.
"""

import math
from functools import partial
from time import perf_counter_ns as now

from bench.clients import listening
from bench.clients.awaiting import same
from bench.clients.payloads import request
from wsfast import TLS, Tuning, WSListener, WSMsgType, ws_connect

REQUIRES = "wsfast"

# worker.py passes the authority as an object of this type. With a context, OpenSSL would encrypt instead of rustls.
tls = TLS

# Looking up a member of the enum costs half as much as a small send, so a bot does it once.
BINARY = WSMsgType.BINARY


def send(transport, payload):
    transport.send(BINARY, payload)


def send_corked(transport, payloads):
    with transport.cork():
        for payload in payloads:
            transport.send(BINARY, payload)


def send_many(transport, payloads):
    transport.send_many(BINARY, payloads)


async def request_response(url, size, rounds, ssl=None):
    listener = listening.request_response(WSListener, send, size, rounds)
    return await listening.run(ws_connect, listener, url, ssl)


open_one = ws_connect
open_busy_poll = awake = partial(ws_connect, tuning=Tuning(busy_poll=math.inf))


async def request_response_messages(url, size, rounds, ssl=None):
    listener = listening.request_response_of_messages(WSListener, send, size, rounds)
    return await listening.run(ws_connect, listener, url, ssl)


async def request_response_busy_poll(url, size, rounds, ssl=None):
    listener = listening.request_response(WSListener, send, size, rounds)
    return await listening.run(awake, listener, url, ssl)


async def request_response_busy_poll_beside_100(url, size, rounds, ssl=None):
    idle = [await awake(WSListener, url, ssl_context=ssl) for _ in range(100)]
    samples = await request_response_busy_poll(url, size, rounds, ssl)
    for transport, _ in idle:
        transport.abort()
        await transport.wait_disconnected()
    return samples


async def request_response_poll(url, size, rounds, ssl=None):
    """send() and poll(), one after the other: the event loop does nothing."""
    return await poll_on(url, size, rounds, ssl, False)


async def request_response_sleeping_poll(url, size, rounds, ssl=None):
    return await poll_on(url, size, rounds, ssl, True)


async def poll_on(url, size, rounds, ssl, sleep):
    payload = request(size)
    first, last = payload[0], payload[-1]
    samples = []
    reply = b""

    class Listener(WSListener):
        def on_ws_frame(self, transport, frame):
            nonlocal reply
            reply = frame.get_payload_as_memoryview()

    transport, _ = await ws_connect(Listener, url, ssl_context=ssl)
    send, poll = transport.send, transport.poll
    for _ in range(rounds):
        start = now()
        send(BINARY, payload)
        while not poll(1, sleep):
            pass
        samples.append(now() - start)
        same(reply, size, first, last)
        reply = b""
    transport.disconnect()
    await transport.wait_disconnected()
    return samples


async def answers_busy_poll(url, ssl=None):
    await listening.answer(awake, listening.answering(WSListener, send), url, ssl)


async def batch(url, size, count, rounds, ssl=None):
    listener = listening.batch(WSListener, send_corked, size, count, rounds)
    return await listening.run(ws_connect, listener, url, ssl)


async def batch_send_many(url, size, count, rounds, ssl=None):
    listener = listening.batch(WSListener, send_many, size, count, rounds)
    return await listening.run(ws_connect, listener, url, ssl)


async def flood(url, size, count, rounds, how="bytes", ssl=None):
    listener = listening.flood(WSListener, send, size, count, rounds, how)
    return await listening.run(ws_connect, listener, url, ssl)


async def flood_messages(url, size, count, rounds, how="bytes", ssl=None):
    listener = listening.flood_of_messages(WSListener, send, size, count, rounds, how)
    return await listening.run(ws_connect, listener, url, ssl)


async def flood_many(url, size, count, rounds, how="bytes", ssl=None):
    listener = listening.flood_many(WSListener, send, size, count, rounds, how)
    return await listening.run(ws_connect, listener, url, ssl)


async def deflate(url, size, count, rounds, ssl=None):
    listener = listening.deflate(WSListener, send, size, count, rounds)
    return await listening.run(partial(ws_connect, compression="deflate"), listener, url, ssl)


async def connect(url, rounds, ssl=None):
    return await listening.openings(ws_connect, WSListener, url, rounds, ssl)


async def idle(url, count, after_message, ssl=None):
    return await listening.open_many(ws_connect, WSListener, send, url, count, after_message, ssl)
