"""One file per contender, all with the same function names. To add a contender, add a file here and a row to CLIENTS in
bench/suite/contenders.py.

A file defines any of these functions. Warm-up rounds are ordinary rounds; the worker drops their samples:

    async def request_response(url, size, rounds, ssl=None) -> list[int]     ns per round trip
    async def batch(url, size, count, rounds, ssl=None) -> list[int]         ns per batch of `count` messages
    async def flood(url, size, count, rounds, how="bytes", ssl=None)         ns per flood of `count` messages
    async def deflate(url, size, count, rounds, ssl=None)                    ns per `count` compressed messages
    async def connect(url, rounds, ssl=None) -> list[int]                    ns per opening
    async def idle(url, count, after_message, ssl=None) -> list              the open connections
    async def answers(url, ssl=None)                      sends back every frame until the server hangs up

bench/workloads adds the works that need only `open_one(url, ssl)` of a client, and `send` and `recv` of its connection:
one_way, window, fan_in, queued, errors, mixed, varied, objects, answers; for blocking clients batch and flood too.

The frames of a flood are BINARY for `how="bytes"` and TEXT for `how="str"`, and its messages become that type.

A plain `def` is a client without an event loop. A name with a suffix, such as `batch_send_many`, is a variant of its
case and a row of its own (`wsfast_listener:send_many`). Payloads come from payloads.py. A client checks every reply:
always the length, and the content where checking it is not timed. A file imports its library at the top, because only
the worker imports these files. `REQUIRES` names the library's package.
"""
