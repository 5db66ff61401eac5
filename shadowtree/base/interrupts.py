"""Ctrl-C while files are being moved: noted, and raised where it does no harm.

An exception between any two instructions could leave a descriptor that belongs to another directory than
its owner believes. So during an act the signal only sets a mark, which is looked at between two moves. Once
the act is recorded it is done, and nobody is told that it was not.

A signal reaches the main thread alone, so what another thread does is stopped by a flag instead, looked at in
the same places.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from shadowtree.base.errors import ShadowError


class Cancellation:
    """Whether somebody, in whatever thread, wants to have it stopped."""

    def __init__(self) -> None:
        self.is_wanted = False

    def check(self) -> None:
        """Raise what Ctrl-C raises, if it is to be stopped."""
        if self.is_wanted:
            raise KeyboardInterrupt

    def heed(self, progress: Callable[[int, int], None] | None = None) -> Callable[[int, int], None]:
        """Return a progress function that looks at this first."""

        def check_and_tell(done: int, total: int) -> None:
            self.check()
            if progress is not None:
                progress(done, total)

        return check_and_tell


class HeldInterrupts:
    """Holds Ctrl-C back while it is entered; only where Python's own handler is in force."""

    def __init__(self, cancellation: Cancellation) -> None:
        self._is_noted = False
        self._cancellation = cancellation
        self._is_installed = False

    @property
    def is_pending(self) -> bool:
        """Whether somebody pressed Ctrl-C, or wants to have it stopped."""
        return self._is_noted or self._cancellation.is_wanted

    def __enter__(self) -> HeldInterrupts:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # Elsewhere than in the main thread no signal arrives.
            with suppress(ValueError):
                signal.signal(signal.SIGINT, self._note)
                self._is_installed = True
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise what was held back."""
        if self._is_noted:
            self._is_noted = False
            raise KeyboardInterrupt
        self._cancellation.check()

    def _note(self, number: int, frame: object) -> None:
        del number, frame
        self._is_noted = True


@contextmanager
def ending(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` after the body, also when it raises; the body's own error is the one that is raised."""
    try:
        yield
    except BaseException as error:
        try:
            end()
        except ShadowError as failure:
            error.add_note(f"and its end was not recorded: {failure}")
        raise
    end()
