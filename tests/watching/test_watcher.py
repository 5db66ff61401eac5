"""The watcher on Linux: what it reports for each event, what it watches, and that nothing is left of it."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import ROOT, RelPath
from shadowtree.system import inotify, mounts
from shadowtree.system.inotify import Inotify
from shadowtree.system.mounts import Mounts
from shadowtree.watching.inotify_watcher import InotifyWatcher
from shadowtree.watching.watcher import Dirty, Rescan
from tests.support.processes import in_child
from tests.support.trees import make_tree
from tests.support.watching import open_descriptors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


class Eye:
    """A watcher of a worktree, and shortcuts to query it."""

    def __init__(self, top: Path, limits: Limits = DEFAULT_LIMITS) -> None:
        self.top = top
        self.watcher = InotifyWatcher(str(top), limits)

    def watch(self, *paths: str) -> bool:
        """Watch directories; tell whether it worked for the last one."""
        is_watched = False
        for path in paths:
            fd = os.open(self.top / path, os.O_RDONLY)
            is_watched = self.watcher.add_watch(RelPath(path.encode()), fd)
            os.close(fd)
        return is_watched

    def told(self) -> tuple[set[bytes], set[bytes]]:
        """Return the paths and the trees that are dirty."""
        found = self.watcher.dirty()
        assert isinstance(found, Dirty), found
        return {*found.paths}, {*found.trees}

    def writing(self) -> set[bytes]:
        """Return the files that are being written."""
        found = self.watcher.dirty()
        assert isinstance(found, Dirty)
        return {*found.writing}

    def doubt(self) -> str:
        """Return the reason for a rescan."""
        found = self.watcher.dirty()
        assert isinstance(found, Rescan), found
        return found.reason


@pytest.fixture
def eye(worktree: Path) -> Iterator[Eye]:
    """Three directories, all of them watched."""
    make_tree(worktree, {"f": "1", "a": {"g": "1", "b": {"h": "1"}}})
    eye = Eye(worktree)
    eye.watch("", "a", "a/b")
    yield eye
    eye.watcher.close()


# Reports


def test_nothing_happened(eye: Eye) -> None:
    (eye.top / "f").read_text()
    list(eye.top.iterdir())

    assert eye.told() == (set(), set())
    assert not eye.watcher.drain()


def test_each_change_of_a_file_names_it(eye: Eye) -> None:
    for act in (
        lambda: (eye.top / "a/g").write_text("2"),
        lambda: (eye.top / "a/g").chmod(0o600),
        lambda: os.utime(eye.top / "a/g"),
        lambda: os.truncate(eye.top / "a/g", 0),
        lambda: (eye.top / "a/g").unlink(),
        lambda: (eye.top / "a/g").symlink_to("x"),
    ):
        act()
        assert eye.told() == ({b"a/g"}, set())
    assert eye.told() == (set(), set())


def test_a_move_names_both_places(eye: Eye) -> None:
    (eye.top / "f").rename(eye.top / "a/b/i")

    assert eye.told() == ({b"f", b"a/b/i"}, set())


def test_a_directory_that_came_went_or_changed_is_told_with_all_below(eye: Eye) -> None:
    (eye.top / "a/new").mkdir()
    assert eye.told() == ({b"a/new"}, {b"a/new"})
    (eye.top / "a/new").rmdir()
    assert eye.told() == ({b"a/new"}, {b"a/new"})
    (eye.top / "a").chmod(0o700)
    assert eye.told() == ({b"a"}, {b"a"})
    (eye.top / "a/b").rename(eye.top / "c")
    assert eye.told() == ({b"a/b", b"c"}, {b"a/b", b"c"})


def test_what_was_drained_is_told_all_the_same(eye: Eye) -> None:
    (eye.top / "f").write_text("2")
    assert eye.watcher.drain()
    assert not eye.watcher.drain()
    (eye.top / "a/g").write_text("2")

    assert eye.told() == ({b"f", b"a/g"}, set())


def test_a_file_is_being_written_until_it_is_closed(eye: Eye) -> None:
    with (eye.top / "f").open("ab", buffering=0) as file:
        assert eye.writing() == set()
        file.write(b"1")
        assert eye.writing() == {b"f"}
        assert eye.writing() == {b"f"}
    assert eye.writing() == set()
    with (eye.top / "new").open("wb"):
        assert eye.writing() == {b"new"}
        (eye.top / "new").unlink()
        assert eye.writing() == set()


def test_a_link_is_never_closed(eye: Eye) -> None:
    (eye.top / "a/link").hardlink_to(eye.top / "f")
    assert eye.writing() == {b"a/link"}
    (eye.top / "a/link").rename(eye.top / "moved")
    assert eye.writing() == set()


def test_names_of_our_own_are_not_told(eye: Eye) -> None:
    own = ".shadowtree-tmp-0123456789ab-1"
    (eye.top / own).write_text("1")
    assert not eye.watcher.drain()
    (eye.top / own).replace(eye.top / "f")

    assert eye.told() == ({b"f"}, set())


def test_names_are_bytes(eye: Eye) -> None:
    name = b"\xff\n\\ " + b"x" * 200
    (eye.top / "a" / os.fsdecode(name)).touch()

    assert eye.told() == ({b"a/" + name}, set())


# Adding and removing watches


def test_only_what_is_watched_is_told(eye: Eye) -> None:
    (eye.top / "c").mkdir()
    eye.told()
    (eye.top / "c/f").touch()
    assert eye.told() == (set(), set())

    assert eye.watch("c")
    assert eye.watcher.is_watched(RelPath(b"c"))
    assert eye.watcher.count == 4
    (eye.top / "c/f").write_text("2")
    assert eye.told() == ({b"c/f"}, set())
    eye.watcher.remove_watch(RelPath(b"c"))
    assert not eye.watcher.is_watched(RelPath(b"c"))
    assert eye.watcher.count == 3
    (eye.top / "c/f").write_text("3")
    assert eye.told() == (set(), set())


def test_a_second_watch_on_a_directory_changes_nothing(eye: Eye) -> None:
    eye.watch("a", "a", "")

    assert eye.watcher.count == 3
    (eye.top / "a/g").write_text("2")
    assert eye.told() == ({b"a/g"}, set())


def test_a_moved_directory_is_told_by_its_old_name_until_it_is_watched_by_the_new_one(eye: Eye) -> None:
    (eye.top / "a/b").rename(eye.top / "c")
    (eye.top / "c/h").write_text("2")
    assert eye.told()[0] == {b"a/b", b"c", b"a/b/h"}

    eye.watch("c")
    assert not eye.watcher.is_watched(RelPath(b"a/b"))
    (eye.top / "c/h").write_text("3")
    assert eye.told() == ({b"c/h"}, set())
    eye.watcher.remove_watch(RelPath(b"a/b"))
    (eye.top / "c/h").write_text("4")
    assert eye.told() == ({b"c/h"}, set())


def test_directories_that_changed_places(eye: Eye) -> None:
    make_tree(eye.top, {"c": {"h": "c"}})
    eye.watch("c")
    (eye.top / "a/b").rename(eye.top / "t")
    (eye.top / "c").rename(eye.top / "a/b")
    (eye.top / "t").rename(eye.top / "c")
    eye.told()
    eye.watch("a/b", "c")
    eye.told()

    assert eye.watcher.count == 4
    (eye.top / "a/b/h").write_text("2")
    assert eye.told() == ({b"a/b/h"}, set())
    (eye.top / "c/h").write_text("2")
    assert eye.told() == ({b"c/h"}, set())


def test_another_directory_by_the_same_name(eye: Eye) -> None:
    shutil.rmtree(eye.top / "a/b")
    assert eye.told()[1] == {b"a/b"}
    assert not eye.watcher.is_watched(RelPath(b"a/b"))
    make_tree(eye.top / "a", {"b": {"h": "2"}})
    eye.watch("a/b")
    eye.told()

    (eye.top / "a/b/h").write_text("3")
    assert eye.told() == ({b"a/b/h"}, set())


def test_a_directory_that_was_moved_out_is_not_told_once_its_watch_is_removed(eye: Eye) -> None:
    outside = eye.top.parent / "outside"
    (eye.top / "a/b").rename(outside)
    eye.watcher.remove_watch(RelPath(b"a/b"))
    eye.told()
    (outside / "h").write_text("2")

    assert eye.told() == (set(), set())
    assert eye.watcher.count == 2


def test_a_directory_that_cannot_be_watched_is_not_watched_any_more(eye: Eye, worktree: Path) -> None:
    """Such as one that is a file by now."""
    fd = os.open(worktree / "f", os.O_RDONLY)
    assert not eye.watcher.add_watch(RelPath(b"a"), fd)
    os.close(fd)

    assert not eye.watcher.is_watched(RelPath(b"a"))
    assert eye.watcher.count == 2


def test_a_directory_with_two_names_is_watched_by_neither(eye: Eye, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a bind mount: both lead to the same one."""
    monkeypatch.setattr(InotifyWatcher, "_leads_to", lambda self, path, fd: True)
    fd = os.open(eye.top / "a", os.O_RDONLY)
    assert not eye.watcher.add_watch(RelPath(b"alias"), fd)
    os.close(fd)

    assert eye.told() == (set(), {b"a"})
    assert not eye.watcher.is_watched(RelPath(b"a"))
    assert not eye.watcher.is_watched(RelPath(b"alias"))
    assert not eye.watch("a")
    eye.watcher.remove_watch(RelPath(b"a"))
    assert eye.watch("a")


