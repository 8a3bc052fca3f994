"""The functions of wsfast_rust.h, by cffi. Their types are C's, which no type checker reads."""

from typing import Any

ffi: Any
lib: Any
