"""Start a daemon in the background, and reach the one that runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack

import shadowtree
from shadowtree.base.errors import DaemonFailed, ShadowError
from shadowtree.daemon.client import Client, connect
from shadowtree.daemon.endpoint import Endpoint

_PATIENCE_S = 20.0
"""How long a new daemon may take to come up."""
_PAUSE_S = 0.05
_MOMENT_S = 1.0
"""How long a daemon that is coming up or ending may hold the lock without a socket."""

_CODE = """\
import sys
sys.path.insert(0, {place!r})
from shadowtree.daemon.launch import run_detached
run_detached({ready_fd})
"""
"""What the new process runs: this very package, wherever it is, and nothing of the current directory."""

_NOT_ITS_OWN = ("SHADOWTREE_STORE", "SHADOWTREE_SESSION")
"""Variables that are for the command alone that started it."""


def reach_daemon(endpoint: Endpoint) -> Client:
    """Return a conversation with the daemon, which is started if none runs; raise DaemonFailed."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        client = find_daemon(endpoint)
        if client is not None:
            return client
        answer = _start(endpoint.environ)
        if answer not in ("ready", "taken"):
            raise DaemonFailed(f"did not start: {answer or 'unknown reason'}")
        if time.monotonic() > deadline:
            raise _make_silence(endpoint)
        if answer == "taken":
            # Another one is about to listen, or to end.
            time.sleep(_PAUSE_S)


def find_daemon(endpoint: Endpoint, *, is_to_oversee: bool = False) -> Client | None:
    """Return a conversation with the daemon that runs; None: none does, or it is ending.

    Raise DaemonFailed if it hangs, or is not like this command. To oversee it, which is to ask for `status`
    and `stop` alone, it only has to be of this version.
    """
    client = connect(endpoint)
    if client is None:
        return None
    with ExitStack() as unless_kept:
        unless_kept.enter_context(client)
        try:
            why = client.greet()
        except TimeoutError as error:
            raise _make_silence(endpoint) from error
        except OSError:
            return None
        if why is not None and not (is_to_oversee and client.is_understood):
            running = f"(process {endpoint.read_owner()}) {why}"
            raise DaemonFailed(f"{running}; run 'shadowtree watch stop --all'")
        unless_kept.pop_all()
    return client


def find_to_oversee(endpoint: Endpoint) -> Client | None:
    """Return a conversation to oversee the daemon with; raise DaemonFailed also if its socket is gone."""
    deadline = time.monotonic() + _MOMENT_S
    while True:
        client = find_daemon(endpoint, is_to_oversee=True)
        owner = endpoint.find_owner() if client is None else None
        if owner is None:
            return client
        if time.monotonic() > deadline:
            raise DaemonFailed(
                f"(process {owner}) cannot be reached: its socket is gone; run 'shadowtree watch stop --all'"
            )
        time.sleep(_PAUSE_S)


def end_daemon(endpoint: Endpoint, client: Client | None) -> None:
    """Tell the daemon to end, and wait until it has; without a client it is one that ends by itself.

    Raise DaemonFailed if it goes on.
    """
    owner = endpoint.read_owner()
    if client is not None:
        client.end()
    deadline = time.monotonic() + endpoint.timing.silence_s
    while endpoint.find_owner() == owner:
        if time.monotonic() > deadline:
            raise DaemonFailed(f"(process {owner}) has not stopped yet")
        time.sleep(_PAUSE_S)


def _make_silence(endpoint: Endpoint) -> DaemonFailed:
    return DaemonFailed(f"(process {endpoint.read_owner()}) is not responding")


def _start(environ: Mapping[str, str]) -> str:
    """Start a daemon; say `ready`, `taken` if there is one already, or why it failed."""
    import subprocess

    place = os.path.dirname(os.path.dirname(os.path.abspath(shadowtree.__file__)))
    ready_fd, telling_fd = os.pipe()
    try:
        code = _CODE.format(place=place, ready_fd=telling_fd)
        own = {name: value for name, value in environ.items() if name not in _NOT_ITS_OWN}
        subprocess.run(
            [sys.executable, "-P", "-c", code, "shadowtree-daemon"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[telling_fd],
            cwd="/",
            env=own,
            start_new_session=True,
            check=False,
        )
    finally:
        os.close(telling_fd)
    with os.fdopen(ready_fd, encoding="utf-8", errors="replace") as ready:
        return ready.read()


def run_detached(ready_fd: int) -> None:
    """Be the daemon, in a detached child of this process; report when it listens."""
    if os.fork():
        os._exit(0)
    server, answer = None, "taken"
    try:
        endpoint = Endpoint(os.environ)
        listening = endpoint.listen()
        if listening is not None:
            from shadowtree.daemon.server import Server

            server, answer = Server(endpoint, listening), "ready"
    except ShadowError as error:
        answer = str(error)
    os.write(ready_fd, answer.encode("utf-8", "backslashreplace"))
    os.close(ready_fd)
    if server is not None:
        server.run()
