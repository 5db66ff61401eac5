"""Acts on disks that are full or fail: one of our errors and nothing changed, or all of it is done."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from shadowtree import Message, Outcome, OutOfSpace, Shadow, ShadowError, StoreFailed, faultpoint
from tests.faults import (
    ACTS,
    RECORDING_ON_BRANCHES,
    SETTINGS,
    WRITING_ACTS_ON_BRANCHES,
    Faults,
    Raised,
    Scene,
    assert_no_leftovers,
    assert_records_whole,
    in_child,
    mounted_ext4,
    mounted_tmpfs,
    open_shadow,
    plain,
    position_of,
    read_marks,
    sweep_errors,
    track,
)
from tests.referee import assert_sound_store
from tests.test_kill_acts import LESS
from tests.trees import make_tree

CODES = [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EMFILE]

slow = pytest.mark.slow
acts = pytest.mark.parametrize(
    "act", ["undo", *(pytest.param(act, marks=slow) for act in ACTS if act != "undo")]
)
codes = pytest.mark.parametrize(
    "code",
    [pytest.param(code, id=errno.errorcode[code], marks=() if code == errno.EIO else slow) for code in CODES],
)
persistent_codes = pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=errno.errorcode[code], marks=() if code == errno.ENOSPC else slow)
        for code in CODES
    ],
)


def check_once(scene: Scene, outcome: object) -> None:
    """After an error that passed: nothing was changed, or all of it was; then the next command."""
    if isinstance(outcome, Exception):
        assert isinstance(outcome, ShadowError), repr(outcome)
        assert not scene.is_done()
        scene.assert_before()
    else:
        assert scene.is_done()
        assert_done_but_for_temporaries(scene)
    check_next(scene)


def check_from_then_on(scene: Scene, outcome: object) -> None:
    """After an error that stayed until now: one of ours; the next command makes it good."""
    assert isinstance(outcome, ShadowError | Outcome), repr(outcome)
    assert scene.is_done() is isinstance(outcome, Outcome)
    check_next(scene)


def check_next(scene: Scene) -> None:
    """The next command has nothing to do, or makes it good."""
    assert_records_whole(scene.store)
    with scene.open() as shadow:
        shadow.status()
    scene.assert_settled()
    assert not scene.has_intent()
    track(scene.worktree)
    assert_no_leftovers(scene.store)


def assert_done_but_for_temporaries(scene: Scene) -> None:
    """Whatever could not be cleaned up is left for the next command."""
    found = plain(read_marks(scene.worktree))
    assert {path: mark for path, mark in found.items() if ".shadowtree-tmp-" not in path} == scene.after


# Writing


@codes
@acts
def test_an_act_can_fail_at_every_call(worktree: Path, tmp_path: Path, act: str, code: int) -> None:
    scene = Scene(worktree, tmp_path / "saved", act)

    failures = sweep_errors(scene.put_back, scene.act, partial(check_once, scene), partial(Faults, code=code))

    assert failures >= 100
    assert_sound_store(scene.store)


@persistent_codes
@acts
def test_an_act_can_fail_at_every_call_and_all_that_follow(
    worktree: Path, tmp_path: Path, act: str, code: int
) -> None:
    scene = Scene(worktree, tmp_path / "saved", act)

    failures = sweep_errors(
        scene.put_back,
        scene.act,
        partial(check_from_then_on, scene),
        partial(Faults, code=code, forever=True),
    )

    assert failures >= 100
    assert_sound_store(scene.store)


# Branches and merging

how = pytest.mark.parametrize(
    ("code", "forever"),
    [
        pytest.param(errno.EIO, False, id="EIO-once"),
        pytest.param(errno.ENOSPC, True, id="ENOSPC-from-then-on"),
        pytest.param(errno.EIO, True, id="EIO-from-then-on", marks=slow),
        pytest.param(errno.ENOSPC, False, id="ENOSPC-once", marks=slow),
    ],
)
some_acts = pytest.mark.parametrize(
    ("act", "step"),
    [
        pytest.param("without files", 4, id="without files, some"),
        pytest.param("switch at the limit", 17, id="switch, some"),
        pytest.param("markers", 17, id="markers, some"),
        pytest.param("without files", 1, id="without files", marks=slow),
        *(pytest.param(act, 1, id=act, marks=slow) for act in WRITING_ACTS_ON_BRANCHES),
    ],
)


@how
@some_acts
def test_an_act_on_branches_can_fail_at_every_call(
    worktree: Path, tmp_path: Path, act: str, step: int, code: int, forever: bool
) -> None:
    """The error is ours, nothing is changed, in the timeline either, and the act can be done again."""
    scene = Scene(worktree, tmp_path / "saved", act)
    before, after = positions(scene)
    check = check_from_then_on if forever else check_once

    def check_and_go_on(outcome: object) -> None:
        check(scene, outcome)
        go_on(scene, before, after)

    failures = sweep_errors(
        scene.put_back, scene.act, check_and_go_on, partial(Faults, code=code, forever=forever), step=step
    )

    assert failures * step >= (4 if act in RECORDING_ON_BRANCHES else 60)
    assert_sound_store(scene.store)


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from-then-on"])
@pytest.mark.parametrize(
    ("act", "step"),
    [
        pytest.param("switch at the limit", 101, id="switch, some"),
        pytest.param("only", 101, id="only, some"),
        *(pytest.param(act, 1, id=act, marks=slow) for act in WRITING_ACTS_ON_BRANCHES),
    ],
)
def test_the_worktree_can_fail_at_every_call_that_reads_for_an_act_on_branches(
    worktree: Path, tmp_path: Path, act: str, step: int, forever: bool
) -> None:
    scene = Scene(worktree, tmp_path / "saved", act)
    before, after = positions(scene)
    check = check_from_then_on if forever else check_once

    def check_and_go_on(outcome: object) -> None:
        check(scene, outcome)
        go_on(scene, before, after)

    failures = sweep_errors(
        scene.put_back,
        scene.act,
        check_and_go_on,
        partial(Faults, code=errno.EIO, reading=True, forever=forever),
        step=step,
    )

    assert failures * step >= 200


def positions(scene: Scene) -> tuple[object, object]:
    """Tell what the timeline says before an act and after it."""
    with scene.open() as shadow:
        before = position_of(shadow)
    scene.act()
    with scene.open() as shadow:
        return before, position_of(shadow)


def go_on(scene: Scene, before: object, after: object) -> None:
    """The timeline agrees with the files; what was not done can be done now."""
    with scene.open() as shadow:
        assert position_of(shadow) == (after if scene.is_done() else before)
    if not scene.is_done():
        scene.act()
        with scene.open() as shadow:
            assert position_of(shadow) == after
        scene.assert_after()


@how
@pytest.mark.parametrize("act", [act for act in RECORDING_ON_BRANCHES if act != "without files"])
def test_recording_after_an_undo_can_fail_at_every_call(
    worktree: Path, tmp_path: Path, act: str, code: int, forever: bool
) -> None:
    """What was undone is archived once, whether by the message or by the hole that is left in its place."""
    scene = Scene(worktree, tmp_path / "saved", act)
    before, after = positions(scene)

    def check(outcome: object) -> None:
        assert isinstance(outcome, ShadowError | Message), repr(outcome)
        scene.assert_before()
        with scene.open() as shadow:
            assert position_of(shadow) in (before, after)
        if isinstance(outcome, ShadowError):
            scene.act()
        with scene.open() as shadow:
            assert position_of(shadow) == after
        assert_records_whole(scene.store)
        track(scene.worktree)
        assert_no_leftovers(scene.store)

    failures = sweep_errors(scene.put_back, scene.act, check, partial(Faults, code=code, forever=forever))

    assert failures >= 4
    assert_sound_store(scene.store)


@slow
@pytest.mark.parametrize("lessen", LESS)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "from-then-on"])
@pytest.mark.parametrize("act", ["undo", "redo"])
def test_an_act_can_fail_at_every_call_where_the_file_system_can_do_less(
    worktree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lessen: Callable[[pytest.MonkeyPatch], None],
    forever: bool,
    act: str,
) -> None:
    lessen(monkeypatch)
    scene = Scene(worktree, tmp_path / "saved", act)
    check = partial(check_from_then_on if forever else check_once, scene)

    sweep_errors(scene.put_back, scene.act, check, partial(Faults, code=errno.EIO, forever=forever))


@pytest.mark.parametrize("forever", [False, True], ids=["once", "from-then-on"])
@pytest.mark.parametrize("act", ["undo", "redo", "switch at the limit", "only", "merge", "without files"])
def test_the_timeline_can_fail_at_every_write(
    worktree: Path, tmp_path: Path, act: str, forever: bool
) -> None:
    """SQLite's own calls cannot be failed one by one; what it tells of a full disk can."""
    scene = Scene(worktree, tmp_path / "saved", act)
    check = check_from_then_on if forever else check_once
    for number in count(1):
        scene.put_back()
        with failing_timeline(number, forever=forever) as hits:
            try:
                outcome: object = scene.act()
            except Exception as error:  # noqa: BLE001 - the check judges
                outcome = error
        if not hits:
            break
        check(scene, outcome)
    assert number >= (2 if act == "without files" else 4)


