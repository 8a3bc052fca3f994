"""The echo session with which `make demo` starts, without the table."""

import asyncio

from bench import demo


def test_a_row_is_judged_as_in_a_report():
    assert demo.row("a row", [90] * 8, [100] * 8, 1).endswith("90.00   100.00   0.90 (0.90-0.90)")
    assert demo.row("a row", [150, 300] * 8, [100] * 16, 1).endswith("2.25 (1.50-3.00)   slower")
    assert demo.row("a row", [80, 160] * 8, [100] * 16, 1).endswith("1.20 (0.80-1.60)   noise")


def test_a_trade():
    assert asyncio.run(demo.trade()) == (10, 1000)
