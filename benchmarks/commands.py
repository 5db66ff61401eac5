"""Commands, each in its own process, compared with the bare start of Python: alone, and with the daemon."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks import ours
from benchmarks.area import Area
from benchmarks.contestants import BARE_PYTHON, OURS
from benchmarks.measure import Effort, take_turns, timed
from benchmarks.report import Row, Targets, Unit, at_size

COMMAND_TARGETS: Targets = {BARE_PYTHON: {1_000: 0.2}}
"""0.2: at most five times as long."""
DAEMON_TARGET = 0.25
"""At most four times as long, whatever the tree."""
HOOK_TARGETS: Targets = {BARE_PYTHON: {1_000: 0.143}}
HOOK_DAEMON_TARGET = 0.333
"""At most seven times as long alone, and three times with the daemon."""
CHANGES = 10

Calls = Mapping[str, Callable[[], object]]
Samples = dict[str, list[float]]


def measure_command(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure `shadowtree track` with nothing changed."""
    store = area.new_store()
    calls: Calls = {
        OURS: partial(ours.track_by_command, area.folder, store),
        BARE_PYTHON: partial(ours.start_bare_python, store.parent),
    }
    samples: Samples = defaultdict(list)
    for run, order in enumerate(take_turns(list(calls), effort.runs + 1)):
        for name in order:
            os.sync()
            seconds, _ = timed(calls[name])
            if run > 0:  # the first run makes the store and warms up
                samples[name].append(seconds)
    return [Row("one-shot command", files, Unit.SECONDS, samples, at_size(COMMAND_TARGETS, files))]


def measure_daemon_commands(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure `shadowtree begin` and `end` while a daemon watches; files are changed between them."""
    home = area.new_store()
    samples: dict[str, Samples] = {"begin": defaultdict(list), "end": defaultdict(list)}
    with ours.Daemon(area.folder, home) as daemon:
        for run, order in enumerate(take_turns([OURS, BARE_PYTHON], effort.runs + 1)):
            for command, of_command in samples.items():
                calls: Calls = {
                    OURS: partial(daemon.command, command, f"message-{run}"),
                    BARE_PYTHON: partial(ours.start_bare_python, home),
                }
                for name in order:
                    changes = CHANGES if (name, command) == (OURS, "end") else 0
                    area.change(area.folder, changes, area.next_seed())
                    seconds, _ = timed(calls[name])
                    if run > 0:  # the first run warms up
                        of_command[name].append(seconds)
        tree = daemon.command("track")
        daemon.require_served(len(samples) * (effort.runs + 1))
    same_trees = daemon.command("track") == tree  # by a full scan, as the daemon is gone
    targets = {BARE_PYTHON: DAEMON_TARGET}
    return [
        Row(f"{command} with the daemon", files, Unit.SECONDS, of_command, targets, same_trees=same_trees)
        for command, of_command in samples.items()
    ]


def measure_hooks(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure `shadowtree hook` around tool calls: alone, and while a daemon watches."""
    home = area.new_store()
    with ours.Daemon(area.folder, home) as daemon:
        served = _measure_hooks(area, ours.Hooks(area.folder, home), home, effort)
        daemon.require_served(2 * (effort.runs + 1))
    alone = _measure_hooks(area, ours.Hooks(area.folder, home), home, effort)
    return [
        Row("hook", files, Unit.SECONDS, alone, at_size(HOOK_TARGETS, files)),
        Row("hook with the daemon", files, Unit.SECONDS, served, {BARE_PYTHON: HOOK_DAEMON_TARGET}),
    ]


def _measure_hooks(area: Area, hooks: ours.Hooks, home: Path, effort: Effort) -> Samples:
    samples: Samples = defaultdict(list)
    for run, order in enumerate(take_turns([OURS, BARE_PYTHON], effort.runs + 1)):
        call = hooks.run_tool(area.next_seed())
        for event in ("PreToolUse", "PostToolUse"):
            calls: Calls = {OURS: partial(call, event), BARE_PYTHON: partial(ours.start_bare_python, home)}
            for name in order:
                seconds, _ = timed(calls[name])
                if run > 0:  # the first run warms up
                    samples[name].append(seconds)
        area.change(area.folder, CHANGES, area.next_seed())
    return samples
