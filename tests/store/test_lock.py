"""The lock of a store: one holder at a time, freed by the kernel, with a named holder; and many processes."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from shadowtree import Locked, Shadow, ShadowError
from shadowtree.cli.main import main
from shadowtree.store import directory as stores
from shadowtree.store import lock
from shadowtree.store.lock import Lock
from shadowtree.system import disk
from shadowtree.system.syscalls import try_lock
from tests.support.processes import COMMAND, Child, Raised, in_child, surroundings
from tests.support.referee import assert_sound_store, git_tree
from tests.support.stores import SETTINGS, assert_no_leftovers, assert_records_whole, recorded_trees, track
from tests.support.sweeps import kill_at
from tests.support.trees import make_tree

IMPATIENT = {**SETTINGS, "lock_timeout": 0.2}
VERY_IMPATIENT = {**SETTINGS, "lock_timeout": 0.01}
PROCESSES = 8


@contextmanager
def held_by_another_process(path: Path) -> Iterator[Child]:
    """Make another process hold a lock."""
    ready_reader, ready_writer = os.pipe()

    def hold() -> None:
        with Lock(str(path), 0):
            os.write(ready_writer, b"!")
            signal.pause()

    child = Child(hold)
    os.close(ready_writer)
    assert os.read(ready_reader, 1) == b"!"
    os.close(ready_reader)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def when_waiting(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, as soon as another process waits for the lock."""
    acts = [act]

    def sleep(seconds: float) -> None:
        if acts:
            acts.pop()()
        time.sleep(seconds)

    monkeypatch.setattr(lock, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))


@pytest.fixture
def store(worktree: Path) -> Path:
    """The store of a wrapped worktree."""
    make_tree(worktree, {"a": "1"})
    track(worktree)
    return Shadow(worktree).store


# One lock


