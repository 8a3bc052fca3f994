"""Reports of measured data: statistics, kept files, tables, plots and the page."""

import contextlib
import dataclasses
import json
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bench import stats
from bench.conftest import rows
from bench.measure import harness, passes, resume_store
from bench.measure.harness import Result
from bench.report import first_page, page, tables
from bench.suite import cases, comparisons, contenders, sections, targets
from wsfast.cli.bench import comparing
from wsfast.cli.bench.comparing import ContenderError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def runs(*figures):
    return [
        {**stats.summary([figure * 1000, figure * 1000 + 1]), "cpu": figure * 4_500_000, "alone": 0}
        for figure in figures
    ]


def run_of(burst):
    """A class like harness.Run, whose bursts are `burst(name, case)`."""

    class Run(contextlib.nullcontext):
        def __init__(self, name, case):
            super().__init__(self)
            self.burst = lambda turn: burst(name, case)

        def prepare(self, turn=None):
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
    return {"machine": dict(resume_store.machine()), "where": where, "results": data}


def test_the_suite_measures_what_each_goal_speaks_of():
    for goal in targets.GOALS:
        section = sections.SECTIONS[goal.section]
        wanted = [case for case in section.cases if set(goal.case) <= set(vars(case).items())]
        assert wanted, goal
        for case in wanted:
            names = contenders.contenders(case, section)
            assert goal.of in names, goal
            assert goal.to in ("", targets.C, "inflate_alone") or goal.to in names, goal


def test_no_two_columns_of_a_table_are_called_the_same():
    for section in sections.SECTIONS.values():
        if section.cases[0].function != "primitive":
            columns = [tables.column(dataclasses.asdict(case)) for case in section.cases]
            assert len({*columns}) == len(columns), columns


def test_an_interval_is_around_the_median_and_repeats():
    found = comparing.ratios([10, 11, 12, 13, 30], [10, 10, 10, 10, 10])
    low, high = found["interval"]
    assert low <= found["median"] == 1.2 <= high
    assert found == comparing.ratios([10, 11, 12, 13, 30], [10, 10, 10, 10, 10])


def ratio_of(low, high):
    """A ratio with this interval."""
    middle = (low + high) / 2
    spread = {"q1": low, "q3": high, "low": low, "high": high}
    return {"median": middle, "interval": [low, high], "n": 30, "processes": 1, **spread}


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (0.95, 1.05, "1.00 (0.95-1.05)"),
        (0.80, 1.60, "noise (0.80-1.60)"),
        (1.10, 1.90, "1.50 (1.10-1.90) of Rust, slower"),
        (0.30, 0.90, "0.60 (0.30-0.90)"),
    ],
)
def test_only_a_ratio_that_may_be_on_either_side_is_noise(low, high, shown):
    found = {"of": "wsfast_sync", "to": "Rust", **ratio_of(low, high)}
    assert comparisons.judged(found, "Rust" if low > 1 else "") == shown


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [(0.5, 1.08, "yes"), (1.09, 3, "no"), (1.0, 1.09, "within the noise"), (1.07, 3, "within the noise")],
)
def test_a_goal_is_judged_by_the_whole_interval(low, high, met):
    assert tables.met({"to": "C", **ratio_of(low, high)}, 1.08) == met
    memory = {"to": "", "low": low, "high": high, "interval": None}
    assert tables.met(memory, 1.08) == met


def test_a_loss_in_a_wide_interval_is_listed():
    made = report(wsfast_listener=(12, 13, 30), picows_listener=(10, 10, 10), **{"C:epoll": (5, 5, 5)})
    text = "\n".join(tables.slower_rows(made["results"]))
    assert "In 2 of 2 comparisons" in text
    assert "| wsfast_listener | picows_listener | 1.30 (1.20-3.00) | 1 |" in text
    assert "| round trip of 512 B | picows | 1.30 (1.20-3.00), slower |" in "\n".join(
        first_page.lines(made, "", "")
    )


