"""Ctrl-C while files are being moved: noted, and raised where it does no harm.

An exception between any two instructions could leave a descriptor that belongs to another directory than
its owner believes. So during an act the signal only sets a mark, which is looked at between two moves. Once
the act is recorded it is done, and nobody is told that it was not.
"""

from __future__ import annotations

import signal


class HeldInterrupts:
    """Holds Ctrl-C back while it is entered; only where Python's own handler is in force."""

    def __init__(self) -> None:
        self.is_pending = False
        """Somebody pressed Ctrl-C."""
        self._is_installed = False

    def __enter__(self) -> HeldInterrupts:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, self._note)
                self._is_installed = True
            except ValueError:
                # Not the main thread: no signal arrives here.
                self._is_installed = False
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise what was held back."""
        if self.is_pending:
            self.is_pending = False
            raise KeyboardInterrupt

    def _note(self, number: int, frame: object) -> None:
        del number, frame
        self.is_pending = True
