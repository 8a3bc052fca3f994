"""Types of recv() and send(). They return objects that are awaited like coroutines, hence the type Coroutine."""

from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any, Literal, final, overload

from typing_extensions import disjoint_base

from wsfast._engine.transport import WSTransport
from wsfast.asyncio._awaitable import Awaitable
from wsfast.asyncio._inbox import Inbox
from wsfast.exceptions import Close

_DataLike = str | bytes | bytearray | memoryview

@disjoint_base
class Connection:
    """The part of a connection that is the same for every message."""

    def __init__(
        self,
        transport: WSTransport,
        max_queue: tuple[int | None, int | None],
        max_size: tuple[int | None, int | None],
    ) -> None: ...
    @overload
    def recv(self, decode: Literal[True]) -> Coroutine[Any, Any, str]: ...
    @overload
    def recv(self, decode: Literal[False]) -> Coroutine[Any, Any, bytes]: ...
    @overload
    def recv(self, decode: bool | None = None) -> Coroutine[Any, Any, str | bytes]: ...
    def send(
        self,
        message: _DataLike | Iterable[_DataLike] | AsyncIterable[_DataLike],
        *,
        text: bool | None = None,
        compress: bool | None = None,
    ) -> Coroutine[Any, Any, None]: ...
    def __aiter__(self) -> AsyncIterator[str | bytes]: ...
    @property
    def listener(self) -> Inbox: ...
    def _receive_frame(self) -> Coroutine[Any, Any, tuple[int, bytes, bool]]: ...
    def _send_frame(self, message: _DataLike, text: bool, first: bool, fin: bool, wish: int) -> bool: ...
    def _send_some(self, messages: Iterator[_DataLike], text: bool | None, compress: bool | None) -> bool: ...
    def _read_on(self) -> None: ...
    def _read_no_further(self) -> None: ...
    @property
    def _state(self) -> int: ...
    @property
    def _is_open(self) -> bool: ...
    @property
    def _writing_paused(self) -> bool: ...
    _sending_fragments: bool
    _streaming: bool
    @property
    def _closes(self) -> tuple[Close | None, Close | None, bool]: ...
    def _stamp_reads(self) -> None: ...
    def _loop_turned(self) -> None: ...

@final
class Receive(Awaitable):
    """recv() under way."""

@final
class Send(Awaitable):
    """send() under way."""

@final
class Messages:
    """``async for`` over a connection."""

    def __new__(cls, connection: Connection) -> Messages: ...
    def __aiter__(self) -> Messages: ...
    def __anext__(self) -> Coroutine[Any, Any, str | bytes]: ...

def enter_methods(cls: type[Connection]) -> None: ...
