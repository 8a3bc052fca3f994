"""What is shipped: pins that agree, a clear message where wsfast cannot work, and everything that a build needs."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support import HUNG

from wsfast._common.version import VERSION

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "wsfast"
pytestmark = pytest.mark.checkout
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
sys.path.append(str(ROOT / "tools"))  # `tools` is not installed

from backend import REQUIRES  # noqa: E402


def test_build_requirements_are_said_twice_alike():
    assert PYPROJECT["dependency-groups"]["build"] == REQUIRES


def test_the_hashed_build_requirements_are_among_the_requirements():
    text = (ROOT / "tools" / "build-requirements.txt").read_text()
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+) \\\n +--hash=sha256:", text, re.MULTILINE))
    for requirement in map(Requirement, REQUIRES):
        assert requirement.specifier.contains(pinned[requirement.name])


def test_version():
    assert version("wsfast") == VERSION
    newest = re.search(r"^## \[([\d.]+|Unreleased)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert newest in ("Unreleased", VERSION)


def test_the_notices_of_all_rust_packages_are_shipped():
    tree = ["cargo", "tree", "--locked", "--edges=normal,no-proc-macro", "--prefix=none", "--no-dedupe"]
    manifest = f"--manifest-path={PACKAGE / '_rust' / 'Cargo.toml'}"
    done = subprocess.run([*tree, manifest], capture_output=True, text=True, check=True)
    packages = {tuple(line.split()[:2]) for line in done.stdout.splitlines()} - {("wsfast_rust", "v0.1.0")}
    notices = (ROOT / "THIRD-PARTY.txt").read_text()
    assert len(packages) > 10
    assert {
        f"{name} {version}" for name, version in packages if f"\n  {name} {version[1:]}" not in notices
    } == set()
    components = json.loads((ROOT / "sbom.cdx.json").read_text())["components"]
    assert packages <= {(one["name"], f"v{one['version']}") for one in components}
    assert {"THIRD-PARTY.txt", "sbom.cdx.json"} <= set(PYPROJECT["project"]["license-files"])


def test_the_recipe_for_conda_agrees():
    recipe = (ROOT / "tools" / "recipe.yaml").read_text()
    assert f'version: "{VERSION}"' in recipe
    named = set(re.findall(r"^    - ([\w-]+ [<>=].*)$", recipe, re.MULTILINE))
    wanted = [line.partition(";")[0] for line in PYPROJECT["project"]["dependencies"] + REQUIRES]
    assert named == {re.sub(r"(?=[<>=])", " ", line, count=1) for line in wanted} | {"python >=3.10"}


def import_in(prelude, directory=ROOT):
    """The last line of the error of `import wsfast` in a fresh interpreter, after `prelude`."""
    script = f"import sys\nsys.path.insert(0, {str(directory)!r})\n{prelude}\nimport wsfast"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1, "the import must fail"
    return done.stderr.strip().splitlines()[-1]


def test_a_missing_engine_is_no_mystery(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "wsfast", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    error = import_in("", tmp_path)
    assert error.startswith("ImportError: wsfast's compiled engine is missing: its build failed")
    assert "C compiler" in error
    (tmp_path / "setup.py").touch()  # as in a checkout, where `import wsfast` finds the sources first
    error = import_in("", tmp_path)
    assert error.startswith(
        f"ImportError: Python imports wsfast from its source tree, {tmp_path}, where nothing"
    )
    assert error.endswith("or compile the tree: pip install --editable .")


def test_a_second_interpreter_is_told():
    script = """if True:
        import sys, wsfast
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        interpreters.run_string(interpreters.create(), "try: import wsfast\\nexcept ImportError as e: print(e)")
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("wsfast can be imported in one interpreter of a process"), done


