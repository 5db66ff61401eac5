"""How soon `shadowtree rewind` shows its first screen for a long history, compared with `shadowtree log`.

Each runs on a terminal of its own, and is timed until the last line of its first screen is there.
"""

from __future__ import annotations

import os
import pty
import sys
from collections import defaultdict
from functools import partial
from pathlib import Path

from benchmarks.area import Area
from benchmarks.contestants import OURS
from benchmarks.measure import PROJECT, Effort, take_turns, timed
from benchmarks.report import Row, Unit
from shadowtree import Shadow

LOG = "shadowtree log"
LOG_TARGET = 0.5
"""At most twice as long."""
_SIGNS = {"log": b"message-%d", "rewind": b"quit"}
"""A text in the last line: the newest message, and the key to leave."""


def measure_picker(area: Area, files: int, effort: Effort) -> list[Row]:
    """Record a long history, and measure both with it."""
    home = area.new_store()
    home.mkdir()
    with Shadow(area.folder, store=home / "store", settings={"min_free": 0}) as shadow:
        for number in range(effort.messages):
            area.change(area.folder, 1, area.next_seed())
            shadow.snapshot(f"message-{number}", text="change a file")
    last = effort.messages - 1
    calls = {
        OURS: partial(_show, "rewind", area.folder, home, last),
        LOG: partial(_show, "log", area.folder, home, last),
    }
    samples: dict[str, list[float]] = defaultdict(list)
    for run, order in enumerate(take_turns(list(calls), effort.runs + 1)):
        for name in order:
            seconds, leave = timed(calls[name])
            leave()
            if run > 0:  # the first run warms up
                samples[name].append(seconds)
    title = f"first screen of rewind, {effort.messages:,} messages"
    return [Row(title, files, Unit.SECONDS, samples, {LOG: LOG_TARGET})]


def _show(command: str, worktree: Path, home: Path, last: int) -> partial[None]:
    """Start a command on a terminal, and wait for its sign; return a function that ends it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(worktree)
        variables = {**os.environ, "PYTHONPATH": str(PROJECT), "TERM": "xterm-256color"}
        words = ["-m", "shadowtree", command, "--no-pager", "--store", str(home / "store")]
        os.execve(sys.executable, [sys.executable, *words], variables)
    sign = _SIGNS[command].replace(b"%d", b"%d" % last)
    shown = b""
    while sign not in shown:
        shown += os.read(terminal, 65536)
    return partial(_leave, pid, terminal)


def _leave(pid: int, terminal: int) -> None:
    try:
        os.write(terminal, b"q")
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # EIO: it has ended
    os.close(terminal)
    os.waitpid(pid, 0)
