"""Reading ahead: what changed is taken before anybody asks, and recorded only if nothing happened since."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import (
    Conflict,
    OutOfSpace,
    Shadow,
    ahead,
    attendant,
    capture,
    faultpoint,
    packwriter,
    snapshot,
)
from shadowtree.gitformat import blob_id
from tests.daemons import wait_until
from tests.faults import in_child
from tests.processes import surroundings
from tests.referee import assert_sound_store, git, init
from tests.test_watch import STORIES, Story, edit_in_place
from tests.trees import Tree, make_tree
from tests.watching import BASE, SETTINGS, Taken, Watched, attendants, open_descriptors, take_cold, view

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's"),
    # Rules that are young are read again by each snapshot, and so is what was read ahead.
    pytest.mark.usefixtures("aged"),
]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch)


@pytest.fixture
def still(watched: Watched) -> Watched:
    """A watched worktree that is read ahead only when a test says so."""
    watched.read_nothing_ahead()
    return watched


def compare(watched: Watched) -> None:
    """Take a snapshot, and compare it with that of somebody who knows nothing."""
    warm, store = watched.shadow.take_snapshot(), watched.top.parent / "cold"
    cold = take_cold(watched.top, store)
    shutil.rmtree(store)
    assert view(warm) == view(cold)


# What is recorded


def test_what_was_read_ahead_is_recorded_as_it_is(still: Watched, taken: Taken) -> None:
    make_tree(still.top, {"src": {"m.py": "changed", "new.py": "new"}, "c": {"d": {"y": "changed"}}})
    (still.top / "src/n.py").unlink()

    assert still.shadow.read_ahead()
    compare(still)

    assert taken.used == 1
    still.check_without_rescan()


def test_a_snapshot_then_reads_no_file(still: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()

    with monkeypatch.context() as patch:
        patch.setattr(capture, "read_files", _refuse)
        patch.setattr(capture, "build_trees", _refuse)
        still.shadow.track()

    compare(still)


def _refuse(*arguments: object) -> object:
    raise AssertionError(arguments)


def test_a_message_and_its_undo(still: Watched, taken: Taken) -> None:
    shadow = still.shadow
    shadow.begin("m1", text="edit")
    make_tree(still.top, {"src": {"m.py": "changed"}, "c": {"new": "new"}})
    assert shadow.read_ahead()
    message = shadow.end("m1")

    assert [changed.path for changed in message.patch.files] == ["c/new", "src/m.py"]
    shadow.undo()
    assert (still.top / "src/m.py").read_text() == "m"
    assert not (still.top / "c/new").exists()
    assert taken.used == 1
    compare(still)


def test_an_edit_that_was_read_ahead_is_a_conflict_for_an_undo(still: Watched, taken: Taken) -> None:
    shadow = still.shadow
    shadow.begin("m1")
    (still.top / "src/m.py").write_text("the agent's")
    shadow.end("m1")
    (still.top / "src/m.py").write_text("the user's")
    assert shadow.read_ahead()

    with pytest.raises(Conflict):
        shadow.undo()

    assert taken.used == 1
    assert (still.top / "src/m.py").read_text() == "the user's"
    compare(still)


def test_it_is_read_once_and_again_when_more_was_told(still: Watched, taken: Taken) -> None:
    for number in range(3):
        (still.top / "src/m.py").write_text(f"{number}")
        assert still.shadow.read_ahead()
        assert still.shadow.read_ahead()

    compare(still)
    assert taken.used == 1


def test_a_look_in_between_takes_nothing_away(still: Watched, taken: Taken) -> None:
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()
    still.shadow.drain()
    still.shadow.look_over(10)

    assert [str(path) for path in still.shadow.status().outside] != []
    assert [changed.path for changed in still.shadow.diff()] == ["src/m.py"]
    compare(still)
    assert taken.used == 1


@pytest.mark.parametrize("is_much", [False, True], ids=["little", "much"])
def test_nothing_is_written_ahead(is_much: bool, still: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a temporary; what cannot be held in memory is left to the snapshot."""
    (still.top / "src/m.py").write_bytes(os.urandom(3000))
    with monkeypatch.context() as patch:
        patch.setattr(faultpoint, "before_write", _refuse)
        patch.setattr(packwriter, "_BUFFER_SIZE", 2000 if is_much else 5000)
        assert still.shadow.read_ahead() != is_much

    compare(still)


