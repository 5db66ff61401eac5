"""Other programs at work during an act: nothing outside is touched, and no saved version is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shadowtree import Conflict, Shadow, ShadowError
from shadowtree.store.git_format import object_id
from shadowtree.store.objects import Objects
from shadowtree.system import disk
from shadowtree.system.syscalls import IS_LINUX, exchange, move
from tests.faults.act_trees import AFTER, BEFORE, TEXT
from tests.faults.acts import Act, position_of
from tests.faults.engine import EVERY
from tests.faults.scenes import SCENES
from tests.support.processes import Child, surroundings
from tests.support.referee import assert_sound_store
from tests.support.stores import SETTINGS, open_shadow
from tests.support.trees import Tree, assert_tree, executable, file, link, make_tree, plain, read_marks
from tests.support.turns import this_turn

if TYPE_CHECKING:
    from shadowtree.base.arguments import OnConflict

FEW_AND_MANY = [pytest.param(20, id="few"), pytest.param(5000, id="many", marks=pytest.mark.slow)]


def make_undo(worktree: Path, place: Path) -> Act:
    scene = SCENES["undo"](worktree, place)
    assert isinstance(scene, Act)
    return scene


@contextmanager
def beside(scenario: Callable[[], object]) -> Iterator[None]:
    """Run a process that repeats a scenario until it is killed."""

    def repeat() -> None:
        while True:
            scenario()

    child = Child(repeat)
    try:
        yield
    finally:
        child.kill()
        assert child.wait().signal == signal.SIGKILL, child.wait()


def go_back_and_forth(
    shadow: Shadow, times: int, on_conflict: OnConflict, is_enough: Callable[[int], object] = bool
) -> int:
    """Undo and redo in turn, whatever interferes; return how often that succeeded.

    On a busy machine hardly any act succeeds, so this continues until `is_enough` accepts the number.
    """
    done = 0
    for number in count():
        if number >= times and (is_enough(done) or number >= 50 * times):
            return done
        try:
            act = shadow.redo if shadow.status().undone else shadow.undo
            act(on_conflict=on_conflict)
        except ShadowError:
            continue
        done += 1
    raise AssertionError


# Links to the outside


@pytest.mark.parametrize("times", FEW_AND_MANY)
@pytest.mark.parametrize("on_conflict", ["abort", "overwrite"])
def test_a_directory_that_is_swapped_for_a_link_leads_nobody_outside(
    worktree: Path, tmp_path: Path, times: int, on_conflict: OnConflict
) -> None:
    """The link points to a directory with the very same names."""
    before: Tree = {"a.txt": "old", "gone.txt": "gone", "sub": {"b.txt": "old"}}
    after: Tree = {"a.txt": "new", "made.txt": "made", "sub": {"b.txt": "new", "c.txt": "c"}}
    outside = make_tree(tmp_path / "outside", {**before, **after, "user.txt": "outside"})
    make_tree(worktree, {"dir": {**before, "user.txt": "the user's"}, "other": link(str(outside))})
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"dir": after})
            (worktree / "dir" / "gone.txt").unlink()
        canaries = read_marks(outside)
        root_fd = os.open(worktree, os.O_RDONLY | os.O_DIRECTORY)

        def swap() -> None:
            with suppress(FileNotFoundError):
                exchange(root_fd, b"dir", root_fd, b"other")

        with beside(swap):
            done = go_back_and_forth(shadow, times, on_conflict)
        os.close(root_fd)
        shadow.track()

    assert read_marks(outside) == canaries
    assert done
    users = [path for path in worktree.rglob("user.txt") if not path.parent.is_symlink()]
    assert [path.read_text() for path in users] == ["the user's"]
    assert_sound_store(shadow.store)


def test_a_directory_that_is_out_of_reach_for_a_moment_is_taken_back_later(
    worktree: Path, tmp_path: Path
) -> None:
    """A file in it was exchanged, but the error says that nothing was changed, which must become true."""
    make_tree(worktree, {"dir": {"a.txt": "old"}, "zed": {"b.txt": "old"}, "other": link(str(tmp_path))})
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"dir": {"a.txt": "new"}, "zed": {"b.txt": "new"}})
        before = read_marks(worktree)

        def hide(act: str, path: str) -> None:
            if act == "exchange" and path == "zed/b.txt" and not (worktree / "dir").is_symlink():
                swap_names(worktree, "dir", "other")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk, "before_write", hide)
            with pytest.raises(ShadowError):
                shadow.undo()
        swap_names(worktree, "dir", "other")
        shadow.status()

        assert read_marks(worktree) == before


def swap_names(directory: Path, a: str, b: str) -> None:
    """Exchange two names in a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        exchange(fd, a.encode(), fd, b.encode())
    finally:
        os.close(fd)


