"""The results of a load: of one run, and the statistics over runs."""

from __future__ import annotations

import dataclasses
import statistics
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hdrh.histogram import HdrHistogram

__all__ = ["PERCENTILES", "Histogram", "Run", "Series", "spread"]

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99)

# In nanoseconds: the resolution is 64 ns, and a time longer than an hour counts as an hour.
_LEAST, _MOST, _DIGITS = 100, 3600 * 10**9, 3
_SHIFT = 6  # 2**6 ns, the unit that HdrHistogram makes of _LEAST


class Histogram:
    """Counts of time spans in nanoseconds."""

    def __init__(self) -> None:
        self._hdr = HdrHistogram(_LEAST, _MOST, _DIGITS)

    def add(self, spans: array[int]) -> None:
        """Count each of these spans. HdrHistogram takes microseconds per call, so equal ones are counted first."""
        for units, count in Counter([span >> _SHIFT for span in spans]).items():
            self._hdr.record_value(min(max(units, 1) << _SHIFT, _MOST), count)

    def merge(self, other: Histogram) -> None:
        """Add all counts of another histogram."""
        self._hdr.add(other._hdr)

    def __len__(self) -> int:
        return int(self._hdr.get_total_count())

    def __iter__(self) -> Iterator[tuple[float, int]]:
        """Each span that was counted, in the middle of its bucket, with its count."""
        for item in self._hdr.get_recorded_iterator():
            yield item.value_iterated_to, item.count_added_in_this_iter_step

    def percentiles(self) -> dict[float, float]:
        """The percentiles of PERCENTILES in nanoseconds; all are 0 if nothing was counted."""
        values: dict[float, float] = self._hdr.get_percentile_to_value_dict(list(PERCENTILES))
        return {percentile: float(values.get(percentile, 0)) for percentile in PERCENTILES}

    def curve(self) -> list[tuple[float, float]]:
        """The distribution: percentile and nanoseconds, denser towards 100."""
        return [
            (item.percentile_level_iterated_to, float(item.value_iterated_to))
            for item in self._hdr.get_percentile_iterator(5)
        ]

    @property
    def most(self) -> float:
        """The longest span, in nanoseconds."""
        return float(self._hdr.get_max_value()) if len(self) else 0.0

    def to_json(self) -> dict[str, Any]:
        """Statistics in microseconds, and the histogram in HdrHistogram's own compressed format (V2, base64, ns)."""
        if not len(self):
            return {"count": 0}
        microseconds: dict[str, Any] = {
            "count": len(self),
            "min": self._hdr.get_min_value() / 1e3,
            "mean": round(self._hdr.get_mean_value() / 1e3, 3),
            "stdev": round(self._hdr.get_stddev() / 1e3, 3),
            "max": self.most / 1e3,
        }
        microseconds |= {f"p{level:g}": value / 1e3 for level, value in self.percentiles().items()}
        return {**microseconds, "hdr": self._hdr.encode().decode()}


# The schedule of the open loop is kept if 99 % of the messages leave within this time, in nanoseconds.
_LATE = 1_000_000


@dataclasses.dataclass
class Run:
    """The results of one run, summed over its processes. They grow while the run goes on."""

    series: int
    number: int
    connections: int = 0
    connecting: float = 0.0
    """How long opening the connections took, in seconds."""
    tls: str | None = None
    reconnections: int = 0
    """How often a lost connection was opened again."""
    sent: int = 0
    received: int = 0
    counted: int = 0
    """Answers in the measured time, without the warm-up and the wait for the last answers."""
    seconds: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    errors: Counter[str] = dataclasses.field(default_factory=Counter)
    latencies: Histogram = dataclasses.field(default_factory=Histogram)
    lags: Histogram = dataclasses.field(default_factory=Histogram)
    timeline: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    """Seconds since the start, and answers per second then."""
    interrupted: bool = False

    @property
    def throughput(self) -> float:
        """Answers per second."""
        return self.counted / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> tuple[float, float]:
        """Bytes sent and received per second, with the headers of frames."""
        if not self.sent or not self.received:
            return 0.0, 0.0
        # The counts of bytes include the warm-up, and so do these counts of messages.
        return (
            self.throughput * self.bytes_sent / self.sent,
            self.throughput * self.bytes_received / self.received,
        )

    @property
    def late(self) -> bool:
        """True if the open loop did not keep its schedule."""
        return len(self.lags) > 0 and self.lags.percentiles()[99.0] > _LATE

    def to_json(self) -> dict[str, Any]:
        """All of it, as JSON. Times of messages are in microseconds."""
        sent, received = self.bytes_per_second
        return {
            "series": self.series,
            "run": self.number,
            "seconds": round(self.seconds, 6),
            "connections": self.connections,
            "connecting_seconds": round(self.connecting, 6),
            "reconnections": self.reconnections,
            "tls": self.tls,
            "messages": {"sent": self.sent, "answered": self.received, "counted": self.counted},
            "messages_per_second": round(self.throughput, 3),
            "bytes_per_second": {"sent": round(sent), "received": round(received)},
            "errors": dict(self.errors),
            "latency": self.latencies.to_json(),
            "lag": self.lags.to_json(),
            "timeline": [[round(second, 2), round(rate, 1)] for second, rate in self.timeline],
            "interrupted": self.interrupted,
        }


def spread(values: list[float]) -> dict[str, float]:
    """Mean, median, peak and standard deviation, as load tools report them for repeated runs."""
    return {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "peak": max(values),
        "stdev": statistics.stdev(values) if len(values) > 1 else 0.0,
    }


@dataclasses.dataclass
class Series:
    """All runs of a command."""

    runs: list[Run] = dataclasses.field(default_factory=list)

    @property
    def errors(self) -> Counter[str]:
        """Errors by kind."""
        return sum((run.errors for run in self.runs), Counter())

    @property
    def reconnections(self) -> int:
        """How often lost connections were opened again."""
        return sum(run.reconnections for run in self.runs)

    @property
    def latencies(self) -> Histogram:
        """The latencies of all runs."""
        return _merged([run.latencies for run in self.runs])

    @property
    def lags(self) -> Histogram:
        """The lags of all runs."""
        return _merged([run.lags for run in self.runs])

    def groups(self) -> list[tuple[str, list[float]]]:
        """The throughputs of each series, and of all runs if there are several series."""
        numbers = sorted({run.series for run in self.runs})
        groups = [
            (f"series {number}", [run.throughput for run in self.runs if run.series == number])
            for number in numbers
        ]
        if len(numbers) > 1:
            groups.append(("all runs", [run.throughput for run in self.runs]))
        return groups

    def to_json(self) -> dict[str, Any]:
        """The runs, and their statistics."""
        return {
            "messages_per_second": {
                name.replace(" ", "_"): {key: round(value, 3) for key, value in spread(values).items()}
                for name, values in self.groups()
            },
            "latency": self.latencies.to_json(),
            "lag": self.lags.to_json(),
            "errors": dict(self.errors),
            "reconnections": self.reconnections,
            "runs": [run.to_json() for run in self.runs],
        }


def _merged(histograms: list[Histogram]) -> Histogram:
    if len(histograms) == 1:
        return histograms[0]
    merged = Histogram()
    for histogram in histograms:
        merged.merge(histogram)
    return merged
