"""Measuring: processes of clients and servers by turns, their statistics, and the store of results."""

_elapsed = 0.0


def clock():
    """The clock of the pytest tables. It advances only when a replay adds measured time."""
    return _elapsed


def advance(seconds):
    global _elapsed
    _elapsed += seconds