# Editors

VERSION = "version {} of {}\n"


class Editor:
    """A program that saves one version after the other, and remembers what it overwrote.

    It notes in two files every version that it has saved, and every content that it replaced itself.
    """

    def __init__(self, path: Path, notes: Path) -> None:
        self._path = path
        self._aside = path.with_name(path.name + ".swp")
        notes.mkdir()
        self._saved = notes / "saved"
        self._replaced = notes / "replaced"
        self.forget()
        self._numbers = count()

    def _next(self) -> bytes:
        return VERSION.format(next(self._numbers), self._path.name).encode() * 20

    def _note(self, replaced: bytes, saved: bytes) -> None:
        self._note_replaced(replaced)
        with self._saved.open("ab") as file:
            file.write(saved + b"\0")

    def _note_replaced(self, replaced: bytes) -> None:
        with self._replaced.open("ab") as file:
            file.write(replaced + b"\0")

    def save_in_place(self) -> None:
        """Overwrite the file."""
        self._write(1)
        time.sleep(random.random() / 200)

    def save_and_hold(self) -> None:
        """Write to the file a few times, with pauses, and only then close it."""
        self._write(3)
        time.sleep(random.random() / 50)

    def _write(self, times: int) -> None:
        try:
            fd = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            return
        for _ in range(times):
            replaced, version = os.pread(fd, 1 << 20, 0), self._next()
            # Noted first, because the editor may be killed at any point.
            self._note_replaced(replaced)
            os.ftruncate(fd, 0)
            os.pwrite(fd, version, 0)
            self._note(replaced, version)
            time.sleep(random.random() / 500)
        os.close(fd)

    def save_by_renaming(self) -> None:
        """Write a new file and exchange it with the old one, so that the replaced content is known."""
        version = self._next()
        self._aside.write_bytes(version)
        fd = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        names = fd, os.fsencode(self._aside.name), fd, os.fsencode(self._path.name)
        try:
            try:
                exchange(*names)
                self._note(self._aside.read_bytes(), version)
                self._aside.unlink()
            except FileNotFoundError:
                with suppress(FileExistsError):
                    move(*names)
                    self._note(b"", version)
        finally:
            os.close(fd)
        time.sleep(random.random() / 200)

    def find_lost(self, store: Path) -> list[bytes]:
        """List the versions that are neither in the file nor in the store, nor replaced by the editor."""
        saved = self._saved.read_bytes().split(b"\0")[:-1]
        known = {*self._replaced.read_bytes().split(b"\0")}
        # If it was killed right after an exchange, the replaced content is aside, and not noted yet.
        known.update(path.read_bytes() for path in (self._path, self._aside) if path.exists())
        objects = Objects(str(store / "objects"))
        objects.refresh()
        try:
            left = [version for version in saved if version not in known]
            return [version for version in left if not _is_stored(objects, version)]
        finally:
            objects.close()

    def forget(self) -> None:
        """Forget all versions, because somebody else overwrites the file."""
        self._saved.write_bytes(b"")
        self._replaced.write_bytes(b"")

    @property
    def versions(self) -> int:
        """The number of saved versions."""
        return self._saved.read_bytes().count(b"\0")


def _is_stored(objects: Objects, content: bytes) -> bool:
    blob = object_id(b"blob", content)
    return objects.has(blob) and objects.read(b"blob", blob) == content


STYLES = [Editor.save_in_place, Editor.save_and_hold, Editor.save_by_renaming]


@pytest.mark.parametrize("times", FEW_AND_MANY)
@pytest.mark.parametrize("on_conflict", ["abort", "overwrite"])
@pytest.mark.parametrize("style", STYLES)
def test_no_version_that_an_editor_saves_is_lost(
    worktree: Path, tmp_path: Path, style: Callable[[Editor], None], on_conflict: OnConflict, times: int
) -> None:
    make_tree(worktree, {"sub": {"a.txt": "old", "b.txt": "old"}, "c.txt": "old"})
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"sub": {"a.txt": "new", "b.txt": "new"}, "c.txt": "new"})
        editor = Editor(worktree / "sub" / "a.txt", tmp_path / "notes")

        def is_enough(done: int) -> bool:
            # Once something is saved, acts that stop at conflicts cannot succeed.
            return editor.versions > 5 and (done > 0 or on_conflict == "abort")

        with beside(lambda: style(editor)):
            go_back_and_forth(shadow, times, on_conflict, is_enough)

        assert editor.versions > 5
        shadow.status()
        assert editor.find_lost(shadow.store) == []
        (worktree / "sub" / "a.txt.swp").unlink(missing_ok=True)
        assert sorted(path.name for path in worktree.rglob("*") if path.is_file()) in (
            ["a.txt", "b.txt", "c.txt"],
            ["b.txt", "c.txt"],
        )
    assert_sound_store(shadow.store)