def toolchain(path, **environment):
    """What tools/toolchain.py says with this PATH."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "toolchain.py"],
        env={**os.environ, "PATH": str(path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


@pytest.fixture
def tools(tmp_path):
    """A directory with a cargo and a C compiler, by name."""
    for name in ("cargo", "some-cc"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_a_missing_tool_is_named_with_the_command_that_installs_it(tools):
    error = toolchain(tools, CC="some-other-cc")
    assert "a C compiler, and some-other-cc was not found. To install it:\n  " in error
    (tools / "sysconfig.py").write_text("def get_paths(): return {'include': '/nowhere'}")
    error = toolchain(tools, CC="some-cc", PYTHONPATH=str(tools))
    assert "there is no /nowhere/Python.h. To install it:\n  " in error
    rust = tomllib.loads((PACKAGE / "_rust" / "Cargo.toml").read_text())["package"]["rust-version"]
    (tools / "cargo").write_text("#!/bin/sh\necho 'cargo 1.65.0 (4bc8f24d3 2022-10-20)'\n")
    error = toolchain(tools, CC="some-cc")
    assert f"wsfast needs Rust {rust} or newer, and this cargo is 1.65.0. To install it:\n  curl" in error
    (tools / "cargo").unlink()
    error = toolchain(tools, CC="some-cc")
    assert error.endswith(
        "cargo was not found. To install it:\n  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh\n"
    )


def test_a_build_asks_for_its_tools_before_it_spends_time(tools, tmp_path):
    (tools / "cargo").unlink()
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", f"--build-lib={tmp_path}", f"--build-temp={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tools), "CC": "some-cc"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "cargo was not found" in done.stderr
    assert "Cythonizing" not in done.stdout


@pytest.mark.parametrize("hook", ["wheel", "editable"])
def test_pip_hears_of_a_missing_tool_before_it_installs_anything(tools, hook):
    """This interpreter runs without site-packages, as before pip has installed what the build requires."""
    (tools / "cargo").unlink()
    backend = PYPROJECT["build-system"]
    assert (backend["requires"], backend["build-backend"], backend["backend-path"]) == (
        [],
        "backend",
        ["tools"],
    )
    script = f"import backend; backend.build_{hook}; backend.get_requires_for_build_{hook}()"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PATH": str(tools), "CC": "some-cc", "PYTHONPATH": str(ROOT / "tools")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        "wsfast's TLS and its blocking client are written in Rust, and cargo was not found."
    )


SHIPPED = (".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".typed", ".rs", ".toml", ".lock", ".pem")


TOP_LEVEL = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
    "setup.py",
)


def build(what, source, target):
    """Run the build backend on the tree `source`, without optimisation for the time it takes; return the file.

    It is stripped, as a wheel with optimisation is."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # it takes longer than a test, and has a deadline of its own
    if (made := ROOT / "build" / "cython").exists():  # by the same Cython of the same sources
        shutil.copytree(made, source / "build" / "cython", dirs_exist_ok=True)
    script = f"import sys; sys.path.insert(0, 'tools'); import backend; backend.build_{what}({str(target)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=source,
        # What the crate depends on is compiled once for all builds.
        env={
            **os.environ,
            "WSFAST_DEBUG": "1",
            "WSFAST_STRIP": "1",
            "CARGO_TARGET_DIR": str(ROOT / "build" / "cargo"),
        },
        capture_output=True,
        text=True,
        timeout=6 * HUNG,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (path for path in target.iterdir() if path.is_file())
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution, unpacked. It is made of a copy, for a build leaves things behind."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("sdist")
    for name in TOP_LEVEL:
        shutil.copy(ROOT / name, source)
    for name in ("wsfast", "tests", "docs", "examples", "bench", "tools"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    with tarfile.open(build("sdist", source, target)) as archive:
        archive.extractall(target, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return target / f"wsfast-{VERSION}"


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    return build("wheel", sdist, tmp_path_factory.mktemp("wheel"))


def test_sdist_has_the_sources_and_nothing_built(sdist):
    wanted = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*") if path.suffix in SHIPPED}
    wanted |= {*TOP_LEVEL}
    for name in ("bench", "docs", "examples", "tests", "tools"):
        files = [path for path in (ROOT / name).rglob("*") if path.is_file()]
        wanted |= {str(path.relative_to(ROOT)) for path in files if path.suffix not in (".pyc", ".so")}
    shipped = set(map(os.path.normpath, (sdist / "wsfast.egg-info" / "SOURCES.txt").read_text().splitlines()))
    assert wanted <= shipped
    assert not [name for name in shipped if name.startswith("build/") or name.endswith(".so")]


def test_wheel_of_the_sdist_has_what_users_and_cython_bots_need(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert {f"{path.relative_to(ROOT).with_suffix('')}{suffix}" for path in PACKAGE.rglob("*.pyx")} <= names
    assert {
        "wsfast/py.typed",
        "wsfast/_engine/transport.pxd",
        "wsfast/_engine/transport.pyi",
        "wsfast/core/frame.h",
    } <= names
    assert not [name for name in names if name.endswith((".pyx", ".c", ".o"))]


def test_a_wheel_has_no_symbols(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        archive.extractall(tmp_path)
    assert names
    for name in names:
        sections = sections_of(tmp_path / name)
        assert not {".symtab", ".debug_info"} & sections.keys()
        assert "_native" in name or sections[".eh_frame"] < 500  # of the C library's start files


def sections_of(module):
    """The sections of a module, and their sizes."""
    listed = subprocess.run(["readelf", "-SW", module], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^ *\[ *\d+\] (\.\S+) +\S+ +\S+ +\S+ +(\S+)", listed, re.MULTILINE)
    return {name: int(size, 16) for name, size in found}


@pytest.mark.skipif(shutil.which("strip") is None, reason="there is no strip(1)")
def test_the_installed_package_stays_small(tmp_path):
    """These modules have symbols, and tables to unwind to them; without both they are what a wheel installs."""
    suffixes = (".py", ".pyi", ".pxd", ".h", ".typed")
    installed = [
        path for path in PACKAGE.rglob("*") if path.suffix in suffixes and path.name != "wsfast_rust.h"
    ]
    tables = 0
    for number, module in enumerate(PACKAGE.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}")):
        installed.append(tmp_path / f"{number}.so")
        subprocess.run(["strip", "-o", installed[-1], module], check=True)
        tables += sum(size for name, size in sections_of(module).items() if name.startswith(".eh_frame"))
    installed.append(tmp_path / "native.so")  # Rust unwinds when it panics
    subprocess.run(["strip", "-o", installed[-1], next(PACKAGE.glob("_rust/_native*.so"))], check=True)
    assert 1_000_000 < sum(path.stat().st_size for path in installed) - tables < 4_500_000
