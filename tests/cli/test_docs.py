"""The examples of docs/cli.md and docs/howto/load.md: quick ones run as pasted, and the others are at least parsed."""

import re
import shlex
from pathlib import Path

import pytest

from wsfast.cli.main import parser

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(
    r"^\$ (?:echo (?P<stdin>\w+) \| )?wsfast (?P<arguments>.*)\n(?P<output>(?:[^$].*\n)*)", re.MULTILINE
)
SLOW = ("load", "bench")


def examples():
    for page in ("cli.md", "howto/load.md"):
        for block in BLOCK.findall((DOCS / page).read_text()):
            yield from (match.groups() for match in COMMAND.finditer(block))


def test_there_are_examples():
    assert len(list(examples())) >= 8


@pytest.mark.parametrize(("stdin", "arguments", "output"), list(examples()))
def test_example(run, server, monkeypatch, tmp_path, stdin, arguments, output):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(arguments.replace("ws://127.0.0.1:8765", server.plain))
    if words[0] in SLOW:
        parser().parse_args(words)
        return
    if output:  # and not after a second without a message
        words += ["--wait", "inf", "--count", str(output.count("\n"))]
    done = run(*words, stdin=f"{stdin}\n".encode() if stdin else b"")
    assert (done.code, done.err) == (0, "")
    if output:
        assert done.out == output
