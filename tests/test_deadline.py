"""The deadline of every test, see conftest.py: it ends whatever the test waits for."""

import asyncio
import signal
import threading

import pytest
import uvloop


@pytest.fixture(autouse=True)
def soon(deadline):
    signal.setitimer(signal.ITIMER_REAL, 0.01)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_it_ends_an_await(new_loop):
    loop = new_loop()
    with pytest.raises(SystemExit, match="took longer than"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_it_ends_a_lock():
    lock = threading.Lock()
    lock.acquire()
    with pytest.raises(SystemExit, match="took longer than"):
        lock.acquire()
