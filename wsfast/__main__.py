"""``python -m wsfast``: the command line."""

import sys

from wsfast.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
