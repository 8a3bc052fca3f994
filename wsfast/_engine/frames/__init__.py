"""Frames, from bytes and to bytes: one class for each direction, and the memory that both use."""
