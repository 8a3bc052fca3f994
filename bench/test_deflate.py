"""A compressed feed of order-book updates, received as str: a table per size, a row per contender; `pytest bench`."""

import pytest

from bench.cases import deflate
from bench.clock import clock

CASES = [deflate(size) for size in (300, 2000)]
QUICK_CASES = [deflate(300)]


@pytest.mark.benchmark(timer=clock)
def test_deflate(replay, case, contender):
    replay(case, contender)
