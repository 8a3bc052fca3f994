"""The echo session with which `make demo` starts, without the table."""

import asyncio

from bench import demo


def test_a_trade():
    assert asyncio.run(demo.trade()) == (10, 1000)
