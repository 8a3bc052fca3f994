"""The type of what recv() and send() return, which is awaited like a coroutine."""

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class Awaitable:
    """The methods of a coroutine."""

    def __await__(self) -> Iterator[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    def send(self, value: Any) -> Any: ...
    def throw(
        self, kind: Any, value: BaseException | None = None, traceback: TracebackType | None = None
    ) -> Any: ...
    def close(self) -> None: ...
