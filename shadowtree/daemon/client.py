"""The command's side: find the daemon, greet it, have it call a method, follow the work.

Every wait for an answer has a limit: a daemon that does not answer is treated as absent. If it leaves the
work to the command, or dies doing it, a local shadow does it, unless it may have been done already. Nothing
is done twice, and work that may have been done is never reported as not done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

import shadowtree
from shadowtree.base.errors import DaemonFailed, NotConfirmed, PerhapsDone
from shadowtree.daemon import wire
from shadowtree.daemon.endpoint import Endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import signal
    from typing import Any

    Progress = Callable[[int, int], None]
else:
    # Built into Python; the module `signal` takes milliseconds to wrap it.
    import _signal as signal


class Without(Exception):
    """Raised if the daemon leaves the work to the command; nothing was begun."""


class Lost(Exception):
    """Raised if the conversation broke off before the work was known to be done."""

    def __init__(self, *, is_alive: bool, number: int | None = None, is_cancelled: bool = False) -> None:
        self.is_alive = is_alive
        """The daemon only fell silent, and may still be working."""
        self.number = number
        """The number of the last event before the work; None if it was not begun, or is repeatable."""
        self.is_cancelled = is_cancelled
        super().__init__("the daemon was lost")


def identify(*paths: str) -> list[int] | None:
    """Return the devices and inodes of directories; None if one of them does not exist."""
    try:
        found = [os.stat(path) for path in paths]
    except OSError:
        return None
    return [number for status in found for number in (status.st_dev, status.st_ino)]


class Client:
    """A conversation with the daemon, over a blocking connection."""

    def __init__(self, endpoint: Endpoint, connection: _socket.socket) -> None:
        self._endpoint = endpoint
        self._connection = connection
        self._is_cancelled = False
        self.is_understood = True
        """The daemon has this version, so it understands requests about itself."""
        self.session = "default"
        """The session that a call without one used: the one that recorded last."""
        self.recovered: list[str] = []
        """Interrupted operations that the daemon finished or rolled back, one sentence each."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the conversation."""
        self._connection.close()

    def send(self, *frame: object) -> None:
        """Send one frame: its kind and its values."""
        self._connection.sendall(wire.pack_frame(frame))

    def receive(self) -> tuple[Any, ...]:  # Any: plain values
        """Wait for a frame.

        Raises TimeoutError if none comes in time, and ConnectionError if it is malformed or the connection
        is closed.
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
        """Greet the daemon; return None if it works for this command, otherwise the reason why not.

        Raises OSError if it does not answer.
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
        """Return the worktree that a directory is in, and its store; None if the command has to work alone.

        That is so if the worktree is not served, or if its paths are other directories for this process.
        """
        self.send("find", start, store)
        kind, *rest = self.receive()
        if kind != "found":
            return None
        worktree, store, seen = rest
        return (worktree, store) if identify(worktree, store) == seen else None

    def ask(self, *frame: object, progress: Progress | None = None) -> Any:  # Any: plain values
        """Send a request about the daemon itself; raise DaemonFailed if it does not respond."""
        try:
            self.send(*frame)
            return self._follow(progress)
        except (Lost, OSError) as error:
            raise DaemonFailed("has stopped, or is not responding") from error

    def wait(self, report_burst: Callable[[shadowtree.Message], None]) -> str:
        """Report bursts until the daemon stops serving what this conversation holds; return the reason."""
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
        """End the daemon, whatever its version, and wait until it closes the connection."""
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
        named: dict[str, Any],  # Any: arguments of the method
    ) -> Any:  # Any: the method's result
        """Have the daemon call a method of a shadow; raise what it raises, Without or Lost.

        Without a session, the one that recorded last is used. With `confirm`, an act that must be confirmed
        raises NotConfirmed.
        """
        progress = named.get("progress")
        encoded = {
            name: wire.encode(value) for name, value in named.items() if name not in ("progress", "confirm")
        }
        wishes = [progress is not None, named.get("confirm") is not None]
        try:
            self.send("call", method, session, wire.encode(arguments), encoded, wishes)
        except OSError as error:
            raise Lost(is_alive=False) from error
        return self._follow(progress)

    def _follow(self, progress: Progress | None) -> Any:  # Any: what was sent
        """Process the daemon's reports until the work is over; return its result."""
        self._is_cancelled = False
        number = None
        self._connection.settimeout(self._endpoint.timing.silence_s)
        with _calling_on_interrupt(self._cancel) as outcomes:
            while True:
                try:
                    kind, *rest = self.receive()
                except OSError as error:
                    is_alive = isinstance(error, TimeoutError)
                    raise Lost(is_alive=is_alive, number=number, is_cancelled=self._is_cancelled) from error
                if kind == "result":
                    outcomes.append(wire.decode(rest[0]))
                    return outcomes[0]
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

    def _cancel(self) -> None:
        self._is_cancelled = True
        with suppress(OSError):  # `_follow` will notice
            self.send("cancel")


