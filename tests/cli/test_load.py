"""`wsfast load`: its measurements, its output and its exit codes."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from array import array
from functools import partial
from types import SimpleNamespace

import pytest
from rich.console import Console

from wsfast.cli.load.command import _plan
from wsfast.cli.load.connections import Connection, Loader, Pace
from wsfast.cli.load.plan import Schedule, Workload, parse_sizes
from wsfast.cli.load.results import Histogram, Run, Series, spread
from wsfast.cli.main import parser
from wsfast.cli.text import buckets, duration
from wsfast.exceptions import ConnectionClosed, InvalidURI

QUICK = ("--warmup", "0", "--quiet")


def load(run, *arguments):
    """Run a load. Returns the ended command, and its JSON."""
    done = run("load", *arguments, *QUICK, "--json", "-")
    return done, json.loads(done.out)


def test_closed_loop_counts_each_answer_once(run, server):
    done, content = load(run, server.plain, "-n", "300", "-c", "7", "--window", "3", "--verify")
    assert (done.code, content["errors"]) == (0, {})
    (one,) = content["runs"]
    assert one["messages"] == {"sent": 300, "answered": 300, "counted": 300}
    assert one["latency"]["count"] == content["latency"]["count"] == 300
    assert one["connections"] == 7
    assert one["messages_per_second"] == pytest.approx(300 / one["seconds"], rel=0.01)
    latency = one["latency"]
    assert 0 < latency["min"] <= latency["p50"] <= latency["p99"] <= latency["p99.99"] <= latency["max"]
    assert "messages/s answered: 300" in done.err
    assert content["plan"]["loop"] == "closed"


def test_open_loop_follows_its_schedule_in_several_processes(run, server):
    done, content = load(run, server.plain, "-r", "400", "-d", "0.5", "-c", "4", "--processes", "2")
    assert (done.code, content["errors"]) == (0, {})
    (one,) = content["runs"]
    # By the clock, whatever the server does: 400 x 0.5, and each of them measured.
    assert one["messages"]["sent"] == one["latency"]["count"] == one["lag"]["count"] == 200
    assert one["seconds"] == pytest.approx(0.5)
    assert "schedule: messages left late by p50" in done.err


def test_a_rate_that_the_client_cannot_keep(run, server):
    done, content = load(
        run, f"{server.plain}/silent", "-r", "1e7", "-d", "0.05", "-c", "1", "--drain", "0.1", "--size", "1"
    )
    assert done.code == 1
    (one,) = content["runs"]
    # Each message that was due was sent, or is an error.
    unsent = content["errors"]["not sent: the client is too slow for this rate"]
    assert one["messages"]["sent"] + unsent == 500_000
    assert "WARNING: the client did not keep its schedule" in done.err


def test_two_series_of_runs_have_their_statistics(run, server, tmp_path):
    page = tmp_path / "load.html"
    done, content = load(run, server.plain, "-n", "40", "--series", "2", "--runs", "1", "--html", page)
    assert done.code == 0
    assert [(one["series"], one["run"]) for one in content["runs"]] == [(1, 1), (2, 1)]
    rates = [one["messages_per_second"] for one in content["runs"]]
    found = content["messages_per_second"]
    assert set(found) == {"series_1", "series_2", "all_runs"}
    assert found["all_runs"]["mean"] == pytest.approx(sum(rates) / 2, rel=1e-3)
    assert found["all_runs"]["peak"] == pytest.approx(max(rates), rel=1e-3)
    assert content["latency"]["count"] == 80
    html = page.read_text()
    assert html.count("<svg") == 3
    assert not re.search(r"(src|href)=|https?://", html.partition("<details>")[0]), "it must load nothing"
    assert re.search(r"all runs\s+2", done.err)


def test_progress_at_a_terminal(run, server, monkeypatch):
    """A bar, the figures so far, and the histogram as it grows."""
    monkeypatch.setattr("wsfast.cli.load.progress.Console", partial(Console, force_terminal=True, width=100))
    monkeypatch.setattr("wsfast.cli.load.progress._REDRAW", 0)
    done = run("load", server.plain, "-n", "300", "-c", "3", "--warmup", "0", "--reconnect")
    assert done.code == 0
    assert "load: connecting" in done.err
    assert re.search(r"3 connections  0 reconnections  300 answers  .*  0 errors", done.err)
    assert re.search(r"p50 .*p99\.99", done.err)
    assert "█" in done.err


def test_messages_of_a_file_and_wrong_answers(run, server, tmp_path):
    file = tmp_path / "messages"
    file.write_text("buy\nsell\nhold\n")
    done, content = load(
        run, f"{server.plain}/wrong", "-n", "9", "-c", "3", "--messages-from", file, "--verify"
    )
    assert done.code == 1
    assert content["errors"] == {"answer differs from its message": 9}


def test_answers_in_fragments(run, server):
    done, content = load(run, f"{server.plain}/fragments", "-n", "9", "-c", "3", "--verify")
    assert (done.code, content["errors"]) == (0, {})


def test_a_server_that_closes_in_the_middle(run, server):
    done, content = load(run, f"{server.plain}/fail", "-d", "5", "-c", "3")
    assert done.code == 1
    kinds = dict(content["errors"])
    assert kinds.pop("unanswered: the connection was closed") == 3
    (kind,) = kinds
    assert kinds[kind] == 3
    assert "1011" in kind
    assert "broken" in kind


def test_it_opens_lost_connections_again(run, server, tmp_path):
    page = tmp_path / "load.html"
    done, content = load(run, f"{server.plain}/fail", "-n", "3", "-c", "1", "--reconnect", "--html", page)
    assert done.code == 1
    assert content["reconnections"] == content["runs"][0]["reconnections"] == 2
    assert "\nreconnections: 2\n" in done.err
    assert "<p>Reconnections: 2</p>" in page.read_text()
    assert content["errors"] == {
        "unanswered: the connection was closed": 3,
        "connection closed with 1011 'broken'": 3,
    }


@pytest.mark.parametrize("error", [None, ConnectionRefusedError(), InvalidURI("ws://x/", "for ever")])
def test_lost_connections_come_back_ever_more_slowly(monkeypatch, error):
    """The server accepts and closes at once, or refuses. The delays are those of a supervisor."""
    delays = []

    class Lost:
        is_disconnected = True
        close_info = SimpleNamespace(code=1011, reason="", cause=None)
        stats = SimpleNamespace(bytes_sent=0, bytes_received=0)

    async def ws_connect(make, url, **options):
        if error is not None:
            raise error
        connection = make()
        connection.on_ws_connected(Lost)
        connection.on_ws_disconnected(Lost)
        return Lost, connection

    async def sleep(seconds):
        delays.append(seconds)
        loader.sending = len(delays) < 5

    async def reopen():
        loader.sending = True
        connection.on_ws_disconnected(Lost)
        while loader._reopening:
            await asyncio.wait(loader._reopening)

    monkeypatch.setattr("wsfast.cli.load.connections.ws_connect", ws_connect)
    monkeypatch.setattr("wsfast.cli.load.connections.asyncio.sleep", sleep)
    monkeypatch.setattr("random.uniform", lambda least, most: most)
    loader, connection = a_loader("--reconnect")
    asyncio.run(reopen())
    assert delays == ([0.5] if isinstance(error, InvalidURI) else [0.5, 1, 2, 4, 8])
    assert loader.reconnections == (4 if error is None else 0)


def test_what_was_due_without_a_connection_is_an_error(run, server):
    done, content = load(run, f"{server.plain}/fail", "-r", "100", "-d", "0.5", "-c", "1", "--reconnect")
    assert done.code == 1
    errors = content["errors"]
    (one,) = content["runs"]
    unsent = errors["not sent: there was no connection"] + errors.get(
        "not sent: the connection was closing", 0
    )
    assert one["messages"]["sent"] + unsent == 50
    assert errors["unanswered: the connection was closed"] == one["messages"]["sent"]


def test_compression(run, server, tmp_path):
    file = tmp_path / "messages"
    file.write_text("a" * 5000)
    done, content = load(
        run, server.plain, "-n", "20", "-c", "1", "--compression", "--verify", "--messages-from", file
    )
    assert (done.code, content["errors"]) == (0, {})
    (one,) = content["runs"]
    # With context takeover a message is a few bytes.
    assert one["bytes_per_second"]["sent"] < one["messages_per_second"] * 500


def test_a_server_that_vanishes_for_some(run, server):
    done, content = load(run, f"{server.plain}/vanish", "-r", "500", "-d", "0.3", "-c", "4")
    assert done.code == 1
    (one,) = content["runs"]
    lost = content["errors"]["unanswered: the connection was closed"]
    assert one["messages"]["answered"] + lost == one["messages"]["sent"]


def test_a_server_that_does_not_answer(run, server):
    done, content = load(run, f"{server.plain}/silent", "-d", "0.5", "-c", "3", "--drain", "0.1")
    assert done.code == 1
    assert content["errors"] == {"unanswered after 0.1 s": 3}


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("ws://127.0.0.1:1/", "connecting: .*refused"),
        ("{plain}/forbidden", "connecting: .*403"),
        ("{tls}/", "connecting: .*certificate verify failed"),
    ],
)
def test_no_connection(run, server, url, error):
    done, content = load(run, url.format(plain=server.plain, tls=server.tls), "-c", "2")
    assert done.code == 1
    (kind,) = content["errors"]
    assert content["errors"][kind] == 2
    assert re.match(error, kind)
    assert "nothing was measured" in done.err


def test_over_tls(run, server):
    done, content = load(run, server.tls, "-n", "5", "-c", "1", "--cacert", server.cacert, "--size", "1-2k")
    assert done.code == 0
    assert content["runs"][0]["tls"] == "TLSv1.3, rustls"


def test_ctrl_c_prints_what_was_measured(started, server):
    process = started("load", server.plain, "-d", "60", *QUICK, "--json", "-")
    # It answers once something has been sent, and says so by its JSON only at the end, so ask the server.
    wait_for_traffic(server)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    content = json.loads(out)
    assert process.returncode == 130
    assert content["interrupted"]
    assert content["latency"]["count"] > 0
    assert 0 < content["runs"][0]["seconds"] < 60
    assert "interrupted" in err


def test_a_worker_ends_with_the_process_that_started_it():
    """The load is still opening its connections, to a server that never answers, for a year."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}/"
        plan = _plan(parser().parse_args(["load", url, "--open-timeout", "3e7"]))
        subprocess.run(
            [sys.executable, "-m", "wsfast.cli.load.worker", "0", plan.loop],
            input=plan.dumps().encode() + b"\n",
            stdout=subprocess.PIPE,
            check=True,
        )


