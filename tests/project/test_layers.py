"""Who may use whom (docs/architecture.md). Read from the sources, so that an import inside a function counts too."""

import ast
import functools
import graphlib
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "wsfast"

pytestmark = pytest.mark.checkout

# From the top. A module may import what stands below it, and what shares its place: a folder its own modules.
LAYERS = [
    {"__main__"},
    {"cli", "locust"},
    {"__init__"},
    {"supervisor"},
    {"listener"},
    {"asyncio"},
    {"sync"},
    {"_opening"},
    {"_engine"},
    {"_engine.sockets"},
    {"_engine.frames"},
    {
        "_engine.base_transport",
        "_engine.core",
        "_engine.python",
        "_engine.crate",
    },  # what all of it stands on; C and Rust
    {"_rust"},  # the crate
    {"_common", "deflate", "exceptions", "tls"},  # what every client uses
]
# A face does not know another one.
STRANGERS = {("listener", "asyncio"), ("listener", "sync"), ("asyncio", "sync"), ("cli", "locust")}
NO_INPUT_OR_OUTPUT = {"deflate", "exceptions"} | {
    f"_common.{path.stem}" for path in (PACKAGE / "_common").glob("*.py") if path.stem != "logging"
}
NO_INPUT_OR_OUTPUT |= {
    "_opening.http.exchange",
    "_opening.http.reply",
    "_opening.uri",
    "_opening.http.handshake",
}
NO_INPUT_OR_OUTPUT |= {"_opening.proxy.settings", "_opening.proxy.tunnel", "_opening.redirects"}
LIBC = {
    "arm_neon.h",
    "assert.h",
    "cpuid.h",
    "errno.h",
    "fcntl.h",
    "immintrin.h",
    "limits.h",
    "pthread.h",
    "stdatomic.h",
}
LIBC |= {"stdbool.h", "stddef.h", "stdint.h", "stdlib.h", "string.h", "sys/random.h", "sys/types.h", "time.h"}
LIBC |= {"unistd.h", "windows.h", "bcrypt.h"}  # the last two on Windows
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
    """As it is imported; a .pyx and its .pxd are one."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def graph():
    """What each module imports of wsfast; a package whose module is imported is not meant itself."""
    modules = {module_of(path): set() for path in sources()}
    for path in sources():
        module = module_of(path)
        found = {name for name in imports(path) if name in modules and name != module}
        modules[module] |= {
            name for name in found if not any(other.startswith(f"{name}.") for other in found)
        }
        if path.name == "__init__.pxd":  # declarations only
            modules[module] = set()
    return modules


def layer_of(module):
    # wsfast.sync is a list of names, as wsfast is; its modules are what it stands on.
    part = "__init__" if module in ("wsfast", "wsfast.sync") else module.split(".")[1]
    if part == "_engine":
        inner = ".".join(module.split(".")[1:3])
        part = inner if any(inner in parts for parts in LAYERS) else part
    (level,) = (i for i, parts in enumerate(LAYERS) if part in parts)
    return part, level


def test_no_modules_import_each_other_in_a_circle():
    tuple(graphlib.TopologicalSorter(graph()).static_order())  # raises CycleError, which names them


def test_what_is_below_imports_nothing_above():
    for module, imported in graph().items():
        part, level = layer_of(module)
        for other in imported:
            below, depth = layer_of(other)
            assert depth >= level, f"{module} imports {other}"
            assert (part, below) not in STRANGERS, f"{module} imports {other}"


CRATE = PACKAGE / "_rust" / "src"
# The folders of the crate, from the top; those of one row do not know each other.
CRATE_LAYERS = [{"border"}, {"connection"}, {"parts"}, {"tls", "protocol"}, {"io"}]


def rust_graph(crate):
    """The modules that each module of the crate uses, without its tests. A mod.rs that only lists modules is none."""
    codes = {}
    for path in crate.glob("*/*.rs"):
        name = "::".join(path.relative_to(crate).with_suffix("").parts).removesuffix("::mod")
        code = re.sub(r"//[^\n]*", "", path.read_text()).split("#[cfg(test)]\nmod tests {")[0]
        if not path.stem.endswith(("tests", "_for_miri")) and (path.stem != "mod" or "use " in code):
            codes[name] = code
    modules = {}
    for name, code in codes.items():
        assert not re.search("^use super::", code, re.MULTILINE), "paths are absolute"
        modules[name] = set()
        for used in re.findall(r"\bcrate((?:::\w+)+)", code):
            parts = used[2:].split("::")
            prefixes = ("::".join(parts[:size]) for size in range(len(parts), 0, -1))
            modules[name] |= {next(prefix for prefix in prefixes if prefix in codes)} - {name}
    return modules


def upward_uses(modules):
    level = {folder: depth for depth, row in enumerate(CRATE_LAYERS) for folder in row}
    for module, used in modules.items():
        for other in used:
            here, there = module.split("::")[0], other.split("::")[0]
            if level[there] < level[here] or (level[there] == level[here] and here != there):
                yield module, other


def test_the_crate_has_layers_and_no_circle():
    modules = rust_graph(CRATE)
    assert {"parts::wire", "tls::channel"} <= modules["connection"] | modules["parts::wire"]
    tuple(graphlib.TopologicalSorter(modules).static_order())  # raises CycleError, which names them
    assert list(upward_uses(modules)) == []


def test_a_circle_in_the_crate_is_found(tmp_path):
    for path, code in {
        "io/block.rs": "use crate::io::errno::{self, Errno};\n#[cfg(test)]\nmod tests {\nuse crate::tls::x::Y;}\n",
        "io/errno.rs": "pub fn f() { crate::io::block::g(); }\n",
        "tls/x.rs": "// crate::border::y\nuse crate::parts::mod_y::Z;\n",
        "parts/mod_y.rs": "",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(code)
    modules = rust_graph(tmp_path)
    with pytest.raises(graphlib.CycleError):
        tuple(graphlib.TopologicalSorter(modules).static_order())
    assert list(upward_uses(modules)) == [("tls::x", "parts::mod_y")]


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_module(path):
    outside = {name.split(".")[0] for name in imports(path)}
    if module_of(path) != "wsfast.cli.bench.contenders":  # which `wsfast bench` compares with wsfast
        assert not outside & {"picows", "websockets", "aiohttp", "tests", "bench"}
    if module_of(path).removeprefix("wsfast.") in NO_INPUT_OR_OUTPUT:
        assert not outside & {"asyncio", "socket", "ssl", "select", "threading", "aiofastnet"}
    if path.suffix != ".py":
        allowed = {
            "asyncio",
            "contextvars",
            "copyreg",
            "cpython",
            "cython",
            "errno",
            "io",
            "libc",
            "socket",
            "sys",
            "warnings",
        }
        assert outside <= allowed | {"threading", "weakref", "wsfast"}


@pytest.mark.parametrize(
    "path", [*(PACKAGE / "cli").rglob("*.py"), PACKAGE / "locust.py"], ids=lambda path: path.stem
)
def test_tools_use_public_names(path):
    """They are what a program could write, but for one function: secrets are hidden in one place for all texts."""
    names = imports(path) - {"wsfast._common"}
    private = [name for name in names if re.match(r"wsfast\.(?!_common\.redaction)(\w+\.)*_[a-z]", name)]
    assert private == []


def test_the_search_finds_imports():
    engine = PACKAGE / "_engine"
    found = imports(engine / "transport.pyx")
    assert {"wsfast._common.closing", "wsfast._engine.sockets.polling.PollingReader"} <= found
    found = imports(engine / "frames" / "writer.pyx")
    assert {"wsfast._engine.frames.link.State", "wsfast._engine.core.wsf_mask_key"} <= found
    assert "wsfast._opening.uri" in imports(PACKAGE / "_opening" / "http" / "handshake.py")
    assert "wsfast._engine.frames.reader" in graph()["wsfast._engine.sockets.polling"]


# Fields whose comment names another module that sets them.
SET_BY_OTHERS = {"_notifies_poller", "_stage", "_head"}


def cython_code(paths):
    return "\n".join(re.sub(r"#.*", "", path.read_text()) for path in paths)


def methods_declared_in(code):
    return set(re.findall(r"\b(?:def|cdef|cpdef)\b[^\n(=]*?(\w+)\s*\(", code))


def fields_declared_in(code):
    kinds = r"(?:cdef |public |readonly )*[\w.]+(?: \w+)? \**"
    return set(re.findall(rf"^\s+{kinds}(\w+)\s*$", code, re.MULTILINE))


def compiled():
    return [path for path in sources() if path.suffix == ".pyx"]


def undeclared_calls(code, declared):
    """What methods call on their own object, or on the connection that they serve, and nothing compiled has."""
    return set(re.findall(r"\bself(?:\._connection|\._owner)?\.(\w+)\(", code)) - declared


def test_a_compiled_base_class_declares_what_it_calls():
    """Its subclass in Python overrides it. mypy sees to classes in Python."""
    ours = cython_code(path for path in sources() if path.suffix != ".py")
    declared = methods_declared_in(ours) | fields_declared_in(ours)
    assert undeclared_calls(ours, declared) == set()
    assert undeclared_calls("        self._only_a_subclass_has_it()", declared)


def foreign_writes(code, own):
    """Private fields that are set on other objects, and not declared in the same module."""
    named = re.findall(r"^\s+(?!self\b|alive\b)\w+\.(_\w+)(?: = .*?)? (?:=(?!=)|[-+|]=)", code, re.MULTILINE)
    return set(named) - own - SET_BY_OTHERS


@pytest.mark.parametrize("path", compiled(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_compiled_class_sets_no_private_fields_of_others(path):
    own = fields_declared_in(cython_code(one for one in (path, path.with_suffix(".pxd")) if one.exists()))
    assert foreign_writes(cython_code([path]), own) == set()
    assert foreign_writes("    transport._on_frame = 5", set()) == {"_on_frame"}


# The interface that a folder offers to the others, and the names of its objects there.
INTERFACES = {"_engine": "_engine/transport.pxd", "asyncio": "asyncio/_messaging.pxd"}
OF_LIBRARIES = {"_replace", "_fields", "_sslobj", "_retry_ssl_read"}


def folder_of(path):
    return path.relative_to(PACKAGE).parts[0]


@functools.cache
def declared_in(folder):
    code = cython_code(path for path in sources() if folder_of(path) == folder)
    return methods_declared_in(code) | fields_declared_in(code) | set(re.findall(r"\bself\.(_\w+)", code))


def private_uses(path):
    """The private names that a file uses of objects of other folders."""
    code = re.sub(r"wsfast(\.\w+)+", "", cython_code([path]))
    for owner, name in re.findall(r"(?<!\w)(?=(\w+|[\])])\.(_[a-z]\w*))", code):
        of_others = owner in ("transport", "_transport", "protocol") or name not in declared_in(
            folder_of(path)
        )
        if of_others and owner not in ("self", "cls"):
            yield name


def test_folders_use_the_declared_interfaces_of_each_other():
    texts = {folder: (PACKAGE / path).read_text().split('"""')[1] for folder, path in INTERFACES.items()}
    offered = {folder: set(re.findall(r"\b_[a-z]\w*", text)) for folder, text in texts.items()}
    used = {folder: set() for folder in offered}
    for path in sources():
        others = {name: names for name, names in offered.items() if name != folder_of(path)}
        names = set(private_uses(path)) - OF_LIBRARIES
        if "_engine" in others:
            assert names <= set().union(*others.values()), path
            for folder in others:
                used[folder] |= names & offered[folder]
    assert used == offered  # nothing is declared in vain


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
    """Every function and constant that core.pxd names is in a header."""
    headers = "".join(path.read_text() for path in (PACKAGE / "core").glob("*.h"))
    names = re.findall(r"\b(?:wsf|WSF)_\w+", (PACKAGE / "_engine" / "core.pxd").read_text())
    assert set(names) <= set(re.findall(r"\b(?:wsf|WSF)_\w+", headers))
