"""The fault point: where the tests count, fail or kill at each write, whoever makes it.

Callers look it up anew at each call (`faultpoint.before_write(...)`), so that one assignment reaches all.
"""

from __future__ import annotations

from collections.abc import Callable


def _no_fault(act: str, path: str) -> None:
    """Stand in for the fault layer of the tests."""


before_write: Callable[[str, str], None] = _no_fault
"""Called with the act and the path before each mutating call."""
