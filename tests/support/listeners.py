"""Listeners that record their callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from wsfast import WSFrame, WSListener, WSMsgType, WSTransport


class Got(NamedTuple):
    """A delivered frame."""

    msg_type: WSMsgType
    payload: bytes
    fin: bool = True


class Recorder(WSListener):
    """A listener that records callbacks in `events` and frames in `frames`; ``until()`` waits for a condition."""

    def __init__(self) -> None:
        self.transport: WSTransport | None = None
        self.events: list[str] = []
        self.frames: list[Got] = []
        self._waiting: list[tuple[Callable[[], object], asyncio.Future[None]]] = []

    @property
    def payloads(self) -> list[bytes]:
        return [got.payload for got in self.frames]

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport
        self.note("connected")

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self.frames.append(Got(frame.msg_type, frame.get_payload_as_bytes(), frame.fin))
        self.note("frame")

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.transport = None
        self.note("disconnected")

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def note(self, event: str) -> None:
        self.events.append(event)
        for condition, future in self._waiting:
            if not future.done() and condition():
                future.set_result(None)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until `condition` is true after some callback."""
        if condition():
            return
        waiting = condition, asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting[1]
        finally:
            self._waiting.remove(waiting)

    async def received(self, count: int) -> list[Got]:
        await self.until(lambda: len(self.frames) >= count)
        return self.frames


class Scripted(Recorder):
    """A Recorder that calls a function in a callback: ``Scripted(on_ws_frame=lambda self, transport, frame: ...)``."""

    def __init__(self, **script: Callable[..., Any]) -> None:
        super().__init__()
        self.script = script

    def _run(self, callback: str, *args: Any) -> None:
        if callback in self.script:
            self.script[callback](self, *args)

    def on_ws_connected(self, transport: WSTransport) -> None:
        super().on_ws_connected(transport)
        self._run("on_ws_connected", transport)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        super().on_ws_frame(transport, frame)
        self._run("on_ws_frame", transport, frame)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        super().on_ws_disconnected(transport)
        self._run("on_ws_disconnected", transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._run("pause_writing")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._run("resume_writing")
