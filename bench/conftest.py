"""Tables of pytest-benchmark, whose rounds are the harness' repeats.

The harness measures a case once, with all contenders interleaved. Then each test replays the repeats of its contender
on a simulated clock. So one 'round' of a table is the p50 of one fresh process, without the start of that process.
"""

import os

import pytest

from bench.clock import advance
from bench.contenders import contenders, why_not
from bench.harness import measure


def pytest_addoption(parser):
    group = parser.getgroup("wsfast benchmarks")
    quick = os.environ.get("BENCH_QUICK", "") not in ("", "0")
    group.addoption(
        "--quick", action="store_true", default=quick, help="a short run, to check that everything works"
    )
    group.addoption("--repeats", type=int, default=None, help="fresh processes per contender (5; quick: 2)")
    group.addoption("--contenders", nargs="+", default=None, help="only these rows")


def pytest_generate_tests(metafunc):
    """Make a test per case and contender. A module has CASES, and QUICK_CASES for the short run."""
    if "contender" not in metafunc.fixturenames:
        return
    quick = metafunc.config.getoption("quick")
    chosen = metafunc.config.getoption("contenders")
    cases = [case.shorter(10) for case in metafunc.module.QUICK_CASES] if quick else metafunc.module.CASES
    rows = [(case, name) for case in cases for name in contenders(case) if not chosen or name in chosen]
    metafunc.parametrize(("case", "contender"), rows, ids=[f"{case.size}-{name}" for case, name in rows])


@pytest.fixture(scope="session")
def results(request):
    """Measure a case at its first use, with every contender that can run."""
    quick = request.config.getoption("quick")
    repeats = request.config.getoption("repeats") or (2 if quick else 5)
    chosen = request.config.getoption("contenders")
    known = {}

    def result(case):
        if case not in known:
            names = [name for name in contenders(case) if not chosen or name in chosen]
            known[case] = measure(case, [name for name in names if why_not(name) is None], repeats)
        return known[case]

    return result


@pytest.fixture
def runnable(contender):
    """Fail only the rows of contenders that cannot run here."""
    if why_not(contender):
        pytest.fail(why_not(contender), pytrace=False)


@pytest.fixture
def replay(runnable, benchmark, results):
    """`replay(case, contender)` fills one row of the case's table, per message if a round has several."""

    def row(case, contender):
        runs = results(case).runs[contender]
        durations = iter([run["p50"] / case.count / 1e9 for run in runs])
        benchmark.group = case.title
        benchmark.extra_info["runs"] = runs
        benchmark.pedantic(lambda: advance(next(durations)), rounds=len(runs))

    return row
