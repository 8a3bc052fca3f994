"""Section 2: pings and pongs."""

from support.frames import PING, PONG, frame, text

from conformance.case import Case, chopped

BYTES = b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff"
TEN = [b"payload-%d" % number for number in range(10)]

CASES = [
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
