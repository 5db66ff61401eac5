"""Special kills: twice in one act, next to another process, of the command by the kernel."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow, StoreFailed
from shadowtree.revert.intents import decode_intent
from shadowtree.system import disk
from shadowtree.timeline.sqlite.database import Database
from tests.api.test_purge import assert_nowhere, tell
from tests.faults.acts import Act
from tests.faults.engine import FAULTS, Hit, sweep_all
from tests.faults.scenes import SCENES
from tests.faults.snapshots import write_files
from tests.support.processes import PACKAGE_PLACE, in_child, surroundings
from tests.support.referee import assert_sound_store, git, git_tree
from tests.support.searching import find_bytes
from tests.support.stores import (
    SETTINGS,
    assert_no_leftovers,
    assert_records_whole,
    leftovers,
    open_shadow,
    read_timeline,
    recorded_trees,
    store_of,
    track,
)
from tests.support.sweeps import fail_calls, kill_at, sweep_kills
from tests.support.trees import make_tree

BY_KERNEL = Hit("kill", "a system call")


def make_act(name: str, worktree: Path, place: Path) -> Act:
    scene = SCENES[name](worktree, place)
    assert isinstance(scene, Act)
    return scene


# Snapshots


def check_next(worktree: Path, expected: str) -> None:
    """Check that the next snapshot works and cleans up, and that no record ever misses an object."""
    store = store_of(worktree)
    assert_records_whole(store)

    assert track(worktree) == expected
    assert_records_whole(store)
    assert recorded_trees(store)[-1].tree.hex() == expected
    assert_no_leftovers(store)
    assert_sound_store(store)


def test_the_removal_of_a_store_that_was_made_for_nothing_can_be_killed_at_every_name(
    worktree: Path, tmp_path: Path
) -> None:
    make_tree(worktree, {"a": "1"})
    expected = git_tree(worktree, tmp_path / "scratch")
    stores = store_of(worktree).parent

    for number in count(1):
        shutil.rmtree(stores, ignore_errors=True)
        ended = in_child(partial(fail_and_die_cleaning_up, worktree, number))
        if ended.signal is None:
            break
        check_next(worktree, expected)
    assert number > 10


def fail_and_die_cleaning_up(worktree: Path, number: int) -> None:
    """Run out of room in the first snapshot, and die when the n-th name of the new store is removed."""
    removals = count(1)

    def dying(remove: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any, **named: Any) -> None:  # Any: whatever the call takes
            if next(removals) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            remove(*arguments, **named)

        return call

    def fail(act: str, path: str) -> None:
        if act == "commit":
            raise OSError(errno.ENOSPC, "No space left on device")
        if act == "remove tree":
            os.unlink, os.rmdir = dying(os.unlink), dying(os.rmdir)

    disk.before_write = fail
    track(worktree)


def test_an_unfinished_store_beside_a_finished_one_goes_with_the_next_snapshot(
    worktree: Path, tmp_path: Path
) -> None:
    """Two processes wrap at the same time; one dies while it builds the store, the other one succeeds."""
    writes = count(1)

    def die_while_another_wraps(act: str, path: str) -> None:
        if next(writes) == 6:
            disk.before_write = lambda act, path: None
            in_child(lambda: track(worktree)).value()
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap() -> None:
        disk.before_write = die_while_another_wraps
        track(worktree)

    assert in_child(wrap).signal == signal.SIGKILL
    store = store_of(worktree)
    assert leftovers(store) != []

    track(worktree)

    assert leftovers(store) == []


# Acts


def test_an_open_shadow_makes_good_what_another_process_left(worktree: Path, tmp_path: Path) -> None:
    """The open shadow has already read the timeline, and remembers it."""
    scene = make_act("undo", worktree, tmp_path)
    for number in range(40, 120, 10):
        scene.put_back()
        with open_shadow(worktree) as shadow:
            shadow.status()
            assert kill_at(scene.act, number).signal == signal.SIGKILL
            assert scene.has_intent()

            status = shadow.status()

            scene.assert_settled()
            assert status.head == ("m1" if scene.is_done() else "m2")
            assert len(shadow.recovered) == 1


def die_at(scene: Act, moment: tuple[str, str]) -> None:
    """Do an act, and die at its first write of a kind whose path has a text."""

    def die(act: str, path: str) -> None:
        if act == moment[0] and moment[1] in path:
            os.kill(os.getpid(), signal.SIGKILL)

    disk.before_write = die
    scene.act()


@pytest.mark.parametrize(
    "moment", [("stage", ""), ("exchange", "text.txt"), ("unlink", ".shadowtree-tmp-")], ids=" ".join
)
@pytest.mark.parametrize("act", ["merge", "only", "markers"])
def test_what_a_merge_made_is_stored_before_the_first_file_is_touched(
    worktree: Path, tmp_path: Path, act: str, moment: tuple[str, str]
) -> None:
    """From then on git keeps it too, until the act is recovered."""
    scene = make_act(act, worktree, tmp_path)
    ended = in_child(lambda: die_at(scene, moment))
    (intent,) = read_timeline(scene.store, lambda journal: journal.open_intents())
    written = decode_intent(intent.content)
    (merged,) = [move.new for move in written.moves if move.path == b"text.txt"]
    git("--git-dir", scene.store, "gc", "--quiet", "--prune=now")
    git("--git-dir", scene.store, "fsck", "--full", "--strict", "--no-dangling")

    assert ended.signal == signal.SIGKILL
    assert (written.kind, intent.is_committed) == ("revert", moment[0] == "unlink")
    assert merged is not None
    _, _, content = scene.after["text.txt"]
    assert git("--git-dir", scene.store, "cat-file", "-p", merged.blob.hex()) + "\n" == content.decode()
    scene.check_next("status")
    scene.assert_settled()


@pytest.mark.parametrize("act", ["an undo", "a redo"])
def test_a_recovery_that_cannot_read_a_file_is_left_to_the_next_command(
    act: str, worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable file is not mistaken for one that another program changed, which would be left alone."""
    scene = SCENES[f"recovery of {act}, killed at 0.5"](worktree, tmp_path)
    assert isinstance(scene, Act)
    scene.prepare()
    with monkeypatch.context() as patch:
        fail_calls(patch, "open", b"both.txt", errno.EIO)
        with scene.open() as shadow:
            shadow.status()
            recovered = shadow.recovered

    assert "has not been recovered yet: both.txt" in recovered[0]
    assert scene.has_intent()
    with scene.open() as shadow:
        shadow.status()
    scene.assert_settled()


