"""The cases of the sections of the Autobahn suite that need only a few lines each; the other sections have modules.

A row has the bytes of a server, and the result that must follow.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from support.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    binary,
    close,
    frame,
    header,
    pattern,
    text,
)


class Case(NamedTuple):
    """The bytes of a server, and the result that must follow.

    Every row must end. One without `fails` or `closes` goes on living: the server then closes with 1000, which must be
    answered.
    """

    name: str
    says: list[bytes]  # each in a write of its own
    gets: list[str | bytes] = []  # noqa: RUF012 - a tuple has no mutable state to share
    pongs: list[bytes] = []  # noqa: RUF012
    fails: int | None = None  # the client fails the connection with this code
    closes: bytes | None = None  # what the CLOSE frame among `says` carries, and its answer must
    options: dict[str, Any] = {}  # noqa: RUF012 - of connect()
    extensions: str = ""  # the header with which the server accepts them

    @property
    def everything(self) -> list[bytes]:
        return self.says if self.ends else [*self.says, close(1000)]

    @property
    def ends(self) -> bool:
        return self.fails is not None or self.closes is not None


def chopped(data: bytes, size: int = 1) -> list[bytes]:
    """In pieces of `size` bytes."""
    return [data[at : at + size] for at in range(0, len(data), size)]


# Section 1: lengths in all their forms.

SIZES = (0, 125, 126, 127, 128, 65535, 65536)

FRAMING = [
    *(Case(f"1.1.{n} text of {size}", [text("*" * size)], ["*" * size]) for n, size in enumerate(SIZES, 1)),
    Case("1.1.8 text of 65536, chopped", chopped(text("*" * 65536), 997), ["*" * 65536]),
    *(
        Case(f"1.2.{n} binary of {size}", [binary(pattern(size))], [pattern(size)])
        for n, size in enumerate(SIZES, 1)
    ),
    Case("1.2.8 binary of 65536, chopped", chopped(binary(pattern(65536)), 997), [pattern(65536)]),
    Case("    a length of 16 bits that 7 would hold", [text("*" * 125, form=16)], fails=1002),
    Case("    a length of 64 bits that 7 would hold", [text("*" * 5, form=64)], fails=1002),
    Case("    a length of 64 bits that 16 would hold", [text("*" * 65535, form=64)], fails=1002),
    Case("    a length of 64 bits with its top bit set", [b"\x82\x7f\x80" + bytes(7)], fails=1002),
    Case("    a masked frame", [b"\x81\x85\x01\x02\x03\x04igomn"], fails=1002),
    Case("    a masked frame behind a message", [text("a"), b"\x81\x80\x01\x02\x03\x04"], ["a"], fails=1002),
]


# Section 2: pings and pongs.

BYTES = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
TEN = [b"payload-%d" % number for number in range(10)]

PINGS = [
    Case("2.1 a ping without payload", [frame(PING)], pongs=[b""]),
    Case("2.2 with text", [frame(PING, "Hello, world!")], pongs=[b"Hello, world!"]),
    Case("2.3 with bytes that are no text", [frame(PING, BYTES)], pongs=[BYTES]),
    Case("2.4 of 125 bytes", [frame(PING, b"\xfe" * 125)], pongs=[b"\xfe" * 125]),
    Case("2.5 of 126 bytes", [frame(PING, b"\xfe" * 126)], fails=1002),
    Case("2.6 of 125 bytes, chopped", chopped(frame(PING, b"\xfe" * 125)), pongs=[b"\xfe" * 125]),
    Case("2.7 a pong that nobody asked for", [frame(PONG)]),
    Case("2.8 with payload", [frame(PONG, "unsolicited")]),
    Case("2.9 then a ping", [frame(PONG, "unsolicited"), frame(PING, "ping")], pongs=[b"ping"]),
    Case("2.10 ten pings, answered in their order", [frame(PING, one) for one in TEN], pongs=TEN),
    Case("2.11 ten pings, chopped", [b for one in TEN for b in chopped(frame(PING, one))], pongs=TEN),
    Case("    ten pings in one write", [b"".join(frame(PING, one) for one in TEN)], pongs=TEN),
    Case("    a pong of 126 bytes", [frame(PONG, b"x" * 126)], fails=1002),
    Case("    a ping whose length has 64 bits", [frame(PING, b"x", form=64)], fails=1002),
    Case("    a ping between messages", [text("a"), frame(PING, "?"), text("b")], ["a", "b"], [b"?"]),
]


# Section 3: reserved bits that no extension has claimed.

HELLO = "Hello, world!"

RESERVED_BITS = [
    Case("3.1 RSV 1", [text(HELLO, rsv=1)], fails=1002),
    Case("3.2 RSV 2 behind a message", [text(HELLO), text(HELLO, rsv=2), frame(PING)], [HELLO], fails=1002),
    Case("3.3 RSV 3 in one write", [text(HELLO) + text(HELLO, rsv=3) + frame(PING)], [HELLO], fails=1002),
    Case("3.4 RSV 4, chopped", chopped(text(HELLO) + text(HELLO, rsv=4) + frame(PING)), [HELLO], fails=1002),
    Case("3.5 RSV 5 of a binary message", [frame(BINARY, b"\x00\xff", rsv=5)], fails=1002),
    Case("3.6 RSV 6 of a ping", [frame(PING, HELLO, rsv=6)], fails=1002),
    Case("3.7 RSV 7 of a CLOSE", [frame(CLOSE, rsv=7)], fails=1002),
    Case("    of a pong", [frame(PONG, rsv=1)], fails=1002),
    Case(
        "    of a continuation",
        [frame(TEXT, "a", fin=False), frame(CONTINUATION, "b", rsv=1)],
        fails=1002,
    ),
    Case("    told by the header alone", [header(TEXT, 5, rsv=1)], fails=1002),
]


# Section 4: opcodes that mean nothing.

DATA, CONTROL = (3, 4, 5, 6, 7), (11, 12, 13, 14, 15)


def opcode_cases(section: str, opcodes: tuple[int, ...]) -> list[Case]:
    alone, with_payload, behind, chopped_behind, last = opcodes
    return [
        Case(f"{section}.1 opcode {alone}", [frame(alone)], fails=1002),
        Case(
            f"{section}.2 opcode {with_payload} with payload", [frame(with_payload, "reserved")], fails=1002
        ),
        Case(
            f"{section}.3 opcode {behind} behind a message",
            [text("a"), frame(behind), frame(PING)],
            ["a"],
            fails=1002,
        ),
        Case(
            f"{section}.4 opcode {chopped_behind} with payload, chopped",
            chopped(text("a") + frame(chopped_behind, "reserved") + frame(PING)),
            ["a"],
            fails=1002,
        ),
        Case(f"{section}.5 opcode {last} without FIN", [frame(last, fin=False)], fails=1002),
    ]


OPCODES = [*opcode_cases("4.1", DATA), *opcode_cases("4.2", CONTROL)]


# Section 5: messages in fragments, and control frames among them.


def first(payload: str = "frag1", opcode: int = TEXT) -> bytes:
    return frame(opcode, payload, fin=False)


def more(payload: str) -> bytes:
    return frame(CONTINUATION, payload, fin=False)


def last(payload: str = "frag2") -> bytes:
    return frame(CONTINUATION, payload)


WHOLE = "frag1frag2"
FIVE = [first("f1"), more("f2"), more("f3"), more("f4"), last("f5")]
PINGED = [first("f1"), more("f2"), frame(PING, "p1"), more("f3"), more("f4"), frame(PING, "p2"), last("f5")]

FRAGMENTATION = [
    Case("5.1 a ping in two", [frame(PING, "frag1", fin=False), last()], fails=1002),
    Case("5.2 a pong in two", [frame(PONG, "frag1", fin=False), last()], fails=1002),
    Case("5.3 text in two, in one write", [first() + last()], [WHOLE]),
    Case("5.4 text in two", [first(), last()], [WHOLE]),
    Case("5.5 text in two, chopped", chopped(first() + last()), [WHOLE]),
    Case("5.6 with a ping between, in one write", [first() + frame(PING, "?") + last()], [WHOLE], [b"?"]),
    Case("5.7 with a ping between", [first(), frame(PING, "?"), last()], [WHOLE], [b"?"]),
    Case("5.8 with a ping between, chopped", chopped(first() + frame(PING, "?") + last()), [WHOLE], [b"?"]),
    Case("5.9 a last fragment of nothing, in one write", [last() + text("a")], fails=1002),
    Case("5.10 a last fragment of nothing", [last(), text("a")], fails=1002),
    Case("5.11 a last fragment of nothing, chopped", chopped(last() + text("a")), fails=1002),
    Case("5.12 a fragment of nothing, in one write", [more("x") + text("a")], fails=1002),
    Case("5.13 a fragment of nothing", [more("x"), text("a")], fails=1002),
    Case("5.14 a fragment of nothing, chopped", chopped(more("x") + text("a")), fails=1002),
    Case("5.15 a fragment behind the last", [first(), last(), more("x"), text("a")], [WHOLE], fails=1002),
    Case("5.16 fragments of nothing, then text in two", [more("x"), first(), last()], fails=1002),
    Case("5.17 a last fragment of nothing, then text in two", [last("x"), first(), last()], fails=1002),
    Case("5.18 text inside a message", [first(), text("a")], fails=1002),
    Case("5.19 text in five with pings between", PINGED, ["f1f2f3f4f5"], [b"p1", b"p2"]),
    Case("5.20 in one write", [b"".join(PINGED)], ["f1f2f3f4f5"], [b"p1", b"p2"]),
    Case("    text in five, chopped", chopped(b"".join(FIVE)), ["f1f2f3f4f5"]),
    Case("    binary in two", [first("a", BINARY), last("b")], [b"ab"]),
    Case("    binary inside a message", [first(), frame(BINARY, "a")], fails=1002),
    Case("    a first fragment inside a message", [first(), first()], fails=1002),
    Case("    empty fragments", [first(""), more(""), last("")], [""]),
    Case("    an empty last fragment", [first("a"), last("")], ["a"]),
    Case("    a message behind one in fragments", [first(), last(), text("a")], [WHOLE, "a"]),
]


# Section 7: the closing handshake.

VALID = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999)
INVALID = (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)


def body(code: int, reason: bytes = b"") -> bytes:
    return struct.pack("!H", code) + reason


NORMAL = body(1000)
LARGE = pattern(256 * 1024)

CLOSING = [
    Case("7.1.1 a message, then CLOSE", [text("a"), close(1000)], ["a"], closes=NORMAL),
    Case("7.1.2 CLOSE twice", [close(1000) + close(1000)], closes=NORMAL),
    Case("7.1.3 a ping behind CLOSE is not answered", [close(1000) + frame(PING)], closes=NORMAL),
    Case("7.1.4 text behind CLOSE is not delivered", [close(1000) + text("late")], closes=NORMAL),
    Case(
        "7.1.5 CLOSE inside a message",
        [frame(TEXT, "a", fin=False), close(1000) + frame(CONTINUATION, "b")],
        closes=NORMAL,
    ),
    Case(
        "7.1.6 256 KiB, then CLOSE and a ping",
        [frame(2, LARGE) + close(1000) + frame(PING)],
        [LARGE],
        closes=NORMAL,
    ),
    Case("7.3.1 an empty CLOSE", [frame(CLOSE)], closes=b""),
    Case("7.3.2 a CLOSE of one byte", [frame(CLOSE, b"\x03")], fails=1002),
    Case("7.3.3 a CLOSE of a code", [close(1000)], closes=NORMAL),
    Case("7.3.4 with a reason", [close(1000, "Hello, world!")], closes=body(1000, b"Hello, world!")),
    Case("7.3.5 with a reason of 123 bytes", [close(1000, "*" * 123)], closes=body(1000, b"*" * 123)),
    Case("7.3.6 with a reason of 124 bytes", [close(1000, "*" * 124)], fails=1002),
    Case("7.5.1 with a reason that is not UTF-8", [close(1000, b"\xce\xba\xed\xa0\x80")], fails=1007),
    Case("    with a reason that ends in a character", [close(1000, b"\xc3")], fails=1007),
    *(Case(f"7.7 code {code}", [close(code)], closes=body(code)) for code in VALID),
    *(
        Case(f"7.7 code {code} with a reason", [close(code, "why")], closes=body(code, b"why"))
        for code in VALID
    ),
    *(Case(f"7.9 code {code}", [close(code)], fails=1002) for code in INVALID),
    *(Case(f"7.9 code {code} with a reason", [close(code, "why")], fails=1002) for code in INVALID),
    Case("    a CLOSE without FIN", [frame(CLOSE, fin=False)], fails=1002),
    Case("    garbage behind CLOSE changes nothing", [close(1001) + b"\xff" * 20], closes=body(1001)),
]


# Section 9: long messages, and those over the limit of this side.

LIMIT = 1000
LIMITED = {"max_size": LIMIT}
MEBI = 1 << 20


def fragmented(payload: bytes, size: int, opcode: int = BINARY) -> list[bytes]:
    pieces = chopped(payload, size)
    return [
        frame(CONTINUATION if n else opcode, one, fin=n == len(pieces) - 1) for n, one in enumerate(pieces)
    ]


LIMITS = [
    *(
        Case(
            f"9.1/9.2 {size} bytes",
            [text("*" * size), binary(pattern(size))],
            ["*" * size, pattern(size)],
            options={"max_size": size},
        )
        for size in (65536, 256 * 1024, MEBI, 4 * MEBI, 16 * MEBI)
    ),
    *(
        Case(f"9.3/9.4 1 MiB in fragments of {size}", fragmented(pattern(MEBI), size), [pattern(MEBI)])
        for size in (1024, 65536, MEBI)
    ),
    Case(
        "9.3/9.4 4 MiB in fragments of 65536",
        [*fragmented(b"*" * 4 * MEBI, 65536, TEXT), *fragmented(pattern(4 * MEBI), 65536)],
        ["*" * 4 * MEBI, pattern(4 * MEBI)],
        options={"max_size": 4 * MEBI},
    ),
    *(
        Case(
            f"9.3/9.4 {size >> 20} MiB in fragments of {piece}",
            [b"".join(fragmented(b"*" * size, piece, TEXT)), b"".join(fragmented(pattern(size), piece))],
            ["*" * size, pattern(size)],
            options={"max_size": size},
        )
        for size in (4 * MEBI, 8 * MEBI)
        for piece in (64, 256, 1024)
    ),
    *(
        Case(
            f"9.5/9.6 {total >> 10} KiB in writes of {size}",
            chopped(binary(pattern(total)), size),
            [pattern(total)],
        )
        for size in (64, 128, 256, 512, 1024, 2048, 4096, 65536)
        for total in [min(size << 10, MEBI)]
    ),
    *(
        Case(
            f"9.7/9.8 a thousand messages of {size}",
            [(text("x" * size) + binary(pattern(size))) * 500],
            ["x" * size, pattern(size)] * 500,
        )
        for size in (0, 16, 64, 256, 1024, 4096)
    ),
    Case("    as long as is allowed", [binary(pattern(LIMIT))], [pattern(LIMIT)], options=LIMITED),
    Case("    one byte over the limit", [binary(pattern(LIMIT + 1))], fails=1009, options=LIMITED),
    Case("    refused by its header", [header(BINARY, LIMIT + 1)], fails=1009, options=LIMITED),
    Case("    announced as the longest", [header(BINARY, 2**63 - 1)], fails=1009, options=LIMITED),
    Case(
        "    fragments as long as is allowed",
        fragmented(b"x" * LIMIT, 300, TEXT),
        ["x" * LIMIT],
        options=LIMITED,
    ),
    Case(
        "    fragments over the limit", fragmented(b"x" * (LIMIT + 1), 300, TEXT), fails=1009, options=LIMITED
    ),
    Case(
        "    a fragment over what is left, by its header",
        [frame(BINARY, b"x" * 600, fin=False), header(CONTINUATION, 401, fin=False)],
        fails=1009,
        options=LIMITED,
    ),
    Case(
        "    the limit is of each message",
        [*fragmented(b"x" * LIMIT, 999), binary(b"y" * LIMIT)],
        [b"x" * LIMIT, b"y" * LIMIT],
        options=LIMITED,
    ),
    Case(
        "    messages before it arrive",
        [text("a"), binary(bytes(LIMIT + 1))],
        ["a"],
        fails=1009,
        options=LIMITED,
    ),
]


# Section 10: what else is asked.

MISC = [
    Case("10.1.1 65536 bytes in frames of 1300", fragmented(b"*" * 65536, 1300, TEXT), ["*" * 65536]),
    Case(
        "    everything in one write",
        [text("a") + frame(BINARY, b"b") + close(1000)],
        ["a", b"b"],
        closes=b"\x03\xe8",
    ),
    Case("    everything byte by byte", chopped(text("a") + frame(BINARY, b"b")), ["a", b"b"]),
    Case(
        "    4095 fragments",
        [
            b"".join(
                [
                    frame(TEXT, "x", fin=False),
                    *[frame(CONTINUATION, "x", fin=False)] * 4094,
                    frame(CONTINUATION),
                ]
            )
        ],
        ["x" * 4095],
    ),
    Case(
        "    a message of more than 4096 fragments",
        [frame(TEXT, "x", fin=False) + frame(CONTINUATION, "x", fin=False) * 5000 + frame(CONTINUATION)],
        ["x" * 5001],
    ),
]
