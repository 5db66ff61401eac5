"""Adding and removing packs: one flush makes a record durable, and a power cut may lose the rest."""

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

from shadowtree import Conflict, Locked, Shadow, StoreDamaged, StoreFailed
from shadowtree.base.limits import Limits, PackLimits
from shadowtree.capture.open_store import OpenStore
from shadowtree.store.directory import StoreLayout
from shadowtree.store.lock import Lock
from shadowtree.store.packs.pack_writer import PackFile
from shadowtree.system import disk
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.publish_packs import Publisher
from shadowtree.timeline.sqlite.pack_rows import FRESH, JOURNALED, PLACING, PackRow
from tests.support.limits import change_limits
from tests.support.packs import PackStore, add, blob, noise, text
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
    """A worktree with five recorded messages, and a copy of its store to restore after each damage."""

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
        """Restore the store from the copy."""
        put_back(self._saved, self.store)

    def files(self, suffix: str) -> list[Path]:
        """Return the files of the journaled packs that have a suffix."""
        return [self.store / "objects" / "pack" / (name + suffix) for name in self.packs]

    def assert_whole(self) -> None:
        """Assert that git and we find nothing missing, and that every message can be reverted and redone."""
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
    """Some snapshots whose packs only the journal makes durable."""
    change_limits(monkeypatch, packs=PackLimits(many=100))
    return History(worktree, tmp_path / "saved")


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every write from now on: the kind and the path."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(disk, "before_write", lambda act, path: found.append((act, path)))
    return found


FLUSHES = ("fsync", "fsync directory", "commit", "record", "intent")


def flushes(acts: list[tuple[str, str]]) -> list[str]:
    return [act for act, _ in acts if act in FLUSHES]


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the machine seem to have been restarted."""
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

    writes = [act for act, path in acts if act == "commit" or "/pack/" in path]
    assert writes == 2 * ["commit", "create", *2 * ["create", "write", "rename"]]


def test_a_large_pack_is_durable_before_its_record_counts_and_has_its_name_after_it(
    shadow: Shadow, worktree: Path, acts: list[tuple[str, str]]
) -> None:
    make_tree(worktree, {"a": "1"})
    shadow.track()
    (worktree / "large").write_bytes(os.urandom(300_000))
    acts.clear()

    shadow.track()

    found = [(act, Path(path).suffix) for act, path in acts if act in (*FLUSHES, "rename", "forget")]
    assert found == [
        ("fsync", ""),
        ("fsync", ""),
        ("fsync directory", ""),
        ("commit", ".db"),
        ("rename", ".pack"),
        ("rename", ".idx"),
        ("fsync directory", ""),
        ("forget", ".db"),
    ]
    assert {row.state for row in rows_of(shadow.store)} <= {JOURNALED, FRESH}


def rows_of(store: Path) -> list[PackRow]:
    return read_timeline(store, lambda journal: journal.packs.rows())


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
    """None of the files was ever flushed; each pack is damaged in a different way."""
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


def test_what_keeps_packs_from_git_comes_back_after_a_power_cut(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it `git gc` would remove objects without a ref; by then the journal has them."""
    restart(monkeypatch)
    for path in history.files(".keep"):
        path.unlink()
    git("--git-dir", history.store, "gc", "--quiet", "--prune=now")
    assert not any(path.exists() for path in history.files(".pack"))

    track(history.worktree)

    assert all(path.exists() for path in history.files(".keep"))
    make_private(history.store)
    history.assert_whole()


