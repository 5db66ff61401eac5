"""Have the daemon serve a worktree, without waiting: a separate process starts the daemon and requests it.

That process is detached: it has its own session, none of the agent's descriptors, `/` as its directory, and
only the environment variables that say where things are. So neither it nor the daemon gets the agent's keys.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import shadowtree
from shadowtree.base.errors import DaemonFailed, ShadowError
from shadowtree.cli.hooks.log import write_line
from shadowtree.daemon import wire
from shadowtree.daemon.endpoint import PER_COMMAND_VARIABLES, Endpoint
from shadowtree.results.turns import TurnEvent
from shadowtree.system.locations import VARIABLE_PREFIX, Places

IDLE_S = 30 * 60.0
"""A worktree that no hook or command uses for this long is dropped; after the last one the daemon ends."""
WATCH_SHARE = 0.25
"""The share of the user's inotify watches that such worktrees may take."""
_VARIABLES = frozenset({"HOME", "PATH", "LANG"})
_PREFIXES = ("XDG_", VARIABLE_PREFIX)
_MOST_BYTES = 60_000
"""What a pipe holds before anybody reads from it."""

_CODE = """\
import sys
sys.path.insert(0, {place!r})
from shadowtree.cli.hooks.background import serve
serve()
"""


def serve_in_background(
    environ: Mapping[str, str], agent: str, worktree: str, session: str, missed: TurnEvent | None
) -> None:
    """Start a process that has the daemon serve a worktree, and record the turn that was `missed`, if any."""
    frame = wire.pack_frame((agent, worktree, session, wire.encode(missed)))
    if len(frame) > _MOST_BYTES:
        frame = wire.pack_frame((agent, worktree, session, None))
    reading_fd, writing_fd = os.pipe()
    os.write(writing_fd, frame)
    os.close(writing_fd)
    if os.fork():
        os.close(reading_fd)
        return
    try:
        place = os.path.dirname(os.path.dirname(os.path.abspath(shadowtree.__file__)))
        os.setsid()
        os.chdir("/")
        os.dup2(reading_fd, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.closerange(3, _count_descriptors())
        code = _CODE.format(place=place)
        os.execve(sys.executable, [sys.executable, "-P", "-c", code, "shadowtree-hook"], select(environ))
    finally:
        os._exit(1)


def select(environ: Mapping[str, str]) -> dict[str, str]:
    """Choose the variables that the daemon gets."""
    return {
        name: value
        for name, value in environ.items()
        if (name in _VARIABLES or name.startswith(_PREFIXES)) and name not in PER_COMMAND_VARIABLES
    }


def serve() -> None:
    """Run as the detached process."""
    with open(0, "rb", closefd=False) as given:
        content = given.read()
    agent, worktree, session, encoded = wire.unpack_frame(content[wire.HEADER_BYTES :])
    missed = wire.decode(encoded)
    from shadowtree.daemon.client import find_remote
    from shadowtree.daemon.launch import reach_daemon

    try:
        wish = {"worktree": worktree, "store": None, "idle_s": IDLE_S, "watch_share": WATCH_SHARE}
        with reach_daemon(Endpoint(os.environ)) as client:
            client.ask("serve", wish, True)
        served = None if missed is None else find_remote(os.environ, worktree, store=None, session=session)
        if served is not None:
            with served:
                served.record_turn(missed)
        elif missed is not None:
            raise DaemonFailed(f"does not serve {worktree}")
    except ShadowError as error:
        write_line(Places(os.environ).stores, agent, "daemon", str(error))


def _count_descriptors() -> int:
    try:
        return max(map(int, os.listdir("/proc/self/fd"))) + 1
    except (OSError, ValueError):
        return 1024