def test_no_more_is_watched_than_the_limit_allows(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": {}, "b": {}, "c": {}})
    (tmp_path / "limit").write_text("4\n")
    eye = Eye(worktree, Limits(watch_limit_file=str(tmp_path / "limit")))

    assert eye.watch("", "a", "b")
    assert not eye.watch("c")
    assert eye.watch("b")
    eye.watcher.remove_watch(RelPath(b"a"))
    assert eye.watch("c")
    eye.watcher.close()


def test_those_who_share_a_part_of_the_limit_take_what_others_left(worktree: Path, tmp_path: Path) -> None:
    """`watches_taken` counts the watches of other watchers with the same share."""
    make_tree(worktree, {"a": {}, "b": {}})
    (tmp_path / "limit").write_text("8\n")
    limits = Limits(watch_limit_file=str(tmp_path / "limit"), watch_share=0.25, watches_taken=1)
    eye = Eye(worktree, limits)

    assert eye.watch("")
    assert not eye.watch("a")
    eye.watcher.close()


@pytest.mark.parametrize("content", ["", "many\n", None])
def test_a_limit_that_is_not_told_is_none(content: str | None, eye: Eye, tmp_path: Path) -> None:
    """If the file with the system's limit cannot be read, there is no limit."""
    if content is not None:
        (tmp_path / "limit").write_text(content)
    other = Eye(eye.top, Limits(watch_limit_file=str(tmp_path / "limit")))

    assert other.watch("", "a", "a/b")
    other.watcher.close()


# Doubt


def test_the_root_was_moved_and_came_back(eye: Eye) -> None:
    eye.top.rename(eye.top.with_name("away"))
    eye.top.with_name("away").rename(eye.top)

    assert eye.doubt() == "the worktree itself was moved or deleted"


def test_another_root(eye: Eye) -> None:
    eye.top.rename(eye.top.with_name("away"))
    assert eye.doubt() == "the directory was replaced"
    eye.top.mkdir()
    assert eye.doubt() == "the directory was replaced"


def test_the_queue_ran_over(eye: Eye, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if later events were drained."""
    monkeypatch.setattr(Inotify, "read", lambda self: iter([(-1, inotify.OVERFLOW, b""), (1, 2, b"f")]))
    assert eye.watcher.drain()
    monkeypatch.undo()

    assert eye.doubt() == "too many changes at once for the system to report"


@pytest.fixture
def forgetful(worktree: Path) -> Iterator[Eye]:
    """A watcher that keeps three paths at most."""
    eye = Eye(worktree, Limits(most_dirty_paths=3))
    eye.watch("")
    yield eye
    eye.watcher.close()


def test_more_paths_than_are_worth_it(forgetful: Eye) -> None:
    eye = forgetful
    for number in range(4):
        (eye.top / f"{number}").touch()

    assert eye.doubt() == "too much changed at once"


def test_what_is_drained_and_not_asked_for_does_not_pile_up(forgetful: Eye) -> None:
    eye = forgetful
    for number in range(10):
        (eye.top / f"{number}").touch()
        assert eye.watcher.drain()
        assert len(eye.watcher._dirty) <= 3

    assert eye.doubt() == "too much changed at once"


def test_a_forked_child_is_told_nothing_and_takes_nothing_away(eye: Eye) -> None:
    def ask() -> tuple[str, bool]:
        has_news = eye.watcher.drain()
        reason = eye.doubt()
        eye.watcher.close()
        return reason, has_news

    (eye.top / "f").write_text("2")
    assert in_child(ask).value() == ("another process is watching", True)

    assert eye.told() == ({b"f"}, set())
    (eye.top / "a/g").write_text("2")
    assert eye.told() == ({b"a/g"}, set())


def test_a_drain_ends_though_somebody_goes_on_writing(eye: Eye, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that writes faster than we read must not delay a snapshot."""
    real, reads = os.read, []

    def read_and_write(fd: int, size: int) -> bytes:
        content = real(fd, size)
        reads.append(len(content))
        assert len(reads) < 10
        (eye.top / "a/g").write_text("more")
        return content

    (eye.top / "f").write_text("2")
    monkeypatch.setattr(os, "read", read_and_write)
    told = eye.told()
    monkeypatch.undo()

    assert told == ({b"f"}, set())
    assert len(reads) == 1
    assert eye.told() == ({b"a/g"}, set())


# Releasing watches


def test_nothing_is_left_after_close(worktree: Path) -> None:
    before, threads = open_descriptors(), threading.enumerate()
    eye = Eye(worktree)
    eye.watch("")
    assert eye.watcher.fileno() in open_descriptors()
    eye.watcher.close()
    eye.watcher.close()

    assert open_descriptors() == before
    assert threading.enumerate() == threads
    assert eye.watcher.drain()


def test_nothing_is_left_of_one_that_is_dropped_or_could_not_be_made(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_descriptors()
    eye = Eye(worktree)
    del eye
    assert open_descriptors() == before

    def refuse(self: Inotify) -> None:
        raise OSError(24, "no more")

    monkeypatch.setattr(Inotify, "__init__", refuse)
    with pytest.raises(OSError, match="no more"):
        InotifyWatcher(str(worktree))
    assert open_descriptors() == before


def test_a_descriptor_becomes_readable_when_something_happened(eye: Eye) -> None:
    import select

    fd = eye.watcher.fileno()
    assert fd is not None
    assert select.select([fd], [], [], 0)[0] == []
    (eye.top / "f").write_text("2")
    assert select.select([fd], [], [], 0)[0] == [fd]
    eye.watcher.drain()
    assert select.select([fd], [], [], 0)[0] == []


# Mounts

TABLE = b"""\
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:20 / /proc rw shared:2 - proc proc rw
30 21 0:40 / /home/me rw - nfs4 server:/home rw
31 30 254:1 /w /home/me/work\\040tree rw - xfs /dev/vdb rw
32 31 0:41 / /home/me/work\\040tree/a\\134b rw - tmpfs tmpfs rw
33 31 254:1 /f /home/me/work\\040tree/file\r rw - xfs /dev/vdb rw
34 30 0:42 / /home/me/work\\040tree2 rw - fuse.sshfs host: rw
"""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The table of mounts, if the system reports that it changed."""
    tables = [TABLE]
    monkeypatch.setattr(Mounts, "_read_table", lambda self: tables[-1])
    return tables


def mounts_of(root: bytes) -> Mounts:
    """Return the mounts of a directory, with a reported change."""

    class Poll:
        def poll(self, timeout: int) -> list[tuple[int, int]]:
            return [(0, 0)]

    found = Mounts(root)
    found._poll = Poll()  # type: ignore[assignment]  # it reports a change
    return found


@pytest.mark.parametrize(
    ("root", "foreign"),
    [
        (b"/srv/x", None),
        (b"/", "proc"),
        (b"/proc/1", "proc"),
        (b"/home/me", "nfs4"),
        (b"/home/me/x", "nfs4"),
        (b"/home/me/work tree", None),
        (b"/home/me/work tree/sub", None),
        (b"/home/me/work tree2/sub", "fuse.sshfs"),
        (b"/home", "nfs4"),
        (b"in a changed root", "unknown"),
    ],
)
@pytest.mark.usefixtures("table")
def test_which_types_are_not_trusted(root: bytes, foreign: str | None) -> None:
    assert mounts_of(root).find_foreign() == foreign


def test_changes_elsewhere_do_not_count_without_mounts_inside(table: list[bytes]) -> None:
    outside, inside = mounts_of(b"/srv/x"), mounts_of(b"/home/me/work tree")
    table.append(TABLE + b"40 21 0:50 / /mnt rw - tmpfs tmpfs rw\n")

    assert not outside.have_changed()
    assert inside.have_changed()
    table.append(TABLE + b"40 21 0:50 / /srv/x/y rw - tmpfs tmpfs rw\n")
    assert outside.have_changed()
    table.append(TABLE)
    assert outside.have_changed()
    assert not outside.have_changed()
    table.append(TABLE + b"40 21 0:50 / /srv/x rw - tmpfs tmpfs rw\n")
    assert outside.have_changed()


def test_a_table_that_is_read_half_counts_as_changed(table: list[bytes]) -> None:
    outside = mounts_of(b"/srv/x")
    table.append(TABLE[:-30])

    assert outside.have_changed()


def test_what_is_mounted_as_a_file_is_found(tmp_path: Path, table: list[bytes]) -> None:
    make_tree(tmp_path, {"w": {"d": {"f": "1", "m": {}}}})
    line = b"40 21 0:50 / %s rw - tmpfs tmpfs rw\n"
    where = os.fsencode(tmp_path)
    table.append(TABLE + line % (where + b"/w/d/f") + line % (where + b"/w/d/m"))
    status = (tmp_path / "w/d").stat()

    assert mounts_of(where + b"/w").find_holders() == {(status.st_dev, status.st_ino)}
    assert mounts_of(where + b"/w/d/m").find_holders() == set()


def test_the_real_table_is_quiet(worktree: Path) -> None:
    before = open_descriptors()
    found = Mounts(os.fsencode(worktree))

    assert not found.have_changed()
    assert found.find_holders() == set()
    found.close()
    found.close()
    assert open_descriptors() == before


def test_names_are_read_as_they_are() -> None:
    assert mounts._unescape(b"a\\040b\\134\\012\\011c") == b"a b\\\n\tc"
    assert mounts._is_below(b"/a/b", b"/a")
    assert mounts._is_below(b"/a", b"/")
    assert not mounts._is_below(b"/ab", b"/a")
    assert ROOT == b""
