"""The daemon's end of one conversation: one thread listens, another one works.

So a command can say at any time that it does not want any more, or die, and it is told now and then that its
work goes on.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue

import shadowtree
from shadowtree.daemon.frames import Channel
from shadowtree.daemon.protocol import BEAT_S, PROTOCOL
from shadowtree.daemon.served import Gone, Served, Wish
from shadowtree.daemon.values import encode, encode_error
from shadowtree.daemon.work import Call, Work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Protocol

    class House(Protocol):
        """What a conversation wants of the server."""

        def refuse(self, protocol: int, version: str, circumstances: object) -> str | None:
            """Say why a command has to do without; None: it need not."""

        def find(self, start: str, store: str | None) -> Served | None:
            """Find the served worktree that a directory is in."""

        def serve(
            self, wish: Wish, holder: object | None, progress: Callable[[int, int], None]
        ) -> dict[str, Any]:  # Any: plain values
            """Take a worktree in, and warm it up."""

        def stop(self, start: str, store: str | None) -> list[str]:
            """Serve the worktree that a directory is in no longer; name it."""

        def end(self) -> None:
            """End the daemon."""

        def tell_status(self) -> dict[str, Any]:  # Any: plain values
            """Tell what is served."""

        def note_failure(self, error: BaseException) -> None:
            """Write a bug down."""

        def was_heard(self) -> None:
            """Note that something was done."""

        def was_closed(self, conversation: Conversation) -> None:
            """Forget a conversation."""


_SENDING_S = 30.0
"""A command that takes nothing for so long is taken for dead."""


class Conversation:
    """One command, from its hello to its end."""

    def __init__(self, house: House, connection: socket.socket) -> None:
        self._house = house
        self._connection = connection
        self._channel = Channel(connection)
        self._is_welcome = False
        self._is_understood = False
        """The command is of our version, so that it may ask for what concerns the daemon itself."""
        self._is_hung_up = False
        self._served: Served | None = None
        self._work: Work | None = None
        self._waiting: SimpleQueue[Work | None] = SimpleQueue()
        self._worker: threading.Thread | None = None
        self._listener = threading.Thread(target=self._run, name="listener", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._listener.start()

    @property
    def is_working(self) -> bool:
        """Whether something is being done for the command."""
        return self._work is not None

    def tell_gone(self, why: str) -> None:
        """Tell a holder that its worktree is no longer served."""
        try:
            self._channel.send("gone", why)
        except OSError:
            return

    def tell_burst(self, message: shadowtree.Message) -> None:
        """Tell a holder that a burst was recorded."""
        try:
            self._channel.send("burst", encode(message))
        except OSError:
            return

    def hang_up(self) -> None:
        """Listen no more; what is being done is finished, unless it waits for a person."""
        self._is_hung_up = True
        work = self._work
        if work is not None and work.is_asking:
            work.cancel()
        try:
            self._connection.shutdown(socket.SHUT_RD)
        except OSError:
            return

    def join(self) -> None:
        """Wait until all is said and done."""
        self._listener.join()

    # Listening

    def _run(self) -> None:
        try:
            self._connection.settimeout(_SENDING_S)
            self._listen()
        except OSError:
            # The command has gone, or says what no command says.
            pass
        except Exception as error:  # noqa: BLE001  # a bug in one conversation ends this one alone
            self._house.note_failure(error)
        finally:
            self._finish()

    def _finish(self) -> None:
        """Let the work end before the conversation does: who sees it closed knows that nothing goes on."""
        work = self._work
        if work is not None and not self._is_hung_up:
            work.cancel()
        self._waiting.put(None)
        if self._worker is not None:
            self._worker.join()
        self._channel.close()
        self._house.was_closed(self)

    def _listen(self) -> None:
        while True:
            self._wait()
            frame = self._channel.receive()
            if frame is None:
                return
            self._take(*frame)

    def _wait(self) -> None:
        """Wait for the next frame, and tell now and then that the work goes on."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while not poll.poll(BEAT_S * 1000 if self.is_working else None):
            work = self._work
            if work is not None and not work.is_asking:
                self._channel.send("working")

    def _take(self, kind: str, *rest: Any) -> None:  # Any: plain values
        if kind == "hello":
            self._welcome(*rest)
        elif kind == "end":
            self._house.end()
        elif kind == "status" and self._is_understood:
            self._channel.send("result", encode(self._house.tell_status()))
        elif kind == "stop" and self._is_understood:
            self._channel.send("result", self._house.stop(*rest))
        elif not self._is_welcome:
            raise ConnectionError("it has not said hello")
        elif kind == "find":
            self._find(*rest)
        elif kind == "call":
            self._begin(Call(self._channel.send, self._served, *rest))
        elif kind == "serve":
            self._begin(_Serving(self._channel.send, self._house, self, *rest))
        elif kind == "cancel" and self._work is not None:
            self._work.cancel()
        elif kind == "answer" and self._work is not None:
            self._work.answer(*rest)

    def _welcome(self, protocol: int, version: str, circumstances: object) -> None:
        self._is_understood = (protocol, version) == (PROTOCOL, shadowtree.__version__)
        why = self._house.refuse(protocol, version, circumstances)
        if why is not None:
            self._channel.send("other", PROTOCOL, shadowtree.__version__, os.getpid(), why)
            return
        self._is_welcome = True
        self._channel.send("welcome")

    def _find(self, start: str, store: str | None) -> None:
        self._served = self._house.find(start, store)
        if self._served is None:
            self._channel.send("without", "it is not served")
        else:
            self._channel.send("found", self._served.worktree, self._served.store, self._served.seen)

    # Working

    def _begin(self, work: Work) -> None:
        if self.is_working:
            raise ConnectionError("one thing after the other")
        self._work = work
        self._waiting.put(work)
        if self._worker is None:
            self._worker = threading.Thread(target=self._do_all, name="worker", daemon=True)
            self._worker.start()

    def _do_all(self) -> None:
        while (work := self._waiting.get()) is not None:
            frame = self._do(work)
            # Before the answer, because the command may say the next thing right after it.
            self._work = None
            self._house.was_heard()
            try:
                self._channel.send(*frame)
            except OSError:
                # The command has gone; the listener is about to notice.
                continue

    def _do(self, work: Work) -> tuple[object, ...]:
        """Do it, and give the frame that tells what came of it."""
        try:
            return "result", work.run()
        except Gone as error:
            return "without", str(error)
        except (shadowtree.ShadowError, KeyboardInterrupt, OSError) as error:
            return "error", encode_error(error)
        except Exception as error:  # noqa: BLE001  # a bug is the command's to tell
            self._house.note_failure(error)
            return "error", encode_error(error)


class _Serving(Work):
    """A worktree that is taken in."""

    def __init__(
        self,
        tell: Callable[..., None],
        house: House,
        conversation: Conversation,
        wish: dict[str, Any],  # Any: plain values
        is_kept: bool,
    ) -> None:
        super().__init__(tell)
        self._house = house
        self._wish = Wish(**wish)
        self._holder = None if is_kept else conversation

    def run(self) -> object:
        """Warm it up, and tell what it is."""
        return encode(self._house.serve(self._wish, self._holder, self.tell_progress))
