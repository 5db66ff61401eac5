"""Reads ahead for a watched worktree, in a thread of its own.

    asleep ──something is told──▶ waits until it is quiet ──▶ reads ahead ──▶ rests, then sleeps again

It only ever saves the next record some work: whatever goes wrong here, that finds everything as it was, and
does without. It takes no lock of the store, writes nothing, and waits for nobody who uses the shadow.
"""

from __future__ import annotations

import atexit
import os
import select
from _thread import RLock
from contextlib import suppress
from socket import socketpair
from threading import Thread, current_thread
from time import monotonic
from weakref import WeakSet, finalize, ref

from shadowtree.capture import read_ahead
from shadowtree.errors import ShadowError
from shadowtree.gate import Gate

_QUIET_S = 0.03
"""How long nothing must be told, at first; where more and more is, longer and longer."""
_LONGEST_QUIET_S = 1.0
_SHARE = 20
"""It rests for so many times as long as it has worked."""
_PATIENCE_S = 2.0
"""How long to wait for one that reads ahead, before somebody forks."""


class Attendant:
    """Keeps one watched worktree read ahead, once something was recorded, until it is dismissed."""

    def __init__(self, gate: Gate, mutex: RLock) -> None:
        self._gate = gate
        self._mutex = mutex
        """Of those who use the shadow. `attend` and `dismiss` are for who holds it."""
        self._service: _Service | None = None
        self._turn = -1
        """How often everything had been looked at when it began, or was told of another watcher."""
        self._news: object = None
        self.is_retired = False
        """Somebody else looks after what is told."""
        _attendants.add(self)

    def attend(self) -> None:
        """Begin, or go on if everything was looked at anew, since that may have brought another watcher.

        Whoever has just recorded something cannot be told that no thread can be had: then there is none.
        """
        turn = 0 if self._gate.watch is None else self._gate.watch.rescans
        if turn == self._turn or self.is_retired or _process.is_ending or self.fileno() is None:
            return
        if self._service is not None and self._service.is_alive:
            self._service.ring()
        else:
            with suppress(OSError, RuntimeError):
                self._service = _Service(self)
        self._turn = turn

    def dismiss(self) -> None:
        """End the thread; `attend` begins anew."""
        self._turn = -1
        if self._service is not None:
            self._service.end()
            self._service = None

    def retire(self) -> None:
        """Never read ahead any more, by oneself; the thread ends soon."""
        self.is_retired = True
        service = self._service
        if service is not None:
            service.ring()

    def disown(self) -> None:
        """Be without a thread, in a child that was forked: it has none."""
        service, self._service, self._turn = self._service, None, -1
        if service is not None:
            service.disown()

    def fileno(self) -> int | None:
        """Give the descriptor of the watcher's queue, if there is one."""
        fd = None if self._gate.watch is None else self._gate.watch.fileno()
        return fd if fd is not None and fd >= 0 else None

    def hear(self) -> bool:
        """Take in what was told; tell whether anything was since the last call, whoever took it in."""
        watch = self._gate.watch
        if watch is None or self.fileno() is None:
            return False
        watch.drain()
        known, self._news = self._news, watch.news
        return known is not self._news

    def read_ahead(self) -> bool:
        """Read ahead, for who holds the mutex; tell whether the next record finds it done."""
        try:
            opened = self._gate.at_rest()
            return opened is not None and read_ahead(self._gate.site, opened)
        except ShadowError:
            # Whoever records meets it too, and tells.
            return False

    def read_unless_used(self) -> None:
        """Read ahead, unless somebody is at work. Only for the thread: to it no Ctrl-C comes."""
        with _process.reading:
            if self._mutex.acquire(blocking=False):
                try:
                    self.read_ahead()
                finally:
                    self._mutex.release()