# What happens in between

Event = Callable[[Watched], object]
EVENTS: dict[str, Event] = {
    "the same file": lambda it: (it.top / "src/m.py").write_text("once more"),
    "the same file, as it was before": lambda it: (it.top / "src/m.py").write_text("m"),
    "another file": lambda it: (it.top / "a.txt").write_text("another"),
    "a name that comes": lambda it: (it.top / "src/new.py").write_text("new"),
    "a name that goes": lambda it: (it.top / "src/m.py").unlink(),
    "a directory": lambda it: make_tree(it.top / "fresh", {"f": "f"}),
    "bits": lambda it: (it.top / "src/m.py").chmod(0o755),
    "a directory that moves": lambda it: (it.top / "src").rename(it.top / "crs"),
    "rules": lambda it: (it.top / ".gitignore").write_text("m.py\n"),
    "own rules": lambda it: (it.top / ".shadowtreeignore").write_text("src/\n"),
    "a repository": lambda it: init(it.top / "src"),
}


@pytest.mark.parametrize("happens", EVENTS.values(), ids=EVENTS)
def test_whatever_happens_in_between_counts(happens: Event, still: Watched, taken: Taken) -> None:
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()
    happens(still)

    compare(still)
    assert taken.dropped == 1
    assert taken.used == 0
    compare(still)


