"""The rounds for every library with a blocking `send` and `recv`, so that all libraries run the same Python code.

`connection` is the library's connection. `send(connection, payload)` sends BINARY, and `connection.recv()` returns
bytes.
"""

from time import perf_counter_ns as now

from bench.clients.payloads import asked_flood, request, requests, ticks


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


def flood_many(connection, size, count, rounds, how):
    """A flood in lists of messages."""
    ask, payload, done = asked_flood(size, count, how)
    recv_many = connection.recv_many
    samples = []
    for _ in range(rounds):
        left = count
        last = None
        start = now()
        connection.send(ask)
        while last is None:
            for message in recv_many():
                if message == payload:
                    left -= 1
                else:
                    last = message
        samples.append(now() - start)
        if left or last != done:
            raise ValueError(f"a wrong reply: {last[:40]!r}")
    return samples


def batch_many(connection, size, count, rounds):
    """One call sends a batch, and the replies come in lists."""
    payloads = requests(size, count)
    recv_many = connection.recv_many
    samples = []
    for _ in range(rounds):
        left = count
        start = now()
        connection.send_many(payloads)
        while left:
            for reply in recv_many():
                left -= 1
                if len(reply) != size:
                    raise ValueError("a reply is wrong")
        samples.append(now() - start)
        if reply != payloads[-1]:
            raise ValueError("a reply is wrong")
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
