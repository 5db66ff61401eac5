"""A command's end: find the daemon, greet it, let it call a method, follow the work.

Nothing is waited for without a limit: a daemon that does not answer is as good as none. If it leaves the work
to the command, or dies at it, a shadow of our own does it, unless it may have been done already. Nothing is
done twice, and nothing is claimed that is not so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import shadowtree
from shadowtree.base.errors import DaemonFailed, PerhapsDone
from shadowtree.daemon import wire
from shadowtree.daemon.endpoint import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import signal
    from typing import Any

    Progress = Callable[[int, int], None]
    Confirm = Callable[[shadowtree.Plan], bool]
else:
    # Part of Python itself; `signal` takes milliseconds to dress it up.
    import _signal as signal


class Without(Exception):
    """The daemon leaves it to the command to do its work: nothing was begun."""


class Lost(Exception):
    """The conversation broke off before the work was done, as far as anybody knows."""

    def __init__(self, *, is_alive: bool, number: int | None = None, is_cancelled: bool = False) -> None:
        self.is_alive = is_alive
        """It only fell silent, and may go on."""
        self.number = number
        """Of what was recorded last before the work; None: it was not begun, or need not be known."""
        self.is_cancelled = is_cancelled
        super().__init__("the daemon was lost")


def identify(*paths: str) -> list[int] | None:
    """Return device and inode of directories; None: one is not there."""
    try:
        found = [os.stat(path) for path in paths]
    except OSError:
        return None
    return [number for status in found for number in (status.st_dev, status.st_ino)]


class Client:
    """A conversation with the daemon, over a connection that blocks."""

    def __init__(self, endpoint: Endpoint, connection: _socket.socket) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._is_cancelled = False
        self._is_asking = False
        """The user is being asked, and may answer with Ctrl-C."""
        self.is_understood = True
        """The daemon is of this version, so that it can be asked for what concerns itself."""
        self.session = "default"
        """The session that a call without one was about, which is the one that recorded last."""
        self.recovered: list[str] = []
        """What was interrupted and has been finished or undone on the way, a sentence each."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation."""
        self._connection.close()

    def send(self, *frame: object) -> None:
        """Send one frame: its kind, and what belongs to it."""
        self._connection.sendall(wire.pack_frame(frame))

    def receive(self) -> tuple[Any, ...]:  # Any: plain values
        """Wait for a frame.

        Raises TimeoutError if the time is up, and ConnectionError for what is no frame, or if none comes any
        more.
        """
        return wire.unpack_frame(self._read(wire.frame_size(self._read(wire.HEADER_BYTES))))

    def _read(self, size: int) -> bytearray:
        content = bytearray(size)
        view = memoryview(content)
        while view:
            received = self._connection.recv_into(view)
            if not received:
                raise ConnectionError("the daemon has closed the conversation")
            view = view[received:]
        return content

    def greet(self) -> str | None:
        """Ask whether the daemon is like this command; None: it is, else why it does no work for this one.

        Raise OSError if it does not answer.
        """
        self.send("hello", wire.PROTOCOL, shadowtree.__version__, self._endpoint.circumstances())
        kind, *rest = self.receive()
        if kind == "other":
            protocol, version, _, why = rest
            self.is_understood = (protocol, version) == (wire.PROTOCOL, shadowtree.__version__)
            return str(why)
        if kind != "welcome":
            raise ConnectionError("the daemon says something else")
        return None

    def find(self, start: str, store: str | None) -> tuple[str, str] | None:
        """Ask which worktree a directory is in, and which store it has; None: the command has to do without.

        That is so if it is not served, or if these paths are other directories for this process.
        """
        self.send("find", start, store)
        kind, *rest = self.receive()
        if kind != "found":
            return None
        worktree, store, seen = rest
        return (worktree, store) if identify(worktree, store) == seen else None

    def ask(self, *frame: object, progress: Progress | None = None) -> Any:  # Any: plain values
        """Ask for something that concerns the daemon itself; its failure is a DaemonFailed."""
        try:
            self.send(*frame)
            return self._follow(progress)
        except (Lost, OSError) as error:
            raise DaemonFailed("has stopped, or is not responding") from error

    def wait(self, report_burst: Callable[[shadowtree.Message], None]) -> str:
        """Wait until the daemon lets go of what this conversation holds; return the reason."""
        self._connection.settimeout(None)
        while True:
            try:
                kind, content = self.receive()
            except OSError:
                return "the daemon has stopped"
            if kind != "burst":
                return str(content)
            report_burst(wire.decode(content))

    def end(self) -> None:
        """End the daemon, of whatever version it is, and wait until it says no more."""
        self._connection.settimeout(self._endpoint.timing.silence_s)
        try:
            self.send("end")
            while True:
                self.receive()
        except TimeoutError as error:
            raise DaemonFailed("is not responding") from error
        except OSError:
            return

    def call(
        self,
        method: str,
        session: str | None,
        arguments: list[object],
        named: dict[str, Any],  # Any: what the method takes
    ) -> Any:  # Any: what the method gives
        """Have a method of a shadow called; raise what it raises, Without or Lost.

        Without a session it is about the one that recorded last.
        """
        progress, confirm = named.get("progress"), named.get("confirm")
        encoded = {
            name: wire.encode(value) for name, value in named.items() if name not in ("progress", "confirm")
        }
        wishes = [progress is not None, confirm is not None]
        try:
            self.send("call", method, session, wire.encode(arguments), encoded, wishes)
        except OSError as error:
            raise Lost(is_alive=False) from error
        return self._follow(progress, confirm)

    def _follow(self, progress: Progress | None, confirm: Confirm | None = None) -> Any:  # Any: what was sent
        """Follow what the daemon reports of the work until it is over."""
        self._is_cancelled = False
        number = None
        self._connection.settimeout(self._endpoint.timing.silence_s)
        with _calling_on_interrupt(self._interrupt):
            while True:
                try:
                    kind, *rest = self.receive()
                except OSError as error:
                    is_alive = isinstance(error, TimeoutError)
                    raise Lost(is_alive=is_alive, number=number, is_cancelled=self._is_cancelled) from error
                if kind == "result":
                    return wire.decode(rest[0])
                if kind == "error":
                    raise wire.decode_error(rest[0])
                if kind == "without":
                    raise Without(*rest)
                if kind == "number":
                    (number,) = rest
                elif kind == "session":
                    (self.session,) = rest
                elif kind == "progress" and progress is not None:
                    progress(*rest)
                elif kind == "recovered":
                    self.recovered.extend(*rest)
                elif kind == "confirm" and confirm is not None:
                    self._answer(confirm, wire.decode(rest[0]))

    def _answer(self, confirm: Confirm, plan: shadowtree.Plan) -> None:
        """Ask the user to agree to a plan; Ctrl-C is neither yes nor no."""
        self._is_asking = True
        try:
            is_agreed = confirm(plan)
        except KeyboardInterrupt:
            self._cancel()
            return
        finally:
            self._is_asking = False
        self.send("answer", bool(is_agreed))

    def _interrupt(self) -> None:
        if self._is_asking:
            raise KeyboardInterrupt
        self._cancel()

    def _cancel(self) -> None:
        self._is_cancelled = True
        with suppress(OSError):  # `_follow` is about to notice
            self.send("cancel")


