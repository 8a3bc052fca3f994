"""Builds the C programs into build/bench when a source is newer than the program."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

BENCH = Path(__file__).parent
OUT = BENCH.parent / "build" / "bench"
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
OPENSSL = ["-lssl", "-lcrypto"]
# What a program needs besides: the masks of wsfast.
MORE = {"machine/offsets": sorted((BENCH.parent / "wsfast" / "core").glob("mask*.c"))}


def program(name, *, tls=False):
    """The path of a built program, `servers/echo` or `floor/rr` for instance. With `tls` it needs OpenSSL's headers."""
    source = BENCH / f"{name}.c"
    common = BENCH / "common"
    stream = BENCH / "streams" / ("tls.c" if tls else "plain.c")
    built = OUT / (f"{source.stem}-tls" if tls else source.stem)
    inputs = [source, stream, *common.glob("*.[ch]"), *MORE.get(name, [])]
    if built.exists() and built.stat().st_mtime >= max(file.stat().st_mtime for file in inputs):
        return built
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise SystemExit(f"no C compiler: {compiler[0]} is not there. Install gcc or clang, or set CC")
    OUT.mkdir(parents=True, exist_ok=True)
    fresh = built.with_suffix(
        f".{os.getpid()}"
    )  # renamed when complete: another run may be using the old file
    command = [
        *compiler,
        *FLAGS,
        "-o",
        fresh,
        source,
        stream,
        *MORE.get(name, []),
        *sorted(common.glob("*.c")),
        *(OPENSSL if tls else []),
    ]
    if subprocess.run(command, check=False).returncode != 0:
        needs = ". It needs OpenSSL's headers (Debian: apt-get install libssl-dev)" if tls else ""
        raise SystemExit(f"{source} does not compile{needs}")
    return fresh.replace(built)