def test_wsfast_is_compared_with_every_rival_and_variant():
    """With variants of peers that it has not itself, and with tungstenite and Beast, which block."""
    steady = dict.fromkeys(("aiohttp_client:isal", "Rust", "C++", "C:epoll", "C:blocking"), (10, 10, 10))
    ours = dict.fromkeys(("wsfast_awaitable", "wsfast_sync"), (11, 11, 11))
    made = report(**ours, **steady)["results"]
    found = {(one["of"], one["to"]) for _, one in comparisons.slower(made)}
    assert found == {
        ("wsfast_awaitable", "aiohttp_client:isal"),
        ("wsfast_sync", "Rust"),
        ("wsfast_sync", "C++"),
    }
    rows = {row[0]: row[1] for row in tables.ratio_rows(made)}
    assert rows["wsfast_sync / the fastest peer"] == "1.10 (1.10-1.10) of Rust, slower"
    assert "wsfast_sync / C:blocking" in rows


@pytest.mark.parametrize(
    ("name", "case", "floor"),
    [
        ("wsfast_listener", cases.request_response(512), "C:epoll"),
        ("wsfast_sync", cases.request_response(512), "C:blocking"),
        ("wsfast_sync", cases.batch(512), "C"),
        ("wsfast_listener:sleeping_poll", cases.request_response(512), "C:blocking"),
        ("wsfast_listener:busy_poll", cases.request_response(512, cores="two"), "C:spin"),
        ("wsfast_sync:busy_poll", cases.request_response(512, cores="two", tls=True), "C:spin"),
    ],
)
def test_a_contender_has_the_floor_that_waits_as_it_does(name, case, floor):
    assert contenders.floor(case, name) == floor


def test_a_table_says_that_a_peer_sleeps():
    case = cases.request_response(512, tls=True, cores="two")
    names = ("wsfast_listener:busy_poll", "picows_listener", "C:epoll", "C:spin")
    data = tables.as_data("tls-two", Result(case, {name: runs(5, 5, 5) for name in names}))
    labels = [row[0] for row in tables.ratio_rows([data])]
    spinning = names[0]
    assert labels == [f"{spinning} / the fastest peer (which sleeps)", f"{spinning} / C:spin"]
    goals_of_it = "\n".join(tables.reached_goals([data]))
    assert (
        f"| {spinning} | picows_listener (which sleeps) | 0.45 | 1.00 (1.00-1.00) | 1 | no |" in goals_of_it
    )


def test_a_distribution_ends_where_samples_are_few():
    def points(samples):
        burst = stats.summary(range(1000, 1000 + samples))
        return len(tables.curve([burst, burst], 1000, samples))

    assert (points(10), points(99), points(100), points(1000), points(100_000)) == (0, 0, 11, 21, 41)


def test_an_interval_draws_processes_and_then_bursts():
    """Bursts of a process are alike: two processes that differ tell less than their many bursts would."""
    values = [10] * 30 + [20] * 30
    alone = comparing.ratios(values, [10] * 60)
    apart = comparing.ratios(values, [10] * 60, 30)
    assert (alone["processes"], apart["processes"]) == (1, 2)
    assert apart["interval"] == [1, 2]
    three = [10, 11, 12] * 10 + [13, 14, 15] * 10 + [16, 17, 18] * 10
    narrow, wide = (
        comparing.ratios(three, [10] * 90)["interval"],
        comparing.ratios(three, [10] * 90, 30)["interval"],
    )
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])
    assert comparisons.processes([alone]).startswith("Each ratio is of one process")
    assert comparisons.processes([alone, apart]) == "Each ratio is of 1 to 2 processes of each client."


def test_a_ratio_of_two_repeats_is_of_two_processes():
    case = cases.request_response(512)
    names = ("wsfast_listener", "picows_listener", "C:epoll")
    result = Result(case, {name: runs(*[5] * 2 * case.bursts) for name in names})
    [found, _] = tables.as_data("rr", result)["ratios"]
    assert (found["n"], found["processes"]) == (2 * case.bursts, 2)


