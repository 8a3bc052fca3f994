"""docs/benchmark_report.html: the data of the reports as one interactive page, which works offline.

Chart.js (chart.umd.min.js, MIT: chart.LICENSE) draws it. The page holds the library, the data and its own script.
"""

import json
from pathlib import Path

from bench import stats
from bench.report.tables import column
from bench.suite.comparisons import beside
from bench.suite.sections import SECTIONS

HERE = Path(__file__).parent
ROW = (
    "median",
    "q1",
    "q3",
    "low",
    "high",
    "n",
    "send",
    "receive",
    "p50",
    "p99",
    "p999",
    "p9999",
    "max",
    "cpu",
    "curve",
)


def slim(report):
    """What the page shows of a report."""
    results = [
        {
            "work": SECTIONS[result["section"]].title,
            "title": result["title"],
            "label": column(result["case"]),
            "unit": result["unit"],
            "size": result["case"]["size"],
            "count": result["case"]["count"],
            "rows": {
                name: {key: rounded(row[key]) for key in ROW if row.get(key) is not None}
                for name, row in result["rows"].items()
            },
            "ratios": ratios(result["to_others"]),
            "gaps": result["gaps"],
        }
        for result in report["results"]
    ]
    return {"machine": report["machine"], "results": results}


def ratios(found):
    """The ratios of bursts of the same turn, of wsfast's clients to others: [median, its interval in words, noise]."""
    pairs = {}
    for one in found:
        words = (
            f"{one['interval'][0]:.3g}-{one['interval'][1]:.3g}" if one["interval"] else stats.too_few(one)
        )
        words += ", one process" if one["interval"] and one["processes"] == 1 else ""
        words += ", of one which sleeps" if beside(one["of"], one["to"]) != one["to"] else ""
        pairs.setdefault(one["of"], {})[one["to"]] = [
            round(one["median"], 3),
            words,
            stats.is_noise(one),
        ]
    return pairs


def rounded(value):
    return [rounded(one) for one in value] if isinstance(value, list) else float(f"{value:.4g}")


def write(file, reports):
    data = json.dumps([slim(report) for report in reports], separators=(",", ":")).replace("</", "<\\/")
    text = (HERE / "page.html").read_text()
    library = (HERE / "chart.umd.min.js").read_text().replace("</script", "<\\/script")
    for mark, content in (("/*chart.js*/", library), ("/*data*/", data)):
        text = text.replace(mark, content, 1)
    file.write_text(text)
