"""Compares contenders that are measured by turns: for ``wsfast bench``, for ``make demo`` and for the suite in bench/.

Each contender waits in a process of its own, and short bursts of all alternate, so that a slow phase of the machine
affects all alike. A ratio compares two bursts of the same turn. It is "noise" if its interval is wider than NOISY of
it and has 1 in it: then either side may be faster. An interval on one side of 1, however wide, says which side is
faster. From fewer bursts than FEWEST there is no interval, and nothing is concluded.
"""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import median, quantiles
from typing import Any, TypeVar

__all__ = [
    "FEWEST",
    "NOISY",
    "ContenderError",
    "Waiting",
    "by_turns",
    "is_noise",
    "is_slower",
    "judged",
    "ratios",
    "shown",
    "too_few",
    "with_spread",
]

T = TypeVar("T")
Turn = TypeVar("Turn")
Ratio = dict[str, Any]

NOISY = 0.25
FEWEST = 3  # bursts, for an interval
_RESAMPLES = 1000


class ContenderError(Exception):
    """A contender ended without figures. The message names it and the reason, in one line."""


class Waiting:
    """The process of a contender, which waits for its bursts. It ends with the `with` block.

    :param timeout: a contender that takes so many seconds for a burst has failed
    """

    def __init__(self, name: str, argv: Sequence[str], timeout: float, cwd: Any = None) -> None:
        self._name, self._timeout = name, timeout
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(  # noqa: S603
            argv, cwd=cwd, text=True, stdin=pipe, stdout=pipe, stderr=self._stderr
        )

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.stdout.close()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._stderr.close()

    def ask(self, line: str = "") -> str:
        """Write a line to the process. Returns the line that it answers.

        :raises ContenderError: it ended without one, or it took too long
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # read() says why it has ended
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        return self.read()

    def read(self) -> str:
        """The next line of the process.

        :raises ContenderError: it ended without one, or it took too long
        """
        assert self._process.stdout is not None
        timer = threading.Timer(self._timeout, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
            timer.join()
        if line:
            return line
        status = self._process.wait()
        if status == -signal.SIGKILL:
            raise ContenderError(f"{self._name} did not end within {self._timeout:g} s")
        self._stderr.seek(0)
        lines = self._stderr.read().strip().splitlines() or [f"it ended with status {status}"]
        raise ContenderError(f"{self._name} failed: {lines[-1] if status else 'it printed no summary'}")


def by_turns(
    bursts: Mapping[str, Callable[[Turn], T]], turns: Iterable[Turn]
) -> dict[str, list[T] | ContenderError]:
    """Call the function of each contender once a turn, in another order each turn, until it fails.

    Returns the results of each contender, or the error that ended it.
    """
    results: dict[str, list[T] | ContenderError] = {name: [] for name in bursts}
    for number, turn in enumerate(turns):
        for name in random.Random(f"{turn}, {number}").sample(list(bursts), len(bursts)):  # noqa: S311 - not a secret
            done = results[name]
            if isinstance(done, list):
                try:
                    done.append(bursts[name](turn))
                except ContenderError as failure:
                    results[name] = failure
    return results


def with_spread(values: Sequence[float]) -> dict[str, float]:
    """The median of the bursts, their middle half, and their range."""
    middle = quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {
        "median": median(values),
        "low": min(values),
        "high": max(values),
        "q1": middle[0],
        "q3": middle[2],
    }


def _interval(processes: Sequence[Sequence[float]]) -> list[float]:
    """The bootstrap interval of the median: 95 of a hundred resamples have their median in it.

    `processes` has a list of bursts for each process. The bursts of one process are alike, so a resample draws
    processes first, and then bursts of each. The interval of one process does not show how processes differ.
    """
    chance = random.Random(0)  # noqa: S311 - the same report from the same data
    medians = []
    for _ in range(_RESAMPLES):
        drawn = chance.choices(processes, k=len(processes)) if len(processes) > 1 else processes
        medians.append(median([value for bursts in drawn for value in chance.choices(bursts, k=len(bursts))]))
    medians.sort()
    return [medians[int(rank * (_RESAMPLES - 1))] for rank in (0.025, 0.975)]


def ratios(values: Sequence[float], others: Sequence[float], bursts: int | None = None) -> Ratio:
    """The ratio of two contenders in bursts of the same turn. Each process has `bursts` of them; None: there is one
    process."""
    pairs = [value / other for value, other in zip(values, others, strict=False)]
    size = bursts or max(1, len(pairs))
    processes = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return {
        **with_spread(pairs),
        "n": len(pairs),
        "processes": len(processes),
        "interval": _interval(processes) if len(pairs) >= FEWEST else None,
    }


def too_few(ratio: Ratio) -> str:
    """The words in place of an interval that a ratio lacks."""
    n = ratio.get("n", 0)
    return f"{n} burst{'s' if n > 1 else ''}" if n else "too few bursts"


def shown(ratio: Ratio) -> str:
    """The ratio with its interval, or with the reason why there is none."""
    if not ratio["interval"]:
        return f"{ratio['median']:.2f} ({too_few(ratio)})"
    low, high = ratio["interval"]
    return f"{ratio['median']:.2f} ({low:.2f}-{high:.2f})"


def judged(ratio: Ratio) -> str:
    """The same, or "noise" with the interval."""
    if not is_noise(ratio):
        return shown(ratio)
    low, high = ratio["interval"]
    return f"noise ({low:.2f}-{high:.2f})"


def is_slower(ratio: Ratio) -> bool:
    """True if the whole interval of the ratio is above 1."""
    return bool(ratio["interval"]) and ratio["interval"][0] > 1


def is_noise(ratio: Ratio) -> bool:
    """True if the interval of a ratio is wide, and leaves open which side is faster."""
    if not ratio["interval"]:
        return False
    low, high = ratio["interval"]
    return bool(low <= 1 <= high and high - low > NOISY * ratio["median"])
