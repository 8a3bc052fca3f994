"""The rounds for every library with a blocking `send` and `recv`, so that all libraries run the same Python code.

`connection` is the library's connection. `send(connection, payload)` sends BINARY, and `connection.recv()` returns
bytes.
"""

from time import perf_counter_ns as now

from bench.clients.payloads import request, ticks


def request_response(connection, send, size, rounds):
    payload = request(size)
    first, last = payload[0], payload[-1]
    recv = connection.recv
    samples = []
    for _ in range(rounds):
        start = now()
        send(payload)
        reply = recv()
        samples.append(now() - start)
        if len(reply) != size or reply[0] != first or reply[-1] != last:
            raise ValueError(f"a wrong reply: {len(reply)} bytes, {bytes(reply[:40])!r}")
    return samples


def deflate(connection, size, count, rounds):
    updates = [update.decode() for update in ticks(size, count)]
    recv = connection.recv
    samples = []
    for _ in range(rounds):
        start = now()
        connection.send(b"MORE")
        for update in updates:
            if recv() != update:
                raise ValueError("a wrong reply")
        done = recv()
        samples.append(now() - start)
        if done != "DONE":
            raise ValueError(f"a wrong reply: {done[:40]!r}")
    return samples


def open_many(open_one, count, after_message):
    """Connections that stay open, each after one echoed message if `after_message` is set."""
    opened = []
    for number in range(count):
        connection = open_one()
        opened.append(connection)
        if after_message:
            connection.send(request(512, number))
            if connection.recv() != request(512, number):
                raise ValueError("an echo is wrong")
    return opened


def openings(open_one, rounds):
    """Time only the opening. Each connection is closed before the next one is opened."""
    samples = []
    for _ in range(rounds):
        start = now()
        connection = open_one()
        samples.append(now() - start)
        connection.close()
    return samples