@pytest.mark.parametrize("style", STYLES)
def test_an_editor_that_saves_at_any_moment_of_an_act_loses_nothing(
    worktree: Path, tmp_path: Path, style: Callable[[Editor], None]
) -> None:
    """The editor saves between any two writes, in turn, so hitting a window does not depend on chance."""
    make_tree(worktree, {"sub": {"a.txt": "old"}, "b.txt": "old"})
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"sub": {"a.txt": "new"}, "b.txt": "new"})
        editor = Editor(worktree / "sub" / "a.txt", tmp_path / "notes")
        for number in count(1 + this_turn() % EVERY, EVERY):
            (worktree / "sub" / "a.txt").write_text("new" if not shadow.status().undone else "old")
            calls = count(1)

            def save(act: str, path: str, calls: Iterator[int] = calls, number: int = number) -> None:
                if next(calls) == number:
                    style(editor)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(disk, "before_write", save)
                with suppress(Conflict):
                    (shadow.redo if shadow.status().undone else shadow.undo)()
            assert editor.find_lost(shadow.store) == []
            if next(calls) <= number:
                break
            editor.forget()

        assert number > 12


def test_bits_are_not_changed_of_a_file_that_is_saved_at_this_very_moment(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"run": executable("old"), "z": executable("z")})
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"run": file("old", 0o600), "z": file("z", 0o600)})

        def save(act: str, path: str) -> None:
            if act == "chmod" and path == "z":
                make_tree(tmp_path, {"saved": file("of the user", 0o600)})
                os.replace(tmp_path / "saved", worktree / "z")

        monkeypatch.setattr(disk, "before_write", save)
        with pytest.raises(Conflict) as caught:
            shadow.undo()

    assert [conflict.path for conflict in caught.value.conflicts] == ["z"]
    assert_tree(worktree, {"run": file("old", 0o600), "z": file("of the user", 0o600)})


class LineEditor(Editor):
    """An editor that changes one line of a text, each time to something else."""

    def _next(self) -> bytes:
        return TEXT.replace("line 10\n", f"version {next(self._numbers)}\n").encode()

    @property
    def last(self) -> bytes:
        """The last saved version."""
        return self._saved.read_bytes().split(b"\0")[-2]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("only", [False, True], ids=["merge", "only"])
def test_an_editor_that_saves_at_any_moment_of_a_merge_loses_nothing(
    worktree: Path, tmp_path: Path, style: Callable[[Editor], None], only: bool
) -> None:
    """The act stops and leaves the saved version, or reverts the message below the version that it saw."""
    path = make_tree(worktree, {"sub": {"text.txt": TEXT}, "b.txt": "old"}) / "sub" / "text.txt"
    editor = LineEditor(path, tmp_path / "notes")
    stopped = merged = 0
    with open_shadow(worktree) as shadow:
        for number in count(1 + this_turn() % EVERY, EVERY):
            path.write_text(TEXT)
            with shadow.message(f"m{number}"):
                path.write_text(TEXT.replace("line 3\n", "line 3 of the message\n"))
                (worktree / "b.txt").write_text(f"{number}")
            with shadow.message(f"later{number}"):
                path.write_text(path.read_text().replace("line 12\n", "line 12, later\n"))
            path.write_text(path.read_text().replace("line 10\n", "line 10 of the user\n"))
            editor.forget()
            calls = count(1)

            def save(act: str, name: str, calls: Iterator[int] = calls, number: int = number) -> None:
                if next(calls) == number:
                    style(editor)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(disk, "before_write", save)
                try:
                    shadow.revert(f"m{number}", only=only, on_conflict="merge")
                    merged += 1
                    conflicts = None
                except Conflict as error:
                    stopped += 1
                    conflicts = [conflict.path for conflict in error.conflicts]
            if next(calls) <= number:
                break

            if conflicts is not None:
                assert conflicts == ["sub/text.txt"]
                assert path.read_bytes() == editor.last
                assert (worktree / "b.txt").read_text() == f"{number}"
            assert editor.find_lost(shadow.store) == []
            assert not [name for name in os.listdir(path.parent) if ".shadowtree-tmp-" in name]

        assert path.read_text() == (
            TEXT.replace("line 10\n", "line 10 of the user\n").replace(
                "line 12\n", "line 12, later\n" if only else "line 12\n"
            )
        )
    assert number > 20
    assert stopped
    assert merged
    assert_sound_store(shadow.store)


