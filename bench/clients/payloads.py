"""The bytes that travel: what floor/*.c and servers/echo.c have, so that every client does the same work."""


def request(size: int, number: int = 0) -> bytes:
    """The payload of the request `number`: distinct, so a missing or swapped echo shows."""
    return bytes((number + i) % 251 for i in range(size))


def requests(size: int, count: int) -> list[bytes]:
    return [request(size, number) for number in range(count)]


def flood_request(size: int, count: int) -> bytes:
    return f"FLOOD {count} {size} text".encode()


def flooded(size: int) -> bytes:
    """The payload of every frame of a flood; "DONE" ends it."""
    return bytes(ord("a") + i % 26 for i in range(size))
