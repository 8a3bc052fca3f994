"""A short run of `python -m bench.tail`, to check that its parts work together; `pytest bench`."""

import pytest

from bench import tail

LOOPS = {
    "closed": lambda name: tail.closed_loop(name, 500, gc=True),
    "open": lambda name: tail.open_loop(name, 500, 2000, gc=False),
}


@pytest.mark.parametrize("name", tail.OPEN)
@pytest.mark.parametrize("loop", LOOPS)
def test_tail(loop, name):
    summary = LOOPS[loop](name)
    assert summary["n"] == 500
    assert 0 < summary["p50"] <= summary["p999"] <= summary["max"]
