"""kill -9 at every write of an act: after the next command all of it is done, or nothing."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from itertools import count, cycle
from pathlib import Path

import pytest

from shadowtree import faultpoint, system
from shadowtree.intents import decode_intent
from tests.faults import (
    ACTS,
    ACTS_ON_BRANCHES,
    COMMANDS,
    READING,
    RECORDING_ON_BRANCHES,
    WRITING_ACTS_ON_BRANCHES,
    Child,
    Scene,
    open_shadow,
    read_timeline,
    sweep_kills,
)
from tests.processes import PACKAGE_PLACE, surroundings
from tests.referee import assert_sound_store, git

acts = pytest.mark.parametrize("act", ACTS)
back_and_forth = pytest.mark.parametrize("act", ["undo", "redo"])


def each_in_turn(scene: Scene) -> Iterator[None]:
    """Check with one command after the other."""
    for command in cycle(scene.commands):
        scene.check_next(command)
        yield


# Once


@pytest.mark.parametrize(
    ("act", "step"),
    [
        pytest.param("undo", 1, id="undo"),
        *(pytest.param(act, 5, id=f"{act}, some") for act in ("redo", "revert", "unrevert")),
        *(pytest.param(act, 1, id=act, marks=pytest.mark.slow) for act in ACTS if act != "undo"),
    ],
)
def test_an_act_can_be_killed_at_every_write(worktree: Path, tmp_path: Path, act: str, step: int) -> None:
    scene = Scene(worktree, tmp_path / "saved", act)
    checks = each_in_turn(scene)

    kills = sweep_kills(scene.put_back, scene.act, lambda: next(checks), step=step)

    assert kills * step >= 100
    assert_sound_store(scene.store)


SAMPLE = ["switch at the limit", "only", "markers"]
"""What the ordinary run kills here and there; the others wait for the long one."""


@pytest.mark.parametrize(
    ("act", "step"),
    [
        *(pytest.param(act, 1, id=act) for act in RECORDING_ON_BRANCHES),
        *(pytest.param(act, 9, id=f"{act}, some") for act in SAMPLE),
        *(pytest.param(act, 1, id=act, marks=pytest.mark.slow) for act in WRITING_ACTS_ON_BRANCHES),
    ],
)
def test_an_act_on_branches_can_be_killed_at_every_write(
    worktree: Path, tmp_path: Path, act: str, step: int
) -> None:
    """Head, states of messages, branches and what was taken out agree with the files: all, or nothing."""
    scene = Scene(worktree, tmp_path / "saved", act)
    checks = each_in_turn(scene)

    kills = sweep_kills(scene.put_back, scene.act, lambda: next(checks), step=step)

    assert kills * step >= (4 if act in RECORDING_ON_BRANCHES else 60)
    assert_sound_store(scene.store)


@pytest.mark.slow
@pytest.mark.parametrize("act", [*ACTS, *ACTS_ON_BRANCHES])
def test_an_act_can_be_killed_at_every_call(worktree: Path, tmp_path: Path, act: str) -> None:
    """Inside a write too: a file that is made and not written, written and without its mode."""
    scene = Scene(worktree, tmp_path / "saved", act)
    checks = each_in_turn(scene)

    kills = sweep_kills(scene.put_back, scene.act, lambda: next(checks), at_calls=True)

    assert kills >= (8 if act in RECORDING_ON_BRANCHES else 120)
    assert_sound_store(scene.store)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@back_and_forth
def test_each_command_makes_good_every_kill(worktree: Path, tmp_path: Path, act: str, command: str) -> None:
    scene = Scene(worktree, tmp_path / "saved", act)

    sweep_kills(scene.put_back, scene.act, lambda: scene.check_next(command))

    assert_sound_store(scene.store)


def test_an_open_shadow_makes_good_what_another_process_left(worktree: Path, tmp_path: Path) -> None:
    """It has read the timeline before, and remembers what it saw."""
    scene = Scene(worktree, tmp_path / "saved", "undo")
    for number in range(40, 120, 10):
        scene.put_back()
        with open_shadow(worktree) as shadow:
            shadow.status()
            assert Child(scene.act, kill_at=number).wait().signal == signal.SIGKILL
            assert scene.has_intent()

            status = shadow.status()

            scene.assert_settled()
            assert status.head == ("m1" if scene.is_done() else "m2")
            assert len(shadow.recovered) == 1


def die_at(scene: Scene, moment: tuple[str, str]) -> None:
    """Do an act, and be killed at its first write of a kind with such a path."""

    def die(act: str, path: str) -> None:
        if act == moment[0] and moment[1] in path:
            os.kill(os.getpid(), signal.SIGKILL)

    faultpoint.before_write = die
    scene.act()


@pytest.mark.parametrize(
    "moment", [("stage", ""), ("exchange", "text.txt"), ("unlink", ".shadowtree-tmp-")], ids=" ".join
)
@pytest.mark.parametrize("act", ["merge", "only", "markers"])
def test_what_a_merge_made_is_stored_before_the_first_file_is_touched(
    worktree: Path, tmp_path: Path, act: str, moment: tuple[str, str]
) -> None:
    """From then on git keeps it too, until the act is made good."""
    scene = Scene(worktree, tmp_path / "saved", act)
    ended = Child(lambda: die_at(scene, moment)).wait()
    (intent,) = read_timeline(scene.store, lambda journal: journal.open_intents())
    kind, moves = decode_intent(intent.content)
    (merged,) = [move.new for move in moves if move.path == b"text.txt"]
    git("--git-dir", scene.store, "gc", "--quiet", "--prune=now")
    git("--git-dir", scene.store, "fsck", "--full", "--strict")

    assert ended.signal == signal.SIGKILL
    assert (kind, intent.is_committed) == ("revert", moment[0] == "unlink")
    assert merged is not None
    _, _, content = scene.after["text.txt"]
    assert git("--git-dir", scene.store, "cat-file", "-p", merged.blob.hex()) + "\n" == content.decode()
    scene.check_next("status")
    scene.assert_settled()


# Again, while it is made good


def kill_twice(scene: Scene, first: int, command: str, *, step: int) -> int:
    """Kill the act at a write, and the command that makes it good at each of its own; give the kills."""

    def prepare() -> None:
        scene.put_back()
        assert Child(scene.act, kill_at=first).wait().signal == signal.SIGKILL

    def recover() -> None:
        with open_shadow(scene.worktree) as shadow:
            READING[command](shadow)

    # What a command that is killed leaves in the timeline beside the act is not looked at here.
    return sweep_kills(
        prepare, recover, lambda: scene.check_next("status"), first=1 + first % step, step=step
    )


def count_kills(scene: Scene) -> int:
    """Count the writes of an act."""
    for number in count(1):
        scene.put_back()
        if Child(scene.act, kill_at=number).wait().signal is None:
            return number - 1
    raise AssertionError


@back_and_forth
def test_what_makes_a_kill_good_can_be_killed_too(worktree: Path, tmp_path: Path, act: str) -> None:
    scene = Scene(worktree, tmp_path / "saved", act)
    twice = [kill_twice(scene, first, "status", step=13) for first in (60, 90, 110)]

    assert sum(twice) >= 5
    assert_sound_store(scene.store)


@pytest.mark.slow
@acts
def test_what_makes_any_kill_good_can_be_killed_at_every_write(
    worktree: Path, tmp_path: Path, act: str
) -> None:
    scene = Scene(worktree, tmp_path / "saved", act)
    commands = cycle(["status", "track", "messages"])
    twice = [
        kill_twice(scene, first, command, step=1)
        for first, command in zip(range(1, count_kills(scene) + 1), commands, strict=False)
    ]

    assert sum(twice) >= 1000
    assert_sound_store(scene.store)


# File systems that can do less


def without_exchange(patch: pytest.MonkeyPatch) -> None:
    """Let names not be swapped in one step."""
    rename = system._rename

    def refuse(a_fd: int, a: bytes, b_fd: int, b: bytes, way: int) -> None:
        if way == system._EXCHANGE:
            raise OSError(errno.EINVAL, "Invalid argument")
        rename(a_fd, a, b_fd, b, way)

    patch.setattr(system, "_rename", refuse)


def without_renameat2(patch: pytest.MonkeyPatch) -> None:
    """Let there be no renaming but the old one, which replaces."""

    def refuse(a_fd: int, a: bytes, b_fd: int, b: bytes, way: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    patch.setattr(system, "_rename", refuse)


def without_hard_links(patch: pytest.MonkeyPatch) -> None:
    """Let there be no second names either."""

    def refuse(*arguments: object) -> bool:
        return False

    without_renameat2(patch)
    patch.setattr(system, "_move_by_link", refuse)


def without_syncfs(patch: pytest.MonkeyPatch) -> None:
    """Let every file be synced by itself."""
    patch.setattr("shadowtree.staging.sync_file_system", lambda fd: False)


LESS = [without_exchange, without_renameat2, without_hard_links, without_syncfs]


@pytest.mark.parametrize("lessen", LESS)
@pytest.mark.parametrize(
    ("act", "step"),
    [
        pytest.param("undo", 9, id="undo-some"),
        pytest.param("undo", 1, id="undo-all", marks=pytest.mark.slow),
        pytest.param("redo", 1, id="redo-all", marks=pytest.mark.slow),
    ],
)
def test_an_act_can_be_killed_at_every_call_where_the_file_system_can_do_less(
    worktree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lessen: Callable[[pytest.MonkeyPatch], None],
    act: str,
    step: int,
) -> None:
    """The first calls are those of the store, which are the same everywhere."""
    lessen(monkeypatch)
    scene = Scene(worktree, tmp_path / "saved", act)
    checks = each_in_turn(scene)

    kills = sweep_kills(scene.put_back, scene.act, lambda: next(checks), at_calls=True, first=20, step=step)

    assert kills * step >= 100


# The command itself, by the kernel

WRITING_CALLS = (
    *("renameat2", "rename", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "symlink", "symlinkat"),
    *("write", "pwrite64", "fsync", "fdatasync", "syncfs", "fchmod", "ftruncate"),
)
ALWAYS_CALLED = ("renameat2", "unlinkat", "mkdirat", "symlinkat", "write", "pwrite64", "fsync", "fchmod")
COMMAND_LINES = {
    "revert": ["revert", "m2"],
    "undo": ["undo"],
    "redo": ["redo"],
    "unrevert": ["unrevert"],
    "restore": ["restore", "m2^", "--yes"],
}


def run_killed(worktree: Path, arguments: list[str], call: str, number: int, *more: str) -> int:
    """Run a command and kill it at the n-th system call of a kind; give the exit code."""
    packages = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    environment = surroundings(
        PYTHONPATH=os.pathsep.join([PACKAGE_PLACE, *packages]), PYTHONDONTWRITEBYTECODE="1"
    )
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", *more]
    command += ["-e", f"inject={call}:signal=KILL:when={number}"]
    command += [python, "-m", "shadowtree", *arguments, "--set", "min_free=0"]
    done = subprocess.run(command, cwd=worktree, env=environment, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done
    return done.returncode


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("call", WRITING_CALLS)
@acts
def test_the_command_can_be_killed_at_every_system_call(
    worktree: Path, tmp_path: Path, act: str, call: str
) -> None:
    scene = Scene(worktree, tmp_path / "saved", act)
    checks = each_in_turn(scene)
    for number in count(1):
        scene.put_back()
        if run_killed(worktree, COMMAND_LINES[act], call, number) == 0:
            break

        next(checks)

    assert number > 1 or call not in ALWAYS_CALLED
    scene.assert_after()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@back_and_forth
def test_the_command_can_be_killed_at_every_file_that_it_opens_in_the_worktree(
    worktree: Path, tmp_path: Path, act: str
) -> None:
    """Most of them are read; some are made."""
    scene = Scene(worktree, tmp_path / "saved", act)
    checks = each_in_turn(scene)
    for number in count(1):
        scene.put_back()
        if run_killed(worktree, COMMAND_LINES[act], "openat", number, "-P", str(worktree)) == 0:
            break

        next(checks)

    assert number > 10
