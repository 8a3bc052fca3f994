"""Each row of the reports that the benchmarks answer has a row in the suite (bench/seed_rows.toml)."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # `bench` is not installed

from bench.contenders import contenders  # noqa: E402
from bench.sections import SECTIONS  # noqa: E402

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLES = tomllib.loads((ROOT / "bench" / "seed_rows.toml").read_text())["table"]
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
