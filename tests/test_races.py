"""Others at work during an act: nothing outside is touched, and no version that anybody saved is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import RawIOBase
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shadowtree import Conflict, Shadow, ShadowError, faultpoint
from shadowtree.gitformat import object_id
from shadowtree.objects import Objects
from shadowtree.system import IS_LINUX, exchange, move
from tests.faults import ACTS, AFTER, BEFORE, Child, Scene, open_shadow, read_marks
from tests.processes import COMMAND, surroundings
from tests.referee import assert_sound_store
from tests.trees import Tree, assert_tree, link, make_tree

if TYPE_CHECKING:
    from shadowtree.model import OnConflict

FEW_AND_MANY = [pytest.param(60, id="few"), pytest.param(5000, id="many", marks=pytest.mark.slow)]


@contextmanager
def beside(scenario: Callable[[], object]) -> Iterator[None]:
    """Let a process do something again and again until it is killed."""

    def repeat() -> None:
        while True:
            scenario()

    child = Child(repeat)
    try:
        yield
    finally:
        child.kill()
        assert child.wait().signal == signal.SIGKILL, child.wait()


def go_back_and_forth(shadow: Shadow, times: int, on_conflict: OnConflict) -> int:
    """Undo and redo in turn, whatever comes in between; give how often it could be done."""
    done = 0
    for _ in range(times):
        try:
            act = shadow.redo if shadow.status().undone else shadow.undo
            act(on_conflict=on_conflict)
        except ShadowError:
            continue
        done += 1
    return done


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
    assert done > times // 50
    users = [path for path in worktree.rglob("user.txt") if not path.parent.is_symlink()]
    assert [path.read_text() for path in users] == ["the user's"]
    assert_sound_store(shadow.store)


def test_a_directory_that_is_out_of_reach_for_a_moment_is_taken_back_later(
    worktree: Path, tmp_path: Path
) -> None:
    """Something in it was swapped already; the error says that nothing was changed, and so it has to be."""
    make_tree(worktree, {"dir": {"a.txt": "old"}, "zed": {"b.txt": "old"}, "other": link(str(tmp_path))})
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"dir": {"a.txt": "new"}, "zed": {"b.txt": "new"}})
        before = read_marks(worktree)

        def hide(act: str, path: str) -> None:
            if act == "exchange" and path == "zed/b.txt" and not (worktree / "dir").is_symlink():
                swap_names(worktree, "dir", "other")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faultpoint, "before_write", hide)
            with pytest.raises(ShadowError):
                shadow.undo()
        swap_names(worktree, "dir", "other")
        shadow.status()

        assert read_marks(worktree) == before


def swap_names(directory: Path, a: str, b: str) -> None:
    """Swap two names in a directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        exchange(fd, a.encode(), fd, b.encode())
    finally:
        os.close(fd)


# Editors

VERSION = "version {} of {}\n"


