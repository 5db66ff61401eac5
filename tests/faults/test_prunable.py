"""What git may prune does not count as stored, and what the disk lost is stored again."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.refs import Ref

from shadowtree import Shadow, ShadowError, StoreDamaged, StoreFailed
from shadowtree.base.frozen import replace
from shadowtree.base.limits import Limits, PackLimits
from shadowtree.store.repo import ShadowRepo
from tests.support.limits import usual_limits
from tests.support.packs import blob, noise
from tests.support.referee import git
from tests.support.stores import SETTINGS, open_shadow
from tests.support.sweeps import armed
from tests.support.trees import make_tree

EDIT = b"the user's unique work\n" * 3


def write_loose(store: Path, path: Path) -> None:
    git("--git-dir", store, "hash-object", "-w", path)


def write_unkept_pack(store: Path, path: Path) -> None:
    id = git("--git-dir", store, "hash-object", "-w", path)
    command = ["git", "--git-dir", str(store), "pack-objects", "-q", f"{store}/objects/pack/pack"]
    subprocess.run(command, input=f"{id}\n".encode(), check=True, capture_output=True)
    (store / "objects" / id[:2] / id[2:]).unlink()


@pytest.fixture(params=[write_loose, write_unkept_pack])
def written_by_git(request: pytest.FixtureRequest) -> Callable[[Path, Path], None]:
    write: Callable[[Path, Path], None] = request.param
    return write


def prune(store: Path) -> None:
    git("--git-dir", store, "gc", "--quiet", "--prune=now")


def test_a_message_survives_although_git_had_its_content_already(
    worktree: Path, written_by_git: Callable[[Path, Path], None]
) -> None:
    make_tree(worktree, {"draft.txt": "first\n"})
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m0")
        (worktree / "draft.txt").write_bytes(EDIT)
        written_by_git(shadow.store, worktree / "draft.txt")
        shadow.snapshot("m1")
        (worktree / "draft.txt").write_text("the agent's\n")
        shadow.snapshot("m2")

    prune(shadow.store)

    with open_shadow(worktree) as shadow:
        assert shadow.check(read_data=True).ok
        shadow.undo()
    assert (worktree / "draft.txt").read_bytes() == EDIT


def test_an_act_replaces_nothing_of_which_only_git_has_a_copy(
    worktree: Path, written_by_git: Callable[[Path, Path], None]
) -> None:
    make_tree(worktree, {"a.txt": "1\n"})
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            (worktree / "a.txt").write_text("2\n")
        (worktree / "a.txt").write_bytes(EDIT)
        written_by_git(shadow.store, worktree / "a.txt")
        shadow.revert("m1", on_conflict="overwrite")

    prune(shadow.store)

    with open_shadow(worktree) as shadow:
        shadow.unrevert()
    assert (worktree / "a.txt").read_bytes() == EDIT


def large_pack(store: Path) -> Path:
    return max((store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_size)


def truncate(pack: Path) -> None:
    os.truncate(pack, 1000)


def overwrite(pack: Path) -> None:
    pack.write_bytes(random.Random(2).randbytes(pack.stat().st_size))


@pytest.mark.usefixtures("large_packs")
@pytest.mark.parametrize("damage", [truncate, overwrite, Path.unlink])
def test_an_open_shadow_stores_again_what_the_disk_lost(
    worktree: Path, damage: Callable[[Path], None]
) -> None:
    content = noise(400_000, 2)
    (worktree / "big").write_bytes(content)
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m0")
        (worktree / "small").write_text("1\n")
        shadow.snapshot("m1")
        damage(large_pack(shadow.store))
        shadow.snapshot("m2")

    (worktree / "big").unlink()
    with open_shadow(worktree) as shadow:
        assert shadow.read_file("m2", "big") == content


@pytest.mark.usefixtures("large_packs")
def test_an_act_does_not_rely_on_a_pack_that_is_open_and_was_removed(worktree: Path) -> None:
    content = noise(400_000, 2)
    (worktree / "big").write_bytes(content)
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m0")
        with shadow.message("m1"):
            (worktree / "big").write_text("the agent's\n")
        shadow.undo()
        large_pack(shadow.store).unlink()
        shadow.redo()

    with open_shadow(worktree) as shadow:
        shadow.unrevert()
    assert (worktree / "big").read_bytes() == content


@pytest.mark.usefixtures("large_packs")
def test_what_turned_out_to_be_lost_is_not_taken_for_stored(worktree: Path) -> None:
    content = noise(400_000, 2)
    (worktree / "big").write_bytes(content)
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m0")
        pack = large_pack(shadow.store)
        status = pack.stat()
        with pack.open("r+b") as file:
            file.seek(200_000)
            file.write(b"damaged")
        os.utime(pack, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(StoreDamaged):
            shadow.read_file("m0", "big")
        (worktree / "small").write_text("1\n")
        shadow.snapshot("m1")

        assert shadow.read_file("m1", "big") == content


def flip_in_index(store: Path, content: bytes) -> int:
    """Flip a bit in the id of an object in each index that has it; return in how many."""
    id, flipped = blob(content), 0
    for index in (store / "objects" / "pack").glob("*.idx"):
        raw = bytearray(index.read_bytes())
        if (at := raw.find(id)) > 0:
            raw[at + 19] ^= 1
            index.write_bytes(raw)
            flipped += 1
    return flipped


def record_more(worktree: Path, count: int, limits: PackLimits) -> None:
    with Shadow(worktree, settings=SETTINGS, limits=Limits(packs=limits)) as shadow:
        for number in range(count):
            (worktree / "n").write_text(f"{number}\n")
            shadow.snapshot(f"n{number}")
        with suppress(StoreDamaged):
            shadow.tidy(60)


@pytest.mark.parametrize(
    "limits",
    [PackLimits(), PackLimits(journaled_bytes=0, idle_bytes=0, idle_part=1_000_000)],
    ids=["merged", "repacked"],
)
def test_a_damaged_index_spoils_no_other_pack(worktree: Path, limits: PackLimits) -> None:
    """Entries that are copied by it would get wrong ids, and the pack that has them right would go."""
    content = noise(2000, 7)
    (worktree / "x").write_bytes(content)
    with Shadow(worktree, settings=SETTINGS, limits=Limits(packs=limits)) as shadow:
        shadow.snapshot("m0")
        (worktree / "x").write_text("gone\n")
        shadow.snapshot("m1")
    assert flip_in_index(shadow.store, content)

    record_more(worktree, 30, limits)

    with open_shadow(worktree) as shadow:
        assert shadow.repair().ok
        assert shadow.read_file("m0", "x") == content


# What is written through the repository


def write_commit(repo: ShadowRepo) -> tuple[Blob, Path]:
    """Write a commit and a ref to it; return the file in it, and the index of the pack with the commit."""
    blob, tree, commit = Blob.from_string(noise(3000, 5)), Tree(), Commit()
    tree.add(b"x", 0o100644, blob.id)
    commit.tree, commit.message = tree.id, b"mine"
    commit.author = commit.committer = b"me <a@b>"
    commit.author_time = commit.commit_time = commit.author_timezone = commit.commit_timezone = 0
    repo.object_store.add_objects([(blob, None), (tree, None)])
    packs = Path(repo.controldir(), "objects", "pack")
    before = set(packs.glob("*.idx"))
    repo.object_store.add_object(commit)
    repo.refs[Ref(b"refs/heads/mine")] = commit.id
    [index] = set(packs.glob("*.idx")) - before
    return blob, index


def later_by_a_month() -> Limits:
    return replace(usual_limits(), clock_ns=lambda: time.time_ns() + 30 * 24 * 3600 * 10**9)


@pytest.mark.parametrize("hides", ["index", "refs"])
@pytest.mark.usefixtures("large_packs")
def test_a_gc_removes_nothing_while_it_cannot_read_what_a_ref_leads_to(
    worktree: Path, hides: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is never absent (invariant 7)."""
    make_tree(worktree, {"a": "a"})
    with Shadow(worktree, settings=SETTINGS, limits=later_by_a_month()) as shadow:
        shadow.snapshot("m0")
        with shadow.repo as repo:
            blob, index = write_commit(repo)
        whole = index.read_bytes()
        with monkeypatch.context() as patch:
            if hides == "index":
                index.write_bytes(b"x" + whole[1:])
            else:
                patch.setattr(os, "scandir", failing_for("refs/heads", os.scandir))
            with pytest.raises(ShadowError):
                shadow.gc()
        index.write_bytes(whole)

        shadow.gc()
        with shadow.repo as repo:
            assert repo[blob.id] == blob


