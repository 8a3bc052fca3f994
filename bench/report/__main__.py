"""Runs the suite, or a part of it, and writes what came out.

python -m bench.report                                        all of it, into build/bench
python -m bench.report rr batch --sizes 512 8192 --repeats 5  some of it
python -m bench.report flood --contenders picows_listener C   some rows
python -m bench.report --docs                                 all of it, and docs/benchmarks.md, its plots and its page
python -m bench.report rr tls --docs                          these, and what earlier runs kept of the others
python -m bench.report --write                                the same from the kept data, without measuring

Results are kept in build/bench/rows, so an interrupted run goes on where it stopped. Options that change
a case or choose contenders keep nothing.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from bench import counted
from bench.measure import resume_store
from bench.measure.passes import Item, run
from bench.report import first_page, tables
from bench.suite import cases
from bench.suite.contenders import ROOT, chosen, gap, lacking
from bench.suite.sections import SECTIONS

DOCS = ROOT / "docs"
DATA = DOCS / "benchmarks"  # a file for each machine
PAGE = DOCS / "benchmark_report.html"


def read_options():
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
    parser.add_argument("--minutes", type=float, help="stop then, if every case has been measured once")
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
    options = parser.parse_args()
    for section in options.sections:
        if section not in SECTIONS:
            parser.error(f"no section {section!r}; there are {', '.join(SECTIONS)}")
    return options


def section_cases(section, options):
    """The section's cases, changed according to the options, without duplicates."""
    changes = {"cores": options.cores, "loop": options.loop, "server": options.server}
    changes = {name: value for name, value in changes.items() if value}
    found = []
    for case in SECTIONS[section].cases:
        sizes = options.sizes if options.sizes and case.size else [case.size]
        for size in sizes:
            other = replace(case.of_size(size), **changes)
            found.append(other.shorter(10) if options.quick else other)
    return list(dict.fromkeys(found))


def repeats_of(section, options):
    if options.repeats and (options.contenders or options.sizes):
        return options.repeats  # a question of its own
    return min(section.repeats, options.repeats or section.repeats)


def items_of(name, options):
    """The cases of a section with their contenders. Options that change a case or choose contenders keep nothing."""
    section = SECTIONS[name]
    changed = (
        options.sizes
        or options.contenders
        or options.quick
        or options.cores
        or options.loop
        or options.server
    )
    for case in section_cases(name, options):
        names = chosen(case, options.contenders, section)
        if options.contenders and (problems := [why for one in names if (why := gap(one, case))]):
            raise SystemExit("\n".join(problems))
        if names:
            yield Item(name, case, names, repeats_of(section, options), keep=not changed, fresh=options.fresh)


def why_nothing(names, options):
    """Why the chosen sections have no row of the chosen contenders."""
    reasons = {}
    for case in (case for name in names for case in section_cases(name, options)):
        absent = lacking(case)
        for one in options.contenders:
            reasons[absent.get(one, f"{one}: not a contender of {case.function}")] = None
    return list(reasons)


def kept_section(name):
    """The results that an earlier run kept of a section that this run does not measure."""
    section = SECTIONS[name]
    found = [resume_store.load(name, case, chosen(case, None, section)) for case in section.cases]
    return [result.evened() for result in found if result]


def collect(options):
    """Measure the sections. Returns the data of the report, for which JSON has types."""
    facts, data = dict(resume_store.machine()), []
    names = options.sections or list(SECTIONS)
    items = [item for name in names for item in items_of(name, options)]
    if not items:
        raise SystemExit("\n".join(why_nothing(names, options)))
    try:
        run(items, options.minutes)
    except KeyboardInterrupt:
        raise SystemExit("interrupted: the same command goes on where it stopped") from None
    for name in SECTIONS if options.docs else names:
        measured = [item.result.evened() for item in items if item.section == name]
        data += [tables.as_data(name, result) for result in (measured or kept_section(name))]
    return {"machine": facts, "where": where() if options.docs else None, "results": data}


def where():
    """The purposes of the instructions of a round trip, counted or kept; None with a note if they cannot be counted."""
    file = resume_store.KEPT / "where.json"
    if file.exists() and (found := json.loads(file.read_text()))["fingerprint"] == resume_store.fingerprint():
        return found["where"]
    if reason := counted.why_none():
        print(f"no instructions are counted: {reason}", file=sys.stderr)
        return None
    print("counting instructions, a minute or two", file=sys.stderr, flush=True)
    try:
        found = counted.where()
    except SystemExit as reason:
        print(f"no instructions were counted: {reason}", file=sys.stderr)
        return None
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"fingerprint": resume_store.fingerprint(), "where": found}))
    return found


def compact(value):
    """The same with five significant digits: a report is kept in the repository."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: compact(one) for name, one in value.items()}
    return [compact(one) for one in value] if isinstance(value, list) else value


def write_docs():
    """docs/benchmarks.md, its plots, the page, and the tables of the first pages, from the files of docs/benchmarks and
    from nothing else."""
    from bench.report import page, plots

    reports = [json.loads(file.read_text()) for file in sorted(DATA.glob("*.json"))]
    if not reports:
        raise SystemExit(f"there is no data in {DATA.relative_to(ROOT)}: python -m bench.report --docs")
    fullest = max(reports, key=lambda report: sum(len(result["rows"]) for result in report["results"]))
    drawn = plots.write(reports, DATA)[resume_store.slug(fullest["machine"])]
    picture = plots.write_summary(fullest, DATA)
    lines = [line for title, file in drawn for line in (f"![{title}]({DATA.name}/{file})", "")]
    lines += [
        f'<a href="{PAGE.name}">{PAGE.name}</a> is an interactive page with the same figures, which works offline.',
        "",
    ]
    lines += [line for report in reports for line in tables.markdown(report)]
    tables.write(DOCS / "benchmarks.md", lines)
    tables.write(ROOT / "README.md", first_page.lines(fullest, picture, "docs/"))
    tables.write(DOCS / "index.md", first_page.lines(fullest, picture, ""))
    page.write(PAGE, reports)


def main():
    options = read_options()
    if options.write:
        write_docs()
        return
    report = collect(options)
    text = "\n".join(tables.markdown(report))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.with_suffix(".md").write_text(text + "\n")
    options.out.with_suffix(".json").write_text(json.dumps(report, indent=1))
    print(text)
    if options.docs:
        DATA.mkdir(exist_ok=True)
        for result in report["results"]:
            del result["runs"]  # the rows have what docs and page show
        (DATA / f"{resume_store.slug(report['machine'])}.json").write_text(json.dumps(compact(report)))
        write_docs()


if __name__ == "__main__":
    main()
