"""``wsfast connect``: talk to a server, by hand or through pipes."""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import sys
from typing import Any

from wsfast.cli import target
from wsfast.cli.connect import pipes
from wsfast.cli.connect.printers import JSONPrinter, LinePrinter, RichPrinter
from wsfast.cli.connect.session import Session
from wsfast.cli.outcome import Usage, require

__all__ = ["add_to"]

_EPILOG = """\
At a terminal: each line is sent as text, /help lists the commands (/ping, /binary, /close, /reconnect).
In a pipe: each line of stdin is sent, each message is a line of stdout.

  wsfast connect wss://ws.example.com/ -H 'Authorization: Bearer abc' --subprotocol orders.v2
  echo hello | wsfast connect ws://127.0.0.1:8765/
  wsfast connect wss://feed.example.com/ --json --count 100 </dev/null | jq .data

exit codes: 0 closed normally, 1 not connected or closed otherwise, 2 wrong usage or a missing extra, 130 Ctrl-C"""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "connect",
        help="talk to a server, at the keyboard or through pipes",
        description="Talk to a WebSocket server, at the keyboard or through pipes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_run)
    target.add_arguments(parser)
    talk = parser.add_argument_group("messages")
    talk.add_argument("--binary", action="store_true", help="lines are hex, and are sent as binary messages")
    talk.add_argument("--json", action="store_true", help="print each event as a line of JSON")
    talk.add_argument("--raw", action="store_true", help="do not lay out messages that are JSON")
    talk.add_argument("-n", "--count", metavar="N", type=target.whole, help="leave after so many messages")
    talk.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_wait,
        default=1.0,
        help="when stdin has ended, leave after so long without a message, or never: inf (1)",
    )
    talk.add_argument("--reconnect", action="store_true", help="connect again whenever the connection ends")
    talk.add_argument("--no-compression", action="store_true", help="do not offer permessage-deflate")
    talk.add_argument(
        "--max-size", metavar="BYTES", type=target.whole, default=2**20, help="of a received message (1 MiB)"
    )
    talk.add_argument("--no-history", action="store_true", help="do not remember lines for the next time")


def _wait(text: str) -> float:
    return math.inf if text == "inf" else target.not_negative(text)


def _run(arguments: argparse.Namespace) -> int:
    where = target.of_arguments(arguments)
    options: dict[str, Any] = {"max_size": arguments.max_size, "close_timeout": 2}
    if arguments.no_compression:
        options["compression"] = None
    by_hand = sys.stdin.isatty() and sys.stdout.isatty() and not arguments.json
    if by_hand:
        require("prompt_toolkit", "rich")
        if arguments.binary:
            raise Usage("--binary is for pipes: at the prompt, /binary HEX sends a binary message")
    shared = {"options": options, "reconnect": arguments.reconnect, "count": arguments.count}

    async def by_pipe() -> int:
        session = Session(where, JSONPrinter() if arguments.json else LinePrinter(), **shared)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, session.interrupt)
        try:
            return await session.run(pipes.feed(arguments.binary, arguments.wait))
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def at_the_prompt() -> int:
        from wsfast.cli.connect import prompt

        with prompt.output():
            session = Session(where, RichPrinter(raw=arguments.raw), **shared)
            return await session.run(prompt.feed(keep_history=not arguments.no_history))

    try:
        return asyncio.run(at_the_prompt() if by_hand else by_pipe())
    except pipes.BadLineError as exc:
        raise Usage(str(exc)) from exc
