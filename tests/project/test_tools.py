"""tools/step.py, which runs the steps of the Makefile, and the deadline of every test (conftest.py)."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import uvloop

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


def soon() -> None:
    """In the test itself: the timer must not go off before it is waited for, in pytest."""
    signal.setitimer(signal.ITIMER_REAL, 0.01)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_ends_an_await(new_loop):
    loop = new_loop()
    loop.call_soon(soon)
    with pytest.raises(SystemExit, match="took longer than"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_it_ends_a_lock():
    lock = threading.Lock()
    lock.acquire()

    def wait() -> None:
        soon()
        lock.acquire()

    with pytest.raises(SystemExit, match="took longer than"):
        wait()
