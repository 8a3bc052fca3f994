"""The works that need nothing of a client but how it opens, sends and receives, so that a client's file stays short.

A client's file imports one of the modules `listening`, `awaiting` and `blocking` of bench/clients, and the module of
the same name here adds its works. The first parameter of a work is the client's module, or a copy of it with another
`open_one` for a variant: `open_busy_poll` makes the variant `busy_poll`.

    listening   open_one(listener_factory, url, ssl_context=), WSListener, send(transport, payload)
    awaiting    await open_one(url, ssl) -> connection with send(bytes), recv() -> bytes, close()
    blocking    open_one(url, ssl) -> the same without await

The worker calls a work twice, first with one round. A work returns nanoseconds per round, or for each message the times
(sent, stamped by the server, received). A connection that cannot receive TEXT as bytes by `recv(decode=False)` has
`recv_raw()`. A client without `open_one` has only the works of its file. A client whose messages are buffers of its own
has `view`, a function that makes memoryviews of them.
"""

from functools import partial

# What a message of the server's is stamped with: its last eight bytes, nanoseconds of the monotonic clock.
STAMP = 8

LAP = 1000  # messages of one round of fan_in, at least; every connection has ten at least


def trips(connections):
    """The round trips of each connection in one round of fan_in."""
    return max(10, LAP // connections)


def recv_raw(connection):
    """`recv` for the payload of TEXT as it arrived; str if the library offers nothing else."""
    return getattr(connection, "recv_raw", None) or partial(connection.recv, decode=False)


def stamped(reply, payload):
    """The server's stamp in the echo of `payload`."""
    if len(reply) != len(payload) or reply[0] != payload[0] or reply[-1 - STAMP] != payload[-1 - STAMP]:
        raise ValueError(f"a wrong reply: {len(reply)} bytes, {bytes(reply[:40])!r}")
    return int.from_bytes(reply[-STAMP:], "little")


def decoder(how, view=None):
    """The function that makes objects of JSON: `json`, `msgspec` or `orjson`. `view` makes of a library's message what
    orjson takes; the others take any buffer."""
    if how == "msgspec":
        import msgspec

        return msgspec.json.decode
    if how == "orjson":
        import orjson

        return (lambda message: orjson.loads(view(message))) if view else orjson.loads
    import json

    return lambda payload: json.loads(payload if isinstance(payload, str) else bytes(payload))
