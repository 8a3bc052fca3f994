"""The main rows may not take 2 % more instructions than those that bench/counts.json keeps for these compilers."""

import pytest

from bench import counted


@pytest.mark.skipif(counted.why_none() is not None, reason=str(counted.why_none()))
def test_instructions_of_the_main_rows():
    kept = counted.kept().get(counted.key())
    if kept is None:
        pytest.skip(f"no counts are kept for {counted.key()}: python -m bench.counted --keep")
    assert set(kept) == {" ".join(map(str, row)) for row in counted.GATE}
    assert counted.exceeded(kept) == {}, "if the instructions are worth it: python -m bench.counted --keep"
