"""Numbers, tables and histograms as text, for terminals and pipes alike."""

from __future__ import annotations

import codecs
import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from wsfast.cli.outcome import Usage, printable

__all__ = ["bars", "buckets", "duration", "for_stdout", "size", "table", "write_json"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def duration(nanoseconds: float) -> str:
    """A time span with three digits: ``12.3 µs``."""
    for unit, length in (("ns", 1), ("µs", 1e3), ("ms", 1e6)):
        if nanoseconds < length * 999.5:
            return f"{_three(nanoseconds / length)} {unit}"
    return f"{_three(nanoseconds / 1e9)} s"


def size(number: float) -> str:
    """A number of bytes with three digits: ``1.50 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if number < 999.5:
            return f"{number:.0f} {unit}" if unit == "B" else f"{_three(number)} {unit}"
        number /= 1024
    return f"{_three(number)} GiB"


def _three(number: float) -> str:
    """Three digits: 1.23, 12.3, 123, and all of a larger number."""
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns, the first one left and the others right."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def buckets(counted: Iterable[tuple[float, int]], rows: int = 14) -> list[tuple[float, float, int]]:
    """A histogram with logarithmic buckets: lower end, upper end and count of each. `counted`: values above 0, with
    their counts."""
    pairs = [(max(value, 1.0), count) for value, count in counted if count]
    if not pairs:
        return []
    # Bounds are powers of 2 ** (1 / per), with as many per octave as there are rows for.
    least, most = min(value for value, _ in pairs), max(value for value, _ in pairs)
    octaves = max(math.log2(most / least), 1e-9)
    per = next((n for n in (16, 8, 4, 2, 1) if octaves * n + 2 <= rows), 1 / math.ceil(octaves / (rows - 2)))
    first = math.floor(math.log2(least) * per)
    counts = [0] * (math.floor(math.log2(most) * per) - first + 1)
    for value, count in pairs:
        counts[min(math.floor(math.log2(value) * per) - first, len(counts) - 1)] += count
    return [(2 ** ((first + i) / per), 2 ** ((first + i + 1) / per), count) for i, count in enumerate(counts)]


def bars(counted: Iterable[tuple[float, int]], rows: int = 14, width: int = 40) -> str:
    """A histogram of time spans in nanoseconds, a line for each bucket."""
    histogram = buckets(counted, rows)
    most = max((count for *_, count in histogram), default=0)
    lines = []
    for low, high, count in histogram:
        eighths = round(count / most * width * 8) or bool(count)
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        lines.append(f"{duration(low):>9} - {duration(high):>9}  {bar:<{width}}  {count:,}".rstrip())
    return "\n".join(lines)


def write_json(path: str, content: Any) -> None:
    """Write to a file, or to stdout if `path` is ``-``.

    :raises Usage: the file cannot be written
    """
    if path == "-":
        sys.stdout.write(for_stdout(content, indent=2) + "\n")
    else:
        write_file(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def for_stdout(content: Any, indent: int | None = None) -> str:
    """JSON with escapes where characters could not be written to stdout, or could control its terminal."""
    if codecs.lookup(sys.stdout.encoding).name == "utf-8":
        text = json.dumps(content, indent=indent, ensure_ascii=False)
        if not sys.stdout.isatty() or printable(text) == text:
            return text
    return json.dumps(content, indent=indent)


def write_file(path: str, text: str) -> None:
    """Write a text file.

    :raises Usage: the file cannot be written
    """
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as exc:
        raise Usage(f"{path}: {exc.strerror}") from exc


def beside(path: str | None) -> TextIO:
    """The stream for people's text: stderr if JSON goes to stdout, otherwise stdout."""
    return sys.stderr if path == "-" else sys.stdout
