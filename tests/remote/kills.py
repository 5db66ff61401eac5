"""Kills at an exact write."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def kill_at(step: int) -> None:
    """Kill this process before its nth change of the disk, as far as Python makes it."""
    left = [step]

    def count(function: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **named: object) -> object:
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return function(*arguments, **named)

        return counted

    for name in ("fsync", "rename", "link", "unlink", "replace", "rmdir"):
        setattr(os, name, count(getattr(os, name)))
