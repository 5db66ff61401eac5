"""Recoveries of a worktree that is not as the dead process left it: no byte is lost, no claim is false."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Conflict, Shadow, StoreFailed, WorktreeFailed
from shadowtree.revert import writer
from shadowtree.revert.writer import Writer
from shadowtree.store.git_format import blob_id
from shadowtree.store.objects import Objects
from shadowtree.system import disk, syscalls
from shadowtree.timeline.journal import Journal
from tests.faults.engine import EVERY
from tests.support.processes import in_child
from tests.support.referee import assert_sound_store
from tests.support.stores import (
    assert_records_whole,
    journaled_packs,
    open_shadow,
    put_back,
    read_timeline,
    store_of,
)
from tests.support.sweeps import armed, kill_at, noting
from tests.support.trees import Tree, assert_tree, become, file, make_tree, refill
from tests.support.turns import this_turn

BEFORE: Tree = {"sub": {"a.txt": "old", "gone.txt": "gone", "in": {"x": "x"}}, "z.txt": "old"}
AFTER: Tree = {"sub": {"a.txt": "new", "made.txt": "made", "out": {"y": "y"}}, "z.txt": "new"}
WAITS = "except in sub: this waits until what was there is back"
SAVED = "what the user saved in the moment of the swap"


def record(worktree: Path, before: Tree = BEFORE, after: Tree = AFTER) -> Path:
    """Record a message that makes one tree of another; return the store."""
    make_tree(worktree, before)
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            become(worktree, before, after)
        return shadow.store


def undo(worktree: Path) -> None:
    """Undo as a new process would."""
    with open_shadow(worktree) as shadow:
        shadow.undo()


def kill_undo(
    worktree: Path, act: str, path: str = "", number: int = 1, first: Callable[[], object] = bool
) -> None:
    """Undo, and be killed at the n-th write of a kind with such a path, after something was done `first`."""
    hits = count(1)

    def die(found: str, at: str) -> None:
        if found == act and path in at and next(hits) == number:
            first()
            os.kill(os.getpid(), signal.SIGKILL)

    def undo_and_die() -> None:
        disk.before_write = die
        undo(worktree)

    assert in_child(undo_and_die).signal == signal.SIGKILL


def kill_after_chmod(worktree: Path) -> None:
    """Undo, and be killed at the first write after a change of bits."""
    acts: list[str] = []

    def die(found: str, at: str) -> None:
        if acts and acts[-1] == "chmod":
            os.kill(os.getpid(), signal.SIGKILL)
        acts.append(found)

    def undo_and_die() -> None:
        disk.before_write = die
        undo(worktree)

    assert in_child(undo_and_die).signal == signal.SIGKILL


def killed_undos(worktree: Path, saved: Path) -> Iterator[Path]:
    """Kill an undo before one of its writes, and before others, each time from the same start."""
    store = store_of(worktree)
    shutil.copytree(worktree, saved / "worktree")
    shutil.copytree(store, saved / "store")
    for number in count(1 + this_turn() % EVERY, EVERY):
        refill(worktree, saved / "worktree")
        put_back(saved / "store", store)
        ended = kill_at(lambda: undo(worktree), number)
        if ended.signal is None:
            assert number > 30
            return
        with noting(f"killed before: {ended.last_words}"):
            yield store


def recover(worktree: Path) -> list[str]:
    """Look at the status as a new process would; return what was recovered, each sentence once."""
    with open_shadow(worktree) as shadow:
        shadow.status()
        return list(dict.fromkeys(shadow.recovered))


def is_undone(store: Path) -> bool:
    return read_timeline(store, lambda journal: len(journal.events_after(0, 1))) > 2


def has_intent(store: Path) -> bool:
    return read_timeline(store, lambda journal: bool(journal.open_intents()))


def is_stored(store: Path, text: str) -> bool:
    """Tell whether the store has a content, as a new process sees it."""
    packs = journaled_packs(store)
    objects = Objects(str(store / "objects"), journaled=lambda: packs)
    try:
        return objects.prove(blob_id(text.encode()))
    finally:
        objects.close()


# Directories that are out of reach


def move_away(worktree: Path) -> None:
    (worktree / "sub").rename(worktree.parent / "away")


def replace_by_link(worktree: Path) -> None:
    move_away(worktree)
    (worktree / "sub").symlink_to(worktree.parent)


def unmount(worktree: Path) -> None:
    """Leave an empty directory, as a mount point is."""
    move_away(worktree)
    (worktree / "sub").mkdir()


def bring_back(worktree: Path) -> None:
    sub = worktree / "sub"
    if sub.is_symlink():
        sub.unlink()
    elif sub.exists():
        sub.rmdir()
    (worktree.parent / "away").rename(worktree / "sub")


@pytest.mark.parametrize("leave", [move_away, replace_by_link, unmount])
def test_what_is_out_of_reach_is_made_good_once_it_is_there_again(
    worktree: Path, tmp_path: Path, leave: Callable[[Path], None]
) -> None:
    """Whenever the undo was killed; whatever commands come in between."""
    record(worktree)
    waited = set()
    for store in killed_undos(worktree, tmp_path / "saved"):
        is_done, is_interrupted = is_undone(store), has_intent(store)
        leave(worktree)

        found = [recover(worktree), recover(worktree), recover(worktree)]
        bring_back(worktree)
        back = recover(worktree)

        verb = "finished" if is_done else "rolled back"
        if is_interrupted:
            assert found == [[f"an interrupted undo was {verb} {WAITS}"], [], []]
            assert back == [f"an interrupted undo was {verb}"]
            waited.add(verb)
        assert_tree(worktree, BEFORE if is_done else AFTER)
        assert not has_intent(store)
    assert waited == {"finished", "rolled back"}


@pytest.mark.parametrize("leave", [move_away, replace_by_link, unmount])
def test_a_version_saved_in_the_moment_of_the_swap_waits_with_its_directory(
    worktree: Path, leave: Callable[[Path], None]
) -> None:
    """It is in a temporary there, and nowhere else."""
    record(worktree)
    kill_undo(worktree, "exchange", "z.txt", first=lambda: save_aside(worktree))
    leave(worktree)
    recover(worktree)
    bring_back(worktree)

    assert recover(worktree) == ["an interrupted undo was rolled back"]

    assert (worktree / "sub" / "a.txt").read_text() == SAVED


def save_aside(worktree: Path) -> None:
    """Leave the worktree as a kill does right after a swap that took a version of the user."""
    temporaries = [path for path in (worktree / "sub").glob(".shadowtree-tmp-*") if path.is_file()]
    (temporary,) = [path for path in temporaries if path.read_text() == "new"]
    temporary.write_text(SAVED)


def test_a_directory_that_is_gone_for_good_stops_no_command(worktree: Path) -> None:
    """If something else takes its place, there is nothing left to wait for."""
    store = record(
        worktree, {"sub": {"a.txt": "old"}, "z.txt": "old"}, {"sub": {"a.txt": "new"}, "z.txt": "new"}
    )
    kill_undo(worktree, "exchange", "z.txt")
    shutil.rmtree(worktree / "sub")
    with open_shadow(worktree) as shadow:
        with shadow.message("m2"):
            (worktree / "z.txt").write_text("newer")
        shadow.undo()
        assert has_intent(store)
        make_tree(worktree, {"sub": {"other": "the user's"}})
        shadow.status()

        assert shadow.recovered == [
            f"an interrupted undo was rolled back {WAITS}",
            "an interrupted undo was rolled back",
            "left alone because they changed in the meantime: sub/a.txt",
        ]
    assert_tree(worktree, {"sub": {"other": "the user's"}, "z.txt": "new"})
    assert not has_intent(store)
    assert_sound_store(store)


def test_what_was_rolled_back_already_is_not_rolled_back_again_with_the_rest(worktree: Path) -> None:
    """Meanwhile somebody else has brought the paths to where the interrupted act wanted them."""
    before: Tree = {"sub": {"a.txt": "old"}, "gone": "gone", "tool": file("1", 0o644)}
    after: Tree = {"sub": {"a.txt": "new"}, "tool": file("1", 0o755)}
    record(worktree, before, after)
    kill_undo(worktree, "fsync directory")
    move_away(worktree)
    recover(worktree)
    assert_tree(worktree, {"tool": file("1", 0o755)})
    become(worktree, after, {**before, "sub": after["sub"]})
    bring_back(worktree)

    recover(worktree)

    assert_tree(worktree, {**before, "sub": {"a.txt": "new"}})


def test_what_is_forgotten_while_it_waits_is_stored_again_before_it_is_removed(worktree: Path) -> None:
    store = record(worktree)
    kill_undo(worktree, "exchange", "z.txt")
    move_away(worktree)
    with open_shadow(worktree) as shadow:
        for number in range(2, 5):
            (worktree / "z.txt").write_text(f"{number}")
            shadow.snapshot(f"m{number}")
        shadow.forget(keep_last=1)
        shadow.gc()
    assert not is_stored(store, "old")
    bring_back(worktree)

    recover(worktree)

    assert (worktree / "sub" / "a.txt").read_text() == "new"
    assert is_stored(store, "old")
    assert_records_whole(store)


@pytest.mark.parametrize("act", ["unlink", "exchange"], ids=["done", "under way"])
def test_what_the_store_lost_since_the_kill_is_stored_again_before_it_is_removed(
    worktree: Path, act: str
) -> None:
    new = random.Random(4).randbytes(2 << 20).hex()
    store = record(worktree, {"a": "old", "b": "old"}, {"a": new, "b": "new"})
    kill_undo(worktree, act, ".shadowtree-tmp-" if act == "unlink" else "b")
    pack = max((store / "objects" / "pack").glob("*.pack"), key=lambda each: each.stat().st_size)
    pack.chmod(0o600)
    with pack.open("r+b") as stream:
        stream.seek(1 << 20)
        stream.write(bytes(64))
    assert not is_stored(store, new)

    recover(worktree)

    assert is_undone(store) == (act == "unlink")
    assert is_stored(store, new)
    assert not list(worktree.glob(".shadowtree-tmp-*"))


def test_what_is_purged_while_it_waits_is_not_stored_again(worktree: Path) -> None:
    store = record(worktree, {"sub": {"a.txt": "secret"}}, {"sub": {"a.txt": "new"}})
    kill_undo(worktree, "fsync directory")
    move_away(worktree)
    with open_shadow(worktree) as shadow:
        shadow.purge("sub/a.txt")
    bring_back(worktree)

    recover(worktree)

    assert (worktree / "sub" / "a.txt").read_text() == "new"
    assert not is_stored(store, "secret")
    assert_records_whole(store)


def forget_all(worktree: Path) -> None:
    """Forget what the dead undo needs, as retention would after more messages of other sessions."""
    with open_shadow(worktree) as shadow:
        shadow.for_session("other").snapshot("n1")
        shadow.drop_session("default", force=True)
        shadow.gc()


def test_what_is_replaced_and_forgotten_while_it_waits_is_stored_again(worktree: Path) -> None:
    """An edit in the directory that was away keeps the old state from going back to its path."""
    store = record(worktree, {"sub": {"a.txt": "old"}}, {"sub": {"a.txt": "new"}})
    kill_undo(worktree, "fsync directory")
    move_away(worktree)
    recover(worktree)
    forget_all(worktree)
    (worktree.parent / "away" / "a.txt").write_text("edited")
    assert not is_stored(store, "new")
    bring_back(worktree)

    recover(worktree)

    assert_tree(worktree, {"sub": {"a.txt": "edited"}})
    assert is_stored(store, "new")
    assert_records_whole(store)


def purge_it(worktree: Path) -> None:
    with open_shadow(worktree) as shadow:
        shadow.purge("sub/a.txt")


@pytest.mark.parametrize("lose", [forget_all, purge_it])
def test_a_half_written_file_whose_content_is_gone_stops_no_command(
    worktree: Path, lose: Callable[[Path], None]
) -> None:
    """Nobody can tell any more that it was to become the old state."""
    store = record(worktree, {"sub": {"a.txt": "old" * 99}}, {"sub": {"a.txt": "new"}})
    kill_undo(worktree, "fsync", ".shadowtree-tmp-")
    (temporary,) = (worktree / "sub").glob(".shadowtree-tmp-*")
    temporary.write_text("oldol")
    move_away(worktree)
    recover(worktree)
    lose(worktree)
    bring_back(worktree)

    recover(worktree)

    assert_tree(worktree, {"sub": {"a.txt": "new"}})
    assert not has_intent(store)
    assert_records_whole(store)


def test_bits_are_not_rolled_back_on_another_file(worktree: Path) -> None:
    record(worktree, {"sub": {"a": file("1", 0o644)}}, {"sub": {"a": file("1", 0o755)}})
    kill_after_chmod(worktree)
    shutil.rmtree(worktree / "sub")
    recover(worktree)
    make_tree(worktree, {"sub": {"a": file("1", 0o644)}})

    recovered = recover(worktree)

    assert_tree(worktree, {"sub": {"a": file("1", 0o644)}})
    assert "left alone because they changed in the meantime: sub/a" in recovered


def test_what_was_moved_aside_waits_although_its_directory_was_to_go(worktree: Path) -> None:
    """The directory stayed, because it has an ignored file."""
    make_tree(worktree, {".gitignore": "*.log\n"})
    store = record(worktree, {"a": "1"}, {"a": "1", "sub": {"x": "x", "i.log": "ignored"}})
    kill_undo(worktree, "unlink", ".shadowtree-tmp-")
    assert is_undone(store)
    move_away(worktree)

    assert recover(worktree) == [f"an interrupted undo was finished {WAITS}"]
    bring_back(worktree)
    recover(worktree)

    assert_tree(worktree, {".gitignore": "*.log\n", "a": "1", "sub": {"i.log": "ignored"}})


def test_an_act_that_is_confirmed_reports_what_was_recovered_before_it(worktree: Path) -> None:
    record(worktree)
    kill_undo(worktree, "fsync directory")

    with open_shadow(worktree) as shadow:
        outcome = shadow.restore("m1^", confirm=lambda plan: True)

    assert "an interrupted undo was rolled back" in outcome.notes


# What somebody did after the kill


@pytest.mark.parametrize("kind", ["stage", "fsync"])
def test_files_that_the_user_put_back_himself_stay(worktree: Path, kind: str) -> None:
    """As `git checkout` does, with the very bytes that the undo would have written."""
    deleted: Tree = {"d": {"x": "x"}, **{f"f{number}": f"content {number}" for number in range(5)}}
    record(worktree, deleted, {})
    for number in range(1, 9 if kind == "stage" else 6):
        kill_undo(worktree, kind, ".shadowtree-tmp-", number)
        make_tree(worktree, deleted)

        recovered = recover(worktree)

        assert_tree(worktree, deleted)
        assert recovered[0] == "an interrupted undo was rolled back"
        become(worktree, deleted, {})


def test_files_that_the_user_put_back_himself_stay_if_the_temporaries_are_gone(
    worktree: Path, tmp_path: Path
) -> None:
    """After `git clean` and `git checkout`, nobody can tell any more whose they are."""
    deleted: Tree = {"d": {"x": "x"}, **{f"f{number}": f"content {number}" for number in range(3)}}
    record(worktree, deleted, {"keep": "kept"})
    for _ in killed_undos(worktree, tmp_path / "saved"):
        refill(worktree, make_tree(tmp_path / "checked out", deleted))

        recover(worktree)

        assert_tree(worktree, deleted)


def test_what_cannot_be_rolled_back_because_its_temporary_is_gone_is_named(worktree: Path) -> None:
    record(worktree)
    kill_undo(worktree, "fsync directory")
    for path in worktree.rglob(".shadowtree-tmp-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    recovered = recover(worktree)

    assert recovered[0] == f"an interrupted undo was rolled back {WAITS.replace('sub', 'sub/out')}"
    names = recovered[1].removeprefix("left alone because they changed in the meantime: ").split(", ")
    assert {"sub/a.txt", "sub/made.txt", "z.txt"} <= set(names)
    with open_shadow(worktree) as shadow:
        shadow.restore("m1")
    assert_tree(worktree, AFTER)


# Directories that are in use


def test_a_directory_in_which_a_program_writes_while_it_is_removed_comes_back(worktree: Path) -> None:
    """Its working directory was there. Nothing may stay under a name that is never recorded."""
    record(worktree, {"keep": "kept"}, {"keep": "kept", "build": {"x": "x", "deep": {"y": "y"}}})
    inode = (worktree / "build").stat().st_ino

    def write_into(act: str, path: str) -> None:
        aside = [path for path in worktree.iterdir() if path.stat().st_ino == inode]
        if act == "commit" and aside[0].name != "build":
            (aside[0] / "out.txt").write_text("an hour of work")

    with open_shadow(worktree) as shadow:
        with armed(write_into):
            outcome = shadow.undo()
        assert_tree(worktree, {"keep": "kept", "build": {"out.txt": "an hour of work"}})
        assert outcome.notes == [
            "1 directory was removed",
            "build stays: something was added to it in the meantime",
        ]
        shadow.track()
    assert is_stored(shadow.store, "an hour of work")


# Temporaries that cannot be read


def test_a_version_in_a_temporary_that_cannot_be_read_for_a_moment_is_not_given_up(worktree: Path) -> None:
    """The user saved right before the swap, and again right after it, whichever read fails."""
    store = record(worktree, {"a": "old"}, {"a": "new"})
    for number in count(1):
        (worktree / "a").write_text("new")
        version = f"{SAVED}, {number}"
        with open_shadow(worktree) as shadow:
            shadow.restore("m1")
            with pytest.MonkeyPatch.context() as patch:
                texts = save_around_the_swap(worktree, version, patch)
                failed = fail_read_of_temporary(number, texts, patch)
                with pytest.raises((Conflict, WorktreeFailed)):
                    shadow.undo()
        recover(worktree)

        assert is_stored(store, version)
        assert (worktree / "a").read_text() == "saved right after it"
        assert not list(worktree.glob(".shadowtree-tmp-*"))
        if not failed:
            break
    assert number > 3


def save_around_the_swap(worktree: Path, version: str, patch: pytest.MonkeyPatch) -> list[str]:
    """Save a file in the moment of the first swap, by renaming, and once more right after it.

    The list that is returned has what is not saved yet.
    """
    texts = [version, "saved right after it"]

    def save() -> None:
        (worktree / "b").write_text(texts.pop(0))
        (worktree / "b").rename(worktree / "a")

    def swap_between_saves(*names: Any) -> None:  # Any: as `exchange` takes them
        if texts:
            save()
            syscalls.exchange(*names)
            save()
        else:
            syscalls.exchange(*names)

    patch.setattr(writer, "exchange", swap_between_saves)
    return texts


def fail_read_of_temporary(number: int, unsaved: list[str], patch: pytest.MonkeyPatch) -> list[str]:
    """Let the n-th opening of a temporary for reading fail once all is saved; return what failed."""
    opened, failed, real = count(1), list[str](), os.open

    def failing(path: Any, flags: int, *rest: Any, **named: Any) -> int:  # Any: as `os.open` takes them
        is_read = isinstance(path, bytes) and path.startswith(b".shadowtree-tmp-") and not flags & os.O_CREAT
        if is_read and not unsaved and next(opened) == number:
            failed.append(os.fsdecode(path))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, flags, *rest, **named)

    patch.setattr(os, "open", failing)
    return failed


# After the act is recorded


def test_an_undo_that_is_done_is_reported_though_the_timeline_cannot_be_read_any_more(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(worktree, {"a": "old"}, {"a": "new"})

    def fail(journal: Journal) -> None:
        raise StoreFailed("timeline.db", "disk I/O error")

    def fail_from_now_on(act: str, path: str) -> None:
        if act == "unlink" and ".shadowtree-tmp-" in path:
            monkeypatch.setattr(Journal, "session_names", fail)

    with open_shadow(worktree) as shadow, armed(fail_from_now_on):
        outcome = shadow.undo()

    assert (outcome.complete, outcome.back) == (True, "shadowtree unrevert")
    assert_tree(worktree, {"a": "old"})


@pytest.mark.parametrize("fault", ["shrinks", "cannot be read"])
def test_an_undo_that_is_done_is_reported_though_a_file_changes_while_it_is_rescued(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """It has another name, by which somebody saves to it after it was moved aside."""
    store = record(worktree, {"a": "old"}, {"a": "new"})
    other = tmp_path / "other name"
    os.link(worktree / "a", other)
    real = Writer.open_content

    def save(act: str, path: str) -> None:
        if act == "fsync directory" and other.read_text() == "new":
            other.write_text(SAVED)

    def open_and_shrink(self: Writer, path: Any) -> Any:  # Any: as `open_content` has them
        opened = real(self, path)
        if fault == "shrinks":
            os.truncate(other, 3)
        else:
            patch.setattr(os, "read", fail_to_read)
        return opened

    def fail_to_read(fd: int, size: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch, open_shadow(worktree) as shadow, armed(save):
        patch.setattr(Writer, "open_content", open_and_shrink)
        outcome = shadow.undo()

    assert outcome.complete
    assert "temporary files could not be removed; the next command removes them" in outcome.notes[-1]
    assert has_intent(store)
    assert recover(worktree)[0] == "an interrupted undo was finished"
    assert is_stored(store, SAVED[:3] if fault == "shrinks" else SAVED)
    assert_tree(worktree, {"a": "old"})


def test_the_way_back_names_the_session_if_the_act_is_its_first_record(worktree: Path) -> None:
    make_tree(worktree, {"a": "old"})
    with Shadow(worktree, session="other", settings={"min_free": 0}) as other:
        tree = other.track()
        with other.message("m1"):
            (worktree / "a").write_text("new")
    with open_shadow(worktree) as shadow:
        outcome = shadow.restore(tree)

        assert outcome.back == "shadowtree unrevert --session default"