@pytest.mark.slow
def test_a_recovery_that_a_full_disk_stops_is_finished_by_the_next(worktree: Path, tmp_path: Path) -> None:
    """Files in or above a directory that could not be restored are not mistaken for another program's."""
    scene = SCENES["recovery of an undo, killed at 0.75"](worktree, tmp_path)

    sweep_all(scene, FAULTS["ENOSPC, from then on"])


# Purges


def test_what_could_not_be_finished_is_told_and_finished_later(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(shadow, worktree, 3)

    def fail(database: Database) -> None:
        raise StoreFailed("timeline.db", "it is in use")

    shadow.close()
    with monkeypatch.context() as patched:
        patched.setattr(Database, "scrub", fail)
        with pytest.raises(StoreFailed):
            shadow.purge("conf/key.env")
        with Shadow(worktree, settings=SETTINGS) as other:
            other.undo()
            assert other.recovered == ["an interrupted purge is not finished yet: timeline.db: it is in use"]

    with Shadow(worktree, settings=SETTINGS) as other:
        other.status()
        assert other.recovered == ["an interrupted purge was finished"]
    assert_nowhere(shadow.store)


def test_somebody_who_still_reads_the_old_timeline_is_told_of(shadow: Shadow, worktree: Path) -> None:
    """The content that the reader sees stays in the log as long as the reader is there."""
    tell(shadow, worktree, 3)
    with closing(sqlite3.connect(shadow.store / "timeline.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchall()
        with shadow._access.locked() as opened:
            opened.journal._db._connection.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(StoreFailed, match="is still reading"):
            shadow.purge("conf/key.env")

    shadow.track()

    assert_nowhere(shadow.store)


# The command itself, by the kernel

WRITING_CALLS = (
    *("renameat2", "renameat", "rename", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "symlinkat"),
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
    """Run a command and kill it at the n-th system call of a kind; return the exit code."""
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


ALWAYS_CALLED_BY_TRACK = ("write", "pwrite64", "fdatasync", "rename")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("call", WRITING_CALLS)
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_the_command_track_can_be_killed_at_every_system_call(
    worktree: Path, tmp_path: Path, call: str, is_first: bool
) -> None:
    stores, before = store_of(worktree).parent, tmp_path / "before"
    if not is_first:
        track(worktree)
        shutil.copytree(stores, before)
    for number in count(1):
        write_files(worktree, f"round {number}")
        expected = git_tree(worktree, tmp_path / f"scratch{number}")
        # Otherwise each round would leave more packs to merge, and so more calls, and this would never end.
        shutil.rmtree(stores, ignore_errors=True)
        if not is_first:
            shutil.copytree(before, stores)
        if run_killed(worktree, ["track"], call, number) == 0:
            break

        check_next(worktree, expected)

    assert number > 1 or call not in ALWAYS_CALLED_BY_TRACK


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("call", WRITING_CALLS)
@pytest.mark.parametrize("act", COMMAND_LINES)
def test_the_command_can_be_killed_at_every_system_call(
    worktree: Path, tmp_path: Path, act: str, call: str
) -> None:
    scene = make_act(act, worktree, tmp_path)
    for number in count(1):
        scene.put_back()
        if run_killed(worktree, COMMAND_LINES[act], call, number) == 0:
            break

        scene.check(BY_KERNEL)

    assert number > 1 or call not in ALWAYS_CALLED
    scene.assert_after()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("act", ["undo", "redo"])
def test_the_command_can_be_killed_at_every_file_that_it_opens_in_the_worktree(
    worktree: Path, tmp_path: Path, act: str
) -> None:
    """Most of these files are read; some are created."""
    scene = make_act(act, worktree, tmp_path)
    for number in count(1):
        scene.put_back()
        if run_killed(worktree, COMMAND_LINES[act], "openat", number, "-P", str(worktree)) == 0:
            break

        scene.check(BY_KERNEL)

    assert number > 10


def test_a_purge_of_a_text_is_finished_after_a_kill(worktree: Path, tmp_path: Path) -> None:
    """The purge changes no tree, so only its tombstone says that it has to be finished."""
    text, saved = "hunter2hunter", tmp_path / "saved"
    with Shadow(worktree, settings=SETTINGS) as shadow:
        store = shadow.store
        shadow.snapshot("m1", text=f"the password is {text}")
    shutil.copytree(store, saved)
    begun = set()

    def prepare() -> None:
        shutil.rmtree(store)
        shutil.copytree(saved, store)

    def purge() -> None:
        with Shadow(worktree, settings=SETTINGS) as shadow:
            shadow.purge(text=text)

    def check() -> None:
        with Shadow(worktree, settings=SETTINGS) as shadow:
            # Any command that takes the lock finishes the purge.
            shadow.track()
            is_redacted = shadow.messages()[0].text == "the password is [purged]"
        begun.add(is_redacted)
        assert bool(find_bytes(store, [text.encode()])) != is_redacted

    sweep_kills(prepare, purge, check)

    assert begun == {False, True}
