"""The client programs of websockets' quick start and tutorials, run with the package name changed."""

from __future__ import annotations

import asyncio
import contextlib
import io
import ssl
from typing import Any

import pytest
import websockets.asyncio.server
from support import HUNG
from support.certificates import client_context, server_context

HELLO = """
import asyncio
from websockets.asyncio.client import connect

async def hello():
    async with connect(URI) as websocket:
        await websocket.send("Hello world!")
        message = await websocket.recv()
        print(message)
"""

NAME = """
import asyncio
from websockets.asyncio.client import connect

async def hello():
    async with connect(URI) as websocket:
        name = "Ada"
        await websocket.send(name)
        print(f">>> {name}")

        greeting = await websocket.recv()
        print(f"<<< {greeting}")
"""

SECURE = """
import asyncio
import ssl
from websockets.asyncio.client import connect

async def hello():
    async with connect(URI, ssl=ssl_context) as websocket:
        await websocket.send("Hello world!")
        print(await websocket.recv())
"""

ITERATE = """
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

async def hello():
    async with connect(URI) as websocket:
        await websocket.send("count")
        try:
            async for message in websocket:
                print(message)
        except ConnectionClosed:
            print("closed")
"""

RECONNECT = """
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

async def hello():
    seen = 0
    async for websocket in connect(URI):
        try:
            await websocket.send("drop")
            print(await websocket.recv())
            seen += 1
            if seen == 3:
                break
            await websocket.recv()
        except ConnectionClosed:
            continue
    await websocket.close()
"""

CONSUMER_AND_PRODUCER = """
import asyncio
from websockets.asyncio.client import connect

async def hello():
    async with connect(URI) as websocket:
        async def consumer():
            for _ in range(3):
                print(await websocket.recv())

        async def producer():
            for number in range(3):
                await websocket.send(f"message {number}")
                await asyncio.sleep(0)

        await asyncio.gather(consumer(), producer())
"""

TIMEOUT = """
import asyncio
from websockets.asyncio.client import connect

async def hello():
    async with connect(URI) as websocket:
        try:
            await asyncio.wait_for(websocket.recv(), timeout=0.01)
        except asyncio.TimeoutError:
            pong = await websocket.ping()
            latency = await asyncio.wait_for(pong, timeout=10)
            print("pong", latency >= 0)
"""

STREAMING = """
from websockets.asyncio.client import connect

async def hello():
    async with connect(URI) as websocket:
        async def fragments():
            yield "Hello "
            yield "world!"

        await websocket.send(fragments())
        async for fragment in websocket.recv_streaming():
            print(fragment)
"""

PROCESS_EXCEPTION = """
from websockets.asyncio.client import connect, process_exception

def only_rejections_are_fatal(exc):
    print("process", type(exc).__name__)
    return process_exception(exc)

async def hello():
    try:
        async for websocket in connect(URI + "/rejected", process_exception=only_rejections_are_fatal):
            print("connected")
    except Exception as exc:
        print(exc)
"""

EXPECTED = {
    "streaming": (STREAMING, "Hello world!\n"),
    "process-exception": (
        PROCESS_EXCEPTION,
        "process InvalidStatus\nserver rejected WebSocket connection: HTTP 404\n",
    ),
    "hello": (HELLO, "Hello world!\n"),
    "name": (NAME, ">>> Ada\n<<< Ada\n"),
    "secure": (SECURE, "Hello world!\n"),
    "iterate": (ITERATE, "0\n1\n2\n"),
    "reconnect": (RECONNECT, "dropped\n" * 3),
    "consumer-producer": (CONSUMER_AND_PRODUCER, "message 0\nmessage 1\nmessage 2\n"),
    "timeout": (TIMEOUT, "pong True\n"),
}


async def handler(ws: websockets.asyncio.server.ServerConnection) -> None:
    with contextlib.suppress(websockets.ConnectionClosed):
        async for message in ws:
            if message == "count":
                for number in range(3):
                    await ws.send(str(number))
                return
            if message == "drop":
                await ws.send("dropped")
                await ws.close(1011)
                return
            await ws.send(message)


def reject(ws: websockets.asyncio.server.ServerConnection, request: Any) -> Any:
    return ws.respond(404, "nothing here\n") if request.path == "/rejected" else None


@pytest.mark.parametrize("package", ["websockets", "wsfast"])
@pytest.mark.parametrize("program", EXPECTED)
async def test_quick_start(program: str, package: str) -> None:
    text, expected = EXPECTED[program]
    server_ssl: ssl.SSLContext | None = server_context() if program == "secure" else None
    serving = websockets.asyncio.server.serve(handler, "127.0.0.1", 0, ssl=server_ssl, process_request=reject)
    async with serving as server:
        port = server.sockets[0].getsockname()[1]
        names = {"URI": f"ws{'s' if server_ssl else ''}://localhost:{port}", "ssl_context": client_context()}
        names["URI"] = names["URI"].replace("localhost", "127.0.0.1")
        exec(text.replace("websockets.", f"{package}."), names)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            await asyncio.wait_for(names["hello"](), HUNG)
    assert printed.getvalue() == expected
