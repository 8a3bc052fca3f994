"""The rows of other projects' reports (other_reports.toml), with the figures that this suite has for the same work.

A cell has the median of the bursts with their middle half, and the time of wsfast's client of the same kind relative to
it: the median of the ratios of bursts of the same turn, with its interval.
"""

import sys
from pathlib import Path
from statistics import mean

from bench.report import grid
from bench.suite import comparisons
from wsfast.cli.bench import comparing

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WIDE = 8  # columns of figures, beyond which a table is turned
TABLES = tomllib.loads((Path(__file__).parent / "other_reports.toml").read_text())["table"]
SERIES = 5  # runs, in the report of rwrk


def results_of(results, table):
    """For each of the table's cases, its results: one for each event loop, or just one."""
    section = [result for result in results if result["section"] == table.get("section")]
    return [
        [result for result in section if wanted.items() <= result["case"].items()]
        for wanted in table.get("match", ())
    ]


def ratio_to(result, name, ours):
    """The ratio of wsfast's client to the contender `name`: of a client that the table has too, or of its kind."""
    ratios = [ratio for ratio in result["to_others"] if ratio["to"] == name]
    ratios.sort(key=lambda ratio: ratio["of"] not in ours)
    usual = [ratio for ratio in ratios if ratio["of"] in comparisons.OURS]
    return next(iter(usual), None)


def series(rates, number):
    """The means of the report's series, each of so many runs."""
    starts = range(0, len(rates) - SERIES + 1, SERIES)
    return ", ".join(
        f"series {at + 1}: {number(mean(rates[start : start + SERIES]))}/s" for at, start in enumerate(starts)
    )


def cell(results, name, table, spread, number, operations):
    """The figures of a contender, or the reason why there are none."""
    result = next((result for result in results if name in result["rows"]), None)
    if result is None:
        reasons = [result["gaps"][name] for result in results if name in result["gaps"]]
        return f"none: {reasons[0]}" if reasons else "not measured"
    row = result["rows"][name]
    figures = {
        "time": lambda: f"{spread(row)} {result['unit']}",
        "ways": lambda: f"{number(row['send'])} + {number(row['receive'])} {result['unit']}",
        "rates": lambda: f"operations a second: {operations(result, row)}",
        "series": lambda: series(row["rates"], number),
    }
    words = [figures[column]() for column in table["columns"]]
    ratio = ratio_to(result, name, table["rows"].values())
    return "; ".join([*words, *([f"wsfast {comparing.judged(ratio)}"] if ratio else [])])


def named(wanted):
    """The fields of a case in a word."""
    return ", ".join(str(value) if field == "how" else f"{field} {value}" for field, value in wanted.items())


def lines(results, spread, number, operations):
    """A table for each of theirs: their row, ours, and the figures."""
    yield "#### The rows of other reports"
    yield ""
    yield (
        "The tables of other projects' reports, with the rows of this suite that do the same work, or the nearest work "
        "where a table says so. Their own figures are left out, because they come from other machines. A cell has the "
        "median with the middle half of the bursts; before it, where the report has them, the way to the server and "
        "the way back. Then wsfast's time relative to it, with the interval of that ratio: below 1.00 wsfast is faster."
    )
    yield ""
    for table in TABLES:
        yield f"{table['report']}: {table['name']}"
        yield ""
        if nearest := table.get("nearest"):
            yield f"The nearest work: {nearest}."
            yield ""
        if table["rows"]:
            columns = results_of(results, table)
            rows = [["theirs", "here", *map(named, table["match"])]]
            for theirs, ours in table["rows"].items():
                cells = (cell(found, ours, table, spread, number, operations) for found in columns)
                rows.append([theirs, ours, *cells])
            if len(columns) > WIDE:
                rows = list(zip(*rows))
            yield from grid(rows[0], rows[1:])
        for theirs, where in table.get("elsewhere", {}).items():
            yield f"- {theirs}: {where}"
        if table.get("elsewhere"):
            yield ""
