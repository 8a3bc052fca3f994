"""Each row of the reports that the benchmarks answer has a row in the suite (bench/report/other_reports.toml)."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # `bench` is not installed

from bench import stats  # noqa: E402
from bench.measure.harness import Result  # noqa: E402
from bench.report import other_reports, tables  # noqa: E402
from bench.report.other_reports import TABLES  # noqa: E402
from bench.suite.contenders import contenders  # noqa: E402
from bench.suite.sections import SECTIONS  # noqa: E402

REPORTS = {
    "websocket-rs: benchmarks",
    "uringcore: benchmark report",
    "rwrk and wrk",
    "C, C++, Rust and Python",
    "websocket-rs: optimisation research",
}
STAMPED = ("one_way", "window")  # works whose messages the server stamps
FIGURE = r"[0-9][0-9.,]*"
# What stands in a cell for each of their columns.
PRINTED = {
    **dict.fromkeys(
        ("round trip", "total"), rf"^{FIGURE} \({FIGURE}-{FIGURE}\) (µs|ns|s|µs/message|ns/message)$"
    ),
    **dict.fromkeys(("of the best", "relative"), r"^1\.[0-9]{2}x$"),
    "connections": r"^70[0-9] connections$|^768 connections$",
    "send": rf"^send {FIGURE} µs$",
    "receive": rf"^receive {FIGURE} µs$",
    "operations a second": rf"^mean {FIGURE} operations/s$",
    "average": rf"^average {FIGURE} requests/s$",
    "median": rf"^median {FIGURE} requests/s$",
    "peak": rf"^peak {FIGURE} requests/s$",
    "standard deviation": rf"^standard deviation {FIGURE} (operations|requests)/s$",
    "average of series 1": rf"^series 1: {FIGURE} requests/s$",
    "average of series 2": rf"^series 2: {FIGURE} requests/s$",
}


def measured(table, wanted):
    """The results of the table's section for a case, as the report has them, with made-up figures."""
    section = SECTIONS[table["section"]]
    for case in section.cases:
        if wanted.items() <= vars(case).items():
            names = contenders(case, section)
            bursts = table.get("runs", 2)  # from two no interval is made, which takes long
            ways = {"send": {"p50": 400}, "receive": {"p50": 500}} if case.function in STAMPED else {}
            runs = {
                name: [{**stats.summary([1000 + place + burst]), **ways} for burst in range(bursts)]
                for place, name in enumerate(names)
            }
            yield tables.as_data(table["section"], Result(case, runs))


def runs_of(section, wanted):
    """The bursts of all repeats, each of which is a run of its own."""
    return min(
        section.repeats * case.bursts for case in section.cases if wanted.items() <= vars(case).items()
    )


def test_every_report_is_answered():
    assert {table["report"] for table in TABLES} == REPORTS


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_a_table(table):
    assert table["rows"] or table["elsewhere"]
    if not table["rows"]:
        return
    section = SECTIONS[table["section"]]
    for wanted in table["match"]:
        found = list(measured(table, wanted))
        assert found, f"no case with {wanted}"
        for ours in table["rows"].values():
            # One result, or a cell would have the figure of any of them.
            assert sum(ours in result["rows"] for result in found) == 1, (ours, wanted)
            assert runs_of(section, wanted) >= table.get("runs", 1)
            text = other_reports.cell(found, ours, table, tables.spread, tables.number)
            cells = text.split(", ")
            assert len(cells) == len(table["columns"])
            for column, cell in zip(table["columns"], cells):
                assert re.search(PRINTED[column], cell), (column, cell)


def fullest():
    """The results of the kept report that has most rows; none if no report is kept."""
    reports = [
        json.loads(file.read_text())["results"] for file in (ROOT / "docs" / "benchmarks").glob("*.json")
    ]
    return max(reports, key=lambda results: sum(len(result["rows"]) for result in results), default=[])


def test_the_kept_report_has_every_row():
    """Each has a figure, or the reason why there is none, and as many runs as the table claims."""
    if not (results := fullest()):
        pytest.skip("no report is kept in docs/benchmarks")
    missing, fewer = [], []
    for table in TABLES:
        for found, wanted in zip(other_reports.found_in(results, table), table.get("match", ())):
            for ours in table["rows"].values():
                text = other_reports.cell(found, ours, table, tables.spread, tables.number)
                if text == "not measured":
                    missing.append((table["name"], ours, wanted))
                _, row = other_reports.row_of(found, ours) or (None, None)
                if row and row["n"] < table.get("runs", 1):
                    fewer.append((table["name"], ours, wanted, row["n"]))
    assert missing == []
    assert fewer == []
