"""The plots of a load report, as SVG, without a library. Hovering over a point shows its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

__all__ = ["Point", "plot"]

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
