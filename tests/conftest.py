"""Both event loops, a deadline for every test, and no leftovers: descriptors, threads, tasks, errors in the log."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import inspect
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from support import HUNG

import wsfast.asyncio.client
import wsfast.sync.client

# The run time of a test depends on what else the machine does, so hypothesis shall not judge it. The examples are the
# same every time, so a failure is the fault of a change; `pytest --hypothesis-profile=hammer` searches at random, and
# what it finds is kept as an @example.
settings.register_profile(
    "wsfast",
    deadline=None,
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "hammer",
    settings.get_profile("wsfast"),
    derandomize=False,
    max_examples=int(os.environ.get("EXAMPLES", 2000)),
)
settings.load_profile("wsfast")

# Connecting and closing may take as long as a busy machine needs, unless a test gives them a time.
for _opens in (
    wsfast.ws_connect,
    wsfast.asyncio.client.connect.__init__,
    wsfast.sync.client.reconnect.__init__,
):
    _opens.__signature__ = inspect.signature(_opens)  # tests of it see the real defaults
    _defaults = inspect.unwrap(_opens).__kwdefaults__
    for _name in {"open_timeout", "close_timeout", "websocket_handshake_timeout"} & _defaults.keys():
        _defaults[_name] = HUNG

# What this process inherits from whoever started it is not to matter, here and in the processes that tests start: a
# background job has SIGINT ignored; a proxy, other authorities or a log of keys would change how wsfast connects.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.umask(0o022)
for _name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "WS_PROXY", "WSS_PROXY", "SOCKS_PROXY"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.lower(), None)
for _name in ("SSLKEYLOGFILE", "SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONASYNCIODEBUG"):
    os.environ.pop(_name, None)


def pytest_configure(config: pytest.Config) -> None:
    if sys.version_info < (3, 11):
        # The transport of a TLS handshake that failed, at the server's end: CPython 3.10 closes it, and does not know.
        config.addinivalue_line(
            "filterwarnings", "ignore:unclosed transport <asyncio.sslproto:ResourceWarning"
        )


def pytest_collection_finish() -> None:
    """Exempt the test items, thousands of objects each hundred, from every collection that a test asks for."""
    gc.collect()
    gc.freeze()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every coroutine test runs on both, except where ``@pytest.mark.asyncio(loop_factories=["asyncio"])``."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that does not run, for tests with a mock transport."""
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class TookTooLong(SystemExit):
    """uvloop reports any other exception of a signal handler to its exception handler, and goes on."""


def _within_deadline() -> Generator[None, object, object]:
    """Fail a test that hangs. The timer is off while pytest makes a report: that must not be interrupted."""

    def fail(signum: int, stack: object) -> None:
        faulthandler.dump_traceback()  # of all threads
        raise TookTooLong(f"the test took longer than {HUNG} seconds")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, HUNG, 2)  # again and again, until it gets out
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


pytest_runtest_setup = pytest.hookimpl(wrapper=True, tryfirst=True)(_within_deadline)
pytest_runtest_call = pytest.hookimpl(wrapper=True, tryfirst=True)(_within_deadline)
pytest_runtest_teardown = pytest.hookimpl(wrapper=True, tryfirst=True)(_within_deadline)


class _Errors(logging.Handler):
    """Collects what event loops and transports report as an error: nobody else would see it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1]:
            text += f": {record.exc_info[1]!r}"
        self.records.append(text)


@pytest.fixture
def loop_errors() -> Iterator[list[str]]:
    """The errors of event loops and transports; a test that expects some clears the list."""
    handler = _Errors()
    loggers = [logging.getLogger(name) for name in ("asyncio", "aiofastnet")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.records
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.fixture(scope="session", autouse=True)
def _uvloop_is_warm() -> None:
    """uvloop opens two descriptors with its first loop, and keeps them."""
    loop = uvloop.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


@pytest.fixture(autouse=True)
def no_leftovers(loop_errors: list[str]) -> Iterator[None]:
    """Nothing is left when the test is over and its event loop is closed."""
    descriptors, threads = _descriptors(), threading.active_count()
    yield
    if _descriptors() > descriptors:
        gc.collect()  # an object in a cycle may hold one, and is no leak
    assert _descriptors() <= descriptors, "descriptors are left open"
    assert threading.active_count() <= threads, "threads are left running"
    assert not loop_errors, "errors in the log of the event loop"


@pytest.fixture(autouse=True)
def no_tasks_left(request: pytest.FixtureRequest, no_leftovers: None) -> None:
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("_no_tasks")


@pytest.fixture
async def _no_tasks() -> AsyncIterator[None]:
    yield
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    assert not tasks, "tasks are left running"


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
