"""A hundred requests, then a hundred replies: a table per size, a row per contender; `pytest bench`."""

import pytest

from bench.cases import batch
from bench.clock import clock

CASES = [batch(size) for size in (64, 512, 4096, 8192, 65536)]
QUICK_CASES = [batch(512), batch(65536)]


@pytest.mark.benchmark(timer=clock)
def test_batch(replay, case, contender):
    replay(case, contender)
