"""The watcher through watchfiles: for macOS, and on Linux where `watcher = "watchfiles"` is set.

watchfiles drops events silently when its queue overflows, and dies of a name that is not UTF-8. So what it
reported counts only if a change of our own, a cookie made last, was reported too; else everything is looked
at. It has no descriptor to wait on.
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
    """What happened and the full path, as watchfiles gives them."""

_ADDED, _DELETED = 1, 3
_RETRY_S = 60.0
"""How long to do without, after an attempt to watch that failed."""
_COOKIE = "cookie-"
_STALE_S = 60.0
"""The age of a cookie that a killed process left behind."""


class WatchfilesWatcher:
    """Watches the whole worktree by rounds.

    Each round makes a cookie, a file in a directory that is watched by the same means, and ends when that is
    reported: what happened before it was reported before it.
    """

    def __init__(self, root: str, cookies: str, limits: Limits = DEFAULT_LIMITS) -> None:
        """Watch the worktree at `root`; `cookies` is a directory outside of it.

        Raise OSError or `Doubt` if that is not possible.
        """
        self._mounts = Mounts(os.fsencode(root)) if IS_LINUX else None
        if self._mounts is not None:
            refuse_foreign(self._mounts)
            if self._mounts.has_inside:
                # A directory that is mounted twice is reported by one of its names.
                raise Doubt("something is mounted inside, which watchfiles does not follow")
        os.makedirs(cookies, 0o700, exist_ok=True)
        self.root = os.path.realpath(root)
        self._cookies = os.path.realpath(cookies)
        self._limits = limits
        self._process = os.getpid()
        self._lock = Lock()
        self._armed: set[RelPath] = set()
        self._paths: set[RelPath] = set()
        self._trees: set[RelPath] = set()
        self._came: set[RelPath] = set()
        """Directories that came since the last `dirty`."""
        self._again: set[RelPath] = set()
        """Directories that came before it: what was made in them at the time may not have been reported."""
        self._writing: dict[RelPath, None] = {}
        """Files that changed last, the newest at the end.

        Nothing says when a file is closed, and a write by a name that is gone is not reported.
        """
        self._doubt: str | None = None
        self._retry_s = 0.0
        """When to try again, if the last try failed."""
        self._is_closed = False
        self._is_reading = False
        """What a round collected is not noted yet. Stays so if Ctrl-C comes in between."""
        self._number = 0
        self._notify: RustNotify | None = None
        _remove_stale(self._cookies)
        self._start()

    @property
    def count(self) -> int:
        """How many directories are watched."""
        return len(self._armed)

    def fileno(self) -> int | None:
        """Watchfiles offers none; to make one we would need a thread in every host."""
        return None

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._is_closed = True
            self._stop("it was closed")
            if self._mounts is not None:
                self._mounts.close()

    def arm(self, path: RelPath, fd: int) -> bool:
        """Report what happens in a directory; the whole worktree is watched already."""
        if IS_LINUX and folds_names(fd):
            self.disarm(path)
            return False
        with self._lock:
            self._armed.add(path)
        return True

    def disarm(self, path: RelPath) -> None:
        """Report nothing of a directory any more."""
        with self._lock:
            self._armed.discard(path)

    def is_armed(self, path: RelPath) -> bool:
        """Whether a directory is watched."""
        return path in self._armed

    def dirty(self) -> Dirty | Rescan:
        """Return the paths at which something may have happened since the last call."""
        is_new = self.drain()
        with self._lock:
            if self._doubt is not None:
                return self._start_anew()
            found = Dirty(self._paths, self._trees | self._again, frozenset(self._writing), is_new)
            self._paths, self._trees, self._came, self._again = set(), set(), set(), self._came
            return found

    def drain(self) -> bool:
        """Make a round, and another one if directories came; True if anything was reported."""
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
                    # What is below them is watched only since they were reported.
                    self._make_round()
                self._is_reading = False
            except Doubt as doubt:
                self._stop(doubt.reason)
                return True
            return has_news

    # Beginning and end

    def _start(self) -> None:
        """Begin to watch; a first round proves that it has begun."""
        self._identity = identify(self.root)
        self._notify = _open_notify(self.root, self._cookies)
        try:
            self._make_round()
        except Doubt as doubt:
            self._stop(doubt.reason)
            raise

    def _start_anew(self) -> Rescan:
        doubt = self._doubt
        assert doubt is not None
        if os.getpid() == self._process and not self._is_closed and monotonic() >= self._retry_s:
            self._retry_s = monotonic() + _RETRY_S
            with suppress(Doubt):
                self._start()
                self._doubt, self._retry_s = None, 0.0
        return Rescan(doubt)

    def _stop(self, reason: str) -> None:
        """Stop watching; nothing that was reported counts any more."""
        self._doubt = self._doubt or reason
        self._armed, self._paths, self._trees = set(), set(), set()
        self._came, self._again, self._writing = set(), set(), {}
        self._is_reading = False
        if self._notify is not None and os.getpid() == self._process:
            self._notify.close()
        self._notify = None

    def _check_place(self) -> None:
        """Raise `Doubt` if what is watched is not what is there now, or the last round was interrupted."""
        if identify(self.root) != self._identity:
            raise Doubt("the directory was replaced")
        if self._mounts is not None and self._mounts.have_changed():
            raise Doubt("something was mounted or unmounted")
        if self._is_reading:
            raise Doubt(INTERRUPTED)

    # Rounds

    def _make_round(self) -> bool:
        """Collect what happened until now; True if anything of interest did."""
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
            except Exception as error:  # whatever it dies of, it stays dead
                raise Doubt(f"watchfiles gave up: {error}") from error
            if told == "signal":
                # It has swallowed what Python raised, and forgotten what it had collected.
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
                # What is gone may have been one.
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
        """Return what a full path means in the worktree; None: its directory is not armed.

        The directory may be reported by the name of a link that leads to it.
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
        if parent in self._armed:
            assert parent is not None
            return join(parent, os.fsencode(name))
        if found is None and IS_LINUX:
            raise Doubt(f"a change reported for {full} may be at another path")
        if not IS_LINUX and not full.isascii():
            raise Doubt(f"{full} may be spelled differently")
        return None

    def _make_relative(self, directory: str) -> RelPath | None:
        """Name a directory relative to the root, also where the root is spelled otherwise; None: outside."""
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
    """Let watchfiles watch some directories, with all below them."""
    try:
        from watchfiles._rust_notify import RustNotify

        # Not to poll, and not to pass over what it must not read: it would pass over all that comes after.
        return RustNotify(
            list(paths),
            debug=False,
            force_polling=False,
            poll_delay_ms=0,
            recursive=True,
            ignore_permission_denied=False,
        )
    except Exception as error:  # a limit, a directory that went, a name that is not UTF-8, no watchfiles
        why = describe(error) if isinstance(error, OSError) else str(error)
        raise Doubt(f"watchfiles cannot watch: {why}") from error


def _remove_stale(cookies: str) -> None:
    """Remove the cookies that killed processes left behind."""
    with suppress(OSError):
        for entry in os.scandir(cookies):
            if entry.name.startswith(_COOKIE) and entry.stat().st_mtime < time() - _STALE_S:
                os.unlink(entry.path)
