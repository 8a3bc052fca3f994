"""The tables of a report, from its data and from nothing else.

A table has a row for each contender and a column for each case of its section: the median of the bursts, with their
middle half. Beneath stand the ratios of wsfast's clients to the fastest peer of the same kind, and to the floor, each
with its bootstrap interval, or "noise" where that is wide and has 1 in it (wsfast/cli/bench/comparing.py).
"""

from dataclasses import asdict
from statistics import mean, median, stdev

from bench import counted, stats
from bench.report import first_page, grid, other_reports
from bench.suite import comparisons, targets
from bench.suite.cases import SERVERS, Case, size_name
from bench.suite.comparisons import beside
from bench.suite.contenders import floor, lacking
from bench.suite.sections import SECTIONS
from wsfast.cli.bench import comparing

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
PARTS = ("send", "receive")
TAIL = ("p50", "p99", "p999", "p9999", "max")
PEER = "the fastest peer"

# A point of a distribution needs so many samples of a burst beyond it, and a burst so many in all.
BEYOND, FEWEST_SAMPLES = 10, 100

# A description of the floor of each work, for the text beneath the table of its section.
FLOORS = {
    "request_response": "C:epoll makes the system calls of an event loop, one epoll_wait(), recv() and send() for each "
    "round trip. C:blocking makes only recv() and send(), and C:spin never sleeps.",
    "batch": "C is not an event loop. It sends a batch in as few calls as it can and blocks in recv(), without epoll.",
    "flood": "C is not an event loop. It blocks in recv(), without epoll, and makes no object of a frame.",
    "fan_in": "C has all connections in one epoll.",
}
FLOORS["varied"] = (
    FLOORS["request_response"] + " C:vectored blocks, and sends header and payload from two buffers."
)
FLOOR_TLS = (
    "Over TLS, C is on OpenSSL, through buffers (BIO), and wsfast on rustls: ratios may be below 1.00."
)
AGAIN = "again (session kept if the client keeps it)"


def as_data(section, result):
    """A result as JSON has it. Ratios are made here, because they need the single bursts."""
    case, rows = result.case, {}
    for name in result.runs:
        values = result.point(name)
        if not values:
            continue
        means = result.point(name, "mean")
        rates = [1e9 * case.messages / (value * case.scale) for value in means]
        row = {**comparing.with_spread(values), "n": len(values), "cpu": result.cpu(name)}
        row["rates"] = rates
        row["system"] = result.kernel(name)
        row |= {way: median(parts) for way in PARTS if (parts := result.part(name, way))}
        row |= {point: median(tail) for point in TAIL if (tail := result.point(name, point))}
        row["samples"] = min(run.get("n", 0) for run in result.runs[name])  # of a burst
        row["curve"] = curve(result.runs[name], case.scale, row["samples"])
        rows[name] = row
    to_others, to_floor, ratios = [], {}, []
    for name in filter(comparisons.is_ours, rows):
        others = comparisons.compared(name, rows)
        found = {other: {"of": name, "to": other, **result.ratio(name, other)} for other in others}
        to_others += found.values()
        best = comparisons.fastest([other for other in others if comparisons.is_rival(name, other)], rows)
        ratios += [found[other] for other in dict.fromkeys((best, floor(case, name))) if other in found]
    if (base := floor(case)) in rows:
        to_floor = {name: {"to": base, **result.ratio(name, base)} for name in rows}
    return {
        "section": section,
        "key": case.key,
        "title": case.title + (f", {AGAIN}" if case.function == "connect" and case.tls else ""),
        "unit": case.unit,
        "case": asdict(case),
        "rows": rows,
        "ratios": ratios,
        "to_others": to_others,
        "to_floor": to_floor,
        "goals": [
            {"number": targets.GOALS.index(goal), **found}
            for goal in targets.of_case(section, case)
            if (found := targets.reached(goal, result))
        ],
        "gaps": {**lacking(case, SECTIONS[section]), **result.gaps},
        "runs": result.runs,
    }


