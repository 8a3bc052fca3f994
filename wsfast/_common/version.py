"""The version, which pyproject.toml reads here: importlib.metadata takes longer to import than most of this package."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
