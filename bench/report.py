"""Runs the suite, or a part of it, and writes what came out.

python -m bench.report                                        all of it, into build/bench
python -m bench.report rr batch --sizes 512 8192 --repeats 5  some of it
python -m bench.report flood --contenders picows_listener C   some rows
python -m bench.report --docs                                 all of it, and docs/benchmarks.md, its plots and its page
python -m bench.report rr tls --docs                          these, and what earlier runs kept of the others
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
PAGE = ROOT / "docs" / "benchmark_report.html"


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


def repeats_of(section, wanted):
    if wanted.repeats and (wanted.contenders or wanted.sizes):
        return wanted.repeats  # a question of its own
    return min(section.repeats, wanted.repeats or section.repeats)


class Progress:
    """Prints what is being measured, and how long the rest will take, by the runs that are done."""

    def __init__(self, plan):
        self.left, self.done, self.start = sum(plan), 0, time.monotonic()

    def say(self, *words):
        print(*words, file=sys.stderr, flush=True)

    def case(self, title, names, kept_already, repeats):
        self.left -= kept_already * len(names)
        spent = time.monotonic() - self.start
        rest = f", {spent / self.done * self.left / 60:.0f} min left" if self.done else ""
        self.say(f"  {title}: {len(names)} contenders, repeats {kept_already + 1}-{repeats}{rest}")

    def ran(self, count):
        self.done += count
        self.left -= count


def run(name, wanted, progress):
    """Measure one section. Returns its results."""
    section, results = SECTIONS[name], []
    repeats = repeats_of(section, wanted)
    changed = (
        wanted.sizes or wanted.contenders or wanted.quick or wanted.cores or wanted.loop or wanted.server
    )
    for case in section_cases(name, wanted):
        names = chosen(case, wanted.contenders, section)
        if wanted.contenders and (problems := [why for one in names if (why := gap(one, case))]):
            raise SystemExit("\n".join(problems))
        if not names:
            continue
        before = None if changed or wanted.fresh else kept.load(name, case, names)
        already = min(repeats, before.repeats) if before else 0
        progress.case(case.title, names, already, repeats)

        def after_each(result, names=names):
            progress.ran(len(names))
            if not changed:
                kept.save(name, names, result)

        result = measure(case, names, repeats, before, after_each)
        for one, reason in result.gaps.items():
            progress.say(f"    no figure: {reason if one in reason else f'{one}: {reason}'}")
        results.append(result.evened())
    return results


def kept_section(name):
    """What an earlier run kept of a section that this run does not measure."""
    section = SECTIONS[name]
    found = [kept.load(name, case, chosen(case, None, section)) for case in section.cases]
    return [result.evened() for result in found if result]


def collect(wanted):
    """Measure the sections. Returns the data of the report, for which JSON has types."""
    facts, data = dict(kept.machine()), []
    names = wanted.sections or list(SECTIONS)
    progress = Progress(
        len(chosen(case, wanted.contenders, SECTIONS[name])) * repeats_of(SECTIONS[name], wanted)
        for name in names
        for case in section_cases(name, wanted)
    )
    for name in SECTIONS if wanted.docs else names:
        if name not in names:
            data += [tables.as_data(name, result) for result in kept_section(name)]
            continue
        start = time.monotonic()
        progress.say(f"{names.index(name) + 1}/{len(names)} {name}")
        data += [tables.as_data(name, result) for result in run(name, wanted, progress)]
        progress.say(f"  {name} took {time.monotonic() - start:.0f} s")
    where = counted.where() if wanted.docs and not counted.why_none() else None
    return {"machine": facts, "where": where, "results": data}


def write_docs():
    """docs/benchmarks.md, its plots and the page, from the files of docs/benchmarks and from nothing else."""
    from bench import page, plots

    reports = [json.loads(file.read_text()) for file in sorted(DATA.glob("*.json"))]
    if not reports:
        raise SystemExit(f"there is no data in {DATA.relative_to(ROOT)}: python -m bench.report --docs")
    shown = plots.write(reports, DATA)
    shown += [
        f"An interactive page with the same figures, which works offline: {{download}}`{PAGE.name}`.",
        "",
    ]
    tables.write(ROOT / "docs" / "benchmarks.md", reports, shown)
    page.write(PAGE, reports)


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
