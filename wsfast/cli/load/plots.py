"""The plots of a load report, as SVG, without a library. Hovering over a point shows its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

__all__ = ["bars", "line"]

_WIDTH, _HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 16, 12, 40

Label = Callable[[float], str]


def line(points: Sequence[tuple[float, float]], x: Label, y: Label, *, x_name: str, log: bool = False) -> str:
    """A line through points. `x`, `y`: make the labels of the axes; `log`: the y axis is logarithmic."""
    if not points:
        return "<p>nothing was measured</p>"
    scale: Callable[[float], float] = (lambda value: math.log10(max(value, 1e-9))) if log else float
    low = min(scale(value) for _, value in points) if log else 0.0
    high = max(scale(value) for _, value in points)
    if log:
        low, high = math.floor(low), math.ceil(high)
    span = high - low or 1
    first, last = points[0][0], points[-1][0]
    places = [
        (
            _LEFT + (at - first) / ((last - first) or 1) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - (scale(value) - low) / span * (_HEIGHT - _TOP - _BOTTOM),
        )
        for at, value in points
    ]
    steps = range(int(span) + 1) if log else [step / 4 * span for step in range(5)]
    marks = [(low + step, 10 ** (low + step) if log else low + step) for step in steps]
    parts = [_y_axis([((place - low) / span, y(value)) for place, value in marks])]
    parts += [_text(place, _HEIGHT - 22, x(at)) for (place, _), (at, _) in _some(places, points)]
    parts.append(f'<polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in places)}"/>')
    parts += [
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4"><title>{escape(f"{x(at)}: {y(value)}")}</title></circle>'
        for (a, b), (at, value) in zip(places, points, strict=True)
    ]
    return _svg(parts, x_name)


def bars(counts: Sequence[tuple[str, float]], y: Label, *, x_name: str) -> str:
    """A bar for each label."""
    if not counts:
        return "<p>nothing was measured</p>"
    most = max(count for _, count in counts) or 1
    width = (_WIDTH - _LEFT - _RIGHT) / len(counts)
    parts = [_y_axis([(step / 4, y(step / 4 * most)) for step in range(5)])]
    every = math.ceil(len(counts) / 8)
    for number, (label, count) in enumerate(counts):
        height = count / most * (_HEIGHT - _TOP - _BOTTOM)
        left = _LEFT + number * width
        parts.append(
            f'<rect x="{left + 1:.1f}" y="{_HEIGHT - _BOTTOM - height:.1f}" width="{max(width - 2, 1):.1f}" '
            f'height="{height:.1f}"><title>{escape(f"{label}: {y(count)}")}</title></rect>'
        )
        if number % every == 0:
            parts.append(_text(left + width / 2, _HEIGHT - 22, label))
    return _svg(parts, x_name)


def _some(
    places: Sequence[tuple[float, float]], points: Sequence[tuple[float, float]]
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """The points whose labels have room."""
    chosen, right = [], -math.inf
    for place, point in zip(places, points, strict=True):
        if place[0] - right > 70:
            chosen.append((place, point))
            right = place[0]
    return chosen


def _y_axis(marks: Sequence[tuple[float, str]]) -> str:
    parts = []
    for share, label in marks:
        y = _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    return "".join(parts)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


def _svg(parts: Sequence[str], x_name: str) -> str:
    name = _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, x_name)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}{name}</svg>'
