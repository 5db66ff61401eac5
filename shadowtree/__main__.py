"""Run the command line for `python -m shadowtree`."""

import sys

from shadowtree.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
