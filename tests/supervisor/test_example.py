"""The end of `make demo`."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_feed_rolls_over_without_a_gap():
    words = [sys.executable, "-X", "dev", "-W", "error", "examples/rollover.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 rollovers, 0 gaps,\n0 updates lost, 0 delivered twice" in done.stdout
