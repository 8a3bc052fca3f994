"""Types of the memory that connections share. Python code has no use for it: the methods are C's."""

from typing_extensions import disjoint_base

@disjoint_base
class ReadBuffer:
    """Memory for received bytes. It lives as long as a frame or a memoryview refers to it."""

@disjoint_base
class Scratch:
    """What the connections of one thread share."""
