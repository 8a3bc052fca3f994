"""Section 1: lengths in all their forms."""

from support.frames import binary, pattern, text

from conformance.case import Case, chopped

SIZES = (0, 125, 126, 127, 128, 65535, 65536)

CASES = [
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