def test_opening_over_tls_is_said_to_be_again():
    data = tables.as_data("connect", Result(cases.connect(tls=True), {"wsfast_listener": runs(5, 5)}))
    assert "again (session kept if the client keeps it)" in data["title"]
    assert "again (session kept if the client keeps it)" in tables.column(data["case"])


def test_the_two_ways_add_up_to_the_round_trip():
    found = stats.parts([(0, 300, 1000)] * 3)
    assert (found["send"]["p50"], found["receive"]["p50"], found["p50"]) == (300, 700, 1000)


def test_tables():
    """A ratio to the fastest peer of the kind and to C, noise, a slower client, and the reason of a gap."""
    steady = {"picows_listener": (10, 10, 10), "C:epoll": (5, 5, 5)}
    text = "\n".join(tables.markdown(report(wsfast_listener=(9, 9, 9), **steady)))
    assert "| wsfast_listener / the fastest peer | 0.90 (0.90-0.90) of picows_listener |" in text
    assert "| wsfast_listener / C:epoll | 1.80 (1.80-1.80) |" in text
    assert "| round trip | 512 B | wsfast_listener | C:epoll | 1.08 | 1.80 (1.80-1.80) | 1 | no |" in text
    assert "| opening |  | wsfast_listener | picows_listener | 1 | - | - | not measured |" in text
    assert "No row: the interval of no ratio to a peer" in text
    assert "| wsfast_listener | 20,124 | 124 |" in text
    assert "No figure: aiohttp_client cannot run: no aiohttp." in text
    slower = "\n".join(tables.markdown(report(wsfast_listener=(12, 12, 12), **steady)))
    assert "1.20 (1.20-1.20) of picows_listener, slower" in slower
    title = cases.request_response(512).title
    assert f"| {title} | wsfast_listener | picows_listener | 1.20 (1.20-1.20) | 1 |" in slower
    wide = "\n".join(tables.markdown(report(wsfast_listener=(9, 16, 40), **steady)))
    assert "| wsfast_listener | 16 (12.5-28) |" in wide
    assert "| wsfast_listener / the fastest peer | noise (0.90-4.00) of picows_listener |" in wide


def test_nothing_is_concluded_from_one_burst():
    made = report(wsfast_listener=(12,), picows_listener=(10,), **{"C:epoll": (5,)})
    assert "| round trip of 512 B | picows | 1.20 (1 burst) |" in "\n".join(first_page.lines(made, "", ""))
    assert "| round trip, 512 B | 1.20 (1 burst) | 2.40 (1 burst) |" in "\n".join(
        first_page.face_tables(made)
    )
    text = "\n".join(tables.markdown(made))
    assert (
        "| round trip | 512 B | wsfast_listener | C:epoll | 1.08 | 2.40 (1 burst) | 1 | too few bursts |"
        in text
    )
    assert ", slower" not in text


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


def test_a_row_of_the_first_pages_is_one_case():
    for work, section, fields in (*first_page.ROWS, *((row[0], *row[2:]) for row in first_page.SUMMARY)):
        found = [case for case in sections.SECTIONS[section].cases if fields.items() <= vars(case).items()]
        assert len(found) == 1, work


