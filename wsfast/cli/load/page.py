"""The report of a load as one HTML file, which loads nothing and works offline."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from typing import Any

from wsfast.cli.load import plots
from wsfast.cli.load.results import Series, spread
from wsfast.cli.text import buckets, duration

__all__ = ["page"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 760px; margin: 2em auto; padding: 0 1em;
  color: #222; background: #fff }
h1 { font-size: 1.4em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse } th, td { padding: .2em .8em; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
svg { width: 100%; height: auto } svg text { font-size: 11px; fill: #555 } svg line { stroke: #e4e4e4 }
polyline { fill: none; stroke: #2563eb; stroke-width: 1.5 } rect, circle { fill: #2563eb }
circle { opacity: .35 } circle:hover, rect:hover { fill: #dc2626; opacity: 1 }
pre { white-space: pre-wrap; overflow-wrap: anywhere }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #161616 } svg text { fill: #aaa } svg line { stroke: #333 }
  th, td { border-color: #333 } }
"""


def page(content: dict[str, Any], series: Series) -> str:
    """The whole page. `content`: the data that the command also writes as JSON. The page shows it at its end."""
    latencies, runs = series.latencies, series.runs
    levels = latencies.percentiles() if len(latencies) else {}
    parts = [
        f"<h1>Load of {escape(content['url'])}</h1>",
        f"<p>{escape(content['began'])}, wsfast {content['wsfast']}</p>",
    ]
    parts.append(
        _table(
            ["", ""], [[name, _shown(value)] for name, value in content["plan"].items() if value is not None]
        )
    )
    parts.append("<h2>Throughput, answers per second</h2>")
    rows = []
    for name, values in series.groups():
        found = spread(values)
        rows.append(
            [name, str(len(values)), *(f"{found[key]:,.0f}" for key in ("median", "mean", "peak", "stdev"))]
        )
    parts.append(_table(["", "runs", "median", "mean", "peak", "std dev"], rows))
    if len(runs) > 1:
        each = [(f"{run.series}.{run.number}", run.throughput) for run in runs]
        parts.append(plots.bars(each, lambda value: f"{value:,.0f}", x_name="run"))
    elif runs:
        parts.append(
            plots.line(
                runs[0].timeline,
                lambda second: f"{second:.1f} s",
                lambda rate: f"{rate:,.0f}",
                x_name="time, with warm-up",
            )
        )
    parts.append("<h2>Latency</h2>")
    if content["plan"]["loop"] == "open":
        parts.append("<p>From the time when each message was due, whether it left in time or not.</p>")
    parts.append(
        _table([f"p{level:g}" for level in levels], [[duration(value) for value in levels.values()]])
    )
    if len(latencies):
        parts.append(_distribution(latencies.curve()))
        found_buckets = [(duration(low), float(count)) for low, _, count in buckets(latencies, 24)]
        parts.append(plots.bars(found_buckets, lambda value: f"{value:,.0f}", x_name="latency, from"))
    parts.append("<h2>Errors</h2>")
    errors = [[kind, f"{count:,}"] for kind, count in series.errors.most_common()]
    parts.append(_table(["", ""], errors) if errors else "<p>none</p>")
    if content["plan"]["reconnect"]:
        parts.append(f"<p>Reconnections: {series.reconnections:,}</p>")
    parts.append("<h2>Machine</h2>")
    parts.append(_table(["", ""], [[name, _shown(value)] for name, value in content["machine"].items()]))
    raw = escape(json.dumps(content, indent=1, ensure_ascii=False), quote=False)
    parts.append(f"<details><summary>All figures as JSON</summary><pre>{raw}</pre></details>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Load of {escape(content['url'])}</title><style>{_STYLE}</style></head>\n"
        f"<body>{chr(10).join(parts)}</body></html>\n"
    )


def _distribution(curve: Sequence[tuple[float, float]]) -> str:
    """Latency by percentile. The x axis counts nines, so that the tail has as much room as the middle."""
    nines = [(-math.log10(1 - level / 100), level, value) for level, value in curve if level < 100]
    names = {place: f"{level:.6g} %" for place, level, _ in nines}
    placed = [(place, value) for place, _, value in nines]
    return plots.line(placed, lambda place: names[place], duration, x_name="percentile", log=True)


def _shown(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head) if any(head) else ""
    return f"<table>{f'<tr>{top}</tr>' if top else ''}{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
