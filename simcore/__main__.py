"""`python -m simcore` is the same as `simcore`."""

import sys

from simcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
