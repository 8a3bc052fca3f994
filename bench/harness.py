"""Runs the contenders of a case, interleaved, and compares them. Each run is a fresh process with a fresh server.

One repeat runs every contender once, in an order that rotates from repeat to repeat, so that a slow phase of the
machine affects all of them. A ratio compares two runs of one repeat, and tables show the median of the repeats.
"""

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tempfile

import trustme

from bench import native, stats
from bench.contenders import REFERENCE, ROOT, command, floor, gap

TIMEOUT = 150  # seconds for one run of one contender; longer than any run on a slow machine
LOOP_TIMEOUT = 30  # for other loops than the usual ones: some hang


class RunFailedError(Exception):
    """A contender ended without figures. The message says how, in one line."""


class Server:
    """A server program that prints its port. It runs until the `with` block ends. `ca` names the file of its authority,
    if it speaks TLS."""

    def __init__(self, words, *, ca=None):
        self.process = subprocess.Popen(
            [str(word) for word in words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline().split()
        if len(line) != 2 or line[0] != "PORT":
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
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


def echo_server(cpu, *, tls=False, stamp=False):
    """The neutral server, in C, and for TLS on OpenSSL. It stamps its echoes if `stamp` is set."""
    words = [native.program("servers/echo", tls=tls), cpu]
    made = certificate().name if tls else None
    words += [f"{made}/server.pem" if tls else "-"] + (["stamp"] if stamp else [])
    return Server(words, ca=f"{made}/ca.pem" if tls else None)


def python_server(module, *words):
    return Server([sys.executable, "-m", f"bench.servers.{module}", *words])


def server_of(case, cpu):
    """The server of bench/servers for this case, pinned to `cpu`."""
    if case.function in ("deflate", "objects"):
        return python_server(
            "ticks", cpu, case.size, case.count, *(["plain"] if case.function == "objects" else [])
        )
    if case.function == "answers":
        return ticker(cpu, case.size, case.rounds, case.warmup, case.rate)
    if case.server == "tungstenite":
        return Server([*native.client("Rust", "serve"), cpu])
    if case.server != "C":
        return python_server(f"{case.server}_echo", cpu)
    return echo_server(cpu, tls=case.tls, stamp=case.function in ("one_way", "window"))


def ticker(cpu, size, count, warmup, rate):
    """The server servers/ticker.c, which measures the open loop."""
    return Server([native.program("servers/ticker"), cpu, size, count, warmup, round(1e9 / rate)])


def cpus(cores):
    """The CPUs of the server and of the client."""
    usable = sorted(os.sched_getaffinity(0))
    if cores == "two" and len(usable) < 2:
        raise SystemExit("this case needs two cores; this process may use only one")
    return (usable[0], usable[1]) if cores == "two" else (usable[0], usable[0])


def run_once(name, case):
    """The summary of one run that the worker or the C program printed.

    :raises RunFailedError: there is none, or no server or program for the case, or no processor
    """
    try:
        return summary_of(name, case)
    except SystemExit as reason:
        raise RunFailedError(f"{name} cannot run: {reason}") from None


def summary_of(name, case):
    server_cpu, client_cpu = cpus(case.cores)
    timeout = LOOP_TIMEOUT if case.loop not in ("asyncio", "uvloop") else TIMEOUT
    with server_of(case, server_cpu) as server:
        words = command(name, case, server, client_cpu)
        try:
            done = subprocess.run(
                words, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise RunFailedError(f"{name} did not end within {timeout} s") from None
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"]
            raise RunFailedError(f"{name} failed: {said[-1]}")
        try:
            summary = json.loads(done.stdout)
            if case.function == "answers":
                summary |= json.loads(server.process.stdout.read())
        except ValueError:
            raise RunFailedError(f"{name} failed: it printed no summary") from None
    if not summary["checked"]:
        raise RunFailedError(f"{name} did not check its replies")
    return summary


class Result:
    """The runs of one case: `runs[name]` has a summary per repeat, and `gaps[name]` a reason why there are none.
    `failed` has the gaps of contenders that ran and failed."""

    def __init__(self, case, runs, gaps=None, failed=None):
        self.case, self.runs, self.gaps, self.failed = case, runs, gaps or {}, failed or {}

    def point(self, name, point=None):
        """One percentile per repeat, in the case's unit."""
        point = point or self.case.point
        return [run[point] / self.case.scale for run in self.runs[name] if point in run]

    @property
    def repeats(self):
        """The repeats that every contender has."""
        return min(map(len, self.runs.values()), default=0)

    def evened(self):
        """The same with as many repeats of every contender, since ratios are made within a repeat."""
        runs = {name: runs[: self.repeats] for name, runs in self.runs.items()}
        return Result(self.case, runs, self.gaps, self.failed)

    def part(self, name, way):
        """The median of `send` or `receive` per repeat, in the case's unit."""
        return [run[way]["p50"] / self.case.scale for run in self.runs[name] if way in run]

    def ratio(self, name, other):
        """The median of the ratios within each repeat, with its spread; None if the other contender did not run."""
        return stats.ratios(self.point(name), self.point(other)) if other in self.runs else None

    def cpu(self, name):
        """Microseconds of processor time for one message: the median of the repeats; None if nobody counted them."""
        case = self.case
        found = [
            run["cpu"] / 1000 / case.messages / (case.rounds + case.warmup)
            for run in self.runs[name]
            if "cpu" in run
        ]
        return stats.median(found) if found else None

    def rows(self):
        for name in self.runs:
            tail = self.point(name, "p99")
            yield {
                "contender": name,
                **stats.with_spread(self.point(name)),
                "p99": stats.median(tail) if tail else None,
                "cpu": self.cpu(name),
                "to_reference": self.ratio(name, REFERENCE),
                "to_floor": self.ratio(name, floor(self.case)),
            }


def without_directories(reason):
    """A reason as a report may print it: files have names, and no directories of this machine."""
    return re.sub(r"(?<![\w:/.])/(?:[^\s/'\"]+/)+", "", reason)


def measure(case, names, repeats, kept=None, after_each=lambda result: None):
    """Run every contender `repeats` times, less the repeats that the Result `kept` has. A contender that cannot run or
    that fails leaves a gap, and is not tried again.

    `after_each(result)` is called after each repeat.
    """
    failed = dict(kept.failed) if kept else {}
    gaps = {name: reason for name in names if (reason := gap(name, case) or failed.get(name))}
    gaps = {name: without_directories(reason) for name, reason in gaps.items()}
    names = [name for name in names if name not in gaps]
    runs = {name: list(kept.runs.get(name, ())) if kept else [] for name in names}
    for repeat in range(Result(case, runs).repeats if runs else repeats, repeats):
        turn = repeat % len(names)
        for name in [*names[turn:], *names[:turn]]:
            if name in gaps:
                continue
            try:
                runs[name].append(run_once(name, case))
            except RunFailedError as failure:
                gaps[name] = failed[name] = without_directories(str(failure))
                del runs[name]
        after_each(Result(case, runs, gaps, failed))
    return Result(case, runs, gaps, failed)


def versions(results):
    """The version of every library that ran, as the workers reported it."""
    found = {}
    for result in results:
        for summaries in result.runs.values():
            for summary in summaries:
                with contextlib.suppress(KeyError):
                    found.update({"Python": summary["python"], **summary["versions"]})
    return found
