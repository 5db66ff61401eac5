"""For code that might never return: it is stopped, and the test fails, long after it should have returned."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE_S = 60
"""Seconds of processor time; on an idle machine, tests that pass take three at most."""


@contextmanager
def comes_back() -> Iterator[None]:
    """Fail if the body does not return in time; only processor time of this process counts, not waiting."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise AssertionError("it does not come back")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
