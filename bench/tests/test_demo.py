"""The parts of `make demo`: the echo session with which it starts, and the rows of its table."""

import asyncio

from bench import demo
from bench.measure.harness import Result
from bench.suite.contenders import contenders


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
