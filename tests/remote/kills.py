"""Kills at exact moments."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable


def kill_at(step: int) -> None:
    """Kill this process before it changes the disk for the nth time, whoever does it in Python."""
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
