"""Disks that are really full or fail: one clear error, nothing half written, and everything works later."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadowtree import Outcome, OutOfSpace, Shadow, ShadowError, StoreFailed
from shadowtree.cli.main import main
from shadowtree.system import disk
from tests.faults.engine import Hit
from tests.faults.upkeep import Story, leave_fresh, leave_it
from tests.support.limits import TINY, use_limits
from tests.support.mounts import mounted_ext4, mounted_tmpfs
from tests.support.processes import COMMAND, Raised, in_child, surroundings
from tests.support.referee import assert_sound_store, git_tree
from tests.support.stores import (
    SETTINGS,
    assert_records_whole,
    leftovers,
    open_shadow,
    recorded_trees,
    store_of,
    track,
)
from tests.support.stories import Told, sweep, tidy
from tests.support.sweeps import Faults
from tests.support.terminal import Terminal
from tests.support.trees import make_tree, plain, read_marks

slow = pytest.mark.slow
CODES = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS]
FULL = (errno.ENOSPC, errno.EDQUOT)

codes = pytest.mark.parametrize("code", CODES, ids=[errno.errorcode[code] for code in CODES])


def make_big_file(worktree: Path, size: int) -> None:
    """Write a file that does not deflate."""
    (worktree / "big.bin").write_bytes(os.urandom(size))


def test_the_error_names_the_file_and_keeps_the_cause(worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})

    with Faults(1, errno.EIO), pytest.raises(StoreFailed) as caught:
        track(worktree)

    assert caught.value.path == str(store_of(worktree).parent)
    assert str(caught.value) == f"{caught.value.path}: input/output error"
    assert isinstance(caught.value.__cause__, OSError)


@codes
def test_a_disk_that_is_full_and_one_that_fails_are_told_apart(worktree: Path, code: int) -> None:
    make_tree(worktree, {"a": "1"})

    with Faults(20, code), pytest.raises(ShadowError) as caught:
        track(worktree)

    assert type(caught.value) is (OutOfSpace if code in FULL else StoreFailed)


@codes
def test_the_command_ends_with_one_line(
    worktree: Path, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"a": "1"})
    monkeypatch.chdir(worktree)

    with Faults(20, code):
        exit_code = main(["track", "--set", "min_free=0"])
    out, err = capsys.readouterr()

    assert exit_code == 1
    assert out == ""
    assert err.startswith("shadowtree: ")
    assert err.count("\n") == 1
    assert "internal error" not in err
    assert main(["track", "--set", "min_free=0"]) == 0


def test_an_act_that_fails_is_taken_back_though_an_earlier_one_is_not_cleaned_up(
    worktree: Path, tmp_path: Path
) -> None:
    """Temporary files of the earlier act cannot be removed; the next act must still not be left half done."""
    make_tree(worktree, {"a.txt": "1", "b.txt": "1"})
    with open_shadow(worktree) as shadow, pytest.MonkeyPatch.context() as patch:
        with shadow.message("m1"):
            make_tree(worktree, {"a.txt": "2", "b.txt": "2"})
        patch.setattr(disk, "before_write", fail_to_unlink)
        shadow.undo()
        before = plain(read_marks(worktree))
        patch.setattr(disk, "before_write", fail_to_unlink_and_to_commit_acts())

        with pytest.raises(StoreFailed):
            shadow.redo()

        after = plain(read_marks(worktree))
        names = {path for path in {*before, *after} if ".shadowtree-tmp-" not in path}
        assert {name: after.get(name) for name in names} == {name: before.get(name) for name in names}


def fail_to_unlink(act: str, path: str) -> None:
    """Fail to remove temporary files of the worktree."""
    if act == "unlink" and ".shadowtree-tmp-" in path:
        raise StoreFailed(path, "input/output error")


def fail_to_unlink_and_to_commit_acts() -> Callable[[str, str], None]:
    """Fail to commit as well, once something was exchanged."""
    seen: list[str] = []

    def fail(act: str, path: str) -> None:
        fail_to_unlink(act, path)
        seen.append(act)
        if act == "commit" and "exchange" in seen:
            raise StoreFailed(path, "disk I/O error")

    return fail


# Stores on disks that are really full


def test_a_disk_that_is_full_at_any_size_is_told_of(worktree: Path, tmp_path: Path) -> None:
    """A ballast file leaves a little more room each time, until it is enough; without it, all is well."""
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    make_big_file(worktree, 40_000)
    expected = git_tree(worktree, tmp_path / "scratch")
    with mounted_tmpfs(tmp_path / "small", "size=1M") as small:
        store, ballast = small / "store", small / "ballast"
        failures = 0
        for free in range(0, 1 << 20, 8192):
            shutil.rmtree(store, ignore_errors=True)
            ballast.write_bytes(bytes((1 << 20) - 4096 - free))
            ended = in_child(lambda: track(worktree, store))
            assert ended.signal is None
            if not isinstance(ended.result, Raised):
                break
            failures += 1
            assert ended.result.names[0] in ("OutOfSpace", "StoreFailed"), ended.last_words
            assert_records_whole(store)
            ballast.unlink()
            assert track(worktree, store) == expected
            assert_records_whole(store)

        assert failures >= 10
        assert ended.value() == expected
        assert_records_whole(store)


@pytest.mark.parametrize(
    "free",
    [
        pytest.param(30_000, id="for-sqlite"),
        pytest.param(150_000, id="at-once"),
        pytest.param(245_000, id="midway"),
    ],
)
def test_a_store_works_on_when_its_full_disk_has_room_again(
    worktree: Path, tmp_path: Path, free: int
) -> None:
    """A file of 200,000 bytes does not fit, or it fits, but not everything that belongs to it."""
    make_tree(worktree, {"a": "1"})
    with mounted_tmpfs(tmp_path / "small", "size=1M") as small:
        store, ballast = small / "store", small / "ballast"
        first = track(worktree, store)
        make_big_file(worktree, 200_000)
        figures = os.statvfs(small)
        ballast.write_bytes(bytes(figures.f_bavail * figures.f_frsize - free))

        with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
            with pytest.raises(OutOfSpace):
                shadow.track()
            assert [record.tree.hex() for record in recorded_trees(store)] == [first]
            assert_records_whole(store)
            assert leftovers(store) == []
            ballast.unlink()

            assert shadow.track() == git_tree(worktree, tmp_path / "scratch")
            assert [file.path for file in shadow.patch(first).files] == ["big.bin"]
        assert_sound_store(store)


def test_a_sound_store_on_a_full_disk_is_sound(worktree: Path, tmp_path: Path) -> None:
    """SQLite then locks the timeline against other connections, so the check must not have two."""
    make_tree(worktree, {"a": "1"})
    with mounted_tmpfs(tmp_path / "small", "size=1M") as small:
        store = small / "store"
        track(worktree, store)
        (small / "ballast").write_bytes(bytes(free_on(small)))

        with open_shadow(worktree, store) as shadow:
            assert shadow.check().problems == []


@pytest.mark.parametrize("inodes", range(4, 30, 3))
def test_a_disk_without_inodes_is_told_of(worktree: Path, tmp_path: Path, inodes: int) -> None:
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    expected = git_tree(worktree, tmp_path / "scratch")
    with mounted_tmpfs(tmp_path / "small", f"size=4M,nr_inodes={inodes}") as small:
        store = small / "store"
        ended = in_child(lambda: track(worktree, store))
        assert ended.signal is None
        if isinstance(ended.result, Raised):
            assert ended.result.names[0] in ("OutOfSpace", "StoreFailed"), ended.last_words
            assert_records_whole(store)
        else:
            assert ended.result == expected
        subprocess.run(["mount", "-o", "remount,nr_inodes=1000", small], check=True)

        assert track(worktree, store) == expected
        assert_records_whole(store)


def test_a_disk_without_inodes_is_called_full(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": "1"})
    with mounted_tmpfs(tmp_path / "small", "size=1M,nr_inodes=6") as small:
        with pytest.raises(OutOfSpace):
            track(worktree, small / "store")

        assert not (small / "store").exists()


@pytest.mark.parametrize("limit", [100, 1000, 5000, 20_000, 60_000])
def test_a_limit_on_the_size_of_files_is_told_of(worktree: Path, tmp_path: Path, limit: int) -> None:
    make_tree(worktree, {"a": "1"})
    make_big_file(worktree, 100_000)
    expected = git_tree(worktree, tmp_path / "scratch")

    def track_with_limit() -> str:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return track(worktree)

    ended = in_child(track_with_limit)

    assert ended.signal is None
    assert isinstance(ended.result, Raised)
    assert ended.result.names[0] in ("OutOfSpace", "StoreFailed"), ended.last_words
    assert_records_whole(store_of(worktree))
    assert track(worktree) == expected
    assert_sound_store(store_of(worktree))


def test_the_command_tells_of_a_full_disk_in_one_line_and_works_once_there_is_room(
    worktree: Path, tmp_path: Path
) -> None:
    make_big_file(worktree, 300_000)
    with mounted_tmpfs(tmp_path / "small", "size=1M") as small:
        ballast = small / "ballast"
        ballast.write_bytes(bytes(900_000))

        full = run_command(worktree, small)
        ballast.unlink()
        roomy = run_command(worktree, small)

        assert (full.returncode, full.stdout) == (1, "")
        assert full.stderr.startswith("shadowtree: not enough space on the disk of ")
        assert full.stderr.count("\n") == 1
        assert (roomy.returncode, roomy.stderr) == (0, "")
        assert roomy.stdout.strip() == git_tree(worktree, tmp_path / "scratch")
        assert_sound_store(small / "store")


def run_command(worktree: Path, small: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--store", small / "store", "track", "--set", "min_free=0"],
        cwd=worktree,
        env=surroundings(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("before", "act"),
    [pytest.param(leave_it, sweep, id="gc"), pytest.param(leave_fresh, tidy, id="tidy", marks=slow)],
)
def test_a_disk_that_is_really_full_loses_nothing(
    worktree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: Callable[[Told], object],
    act: Callable[[Shadow], object],
) -> None:
    """A ballast file leaves a little more room each time, from none to enough, even for SQLite."""
    use_limits(monkeypatch, TINY)
    with mounted_tmpfs(tmp_path / "small", "size=8M") as small:
        scene = Story(worktree, small, before, act)
        ballast = small / "ballast"
        failures = 0
        for free in range(0, 1 << 20, 98_304):
            scene.prepare()
            ballast.write_bytes(bytes(free_on(small) - free))
            ended = in_child(scene.act)
            assert ended.signal is None
            ballast.unlink()
            is_done = not isinstance(ended.result, Raised)
            if not is_done:
                failures += 1
                assert ended.result.names[0] in ("OutOfSpace", "StoreFailed"), ended.last_words
            scene.check(Hit("kill", "a full disk"))
            if is_done and free > 200_000:
                break

    assert failures >= 1


def free_on(place: Path) -> int:
    figures = os.statvfs(place)
    return figures.f_bavail * figures.f_frsize


# Worktrees on such disks


def record_a_message(worktree: Path, store: Path | None = None) -> None:
    """Record a message that edits, adds and deletes files."""
    make_tree(worktree, {"a.txt": "old", "sub": {"b.txt": "old", "gone.bin": os.urandom(300_000)}})
    with open_shadow(worktree, store) as shadow, shadow.message("m1"):
        make_tree(worktree, {"a.txt": "new", "sub": {"b.txt": "new", "made.txt": "made"}})
        (worktree / "sub" / "gone.bin").unlink()


def assert_refused(worktree: Path, store: Path | None = None) -> ShadowError:
    """Check that an undo raises an error, and that nothing is changed; return the error."""
    before = read_marks(worktree)
    with open_shadow(worktree, store) as shadow, pytest.raises(ShadowError) as caught:
        shadow.undo()

    assert read_marks(worktree) == before
    return caught.value


def assert_undone(worktree: Path, store: Path | None = None) -> None:
    """Check that the undo works once the cause is gone."""
    with open_shadow(worktree, store) as shadow:
        assert shadow.undo().complete
    assert (worktree / "a.txt").read_text() == "old"
    assert (worktree / "sub" / "b.txt").read_text() == "old"
    assert (worktree / "sub" / "gone.bin").stat().st_size == 300_000
    assert not (worktree / "sub" / "made.txt").exists()
    assert not [path for path in worktree.rglob("*") if ".shadowtree-tmp-" in path.name]


@pytest.mark.parametrize("free", [0, 4096, 100_000, 290_000])
def test_a_full_worktree_is_not_changed(tmp_path: Path, free: int) -> None:
    with mounted_tmpfs(tmp_path / "small", "size=2M") as small:
        worktree, store = small / "worktree", tmp_path / "store"
        record_a_message(make_tree(worktree, {}), store)
        figures = os.statvfs(small)
        (small / "ballast").write_bytes(bytes(figures.f_bavail * figures.f_frsize - free))

        error = assert_refused(worktree, store)
        (small / "ballast").unlink()

        assert isinstance(error, OutOfSpace)
        assert_undone(worktree, store)


def test_another_store_is_advised_only_if_there_is_none_yet(tmp_path: Path, terminal: Terminal) -> None:
    """With an empty store, there would be nothing to undo."""
    with mounted_tmpfs(tmp_path / "small", "size=2M") as small:
        worktree, store = small / "worktree", tmp_path / "store"
        record_a_message(make_tree(worktree, {}), store)
        (small / "ballast").write_bytes(bytes(free_on(small)))

        terminal.run("-C", str(worktree), "--store", str(small / "other"), "wrap", exit_code=1)
        assert terminal.err.endswith("; free some space, or use --store on another disk\n")
        terminal.run("-C", str(worktree), "--store", str(store), "undo", exit_code=1)
        assert terminal.err.endswith("; free some space\n")


@slow
@pytest.mark.parametrize("has_store", [True, False], ids=["with its store", "alone"])
def test_a_worktree_on_a_full_ext4_is_not_changed(tmp_path: Path, has_store: bool) -> None:
    """More and more room: every undo that fails changes nothing, or is rolled back."""
    with mounted_ext4(tmp_path / "mount", tmp_path / "image") as mount:
        worktree = mount / "worktree"
        store = (mount if has_store else tmp_path) / "store"
        record_a_message(make_tree(worktree, {}), store)
        refused = 0
        for free in range(0, 400_000, 16_384):
            figures = os.statvfs(mount)
            with (mount / "ballast").open("wb") as ballast:
                os.posix_fallocate(ballast.fileno(), 0, figures.f_bavail * figures.f_frsize - free)
            before = read_marks(worktree)
            with open_shadow(worktree, store) as shadow:
                try:
                    shadow.undo()
                except OutOfSpace:
                    assert read_marks(worktree) == before
                    refused += 1
                else:
                    shadow.redo()
                (mount / "ballast").unlink()

        assert refused >= 5
        assert_undone(worktree, store)
    if not has_store:
        assert_sound_store(store)


@slow
def test_a_worktree_without_inodes_is_not_changed(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", "size=4M,nr_inodes=40") as small:
        worktree, store = small / "worktree", tmp_path / "store"
        record_a_message(make_tree(worktree, {}), store)
        for number in range(os.statvfs(small).f_ffree - 1):
            (small / f"ballast{number}").touch()

        error = assert_refused(worktree, store)
        for path in small.glob("ballast*"):
            path.unlink()

        assert isinstance(error, OutOfSpace)
        assert_undone(worktree, store)


@slow
@pytest.mark.parametrize("name", ["a.txt", "sub/b.txt", "sub/made.txt", "sub"])
def test_something_immutable_is_refused_and_nothing_is_changed(worktree: Path, name: str) -> None:
    record_a_message(worktree)
    with immutable(worktree / name):
        error = assert_refused(worktree)

    assert name.split("/")[0] in str(error)
    assert "operation not permitted" in str(error).lower()
    assert_undone(worktree)


@contextmanager
def immutable(path: Path) -> Iterator[None]:
    """Make a file or directory immutable, even for root."""
    done = subprocess.run(["chattr", "+i", path], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("nothing can be made immutable here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", path], check=True)


@slow
@pytest.mark.parametrize("name", ["", "sub"])
def test_a_read_only_mount_is_refused_and_nothing_is_changed(worktree: Path, name: str) -> None:
    record_a_message(worktree)
    where = worktree / name
    done = subprocess.run(["mount", "--bind", where, where], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", where], check=True)
        error = assert_refused(worktree)
    finally:
        subprocess.run(["umount", where], check=True)

    assert "read-only file system" in str(error).lower()
    assert_undone(worktree)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("name", ["", "sub"])
def test_a_directory_that_may_not_be_written_to_is_refused_and_nothing_is_changed(name: str) -> None:
    """Run as a user other than root, because root ignores permission bits."""
    with tempfile.TemporaryDirectory() as place:
        os.chown(place, 65534, 65534)

        def refuse_and_undo() -> str:
            os.setgid(65534)
            os.setuid(65534)
            worktree, store = make_tree(Path(place, "worktree"), {}), Path(place, "store")
            record_a_message(worktree, store)
            (worktree / name).chmod(0o555)
            error = assert_refused(worktree, store)
            (worktree / name).chmod(0o755)
            assert_undone(worktree, store)
            return str(error)

        assert in_child(refuse_and_undo).value() == f"{name or '.'}: permission denied"


def test_a_limit_on_the_size_of_files_is_told_of_by_an_act(worktree: Path) -> None:
    """As with a quota, the first file that is too long ends the act."""
    record_a_message(worktree)
    before = read_marks(worktree)

    def undo_with_limit() -> Outcome:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        with Shadow(worktree, settings=SETTINGS) as shadow:
            return shadow.undo()

    ended = in_child(undo_with_limit)

    assert isinstance(ended.result, Raised), ended
    assert "ShadowError" in ended.result.names, ended.last_words
    assert read_marks(worktree) == before
    assert_undone(worktree)
