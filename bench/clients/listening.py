"""The callbacks for every library with picows' listener API, so that all libraries run the same Python code.

Each function makes a listener from the library's WSListener. The listener starts the next round inside a callback. A
wrong reply or a lost connection sets an exception in its only future, which the function awaits after all rounds.
Everything that a callback needs for every frame is a local of the enclosing function, because looking up attributes
would cost half as much as a frame.
"""

import asyncio
from time import perf_counter_ns as now

from bench.clients.payloads import asked_flood, request, requests, ticks


class Rounds:
    """Counts the rounds. A subclass starts a round in `begin`, and appends to `samples` when the round ends."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.samples = []
        self.done = asyncio.get_running_loop().create_future()

    def next(self, transport):
        if len(self.samples) < self.rounds:
            self.begin(transport)
        elif not self.done.done():
            self.done.set_result(self.samples)

    def wrong(self, frame):
        if not self.done.done():
            reply = frame.get_payload_as_bytes()
            self.done.set_exception(ValueError(f"a wrong reply: {len(reply)} bytes, {reply[:40]!r}"))

    def on_ws_disconnected(self, transport):
        if not self.done.done():
            self.done.set_exception(ConnectionError("the connection ended before the rounds did"))

    def pause_writing(self):
        """Do nothing. The default logs a line, but a batch fills the socket on purpose."""

    def resume_writing(self):
        pass


def request_response(base, send, size, rounds):
    """`send(transport, payload)` sends one BINARY frame."""
    payload = request(size)
    first, last = payload[0], payload[-1]

    class Listener(Rounds, base):
        def begin(self, transport):
            self.start = now()
            send(transport, payload)

        def on_ws_frame(self, transport, frame):
            self.samples.append(now() - self.start)
            reply = frame.get_payload_as_memoryview()
            if len(reply) != size or reply[0] != first or reply[-1] != last:
                self.wrong(frame)
            else:
                self.next(transport)

    return Listener(rounds)


def request_response_of_messages(base, send, size, rounds):
    """The same with on_ws_message(), which only wsfast has. The payload is a memoryview."""
    payload = request(size)
    first, last = payload[0], payload[-1]

    class Listener(Rounds, base):
        def begin(self, transport):
            self.start = now()
            send(transport, payload)

        def on_ws_message(self, transport, msg_type, reply):
            self.samples.append(now() - self.start)
            if len(reply) != size or reply[0] != first or reply[-1] != last:
                self.done.set_exception(
                    ValueError(f"a wrong reply: {len(reply)} bytes, {bytes(reply[:40])!r}")
                )
            else:
                self.next(transport)

    return Listener(rounds)


def batch(base, send_batch, size, count, rounds):
    """`send_batch(transport, payloads)` sends a BINARY frame for each payload."""
    payloads = requests(size, count)
    left = 0

    class Listener(Rounds, base):
        def begin(self, transport):
            nonlocal left
            left = count
            self.start = now()
            send_batch(transport, payloads)

        def on_ws_frame(self, transport, frame):
            nonlocal left
            left -= 1
            if frame.payload_size != size:
                self.wrong(frame)
            elif not left:
                self.samples.append(now() - self.start)
                if frame.get_payload_as_bytes() != payloads[-1]:
                    self.wrong(frame)
                else:
                    self.next(transport)

    return Listener(rounds)


def flood(base, send, size, count, rounds, how):
    """The callback compares every payload completely: at these sizes a comparison costs no more than len()."""
    ask, payload, _ = asked_flood(size, count, how)
    left = 0

    class Flood(Rounds, base):
        def begin(self, transport):
            nonlocal left
            left = count
            self.start = now()
            send(transport, ask)

        def end(self, transport, frame):
            self.samples.append(now() - self.start)
            if left or frame.get_payload_as_bytes() != b"DONE":
                self.wrong(frame)
            else:
                self.next(transport)

    class AsBytes(Flood):
        def on_ws_frame(self, transport, frame):
            nonlocal left
            if frame.get_payload_as_bytes() == payload:
                left -= 1
            else:
                self.end(transport, frame)

    class AsStr(Flood):
        def on_ws_frame(self, transport, frame):
            nonlocal left
            if frame.get_payload_as_utf8_text() == payload:
                left -= 1
            else:
                self.end(transport, frame)

    return {"bytes": AsBytes, "str": AsStr}[how](rounds)


def flood_of_messages(base, send, size, count, rounds, how):
    """The same flood with on_ws_message(), which only wsfast has. The type of the payload is `how`."""
    ask, payload, done = asked_flood(size, count, how)
    left = 0

    class Listener(Rounds, base):
        payload_type = {"bytes": bytes, "str": str}[how]

        def begin(self, transport):
            nonlocal left
            left = count
            self.start = now()
            send(transport, ask)

        def on_ws_message(self, transport, msg_type, message):
            nonlocal left
            if message == payload:
                left -= 1
                return
            self.samples.append(now() - self.start)
            if left or message != done:
                self.done.set_exception(ValueError(f"a wrong reply: {message[:40]!r}"))
            else:
                self.next(transport)

    return Listener(rounds)


def flood_many(base, send, size, count, rounds, how):
    """The same flood with on_ws_messages(), which only wsfast has."""
    ask, payload, done = asked_flood(size, count, how)
    left = 0

    class Listener(Rounds, base):
        payload_type = {"bytes": bytes, "str": str}[how]

        def begin(self, transport):
            nonlocal left
            left = count
            self.start = now()
            send(transport, ask)

        def on_ws_messages(self, transport, messages):
            nonlocal left
            last = None
            for message in messages:
                if message == payload:
                    left -= 1
                else:
                    last = message
            if last is None:
                return
            self.samples.append(now() - self.start)
            if left or last != done:
                self.done.set_exception(ValueError(f"a wrong reply: {last[:40]!r}"))
            else:
                self.next(transport)

    return Listener(rounds)


def deflate(base, send, size, count, rounds):
    """Compressed updates with on_ws_message()."""
    updates = [update.decode() for update in ticks(size, count)]
    due = iter(updates)

    class Listener(Rounds, base):
        payload_type = str

        def begin(self, transport):
            nonlocal due
            due = iter(updates)
            self.start = now()
            send(transport, b"MORE")

        def on_ws_message(self, transport, msg_type, message):
            if message == next(due, "DONE"):
                if message != "DONE":
                    return
                self.samples.append(now() - self.start)
                self.next(transport)
            else:
                self.done.set_exception(ValueError(f"a wrong reply: {message[:40]!r}"))

    return Listener(rounds)


def answering(base, send):
    """Echoes every frame, until the server ends the connection."""

    class Listener(base):
        def on_ws_frame(self, transport, frame):
            send(transport, frame.get_payload_as_memoryview())

    return Listener()


async def answer(ws_connect, listener, url, ssl):
    """Answer until the server ends the connection."""
    transport, _ = await ws_connect(lambda: listener, url, ssl_context=ssl)
    await transport.wait_disconnected()


async def run(ws_connect, listener, url, ssl):
    """Run all rounds of `listener` on one connection, and return its samples."""
    transport, _ = await ws_connect(lambda: listener, url, ssl_context=ssl)
    listener.next(transport)
    samples = await listener.done
    transport.disconnect()
    await transport.wait_disconnected()
    return samples


async def openings(ws_connect, base, url, rounds, ssl):
    """Time only the opening. Each connection is closed before the next one is opened."""
    samples = []
    for _ in range(rounds):
        start = now()
        transport, _ = await ws_connect(base, url, ssl_context=ssl)
        samples.append(now() - start)
        transport.disconnect()
        await transport.wait_disconnected()
    return samples


async def open_many(ws_connect, base, send, url, count, after_message, ssl):
    """Connections that stay open, each after one echoed message if `after_message` is set. Their listeners are
    empty."""
    arrived = asyncio.Event()
    echo = None

    class Listener(base):
        def on_ws_frame(self, transport, frame):
            nonlocal echo
            echo = frame.get_payload_as_bytes()
            arrived.set()

    opened = []
    for number in range(count):
        transport, _ = await ws_connect(Listener, url, ssl_context=ssl)
        opened.append(transport)
        if after_message:
            arrived.clear()
            send(transport, request(512, number))
            await arrived.wait()
            if echo != request(512, number):
                raise ValueError("an echo is wrong")
    return opened
