"""The daemon itself: one event loop that answers commands, one conversation with each of them.

All state belongs to the loop's thread. Work on a shadow blocks, so another thread does it, one request at a
time for each worktree. That thread uses only `Work.tell` to reach the loop. So a command can cancel its work
or die at any time, and is informed regularly that the work goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from logging.handlers import RotatingFileHandler

import shadowtree
from shadowtree.base.errors import DaemonFailed, Locked, ShadowError
from shadowtree.base.frozen import replace
from shadowtree.daemon import wire
from shadowtree.daemon.endpoint import Endpoint, Listening
from shadowtree.daemon.worktrees import Cancelled, Gone, Served, Wish, Worktrees, in_thread
from shadowtree.results.outcomes import Outcome
from shadowtree.shadow import Shadow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import TextIOWrapper
    from typing import Any

LOG = logging.getLogger("shadowtree.daemon")

_LOG_BYTES = 64 * 1024
_MOST_THREADS = 64
"""How many requests are worked on at once."""


class Server:
    """The one daemon of an endpoint."""

    def __init__(self, endpoint: Endpoint, listening: Listening) -> None:
        self.timing = endpoint.timing
        self.worktrees = Worktrees(endpoint.timing)
        self._endpoint = endpoint
        self._listening = listening
        self._circumstances = endpoint.circumstances()
        self._conversations: dict[Conversation, asyncio.Task[None] | None] = {}
        self._since_s = time.time()
        self._needed_s = time.monotonic()
        """When a command was last connected, or a worktree served."""

    def run(self) -> None:
        """Answer commands until the daemon is stopped, or no longer needed."""
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
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_MOST_THREADS))
        self._ending = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self.end)
        # Not `start_unix_server`: since Python 3.13 it removes the socket's path, which the endpoint owns.
        listener = await asyncio.start_server(self._accept, sock=self._listening.listener)
        try:
            while not self._ending.is_set():
                has_more = await self.worktrees.use_idle_time()
                await self.worktrees.make_round()
                self._end_if_useless()
                pause_s = self.timing.look_pause_s if has_more else self.timing.tick_s
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), pause_s)
        finally:
            listener.close()
            await self._close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._endpoint.is_own_user(writer.get_extra_info("socket")):
            writer.close()
            return
        conversation = Conversation(self, reader, writer)
        self._conversations[conversation] = asyncio.current_task()
        try:
            await conversation.run()
        finally:
            await self.worktrees.release(conversation.tell)
            del self._conversations[conversation]

    def refuse(self, protocol: int, version: str, circumstances: object) -> str | None:
        """Return why a command has to work alone, or None if it need not."""
        if (protocol, version) != (wire.PROTOCOL, shadowtree.__version__):
            return f"is version {shadowtree.__version__}, not {version}"
        if not isinstance(circumstances, dict) or circumstances.keys() != self._circumstances.keys():
            return "was started in a different environment"
        other = [name for name, value in self._circumstances.items() if circumstances[name] != value]
        return f"was started in a different environment ({other[0]})" if other else None

    async def describe(self) -> dict[str, Any]:  # Any: plain values
        """Return a description of the daemon and of the worktrees that it serves."""
        return {
            "pid": os.getpid(),
            "version": shadowtree.__version__,
            "since_ms": int(self._since_s * 1000),
            "socket": self._endpoint.socket,
            "worktrees": [await served.describe() for served in self.worktrees.all()],
        }

    def end(self) -> None:
        """End the daemon after the work in progress is finished."""
        self._ending.set()

    def _end_if_useless(self) -> None:
        """End the daemon if it is not needed, or if commands can no longer find it, and so not stop it."""
        now = time.monotonic()
        if self._conversations or self.worktrees.all():
            self._needed_s = now
        if not self._listening.is_found():
            LOG.info("the endpoint is no longer there")
            self.end()
        elif now - self._needed_s >= self.timing.linger_s:
            self.end()

    async def _close(self) -> None:
        """Wait until the work in progress is finished, and close everything."""
        for conversation in self._conversations:
            conversation.hang_up()
        tasks = [task for task in self._conversations.values() if task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self.worktrees.close()


class Conversation:
    """The conversation with one command, which may cancel its work or die at any time."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.timing = server.timing
        self._server = server
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()
        self._is_welcome = False
        self._is_understood = False
        """The command has our version, so it may send requests about the daemon itself."""
        self._is_hung_up = False
        self._served: Served | None = None
        self._work: Work | None = None
        """The work in progress for the command."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until the command leaves; its work ends before the connection is closed."""
        try:
            while True:
                header = await self._reader.readexactly(wire.HEADER_BYTES)
                await self._take(*wire.unpack_frame(await self._reader.readexactly(wire.frame_size(header))))
        except (OSError, asyncio.IncompleteReadError):
            # The command has gone, or has sent something invalid.
            pass
        except Exception:  # a bug in one conversation ends only that one
            LOG.exception("internal error")
        finally:
            if self._work is not None and not self._is_hung_up:
                self._work.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._writer.close()

    def hang_up(self) -> None:
        """Stop listening; work in progress is finished."""
        self._is_hung_up = True
        self._reader.feed_eof()

    def tell(self, kind: str, content: object) -> None:
        """Send a frame in the background."""
        self._start(self._send_if_there(kind, content))

    async def send(self, *frame: object) -> None:
        """Send a frame; raise OSError if the command has gone."""
        async with self._sending:
            self._writer.write(wire.pack_frame(frame))
            await asyncio.wait_for(self._writer.drain(), self.timing.sending_s)

    async def _send_if_there(self, *frame: object) -> None:
        with suppress(OSError):
            await self.send(*frame)

    def _start(self, doing: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take(self, kind: str, *rest: Any) -> None:  # Any: plain values
        if kind == "hello":
            await self._welcome(*rest)
        elif kind == "end":
            self._server.end()
        elif kind == "status" and self._is_understood:
            await self.send("result", wire.encode(await self._server.describe()))
        elif kind == "stop" and self._is_understood:
            await self._stop(*rest)
        elif not self._is_welcome:
            raise ConnectionError("it has not said hello")
        elif kind == "find":
            await self._find(*rest)
        elif kind in ("call", "serve"):
            if self._work is not None:
                raise ConnectionError("one thing after the other")
            self._work = Work(self)
            self._start(self._do(self._work, kind, *rest))
        elif kind == "cancel" and self._work is not None:
            self._work.cancel()

    async def _welcome(self, protocol: int, version: str, circumstances: object) -> None:
        self._is_understood = (protocol, version) == (wire.PROTOCOL, shadowtree.__version__)
        why = self._server.refuse(protocol, version, circumstances)
        if why is not None:
            await self.send("other", wire.PROTOCOL, shadowtree.__version__, os.getpid(), why)
            return
        self._is_welcome = True
        await self.send("welcome")

    async def _stop(self, start: str, store: str | None) -> None:
        worktrees = self._server.worktrees
        served, stopped = await worktrees.find(start, store), []
        if served is not None and await worktrees.drop(served, "another command stopped it"):
            stopped.append(served.worktree)
        await self.send("result", stopped)

    async def _find(self, start: str, store: str | None) -> None:
        self._served = served = await self._server.worktrees.find(start, store)
        if served is None:
            await self.send("without", "it is not served")
        else:
            await self.send("found", served.worktree, served.store, served.seen)

    async def _do(self, work: Work, kind: str, *rest: Any) -> None:  # Any: plain values
        """Do some work, report regularly that it goes on, and send the result."""
        doing = asyncio.create_task(self._try(work, kind, *rest))
        while not (await asyncio.wait({doing}, timeout=self.timing.beat_s))[0]:
            await self._send_if_there("working")
        # Clear this before answering: the command may send its next request right after the answer.
        self._work = None
        await self._send_if_there(*doing.result())

    async def _try(self, work: Work, kind: str, *rest: Any) -> tuple[object, ...]:  # Any: plain values
        """Do some work, and return the frame with its result or error."""
        try:
            return "result", await (self.call if kind == "call" else self._serve)(work, *rest)
        except Gone as error:
            return "without", str(error)
        except (Cancelled, asyncio.CancelledError):
            return "error", wire.encode_error(KeyboardInterrupt())
        except (ShadowError, OSError) as error:
            return "error", wire.encode_error(error)
        except Exception as error:  # the command reports the bug
            LOG.exception("internal error")
            return "error", wire.encode_error(error)

    async def _serve(self, work: Work, wish: dict[str, Any], is_kept: bool) -> object:  # Any: plain values
        holder = None if is_kept else self.tell
        return await self._server.worktrees.serve(Wish(**wish), holder, work.tell_progress)

    async def call(
        self,
        work: Work,
        method: str,
        session: str | None,
        *how: Any,  # Any: plain values
    ) -> object:
        """Call a method when the shadow is free; raise Gone if the command should do it itself."""
        served = self._served
        if served is None:
            raise Gone("no worktree was asked for")
        is_reading = method in wire.READING
        wait_s = self.timing.reading_s if is_reading else served.shadow.settings.lock_timeout
        if work.is_cancelled:
            raise Cancelled
        work.waiting = asyncio.current_task()
        try:
            async with served.in_use(wait_s):
                work.waiting = None
                if session is None:
                    work.shadow = await in_thread(served.shadow.for_last_session)
                    await self.send("session", work.shadow.session)
                else:
                    work.shadow = served.shadow.for_session(session)
                served.note_request(work.shadow.session)
                return await in_thread(work.call, work.shadow, method, *how)
        except Gone:
            if is_reading or served.is_dropped:
                raise
            raise Locked(served.store, os.getpid(), os.uname().nodename, wait_s) from None


class Work:
    """Work that is done for a command: it can report, and be cancelled."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()
        self._next_progress_s = time.monotonic() + conversation.timing.first_progress_s
        self.is_cancelled = False
        self.waiting: asyncio.Task[object] | None = None
        """The task that waits for the shadow to be free, and can be cancelled at once."""
        self.shadow: Shadow | None = None
        """The shadow whose method is called."""

    def cancel(self) -> None:
        """Stop the work at the next point where that does no harm."""
        self.is_cancelled = True
        if self.waiting is not None:
            self.waiting.cancel()
        if self.shadow is not None:
            self.shadow.cancel()

    # In another thread, where a command that goes away has the effect of Ctrl-C

    def call(
        self,
        shadow: Shadow,
        method: str,
        arguments: Any,  # Any: plain values
        named: dict[str, Any],  # Any: plain values
        wishes: list[bool],
    ) -> object:
        """Call a method of a shadow, and return its result as plain values."""
        if method not in wire.METHODS:
            raise DaemonFailed(f"has no method {method!r}")
        arguments, named = wire.decode(arguments), {name: wire.decode(value) for name, value in named.items()}
        is_repeatable = wire.may_repeat(method, arguments, named)
        has_progress, asks = wishes
        if has_progress:
            named["progress"] = self.tell_progress
        if asks:
            # The command asks its user, and then calls again.
            named["confirm"] = lambda plan: False
        # From here on, `cancel` reaches the shadow; an earlier one is noticed now.
        self._check()
        known = len(shadow.recovered)
        try:
            number = None if is_repeatable else shadow.last_number()
            recovered = shadow.recovered[known:]
            # This raises if the command has gone, so nothing is begun that it may be doing itself.
            self.tell("number", number)
            result = getattr(shadow, method)(*arguments, **named)
        finally:
            told = shadow.recovered[known:]
            if told:
                self.tell("recovered", told)
        if isinstance(result, Outcome) and recovered:
            # Add what was recovered right before the act; its notes have what was recovered later.
            result = replace(result, notes=[*result.notes, *recovered])
        return wire.encode(result)

    def tell(self, *frame: object) -> None:
        """Send the command a frame; if it has gone, raise KeyboardInterrupt, which stops its work."""
        try:
            asyncio.run_coroutine_threadsafe(self._conversation.send(*frame), self._loop).result()
        except OSError as error:
            raise KeyboardInterrupt from error

    def tell_progress(self, done: int, total: int) -> None:
        """Report progress, but not too often; raise KeyboardInterrupt if the work is cancelled."""
        self._check()
        if time.monotonic() >= self._next_progress_s:
            self._next_progress_s = time.monotonic() + self._conversation.timing.progress_s
            self.tell("progress", done, total)

    def _check(self) -> None:
        """Raise KeyboardInterrupt if the work is cancelled."""
        if self.is_cancelled:
            raise KeyboardInterrupt


def log_to(path: str) -> None:
    """Write the daemon's log to a small file: it works unseen, so the log may be needed later."""
    handler = _PrivateFile(path, maxBytes=_LOG_BYTES, backupCount=1)
    formatter = logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False


class _PrivateFile(RotatingFileHandler):
    """A log file that other users cannot read. Failures to write it are ignored."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(self.baseFilename, flags, 0o600)
        return open(fd, "a", encoding="ascii", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:  # logging's name
        """Ignore the failure."""
