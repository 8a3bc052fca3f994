"""Runs the contenders of a case, interleaved, and compares them. Each run is a fresh process with a fresh server.

One repeat runs every contender once, in an order that rotates from repeat to repeat, so that a slow phase of the
machine affects all of them. A ratio compares two runs of one repeat, and tables show the median of the repeats.
"""

import contextlib
import json
import os
import subprocess
import sys

from bench import native, stats
from bench.contenders import REFERENCE, ROOT, command, floor

SERVER_END = 10  # seconds for the server to end, before it is killed
TIMEOUT = 300  # seconds for one run of one contender; longer than any run on a slow machine


class Server:
    """A server program that prints its port. It runs until the `with` block ends."""

    def __init__(self, words, *, tls=False):
        self.process = subprocess.Popen(
            [str(word) for word in words], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.fact("PORT"))
        self.ca = self.fact("CA") if tls else None
        self.url = f"{'wss' if tls else 'ws'}://127.0.0.1:{self.port}/"

    def fact(self, name):
        """The value of the next line that the server prints."""
        line = self.process.stdout.readline().split()
        if len(line) != 2 or line[0] != name:
            self.process.kill()
            raise SystemExit(f"the server said {' '.join(line) or 'nothing'} instead of its {name}")
        return line[1]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.stdin.close()  # then the TLS server removes its file and ends
        if self.ca is None:
            self.process.kill()
        try:
            self.process.wait(timeout=SERVER_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def echo_server(cpu):
    """The neutral server, in C."""
    return Server([native.program("servers/echo"), cpu])


def server_of(case, cpu):
    """The server of bench/servers for this case, pinned to `cpu`."""
    if case.function == "deflate":
        return Server([sys.executable, "-m", "bench.servers.ticks", cpu, case.size, case.count])
    if case.tls:
        return Server([sys.executable, "-m", "bench.servers.tls_echo", cpu], tls=True)
    return echo_server(cpu)


def cpus(cores):
    """The CPUs of the server and of the client."""
    usable = sorted(os.sched_getaffinity(0))
    if cores == "two" and len(usable) < 2:
        raise SystemExit("this case needs two cores; this process may use only one")
    return (usable[0], usable[1]) if cores == "two" else (usable[0], usable[0])


def run_once(name, case):
    """The summary of one run that the worker or the C program printed."""
    server_cpu, client_cpu = cpus(case.cores)
    with server_of(case, server_cpu) as server:
        words = command(name, case, server, client_cpu)
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} failed in: {case.title}\n  {' '.join(words)}\n{done.stderr}")
    summary = json.loads(done.stdout)
    if not summary["checked"]:
        raise SystemExit(f"{name} did not check its replies in: {case.title}")
    return summary


class Result:
    """The runs of one case: `runs[name]` has a summary per repeat."""

    def __init__(self, case, runs):
        self.case, self.runs = case, runs

    def point(self, name, point="p50"):
        """One percentile per repeat, in the case's unit."""
        return [run[point] / self.case.scale for run in self.runs[name] if point in run]

    def ratio(self, name, other):
        """The median of the ratios within each repeat, with its spread; None if the other contender did not run."""
        return stats.ratios(self.point(name), self.point(other)) if other in self.runs else None

    def rows(self):
        for name in self.runs:
            tail = self.point(name, "p99")
            yield {
                "contender": name,
                **stats.with_spread(self.point(name)),
                "p99": stats.median(tail) if tail else None,
                "to_reference": self.ratio(name, REFERENCE),
                "to_floor": self.ratio(name, floor(self.case)),
            }


def measure(case, names, repeats):
    runs = {name: [] for name in names}
    for repeat in range(repeats):
        turn = repeat % len(names)
        for name in [*names[turn:], *names[:turn]]:
            runs[name].append(run_once(name, case))
    return Result(case, runs)


def versions(results):
    """The version of every library that ran, as the workers reported it."""
    found = {}
    for result in results:
        for summaries in result.runs.values():
            for summary in summaries:
                with contextlib.suppress(KeyError):
                    found.update({"Python": summary["python"], **summary["versions"]})
    return found
