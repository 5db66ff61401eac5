"""The log of hooks: what went wrong, for `doctor`; when each agent last called; and which hooks are running.

It is next to the stores, in a directory that only its owner can enter:

    hooks/            0700
    ├── log, log.1            0600; a line for each hook that recorded nothing although it should have
    ├── last-AGENT            0600; empty, its mtime is when the agent's hook last ran
    └── running-AGENT-PID     0600; empty, exists while a hook runs; if the process is dead, it was killed

It is written by plain system calls rather than `logging`: a hook has nothing to load, lines of concurrent
processes do not mix, and a signal handler can write too.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

_DIRECTORY = "hooks"
_LOG = "log"
RUNNING = "running-"
_MOST_BYTES = 256 << 10
_MOST_CHARACTERS = 2000
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def log_file(stores: str) -> str:
    """Return the path of the log, given the directory of stores."""
    return os.path.join(stores, _DIRECTORY, _LOG)


def call_file(stores: str, agent: str) -> str:
    """Return the path of the file whose mtime is when an agent's hook last ran."""
    return os.path.join(stores, _DIRECTORY, f"last-{agent}")


def running_file(stores: str, agent: str) -> str:
    """Return the path of the file that exists while this process runs as a hook."""
    return os.path.join(stores, _DIRECTORY, f"{RUNNING}{agent}-{os.getpid()}")


def note_start(stores: str | None, agent: str) -> None:
    """Note that a hook is running, so that `doctor` can report one that is killed."""
    if stores is not None:
        with suppress(OSError):
            os.close(_open(running_file(stores, agent)))


def note_end(stores: str | None, agent: str) -> None:
    """Note that the hook has ended."""
    if stores is not None:
        with suppress(OSError):
            os.unlink(running_file(stores, agent))


def write_line(stores: str | None, agent: str, event: str, what: str) -> None:
    """Append a line to the log; if that fails, do nothing."""
    if stores is None:
        return
    words = " ".join(f"{agent} {event or '-'}: {what}".split())
    line = "".join(c if c.isprintable() else "?" for c in words)[:_MOST_CHARACTERS]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    path = log_file(stores)
    with suppress(OSError):
        fd = _open(path)
        try:
            if os.fstat(fd).st_size > _MOST_BYTES:
                os.replace(path, f"{path}.1")
            os.write(fd, f"{stamp} {line}\n".encode("ascii", "backslashreplace"))
        finally:
            os.close(fd)


def note_call(stores: str | None, agent: str) -> None:
    """Note that an agent's hook ran."""
    if stores is None:
        return
    path = call_file(stores, agent)
    with suppress(OSError):
        try:
            os.utime(path, follow_symlinks=False)
        except FileNotFoundError:
            os.close(_open(path))


def _open(path: str) -> int:
    try:
        return os.open(path, _FLAGS, 0o600)
    except FileNotFoundError:
        for directory in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path)):
            os.makedirs(directory, 0o700, exist_ok=True)
        return os.open(path, _FLAGS, 0o600)
