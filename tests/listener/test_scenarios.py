"""Scenarios made at random, with a fixed set of seeds; ``make hammer`` plays others. See tests/scenarios."""

from __future__ import annotations

import os

import pytest
from scenarios import crossing, threads
from scenarios.client import run
from scenarios.program import draw

# Under the sanitizers, which are slow, the first of them; `make hammer-listener` has time for others.
BOUTS, SCENARIOS = 4 if "ASAN_OPTIONS" in os.environ else 16, 10


@pytest.mark.memory
@pytest.mark.parametrize("bout", range(BOUTS))
def test_whatever_callbacks_do_the_server_gets_what_was_sent(bout):
    for seed in range(bout * SCENARIOS, (bout + 1) * SCENARIOS):
        program = draw(seed)
        faults = run(program)
        assert not faults, f"python -m scenarios --seed {seed}\n{program}\n" + "\n".join(faults)


@pytest.mark.memory
@pytest.mark.parametrize("bout", range(BOUTS // 4))
def test_connections_that_read_inside_each_other_get_their_own_bytes(bout):
    for seed in range(bout * SCENARIOS, (bout + 1) * SCENARIOS):
        faults = crossing.run(seed)
        assert not faults, f"python -m scenarios.crossing --seed {seed}\n" + "\n".join(faults)


@pytest.mark.memory
def test_loops_in_threads_and_threads_that_ask_from_outside():
    for seed in range(SCENARIOS):
        faults = threads.run(seed)
        assert not faults, f"python -m scenarios.threads --seed {seed}\n" + "\n".join(faults)
