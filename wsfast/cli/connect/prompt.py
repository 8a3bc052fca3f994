"""The prompt of ``wsfast connect``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.patch_stdout import patch_stdout

import wsfast
from wsfast.cli.connect.session import NAMES, Session, parse

__all__ = ["feed", "output"]

_COMMAND = re.compile(r"^/\w*")


def output() -> AbstractContextManager[None]:
    """While this is open, printed text appears above the prompt."""
    shown: AbstractContextManager[None] = patch_stdout(raw=True)
    return shown


def feed(*, keep_history: bool) -> Callable[[Session], Coroutine[Any, Any, None]]:
    """A feed of a session that reads lines at a prompt.

    :param keep_history: remember lines in a file
    """
    completer = WordCompleter(list(NAMES), pattern=_COMMAND)

    async def prompt(session: Session) -> None:
        lines: PromptSession[str] = PromptSession(
            history=_history(keep_history), completer=completer, complete_while_typing=False
        )
        await session.connected()
        while True:
            try:
                line = await lines.prompt_async("> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                if lines.default_buffer.text:  # as a shell: it only clears the line
                    continue
                session.interrupt()
                return
            if not line:
                continue
            try:
                await session.do(parse(line))
            except (ValueError, wsfast.WebSocketException) as exc:
                session.note(str(exc))
            if line == "/quit":
                return

    return prompt


def _history(keep: bool) -> History:
    if not keep:
        return InMemoryHistory()
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(state) / "wsfast" / "history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # lines may contain secrets
    except OSError:
        return InMemoryHistory()
    return FileHistory(path)
