from typing import final

from wsfast._engine.transport import WSListener, WSTransport

@final
class Incoming:
    msg_type: int

    def __init__(self, transport: WSTransport, max_message: int | None, max_fragment: int | None) -> None: ...

@final
class Fragments: ...

@final
class Messages(WSListener):
    def __new__(cls, listener: WSListener, transport: WSTransport) -> Messages: ...
