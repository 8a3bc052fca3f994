"""The memory of this process."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from pathlib import Path


def _pages(column: int) -> int:
    return int(Path("/proc/self/statm").read_text().split()[column]) * resource.getpagesize()


def resident() -> int:
    """Bytes of memory in use."""
    return _pages(1)


def mapped() -> int:
    """Bytes of address space in use."""
    return _pages(0)


def until_flat(bound: int) -> Iterator[None]:
    """Repeat the body of a loop until it has grown the process by less than `bound` bytes; fail after five times.

    A leak grows the process each time. An allocator, a server in this process and a busy machine may grow it once."""
    for _ in range(5):
        before = resident()
        yield
        gc.collect()
        if resident() - before < bound:
            return
    raise AssertionError(f"the process has grown by more than {bound} bytes each time")
