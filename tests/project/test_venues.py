"""The fakes of examples/venues refuse what the venues refuse: docs/venues.md shows only what they accept."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from wsfast.exceptions import ConnectionClosed, InvalidStatus
from wsfast.sync.client import connect

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
