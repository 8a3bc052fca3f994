"""Tables of pytest-benchmark, whose rounds are the harness' bursts.

The harness measures a case once, with all contenders interleaved. Then each test replays the bursts of its contender
on a simulated clock. So one 'round' of a table is the p50 of one burst, without the start of its process.
"""

import os

import pytest

from bench.measure import advance, harness
from bench.measure.harness import measure
from bench.suite.contenders import contenders, gap, is_c, is_floor, no_such
from bench.suite.sections import SECTIONS, smoke


def pytest_addoption(parser):
    group = parser.getgroup("wsfast benchmarks")
    quick = os.environ.get("BENCH_QUICK", "") not in ("", "0")
    group.addoption(
        "--quick",
        action="store_true",
        default=quick,
        help="a tenth of the rounds of every work, in three minutes",
    )
    group.addoption(
        "--smoke", action="store_true", help="the smallest run that starts every work, to check that they do"
    )
    group.addoption(
        "--sections", nargs="+", default=None, help="only these sections of bench/suite/sections.py"
    )
    group.addoption(
        "--repeats", type=int, default=None, help="fresh processes per contender (5; quick, smoke: 1)"
    )
    group.addoption("--contenders", nargs="+", default=None, help="only these rows")


def rows(config):
    """A test for each (section, case, contender). Floors in C++ and Rust take a minute to build, which a short run does
    not have."""
    chosen = config.getoption("contenders")
    if chosen and (problem := no_such(chosen)):
        raise pytest.UsageError(problem)
    if config.getoption("smoke") or config.getoption("quick"):
        found = [
            (section, case, [name for name in names if not is_floor(name) or is_c(name)])
            for section, case, names in smoke(config.getoption("quick"))
        ]
    else:
        wanted = config.getoption("sections") or SECTIONS
        if unknown := set(wanted) - set(SECTIONS):
            raise pytest.UsageError(
                f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}"
            )
        found = [
            (name, case, contenders(case, SECTIONS[name])) for name in wanted for case in SECTIONS[name].cases
        ]
    return [(name, case, one) for name, case, names in found for one in names if not chosen or one in chosen]


def pytest_generate_tests(metafunc):
    if "contender" in metafunc.fixturenames:
        made = rows(metafunc.config)
        ids = [f"{section}-{case.key}-{one}" for section, case, one in made]
        metafunc.parametrize(("section", "case", "contender"), made, ids=ids)


@pytest.fixture(scope="session")
def results(request):
    """Measure a case at its first use, with every contender that is chosen."""
    config = request.config
    short = {"smoke": 1, "quick": 1}
    usual = next((count for option, count in short.items() if config.getoption(option)), 5)
    repeats = config.getoption("repeats") or usual
    made, known = rows(config), {}
    if config.getoption("smoke"):  # it checks that every work runs, on a busy machine, too
        harness.TIMEOUT = harness.LOOP_TIMEOUT = 600

    def result(section, case):
        if (section, case) not in known:
            names = [one for where, other, one in made if (where, other) == (section, case)]
            known[section, case] = measure(case, names, repeats)
        return known[section, case]

    return result


@pytest.fixture
def replay(request, benchmark, results):
    """`replay(section, case, contender)` fills one row of the case's table, per message if a round has several."""

    def row(section, case, contender):
        if reason := gap(contender, case):
            pytest.skip(reason)
        found = results(section, case)
        if contender in found.gaps:
            pytest.fail(found.gaps[contender], pytrace=False)
        runs = found.runs[contender]
        nanoseconds = (
            1e9 if case.unit != "KB" else 1
        )  # memory has no time, and pytest-benchmark no other unit
        durations = iter([run[case.point] / case.messages / nanoseconds for run in runs])
        benchmark.group = case.title
        benchmark.extra_info["work"] = case.function
        benchmark.extra_info["client"] = contender
        benchmark.extra_info["size"] = case.size
        benchmark.extra_info["runs"] = runs
        benchmark.pedantic(lambda: advance(next(durations)), rounds=len(runs))

    return row
