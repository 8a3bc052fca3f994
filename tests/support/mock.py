"""An open WSTransport on a mock transport, for tests in which single bytes matter."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from support.frames import Parser, Sent
from support.listeners import Recorder
from wsfast import WSListener, WSTransport
from wsfast.deflate import AgreedDeflate
from wsfast.listener import receiver_of

NO_LIMIT = 2**62


class MockTransport:
    """A transport that records its calls. `buffered` is the size of its write buffer."""

    def __init__(self, *, secure: bool = False) -> None:
        self.writes: list[bytes] = []
        self.calls: list[str] = []
        self.buffered = 0
        self.when_aborted: Callable[[], object] = lambda: None
        self.secure = secure

    def write(self, data: bytes) -> None:
        assert type(data) is bytes, "a transport must get a copy that it can keep"
        assert "write_eof" not in self.calls, "write() after write_eof()"
        self.writes.append(data)

    def write_eof(self) -> None:
        self.calls.append("write_eof")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")
        self.when_aborted()

    def resume_reading(self) -> None:
        self.calls.append("resume_reading")

    def can_write_eof(self) -> bool:
        return not self.secure

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.calls.append(f"limits {high} {low}")

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class _Opening:
    """An opening handshake that finishes at once."""

    def connection_made(self, transport: WSTransport) -> None:
        pass


class Wire:
    """An open WSTransport. ``feed()`` delivers bytes from the server, and ``sent()`` returns the frames for the
    server."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: WSListener | Callable[[WSTransport], WSListener] | None = None,
        *,
        rsv_allowed: int = 0,
        compression: AgreedDeflate | None = None,
        secure: bool = False,
        logger: Any = None,
        **options: Any,
    ) -> None:
        self.loop = loop
        self.mock = MockTransport(secure=secure)
        self._parser = Parser()
        settings: dict[str, Any] = {
            "max_frame_size": NO_LIMIT,
            "auto_pong": True,
            "disconnect_on_exception": True,
            "close_timeout": 10,
        }
        settings.update(options)
        self.transport = WSTransport(
            loop, _Opening(), logger=logger or logging.getLogger("wsfast.test"), secure=secure, **settings
        )
        self.transport.connection_made(self.mock)
        if compression is not None:
            self.transport._compress(compression)
        if listener is None:
            listener = Recorder()
        self.listener: Any = listener(self.transport) if callable(listener) else listener
        receiver = receiver_of(self.listener, self.transport, compressed=False)
        self.transport._open(receiver, None, None, None, rsv_allowed)
        self.transport._notify(receiver, "on_ws_connected")

    def feed(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.transport.data_received(piece)

    def lose(self, exc: BaseException | None = None) -> None:
        self.transport.connection_lost(exc)

    def sent(self) -> list[Sent]:
        """The frames that wsfast sent since the last call."""
        writes, self.mock.writes = self.mock.writes, []
        frames = [sent for data in writes for sent in self._parser.feed(data)]
        assert not self._parser.buffer, "an incomplete frame was written"
        return frames

    def end(self) -> BaseException | None:
        """Lose the connection unless it is lost already, and return the exception of wait_disconnected()."""
        if not self.transport.is_disconnected:
            self.lose()

        async def wait() -> BaseException | None:
            try:
                await self.transport.wait_disconnected()
            except BaseException as exc:
                return exc
            return None

        return self.loop.run_until_complete(wait())

    def run_until_aborted(self) -> None:
        """Run the loop until the transport aborts the connection."""
        if "abort" not in self.mock.calls:
            self.mock.when_aborted = self.loop.stop
            self.loop.run_forever()

    def iterate(self) -> None:
        """Run one iteration of the loop, with all callbacks that call_soon() has scheduled."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
