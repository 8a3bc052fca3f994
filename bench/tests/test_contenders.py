"""The contenders work, and one that cannot run says why; `pytest bench`."""

import importlib
import subprocess
import sys

import pytest

from bench.clients.payloads import asked_flood
from bench.measure import harness
from bench.measure.worker import call, resolve
from bench.suite import cases
from bench.suite.contenders import CLIENTS, ROOT, command, contenders, lacking, why_not
from bench.suite.sections import SECTIONS

FLOODS = [name for name in contenders(cases.flood(128)) if name.split(":")[0] in CLIENTS]


def test_the_frames_of_a_flood_are_of_the_type_that_its_messages_become():
    assert asked_flood(3, 5, "bytes") == (b"FLOOD 5 3 binary", b"abc", b"DONE")
    assert asked_flood(3, 5, "str") == (b"FLOOD 5 3 text", "abc", "DONE")


@pytest.mark.parametrize("name", CLIENTS)
def test_the_table_has_every_work_of_a_client(name):
    """A work that the table lacks would be measured by nobody, and one that the file lacks would fail."""
    if reason := why_not(name):
        pytest.skip(reason)
    client, works = importlib.import_module(f"bench.clients.{name}"), CLIENTS[name].works()
    for work, variant in works:
        resolve(client, work, variant)
    defined = {
        function for function in vars(client) if any(function.startswith(work) for work in cases.WORKS)
    }
    assert defined - {f"{work}_{variant}".rstrip("_") for work, variant in works} == set()


@pytest.mark.parametrize("how", ["bytes", "str"])
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_obeys_how(name, how):
    """A client compares its messages with those of asked_flood(), and bytes never equal str."""
    if reason := why_not(name):
        pytest.skip(reason)
    file, _, variant = name.partition(":")
    work = resolve(importlib.import_module(f"bench.clients.{file}"), "flood", variant)
    with harness.server_of(cases.flood(128), 0) as server:
        assert len(call(work, "asyncio", server.url, size=128, count=20, rounds=2, how=how)) == 2


@pytest.mark.parametrize("how", ["bytes", "str"])
def test_the_floor_of_a_flood_obeys_how(how):
    case = cases.flood(128, how=how).shorter(100)
    with harness.server_of(case, 0) as server:
        subprocess.run(command("C", case, server, 0), check=True, capture_output=True)


@pytest.mark.parametrize("how", ["json", "msgspec", "orjson"])
def test_every_decoder_takes_what_a_client_receives(how):
    pytest.importorskip(how)
    case = cases.objects(300, how).shorter(100)
    with harness.server_of(case, 0) as server:
        for name in contenders(case):
            if why_not(name) is None:
                work = resolve(importlib.import_module(f"bench.clients.{name}"), "objects", "")
                given = {"size": case.size, "count": case.count, "rounds": 1, "how": how}
                assert len(call(work, "asyncio", server.url, **given)) == 1


def test_every_gap_of_the_suite_has_a_reason():
    reasons = {
        reason
        for section in SECTIONS.values()
        for case in section.cases
        for reason in lacking(case, section).values()
    }
    assert reasons
    assert not [reason for reason in reasons if "its file in bench/clients has no" in reason]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench.tail", "--contenders", "nosuch"], "no contender nosuch; there are "),
        (["bench.instructions", "--clients", "nosuch"], "no contender nosuch; there are "),
        (["bench.instructions", "nosuch"], "no work nosuch; there are "),
        (["bench.report", "queued", "--contenders", "picows_listener"], "a listener has no recv()"),
        (["bench.report", "queued", "--contenders", "C"], "C: not a contender of queued"),
        (
            ["pytest", "bench/tests/test_workloads.py", "--sections", "nosuch"],
            "no section nosuch; there are ",
        ),
        (
            ["pytest", "bench/tests/test_workloads.py", "--contenders", "nosuch"],
            "no contender nosuch; there are ",
        ),
    ],
)
def test_what_does_not_exist_is_named(words, said):
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
