"""The watcher that uses watchfiles: on macOS, and on Linux if `watcher = "watchfiles"` is set.

watchfiles drops events silently when its queue overflows, and fails on a name that is not UTF-8. So its
events count only if a change that we make last, the creation of a cookie, is reported too; otherwise
everything is scanned. It has no descriptor to wait on.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from threading import Lock
from time import monotonic, time

from shadowtree.base.errors import describe
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import ROOT, RelPath, is_own_temporary, join
from shadowtree.system.mounts import Mounts
from shadowtree.system.syscalls import IS_LINUX, folds_names
from shadowtree.watching.watcher import INTERRUPTED, Dirty, Doubt, Rescan, identify, refuse_foreign

TYPE_CHECKING = False
if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

    Told = set[tuple[int, str]]
    """The kind and full path of each event, as watchfiles reports them."""

_ADDED, _DELETED = 1, 3
_RETRY_S = 60.0
"""How long to wait after a failed attempt to watch before the next one."""
_COOKIE = "cookie-"
_STALE_S = 60.0
"""Cookies older than this were left behind by killed processes."""


class WatchfilesWatcher:
    """Watches the whole worktree in rounds.

    Each round creates a cookie, a file in a directory that is watched in the same way, and ends when it is
    reported: by then, everything that happened before has been reported too.
    """

    def __init__(self, root: str, cookies: str, limits: Limits = DEFAULT_LIMITS) -> None:
        """Watch the worktree at `root`; `cookies` is a directory outside of it.

        Raise OSError or `Doubt` if that is not possible.
        """
        self._mounts: Mounts | None = None
        os.makedirs(cookies, 0o700, exist_ok=True)
        self.root = os.path.realpath(root)
        self._cookies = os.path.realpath(cookies)
        self._limits = limits
        self._process = os.getpid()
        self._lock = Lock()
        self._watched: set[RelPath] = set()
        self._paths: set[RelPath] = set()
        self._trees: set[RelPath] = set()
        self._came: set[RelPath] = set()
        """Directories that appeared since the last `dirty`."""
        self._again: set[RelPath] = set()
        """Directories that appeared before it: files created in them then may not have been reported."""
        self._writing: dict[RelPath, None] = {}
        """Files that changed last, the newest at the end.

        The closing of a file is not reported, nor is a write through a name that was removed.
        """
        self._doubt: str | None = None
        self._retry_s = 0.0
        """When to try again, if the last try failed."""
        self._is_closed = False
        self._is_reading = False
        """A round is being collected and noted. Stays True if Ctrl-C interrupts that."""
        self._number = 0
        self._notify: RustNotify | None = None
        _remove_stale(self._cookies)
        self._start()

    @property
    def count(self) -> int:
        """How many directories are watched."""
        return len(self._watched)

    def fileno(self) -> int | None:
        """Return None: watchfiles has no descriptor, and making one would take a thread in every host."""
        return None

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._is_closed = True
            self._stop("it was closed")
            self._close_mounts()

    def add_watch(self, path: RelPath, fd: int) -> bool:
        """Report changes in a directory from now on; the whole worktree is watched already."""
        if IS_LINUX and folds_names(fd):
            self.remove_watch(path)
            return False
        with self._lock:
            if self._notify is None:
                return False
            self._watched.add(path)
        return True

    def remove_watch(self, path: RelPath) -> None:
        """Stop reporting changes in a directory."""
        with self._lock:
            self._watched.discard(path)

    def is_watched(self, path: RelPath) -> bool:
        """Return whether a directory is watched."""
        return path in self._watched

    def dirty(self) -> Dirty | Rescan:
        """Return what may have changed since the last call."""
        is_new = self.drain()
        with self._lock:
            if self._doubt is not None:
                return self._start_anew()
            found = Dirty(self._paths, self._trees | self._again, frozenset(self._writing), is_new)
            self._paths, self._trees, self._came, self._again = set(), set(), set(), self._came
            return found

    def drain(self) -> bool:
        """Make a round, and another one if directories appeared; return True if anything was reported."""
        with self._lock:
            if os.getpid() != self._process:
                self._doubt = "another process is watching"
                return True
            if self._notify is None:
                return True
            try:
                self._check_place()
                known = len(self._came)
                self._is_reading = True
                has_news = self._make_round()
                if len(self._came) > known:
                    # Everything below them has been watched only since they were reported.
                    self._make_round()
                self._is_reading = False
            except Doubt as doubt:
                self._stop(doubt.reason)
                return True
            return has_news

    # Starting and stopping

    def _start(self) -> None:
        """Start watching; a first round proves that it works.

        Raise OSError or `Doubt` if that is not possible.
        """
        self._check_mounts()
        self._identity = identify(self.root)
        self._notify = _open_notify(self.root, self._cookies)
        try:
            self._make_round()
        except Doubt as doubt:
            self._stop(doubt.reason)
            raise

    def _check_mounts(self) -> None:
        """Read the mounts; raise `Doubt` if changes in one of them may not be reported."""
        if not IS_LINUX:
            return
        self._close_mounts()
        self._mounts = Mounts(os.fsencode(self.root))
        refuse_foreign(self._mounts)
        if self._mounts.has_inside:
            # A directory that is mounted twice is reported under only one of its names.
            raise Doubt("something is mounted inside, which watchfiles does not follow")

    def _close_mounts(self) -> None:
        mounts, self._mounts = self._mounts, None
        if mounts is not None:
            mounts.close()

    def _start_anew(self) -> Rescan:
        doubt = self._doubt
        assert doubt is not None
        if os.getpid() == self._process and not self._is_closed and monotonic() >= self._retry_s:
            self._retry_s = monotonic() + _RETRY_S
            try:
                self._start()
                self._doubt, self._retry_s = None, 0.0
            except Doubt as refusal:
                doubt = self._doubt = refusal.reason
            except OSError as error:
                doubt = self._doubt = f"the system does not allow watching: {describe(error)}"
        return Rescan(doubt)

    def _stop(self, reason: str) -> None:
        """Stop watching; nothing that was reported counts any more."""
        self._doubt = self._doubt or reason
        self._watched, self._paths, self._trees = set(), set(), set()
        self._came, self._again, self._writing = set(), set(), {}
        self._is_reading = False
        if self._notify is not None and os.getpid() == self._process:
            self._notify.close()
        self._notify = None

    def _check_place(self) -> None:
        """Raise `Doubt` if the directory or its mounts changed, or the last round was interrupted."""
        if identify(self.root) != self._identity:
            raise Doubt("the directory was replaced")
        if self._mounts is not None and self._mounts.have_changed():
            raise Doubt("something was mounted or unmounted")
        if self._is_reading:
            raise Doubt(INTERRUPTED)

    # Rounds

    def _make_round(self) -> bool:
        """Collect all events up to now; return True if any of them matters."""
        self._number += 1
        cookie = f"{_COOKIE}{self._process}-{self._number}-{os.urandom(4).hex()}"
        path = os.path.join(self._cookies, cookie)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            try:
                told = self._collect(cookie)
            finally:
                os.unlink(path)
        except OSError as error:
            raise Doubt(f"a cookie file cannot be created: {describe(error)}") from error
        if len(told) > self._limits.most_watchfiles_paths:
            raise Doubt("too many changes at once")
        return self._take_in(told)

    def _collect(self, cookie: str) -> Told:
        deadline = monotonic() + self._limits.cookie_timeout_s
        found: Told = set()
        while not any(os.path.basename(path) == cookie for _, path in found):
            left_ms = int((deadline - monotonic()) * 1000)
            if self._notify is None or left_ms <= 0:
                raise Doubt("a test change was not reported in time")
            try:
                told = self._notify.watch(1, 1, left_ms, None)
            except Exception as error:  # it does not recover from any error
                raise Doubt(f"watchfiles gave up: {error}") from error
            if told == "signal":
                # watchfiles has swallowed Python's exception, and lost the events that it had collected.
                self._stop("it was interrupted")
                raise KeyboardInterrupt
            if isinstance(told, str):
                raise Doubt("a test change was not reported in time")
            found |= told
        return found

    def _take_in(self, told: Told) -> bool:
        real: dict[str, str | None] = {}
        has_news = False
        for kind, full in told:
            if full == self.root:
                if kind in (_ADDED, _DELETED):
                    raise Doubt("the worktree itself was moved or deleted")
                self._trees.add(ROOT)
                has_news = True
                continue
            path = self._find_place(full, real)
            if path is None or is_own_temporary(os.path.basename(path)):
                continue
            has_news = True
            self._paths.add(path)
            self._writing.pop(path, None)
            try:
                is_directory = stat.S_ISDIR(os.lstat(full).st_mode)
            except OSError:
                # It no longer exists, and may have been a directory.
                self._trees.add(path)
                continue
            if is_directory:
                self._trees.add(path)
                if kind == _ADDED:
                    self._came.add(path)
            else:
                self._writing[path] = None
        while len(self._writing) > self._limits.most_watchfiles_paths:
            del self._writing[next(iter(self._writing))]
        return has_news

    def _find_place(self, full: str, real: dict[str, str | None]) -> RelPath | None:
        """Return a full path relative to the worktree; None if its directory is not watched.

        The directory may be reported under the name of a link to it.
        """
        directory, name = os.path.split(full)
        if directory == self._cookies:
            return None
        if directory not in real:
            try:
                real[directory] = os.path.realpath(directory, strict=True)
            except OSError:
                real[directory] = None
        found = real[directory]
        parent = self._make_relative(directory if found is None else found)
        if parent in self._watched:
            assert parent is not None
            return join(parent, os.fsencode(name))
        if found is None and IS_LINUX:
            raise Doubt(f"a change reported for {full} may be at another path")
        if not IS_LINUX and not full.isascii():
            raise Doubt(f"{full} may be spelled differently")
        return None

    def _make_relative(self, directory: str) -> RelPath | None:
        """Return a directory relative to the root, however the root is spelled; None if it is outside."""
        names: list[str] = []
        above = directory
        while above != self.root:
            if identify(above) == self._identity:
                break
            above, name = os.path.split(above)
            if not name:
                return None
            names.append(name)
        return RelPath(b"/".join(os.fsencode(name) for name in reversed(names)))


def _open_notify(*paths: str) -> RustNotify:
    """Make watchfiles watch some directories, with everything below them."""
    try:
        from watchfiles._rust_notify import RustNotify

        # Do not poll, and do not ignore unreadable directories: everything after them would be ignored too.
        return RustNotify(
            list(paths),
            debug=False,
            force_polling=False,
            poll_delay_ms=0,
            recursive=True,
            ignore_permission_denied=False,
        )
    except Exception as error:  # a limit, a removed directory, a name that is not UTF-8, no watchfiles
        why = describe(error) if isinstance(error, OSError) else str(error)
        raise Doubt(f"watchfiles cannot watch: {why}") from error


def _remove_stale(cookies: str) -> None:
    """Remove the cookies that killed processes left behind."""
    with suppress(OSError):
        for entry in os.scandir(cookies):
            if entry.name.startswith(_COOKIE) and entry.stat().st_mtime < time() - _STALE_S:
                os.unlink(entry.path)