def test_the_tables_by_face_have_each_face_and_the_fastest_other_library():
    peers = dict.fromkeys(("websockets_sync", "websocket_client", "aiohttp_client"), (20, 20, 20))
    languages = {"Rust": (11, 11, 11), "C++": (10, 10, 10), "C:epoll": (5, 5, 5), "C:blocking": (8, 8, 8)}
    made = report(wsfast_awaitable=(12, 12, 12), wsfast_sync=(12, 12, 12), **peers, **languages)
    text = "\n".join(first_page.face_tables(made))
    assert "| awaitable | fastest other | C |" in text
    assert "| round trip, 512 B | 0.60 (0.60-0.60) of aiohttp | 2.40 (2.40-2.40) |" in text
    assert "| blocking | websockets | fastest other | C |" in text
    row = "| round trip, 512 B | 0.60 (0.60-0.60) | 1.20 (1.20-1.20) of Beast, slower | 1.50 (1.50-1.50) |"
    assert row in text
    assert "A dash: that library has no client of this kind" in text
    first = "\n".join(first_page.lines(made, "", ""))
    assert (
        "| round trip, blocking client | websockets | 0.60 (0.60-0.60) |" in first
    )  # Beast is no library for Python
    assert "wsfast is slower in 4 of 10 comparisons" in first


def test_what_the_floor_is_stands_beneath_its_table():
    def text(section, case, floor):
        ran = {name: runs(5, 5, 5) for name in ("wsfast_listener", floor)}
        return "\n".join(tables.section_text(section, [tables.as_data(section, Result(case, ran))]))

    assert "Over TLS, C is on OpenSSL" in text("tls", cases.request_response(512, tls=True), "C:epoll")
    plain = text("rr", cases.request_response(512), "C:epoll")
    assert "Over TLS" not in plain
    assert "without opening and closing. The percentage is the kernel's share of it" in plain
    assert "it blocks in recv(), without epoll" in text("flood", cases.flood(128), "C").lower()
    assert "blocks in recv(), without epoll" in text("batch", cases.batch(512), "C")


def test_a_percentile_says_of_how_many_samples_it_is():
    data = tables.as_data("open-loop", Result(cases.answers(5000, 4), {"wsfast_listener": runs(5, 5)}))
    assert "| wsfast_listener | 5 | 5 | 5 | 5 (n = 2) | 5 |" in "\n".join(tables.percentiles([data]))


def test_a_plot_has_the_ratios_of_the_tables():
    plots = pytest.importorskip(
        "bench.report.plots", reason="matplotlib is not installed", exc_type=ImportError
    )
    made = report(wsfast_listener=(10, 40, 9), picows_listener=(6, 20, 20), **{"C:epoll": (5, 20, 20)})
    axes = plots.plt.figure().add_subplot()
    plots.bars(axes, made["results"])
    listener, picows, _ = [one for one in axes.containers if hasattr(one, "patches")]
    assert next(iter(listener)).get_height() == pytest.approx(2)  # the quotient of medians is 0.5
    assert [(bar.get_hatch() or "")[:1] for bar in (listener[0], picows[0])] == ["/", ""]
    plots.plt.close("all")


def test_the_first_pages_and_the_rows_of_other_reports():
    made = report(wsfast_listener=(9, 9, 9), picows_listener=(10, 10, 10), **{"C:epoll": (5, 5, 5)})
    first = "\n".join(first_page.lines(made, "a.svg", "docs/"))
    assert "| round trip of 512 B | picows | 0.90 (0.90-0.90) |" in first
    assert "In the whole suite, wsfast is slower in 0 of 2 comparisons" in first
    assert "](docs/benchmarks/a.svg)" in first
    assert '"docs/benchmark_report.html"' in first
    text = "\n".join(tables.markdown(made))
    cell = "10 (10-10) µs; wsfast 0.90 (0.90-0.90)"
    assert f"| picows (RR) | picows_listener | {cell} | {cell} | not measured |" in text
    assert "The nearest work: they send HTTP requests" in text


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
    monkeypatch.setattr(resume_store, "KEPT", tmp_path)
    ran = []

    def burst(name, case):
        if len(ran) == 5 * case.bursts + 5:  # in the third repeat
            raise KeyboardInterrupt
        ran.append(name)
        return runs(len(ran))[0]

    monkeypatch.setattr(harness, "Run", run_of(burst))
    case, names = cases.request_response(512), ["wsfast_listener", "C:epoll"]
    assert case.bursts == cases.BURSTS

    def save(result):
        resume_store.save("rr", names, result)

    with pytest.raises(KeyboardInterrupt):
        harness.measure(case, names, 3, resume_store.load("rr", case, names), save)
    ran.clear()
    result = harness.measure(case, names, 3, resume_store.load("rr", case, names), save)
    assert len(ran) == 2 * case.bursts
    assert [len(found) for found in result.runs.values()] == [3 * case.bursts] * 2
    assert result.repeats == 3
    monkeypatch.setattr(resume_store, "fingerprint", lambda: "another machine")
    assert resume_store.load("rr", case, names) is None


