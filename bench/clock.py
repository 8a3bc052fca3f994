"""The clock of the pytest tables: it stands still until told that measured time has passed."""

_elapsed = 0.0


def clock():
    return _elapsed


def advance(seconds):
    global _elapsed
    _elapsed += seconds
