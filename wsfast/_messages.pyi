from wsfast._engine import WSListener, WSTransport

class Incoming:
    msg_type: int

    def __init__(self, transport: WSTransport, max_message: int | None, max_fragment: int | None) -> None: ...

class Messages(WSListener):
    def __init__(self, listener: WSListener, transport: WSTransport) -> None: ...
