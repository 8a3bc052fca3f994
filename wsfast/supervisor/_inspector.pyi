"""Types of what a supervisor does with each message of a connection."""

from collections.abc import Hashable
from typing import Any, final

from wsfast.supervisor.line import Line
from wsfast.supervisor.liveness import Liveness
from wsfast.supervisor.shared import Shared

@final
class Keys:
    """The keys of the last messages of a line: at least `remember` of them, and at most twice as many."""

    def __new__(cls, remember: int) -> Keys: ...
    @property
    def last(self) -> Hashable: ...
    def add(self, key: Hashable) -> None: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: Hashable, /) -> bool: ...

@final
class Inspector:
    """Shows each message to the functions of the program that :func:`wsfast.supervise` was given."""

    def __new__(
        cls, line: Line, shared: Shared, liveness: Liveness, is_alone: bool, is_awaited: bool
    ) -> Inspector: ...
    def inspect(self, payload: Any) -> bool | list[Any]: ...
