"""Reading ahead: what changed is taken before anybody asks, and recorded only if nothing happened since."""

from __future__ import annotations

import gc
import mmap
import os
import shutil
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import Conflict, Shadow, capture, snapshot
from shadowtree.ahead import Ahead
from shadowtree.gitformat import blob_id
from shadowtree.watch import Watch
from tests.daemons import wait_until
from tests.faults import in_child
from tests.referee import assert_sound_store, git, init
from tests.test_watch import STORIES, Story
from tests.trees import Tree, make_tree
from tests.watching import BASE, SETTINGS, Watched, open_descriptors, take_cold, view

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's"),
    # Rules that are young are read again by each snapshot, and so is what was read ahead.
    pytest.mark.usefixtures("aged"),
]


class Taken:
    """Counts how often what was read ahead was recorded, and how often it was thrown away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.used = 0
        self.dropped = 0
        real = Watch.take_ahead

        def take_ahead(watch: Watch, *arguments: object) -> Ahead | None:
            ahead = real(watch, *arguments)  # type: ignore[arg-type]  # as they came
            self.used += ahead is not None
            self.dropped += ahead is None
            return ahead

        monkeypatch.setattr(Watch, "take_ahead", take_ahead)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Taken:
    return Taken(monkeypatch)


@pytest.fixture
def still(watched: Watched) -> Watched:
    """A watched worktree that is read ahead only when a test says so."""
    watched.shadow.fileno()
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


def test_nothing_is_stored_ahead(still: Watched) -> None:
    before = sorted(path.name for path in still.shadow.store.rglob("*") if path.suffix in (".pack", ".idx"))
    (still.top / "src/m.py").write_text("changed")
    assert still.shadow.read_ahead()

    now = sorted(path.name for path in still.shadow.store.rglob("*") if path.suffix in (".pack", ".idx"))
    assert now == before


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
        watched.shadow.fileno()
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


def test_a_mapping_that_writes_after_it_was_read(still: Watched, taken: Taken) -> None:
    """Nobody tells of it; but who looks at the stamp sees it."""
    path = still.top / "src/m.py"
    path.write_text("changed")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
        assert still.shadow.read_ahead()
        mapping[:3] = b"CHA"

        still.shadow.track()
        assert git("--git-dir", still.shadow.store, "show", f"{still.shadow.track()}:src/m.py") == "CHAnged"
    assert taken.used == 0


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


def test_nobody_is_waited_for(still: Watched) -> None:
    (still.top / "src/m.py").write_text("changed")
    found: list[bool] = []
    with still.shadow._mutex:
        thread = threading.Thread(target=lambda: found.append(still.shadow.read_ahead()))
        thread.start()
        thread.join()

    assert found == [False]
    assert still.shadow.read_ahead()


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
    return watch is not None and watch.ahead is not None


def attendants() -> list[threading.Thread]:
    """Give the threads that read ahead."""
    return [thread for thread in threading.enumerate() if thread.name == "shadowtree attendant"]


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


def test_another_session_keeps_the_thread(watched: Watched) -> None:
    other = watched.shadow.for_session("other")
    assert len(attendants()) == 1
    other.close()
    assert attendants() == []


def test_destroy_ends_the_thread(watched: Watched) -> None:
    watched.shadow.destroy()
    assert attendants() == []


def test_who_has_a_loop_of_his_own_has_no_thread(watched: Watched) -> None:
    assert watched.shadow.fileno() is not None
    assert attendants() == []
    watched.shadow.track()
    assert attendants() == []


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
