"""A progress bar for work that takes over a second: on standard error, on a terminal only."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType

from shadowtree.cli.output import can_steer

PATIENCE_S = 1.0
"""Nothing is shown before that."""
REDRAW_S = 0.1
WIDTH = 30


class ProgressBar:
    """Call it with how much is done; as a context manager it leaves a clean line behind."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._is_wanted = can_steer(sys.stderr)
        self._next_draw = monotonic() + PATIENCE_S
        self._is_drawn = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_drawn:
            _draw("\r\x1b[K")

    def __call__(self, done: int, total: int) -> None:
        """Show that `done` of `total` is done, if it is time to."""
        if not self._is_wanted or total <= 0 or monotonic() < self._next_draw:
            return
        self._next_draw = monotonic() + REDRAW_S
        self._is_drawn = True
        filled = WIDTH * min(done, total) // total
        bar = "#" * filled + "-" * (WIDTH - filled)
        _draw(f"\r{self._label} [{bar}] {done:,} of {total:,}\x1b[K")


def _draw(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
