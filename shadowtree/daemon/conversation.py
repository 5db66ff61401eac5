"""One command's conversation with the daemon, and the work that is done for it.

The event loop reads and sends. Work on a shadow is done in another thread, which reaches the loop through
`Work.tell` and `Work.ask` alone; so a command can cancel its work at any time, or die, and is told now and
then that the work goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from queue import SimpleQueue

import shadowtree
from shadowtree.base.errors import Locked, ShadowError
from shadowtree.base.frozen import replace
from shadowtree.daemon.wire import (
    BEAT_S,
    HEADER_BYTES,
    METHODS,
    PROTOCOL,
    READING,
    decode,
    encode,
    encode_error,
    frame_size,
    may_repeat,
    pack_frame,
    unpack_frame,
)
from shadowtree.daemon.worktrees import Cancelled, Gone, Served, Wish, in_thread
from shadowtree.results.outcomes import Outcome, Plan
from shadowtree.shadow import Shadow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class House(Protocol):
        """What a conversation wants of the server."""

        def refuse(self, protocol: int, version: str, circumstances: object) -> str | None:
            """Say why a command has to work alone; None: it need not."""

        async def find(self, start: str, store: str | None) -> Served | None:
            """Find the served worktree that a directory is in."""

        async def serve(
            self, wish: Wish, holder: object | None, progress: Callable[[int, int], None]
        ) -> dict[str, Any]:  # Any: plain values
            """Take a worktree in, and warm it up."""

        async def stop(self, start: str, store: str | None) -> list[str]:
            """Serve the worktree that a directory is in no longer; name it."""

        async def describe(self) -> dict[str, Any]:  # Any: plain values
            """Tell what is served."""

        def end(self) -> None:
            """End the daemon."""

        def was_used(self) -> None:
            """Note that something was done."""


LOG = logging.getLogger("shadowtree.daemon")

_SENDING_S = 30.0
"""A command that takes nothing for so long is taken for dead."""
_READING_WAITS_S = 0.5
"""How long a request that only reads waits for others; by itself a command need not wait at all."""
_FIRST_PROGRESS_S = 0.5
_PROGRESS_S = 0.1
"""When the first progress is sent, and how often after that."""


class Conversation:
    """One command, from its hello to its end: it may cancel its work at any time, or die."""

    def __init__(self, server: House, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()
        self._is_welcome = False
        self._is_understood = False
        """The command is of our version, so that it may ask for what concerns the daemon itself."""
        self._is_hung_up = False
        self._served: Served | None = None
        self.work: Work | None = None
        """What is being done for the command."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_over = asyncio.Event()

    async def run(self) -> None:
        """Answer until the command goes; its work has ended before the connection is closed."""
        try:
            while (frame := await self._receive()) is not None:
                await self._take(*frame)
        except OSError:
            # The command has gone, or sends what no command sends.
            pass
        except Exception:  # a bug in one conversation ends this one alone
            LOG.exception("internal error")
        finally:
            if self.work is not None and not self._is_hung_up:
                self.work.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._writer.close()
            self.is_over.set()

    def hang_up(self) -> None:
        """Listen no more; what is being done is finished, unless it waits for a person."""
        self._is_hung_up = True
        if self.work is not None and self.work.is_asking:
            self.work.cancel()
        self._reader.feed_eof()

    def tell(self, *frame: object) -> None:
        """Send a frame that no answer waits for."""
        self._start(self._send_if_there(*frame))

    async def send(self, *frame: object) -> None:
        """Send a frame; OSError if the command is gone."""
        async with self._sending:
            self._writer.write(pack_frame(frame))
            await asyncio.wait_for(self._writer.drain(), _SENDING_S)

    async def _send_if_there(self, *frame: object) -> None:
        with suppress(OSError):
            await self.send(*frame)

    async def _receive(self) -> tuple[Any, ...] | None:  # Any: plain values
        try:
            header = await self._reader.readexactly(HEADER_BYTES)
            return unpack_frame(await self._reader.readexactly(frame_size(header)))
        except asyncio.IncompleteReadError:
            return None

    async def _take(self, kind: str, *rest: Any) -> None:  # Any: plain values
        if kind == "hello":
            await self._welcome(*rest)
        elif kind == "end":
            self._server.end()
        elif kind == "status" and self._is_understood:
            await self.send("result", encode(await self._server.describe()))
        elif kind == "stop" and self._is_understood:
            await self.send("result", await self._server.stop(*rest))
        elif not self._is_welcome:
            raise ConnectionError("it has not said hello")
        elif kind == "find":
            await self._find(*rest)
        elif kind == "call":
            self._begin(Call(self, self._served, *rest))
        elif kind == "serve":
            self._begin(Serving(self, self._server, *rest))
        elif kind == "cancel" and self.work is not None:
            self.work.cancel()
        elif kind == "answer" and self.work is not None:
            self.work.answer(*rest)

    async def _welcome(self, protocol: int, version: str, circumstances: object) -> None:
        self._is_understood = (protocol, version) == (PROTOCOL, shadowtree.__version__)
        why = self._server.refuse(protocol, version, circumstances)
        if why is not None:
            await self.send("other", PROTOCOL, shadowtree.__version__, os.getpid(), why)
            return
        self._is_welcome = True
        await self.send("welcome")

    async def _find(self, start: str, store: str | None) -> None:
        self._served = served = await self._server.find(start, store)
        if served is None:
            await self.send("without", "it is not served")
        else:
            await self.send("found", served.worktree, served.store, served.seen)

    def _begin(self, work: Work) -> None:
        if self.work is not None:
            raise ConnectionError("one thing after the other")
        self.work = work
        self._start(self._do(work))

    def _start(self, doing: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, work: Work) -> None:
        """Do it, say now and then that it goes on, and send what came of it."""
        doing = asyncio.create_task(work.do())
        while not (await asyncio.wait({doing}, timeout=BEAT_S))[0]:
            if not work.is_asking:
                await self._send_if_there("working")
        # Before the answer, because the command may send the next request right after it.
        self.work = None
        self._server.was_used()
        await self._send_if_there(*doing.result())


