"""Runs scenarios: see __init__.py."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from scenarios.client import run
from scenarios.program import draw


def main(run: Callable[[Any], list[str]] = run, draw: Callable[[int], Any] = draw) -> int:
    parser = argparse.ArgumentParser(prog="python -m scenarios", description=__doc__)
    parser.add_argument("--seed", type=int, help="play only this seed, and print its program")
    parser.add_argument("--first", type=int, help="the first seed; a random one by default")
    parser.add_argument("--count", type=int, default=1 << 62)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    if options.seed is not None:
        program = draw(options.seed)
        print(program, flush=True)
        faults = run(program)
        print("\n".join(faults) or "no fault was found")
        return bool(faults)
    first = random.randrange(1 << 32) if options.first is None else options.first
    until, failed, seed = time.monotonic() + options.seconds, 0, first
    while seed < first + options.count and time.monotonic() < until:
        # If the process crashes, the last printed seed is the one that failed.
        print(f"\rseed {seed} ", end="", flush=True)
        if faults := run(draw(seed)):
            failed += 1
            print(f"\n{draw(seed)}\n", "\n".join(faults), flush=True)
        seed += 1
    print(f"\n{seed - first} scenarios from seed {first}, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
