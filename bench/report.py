"""Runs the suite, or a part of it, and writes what came out.

python -m bench.report                                        all of it, into build/bench
python -m bench.report rr batch --sizes 512 8192 --repeats 5  some of it
python -m bench.report flood --contenders picows_listener C   some rows
python -m bench.report --docs                                 all of it, and docs/benchmarks.md, its plots and its page
python -m bench.report --write                                the same from the kept data, without measuring

What has been measured is kept in build/bench/rows, so an interrupted run goes on where it stopped. Options that change
a case or choose contenders keep nothing.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from bench import cases, counted, kept, tables
from bench.contenders import ROOT, chosen, gap
from bench.harness import measure
from bench.sections import SECTIONS

DATA = ROOT / "docs" / "benchmarks"  # a file for each machine


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"one of {', '.join(SECTIONS)}; all by default"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, help="sizes in bytes, instead of those of the section"
    )
    parser.add_argument(
        "--repeats", type=int, help="fresh processes per contender and case, at most those of the section"
    )
    parser.add_argument(
        "--contenders",
        nargs="+",
        help="only these contenders; by default all of bench/clients, and the floors",
    )
    parser.add_argument("--cores", choices=list(cases.CORES), help="instead of the placement of the section")
    parser.add_argument("--loop", choices=cases.LOOPS, help="instead of uvloop")
    parser.add_argument("--server", choices=cases.SERVERS, help="instead of the one in C")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the rounds, to check that everything runs"
    )
    parser.add_argument("--fresh", action="store_true", help="measure again what was kept")
    parser.add_argument(
        "--docs", action="store_true", help="write docs/benchmarks.md, its plots and its page"
    )
    parser.add_argument(
        "--write", action="store_true", help="measure nothing: write docs from docs/benchmarks"
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
    changes = {"cores": wanted.cores, "loop": wanted.loop, "server": wanted.server}
    changes = {name: value for name, value in changes.items() if value}
    found = []
    for case in SECTIONS[section].cases:
        sizes = wanted.sizes if wanted.sizes and case.size else [case.size]
        for size in sizes:
            other = replace(case.of_size(size), **changes)
            found.append(other.shorter(10) if wanted.quick else other)
    return list(dict.fromkeys(found))


def run(name, wanted):
    """Measure one section. Returns its results."""
    section = SECTIONS[name]
    repeats = min(section.repeats, wanted.repeats or section.repeats)
    if wanted.repeats and (wanted.contenders or wanted.sizes):
        repeats = wanted.repeats  # a question of its own
    as_it_is = not (
        wanted.sizes or wanted.contenders or wanted.quick or wanted.cores or wanted.loop or wanted.server
    )
    results = []
    for case in section_cases(name, wanted):
        names = chosen(case, wanted.contenders, section)
        if wanted.contenders and (problems := [why for one in names if (why := gap(one, case))]):
            raise SystemExit("\n".join(problems))
        if not names:
            continue
        runs = kept.load(name, case, names) if as_it_is and not wanted.fresh else {}
        done = min(map(len, runs.values()), default=0)
        print(
            f"  {case.title}: {len(names)} contenders, repeats {done + 1}-{repeats}",
            file=sys.stderr,
            flush=True,
        )
        save = (
            (lambda result, names=names: kept.save(name, names, result))
            if as_it_is
            else (lambda result: None)
        )
        result = measure(case, names, repeats, runs, save)
        for one, reason in result.gaps.items():
            print(f"    no figure: {reason if one in reason else f'{one}: {reason}'}", file=sys.stderr)
        results.append(kept.shorter(result, repeats))
    return results


def collect(wanted):
    """Measure all sections. Returns the data of the report, for which JSON has types."""
    facts = dict(kept.machine())
    data, names = [], wanted.sections or list(SECTIONS)
    for number, name in enumerate(names, 1):
        start = time.monotonic()
        print(f"{number}/{len(names)} {name}", file=sys.stderr, flush=True)
        data += [tables.as_data(name, result) for result in run(name, wanted)]
        print(f"  {name} took {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    where = None if wanted.sections or wanted.quick or counted.why_none() else counted.where()
    return {"machine": facts, "where": where, "results": data}


def write_docs():
    """docs/benchmarks.md, its plots and the page, from the files of docs/benchmarks and from nothing else."""
    from bench import page, plots

    reports = [json.loads(file.read_text()) for file in sorted(DATA.glob("*.json"))]
    if not reports:
        raise SystemExit(f"there is no data in {DATA.relative_to(ROOT)}: python -m bench.report --docs")
    shown = plots.write(reports, DATA)
    tables.write(ROOT / "docs" / "benchmarks.md", reports, shown)
    page.write(ROOT / "docs" / "benchmark_report.html", reports)


def main():
    wanted = options()
    if wanted.write:
        write_docs()
        return
    report = collect(wanted)
    text = "\n".join(tables.markdown(report))
    wanted.out.parent.mkdir(parents=True, exist_ok=True)
    wanted.out.with_suffix(".md").write_text(text + "\n")
    wanted.out.with_suffix(".json").write_text(json.dumps(report, indent=1))
    print(text)
    if wanted.docs:
        DATA.mkdir(exist_ok=True)
        for result in report["results"]:
            del result["runs"]  # the rows have what docs and page show
        (DATA / f"{kept.slug(report['machine'])}.json").write_text(json.dumps(report))
        write_docs()


if __name__ == "__main__":
    main()
