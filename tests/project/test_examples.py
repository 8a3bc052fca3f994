"""The larger examples.

Libraries that are installed run on wsfast. The bot in Cython builds as a user would build it, and its hot path is C.
The fakes of the venues refuse what the venues refuse. `make demo` ends as it should.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import re
import shutil
import signal
import struct
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import websockets
from support import HUNG

from wsfast.exceptions import ConnectionClosed, InvalidStatus
from wsfast.sync.client import connect

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name",
    [
        "gql",
        "python-binance",
        "cryptofeed",
        "unicorn-binance-websocket-api",
        "alpaca-py",
        "binance-connector",
        "pybit",
    ],
)
def test_a_library_runs_on_wsfast_through_a_proxy(name):
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed: see docs/howto/bots.md")
    words = [sys.executable, "examples/bots.py", name.replace("-", "_")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name} " in done.stdout
    assert ": ok" in done.stdout


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


VENUES = Path(__file__).parents[2] / "examples" / "venues"


@pytest.fixture(scope="module")
def place():
    """The host and port of the fakes."""
    with subprocess.Popen([sys.executable, VENUES, "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            yield re.search(r"//(.*)", server.stdout.readline())[1]
        finally:
            server.kill()


def replies(place, path, *messages):
    """What comes before the connection ends, or before the reply to each message has come."""
    got = []
    with connect(f"ws://{place}{path}", close_timeout=1) as ws:
        for message in messages:
            ws.send(message if isinstance(message, str) else json.dumps(message))
        try:
            while True:
                got.append(ws.recv(timeout=0.3))
        except TimeoutError:
            pass
        except ConnectionClosed as exc:
            got.append(f"closed: {exc.rcvd.code} {exc.rcvd.reason}")
    return "\n".join(got)


SPOT, PRIVATE = "/bybit/v5/public/spot", "/bybit/v5/private"
OKX_PUBLIC, OKX_PRIVATE = "/okx/ws/v5/public", "/okx/ws/v5/private"
SIGNED = {"apiKey": "key", "passphrase": "passphrase", "timestamp": "4000000000", "sign": "x"}
PINGS = [{"op": "ping"}] * 6


def subscribe(*args):
    return {"op": "subscribe", "req_id": "1", "id": "1", "args": args}


@pytest.mark.parametrize(
    ("path", "messages", "refusal"),
    [
        ("/binance/ws", PINGS, "closed: 1008 Too many requests"),
        ("/binance/ws", [{"method": "X", "id": 1}], '"code": 2, "msg": "Invalid request"'),
        (SPOT, [subscribe("publicTrade.DELISTED")], "error:handler not found,topic:publicTrade.DELISTED"),
        (SPOT, [subscribe(*["publicTrade.BTCUSDT"] * 11)], "args size >10"),
        (PRIVATE, [subscribe("order")], "Request not authorized"),
        (PRIVATE, [{"op": "auth", "args": ["key", 1, "x"]}], '"success": false, "ret_msg": "Params Error"'),
        (OKX_PUBLIC, [subscribe({"channel": "tickers", "instId": "DELISTED"})], '"code": "60018"'),
        (OKX_PRIVATE, [subscribe({"channel": "orders"})], '"code": "60011", "msg": "Please log in"'),
        (OKX_PRIVATE, [{"op": "login", "args": [SIGNED]}], '"code": "60006"'),
        (
            "/kraken/v2",
            [{"method": "subscribe", "params": {"symbol": ["X/USD"]}}],
            "pair not supported X/USD",
        ),
        ("/kraken/v2/auth", [{"method": "subscribe", "params": {"token": "x"}}], "ESession:Invalid session"),
        ("/coinbase", [{"channel": "level2", "jwt": "a.b.c"}], "authentication failure"),
        (
            "/alpaca/v2/iex",
            [{"action": "subscribe", "trades": ["A"]}],
            '"code": 401, "msg": "not authenticated"',
        ),
        ("/alpaca/v2/iex", [{"action": "auth", "key": "x"}], '"code": 402, "msg": "auth failed"'),
    ],
)
def test_refusals(place, path, messages, refusal):
    assert refusal in replies(place, path, *messages)


def test_one_connection_for_an_account(place):
    auth = {"action": "auth", "key": "key", "secret": "secret"}
    with connect(f"ws://{place}/alpaca/v2/iex") as first:
        first.send(json.dumps(auth))
        while "authenticated" not in first.recv(timeout=20):
            pass
        assert '"code": 406, "msg": "connection limit exceeded"}]\nclosed: 1000' in replies(
            place, "/alpaca/v2/iex", auth
        )


@pytest.mark.parametrize("path", ["/coinbase", "/okx/ws/v5/public"])
def test_silent_clients_are_disconnected(place, path):
    with connect(f"ws://{place}{path}") as ws, pytest.raises(ConnectionClosed):
        ws.recv(timeout=20)


def test_three_connects_in_a_second(place):
    def connect_on():
        while True:
            opened.enter_context(connect(f"ws://{place}{OKX_PUBLIC}"))

    with ExitStack() as opened, pytest.raises(InvalidStatus, match="429"):
        connect_on()


def test_a_listen_key_must_be_valid(place):
    with pytest.raises(InvalidStatus, match="400"):
        connect(f"ws://{place}/binance/ws/key1")


def test_a_feed_rolls_over_without_a_gap():
    words = [sys.executable, "-X", "dev", "-W", "error", "examples/rollover.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 rollovers, 0 gaps,\n0 updates lost, 0 delivered twice" in done.stdout
