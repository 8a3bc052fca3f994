"""Sections 12 and 13, and RFC 7692: compressed messages, with every parameter of the server's side."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator

from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, binary, close, frame, text
from support.frames import header as header_of

from conformance.cases import Case, chopped

RSV1 = 4
TAIL = b"\x00\x00\xff\xff"

NEGOTIATED = "permessage-deflate"
TICK = '{"e":"trade","s":"BTCUSDT","p":"%d.50","q":"0.00%d"}'
TICKS = [TICK % (60000 + n * 7, n) for n in range(50)]


class Server:
    """Compresses as a server does; `accepts` is the header with which it says what it keeps to."""

    def __init__(self, *, bits: int | None = None, takeover: bool = True, level: int = 6) -> None:
        self.accepts = NEGOTIATED
        if bits is not None:
            self.accepts += f"; server_max_window_bits={bits}"
        if not takeover:
            self.accepts += "; server_no_context_takeover"
        # zlib deflates with no window of 8 bits, but refers to the last 250 bytes only with one of 9 (there is a test).
        self.settings = {"level": level, "wbits": -max(bits or 15, 9)}
        self.takeover = takeover
        self.stream = zlib.compressobj(**self.settings)

    def deflate(self, payload: bytes | str) -> bytes:
        if not self.takeover:
            self.stream = zlib.compressobj(**self.settings)
        data = payload.encode() if isinstance(payload, str) else payload
        deflated = self.stream.compress(data) + self.stream.flush(zlib.Z_SYNC_FLUSH)
        return deflated.removesuffix(TAIL)

    def message(self, payload: bytes | str) -> bytes:
        return frame(TEXT if isinstance(payload, str) else BINARY, self.deflate(payload), rsv=RSV1)

    def messages(self, *payloads: bytes | str) -> list[bytes]:
        return [self.message(payload) for payload in payloads]


def fragments(payload: bytes, *cuts: int, opcode: int = TEXT) -> list[bytes]:
    """A compressed message, cut there: only its first frame says that it is compressed."""
    edges = [0, *cuts, len(payload)]
    pieces = [payload[a:b] for a, b in zip(edges, edges[1:])]  # noqa: RUF007 - two of them
    return [
        frame(CONTINUATION if n else opcode, piece, fin=n == len(pieces) - 1, rsv=0 if n else RSV1)
        for n, piece in enumerate(pieces)
    ]


def case(name: str, says: list[bytes], *args: object, header: str = NEGOTIATED, **fields: object) -> Case:
    options = {"compression": "deflate", **fields.pop("options", {})}  # type: ignore[dict-item]
    return Case(name, says, *args, extensions=header, options=options, **fields)  # type: ignore[arg-type]


def sized(name: str, data: bytes | str, parameters: str = "", **settings: object) -> Iterator[Case]:
    """Five messages of each size, consecutive ones of `data`, which is repeated; the long ones also in fragments."""
    for size, cut in [(0, 0), (16, 0), (4096, 0), (131072, 0), (4096, 256), (131072, 256)]:
        repeated = data * (5 * size // len(data) + 1)
        messages = [repeated[n * size : (n + 1) * size] for n in range(5)]
        server = Server(**settings)  # type: ignore[arg-type]
        says = []
        for deflated in map(server.deflate, messages):
            cuts = range(cut, len(deflated), cut) if cut else ()
            says += fragments(deflated, *cuts, opcode=TEXT if isinstance(data, str) else BINARY)
        yield case(
            f"{name}, {size}" + (f" in fragments of {cut}" if cut else ""),
            says,
            messages,
            header=server.accepts + parameters,
        )


SIZES = (0, 16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)
JSON = ",\n".join(TICKS)
PROSE = "Habe nun, ach! Philosophie, Juristerei und Medizin durchaus studiert, mit heißem Bemühn. "
LIMITED = {"max_size": 1000}
RANDOM = random.Random(0).randbytes(1000)
HELLO = Server().deflate("Hello, world! " * 20)

# RFC 7692 section 7.2.3, byte for byte.
EXAMPLES = {
    "7.2.3.1 one block": b"\xf2\x48\xcd\xc9\xc9\x07\x00",
    "7.2.3.3 a block without compression": b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
    "7.2.3.4 a block with BFINAL": b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
    "7.2.3.5 two blocks": b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
}

CASES = [
    *sized("12.1/13.1 JSON", JSON),
    *sized("12.2 a picture", bytes((x * x + y * y) >> 8 & 0xFF for y in range(256) for x in range(512))),
    *sized("12.3 prose, as bytes", PROSE.encode()),
    *sized("12.4 HTML", "".join(f"<tr><td>{n}</td><td>żółw 🐢</td></tr>\n" for n in range(1000))),
    *sized("12.5 what gets no smaller", random.Random(1).randbytes(1 << 17)),
    *sized("13.2 no context takeover", JSON, takeover=False),
    *sized("13.3 a window of 9 bits", JSON, bits=9),
    *sized("13.3 a window of 8 bits", JSON, bits=8),
    *sized("13.4 a window of 15 bits", JSON, bits=15),
    *sized("13.5 a window of 9 bits, no context takeover", JSON, bits=9, takeover=False),
    *sized("13.6 a window of 15 bits, no context takeover", JSON, bits=15, takeover=False),
    *sized("13 what binds the client", JSON, "; client_max_window_bits=9; client_no_context_takeover"),
    *(
        case(
            f"    one character {size} times",
            Server().messages("*" * size, "-" * size),
            ["*" * size, "-" * size],
        )
        for size in SIZES
    ),
    case("    fifty ticks that refer to each other", Server().messages(*TICKS), TICKS),
    case("    ticks in one write", [b"".join(Server().messages(*TICKS))], TICKS),
    case("    ticks, chopped", chopped(b"".join(Server().messages(*TICKS[:5])), 3), TICKS[:5]),
    *(
        case(
            f"    ticks far apart, {server.accepts}",
            server.messages(*TICKS, "x" * 40_000, *TICKS),
            [*TICKS, "x" * 40_000, *TICKS],
            header=server.accepts,
        )
        for bits in (9, 12, 15)
        for server in (Server(bits=bits), Server(bits=bits, takeover=False))
    ),
    *(case(name, [frame(TEXT, data, rsv=RSV1)], ["Hello"]) for name, data in EXAMPLES.items()),
    case(
        "7.2.3.2 a message that refers to the one before",
        [
            frame(TEXT, EXAMPLES["7.2.3.1 one block"], rsv=RSV1),
            frame(TEXT, b"\xf2\x00\x11\x00\x00", rsv=RSV1),
        ],
        ["Hello", "Hello"],
    ),
    case("    7.2.3.6 an empty message", [frame(TEXT, b"\x00", rsv=RSV1)], [""]),
    case("    a message that is not compressed", [text("plain")], ["plain"]),
    case(
        "    compressed and not, in turns",
        [Server().message("a" * 99), text("plain"), binary(b"plain")],
        ["a" * 99, "plain", b"plain"],
    ),
    case("    binary", Server().messages(bytes(1000), b"\xff" * 9), [bytes(1000), b"\xff" * 9]),
    case("    in two fragments", fragments(HELLO, 4), ["Hello, world! " * 20]),
    case("    a byte in each fragment", fragments(HELLO, *range(1, len(HELLO))), ["Hello, world! " * 20]),
    case("    an empty last fragment, compressed", fragments(HELLO, len(HELLO)), ["Hello, world! " * 20]),
    case(
        "    control frames between fragments",
        [fragments(HELLO, 4)[0], frame(PING, "?"), frame(PONG, "!"), fragments(HELLO, 4)[1]],
        ["Hello, world! " * 20],
        [b"?"],
    ),
    case("    CLOSE between fragments", [fragments(HELLO, 4)[0], close(1000)], closes=b"\x03\xe8"),
    case(
        "    fragments that are not compressed",
        [frame(TEXT, "a", fin=False), frame(CONTINUATION, "b")],
        ["ab"],
    ),
    case(
        "    RSV1 of a continuation",
        [fragments(HELLO, 4)[0], frame(CONTINUATION, HELLO[4:], rsv=RSV1)],
        fails=1002,
    ),
    case("    RSV1 of a ping", [frame(PING, "?", rsv=RSV1)], fails=1002),
    case("    RSV1 of a CLOSE", [frame(8, b"\x03\xe8", rsv=RSV1)], fails=1002),
    case("    RSV2", [text("a", rsv=2)], fails=1002),
    case("    RSV1 and RSV3", [frame(TEXT, HELLO, rsv=5)], fails=1002),
    case("    bytes that nothing inflates", [frame(TEXT, b"\xff" * 10, rsv=RSV1)], fails=1002),
    case(
        "    a message before them arrives",
        [text("a"), frame(TEXT, b"\xff" * 10, rsv=RSV1)],
        ["a"],
        fails=1002,
    ),
    case(
        "    a reference to before the beginning",
        [frame(TEXT, b"\xf2\x00\x11\x00\x00", rsv=RSV1)],
        fails=1002,
    ),
    case(
        "    a reference to a message that was forgotten",
        [
            frame(TEXT, EXAMPLES["7.2.3.1 one block"], rsv=RSV1),
            frame(TEXT, b"\xf2\x00\x11\x00\x00", rsv=RSV1),
        ],
        ["Hello"],
        fails=1002,
        header=f"{NEGOTIATED}; server_no_context_takeover",
    ),
    case("    text that is not UTF-8", [frame(TEXT, Server().deflate(b"\xff"), rsv=RSV1)], fails=1007),
    case(
        "    text that ends in a character",
        [frame(TEXT, Server().deflate(b"a" * 50 + b"\xc3"), rsv=RSV1)],
        fails=1007,
    ),
    case(
        "    as long as is allowed, inflated",
        Server().messages("x" * 1000),
        ["x" * 1000],
        options=LIMITED,
    ),
    case(
        "    one byte over the limit, inflated",
        Server().messages("x" * 1001),
        fails=1009,
        options=LIMITED,
    ),
    case(
        "    longer than the limit, but not inflated",
        chopped(Server().message(RANDOM), 300),
        [RANDOM],
        options=LIMITED,
    ),
    case(
        "    refused by its header, compressed",
        [header_of(BINARY, 1000 + 125 + 1024 + 1, rsv=RSV1)],
        fails=1009,
        options=LIMITED,
    ),
    case("    refused by its header, not compressed", [header_of(TEXT, 1001)], fails=1009, options=LIMITED),
    case(
        "    the same, a fragment",
        [frame(BINARY, b"x" * 600, fin=False), header_of(CONTINUATION, 401)],
        fails=1009,
        options=LIMITED,
    ),
    case("    a bomb", [Server(level=9).message(bytes(10 << 20))], fails=1009, options=LIMITED),
    case(
        "    a bomb in fragments",
        fragments(Server(level=9).deflate(bytes(1 << 20)), *range(100, 1000, 100), opcode=BINARY),
        fails=1009,
        options=LIMITED,
    ),
]