def curve(runs, scale, samples):
    """The points of a distribution, each with enough samples of every burst beyond it; none of short bursts."""
    if samples < FEWEST_SAMPLES:
        return []
    last = sum(round(samples * (1 - rank), 6) >= BEYOND for rank in stats.CURVE)
    found = [run["curve"][:last] for run in runs if "curve" in run]
    return [round(median(column) / scale, 3) for column in zip(*found)]


def number(value):
    if value is None:
        return "-"
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def spread(row):
    if row is None:
        return "-"
    middle = f" ({number(row['q1'])}-{number(row['q3'])})" if row["n"] > 1 else ""
    return number(row["median"]) + middle


def column(case):
    """The head of a column: the properties of a case by which it differs from others of its section."""
    case = Case(**case)
    words = [size_name(case.size) if case.size else ""]
    words += [
        f"to {size_name(case.upto)}, {case.rounds}" if case.upto else "",
        f"{case.rate}/s" if case.rate else "",
    ]
    words += [f"{case.count} connections" if case.function in ("fan_in", "idle") else ""]
    words += [case.how if case.how != "bytes" and case.function != "primitive" else ""]
    words += [case.how.removeprefix("ws_") if case.function == "primitive" else ""]
    words += [case.function if case.server != "C" else "", case.loop if case.loop != "uvloop" else ""]
    words += ["TLS" if case.tls else ""]
    words += [AGAIN if case.tls and case.function == "connect" else "", "used" if case.after_message else ""]
    words += ["two cores" if case.cores == "two" and case.function == "request_response" else ""]
    words += ["one core" if case.cores == "same" and case.function == "batch" else ""]
    return ", ".join(word for word in words if word) or case.function


def pivot(results, cell, unit=True):
    """Contenders by cases."""
    names = list(dict.fromkeys(name for result in results for name in result["rows"]))
    head = ["", *(column(result["case"]) + (f", {result['unit']}" if unit else "") for result in results)]
    return grid(
        head, ([name, *(cell(result, result["rows"].get(name)) for result in results)] for name in names)
    )


def ratio_rows(results):
    pairs = {}
    for result in results:
        for found in result["ratios"]:
            of, to = found["of"], found["to"]
            of_floor = to == floor(Case(**result["case"]), of)
            label = to if of_floor else f"{PEER} (which sleeps)" if beside(of, to) != to else PEER
            pairs.setdefault((of, label), {})[result["key"]] = found
    for (of, label), cells in pairs.items():
        words = []
        for result in results:
            found = cells.get(result["key"])
            name = found["to"] if found and label.startswith(PEER) else ""
            words.append(comparisons.judged(found, name) if found else "-")
        yield [f"{of} / {label}", *words]


def floor_words(results):
    """The descriptions of a section's floors."""
    of_works = dict.fromkeys(result["case"]["function"] for result in results if result["to_floor"])
    words = [FLOORS[work] for work in of_works if work in FLOORS]
    tls = any(result["case"]["tls"] for result in results if result["to_floor"])
    return " ".join([*words, *([FLOOR_TLS] if tls else [])])


def percentiles(results):
    for result in results:
        yield f"{column(result['case'])}, {result['unit']}, with the samples of a run beside p99.99:"
        yield ""
        rows = ([name, *tail(row)] for name, row in result["rows"].items())
        yield from grid(["", "p50", "p99", "p99.9", "p99.99", "max"], rows)


def tail(row):
    for point in TAIL:
        yield number(row.get(point)) + (f" (n = {row['samples']:,})" if point == "p9999" else "")


def operations(result, row):
    if row is None or not row["rates"]:
        return "-"
    rates = row["rates"]
    deviation = f" ± {number(stdev(rates))}" if len(rates) > 1 else ""
    return f"{number(mean(rates))}{deviation}, median {number(median(rates))}, peak {number(max(rates))}"


