"""Code that the tests share: frames, a mock transport, recording listeners, servers, certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

# Seconds after which a test counts as hung. No result depends on them, and a busy machine does not reach them.
HUNG = 600


async def all_at_once(check: Callable[..., Awaitable[object]], cases: Iterable[tuple[Any, ...]]) -> None:
    """``await check(*case)`` for each case, all at the same time: they only wait for a deadline."""
    listed = list(cases)
    outcomes = await asyncio.gather(*(check(*case) for case in listed), return_exceptions=True)
    assert [(case, one) for case, one in zip(listed, outcomes) if isinstance(one, BaseException)] == []
