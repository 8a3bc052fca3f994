"""examples/bots.py, with those of the libraries that are installed: docs/howto/bots.md."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name",
    [
        "gql",
        "python-binance",
        "cryptofeed",
        "unicorn-binance-websocket-api",
        "alpaca-py",
        "binance-connector",
        "pybit",
    ],
)
def test_a_library_runs_on_wsfast_through_a_proxy(name):
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed: see docs/howto/bots.md")
    words = [sys.executable, "examples/bots.py", name.replace("-", "_")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name} " in done.stdout
    assert ": ok" in done.stdout
