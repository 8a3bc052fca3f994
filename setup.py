"""Builds the compiled modules. All metadata is in pyproject.toml.

The kernels for AVX2, AVX-512 and NEON carry their instruction set as a function attribute, and the best one is picked
when the module is loaded, so one build serves every machine of an architecture and no -march flag is needed.

WSFAST_DEBUG=1 builds without optimisation, with C assertions and symbols; WSFAST_SANITIZE=address,undefined adds
sanitizers; WSFAST_ANNOTATE=1 leaves Cython's HTML reports beside the sources.
"""

import os
import shutil
import subprocess
import sys
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

if sys.platform == "win32":
    sys.exit("wsfast does not build on Windows yet: its C core is written for POSIX (see README.md).")

# What of the core a module is linked with. frame.c and utf8.c keep nothing, so whoever needs them has them; the pool of
# mask keys must exist once.
FRAME = "wsfast/core/frame.c"
UTF8 = "wsfast/core/utf8.c"
MESSAGE = ["wsfast/core/message.c", FRAME, UTF8]
CORE = {
    "wsfast._engine.frame": [FRAME],
    "wsfast._engine.writer": [FRAME, "wsfast/core/entropy.c", *sorted(glob("wsfast/core/mask*.c"))],
    "wsfast._engine.reader": MESSAGE,
    "wsfast._engine.transport": MESSAGE,
    "wsfast._engine.messages": MESSAGE,
    "wsfast._engine.violation": MESSAGE,
    "wsfast.sync._messaging": MESSAGE,
}

DEBUG = bool(os.environ.get("WSFAST_DEBUG"))
SANITIZE = os.environ.get("WSFAST_SANITIZE")
CRATE = "wsfast/sync/_tungstenite"

compile_args = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter"]
compile_args += ["-O0", "-g3"] if DEBUG else ["-O3", "-DNDEBUG"]
link_args = []
if SANITIZE:
    compile_args += [f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-g"]
    link_args += [f"-fsanitize={SANITIZE}"]


def extension(path: str) -> Extension:
    name = path.removesuffix(".pyx").replace("/", ".")
    return Extension(
        name,
        [path, *CORE.get(name, [])],
        include_dirs=["wsfast/core", CRATE],
        depends=[*glob("wsfast/core/*.h"), f"{CRATE}/wsfast_tungstenite.h"],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


class BuildExt(build_ext):
    """Builds the crate first, which cffi links into a module (wsfast/sync/_tungstenite/binding.py)."""

    def run(self) -> None:
        if shutil.which("cargo") is None:
            sys.exit(
                "wsfast's blocking client is Rust, and there is no cargo to build it: install Rust (rustup.rs)."
            )
        target = os.environ.get("CARGO_TARGET_DIR", "build/cargo")
        cargo = ["cargo", "build", "--quiet", "--locked", f"--manifest-path={CRATE}/Cargo.toml"]
        cargo += [f"--target-dir={target}"]
        if subprocess.call(cargo + ([] if DEBUG else ["--release"])) != 0:  # noqa: S603
            sys.exit("cargo could not build wsfast's blocking client; its messages are above.")
        super().run()


setup(
    cmdclass={"build_ext": BuildExt},
    cffi_modules=[f"{CRATE}/binding.py:ffi"],
    ext_modules=cythonize(
        [extension(path) for path in sorted(glob("wsfast/**/*.pyx", recursive=True))],
        build_dir="build/cython",
        annotate=bool(os.environ.get("WSFAST_ANNOTATE")),
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "binding": False,
            "embedsignature": True,
            # Cython would copy and pickle the C fields that it can, and leave out the rest.
            "auto_pickle": False,
            # An object made by __new__ alone, or cleared by the collector, refers to None where C expects another one.
            "nonecheck": True,
        },
    ),
)