def test_every_case_is_measured_once_before_one_is_measured_twice(monkeypatch, tmp_path, capsys):
    """When the time is up, every case has a figure."""
    monkeypatch.setattr(resume_store, "KEPT", tmp_path)
    ran = []

    def burst(name, case):
        ran.append(case.size)
        return runs(case.size)[0]

    monkeypatch.setattr(harness, "Run", run_of(burst))

    def items():
        wanted = ((512, 3), (1024, 2), (2048, 1))
        return [
            passes.Item("rr", cases.answers(20, 1, size), ["wsfast_sync"], repeats, keep=True)
            for size, repeats in wanted
        ]

    passes.run(items(), minutes=0)
    assert ran == [512, 1024, 2048]
    assert "0 minutes are over" in capsys.readouterr().err
    passes.run(items())  # another process goes on
    assert ran[3:] == [512, 1024, 512]
    passes.run(items())
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
            raise ContenderError("C:epoll failed: no reply")
        return runs(7)[0]

    monkeypatch.setattr(harness, "Run", run_of(burst))
    case = cases.request_response(512)
    result = harness.measure(case, ["wsfast_listener", "C:epoll"], 2)
    assert result.gaps == {"C:epoll": "C:epoll failed: no reply"}
    assert list(result.runs) == ["wsfast_listener"]
    assert ran.count("C:epoll") == 1
    assert len(result.runs["wsfast_listener"]) == 2 * case.bursts


def test_processor_time_is_that_of_the_messages():
    """Opening and closing are taken off. A round trip cannot take less time than its client computes."""
    case = cases.request_response(512)
    rounds = case.burst.rounds + case.burst.warmup
    spent = [
        {"cpu": 700_000 + 5000 * rounds, "alone": 700_000 + 5000, "kernel": tick} for tick in (0, 1_000_000)
    ]
    result = Result(case, {"wsfast_sync": spent, "C:epoll": [{"p50": 1}]})
    assert result.cpu("wsfast_sync") == 5
    assert result.cpu("C:epoll") is None
    assert 0 < result.kernel("wsfast_sync") < 1
    assert result.kernel("C:epoll") is None


def test_what_was_kept_counts_for_the_same_case_only(monkeypatch, tmp_path):
    monkeypatch.setattr(resume_store, "KEPT", tmp_path)
    case, names = cases.flood(128), ["wsfast_sync"]
    resume_store.save("flood", names, Result(case, {"wsfast_sync": runs(1)}))
    assert resume_store.load("flood", case, names).runs
    assert resume_store.load("flood", dataclasses.replace(case, rounds=case.rounds + 1), names) is None
    assert resume_store.load("flood", case, [*names, "C"]) is None


def test_a_case_that_would_not_end_in_time_is_left_out(monkeypatch, tmp_path, capsys):
    """Shorter cases go on."""
    monkeypatch.setattr(resume_store, "KEPT", tmp_path)
    took = []
    monkeypatch.setattr(passes.time, "monotonic", lambda: sum(took))
    monkeypatch.setattr(
        harness, "Run", run_of(lambda name, case: took.append({20: 40, 40: 5}[case.rate]) or runs(7)[0])
    )
    long, short = (
        passes.Item("open-loop", cases.answers(rate, 1), ["wsfast_sync"], 2, keep=False) for rate in (20, 40)
    )
    passes.run([long, short], minutes=1)
    assert (long.done, short.done) == (1, 2)
    assert capsys.readouterr().err.count("1 minutes are over") == 1


