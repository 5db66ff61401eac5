"""Daemons for tests: real processes, each ended by the test that started it."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest

from shadowtree.daemon.client import Client, connect
from shadowtree.daemon.endpoint import Endpoint, Timing
from tests.support.processes import surroundings

PATIENCE_S = 60.0

RUN = """
import os, sys
from shadowtree.daemon.endpoint import Endpoint, Timing
from shadowtree.daemon.server import Server

{code}
place = Endpoint(os.environ, timing=Timing({timing}))
listening = place.listen()
assert listening is not None
server = Server(place, listening)
os.write(1, b"ready")
os.close(1)
server.run()
"""
"""A daemon in the foreground; `code` can change its behaviour."""

KILL_AT = """
import signal
from shadowtree.system import disk
from shadowtree.daemon import server

is_armed = False
writes = 0
wanted = {at!r}
call, send = server.Conversation.call, server.Conversation.send

def die():
    os.kill(os.getpid(), signal.SIGKILL)

async def armed_call(self, *what):
    global is_armed
    is_armed = True
    return await call(self, *what)

def before_write(act, path):
    global writes
    writes += is_armed
    if is_armed and wanted in ("first", act, writes):
        die()

async def dying_send(self, *frame):
    if is_armed and wanted == "answer" and frame[0] in ("result", "error"):
        die()
    await send(self, *frame)

server.Conversation.call, server.Conversation.send = armed_call, dying_send
disk.before_write = before_write
"""
"""Dies in its first call: at the n-th write, at the first write of a kind, or before it answers."""

HOLD_AT = """
import threading
from shadowtree.system import disk
from shadowtree.daemon import server

is_armed = False
cancelled = threading.Event()
call, cancel = server.Conversation.call, server.Work.cancel

async def armed_call(self, *what):
    global is_armed
    is_armed = True
    return await call(self, *what)

def told_cancel(self):
    cancel(self)
    if self.shadow is not None:
        cancelled.set()

def before_write(act, path):
    if is_armed and act == {at!r}:
        open({held!r}, "w").close()
        cancelled.wait({patience})

server.Conversation.call, server.Work.cancel = armed_call, told_cancel
disk.before_write = before_write
"""
"""Stops at each write of a certain kind until a call is cancelled."""


def use_timing(patch: pytest.MonkeyPatch, timing: Timing) -> None:
    """Make the commands of this process wait for a daemon as `timing` says."""
    defaults = Endpoint.__init__.__kwdefaults__
    assert defaults is not None
    patch.setitem(defaults, "timing", timing)


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until something holds; fail after `PATIENCE_S`."""
    deadline = monotonic() + PATIENCE_S
    while not is_so():
        assert monotonic() < deadline, "it did not happen"
        sleep(0.01)


def find_pid() -> int | None:
    """Return the pid of the daemon here; None: there is none."""
    place = Endpoint(os.environ)
    if not os.path.exists(place.lock):
        return None
    with open(place.lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read())
        return None


def end_daemon() -> None:
    """End the daemon that a command started here, if there is one."""
    pid = find_pid()
    if pid is not None:
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: find_pid() is None)


@contextmanager
def daemon(code: str = "", timing: str = "", **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon that listens, as a child of this process."""
    program = RUN.format(code=code, timing=timing)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=surroundings(**variables)
    )
    try:
        assert process.stdout is not None
        with process.stdout as ready:
            assert ready.read() == b"ready"
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        process.wait(PATIENCE_S)


def serve(worktree: Path, *, is_kept: bool = True) -> Client:
    """Have the running daemon serve a worktree; return the open conversation."""
    client = greet()
    client.ask("serve", {"worktree": str(worktree), "store": None}, is_kept)
    return client


def serve_kept(worktree: Path) -> None:
    """Have the running daemon serve a worktree until it has not been used for long."""
    serve(worktree).close()


def greet() -> Client:
    """Begin a conversation with the running daemon."""
    place = Endpoint(os.environ)
    client = connect(place)
    assert client is not None
    assert client.greet() is None
    return client


def list_served() -> list[str]:
    """List the worktrees that the daemon serves."""
    with greet() as client:
        return [each["worktree"] for each in client.ask("status")["worktrees"]]