@contextmanager
def failing_timeline(number: int, *, forever: bool) -> Iterator[list[str]]:
    """Let the n-th write to the timeline fail."""
    calls = count(1)
    hits: list[str] = []

    def fail(act: str, path: str) -> None:
        if path.endswith("timeline.db"):
            call = next(calls)
            if call == number or (forever and call > number):
                hits.append(act)
                raise StoreFailed(path, "disk I/O error")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faultpoint, "before_write", fail)
        yield hits


def test_an_act_that_fails_is_taken_back_though_an_earlier_one_is_not_cleaned_up(
    worktree: Path, tmp_path: Path
) -> None:
    """Its temporaries cannot be removed; that is no reason to leave the next act half done."""
    make_tree(worktree, {"a.txt": "1", "b.txt": "1"})
    with open_shadow(worktree) as shadow, pytest.MonkeyPatch.context() as patch:
        with shadow.message("m1"):
            make_tree(worktree, {"a.txt": "2", "b.txt": "2"})
        patch.setattr(faultpoint, "before_write", fail_to_unlink)
        shadow.undo()
        before = plain(read_marks(worktree))
        patch.setattr(faultpoint, "before_write", fail_to_unlink_and_to_commit_acts())

        with pytest.raises(StoreFailed):
            shadow.redo()

        after = plain(read_marks(worktree))
        names = {path for path in {*before, *after} if ".shadowtree-tmp-" not in path}
        assert {name: after.get(name) for name in names} == {name: before.get(name) for name in names}