@contextmanager
def _calling_on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Turn Ctrl-C into a call, where Python's own handler is in force.

    The work is done in another process, which has to say whether it was in time to stop it.
    """
    usual = None
    with suppress(ValueError):  # not the main thread: no signal arrives here
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            usual = signal.signal(signal.SIGINT, lambda number, frame: act())
    try:
        yield
    finally:
        if usual is not None:
            signal.signal(signal.SIGINT, usual)


def connect(endpoint: Endpoint) -> Client | None:
    """Connect to the daemon; None: there is none."""
    connection = endpoint.connect()
    return None if connection is None else Client(endpoint, connection)


# A shadow in another process


def find_remote(
    environ: Mapping[str, str], start: str, *, store: str | None, session: str | None
) -> shadowtree.Shadow | None:
    """Return the shadow of the worktree that a directory is in, if the daemon serves it and sees it as we do.

    None: the command has to do its work alone.
    """
    client = connect(Endpoint(environ))
    if client is None:
        return None
    given = store or environ.get("SHADOWTREE_STORE") or None
    try:
        if client.greet() is None:
            found = client.find(os.path.realpath(start), given and os.path.realpath(given))
            if found is not None:
                return RemoteShadow(client, *found, session)  # type: ignore[return-value]  # answers like one
    except (OSError, ValueError, TypeError):
        # Whatever it is, it is nothing to talk to.
        pass
    client.close()
    return None


class RemoteShadow:
    """Answers like a `Shadow`. What the daemon does not do for commands is done by one of our own."""

    def __init__(self, client: Client, worktree: str, store: str, session: str | None) -> None:
        self._client = client
        self._is_served = True
        self._local: shadowtree.Shadow | None = None
        self.directory = self._worktree = worktree
        """The worktree, without what a `Path` costs."""
        self._store = store
        self._session = session

    @property
    def session(self) -> str:
        """The session that the calls were about."""
        if self._session is not None:
            return self._session
        return self._client.session if self._local is None else self._local.session

    def for_last_session(self) -> RemoteShadow:
        """Return this one: without a session it is about the one that recorded last."""
        return self

    @property
    def recovered(self) -> list[str]:
        """What was interrupted and has been finished or undone on the way, a sentence each."""
        return [*self._client.recovered, *(self._local.recovered if self._local is not None else [])]

    def __enter__(self) -> RemoteShadow:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation, and close every file."""
        self._client.close()
        if self._local is not None:
            self._local.close()

    def __getattr__(self, name: str) -> Any:  # Any: whatever a Shadow has
        if name not in wire.METHODS:
            return getattr(self._open_local(), name)
        return partial(self._call, name)

    def _call(
        self, method: str, /, *arguments: Any, **named: Any
    ) -> Any:  # Any: what the method takes and gives
        """Let the daemon call a method; if it does not, call it here."""
        if self._is_served:
            try:
                return self._client.call(method, self._session, list(arguments), named)
            except (Without, Lost) as left:
                self._client.close()
                self._is_served = False
                if isinstance(left, Lost):
                    is_repeatable = wire.may_repeat(method, arguments, named)
                    self._require_undone(left, method, is_repeatable=is_repeatable)
        return getattr(self._open_local(), method)(*arguments, **named)

    def _require_undone(self, lost: Lost, method: str, *, is_repeatable: bool) -> None:
        """Raise unless the work may be done by this process now."""
        if not is_repeatable and lost.number is not None:
            # A daemon that is only silent may still go on with it.
            if lost.is_alive:
                raise PerhapsDone(method, "stopped responding") from lost
            if self._open_local().last_number() != lost.number:
                raise PerhapsDone(method, "stopped") from lost
        if lost.is_cancelled:
            raise KeyboardInterrupt from lost

    def _open_local(self) -> shadowtree.Shadow:
        if self._local is None:
            local = shadowtree.Shadow(self._worktree, store=self._store, session=self._session or "default")
            self._local = local if self._session is not None else local.for_last_session()
        return self._local
