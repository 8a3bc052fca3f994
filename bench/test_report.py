"""What becomes of measured data: statistics, kept files, tables, plots and the page."""

import shutil
import subprocess

import pytest

from bench import cases, contenders, goals, harness, kept, page, sections, stats, tables
from bench.harness import Result, RunFailedError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def runs(*figures):
    return [
        {**stats.summary([figure * 1000, figure * 1000 + 1]), "cpu": figure * 4_500_000} for figure in figures
    ]


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
    assert "| wsfast_listener | 20,124 | 124 |" in text
    assert "No figure: aiohttp_client cannot run: no aiohttp." in text
    assert "1.20 (1.20-1.20), slower of" in "\n".join(
        tables.markdown(report(wsfast_listener=(12, 12, 12), **steady))
    )
    noise = "\n".join(tables.markdown(report(wsfast_listener=(9, 16, 40), **steady)))
    assert "| wsfast_listener | noise (9-40) |" in noise


def test_a_client_that_lacks_a_work_is_a_gap_with_its_reason():
    data = tables.as_data("queued", Result(cases.queued(), {"wsfast_awaitable": runs(5, 5)}))
    assert data["gaps"]["picows_listener"] == "picows_listener: a listener has no recv()"
    assert "websocket_rs_async" not in data["gaps"]  # it has a row, or a reason of its own


def test_only_the_part_between_the_marks_is_written(tmp_path):
    file = tmp_path / "benchmarks.md"
    file.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n")
    for _ in range(2):
        tables.write(file, [report(wsfast_listener=(9, 9), picows_listener=(10, 10))], ["![plot](a.svg)"])
    text = file.read_text()
    assert text.startswith(f"before\n{tables.BEGIN}\n")
    assert text.endswith(f"{tables.END}\nafter\n")
    assert text.count("![plot](a.svg)") == 1
    assert "old" not in text


def test_an_interrupted_run_goes_on(monkeypatch, tmp_path):
    """The second run has the first one's repeats, and measures only what is missing."""
    monkeypatch.setattr(kept, "KEPT", tmp_path)
    ran = []

    def run_once(name, case):
        if len(ran) == 5:
            raise KeyboardInterrupt
        ran.append(name)
        return runs(len(ran))[0]

    monkeypatch.setattr(harness, "run_once", run_once)
    case, names = cases.request_response(512), ["wsfast_listener", "C:epoll"]

    def save(result):
        kept.save("rr", names, result)

    with pytest.raises(KeyboardInterrupt):
        harness.measure(case, names, 3, kept.load("rr", case, names), save)
    ran.clear()
    result = harness.measure(case, names, 3, kept.load("rr", case, names), save)
    assert len(ran) == 2
    assert [len(found) for found in result.runs.values()] == [3, 3]
    monkeypatch.setattr(kept, "fingerprint", lambda: "another machine")
    assert kept.load("rr", case, names) is None


def test_a_contender_that_fails_leaves_a_gap(monkeypatch):
    def run_once(name, case):
        if name == "C:epoll":
            raise RunFailedError("C:epoll failed: no reply")
        return runs(7)[0]

    monkeypatch.setattr(harness, "run_once", run_once)
    result = harness.measure(cases.request_response(512), ["wsfast_listener", "C:epoll"], 2)
    assert result.gaps == {"C:epoll": "C:epoll failed: no reply"}
    assert list(result.runs) == ["wsfast_listener"]


def test_plots(tmp_path):
    plots = pytest.importorskip("bench.plots", reason="matplotlib is not installed", exc_type=ImportError)
    shown = plots.write([report(wsfast_listener=(9, 9), **{"C:epoll": (5, 5)})], tmp_path)
    assert [file.suffix for file in tmp_path.iterdir()] == [".svg"]
    assert next(iter(tmp_path.iterdir())).name in shown[0]


def test_the_page_draws_in_a_browser(tmp_path):
    """Headless, from a file, without a network: its script draws the chart and the table."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium is installed")
    file = tmp_path / "page.html"
    page.write(file, [report(wsfast_listener=(9, 9), picows_listener=(10, 10))])
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
    assert "drawn: 2 series" in done.stdout
    assert "<td>wsfast_listener</td><td>9</td>" in done.stdout
    assert 'src="http' not in done.stdout
