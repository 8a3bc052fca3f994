"""The payloads. They equal those of floor/*.c and servers/echo.c, so that every client does the same work."""

import functools
import json
import random


def request(size: int, number: int = 0) -> bytes:
    """The payload of request `number`: the bytes 0 to 250 again and again, from `number` on. Payloads are distinct, so
    a check finds missing or swapped echoes."""
    start = number % 251
    return (bytes(range(251)) * (size // 251 + 2))[start : start + size]


def requests(size: int, count: int) -> list[bytes]:
    return [request(size, number) for number in range(count)]


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


@functools.cache
def ticks(size: int, count: int) -> tuple[bytes, ...]:
    """Updates of an order book as exchanges send them: JSON of about `size` bytes, the same in every run."""
    rng = random.Random(size)
    price, time, update = 43000.0, 1700000000000, 10**10
    made = []
    for _ in range(count):
        price += rng.gauss(0, 1.5)
        time += rng.randrange(1, 120)
        first, update = update + 1, update + rng.randrange(1, 9)
        levels: dict[str, list[list[str]]] = {"b": [], "a": []}
        tick = {"e": "depthUpdate", "E": time, "s": "BTCUSDT", "U": first, "u": update, **levels}
        length = len(compact(tick))
        while length < size:
            level = [f"{price + rng.gauss(0, 5):.2f}", f"{rng.expovariate(1):.5f}"]
            side = levels[rng.choice("ba")]
            length += len(compact(level)) + bool(side)  # a comma before all but the first
            side.append(level)
        made.append(compact(tick).encode())
    return tuple(made)


def sizes(low: int, high: int, count: int) -> list[int]:
    """Random sizes between `low` and `high`, the same in every run and in floor/ (an LCG, Numerical Recipes)."""
    state, found = 1, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        found.append(low + (state >> 8) % (high - low + 1))
    return found


def flooded(size: int) -> bytes:
    """The payload of every frame of a flood. A frame "DONE" ends the flood."""
    return bytes(ord("a") + i % 26 for i in range(size))


def asked_flood(size: int, count: int, how: str = "bytes") -> tuple[bytes, bytes | str, bytes | str]:
    """The request of a flood, each of its messages, and the one that ends it. Frames are BINARY for `bytes` and TEXT
    for `str`, so that no library decodes or validates what its user wants as bytes."""
    payload, done = flooded(size), b"DONE"
    if how == "str":
        return f"FLOOD {count} {size} text".encode(), payload.decode(), done.decode()
    return f"FLOOD {count} {size} binary".encode(), payload, done
