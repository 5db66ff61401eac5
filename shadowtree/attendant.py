"""Reads ahead for a watched worktree, in a thread of its own.

    asleep ──something is told──▶ waits until it is quiet ──▶ reads ahead ──▶ rests, then sleeps again

It only ever saves the next record some work: whatever goes wrong here, that finds everything as it was, and
does without. It takes no lock of the store, and waits for nobody.
"""

from __future__ import annotations

import os
import select
from _thread import RLock
from contextlib import suppress
from threading import Lock, Thread, current_thread
from time import monotonic
from weakref import WeakSet, finalize, ref

from shadowtree.capture import read_ahead
from shadowtree.errors import ShadowError
from shadowtree.gate import Gate
from shadowtree.system import O_CLOEXEC

_QUIET_S = 0.03
"""How long nothing must be told, at first; where more and more is, longer and longer."""
_LONGEST_QUIET_S = 1.0
_SHARE = 20
"""It rests for so many times as long as it has worked."""


class Attendant:
    """Keeps one watched worktree read ahead, once something was recorded, until it is dismissed."""

    def __init__(self, gate: Gate, mutex: RLock) -> None:
        self._gate = gate
        self._mutex = mutex
        """Of those who use the shadow."""
        self._bell: _Bell | None = None
        self._thread: Thread | None = None
        self._turn = -1
        self.is_retired = False
        """Somebody else looks after what is told."""
        self.at_work = Lock()
        """Held while it reads: nobody forks in between."""
        _attendants.add(self)

    def attend(self) -> None:
        """Begin, or go on if everything was looked at anew, since that may have brought another watcher."""
        turn = 0 if self._gate.watch is None else self._gate.watch.rescans
        if turn == self._turn or self.is_retired or self.fileno() is None:
            return
        self._turn = turn
        if self._thread is not None and self._thread.is_alive() and self._bell is not None:
            self._bell.ring()
            return
        self._bell = _Bell()
        self._thread = Thread(
            target=_attend, args=(ref(self), self._bell), name="shadowtree attendant", daemon=True
        )
        # A shadow that nobody closed leaves no thread either.
        finalize(self, self._bell.ring)
        self._thread.start()

    def dismiss(self) -> None:
        """End the thread; `attend` begins anew."""
        thread, bell = self._thread, self._bell
        self._thread, self._bell, self._turn = None, None, -1
        if thread is not None and bell is not None and thread.is_alive():
            bell.is_last = True
            bell.ring()
            if thread is not current_thread():
                thread.join()

    def fileno(self) -> int | None:
        """Give the descriptor of the watcher's queue, if there is one."""
        fd = None if self._gate.watch is None else self._gate.watch.fileno()
        return fd if fd is not None and fd >= 0 else None

    def hear(self) -> bool:
        """Take in what was told; tell whether anything was."""
        return self._gate.watch is not None and self.fileno() is not None and self._gate.watch.drain()

    def read_ahead(self) -> bool:
        """Read ahead, unless somebody is at work; tell whether the next record finds it done."""
        with self.at_work:
            if not self._mutex.acquire(blocking=False):
                return False
            try:
                opened = self._gate.at_rest()
                return opened is not None and read_ahead(self._gate.site, opened)
            except ShadowError:
                # Whoever records meets it too, and tells.
                return False
            finally:
                self._mutex.release()


class _Bell:
    """Wakes one thread."""

    def __init__(self) -> None:
        self._mouth, self._rope = os.pipe2(os.O_NONBLOCK | O_CLOEXEC)
        self._lock = Lock()
        """Nobody rings when it is closed: the number of the rope may be another's by then."""
        self._is_closed = False
        self.is_last = False
        """There is nothing more to do."""

    def ring(self) -> None:
        """Wake it."""
        with self._lock, suppress(OSError):
            if not self._is_closed:
                os.write(self._rope, b"\0")

    def wait(self, fd: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until it rings, or something can be read from `fd`, or time is over; True: it rang."""
        poll = select.poll()
        poll.register(self._mouth, select.POLLIN)
        if fd is not None:
            poll.register(fd, select.POLLIN)
        found = {number for number, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}
        if self._mouth not in found:
            return False
        with suppress(BlockingIOError):
            os.read(self._mouth, 4096)
        return True

    def close(self) -> None:
        """Be of no more use."""
        with self._lock:
            self._is_closed = True
            # A host may have closed them without a word, and all its other files too.
            for fd in (self._mouth, self._rope):
                with suppress(OSError):
                    os.close(fd)


def _attend(attendant: ref[Attendant], bell: _Bell) -> None:
    """Be the thread. Between two steps it holds nothing but the bell, so that a shadow can be dropped."""
    try:
        while not bell.is_last and _step(attendant, bell):
            pass
    except Exception:  # noqa: BLE001  # a bug: the next record does the same, and shows it to somebody
        return
    finally:
        bell.close()


def _step(attendant: ref[Attendant], bell: _Bell) -> bool:
    """Wait for something to be told, and then for quiet, and read ahead; False: there is no shadow left."""
    someone = attendant()
    if someone is None:
        return False
    fd = someone.fileno()
    del someone
    if bell.wait(fd):
        return True
    pause_s, has_heard = _QUIET_S, False
    while not bell.wait(timeout_s=pause_s):
        someone = attendant()
        if someone is None:
            return False
        if not someone.hear():
            if has_heard:
                begun_s = monotonic()
                someone.read_ahead()
                del someone
                bell.wait(timeout_s=_SHARE * (monotonic() - begun_s))
            return True
        del someone
        has_heard = True
        pause_s = min(2 * pause_s, _LONGEST_QUIET_S)
    return True


# Forks

_attendants: WeakSet[Attendant] = WeakSet()
_held: list[Attendant] = []


def _hold_all() -> None:
    """Let nobody fork while a thread that the child will not have holds what the child needs."""
    _held.extend(_attendants)
    for attendant in _held:
        attendant.at_work.acquire()


def _release_all() -> None:
    while _held:
        _held.pop().at_work.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_release_all, after_in_child=_release_all)
