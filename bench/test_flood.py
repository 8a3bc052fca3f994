"""A flood of replies: a table per size, a row per contender; `pytest bench`."""

import pytest

from bench.cases import flood
from bench.clock import clock

CASES = [flood(size) for size in (64, 512, 4096, 8192, 65536)]
QUICK_CASES = [flood(512), flood(65536)]


@pytest.mark.benchmark(timer=clock)
def test_flood(replay, case, contender):
    replay(case, contender)
