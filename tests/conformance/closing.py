"""Section 7: the closing handshake."""

import struct

from support.frames import CLOSE, CONTINUATION, PING, TEXT, close, frame, pattern, text

from conformance.case import Case

VALID = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999)
INVALID = (0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535)


def body(code: int, reason: bytes = b"") -> bytes:
    return struct.pack("!H", code) + reason


NORMAL = body(1000)
LARGE = pattern(256 * 1024)

CASES = [
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
