"""Statistics of samples. A percentile is a measured value, the nearest rank below, as in common/samples.c."""

from statistics import mean

POINTS = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p9999": 0.9999, "max": 1.0}
# The points of a distribution for plots, a tenth of a decade of the tail apart: from p0 to p99.99.
CURVE = [1 - 10 ** (-point / 10) for point in range(41)]


def percentile(ordered, rank):
    return ordered[int(rank * (len(ordered) - 1))]


def summary(samples):
    ordered = sorted(samples)
    points = {name: percentile(ordered, rank) for name, rank in POINTS.items()}
    curve = [percentile(ordered, rank) for rank in CURVE]
    return {"n": len(ordered), "mean": round(mean(ordered), 1), **points, "curve": curve}


def parts(samples):
    """The summary; of the two ways too, if each sample has the times (sent, stamped by the server, received)."""
    if not isinstance(samples[0], tuple):
        return summary(samples)
    there = summary([stamp - start for start, stamp, _ in samples])
    back = summary([end - stamp for _, stamp, end in samples])
    total = summary([end - start for start, _, end in samples])
    return {**total, "send": {"p50": there["p50"]}, "receive": {"p50": back["p50"]}}
