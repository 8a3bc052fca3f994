from collections.abc import Callable
from typing import Any, final

from wsfast._engine.transport import WSListener, WSTransport

DECODE: dict[int, bool | type[memoryview] | None]
DECODE_BY_TYPE: int

@final
class Incoming:
    msg_type: int

    def __init__(self, transport: WSTransport, max_message: int, max_fragment: int) -> None: ...

@final
class Fragments: ...

@final
class Messages(WSListener):
    def __new__(cls, listener: WSListener, transport: WSTransport, gathers: bool = False) -> Messages: ...
    def _show_to(self, look: Callable[[Any], bool | list[Any]] | None) -> None: ...

def show_messages(
    transport: WSTransport, look: Callable[[Any], bool | list[Any]] | None, receiver: WSListener | None = None
) -> None: ...
