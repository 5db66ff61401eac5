"""How new packs come into a store: one flush makes a snapshot durable, and a power cut may take the rest."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from shadowtree import Conflict, Shadow
from shadowtree.base.limits import Limits, PackLimits
from shadowtree.capture.open_store import OpenStore
from shadowtree.store.directory import StoreLayout
from shadowtree.store.lock import Lock
from shadowtree.store.pack_writer import PackWriter
from shadowtree.system import disk
from tests.support.limits import change_limits
from tests.support.processes import Child, in_child
from tests.support.referee import assert_sound_store, git
from tests.support.stores import (
    SETTINGS,
    assert_no_leftovers,
    assert_records_whole,
    count_packs,
    journaled_packs,
    open_shadow,
    put_back,
    read_timeline,
    recorded_trees,
    store_of,
    track,
)
from tests.support.sweeps import Faults
from tests.support.trees import Tree, assert_tree, make_tree, read_tree

ANOTHER_BOOT = "another boot"


class History:
    """A worktree in which five messages were recorded, saved so that it can be spoilt again and again."""

    def __init__(self, worktree: Path, saved: Path) -> None:
        self.worktree = worktree
        self._saved = saved
        self._before: dict[str, Tree] = {}
        make_tree(worktree, {"kept.txt": "kept", "sub": {"a": "0"}})
        with open_shadow(worktree) as shadow:
            shadow.wrap()
            for number in range(1, 6):
                self._before[f"m{number}"] = read_tree(worktree)
                with shadow.message(f"m{number}"):
                    make_tree(worktree, {f"new{number}": f"{number}", "sub": {"a": f"{number}" * 100}})
        self._after = read_tree(worktree)
        self.store = store_of(worktree)
        self.packs = [pack.name for pack in journaled_packs(self.store)]
        shutil.copytree(self.store, saved)

    def put_back(self) -> None:
        """Have the store as it was."""
        put_back(self._saved, self.store)

    def files(self, suffix: str) -> list[Path]:
        """Give the files of the journaled packs that end in this way."""
        return [self.store / "objects" / "pack" / (name + suffix) for name in self.packs]

    def assert_whole(self) -> None:
        """Nothing is missing to real git or to us, and every message can be reverted and brought back."""
        assert_sound_store(self.store)
        assert_no_leftovers(self.store)
        assert_records_whole(self.store)
        with open_shadow(self.worktree) as shadow:
            for name, tree in reversed(self._before.items()):
                shadow.revert(name)
                assert_tree(self.worktree, tree)
            shadow.redo(None)
        assert_tree(self.worktree, self._after)
        assert_sound_store(self.store)


@pytest.fixture
def history(worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Some snapshots, of which the journal alone makes the packs durable."""
    change_limits(monkeypatch, packs=PackLimits(many=100))
    return History(worktree, tmp_path / "saved")


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is written from now on: each act, and the path."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(disk, "before_write", lambda act, path: found.append((act, path)))
    return found


