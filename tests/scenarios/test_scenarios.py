"""Short bouts of the random scenarios, with the same seeds every time; `make hammer` plays others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios import blocking, crossing, opening, threads
from scenarios.client import run
from scenarios.program import draw


@pytest.mark.memory
def test_random_programs():
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "scenarios.awaitable", "4", "1"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "passed" in ran.stdout, (ran.returncode, ran.stdout[-200:], ran.stderr[-4000:])


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


@pytest.mark.memory
@pytest.mark.parametrize("seed", range(12))
def test_threads_that_do_everything_at_once(seed):
    blocking.run(seed)


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_hostile_servers_and_a_hostile_proxy(first):
    for seed in range(first, first + 10):
        faults = asyncio.run(asyncio.wait_for(opening.play(seed), 30))
        assert not faults, f"python -m scenarios.opening {seed}"
