"""Rows of bench/supervised.py for bench/counted.py. A round is a read of a hundred messages."""

from bench.supervised import ROWS


def row(name):
    async def give(url, rounds):
        await ROWS[name](url, rounds)

    return give


recv, async_for, listener = map(
    row, ("recv, supervised", "async for, supervised", "on_ws_message, supervised")
)
recv_key = row("recv, key")