class Editor:
    """A program that saves one version after the other, and remembers what it wrote over.

    What it knows is in two files: every version that it has saved, and every content that it replaced itself.
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
        with self._replaced.open("ab") as file:
            file.write(replaced + b"\0")
        with self._saved.open("ab") as file:
            file.write(saved + b"\0")

    def save_in_place(self) -> None:
        """Write over what is there."""
        self._write(1)
        time.sleep(random.random() / 200)

    def save_and_hold(self) -> None:
        """Write to it a few times, with pauses, and close it only then."""
        self._write(3)
        time.sleep(random.random() / 50)

    def _write(self, times: int) -> None:
        try:
            fd = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            return
        for _ in range(times):
            replaced, version = os.pread(fd, 1 << 20, 0), self._next()
            os.ftruncate(fd, 0)
            os.pwrite(fd, version, 0)
            self._note(replaced, version)
            time.sleep(random.random() / 500)
        os.close(fd)

    def save_by_renaming(self) -> None:
        """Write a new file and give it the name of the old one; it is swapped to learn what that was."""
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
        """List the versions that are neither there, nor in the store, nor replaced by the editor itself."""
        saved = self._saved.read_bytes().split(b"\0")[:-1]
        known = {*self._replaced.read_bytes().split(b"\0")}
        known.add(self._path.read_bytes() if self._path.exists() else b"")
        objects = Objects(str(store / "objects"))
        objects.refresh()
        try:
            left = [version for version in saved if version not in known]
            return [version for version in left if not _is_stored(objects, version)]
        finally:
            objects.close()

    def forget(self) -> None:
        """Begin anew, as somebody else writes over what it saved."""
        self._saved.write_bytes(b"")
        self._replaced.write_bytes(b"")

    @property
    def versions(self) -> int:
        """How many versions were saved."""
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

        with beside(lambda: style(editor)):
            go_back_and_forth(shadow, times, on_conflict)

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
    """Between any two writes, one after the other: no chance is needed to hit a window."""
    make_tree(worktree, {"sub": {"a.txt": "old"}, "b.txt": "old"})
    with open_shadow(worktree) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"sub": {"a.txt": "new"}, "b.txt": "new"})
        editor = Editor(worktree / "sub" / "a.txt", tmp_path / "notes")
        for number in count(1):
            (worktree / "sub" / "a.txt").write_text("new" if not shadow.status().undone else "old")
            calls = count(1)

            def save(act: str, path: str, calls: Iterator[int] = calls, number: int = number) -> None:
                if next(calls) == number:
                    style(editor)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(faultpoint, "before_write", save)
                with suppress(Conflict):
                    (shadow.redo if shadow.status().undone else shadow.undo)()
            assert editor.find_lost(shadow.store) == []
            if next(calls) <= number:
                break
            editor.forget()

        assert number > 30


@pytest.mark.skipif(not IS_LINUX, reason="nobody can say there who has a file open")
def test_what_is_written_to_a_file_that_is_held_open_is_in_that_file(worktree: Path) -> None:
    """At any moment of the act, which sees that there is a writer, and leaves the file to it."""
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

                patch.setattr(faultpoint, "before_write", write)
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
    scene = Scene(worktree, tmp_path / "saved", "undo")
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


# Ctrl-C


@pytest.mark.parametrize(
    "act", [act if act in ("undo", "unrevert") else pytest.param(act, marks=pytest.mark.slow) for act in ACTS]
)
def test_an_act_can_be_interrupted_at_every_write(worktree: Path, tmp_path: Path, act: str) -> None:
    """It takes back what it did before it ends, unless it is done."""
    scene = Scene(worktree, tmp_path / "saved", act)
    for number in count(1):
        scene.put_back()
        calls = count(1)

        def interrupt(act: str, path: str, calls: Iterator[int] = calls, number: int = number) -> None:
            if next(calls) == number:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faultpoint, "before_write", interrupt)
            try:
                scene.act()
                break
            except KeyboardInterrupt:
                pass
        if not scene.is_done():
            scene.assert_before()
        with open_shadow(worktree) as shadow:
            shadow.status()
        scene.assert_settled()
    assert number > 100


@pytest.mark.parametrize(
    "times", [pytest.param(6, id="few"), pytest.param(300, id="many", marks=pytest.mark.slow)]
)
def test_the_command_can_be_interrupted_at_any_time(worktree: Path, tmp_path: Path, times: int) -> None:
    scene = Scene(worktree, tmp_path / "saved", "undo")
    command = [*COMMAND, "undo", "--set", "min_free=0"]
    scene.put_back()
    started = time.monotonic()
    subprocess.run(command, cwd=worktree, env=surroundings(), capture_output=True, check=True)
    takes_s = time.monotonic() - started
    interrupted = 0
    for number in range(times):
        scene.put_back()
        process = subprocess.Popen(
            command, cwd=worktree, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        time.sleep(takes_s * (0.2 + 0.8 * number / times))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()

        # Before the command has begun, it is Python that is interrupted.
        assert process.returncode in (0, 130, -signal.SIGINT), err
        interrupted += process.returncode != 0
        assert process.returncode or scene.is_done()
        with open_shadow(worktree) as shadow:
            shadow.status()
        scene.assert_settled()
        assert not scene.has_intent()

    assert interrupted
