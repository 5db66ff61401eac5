"""Choose some of all cases, different ones with every commit, so that over time all are tried.

The turn is printed at the end of a run; `SHADOWTREE_SWEEP_TURN` repeats it. `tox -e sweep` tries everything.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from functools import cache
from typing import TypeVar

import pytest

from tests.support.processes import PACKAGE_PLACE

T = TypeVar("T")


@cache
def this_turn() -> int:
    """Return the turn: from the environment, or from the commit."""
    told = os.environ.get("SHADOWTREE_SWEEP_TURN")
    if told is not None:
        return int(told)
    done = subprocess.run(
        ["git", "-C", PACKAGE_PLACE, "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return int(done.stdout.strip() or "0", 16) % 1000


def some_or_all(some: int) -> pytest.MarkDecorator:
    """Limit a test to `some` of its cases in the ordinary run; it gets the number as `most`."""
    everything = pytest.param(None, id="all", marks=pytest.mark.slow)
    return pytest.mark.parametrize("most", [pytest.param(some, id="some"), everything])


def choose(cases: Iterable[T], most: int | None) -> list[T]:
    """Choose at most `most` cases, evenly spread; None: all."""
    found = list(cases)
    step = 1 if most is None else max(1, -(-len(found) // most))
    return found[this_turn() % step :: step]