class _Service:
    """The thread of an attendant, and a bell to wake it."""

    def __init__(self, attendant: Attendant) -> None:
        # Not a pipe: should a host close files that are not its own, a byte for one of these numbers cannot
        # end up in one that it opens afterwards.
        self._bell, self._rope = socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        try:
            # Not `poll`, which keeps a queue alive that is closed meanwhile, with all its watches.
            self._poll = select.epoll()
        except OSError:
            self._close_bell()
            raise
        self._poll.register(self._bell, select.EPOLLIN)
        self.is_over = False
        """Whether there is nothing more to do."""
        # A shadow that nobody closed leaves no thread either.
        self._finalizer = finalize(attendant, self.ring)
        self._finalizer.atexit = False
        thread = None
        try:
            self._thread = thread = Thread(
                target=_serve, args=(ref(attendant), self), name="shadowtree attendant", daemon=True
            )
            thread.start()
        except BaseException:
            self._finalizer.detach()
            self.is_over = True
            # One that has begun, before Ctrl-C came, lets go itself.
            if thread is None or thread.ident is None:
                self.close()
            self.ring()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the thread is at its post."""
        return self._thread.is_alive()

    def ring(self) -> None:
        """Wake the thread, to look at how things are."""
        with suppress(OSError):
            self._rope.send(b"\0")

    def end(self) -> None:
        """End the thread, and wait for that."""
        self.is_over = True
        self._finalizer.detach()
        self.ring()
        if self._thread is not current_thread():
            self._thread.join()

    def disown(self) -> None:
        """Let go of everything, in a child that has no such thread."""
        self._finalizer.detach()
        self.close()

    def wait(self, fd: int | None = None, timeout_s: float | None = None) -> bool:
        """Wait until the bell rings, or something can be read from `fd`, or time is over; True: it rang."""
        # A queue may be closed at any moment; whoever opens another one rings.
        if fd is not None:
            with suppress(OSError):
                # For once: a child that was forked may keep a queue that is closed here, and it stays in the
                # set then, with something to read that nobody reads.
                self._poll.register(fd, select.EPOLLIN | select.EPOLLONESHOT)
        found = {number for number, _ in self._poll.poll(timeout_s)}
        if fd is not None:
            with suppress(OSError):
                self._poll.unregister(fd)
        if self._bell.fileno() not in found:
            return False
        with suppress(BlockingIOError):
            while self._bell.recv(4096):
                pass
        return True

    def close(self) -> None:
        """Let go of what it waits with."""
        self._poll.close()
        self._close_bell()

    def _close_bell(self) -> None:
        self._bell.close()
        self._rope.close()


def _serve(attendant: ref[Attendant], service: _Service) -> None:
    """Be the thread. Between two steps it holds nothing but the service, so that a shadow can be dropped."""
    try:
        while not service.is_over and _step(attendant, service):
            pass
    except Exception:  # noqa: BLE001  # a bug: the next record does the same, and shows it to somebody
        return
    finally:
        service.close()


def _step(attendant: ref[Attendant], service: _Service) -> bool:
    """Wait for something to be told, and then for quiet, and read ahead; False: nobody wants that."""
    someone = attendant()
    if someone is None or someone.is_retired:
        return False
    fd = someone.fileno()
    del someone
    if service.wait(fd):
        return True
    pause_s, has_heard = _QUIET_S, False
    while not service.wait(timeout_s=pause_s):
        someone = attendant()
        if someone is None or someone.is_retired:
            return False
        if not someone.hear():
            if has_heard:
                begun_s = monotonic()
                someone.read_unless_used()
                del someone
                service.wait(timeout_s=_SHARE * (monotonic() - begun_s))
            return True
        del someone
        has_heard = True
        pause_s = min(2 * pause_s, _LONGEST_QUIET_S)
    return True


# The process

_attendants: WeakSet[Attendant] = WeakSet()


class _Process:
    """What all attendants of a process have in common."""

    def __init__(self) -> None:
        self.reading = RLock()
        """Held by threads that read ahead, and by whoever forks: a child has none that would let go."""
        self.is_ending = False
        """No thread is to begin any more."""

    def before_fork(self) -> None:
        """Wait for who reads ahead, but not for ever: it may wait for what the forking thread holds."""
        self.reading.acquire(timeout=_PATIENCE_S)

    def after_fork(self) -> None:
        """Let those read ahead again."""
        with suppress(RuntimeError):
            self.reading.release()

    def be_child(self) -> None:
        """Begin anew: nothing that was going on goes on here."""
        self.reading = RLock()
        for attendant in list(_attendants):
            attendant.disown()

    def end(self) -> None:
        """End all threads, while those that wait for something of theirs can still have it."""
        self.is_ending = True
        for attendant in list(_attendants):
            attendant.dismiss()


_process = _Process()
atexit.register(_process.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_process.before_fork,
        after_in_parent=_process.after_fork,
        after_in_child=_process.be_child,
    )
