"""Limits of the kernel, and mounts: snapshots equal cold ones.

Only root can do these things. The limits apply to the whole machine, so to every test that runs there at the
same time. The ordinary run reaches them or simulates them; the sweep, where a test runs alone, lowers them.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from shadowtree.base.limits import Limits
from shadowtree.system.inotify import Inotify
from tests.support.trees import make_tree
from tests.support.watching import BASE, Watched

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this"),
]

LIMITS = Path("/proc/sys/fs/inotify")
OVERFLOW = "too many changes at once for the system to report"


@contextmanager
def lowered(name: str, value: int) -> Iterator[None]:
    """Lower a limit of the kernel for the duration of a block."""
    path = LIMITS / name
    before = path.read_text()
    try:
        path.write_text(f"{value}")
    except OSError:
        pytest.skip("the limits cannot be changed here")
    try:
        yield
    finally:
        path.write_text(before)


def flood(top: Path) -> None:
    """Cause more events than the queue holds; two equal events in a row are reported once."""
    names = [top / "a.txt", top / "src/m.py"]
    for number in range(int((LIMITS / "max_queued_events").read_text()) + 100):
        os.utime(names[number % 2])


@contextmanager
def refused_watches(monkeypatch: pytest.MonkeyPatch, newest: int) -> Iterator[None]:
    """Refuse every new watch; directories that are watched already can be added again."""
    add = Inotify.add

    def add_known(queue: Inotify, fd: int) -> int:
        watch = add(queue, fd)
        if watch > newest:
            queue.remove(watch)
            raise OSError(errno.ENOSPC, "no watch to spare")
        return watch

    with monkeypatch.context() as patch:
        patch.setattr(Inotify, "add", add_known)
        yield


@contextmanager
def refused_queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse every new queue."""

    def refuse(_: Inotify) -> None:
        raise OSError(errno.EMFILE, "no queue to spare")

    with monkeypatch.context() as patch:
        patch.setattr(Inotify, "__init__", refuse)
        yield


@pytest.fixture
def limit_file(tmp_path: Path) -> Path:
    """The file with the number of watches that the system allows; others use some of the real ones."""
    return tmp_path / "limit"