def test_only_one_holds_the_lock(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")

    with Lock(path, 0), pytest.raises(Locked):
        Lock(path, 0).__enter__()


def test_the_lock_is_free_when_its_owner_let_it_go(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    with Lock(path, 0):
        pass

    with Lock(path, 0):
        pass


def test_the_lock_is_free_when_its_owner_was_killed(worktree: Path, store: Path) -> None:
    with held_by_another_process(store / "lock") as owner:
        owner.kill()
        assert owner.wait().signal == signal.SIGKILL

        with Shadow(worktree, settings=IMPATIENT) as shadow:
            assert shadow.track()


def test_the_lock_is_free_when_its_owner_died_in_a_snapshot(worktree: Path, store: Path) -> None:
    make_tree(worktree, {"a": "2"})
    ended = kill_at(lambda: track(worktree), 3)
    assert ended.signal == signal.SIGKILL

    with Shadow(worktree, settings=IMPATIENT) as shadow:
        assert shadow.track()


def test_the_lock_is_waited_for(worktree: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_by_another_process(store / "lock") as owner:
        when_waiting(monkeypatch, owner.kill)

        tree = track(worktree)

    assert tree == recorded_trees(store)[-1].tree.hex()


def test_waiting_ends_at_the_time_limit_and_names_the_owner(worktree: Path, store: Path) -> None:
    with held_by_another_process(store / "lock") as owner:
        with Shadow(worktree, settings=IMPATIENT) as shadow, pytest.raises(Locked) as caught:
            shadow.track()

        assert caught.value.pid == owner.pid
    assert caught.value.host == os.uname().nodename
    assert caught.value.store == str(store)
    assert caught.value.waited_s == 0.2
    assert f"process {owner.pid} on {os.uname().nodename}" in str(caught.value)


def test_a_shadow_that_found_the_lock_taken_can_try_again(worktree: Path, store: Path) -> None:
    with Shadow(worktree, settings=IMPATIENT) as shadow:
        with held_by_another_process(store / "lock"), pytest.raises(Locked):
            shadow.track()

        assert shadow.track() == recorded_trees(store)[-1].tree.hex()


def test_the_command_names_the_owner_and_exits_with_11(
    worktree: Path, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(worktree)
    with held_by_another_process(store / "lock") as owner:
        exit_code = main(["track", "--json", "--set", "lock_timeout=0.2", "--set", "min_free=0"])
        out, err = capsys.readouterr()

    assert exit_code == 11
    assert json.loads(out)["error"] == "Locked"
    assert err.startswith("shadowtree: ")
    assert f"process {owner.pid} on {os.uname().nodename}" in err
    assert err.count("\n") == 1


def test_reading_needs_no_lock(worktree: Path, store: Path) -> None:
    tree = recorded_trees(store)[-1].tree.hex()
    with held_by_another_process(store / "lock"), Shadow(worktree, settings=IMPATIENT) as shadow:
        assert shadow.status().changed == 0
        assert shadow.patch(tree).files == []
        assert shadow.diff() == []


@pytest.mark.parametrize(
    "content",
    [b"", b"garbage", b"\xff\0" * 100, b'{"pid": 1}', b"1 elsewhere", b"-7 x", b"x" * 100_000],
    ids=["empty", "garbage", "bytes", "json", "alive", "negative", "long"],
)
def test_what_is_written_in_a_free_lock_means_nothing(worktree: Path, store: Path, content: bytes) -> None:
    (store / "lock").write_bytes(content)

    with Shadow(worktree, settings=IMPATIENT) as shadow:
        assert shadow.track()


@pytest.mark.parametrize("content", [b"", b"\xff garbage \xff", b"pid host and more"])
def test_an_owner_that_cannot_be_read_is_another_process(worktree: Path, store: Path, content: bytes) -> None:
    with held_by_another_process(store / "lock"):
        (store / "lock").write_bytes(content)

        with Shadow(worktree, settings=IMPATIENT) as shadow, pytest.raises(Locked) as caught:
            shadow.track()

    assert caught.value.pid is None
    assert "another process" in str(caught.value)


def test_a_lock_that_is_a_symlink_is_refused(worktree: Path, store: Path, tmp_path: Path) -> None:
    (store / "lock").unlink()
    (store / "lock").symlink_to(tmp_path / "elsewhere")

    with Shadow(worktree, settings=IMPATIENT) as shadow, pytest.raises(ShadowError):
        shadow.track()

    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_file_that_was_removed_is_made_again(worktree: Path, store: Path) -> None:
    (store / "lock").unlink()

    assert track(worktree)
    assert_sound_store(store)


def test_a_waiter_notices_that_the_locked_file_lost_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not hold a file that nobody else will ever lock."""
    path = tmp_path / "lock"
    with held_by_another_process(path) as owner:

        def replace() -> None:
            path.unlink()
            owner.kill()

        when_waiting(monkeypatch, replace)
        with Lock(str(path), 10):
            with pytest.raises(Locked):
                Lock(str(path), 0).__enter__()

            assert path.exists()


@pytest.fixture
def directories_cannot_be_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a file system that can lock only files."""

    def try_lock_file(fd: int) -> bool:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, "no lock for a directory")
        return try_lock(fd)

    monkeypatch.setattr(lock, "try_lock", try_lock_file)


VISITS = pytest.mark.parametrize(
    ("size", "when"),
    [(10, "rename"), (300_000, "fsync"), (300_000, "rename"), (300_000, "fsync directory")],
    ids=["small pack recorded", "large pack written", "large pack announced", "large pack named"],
)


@VISITS
def test_a_lock_file_removed_while_held_lets_nobody_in(
    worktree: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, when: str
) -> None:
    """The directory of the store is locked as well."""
    visit = track_without_lock_file(worktree, store, tmp_path / "scratch", monkeypatch, size, when)

    assert isinstance(visit, Raised)
    assert visit.names[0] == "Locked"


# Not strict: both packs get the same name only if both snapshots end within one second.
@VISITS
def test_a_lock_file_removed_while_held_spoils_nothing(
    worktree: Path,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    directories_cannot_be_locked: None,
    size: int,
    when: str,
) -> None:
    """Two processes then write at once. Each succeeds or fails, and no record names a missing object."""
    visit = track_without_lock_file(worktree, store, tmp_path / "scratch", monkeypatch, size, when)

    assert visit == track(worktree)


def track_without_lock_file(
    worktree: Path, store: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, size: int, when: str
) -> object:
    """Take a snapshot while the lock file is removed and another process comes; return that one's result."""
    make_tree(worktree, {"a": "2", "sub": {"b": os.urandom(size)}})
    expected = git_tree(worktree, scratch)
    visits: list[object] = []

    def intrude(act: str, path: str) -> None:
        if act == when and not visits:
            (store / "lock").unlink()
            visits.append(None)
            visits[0] = in_child(lambda: track_impatiently(worktree)).result

    with monkeypatch.context() as patched:
        patched.setattr(disk, "before_write", intrude)
        try:
            assert track(worktree) == expected
        except ShadowError:
            assert visits == [expected]

    assert_records_whole(store)
    assert track(worktree) == expected
    assert_sound_store(store)
    assert_no_leftovers(store)
    return visits[0]


def test_a_store_that_goes_while_it_is_waited_for_is_told_of(
    worktree: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_by_another_process(store / "lock") as owner:

        def take_away() -> None:
            store.rename(tmp_path / "away")
            owner.kill()

        when_waiting(monkeypatch, take_away)

        with pytest.raises(ShadowError):
            track(worktree)
    assert not store.exists()


def test_the_lock_does_not_outlive_its_owner_in_a_forked_child(worktree: Path, store: Path) -> None:
    """A host may fork a worker in one thread while another thread takes a snapshot."""
    reader, writer = os.pipe()
    children: list[Child] = []

    def linger() -> None:
        os.close(writer)
        os.read(reader, 1)

    def fork(done: int, total: int) -> None:
        children.append(Child(linger))

    make_tree(worktree, {"a": "changed"})
    with Shadow(worktree, settings=SETTINGS) as shadow:
        shadow.take_snapshot(progress=fork)
    try:
        with Lock(str(store / "lock"), 0):
            assert len(children) == 1
    finally:
        os.close(writer)
        os.close(reader)
        for child in children:
            child.wait().value()


# Many processes


def assert_settled(stores: Path) -> Path:
    """Check that there is one sound store with nothing left over, and return it."""
    (store,) = stores.iterdir()
    assert_records_whole(store)
    assert_no_leftovers(store)
    assert_sound_store(store)
    return store


def all_at_once(scenarios: list[Callable[[], object]]) -> list[object]:
    """Run scenarios in processes that start at the same time; return their results."""
    gate_reader, gate_writer = os.pipe()

    def at_the_gate(scenario: Callable[[], object]) -> Callable[[], object]:
        def wait_and_run() -> object:
            os.close(gate_writer)
            os.read(gate_reader, 1)
            return scenario()

        return wait_and_run

    children = [Child(at_the_gate(scenario)) for scenario in scenarios]
    os.close(gate_reader)
    os.close(gate_writer)
    return [child.wait().value() for child in children]


@pytest.mark.parametrize("attempt", range(3))
def test_eight_processes_wrap_one_worktree_at_once(worktree: Path, tmp_path: Path, attempt: int) -> None:
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}, "many": {f"{n}": f"{n}" for n in range(50)}})

    trees = all_at_once([lambda: track(worktree)] * PROCESSES)

    assert set(trees) == {git_tree(worktree, tmp_path / "scratch")}
    assert len(recorded_trees(assert_settled(tmp_path / "stores"))) == 1


def test_eight_processes_snapshot_one_worktree_at_once_again_and_again(
    worktree: Path, tmp_path: Path
) -> None:
    for number in range(4):
        make_tree(worktree, {"a": f"{number}", f"d{number}": {"b": "2"}})

        trees = all_at_once([lambda: track(worktree)] * PROCESSES)

        assert set(trees) == {git_tree(worktree, tmp_path / f"scratch{number}")}
    assert len(recorded_trees(assert_settled(tmp_path / "stores"))) == 4


def test_eight_processes_that_change_the_worktree_meanwhile_end_in_one_truth(
    worktree: Path, tmp_path: Path
) -> None:
    track(worktree)

    def work(number: int) -> None:
        with Shadow(worktree, settings=SETTINGS) as shadow:
            for turn in range(5):
                make_tree(worktree, {f"d{number}": {"a": f"{number} {turn}", f"b{turn}": "x"}})
                shadow.track()
                shadow.status()

    all_at_once([partial(work, number) for number in range(PROCESSES)])

    assert track(worktree) == git_tree(worktree, tmp_path / "scratch")
    assert_settled(tmp_path / "stores")


def test_readers_and_writers_at_once_do_not_disturb_each_other(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": "0", "sub": {"b": "2"}})
    first = track(worktree)

    def write() -> None:
        for number in range(10):
            make_tree(worktree, {"a": f"{os.getpid()} {number}"})
            track(worktree)

    def read() -> None:
        for _ in range(10):
            with Shadow(worktree, settings=SETTINGS) as shadow:
                shadow.status()
                assert [file.path for file in shadow.patch(first).files] in ([], ["a"])
                shadow.diff(first)

    all_at_once([write, write, read, read, read, read])

    assert track(worktree) == git_tree(worktree, tmp_path / "scratch")
    assert_settled(tmp_path / "stores")


def test_eight_commands_at_once_say_the_same(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    commands = [
        subprocess.Popen(
            [*COMMAND, "track", "--set", "min_free=0"],
            cwd=worktree,
            env=surroundings(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    ends = [(*command.communicate(), command.returncode) for command in commands]

    assert set(ends) == {(git_tree(worktree, tmp_path / "scratch") + "\n", "", 0)}


def test_threads_share_one_shadow(worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"a": "1"})
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(5):
                make_tree(worktree, {f"d{number}": {"a": f"{turn}"}})
                tree = shadow.track()
                shadow.patch(tree)
                shadow.status()
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    with Shadow(worktree, settings=SETTINGS) as shadow:
        run_threads([partial(work, number) for number in range(PROCESSES)])

        assert errors == []
        assert shadow.track() == git_tree(worktree, tmp_path / "scratch")
    assert_records_whole(shadow.store)
    assert_sound_store(shadow.store)


def test_threads_wrap_one_worktree_at_once_with_shadows_of_their_own(worktree: Path, tmp_path: Path) -> None:
    """The lock must also work within one process: it belongs to an open file, not to a process."""
    make_tree(worktree, {"a": "1"})
    ends: list[object] = []

    def wrap() -> None:
        try:
            ends.append(track(worktree))
        except Exception as error:  # noqa: BLE001 - told below
            ends.append(error)

    run_threads([wrap] * PROCESSES)

    assert ends == [git_tree(worktree, tmp_path / "scratch")] * PROCESSES
    assert_no_leftovers(Shadow(worktree).store)
    assert_sound_store(Shadow(worktree).store)


def run_threads(targets: list[Callable[[], object]]) -> None:
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# Races of creating and removing a store, step by step


def test_who_comes_too_late_to_make_a_store_leaves_the_temporaries_of_who_writes_to_it(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store exists already when this process wants to create it, and another one is writing to it."""
    make_tree(worktree, {"a": "1"})
    store = Shadow(worktree).store
    visits: list[str] = []

    def come_too_late(act: str, path: str) -> None:
        if act == "rename" and path.startswith(str(store) + os.sep) and path.endswith(".idx"):
            visits.append(path)
            stores.create(str(store), str(worktree), lambda layout: None)

    monkeypatch.setattr(disk, "before_write", come_too_late)

    assert track(worktree) == git_tree(worktree, tmp_path / "scratch")
    assert len(visits) == 1
    assert_sound_store(store)


def test_a_first_snapshot_that_fails_does_not_remove_what_another_process_recorded(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store that was created in vain is removed, but somebody else may need it by then."""
    make_tree(worktree, {"a": "1"})
    others: list[object] = []

    def interfere(act: str, path: str) -> None:
        if act == "commit":
            raise disk.as_store_error(path, OSError(5, "Input/output error"))
        if act == "remove tree" and not others:
            others.append(None)
            monkeypatch.setattr(disk, "before_write", lambda act, path: None)
            others[0] = in_child(lambda: track_impatiently(worktree)).result

    monkeypatch.setattr(disk, "before_write", interfere)
    with pytest.raises(ShadowError):
        track(worktree)

    recorded = [] if not others or isinstance(others[0], Raised) else others
    store = Shadow(worktree).store
    assert [record.tree.hex() for record in recorded_trees(store)] == recorded
    assert_records_whole(store)


def track_impatiently(worktree: Path) -> str:
    with Shadow(worktree, settings=VERY_IMPATIENT) as shadow:
        return shadow.track()


def test_a_store_that_is_gone_is_not_made_again_by_a_reader(worktree: Path) -> None:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        assert shadow.status().head is None
        assert not shadow.store.parent.exists()


def test_the_writes_of_the_lock_itself_pass_the_fault_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "lock")
    acts: list[tuple[str, str]] = []
    monkeypatch.setattr(disk, "before_write", lambda act, path: acts.append((act, path)))

    with Lock(path, 0):
        pass

    assert acts == [("create", path), ("sign", path)]
