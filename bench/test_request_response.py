"""One request, one reply: a table per size, a row per contender; `pytest bench`."""

import pytest

from bench.cases import request_response
from bench.clock import clock

CASES = [request_response(size) for size in (64, 512, 4096, 8192, 65536)]
QUICK_CASES = [request_response(512), request_response(65536)]


@pytest.mark.benchmark(timer=clock)
def test_request_response(replay, case, contender):
    replay(case, contender)
