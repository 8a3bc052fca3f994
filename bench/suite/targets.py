"""The goals of wsfast, as ratios to a peer or to C, or in KB: a table of each report."""

from dataclasses import dataclass

from bench.suite import comparisons
from bench.suite.contenders import floor
from wsfast.cli.bench import comparing

KIB = 1024
PICOWS, PICOWS_WEBSOCKETS = "picows_listener", "picows_websockets"
C = "the floor"  # of the case; "inflate_alone" is the best library for inflating


@dataclass(frozen=True)
class Goal:
    work: str
    section: str
    case: tuple  # pairs of a field and its value
    of: str
    to: str  # empty for a figure in KB
    goal: float


def sized(work, section, sizes, of, to, goal):
    return [Goal(work, section, (("size", size),), of, to, goal) for size in sizes]


ONE_CORE = (("size", 512), ("cores", "same"))
TWO_CORES = (("size", 512), ("cores", "two"))
BYTES, TEXT = (("size", 128), ("how", "bytes")), (("size", 128), ("how", "str"))
PLAIN = (("loop", "uvloop"), ("tls", False), ("after_message", True))

GOALS = [
    *sized("round trip", "rr", (512, 8 * KIB), "wsfast_listener", C, 1.08),
    *sized("round trip", "rr", (16 * KIB, 64 * KIB, KIB * KIB), "wsfast_listener", PICOWS, 0.95),
    *sized("round trip", "rr", (16 * KIB, 64 * KIB, KIB * KIB), "wsfast_listener", C, 1.05),
    *sized("round trip", "large", (128 * KIB,), "wsfast_listener", PICOWS, 0.95),
    *sized("round trip", "large", (128 * KIB,), "wsfast_listener", C, 1.05),
    *sized("round trip", "rr", (512,), "wsfast_awaitable", C, 1.12),
    *sized("round trip", "rr", (512,), "wsfast_sync", "C:blocking", 1.05),
    Goal("round trip, two cores", "variants", TWO_CORES, "wsfast_listener:busy_poll", "C:spin", 1.03),
    Goal(
        "round trip, sleeping poll()",
        "variants",
        ONE_CORE,
        "wsfast_listener:sleeping_poll",
        "C:blocking",
        1.04,
    ),
    *(
        Goal("round trip, TLS", "tls", (("size", size),), name, to, goal)
        for name, to, by_size in (
            ("wsfast_listener", C, (1.0, 1.05, 1.0)),
            ("wsfast_awaitable", C, (1.05, 1.10, 1.0)),
            ("wsfast_sync", "C:blocking", (0.90, 1.0, 1.0)),
        )
        for size, goal in zip((512, 8 * KIB, 64 * KIB), by_size)
    ),
    *sized("round trip, TLS", "tls", (512,), "wsfast_listener", PICOWS, 0.70),
    *sized("round trip, TLS", "tls", (512, 8 * KIB, 64 * KIB), "wsfast_sync", "websocket_rs_sync", 0.95),
    Goal("round trip, TLS, two cores", "tls-two", TWO_CORES, "wsfast_listener:busy_poll", "C:spin", 1.05),
    Goal("round trip, TLS, two cores", "tls-two", TWO_CORES, "wsfast_listener:busy_poll", PICOWS, 0.45),
    Goal("batch of 100, TLS", "tls-batch", ONE_CORE, "wsfast_listener", C, 1.3),
    Goal("batch of 100, TLS", "tls-batch", ONE_CORE, "wsfast_listener", PICOWS, 0.12),
    Goal("batch of 100, TLS", "tls-batch", ONE_CORE, "wsfast_awaitable", C, 1.3),
    Goal("flood, TLS, as bytes", "tls-flood", BYTES, "wsfast_listener", PICOWS, 0.50),
    *sized("batch of 100, one core", "batch-one", (64, 512), "wsfast_listener", C, 1.5),
    *sized("batch of 100, one core", "batch-one", (512,), "wsfast_awaitable", C, 1.7),
    Goal("flood, as bytes", "flood", BYTES, "wsfast_listener", PICOWS, 0.50),
    Goal("flood, recv() as str", "flood", TEXT, "wsfast_awaitable", PICOWS_WEBSOCKETS, 0.25),
    Goal(
        "flood, async for as str",
        "flood",
        TEXT,
        "wsfast_awaitable:iterated",
        PICOWS_WEBSOCKETS + ":iterated",
        0.22,
    ),
    *sized("compressed feed", "deflate", (300, 2000), "wsfast_listener", "inflate_alone", 1.2),
    Goal("idle connection", "idle", PLAIN, "wsfast_listener", "", 2.5),
    Goal("idle connection, TLS", "idle", (("tls", True),), "wsfast_listener", "", 20),
    Goal("opening", "connect", (("tls", False),), "wsfast_listener", PICOWS, 1.0),
    Goal("opening again over TLS", "connect", (("tls", True),), "wsfast_listener", PICOWS, 0.5),
]


def of_case(section, case):
    fields = vars(case).items()
    return [goal for goal in GOALS if goal.section == section and set(goal.case) <= set(fields)]


def reached(goal, result):
    """The contender that the goal refers to, and the ratio to it, or the figure; None if one of them did not run."""
    if goal.of not in result.runs:
        return None
    if not goal.to:
        figures = result.point(goal.of)
        processes = len(figures) // result.case.bursts
        return {
            "to": "",
            **comparing.with_spread(figures),
            "n": len(figures),
            "processes": processes,
            "interval": None,
        }
    others = (
        [name for name in result.runs if name.startswith(goal.to)]
        if goal.to == "inflate_alone"
        else [goal.to]
    )
    others = [floor(result.case, goal.of)] if goal.to == C else others
    others = [name for name in others if name in result.runs]
    if not others:
        return None
    to = comparisons.fastest(others, {name: comparing.with_spread(result.point(name)) for name in others})
    return {"to": to, **result.ratio(goal.of, to)}
