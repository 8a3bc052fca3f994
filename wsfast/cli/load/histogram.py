"""Times of many messages: an HDR histogram, which keeps three digits of each time whatever its size."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hdrh.histogram import HdrHistogram

__all__ = ["PERCENTILES", "Histogram"]

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
        found: dict[float, float] = self._hdr.get_percentile_to_value_dict(list(PERCENTILES))
        return {percentile: float(found.get(percentile, 0)) for percentile in PERCENTILES}

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
