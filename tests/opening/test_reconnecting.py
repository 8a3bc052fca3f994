"""When a loop over connections connects again: after which errors, and how soon. No test waits."""

from __future__ import annotations

import asyncio
import logging
import socket
from email.utils import formatdate
from types import SimpleNamespace

import pytest
from multidict import CIMultiDict
from support.blocking import scripted
from support.servers import serve

import wsfast.asyncio.client
import wsfast.sync.client
from wsfast import InvalidHeader, InvalidStatus
from wsfast._opening.reconnecting import MAX_RETRY_AFTER, MINIMUM_LIFE, Attempts, process_exception

LOGGER = logging.getLogger("wsfast.test")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def delays():
    yield from (1, 2, 3, 4, 5, 6, 7, 8)


def rejected(status: int, **headers: str) -> InvalidStatus:
    named = CIMultiDict((name.replace("_", "-"), value) for name, value in headers.items())
    return InvalidStatus(SimpleNamespace(status_code=status, headers=named))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def attempts(clock):
    return Attempts(process_exception, delays, LOGGER, clock)


def live(attempts, clock, seconds):
    """One connection. Returns how long it is until the next."""
    attempts.connected()
    clock.now += seconds
    return attempts.ended()


def test_failures_are_ever_further_apart(attempts):
    assert [attempts.failed(OSError()) for _ in range(3)] == [1, 2, 3]


def test_a_server_that_accepts_and_closes_at_once_is_a_failure(attempts, clock):
    assert [live(attempts, clock, 0) for _ in range(3)] == [1, 2, 3]
    assert attempts.failed(OSError()) == 4
    assert live(attempts, clock, MINIMUM_LIFE - 0.01) == 5


def test_after_a_connection_that_has_lived_there_is_no_delay_and_delays_begin_anew(attempts, clock):
    assert [attempts.failed(OSError()) for _ in range(3)] == [1, 2, 3]
    assert live(attempts, clock, MINIMUM_LIFE) == 0
    assert attempts.failed(OSError()) == 1


def test_the_time_between_connections_is_not_life(attempts, clock):
    assert live(attempts, clock, 0) == 1
    clock.now += 1000
    assert attempts.failed(OSError()) == 2
    clock.now += 1000
    assert live(attempts, clock, 0) == 3


def test_a_connection_that_has_lived_and_fails_to_close(attempts, clock):
    attempts.failed(OSError())
    attempts.connected()
    clock.now += MINIMUM_LIFE
    assert attempts.failed(OSError()) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_statuses_that_pass(attempts, status):
    assert attempts.failed(rejected(status)) == 1


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 418, 426, 501])
def test_statuses_that_do_not(attempts, status):
    with pytest.raises(InvalidStatus):
        attempts.failed(rejected(status))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("9" * 30, 1e30),
        ("9" * 5000, float("inf")),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("soon", None),
        ("\u0661", None),
        ("Fri, 31 Feb 2025 00:00:00 GMT", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Wed, 21 Oct 99999 07:28:00 GMT", None),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_retry_after(text, seconds):
    assert rejected(503, retry_after=text).retry_after == (
        None if seconds is None else pytest.approx(seconds)
    )


def test_retry_after_a_date(monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    date = formatdate(1_700_000_060, usegmt=True)
    assert rejected(503, retry_after=date).retry_after == 60
    assert rejected(503, retry_after=date.removesuffix(" GMT")).retry_after == 60
    assert rejected(503).retry_after is None


def test_retry_after_is_the_least_delay_and_has_a_limit(attempts):
    assert attempts.failed(rejected(429, retry_after="30")) == 30
    assert attempts.failed(rejected(503, retry_after="1")) == 2
    assert attempts.failed(rejected(503, retry_after="9" * 5000)) == MAX_RETRY_AFTER
    assert attempts.failed(OSError()) == 4


def test_the_log_has_no_control_characters_of_the_server(attempts, caplog):
    caplog.set_level(logging.INFO)
    attempts._process_exception = lambda exc: None
    attempts.failed(InvalidHeader("X", "a\r\nERROR all is lost\x1b[2J"))
    assert [record.getMessage().isprintable() for record in caplog.records] == [True]


# The loops themselves: against servers, but with a clock and a sleep of the test's own.


class Slept(Exception):  # noqa: N818
    """The loop has waited often enough."""


def patient(cls, clock, slept, times):
    """A subclass of the face's that notes how long it would wait."""

    def note(seconds):
        slept.append(seconds)
        if len(slept) == times:
            raise Slept

    async def note_async(seconds):
        note(seconds)
        await asyncio.sleep(0)

    sleep = note_async if cls is wsfast.asyncio.client.connect else note
    members = {"_clock": staticmethod(clock), "_sleep": staticmethod(sleep)}
    return type("patient", (cls,), members)


BUSY = b"HTTP/1.1 429 Slow down\r\nRetry-After: 100\r\nContent-Length: 0\r\n\r\n"


async def test_async_for_is_paced(clock):
    served, slept, lives = 0, [], iter([0, 0, 60, 0])

    async def handler(peer):
        nonlocal served
        served += 1
        if served == 2:
            await peer.read_request()
            peer.send(BUSY)
        else:
            await peer.accept()
            peer.send(b"\x88\x02\x03\xe8")

    async with serve(handler) as server:
        connect = patient(wsfast.asyncio.client.connect, clock, slept, 5)
        with pytest.raises(Slept):
            async for ws in connect(server.url, reconnect_delays=delays):
                async for _ in ws:
                    pass  # ends normally, at once
                clock.now += next(lives)
    assert slept == [1, 100, 3, 0, 1]


def test_for_is_paced(clock):
    slept, lives = [], iter([0, 0, 60, 0])

    def script(peer):
        if len(server.results) == 1:
            peer.read_request()
            peer.send(BUSY)
        else:
            peer.accept()
            peer.send(b"\x88\x02\x03\xe8")

    reconnect = patient(wsfast.sync.client.reconnect, clock, slept, 5)
    with scripted(script, connections=5) as server, pytest.raises(Slept):
        for ws in reconnect(server.url, reconnect_delays=delays):
            for _ in ws:
                pass
            clock.now += next(lives)
    assert slept == [1, 100, 3, 0, 1]


# A program's delays may end. Then the loop does: by the error of the last attempt, or, if that connected, by itself.


def loops(face):
    if face == "awaitable":
        return wsfast.asyncio.client.connect

    async def loop(reconnect):
        for ws in reconnect:
            yield ws

    return lambda *args, **options: loop(wsfast.sync.client.reconnect(*args, **options))


async def test_delays_end_after_a_failure():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}/"
        for face in "awaitable", "blocking":
            with pytest.raises(ConnectionRefusedError):
                async for _ in loops(face)(url, reconnect_delays=lambda: iter([0, 0])):
                    pass


async def test_delays_end_after_a_connection():
    async def handler(peer):
        await peer.accept()
        peer.send(b"\x88\x02\x03\xe8")

    connected = 0
    async with serve(handler) as server:
        async for ws in wsfast.asyncio.client.connect(server.url, reconnect_delays=lambda: iter([0, 0])):
            connected += 1
            await ws.wait_closed()
    assert connected == 3


def test_delays_of_the_blocking_client_end():
    def script(peer):
        peer.accept()
        peer.send(b"\x88\x02\x03\xe8")

    with scripted(script, connections=3) as server:
        for ws in wsfast.sync.client.reconnect(server.url, reconnect_delays=lambda: iter([0, 0])):
            for _ in ws:
                pass
    assert len(server.results) == 3
