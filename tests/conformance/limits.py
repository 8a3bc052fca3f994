"""Section 9: long messages, and those over the limit of this side."""

from support.frames import BINARY, CONTINUATION, TEXT, binary, frame, header, pattern, text

from conformance.case import Case, chopped

LIMIT = 1000
LIMITED = {"max_size": LIMIT}
MEBI = 1 << 20


def fragmented(payload: bytes, size: int, opcode: int = BINARY) -> list[bytes]:
    pieces = chopped(payload, size)
    return [
        frame(CONTINUATION if n else opcode, one, fin=n == len(pieces) - 1) for n, one in enumerate(pieces)
    ]


CASES = [
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