def ways(result, row):
    return "-" if row is None or "send" not in row else f"{number(row['send'])} + {number(row['receive'])}"


def processor(result, row):
    if row is None or row["cpu"] is None:
        return "-"
    return number(row["cpu"]) + ("" if row["system"] is None else f", {row['system']:.0%}")


def met(found, goal):
    """Whether a goal is met, by the interval of its ratio, or by the range of a figure in KB."""
    if found["to"] and not found["interval"]:
        return "too few bursts"
    low, high = found["interval"] or (found["low"], found["high"])
    return "yes" if high <= goal else "no" if low > goal else "within the noise"


def reached_goals(results):
    """Every goal with what was reached. A figure without a peer is in KB."""
    measured = {found["number"]: found for result in results for found in result["goals"]}
    rows = []
    for place, goal in enumerate(targets.GOALS):
        found = measured.get(place)
        size = dict(goal.case).get("size")
        words = [goal.work, size_name(size) if size else "", goal.of]
        words += [beside(goal.of, found["to"] if found else goal.to) if goal.to else "KB", number(goal.goal)]
        if found is None:
            words += ["-", "-", "not measured"]
        else:
            reached = comparing.shown(found) if found["to"] else spread(found)
            words += [reached, str(found["processes"]), met(found, goal.goal)]
        rows.append(words)
    yield "#### Goals"
    yield ""
    yield (
        "A goal is met if the whole interval is at the goal or below it, and missed if the whole interval is above it. "
        "Of anything else nothing is concluded: within the noise."
    )
    yield ""
    yield from grid(["work", "size", "wsfast", "relative to", "goal", "reached", "processes", "met"], rows)


def slower_rows(results):
    """The comparisons in which a peer of the same kind is faster: the whole interval of the ratio is above 1."""
    rows = [
        [
            result["title"],
            one["of"],
            beside(one["of"], one["to"]),
            comparing.shown(one),
            str(one["processes"]),
        ]
        for result, one in comparisons.slower(results)
    ]
    yield "#### Where wsfast is slower"
    yield ""
    if rows:
        yield (
            f"In {len(rows)} of {len(list(comparisons.pairs(results))):,} comparisons with another library's client "
            "of the same kind, the whole interval of the ratio is above 1.00."
        )
        yield ""
        yield from grid(["work", "wsfast", "peer", "ratio of their times", "processes"], rows)
    else:
        yield "No row: the interval of no ratio to a peer of the same kind is above 1.00 as a whole."
        yield ""


def verdict(found):
    """Whether wsfast is faster (-1) or slower (1) than a peer, or neither; None if there is no telling."""
    if found is None or not found["interval"] or comparing.is_noise(found):
        return None
    low, high = found["interval"]
    return (low > 1) - (high < 1)


def servers_compared(results):
    """(case, wsfast, peer, the ratio by server) for what was measured with several servers."""
    cases = {}
    for result in results:
        same = tuple({**result["case"], "server": "C"}.items())
        cases.setdefault(same, {}).setdefault(result["case"]["server"], result)
    for same, by_server in cases.items():
        found = {}
        for server, result in by_server.items():
            for one in result["to_others"]:
                if comparisons.is_rival(one["of"], one["to"]):
                    found.setdefault((one["of"], one["to"]), {})[server] = one
        for (of, to), ratios in found.items():
            if len(ratios) > 1:
                yield Case(**dict(same)), of, to, ratios


