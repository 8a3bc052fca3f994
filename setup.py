"""Builds the compiled modules. All metadata is in pyproject.toml.

No -march flag is needed: the best kernel is picked when a module is loaded (docs/design.md).

WSFAST_DEBUG=1 builds without optimisation, with C assertions and symbols; WSFAST_SANITIZE=address,undefined adds
sanitizers; WSFAST_ANNOTATE=1 leaves Cython's HTML reports beside the sources.
"""

import copy
import os
import shutil
import subprocess
import sys
import sysconfig
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
link_args = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
compile_args += [*link_args, "-fno-omit-frame-pointer", "-g"] if SANITIZE else []

DIRECTIVES = {"language_level": 3, "boundscheck": False, "wraparound": False, "binding": False}
DIRECTIVES |= {"embedsignature": True}
# Cython would copy and pickle the C fields that it can, and leave out the rest.
DIRECTIVES |= {"auto_pickle": False}
# An object made by __new__ alone, or cleared by the collector, refers to None where C expects another one.
DIRECTIVES |= {"nonecheck": True}


def extension(path: str) -> Extension:
    name = path.removesuffix(".pyx").replace("/", ".")
    include_dirs = ["wsfast/core", CRATE]
    depends = [*glob("wsfast/core/*.h"), f"{CRATE}/wsfast_tungstenite.h"]
    flags = {"extra_compile_args": compile_args, "extra_link_args": link_args}
    return Extension(name, [path, *CORE.get(name, [])], include_dirs, depends=depends, **flags)


class BuildExt(build_ext):
    """Builds the modules and the crate at once. cffi links the crate into a module (its binding.py)."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        if self.inplace:  # one place for the objects of `build_ext --inplace` and of pip's --editable
            self.build_temp = self.build_lib = f"build/{sysconfig.get_config_var('SOABI')}"

    def run(self) -> None:
        if shutil.which("cargo") is None:
            sys.exit("wsfast's blocking client is Rust, and there is no cargo: install Rust (rustup.rs).")
        cargo = ["cargo", "build", "--quiet", "--locked", f"--manifest-path={CRATE}/Cargo.toml"]
        cargo += [f"--target-dir={os.environ.get('CARGO_TARGET_DIR', 'build/cargo')}"]
        with subprocess.Popen(cargo + ([] if DEBUG else ["--release"])) as self.crate:  # noqa: S603
            super().run()

    def build_extension(self, ext: Extension) -> None:
        if ext.name == "wsfast.sync._native" and self.crate.wait() != 0:
            sys.exit("cargo could not build wsfast's blocking client; its messages are above.")
        one = copy.copy(self)  # a directory for each module: several compile frame.c, at the same time
        one.build_temp = f"{self.build_temp}/{ext.name}"
        build_ext.build_extension(one, ext)


if __name__ == "__main__":  # Cython's processes import this where they are not forked
    modules = cythonize(
        [extension(path) for path in sorted(glob("wsfast/**/*.pyx", recursive=True))],
        build_dir="build/cython",
        nthreads=os.cpu_count(),
        annotate=bool(os.environ.get("WSFAST_ANNOTATE")),
        compiler_directives=DIRECTIVES,
    )
    setup(cmdclass={"build_ext": BuildExt}, cffi_modules=[f"{CRATE}/binding.py:ffi"], ext_modules=modules)