@contextmanager
def _calling_on_interrupt(act: Callable[[], None]) -> Iterator[list[Any]]:  # Any: results of any method
    """Call `act` on Ctrl-C, if Python's own handler or `UntilDone` is in force.

    The work is done in another process, which has to report whether it was stopped in time. Yields a list
    for its result: after an act that is done, `UntilDone` gives way to ignoring Ctrl-C.
    """
    usual = None
    outcomes: list[Any] = []  # Any: see above
    with suppress(ValueError):  # not the main thread: no signal arrives here
        found = signal.getsignal(signal.SIGINT)
        if found is signal.default_int_handler or _is_until_done(found):
            signal.signal(signal.SIGINT, lambda number, frame: act())
            usual = found
    try:
        yield outcomes
    finally:
        if usual is not None:
            is_over = outcomes and _is_until_done(usual) and not getattr(outcomes[0], "dry_run", True)
            signal.signal(signal.SIGINT, signal.SIG_IGN if is_over else usual)


def _is_until_done(handler: object) -> bool:
    """Return whether this is an `UntilDone`. Its module is not loaded here, as hot commands do without it."""
    interrupts = sys.modules.get("shadowtree.base.interrupts")
    return interrupts is not None and isinstance(handler, interrupts.UntilDone)


def connect(endpoint: Endpoint) -> Client | None:
    """Connect to the daemon; return None if there is none."""
    connection = endpoint.connect()
    return None if connection is None else Client(endpoint, connection)


# A shadow in another process


def find_remote(
    environ: Mapping[str, str], start: str, *, store: str | None, session: str | None
) -> shadowtree.Shadow | None:
    """Return a remote shadow of the worktree that a directory is in; None if the command has to work alone.

    The daemon must serve the worktree, and see the same directories as this process.
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
        # Whatever listens there, this command cannot use it.
        pass
    client.close()
    return None


class RemoteShadow:
    """Behaves like a `Shadow`. A local shadow does what the daemon does not do for commands."""

    def __init__(self, client: Client, worktree: str, store: str, session: str | None) -> None:
        self._client = client
        self._is_served = True
        self._local: shadowtree.Shadow | None = None
        self.directory = self._worktree = worktree
        """The worktree, without the cost of a `Path`."""
        self._store = store
        self._session = session

    @property
    def session(self) -> str:
        """The session that the calls used."""
        if self._session is not None:
            return self._session
        return self._client.session if self._local is None else self._local.session

    def for_last_session(self) -> RemoteShadow:
        """Return this shadow: without a session, it uses the one that recorded last."""
        return self

    @property
    def recovered(self) -> list[str]:
        """Interrupted operations that were finished or rolled back, one sentence each."""
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
    ) -> Any:  # Any: arguments and result of the method
        """Have the daemon call a method; if it does not, call it here."""
        if self._is_served:
            try:
                return self._client.call(method, self._session, list(arguments), named)
            except NotConfirmed as error:
                # Nothing is held while the user thinks, so the plan may be outdated by then.
                if not named["confirm"](error.plan):
                    raise
                return self._call(method, *arguments, **{**named, "confirm": None, "expect": error.plan.id})
            except (Without, Lost) as left:
                self._client.close()
                self._is_served = False
                if isinstance(left, Lost):
                    is_repeatable = wire.may_repeat(method, arguments, named)
                    self._require_undone(left, method, is_repeatable=is_repeatable)
        return getattr(self._open_local(), method)(*arguments, **named)

    def _require_undone(self, lost: Lost, method: str, *, is_repeatable: bool) -> None:
        """Raise unless this process may do the work now."""
        if not is_repeatable and lost.number is not None:
            # A daemon that is only silent may still be working.
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