def flushes(acts: list[tuple[str, str]]) -> list[str]:
    return [act for act, _ in acts if act in ("fsync", "fsync directory", "commit", "record", "intent")]


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the machine look as if it had been started anew."""
    change_limits(monkeypatch, boot_id=ANOTHER_BOOT)


# One flush


def test_a_snapshot_is_durable_by_one_flush(
    shadow: Shadow, worktree: Path, acts: list[tuple[str, str]]
) -> None:
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    shadow.track()
    make_tree(worktree, {"a": "2"})
    acts.clear()

    tree = shadow.track()

    assert flushes(acts) == ["commit"]
    assert git("--git-dir", shadow.store, "show", f"{tree}:a") == "2"


def test_a_message_is_durable_by_one_flush_at_each_end(
    shadow: Shadow, worktree: Path, acts: list[tuple[str, str]]
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.track()
    make_tree(worktree, {"a": "2"})
    acts.clear()

    shadow.begin("m1")
    assert flushes(acts) == ["commit"]
    make_tree(worktree, {"a": "3"})
    shadow.end("m1")
    assert flushes(acts) == ["commit", "commit"]


def test_nothing_of_a_small_pack_is_on_the_disk_before_its_record_counts(
    shadow: Shadow, worktree: Path, acts: list[tuple[str, str]]
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.track()
    make_tree(worktree, {"a": "2"})
    acts.clear()

    with shadow.message("m1"):
        make_tree(worktree, {"a": "3"})

    writes = [act for act, path in acts if act == "commit" or "/pack/" in path or "/refs/" in path]
    assert writes == 2 * ["commit", *2 * ["create", "write", "rename"], "overwrite"]


def test_a_large_pack_is_durable_before_its_record_counts(
    shadow: Shadow, worktree: Path, acts: list[tuple[str, str]]
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.track()
    (worktree / "large").write_bytes(os.urandom(300_000))
    acts.clear()

    shadow.track()

    found = [act for act in flushes(acts) if act != "intent"]
    assert found == ["fsync", "fsync", "record", "fsync directory", "fsync", "fsync directory", "commit"]
    assert read_timeline(shadow.store, lambda journal: journal.packs.announced()) == []


def test_a_record_whose_large_pack_was_published_before_moves_the_ref_durably(
    shadow: Shadow, worktree: Path, acts: list[tuple[str, str]]
) -> None:
    """The end of a message publishes first, to compare, and has nothing but rows to add then."""
    make_tree(worktree, {"a": "1"})
    shadow.begin("m1")
    (worktree / "large").write_bytes(os.urandom(300_000))
    acts.clear()

    shadow.end("m1")

    ref = str(shadow.store / "refs" / "heads" / "shadowtree")
    timeline = str(shadow.store / "timeline.db")
    assert acts.index(("rename", ref)) < acts.index(("commit", timeline))


# After a power cut

DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "whole": lambda content: content,
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
    "garbled": lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
}
COMMANDS: dict[str, Callable[[Shadow], object]] = {
    "track": lambda shadow: shadow.track(),
    "status": lambda shadow: shadow.status(),
    "show": lambda shadow: shadow.show("m5"),
    "undo": lambda shadow: (shadow.undo(), shadow.redo()),
}


def spoil(path: Path, damage: str) -> None:
    content = DAMAGES[damage](path.read_bytes())
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)


@pytest.mark.parametrize("command", COMMANDS)
def test_whatever_a_power_cut_took_of_the_files_is_made_good_by_the_next_command(
    history: History, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them was ever flushed; each pack is spoilt in another way."""
    restart(monkeypatch)
    pairs = list(product(DAMAGES, DAMAGES))
    assert len(history.packs) > 5
    random.Random(1).shuffle(pairs)
    for start in range(0, len(pairs), len(history.packs)):
        history.put_back()
        chosen = pairs[start : start + len(history.packs)]
        for pack, index, (of_pack, of_index) in zip(
            history.files(".pack"), history.files(".idx"), chosen, strict=False
        ):
            spoil(pack, of_pack)
            spoil(index, of_index)

        with open_shadow(history.worktree) as shadow:
            COMMANDS[command](shadow)

        assert_records_whole_on_disk(history.store)
    history.assert_whole()


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_message_can_be_reverted_after_a_power_cut(
    history: History, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart(monkeypatch)
    for path in (*history.files(".pack"), *history.files(".idx")):
        spoil(path, damage)

    with open_shadow(history.worktree) as shadow:
        assert len(shadow.messages()) == 5

    history.assert_whole()


@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_files_that_are_missing_or_short_are_made_good_without_a_power_cut(
    history: History, damage: str
) -> None:
    for path in (*history.files(".pack"), *history.files(".idx")):
        spoil(path, damage)

    track(history.worktree)

    history.assert_whole()


@pytest.mark.parametrize("damage", DAMAGES)
def test_files_are_compared_where_nobody_can_tell_boots_apart(
    worktree: Path, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_limits(monkeypatch, boot_id="")
    history = History(worktree, tmp_path / "saved")
    for path in (*history.files(".pack"), *history.files(".idx")):
        spoil(path, damage)

    track(worktree)

    history.assert_whole()


def test_whole_files_are_left_alone_and_compared_once_a_boot(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart(monkeypatch)
    files = {path: path.stat() for path in (*history.files(".pack"), *history.files(".idx"))}

    track(history.worktree)

    assert {path: path.stat().st_ino for path in files} == {path: was.st_ino for path, was in files.items()}
    rows = read_timeline(history.store, lambda journal: journal.packs.rows())
    assert {row.boot for row in rows} == {ANOTHER_BOOT}


def test_a_ref_that_a_power_cut_put_back_lets_git_gc_take_nothing(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at an older keeper then, and what is newer is not reachable; but the journal has it."""
    restart(monkeypatch)
    first = recorded_trees(history.store)[0].keeper.hex()
    (history.store / "refs" / "heads" / "shadowtree").write_text(f"{first}\n")
    git("--git-dir", history.store, "gc", "--quiet", "--prune=now")
    assert not any(path.exists() for path in history.files(".pack"))

    track(history.worktree)

    for path in history.store.rglob("*"):
        # What git made is read-only.
        path.chmod(0o700 if path.is_dir() else 0o600)
    history.assert_whole()


def test_what_cannot_be_read_from_the_files_is_read_from_the_journal(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else holds the lock, and has not made the files yet."""
    restart(monkeypatch)
    for path in (*history.files(".pack"), *history.files(".idx")):
        path.unlink()

    with Lock(str(history.store / "lock"), 1), open_shadow(history.worktree) as shadow:
        assert [file.path for file in shadow.show("m5")[1]] == ["new5", "sub/a"]
        assert shadow.status().changed == 0
        assert shadow.plan_revert("m1").outcome.complete

    assert not any(path.exists() for path in history.files(".pack"))


def test_who_only_reads_goes_on_where_nothing_can_be_written(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was interrupted, so there is nothing to tell either."""
    restart(monkeypatch)
    for path in (*history.files(".pack"), *history.files(".idx")):
        path.unlink()

    with Faults(1, errno.EROFS, forever=True), open_shadow(history.worktree) as shadow:
        assert [file.path for file in shadow.show("m5")[1]] == ["new5", "sub/a"]
        assert shadow.recovered == []

    track(history.worktree)
    history.assert_whole()


@pytest.mark.parametrize("is_same_process", [True, False], ids=["same process", "new process"])
@pytest.mark.parametrize("step", [7, 50])
def test_an_act_writes_what_only_the_journal_has_whole(
    worktree: Path, is_same_process: bool, step: int
) -> None:
    """The files have their sizes and times, and other bytes; nobody had to look at them so far."""
    contents: Tree = {f"f{number}": os.urandom(3000) for number in range(20)}
    make_tree(worktree, contents)
    before = read_tree(worktree)
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, dict.fromkeys(contents, "changed"))
        after = read_tree(worktree)
        if not is_same_process:
            shadow.close()
        for pack in (shadow.store / "objects" / "pack").glob("*.pack"):
            content = bytearray(pack.read_bytes())
            content[12:-20:step] = bytes(byte ^ 0xFF for byte in content[12:-20:step])
            status = pack.stat()
            pack.write_bytes(content)
            os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))

        shadow.revert("m1")
        assert read_tree(worktree) == before
        shadow.unrevert()
        assert read_tree(worktree) == after


def test_a_damaged_row_is_not_written_over_whole_files(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart(monkeypatch)
    with closing(sqlite3.connect(history.store / "timeline.db")) as connection, connection:
        connection.execute("UPDATE packs SET pack = zeroblob(length(pack))")

    track(history.worktree)

    history.assert_whole()


def test_a_copy_of_a_store_is_whole(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", history.store, copy], check=True)
    for path in history.files(".pack"):
        path.unlink()
    shutil.rmtree(history.store)
    Shadow.adopt(history.worktree, copy).close()
    monkeypatch.setenv("SHADOWTREE_STORE", str(copy))
    history.store = copy

    history.assert_whole()


# Real git


def test_git_gc_can_be_run_again_and_again(history: History) -> None:
    for number in range(3):
        git("--git-dir", history.store, "gc", "--quiet", "--prune=now")
        assert_sound_git(history.store)
        assert_records_whole(history.store)
        make_tree(history.worktree, {"changing": f"{number}"})
        track(history.worktree)
        git("--git-dir", history.store, "repack", "-a", "-d", "--quiet")
        assert_sound_git(history.store)
        with open_shadow(history.worktree) as shadow:
            assert [file.path for file in shadow.show("m5")[1]] == ["new5", "sub/a"]
    (history.worktree / "changing").unlink()
    track(history.worktree)

    shutil.rmtree(history.store / "logs", ignore_errors=True)
    with open_shadow(history.worktree) as shadow:
        shadow.revert("m1")
    assert sorted(path.name for path in history.worktree.iterdir()) == ["kept.txt", "sub"]


def test_git_sees_a_snapshot_as_soon_as_it_is_taken(history: History) -> None:
    for number in range(3):
        make_tree(history.worktree, {"changing": f"{number}"})
        tree = track(history.worktree)

        assert git("--git-dir", history.store, "show", f"{tree}:changing") == f"{number}"
        assert git("--git-dir", history.store, "rev-parse", "shadowtree:files") == tree
        assert_sound_git(history.store)


def assert_sound_git(store: Path) -> None:
    """Ask real git alone: what it makes by itself has other modes than ours."""
    found = git("--git-dir", store, "fsck", "--full", "--strict", "--no-dangling")
    assert "missing" not in found


def assert_records_whole_on_disk(store: Path) -> None:
    """Have real git read every recorded tree, which knows nothing of the journal."""
    for record in recorded_trees(store):
        git("--git-dir", store, "rev-list", "--objects", "--quiet", record.keeper.hex())
    assert_sound_git(store)


# Kills


def test_a_pack_whose_process_died_before_its_record_is_removed(worktree: Path) -> None:
    """Its names may not be durable, so nothing in it may be taken for stored."""
    make_tree(worktree, {"a": "1"})
    track(worktree)
    store = store_of(worktree)
    (worktree / "large").write_bytes(os.urandom(300_000))
    before = set(store.rglob("*.pack"))
    in_child(lambda: _die_at("commit", lambda: track(worktree)))
    (left,) = set(store.rglob("*.pack")) - before

    with open_shadow(worktree) as shadow:
        (worktree / "large").unlink()
        shadow.track()

    assert not left.exists()
    assert read_timeline(store, lambda journal: journal.packs.announced()) == []
    assert_sound_store(store)


def test_git_gc_after_a_kill_remembers_nothing_of_what_was_not_recorded(worktree: Path) -> None:
    """It lists the commits that it finds, and git would miss those that are removed afterwards."""
    make_tree(worktree, {"a": "1"})
    track(worktree)
    store = store_of(worktree)
    (worktree / "large").write_bytes(os.urandom(300_000))
    in_child(lambda: _die_at("commit", lambda: track(worktree)))
    git("--git-dir", store, "gc", "--quiet", "--prune=now")

    make_tree(worktree, {"a": "2"})
    track(worktree)

    assert_records_whole_on_disk(store)


def test_git_gc_takes_no_large_pack_that_the_ref_does_not_lead_to_yet(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be recorded all the same, and nobody would know that its objects are gone."""
    make_tree(worktree, {"a": "1"})
    track(worktree)
    store = store_of(worktree)
    (worktree / "large").write_bytes(os.urandom(300_000))

    def run_gc(act: str, path: str) -> None:
        if (act, path) == ("rename", str(store / "refs" / "heads" / "shadowtree")):
            git("--git-dir", store, "gc", "--quiet", "--prune=now")

    monkeypatch.setattr(disk, "before_write", run_gc)
    track(worktree)

    assert_records_whole_on_disk(store)
    assert not list(store.rglob("*.keep"))


def test_a_pack_that_was_there_before_is_never_taken_for_one_without_a_record(worktree: Path) -> None:
    """It may be damaged, so that it is written again; what it holds was recorded long ago."""
    make_tree(worktree, {"a": "1"})
    track(worktree)
    content = os.urandom(300_000)
    with closing(OpenStore(StoreLayout(str(store_of(worktree))))) as opened:
        found = []
        for _ in range(2):
            writer = opened.objects.start_pack()
            writer.add_stream(len(content), iter([content]), lambda id: False)
            opened.intake.publish(writer)
            found.append(len(opened.journal.packs.announced()))
            opened.journal.packs.forget_announced()

    assert found == [1, 0]


def _die_at(act: str, scenario: Callable[[], object]) -> None:
    def die(done: str, path: str) -> None:
        if done == act:
            os.kill(os.getpid(), signal.SIGKILL)

    disk.before_write = die
    scenario()


# Failures


def test_a_shadow_whose_record_failed_goes_on(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    shadow.begin("m1")
    for size in (10, 300_000):
        (worktree / "sub" / "b").write_bytes(os.urandom(size))
        with monkeypatch.context() as patched:
            patched.setattr(disk, "before_write", partial(_fail, "commit"))
            with pytest.raises(OSError, match="Input/output"):
                shadow.end()

        assert_sound_git(shadow.store)
        assert [file.path for file in shadow.diff()] == ["sub/b"]
        shadow.end()
        assert_records_whole(shadow.store)
        shadow.begin(f"m{size}")


@pytest.mark.parametrize("act", ["create", "write", "rename", "overwrite"])
def test_a_record_counts_though_its_files_cannot_be_written(
    shadow: Shadow, worktree: Path, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.begin("m1")
    make_tree(worktree, {"a": "2"})
    with monkeypatch.context() as patched:
        patched.setattr(disk, "before_write", partial(_fail_in_the_store, act))
        shadow.end()
        assert [file.path for file in shadow.show("m1")[1]] == ["a"]

    with open_shadow(worktree) as other:
        assert [file.path for file in other.show("m1")[1]] == ["a"]
    shadow.revert("m1")
    assert (worktree / "a").read_text() == "1"


def _fail(what: str, act: str, path: str) -> None:
    if act == what:
        raise OSError(errno.EIO, "Input/output error")


def _fail_in_the_store(what: str, act: str, path: str) -> None:
    from shadowtree.base.errors import StoreFailed

    if act == what and ("/pack/" in path or "/refs/" in path):
        raise StoreFailed(path, "input/output error")


@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "large"])
def test_what_an_act_took_that_came_to_nothing_is_gone(shadow: Shadow, worktree: Path, size: int) -> None:
    """It was published to be compared with, and nothing is known of it afterwards."""
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    shadow.track()
    packs = count_packs(shadow.store)
    (worktree / "sub" / "b").write_bytes(os.urandom(size))

    assert shadow.undo().messages == []

    assert count_packs(shadow.store) == packs
    assert shadow.status().changed == 1
    assert [file.path for file in shadow.diff()] == ["sub/b"]
    shadow.track()
    assert_records_whole(shadow.store)
    assert shadow.status().changed == 0


@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "large"])
def test_what_a_refused_act_took_is_gone(shadow: Shadow, worktree: Path, size: int) -> None:
    make_tree(worktree, {"a": "1"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "2"})
    packs = count_packs(shadow.store)
    (worktree / "a").write_bytes(os.urandom(size))

    with pytest.raises(Conflict):
        shadow.revert("m1")

    with open_shadow(worktree) as other:
        assert [file.path for file in other.diff()] == ["a"]
        other.track()
    assert count_packs(shadow.store) <= packs + 1
    assert_records_whole(shadow.store)


# Merging


@pytest.mark.limits(Limits(packs=PackLimits(many=6)))
def test_what_was_merged_leaves_the_journal(
    shadow: Shadow, worktree: Path, acts: list[tuple[str, str]]
) -> None:
    sizes = []
    for number in range(30):
        make_tree(worktree, {"a": f"{number}"})
        acts.clear()
        shadow.track()
        sizes.append(len(journaled_packs(shadow.store)))
        if sizes[-1] < max(sizes):
            break
    refs = [act for act, path in acts if path.endswith("/shadowtree")]
    steps = [act for act, path in acts if "/refs" in path or act in ("unlink", "forget", "fsync directory")]

    assert sizes[-1] == 0
    assert refs == ["overwrite", "rename"]
    assert steps[:5] == ["overwrite", "fsync directory", "rename", "fsync directory", "unlink"]
    assert steps[-3:] == ["unlink", "fsync directory", "forget"]
    assert_records_whole(shadow.store)


def test_many_snapshots_leave_a_small_journal(shadow: Shadow, worktree: Path) -> None:
    """What left the journal makes room for what comes."""
    sizes = []
    for number in range(300):
        make_tree(worktree, {"a": f"{number} {random.random()}" * 100})
        shadow.track()
        sizes.append((shadow.store / "timeline.db").stat().st_size)
    log = (shadow.store / "timeline.db-wal").stat().st_size

    assert len(journaled_packs(shadow.store)) < 30
    assert log < 10 << 20
    shadow.close()
    assert (shadow.store / "timeline.db").stat().st_size < 1 << 20


@pytest.mark.limits(Limits(packs=PackLimits(many=6)))
def test_a_merge_after_a_power_cut_keeps_what_it_cannot_read(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack that is damaged and still has its size is not merged, and its row stays."""
    make_tree(worktree, {"a": "first"})
    first = shadow.track()
    (bad,) = (shadow.store / "objects" / "pack").glob("*.pack")
    shadow.close()
    spoil(bad, "zeros")
    for number in range(12):
        make_tree(worktree, {"a": f"{number}"})
        shadow.track()

    assert bad.stem in [pack.name for pack in journaled_packs(shadow.store)]
    with open_shadow(worktree) as other:
        assert [file.path for file in other.diff(first)] == ["a"]
    restart(monkeypatch)
    track(worktree)


# Several processes


def test_two_processes_record_and_others_read(worktree: Path) -> None:
    make_tree(worktree, {"one": {"a": "0"}, "two": {"a": "0"}})
    track(worktree)
    store = store_of(worktree)

    def record(session: str) -> int:
        with Shadow(worktree, session=session, settings=SETTINGS) as shadow:
            for number in range(25):
                with shadow.message(f"m{number}"):
                    make_tree(worktree, {session: {"a": f"{session} {number}"}})
            return len(shadow.messages())

    def read() -> int:
        seen = 0
        with open_shadow(worktree) as shadow:
            while seen < 50:
                messages = shadow.messages(all_sessions=True)
                seen = sum(message.state != "open" for message in messages)
                for message in messages[-3:]:
                    shadow.diff_message(message)
        return seen

    children = [Child(partial(record, session)) for session in ("one", "two")] + [Child(read)]

    assert [child.wait().value() for child in children] == [25, 25, 50]
    assert_records_whole(store)
    assert_sound_store(store)


# Packs as bytes


def test_a_small_pack_as_bytes_is_what_its_files_would_be(tmp_path: Path) -> None:
    writers = [PackWriter(str(tmp_path)) for _ in range(2)]
    for writer in writers:
        writer.add_stream(5, iter([b"12345"]), lambda id: False)
        writer.add_stream(3, iter([b"678"]), lambda id: False)
    sealed, [name] = writers[0].seal(10_000), writers[1].finish()

    assert sealed is not None
    assert sealed.is_whole()
    assert name == str(tmp_path / sealed.name)
    assert Path(f"{name}.pack").read_bytes() == sealed.pack
    assert Path(f"{name}.idx").read_bytes() == sealed.index


@pytest.mark.parametrize("spare", [0, -1], ids=["just small", "just too large"])
def test_a_pack_is_small_together_with_its_index(tmp_path: Path, spare: int) -> None:
    def make() -> PackWriter:
        writer = PackWriter(str(tmp_path))
        writer.add_stream(3, iter([b"abc"]), lambda id: False)
        return writer

    whole = make().seal(1 << 20)
    assert whole is not None
    sealed = make().seal(len(whole.pack) + len(whole.index) + spare)

    assert (sealed == whole) is (spare == 0)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_an_empty_pack_is_not_sealed(tmp_path: Path) -> None:
    assert PackWriter(str(tmp_path)).seal(1 << 20) is None


# A real power cut


FLAG_NO_LOG_FLUSH = 2
SHUT_DOWN = 0x8004587D


@pytest.fixture(params=["ext4", "xfs"])
def power(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Power]:
    with closing(Power(request.param, tmp_path)) as power:
        yield power


class Power:
    """A file system of its own, which can lose all that was not flushed."""

    def __init__(self, kind: str, tmp_path: Path) -> None:
        self._image = tmp_path / "image"
        self.place = tmp_path / "mounted"
        self.place.mkdir()
        self._image.touch()
        os.truncate(self._image, 320 << 20)
        try:
            subprocess.run([f"mkfs.{kind}", "-q", self._image], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip(f"no {kind} can be made here")
        self._mount()

    def cut(self) -> None:
        """Stop the file system without writing anything more, and start it again."""
        import fcntl

        fd = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUT_DOWN, FLAG_NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(fd)
        subprocess.run(["umount", self.place], check=True)
        self._mount()

    def close(self) -> None:
        """Let go of it."""
        subprocess.run(["umount", "--lazy", self.place], check=False)

    def _mount(self) -> None:
        done = subprocess.run(
            ["mount", "-o", "loop", self._image, self.place], capture_output=True, check=False
        )
        if done.returncode:
            pytest.skip("file systems cannot be mounted here")


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0, 3], ids=["at once", "later"])
def test_what_was_recorded_survives_a_real_power_cut(
    power: Power, worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: int
) -> None:
    """The worktree is on another disk; the store loses all that was not flushed."""
    store = power.place / "stores" / "store"
    monkeypatch.setenv("SHADOWTREE_STORE", str(store))
    make_tree(worktree, {"a": "0", "sub": {"b": "0"}})
    expected = []
    for number in range(40):

        def record(number: int = number) -> str | None:
            with open_shadow(worktree, store) as shadow, shadow.message(f"m{number}"):
                make_tree(worktree, {"a": f"{number}", "sub": {"b": f"{number} {random.random()}" * 50}})
                if number % 9 == 5:
                    (worktree / "large").write_bytes(os.urandom(300_000))
            return shadow.messages()[-1].after

        expected.append(in_child(record).value())
        if number % 4 == pause:
            power.cut()
            restart(monkeypatch)
            with suppress(AssertionError):
                # Before the next command real git may miss something, but must not throw anything away.
                git("--git-dir", store, "gc", "--quiet", "--prune=now")
            with open_shadow(worktree, store) as shadow:
                assert [message.after for message in shadow.messages()] == expected
                shadow.track()
            assert_records_whole(store)
            assert_sound_git(store)
            change_limits(monkeypatch, boot_id=f"boot {number}")

    with open_shadow(worktree, store) as shadow:
        shadow.revert("m0")
    assert_tree(worktree, {"a": "0", "sub": {"b": "0"}})
    assert_records_whole(store)
