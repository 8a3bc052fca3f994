"""What becomes of measured data: statistics, kept files, tables, plots and the page."""

import contextlib
import dataclasses
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bench import cases, contenders, front, goals, harness, kept, page, sections, stats, suite, tables
from bench.conftest import rows
from bench.harness import Result, RunFailedError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def runs(*figures):
    return [
        {**stats.summary([figure * 1000, figure * 1000 + 1]), "cpu": figure * 4_500_000} for figure in figures
    ]


def run_of(burst):
    """A class like harness.Run, whose bursts are `burst(name, case)`."""

    class Run(contextlib.nullcontext):
        def __init__(self, name, case):
            super().__init__(self)
            self.burst = lambda: burst(name, case)

        def prepare(self):
            pass

    return Run


def results(**contenders):
    return [
        Result(
            cases.request_response(size),
            {name: runs(*found) for name, found in contenders.items()},
            {"aiohttp_client": "aiohttp_client cannot run: no aiohttp"},
        )
        for size in (512, 1024)
    ]


def report(**contenders):
    data = [tables.as_data("rr", result) for result in results(**contenders)]
    where = {"wsfast_listener": {"masking": 124, "Python": 20_000}}
    return {"machine": dict(kept.machine()), "where": where, "results": data}


def test_the_suite_measures_what_each_goal_speaks_of():
    for goal in goals.GOALS:
        section = sections.SECTIONS[goal.section]
        wanted = [case for case in section.cases if set(goal.case) <= set(vars(case).items())]
        assert wanted, goal
        for case in wanted:
            names = contenders.contenders(case, section)
            assert goal.of in names, goal
            assert goal.to in ("", goals.C, "inflate_alone") or goal.to in names, goal


def test_no_two_columns_of_a_table_are_called_the_same():
    for section in sections.SECTIONS.values():
        if section.cases[0].function != "primitive":
            columns = [tables.column(dataclasses.asdict(case)) for case in section.cases]
            assert len({*columns}) == len(columns), columns


def test_an_interval_is_around_the_median_and_repeats():
    found = stats.ratios([10, 11, 12, 13, 30], [10, 10, 10, 10, 10])
    low, high = found["interval"]
    assert low <= found["median"] == 1.2 <= high
    assert found == stats.ratios([10, 11, 12, 13, 30], [10, 10, 10, 10, 10])


@pytest.mark.parametrize(("values", "noisy"), [((10, 10, 11, 11), False), ((10, 10, 14, 19), True)])
def test_a_wide_spread_is_noise(values, noisy):
    assert stats.is_noise(stats.with_spread(values)) is noisy


def test_the_two_ways_add_up_to_the_round_trip():
    found = stats.parts([(0, 300, 1000)] * 3)
    assert (found["send"]["p50"], found["receive"]["p50"], found["p50"]) == (300, 700, 1000)


def test_tables():
    """A ratio to the fastest peer of the kind and to C, noise, a slower client, and the reason of a gap."""
    steady = {"picows_listener": (10, 10, 10), "C:epoll": (5, 5, 5)}
    text = "\n".join(tables.markdown(report(wsfast_listener=(9, 9, 9), **steady)))
    assert "| wsfast_listener / the fastest peer | 0.90 (0.90-0.90) of picows_listener |" in text
    assert "| wsfast_listener / C:epoll | 1.80 (1.80-1.80) |" in text
    assert "| round trip | 512 B | wsfast_listener | C:epoll | 1.08 | 1.80 (1.80-1.80) | no |" in text
    assert "| opening |  | wsfast_listener | picows_listener | 1 | - | not measured |" in text
    assert "No row: wsfast is nowhere slower than a peer" in text
    assert "| wsfast_listener | 20,124 | 124 |" in text
    assert "No figure: aiohttp_client cannot run: no aiohttp." in text
    slower = "\n".join(tables.markdown(report(wsfast_listener=(12, 12, 12), **steady)))
    assert "1.20 (1.20-1.20), slower of" in slower
    title = cases.request_response(512).title
    assert f"| {title} | wsfast_listener | picows_listener | 1.20 (1.20-1.20) |" in slower
    noise = "\n".join(tables.markdown(report(wsfast_listener=(9, 16, 40), **steady)))
    assert "| wsfast_listener | noise (9-40) |" in noise


def test_nothing_is_concluded_from_one_burst():
    made = report(wsfast_listener=(12,), picows_listener=(10,), **{"C:epoll": (5,)})
    first = "\n".join(front.lines(made, [], "docs/"))
    assert "| round trip, 512 B | listener | 1.20 (1 burst) | - | - | 2.40 (1 burst) |" in first
    text = "\n".join(tables.markdown(made))
    assert (
        "| round trip | 512 B | wsfast_listener | C:epoll | 1.08 | 2.40 (1 burst) | too few bursts |" in text
    )
    assert "slower of" not in text


