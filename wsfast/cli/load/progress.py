"""The progress of a load, drawn on stderr while it runs: a bar, the figures so far, and the histogram as it grows."""

from __future__ import annotations

import time
from time import monotonic_ns
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from wsfast.cli.load.plan import Plan
from wsfast.cli.load.results import Run
from wsfast.cli.text import bars, duration

__all__ = ["View"]

# Drawing takes milliseconds of a processor that the server may need.
_REDRAW = 0.25  # seconds


class View:
    """A context manager that draws. It draws nothing if stderr is not a terminal."""

    def __init__(self, plan: Plan, runs: int, *, quiet: bool) -> None:
        self._plan = plan
        self._runs = runs
        self._console = Console(stderr=True)
        self._shows = self._console.is_terminal and not quiet
        self._drawn = 0.0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:.0f} %"),
            TimeRemainingColumn(),
        )
        self._live: Live | None = None

    def __enter__(self) -> View:
        if self._shows:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.__exit__(exc_type, exc_value, traceback)

    def begin(self, number: int) -> None:
        """Show that a run begins. `number` counts from 0."""
        for task in list(self._progress.task_ids):
            self._progress.remove_task(task)
        name = f"run {number + 1} of {self._runs}" if self._runs > 1 else "load"
        self._task = self._progress.add_task(f"{name}: connecting", total=1.0)
        self._name = name

    def show(self, run: Run, starts: int) -> None:
        """Draw the figures so far, if the last drawing is old enough."""
        now = time.monotonic()
        if self._live is None or now - self._drawn < _REDRAW:
            return
        self._drawn = now
        seconds = (monotonic_ns() - starts) / 1e9 - self._plan.warmup if starts else 0.0
        if self._plan.duration is not None:
            done = seconds / self._plan.duration
        else:
            assert self._plan.messages is not None
            done = len(run.latencies) / self._plan.messages
        state = (
            "connecting"
            if not starts
            else "warm-up"
            if seconds < 0
            else "measuring"
            if done < 1
            else "last answers"
        )
        self._progress.update(
            self._task, completed=min(max(done, 0), 1), description=f"{self._name}: {state}"
        )
        self._live.update(
            Group(self._progress, Text(self._figures(run)), Text(bars(run.latencies, 12))), refresh=True
        )

    def _figures(self, run: Run) -> str:
        rate = f"{run.timeline[-1][1]:,.0f}/s" if run.timeline else "-"
        latencies: Any = run.latencies.percentiles()
        shown = "  ".join(f"p{level:g} {duration(value)}" for level, value in latencies.items())
        errors = sum(run.errors.values())
        again = f"  {run.reconnections:,} reconnections" if self._plan.reconnect else ""
        return f"{run.connections} connections{again}  {run.received:,} answers  {rate}  {errors:,} errors\n{shown}"
