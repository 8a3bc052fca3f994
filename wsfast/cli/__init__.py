"""The command line, ``wsfast`` and ``python -m wsfast``: above the faces, which do not know it."""
