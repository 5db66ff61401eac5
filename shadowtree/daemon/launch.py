"""Start a daemon in the background, and connect to the running one."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack

import shadowtree
from shadowtree.base.errors import DaemonFailed, ShadowError
from shadowtree.daemon.client import Client, connect
from shadowtree.daemon.endpoint import PER_COMMAND_VARIABLES, Endpoint

_PATIENCE_S = 20.0
"""How long a new daemon may take to start."""
_PAUSE_S = 0.05
_MOMENT_S = 1.0
"""How long a daemon that is starting or ending may hold the lock without a socket."""

_CODE = """\
import sys
sys.path.insert(0, {place!r})
from shadowtree.daemon.launch import run_detached
run_detached({ready_fd})
"""
"""What the new process runs: this package, wherever it is, and nothing from the current directory."""


def reach_daemon(endpoint: Endpoint) -> Client:
    """Connect to the daemon, and start one if none runs; raise DaemonFailed if that is not possible."""
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
            # Another daemon is about to listen, or to end.
            time.sleep(_PAUSE_S)


def find_daemon(endpoint: Endpoint, *, is_to_oversee: bool = False) -> Client | None:
    """Connect to the running daemon; return None if there is none, or if it is ending.

    Raises DaemonFailed if it hangs, or its circumstances differ from this command's. To oversee it, which is
    to send only `status` and `stop`, it only has to have this version.
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
    """Connect to the daemon to oversee it; raise DaemonFailed also if it runs and its socket is gone."""
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
    """End the daemon and wait until it has ended; without a client, wait for one that ends by itself.

    Raises DaemonFailed if it does not end in time.
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
    """Start a daemon; return `ready`, `taken` if there is one already, or why it failed."""
    import subprocess

    place = os.path.dirname(os.path.dirname(os.path.abspath(shadowtree.__file__)))
    ready_fd, telling_fd = os.pipe()
    try:
        code = _CODE.format(place=place, ready_fd=telling_fd)
        own = {name: value for name, value in environ.items() if name not in PER_COMMAND_VARIABLES}
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
    """Run the daemon in a detached child of this process; report to `ready_fd` whether it listens."""
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
