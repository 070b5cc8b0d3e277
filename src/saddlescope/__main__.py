"""Module form of the command `saddlescope`: `python -m saddlescope`."""

import sys

from saddlescope.cli import main

if __name__ == "__main__":
    sys.exit(main())