def test_whether_a_result_hangs_on_the_server():
    def measured(server, *ours):
        case = cases.request_response(512, server=server)
        result = Result(case, {"wsfast_listener": runs(*ours), "picows_listener": runs(10, 10, 10)})
        return tables.as_data("rr" if server == "C" else f"{server}-server", result)

    alike = [measured("C", 9, 9, 9), measured("tungstenite", 8, 8, 8), measured("websockets", 5, 9, 30)]
    text = "\n".join(tables.other_servers(alike))
    assert "In 1 of 1 comparisons every server that gives an answer gives the same one" in text
    row = "| request-response, 512 B | wsfast_listener | picows_listener | 0.90 (0.90-0.90) | 0.80 (0.80-0.80) | - |"
    assert f"{row} noise (0.50-3.00) |" in text
    text = "\n".join(tables.other_servers([*alike, measured("picows", 12, 12, 12)]))
    assert "In 0 of 1 comparisons" in text
    assert (
        "In 1 of them wsfast is faster with one server and slower with another, and 0 have no answer" in text
    )
    assert list(tables.other_servers(alike[:1])) == []


def test_a_client_that_lacks_a_work_is_a_gap_with_its_reason():
    data = tables.as_data("queued", Result(cases.queued(), {"wsfast_awaitable": runs(5, 5)}))
    assert data["gaps"]["picows_listener"] == "picows_listener: a listener has no recv()"
    assert "websocket_rs_async" not in data["gaps"]  # it has a row, or a reason of its own


def test_the_first_pages_and_the_rows_of_other_reports():
    made = report(wsfast_listener=(9, 9, 9), picows_listener=(10, 10, 10), **{"C:epoll": (5, 5, 5)})
    first = "\n".join(front.lines(made, [("Round trips", "a-rr.svg"), ("Batches", "b.svg")], "docs/"))
    assert "| round trip, 512 B | listener | 0.90 (0.90-0.90) | - | - | 1.80 (1.80-1.80) |" in first
    assert "![Round trips](docs/benchmarks/a-rr.svg)" in first
    assert "[the benchmarks](docs/benchmarks.md) have the reason. [benchmark_report.html](docs/benchmark" in first
    assert "b.svg" not in first
    text = "\n".join(tables.markdown(made))
    assert "| picows (RR) | picows_listener | 10 (10-10) µs | 10 (10-10) µs | not measured |" in text


def test_only_the_part_between_the_marks_is_written(tmp_path):
    file = tmp_path / "benchmarks.md"
    file.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    for _ in range(2):
        tables.write(file, ["![plot](a.svg)"])
    text = file.read_text()
    assert text.startswith(f"before\n{tables.BEGIN}\n")
    assert text.endswith(f"{tables.END}\nafter\n")
    assert text.count("![plot](a.svg)") == 1
    assert "old" not in text
    file.write_text("no marks")
    with pytest.raises(SystemExit, match="lost the marks"):
        tables.write(file, [])


def test_an_interrupted_run_goes_on(monkeypatch, tmp_path):
    """The second run has the first one's repeats, and measures only what is missing."""
    monkeypatch.setattr(kept, "KEPT", tmp_path)
    ran = []

    def burst(name, case):
        if len(ran) == 55:
            raise KeyboardInterrupt
        ran.append(name)
        return runs(len(ran))[0]

    monkeypatch.setattr(harness, "Run", run_of(burst))
    case, names = cases.request_response(512), ["wsfast_listener", "C:epoll"]
    assert case.bursts == 10

    def save(result):
        kept.save("rr", names, result)

    with pytest.raises(KeyboardInterrupt):
        harness.measure(case, names, 3, kept.load("rr", case, names), save)
    ran.clear()
    result = harness.measure(case, names, 3, kept.load("rr", case, names), save)
    assert len(ran) == 20
    assert [len(found) for found in result.runs.values()] == [30, 30]
    assert result.repeats == 3
    monkeypatch.setattr(kept, "fingerprint", lambda: "another machine")
    assert kept.load("rr", case, names) is None