def test_the_open_timeout_is_that_of_the_upgrade_too(monkeypatch):
    async def ws_connect(make, url, *, open_timeout, websocket_handshake_timeout, **options):
        limits.append((open_timeout, websocket_handshake_timeout))
        raise ConnectionRefusedError

    limits = []
    monkeypatch.setattr("wsfast.cli.load.connections.ws_connect", ws_connect)
    asyncio.run(a_loader("--open-timeout", "60")[0].open())
    assert limits == [(60, 60)]


def test_nothing_leaves_before_the_start(monkeypatch):
    """A loop may wake up early. A message that it sent then would belong to the warm-up, and would not be counted."""
    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda seconds: sleep(0))
    loader, connection = a_loader("-n", "1", "--warmup", "0")
    loader._connections.append(connection)
    connection.transport.send = lambda *message: loader._ended.set()
    start = time.monotonic_ns() + 5_000_000
    asyncio.run(loader.run(start))
    assert connection.waiting[0] >= start


def test_stopping_before_the_start():
    loader, connection = a_loader("-d", "0.1")
    loader._connections.append(connection)
    loader.stop()
    asyncio.run(loader.run(time.monotonic_ns()))
    assert loader.sent == 0


def wait_for_traffic(server):
    from wsfast.sync.client import connect

    def count():
        with connect(f"{server.plain}/counts") as ws:
            return json.loads(ws.recv()).get("/", 0)

    before = count()
    while count() <= before:
        pass


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["http://127.0.0.1/"], "scheme isn't ws or wss"),
        (["ws://x/", "-n", "1", "-d", "1"], "not allowed with"),
        (["ws://x/", "--size", "8-4"], "'8-4' is not a size"),
        (["ws://x/", "--rate", "0"], "'0' is not a positive number"),
        (["ws://x/", "--rate", "5", "--window", "2"], "--window is for the closed loop"),
        (["ws://x/", "--processes", "3", "-c", "2"], "there are only 2 connections"),
        (["ws://x/", "--messages-from", "/nowhere/at/all"], "/nowhere/at/all: No such file"),
        (["ws://x/", "--json", "/nowhere/at/all"], "/nowhere/at/all: No such file"),
        (["ws://x/", "--cacert", "/nowhere/ca.pem"], "/nowhere/ca.pem: No such file"),
        (["wss://x/", "--cacert", "/nowhere/ca.pem"], "/nowhere/ca.pem: No such file"),
        (["wss://x/", "--insecure", "--cacert", "x"], "--insecure accepts any certificate"),
        (["ws://x/", "-H", "nonsense"], "a header is 'NAME: VALUE'"),
    ],
)
def test_wrong_usage(run, arguments, error):
    done = run("load", *arguments)
    assert (done.code, done.out) == (2, "")
    assert error in done.err
    assert "Traceback" not in done.err


