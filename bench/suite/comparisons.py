"""Chooses the contenders that are compared, and words the comparison.

The rivals of a client of wsfast are the other libraries' clients of its kind, with all their variants. tungstenite and
Boost.Beast are rivals of the blocking client; the tables have them among the floors too.
"""

from bench.suite.contenders import CLIENTS, is_floor, spins
from wsfast.cli.bench import comparing

OURS = ("wsfast_listener", "wsfast_awaitable", "wsfast_sync")
LANGUAGES = ("Rust", "C++")  # tungstenite and Beast, clients that block


def kind(name):
    if name in LANGUAGES:
        return "blocking"
    client = CLIENTS.get(name.split(":")[0])
    return client.kind if client else "floor"


def is_ours(name):
    return name.split(":")[0] in OURS


def is_rival(name, other):
    """True if `other` is a client of another library, of the kind of wsfast's client `name`."""
    return not is_ours(other) and kind(other) == kind(name)


def compared(name, names):
    """The contenders to compare with wsfast's client `name`: its rivals and all floors."""
    return [other for other in names if is_rival(name, other) or is_floor(other)]


def fastest(names, rows):
    """The contender with the smallest median; None of none."""
    return min(names, key=lambda name: rows[name]["median"], default=None)


def beside(name, other):
    """The name of `other` in a comparison with `name`, which says if only one of them sleeps while it waits."""
    return f"{other} (which sleeps)" if spins(name) and not spins(other) else other


def pairs(results):
    """(result, ratio) of every client of wsfast and every rival."""
    for result in results:
        for found in result["to_others"]:
            if is_rival(found["of"], found["to"]):
                yield result, found


def slower(results):
    """The comparisons in which wsfast is slower: the whole interval is above 1, however wide it is."""
    return [(result, found) for result, found in pairs(results) if comparing.is_slower(found)]


def judged(found, name=""):
    """A ratio with its interval, and whether wsfast is slower than the rival. `name` is the rival's, if a table does
    not have it elsewhere."""
    slow = comparing.is_slower(found) and is_rival(found["of"], found["to"])
    return comparing.judged(found) + (f" of {name}" if name else "") + (", slower" if slow else "")


def processes(found):
    """A sentence that says of how many processes the ratios of a table are."""
    counts = sorted({one["processes"] for one in found if one["interval"]})
    if not counts:
        return ""
    if counts == [1]:
        return "Each ratio is of one process of each client: its interval does not show how processes differ."
    several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"Each ratio is of {several} processes of each client."
