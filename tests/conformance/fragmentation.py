"""Section 5: messages in fragments, and control frames among them."""

from support.frames import BINARY, CONTINUATION, PING, PONG, TEXT, frame, text

from conformance.case import Case, chopped


def first(payload: str = "frag1", opcode: int = TEXT) -> bytes:
    return frame(opcode, payload, fin=False)


def more(payload: str) -> bytes:
    return frame(CONTINUATION, payload, fin=False)


def last(payload: str = "frag2") -> bytes:
    return frame(CONTINUATION, payload)


WHOLE = "frag1frag2"
FIVE = [first("f1"), more("f2"), more("f3"), more("f4"), last("f5")]
PINGED = [first("f1"), more("f2"), frame(PING, "p1"), more("f3"), more("f4"), frame(PING, "p2"), last("f5")]

CASES = [
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
