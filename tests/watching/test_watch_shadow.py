"""A shadow that watches while others act, record and change its store: each snapshot equals a cold one."""

from __future__ import annotations

import errno
import mmap
import os
import select
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from shadowtree import Conflict, Shadow, ShadowError
from shadowtree.system import disk
from shadowtree.system.inotify import Inotify
from shadowtree.system.syscalls import exchange
from shadowtree.watching.watch import Watch
from tests.support.processes import COMMAND, Child, in_child, surroundings
from tests.support.referee import assert_sound_store, git, init
from tests.support.trees import Tree, make_tree
from tests.support.watching import (
    BASE,
    SETTINGS,
    Watched,
    open_descriptors,
    take_cold,
    view,
    watched_directories,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


# Acts


def test_an_act_sees_that_a_directory_is_gone(watched: Watched) -> None:
    """The cached state was not the present one: the act was planned as if it were, and failed."""
    with watched.shadow.message("m1"):
        (watched.top / "src" / "deep" / "er" / "f").write_text("changed")
    shutil.rmtree(watched.top / "src" / "deep")

    with pytest.raises(Conflict) as caught:
        watched.shadow.undo()
    outcome = watched.shadow.undo(on_conflict="overwrite")

    assert [conflict.path for conflict in caught.value.conflicts] == ["src/deep/er/f"]
    assert outcome.restored == ["src/deep/er/f"]
    assert (watched.top / "src" / "deep" / "er" / "f").read_text() == "f"


# Large and deep trees, and long times


def test_many_files_at_once(watched: Watched) -> None:
    """12,000 files in a hundred directories, with more events than the queue holds, or fewer."""
    for number in range(100):
        directory = watched.top / f"many/{number}"
        directory.mkdir(parents=True)
        for name in range(120):
            (directory / f"{name}").touch()

    watched.check()
    (watched.top / "many/50/60").write_text("one of them")
    watched.check_without_rescan()
    shutil.rmtree(watched.top / "many")
    watched.check()


def test_a_directory_of_three_thousand_files(watched: Watched) -> None:
    directory = watched.top / "long"
    directory.mkdir()
    for number in range(3_000):
        (directory / f"{number}").touch()
    watched.check()

    (directory / "1500").write_text("changed")
    watched.check_without_rescan()
    (directory / "1500").unlink()
    watched.check_without_rescan()
    (directory / "new").touch()
    watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
def test_a_path_longer_than_the_system_takes(watched: Watched) -> None:
    fds = [os.open(watched.top, os.O_RDONLY)]
    try:
        for _ in range(30):
            os.mkdir("d" * 200, dir_fd=fds[-1])
            fds.append(os.open("d" * 200, os.O_RDONLY, dir_fd=fds[-1]))
        watched.check()
        for text in (b"1", b"2", b"3"):
            fd = os.open("f", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=fds[-1])
            os.write(fd, text)
            os.close(fd)
            watched.check_without_rescan()
        os.mkdir("e", dir_fd=fds[-1])
        watched.check_without_rescan()
        os.rename("d" * 200, "moved", src_dir_fd=fds[20], dst_dir_fd=fds[10])
        watched.check_without_rescan()
        os.unlink("f", dir_fd=fds[-1])
        watched.check_without_rescan()
    finally:
        for fd in fds:
            os.close(fd)


def test_a_file_grows_beyond_what_is_covered_and_shrinks_again(tmp_path: Path, worktree: Path) -> None:
    """A file that was covered once stays covered, so only a cold snapshot with the same store shows it."""
    make_tree(worktree, {"grows": "1", "big": "1" * 2000, "d": {"also big": "1" * 2000}})
    watched = Watched(worktree, tmp_path, max_file_size=1000)

    with watched.shadow:
        assert len(watched.check().skipped) == 2
        for size in (2000, 10, 3000):
            (worktree / "grows").write_text("2" * size)
            assert len(watched.check(has_history=True).skipped) == 2
        for size, skipped in ((1500, 2), (10, 1), (3000, 1)):
            (worktree / "big").write_text("2" * size)
            assert len(watched.check(has_history=True).skipped) == skipped
        (worktree / "d/also big").rename(worktree / "d/moved")
        assert len(watched.check(has_history=True).skipped) == 1


# Permissions


@needs_root
def test_what_a_user_may_not_read_is_skipped_and_comes_back() -> None:
    """As a user who is not root, so that permission bits apply."""
    with tempfile.TemporaryDirectory() as place:
        # That user may not be able to import the modules.
        Watched(make_tree(Path(place, "worktree"), BASE), Path(place)).check()
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, 65534, 65534)

        def live() -> list[int]:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.environ["HOME"] = place
            top = make_tree(Path(place, "worktree"), BASE)
            watched = Watched(top, Path(place))
            counts = []
            with watched.shadow:
                watched.settle()
                for name in ("a.txt", "src/m.py", "src/deep", "c", "c/d/e", "build"):
                    mode = (top / name).stat().st_mode
                    for bits in (0, mode, 0o200, mode, 0o400, mode):
                        (top / name).chmod(bits)
                        counts.append(len(watched.check_without_rescan().skipped))
            return counts

        assert set(in_child(live).value()) == {0, 1, 2}


