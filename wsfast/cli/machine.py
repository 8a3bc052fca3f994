"""Facts about this machine and this Python, for reports. They are read from the system, never guessed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["available", "processor", "read", "summary", "version_of"]


def version_of(distribution: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def read(path: str) -> str | None:
    """The first line of a file of the system, or None if there is none."""
    try:
        return Path(path).read_text().split("\n", 1)[0].strip()
    except (OSError, UnicodeDecodeError):
        return None


def processor() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def available() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def summary() -> dict[str, Any]:
    """Machine, kernel and Python: only figures with the same facts can be compared."""
    return {
        "processor": processor(),
        "processors": available(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load": round(os.getloadavg()[0], 2),
    }
