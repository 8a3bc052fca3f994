"""A short bout of the scenarios of the opening: see tests/scenarios/opening.py."""

from __future__ import annotations

import asyncio

import pytest
from scenarios import opening


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_hostile_servers_and_a_hostile_proxy(first):
    for seed in range(first, first + 10):
        faults = asyncio.run(asyncio.wait_for(opening.play(seed), 30))
        assert not faults, f"python -m scenarios.opening {seed}"
