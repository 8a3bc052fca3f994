"""The rows of the reports that this suite answers (seed_rows.toml), each with the figures of a run."""

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev

from bench.stats import is_noise

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WIDE = 8  # columns of figures, beyond which a table is turned
TABLES = tomllib.loads((Path(__file__).parent / "other_reports.toml").read_text())["table"]
SERIES = 5  # runs, in the report of rwrk

# What is printed of a row for each of their columns. Rates are those of the bursts.
COLUMNS = {
    "round trip": lambda at: f"{at.spread(at.row)} {at.unit}",
    "send": lambda at: at.way("send"),
    "receive": lambda at: at.way("receive"),
    "of the best": lambda at: at.of_the_best(),
    "connections": lambda at: f"{at.case['count']} connections",
    "operations a second": lambda at: at.rate("mean", mean(at.rates)),
    "average": lambda at: at.rate("average", mean(at.rates)),
    "median": lambda at: at.rate("median", median(at.rates)),
    "peak": lambda at: at.rate("peak", max(at.rates)),
    "standard deviation": lambda at: at.deviation(),
    "average of series 1": lambda at: at.series(1),
    "average of series 2": lambda at: at.series(2),
}
COLUMNS |= {"total": COLUMNS["round trip"], "relative": COLUMNS["of the best"]}


@dataclass(frozen=True)
class Printer:
    """A row of ours, the row with the smallest median of the same case and table, and how figures are printed."""

    row: dict
    best: dict
    case: dict
    unit: str
    operations: str  # what they count a second
    spread: object
    number: object

    @property
    def rates(self):
        return self.row["rates"]

    def rate(self, what, value):
        return f"{what} {self.number(value)} {self.operations}/s"

    def way(self, way):
        return f"{way} {self.number(self.row.get(way))} {self.unit}"

    def of_the_best(self):
        noise = any(row["n"] > 1 and is_noise(row) for row in (self.row, self.best))
        return f"{self.row['median'] / self.best['median']:.2f}x" + (" (noise)" if noise else "")

    def deviation(self):
        if len(self.rates) < 2:
            return "one burst, so no standard deviation"
        return self.rate("standard deviation", stdev(self.rates))

    def series(self, number):
        runs = self.rates[(number - 1) * SERIES : number * SERIES]
        if not runs:
            return f"series {number}: not measured"
        short = f" ({len(runs)} of {SERIES} runs)" if len(runs) < SERIES else ""
        return self.rate(f"series {number}:", mean(runs)) + short


def found_in(results, table):
    """For each of the table's cases, its results: one for each event loop, or just one."""
    section = [result for result in results if result["section"] == table.get("section")]
    return [
        [result for result in section if wanted.items() <= result["case"].items()]
        for wanted in table.get("match", ())
    ]


def row_of(results, name):
    """The result that has a row of the contender, which is one, and the row; None if there is none."""
    return next(((result, result["rows"][name]) for result in results if name in result["rows"]), None)


def best_of(results, table):
    """The row with the smallest median, of the table's contenders in the results of one case."""
    found = [row_of(results, name) for name in table["rows"].values()]
    return min((row for _, row in filter(None, found)), key=lambda row: row["median"])


def cell(results, name, table, spread, number):
    """The figures of a contender that the table has columns for, or why there are none."""
    if found := row_of(results, name):
        result, row = found
        operations = table.get("operations", "operations")
        best = best_of(results, table)
        at = Printer(row, best, result["case"], result["unit"], operations, spread, number)
        return ", ".join(COLUMNS[column](at) for column in table["columns"])
    reasons = [result["gaps"][name] for result in results if name in result["gaps"]]
    return f"none: {reasons[0]}" if reasons else "not measured"


def named(wanted):
    """The fields of a case in a word."""
    return ", ".join(str(value) if field == "how" else f"{field} {value}" for field, value in wanted.items())


def lines(results, spread, number, grid):
    """A table for each of theirs: their row, ours, and our figures."""
    yield "#### The rows of other reports"
    yield ""
    yield (
        "Their tables, with the rows of this suite that do the same work, or the nearest work where a table says so. "
        "Their own figures are left out, because they come from other machines. `1.30x` is 1.30 times the smallest "
        "median of the table's rows there."
    )
    yield ""
    for table in TABLES:
        yield f"{table['report']}: {table['name']}"
        yield ""
        if nearest := table.get("nearest"):
            yield f"The nearest work: {nearest}."
            yield ""
        if table["rows"]:
            columns = found_in(results, table)
            made = [["theirs", "here", *map(named, table["match"])]]
            for theirs, ours in table["rows"].items():
                cells = (cell(found, ours, table, spread, number) for found in columns)
                made.append([theirs, ours, *cells])
            if len(columns) > WIDE:
                made = list(zip(*made))
            yield from grid(made[0], made[1:])
        for theirs, where in table.get("elsewhere", {}).items():
            yield f"- {theirs}: {where}"
        if table.get("elsewhere"):
            yield ""
