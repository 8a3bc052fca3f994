"""A flood of replies, received as str with callbacks, with `recv()` and with `async for`; `pytest bench`."""

import pytest

from bench.cases import flood
from bench.clock import clock

CASES = [flood(size, how="str") for size in (128, 1024)]
QUICK_CASES = [flood(128, how="str")]


@pytest.mark.benchmark(timer=clock)
def test_awaitable_flood(replay, case, contender):
    replay(case, contender)