def failing_for(end: str, scandir: Callable[..., Any]) -> Callable[..., Any]:  # Any: of os.scandir
    def fail(path: Any = ".") -> Any:
        if str(path).endswith(end):
            raise OSError(errno.EIO, "Input/output error")
        return scandir(path)

    return fail


def test_a_ref_survives_a_git_gc_beside_a_forget(worktree: Path) -> None:
    """Refs are packed under git's own lock, or else each would write its own view of them."""
    make_tree(worktree, {"a": "a"})
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m0")
        with shadow.repo as repo:
            git("--git-dir", shadow.store, "gc", "--quiet")  # Refs are packed from now on.
            repo.refs[Ref(b"refs/heads/mine")] = repo.refs[Ref(b"refs/heads/sessions/default")]
        (worktree / "a").write_text("b")
        shadow.snapshot("m1")
        command, runs = ["git", "--git-dir", str(shadow.store), "pack-refs", "--all"], count()

        def collect(act: str, path: str) -> None:
            if act == "rename" and path.endswith("packed-refs"):
                next(runs)
                subprocess.run(command, check=False, capture_output=True)

        with armed(collect):
            shadow.forget(keep_last=1)

    assert next(runs)
    assert "refs/heads/mine" in git("--git-dir", shadow.store, "for-each-ref")


@pytest.mark.usefixtures("large_packs")
def test_an_object_that_could_not_be_written_twice_keeps_its_first_copy(worktree: Path) -> None:
    make_tree(worktree, {"a": "a"})
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m0")
        repo = shadow.repo
        blob = Blob.from_string(b"only through the repository")
        repo.object_store.add_object(blob)

        def fail(act: str, path: str) -> None:
            if act == "fsync directory" and path.endswith("pack"):
                raise StoreFailed(path, "Input/output error")

        with armed(fail), pytest.raises(StoreFailed):
            repo.object_store.add_object(blob)
        shadow.gc()

        with repo:
            assert repo[blob.id] == blob


@pytest.mark.usefixtures("large_packs")
def test_an_open_repository_does_not_list_what_was_purged_meanwhile(worktree: Path) -> None:
    secret = noise(3000, 9)
    make_tree(worktree, {"a": "a"})
    (worktree / "secret").write_bytes(secret)
    id = ObjectID(blob(secret).hex().encode())
    with open_shadow(worktree) as shadow:
        shadow.snapshot("m0")
        with shadow.repo as repo:
            assert id in repo.object_store
            assert repo[id].as_raw_string() == secret
            with open_shadow(worktree) as other:
                other.purge("secret")

            assert id not in repo.object_store
            with pytest.raises(KeyError):
                repo[id]
