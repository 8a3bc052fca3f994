"""The engine: the code that runs once per frame, compiled. Begin with transport.pyx: its text lists the
classes, and says which object refers to which."""

from pathlib import Path

try:
    from wsfast._engine.transport import WSListener as WSListener
    from wsfast._engine.transport import WSTransport as WSTransport
except ModuleNotFoundError as exc:
    if exc.name != "wsfast._engine.transport":
        raise
    tree = Path(__file__).parents[2]
    raise ImportError(
        f"Python imports wsfast from its source tree, {tree}, where nothing is compiled. Start Python in another "
        "directory to import the installed wsfast, or compile the tree: pip install --editable ."
        if (tree / "setup.py").exists()
        else "wsfast's compiled engine is missing: its build failed. wsfast has no pure-Python fallback; see the "
        "output of 'pip install --verbose .', which needs a C compiler and Rust"
    ) from exc
except ImportError as exc:
    if "interpreter" not in str(exc):
        raise
    raise ImportError(
        "wsfast can be imported in one interpreter of a process, and another one has it already"
    ) from exc
