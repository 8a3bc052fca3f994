"""The event loop of a command: uvloop where it is installed, because it is faster."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from wsfast.cli.outcome import Usage

__all__ = ["CHOICES", "factory", "run"]

T = TypeVar("T")

CHOICES = ("auto", "asyncio", "uvloop")


def factory(name: str) -> tuple[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The name of an event loop, and the function that makes one.

    :param name: one of CHOICES
    :raises Usage: `name` is uvloop, and uvloop is not installed
    """
    installed = importlib.util.find_spec("uvloop") is not None
    if name == "asyncio" or (name == "auto" and not installed):
        return "asyncio", asyncio.new_event_loop
    if not installed:
        raise Usage("--loop uvloop: it is not installed: pip install uvloop")
    return "uvloop", importlib.import_module("uvloop").new_event_loop


def run(main: Coroutine[Any, Any, T], name: str) -> T:
    """``asyncio.run()`` on a loop of that name, for a `main` that leaves no tasks."""
    loop = factory(name)[1]()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
