"""Statistics of samples. A percentile is a measured value, the nearest rank below, as in common/samples.c."""

from statistics import mean, median

POINTS = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def percentile(ordered, rank):
    return ordered[int(rank * (len(ordered) - 1))]


def summary(samples):
    ordered = sorted(samples)
    points = {name: percentile(ordered, rank) for name, rank in POINTS.items()}
    return {"n": len(ordered), "mean": round(mean(ordered), 1), **points}


def with_spread(values):
    """The median of the repeats, and their spread."""
    return {"median": median(values), "low": min(values), "high": max(values)}


def ratios(values, others):
    """The ratio of two contenders within each repeat, in which a slow machine affects both."""
    return with_spread([value / other for value, other in zip(values, others)])
