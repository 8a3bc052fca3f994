from typing import Any

from typing_extensions import disjoint_base

from wsfast.deflate import AgreedDeflate

TAIL: bytes

def compression(compress: bool | None) -> int: ...

@disjoint_base
class Inflater:
    def __init__(self, agreed: AgreedDeflate) -> None: ...
    def inflate(
        self, data: Any, size: int, limit: int, fin: bool, current_size: int | None = None
    ) -> bytes: ...

@disjoint_base
class Deflater:
    threshold: int
    in_message: bool

    def __init__(self, agreed: AgreedDeflate) -> None: ...
    def wants(self, head: int, size: int) -> bool: ...
    def deflate(self, data: Any, fin: bool) -> bytes: ...
    def reset(self) -> None: ...
