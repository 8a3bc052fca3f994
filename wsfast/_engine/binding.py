"""Checks, before they are used, that the compiled modules are there and match the library they were compiled against.

The engine calls aiofastnet through C structures, whose layout may change from one minor version to the next.
"""

from __future__ import annotations

import aiofastnet

# The minor version in pyproject.toml; a test compares the two.
AIOFASTNET = "1.2"

if aiofastnet.__version__.split(".")[:2] != AIOFASTNET.split("."):
    raise ImportError(
        f"wsfast was compiled for aiofastnet {AIOFASTNET}.x, and aiofastnet {aiofastnet.__version__} is installed: "
        f"pip install 'aiofastnet=={AIOFASTNET}.*'"
    )

try:
    import wsfast._engine.transport  # noqa: F401
except ModuleNotFoundError as exc:
    if exc.name != "wsfast._engine.transport":
        raise
    raise ImportError(
        "wsfast's compiled engine is missing: its build failed or was not run. wsfast has no slow substitute for it; "
        "see the output of 'pip install --verbose wsfast', which needs a C compiler"
    ) from exc
