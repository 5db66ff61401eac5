"""Where the cursor goes, and what is visible: numbers in, numbers out."""

from __future__ import annotations

MOVES = frozenset({"up", "down", "page_up", "page_down", "home", "end"})
"""The names of keys that move the cursor."""
LETTERS = {"k": "up", "j": "down", "g": "home", "G": "end", " ": "page_down"}
"""The other keys that move the cursor, unless they mean something else."""

_AROUND = 3
"""How many places before and after the cursor stay visible, if possible."""


def move(key: str, at: int, *, total: int, height: int) -> int:
    """Return the place that a key leads to, out of `total` places, of which `height` are visible."""
    page = max(1, height - 1)
    steps = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "home": -at, "end": total}
    return max(0, min(total - 1, at + steps[key]))


def keep_in_sight(top: int, at: int, *, total: int, height: int) -> int:
    """Return the first visible place: as near to `top` as possible, with `at` and its neighbours visible."""
    around = min(_AROUND, (height - 1) // 2)
    last = max(0, total - height)
    return max(0, min(last, max(at + around - height + 1, min(at - around, top))))
