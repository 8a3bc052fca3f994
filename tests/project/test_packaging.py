"""What is shipped: pins that agree, a clear message where wsfast cannot work, and everything that a build needs."""

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

from wsfast._engine import binding
from wsfast._opening.handshake import VERSION

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "wsfast"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_aiofastnet_is_pinned_to_one_minor_version_everywhere():
    groups = PYPROJECT["dependency-groups"]
    lists = [PYPROJECT["build-system"]["requires"], PYPROJECT["project"]["dependencies"], groups["build"]]
    pins = [entry for entries in lists for entry in entries if entry.startswith("aiofastnet")]
    major, minor = map(int, binding.AIOFASTNET.split("."))
    assert pins == [f"aiofastnet>={major}.{minor},<{major}.{minor + 1}"] * len(lists)


def test_build_requirements_are_said_twice_alike():
    assert PYPROJECT["build-system"]["requires"] == PYPROJECT["dependency-groups"]["build"]


def test_version():
    assert version("wsfast") == VERSION == PYPROJECT["project"]["version"]
    newest = re.search(r"^## \[([\d.]+|Unreleased)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert newest in ("Unreleased", PYPROJECT["project"]["version"])


def test_setup_is_short():
    assert len((ROOT / "setup.py").read_text().splitlines()) < 100


def test_no_file_holds_two_ideas():
    """Over 600 lines there are two in it."""
    suffixes = (".py", ".pyi", ".pyx", ".pxd", ".c", ".h")
    files = [path for path in PACKAGE.rglob("*") if path.suffix in suffixes]
    lines = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in files}
    assert {name: count for name, count in lines.items() if count > 600} == {}


def import_in(prelude):
    """The last line of the error of `import wsfast` in a fresh interpreter, after `prelude`."""
    script = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{prelude}\nimport wsfast"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 1, "the import must fail"
    return done.stderr.strip().splitlines()[-1]


def test_a_wrong_aiofastnet_is_named():
    error = import_in("import types\nsys.modules['aiofastnet'] = types.SimpleNamespace(__version__='9.7.1')")
    wanted = binding.AIOFASTNET
    assert error == (
        f"ImportError: wsfast was compiled for aiofastnet {wanted}.x, and aiofastnet 9.7.1 is installed: "
        f"pip install 'aiofastnet=={wanted}.*'"
    )


WITHOUT_ENGINE = """
import importlib.machinery as machinery

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "wsfast._engine.transport":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def test_a_missing_engine_is_no_mystery():
    error = import_in(WITHOUT_ENGINE)
    assert error.startswith("ImportError: wsfast's compiled engine is missing: its build failed")
    assert "C compiler" in error


SHIPPED = (".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".typed", ".rs", ".toml", ".lock", ".pem")


def build(what, source, target):
    """Run the build backend on the tree `source`, without optimisation for the time it takes; return the file."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # it takes longer than a test, and has a deadline of its own
    if (made := ROOT / "build" / "cython").exists():  # by the same Cython of the same sources
        shutil.copytree(made, source / "build" / "cython", dirs_exist_ok=True)
    script = f"from setuptools import build_meta; build_meta.build_{what}({str(target)!r})"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=source,
        # What the crate depends on is compiled once for all builds.
        env={**os.environ, "WSFAST_DEBUG": "1", "CARGO_TARGET_DIR": str(ROOT / "build" / "cargo")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = (path for path in target.iterdir() if path.is_file())
    return made


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution, unpacked. It is made of a copy, for a build leaves things behind."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("sdist")
    for name in ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(PACKAGE, source / "wsfast", ignore=shutil.ignore_patterns("__pycache__"))
    with tarfile.open(build("sdist", source, target)) as archive:
        archive.extractall(target, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return target / f"wsfast-{PYPROJECT['project']['version']}"


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    return build("wheel", sdist, tmp_path_factory.mktemp("wheel"))


def test_sdist_has_the_sources_and_nothing_built(sdist):
    wanted = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*") if path.suffix in SHIPPED}
    wanted |= {"CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "setup.py"}
    shipped = set((sdist / "wsfast.egg-info" / "SOURCES.txt").read_text().splitlines())
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
