"""The main rows may not take 2 % more instructions than those that bench/counts.json keeps for these compilers."""

import pytest

from bench import counted

KEPT = {"a row": {"all": 1000, "wsfast": 100}}


@pytest.mark.parametrize(
    ("layouts", "over"),
    [
        (((1030, 100), (1010, 100), (1030, 100)), {}),
        (((1030, 100), (1025, 100), (1040, 100)), {("a row", "all"): (1025, 1000)}),
        (((1000, 103), (1000, 103), (1000, 103)), {("a row", "wsfast"): (103, 100)}),
    ],
)
def test_a_row_fails_if_it_exceeds_its_limit_in_every_layout(monkeypatch, layouts, over):
    def count(layout):
        return {"a row": dict(zip(("all", "wsfast"), layouts[layout]))}

    monkeypatch.setattr(counted, "count", count)
    assert counted.exceeded(KEPT) == over


@pytest.mark.skipif(counted.why_none() is not None, reason=str(counted.why_none()))
def test_instructions_of_the_main_rows():
    kept = counted.kept().get(counted.key())
    if kept is None:
        pytest.skip(f"no counts are kept for {counted.key()}: python -m bench.counted --keep")
    assert set(kept) == {" ".join(map(str, row)) for row in counted.GATE}
    assert counted.exceeded(kept) == {}, "if the instructions are worth it: python -m bench.counted --keep"


def test_a_supervised_feed_costs_what_a_plain_one_does():
    for counts in counted.kept().values():
        alone, supervised = (counts[f"wsfast_supervised recv, {row} 0"] for row in ("alone", "supervised"))
        assert all(supervised[name] <= 1.03 * alone[name] for name in alone)
