"""Types of recv() and send()."""

from collections.abc import Iterable
from typing import Any, Literal, final, overload

from typing_extensions import disjoint_base

from wsfast.deflate import AgreedDeflate

_DataLike = str | bytes | bytearray | memoryview

@disjoint_base
class Connection:
    """The part of ClientConnection that every message meets."""

    @property
    def _handle(self) -> Any: ...
    _receiving: bool
    @overload
    def recv(self, timeout: float | None, decode: Literal[True]) -> str: ...
    @overload
    def recv(self, timeout: float | None = None, *, decode: Literal[True]) -> str: ...
    @overload
    def recv(self, timeout: float | None, decode: Literal[False]) -> bytes: ...
    @overload
    def recv(self, timeout: float | None = None, *, decode: Literal[False]) -> bytes: ...
    @overload
    def recv(self, timeout: float | None = None, decode: bool | None = None) -> str | bytes: ...
    def send(
        self,
        message: _DataLike | Iterable[_DataLike],
        *,
        text: bool | None = None,
        compress: bool | None = None,
    ) -> None: ...
    def _compress(self, agreed: AgreedDeflate, max_message: int, max_fragment: int) -> None: ...
    def _send_frame(self, head: int, message: _DataLike) -> None: ...
    def _put_frame(self, head: int, message: _DataLike) -> None: ...

@final
class Cork:
    """``with ws.cork():``; may be nested, the outermost one writes."""

    def __new__(cls, owner: Connection) -> Cork: ...
    def __enter__(self) -> None: ...
    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None: ...

@final
class Fragments:
    """recv_streaming() under way."""

    def __new__(cls, connection: Connection, decode: bool | None) -> Fragments: ...
    def __iter__(self) -> Fragments: ...
    def __next__(self) -> str | bytes: ...
