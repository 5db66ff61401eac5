"""The endpoint: where commands and the daemon of one directory of stores find each other.

A directory of its own beside the stores, which only its owner can enter:

    daemon/    0700
    ├── lock   flock, held by the one daemon as long as it lives; never removed
    ├── socket 0600; made anew by each daemon
    └── log    what the daemon did, of bounded size

Both sides check the user at the other end, and refuse another one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from shadowtree.base.errors import InvalidInput, ShadowError
from shadowtree.base.frozen import frozen
from shadowtree.system import disk
from shadowtree.system.locations import VARIABLE_PREFIX, Places
from shadowtree.system.syscalls import file_system_view, free_lock, peer_user, short_path, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from socket import socket

_DIRECTORY = "daemon"
_SOCKET = "socket"
_BACKLOG = 64
"""How many commands may wait for a daemon to listen; one more does without."""


@frozen
class Timing:
    """How long both sides wait for each other, and what the daemon does by the clock, in seconds."""

    hello_s: float = 1.0
    """How long a command waits for the welcome; then it works alone."""
    silence_s: float = 10.0
    """How long it waits for any frame about its work; then the daemon hangs."""
    beat_s: float = 2.0
    """How often the daemon says that it is still at work."""
    first_progress_s: float = 0.5
    progress_s: float = 0.1
    """When it sends the first progress, and how often after that."""
    reading_s: float = 0.5
    """How long a request that only reads waits for others; by itself a command need not wait at all."""
    sending_s: float = 30.0
    """A command that takes nothing for so long is taken for dead."""
    tick_s: float = 3.0
    """How often the daemon looks whether it is needed and found, and whether there is idle time."""
    linger_s: float = 2.0
    """A daemon without worktrees and without connections ends at the first tick after so long."""
    round_s: float = 60.0
    """How often worktrees are checked: are they still there, and used."""
    unused_s: float = 3600.0
    """A worktree that no connection holds and no command used for so long is dropped."""
    tidy_after_s: float = 5.0
    """The store of a worktree that was not used for so long is tidied."""
    push_after_s: float = 2.0
    """What was recorded is pushed once nothing was wanted for so long, if the settings name a remote."""
    quiet_s: float = 120.0
    """A worktree that was not used for so long is looked over."""
    look_every_s: float = 600.0
    """At most one full look over a worktree is begun in that time."""
    look_s: float = 0.02
    look_pause_s: float = 0.08
    """How long a piece of such a look takes, and the pause after it."""


USUAL_TIMING = Timing()


class Endpoint:
    """The directory in which commands and the daemon find each other."""

    def __init__(self, environ: Mapping[str, str], *, timing: Timing = USUAL_TIMING) -> None:
        self.timing = timing
        self._places = Places(environ)
        if self._places.stores is None:
            raise InvalidInput("there is no home directory to find the daemon in")
        self.environ = environ
        self.stores = self._places.stores
        self.directory = os.path.join(self.stores, _DIRECTORY)
        self.lock = os.path.join(self.directory, "lock")
        self.socket = os.path.join(self.directory, _SOCKET)
        self.log = os.path.join(self.directory, "log")

    @staticmethod
    def is_used(environ: Mapping[str, str]) -> bool:
        """Return whether a daemon listens there, or one that died left its socket."""
        stores = Places(environ).stores
        return stores is not None and os.path.lexists(os.path.join(stores, _DIRECTORY, _SOCKET))

    @staticmethod
    def is_own_user(connection: _socket.socket) -> bool:
        """Return whether the process at the other end is of the same user as this one."""
        return peer_user(connection) == os.geteuid()

    def circumstances(self) -> dict[str, object]:
        """Collect what decides, beside its arguments, what a command does.

        A daemon does the work of those commands alone for which all of it is the same.
        """
        umask = os.umask(0o077)
        os.umask(umask)
        return {
            "HOME": self.environ.get("HOME"),
            "XDG_CONFIG_HOME": self.environ.get("XDG_CONFIG_HOME"),
            "stores": self.stores,
            "settings file": self._places.user_config,
            "settings": _find_settings(self._places.variables),
            "umask": umask,
            "groups": [os.getegid(), *sorted(os.getgroups())],
            "file name encoding": sys.getfilesystemencoding(),
            "file system": file_system_view(),
        }

    def read_owner(self) -> str:
        """Name the process that is the daemon, or was it last."""
        try:
            return disk.read_file(self.lock).decode("ascii", "replace").strip()
        except ShadowError:
            return "unknown"

    def find_owner(self) -> str | None:
        """Name the process that is the daemon, also if its socket is gone; None: there is none."""
        try:
            fd = os.open(self.lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            if not try_lock(fd):
                return self.read_owner()
            free_lock(fd)
            return None
        finally:
            os.close(fd)

    def connect(self) -> _socket.socket | None:
        """Connect to the daemon; None: there is none, or one that is not to be trusted."""
        if not os.path.lexists(self.socket):
            return None
        # The module `socket` itself costs as much as a bare start of Python.
        import _socket

        try:
            disk.require_private(self.directory)
            with ExitStack() as unless_kept, self._address() as address:
                connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
                unless_kept.callback(connection.close)
                connection.settimeout(self.timing.hello_s)
                connection.connect(address)
                if not self.is_own_user(connection):
                    return None
                unless_kept.pop_all()
                return connection
        except (OSError, ShadowError):
            return None

    def listen(self) -> Listening | None:
        """Become the daemon here; None: another process is. Refuse a directory that others can write to."""
        disk.make_directories(self.directory)
        disk.require_trusted_parent(os.path.dirname(self.directory))
        disk.require_private(self.directory)
        with ExitStack() as unless_kept, disk.store_errors(self.lock):
            fd = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            unless_kept.callback(os.close, fd)
            disk.make_private(fd)
            if not try_lock(fd):
                return None
            os.pwrite(fd, str(os.getpid()).encode().ljust(20), 0)
            listening = Listening(self, fd, self._bind())
            unless_kept.pop_all()
            return listening

    def _bind(self) -> socket:
        """Make the socket, in place of one that a dead daemon left. Only for the holder of the lock."""
        import socket

        disk.remove_file(self.socket)
        with ExitStack() as unless_kept, disk.store_errors(self.socket), self._address() as address:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            unless_kept.callback(listener.close)
            listener.bind(address)
            os.chmod(self.socket, 0o600)
            listener.listen(_BACKLOG)
            unless_kept.pop_all()
            return listener

    @contextmanager
    def _address(self) -> Iterator[str]:
        """Yield a name of the socket while the directory is open; its path may be too long for an address."""
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield short_path(fd, self.directory, _SOCKET)
        finally:
            os.close(fd)


def _find_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Choose the variables that are settings; without any, as nearly always, nothing is imported for it."""
    if not variables:
        return {}
    from shadowtree.config.settings import Settings

    names = [f"{VARIABLE_PREFIX}{key.upper()}" for key in Settings.__match_args__]
    return {name: variables[name] for name in names if name in variables}


class Listening:
    """An endpoint that this process is the daemon of."""

    def __init__(self, endpoint: Endpoint, lock_fd: int, listener: socket) -> None:
        self._endpoint = endpoint
        self._lock_fd = lock_fd
        self.listener = listener
        self._socket = os.lstat(endpoint.socket)

    def is_found(self) -> bool:
        """Return whether commands still find us: the user may have removed the lock or the socket."""
        try:
            has_lock = os.path.samestat(os.fstat(self._lock_fd), os.lstat(self._endpoint.lock))
            return has_lock and os.path.samestat(self._socket, os.lstat(self._endpoint.socket))
        except OSError:
            return False

    def close(self) -> None:
        """Accept no more connections, and let the next daemon start."""
        self.listener.close()
        if self.is_found():
            disk.remove_file(self._endpoint.socket)
        free_lock(self._lock_fd)
        os.close(self._lock_fd)
