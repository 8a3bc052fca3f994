"""A bout of random programs on the awaitable connection, the same ones every time (scenarios/awaitable.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.memory


def test_random_programs():
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "scenarios.awaitable", "4", "1"],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "passed" in ran.stdout, (ran.returncode, ran.stdout[-200:], ran.stderr[-4000:])
