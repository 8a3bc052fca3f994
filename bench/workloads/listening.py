"""The works of clients with picows' listener API. A listener has no queue and no recv(), so it lacks those works."""

import asyncio
from time import perf_counter_ns as now

from bench.clients import listening
from bench.clients.payloads import request, sizes, ticks
from bench.workloads import decoder, stamped, trips


async def window(client, url, size, count, rounds, ssl=None):
    """Keeps `count` messages unanswered: each reply sends the next message."""
    payload = request(size)
    send = client.send
    starts = []

    class Listener(listening.Rounds, client.WSListener):
        def begin(self, transport):
            for _ in range(min(count, rounds)):
                starts.append(now())
                send(transport, payload)

        def on_ws_frame(self, transport, frame):
            end = now()
            reply = frame.get_payload_as_memoryview()
            try:
                self.samples.append((starts[len(self.samples)], stamped(reply, payload), end))
            except ValueError:
                self.wrong(frame)
            if len(starts) < rounds:
                starts.append(now())
                send(transport, payload)
            elif len(self.samples) == rounds:
                self.next(transport)

    return await listening.run(client.open_one, Listener(rounds), url, ssl)


async def one_way(client, url, size, rounds, ssl=None):
    """A round trip, split by the server's stamp."""
    return await window(client, url, size, 1, rounds, ssl)


async def fan_in(client, url, size, count, rounds, ssl=None):
    """`count` connections at once, each with one round trip after another."""
    payload = request(size)
    first, last = payload[0], payload[-1]
    each, send = trips(count), client.send
    done = asyncio.get_running_loop().create_future()
    samples, transports = [], []
    start = left = 0

    def lap():
        nonlocal start, left
        left = count * each
        start = now()
        for transport in transports:
            send(transport, payload)

    class Listener(client.WSListener):
        def __init__(self):
            self.left = each

        def on_ws_frame(self, transport, frame):
            nonlocal left
            reply = frame.get_payload_as_memoryview()
            if len(reply) != size or reply[0] != first or reply[-1] != last:
                done.set_exception(ValueError(f"a wrong reply: {len(reply)} bytes"))
            left -= 1
            self.left -= 1
            if self.left:
                send(transport, payload)
                return
            self.left = each
            if not left:
                samples.append(now() - start)
                if len(samples) < rounds:
                    lap()
                else:
                    done.set_result(samples)

    for _ in range(count):
        transport, _ = await client.open_one(Listener, url, ssl_context=ssl)
        transports.append(transport)
    lap()
    await done
    for transport in transports:
        transport.disconnect()
        await transport.wait_disconnected()
    return samples


async def varied(client, url, size, upto, rounds, ssl=None):
    """Round trips of random sizes between `size` and `upto` bytes, the same sizes for every client."""
    whole = request(upto)
    lengths = iter(sizes(size, upto, rounds))
    send = client.send
    payload = b""

    class Listener(listening.Rounds, client.WSListener):
        def begin(self, transport):
            nonlocal payload
            payload = whole[: next(lengths)]
            self.start = now()
            send(transport, payload)

        def on_ws_frame(self, transport, frame):
            self.samples.append(now() - self.start)
            reply = frame.get_payload_as_memoryview()
            if len(reply) != len(payload) or reply[0] != payload[0] or reply[-1] != payload[-1]:
                self.wrong(frame)
            else:
                self.next(transport)

    return await listening.run(client.open_one, Listener(rounds), url, ssl)


async def objects(client, url, size, count, rounds, how="msgspec", ssl=None):
    """From the JSON of an order-book update in the frame's buffer to a Python object."""
    decode = decoder(how)
    expected = [decode(tick)["u"] for tick in ticks(size, count)]
    send = client.send
    due = 0

    class Listener(listening.Rounds, client.WSListener):
        def begin(self, transport):
            nonlocal due
            due = 0
            self.start = now()
            send(transport, b"MORE")

        def on_ws_frame(self, transport, frame):
            nonlocal due
            if due == count:  # DONE
                self.next(transport)
            elif decode(frame.get_payload_as_memoryview())["u"] != expected[due]:
                self.wrong(frame)
            else:
                due += 1
                if due == count:
                    self.samples.append(now() - self.start)

    return await listening.run(client.open_one, Listener(rounds), url, ssl)


async def answers(client, url, ssl=None):
    """Sends back every frame until the server hangs up."""
    await listening.answer(client.open_one, listening.answering(client.WSListener, client.send), url, ssl)
