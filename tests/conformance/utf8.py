"""Section 6: text is UTF-8, and what is not is refused as soon as a frame shows it."""

import itertools

from support.frames import CONTINUATION, TEXT, frame, header, text

from conformance.cases import Case, chopped

GREEK = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5".decode()  # κόσμε, the second of three bytes
MIXED = "Hello-µ@ßöäüàá-UTF-8!!"

# Two of each plane but the first; the last of all is 6.9.4, too.
NONCHARACTERS = [plane << 16 | low for plane in range(1, 17) for low in (0xFFFE, 0xFFFF)][:-1]

# Characters at the ends of the ranges (6.7-6.11), noncharacters (6.22), and what text may also hold.
VALID = {
    "6.5.1 ASCII": "hello$world",
    "6.5.2 a character of two bytes": "hello¢world",
    "6.5.3 a character of three": "hello€world",
    "6.5.4 a character of four": "hello𤭢world",
    "6.5.5/6.6.11 Greek": GREEK,
    "6.6.2 a character of it": GREEK[:1],
    "6.6.5 two characters": GREEK[:2],
    "6.6.7 three characters": GREEK[:3],
    "6.6.9 four characters": GREEK[:4],
    "6.7.1 first of one byte": "\x00",
    "6.7.2 first of two": "\x80",
    "6.7.3 first of three": "\u0800",
    "6.7.4 first of four": "\U00010000",
    "6.9.1 last of one byte": "\x7f",
    "6.9.2 last of two": "\u07ff",
    "6.9.3/6.22.2/6.23.7 last of three": "\uffff",
    "6.9.4/6.11.4/6.22.34 last of all": "\U0010ffff",
    "6.11.1 before the surrogates": "\ud7ff",
    "6.11.2 behind the surrogates": "\ue000",
    "6.11.3/6.23.5 the replacement character": "\ufffd",
    "6.22.1/6.23.6 a noncharacter": "\ufffe",
    **{f"6.22.{n} the noncharacter U+{one:X}": chr(one) for n, one in enumerate(NONCHARACTERS, 3)},
    **{f"6.23.{n} the special U+FFF{8 + n:X}": chr(0xFFF8 + n) for n in range(1, 5)},
}

# The first and the last that would begin a sequence of two bytes, of three, and so on.
LEADS = [(0xC0, 0xDF), (0xE0, 0xEF), (0xF0, 0xF7), (0xF8, 0xFB), (0xFC, 0xFD)]
TAILS = b"\x80\xbf\x80\xbf\x80\xbf"
# The first and the last sequence of each length, without its last tail.
INCOMPLETE = [bytes([lead]) + b"\x80" * n for n, (lead, _) in enumerate(LEADS)]
INCOMPLETE += [bytes([lead]) + b"\xbf" * n for n, (_, lead) in enumerate(LEADS)]
HIGH = (0xD800, 0xDB7F, 0xDB80, 0xDBFF)


def lonely(first: int, last: int) -> bytes:
    return b"".join(bytes([lead]) + b" " for lead in range(first, last + 1))


def surrogates(*codes: int) -> bytes:
    return "".join(map(chr, codes)).encode(errors="surrogatepass")


INVALID = {
    "6.3.1 a surrogate in Greek": b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
    "6.6.1 a lead of two, alone": b"\xce",
    "6.6.3 a character and a lead": b"\xce\xba\xe1",
    "6.6.4 two of three bytes": b"\xce\xba\xe1\xbd",
    "6.6.6 two characters and a lead": b"\xce\xba\xe1\xbd\xb9\xcf",
    "6.6.8 three characters and a lead": b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce",
    "6.6.10 four characters and a lead": b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce",
    "6.8.1 a lead of five bytes": b"\xf8\x88\x80\x80\x80",
    "6.8.2 a lead of six bytes": b"\xfc\x84\x80\x80\x80\x80",
    "6.10.1 four bytes, the last": b"\xf7\xbf\xbf\xbf",
    "6.10.2 five bytes, the last": b"\xfb\xbf\xbf\xbf\xbf",
    "6.10.3 six bytes, the last": b"\xfd\xbf\xbf\xbf\xbf\xbf",
    "6.11.5 above the last character": b"\xf4\x90\x80\x80",
    "6.12.1 a tail": b"\x80",
    "6.12.2 the last tail": b"\xbf",
    **{f"6.12.{count + 1} {count} tails": TAILS[:count] for count in range(2, 7)},
    "6.12.8 all tails": bytes(range(0x80, 0xC0)),
    **{f"6.13.{n} leads of {n + 1}, each with a blank": lonely(*ends) for n, ends in enumerate(LEADS, 1)},
    **{f"6.14.{n} without its last tail: {one.hex(' ')}": one for n, one in enumerate(INCOMPLETE, 1)},
    "6.15.1 all of these": b"".join(INCOMPLETE),
    "6.16.1 FE": b"\xfe",
    "6.16.2 FF": b"\xff",
    "6.16.3 FE FE FF FF": b"\xfe\xfe\xff\xff",
    "6.17.1 overlong slash of two": b"\xc0\xaf",
    "6.17.2 of three": b"\xe0\x80\xaf",
    "6.17.3 of four": b"\xf0\x80\x80\xaf",
    "6.17.4 of five": b"\xf8\x80\x80\x80\xaf",
    "6.17.5 of six": b"\xfc\x80\x80\x80\x80\xaf",
    "6.18.1 the largest overlong of two": b"\xc1\xbf",
    "6.18.2 of three": b"\xe0\x9f\xbf",
    "6.18.3 of four": b"\xf0\x8f\xbf\xbf",
    "6.18.4 of five": b"\xf8\x87\xbf\xbf\xbf",
    "6.18.5 of six": b"\xfc\x83\xbf\xbf\xbf\xbf",
    "6.19.1 overlong NUL of two": b"\xc0\x80",
    "6.19.2 of three": b"\xe0\x80\x80",
    "6.19.3 of four": b"\xf0\x80\x80\x80",
    "6.19.4 of five": b"\xf8\x80\x80\x80\x80",
    "6.19.5 of six": b"\xfc\x80\x80\x80\x80\x80",
    **{
        f"6.20.{n} the surrogate U+{one:X}": surrogates(one)
        for n, one in enumerate((*HIGH, 0xDC00, 0xDF80, 0xDFFF), 1)
    },
    **{
        f"6.21.{n} the pair U+{high:X} U+{low:X}": surrogates(high, low)
        for n, (high, low) in enumerate(itertools.product(HIGH, (0xDC00, 0xDFFF)), 1)
    },
}


