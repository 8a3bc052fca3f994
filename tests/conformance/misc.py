"""Section 10: what else is asked."""

from support.frames import BINARY, CONTINUATION, TEXT, close, frame, text

from conformance.case import Case, chopped
from conformance.limits import fragmented

CASES = [
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