def fail_to_unlink(act: str, path: str) -> None:
    """Let no temporary of the worktree be removed."""
    if act == "unlink" and ".shadowtree-tmp-" in path:
        raise StoreFailed(path, "input/output error")


def fail_to_unlink_and_to_commit_acts() -> Callable[[str, str], None]:
    """Let the timeline fail as well, once something was swapped."""
    seen: list[str] = []

    def fail(act: str, path: str) -> None:
        fail_to_unlink(act, path)
        seen.append(act)
        if act == "commit" and "exchange" in seen:
            raise StoreFailed(path, "disk I/O error")

    return fail


# Reading


@slow
@pytest.mark.parametrize(
    "code", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOMEM], ids=errno.errorcode.get
)
@pytest.mark.parametrize("act", ["undo", "redo", "restore"])
def test_the_worktree_can_fail_at_every_call_that_reads(
    worktree: Path, tmp_path: Path, act: str, code: int
) -> None:
    """A path that cannot be read is a conflict, or the act has nothing to do with it."""
    scene = Scene(worktree, tmp_path / "saved", act)

    failures = sweep_errors(
        scene.put_back, scene.act, partial(check_once, scene), partial(Faults, code=code, reading=True)
    )

    assert failures >= 200


@slow
@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("act", ["undo", "redo", "restore"])
def test_the_worktree_can_fail_at_every_call_that_reads_and_all_that_follow(
    worktree: Path, tmp_path: Path, act: str, code: int
) -> None:
    """What cannot be looked at cannot be taken back: the next command has to."""
    scene = Scene(worktree, tmp_path / "saved", act)

    failures = sweep_errors(
        scene.put_back,
        scene.act,
        partial(check_from_then_on, scene),
        partial(Faults, code=code, reading=True, forever=True),
    )

    assert failures >= 200


# Real ones


def record_a_message(worktree: Path, store: Path | None = None) -> None:
    """Let a message edit, make and delete files."""
    make_tree(worktree, {"a.txt": "old", "sub": {"b.txt": "old", "gone.bin": os.urandom(300_000)}})
    with open_shadow(worktree, store) as shadow, shadow.message("m1"):
        make_tree(worktree, {"a.txt": "new", "sub": {"b.txt": "new", "made.txt": "made"}})
        (worktree / "sub" / "gone.bin").unlink()


def assert_refused(worktree: Path, store: Path | None = None) -> ShadowError:
    """An undo is refused in so many words, and nothing is changed."""
    before = read_marks(worktree)
    with open_shadow(worktree, store) as shadow, pytest.raises(ShadowError) as caught:
        shadow.undo()

    assert read_marks(worktree) == before
    return caught.value


def assert_undone(worktree: Path, store: Path | None = None) -> None:
    """Once the cause is gone, the same works."""
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


@slow
@pytest.mark.parametrize("has_store", [True, False], ids=["with its store", "alone"])
def test_a_worktree_on_a_full_ext4_is_not_changed(tmp_path: Path, has_store: bool) -> None:
    """Less and less room: whatever fails, fails before or is taken back."""
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
    """Let nobody change a file or directory, not even root."""
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


@slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.parametrize("name", ["", "sub"])
def test_a_directory_that_may_not_be_written_to_is_refused_and_nothing_is_changed(name: str) -> None:
    """As a user who is not root, to whom permission bits mean something."""
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

        assert "permission denied" in in_child(refuse_and_undo).value().lower()


def test_a_limit_on_the_size_of_files_is_told_of(worktree: Path) -> None:
    """As with a quota: the first file that is too long ends it."""
    import resource

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
