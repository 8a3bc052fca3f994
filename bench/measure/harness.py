"""Runs the contenders of a case, interleaved, and compares them. In each repeat every contender is a fresh process with
a fresh server.

A repeat has several short bursts of every contender, by turns and in another order each turn, so that a slow phase of
the machine affects all of them. A ratio compares two bursts of the same turn, and tables show the median of the bursts.
"""

import contextlib
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from statistics import median

import trustme

from bench import native
from bench.suite.contenders import REFERENCE, ROOT, command, floor, gap, is_floor
from wsfast.cli.bench.comparing import ContenderError, Waiting, by_turns, ratios, with_spread

TIMEOUT = 60  # seconds for one burst of one contender; longer than any on a slow machine
LOOP_TIMEOUT = 30  # for other loops than the usual ones: some hang


class Server:
    """A server program that prints its port. It runs until the `with` block ends. `ca` names the file of its authority,
    if it speaks TLS."""

    def __init__(self, argv, *, ca=None):
        self.process = subprocess.Popen(
            [str(word) for word in argv],
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
    argv = [native.program("servers/echo", tls=tls), cpu]
    made = certificate().name if tls else None
    argv += [f"{made}/server.pem" if tls else "-"] + (["stamp"] if stamp else [])
    return Server(argv, ca=f"{made}/ca.pem" if tls else None)


def python_server(module, *argv):
    return Server([sys.executable, "-m", f"bench.servers.{module}", *argv])


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


class Run:
    """A contender with a server of its own, for one repeat of a case. The contenders of a case wait for their turns, so
    that bursts of all of them alternate: a slow phase of the machine affects all alike.

    A client is a process that waits between its bursts; a floor is a process for each burst.

    :raises ContenderError: there is no server or program for the case, or no processor
    """

    def __init__(self, name, case):
        self.name, self.case, self.process = name, case, None
        self.timeout = LOOP_TIMEOUT if case.loop not in ("asyncio", "uvloop") else TIMEOUT
        with contextlib.ExitStack() as stack:
            try:
                server_cpu, client_cpu = cpus(case.cores)
                self.server = stack.enter_context(server_of(case, server_cpu))
                self.argv = command(name, case.burst, self.server, client_cpu)
                self.alone = command(name, replace(case, rounds=1, warmup=0), self.server, client_cpu)
            except SystemExit as reason:
                raise ContenderError(f"{name} cannot run: {reason}") from None
            if not is_floor(name):
                self.process = stack.enter_context(self.start([*self.argv, "--bursts"]))
            self.stack = stack.pop_all()

    def start(self, argv):
        return Waiting(self.name, argv, self.timeout, ROOT)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.stack.close()

    def prepare(self, turn=None):
        """Wait until the client has imported what it needs, so that no other contender's burst runs beside that."""
        if self.process is not None:
            self.process.read()

    def burst(self, turn=None):
        """The summary of one burst, with the processor time of a connection with one round `alone`.

        :raises ContenderError: there is none
        """
        if self.process is not None:
            return self.summary(self.process.ask())
        return {"alone": self.of_floor(self.alone)["cpu"], **self.of_floor(self.argv)}

    def of_floor(self, argv):
        with self.start(argv) as process:
            return self.summary(process.read())

    def summary(self, line):
        """The summary of the line of JSON that the client or the floor printed."""
        try:
            summary = json.loads(line)
            if self.case.function == "answers":
                summary |= json.loads(self.server.process.stdout.read())
        except ValueError:
            raise ContenderError(f"{self.name} failed: it printed no summary") from None
        if not summary["checked"]:
            raise ContenderError(f"{self.name} did not check its replies")
        return summary


class Result:
    """The runs of one case: `runs[name]` has a summary per burst, and `gaps[name]` a reason why there are none.
    `failed` has the gaps of contenders that ran and failed."""

    def __init__(self, case, runs, gaps=None, failed=None):
        self.case, self.runs, self.gaps, self.failed = case, runs, gaps or {}, failed or {}

    def point(self, name, point=None):
        """One percentile per burst, in the case's unit."""
        point = point or self.case.point
        return [run[point] / self.case.scale for run in self.runs[name] if point in run]

    @property
    def repeats(self):
        """The repeats that every contender has, each of as many bursts."""
        return min(map(len, self.runs.values()), default=0) // self.case.bursts

    def evened(self):
        """The same with as many repeats of every contender, since ratios are made within a repeat."""
        runs = {name: runs[: self.repeats * self.case.bursts] for name, runs in self.runs.items()}
        return Result(self.case, runs, self.gaps, self.failed)

    def part(self, name, way):
        """The median of `send` or `receive` per burst, in the case's unit."""
        return [run[way]["p50"] / self.case.scale for run in self.runs[name] if way in run]

    def ratio(self, name, other):
        """The median of the ratios of bursts of the same turn, with its spread; None if the other one did not run."""
        if other not in self.runs:
            return None
        return ratios(self.point(name), self.point(other), self.case.bursts)

    def cpu(self, name):
        """Microseconds of processor time for one message, without opening and closing: what all bursts took beyond as
        many connections with one round; None if nobody counted them."""
        case = self.case.burst
        messages = case.messages * (case.rounds + case.warmup - 1)
        runs = [run for run in self.runs[name] if "alone" in run]
        if not runs or not messages:
            return None
        return max(0, sum(run["cpu"] - run["alone"] for run in runs)) / 1000 / messages / len(runs)

    def kernel(self, name):
        """The kernel's part of the processor time of all bursts, as its ticks have it; None if nobody asked it."""
        runs = [run for run in self.runs[name] if "kernel" in run]
        return min(1, sum(run["kernel"] for run in runs) / sum(run["cpu"] for run in runs)) if runs else None

    def rows(self):
        for name in self.runs:
            tail = self.point(name, "p99")
            yield {
                "contender": name,
                **with_spread(self.point(name)),
                "p99": median(tail) if tail else None,
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
        for name, found in repeated([name for name in names if name not in gaps], case, repeat).items():
            if isinstance(found, ContenderError):
                gaps[name] = failed[name] = without_directories(str(found))
                del runs[name]
            else:
                runs[name] += found
        after_each(Result(case, runs, gaps, failed))
    return Result(case, runs, gaps, failed)


def repeated(names, case, repeat):
    """One repeat: for each contender the summaries of its bursts, or the error that ended it."""
    if not names:
        return {}
    if case.bursts == 1:
        turn = repeat % len(names)
        return {name: together([name], case, 0)[name] for name in [*names[turn:], *names[:turn]]}
    return together(names, case, repeat)


def together(names, case, repeat):
    """The same, with bursts of these contenders by turns."""
    with contextlib.ExitStack() as stack:

        def start(name):
            return lambda turn: stack.enter_context(Run(name, case))

        started = by_turns({name: start(name) for name in names}, ["start"])
        runs = {name: done[0] for name, done in started.items() if isinstance(done, list)}
        prepared = by_turns({name: run.prepare for name, run in runs.items()}, ["prepare"])
        bursts = {name: runs[name].burst for name, done in prepared.items() if isinstance(done, list)}
        turns = [f"{repeat}, {burst}" for burst in range(case.bursts)]
        return {**started, **prepared, **by_turns(bursts, turns)}


def versions(results):
    """The version of every library that ran, as the workers reported it."""
    found = {}
    for result in results:
        for summaries in result.runs.values():
            for summary in summaries:
                with contextlib.suppress(KeyError):
                    found.update({"Python": summary["python"], **summary["versions"]})
    return found
