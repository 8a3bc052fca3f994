"""One request, one reply: on two cores, where a blocking client may poll, and over TLS; `pytest bench`."""

import pytest

from bench.cases import request_response
from bench.clock import clock

CASES = [
    *(request_response(size, cores="two") for size in (512, 65536)),
    *(request_response(size, tls=True) for size in (512, 8192, 65536)),
]
QUICK_CASES = [request_response(512, cores="two")]


@pytest.mark.benchmark(timer=clock)
def test_sync_request_response(replay, case, contender):
    replay(case, contender)
