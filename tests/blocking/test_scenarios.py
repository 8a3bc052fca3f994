"""A short bout of the scenarios of the blocking client; `make hammer-blocking` goes on."""

import pytest
from scenarios import blocking


@pytest.mark.memory
@pytest.mark.parametrize("seed", range(12))
def test_threads_that_do_everything_at_once(seed):
    blocking.run(seed)
