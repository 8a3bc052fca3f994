"""Every row of the suite: `pytest bench`. A table for each case, a row for each contender.

pytest bench --sections rr batch --repeats 9
pytest bench --sections rr --benchmark-json=now.json        keep the raw data
pytest bench --sections rr --benchmark-autosave             keep it, and compare with it after a change:
pytest bench --sections rr --benchmark-compare
"""

import pytest

from bench.measure import clock


@pytest.mark.benchmark(timer=clock)
def test_row(replay, section, case, contender):
    replay(section, case, contender)
