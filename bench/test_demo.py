"""The echo session with which `make demo` starts, without the table."""

import asyncio

from bench import demo


def test_times_that_contradict_their_ratio_are_noise():
    assert "noisy" not in demo.row("a row", [90] * 8, [100] * 8, 1)
    theirs = [1000] * 74 + [100] * 26  # a phase that one side's quartile sees, and hardly a ratio
    assert "0.95 (0.95-0.95)   too noisy" in demo.row("a row", [950] * 98 + [95] * 2, theirs, 1)


def test_a_trade():
    assert asyncio.run(demo.trade()) == (10, 1000)