def test_schedule_is_fixed_by_its_start_alone():
    first, second = Schedule(1000, 3, 0, 2), Schedule(1000, 3, 1, 2)
    found = []
    for schedule in (first, second) * 3:
        found.append(schedule.due())
        schedule.sent += 1
    assert found == [1000 + number * 10**9 // 3 for number in range(6)]
    assert [first.left(end) for end in (1000, 2 * 10**9, 4 * 10**9)] == [0, 0, 3]


def a_loader(*arguments):
    """An loader with one connection that has no server."""

    class Transport:
        def send(self, msg_type, message):
            pass

    loader = Loader(_plan(parser().parse_args(["load", "ws://x/", "-c", "1", *arguments])), 0)
    connection = Connection(loader, Pace())
    connection.transport = Transport()
    return loader, connection


def test_a_message_to_a_connection_that_is_closing():
    """The schedule goes on, and the message is an error."""

    def send(*message):
        raise ConnectionClosed(None, None)

    loader, connection = a_loader("--rate", "1000", "--verify")
    loader.begins = 0
    connection.transport.send = send
    connection.send(due=5)
    assert loader.errors == {"not sent: the connection was closing": 1}
    assert (loader.sent, len(connection.waiting), len(connection.expected)) == (0, 0, 0)


def test_a_latency_counts_from_when_its_message_was_due():
    """A stall of the client delays messages, and the latency of each includes its delay."""
    loader, connection = a_loader("--rate", "1000")
    loader.begins, loader.sending = 0, True
    connection.send(due=5)

    class Frame:
        fin, msg_type = True, 1

    connection.on_ws_frame(connection.transport, Frame())
    assert loader.latencies[0] == pytest.approx(time.monotonic_ns() - 5, rel=1e-3)


def test_histogram_keeps_three_digits():
    histogram = Histogram()
    histogram.add(array("q", [50_000] * 98 + [1_000_000, 2_000_000_000]))
    assert len(histogram) == 100
    levels = histogram.percentiles()
    assert levels[50.0] == pytest.approx(50_000, rel=2e-3)
    assert levels[99.0] == pytest.approx(1_000_000, rel=2e-3)
    assert levels[99.99] == pytest.approx(2e9, rel=2e-3)
    again = Histogram()
    again.merge(histogram)
    assert again.percentiles() == levels


def test_statistics_of_runs():
    runs = [
        Run(1, 1, counted=10, seconds=1),
        Run(1, 2, counted=30, seconds=1),
        Run(1, 3, counted=20, seconds=1),
    ]
    ((name, values),) = Series(runs).groups()
    assert (name, spread(values)) == ("series 1", {"mean": 20, "median": 20, "peak": 30, "stdev": 10})


def test_buckets_count_everything():
    found = buckets([(100, 1), (1e3, 2), (1e6, 3), (1e9, 4)], rows=12)
    assert sum(count for *_, count in found) == 10
    assert len(found) <= 12
    assert all(low < high for low, high, _ in found)


def test_durations_and_sizes():
    assert [duration(value) for value in (5, 1234, 99_960, 12_345_678, 3e9)] == [
        "5.00 ns",
        "1.23 µs",
        "100 µs",
        "12.3 ms",
        "3.00 s",
    ]
    assert parse_sizes("64-8k") == (64, 8192)
    messages = Workload(64, 128, False, None, 1).messages()
    assert messages == Workload(64, 128, False, None, 1).messages()
    assert {len(message) for message in messages} <= set(range(64, 129))
