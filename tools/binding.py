"""Compiles the calls of wsfast_rust.h, by cffi in API mode, and links the crate into them. See setup.py."""

import os
import sys
from pathlib import Path

from cffi import FFI  # type: ignore[import-untyped]

HEADER = Path("wsfast/_rust/wsfast_rust.h")
PROFILE = "debug" if os.environ.get("WSFAST_DEBUG") else "release"
TARGET = os.environ.get("CARGO_BUILD_TARGET", "")  # cargo's own variable; it adds a directory
LIBRARY = Path(os.environ.get("CARGO_TARGET_DIR", "build/cargo"), TARGET, PROFILE, "libwsfast_rust.a")

# The libraries that Rust's standard library needs. On Linux the module exports nothing but its PyInit function.
LINK = {
    "linux": [
        f"-Wl,--gc-sections,--version-script={HEADER.with_name('exports.map')}",
        "-lpthread",
        "-ldl",
        "-lm",
        "-lgcc_s",
    ],
    "darwin": ["-framework", "Security", "-framework", "CoreFoundation", "-liconv"],
}

ffi = FFI()
ffi.cdef(HEADER.read_text())
ffi.set_source(
    "wsfast._rust._native",
    f"#include <stddef.h>\n#include <stdint.h>\n{HEADER.read_text()}",
    extra_objects=[str(LIBRARY)],
    depends=[str(LIBRARY), str(HEADER)],
    extra_link_args=LINK.get(sys.platform, []),
)
