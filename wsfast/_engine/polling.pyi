"""Types of the half of WSTransport that polls; what each member means is in the docstrings of _polling.pyx."""

import asyncio

from typing_extensions import disjoint_base

from wsfast._engine.reader import FrameReader
from wsfast._engine.stats import WSStats

@disjoint_base
class Poller:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...

@disjoint_base
class PollingReader(FrameReader):
    def poll(self, timeout: float) -> bool: ...
    @property
    def stats(self) -> WSStats: ...
