"""What a build of wsfast needs of the machine, for setup.py and the Makefile.

python tools/toolchain.py     prints what is missing and the command that installs it, and exits with 1
"""

from __future__ import annotations  # Pythons that are too old are told so

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig

RUST = (1, 73)  # as in the crate's Cargo.toml
# rustup's Rust for musl would link a second C library into the module, with a heap of its own.
SHARED_MUSL = """target.'cfg(target_env="musl")'.rustflags=["-Ctarget-feature=-crt-static"]"""
RUSTUP = "curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"


def strip(*, default: bool) -> tuple[list[str], list[str]]:
    """The compiler's and the linker's flags that leave out symbols, and the tables by which debuggers and profilers
    unwind to them, unless WSFAST_STRIP=0. No exception passes through C."""
    if os.environ.get("WSFAST_STRIP", str(int(default))) != "1":
        return [], []
    return ["-fno-asynchronous-unwind-tables"], ["-Wl,-x" if sys.platform == "darwin" else "-Wl,-s"]


def cargo(crate: str, *, release: bool) -> list[str]:
    """The command that builds the crate."""
    target = os.environ.get("CARGO_TARGET_DIR", "build/cargo")
    command = [
        "cargo",
        "build",
        "--quiet",
        "--locked",
        f"--manifest-path={crate}/Cargo.toml",
        f"--target-dir={target}",
        f"--config={SHARED_MUSL}",
    ]
    return command + ["--release"] * release


def packages(debian: str, mac: str) -> str:
    return mac if sys.platform == "darwin" else f"apt-get install {debian}   (on Debian and Ubuntu)"


def old_cargo() -> str | None:
    """The version of cargo, if it is too old, as those of some distributions are."""
    said = subprocess.run(["cargo", "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"cargo ((\d+)\.(\d+)\S*)", said)
    return version[1] if version and (int(version[2]), int(version[3])) < RUST else None


def missing() -> str | None:
    """The first thing that is missing, and the command that installs it; None if all is there."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    headers = sysconfig.get_paths()["include"]
    if sys.platform == "win32":
        return "wsfast does not build on Windows yet: its C core is written for POSIX (see README.md)."
    if sys.version_info < (3, 10):  # noqa: UP036 - `make` may be given any Python
        return f"wsfast needs CPython 3.10 or newer, and {sys.executable} is {sys.version.split()[0]}."
    if shutil.which("cargo") is None:
        problem = "wsfast's TLS and its blocking client are written in Rust, and cargo was not found."
        command = RUSTUP
    elif version := old_cargo():
        problem = f"wsfast needs Rust {RUST[0]}.{RUST[1]} or newer, and this cargo is {version}."
        command = RUSTUP
    elif shutil.which(compiler) is None:
        problem = f"wsfast's engine needs a C compiler, and {compiler} was not found."
        command = packages("gcc libc6-dev", "xcode-select --install")
    elif not os.path.exists(f"{headers}/Python.h"):
        problem = f"wsfast's engine needs the headers of Python, and there is no {headers}/Python.h."
        command = packages("python3-dev", "brew install python")
    else:
        return None
    return f"{problem} To install it:\n  {command}"


if __name__ == "__main__":
    sys.exit(missing())
