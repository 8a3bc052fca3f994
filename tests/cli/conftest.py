"""A server in a process of its own, so that a command may run in the process of the test."""

import contextlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from wsfast.cli.main import main

HERE = Path(__file__).parent


class Server:
    """The URLs of the server, and the authority of its certificate."""

    def __init__(self, line, cacert):
        ports = json.loads(line)
        self.plain = f"ws://127.0.0.1:{ports['plain']}"
        self.tls = f"wss://127.0.0.1:{ports['tls']}"
        self.cacert = str(cacert)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("server")
    command = [sys.executable, str(HERE / "server.py")]
    with subprocess.Popen(command, cwd=directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Server(process.stdout.readline(), directory / "ca.pem")
        process.kill()


class Ran:
    """A command that has ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    """Run a command in this process: ``run("ping", url)``. `stdin`: what it reads."""

    def run(*arguments, stdin=b""):
        file = tmp_path / "stdin"
        file.write_bytes(stdin)
        capfd.readouterr()
        with file.open() as opened, monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", opened)
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as exc:
                code = exc.code
        # asyncio has a thread for each process that it waits for, and `connect` has one that reads.
        for thread in threading.enumerate():
            if thread.name.startswith(("asyncio-waitpid", "wsfast-stdin")):
                thread.join()
        return Ran(code, *capfd.readouterr())

    return run


@pytest.fixture
def started():
    """Start a command in a process of its own."""
    with contextlib.ExitStack() as stack:

        def start(*arguments, **options):
            command = [sys.executable, "-m", "wsfast", *map(str, arguments)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen(command, text=True, **{**pipes, **options}))
            stack.callback(process.kill)
            return process

        yield start
