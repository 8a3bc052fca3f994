"""Sections 12 and 13, and RFC 7692: compressed messages, with every parameter of the server's side."""

from __future__ import annotations

import random
import zlib

from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, binary, close, frame, text
from support.frames import header as header_of

from conformance.case import Case, chopped

RSV1 = 4
TAIL = b"\x00\x00\xff\xff"

NEGOTIATED = "permessage-deflate"
TICK = '{"e":"trade","s":"BTCUSDT","p":"%d.50","q":"0.00%d"}'
TICKS = [TICK % (60000 + n * 7, n) for n in range(50)]


class Server:
    """Compresses as a server does."""

    def __init__(self, *, bits: int = 15, takeover: bool = True, level: int = 6) -> None:
        self.settings = {"level": level, "wbits": -bits}
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


SIZES = (0, 16, 64, 256, 1024, 4096, 8192, 16384, 32768, 65536, 131072)
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
    *(
        case(f"12.1 text of {size}", Server().messages("*" * size, "-" * size), ["*" * size, "-" * size])
        for size in SIZES
    ),
    case("12.2 fifty ticks that refer to each other", Server().messages(*TICKS), TICKS),
    case("12.2 in one write", [b"".join(Server().messages(*TICKS))], TICKS),
    case("12.2 chopped", chopped(b"".join(Server().messages(*TICKS[:5])), 3), TICKS[:5]),
    *(
        case(
            f"13 a window of {bits} bits{'' if takeover else ', no context takeover'}",
            Server(bits=bits, takeover=takeover).messages(*TICKS, "x" * 40_000, *TICKS),
            [*TICKS, "x" * 40_000, *TICKS],
            header=f"{NEGOTIATED}; server_max_window_bits={bits}"
            + ("" if takeover else "; server_no_context_takeover"),
        )
        for bits in (9, 12, 15)
        for takeover in (True, False)
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