class Work:
    """Something that is done for a command: it can report, ask, and be cancelled."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._loop = asyncio.get_running_loop()
        self._answers: SimpleQueue[bool | None] = SimpleQueue()
        self._next_progress_s = time.monotonic() + _FIRST_PROGRESS_S
        self.is_cancelled = False
        self.is_asking = False
        """It waits for a person."""

    async def run(self) -> object:
        """Do it, and give what came of it, as plain values."""
        raise NotImplementedError

    async def do(self) -> tuple[object, ...]:
        """Do it, and give the frame that says what came of it."""
        try:
            return "result", await self.run()
        except Gone as error:
            return "without", str(error)
        except Cancelled:
            return "error", encode_error(KeyboardInterrupt())
        except (ShadowError, OSError) as error:
            return "error", encode_error(error)
        except Exception as error:  # a bug is the command's to tell
            LOG.exception("internal error")
            return "error", encode_error(error)

    def cancel(self) -> None:
        """Let it stop where that does no harm."""
        self.is_cancelled = True
        self._answers.put(None)

    def answer(self, is_agreed: bool) -> None:
        """Bring the answer of the person that was asked."""
        self._answers.put(is_agreed)

    # In another thread, where a command that goes away is what Ctrl-C is elsewhere

    def check(self) -> None:
        """Raise KeyboardInterrupt if it is cancelled."""
        if self.is_cancelled:
            raise KeyboardInterrupt

    def tell(self, *frame: object) -> None:
        """Send the command something; if it has gone, nobody wants the work any more."""
        try:
            asyncio.run_coroutine_threadsafe(self._conversation.send(*frame), self._loop).result()
        except OSError as error:
            raise KeyboardInterrupt from error

    def tell_progress(self, done: int, total: int) -> None:
        """Send how far it is, now and then."""
        self.check()
        if time.monotonic() >= self._next_progress_s:
            self._next_progress_s = time.monotonic() + _PROGRESS_S
            self.tell("progress", done, total)

    def ask(self, plan: Plan) -> bool:
        """Let a person agree to a plan, or not."""
        self.is_asking = True
        try:
            self.tell("confirm", encode(plan))
            is_agreed = self._answers.get()
        finally:
            self.is_asking = False
        if is_agreed is None:
            raise KeyboardInterrupt
        return is_agreed


class Serving(Work):
    """A worktree that is taken in."""

    def __init__(
        self,
        conversation: Conversation,
        server: House,
        wish: dict[str, Any],  # Any: plain values
        is_kept: bool,
    ) -> None:
        super().__init__(conversation)
        self._server = server
        self._wish = Wish(**wish)
        self._holder = None if is_kept else conversation

    async def run(self) -> object:
        """Warm it up, and tell what it is."""
        try:
            return encode(await self._server.serve(self._wish, self._holder, self._note_progress))
        except _Interrupted as error:
            raise Cancelled from error

    def _note_progress(self, done: int, total: int) -> None:
        try:
            self.tell_progress(done, total)
        except KeyboardInterrupt as error:
            # It must not reach the event loop, which it would end.
            raise _Interrupted from error


class _Interrupted(Exception):
    """A KeyboardInterrupt in another thread, on its way through the event loop."""


class Call(Work):
    """A method of a shadow."""

    def __init__(
        self,
        conversation: Conversation,
        served: Served | None,
        method: str,
        session: str,
        arguments: list[Any],  # Any: plain values
        named: Mapping[str, Any],  # Any: plain values
        wishes: list[bool],
    ) -> None:
        super().__init__(conversation)
        if method not in METHODS:
            raise ConnectionError(f"no method is called {method!r}")
        self._served = served
        self._method = method
        self._session = session
        self._arguments = decode(arguments)
        self._named = {name: decode(value) for name, value in named.items()}
        self._can_repeat = may_repeat(method, self._arguments, self._named)
        has_progress, has_confirm = wishes
        if has_progress:
            self._named["progress"] = self.tell_progress
        if has_confirm:
            self._named["confirm"] = self.ask
        self._shadow: Shadow | None = None

    def cancel(self) -> None:
        """Let it stop where that does no harm."""
        super().cancel()
        if self._shadow is not None:
            self._shadow.cancel()

    async def run(self) -> object:
        """Call the method when the shadow is free; raise Gone if the command should do it by itself."""
        served = self._served
        if served is None:
            raise Gone("no worktree was asked for")
        is_reading = self._method in READING
        wait_s = _READING_WAITS_S if is_reading else served.shadow.settings.lock_timeout
        try:
            async with served.in_use(wait_s, lambda: self.is_cancelled):
                served.note_request(self._session)
                self._shadow = served.shadow.for_session(self._session)
                return await in_thread(self._call, self._shadow)
        except Gone:
            if is_reading or served.is_dropped:
                raise
            raise Locked(served.store, os.getpid(), os.uname().nodename, wait_s) from None
        except _Interrupted as error:
            raise Cancelled from error

    def _call(self, shadow: Shadow) -> object:
        try:
            return encode(self._call_method(shadow))
        except KeyboardInterrupt as error:
            raise _Interrupted from error

    def _call_method(self, shadow: Shadow) -> object:
        # From here on `cancel` reaches the shadow; what came before that is seen now.
        self.check()
        known = len(shadow.recovered)
        try:
            number = None if self._can_repeat else shadow.last_number()
            recovered = shadow.recovered[known:]
            # A command that has gone hears it no more, and then nothing is begun: it may be doing it itself.
            self.tell("number", number)
            result = getattr(shadow, self._method)(*self._arguments, **self._named)
        finally:
            told = shadow.recovered[known:]
            if told:
                self.tell("recovered", told)
        if isinstance(result, Outcome) and recovered:
            # What was made good right before the act; what comes later is in it already.
            return replace(result, notes=[*result.notes, *recovered])
        return result