# Mappings


@pytest.mark.usefixtures("aged")
def test_a_mapping_is_seen_when_it_is_closed_or_looked_over(watched: Watched) -> None:
    """Nothing reports a write through a mapping: a snapshot meanwhile may be behind (decision 0015)."""
    with (watched.top / "a.txt").open("r+b") as file, mmap.mmap(file.fileno(), 4) as memory:
        memory[:] = b"two\n"
        memory.flush()
        while not watched.shadow.look_over(10):
            pass
        assert watched.watching().missed == 1
        watched.check_without_rescan()
        memory[:] = b"six\n"
    watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
def test_a_file_that_is_being_written_is_looked_at_for_what_a_mapping_writes(watched: Watched) -> None:
    with (watched.top / "a.txt").open("r+b", buffering=0) as file, mmap.mmap(file.fileno(), 4) as memory:
        file.write(b"new\n")
        watched.check_without_rescan()
        memory[:] = b"two\n"
        memory.flush()
        watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("text", [".gitignore\nm.py\n", "*\n", "m.py\n"])
@pytest.mark.parametrize("is_known", [False, True], ids=["new", "cached"])
def test_rules_that_had_a_name_outside_before_anybody_watched(
    text: str, is_known: bool, watched: Watched, tmp_path: Path
) -> None:
    """Rules count even if their own file is not covered."""
    outside = tmp_path / "outside"
    outside.write_text(text)
    (watched.top / "src/.gitignore").hardlink_to(outside)
    if is_known:
        watched.settle()
    watched.shadow.close()
    watched.settle()

    for more in ("n.py\n" + text, "n.py\n", text):
        outside.write_text(more)
        watched.check_without_rescan()


# Other processes


