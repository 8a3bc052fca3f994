"""Who may use whom (docs/design.md). Read from the sources, so that an import inside a function counts too."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "wsfast"

# Modules of wsfast that each module may import. A face is a package of its own; it may import everything.
COLD = {"exceptions", "codes", "closing", "keepalive", "stats", "tuning", "options"}
MAY_IMPORT = {
    "codes": set(),
    "exceptions": {"codes", "handshake"},  # handshake for its types only
    "closing": {"codes", "exceptions"},
    "stats": set(),
    "options": {"codes"},
    "reply": set(),
    "tls": set(),
    "tuning": {"options"},
    "uri": {"exceptions"},
    "handshake": {"deflate", "exceptions", "reply", "uri"},
    "deflate": {"exceptions"},
    "connection": {"closing", "exceptions", "handshake"},
    "reconnecting": {"exceptions"},
    "keepalive": {"codes", "exceptions", "closing", "tuning", "_engine", "_frame"},
    "connecting": {"deflate", "handshake", "options", "reconnecting", "tuning", "uri"},
    "copying": set(),
    "_python": set(),
    "_memory": {"_python"},
    "_methods": {"_python"},
    "_core": set(),
    "_frame": COLD | {"_core", "_memory"},
    "_deflate": {"exceptions"},
    "_writer": COLD | {"_core", "_memory", "_python", "_frame", "_deflate"},
    "_reader": COLD | {"_core", "_memory", "_python", "_frame", "_writer"},
    "_violation": {"_core", "exceptions"},
    "_socket": {"_reader"},
    "_polling": {"_core", "_reader", "_socket", "stats"},
    "_engine": COLD
    | {"_core", "_memory", "_methods", "_python", "_frame", "_writer", "_reader", "_socket", "_polling"}
    | {"_deflate", "_violation", "copying"},
    "_messages": COLD | {"_core", "_frame", "_deflate", "_engine", "_violation"},
    "_binding": {"_engine"},
    "resets": set(),
    "tcp": {"options", "tuning", "uri"},
    "opening": COLD
    | {"_engine", "_frame", "_writer", "_socket", "tcp", "tls", "handshake", "uri", "deflate"}
    | {"_messages", "resets"},
}
FACES = {"__init__", "asyncio", "sync"}
NO_INPUT_OR_OUTPUT = {"codes", "exceptions", "closing", "options", "reply", "uri", "handshake", "deflate"}
LIBC = {"arm_neon.h", "assert.h", "errno.h", "fcntl.h", "immintrin.h", "limits.h", "pthread.h", "stdatomic.h"}
LIBC |= {"stdbool.h", "stddef.h", "stdint.h", "stdlib.h", "string.h", "sys/random.h", "sys/types.h", "time.h"}
LIBC |= {"unistd.h"}
ALLOCATION_AND_IO = re.compile(
    r"\b(malloc|calloc|realloc|free|alloca|printf|fprintf|fopen|recv|send|write)\s*\("
)


def imports_of_python(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of_cython(source):
    for match in re.finditer(r"^\s*c?import\s+([\w.]+)", source, re.MULTILINE):
        yield match[1]
    pattern = r"^\s*from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^\n]*)"
    for match in re.finditer(pattern, source, re.MULTILINE):
        assert not match[1].startswith("."), "imports are absolute"
        yield match[1]
        yield from (f"{match[1]}.{name}" for name in re.findall(r"\w+", re.sub(r"#.*", "", match[2])))


def imports(path):
    read = imports_of_python if path.suffix == ".py" else imports_of_cython
    return set(read(path.read_text()))


def sources():
    """Not the stubs: they import types only."""
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".pyx", ".pxd"))


def module_of(path):
    """The part of the package that a file belongs to: its module, or its face."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module(path):
    module = module_of(path)
    used = imports(path)
    outside = {name.split(".")[0] for name in used}
    inside = {name.split(".")[1] for name in used if name.startswith("wsfast.")}
    inside = {name for name in inside if any(PACKAGE.glob(f"{name}.p*")) or (PACKAGE / name).is_dir()}

    assert not outside & {"picows", "websockets", "aiohttp", "tests", "bench"}
    if module not in FACES:
        assert module in MAY_IMPORT, "a new module: say above what it may import"
        assert inside - {module} <= MAY_IMPORT[module]
    if module in NO_INPUT_OR_OUTPUT:
        assert not outside & {"asyncio", "socket", "ssl", "select", "threading", "aiofastnet"}
    if path.suffix != ".py":
        allowed = {
            "aiofastnet",
            "asyncio",
            "contextvars",
            "cpython",
            "cython",
            "io",
            "libc",
            "socket",
            "threading",
        }
        allowed |= {"weakref", "wsfast"}
        assert outside <= allowed


def test_the_search_finds_imports():
    assert {"wsfast.closing", "wsfast._polling.PollingReader"} <= imports(PACKAGE / "_engine.pyx")
    assert {"aiofastnet.transport.Protocol", "wsfast._core.wsf_mask_key"} <= imports(PACKAGE / "_writer.pyx")
    assert "wsfast.uri" in imports(PACKAGE / "handshake.py")


def c_sources():
    return sorted([*(PACKAGE / "core").rglob("*.c"), *(PACKAGE / "core").rglob("*.h")])


@pytest.mark.parametrize("path", c_sources(), ids=lambda path: path.name)
def test_core_knows_only_libc(path):
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
    for include in re.findall(r'^\s*#\s*include\s+(<[^>]+>|"[^"]+")', code, re.MULTILINE):
        if include.startswith("<"):
            assert include[1:-1] in LIBC
        else:
            assert (path.parent / include[1:-1]).is_file()
    assert not ALLOCATION_AND_IO.search(code)


def test_core_mirror_matches_its_headers():
    """Every function and constant that _core.pxd names is in a header."""
    headers = "".join(path.read_text() for path in (PACKAGE / "core").glob("*.h"))
    names = re.findall(r"\b(?:wsf|WSF)_\w+", (PACKAGE / "_core.pxd").read_text())
    assert set(names) <= set(re.findall(r"\b(?:wsf|WSF)_\w+", headers))
