"""Measures cases pass by pass: every case once, then every case again, as long as there are repeats and time.

So the repeats of a case are far apart, as a machine's slow phases are, and a run whose time is up has figures for every
case.
"""

import math
import sys
import time

from bench.measure import resume_store
from bench.measure.harness import measure


class Item:
    """A case of a section, its contenders, and how often they run."""

    def __init__(self, section, case, names, repeats, *, keep, fresh=False):
        self.section, self.case, self.names, self.repeats, self.keep = section, case, names, repeats, keep
        self.result = resume_store.load(section, case, names) if keep and not fresh else None
        self.seconds = None  # of the last repeat

    @property
    def done(self):
        if self.result is None:
            return 0
        return min(self.repeats, self.result.repeats) if self.result.runs else self.repeats

    def measure(self, repeats):
        start = time.monotonic()
        self.result = measure(self.case, self.names, repeats, self.result)
        self.seconds = (time.monotonic() - start) / max(1, len(self.names))
        if self.keep:
            resume_store.save(self.section, self.names, self.result)


class Progress:
    """Prints what is being measured, and how long the rest will take, by the repeats that are done."""

    def __init__(self, items, deadline):
        self.items, self.deadline, self.told, self.is_over = items, deadline, set(), False

    def say(self, *words):
        print(*words, file=sys.stderr, flush=True)

    def rest(self):
        """Seconds until the end; None before anything was measured."""
        known = [item.seconds for item in self.items if item.seconds]
        if not known:
            return None
        usual = sum(known) / len(known)
        a_repeat = [(item, (item.seconds or usual) * len(item.names)) for item in self.items]
        all_of_them = sum(seconds * (item.repeats - item.done) for item, seconds in a_repeat)
        once = sum(seconds for item, seconds in a_repeat if not item.done)
        return max(once, min(all_of_them, self.deadline - time.monotonic()))

    def over(self, minutes):
        if not self.is_over:
            self.is_over = True
            self.say(f"{minutes:g} minutes are over")

    def item(self, item, number, last):
        rest = self.rest()
        left = "" if rest is None else f", {rest / 60:.0f} min left"
        self.say(f"{number}/{last} {item.section}: {item.case.title}, {len(item.names)} contenders{left}")

    def gaps(self, item):
        for name, reason in item.result.gaps.items():
            if reason not in self.told:
                self.told.add(reason)
                self.say(f"    no figure: {reason if name in reason else f'{name}: {reason}'}")


def run(items, minutes=None):
    """Measure the items, and stop after so many minutes once each has been measured."""
    deadline = time.monotonic() + 60 * minutes if minutes is not None else math.inf
    progress = Progress(items, deadline)
    last = max((item.repeats for item in items), default=0)
    for number in range(1, last + 1):
        for item in items:
            if item.repeats < number or item.done >= number:
                continue
            if number > 1 and time.monotonic() + (item.seconds or 0) * len(item.names) > deadline:
                progress.over(minutes)
                continue  # with what is shorter
            progress.item(item, number, last)
            item.measure(number)
            progress.gaps(item)
