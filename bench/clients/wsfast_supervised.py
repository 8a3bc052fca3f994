"""The rows of bench/supervised.py for bench/counted.py, by their names. A round is a read of a hundred messages."""

from bench.supervised import ROWS


def row(name):
    async def give(url, rounds):
        await ROWS[name](url, rounds)

    return give


globals().update({name: row(name) for name in ROWS})
