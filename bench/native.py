"""Builds the programs in C, C++ and Rust into build/ when a source is newer than the program."""

import functools
import os
import shlex
import shutil
import subprocess
from pathlib import Path

BENCH = Path(__file__).parent
OUT = BENCH.parent / "build" / "bench"
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
OPENSSL = ["-lssl", "-lcrypto"]
# Other sources of a program: the masks of wsfast.
MORE = {"machine/offsets": sorted((BENCH.parent / "wsfast" / "core").glob("mask*.c"))}

CRATE = BENCH / "floor" / "rust"
BEAST = BENCH / "floor" / "beast.cpp"


def stale(built, inputs):
    return not built.exists() or built.stat().st_mtime < max(file.stat().st_mtime for file in inputs)


def compile_into(built, command):
    """Run `command -o FILE`, and rename the file when it is complete: another run may be using the old one."""
    OUT.mkdir(parents=True, exist_ok=True)
    fresh = built.with_suffix(f".{os.getpid()}")
    if subprocess.run([*command, "-o", fresh], check=False).returncode != 0:
        return None
    return fresh.replace(built)


def compiler():
    """The words of the C compiler's command."""
    argv = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(argv[0]) is None:
        raise SystemExit(f"no C compiler: {argv[0]} is not there. Install gcc or clang, or set CC")
    return argv


def shared(*sources):
    """The objects of sources that several programs share, each compiled once; None for one that does not compile."""
    headers = [*(BENCH / "common").glob("*.h")]
    for source in sources:
        built = OUT / f"{source.stem}.o"
        if stale(built, [source, *headers]):
            built = compile_into(built, [*compiler(), *FLAGS, "-c", source])
        yield built


def program(name, *, tls=False):
    """The path of a built program, `servers/echo` or `floor/rr` for instance. With `tls` it needs OpenSSL's headers."""
    source = BENCH / f"{name}.c"
    common = BENCH / "common"
    stream = BENCH / "streams" / ("tls.c" if tls else "plain.c")
    built = OUT / (f"{source.stem}-tls" if tls else source.stem)
    if not stale(built, [source, stream, *common.glob("*.[ch]"), *MORE.get(name, [])]):
        return built
    objects = list(shared(stream, *sorted(common.glob("*.c"))))
    sources = [source, *MORE.get(name, []), *objects]
    if None in objects or not compile_into(
        built, [*compiler(), *FLAGS, *sources, "-lm", *(OPENSSL if tls else [])]
    ):
        needs = ". It needs OpenSSL's headers (Debian: apt-get install libssl-dev)" if tls else ""
        raise SystemExit(f"{source} does not compile{needs}")
    return built


def crate():
    """The path of tungstenite's program; its target directory is that of the package's crate, if make has set it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", BENCH.parent / "build" / "cargo"))
    built = target / "release" / "bench_tungstenite"
    if stale(built, [*CRATE.glob("src/*.rs"), *CRATE.glob("Cargo.*")]):
        argv = [
            "cargo",
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--manifest-path",
            CRATE / "Cargo.toml",
        ]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "MAKEFLAGS": ""}
        subprocess.run(argv, env=environment, check=True, capture_output=True, text=True)
        built.touch()
    return built


def beast():
    """The path of Boost.Beast's program, in C++."""
    built = OUT / "beast"
    common = BENCH / "common"
    if stale(built, [BEAST, common / "samples.c", common / "samples.h"]):
        [samples] = shared(common / "samples.c")
        argv = [*shlex.split(os.environ.get("CXX", "c++")), "-std=c++17", "-O2", "-pthread", BEAST, samples]
        if not samples or not compile_into(built, [*argv, "-lm"]):
            raise OSError(f"{BEAST.name} does not compile")
    return built


@functools.cache
def why_not(name):
    """The reason why the C++ or the Rust programs cannot be built here, or None. Builds them."""
    if name == "C++":
        cxx = shlex.split(os.environ.get("CXX", "c++"))[0]
        if shutil.which(cxx) is None:
            return f"C++ cannot run: there is no {cxx}"
        found = subprocess.run(
            [cxx, "-E", "-x", "c++", "-"],
            input="#include <boost/version.hpp>",
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode != 0:
            return "C++ cannot run: Boost's headers are not installed (Debian: apt-get install libboost-dev)"
    elif shutil.which("cargo") is None:
        return "Rust cannot run: there is no cargo"
    try:
        beast() if name == "C++" else crate()
    except subprocess.CalledProcessError as failure:
        said = failure.stderr.strip().splitlines() or ["cargo failed"]
        return f"Rust cannot run: {said[-1].strip()}"
    except OSError as failure:
        return f"{name} cannot run: {failure}"
    return None


def client(name, program_name, *, tls=False):
    """The first words of the command for a program: of C's own file, or of the one program in C++ or Rust."""
    if name.startswith("C++"):
        return [beast(), program_name]
    if name.startswith("Rust"):
        return [crate(), program_name]
    return [program(f"floor/{program_name}", tls=tls)]
