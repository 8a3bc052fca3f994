"""Private memory per idle connection, in KB: 2,000 connections in a fresh process, on both loops.

    python -m bench.idle [--after-message] [--contenders NAME ...] [--repeats N]

The figure is the growth of Private_Dirty in /proc/self/smaps_rollup of the client's process.
"""

import argparse

from bench.measure.harness import measure
from bench.suite.cases import idle
from bench.suite.contenders import chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--after-message", action="store_true", help="first echo one message of 512 B on each"
    )
    parser.add_argument("--contenders", nargs="+")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for loop in ("uvloop", "asyncio"):
        case = idle(loop=loop, after_message=options.after_message)
        for row in measure(case, chosen(case, options.contenders), options.repeats).rows():
            low, high = row["low"], row["high"]
            print(f"{loop:8} {row['contender']:24} {row['median']:6.1f} KB  ({low:.1f}-{high:.1f})")


if __name__ == "__main__":
    main()