def command(watched: Watched, *arguments: str) -> None:
    """Run a command on the same store, in another process."""
    done = subprocess.run(
        [*COMMAND, "-C", watched.top, "--store", watched.shadow.store, *arguments, "--set", "min_free=0"],
        env=surroundings(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_two_shadows_watch_the_same_worktree(watched: Watched) -> None:
    with (
        Shadow(watched.top, store=watched.shadow.store, watch=True, settings=SETTINGS) as same,
        Shadow(watched.top, store=watched.top.parent / "other", watch=True, settings=SETTINGS) as other,
    ):
        for number in range(5):
            (watched.top / "a.txt").write_text(f"{number}")
            make_tree(watched.top, {f"dir {number}": {"f": "f"}})
            if number % 2:
                (watched.top / f"dir {number}").rename(watched.top / f"src/{number}")
            expected = view(watched.check())
            assert view(same.take_snapshot()) == expected
            (watched.top / "src/m.py").write_text(f"{number}")
            last = view(other.take_snapshot())
            assert view(same.take_snapshot()) == last
            assert view(watched.check_without_rescan()) == last


@pytest.mark.usefixtures("aged")
def test_commands_of_others_on_the_same_store(watched: Watched) -> None:
    """They write the same stat cache and the same timeline."""
    (watched.top / "a.txt").write_text("two\n")
    command(watched, "begin", "m1")
    make_tree(watched.top, {"a.txt": "three\n", "new": {"er": {"f": "f"}}, "src": {"m.py": "3"}})
    command(watched, "end", "m1")
    watched.check_without_rescan()
    (watched.top / "c").rename(watched.top / "d")
    command(watched, "track")
    (watched.top / "d").rename(watched.top / "c")
    watched.check_without_rescan()
    command(watched, "undo")
    watched.check_without_rescan()
    command(watched, "redo")
    command(watched, "undo")
    watched.check_without_rescan()
    command(watched, "restore", "m1", "--yes")
    watched.check_without_rescan()


def act_and_check(watched: Watched, acting: Shadow) -> None:
    """Do every act, and compare snapshots after each."""
    changes: list[Tree] = [
        {"a.txt": "1", "new": {"f": "1", "deep": {"g": "1"}}},
        {"a.txt": "2", "src": {"m.py": "2"}},
        {"a.txt": "3", "empty": {"not": "3"}},
    ]
    for number, change in enumerate(changes):
        with acting.message(f"m{number}"):
            make_tree(watched.top, change)
            if number == 2:
                shutil.rmtree(watched.top / "new/deep")
                (watched.top / "c").rename(watched.top / "src/c")
        watched.check_without_rescan()
    acts: list[Callable[[], object]] = [
        acting.undo,
        acting.undo,
        acting.redo,
        acting.unrevert,
        lambda: acting.revert("m0", on_conflict="overwrite"),
        acting.unrevert,
        lambda: acting.revert("m1", only=True, on_conflict="merge"),
        lambda: acting.switch("m2", on_conflict="overwrite"),
        lambda: acting.restore("m0^", confirm=lambda outcome: True),
        acting.unrevert,
    ]
    for act in acts:
        act()
        watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
def test_acts_through_the_watching_shadow(watched: Watched) -> None:
    act_and_check(watched, watched.shadow)


@pytest.mark.usefixtures("aged")
def test_acts_by_another_one(watched: Watched) -> None:
    with Shadow(watched.top, store=watched.shadow.store, settings=SETTINGS) as other:
        act_and_check(watched, other)


@pytest.mark.usefixtures("aged")
def test_acts_in_another_session_of_the_same_shadow(watched: Watched) -> None:
    act_and_check(watched, watched.shadow.for_session("other"))


# Calls that must not lose reports


@pytest.mark.usefixtures("aged")
def test_a_look_takes_nothing_away(watched: Watched) -> None:
    tree = watched.shadow.track()
    make_tree(watched.top, {"a.txt": "two\n", "new": {"er": {"f": "f"}}})
    (watched.top / "c").rename(watched.top / "d")
    (watched.top / "src/m.py").unlink()

    for _ in range(2):
        assert watched.shadow.status().changed == 9
        assert len(watched.shadow.diff()) == 9
        assert len(watched.shadow.patch(tree).files) == 9
    watched.check_without_rescan()
    assert watched.shadow.status().changed == 0


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], object]] = {}


def fault(act: Callable[[pytest.MonkeyPatch], object]) -> Callable[[pytest.MonkeyPatch], object]:
    """Add a way in which a snapshot fails."""
    FAULTS[act.__name__] = act
    return act


