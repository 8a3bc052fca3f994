"""examples/cython_bot: it builds as a user would build it, it trades, and its hot path is C."""

import asyncio
import re
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import websockets
from support import HUNG

EXAMPLE = Path(__file__).parents[2] / "examples" / "cython_bot"
TICK = ORDER = struct.Struct("<Qd")
TICKS = 1000

# In generated C, all of Python is behind names like these; reference counts, and what follows an error, may stay.
PYTHON = re.compile(r"\b(?:__Pyx_|_?Py)\w+(?=\()")
HARMLESS = {"__Pyx_INCREF", "__Pyx_XDECREF", "__Pyx_XGIVEREF", "__Pyx_AddTraceback"}
HARMLESS |= {"__Pyx_RefNannySetupContext", "__Pyx_RefNannyFinishContext"}


@pytest.fixture(scope="module")
def bot(tmp_path_factory):
    directory = tmp_path_factory.mktemp("bot") / "cython_bot"
    shutil.copytree(EXAMPLE, directory, ignore=shutil.ignore_patterns("build", "*.c", "*.so", "__pycache__"))
    signal.setitimer(signal.ITIMER_REAL, 0)  # compiling takes longer, and has its own deadline
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    built = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=6 * HUNG, check=False
    )
    assert built.returncode == 0, built.stderr
    return directory


def python_in(method, source):
    """The names of Python's C functions in what Cython made of a method of Bot."""
    start = re.search(rf"^static \w+ \*?__pyx_\w*_3bot_3Bot_{method}\([^;]*?\) {{$", source, re.MULTILINE)
    assert start, f"{method} is not in the generated C"
    body = source[start.end() : source.index("\n}\n", start.end())]
    return set(PYTHON.findall(body)) - HARMLESS, body


def test_no_python_on_the_hot_path(bot):
    source = (bot / "bot.c").read_text()
    python, body = python_in("on_ws_frame", source)
    assert "send_ptr(" in body
    assert not python
    # The method that Python calls, to see that the search finds something.
    python, _ = python_in("1__init__", source)
    assert "__Pyx_PyFloat_AsDouble" in python


def started(command, directory):
    return subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.mark.asyncio(loop_factories=["asyncio"])  # the loop of the server; run.py has its own
async def test_trades_a_thousand_ticks(bot):
    orders = []
    over = asyncio.get_running_loop().create_future()

    async def exchange(connection):
        for number in range(TICKS):
            cheap = number % 2 == 0
            await connection.send(TICK.pack(number, 99.5 if cheap else 100.5))
            if cheap:
                orders.append(ORDER.unpack(await connection.recv()))
        await connection.close()
        over.set_result(None)

    async with websockets.serve(exchange, "127.0.0.1", 0, compression=None) as server:
        port = server.sockets[0].getsockname()[1]
        command = [sys.executable, "run.py", f"ws://127.0.0.1:{port}/"]
        run = started(command, bot)
        await over
    output, _ = run.communicate()

    assert run.returncode == 0, output
    assert orders == [(number, 1.0) for number in range(0, TICKS, 2)]
    assert output.startswith(f"{TICKS // 2} orders for {TICKS} ticks; ")
    assert "initiator='remote', code=1000" in output