def other_servers(results):
    """Whether a result hangs on the server that it was measured with."""
    found = list(servers_compared(results))
    if not found:
        return
    verdicts = [{verdict(ratios.get(server)) for server in SERVERS} - {None} for *_, ratios in found]
    agree = sum(len(one) == 1 for one in verdicts)
    contrary = sum({-1, 1} <= one for one in verdicts)
    silent = sum(not one for one in verdicts)
    yield "#### With other servers"
    yield ""
    yield (
        f"Does a result hang on the server? In {agree} of {len(found)} comparisons every server that gives an answer "
        f"gives the same one: wsfast is faster, slower, or neither. In {contrary} of them wsfast is faster with one "
        f"server and slower with another, and {silent} have no answer: noise, or fewer than {comparing.FEWEST} bursts."
    )
    yield ""
    yield from grid(
        ["work", "wsfast", "peer", *SERVERS],
        (
            [
                case.work,
                of,
                to,
                *(comparisons.judged(ratios[server]) if server in ratios else "-" for server in SERVERS),
            ]
            for case, of, to, ratios in found
        ),
    )


def instructions(where):
    """The purposes of the instructions of a round trip (bench/counted.py)."""
    yield "#### Where the instructions of a round trip go"
    yield ""
    yield (
        "512 B, on asyncio's loop, counted by callgrind, which does not see the kernel. By time: the section "
        "Request-response has each client's processor time and the kernel's part of it, which is the system calls."
    )
    yield ""
    yield from counted.where_table(where)
    yield ""


def section_text(name, results):
    section = SECTIONS[name]
    yield f"#### {section.title}"
    yield ""
    if section.tail:
        yield from percentiles(results)
    elif len({result["case"]["how"] for result in results}) > len(results) // 5 and name == "primitives":
        yield from primitives(results)
    else:
        yield from pivot(results, lambda result, row: spread(row))
        if found := list(ratio_rows(results)):
            yield from grid(["", *(column(result["case"]) for result in results)], found)
            of_all = [one for result in results for one in result["ratios"]]
            if words := " ".join(filter(None, (comparisons.processes(of_all), floor_words(results)))):
                yield words
                yield ""
    if any("send" in row for result in results for row in result["rows"].values()):
        yield "Client to server + server to client, by the server's stamps, p50:"
        yield ""
        yield from pivot(results, ways)
    if section.rates:
        yield "Operations a second: mean ± standard deviation of the bursts, median, peak:"
        yield ""
        yield from pivot(results, operations, unit=False)
    if section.cpu:
        yield (
            "Processor time of the client for a message, µs, without opening and closing. The percentage is the "
            "kernel's share of it, counted by its ticks:"
        )
        yield ""
        yield from pivot(results, processor, unit=False)
    reasons = dict.fromkeys(
        reason if name in reason else f"{name}: {reason}"
        for r in results
        for name, reason in r["gaps"].items()
    )
    if reasons:
        yield f"No figure: {'; '.join(reasons)}."
        yield ""


def primitives(results):
    """Primitives by loops, because each case has one contender."""
    loops = list(dict.fromkeys(result["case"]["loop"] for result in results))
    found = {(r["case"]["how"], r["case"]["loop"]): next(iter(r["rows"].values()), None) for r in results}
    hows = list(dict.fromkeys(result["case"]["how"] for result in results))
    return grid(["µs", *loops], ([how, *(spread(found.get((how, loop))) for loop in loops)] for how in hows))


def markdown(report):
    """All tables of one machine's report."""
    yield f"### {report['machine']['CPU']}"
    yield ""
    yield "; ".join(f"{name} {value}" for name, value in report["machine"].items()) + "."
    yield ""
    yield from first_page.face_tables(report)
    yield from reached_goals(report["results"])
    yield from slower_rows(report["results"])
    yield from other_servers(report["results"])
    if report.get("where"):
        yield from instructions(report["where"])
    for name in dict.fromkeys(result["section"] for result in report["results"]):
        yield from section_text(name, [result for result in report["results"] if result["section"] == name])
    yield from other_reports.lines(report["results"], spread, number, operations)


def write(page, lines):
    """Replace the part of the page between the marks."""
    text = page.read_text()
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page.name} has lost the marks between which results stand: {BEGIN} {END}")
    page.write_text(head + "\n".join([BEGIN, "", *lines, END]) + tail)
