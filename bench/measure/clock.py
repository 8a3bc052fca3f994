"""The clock of the pytest tables. It advances only when a replay adds measured time."""

_elapsed = 0.0


def clock():
    return _elapsed


def advance(seconds):
    global _elapsed
    _elapsed += seconds
