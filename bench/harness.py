"""Runs the contenders of a case, interleaved, and compares them. Each run is a fresh process with a fresh server.

One repeat runs every contender once, in an order that rotates from repeat to repeat, so that a slow phase of the
machine affects all of them. A ratio compares two runs of one repeat, and tables show the median of the repeats.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile

import trustme

from bench import native, stats
from bench.contenders import REFERENCE, ROOT, command, floor

TIMEOUT = 300  # seconds for one run of one contender; longer than any run on a slow machine


class Server:
    """A server program that prints its port. It runs until the `with` block ends. `ca` names the file of its authority,
    if it speaks TLS."""

    def __init__(self, words, *, ca=None):
        self.process = subprocess.Popen(
            [str(word) for word in words], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        line = self.process.stdout.readline().split()
        if len(line) != 2 or line[0] != "PORT":
            self.process.kill()
            raise SystemExit(f"the server said {' '.join(line) or 'nothing'} instead of its port")
        self.port = int(line[1])
        self.ca = ca
        self.url = f"{'wss' if ca else 'ws'}://127.0.0.1:{self.port}/"

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@functools.cache
def certificate():
    """The directory of `ca.pem` and `server.pem`, made for this process and removed with it."""
    directory = tempfile.TemporaryDirectory()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(f"{directory.name}/ca.pem")
    server = authority.issue_cert("localhost", "127.0.0.1")
    server.private_key_and_cert_chain_pem.write_to_path(f"{directory.name}/server.pem")
    return directory


def echo_server(cpu, *, tls=False):
    """The neutral server, in C, and for TLS on OpenSSL."""
    words = [native.program("servers/echo", tls=tls), cpu]
    if not tls:
        return Server(words)
    made = certificate().name
    return Server([*words, f"{made}/server.pem"], ca=f"{made}/ca.pem")


def server_of(case, cpu):
    """The server of bench/servers for this case, pinned to `cpu`."""
    if case.function == "deflate":
        return Server([sys.executable, "-m", "bench.servers.ticks", cpu, case.size, case.count])
    return echo_server(cpu, tls=case.tls)


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
