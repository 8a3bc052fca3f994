"""Section 4: opcodes that mean nothing."""

from support.frames import PING, frame, text

from conformance.case import Case, chopped

DATA, CONTROL = (3, 4, 5, 6, 7), (11, 12, 13, 14, 15)


def of(section: str, opcodes: tuple[int, ...]) -> list[Case]:
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


CASES = [*of("4.1", DATA), *of("4.2", CONTROL)]
