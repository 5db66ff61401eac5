"""Disks that are full or fail: one clear error, nothing half written, and it works again afterwards."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from shadowtree import OutOfSpace, Shadow, ShadowError, StoreFailed
from shadowtree.cli import main
from tests.faults import (
    SETTINGS,
    Faults,
    Raised,
    Rounds,
    assert_records_whole,
    in_child,
    leftovers,
    mounted_tmpfs,
    recorded_trees,
    store_of,
    sweep_errors,
    track,
)
from tests.processes import COMMAND, surroundings
from tests.referee import assert_sound_store, git_tree
from tests.trees import make_tree

CODES = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS]
FULL = (errno.ENOSPC, errno.EDQUOT)

codes = pytest.mark.parametrize("code", CODES, ids=[errno.errorcode[code] for code in CODES])
FULL_ONCE = pytest.param(errno.ENOSPC, False, id="ENOSPC-once")
BROKEN_ONCE = pytest.param(errno.EIO, False, id="EIO-once")
FULL_FROM_THEN_ON = pytest.param(errno.ENOSPC, True, id="ENOSPC-from-then-on")
READ_ONLY_FROM_THEN_ON = pytest.param(errno.EROFS, True, id="EROFS-from-then-on")
PACK_SIZES = [pytest.param(0, 8, id="small pack"), pytest.param(400_000, 15, id="large pack")]
"""How much is written that does not deflate, and how many writes it takes at least."""


def write_round(worktree: Path, size: int, number: int) -> None:
    make_tree(worktree, {"a": f"{number}" + os.urandom(size).hex(), "sub": {"b": f"round {number}"}})


def make_big_file(worktree: Path, size: int) -> None:
    """Write a file that does not deflate."""
    (worktree / "big.bin").write_bytes(os.urandom(size))


def assert_told(outcome: object, expected: str, code: int) -> None:
    """Check that a snapshot was right all the same, or ended with the error that the code asks for."""
    if not isinstance(outcome, str):
        assert type(outcome) is (OutOfSpace if code in FULL else StoreFailed), repr(outcome)
    else:
        assert outcome == expected


def check_after(worktree: Path, expected: str, code: int) -> Callable[[object], None]:
    """Give the check that follows each failure."""

    def check(outcome: object) -> None:
        assert_told(outcome, expected, code)
        assert_records_whole(store_of(worktree))

        assert track(worktree) == expected
        assert_records_whole(store_of(worktree))
        assert recorded_trees(store_of(worktree))[-1].tree.hex() == expected

    return check


@pytest.mark.parametrize(("code", "forever"), [BROKEN_ONCE, FULL_FROM_THEN_ON])
def test_the_first_snapshot_can_fail_at_every_write(
    worktree: Path, tmp_path: Path, code: int, forever: bool
) -> None:
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    expected = git_tree(worktree, tmp_path / "scratch")

    failures = sweep_errors(
        lambda: shutil.rmtree(tmp_path / "stores", ignore_errors=True),
        lambda: track(worktree),
        check_after(worktree, expected, code),
        partial(Faults, code=code, forever=forever),
    )

    assert failures >= 30


@pytest.mark.usefixtures("no_tidying")
@pytest.mark.parametrize(
    ("code", "forever"), [FULL_ONCE, BROKEN_ONCE, FULL_FROM_THEN_ON, READ_ONLY_FROM_THEN_ON]
)
@pytest.mark.parametrize(("size", "least"), PACK_SIZES)
def test_a_later_snapshot_can_fail_at_every_write(
    worktree: Path, tmp_path: Path, code: int, forever: bool, size: int, least: int
) -> None:
    rounds = Rounds(worktree, tmp_path, partial(write_round, worktree, size))
    track(worktree)

    failures = sweep_errors(
        rounds.begin,
        lambda: track(worktree),
        lambda outcome: check_after(worktree, rounds.expected, code)(outcome),
        partial(Faults, code=code, forever=forever),
    )

    assert failures >= least


@pytest.mark.usefixtures("no_tidying")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize(("size", "least"), PACK_SIZES)
def test_an_open_shadow_works_again_after_a_failure_at_any_write(
    worktree: Path, tmp_path: Path, code: int, size: int, least: int
) -> None:
    """What it keeps in memory must not be ahead of the disk."""
    rounds = Rounds(worktree, tmp_path, partial(write_round, worktree, size))
    with Shadow(worktree, settings=SETTINGS) as shadow:
        shadow.track()

        def check(outcome: object) -> None:
            assert_told(outcome, rounds.expected, code)

            assert shadow.track() == rounds.expected
            assert_records_whole(shadow.store)

        assert sweep_errors(rounds.begin, shadow.track, check, partial(Faults, code=code)) >= least


@pytest.mark.usefixtures("no_tidying")
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize(("size", "least"), PACK_SIZES)
def test_a_snapshot_that_fails_leaves_no_temporaries(
    worktree: Path, tmp_path: Path, is_first: bool, size: int, least: int
) -> None:
    """On a full disk they would take the room that is missing."""
    rounds = count()
    store = store_of(worktree)
    track(worktree)

    def change() -> None:
        if is_first:
            shutil.rmtree(tmp_path / "stores", ignore_errors=True)
        write_round(worktree, size, next(rounds))

    def check(outcome: object) -> None:
        assert leftovers(store) == []

    def fail(number: int) -> Faults:
        return Faults(number, errno.ENOSPC, forever=True)

    assert sweep_errors(change, lambda: track(worktree), check, fail) >= least


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


# Disks that are really full


def test_a_disk_that_is_full_at_any_size_is_told_of(worktree: Path, tmp_path: Path) -> None:
    """A file takes up room, a little less each time, until there is enough; then it goes, and all is well."""
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
    """A file of 200,000 bytes does not fit, or it does, but not all that belongs to it."""
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
        assert full.stderr.startswith("shadowtree: too little space on the disk of ")
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
