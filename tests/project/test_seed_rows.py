"""Each row of the reports that the benchmarks answer has a row in the suite (bench/seed_rows.toml)."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # `bench` is not installed

from bench import answers  # noqa: E402
from bench.answers import TABLES  # noqa: E402
from bench.contenders import contenders  # noqa: E402
from bench.sections import SECTIONS  # noqa: E402

REPORTS = {
    "websocket-rs: benchmarks",
    "uringcore: benchmark report",
    "rwrk and wrk",
    "C, C++, Rust and Python",
    "websocket-rs: optimisation research",
}
# Their columns, and what of a section prints them.
COLUMNS = {
    "round trip": lambda section: True,
    "total": lambda section: True,
    "of the best": lambda section: True,
    "relative": lambda section: True,
    "connections": lambda section: section.cases[0].function == "fan_in",
    "send": lambda section: section.cases[0].function in ("one_way", "window"),
    "receive": lambda section: section.cases[0].function in ("one_way", "window"),
    **dict.fromkeys(
        ("median", "average", "peak", "standard deviation", "operations a second"),
        lambda section: section.rates,
    ),
}


def test_every_report_is_answered():
    assert {table["report"] for table in TABLES} == REPORTS


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table["name"])
def test_a_table(table):
    assert table["rows"] or table["elsewhere"]
    if not table["rows"]:
        return
    section = SECTIONS[table["section"]]
    assert [column for column in table["columns"] if not COLUMNS[column](section)] == []
    assert section.repeats >= table.get("repeats", 1)
    for wanted in table["match"]:
        cases = [case for case in section.cases if wanted.items() <= vars(case).items()]
        assert cases, f"no case with {wanted}"
        found = {name for case in cases for name in contenders(case, section)}
        assert set(table["rows"].values()) <= found


def fullest():
    """The results of the kept report that has most rows; none if no report is kept."""
    reports = [
        json.loads(file.read_text())["results"] for file in (ROOT / "docs" / "benchmarks").glob("*.json")
    ]
    return max(reports, key=lambda results: sum(len(result["rows"]) for result in results), default=[])


def test_the_kept_report_has_every_row():
    """Each has a figure, or the reason why there is none."""
    if not (results := fullest()):
        pytest.skip("no report is kept in docs/benchmarks")
    missing = [
        (table["name"], ours, wanted)
        for table in TABLES
        for found, wanted in zip(answers.found_in(results, table), table.get("match", ()))
        for ours in table["rows"].values()
        if answers.cell(found, ours, lambda row: "a figure") == "not measured"
    ]
    assert missing == []
