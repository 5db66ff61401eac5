"""The daemon itself: one loop that waits for commands, for changes, and for time to pass.

Commands are answered in threads of their own. Between two of them the loop sleeps: it wakes up for a
connection, for what a watcher has to tell, for a signal, and for the few things that are done by the clock.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import shadowtree
from shadowtree.daemon.conversation import Conversation
from shadowtree.daemon.log import Log
from shadowtree.daemon.protocol import PROTOCOL
from shadowtree.daemon.served import Gone, Served, Wish, Worktrees
from shadowtree.frozen import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@frozen
class Timing:
    """What is done by the clock, in seconds."""

    unused_s: float = 3600.0
    """A worktree that nobody holds and no command used for so long is dropped."""
    linger_s: float = 2.0
    """A daemon that serves nothing, and that nobody talks to, ends after so long."""
    round_s: float = 60.0
    """How often it is looked whether worktrees are still there, and used."""
    finding_s: float = 3.0
    """How often it is looked whether commands still find the daemon."""
    quiet_s: float = 120.0
    """A worktree that was not used for so long is looked over."""
    look_every_s: float = 600.0
    """At most one full look over a worktree is begun in that time."""
    tidy_after_s: float = 5.0
    """The store of a worktree that was not used for so long is tidied."""
    look_s: float = 0.02
    look_pause_s: float = 0.08
    """How long a piece of such a look takes, and the pause after it."""


class Server:
    """The one daemon of a meeting place."""

    def __init__(
        self,
        place: shadowtree.MeetingPlace,
        listening: shadowtree.Listening,
        log: Log,
        timing: Timing | None = None,
    ) -> None:
        self._place = place
        self._listening = listening
        self._log = log
        self._timing = timing or Timing()
        self._circumstances = place.circumstances()
        self._worktrees = Worktrees()
        self._conversations: set[Conversation] = set()
        self._mutex = threading.Lock()
        self._is_ending = False
        self._since_s = time.time()
        self._next_round_s = time.monotonic() + self._timing.round_s
        self._next_finding_s = time.monotonic() + self._timing.finding_s
        self._empty_since_s = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._watched: dict[Served, tuple[int, tuple[int, int]]] = {}
        """Whose watcher is listened to: by which descriptor, and since which use."""
        self._bell, self._ringer = socket.socketpair()
        self._bell.setblocking(False)
        self._ringer.setblocking(False)

    def run(self) -> None:
        """Answer commands until somebody ends it, or nobody needs it."""
        self._log.write(f"daemon {shadowtree.__version__} has begun, process {os.getpid()}")
        self._listening.listener.setblocking(False)
        self._selector.register(self._listening.listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._bell, selectors.EVENT_READ, self._hear_bell)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.end())
        try:
            while not self._is_over():
                for key, _ in self._selector.select(self._find_pause()):
                    act: Callable[[], None] = key.data
                    act()
                self._follow_watchers()
                self._use_idle_time()
                self._make_round()
                self._require_found()
        except Exception as error:
            self._log.write_failure(error)
            raise
        finally:
            self._close()

    # What conversations want

    def refuse(self, protocol: int, version: str, circumstances: object) -> str | None:
        """Say why a command has to do without; None: it need not."""
        if (protocol, version) != (PROTOCOL, shadowtree.__version__):
            return f"is of version {shadowtree.__version__}, not {version}"
        if not isinstance(circumstances, dict) or circumstances.keys() != self._circumstances.keys():
            return "was started otherwise"
        other = [name for name, value in self._circumstances.items() if circumstances[name] != value]
        return f"differs from this command in its {other[0]}" if other else None

    def find(self, start: str, store: str | None) -> Served | None:
        """Find the served worktree that a directory is in, if it is still there."""
        try:
            served = self._worktrees.find(start, store)
        except shadowtree.ShadowError:
            return None
        if served is not None and not served.is_there():
            self._drop(served, "it is no longer there")
            return None
        return served

    def serve(
        self, wish: Wish, holder: object | None, progress: Callable[[int, int], None]
    ) -> dict[str, Any]:  # Any: plain values
        """Take a worktree in, and warm it up."""
        found = shadowtree.find_worktree(wish.worktree, store=wish.store) or wish.worktree
        served = self._worktrees.add(replace(wish, worktree=found), holder)
        try:
            with served.in_use(served.shadow.settings.lock_timeout):
                snapshot = served.warm_up(progress)
        except Gone as error:
            raise shadowtree.DaemonFailed(f"cannot serve it: {error}") from error
        finally:
            if not served.is_warm:
                self._worktrees.drop(served)
        if wish.auto_s is not None:
            served.record_bursts(wish, holder, partial(self._tell_burst, served), self.note_failure)
        self._log.write(f"serving {served.worktree}")
        return {
            "worktree": served.worktree,
            "store": served.store,
            **snapshot.to_dict(),
            "pid": os.getpid(),
            "watching": served.describe_watching(),
        }

    def _tell_burst(self, served: Served, message: shadowtree.Message) -> None:
        for holder in list(served.holders):
            assert isinstance(holder, Conversation)
            holder.tell_burst(message)
        self._ring()

    def stop(self, start: str, store: str | None) -> list[str]:
        """Serve the worktree that a directory is in no longer; name it."""
        served = self.find(start, store)
        if served is None or not self._drop(served, "somebody stopped it"):
            return []
        return [served.worktree]

    def end(self) -> None:
        """End the daemon, when what is being done is finished."""
        self._is_ending = True
        self._ring()

    def tell_status(self) -> dict[str, Any]:  # Any: plain values
        """Tell what is served."""
        return {
            "pid": os.getpid(),
            "version": shadowtree.__version__,
            "since_ms": int(self._since_s * 1000),
            "socket": self._place.socket,
            "worktrees": [served.to_dict() for served in self._worktrees.all()],
        }

    def note_failure(self, error: BaseException) -> None:
        """Write a bug down."""
        self._log.write_failure(error)

    def was_heard(self) -> None:
        """Look after the watchers again: what was done may have changed them."""
        self._ring()

    def was_closed(self, conversation: Conversation) -> None:
        """Forget a conversation, and what it alone held."""
        for served in self._worktrees.release(conversation):
            if self._worktrees.drop(served):
                self._log.write(f"no longer serving {served.worktree}: nobody holds it")
        for served in self._worktrees.all():
            served.forget_wish(conversation, partial(self._tell_burst, served), self.note_failure)
        with self._mutex:
            self._conversations.discard(conversation)
            self._empty_since_s = time.monotonic()
        self._ring()

    # The loop

    def _is_over(self) -> bool:
        return self._is_ending or (self._is_idle() and self._left_s() <= 0)

    def _is_idle(self) -> bool:
        return not self._conversations and not len(self._worktrees)

    def _left_s(self) -> float:
        return self._empty_since_s + self._timing.linger_s - time.monotonic()

    def _find_pause(self) -> float:
        """Say how long there is nothing to do."""
        now = time.monotonic()
        if self._is_idle():
            return max(0.0, self._left_s())
        served = [] if self._is_working() else self._worktrees.all()
        dues = [min(self._look_due_s(each), self._tidy_due_s(each)) for each in served]
        looks = [max(self._timing.look_pause_s, due - now) for due in dues]
        return max(0.0, min([self._next_round_s - now, self._next_finding_s - now, *looks]))

    def _is_working(self) -> bool:
        with self._mutex:
            return any(conversation.is_working for conversation in self._conversations)

    def _ring(self) -> None:
        """Wake the loop up."""
        try:
            self._ringer.send(b"\0")
        except OSError:
            # It is full of rings, or the daemon has ended.
            return

    def _hear_bell(self) -> None:
        try:
            while self._bell.recv(4096):
                pass
        except BlockingIOError:
            return

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.listener.accept()
        except OSError:
            return
        if not self._place.is_own_user(connection):
            connection.close()
            return
        connection.setblocking(True)
        conversation = Conversation(self, connection)
        with self._mutex:
            self._conversations.add(conversation)
        conversation.start()

    # Watchers

    def _follow_watchers(self) -> None:
        """Listen to the watchers of just those worktrees that are served.

        Whoever uses a shadow may open its watcher anew, under the same number, and then the selector has lost
        it. So it is told again after each use.
        """
        served = {each for each in self._worktrees.all() if each.is_warm}
        for each in [
            old for old, (_, turn) in self._watched.items() if old not in served or old.turn != turn
        ]:
            self._selector.unregister(self._watched.pop(each)[0])
        for each in served - self._watched.keys():
            # While nobody else can change it.
            if each.try_using():
                try:
                    self._hear(each)
                finally:
                    each.stop_using()

    def _hear(self, served: Served) -> None:
        fd = served.shadow.fileno()
        if fd is not None and fd >= 0:
            # Whoever had this number before has closed it, without the selector's knowledge.
            for other in [old for old, (number, _) in self._watched.items() if number == fd]:
                self._selector.unregister(self._watched.pop(other)[0])
            self._selector.register(fd, selectors.EVENT_READ, lambda: self._drain(served))
            self._watched[served] = fd, served.turn

    def _drain(self, served: Served) -> None:
        """Take what a watcher has to tell, so that its queue does not run over."""
        try:
            served.shadow.drain()
        except shadowtree.ShadowError as error:
            self._drop(served, str(error))

    # By the clock

    def _look_due_s(self, served: Served) -> float:
        return max(served.looked_s + self._timing.look_every_s, served.idle_since_s + self._timing.quiet_s)

    def _tidy_due_s(self, served: Served) -> float:
        if served.is_tidy or not served.is_warm:
            return self._next_round_s
        return served.idle_since_s + self._timing.tidy_after_s

    def _use_idle_time(self) -> None:
        """Spend a moment on tidying a store, or on a full look over a worktree, if nobody wants anything."""
        if self._is_working():
            return
        for served in self._worktrees.all():
            now = time.monotonic()
            is_to_tidy = not served.is_tidy and self._tidy_due_s(served) <= now
            if (is_to_tidy or self._look_due_s(served) <= now) and served.try_using():
                try:
                    (self._tidy if is_to_tidy else self._look_at)(served)
                finally:
                    served.stop_using()
                return

    def _tidy(self, served: Served) -> None:
        try:
            is_done = served.shadow.tidy(0)
        except shadowtree.ShadowError as error:
            self._log.write(f"tidying {served.store} failed: {error}")
            is_done = True
        if is_done:
            served.tidied = served.uses

    def _look_at(self, served: Served) -> None:
        begun_s = time.monotonic()
        try:
            is_done = served.shadow.look_over(self._timing.look_s)
        except shadowtree.ShadowError as error:
            self._log.write(f"looking over {served.worktree} failed: {error}")
            is_done = True
        # Where nothing is in sight there is nothing to look over: the next request looks at everything.
        if is_done or time.monotonic() - begun_s < self._timing.look_s:
            served.looked_s = time.monotonic()

    def _make_round(self) -> None:
        """Drop what is no longer there or no longer used."""
        now = time.monotonic()
        if now < self._next_round_s:
            return
        self._next_round_s = now + self._timing.round_s
        for served in self._worktrees.all():
            if served.is_warm and not served.is_there():
                self._drop(served, "it is no longer there")
            elif (
                not served.holders
                and served.auto is None
                and now - served.idle_since_s >= self._timing.unused_s
            ):
                self._drop(served, "it was not used for long")

    def _require_found(self) -> None:
        """End the daemon if commands no longer find it: nobody could stop it, or see what it does."""
        now = time.monotonic()
        if now < self._next_finding_s:
            return
        self._next_finding_s = now + self._timing.finding_s
        if not self._listening.is_found():
            self._log.write("the meeting place is no longer there")
            self._is_ending = True

    def _drop(self, served: Served, why: str) -> bool:
        holders = list(served.holders)
        if not self._worktrees.drop(served):
            return False
        self._log.write(f"no longer serving {served.worktree}: {why}")
        for holder in holders:
            assert isinstance(holder, Conversation)
            holder.tell_gone(why)
        self._empty_since_s = time.monotonic()
        self._ring()
        return True

    def _close(self) -> None:
        """Let nobody in, let what is being done be finished, and let go of everything."""
        self._listening.listener.close()
        with self._mutex:
            conversations = list(self._conversations)
        for conversation in conversations:
            conversation.hang_up()
        for conversation in conversations:
            conversation.join()
        for served in self._worktrees.all():
            self._worktrees.drop(served)
        self._selector.close()
        self._bell.close()
        self._ringer.close()
        self._log.write("the daemon has ended")
        self._listening.close()
