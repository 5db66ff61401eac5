"""Tell a host that something was recorded or undone, by this process or another, from a thread of its own.

The timeline is asked what came after the last number. When to ask is told by inotify, which sees the files of
the store change; where there is none, it is asked twice a second. SQLite makes rows visible a moment after it
has written them, so that after a change it is asked again a few times, at growing distances.
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
    """Lists what happened after a number, and gives the next one; None: how open messages began."""

_POLL_S = 0.5
"""How often a timeline is looked at of which nothing is told."""
_SOON_S = 0.01
"""How soon it is looked at again after a change of which nothing is to be seen yet."""
_LONGEST_S = 5.0
"""How long nothing is looked at, though nothing is told: another machine may have written."""
_KNOWN = 100
"""How many begins are known to be told."""
_PASSING = (Locked, OutOfSpace, StoreFailed)
"""What may be over when the timeline is looked at the next time."""


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
        """The begins that were told. They are listed again while they could be dropped."""
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
            # What the body raised is what matters.
            if error is None:
                raise

    def close(self) -> None:
        """End it; no call is made afterwards. Raise what ended it before, unless `on_error` was told."""
        if not self._closed.is_set():
            self._closed.set()
            # The other end can be read then, and whoever waits for it goes on.
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
            except BaseException as error:  # noqa: BLE001  # whatever it is, the host is told
                self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Report what ended it, or keep that for `close`."""
        if self._on_error is None:
            self._error = error
            return
        try:
            self._on_error(error)
        except BaseException as raised:  # noqa: BLE001  # nobody else would be told
            self._error = raised

    def _tell_all(self) -> None:
        pause_s = _SOON_S
        while not self._closed.is_set():
            # Watched before it is read, so that nothing comes in between.
            longest_s = _LONGEST_S if self._watch() else _POLL_S
            updates = self._read_new()
            for update in updates:
                if self._closed.is_set():
                    return
                self._callback(update)
            pause_s = _SOON_S if self._wait(pause_s) or updates else min(3 * pause_s, longest_s)

    def _read_new(self) -> list[Update]:
        """Read what was not told yet."""
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
        """Watch the store, if it is there and this system can; return whether it is watched."""
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
        """Wait for a change in the store, or for so long; return whether there was one."""
        fds = [self._wake] if self._inotify is None else [self._wake, self._inotify.fileno()]
        ready, _, _ = select.select(fds, [], [], seconds)
        if self._inotify is None or self._inotify.fileno() not in ready:
            return False
        if any(not name for _, _, name in list(self._inotify.read())):
            # Something happened to the store itself: it is moved, or gone, or too much was told.
            self._unwatch()
        return True
