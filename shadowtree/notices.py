"""What watchfiles tells: it wakes who waits for changes, and it watches where the kernel cannot be asked.

It loses events without a word when its queue runs over, and dies of a name that is no UTF-8. So a `Waker` is
never the truth, only a reason to look; and a `NoticeWatcher` relies on what was told only if a change of its
own, made last, was told too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from threading import Event, Lock
from time import monotonic, time

from shadowtree.errors import describe
from shadowtree.paths import ROOT, RelPath, is_own_temporary, join
from shadowtree.system import IS_LINUX, O_CLOEXEC
from shadowtree.watcher import INTERRUPTED, BlindWatcher, Dirty, Rescan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

    from shadowtree.watcher import Watcher

    Told = set[tuple[int, str]]
    """What happened and the full path, as watchfiles gives them."""

_ADDED, _DELETED = 1, 3
_STEP_MS = 10, 250
"""How often a waker looks whether it was told something, at most and at least."""
_PATIENCE_S = 2.0
"""How long to wait for the notice of a change of our own."""
_MOST_PATHS = 4000
"""With more in one round some may have been lost."""
_RETRY_S = 60.0
"""How long to do without, after an attempt to watch that failed."""
_COOKIE = "cookie-"
_STALE_S = 60.0
"""The age of a cookie that somebody left behind."""


class Waker:
    """Waits until something happens in some directories; each has to be named, those below are not watched.

    For one thread at a time. `stop` may be set by any, and ends the waiting within a moment.
    """

    def __init__(self, directories: Sequence[str], stop: Event | None = None) -> None:
        self._is_own_stop = stop is None
        self._stop = Event() if stop is None else stop
        self._notify: RustNotify | None = None
        if directories:
            try:
                self._notify = _open_notify(directories, is_recursive=False)
            except _Doubt:
                self._notify = None

    @property
    def is_blind(self) -> bool:
        """Whether it cannot say anything, because the system refused or watchfiles gave up."""
        return self._notify is None

    def wait(self, timeout_s: float) -> bool:
        """Wait for something to happen, for the time to pass, or for a stop; True: something happened.

        One that is blind lets the time pass.
        """
        if self._notify is None:
            self._stop.wait(timeout_s)
            return False
        shortest_ms, longest_ms = _STEP_MS
        step_ms = min(max(shortest_ms, int(timeout_s * 250)), longest_ms)
        try:
            told = self._notify.watch(step_ms, step_ms, max(1, int(timeout_s * 1000)), self._stop)
        except Exception:  # noqa: BLE001  # whatever it dies of, it stays dead
            self._drop()
            return False
        return isinstance(told, set)

    def close(self) -> None:
        """Watch nothing any more."""
        if self._is_own_stop:
            self._stop.set()
        self._drop()

    def _drop(self) -> None:
        if self._notify is not None:
            self._notify.close()
            self._notify = None


class NoticeWatcher:
    """The watcher for systems that offer no queue to read: macOS and Windows.

    It works by rounds. Each begins with a cookie, a file that is made in a directory watched by the same
    means, and ends when that is told: what happened before it was told before it.
    """

    def __init__(self, root: str, cookies: str) -> None:
        """Watch the worktree at `root`; `cookies` is a directory outside of it.

        Raise OSError if that is not possible.
        """
        os.makedirs(cookies, 0o700, exist_ok=True)
        self._root = os.path.realpath(root)
        self._cookies = os.path.realpath(cookies)
        self._process = os.getpid()
        self._lock = Lock()
        self._armed: set[RelPath] = set()
        self._paths: set[RelPath] = set()
        self._trees: set[RelPath] = set()
        self._came: set[RelPath] = set()
        """Directories that came since the last `dirty`."""
        self._again: set[RelPath] = set()
        """Directories that came before it: what was made in them at the time may not have been told."""
        self._doubt: str | None = None
        self._retry_s = 0.0
        """When to try again, if the last try failed."""
        self._is_closed = False
        self._is_reading = False
        """What was told in a round is not noted yet. Stays so if Ctrl-C comes in between."""
        self._number = 0
        self._notify: RustNotify | None = None
        _remove_stale(self._cookies)
        try:
            self._start()
        except _Doubt as doubt:
            raise OSError(doubt.reason) from doubt

    @property
    def count(self) -> int:
        """How many directories are watched."""
        return len(self._armed)

    def fileno(self) -> int | None:
        """Have none: who wants to be woken takes a `Waker`."""
        return None

    def close(self) -> None:
        """Watch nothing any more."""
        with self._lock:
            self._is_closed = True
            self._stop("it was closed")

    def arm(self, path: RelPath, fd: int) -> bool:
        """Take notice of what happens in a directory; the whole worktree is watched already."""
        del fd
        with self._lock:
            self._armed.add(path)
        return True

    def disarm(self, path: RelPath) -> None:
        """Take no notice of what happens in a directory."""
        with self._lock:
            self._armed.discard(path)

    def is_armed(self, path: RelPath) -> bool:
        """Tell whether notice is taken of what happens in a directory."""
        return path in self._armed

    def dirty(self) -> Dirty | Rescan:
        """Tell where something may have happened since the last call."""
        is_new = self.drain()
        with self._lock:
            if self._doubt is not None:
                return self._start_anew()
            found = Dirty(self._paths, self._trees | self._again, is_new=is_new)
            self._paths, self._trees, self._came, self._again = set(), set(), set(), self._came
            return found

    def drain(self) -> bool:
        """Make a round, and another one if directories came; tell whether anything was told."""
        with self._lock:
            if os.getpid() != self._process:
                self._doubt = "another process watches"
                return True
            if self._notify is None:
                return True
            try:
                self._check_root()
                if self._is_reading:
                    raise _Doubt(INTERRUPTED)
                known = len(self._came)
                self._is_reading = True
                has_news = self._make_round()
                if len(self._came) > known:
                    # What is below them is watched only since they were told.
                    self._make_round()
                self._is_reading = False
            except _Doubt as doubt:
                self._stop(doubt.reason)
                return True
            return has_news

    # Beginning and end

    def _start(self) -> None:
        """Begin to watch; a first round proves that it has begun."""
        self._identity = _identify(self._root)
        self._notify = _open_notify([self._root, self._cookies], is_recursive=True)
        try:
            self._make_round()
        except _Doubt as doubt:
            self._stop(doubt.reason)
            raise

    def _start_anew(self) -> Rescan:
        doubt = self._doubt
        assert doubt is not None
        if os.getpid() == self._process and not self._is_closed and monotonic() >= self._retry_s:
            self._retry_s = monotonic() + _RETRY_S
            with suppress(_Doubt):
                self._start()
                self._doubt, self._retry_s = None, 0.0
        return Rescan(doubt)

    def _stop(self, reason: str) -> None:
        """Watch no longer; all that was told is worth nothing then."""
        self._doubt = self._doubt or reason
        self._armed, self._paths, self._trees = set(), set(), set()
        self._came, self._again = set(), set()
        self._is_reading = False
        if self._notify is not None and os.getpid() == self._process:
            self._notify.close()
        self._notify = None

    def _check_root(self) -> None:
        if _identify(self._root) != self._identity:
            raise _Doubt("another directory is in its place")

    # Rounds

    def _make_round(self) -> bool:
        """Collect what happened until now; tell whether anything of interest did."""
        self._number += 1
        cookie = f"{_COOKIE}{self._process}-{self._number}-{os.urandom(4).hex()}"
        path = os.path.join(self._cookies, cookie)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | O_CLOEXEC, 0o600))
            try:
                told = self._collect(cookie)
            finally:
                os.unlink(path)
        except OSError as error:
            raise _Doubt(f"no cookie can be made: {describe(error)}") from error
        if len(told) > _MOST_PATHS:
            raise _Doubt("more happened at once than can be told")
        return self._take_in(told)

    def _collect(self, cookie: str) -> Told:
        deadline = monotonic() + _PATIENCE_S
        found: Told = set()
        while not any(os.path.basename(path) == cookie for _, path in found):
            left_ms = int((deadline - monotonic()) * 1000)
            if self._notify is None or left_ms <= 0:
                raise _Doubt("a change of our own was not told in time")
            try:
                told = self._notify.watch(1, 1, left_ms, None)
            except Exception as error:  # whatever it dies of, it stays dead
                raise _Doubt(f"watchfiles gave up: {error}") from error
            if told == "signal":
                # It has swallowed what Python raised, and forgotten what it had been told.
                self._stop("it was interrupted")
                raise KeyboardInterrupt
            if isinstance(told, str):
                raise _Doubt("a change of our own was not told in time")
            found |= told
        return found

    def _take_in(self, told: Told) -> bool:
        real: dict[str, str | None] = {}
        has_news = False
        for kind, full in told:
            if full == self._root:
                self._take_in_root(kind)
                has_news = True
                continue
            path = self._find_place(full, real)
            if path is None or is_own_temporary(os.path.basename(path)):
                continue
            has_news = True
            self._paths.add(path)
            status = _look(full)
            if status is None or stat.S_ISDIR(status.st_mode):
                # What is gone may have been one.
                self._trees.add(path)
            if kind == _ADDED and status is not None and stat.S_ISDIR(status.st_mode):
                self._came.add(path)
        return has_news

    def _take_in_root(self, kind: int) -> None:
        if kind in (_ADDED, _DELETED):
            raise _Doubt("the worktree itself was moved or deleted")
        self._trees.add(ROOT)

    def _find_place(self, full: str, real: dict[str, str | None]) -> RelPath | None:
        """Name what a full path means in the worktree; None: nobody asked about that directory.

        The directory may be told by the name of a link that leads to it.
        """
        directory, name = os.path.split(full)
        if directory == self._cookies:
            return None
        if directory not in real:
            real[directory] = _resolve(directory)
        found = real[directory]
        parent = self._make_relative(directory if found is None else found)
        if parent in self._armed:
            assert parent is not None
            return join(parent, os.fsencode(name))
        if found is None and IS_LINUX:
            raise _Doubt(f"what was told of {full} may mean another path")
        if not IS_LINUX and not full.isascii():
            raise _Doubt(f"{full} may be spelled otherwise")
        return None

    def _make_relative(self, directory: str) -> RelPath | None:
        """Name a directory relative to the root, also where the root is spelled otherwise; None: outside."""
        names: list[str] = []
        above = directory
        while above != self._root:
            if _identify(above) == self._identity:
                break
            above, name = os.path.split(above)
            if not name:
                return None
            names.append(name)
        return RelPath(b"/".join(os.fsencode(name) for name in reversed(names)))


def renew_notices(old: Watcher | None, root: str, cookies: str) -> Watcher:
    """Begin to watch, or go on with one that begins anew by itself; a blind one stands in while it cannot be.

    The directory of cookies is in the store, which a worktree that is not wrapped has not yet.
    """
    if isinstance(old, NoticeWatcher):
        return old
    if not os.path.isdir(os.path.dirname(cookies)):
        return BlindWatcher("it is not wrapped yet")
    try:
        return NoticeWatcher(root, cookies)
    except OSError as error:
        return BlindWatcher(describe(error))


class _Doubt(Exception):
    """Nothing that was told can be relied on."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def _open_notify(paths: Sequence[str], *, is_recursive: bool) -> RustNotify:
    """Let watchfiles watch some directories."""
    try:
        from watchfiles._rust_notify import RustNotify

        # Not to poll, and not to pass over what it must not read: it would pass over all that comes after.
        return RustNotify(
            list(paths),
            debug=False,
            force_polling=False,
            poll_delay_ms=0,
            recursive=is_recursive,
            ignore_permission_denied=False,
        )
    except Exception as error:  # a limit, a directory that went, a name that is no UTF-8, no watchfiles
        why = describe(error) if isinstance(error, OSError) else str(error)
        raise _Doubt(f"watchfiles cannot watch: {why}") from error


def _remove_stale(cookies: str) -> None:
    """Remove the cookies that processes left which were killed."""
    with suppress(OSError):
        for entry in os.scandir(cookies):
            if entry.name.startswith(_COOKIE) and entry.stat().st_mtime < time() - _STALE_S:
                os.unlink(entry.path)


def _resolve(directory: str) -> str | None:
    try:
        return os.path.realpath(directory, strict=True)
    except OSError:
        return None


def _look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _identify(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
