"""tools/step.py, which runs the steps of the Makefile: a step that fails names its log, whatever the reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEP = Path(__file__).parents[2] / "tools" / "step.py"


@pytest.mark.parametrize(
    ("command", "code", "shown"),
    [
        (["sh", "-c", "echo done"], 0, "took"),
        (["sh", "-c", "printf '\\303\\274\\377'; exit 3"], 3, "\\xfc"),
        (["sh", "-c", "kill -9 $$"], 1, ""),
        (["no-such-command"], 1, "No such file"),
    ],
)
def test_a_step(tmp_path, command, code, shown):
    log = tmp_path / "logs" / "log"
    done = subprocess.run(
        [sys.executable, STEP, "[1/2] building", "1", log, *command],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert shown in done.stdout
    assert (f"This step failed. All of its output is in {log}" in done.stdout) == bool(code)
