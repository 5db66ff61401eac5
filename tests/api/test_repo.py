"""`Shadow.repo`: the conversation as commits for dulwich, and objects that users add to a store."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from dulwich import porcelain
from dulwich.diff_tree import tree_changes
from dulwich.object_format import SHA1
from dulwich.object_store import tree_lookup_path
from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.pack import PackChunkGenerator, full_unpacked_object
from dulwich.refs import Ref

from shadowtree import AsyncShadow, NotWrapped, Shadow, StoreDamaged
from shadowtree.base.limits import Limits
from shadowtree.store.refs import OWN_REFS
from shadowtree.store.repo import ShadowRepo
from shadowtree.system import disk
from tests.conversation.exports import ODD
from tests.support.limits import TINY
from tests.support.referee import git
from tests.support.trees import make_tree

DAY_NS = 24 * 3600 * 10**9
HEAD = Ref(b"HEAD")


def record(shadow: Shadow, id: str, name: str = "a.txt", text: str | None = None) -> None:
    with shadow.message(id, text=id if text is None else text):
        (shadow.worktree / name).write_text(f"{id}\n")


def log(repo: ShadowRepo, ref: bytes = b"HEAD") -> list[str]:
    """Return the first lines of commits, newest first."""
    walker = repo.get_walker(include=[repo.refs[Ref(ref)]])
    return [entry.commit.message.partition(b"\n")[0].decode() for entry in walker]


def read(repo: ShadowRepo, ref: bytes, path: bytes) -> bytes:
    commit = repo[ref]
    assert isinstance(commit, Commit)
    _, id = tree_lookup_path(repo.object_store.__getitem__, commit.tree, path)
    blob = repo[id]
    assert isinstance(blob, Blob)
    return blob.data


def own_refs(repo: ShadowRepo) -> set[bytes]:
    return {ref for ref in repo.refs.allkeys() if ref.startswith(OWN_REFS)}


# The conversation


def test_porcelain_lists_the_messages(shadow: Shadow) -> None:
    record(shadow, "m1", text="Fix the login\n\nas asked")
    record(shadow, "m2", text="Now the tests")
    out = io.StringIO()

    porcelain.log(shadow.repo, outstream=out)

    assert out.getvalue().index("Now the tests") < out.getvalue().index("Fix the login")
    assert "Shadowtree-Id: m1" in out.getvalue()


def test_files_of_messages_are_read(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"src": {"b.py": "b = 1\n"}})
    record(shadow, "m1")
    record(shadow, "m2")
    repo = shadow.repo
    head = repo[HEAD]
    assert isinstance(head, Commit)

    assert read(repo, head.id, b"a.txt") == b"m2\n"
    assert read(repo, head.parents[0], b"a.txt") == b"m1\n"
    assert read(repo, head.id, b"src/b.py") == b"b = 1\n"
    assert repo[shadow.messages()[-1].after.encode()].id == head.tree  # type: ignore[union-attr]  # it ended


def test_what_changed_between_two_messages_is_found(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"kept": "k", "gone": "g"})
    record(shadow, "m1")
    with shadow.message("m2"):
        (worktree / "gone").unlink()
        make_tree(worktree, {"new": "n"})
    repo = shadow.repo
    after = repo[HEAD]
    assert isinstance(after, Commit)
    before = repo[after.parents[0]]
    assert isinstance(before, Commit)

    changes = list(tree_changes(repo.object_store, before.tree, after.tree))

    names = {(change.type, (change.new or change.old).path) for change in changes}  # type: ignore[union-attr]
    assert names == {("delete", b"gone"), ("add", b"new")}


def test_each_look_shows_what_was_recorded_since(shadow: Shadow) -> None:
    record(shadow, "m1")
    repo = shadow.repo
    assert log(repo) == ["m1"]

    record(shadow, "m2")

    assert log(shadow.repo)[0] == "m2"
    assert log(repo)[0] == "m2"


def test_recording_makes_no_commits(shadow: Shadow) -> None:
    """Recording would have to wait for them."""
    record(shadow, "m1")
    before = shadow.repo.refs.as_dict()

    record(shadow, "m2")
    shadow.undo()

    assert ShadowRepo(str(shadow.store), shadow._access.locked, list).refs.as_dict() == before


def test_a_second_look_writes_nothing(shadow: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    from shadowtree.system import disk

    record(shadow, "m1")
    first = shadow.repo.refs.as_dict()
    writes: list[str] = []
    monkeypatch.setattr(disk, "before_write", lambda act, path: writes.append(f"{act} {path}"))

    assert shadow.repo.refs.as_dict() == first
    assert writes == []


def test_what_is_undone_and_what_was_left_have_refs(shadow: Shadow) -> None:
    for id in ("m1", "m2", "m3"):
        record(shadow, id)
    shadow.undo()
    repo = shadow.repo
    assert log(repo)[0] == "m2"
    assert log(repo, b"refs/heads/undone/default")[0] == "m3"

    record(shadow, "m4")

    repo = shadow.repo
    assert Ref(b"refs/heads/undone/default") not in repo.refs
    (branch,) = [ref for ref in own_refs(repo) if ref.startswith(b"refs/heads/branches/")]
    assert log(repo, branch)[:2] == ["m3", "m2"]
    shadow.drop_branch(shadow.branches()[0].name)
    assert branch not in own_refs(shadow.repo)


def test_head_is_at_the_session_that_recorded_last(shadow: Shadow) -> None:
    record(shadow, "m1")
    with shadow.for_session(ODD) as odd:
        record(odd, "o1", name="o.txt")
        assert log(odd.repo)[0] == "o1"
        assert len([ref for ref in own_refs(odd.repo) if ref.startswith(b"refs/heads/sessions/")]) == 2

    record(shadow, "m2")

    assert log(shadow.repo)[0] == "m2"


def test_a_store_without_messages_has_an_empty_commit(shadow: Shadow) -> None:
    shadow.track()
    repo = shadow.repo

    assert log(repo) == ["A store of shadowtree"]
    assert own_refs(repo) == set()


def test_a_directory_that_is_not_wrapped_has_no_repository(worktree: Path) -> None:
    with pytest.raises(NotWrapped):
        Shadow(worktree).repo  # noqa: B018 - it raises


def test_refs_that_somebody_packed_moved_or_removed_come_back(shadow: Shadow) -> None:
    record(shadow, "m1")
    record(shadow, "m2")
    shadow.undo()
    wanted = shadow.repo.refs.as_dict()
    git("--git-dir", shadow.store, "pack-refs", "--all")
    for path in shadow.store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert shadow.repo.refs.as_dict() == wanted

    repo = shadow.repo
    repo.refs[Ref(b"refs/heads/sessions/default")] = repo.refs[Ref(b"refs/heads/undone/default")]
    del repo.refs[Ref(b"refs/heads/undone/default")]
    repo.refs[Ref(b"refs/heads/sessions/another")] = repo.head()

    assert shadow.repo.refs.as_dict() == wanted
    with Shadow(shadow.worktree, settings={"min_free": 0}) as another:
        assert another.repo.refs.as_dict() == wanted
    shadow.redo()
    assert Ref(b"refs/heads/undone/default") not in shadow.repo.refs


def test_a_damaged_commit_is_written_again(worktree: Path, large_packs: None) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        record(shadow, "m1")
        known = set((shadow.store / "objects" / "pack").glob("*.pack"))
        wanted = log(shadow.repo)
        (made,) = set((shadow.store / "objects" / "pack").glob("*.pack")) - known
        made.write_bytes(bytes(made.stat().st_size))

    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        assert log(shadow.repo) == wanted


def test_it_goes_on_after_the_shadow_was_closed(shadow: Shadow) -> None:
    record(shadow, "m1")
    repo = shadow.repo
    shadow.close()

    blob = Blob.from_string(b"late")
    repo.object_store.add_object(blob)

    assert repo[blob.id] == blob
    repo.close()
    assert log(repo)[0] == "m1"


def test_it_is_there_for_asyncio(worktree: Path) -> None:
    async def use() -> list[str]:
        async with AsyncShadow(worktree, settings={"min_free": 0}) as shadow:
            async with shadow.message("m1", text="m1"):
                (worktree / "a").write_text("a")
            return log(shadow.repo)

    assert asyncio.run(use())[0] == "m1"


def test_nobody_loads_dulwich_to_record(worktree: Path) -> None:
    code = (
        "import sys; from shadowtree import Shadow\n"
        f"with Shadow({str(worktree)!r}, settings={{'min_free': 0}}) as shadow:\n"
        "    with shadow.message('m1'): pass\n"
        "print('dulwich.repo' in sys.modules)"
    )
    import subprocess

    from tests.support.processes import surroundings

    done = subprocess.run(
        [sys.executable, "-c", code], env=surroundings(), capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"


# Forgetting


def stored(shadow: Shadow, content: str) -> bool:
    """Return whether a content is in the store, as a new process sees it."""
    done = git("--git-dir", shadow.store, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return Blob.from_string(content.encode()).id.decode() in done.split()


def test_what_is_forgotten_is_freed_though_the_conversation_was_exported(shadow: Shadow) -> None:
    for number in range(4):
        record(shadow, f"m{number}")
    old = shadow.repo.head()
    shadow.repo.refs.pack_refs(all=True)

    shadow.forget(keep_last=1)

    assert not stored(shadow, "m0\n")
    assert old not in set(shadow.repo.object_store)
    assert log(shadow.repo)[0] == "m3"
    assert shadow.check(read_data=True).ok


def test_a_ref_of_the_user_keeps_what_is_forgotten(shadow: Shadow) -> None:
    for number in range(4):
        record(shadow, f"m{number}")
    repo = shadow.repo
    repo.refs[Ref(b"refs/heads/mine")] = repo.head()

    shadow.forget(keep_last=1)

    assert log(shadow.repo, b"refs/heads/mine")[:4] == ["m3", "m2", "m1", "m0"]
    assert read(shadow.repo, b"refs/heads/mine", b"a.txt") == b"m3\n"
    assert stored(shadow, "m0\n")


def test_a_dry_run_forgets_no_ref(shadow: Shadow) -> None:
    for number in range(3):
        record(shadow, f"m{number}")
    before = shadow.repo.refs.as_dict()

    shadow.forget(keep_last=1, dry_run=True)

    assert ShadowRepo(str(shadow.store), shadow._access.locked, list).refs.as_dict() == before


def test_a_purge_leaves_nothing_in_the_repository(shadow: Shadow, worktree: Path) -> None:
    with shadow.for_session("session of hunter2") as secret, secret.message("m1", text="use hunter2"):
        (worktree / "key.pem").write_text("hunter2 is the key\n")
        (worktree / "b.txt").write_text("b\n")
    repo = shadow.repo
    repo.refs[Ref(b"refs/heads/mine")] = repo.head()

    shadow.purge("key.pem")
    shadow.purge(text="hunter2")

    names = [str(path) for path in shadow.store.rglob("*")]
    assert not any("hunter2" in name for name in names)
    assert not stored(shadow, "hunter2 is the key\n")
    assert Ref(b"refs/heads/mine") not in shadow.repo.refs
    with pytest.raises(KeyError):
        read(shadow.repo, b"HEAD", b"key.pem")
    assert read(shadow.repo, b"HEAD", b"b.txt") == b"b\n"


# The user's own objects


@pytest.fixture
def later(worktree: Path) -> Shadow:
    """A shadow of the worktree, with a clock 15 days ahead."""
    import time

    limits = Limits(clock_ns=lambda: time.time_ns() + 15 * DAY_NS)
    return Shadow(worktree, settings={"min_free": 0, "keep_within": "99d"}, limits=limits)


def test_what_nothing_leads_to_stays_for_two_weeks(shadow: Shadow, later: Shadow) -> None:
    record(shadow, "m1")
    lone, tree = Blob.from_string(b"lone"), Tree()
    inner = Blob.from_string(b"inner")
    tree.add(b"name", 0o100644, inner.id)
    shadow.repo.object_store.add_objects([(lone, None), (tree, None)])
    shadow.repo.object_store.add_object(inner)

    shadow.gc()
    shadow.tidy(5)

    assert {lone.id, tree.id, inner.id} <= set(shadow.repo.object_store)

    with later:
        later.gc()

        assert not {lone.id, tree.id, inner.id} & set(later.repo.object_store)
        assert log(later.repo)[0] == "m1"


@pytest.mark.limits(TINY)
def test_idle_time_takes_nothing_of_the_users_for_ours(worktree: Path) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        record(shadow, "m0")
        lone = Blob.from_string(b"lone")
        shadow.repo.object_store.add_object(lone)
        for number in range(20):
            record(shadow, f"m{number + 1}", text="x" * 400)
            shadow.tidy(1)

        shadow.gc()

        assert shadow.repo[lone.id] == lone


def commit_mine(repo: ShadowRepo, content: bytes, *parents: ObjectID) -> ObjectID:
    """Add a commit of the user, in a pack of its own; its tree has one file, `name`."""
    blob, tree, commit = Blob.from_string(content), Tree(), Commit()
    tree.add(b"name", 0o100644, blob.id)
    commit.tree, commit.message, commit.parents = tree.id, b"mine\n", list(parents)
    commit.author = commit.committer = b"x <x@y>"
    commit.author_time = commit.commit_time = commit.author_timezone = commit.commit_timezone = 0
    repo.object_store.add_objects([(blob, None), (tree, None), (commit, None)])
    return commit.id


def list_packs(shadow: Shadow) -> list[Path]:
    return list((shadow.store / "objects" / "pack").glob("*.pack"))


MINE = Ref(b"refs/heads/mine")


def test_a_ref_keeps_what_it_leads_to(shadow: Shadow, later: Shadow) -> None:
    record(shadow, "m1")
    shadow.repo.refs[MINE] = commit_mine(shadow.repo, b"mine")

    with later:
        later.gc()

        assert read(later.repo, MINE, b"name") == b"mine"
        assert later.check(read_data=True).ok
    git("--git-dir", shadow.store, "gc", "--prune=now", "--quiet")
    for path in shadow.store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    assert read(shadow.repo, MINE, b"name") == b"mine"


def test_a_ref_keeps_what_it_leads_to_while_git_packs_refs(
    shadow: Shadow, later: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(shadow, "m1")
    shadow.repo.refs[MINE] = commit_mine(shadow.repo, b"mine")
    walk = os.walk

    def walk_late(top: str, **named: Any) -> Any:
        if top == str(shadow.store / "refs"):
            git("--git-dir", shadow.store, "pack-refs", "--all")
        return walk(top, **named)

    monkeypatch.setattr(os, "walk", walk_late)
    with later:
        later.gc()

        assert read(later.repo, MINE, b"name") == b"mine"
    (shadow.store / "packed-refs").chmod(0o600)


@pytest.mark.parametrize("is_packed", [False, True], ids=["file", "packed"])
def test_gc_removes_nothing_while_a_ref_is_damaged(shadow: Shadow, later: Shadow, *, is_packed: bool) -> None:
    record(shadow, "m1")
    repo = shadow.repo
    mine, other = commit_mine(repo, b"mine"), commit_mine(repo, b"other")
    repo.refs[MINE], repo.refs[Ref(b"refs/heads/other")] = mine, other
    if is_packed:
        repo.refs.pack_refs(all=True)
    damaged = shadow.store / ("packed-refs" if is_packed else "refs/heads/mine")
    damaged.write_bytes(damaged.read_bytes().replace(mine, b"\x7f" + mine[1:]))

    with later:
        assert not later.check().ok
        with pytest.raises(StoreDamaged):
            later.gc()
        assert mine in repo.object_store

        assert later.repair().ok
        later.gc()
        assert later.repo.refs[Ref(b"refs/heads/other")] == other
        assert read(later.repo, b"refs/heads/other", b"name") == b"other"


def test_gc_removes_nothing_while_a_commit_in_the_middle_is_missing(shadow: Shadow, later: Shadow) -> None:
    record(shadow, "m1")
    repo = shadow.repo
    first = commit_mine(repo, b"1")
    packs = set(list_packs(shadow))
    second = commit_mine(repo, b"2", first)
    [lost] = set(list_packs(shadow)) - packs
    repo.refs[MINE] = commit_mine(repo, b"3", second)
    for path in (lost, lost.with_suffix(".idx"), lost.with_suffix(".keep")):
        path.rename(shadow.store.parent / path.name)

    with later:
        assert second.decode() in later.check().problems[0].message
        with pytest.raises(StoreDamaged):
            later.gc()

        assert first in later.repo.object_store
    for path in (lost, lost.with_suffix(".idx"), lost.with_suffix(".keep")):
        (shadow.store.parent / path.name).rename(path)


def test_gc_works_in_a_store_with_a_shallow_history_and_a_submodule(shadow: Shadow, later: Shadow) -> None:
    record(shadow, "m1")
    tree, missing = Tree(), ObjectID(b"1" * 40)
    tree.add(b"submodule", 0o160000, missing)
    shadow.repo.object_store.add_object(tree)
    shadow.repo.refs[Ref(b"refs/tags/tree")] = tree.id
    shadow.repo.refs[MINE] = commit_mine(shadow.repo, b"mine", missing)
    shadow.repo.update_shallow({shadow.repo.refs[MINE]}, None)

    with later:
        later.gc()

        assert read(later.repo, MINE, b"name") == b"mine"
        assert later.check(read_data=True).ok


def test_a_pack_is_received_while_others_record_and_repair(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is received without the lock."""
    record(shadow, "m1")
    blob = Blob.from_string(b"received")
    content = b"".join(PackChunkGenerator(SHA1, records=iter([full_unpacked_object(blob)]), num_records=1))
    file, commit, _ = shadow.repo.object_store.add_pack()
    file.write(content[:20])
    with Shadow(worktree) as other:
        assert not other.check().harmless
        assert other.repair().ok

    def record_meanwhile(act: str, path: str) -> None:
        if act in ("rename", "fsync") and path.endswith("-index"):
            monkeypatch.setattr(disk, "before_write", lambda act, path: None)
            with Shadow(worktree) as other:
                other._access.open().recover()

    monkeypatch.setattr(disk, "before_write", record_meanwhile)
    file.write(content[20:])
    commit()

    assert shadow.repo[blob.id] == blob


