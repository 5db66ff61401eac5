"""Notify a host, from a separate thread, when this or another process records or undoes something.

Updates after the last known number are read from the timeline. inotify triggers a read when the files of the
store change; without it, the timeline is read twice a second. SQLite makes rows visible shortly after it has
written them, so after a change the timeline is read a few more times, at growing intervals.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import ExitStack

from shadowtree.base.errors import Locked, NotWrapped, OutOfSpace, StoreFailed
from shadowtree.results.messages import Update
from shadowtree.system.inotify import Inotify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

    OnUpdate = Callable[[Update], object]
    OnError = Callable[[BaseException], object]
    ReadUpdates = Callable[[int | None], tuple[int, list[Update]]]
    """Returns the next number, and the updates after a number; for None, the begins of open messages."""

_POLL_S = 0.5
"""How often the timeline is read if inotify is not available."""
_SOON_S = 0.01
"""How soon the timeline is read again after a change that is not visible yet."""
_LONGEST_S = 5.0
"""The longest time between two reads if inotify reports nothing: another machine may have written."""
_KNOWN = 100
"""How many reported begins are remembered."""
_PASSING = (Locked, OutOfSpace, StoreFailed)
"""Errors that may be over at the next read."""


class Subscription:
    """Calls a function for each update, until `close`. Also a context manager."""

    def __init__(
        self,
        store: str,
        read: ReadUpdates,
        callback: OnUpdate,
        after: int | None,
        on_error: OnError | None,
        release: Callable[[], object],
    ) -> None:
        self._store = store
        self._read = read
        self._callback = callback
        self._on_error = on_error
        self._release = release
        self._error: BaseException | None = None
        settled, begun = self._read_if_there(None)
        self._number = settled if after is None else min(after, settled)
        self._begun = [update for update in begun if after is None or update.number <= after]
        """The begins that were reported. They are listed again as long as their messages may be dropped."""
        self._closed = threading.Event()
        self._wake, self._waker = os.pipe()
        self._inotify: Inotify | None = None
        self._thread = threading.Thread(target=self._run, name="shadowtree-subscription", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, *rest: object) -> None:
        try:
            self.close()
        except BaseException:
            # The exception of the body matters more.
            if error is None:
                raise

    def close(self) -> None:
        """End the subscription; no call follows. Raise the error that ended it, unless `on_error` got it."""
        if not self._closed.is_set():
            self._closed.set()
            # This makes the other end readable, which wakes the thread that waits for it.
            os.close(self._waker)
            if threading.current_thread() is not self._thread:
                self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        with ExitStack() as stack:
            stack.callback(os.close, self._wake)
            stack.callback(self._release)
            stack.callback(self._unwatch)
            try:
                self._tell_all()
            except BaseException as error:  # noqa: BLE001  # any error is reported to the host
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Report the error that ended the subscription, or keep it for `close`."""
        if self._on_error is None:
            self._error = error
            return
        try:
            self._on_error(error)
        except BaseException as raised:  # noqa: BLE001  # it would be lost otherwise
            self._error = raised

    def _tell_all(self) -> None:
        pause_s = _SOON_S
        while not self._closed.is_set():
            # Watch before reading, so that no change is missed in between.
            longest_s = _LONGEST_S if self._watch() else _POLL_S
            updates = self._read_new()
            for update in updates:
                if self._closed.is_set():
                    return
                self._callback(update)
            pause_s = _SOON_S if self._wait(pause_s) or updates else min(3 * pause_s, longest_s)

    def _read_new(self) -> list[Update]:
        """Read the updates that were not reported yet."""
        try:
            self._number, listed = self._read_if_there(self._number)
        except _PASSING:
            return []
        updates = [update for update in listed if update not in self._begun]
        self._begun += [update for update in updates if update.kind == "begin"]
        del self._begun[:-_KNOWN]
        return updates

    def _read_if_there(self, after: int | None) -> tuple[int, list[Update]]:
        try:
            return self._read(after)
        except NotWrapped:
            return 0, []

    # Waiting

    def _watch(self) -> bool:
        """Watch the store, if it exists and the system supports that; return whether it is watched."""
        if self._inotify is None:
            try:
                fd = os.open(self._store, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:
                return False
            try:
                self._inotify = Inotify()
                self._inotify.add(fd)
            except OSError:
                self._unwatch()
            finally:
                os.close(fd)
        return self._inotify is not None

    def _unwatch(self) -> None:
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            inotify.close()

    def _wait(self, seconds: float) -> bool:
        """Wait up to `seconds` for a change in the store; return whether there was one."""
        fds = [self._wake] if self._inotify is None else [self._wake, self._inotify.fileno()]
        ready, _, _ = select.select(fds, [], [], seconds)
        if self._inotify is None or self._inotify.fileno() not in ready:
            return False
        if any(not name for _, _, name in list(self._inotify.read())):
            # The store itself was moved or removed, or the queue overflowed.
            self._unwatch()
        return True