@pytest.mark.skipif(not IS_LINUX, reason="nobody can say there who has a file open")
def test_what_is_written_to_a_file_that_is_held_open_is_in_that_file(worktree: Path) -> None:
    """At any point of the act: it sees that there is a writer, and leaves the file to the writer."""
    path = make_tree(worktree, {"a.txt": "old", "b.txt": "old"}) / "a.txt"
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"a.txt": "new", "b.txt": "new"})
        for number in count(1):
            path.write_text("new")
            with path.open("r+b", buffering=0) as held, pytest.MonkeyPatch.context() as patch:
                calls = count(1)

                def write(act: str, name: str, held: RawIOBase = held, calls: Iterator[int] = calls) -> None:
                    if next(calls) == number:  # noqa: B023 - called in this very round
                        held.write(b"saved")

                patch.setattr(disk, "before_write", write)
                with pytest.raises(Conflict):
                    shadow.undo()
            if next(calls) <= number:
                break

            assert_tree(worktree, {"a.txt": "saved", "b.txt": "new"})

    assert number > 10


# Several at once


@pytest.mark.parametrize(
    "times", [pytest.param(8, id="few"), pytest.param(200, id="many", marks=pytest.mark.slow)]
)
def test_processes_that_undo_redo_and_track_at_once_wait_for_each_other(
    worktree: Path, tmp_path: Path, times: int
) -> None:
    scene = make_undo(worktree, tmp_path)
    rules: Tree = {".shadowtreeignore": "*.log\n"}
    acts: list[Callable[[Shadow], object]] = [
        lambda shadow: shadow.undo(),
        lambda shadow: shadow.redo(),
        lambda shadow: shadow.track(),
        lambda shadow: shadow.unrevert(),
        lambda shadow: shadow.status(),
    ]

    def work(seed: int) -> int:
        choice = random.Random(seed)
        for _ in range(times):
            with open_shadow(worktree) as shadow:
                choice.choice(acts)(shadow)
        return times

    children = [Child(lambda seed=seed: work(seed)) for seed in range(3)]  # type: ignore[misc]

    assert [child.wait().value() for child in children] == [times] * 3
    with open_shadow(worktree) as shadow:
        head = shadow.status().head
    expected = {None: {}, "m1": BEFORE, "m2": AFTER}[head]
    assert_tree(worktree, {**expected, **rules})
    assert_sound_store(scene.store)


def test_an_undo_leaves_the_other_sessions_changes_alone_or_stops_with_what_both_changed(
    worktree: Path,
) -> None:
    make_tree(worktree, {"a.txt": "0", "b.txt": "0", "both.txt": TEXT})
    with open_session(worktree, "one") as one, open_session(worktree, "two") as two:
        with one.message("m1"):
            (worktree / "a.txt").write_text("1")
        with two.message("m1"):
            (worktree / "b.txt").write_text("1")
        with one.message("m2"):
            (worktree / "both.txt").write_text(TEXT.replace("line 3\n", "of one\n"))
        with two.message("m2"):
            (worktree / "both.txt").write_text(
                (worktree / "both.txt").read_text().replace("line 10\n", "of two\n")
            )
        before = read_marks(worktree), position_of(one), position_of(two)

        acts: list[Callable[[], object]] = [
            lambda: one.undo(2),
            lambda: one.revert("m1"),
            lambda: one.switch("m1"),
        ]
        for act in acts:
            with pytest.raises(Conflict) as caught:
                act()
            assert [conflict.path for conflict in caught.value.conflicts] == ["both.txt"]
            assert "session 'two'" in caught.value.conflicts[0].reason
            assert (read_marks(worktree), position_of(one), position_of(two)) == before
        one.undo(2, on_conflict="merge")

        assert position_of(two) == before[2]
    expected: Tree = {"a.txt": "0", "b.txt": "1", "both.txt": TEXT.replace("line 10\n", "of two\n")}
    assert_tree(worktree, expected)