def fragments(*payloads: bytes) -> list[bytes]:
    """The beginning of a message: no frame is the last."""
    return [frame(CONTINUATION if n else TEXT, one, fin=False) for n, one in enumerate(payloads)]


CASES = [
    Case("6.1.1 an empty text", [text("")], [""]),
    Case("6.1.2 three empty fragments", [*fragments(b"", b""), frame(CONTINUATION)], [""]),
    Case("6.1.3 the second is not empty", [*fragments(b"", b"middle"), frame(CONTINUATION)], ["middle"]),
    Case("6.2.1 in one frame", [text(MIXED)], [MIXED]),
    Case(
        "6.2.2 in two, between characters", [*fragments(b"Hello-"), frame(CONTINUATION, MIXED[6:])], [MIXED]
    ),
    Case(
        "6.2.3 a byte in each frame",
        [*fragments(*chopped(MIXED.encode())), frame(CONTINUATION)],
        [MIXED],
    ),
    Case(
        "6.2.4 a byte in each frame, Greek",
        [*fragments(*chopped(GREEK.encode())), frame(CONTINUATION)],
        [GREEK],
    ),
    *(Case(name, [text(one)], [one]) for name, one in VALID.items()),
    *(
        Case(
            f"{name}, a byte in each frame", [*fragments(*chopped(one.encode())), frame(CONTINUATION)], [one]
        )
        for name, one in VALID.items()
    ),
    *(Case(name, [text(one)], fails=1007) for name, one in INVALID.items()),
    *(
        Case(f"{name}, a byte in each frame", [*fragments(*chopped(one)), frame(CONTINUATION)], fails=1007)
        for name, one in INVALID.items()
    ),
    # The rest of the message never comes.
    Case(
        "6.4.1 fails with the fragment that is wrong",
        fragments(GREEK.encode(), b"\xf4\x90\x80\x80"),
        fails=1007,
    ),
    Case("6.4.2 fails with the byte that is wrong", fragments(GREEK.encode(), b"\xf4", b"\x90"), fails=1007),
    Case(
        "6.4.3 fails within a frame",
        [header(TEXT, 30), GREEK.encode(), b"\xf4\x90\x80\x80"],
        fails=1007,
    ),
    Case(
        "6.4.4 with the byte that is wrong", [header(TEXT, 30), GREEK.encode(), b"\xf4", b"\x90"], fails=1007
    ),
    Case(
        "    within a long frame",
        [text("a") + header(TEXT, 500_000), b"a" * 200_000, b"a" * 200_000 + b"\xf4", b"\x90"],
        ["a"],
        fails=1007,
    ),
    Case(
        "    within a long fragment",
        [*fragments(b"\xf4"), header(CONTINUATION, 500_000) + b"\x8f\xbf\xbf" + b"a" * 300_000, b"\xbf"],
        fails=1007,
    ),
    Case("    at a lead that follows a lead", fragments(b"\xc3", b"\xc3"), fails=1007),
    Case(
        "    messages before the wrong one arrive", [text("a"), text(b"\xff"), text("b")], ["a"], fails=1007
    ),
    Case("    all in one write", [text("a") + text(b"\xff") + text("b")], ["a"], fails=1007),
    Case("    no character spans two messages", [text(b"\xc3"), text(b"\xa9")], fails=1007),
    Case("    binary is not text", [frame(2, b"\xff\xfe")], [b"\xff\xfe"]),
]
