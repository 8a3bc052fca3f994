"""Functions of the Rust crate by their addresses: a call costs less than through cffi.

The crate is linked into _native, by cffi, and exists once. A caller knows the types from wsfast_rust.h.
"""

from libc.stdint cimport uintptr_t

import wsfast._rust._native as _native


cdef void *address_of(name) except NULL:
    function = _native.ffi.addressof(_native.lib, name)
    return <void *><uintptr_t>int(_native.ffi.cast("uintptr_t", function))