@fault
def full_disk(patch: pytest.MonkeyPatch) -> None:
    def fail(act: str, path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    patch.setattr(disk, "before_write", fail)


@fault
def interrupted(patch: pytest.MonkeyPatch) -> None:
    def fail(act: str, path: str) -> None:
        raise KeyboardInterrupt

    patch.setattr(disk, "before_write", fail)


@fault
def after_it_was_recorded(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    patch.setattr(Watch, "commit", fail)


@fault
def no_file_can_be_read(patch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    patch.setattr("shadowtree.system.files._open", fail)


@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("way", FAULTS)
def test_a_snapshot_that_fails_takes_nothing_away(way: str, watched: Watched) -> None:
    make_tree(watched.top, {"a.txt": "two\n", "new": {"er": {"f": "f"}}, ".gitignore": "*.py\n"})
    (watched.top / "c").rename(watched.top / "d")
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            FAULTS[way](patch)
            with pytest.raises((ShadowError, OSError, KeyboardInterrupt)):
                watched.shadow.take_snapshot()
        (watched.top / "a.txt").write_text("three\n")

    watched.check_without_rescan()
    (watched.top / "d/x").write_text("later")
    watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
def test_an_act_in_conflict_takes_nothing_away(watched: Watched) -> None:
    with watched.shadow.message("m1"):
        (watched.top / "a.txt").write_text("two\n")
    make_tree(watched.top, {"a.txt": "mine\n", "new": {"f": "f"}})

    with pytest.raises(Conflict):
        watched.shadow.undo()

    watched.check_without_rescan()


@pytest.mark.parametrize("number", range(1, 12))
def test_a_first_snapshot_that_fails_is_made_good(number: int, tmp_path: Path, worktree: Path) -> None:
    make_tree(worktree, BASE)
    watched = Watched(worktree, tmp_path)
    calls = []

    def fail(act: str, path: str) -> None:
        calls.append(act)
        if len(calls) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with watched.shadow:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk, "before_write", fail)
            with pytest.raises((ShadowError, OSError)):
                watched.shadow.take_snapshot()
        (worktree / "a.txt").write_text("two\n")
        watched.check()
        (worktree / "a.txt").write_text("six\n")
        watched.check_without_rescan()


# The shadow itself


def test_nothing_is_left_after_close_and_it_can_be_used_again(tmp_path: Path, worktree: Path) -> None:
    make_tree(worktree, BASE)
    before, threads = open_descriptors(), threading.enumerate()
    watched = Watched(worktree, tmp_path)

    for number in range(3):
        (worktree / "a.txt").write_text(f"{number}")
        watched.check()
        assert watched.watching().is_active
        assert watched.shadow.fileno() is not None
        watched.shadow.close()
        assert watched.shadow.fileno() is None
        assert not watched.watching().is_active
        assert watched_directories(watched.shadow) == []
        assert open_descriptors() == before
        assert threading.enumerate() == threads
    assert_sound_store(watched.shadow.store)


def test_the_descriptor_is_one_for_life(watched: Watched) -> None:
    """A host registers it once; rescans, repairs and replaced directories do not change it."""
    top, fd = watched.top, watched.shadow.fileno()
    assert fd is not None
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)

        def is_woken_by(path: Path) -> bool:
            watched.shadow.drain()
            assert not selector.select(0)
            path.write_text("new")
            return bool(selector.select(0)) and watched.shadow.drain() and not selector.select(0)

        assert is_woken_by(top / "a.txt")
        top.rename(top.with_name("away"))
        top.with_name("away").rename(top)
        rescans = watched.rescans()
        watched.shadow.take_snapshot()
        assert watched.rescans() > rescans
        assert is_woken_by(top / "src/m.py")
        watched.shadow.repair()
        watched.settle()
        assert is_woken_by(top / "c/x")
        assert watched.shadow.fileno() == fd


@pytest.mark.usefixtures("aged")
def test_a_forked_child_leaves_its_parents_descriptor_alone(watched: Watched) -> None:
    fd = watched.shadow.fileno()
    assert fd is not None

    def use_it() -> bool:
        watched.shadow.take_snapshot()
        own = watched.shadow.fileno()
        assert own is not None
        (watched.top / "a.txt").write_text("the child's")
        return bool(select.select([own], [], [], 0)[0])

    assert in_child(use_it).value()
    assert select.select([fd], [], [], 0)[0]
    watched.shadow.drain()
    (watched.top / "src/m.py").write_text("after it")
    assert select.select([fd], [], [], 0)[0]
    watched.check_without_rescan()


def test_watchfiles_has_no_descriptor(worktree: Path) -> None:
    with Shadow(worktree, watch=True, settings={**SETTINGS, "watcher": "watchfiles"}) as shadow:
        shadow.track()

        assert shadow.fileno() is None


def test_a_watching_shadow_has_one_queue(watched: Watched) -> None:
    assert [what for what in open_descriptors().values() if "inotify" in what] == ["anon_inode:inotify"]


def test_ignored_and_heavy_directories_are_not_watched(watched: Watched) -> None:
    names = {Path(path).relative_to(watched.top).as_posix() for path in watched_directories(watched.shadow)}

    assert names == {".", "src", "src/deep", "src/deep/er", "c", "c/d", "c/d/e", "empty"}
    assert watched.watching().directories == len(names)
    assert watched.watching().unwatched == 2


@pytest.mark.usefixtures("aged")
def test_a_forked_child_uses_the_shadow_while_its_parent_goes_on(watched: Watched) -> None:
    """Parent and child share one queue: an event that one reads must not be lost to the other."""

    def go_on() -> tuple[bool, bool, object, object]:
        has_news = watched.shadow.drain()
        (watched.top / "a.txt").write_text("the child's\n")
        first = view(watched.shadow.take_snapshot())
        cold = view(take_cold(watched.top, watched.top.parent / "the child's"))
        shutil.rmtree(watched.top / "c")
        watched.shadow.take_snapshot()
        return has_news, watched.watching().is_active, first, cold

    (watched.top / "src/m.py").write_text("before the fork")
    has_news, is_active, warm, cold = in_child(go_on).value()

    assert has_news
    assert is_active
    assert warm == cold
    watched.check_without_rescan()
    (watched.top / "src/m.py").write_text("after it")
    watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
def test_a_forked_child_can_close_while_the_parent_reads(watched: Watched) -> None:
    """A lock that another thread held during the fork stays held in the child forever."""
    is_inside, may_go = threading.Event(), threading.Event()
    real = Inotify.read

    def slow(self: Inotify) -> object:
        is_inside.set()
        may_go.wait(60)
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Inotify, "read", slow)
        thread = threading.Thread(target=watched.shadow.drain)
        thread.start()
        is_inside.wait(60)
        child = Child(lambda: watched.shadow.close())
        ended = child.wait()
        may_go.set()
        thread.join()

    ended.value()
    watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
