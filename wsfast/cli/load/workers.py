"""The worker processes of a run. The process that draws starts them together, and adds up their counts."""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from collections import Counter
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from wsfast.cli.load.plan import Plan
from wsfast.cli.load.results import Run

__all__ = ["Workers"]

# The time between the command to start and the start. All processes have read the command by then.
_NOTICE = 50_000_000  # ns

# Every line of JSON of a worker is shorter than this. The latencies that follow a line are not limited.
_LINE = 2**20


class Workers:
    """Runs a plan, and fills a Run with the measurements.

    :param tell: called whenever the run has new figures
    """

    def __init__(self, plan: Plan, run: Run, tell: Callable[[], None]) -> None:
        self._plan = plan
        self._run = run
        self._tell = tell
        self._processes: list[asyncio.subprocess.Process] = []
        self._stopped = False
        self._latest: dict[int, dict[str, Any]] = {}
        self._crashed: Counter[str] = Counter()
        self._before = (0.0, 0)
        self.starts = 0
        """When sending starts, by monotonic_ns(); 0 before all connections are open."""

    async def measure(self) -> None:
        """Run the plan once."""
        try:
            for number in range(self._plan.processes):
                self._processes.append(await self._begin(number))
            opened = await asyncio.gather(
                *(self._opened(number, process) for number, process in enumerate(self._processes))
            )
            if all(opened) and self._run.connections and not self._stopped:
                self.starts = monotonic_ns() + _NOTICE
                for process in self._processes:
                    self._say(process, f"start {self.starts}")
            else:  # nothing to measure
                for process in self._processes:
                    _close(process)
            await asyncio.gather(
                *(self._read(number, process) for number, process in enumerate(self._processes))
            )
        finally:
            for process in self._processes:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    def stop(self) -> None:
        """Let the run end now. Its results so far remain."""
        self._stopped = self._run.interrupted = True
        for process in self._processes:
            if self.starts:
                self._say(process, "stop")
            elif process.returncode is None:
                process.kill()

    async def _begin(self, number: int) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "wsfast.cli.load.worker",
            str(number),
            self._plan.loop,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE,
            start_new_session=True,  # Ctrl-C goes to this process, which stops the others
        )
        self._say(process, self._plan.dumps())
        return process

    @staticmethod
    def _say(process: asyncio.subprocess.Process, line: str) -> None:
        assert process.stdin is not None
        if not process.stdin.is_closing():
            process.stdin.write(line.encode() + b"\n")

    async def _opened(self, number: int, process: asyncio.subprocess.Process) -> bool:
        report = await self._next(number, process)
        if report is None:
            return False
        self._run.connections += report["connections"]
        self._run.connecting = max(self._run.connecting, report["seconds"])
        self._run.tls = self._run.tls or report["tls"]
        self._count(number, report)
        return True

    async def _read(self, number: int, process: asyncio.subprocess.Process) -> None:
        while (report := await self._next(number, process)) is not None:
            self._count(number, report)

    async def _next(self, number: int, process: asyncio.subprocess.Process) -> dict[str, Any] | None:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            if await process.wait() != 0:
                self._crashed[f"worker process ended with {process.returncode}"] += not self._stopped
                self._run.errors = +self._crashed
            return None
        report: dict[str, Any] = json.loads(line)
        for name, histogram in (("latencies", self._run.latencies), ("lags", self._run.lags)):
            if report[name]:
                spans = array("q")
                spans.frombytes(await process.stdout.readexactly(report[name] * spans.itemsize))
                histogram.add(spans)
        return report

    def _count(self, number: int, report: dict[str, Any]) -> None:
        """Add up the newest reports of all processes."""
        self._latest[number] = report
        run, latest = self._run, list(self._latest.values())
        for name in ("sent", "received", "reconnections", "counted", "bytes_sent", "bytes_received"):
            setattr(run, name, sum(one.get(name, 0) for one in latest))
        run.errors = sum((Counter(one["errors"]) for one in latest), +self._crashed)
        if all(one["kind"] == "result" for one in latest):
            run.seconds = max(0, max(one["ends"] - one["begins"] for one in latest)) / 1e9
        if report["kind"] == "sample":
            second = (monotonic_ns() - self.starts) / 1e9
            then, received = self._before
            if second - then >= 0.5:  # a point of the timeline
                run.timeline.append((second, (run.received - received) / (second - then)))
                self._before = second, run.received
        self._tell()


def _close(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.close()
