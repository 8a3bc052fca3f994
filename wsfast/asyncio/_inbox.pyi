"""Types of what arrives on an awaitable connection. The methods that are not here are C's."""

from collections.abc import Callable
from typing import Any, final

from typing_extensions import disjoint_base

from wsfast._common.options import Limits
from wsfast._engine.transport import WSListener, WSTransport

@disjoint_base
class Policy:
    """Decides about messages that arrive faster than the program receives them."""

@final
class Inbox(WSListener):
    """The listener of an awaitable connection."""

    on_high_water: Callable[[], object] | None
    def __init__(
        self,
        owner: Any,
        transport: WSTransport,
        limits: Limits,
        policy: Policy | None = None,
    ) -> None: ...
    @property
    def _head(self) -> int: ...
    @property
    def frames(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def dropped(self) -> int: ...
    @property
    def conflated(self) -> int: ...
    @property
    def discarded(self) -> int: ...
    @property
    def paused(self) -> bool: ...
    @property
    def closed(self) -> bool: ...
    def _show_to(self, look: Callable[[Any], bool | list[Any]] | None) -> None: ...
    def put_back(self, messages: list[tuple[int, Any, object]]) -> None: ...
    def forget(self) -> None: ...
    def read_on(self) -> None: ...
    def read_no_further(self) -> None: ...
