"""The job of `make demo`, before its table."""

import asyncio

from bench import demo


def test_a_trade():
    assert asyncio.run(demo.trade()) == (10, 1000)