def test_threads_use_one_shadow(watched: Watched) -> None:
    """Some take snapshots, some read, some drain, some ask for the status, and one closes it now and then."""
    is_over = threading.Event()
    errors: list[BaseException] = []

    def go_on(act: Callable[[], object]) -> threading.Thread:
        def repeat() -> None:
            try:
                # Without a pause the readers would leave no time to the others.
                while not is_over.wait(0.001):
                    act()
            except BaseException as error:  # noqa: BLE001 - the test tells
                errors.append(error)

        thread = threading.Thread(target=repeat)
        thread.start()
        return thread

    shadow = watched.shadow
    acts = [shadow.track, shadow.status, shadow.drain, lambda: shadow.watching]
    acts += [lambda: shadow.look_over(0.01), partial(watched_directories, shadow)]
    threads = [go_on(act) for act in acts]
    try:
        for number in range(21):
            make_tree(watched.top, {f"n{number % 7}": {"f": f"{number}"}, "a.txt": f"{number}"})
            if number % 7 == 6:
                shutil.rmtree(watched.top / "n3")
            if number % 10 == 9:
                shadow.close()
            shadow.track()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()

    assert errors == []
    watched.check()


# The store and the cache


def _delete(path: Path) -> None:
    path.unlink()


def _replace(path: Path) -> None:
    path.with_name("other").write_bytes(b"no database at all" * 1000)
    path.with_name("other").replace(path)


def _damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\0" * path.stat().st_size)


def _be_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()


@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("harm", [_delete, _replace, _damage, _be_directory])
@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_the_cache_is_harmed_under_it(
    harm: Callable[[Path], None], is_closed: bool, watched: Watched
) -> None:
    cache = watched.shadow.store / "cache.db"
    assert cache.is_file()
    (watched.top / "a.txt").write_text("two\n")
    if is_closed:
        watched.shadow.close()

    harm(cache)

    watched.check()
    for number in range(3):
        (watched.top / "c/x").write_text(f"{number}")
        (watched.top / "c").rename(watched.top / "t")
        watched.check()
        (watched.top / "t").rename(watched.top / "c")
        watched.check()
    if cache.is_dir():
        shutil.rmtree(cache)


@pytest.mark.usefixtures("aged")
def test_the_store_is_deleted_and_made_anew(watched: Watched) -> None:
    for _ in range(2):
        (watched.top / "a.txt").write_text("two\n")
        shutil.rmtree(watched.shadow.store)
        watched.check()
        (watched.top / "c/x").write_text("1")
        watched.check_without_rescan()
    shutil.rmtree(watched.shadow.store)
    take_cold(watched.top, watched.shadow.store)
    (watched.top / "c/x").write_text("2")
    watched.check()
    (watched.top / "c/x").write_text("3")
    watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
def test_an_older_store_is_put_back(watched: Watched) -> None:
    """The older store may lack what the census knows to be stored."""
    saved = watched.top.parent / "saved"
    shutil.copytree(watched.shadow.store, saved)
    make_tree(watched.top, {"a.txt": "two\n", "new": {"f": "f"}})
    watched.check()

    shutil.rmtree(watched.shadow.store)
    saved.rename(watched.shadow.store)

    watched.check()


# The worktree itself


