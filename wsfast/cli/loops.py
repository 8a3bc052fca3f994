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
    """The name of a loop, and what makes one.

    :param name: one of CHOICES
    :raises Usage: it is uvloop, which is not installed
    """
    installed = importlib.util.find_spec("uvloop") is not None
    if name == "asyncio" or (name == "auto" and not installed):
        return "asyncio", asyncio.new_event_loop
    if not installed:
        raise Usage("--loop uvloop: it is not installed: pip install uvloop")
    return "uvloop", importlib.import_module("uvloop").new_event_loop


def run(main: Coroutine[Any, Any, T], name: str = "asyncio") -> T:
    """``asyncio.run()`` on a loop of that name. As there, what is left is cancelled when `main` has ended."""
    loop = factory(name)[1]()
    try:
        asyncio.set_event_loop(loop)
        task = loop.create_task(main)
        try:
            return loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            raise
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for other in left:
                other.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
