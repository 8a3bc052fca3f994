"""Builds the compiled modules. All metadata is in pyproject.toml.

No -march flag is needed: the module picks the best masking kernel when it is loaded (docs/decisions/mask_keys.md).
WSFAST_DEBUG=1 builds without optimisation, with C assertions and symbols; WSFAST_SANITIZE=address,undefined adds
sanitizers; WSFAST_ANNOTATE=1 leaves Cython's HTML reports; WSFAST_STRIP=1 strips, as a wheel is.
"""

import copy
import os
import subprocess
import sys
import sysconfig
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, "tools")  # a build starts in the directory of this file
import toolchain

# The core sources that each module is linked with. frame.c and utf8.c are stateless, so several modules may link a
# copy of them. The pool of mask keys (entropy.c) must exist once.
FRAME, UTF8 = "wsfast/core/frame.c", "wsfast/core/utf8.c"
MESSAGE = ["wsfast/core/message.c", FRAME, UTF8]
CORE = {
    f"wsfast._engine.{n}": MESSAGE for n in ("transport", "messages", "frames.reader", "frames.violation")
}
CORE |= {"wsfast._engine.frames.frame": [FRAME], "wsfast.sync._messaging": MESSAGE}
CORE["wsfast._engine.frames.writer"] = [FRAME, "wsfast/core/entropy.c", *sorted(glob("wsfast/core/mask*.c"))]

DEBUG, SANITIZE = bool(os.environ.get("WSFAST_DEBUG")), os.environ.get("WSFAST_SANITIZE")
CRATE = "wsfast/_rust"
# What runs for each frame: -O3 makes the calls inline that -O2 leaves, 1 to 4 % of a message's instructions.
HOT = [f"_engine.{n}" for n in ("transport", "messages", "frames.reader", "frames.writer")] + [
    "asyncio._messaging"
]
COLD = [f"_engine.{n}" for n in ("subclasses", "frames.link", "frames.streams", "frames.violation")]
COLD += ["asyncio._overflow"]

compile_args = ["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter"]
compile_args += ["-fvisibility=hidden", "-ffunction-sections", "-fno-align-jumps"]  # smaller, and no slower
compile_args += ["-O0", "-g3"] if DEBUG else ["-DNDEBUG", "-g0"]
link_args = [f"-fsanitize={SANITIZE}"] if SANITIZE else []
compile_args += [*link_args, "-fno-omit-frame-pointer", "-g"] if SANITIZE else []
link_args += ["-Wl,--gc-sections"] * (sys.platform == "linux" and not SANITIZE)

# "clinic": inspect.signature() knows the methods that C calls, too. auto_pickle: Cython's own would skip C fields.
# nonecheck: an object that __new__ alone made, or that the collector cleared, holds None where C expects another.
DIRECTIVES = {"embedsignature": True, "embedsignature.format": "clinic", "nonecheck": True}
DIRECTIVES |= {"boundscheck": False, "wraparound": False, "binding": False, "auto_pickle": False}


def extension(path: str) -> Extension:
    name = path.removesuffix(".pyx").replace("/", ".")
    depends = [*glob("wsfast/core/*.h"), f"{CRATE}/wsfast_rust.h"]
    level = [] if DEBUG else ["-O3" if name[7:] in HOT else "-Os" if name[7:] in COLD else "-O2"]
    flags = {"extra_compile_args": compile_args + level, "extra_link_args": link_args}
    return Extension(name, [path, *CORE.get(name, [])], ["wsfast/core", CRATE], depends=depends, **flags)


class BuildExt(build_ext):
    """Builds the modules and the crate at the same time. cffi links the crate into a module (tools/binding.py)."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        if self.inplace:  # `build_ext --inplace` and pip's --editable share one directory of objects
            self.build_temp = self.build_lib = f"build/{sysconfig.get_config_var('SOABI')}"

    def run(self) -> None:
        if problem := toolchain.missing():
            sys.exit(problem)
        with subprocess.Popen(toolchain.cargo(CRATE, release=not DEBUG)) as self.crate:  # noqa: S603
            self.translate()
            super().run()

    def translate(self) -> None:
        """Let Cython make the C files. This is no part of setup(), which pip calls for other reasons, too."""
        modules = {ext.name: ext for ext in self.extensions if ext.sources[0].endswith(".pyx")}
        for made in cythonize(
            [copy.copy(ext) for ext in modules.values()],
            build_dir="build/cython",
            nthreads=os.cpu_count(),
            annotate=bool(os.environ.get("WSFAST_ANNOTATE")),
            compiler_directives=DIRECTIVES,
        ):
            modules[made.name].sources = made.sources
        compiling, linking = toolchain.strip(default=not (self.inplace or DEBUG or SANITIZE))
        for ext in self.extensions:
            ext.extra_compile_args = [*ext.extra_compile_args, *compiling]
            ext.extra_link_args = [*ext.extra_link_args, *linking]

    def build_extension(self, ext: Extension) -> None:
        if ext.name == "wsfast._rust._native" and self.crate.wait() != 0:
            sys.exit(
                "cargo could not build wsfast's crate; cargo's messages are above. Without a network it needs vendored"
                " crates: CONTRIBUTING.md, Package."
            )
        one = copy.copy(self)  # one directory per module: several modules compile frame.c at the same time
        one.build_temp = f"{self.build_temp}/{ext.name}"
        build_ext.build_extension(one, ext)


if __name__ == "__main__":  # Cython's worker processes import this file where they are not forked
    modules = [extension(path) for path in sorted(glob("wsfast/**/*.pyx", recursive=True))]
    setup(cmdclass={"build_ext": BuildExt}, cffi_modules=["tools/binding.py:ffi"], ext_modules=modules)