@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("is_edited", [False, True], ids=["untouched", "edited while away"])
@pytest.mark.parametrize("is_looked_at", [False, True], ids=["unseen", "seen"])
def test_the_root_is_renamed_and_back(is_edited: bool, is_looked_at: bool, watched: Watched) -> None:
    away = watched.top.with_name("away")
    watched.top.rename(away)
    if is_looked_at:
        with pytest.raises(ShadowError):
            watched.shadow.take_snapshot()
    if is_edited:
        make_tree(away, {"a.txt": "two\n", "new": {"f": "f"}})
        (away / "c").rename(away / "src/c")

    away.rename(watched.top)

    watched.check()
    (watched.top / "a.txt").write_text("three\n")
    watched.check_without_rescan()


@pytest.mark.usefixtures("aged")
def test_the_directory_around_is_renamed_and_back(tmp_path: Path) -> None:
    top = make_tree(tmp_path / "around/worktree", BASE)
    watched = Watched(top, tmp_path)
    with watched.shadow:
        watched.settle()
        (tmp_path / "around").rename(tmp_path / "away")
        make_tree(tmp_path / "away/worktree", {"a.txt": "two\n", "new": {"f": "f"}})
        (tmp_path / "away").rename(tmp_path / "around")
        watched.check()
        (tmp_path / "around").rename(tmp_path / "away")
        (tmp_path / "around").symlink_to("away")
        (top / "a.txt").write_text("three\n")
        assert view(watched.shadow.take_snapshot()) == view(take_cold(top, tmp_path / "cold"))


@pytest.mark.usefixtures("aged")
def test_another_directory_is_in_the_place_of_the_root_for_a_while(watched: Watched) -> None:
    away = watched.top.with_name("away")
    watched.top.rename(away)
    make_tree(watched.top, {"a.txt": "another project"})
    with pytest.raises(ShadowError):
        watched.shadow.take_snapshot()
    (away / "a.txt").write_text("two\n")
    shutil.rmtree(watched.top)
    away.rename(watched.top)
    watched.check()

    make_tree(away, {"a.txt": "another project"})
    fd = os.open(watched.top.parent, os.O_RDONLY)
    exchange(fd, b"away", fd, watched.top.name.encode())
    make_tree(away, {"c": {"x": "changed while away"}})
    exchange(fd, b"away", fd, watched.top.name.encode())
    os.close(fd)
    watched.check()


def test_a_worktree_reached_by_a_link(tmp_path: Path, worktree: Path) -> None:
    make_tree(worktree, BASE)
    (tmp_path / "link").symlink_to(worktree)
    watched = Watched(tmp_path / "link", tmp_path)
    with watched.shadow:
        watched.check()
        (worktree / "a.txt").write_text("two\n")
        watched.check_without_rescan()
        (tmp_path / "link/c").rename(tmp_path / "link/src/c")
        watched.check_without_rescan()
        (tmp_path / "link").unlink()
        (worktree / "a.txt").write_text("three\n")
        watched.top = worktree
        watched.check_without_rescan()


def test_a_store_in_the_worktree_is_neither_covered_nor_watched(worktree: Path) -> None:
    make_tree(worktree, BASE)
    store = worktree / "src/store"
    with Shadow(worktree, store=store, watch=True, settings=SETTINGS, allow_broad=True) as shadow:
        first = shadow.take_snapshot()
        for _ in range(3):
            assert view(shadow.take_snapshot()) == view(first)
        assert not [path for path in watched_directories(shadow) if path.startswith(str(store))]
        (worktree / "src/m.py").write_text("2")
        warm = shadow.take_snapshot()

        assert view(warm) == view(in_child(lambda: take_cold(worktree, store)).value())


def test_a_repository_of_worktrees_is_watched(tmp_path: Path) -> None:
    """The index of a linked worktree is written far away from it."""
    main = make_tree(tmp_path / "main", {"a": "1"})
    init(main)
    git("add", ".", cwd=main)
    git("commit", "--quiet", "-m", "one", cwd=main)
    git("worktree", "add", "--quiet", tmp_path / "linked", cwd=main)
    make_tree(tmp_path / "linked", {".gitignore": "*.log\n", "x.log": "x"})
    watched = Watched(tmp_path / "linked", tmp_path)
    with watched.shadow:
        watched.settle()
        git("add", "--force", "x.log", cwd=tmp_path / "linked")
        assert watched.check_without_rescan().files == 3
        (tmp_path / "linked/x.log").write_text("2")
        watched.check_without_rescan()
        git("rm", "--quiet", "--force", "--cached", "x.log", cwd=tmp_path / "linked")
        assert watched.check_without_rescan().files == 2
