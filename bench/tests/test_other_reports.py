"""Each row of other projects' reports (bench/report/other_reports.toml) has a row in the suite, with a figure."""

import json
import re

import pytest

from bench.report import other_reports, tables
from bench.report.other_reports import TABLES
from bench.suite.contenders import ROOT, contenders
from bench.suite.sections import SECTIONS

REPORTS = {
    "websocket-rs: benchmarks",
    "uringcore: benchmark report",
    "rwrk and wrk",
    "C, C++, Rust and Python",
    "websocket-rs: optimisation research",
}
KEPT = sorted((ROOT / "docs" / "benchmarks").glob("*.json"))


def test_every_report_is_answered():
    assert {table["report"] for table in TABLES} == REPORTS


@pytest.mark.parametrize(
    "table", [table for table in TABLES if table["rows"]], ids=lambda table: table["name"]
)
def test_the_suite_has_the_work_of_a_table(table):
    section = SECTIONS[table["section"]]
    for wanted in table["match"]:
        found = [case for case in section.cases if wanted.items() <= vars(case).items()]
        for ours in table["rows"].values():
            # One case, or a cell would have the figure of any of them.
            [case] = [case for case in found if ours in contenders(case, section)]
            assert section.repeats * case.bursts >= table.get("runs", 1)


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_the_kept_report_has_every_row(file):
    """Each cell has figures, or the reason why there are none, and those of another library the ratio to wsfast."""
    results = json.loads(file.read_text())["results"]
    for table in (table for table in TABLES if table["rows"]):
        for found in other_reports.results_of(results, table):
            for ours in table["rows"].values():
                text = other_reports.cell(found, ours, table, tables.spread, tables.number, tables.operations)
                assert text.startswith("none: ") or re.match(
                    r"(series 1: |operations a second: )?[0-9]", text
                ), (
                    table["name"],
                    text,
                )
                measured = not text.startswith("none: ") and table["section"] != "primitives"
                if measured and not ours.startswith("wsfast"):
                    assert re.search(r"; wsfast (noise )?\(?[0-9]", text), (table["name"], ours, text)
