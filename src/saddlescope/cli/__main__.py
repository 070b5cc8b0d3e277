"""`python -m saddlescope.cli`, the same as the command `saddlescope`."""

import sys

from saddlescope.cli import main

if __name__ == "__main__":
    sys.exit(main())
