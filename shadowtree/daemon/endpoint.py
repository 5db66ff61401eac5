"""The endpoint: where commands and the daemon of one directory of stores find each other.

It is a directory next to the stores, which only its owner can enter:

    daemon/    0700
    ├── lock   flock, held by the one daemon as long as it lives; never removed
    ├── socket 0600; created anew by each daemon
    └── log    what the daemon did, of bounded size

Both sides check that the process at the other end belongs to the same user.
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
"""How many commands may wait to be accepted; any more work alone."""
PER_COMMAND_VARIABLES = frozenset({"SHADOWTREE_STORE", "SHADOWTREE_SESSION"})
"""Variables that are meant only for the command that starts the daemon, which does not inherit them."""


@frozen
class Timing:
    """How long both sides wait for each other, and when the daemon does things, in seconds."""

    hello_s: float = 1.0
    """How long a command waits for the welcome; then it works alone."""
    silence_s: float = 10.0
    """How long a command waits for any frame about its work; then the daemon counts as hung."""
    beat_s: float = 2.0
    """How often the daemon reports that it is still working."""
    first_progress_s: float = 0.5
    progress_s: float = 0.1
    """When the daemon first reports progress, and how often after that."""
    reading_s: float = 0.5
    """How long a request that only reads waits for others; a command that works alone need not wait."""
    sending_s: float = 30.0
    """A command that receives nothing for this long is considered dead."""
    tick_s: float = 3.0
    """How often the daemon checks whether it is needed and can be found, and whether it has idle time."""
    linger_s: float = 2.0
    """A daemon without worktrees and connections ends at the first tick after this time."""
    round_s: float = 60.0
    """How often the daemon checks whether worktrees still exist and are used."""
    unused_s: float = 3600.0
    """A worktree that no connection holds and no command has used for this long is dropped."""
    tidy_after_s: float = 5.0
    """The store of a worktree that has not been used for this long is tidied."""
    push_after_s: float = 2.0
    """A worktree that has not been used for this long is pushed, if the settings name a remote."""
    quiet_s: float = 120.0
    """A worktree that has not been used for this long is checked for unreported changes."""
    look_every_s: float = 600.0
    """The shortest time from the end of one full check of a worktree to the next one."""
    look_s: float = 0.02
    look_pause_s: float = 0.08
    """How long a slice of such a check takes, and the pause after it."""


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
        """Return whether there is a socket, either of a running daemon or left by one that died."""
        stores = Places(environ).stores
        return stores is not None and os.path.lexists(os.path.join(stores, _DIRECTORY, _SOCKET))

    @staticmethod
    def is_own_user(connection: _socket.socket) -> bool:
        """Return whether the process at the other end belongs to the same user as this one."""
        return peer_user(connection) == os.geteuid()

    def circumstances(self) -> dict[str, object]:
        """Collect everything besides its arguments that affects what a command does.

        A daemon works only for commands for which all of this is equal.
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
        """Return the process id of the daemon, or of the last one if none runs."""
        try:
            return disk.read_file(self.lock).decode("ascii", "replace").strip()
        except ShadowError:
            return "unknown"

    def find_owner(self) -> str | None:
        """Return the process id of the running daemon, even if its socket is gone; None if none runs."""
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
        """Connect to the daemon; return None if there is none, or if it cannot be trusted."""
        if not os.path.lexists(self.socket):
            return None
        # Importing `socket` itself takes as long as starting Python.
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
        """Become the daemon; return None if another process is it. Refuse a directory open to others."""
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
        """Create the socket, replacing one that a dead daemon left. The caller must hold the lock."""
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
        """Yield a short name of the socket: its full path may be too long for an address."""
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            yield short_path(fd, self.directory, _SOCKET)
        finally:
            os.close(fd)


def _find_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are settings; usually there are none, and nothing is imported."""
    if not variables:
        return {}
    from shadowtree.config.settings import Settings

    names = [f"{VARIABLE_PREFIX}{key.upper()}" for key in Settings.__match_args__]
    return {name: variables[name] for name in names if name in variables}


class Listening:
    """An endpoint whose daemon is this process."""

    def __init__(self, endpoint: Endpoint, lock_fd: int, listener: socket) -> None:
        self._endpoint = endpoint
        self._lock_fd = lock_fd
        self.listener = listener
        self._socket = os.lstat(endpoint.socket)

    def is_found(self) -> bool:
        """Return whether commands can find this daemon: the lock or the socket may have been removed."""
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