def test_every_case_is_measured_once_before_one_is_measured_twice(monkeypatch, tmp_path, capsys):
    """When the time is up, every case has a figure."""
    monkeypatch.setattr(kept, "KEPT", tmp_path)
    ran = []

    def burst(name, case):
        ran.append(case.size)
        return runs(case.size)[0]

    monkeypatch.setattr(harness, "Run", run_of(burst))

    def items():
        wanted = ((512, 3), (1024, 2), (2048, 1))
        return [
            suite.Item("rr", cases.varied(size, 8192, 1000), ["wsfast_sync"], repeats, keep=True)
            for size, repeats in wanted
        ]

    suite.run(items(), minutes=0)
    assert ran == [512, 1024, 2048]
    assert "0 minutes are over" in capsys.readouterr().err
    suite.run(items())  # another process goes on
    assert ran[3:] == [512, 1024, 512]
    suite.run(items())
    assert len(ran) == 6


@pytest.mark.parametrize("length", ["smoke", "quick"])
def test_a_short_run_builds_no_floor_in_other_languages(length):
    config = SimpleNamespace(getoption=lambda name: name == length)
    assert {"C++", "Rust"}.isdisjoint(contender for _, _, contender in rows(config))


def test_a_case_without_a_server_is_a_gap(monkeypatch):
    def server_of(case, cpu):
        raise SystemExit("no /opt/x.so for ws://127.0.0.1:1/a, in '/usr/lib/y.so'")

    monkeypatch.setattr(harness, "server_of", server_of)
    result = harness.measure(cases.request_response(512), ["wsfast_listener"], 2)
    assert result.gaps == {
        "wsfast_listener": "wsfast_listener cannot run: no x.so for ws://127.0.0.1:1/a, in 'y.so'"
    }


def test_a_contender_that_fails_leaves_a_gap(monkeypatch):
    ran = []

    def burst(name, case):
        ran.append(name)
        if name == "C:epoll":
            raise RunFailedError("C:epoll failed: no reply")
        return runs(7)[0]

    monkeypatch.setattr(harness, "Run", run_of(burst))
    result = harness.measure(cases.request_response(512), ["wsfast_listener", "C:epoll"], 2)
    assert result.gaps == {"C:epoll": "C:epoll failed: no reply"}
    assert list(result.runs) == ["wsfast_listener"]
    assert ran.count("C:epoll") == 1
    assert len(result.runs["wsfast_listener"]) == 20


def test_bursts_alternate(monkeypatch):
    """So a slow phase of the machine affects neighbours alike."""
    ran = []
    monkeypatch.setattr(harness, "Run", run_of(lambda name, case: ran.append(name) or runs(7)[0]))
    harness.measure(cases.request_response(512), ["wsfast_listener", "C:epoll"], 1)
    assert ran[:4] == ["wsfast_listener", "C:epoll", "C:epoll", "wsfast_listener"]
    assert len(ran) == 20


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("raise SystemExit('no reply')", "failed: no reply"),
        ("print('READY', flush=True); input(); print('{')", "failed: it printed no summary"),
        ("print('READY', flush=True); input()", "failed: it printed no summary"),
        ("print('READY', flush=True); input(); print('{\"checked\": false}')", "did not check its replies"),
        ("import time; time.sleep(1000)", "did not end within 0.5 s"),
    ],
)
def test_a_client_that_fails_says_why(monkeypatch, program, reason):
    monkeypatch.setattr(harness, "command", lambda *anything: [sys.executable, "-c", program])
    monkeypatch.setattr(harness, "TIMEOUT", 0.5 if "sleep" in program else 100)
    monkeypatch.setattr(harness, "cpus", lambda cores: (0, 0))
    result = harness.measure(cases.request_response(512), ["wsfast_listener"], 1)
    assert result.gaps == {"wsfast_listener": f"wsfast_listener {reason}"}


def test_plots(tmp_path):
    plots = pytest.importorskip("bench.plots", reason="matplotlib is not installed", exc_type=ImportError)
    made = report(wsfast_listener=(9, 9), **{"C:epoll": (5, 5)})
    drawn = plots.write([made], tmp_path)
    [file] = tmp_path.iterdir()
    assert file.suffix == ".svg"
    assert drawn == {kept.slug(made["machine"]): [("Request-response, one core", file.name)]}


def test_the_page_draws_in_a_browser(tmp_path):
    """Headless, from a file, without a network: its script draws the chart and the table."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium is installed")
    file = tmp_path / "page.html"
    noisy = {"wsfast_awaitable": (9, 16, 40)}
    page.write(file, [report(wsfast_listener=(9, 9, 9), picows_listener=(10, 10, 10), **noisy)])
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ]
    command += [
        f"--user-data-dir={tmp_path}/profile",
        "--virtual-time-budget=5000",
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "drawn: 3 series" in done.stdout
    assert "<td>wsfast_listener</td><td>9</td>" in done.stdout
    assert "<td>wsfast_awaitable</td><td>noise (12.5\u201328, 3 bursts)</td>" in done.stdout
    assert 'src="http' not in done.stdout
