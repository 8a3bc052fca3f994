"""Proxies of others, as fixtures: the port of a running one. Tests are skipped where a program is not installed."""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
import time

import pytest

from support import proxies


def listening(start):
    """Start a program on a free port: (process, port)."""
    while True:
        with socket.create_server((proxies.HOST, 0)) as probe:
            port = probe.getsockname()[1]
        process = start(port)
        while process.poll() is None:
            try:
                socket.create_connection((proxies.HOST, port)).close()
            except ConnectionRefusedError:
                time.sleep(0.01)
            else:
                return process, port


def program(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


run = functools.partial(subprocess.Popen, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture
def tinyproxy(tmp_path):
    path = program("tinyproxy")

    def start(port):
        config = tmp_path / "tinyproxy.conf"
        config.write_text(
            f"Port {port}\nListen {proxies.HOST}\nTimeout 60\nMaxClients 10\nBasicAuth user word\n"
            f'PidFile "{tmp_path}/pid"\n'
        )
        return run([path, "-d", "-c", str(config)])

    process, port = listening(start)
    yield port
    process.terminate()
    process.wait()


@pytest.fixture
def microsocks():
    path = program("microsocks")
    process, port = listening(
        lambda port: run([path, "-i", proxies.HOST, "-p", str(port), "-u", "user", "-P", "word"])
    )
    yield port
    process.terminate()
    process.wait()
