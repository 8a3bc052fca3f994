"""The report of a load as one HTML file, which loads nothing and works offline."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from wsfast.cli.load.report import throughputs
from wsfast.cli.load.results import Series
from wsfast.cli.text import buckets, duration

__all__ = ["Point", "page", "plot"]

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
    latencies = series.latencies
    levels = latencies.percentiles() if len(latencies) else {}
    errors = [[kind, f"{count:,}"] for kind, count in series.errors.most_common()]
    parts = [
        f"<h1>Load of {escape(content['url'])}</h1>",
        f"<p>{escape(content['began'])}, wsfast {content['wsfast']}</p>",
        _facts({name: value for name, value in content["plan"].items() if value is not None}),
        "<h2>Throughput, answers per second</h2>",
        _table(*throughputs(series)),
        _throughput(series),
        "<h2>Latency</h2>",
    ]
    if content["plan"]["loop"] == "open":
        parts.append("<p>From the time when each message was due, whether it left in time or not.</p>")
    parts.append(
        _table([f"p{level:g}" for level in levels], [[duration(value) for value in levels.values()]])
    )
    if len(latencies):
        parts.append(_distribution(latencies.curve()))
        bars = [
            (at, float(count), duration(low)) for at, (low, _, count) in enumerate(buckets(latencies, 24))
        ]
        parts.append(plot(bars, _count, "latency, from", bars=True))
    parts += ["<h2>Errors</h2>", _table(["", ""], errors) if errors else "<p>none</p>"]
    if content["plan"]["reconnect"]:
        parts.append(f"<p>Reconnections: {series.reconnections:,}</p>")
    raw = escape(json.dumps(content, indent=1, ensure_ascii=False), quote=False)
    parts += ["<h2>Machine</h2>", _facts(content["machine"])]
    parts.append(f"<details><summary>All figures as JSON</summary><pre>{raw}</pre></details>")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Load of {escape(content['url'])}</title><style>{_STYLE}</style></head>\n"
        f"<body>{chr(10).join(parts)}</body></html>\n"
    )


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _throughput(series: Series) -> str:
    """The throughput of each run; of a single one over time."""
    if len(series.runs) > 1:
        each = [(at, run.throughput, f"{run.series}.{run.number}") for at, run in enumerate(series.runs)]
        return plot(each, _count, "run", bars=True)
    timeline = series.runs[0].timeline if series.runs else []
    return plot(
        [(second, rate, f"{second:.1f} s") for second, rate in timeline], _count, "time, with warm-up"
    )


def _distribution(curve: Sequence[tuple[float, float]]) -> str:
    """Latency by percentile. The x axis counts nines, so that the tail has as much room as the middle."""
    nines = [(-math.log10(1 - level / 100), value, f"{level:.6g} %") for level, value in curve if level < 100]
    return plot(nines, duration, "percentile", log=True)


def _facts(facts: dict[str, Any]) -> str:
    shown = (
        (name, "-".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in facts.items()
    )
    return _table(["", ""], list(shown))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head) if any(head) else ""
    return f"<table>{f'<tr>{top}</tr>' if top else ''}{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 16, 12, 40
_ACROSS, _UP = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_LABEL = 70  # the least room for a label of the x axis

Point = tuple[float, float, str]
"""A place on the x axis, a value, and the place in words."""


def plot(
    points: Sequence[Point], y: Callable[[float], str], x_name: str, *, bars: bool = False, log: bool = False
) -> str:
    """A line through points, or a bar for each. `y` makes labels of values; `log`: the y axis is logarithmic."""
    if not points:
        return "<p>nothing was measured</p>"
    values = [math.log10(max(value, 1e-9)) if log else value for _, value, _ in points]
    low = math.floor(min(values)) if log else 0.0
    span = (math.ceil(max(values)) if log else max(values)) - low or 1
    width = _ACROSS / len(points) if bars else 0.0
    first, last = points[0][0], points[-1][0]
    reach = (last - first) or 1
    steps = [step / span for step in range(int(span) + 1)] if log else [step / 4 for step in range(5)]
    parts = [_mark(share, y(10 ** (low + share * span) if log else share * span)) for share in steps]
    places, labelled = [], -math.inf
    for (at, value, label), height in zip(points, values, strict=True):
        x = _LEFT + width / 2 + (at - first) / reach * (_ACROSS - width)
        top = _HEIGHT - _BOTTOM - (height - low) / span * _UP
        places.append(f"{x:.1f},{top:.1f}")
        title = f"<title>{escape(f'{label}: {y(value)}')}</title>"
        if bars:
            parts.append(
                f'<rect x="{x - width / 2 + 1:.1f}" y="{top:.1f}" width="{max(width - 2, 1):.1f}" '
                f'height="{_HEIGHT - _BOTTOM - top:.1f}">{title}</rect>'
            )
        else:
            parts.append(f'<circle cx="{x:.1f}" cy="{top:.1f}" r="4">{title}</circle>')
        if x - labelled > _LABEL:
            parts.append(_text(x, _HEIGHT - 22, label))
            labelled = x
    if not bars:
        parts.append(f'<polyline points="{" ".join(places)}"/>')
    parts.append(_text(_LEFT + _ACROSS / 2, _HEIGHT - 4, x_name))
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _mark(share: float, label: str) -> str:
    """A line across the plot at this share of its height."""
    y = _HEIGHT - _BOTTOM - share * _UP
    line = f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'
