"""For what could go on for ever: it is stopped, and the test fails, long after it should have come back."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE_S = 60
"""Seconds of processor time; what comes back takes three at worst, on a machine that does nothing else."""


@contextmanager
def comes_back() -> Iterator[None]:
    """Fail if what is done here does not come back. Waiting is not counted, work of this process is."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError("it does not come back")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
