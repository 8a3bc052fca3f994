"""Statistics of samples. A percentile is a measured value, the nearest rank below, as in common/samples.c.

A report marks a ratio as "noise" if its interval is wider than NOISY of it and has 1 in it: then either side may be
faster. However wide, an interval on one side of 1 says which side is faster. From fewer bursts than FEWEST there is no
interval, and nothing is concluded.
"""

import random
from statistics import mean, median, quantiles

POINTS = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "p9999": 0.9999, "max": 1.0}
# The points of a distribution for plots, a tenth of a decade of the tail apart: from p0 to p99.99.
CURVE = [1 - 10 ** (-point / 10) for point in range(41)]

NOISY = 0.25
RESAMPLES = 1000
FEWEST = 3  # bursts, for an interval


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


def with_spread(values):
    """The median of the bursts, their middle half, and their range."""
    middle = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {
        "median": median(values),
        "low": min(values),
        "high": max(values),
        "q1": middle[0],
        "q3": middle[2],
    }


def by_process(values, bursts):
    """The bursts of each process, if every process has had `bursts` of them."""
    bursts = bursts or max(1, len(values))
    return [values[start : start + bursts] for start in range(0, len(values), bursts)]


def interval(processes):
    """The bootstrap interval of the median: 95 of a hundred resamples have their median in it.

    `processes` has a list of bursts for each process. The bursts of one process are alike, so a resample draws
    processes first, and then bursts of each. The interval of one process does not show how processes differ.
    """
    chance = random.Random(0)  # the same report from the same data
    medians = []
    for _ in range(RESAMPLES):
        drawn = chance.choices(processes, k=len(processes)) if len(processes) > 1 else processes
        medians.append(median([value for bursts in drawn for value in chance.choices(bursts, k=len(bursts))]))
    medians.sort()
    return [percentile(medians, 0.025), percentile(medians, 0.975)]


def ratios(values, others, bursts=None):
    """The ratio of two contenders in bursts of the same turn, in which a slow machine affects both. A process has
    `bursts` of them; without it, all are of one process."""
    processes = by_process([value / other for value, other in zip(values, others)], bursts)
    found = [value for process in processes for value in process]
    return {
        **with_spread(found),
        "n": len(found),
        "processes": len(processes),
        "interval": interval(processes) if len(found) >= FEWEST else None,
    }


def too_few(ratio):
    """What stands behind a ratio that has no interval."""
    n = ratio.get("n", 0)
    return f"{n} burst{'s' if n > 1 else ''}" if n else "too few bursts"


def shown(ratio):
    """The ratio with its interval, or with the reason why there is none."""
    if not ratio["interval"]:
        return f"{ratio['median']:.2f} ({too_few(ratio)})"
    low, high = ratio["interval"]
    return f"{ratio['median']:.2f} ({low:.2f}-{high:.2f})"


def judged(ratio):
    """The same, or "noise" with the interval."""
    if not is_noise(ratio):
        return shown(ratio)
    low, high = ratio["interval"]
    return f"noise ({low:.2f}-{high:.2f})"


def is_slower(ratio):
    """True if the whole interval of the ratio is above 1."""
    return bool(ratio["interval"]) and ratio["interval"][0] > 1


def is_noise(ratio):
    """True if the interval of a ratio is wide, and leaves open which side is faster."""
    if not ratio["interval"]:
        return False
    low, high = ratio["interval"]
    return low <= 1 <= high and high - low > NOISY * ratio["median"]
