"""The other commands: a short run of `bench.tail`, the limits of `bench.counted`, and the rows of `make demo`."""

import asyncio

import pytest

from bench import counted, demo, tail
from bench.measure.harness import Result
from bench.suite.contenders import contenders

LOOPS = {
    "closed": lambda name: tail.closed_loop(name, 500, gc=True),
    "open": lambda name: tail.open_loop(name, 500, 2000, gc=False),
}


@pytest.mark.parametrize("name", tail.OPEN)
@pytest.mark.parametrize("loop", LOOPS)
def test_tail(loop, name):
    summary = LOOPS[loop](name)
    assert summary["n"] == 500
    assert 0 < summary["p50"] <= summary["p999"] <= summary["max"]


KEPT = {"a row": {"all": 1000, "wsfast": 100}}


@pytest.mark.parametrize(
    ("layouts", "over"),
    [
        (((1070, 100), (1060, 100), (1070, 100)), {}),
        (((1070, 100), (1065, 100), (1080, 100)), {("a row", "all"): (1065, 1000)}),
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


def result(ours, theirs):
    runs = {"wsfast_listener": ours, "picows_listener": theirs}
    runs = {name: [{"p50": 1000 * value} for value in values] for name, values in runs.items()}
    return Result(demo.ROWS[0][1], runs)


def test_a_row_is_judged_as_in_a_report():
    def row(*values):
        return demo.row("a row", result(*values), "wsfast_listener")

    assert row([90] * 30, [100] * 30).endswith("90.00   100.00   0.90 (0.90-0.90)")
    assert row([150, 300] * 15, [100] * 30).endswith("2.25 (1.50-3.00)   slower")
    assert row([80, 160] * 15, [100] * 30).endswith("1.20 (0.80-1.60)   noise")
    gap = Result(demo.ROWS[0][1], {}, {"picows_listener": "picows_listener cannot run: no picows"})
    assert "cannot run: no picows" in demo.row("a row", gap, "wsfast_listener")


def test_the_suite_has_the_contenders_of_each_row():
    for _, case, ours in demo.ROWS:
        assert {ours, demo.PEER} <= set(contenders(case))


def test_a_trade():
    assert asyncio.run(demo.trade()) == (10, 1000)
