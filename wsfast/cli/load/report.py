"""The figures of a load as text."""

from __future__ import annotations

from typing import Any

from wsfast.cli.load.plan import Plan
from wsfast.cli.load.results import Run, Series, spread
from wsfast.cli.text import bars, duration, size, table

__all__ = ["settings", "text", "throughputs"]


def settings(plan: Plan) -> dict[str, Any]:
    """The settings of the load, as JSON. Headers and proxies are left out, because they may contain secrets."""
    workload = plan.workload
    return {
        "loop": "closed" if plan.rate is None else "open",
        "connections": plan.connections,
        "rate": plan.rate,
        "window": None if plan.rate is not None else plan.window,
        "duration": plan.duration,
        "messages": plan.messages,
        "warmup": plan.warmup,
        "size": None if workload.file is not None else [workload.least, workload.most],
        "file": workload.file,
        "type": "binary" if workload.binary else "text",
        "verify": plan.verify,
        "compression": plan.compression,
        "reconnect": plan.reconnect,
        "processes": plan.processes,
        "event_loop": plan.loop,
    }


def _head(plan: Plan) -> str:
    workload = plan.workload
    sizes = (
        size(workload.most)
        if workload.least == workload.most
        else f"{size(workload.least)}-{size(workload.most)}"
    )
    messages = f"lines of {workload.file}" if workload.file is not None else sizes
    if plan.rate is None:
        loop = "closed loop" + (f", {plan.window} unanswered messages each" if plan.window > 1 else "")
    else:
        loop = f"open loop, {plan.rate:,g} messages/s"
    length = f"{plan.duration:g} s" if plan.duration is not None else f"{plan.messages:,} messages"
    processes = f", {plan.processes} processes" if plan.processes > 1 else ""
    return f"{plan.target.shown}: {loop}, {plan.connections} connections{processes}, {messages}, {length}"


def text(plan: Plan, series: Series) -> str:
    """The report: throughput, latency, errors, and what makes the figures doubtful."""
    lines = [_head(plan)]
    runs = series.runs
    if not any(len(run.latencies) for run in runs):
        return "\n".join([*lines, *_schedule(plan, series), *_errors(plan, series), "nothing was measured"])
    tls = runs[0].tls
    lines.append(
        f"connected {runs[0].connections} in {duration(runs[0].connecting * 1e9)}"
        + (f" ({tls})" if tls else "")
    )
    lines.append("")
    if len(runs) == 1:
        lines += _one(runs[0])
    else:
        lines += _several(series)
    latencies = series.latencies
    levels = latencies.percentiles()
    lines += ["", "latency" + (" from the time when a message was due" if plan.rate is not None else "")]
    row = [duration(value) for value in (*levels.values(), latencies.most)]
    lines += [table(["", *(f"p{level:g}" for level in levels), "max"], [["", *row]]), "", bars(latencies)]
    lines += _schedule(plan, series)
    lines += _errors(plan, series)
    return "\n".join(lines)


def _one(run: Run) -> list[str]:
    sent, received = run.bytes_per_second
    lines = [
        f"{run.throughput:,.0f} messages/s answered: {run.counted:,} in {run.seconds:.2f} s",
        f"{size(sent)}/s sent, {size(received)}/s received",
    ]
    return [*lines, "interrupted: the figures cover a part of the run"] if run.interrupted else lines


def _several(series: Series) -> list[str]:
    rows = [
        [
            f"{run.series}.{run.number}" + (" (interrupted)" if run.interrupted else ""),
            f"{run.throughput:,.0f}",
        ]
        + [duration(run.latencies.percentiles()[level]) for level in (50.0, 99.0)]
        + [f"{sum(run.errors.values()):,}"]
        for run in series.runs
    ]
    lines = [table(["run", "messages/s", "p50", "p99", "errors"], rows), ""]
    head, groups = throughputs(series)
    lines.append(table(["messages/s", *head[1:]], groups))
    return lines


def throughputs(series: Series) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a table: the answers per second of each series, and of all."""
    rows = []
    for name, values in series.groups():
        figures = spread(values)
        shown = (f"{figures[key]:,.0f}" for key in ("median", "mean", "peak"))
        rows.append([name, str(len(values)), *shown, f"±{figures['stdev']:,.0f}"])
    return ["", "runs", "median", "mean", "peak", "std dev"], rows


def _schedule(plan: Plan, series: Series) -> list[str]:
    if plan.rate is None or not len(series.lags):
        return []
    levels = series.lags.percentiles()
    lines = [
        "",
        f"schedule: messages left late by p50 {duration(levels[50.0])}, p99 {duration(levels[99.0])}, "
        f"max {duration(series.lags.most)}",
    ]
    if any(run.late for run in series.runs):
        offered = sum(run.throughput for run in series.runs) / len(series.runs)
        lines.append(
            "WARNING: the client did not keep its schedule, so the latencies are partly its own. "
            f"{offered:,.0f} of {plan.rate:,g} messages/s were answered. Use more --processes or a lower --rate."
        )
    return lines


def _errors(plan: Plan, series: Series) -> list[str]:
    errors = series.errors
    reconnections = [f"reconnections: {series.reconnections:,}"] if plan.reconnect else []
    if not errors:
        return ["", *reconnections, "no errors"]
    return [
        "",
        *reconnections,
        f"errors: {sum(errors.values()):,}",
        *(f"  {count:,}  {kind}" for kind, count in errors.most_common()),
    ]
