"""Instructions per operation, counted by callgrind. Counts repeat to the digit; times on a busy machine do not.

    python -m bench.instructions                                instructions of wsfast, outside the kernel
    python -m bench.instructions rr flood --clients wsfast_listener picows_listener
    python -m bench.instructions --json now.json                keep the counts
    python -m bench.instructions --against then.json            compare with earlier counts

Each work runs twice under valgrind, with different numbers of rounds. The cost of one round is the difference between
the instructions of both runs, divided by the difference between their rounds. So the start of the interpreter and the
opening of the connection cancel out. asyncio's own event loop drives the clients, because its iterations do not depend
on time.

How many reads a batch is cut into does depend on time, and the awaitable client wakes for each read. On a busy machine
the counts of this work vary by some percent, so compare several runs. A flood comes from
measure/inprocess_flood.py: its reads are of one size, and its clocks stand still. The C library allocates its objects:
what CPython's allocator costs depends on which of its pools happens to be full, up to 1 % of a frame.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench import counted
from bench.measure import harness
from bench.suite import cases
from bench.suite.contenders import ROOT, no_such, why_not

COLLECTED = re.compile(r"Collected : (\d+)")

# The rounds of the two runs. The result does not depend on them, and valgrind makes a run fifty times slower.
FEW, MANY = 50, 250

# Each work: the case, the number of messages in one round, and the clients that can do it.
WORKS = {
    "rr": (cases.request_response(512), ("wsfast_listener", "wsfast_awaitable", "wsfast_sync")),
    "rr8k": (cases.request_response(8192), ("wsfast_listener", "wsfast_awaitable", "wsfast_sync")),
    "tls": (cases.request_response(512, tls=True), ("wsfast_listener", "wsfast_awaitable", "wsfast_sync")),
    "tls8k": (cases.request_response(8192, tls=True), ("wsfast_listener", "wsfast_awaitable", "wsfast_sync")),
    "batch": (cases.batch(512), ("wsfast_listener", "wsfast_awaitable:send_many", "wsfast_awaitable:many")),
    "flood": (
        cases.flood(128),
        (
            "wsfast_listener",
            "wsfast_listener:messages",
            "wsfast_listener:many",
            "wsfast_awaitable",
            "wsfast_awaitable:many",
        ),
    ),
    "connect": (cases.connect(), ("wsfast_listener", "wsfast_awaitable")),
}


def collected(argv, title):
    """The instructions of a process."""
    said = under_valgrind(["--callgrind-out-file=/dev/null", *argv], title)
    return int(COLLECTED.search(said)[1])


def under_valgrind(argv, title, **environment):
    """The text that callgrind prints at the end of a process."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", **environment}
    argv = ["valgrind", "--tool=callgrind", *argv]
    argv = list(map(str, argv))
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{title} failed:\n{done.stderr}")
    return done.stderr


def executed(client, case, rounds):
    """The instructions of a whole process that runs `rounds` rounds of the case."""
    case = replace(case, rounds=rounds, warmup=1, loop="asyncio", cores="two")
    server_cpu, client_cpu = harness.cpus("two")
    with harness.server_of(case, server_cpu) as server:
        argv = harness.command(client, case, server, client_cpu)
        return collected(argv, f"{client}, {case.title},")


def flooded(client, size, few, many):
    """The instructions per message of a flood (bench/measure/inprocess_flood.py)."""
    with tempfile.TemporaryDirectory() as directory:
        argv = ["--instr-atstart=no", f"--callgrind-out-file={directory}/out"]
        argv += [sys.executable, "-m", "bench.measure.inprocess_flood"]
        argv += [client, size, counted.library("callgrind"), few, many]
        still = str(counted.library("still_clock"))
        under_valgrind(argv, f"{client}, a flood,", LD_PRELOAD=still, PYTHONMALLOC="malloc")
        counts = {}
        for file in sorted(Path(directory).glob("out.*")):
            text = file.read_text(errors="replace")
            if name := re.search(r"Client Request: (\d+)", text):
                counts[int(name[1])] = counted.total(text)
    return (counts[many] - counts[few]) / (many - few)


def per_operation(client, case):
    """The instructions for one round trip, one message of a batch or flood, or one opening."""
    if case.function == "flood":
        return flooded(client, case.size, 2_000, 22_000)
    # The warm-up round cancels out, because both runs have it.
    more = executed(client, case, MANY) - executed(client, case, FEW)
    return more / ((MANY - FEW) * case.count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("works", nargs="*", metavar="WORK", help=f"of {', '.join(WORKS)}; all by default")
    parser.add_argument("--clients", nargs="+", help="files of bench/clients, with their variants")
    parser.add_argument("--json", help="write the counts to this file")
    parser.add_argument("--against", help="compare with the counts in this file")
    wanted = parser.parse_args()
    if unknown := set(wanted.works) - set(WORKS):
        parser.error(f"no work {', '.join(sorted(unknown))}; there are {', '.join(WORKS)}")
    if problem := no_such(wanted.clients or ()):
        parser.error(problem)
    then = json.loads(Path(wanted.against).read_text()) if wanted.against else {}
    now = {}
    for work in wanted.works or WORKS:
        case, clients = WORKS[work]
        for client in wanted.clients or clients:
            if reason := why_not(client):
                print(f"{work:8} {client:28} skipped: {reason}", file=sys.stderr)
                continue
            name = f"{work} {client}"
            now[name] = per_operation(client, case)
            change = f"{now[name] / then[name] - 1:+8.1%}" if name in then else ""
            print(f"{work:8} {client:28} {now[name]:10,.0f} {change}", flush=True)
    if wanted.json:
        Path(wanted.json).write_text(json.dumps(now, indent=1))


if __name__ == "__main__":
    main()