def test_a_stream_that_was_interrupted_is_swept_when_it_is_old(shadow: Shadow) -> None:
    record(shadow, "m1")
    packs = shadow.store / "objects" / "pack"
    old, young = packs / "tmp_pack_1-a", packs / "tmp_pack_1-b"
    for path in (old, young):
        path.write_bytes(b"half")
        path.chmod(0o600)
    received = shadow.store / "objects" / "tmp_objdir-incoming-1"
    (received / "pack").mkdir(parents=True)
    for path in (old, received):
        os.utime(path, (0, 0))

    shadow.gc()

    assert not old.exists()
    assert not received.exists()
    assert young.exists()
    young.unlink()


def test_a_store_that_was_adopted_is_the_repository(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1")
    shadow.close()
    moved = worktree.with_name("moved")
    worktree.rename(moved)

    with Shadow.adopt(moved, shadow.store) as adopted:
        assert (adopted.repo.path, adopted.repo.bare) == (str(adopted.store), True)
        assert log(adopted.repo)[0] == "m1"
    shutil.rmtree(moved)


def test_what_is_written_through_it_is_no_part_of_any_message(shadow: Shadow, worktree: Path) -> None:
    record(shadow, "m1")
    repo = shadow.repo
    repo.object_store.add_object(Blob.from_string(b"mine"))
    repo.refs[Ref(b"refs/heads/mine")] = repo.head()
    before = ObjectID(repo.head())

    shadow.undo()
    shadow.redo()

    assert (worktree / "a.txt").read_text() == "m1\n"
    assert shadow.repo.head() == before
    assert shadow.check().ok
