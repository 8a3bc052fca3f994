"""docs/benchmark_report.html: the data of the reports as one interactive page, which works offline."""

import json
from pathlib import Path

from bench.report import first_page
from bench.report.colours import colour
from bench.report.tables import column
from bench.suite import comparisons
from bench.suite.sections import SECTIONS
from wsfast.cli.bench import comparing

HERE = Path(__file__).parent
ROW = ("median", "q1", "q3", "n", "cpu", "curve")
KINDS = {"listening": "listener", "awaiting": "awaitable", "blocking": "blocking"}
FACES = dict(zip(("listener", "awaitable", "blocking"), comparisons.OURS))

# A sentence for each work.
ABOUT = {
    "request_response": "One message out, its echo back, again and again.",
    "one_way": "A round trip, split by the server's stamps.",
    "batch": "A hundred messages out, then their hundred echoes.",
    "window": "A hundred messages are always unanswered: each reply sends the next one.",
    "flood": "The server sends small messages as fast as it can.",
    "deflate": "The server sends order-book updates, compressed.",
    "objects": "The server sends order-book updates, which become objects of Python.",
    "queued": "Ten thousand messages have arrived before the first is taken.",
    "errors": "recv() on a connection that is closed.",
    "mixed": "Nine round trips, then a recv() on a closed connection.",
    "varied": "Round trips of random sizes.",
    "fan_in": "Many connections, each with one round trip after another.",
    "answers": "The server sends ticks on a schedule, and the client answers.",
    "connect": "Opening a connection.",
    "idle": "The private memory of connections that wait.",
    "primitive": "What an event loop does, alone.",
}


def slim(report):
    """The part of a report that the page shows."""
    results = {}
    for result in report["results"]:
        case = result["case"]
        # Each primitive is measured on one loop at a time: the page shows all loops beneath one another.
        alone = case["function"] == "primitive"
        label = case["how"].removeprefix("ws_") if alone else column(case)
        made = results.setdefault(
            (result["section"], label),
            {
                "work": SECTIONS[result["section"]].title,
                "about": ABOUT[case["function"]],
                "label": label,
                "unit": result["unit"],
                "rows": {},
                "ratios": ratios(result["to_others"]),
                "gaps": {},
            },
        )
        made["rows"] |= {
            name: {key: rounded(row[key]) for key in ROW if row.get(key) is not None}
            for name, row in result["rows"].items()
        }
        made["gaps"] |= result["gaps"]
    return {"machine": report["machine"], "results": list(results.values()), "overview": overview(report)}


def overview(report):
    """The cases of the tables by face: [name, title and label of the result]."""
    return [
        [work, SECTIONS[section].title, column(result["case"])]
        for work, section, fields in first_page.ROWS
        for result in report["results"]
        if result["section"] == section and fields.items() <= result["case"].items()
    ]


def parts_of(name):
    """The library, the kind and the variant of a contender, in words."""
    _, _, variant = name.partition(":")
    kind = KINDS.get(comparisons.kind(name), "")
    if name in comparisons.LANGUAGES:
        return [f"{first_page.library(name)} ({name})", "", ""]
    library = "wsfast" if comparisons.is_ours(name) else first_page.library(name)
    return [library, kind, variant.replace("_", " ")]


def ratios(found):
    """wsfast's clients to others: [median of the pairs of bursts, low, high, noise, is the other a rival, note]."""
    pairs = {}
    for one in found:
        low, high = one["interval"] or (one["median"], one["median"])
        note = "" if one["interval"] else comparing.too_few(one)
        if comparisons.beside(one["of"], one["to"]) != one["to"]:
            note = "which sleeps"
        rival = comparisons.is_rival(one["of"], one["to"])
        figures = [round(value, 3) for value in (one["median"], low, high)]
        pairs.setdefault(one["of"], {})[one["to"]] = [*figures, comparing.is_noise(one), rival, note]
    return pairs


def rounded(value):
    return [rounded(one) for one in value] if isinstance(value, list) else float(f"{value:.4g}")


def write(file, reports):
    names = {
        name
        for report in reports
        for result in report["results"]
        for name in (*result["rows"], *result["gaps"])
    }
    data = {
        "faces": FACES,
        "colours": {name: colour(name) for name in sorted(names)},
        "names": {name: parts_of(name) for name in sorted(names)},
        "reports": [slim(report) for report in reports],
    }
    text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
    file.write_text((HERE / "page.html").read_text().replace("/*data*/", text, 1))
