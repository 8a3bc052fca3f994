"""The rows of the reports that this suite answers (seed_rows.toml), each with the figures of a run."""

import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WIDE = 8  # columns of figures, beyond which a table is turned
TABLES = tomllib.loads((Path(__file__).parent / "seed_rows.toml").read_text())["table"]


def found_in(results, table):
    """For each of the table's cases, its results: one for each event loop, or just one."""
    section = [result for result in results if result["section"] == table.get("section")]
    return [
        [result for result in section if wanted.items() <= result["case"].items()]
        for wanted in table.get("match", ())
    ]


def cell(results, name, spread):
    """The figure of a contender in the results of one case, or why there is none."""
    for result in results:
        if name in result["rows"]:
            return f"{spread(result['rows'][name])} {result['unit']}"
    reasons = [result["gaps"][name] for result in results if name in result["gaps"]]
    return f"none: {reasons[0]}" if reasons else "not measured"


def named(wanted):
    """The fields of a case in a word."""
    return ", ".join(str(value) if field == "how" else f"{field} {value}" for field, value in wanted.items())


def lines(results, spread, grid):
    """A table for each of theirs: their row, ours, and our figures."""
    yield "#### The rows of other reports"
    yield ""
    yield (
        "Their tables, with the rows of this suite that do the same work. Their own figures are left out, because they "
        "come from other machines."
    )
    yield ""
    for table in TABLES:
        yield f"{table['report']}: {table['name']}"
        yield ""
        if table["rows"]:
            columns = found_in(results, table)
            made = [["theirs", "here", *map(named, table["match"])]]
            for theirs, ours in table["rows"].items():
                made.append([theirs, ours, *(cell(found, ours, spread) for found in columns)])
            if len(columns) > WIDE:
                made = list(zip(*made))
            yield from grid(made[0], made[1:])
        for theirs, where in table.get("elsewhere", {}).items():
            yield f"- {theirs}: {where}"
        if table.get("elsewhere"):
            yield ""