def test_bursts_alternate(monkeypatch):
    """So a slow phase of the machine affects neighbours alike."""
    ran = []
    monkeypatch.setattr(harness, "Run", run_of(lambda name, case: ran.append(name) or runs(7)[0]))
    harness.measure(cases.request_response(512), ["wsfast_listener", "C:epoll"], 1)
    turns = [tuple(ran[at : at + 2]) for at in range(0, len(ran), 2)]
    assert set(turns) == {("wsfast_listener", "C:epoll"), ("C:epoll", "wsfast_listener")}
    assert len(ran) == 2 * cases.BURSTS


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
    plots = pytest.importorskip(
        "bench.report.plots", reason="matplotlib is not installed", exc_type=ImportError
    )
    made = report(wsfast_listener=(9, 9), **{"C:epoll": (5, 5)})
    drawn = plots.write([made], tmp_path)
    [file] = tmp_path.iterdir()
    assert file.suffix == ".svg"
    assert (tmp_path / plots.write_summary(made, tmp_path)).exists()
    assert drawn == {resume_store.slug(made["machine"]): [("Request-response, one core", file.name)]}


# Writes two facts into the page, for a test: whether it is wider than the window, and the choice in the URL.
PROBE = """<script>
const facts = { wide: document.documentElement.scrollWidth > innerWidth, hash: location.hash };
document.body.append("FACTS" + JSON.stringify(facts) + "END");
</script>"""


@pytest.fixture
def browse(tmp_path):
    """Opens the page in headless Chromium, from a file and without a network: its text, and the facts of the probe."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium is installed")
    file = tmp_path / "page.html"
    peers = {"picows_listener": (10, 10, 10), "websockets_asyncio": (30, 30, 30)}
    page.write(file, [report(wsfast_listener=(9, 9, 9), wsfast_awaitable=(9, 16, 40), **peers)])
    file.write_text(file.read_text() + PROBE)

    def open_page(choice="", width=1280):
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        command += ["--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND"]
        command += [
            f"--user-data-dir={tmp_path}/profile",
            f"--window-size={width},1800",
            "--virtual-time-budget=5000",
        ]
        command += ["--dump-dom", file.as_uri() + choice]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
        [facts] = re.findall("FACTS({.*})END", done.stdout)
        return done.stdout[: done.stdout.index("<script>const")], json.loads(facts)

    return open_page


def shown_rows(text):
    return re.findall(
        '<div class="(row(?: ours| open)*)".*?title="([^"]*)".*?<div class="value">([^<]*)<', text
    )


def test_the_page_opens_on_ratios_to_the_strongest(browse):
    text, facts = browse()
    assert "In 1 of 1 works wsfast's listener client takes less time than every other library." in text
    assert shown_rows(text) == [("row", "picows_listener", "0.90 (0.90\u20130.90)")]
    assert "work=overview&face=listener&show=ratio" in facts["hash"].replace("&amp;", "&")
    assert not facts["wide"]


def test_the_choice_in_the_url_is_drawn_on_a_phone(browse):
    """Times of all clients, with wsfast's marked; the reasons of gaps; nothing is wider than the window."""
    text, facts = browse("#work=Request-response&face=awaitable&show=time&all=1", 390)
    found = [(name, "ours" in kind) for kind, name, _ in shown_rows(text)][:4]
    assert found == [
        ("wsfast_listener", False),
        ("picows_listener", False),
        ("wsfast_awaitable", True),
        ("websockets_asyncio", False),
    ]
    assert "aiohttp_client cannot run: no aiohttp" in text
    assert "all=1" in facts["hash"]
    assert not facts["wide"]


def test_a_work_says_how_wsfast_compares_with_the_strongest(browse):
    text, _ = browse("#work=Request-response")
    assert (
        "takes 0.90 of the time of picows, the strongest other library: it takes less time in all 2 cases"
        in text
    )
