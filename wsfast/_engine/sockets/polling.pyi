"""Types of the half of WSTransport that polls; what each member means is in the docstrings of polling.pyx."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future

from typing_extensions import Buffer, disjoint_base

from wsfast._common.protocol_numbers import WSMsgType
from wsfast._engine.frames.reader import FrameReader
from wsfast._engine.stats import WSStats

@disjoint_base
class Poller:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...

@disjoint_base
class PollingReader(FrameReader):
    def poll(self, timeout: float, sleep: bool = False) -> bool: ...
    def _expect(self, pong: bool) -> None: ...
    def _run_beneath(self, callback: Callable[..., object], *args: object) -> None: ...
    def _log_frames(self, debug: Callable[..., object]) -> None: ...
    def send_threadsafe(
        self, msg_type: WSMsgType | int, message: str | Buffer | None, compress: bool | None = None
    ) -> Future[None]: ...
    @property
    def stats(self) -> WSStats: ...
    def _stats(self) -> WSStats: ...
