import asyncio

from typing_extensions import disjoint_base

@disjoint_base
class BaseTransport(asyncio.Transport): ...
