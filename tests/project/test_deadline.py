"""The deadline of every test, see conftest.py: it ends whatever the test waits for."""

import asyncio
import signal
import threading

import pytest
import uvloop


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
