"""`wsfast doctor`, `wsfast bench`, the ways to start a command, and the messages about missing extras."""

import functools
import json
import re
import subprocess
import sys
from importlib.metadata import entry_points, requires, version
from types import SimpleNamespace

import pytest

from wsfast.cli import doctor, machine
from wsfast.cli.bench import command as bench
from wsfast.cli.doctor import Fact


def test_doctor(run):
    done = run("doctor", "--json", "-")
    content = json.loads(done.out)
    assert done.code == int(any(one["broken"] for one in content["advice"]))
    assert content["facts"]["wsfast"]["version"] == version("wsfast")
    assert content["facts"]["tls"]["encrypted by"].startswith("rustls")
    assert "zlib" in content["facts"]["compression"]["libraries"]


def test_doctor_keeps_passwords_to_itself(run, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://user:secret@proxy.example:3128")
    done = run("doctor", "--json", "-")
    assert json.loads(done.out)["facts"]["proxy"] == {"https_proxy": "http://***@proxy.example:3128"}
    assert "secret" not in done.out + done.err


FACTS = functools.cache(doctor.facts)


def advised(**changes):
    known = {(fact.section, fact.name): fact.value for fact in FACTS()}
    known |= {("machine", "load"): "0.00", ("machine", "open files"): 65536, ("loop", "uvloop"): "1"}
    known |= {tuple(name.split("__")): value for name, value in changes.items()}
    found = [Fact(section, name.replace("_", " "), value) for (section, name), value in known.items()]
    return {one.topic: one for one in doctor.advice(found)}


def test_what_doctor_advises():
    usual = advised(machine__processors=2)
    assert "busy_poll=0.001" in usual["latency"].do
    assert "load" not in usual
    assert "event loop" not in usual
    assert advised(machine__processors=1)["latency"].do == "Leave busy_poll off."
    assert "uvloop" in advised(loop__uvloop="not installed")["event loop"].do
    assert "powersave" in advised(machine__governor="powersave")["processor"].text
    assert "hpet" in advised(machine__clock="hpet")["clock"].text
    assert advised(tls__authorities=0)["TLS"].broken
    assert "load" in advised(machine__load="9.50", machine__processors=2)


def test_bench_compares_what_is_installed(run, monkeypatch):
    monkeypatch.setattr(bench, "_ROUND", 0.001)
    monkeypatch.setattr(bench, "_WORKS", bench._WORKS[:1])
    done = run("bench", "--seconds", "0.01", "--only", "wsfast", "--only", "picows", "--json", "-")
    content = json.loads(done.out)
    clients = {client["name"]: client for client in content["clients"]}
    own = ["wsfast listener", "wsfast awaitable", "wsfast blocking"]
    assert list(clients) == [*own, "picows", "picows.websockets"]
    for client in clients.values():
        assert client["failure"] is None
        assert client["version"]
        assert len(client["us"]["round trip, 512 B"]) >= 5
    assert done.code == (1 if "NOISY" in done.err else 0)
    assert "to wsfast's of its kind" in done.err


def test_bench_says_what_fails_and_what_is_missing(run, monkeypatch):
    monkeypatch.setattr(bench, "_ROUND", 0.001)
    listener = bench.CONTENDERS["wsfast listener"]
    gone = bench.CONTENDERS | {
        "wsfast gone": listener,
        "wsfast absent": type(listener)("absent", "absent", None, "wsfast listener"),
    }
    monkeypatch.setattr(bench, "CONTENDERS", gone)
    done = run("bench", "--seconds", "0.01", "--only", "gone", "--only", "absent")
    assert done.code == 1
    assert "wsfast gone failed: KeyError: 'wsfast gone'" in done.out
    assert "not installed, so not compared: wsfast absent (pip install absent)" in done.out
    assert run("bench", "--only", "nobody").code == 2


def test_bench_does_not_wait_for_a_client_that_hangs(run, monkeypatch):
    monkeypatch.setattr(bench, "_PATIENCE", 0.0)  # no process starts in that time
    done = run("bench", "--seconds", "0.01", "--only", "listener")
    assert done.code == 1
    assert "wsfast listener did not end within 0 s" in done.out


def test_a_noisy_row_is_said_to_be_one():
    assert bench.noisy([1, 2, 3, 4, 5])
    assert not bench.noisy([100, 101, 102, 103, 104])


def test_a_ratio_is_judged_as_in_a_report(monkeypatch):
    """A ratio is to wsfast's client of the same kind."""
    monkeypatch.setattr(bench, "_WORKS", bench._WORKS[:1])

    def client(name, *rounds):
        return SimpleNamespace(name=name, failure=None, rounds={bench._WORKS[0].name: list(rounds)})

    clients = [
        client("wsfast listener", 100, 101, 102, 103, 104),
        client("picows", 50, 75, 100, 200, 300),
        client("wsfast awaitable", 50, 50.5, 51, 51.5, 52),
        client("aiohttp", 200, 202, 204, 206, 208),
    ]
    text, doubtful = bench._report(clients, [], {"machine": machine.summary(), "event_loop": "uvloop"})
    assert doubtful
    assert re.search(r"^picows .* 100\.0 +75\.0-200\.0 +noise \(0\.50-2\.88\)  NOISY$", text, re.MULTILINE)
    assert re.search(r"^aiohttp .* 4\.00 \(4\.00-4\.00\)$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "module", "error"),
    [
        (["load", "ws://127.0.0.1:1/"], "hdrh", "hdrhistogram is not installed: pip install hdrhistogram"),
        (["load", "ws://127.0.0.1:1/"], "rich", "rich is not installed: pip install rich"),
    ],
)
def test_a_missing_extra_is_told_in_a_line(run, monkeypatch, arguments, module, error):
    from wsfast.cli import outcome

    found = outcome.importlib.util.find_spec
    monkeypatch.setattr(
        outcome.importlib.util, "find_spec", lambda name: found(name) if name != module else None
    )
    done = run(*arguments)
    assert (done.code, done.out, done.err) == (2, "", f"wsfast: {error}\n")


def test_importing_the_command_line_needs_no_extra():
    extras = ("hdrh", "rich", "prompt_toolkit", "locust", "gevent", "uvloop")
    blocked = "; ".join(f"sys.modules[{name!r}] = None" for name in extras)
    code = f"import sys; {blocked}; from wsfast.cli.main import main; sys.exit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "masking" in done.stdout, done.stderr


def test_ways_to_start():
    (script,) = (one for one in entry_points(group="console_scripts") if one.name == "wsfast")
    assert script.value == "wsfast.cli.main:main"
    command = [sys.executable, "-m", "wsfast", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"wsfast {version('wsfast')}\n")
    extras = [entry for entry in requires("wsfast") if "extra ==" in entry]
    assert any(entry.startswith("locust") for entry in extras)


@pytest.mark.parametrize("command", ["connect", "ping", "load", "bench", "doctor"])
def test_help(run, command):
    done = run(command, "--help")
    assert done.code == 0
    assert f"usage: wsfast {command}" in done.out.replace("pytest", "wsfast")


SECRET = "S3" + "CR3T"


@pytest.mark.parametrize("path", [f"/?token={SECRET}", f"/{SECRET * 6}"])
def test_secrets_of_a_url_are_not_written(run, server, tmp_path, path):
    """Neither to the screen nor to a file that its owner shows to somebody."""
    json_file, page = tmp_path / "it.json", tmp_path / "it.html"
    url, dead = (text.replace("//", f"//me:{SECRET}@") + path for text in (server.plain, "ws://127.0.0.1:1"))
    header = ("-H", f"X-Ticket: {SECRET}")
    quick = ("-n", "10", "--warmup", "0", "--loop", "asyncio", "--quiet")
    for command, code in (
        (("ping", "-c", "1", "--json", json_file), 0),
        (("load", *quick, "--json", json_file, "--html", page), 0),
        (("connect", "--json", "--wait", "0.05"), 0),
        (("ping", "-c", "1", "--proxy", f"http://me:{SECRET}@127.0.0.1:1", "--json", json_file), 1),
        (("connect", "-H", f"X {SECRET}"), 2),
        (("connect", "--proxy", f"http://me:{SECRET}@127.0.0.1:x"), 2),
    ):
        json_file.write_text("")
        done = run(*command, url, *header)
        texts = [done.out, done.err, json_file.read_text(), page.read_text() if page.exists() else ""]
        assert (done.code, [text for text in texts if SECRET in text]) == (code, [])
        assert "127.0.0.1" in "".join(texts)
    for command in ("ping", "connect", "load"):
        done = run(command, dead, *header, *(quick if command == "load" else ()))
        assert done.code == 1
        assert SECRET not in done.out + done.err