@pytest.mark.parametrize(
    "home",
    [{"git": {"ignore": "m.py\n"}}, {"shadowtree": {"config.toml": 'heavy_dirs = ["src"]\n'}}],
    ids=["rules", "settings"],
)
def test_what_changes_outside_of_the_worktree(
    home: Tree, tmp_path: Path, worktree: Path, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody watches there: each snapshot looks at it."""
    make_tree(worktree, BASE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    watched = Watched(worktree, tmp_path)
    with watched.shadow:
        watched.settle()
        watched.read_nothing_ahead()
        (worktree / "src/m.py").write_text("changed")
        assert watched.shadow.read_ahead()
        make_tree(tmp_path / "home", home)
        compare(watched)

    assert taken.dropped == 1


def test_another_process_that_records(still: Watched, taken: Taken) -> None:
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()
    in_child(lambda: take_cold(still.top, still.shadow.store)).value()

    compare(still)
    assert taken.used == 0


IDLE_ACTS: dict[str, Callable[[Shadow], object]] = {
    "begin": lambda shadow: shadow.begin("m1"),
    "pin": lambda shadow: shadow.pin("m1"),
    "tidy": lambda shadow: shadow.tidy(0),
}


@pytest.mark.parametrize("act", IDLE_ACTS.values(), ids=IDLE_ACTS)
def test_an_act_after_another_process_that_records_nothing_itself(
    act: Callable[[Shadow], object], still: Watched, taken: Taken
) -> None:
    """It leaves the store at rest; but what was read ahead is from before the other one."""
    shadow = still.shadow
    shadow.begin("m1")
    (still.top / "src/m.py").write_text("changed")
    assert shadow.read_ahead()
    in_child(lambda: take_cold(still.top, shadow.store)).value()
    act(shadow)

    assert [changed.path for changed in shadow.end("m1").patch.files] == ["src/m.py"]
    assert taken.used == 0


def test_a_blob_that_is_swept_in_between_is_stored_again(still: Watched, taken: Taken) -> None:
    """A sweep of another process goes on between two acts of this one."""
    shadow, path = still.shadow, still.top / "src/m.py"
    for content in ("old", "new", "newer"):
        with shadow.message(content):
            path.write_text(content)
    shadow.forget(keep_last=1, gc=False)
    shadow.begin("m")
    path.write_text("old")
    assert shadow.read_ahead()
    in_child(lambda: Shadow(still.top, store=shadow.store, settings=SETTINGS).gc()).value()
    shadow.begin("m")
    shadow.end("m")

    assert taken.used == 0
    assert shadow.check(read_data=True).ok


def test_another_session_that_records(still: Watched, taken: Taken) -> None:
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()
    other = still.shadow.for_session("other")
    other.begin("m1")
    (still.top / "src/m.py").write_text("changed again")
    assert other.read_ahead()

    compare(still)
    assert taken.used == 2
    assert other.end("m1").patch.files[0].path == "src/m.py"


def test_gc_and_purge_in_between(still: Watched, taken: Taken) -> None:
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()
    still.shadow.gc()
    compare(still)
    (still.top / "src/m.py").write_text("secret")
    assert still.shadow.read_ahead()
    still.shadow.purge(still.top / "src/m.py")
    still.shadow.track()

    assert taken.used == 0
    blobs = git("--git-dir", still.shadow.store, "cat-file", "--batch-all-objects", "--batch-check")
    assert blob_id(b"secret").hex() not in blobs


@pytest.mark.parametrize("is_dirty", [False, True], ids=["first", "again"])
def test_a_mapping_that_writes_after_it_was_read(is_dirty: bool, still: Watched, taken: Taken) -> None:
    """Nobody tells of it; and only the first write to a page stamps the file."""
    path = still.top / "src/m.py"
    path.write_text("changed")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        if is_dirty:
            mapping[:1] = b"C"
        assert still.shadow.read_ahead()
        mapping[1:3] = b"HA"
        compare(still)
    assert taken.used == 0


def test_warnings_are_those_of_now(still: Watched, taken: Taken) -> None:
    init(still.top)
    still.settle()
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()
    (still.top / ".git/index").write_bytes(b"damaged")
    warnings = still.shadow.take_snapshot().warnings

    assert any("index" in warning for warning in warnings)
    assert taken.used == 0


def test_a_record_in_the_midst_of_reading(
    still: Watched, taken: Taken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same thread: a signal's handler, or a finalizer. What is read then is from before it."""
    real = snapshot.read_files

    def record_first(*arguments: object) -> None:
        monkeypatch.setattr(capture, "read_files", real)
        (still.top / "a.txt").write_text("meanwhile")
        still.shadow.track()
        real(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(capture, "read_files", record_first)
    (still.top / "src/m.py").write_text("changed")

    assert not still.shadow.read_ahead()
    compare(still)
    assert taken.used == 0
    compare(still)


def test_a_loose_object_that_real_git_prunes_in_between(still: Watched, tmp_path: Path) -> None:
    """It needs no lock for that, and no pack changes."""
    (tmp_path / "loose").write_text("loose")
    blob = git("--git-dir", still.shadow.store, "hash-object", "-w", tmp_path / "loose").strip()
    still.shadow.track()
    (still.top / "src/m.py").write_text("loose")

    assert not still.shadow.read_ahead()
    git("--git-dir", still.shadow.store, "prune", "--expire=now")
    compare(still)
    assert git("--git-dir", still.shadow.store, "cat-file", "-t", blob).strip() == "blob"


def test_room_is_needed_for_the_same_with_and_without(still: Watched, taken: Taken) -> None:
    """What is ignored needs none; and what is read is not weighed as it is stored."""
    full = Shadow(still.top, store=still.shadow.store, watch=True, settings={"min_free": 0})
    with full:
        full.track()
        full.fileno()
        (still.top / "b.log").write_text("ignored all the same")
        assert full.read_ahead()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(capture, "free_bytes", lambda place: -1)
            full.track()
        (still.top / "src/m.py").write_text("text " * 2000)
        assert full.read_ahead()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(capture, "free_bytes", lambda place: 9000)
            with pytest.raises(OutOfSpace):
                full.track()
        full.track()

    assert taken.used == 2
    compare(still)


def test_a_burst_that_records_nothing_costs_no_watch(still: Watched) -> None:
    shadow, before = still.shadow, still.rescans()
    opened = shadow._gate._opened
    assert opened is not None
    opened.cache.forget()
    (still.top / "src/m.py").write_text("changed")

    assert not shadow.read_ahead()
    assert still.rescans() == before
    assert still.watching().is_active
    compare(still)


def test_files_that_cannot_be_read_once_more(still: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()

    def fail(*arguments: object) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(ahead, "read_file", fail)
        compare(still)


def test_what_is_skipped_elsewhere_does_not_matter(still: Watched, taken: Taken) -> None:
    os.mkfifo(still.top / "c/d/pipe")
    assert still.shadow.take_snapshot().skipped
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()
    compare(still)
    (still.top / "src/m.py").write_text("changed again")
    assert still.shadow.read_ahead()
    (still.top / "c/d/pipe").unlink()
    compare(still)

    assert taken.used == 1


# What is not read ahead

REFUSED: dict[str, Event] = {
    "nothing": lambda it: None,
    "a file with another name": lambda it: _write_linked(it.top),
    "a directory that came": lambda it: make_tree(it.top / "fresh", {"f": "f"}),
    "a file that cannot be read": lambda it: os.mkfifo(it.top / "src/pipe"),
    "much": lambda it: [(it.top / f"src/{number}").write_text("x") for number in range(300)],
    "large": lambda it: (it.top / "src/large").write_bytes(os.urandom(3 << 20)),
}


def _write_linked(top: Path) -> None:
    (top.parent / "outside").hardlink_to(top / "src/m.py")
    (top / "src/m.py").write_text("changed")


@pytest.mark.parametrize("happens", REFUSED.values(), ids=REFUSED)
def test_what_is_left_to_the_snapshot(happens: Event, still: Watched, taken: Taken) -> None:
    happens(still)

    assert not still.shadow.read_ahead()
    compare(still)
    assert taken.used == 0


def test_a_file_that_is_being_written(still: Watched) -> None:
    with (still.top / "src/m.py").open("w") as file:
        file.write("begun")
        file.flush()
        assert not still.shadow.read_ahead()
    assert still.shadow.read_ahead()
    compare(still)


def test_a_file_that_is_held_open_while_another_one_is_read(still: Watched, taken: Taken) -> None:
    """Of what a mapping writes to it nothing is told, so each snapshot looks at it."""
    with (still.top / "src/log").open("w+b") as file:
        file.write(b"begun")
        file.flush()
        still.settle()
        (still.top / "c/x").write_text("changed")
        assert still.shadow.read_ahead()
        compare(still)
        assert taken.used == 1
        (still.top / "c/x").write_text("changed again")
        assert still.shadow.read_ahead()
        with mmap.mmap(file.fileno(), 0) as mapping:
            mapping[:1] = b"B"
            compare(still)
        assert taken.used == 1


def test_the_thread_waits_for_nobody(still: Watched) -> None:
    (still.top / "src/m.py").write_text("changed")
    attendant = still.shadow._attendant
    assert attendant is not None
    with still.shadow._mutex:
        thread = threading.Thread(target=attendant.read_unless_used)
        thread.start()
        thread.join()
        assert not is_ready(still.shadow)

    attendant.read_unless_used()
    assert is_ready(still.shadow)


def test_a_shadow_that_does_not_watch_has_nothing_to_read(tmp_path: Path, worktree: Path) -> None:
    make_tree(worktree, BASE)
    with Shadow(worktree, store=tmp_path / "store", settings=SETTINGS) as shadow:
        shadow.track()
        assert not shadow.read_ahead()


# Stories


@pytest.mark.parametrize("told", STORIES, ids=lambda told: told.__name__)
def test_a_story_that_is_read_ahead(told: Story, still: Watched) -> None:
    """Before each snapshot; what happens between two chapters counts in both of them."""
    for _ in told(still.top):
        still.shadow.read_ahead()
        compare(still)


def test_some_stories_are_recorded_as_they_were_read(still: Watched, taken: Taken) -> None:
    """Or else the others would prove nothing."""
    for _ in edit_in_place(still.top):
        assert still.shadow.read_ahead()
        compare(still)

    assert taken.used > 1


@pytest.mark.parametrize("told", STORIES, ids=lambda told: told.__name__)
def test_a_story_that_is_read_ahead_in_the_midst(told: Story, still: Watched) -> None:
    """A chapter is read ahead, and recorded only when another one has been told."""
    for number, _ in enumerate(told(still.top)):
        if number % 2:
            compare(still)
        still.shadow.read_ahead()
    compare(still)


# The thread


def is_ready(shadow: Shadow) -> bool:
    """Tell whether something was read ahead."""
    watch = shadow._gate.watch
    return watch is not None and watch.has_ahead


def test_a_thread_reads_ahead_when_it_is_quiet(watched: Watched, taken: Taken) -> None:
    for number in range(3):
        (watched.top / "src/m.py").write_text(f"{number}")
        wait_until(lambda: is_ready(watched.shadow))
        compare(watched)

    assert taken.used == 3
    assert len(attendants()) == 1


def test_the_thread_goes_on_when_everything_was_looked_at_anew(watched: Watched, taken: Taken) -> None:
    watched.top.rename(watched.top.parent / "away")
    (watched.top.parent / "away").rename(watched.top)
    watched.shadow.track()
    (watched.top / "src/m.py").write_text("changed")
    wait_until(lambda: is_ready(watched.shadow))
    compare(watched)

    assert taken.used == 1


def test_close_ends_the_thread_and_the_next_record_begins_anew(watched: Watched) -> None:
    for number in range(3):
        assert len(attendants()) == 1
        watched.shadow.close()
        assert attendants() == []
        watched.shadow.track()
        (watched.top / "src/m.py").write_text(f"{number}")
        wait_until(lambda: is_ready(watched.shadow))


def test_a_shadow_that_nobody_closes_leaves_nothing(tmp_path: Path, worktree: Path) -> None:
    make_tree(worktree, BASE)
    before = open_descriptors()
    shadow = Shadow(worktree, store=tmp_path / "store", watch=True, settings=SETTINGS)
    shadow.track()
    assert len(attendants()) == 1
    gone = weakref.ref(shadow)
    del shadow
    gc.collect()

    assert gone() is None
    wait_until(lambda: attendants() == [])
    wait_until(lambda: open_descriptors() == before)
    assert_sound_store(tmp_path / "store")


def test_all_sessions_have_one_thread(watched: Watched) -> None:
    other = watched.shadow.for_session("other")
    other.track()
    assert len(attendants()) == 1
    other.close()
    assert attendants() == []


def test_destroy_ends_the_thread(watched: Watched) -> None:
    watched.shadow.destroy()
    assert attendants() == []


def test_who_has_a_loop_of_his_own_has_no_thread(watched: Watched) -> None:
    assert watched.shadow.fileno() is not None
    wait_until(lambda: attendants() == [])
    watched.shadow.close()
    watched.shadow.track()
    assert attendants() == []


def test_a_change_is_told_once_whoever_read_it(watched: Watched) -> None:
    watched.shadow.drain()
    (watched.top / "src/m.py").write_text("changed")
    wait_until(lambda: is_ready(watched.shadow))

    assert watched.shadow.drain()
    assert not watched.shadow.drain()


@pytest.mark.parametrize("what", ["Thread.start", "socketpair", "select.epoll"])
def test_a_record_counts_though_no_thread_can_be_had(
    what: str, tmp_path: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> object:
        raise (RuntimeError if what == "Thread.start" else OSError)(arguments)

    monkeypatch.setattr(f"shadowtree.attendant.{what}", fail)
    make_tree(worktree, BASE)
    before = open_descriptors()
    with Shadow(worktree, store=tmp_path / "store", watch=True, settings=SETTINGS) as shadow:
        shadow.snapshot("m1")
        assert [message.id for message in shadow.messages()] == ["m1"]

    assert open_descriptors() == before


def test_a_record_that_ends_while_the_shadow_is_closed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Close waits for it, and ends what it began."""
    is_inside, may_go = threading.Event(), threading.Event()
    real = snapshot.settle

    def slow(*arguments: object) -> None:
        is_inside.set()
        may_go.wait(60)
        real(*arguments)  # type: ignore[arg-type]  # as they came

    watched.shadow.close()
    monkeypatch.setattr(capture, "settle", slow)
    recording = threading.Thread(target=watched.shadow.track)
    recording.start()
    assert is_inside.wait(60)
    closing = threading.Thread(target=watched.shadow.close)
    closing.start()
    may_go.set()
    recording.join()
    closing.join()

    assert attendants() == []


def test_nothing_piles_up_when_a_shadow_is_closed_and_used_again(watched: Watched) -> None:
    for _ in range(5):
        watched.shadow.close()
        watched.shadow.track()
    gc.collect()

    kept = [it for it in gc.get_objects() if isinstance(it, attendant._Service)]
    assert len(kept) == 1


def test_a_bug_of_the_thread_is_no_bug_of_the_record(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_failed = threading.Event()

    def fail(*arguments: object) -> bool:
        has_failed.set()
        raise ValueError(arguments)

    monkeypatch.setattr("shadowtree.attendant.read_ahead", fail)
    (watched.top / "src/m.py").write_text("changed")
    assert has_failed.wait(60)
    wait_until(lambda: attendants() == [])

    compare(watched)


def test_a_forked_child_while_the_thread_reads(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that the thread held at the fork would be held in the child for ever."""
    is_inside, real = threading.Event(), snapshot.read_files

    def slow(*arguments: object) -> None:
        if threading.current_thread() in attendants():
            is_inside.set()
            threading.Event().wait(0.2)
        real(*arguments)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(capture, "read_files", slow)
    (watched.top / "src/m.py").write_text("changed")
    assert is_inside.wait(60)
    tree = in_child(lambda: (watched.shadow.track(), len(attendants()))).value()

    assert tree == (watched.shadow.track(), 1)
    compare(watched)


# Processes that fork, close what is not theirs, and end

HOST = """
import os, sys, threading, time
from pathlib import Path
from shadowtree import Shadow, capture

place = Path(sys.argv[1])
is_inside = threading.Event()
real = capture.read_files

def slow(*arguments):
    if threading.current_thread().name == "shadowtree attendant":
        is_inside.set()
        time.sleep(0.5)
    real(*arguments)

capture.read_files = slow
top = place / "top"
(top / "src").mkdir(parents=True)
(top / "src/m.py").write_text("m")
old = time.time() - 100
os.utime(top / "src/m.py", (old, old))
shadow = Shadow(top, store=place / "store", watch=True, settings={"min_free": 0})
shadow.track()

def change():
    (top / "src/m.py").write_text("changed")
    assert is_inside.wait(60)
"""


def run_host(place: Path, code: str) -> str:
    """Run a host whose attendant reads slowly; give what it prints, which is nothing but what it says."""
    done = subprocess.run(
        # From 3.12 on Python warns of a fork where there are threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", HOST + textwrap.dedent(code), place],
        env=surroundings(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_a_daemon_that_closes_all_files_finds_nothing_of_ours_in_its_own(tmp_path: Path) -> None:
    said = run_host(
        tmp_path,
        """
        child = os.fork()
        if child == 0:
            os.closerange(3, 256)
            logs = [open(place / f"log{number}", "w+b", buffering=0) for number in range(20)]
            for log in logs:
                log.write(b"line")
            sys.exit(0)
        os.waitpid(child, 0)
        print({(place / f"log{number}").read_bytes() for number in range(20)})
        """,
    )
    assert said == "{b'line'}\n"


def test_a_forked_child_has_nothing_of_the_thread(tmp_path: Path) -> None:
    said = run_host(
        tmp_path,
        """
        def count():
            return sum(is_of_the_thread(fd) for fd in range(3, 64))

        def is_of_the_thread(fd):
            try:
                return os.readlink(f"/proc/self/fd/{fd}").startswith(("socket:", "anon_inode:[eventpoll]"))
            except OSError:
                return False

        before = count()
        child = os.fork()
        if child == 0:
            os._exit(count())
        print(before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    assert said == "3 0\n"


def test_several_threads_fork_while_the_thread_reads(tmp_path: Path) -> None:
    said = run_host(
        tmp_path,
        """
        ended = []

        def fork():
            child = os.fork()
            if child == 0:
                os._exit(0 if shadow.track() else 1)
            ended.append(os.waitpid(child, 0)[1])

        change()
        threads = [threading.Thread(target=fork) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(ended)
        """,
    )
    assert said == "[0, 0, 0, 0]\n"


def test_a_signal_that_forks_while_somebody_reads(tmp_path: Path) -> None:
    said = run_host(
        tmp_path,
        """
        import signal

        def fork(number, frame):
            child = os.fork()
            if child == 0:
                os._exit(0)
            print(os.waitpid(child, 0)[1])

        def alarm(*arguments):
            signal.raise_signal(signal.SIGUSR1)
            real(*arguments)

        signal.signal(signal.SIGUSR1, fork)
        capture.read_files = alarm
        shadow.fileno()
        (top / "src/m.py").write_text("changed")
        print(shadow.read_ahead())
        """,
    )
    assert said == "0\nTrue\n"


@pytest.mark.parametrize("is_late", [False, True], ids=["then", "at exit"])
def test_a_host_that_ends_while_the_thread_reads(is_late: bool, tmp_path: Path) -> None:
    """Whoever closes a shadow as late as that must not wait for a thread that is frozen."""
    said = run_host(
        tmp_path,
        f"""
        import atexit

        class Host:
            def __del__(self, close=shadow.close):
                close()
                print("closed", flush=True)

        host = Host()
        if {is_late}:
            atexit.register(shadow.track)
        change()
        capture.read_files = real  # or nothing here would ever go
        """,
    )
    assert said == "closed\n"


def test_ctrl_c_while_the_thread_begins(tmp_path: Path) -> None:
    said = run_host(
        tmp_path,
        """
        real_wait = threading.Event.wait

        def interrupt(event, timeout=None):
            found = real_wait(event, timeout)
            if sys._getframe(1).f_code.co_name == "start":
                threading.Event.wait = real_wait
                raise KeyboardInterrupt
            return found

        shadow.close()
        threading.Event.wait = interrupt
        try:
            shadow.track()
        except KeyboardInterrupt:
            print("interrupted")
        shadow.track()
        shadow.close()
        deadline = time.monotonic() + 30
        while threading.active_count() > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        print(threading.active_count())
        """,
    )
    assert said == "interrupted\n1\n"


def test_a_child_that_keeps_a_queue_which_is_closed_here(tmp_path: Path) -> None:
    """What is told there nobody reads, and the thread must not wake up for it again and again."""
    said = run_host(
        tmp_path,
        """
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        with Shadow(top, store=place / "store", settings={"min_free": 0}) as other:
            other.gc()
        shadow.track()
        change()
        time.sleep(1)
        begun = time.process_time()
        time.sleep(1)
        print(time.process_time() - begun < 0.3)
        os.kill(child, 9)
        """,
    )
    assert said == "True\n"
