"""The command line, ``wsfast`` and ``python -m wsfast``: above the faces, and built on their public names only."""
