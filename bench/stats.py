"""Numbers from samples. A percentile is a measured value, the nearest rank below, as in common/samples.c."""

from statistics import mean, median

POINTS = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


def percentile(ordered, rank):
    return ordered[int(rank * (len(ordered) - 1))]


def summary(samples):
    ordered = sorted(samples)
    points = {name: percentile(ordered, rank) for name, rank in POINTS.items()}
    return {"n": len(ordered), "mean": round(mean(ordered), 1), **points}


def with_spread(values):
    """The median of repeats, and how far they lie apart."""
    return {"median": median(values), "low": min(values), "high": max(values)}


def ratios(values, others):
    """Of two contenders, repeat by repeat: what moved the machine in one repeat moved both."""
    return with_spread([value / other for value, other in zip(values, others)])
