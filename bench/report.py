"""Runs the matrix and writes it as Markdown (to stdout, and PATH.md) and JSON (PATH.json).

python -m bench.report                                        all of it
python -m bench.report rr batch --sizes 512 8192 --repeats 5  some of it
python -m bench.report flood --contenders picows_listener C   some rows
"""

import argparse
import datetime
import json
import os
import platform
import sys
from dataclasses import asdict, replace
from pathlib import Path

from bench import cases
from bench.contenders import REFERENCE, chosen, floor
from bench.harness import measure, versions

KIB = 1024
ROUND_TRIPS = [512, 8 * KIB, 64 * KIB]
# Frames of snapshots and of files. Below 64 KiB a read takes whole frames, above it takes parts.
LARGE = [size * KIB for size in (4, 16, 32, 64, 128, 256, KIB, 4 * KIB)]
SECTIONS = {
    "rr": [cases.request_response(size) for size in ROUND_TRIPS],
    "rr-two": [cases.request_response(size, cores="two") for size in ROUND_TRIPS],
    "large": [cases.request_response(size) for size in LARGE],
    "batch": [cases.batch(size) for size in (64, 512, 4 * KIB, 16 * KIB, 64 * KIB)],
    "flood": [cases.flood(size, how=how) for size in (128, KIB) for how in ("bytes", "str")],
    "deflate": [cases.deflate(size) for size in (300, 2000)],
    "tls": [cases.request_response(size, tls=True) for size in ROUND_TRIPS],
    "tls-two": [cases.request_response(size, tls=True, cores="two") for size in ROUND_TRIPS],
    "tls-batch": [cases.batch(512, tls=True)],
    "tls-flood": [cases.flood(128, tls=True)],
    "connect": [cases.connect()],
    "idle": [
        cases.idle(loop=lp, after_message=used) for lp in ("uvloop", "asyncio") for used in (False, True)
    ],
}


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"one of {', '.join(SECTIONS)}; all by default"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, help="sizes in bytes, instead of those of the section"
    )
    parser.add_argument(
        "--repeats", type=int, default=9, help="fresh processes per contender and case (%(default)s)"
    )
    parser.add_argument(
        "--contenders",
        nargs="+",
        help="only these contenders; by default all of bench/clients, and the floors",
    )
    parser.add_argument("--cores", choices=list(cases.CORES), help="instead of the placement of the section")
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], help="instead of uvloop")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the rounds, to check that everything runs"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/bench/report"), metavar="PATH", help="(%(default)s)"
    )
    chosen_options = parser.parse_args()
    for section in chosen_options.sections:
        if section not in SECTIONS:
            parser.error(f"no section {section!r}; there are {', '.join(SECTIONS)}")
    return chosen_options


def section_cases(section, wanted):
    """The section's cases, changed according to the options, without duplicates."""
    changes = {"cores": wanted.cores, "loop": wanted.loop}
    changes = {name: value for name, value in changes.items() if value}
    found = []
    for case in SECTIONS[section]:
        sizes = wanted.sizes if wanted.sizes and case.size else [case.size]
        for size in sizes:
            other = replace(case.of_size(size), **changes)
            found.append(other.shorter(10) if wanted.quick else other)
    return list(dict.fromkeys(found))


def machine():
    """The facts about the machine and the software that a reader needs to compare numbers."""
    with open("/proc/cpuinfo") as cpuinfo:
        models = [line.split(":")[1].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "CPU": f"{models[0] if models else platform.machine()} x {os.cpu_count()}",
        "kernel": platform.release(),
        "load before": os.getloadavg()[0],
        "pinning": "each process to one CPU",
        "GC": "off while measuring",
    }


def ratio(value):
    return f"{value['median']:.2f} ({value['low']:.2f}-{value['high']:.2f})" if value else "-"


def number(value):
    return "-" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def table(result):
    case = result.case
    yield f"### {case.title[0].upper()}{case.title[1:]}"
    yield ""
    yield f"| | p50, {case.unit} | of repeats | p99 | / {REFERENCE} | / {floor(case) or 'floor'} |"
    yield "|---|---|---|---|---|---|"
    for row in result.rows():
        spread = f"{number(row['low'])}-{number(row['high'])}"
        ratios = f"{ratio(row['to_reference'])} | {ratio(row['to_floor'])}"
        yield f"| {row['contender']} | {number(row['median'])} | {spread} | {number(row['p99'])} | {ratios} |"
    if case.function == "connect":
        rates = (f"{row['contender']} {1e6 / row['median']:.0f}" for row in result.rows())
        yield f"\nConnects per second: {', '.join(rates)}."
    yield ""


def markdown(facts, results):
    yield "# Benchmarks"
    yield ""
    yield "; ".join(f"{name} {value}" for name, value in facts.items()) + "."
    yield ""
    yield "Median of repeats, each a fresh process; ratios are within a repeat: median (lowest-highest)."
    yield ""
    for result in results:
        yield from table(result)


def main():
    wanted = options()
    facts = machine()
    todo = [case for section in wanted.sections or SECTIONS for case in section_cases(section, wanted)]
    plan = [(case, chosen(case, wanted.contenders)) for case in todo]
    results = []
    for case, names in plan:
        print(f"{case.title}: {', '.join(names)}", file=sys.stderr)
        results.append(measure(case, names, wanted.repeats))
    facts = {**facts, "repeats": wanted.repeats, **versions(results)}
    text = "\n".join(markdown(facts, results))
    data = [
        {"case": asdict(r.case), "unit": r.case.unit, "rows": list(r.rows()), "runs": r.runs} for r in results
    ]
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    wanted.out.with_suffix(".md").write_text(text + "\n")
    wanted.out.with_suffix(".json").write_text(json.dumps({"machine": facts, "results": data}, indent=1))
    print(text)


if __name__ == "__main__":
    main()