def make_private(store: Path) -> None:
    """Set the modes of files that git made to those of ours."""
    for path in store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def test_what_cannot_be_read_from_the_files_is_read_from_the_journal(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds the lock, and has not written the files yet."""
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
    """Nothing was interrupted, so there is nothing to report either."""
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
    """The files have their sizes and times, but other bytes; nothing has read them so far."""
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
        assert_sound_git(history.store)


def assert_sound_git(store: Path) -> None:
    """Check only with real git: files that git made have other modes than ours."""
    git("--git-dir", store, "fsck", "--full", "--strict", "--no-dangling")


def assert_records_whole_on_disk(store: Path) -> None:
    """Make real git read every recorded tree; it knows nothing of the journal."""
    for record in recorded_trees(store):
        for id in (record.tree, record.facts, *record.blobs_beside):
            git("--git-dir", store, "rev-list", "--objects", "--quiet", id.hex())
    assert_sound_git(store)


# Kills


def test_a_pack_whose_process_died_before_its_record_is_removed(worktree: Path) -> None:
    """No row will ever name it."""
    store = wrap_with_large(worktree)
    before = set(os.listdir(store / "objects" / "pack"))
    in_child(lambda: _die_at("commit", lambda: track(worktree)))
    left = set(os.listdir(store / "objects" / "pack")) - before

    with open_shadow(worktree) as shadow:
        (worktree / "large").unlink()
        shadow.track()

    assert len([name for name in left if name.startswith(disk.TEMPORARY_PREFIX)]) == 2
    assert not left & set(os.listdir(store / "objects" / "pack"))
    assert_sound_store(store)


def wrap_with_large(worktree: Path) -> Path:
    """Record a small file, and leave a large one to be recorded; return the store."""
    make_tree(worktree, {"a": "1"})
    track(worktree)
    (worktree / "large").write_bytes(os.urandom(300_000))
    return store_of(worktree)


def steps_after_commit(worktree: Path, saved: Path) -> list[tuple[str, str]]:
    """List every write after a large pack was committed."""
    store = store_of(worktree)
    done: list[tuple[str, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "before_write", lambda act, path: done.append((act, Path(path).name)))
        track(worktree)
    put_back(saved, store)
    commits = [at for at, (act, _) in enumerate(done) if act == "commit"]
    return done[commits[0] + 1 :]


@pytest.mark.parametrize("gc", [False, True], ids=["at once", "after git gc"])
def test_a_large_pack_that_counts_gets_its_name_whenever_the_process_died(
    worktree: Path, tmp_path: Path, gc: bool
) -> None:
    """`git gc` in between removes nothing of it."""
    store = wrap_with_large(worktree)
    saved = tmp_path / "saved"
    shutil.copytree(store, saved)
    steps = steps_after_commit(worktree, saved)
    for number in range(len(steps)):
        put_back(saved, store)
        ended = in_child(partial(_die_after_commit, number, partial(track, worktree)))
        assert ended.signal == signal.SIGKILL, steps[number]
        if gc:
            git("--git-dir", store, "gc", "--quiet", "--prune=now")
            make_private(store)

        with open_shadow(worktree) as shadow:
            tree = shadow.track()

        assert {row.state for row in rows_of(store)} <= {JOURNALED, FRESH}, steps[number]
        assert len(git("--git-dir", store, "ls-tree", "-l", tree, "large")) > 0
        assert_records_whole_on_disk(store)
        assert_no_leftovers(store)
        assert_records_whole(store)
    assert len(steps) >= 3


def _die_after_commit(steps: int, scenario: Callable[[], object]) -> None:
    """Run a scenario, and die after this many writes after the first commit."""
    left: int | None = None

    def die(act: str, path: str) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if left is not None:
            left -= 1
        elif act == "commit":
            left = steps

    disk.before_write = die
    scenario()


def record_without_name(store: PackStore, content: bytes) -> bytes:
    """Record a large pack whose renaming fails; return the id of the blob in it."""

    def stop(act: str, path: str) -> None:
        if act == "rename":
            raise StoreFailed(path, "no more")

    writer = store.objects.start_pack()
    id = add(writer, content)
    store.opened.publisher.publish(writer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "before_write", stop)
        with store.opened.publisher.recording():
            pass
    return id


def test_the_files_of_a_row_are_never_taken_for_those_of_the_dead(tmp_path: Path) -> None:
    """A process died between the row and the renaming; the next one first looks for leftovers."""
    with closing(PackStore(tmp_path, PackLimits(journaled_bytes=0))) as store:
        id = record_without_name(store, b"x")
        [row] = rows_of(store.path)
        was = set(os.listdir(store.packs))
        (store.packs / f"{disk.TEMPORARY_PREFIX}1-2").touch()
        store.reopen()

        assert row.state == PLACING
        assert {row.file.temporary, row.file.index} <= was
        assert store.objects.read(b"blob", id) == b"x"
        assert not [name for name in os.listdir(store.packs) if "tmp" in name]


def test_a_pack_that_the_disk_gave_no_name_is_not_forgotten_when_another_gets_one(tmp_path: Path) -> None:
    """Otherwise its files would be taken for those of a dead process, and the record would be lost."""
    with closing(PackStore(tmp_path, PackLimits(journaled_bytes=0))) as store:
        id = record_without_name(store, b"x")
        store.record(b"y")
        store.reopen()

        assert store.objects.read(b"blob", id) == b"x"
        assert store.objects.read(b"blob", blob(b"y")) == b"y"


def test_what_is_to_go_goes_whenever_the_process_died(tmp_path: Path) -> None:
    """The row stays until the removal of the files is durable."""
    with closing(PackStore(tmp_path)) as store:
        gone, kept = store.settle(b"going"), store.settle(b"going", b"staying")
        for step in range(4):
            left = step

            def stop(act: str, path: str) -> None:
                nonlocal left
                left -= act == "unlink"
                if left < 0:
                    raise StoreFailed(path, "no more")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(disk, "before_write", stop)
                with store.opened.publisher.recording(gone=[gone]):
                    pass
            store.reopen()

            assert rows_of(store.path) == []
            assert gone.name not in {path.stem for path in store.packs.iterdir()}
            assert store.objects.read(b"blob", blob(b"going")) == b"going"
            gone = store.settle(b"going")
        assert kept.name in {pack.name for pack in store.objects.packs()}


def test_a_pack_that_is_to_go_stays_if_it_comes_once_more(tmp_path: Path) -> None:
    """A power cut brings back its row after the pack was written again."""
    with closing(PackStore(tmp_path)) as store:
        pack = store.settle(b"x")
        with store.opened.journal.transaction():
            store.opened.journal.packs.mark_removing([pack.name], "a")
        store.settle(b"x")
        store.reopen()

        assert store.objects.read(b"blob", blob(b"x")) == b"x"
        assert rows_of(store.path) == []


def test_a_record_fails_if_somebody_removed_what_it_is_about_to_name(tmp_path: Path) -> None:
    """Somebody removed the lock file, and another process took this one for dead."""
    with closing(PackStore(tmp_path, PackLimits(journaled_bytes=0))) as store:
        store.record(b"before")
        writer = store.objects.start_pack()
        id = add(writer, b"x")
        store.opened.publisher.publish(writer)
        other = OpenStore(StoreLayout(str(store.path)))
        other.recover()
        other.close()
        with pytest.raises(StoreFailed, match="another process"):
            with store.opened.publisher.recording():
                store.opened.journal.add_session("not recorded")
        store.opened.publisher.abandon()
        store.reopen()

        assert store.opened.journal.session_names() == {}
        assert not store.objects.has(id)
        assert store.objects.read(b"blob", blob(b"before")) == b"before"


def test_the_files_of_a_record_that_is_committed_just_now_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody removed the lock file, and another process takes this one for dead while it commits."""
    with closing(PackStore(tmp_path, PackLimits(journaled_bytes=0))) as store:
        writer = store.objects.start_pack()
        id = add(writer, b"x")
        store.opened.publisher.publish(writer)
        with closing(OpenStore(StoreLayout(str(store.path)))) as other:
            listdir = os.listdir

            def commit_first(path: str) -> list[str]:
                if path != str(store.packs):
                    return listdir(path)
                monkeypatch.setattr(os, "listdir", listdir)
                with monkeypatch.context() as patch:
                    patch.setattr(disk, "before_write", partial(_fail_in_the_store, "rename"))
                    with store.opened.publisher.recording():
                        pass
                return listdir(path)

            monkeypatch.setattr(os, "listdir", commit_first)
            other.recover()

            assert other.objects.read(b"blob", id) == b"x"


def test_a_lock_file_that_somebody_removed_costs_nothing(worktree: Path) -> None:
    """Two processes record a large file each, and each takes the other one for dead."""
    make_tree(worktree, {"a": "1"})
    track(worktree)
    store = store_of(worktree)

    def interfere(act: str, path: str) -> None:
        if act == "commit":
            disk.before_write = lambda act, path: None
            (store / "lock").unlink()
            make_tree(worktree, {"other": os.urandom(300_000)})
            settings = {**SETTINGS, "lock_timeout": 1}
            with suppress(Locked), Shadow(worktree, store=store, settings=settings) as other:
                other.track()

    def record() -> str:
        disk.before_write = interfere
        (worktree / "large").write_bytes(os.urandom(300_000))
        try:
            return track(worktree)
        except StoreFailed:
            return "failed"

    in_child(record).value()
    with open_shadow(worktree) as shadow:
        shadow.track()

    assert_records_whole(store)
    assert_records_whole_on_disk(store)
    assert_sound_store(store)


def test_git_gc_after_a_kill_remembers_nothing_of_what_was_not_recorded(worktree: Path) -> None:
    """git lists what it finds, and would miss what is removed later."""
    store = wrap_with_large(worktree)
    in_child(lambda: _die_at("commit", lambda: track(worktree)))
    git("--git-dir", store, "gc", "--quiet", "--prune=now")
    git("--git-dir", store, "multi-pack-index", "write")

    make_tree(worktree, {"a": "2"})
    track(worktree)

    assert_records_whole_on_disk(store)


@pytest.mark.parametrize("command", ["gc --prune=now", "repack -a -d"])
def test_git_takes_no_large_pack_at_any_step(
    worktree: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be recorded anyway, and nothing would show that its objects are lost."""
    store = wrap_with_large(worktree)
    busy = False

    def run_git(act: str, path: str) -> None:
        nonlocal busy
        if not busy and "/objects/" in path:
            busy = True
            git("--git-dir", store, *command.split(), "--quiet")
            busy = False

    with monkeypatch.context() as patch:
        patch.setattr(disk, "before_write", run_git)
        track(worktree)

    assert_records_whole_on_disk(store)
    make_private(store)
    track(worktree)
    assert_records_whole(store)


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


def test_a_record_whose_sync_failed_does_not_come_back_without_its_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite leaves what it could not sync in the log, and after a crash takes it for committed."""
    with closing(PackStore(tmp_path, PackLimits(journaled_bytes=0))) as store:
        store.record(b"before")
        writer = store.objects.start_pack()
        id = add(writer, b"x")
        store.opened.publisher.publish(writer)
        log = log_with_another_record(store, tmp_path / "copy")
        with monkeypatch.context() as patched:
            patched.setattr(disk, "before_write", partial(_fail_in_the_store, "commit"))
            with pytest.raises(StoreFailed), store.opened.publisher.recording():
                pass
        (store.path / "timeline.db-wal").write_bytes(log)
        store.opened.publisher.abandon()

        assert read_after_crash(store, tmp_path / "crash", id) == ({"came back"}, True)
        store.opened.recover()
        assert read_after_crash(store, tmp_path / "later crash", id) == (set(), False)
        assert not [name for name in os.listdir(store.packs) if "tmp" in name]


def log_with_another_record(store: PackStore, copy: Path) -> bytes:
    """Return the timeline's log as it would be if what is published were recorded."""
    copy.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy(store.path / f"timeline.db{suffix}", copy)
    [pack] = store.opened.publisher.unrecorded()
    with closing(Journal(str(copy / "timeline.db"))) as journal:
        with journal.transaction():
            journal.packs.add_placing(PackFile(pack.name, Path(pack.path).name), "", ())
            journal.add_session("came back")
        return (copy / "timeline.db-wal").read_bytes()


def read_after_crash(store: PackStore, copy: Path, id: bytes) -> tuple[set[str], bool]:
    """Return which sessions there would be after a crash, and whether an object would be there."""
    shutil.copytree(store.path, copy, ignore=shutil.ignore_patterns("*-shm"))
    with closing(OpenStore(StoreLayout(str(copy)))) as opened:
        opened.recover()
        return set(opened.journal.session_names().values()), opened.objects.has(id)


@pytest.mark.parametrize("act", ["create", "write", "rename"])
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
    if act == what and ("/pack/" in path or act == "commit"):
        raise StoreFailed(path, "input/output error")


@pytest.mark.parametrize("size", [10, 300_000], ids=["small", "large"])
def test_what_an_act_took_that_came_to_nothing_is_gone(shadow: Shadow, worktree: Path, size: int) -> None:
    """The objects were published for a comparison, and are not known afterwards."""
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
def test_many_rows_are_merged_into_one(shadow: Shadow, worktree: Path, acts: list[tuple[str, str]]) -> None:
    """No file is synced. After a power cut, the rows of the merged packs must not come back."""
    counts, steps = [], []
    for number in range(12):
        make_tree(worktree, {"a": f"{number}"})
        acts.clear()
        shadow.track()
        counts.append(len(journaled_packs(shadow.store)))
        if counts[-1] == 1 and number:
            steps = [act for act, _ in acts if act in (*FLUSHES, "unlink", "forget")]
            break

    assert counts == [1, 2, 3, 4, 5, 1]
    assert steps[:2] == ["commit", "commit"]
    assert set(steps[2:-2]) == {"unlink"}
    assert steps[-2:] == ["fsync directory", "commit"]
    assert count_packs(shadow.store) == 2
    assert_records_whole(shadow.store)


@pytest.mark.limits(Limits(packs=PackLimits(many=6, merged_bytes=5_000)))
def test_rows_are_merged_up_to_a_size(shadow: Shadow, worktree: Path) -> None:
    """It takes a command a few milliseconds, however many rows there are."""
    for number in range(30):
        (worktree / "a").write_bytes(os.urandom(300))
        shadow.snapshot(f"m{number}")
    sizes = [len(pack.pack) + len(pack.index) for pack in journaled_packs(shadow.store)]

    assert max(sizes) <= 5_000
    assert len(sizes) < 25
    assert_records_whole(shadow.store)


def test_what_came_in_place_of_what_is_known_after_a_merge(tmp_path: Path) -> None:
    with closing(PackStore(tmp_path)) as store:
        packs = [store.record(text("a", n), before={text("a", n): text("a", n - 1)}) for n in (1, 2, 3)]
        store.opened.publisher.join(packs)
        [pairs] = store.opened.journal.packs.versions().values()

        assert pairs == [(blob(text("a", n)), blob(text("a", n - 1))) for n in (1, 2, 3)]


@pytest.mark.parametrize("count", [1, 2], ids=["one pack", "two packs of the same objects"])
def test_packs_of_the_same_objects_put_together_keep_them(count: int, tmp_path: Path) -> None:
    """The new pack has the name of an old one, and must not be removed as that."""
    with closing(PackStore(tmp_path)) as store:
        packs = [store.record(b"a", b"b"), store.record(b"b", b"a")][:count]
        store.opened.publisher.join(packs)
        store.reopen("another boot")

        for content in (b"a", b"b"):
            assert store.objects.read(b"blob", blob(content)) == content
        assert len(rows_of(store.path)) == 3 - count
        assert_sound_git(store.path)


@pytest.mark.parametrize("at", [14, 60, 100])
def test_a_damaged_pack_is_not_merged(at: int, tmp_path: Path) -> None:
    """Its row has its bytes, and its files are written again from them."""
    with closing(PackStore(tmp_path)) as store:
        contents = [noise(60, seed) for seed in range(4)]
        packs = [store.record(*contents[:2]), store.record(contents[2]), store.record(contents[3])]
        path = Path(packs[0].path)
        path.write_bytes(path.read_bytes()[:at] + b"?" + path.read_bytes()[at + 1 :])
        store.opened.publisher.join(packs)
        names = {row.name for row in rows_of(store.path)}
        store.reopen("another boot")

        assert packs[0].name in names
        assert len(names) == 2
        for content in contents:
            assert store.objects.read(b"blob", blob(content)) == content
        assert_sound_git(store.path)


def test_a_pack_joins_without_one_that_a_delta_would_need(tmp_path: Path) -> None:
    """Its object becomes the base of no delta, as it is not in the joined pack."""
    with closing(PackStore(tmp_path)) as store:
        old, new = text("a", 1), text("a", 2)
        packs = [store.record(old), store.record(new, before={new: old}), store.record(b"other")]
        path = Path(packs[1].path)
        path.write_bytes(path.read_bytes()[:20] + b"?" + path.read_bytes()[21:])
        deltas = {blob(old): (blob(new), 1, b"not to be used")}

        assert store.opened.publisher.join(packs, deltas)
        store.reopen("another boot")
        for content in (old, new, b"other"):
            assert store.objects.read(b"blob", blob(content)) == content
        assert_sound_git(store.path)


@pytest.mark.limits(Limits(packs=PackLimits(many=4)))
def test_a_pack_that_cannot_be_read_is_left_alone_and_fails_no_snapshot(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (worktree / "f").write_text("first")
    shadow.track()
    [first] = journaled_packs(shadow.store)
    bad = shadow.store / "objects" / "pack" / f"{first.name}.pack"
    pread = os.pread

    def fail(fd: int, size: int, offset: int) -> bytes:
        if size > 64 and os.readlink(f"/proc/self/fd/{fd}") == str(bad):
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, size, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        for number in range(8):
            (worktree / "f").write_text(f"{number}" * 10)
            shadow.track()

    assert bad.exists()
    assert shadow.status().changed == 0


@pytest.mark.parametrize(
    "error", [StoreFailed("a pack", "no room"), StoreDamaged("a pack")], ids=["failed", "damaged"]
)
@pytest.mark.limits(Limits(packs=PackLimits(many=1)))
def test_a_merge_that_fails_does_not_fail_the_snapshot(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The snapshot is already recorded, so it must be reported as done."""
    for number in range(3):
        (worktree / "f").write_text(f"{number}")
        shadow.track()
    (worktree / "f").write_text("last")

    def fail(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Publisher, "join", fail)
        tree = shadow.track()

    assert shadow.patch(tree).files == []
    shadow.track()
    assert_records_whole(shadow.store)


def test_many_snapshots_leave_a_small_journal(shadow: Shadow, worktree: Path) -> None:
    """Space of removed rows in the journal is used again."""
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


def test_large_snapshots_in_quick_succession_leave_a_small_journal(shadow: Shadow, worktree: Path) -> None:
    """Packs of nearly the size up to which they are journaled."""
    sizes = []
    for _ in range(40):
        (worktree / "a").write_bytes(os.urandom(240_000))
        shadow.track()
        sizes.append(sum(len(pack.pack) for pack in journaled_packs(shadow.store)))

    assert max(sizes) < 4 << 20


@pytest.mark.limits(Limits(packs=PackLimits(many=6)))
def test_a_merge_after_a_power_cut_keeps_what_it_cannot_read(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged pack that has its size is not merged, and its row stays."""
    make_tree(worktree, {"a": "first"})
    first = shadow.track()
    [journaled] = journaled_packs(shadow.store)
    bad = shadow.store / "objects" / "pack" / f"{journaled.name}.pack"
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


# A real power cut


FLAG_NO_LOG_FLUSH = 2
SHUT_DOWN = 0x8004587D


@pytest.fixture(params=["ext4", "xfs"])
def power(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Power]:
    with closing(Power(request.param, tmp_path)) as power:
        yield power


class Power:
    """A separate file system, which can lose everything that was not flushed."""

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
        """Unmount it."""
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
    """The worktree is on another disk; the store loses everything that was not flushed."""
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
                # Before the next command real git may miss something, but must not remove anything.
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
