"""Ctrl-C while an act moves files: noted when it comes, raised where it does no harm.

KeyboardInterrupt can come between any two instructions, and could leave a descriptor open on a different
directory than its owner believes. So during an act, the signal only sets a flag, which is checked between
two moves. Once the act is recorded it is done, and Ctrl-C can no longer make it fail (invariant 11).

Only the main thread receives signals. Work in another thread is stopped by a second flag, which is checked
in the same places.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from shadowtree.base.errors import ShadowError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType


class Cancellation:
    """A flag by which any thread can ask for work to be stopped."""

    def __init__(self) -> None:
        self.is_wanted = False

    def take(self) -> bool:
        """Return whether the work is to be stopped, once: later work is not."""
        is_wanted, self.is_wanted = self.is_wanted, False
        return is_wanted

    def check(self) -> None:
        """Raise KeyboardInterrupt if the work is to be stopped."""
        if self.take():
            raise KeyboardInterrupt

    def heed(self, progress: Callable[[int, int], None] | None = None) -> Callable[[int, int], None]:
        """Return a progress function that calls `check` before it reports."""

        def check_and_tell(done: int, total: int) -> None:
            self.check()
            if progress is not None:
                progress(done, total)

        return check_and_tell


class UntilDone:
    """The handler of a program that only reports after an act: it raises KeyboardInterrupt until then.

    Once the act is recorded, Ctrl-C is ignored: the exit code must not say that nothing was changed.
    """

    def __call__(self, number: int, frame: object) -> None:
        """Raise KeyboardInterrupt, as Python's own handler does."""
        raise KeyboardInterrupt


def ignore_once_done() -> None:
    """Install `UntilDone` in place of Python's own handler: once the next act is recorded, ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        with suppress(ValueError):  # not the main thread: no signal arrives here
            signal.signal(signal.SIGINT, UntilDone())


class HeldInterrupts:
    """Holds Ctrl-C back inside a `with` block, if Python's default handler or `UntilDone` is installed."""

    def __init__(self, cancellation: Cancellation) -> None:
        self._is_noted = False
        self._cancellation = cancellation
        self._usual: UntilDone | Callable[[int, FrameType | None], object] | None = None
        self.is_done = False
        """The act is recorded."""

    @property
    def is_pending(self) -> bool:
        """Whether Ctrl-C was pressed, or the work is to be stopped."""
        return self._is_noted or self._cancellation.is_wanted

    def __enter__(self) -> HeldInterrupts:
        usual = signal.getsignal(signal.SIGINT)
        if usual is signal.default_int_handler or isinstance(usual, UntilDone):
            # ValueError: this is not the main thread, so no signal arrives here.
            with suppress(ValueError):
                signal.signal(signal.SIGINT, self._note)
                self._usual = usual
        return self

    def __exit__(self, *exc: object) -> None:
        if self._usual is not None:
            is_over = self.is_done and isinstance(self._usual, UntilDone)
            signal.signal(signal.SIGINT, signal.SIG_IGN if is_over else self._usual)

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was held back, or the work is to be stopped."""
        if self._is_noted:
            self._is_noted = False
            raise KeyboardInterrupt
        self._cancellation.check()

    def _note(self, number: int, frame: object) -> None:
        del number, frame
        self._is_noted = True


@contextmanager
def ending(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` after the body, even if the body raises; the body's error takes precedence."""
    try:
        yield
    except BaseException as error:
        try:
            end()
        except ShadowError as failure:
            error.add_note(f"and its end was not recorded: {failure}")
        raise
    end()
