"""The daemon itself: one event loop that answers commands, hears watchers, and uses idle time.

Everything that is kept belongs to the loop's thread. Work on a shadow blocks, so other threads do it, one
request at a time for each worktree (`conversation`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from logging.handlers import RotatingFileHandler

import shadowtree
from shadowtree.base.errors import DaemonFailed, ShadowError
from shadowtree.base.frozen import frozen
from shadowtree.daemon.conversation import LOG, Conversation
from shadowtree.daemon.endpoint import Endpoint, Listening
from shadowtree.daemon.wire import (
    PROTOCOL,
    encode,
)
from shadowtree.daemon.worktrees import Gone, Served, Wish, Worktrees, in_thread
from shadowtree.results.messages import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import TextIOWrapper
    from typing import Any

_LOG_BYTES = 64 * 1024
_MOST_THREADS = 64
"""How many requests are worked on at once, those that wait for a person included."""


@frozen
class Timing:
    """What is done by the clock, in seconds."""

    unused_s: float = 3600.0
    """A worktree that nobody holds and no command used for so long is dropped."""
    linger_s: float = 2.0
    """A daemon that serves nothing, and that nobody talks to, ends after so long."""
    round_s: float = 60.0
    """How often worktrees are checked: are they still there, and used."""
    finding_s: float = 3.0
    """How often it is checked that commands still find the daemon."""
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
    """The one daemon of an endpoint."""

    def __init__(self, endpoint: Endpoint, listening: Listening, timing: Timing | None = None) -> None:
        self._endpoint = endpoint
        self._listening = listening
        self._timing = timing or Timing()
        self._circumstances = endpoint.circumstances()
        self._worktrees = Worktrees()
        self._conversations: set[Conversation] = set()
        self._is_ending = False
        self._since_s = time.time()
        self._next_round_s = time.monotonic() + self._timing.round_s
        self._next_finding_s = time.monotonic() + self._timing.finding_s
        self._empty_since_s = time.monotonic()

    def run(self) -> None:
        """Answer commands until somebody ends it, or nobody needs it."""
        log_to(self._endpoint.log)
        LOG.info("daemon %s has begun, process %d", shadowtree.__version__, os.getpid())
        try:
            asyncio.run(self._run())
        except Exception:
            LOG.exception("internal error")
            raise
        finally:
            LOG.info("the daemon has ended")
            self._listening.close()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(_MOST_THREADS))
        self._news = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._loop.add_signal_handler(number, self.end)
        listener = await asyncio.start_unix_server(self._accept, sock=self._listening.listener)
        try:
            while not self._is_over():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), self._find_pause())
                self._news.clear()
                await self._use_idle_time()
                await self._make_round()
                self._require_found()
        finally:
            listener.close()
            await self._close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._endpoint.is_own_user(writer.get_extra_info("socket")):
            writer.close()
            return
        conversation = Conversation(self, reader, writer)
        self._conversations.add(conversation)
        try:
            await conversation.run()
        finally:
            await self._forget(conversation)

    # What conversations want

    def refuse(self, protocol: int, version: str, circumstances: object) -> str | None:
        """Say why a command has to work alone; None: it need not."""
        if (protocol, version) != (PROTOCOL, shadowtree.__version__):
            return f"is of version {shadowtree.__version__}, not {version}"
        if not isinstance(circumstances, dict) or circumstances.keys() != self._circumstances.keys():
            return "was started otherwise"
        other = [name for name, value in self._circumstances.items() if circumstances[name] != value]
        return f"differs from this command in its {other[0]}" if other else None

    async def find(self, start: str, store: str | None) -> Served | None:
        """Find the served worktree that a directory is in, if it is still there."""
        served = await self._worktrees.find(start, store)
        if served is not None and not await in_thread(served.is_there):
            await self._drop(served, "it is no longer there")
            return None
        return served

    async def serve(
        self, wish: Wish, holder: object | None, progress: Callable[[int, int], None]
    ) -> dict[str, Any]:  # Any: plain values
        """Take a worktree in, and warm it up."""
        served = await self._worktrees.add(wish, holder)
        try:
            async with served.in_use(served.shadow.settings.lock_timeout):
                snapshot = await in_thread(served.warm_up, progress)
        except Gone as error:
            raise DaemonFailed(f"cannot serve it: {error}") from error
        finally:
            if not served.is_warm:
                await self._worktrees.drop(served)
        self._hear(served)
        if wish.auto_s is not None:
            served.require_session(wish)
            served.auto_wishes.pop(holder, None)
            served.auto_wishes[holder] = wish
            await self._record_as_wished(served)
        LOG.info("serving %s", served.worktree)
        return {
            "worktree": served.worktree,
            "store": served.store,
            **snapshot.to_dict(),
            "pid": os.getpid(),
            "watching": await served.describe_watching(),
        }

    async def stop(self, start: str, store: str | None) -> list[str]:
        """Serve the worktree that a directory is in no longer; name it."""
        served = await self.find(start, store)
        if served is None or not await self._drop(served, "somebody stopped it"):
            return []
        return [served.worktree]

    def end(self) -> None:
        """End the daemon, when what is being done is finished."""
        self._is_ending = True
        self._news.set()

    async def describe(self) -> dict[str, Any]:  # Any: plain values
        """Tell what is served."""
        return {
            "pid": os.getpid(),
            "version": shadowtree.__version__,
            "since_ms": int(self._since_s * 1000),
            "socket": self._endpoint.socket,
            "worktrees": [await served.describe() for served in self._worktrees.all()],
        }

    def was_used(self) -> None:
        """Let idle time be planned anew: something was done."""
        self._news.set()

    async def _forget(self, conversation: Conversation) -> None:
        """Forget a conversation, and what it alone held."""
        for served in self._worktrees.release(conversation):
            await self._drop(served, "nobody holds it")
        for served in self._worktrees.all():
            if served.auto_wishes.pop(conversation, None) is not None:
                await self._record_as_wished(served)
        self._conversations.discard(conversation)
        self._empty_since_s = time.monotonic()
        self._news.set()

    async def _record_as_wished(self, served: Served) -> None:
        def tell(message: Message) -> None:
            self._loop.call_soon_threadsafe(self._tell_burst, served, message)

        await served.record_as_wished(tell, log_failure)

    def _tell_burst(self, served: Served, message: Message) -> None:
        for holder in served.holders:
            assert isinstance(holder, Conversation)
            holder.tell("burst", encode(message))
        self.was_used()

    # Watchers

    def _hear(self, served: Served) -> None:
        """Read what the watcher has to tell, so that its queue does not run over."""
        fd = served.shadow.fileno()
        if fd is not None:
            self._loop.add_reader(fd, self._start_draining, served, fd)

    def _start_draining(self, served: Served, fd: int) -> None:
        # Until it is drained: what is not read yet would wake the loop again and again.
        self._loop.remove_reader(fd)
        served.draining = asyncio.create_task(self._drain(served))

    async def _drain(self, served: Served) -> None:
        try:
            await in_thread(served.shadow.drain)
        except ShadowError as error:
            await self._drop(served, str(error))
        if not served.is_dropped:
            self._hear(served)

    def _stop_hearing(self, served: Served) -> None:
        fd = served.shadow.fileno()
        if fd is not None:
            self._loop.remove_reader(fd)

    # By the clock

    def _is_over(self) -> bool:
        return self._is_ending or (self._is_idle() and self._left_s() <= 0)

    def _is_idle(self) -> bool:
        return not self._conversations and not len(self._worktrees)

    def _left_s(self) -> float:
        return self._empty_since_s + self._timing.linger_s - time.monotonic()

    def _is_working(self) -> bool:
        return any(conversation.work is not None for conversation in self._conversations)

    def _find_pause(self) -> float:
        """Say how long there is nothing to do."""
        now = time.monotonic()
        if self._is_idle():
            return max(0.0, self._left_s())
        served = [] if self._is_working() else self._worktrees.all()
        dues = [min(self._look_due_s(each), self._tidy_due_s(each)) for each in served]
        looks = [max(self._timing.look_pause_s, due - now) for due in dues]
        return max(0.0, min([self._next_round_s - now, self._next_finding_s - now, *looks]))

    def _look_due_s(self, served: Served) -> float:
        return max(served.looked_s + self._timing.look_every_s, served.idle_since_s + self._timing.quiet_s)

    def _tidy_due_s(self, served: Served) -> float:
        if served.is_tidy or not served.is_warm:
            return self._next_round_s
        return served.idle_since_s + self._timing.tidy_after_s

    async def _use_idle_time(self) -> None:
        """Spend a moment on tidying a store, or on a full look over a worktree, if nobody wants anything."""
        if self._is_working():
            return
        for served in self._worktrees.all():
            now = time.monotonic()
            is_to_tidy = not served.is_tidy and self._tidy_due_s(served) <= now
            if is_to_tidy or self._look_due_s(served) <= now:
                async with served.in_idle_use() as is_free:
                    if is_free:
                        await (self._tidy if is_to_tidy else self._look_over)(served)
                        return

    async def _tidy(self, served: Served) -> None:
        try:
            served.is_tidy = await in_thread(served.shadow.tidy, 0)
        except ShadowError as error:
            LOG.info("tidying %s failed: %s", served.store, error)
            served.is_tidy = True

    async def _look_over(self, served: Served) -> None:
        begun_s = time.monotonic()
        try:
            is_done = await in_thread(served.shadow.look_over, self._timing.look_s)
        except ShadowError as error:
            LOG.info("looking over %s failed: %s", served.worktree, error)
            is_done = True
        # Where nothing is watched there is nothing to look over: the next request looks at everything.
        if is_done or time.monotonic() - begun_s < self._timing.look_s:
            served.looked_s = time.monotonic()

    async def _make_round(self) -> None:
        """Drop what is no longer there or no longer used."""
        now = time.monotonic()
        if now < self._next_round_s:
            return
        self._next_round_s = now + self._timing.round_s
        for served in self._worktrees.all():
            is_unused = now - served.idle_since_s >= self._timing.unused_s
            if served.is_warm and not await in_thread(served.is_there):
                await self._drop(served, "it is no longer there")
            elif is_unused and not served.holders and served.auto is None:
                await self._drop(served, "it was not used for long")

    def _require_found(self) -> None:
        """End the daemon if commands no longer find it: nobody could stop it, or see what it does."""
        now = time.monotonic()
        if now >= self._next_finding_s:
            self._next_finding_s = now + self._timing.finding_s
            if not self._listening.is_found():
                LOG.info("the endpoint is no longer there")
                self._is_ending = True

    async def _drop(self, served: Served, why: str) -> bool:
        holders = list(served.holders)
        self._stop_hearing(served)
        if not await self._worktrees.drop(served):
            return False
        LOG.info("no longer serving %s: %s", served.worktree, why)
        for holder in holders:
            assert isinstance(holder, Conversation)
            holder.tell("gone", why)
        self._empty_since_s = time.monotonic()
        self._news.set()
        return True

    async def _close(self) -> None:
        """Let what is being done be finished, and close everything."""
        conversations = list(self._conversations)
        for conversation in conversations:
            conversation.hang_up()
        for conversation in conversations:
            await conversation.is_over.wait()
        for served in self._worktrees.all():
            self._stop_hearing(served)
            await self._worktrees.drop(served)


# The log


def log_failure(error: BaseException) -> None:
    """Write a bug down, with the way to it."""
    LOG.error("internal error", exc_info=error)


def log_to(path: str) -> None:
    """Let the daemon's log go to a small file: nobody sees it work, so somebody may want to know later."""
    handler = _PrivateFile(
        path, maxBytes=_LOG_BYTES, backupCount=1, encoding="ascii", errors="backslashreplace"
    )
    formatter = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


class _PrivateFile(RotatingFileHandler):
    """A log that others cannot read. One that cannot be written is no reason to fail."""

    def _open(self) -> TextIOWrapper:
        def open_privately(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

        return open(
            self.baseFilename, "a", encoding="ascii", errors="backslashreplace", opener=open_privately
        )

    def handleError(self, record: logging.LogRecord) -> None:  # logging's name
        """Go on without it."""
