"""Types of what all parts of WSTransport share."""

import asyncio

from typing_extensions import disjoint_base

from wsfast.tls import TLSInfo

MOVED: str

@disjoint_base
class Link(asyncio.BufferedProtocol):
    @property
    def underlying_transport(self) -> asyncio.Transport: ...
    @property
    def tls(self) -> TLSInfo | None: ...
