"""Section 3: reserved bits that no extension has claimed."""

from support.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame, header, text

from conformance.case import Case, chopped

HELLO = "Hello, world!"

CASES = [
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
