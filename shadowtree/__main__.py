"""Let `python -m shadowtree` be the command line."""

import sys

from shadowtree.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
