"""Processes of their own for shadowtree: the command line, and surroundings in which it is this very one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import shadowtree

PACKAGE_PLACE = str(Path(shadowtree.__file__).parents[1])
COMMAND = [sys.executable, "-m", "shadowtree"]


def surroundings(**variables: str) -> dict[str, str]:
    """Give the environment of this process, with the package on the path and these variables set."""
    return {**os.environ, "PYTHONPATH": PACKAGE_PLACE, **variables}