def mount(*arguments: str | Path) -> None:
    """Mount something, or skip the test."""
    done = subprocess.run(["mount", *arguments], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("file systems cannot be mounted here")


def unmount(where: Path) -> None:
    """Unmount what was mounted last at a place."""
    subprocess.run(["umount", where], check=True, capture_output=True)


@contextmanager
def mounted(where: Path, *arguments: str | Path) -> Iterator[None]:
    """Mount something for the duration of a block."""
    mount(*arguments, where)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", where], check=True, capture_output=True)


# Limits


def test_more_happens_at_once_than_the_queue_holds(watched: Watched) -> None:
    flood(watched.top)
    (watched.top / "c/d/e/z").write_text("behind the end of the queue")
    watched.check()
    assert watched.watching().reason == OVERFLOW
    assert watched.watching().is_active
    (watched.top / "c/d/e/z").write_text("the queue is an empty one again")
    watched.check_without_rescan()


def test_a_queue_that_runs_over_again_and_again(watched: Watched) -> None:
    for number in range(4):
        flood(watched.top)
        make_tree(watched.top, {f"a{number}": {"f": "a"}, f"b{number}": {"f": "b"}})
        shutil.rmtree(watched.top / f"a{number}")
        if number % 2:
            watched.shadow.drain()
        watched.check()
        (watched.top / "a.txt").write_text(f"{number}")
        watched.check()


@pytest.mark.slow
def test_watches_of_a_queue_that_is_closed_count_no_longer(tmp_path: Path, worktree: Path) -> None:
    make_tree(worktree, {f"{number}": {"f": "f"} for number in range(300)})
    watched = Watched(worktree, tmp_path)
    with watched.shadow:
        watched.settle()
        with lowered("max_user_watches", 301 * 4 // 3 + 5):
            watched.shadow.gc()
            watched.shadow.track()

    assert watched.watching().unwatched == 0


@pytest.mark.slow
def test_a_short_queue(tmp_path: Path, worktree: Path) -> None:
    """The length of a queue is fixed when it is created."""
    make_tree(worktree, BASE)
    watched = Watched(worktree, tmp_path)
    with watched.shadow:
        with lowered("max_queued_events", 16):
            watched.settle()
        for number in range(100):
            (worktree / f"src/{number}").write_text("new")
        (worktree / "c/d/e/z").write_text("behind the end of the queue")
        watched.check()
        assert watched.watching().reason == OVERFLOW
        assert watched.watching().is_active
        (worktree / "c/d/e/z").write_text("the queue is a long one again")
        watched.check_without_rescan()


@pytest.mark.slow
def test_a_short_queue_that_runs_over_again_and_again(tmp_path: Path, worktree: Path) -> None:
    make_tree(worktree, BASE)
    watched = Watched(worktree, tmp_path)
    with watched.shadow, lowered("max_queued_events", 4):
        watched.settle()
        for number in range(5):
            for name in ("a", "b", "c", "d"):
                make_tree(worktree, {f"{name}{number}": {"f": name}})
            shutil.rmtree(worktree / f"a{number}")
            if number % 2:
                watched.shadow.drain()
            watched.check()
            (worktree / "a.txt").write_text(f"{number}")
            watched.check()


def test_no_more_watches_than_the_system_allows(tmp_path: Path, worktree: Path, limit_file: Path) -> None:
    """A quarter is left to others; later directories are scanned each time."""
    make_tree(worktree, {f"d{number}": {"f": "f", "e": {"g": "g"}} for number in range(20)})
    watched = Watched(worktree, tmp_path, limits=Limits(watch_limit_file=str(limit_file)))
    with watched.shadow:
        limit_file.write_text("20\n")
        watched.settle()
        assert watched.watching().directories == 15
        assert watched.watching().unwatched == 26
        for number in range(0, 20, 3):
            (worktree / f"d{number}/e/g").write_text(f"{number}")
            watched.check_without_rescan()
            (worktree / f"d{number}/e").rename(worktree / f"d{19 - number}/moved")
            watched.check_without_rescan()
            (worktree / f"d{19 - number}/moved/g").write_text("after the move")
            watched.check_without_rescan()
        for number in range(10):
            shutil.rmtree(worktree / f"d{number}")
        watched.check_without_rescan()
        (worktree / "d10").rename(worktree / "t")
        (worktree / "d19").rename(worktree / "d10")
        (worktree / "t").rename(worktree / "d19")
        watched.check_without_rescan()


def test_directories_change_places_beyond_the_limit(tmp_path: Path, worktree: Path, limit_file: Path) -> None:
    """Watches that become free are used for directories without one."""
    make_tree(worktree, {"a": {f"{number}": {} for number in range(8)}})
    make_tree(worktree, {"b": {"x": {"in": {"f": "x"}}, "y": {"in": {"f": "y"}}}})
    watched = Watched(worktree, tmp_path, limits=Limits(watch_limit_file=str(limit_file)))
    with watched.shadow:
        limit_file.write_text("14\n")
        watched.settle()
        assert watched.watching().directories == 10
        for number in range(4):
            shutil.rmtree(worktree / f"a/{number}")
            watched.settle()
            assert watched.watching().directories == 10
            (worktree / "b/x").rename(worktree / "b/z")
            (worktree / "b/y").rename(worktree / "b/x")
            (worktree / "b/z").rename(worktree / "b/y")
            watched.check_without_rescan()


@pytest.mark.parametrize("limit", ["pretended", pytest.param("real", marks=pytest.mark.slow)])
def test_the_system_refuses_another_watch(
    tmp_path: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Other programs of the same user may use all of them."""
    make_tree(worktree, BASE)
    watched = Watched(worktree, tmp_path)
    with watched.shadow:
        watched.settle()
        newest = watched.watching().directories
        with lowered("max_user_watches", 1) if limit == "real" else refused_watches(monkeypatch, newest):
            make_tree(worktree, {"new": {"er": {"f": "f"}}})
            watched.check_without_rescan()
            assert watched.watching().unwatched == 4
            (worktree / "new/er/f").write_text("2")
            watched.check_without_rescan()
            (worktree / "c").rename(worktree / "new/c")
            watched.check_without_rescan()
        (worktree / "new/c/d/e/z").write_text("2")
        watched.check_without_rescan()
        assert watched.watching().unwatched == 2


@pytest.mark.parametrize("limit", ["pretended", pytest.param("real", marks=pytest.mark.slow)])
def test_no_queue_is_to_be_had(
    tmp_path: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    make_tree(worktree, BASE)
    watched = Watched(worktree, tmp_path)
    with watched.shadow:
        with lowered("max_user_instances", 0) if limit == "real" else refused_queues(monkeypatch):
            watched.check()
            assert not watched.watching().is_active
            assert watched.watching().directories == 0
            assert "the system does not allow watching" in (watched.watching().reason or "")
            (worktree / "a.txt").write_text("two\n")
            watched.check()
            assert watched.shadow.drain()
        (worktree / "a.txt").write_text("three\n")
        watched.check()
        assert watched.watching().is_active


# Mounts


def test_something_is_mounted_inside_and_unmounted(watched: Watched) -> None:
    place = watched.top / "src/deep"
    with mounted(place, "-t", "tmpfs", "tmpfs"):
        watched.check()
        make_tree(place, {"on": {"it": "1"}})
        watched.check()
        (place / "on/it").write_text("2")
        watched.check_without_rescan()
    watched.check()
    (place / "er/f").write_text("below it was something else")
    watched.check_without_rescan()
    with mounted(place, "-t", "tmpfs", "tmpfs"):
        make_tree(place, {"never": {"seen": "1"}})
    watched.check()


def test_one_file_system_is_mounted_for_another(watched: Watched) -> None:
    place = watched.top / "src/deep"
    mount("-t", "tmpfs", "tmpfs", place)
    make_tree(place, {"on": {"it": "1"}})
    watched.settle()
    unmount(place)
    mount("-t", "tmpfs", "tmpfs", place)
    make_tree(place, {"on": {"it": "2"}})

    watched.check()
    unmount(place)
    watched.check()


def test_one_directory_is_bound_for_another(tmp_path: Path, watched: Watched) -> None:
    """Place, type and device are the same."""
    place = watched.top / "src/deep"
    make_tree(tmp_path, {"x": {"f": "x", "in": {"g": "x"}}, "y": {"f": "y", "in": {"g": "y"}}})
    with ExitStack() as stack:
        stack.enter_context(mounted(place, "--bind", tmp_path / "x"))
        watched.check()
        watched.settle()
        (tmp_path / "x/in/g").write_text("by its own name")
        watched.check_without_rescan()
        unmount(place)
        mount("--bind", tmp_path / "y", place)
        watched.check()
        (tmp_path / "y/in/g").write_text("by its own name")
        watched.check_without_rescan()
    watched.check()


def test_watchfiles_does_not_start_again_while_something_is_mounted_inside(tmp_path: Path) -> None:
    """It reports a directory with two names by only one of them."""
    watched = Watched(make_tree(tmp_path / "top", BASE), tmp_path, watcher="watchfiles")
    with watched.shadow:
        watched.settle()
        assert watched.watching().is_active
        with mounted(watched.top / "empty", "--bind", watched.top / "c"):
            for number in range(3):
                for name in ("c", "empty"):
                    (watched.top / name / "x").write_text(f"{name} {number}")
                    watched.check()
            assert not watched.watching().is_active
            assert (
                watched.watching().reason == "something is mounted inside, which watchfiles does not follow"
            )
        watched.check()


@pytest.mark.usefixtures("aged")
def test_a_directory_has_two_names_inside(watched: Watched) -> None:
    """The kernel reports both by one name, so neither is trusted."""
    with mounted(watched.top / "empty", "--bind", watched.top / "c"):
        watched.settle()
        assert watched.watching().is_active
        (watched.top / "c/d/e/z").write_text("by one")
        watched.check_without_rescan()
        (watched.top / "empty/d/e/z").write_text("by the other")
        watched.check_without_rescan()
        make_tree(watched.top / "empty/d", {"new": {"f": "f"}})
        watched.check_without_rescan()
        (watched.top / "c/d/new").rename(watched.top / "src/new")
        watched.check_without_rescan()
        (watched.top / "src/new/f").write_text("2")
        watched.check_without_rescan()
        shutil.rmtree(watched.top / "c/d")
        watched.check_without_rescan()
    watched.check()


@pytest.mark.usefixtures("aged")
def test_a_single_file_is_mounted(tmp_path: Path, watched: Watched) -> None:
    """Its changes are reported only where the file really is."""
    outside = tmp_path / "outside"
    outside.write_text("1")
    with mounted(watched.top / "src/m.py", "--bind", outside):
        watched.check()
        watched.settle()
        for text in ("2", "3"):
            outside.write_text(text)
            watched.check_without_rescan()
            (watched.top / "src/m.py").write_text(text * 2)
            watched.check_without_rescan()
        (watched.top / "src").rename(watched.top / "moved")
        watched.check_without_rescan()
        outside.write_text("4")
        watched.check_without_rescan()
        (watched.top / "moved").rename(watched.top / "src")
    watched.check()


@pytest.mark.usefixtures("aged")
def test_the_root_is_mounted_over(tmp_path: Path, watched: Watched) -> None:
    make_tree(tmp_path / "other", BASE)
    mount("--bind", watched.top, watched.top)
    try:
        watched.check()
        (watched.top / "c/x").write_text("2")
        watched.check_without_rescan()
    finally:
        unmount(watched.top)
    watched.check()
    (watched.top / "c/x").write_text("3")
    watched.check_without_rescan()
    with mounted(watched.top, "--bind", tmp_path / "other"):
        (watched.top / "c/x").write_text("to another one")
    watched.check()


def test_a_type_that_is_not_known_to_tell_all_is_not_trusted(watched: Watched) -> None:
    place = watched.top / "src/deep"
    with mounted(place, "-t", "mqueue", "mqueue"):
        watched.check()
        assert not watched.watching().is_active
        assert (watched.watching().reason or "").endswith("mqueue")
        (watched.top / "a.txt").write_text("2")
        watched.check()
    watched.check()
    assert watched.watching().is_active


@pytest.mark.parametrize("name", ["with blank", "back\\slash", "new\nline", "return\r", "tab\t", "é"])
def test_odd_names_of_mounts(name: str, watched: Watched) -> None:
    place = watched.top / name
    place.mkdir()
    watched.check()
    with mounted(place, "-t", "tmpfs", "tmpfs"):
        (place / "f").write_text("1")
        watched.check()
        assert watched.watching().is_active
        (place / "f").write_text("2")
        watched.check_without_rescan()
    watched.check()


@pytest.mark.usefixtures("aged")
def test_a_worktree_on_an_overlay(tmp_path: Path) -> None:
    for name in ("upper", "work", "merged"):
        (tmp_path / "layers" / name).mkdir(parents=True)
    top, layers = tmp_path / "layers/merged", tmp_path / "layers"
    make_tree(layers / "lower", BASE)
    options = f"lowerdir={layers}/lower,upperdir={layers}/upper,workdir={layers}/work"
    with mounted(top, "-t", "overlay", "-o", options, "overlay"):
        watched = Watched(top, tmp_path)
        with watched.shadow:
            watched.settle()
            assert watched.watching().is_active
            (top / "c/d/e/z").write_text("copied up")
            watched.check_without_rescan()
            (top / "c/d/e/z").write_text("copied up already")
            watched.check_without_rescan()
            (top / "src/m.py").chmod(0o755)
            watched.check_without_rescan()
            (top / "src/n.py").unlink()
            watched.check_without_rescan()
            shutil.rmtree(top / "src/deep")
            watched.check_without_rescan()
            make_tree(top / "src/deep", {"er": {"f": "other"}})
            watched.check_without_rescan()
            shutil.move(top / "c", top / "src/c")
            watched.check_without_rescan()
            (top / "src/c/x").write_text("2")
            watched.check_without_rescan()


def test_a_worktree_on_a_tmpfs(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    with mounted(top, "-t", "tmpfs", "tmpfs"):
        watched = Watched(make_tree(top / "worktree", BASE), tmp_path)
        with watched.shadow:
            watched.settle()
            for number in range(3):
                (watched.top / "c/x").write_text(f"{number}")
                make_tree(watched.top, {f"new {number}": {"f": "f"}})
                watched.check_without_rescan()
            watched.shadow.close()


def test_a_directory_that_takes_several_names_for_one_is_looked_at_each_time(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If `a` is deleted as `A`, the kernel reports `A`. Few kernels support such directories."""
    monkeypatch.setattr("shadowtree.watching.inotify_watcher.folds_names", lambda fd: True)
    watched.shadow.close()
    watched.settle()

    assert watched.watching().directories == 0
    assert watched.watching().unwatched > 0
    (watched.top / "c/x").unlink()
    watched.check()


def test_a_table_of_mounts_that_cannot_be_read(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(root: str) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("shadowtree.watching.inotify_watcher.Mounts", refuse)
    watched.shadow.close()
    watched.check()

    assert not watched.watching().is_active
    (watched.top / "c/x").unlink()
    watched.check()
