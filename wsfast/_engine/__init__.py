"""The engine: the code that runs once per frame, compiled. transport.pyx is its head, and says who owns what.

The engine calls aiofastnet through C structures. Their layout may change from one minor version to the next, so the
installed aiofastnet must be of the version that the engine was compiled for.
"""

from pathlib import Path

import aiofastnet

# The minor version in pyproject.toml; a test compares the two.
AIOFASTNET = "1.2"

if aiofastnet.__version__.split(".")[:2] != AIOFASTNET.split("."):
    raise ImportError(
        f"wsfast was compiled for aiofastnet {AIOFASTNET}.x, and aiofastnet {aiofastnet.__version__} is installed: "
        f"pip install 'aiofastnet=={AIOFASTNET}.*'"
    )

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
        "output of 'pip install --verbose wsfast', which needs a C compiler and Rust"
    ) from exc