def open_session(worktree: Path, session: str) -> Shadow:
    """Open a session as a new process would."""
    return Shadow(worktree, session=session, settings=SETTINGS)


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "one file shared"])
@pytest.mark.parametrize(
    "times", [pytest.param(10, id="few"), pytest.param(300, id="many", marks=pytest.mark.slow)]
)
def test_sessions_that_switch_at_once_leave_each_other_alone(
    worktree: Path, times: int, shared: bool
) -> None:
    """Each is where its timeline says; if both changed a file, one of them stops and changes nothing."""
    states = {name: record_branches(worktree, name, shared=shared) for name in ("one", "two")}

    def work(name: str, seed: int) -> int:
        choice = random.Random(seed)
        own = worktree / name
        stopped = 0
        for _ in range(times):
            with open_session(worktree, name) as shadow:
                before = plain(read_marks(own)), position_of(shadow)
                conflicts = find_conflicts(shadow, choice, [*states[name]])
                if conflicts:
                    assert conflicts == ["both.txt"]
                    assert (plain(read_marks(own)), position_of(shadow)) == before
                    stopped += 1
        return stopped

    children = [Child(lambda name=name, seed=seed: work(name, seed)) for seed, name in enumerate(states)]  # type: ignore[misc]
    stopped = [child.wait().value() for child in children]

    assert (sum(stopped) > 0) is shared
    for name, trees in states.items():
        with open_session(worktree, name) as shadow:
            head = shadow.status().head
            assert plain(read_marks(worktree / name)) == trees.get(head or "", {})
    assert_sound_store(shadow.store)


def find_conflicts(shadow: Shadow, choice: random.Random, messages: list[str]) -> list[str]:
    """Do some act; return the paths in conflict."""
    try:
        act = choice.choice([*(["switch"] * 4), "undo", "redo", "unrevert"])
        if act == "switch":
            shadow.switch(choice.choice(messages))
        else:
            getattr(shadow, act)()
    except Conflict as error:
        return [conflict.path for conflict in error.conflicts]
    return []


def record_branches(worktree: Path, name: str, *, shared: bool) -> dict[str, object]:
    """Record branches of a session in a directory of its own; return its content after each message."""
    states: dict[str, object] = {}
    own = worktree / name
    lines = {"one": "line 3\n", "two": "line 10\n"}
    with open_session(worktree, name) as shadow:
        for message, parent in (("a", ""), ("b", "a"), ("c", "a"), ("d", "a"), ("e", "d")):
            if parent and shadow.status().head != parent:
                shadow.switch(parent)
            with shadow.message(message):
                make_tree(own, {"text.txt": TEXT + message, f"of {message}": message, message: {}})
                (own / "only here").unlink(missing_ok=True)
                if message in "bd":
                    make_tree(own, {"only here": link(message)})
                if shared:
                    both = worktree / "both.txt"
                    text = both.read_text() if both.exists() else TEXT
                    own_lines = [
                        f"{name} {message}\n" if line == lines[name] or line.startswith(name) else line
                        for line in text.splitlines(keepends=True)
                    ]
                    both.write_text("".join(own_lines))
            states[message] = plain(read_marks(own))
    return states


# Ctrl-C


@pytest.mark.parametrize(
    "times", [pytest.param(6, id="few"), pytest.param(300, id="many", marks=pytest.mark.slow)]
)
def test_the_command_can_be_interrupted_at_any_time(worktree: Path, tmp_path: Path, times: int) -> None:
    scene = make_undo(worktree, tmp_path)
    scene.put_back()
    process = start_undo(worktree)
    started = time.monotonic()
    process.communicate()
    takes_s = time.monotonic() - started
    assert process.returncode == 0
    interrupted = 0
    for number in range(times):
        scene.put_back()
        process = start_undo(worktree)
        time.sleep(takes_s * number / times)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()

        # Before the command begins, Python itself is interrupted.
        assert process.returncode in (0, 130, -signal.SIGINT), err
        interrupted += process.returncode != 0
        assert process.returncode or scene.is_done()
        with open_shadow(worktree) as shadow:
            shadow.status()
        scene.assert_settled()
        assert not scene.has_intent()

    assert interrupted


def start_undo(worktree: Path) -> subprocess.Popen[bytes]:
    """Start the command, and wait for Python: an interrupt before that could have any result."""
    code = "import sys; print(flush=True); from shadowtree.cli.main import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "undo", "--set", "min_free=0"],
        cwd=worktree,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    return process
