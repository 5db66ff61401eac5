"""Random edits, each followed by a snapshot without a pause: every snapshot equals a cold one.

The edits are drawn from a seed, so a failure can be repeated: `SHADOWTREE_STATEFUL_SEED` sets the first one.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from shadowtree import Shadow
from shadowtree.system.syscalls import exchange
from tests.support.processes import Child
from tests.support.trees import make_tree
from tests.support.watching import SETTINGS, Watched, take_cold, view

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")

SEED = int(os.environ.get("SHADOWTREE_STATEFUL_SEED", "0"))
slow = pytest.mark.slow

NAMES = ["a", "b", "c", "d", "e.txt", "f.log", "build", "sub", "deep", "node_modules"]
NAMES += ["x\udcff", "new\nline", ".gitignore", ".shadowtreeignore"]
RULES = ("*.log\n", "build/\n", "a\n", "!f.log\n", "sub/\n", "*\n", ".gitignore\n", "", "!*\n", "b\n!c\n")
NO_HOOKS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


class Editor:
    """Edits a worktree at random, as people, editors and git do."""

    names: Sequence[str] = NAMES
    rules: Sequence[str] = RULES

    def __init__(self, top: Path, seed: int, *, has_links: bool = False) -> None:
        self.random = Random(seed)
        self._top = top
        self._outside = top.parent / "outside"
        self._outside.mkdir(exist_ok=True)
        self._open: list[int] = []
        often = [self.write_new, self.write, self.make, self.save]
        self._acts: list[Callable[[], object]] = [
            *(often * 3),
            self.append,
            self.delete,
            self.delete_tree,
            self.move_directory,
            self.move_directory,
            self.move_file,
            self.swap,
            self.move_out,
            self.move_in,
            self.edit_outside,
            self.change_bits,
            self.link,
            self.hold_open,
            self.write_open,
            self.become_other_kind,
            self.init,
            self.add,
            self.add,
            self.forget,
            self.remove_repository,
            self.touch,
        ]
        if has_links:
            self._acts += [self.hard_link, self.hard_link, self.hard_link_outside, self.write_outside]

    def edit(self) -> None:
        """Make a random edit; an edit that the system refuses is skipped."""
        with suppress(OSError):
            self.random.choice(self._acts)()

    def close(self) -> None:
        """Close the open files."""
        for fd in self._open:
            os.close(fd)
        self._open.clear()

    # Where

    def _directories(self) -> list[Path]:
        return [Path(at) for at, names, _ in os.walk(self._top) if not self._leave_git(names)]

    def _leave_git(self, names: list[str]) -> bool:
        names[:] = sorted(name for name in names if name != ".git")
        return False

    def _files(self) -> list[Path]:
        found = []
        for at, names, files in os.walk(self._top):
            self._leave_git(names)
            found += [Path(at, name) for name in sorted(files) if name != ".git"]
        return found

    def _directory(self) -> Path:
        return self.random.choice(self._directories())

    def _subdirectory(self) -> Path:
        return self.random.choice(self._directories()[1:] or [self._top / "nothing"])

    def _file(self) -> Path:
        return self.random.choice(self._files() or [self._top / "a"])

    def _name(self) -> Path:
        return self._directory() / self.random.choice(self.names)

    def _bytes(self) -> bytes:
        return self.random.randbytes(self.random.choice((0, 1, 20, 20, 20, 5000)))

    def _write(self, path: Path, how: str = "wb") -> None:
        if not path.is_symlink() and (path.is_file() or not path.exists()):
            is_rules = path.name.endswith("ignore")
            content = self.random.choice(self.rules).encode() if is_rules else self._bytes()
            with path.open(how) as file:
                file.write(content)

    # Files

    def write_new(self) -> None:
        self._write(self._name())

    def write(self) -> None:
        self._write(self._file(), "r+b")

    def append(self) -> None:
        self._write(self._file(), "ab")

    def touch(self) -> None:
        os.utime(self._file(), ns=(0, self.random.choice((0, 10**18))), follow_symlinks=False)

    def save(self) -> None:
        path = self._file()
        other = path.with_name(f"{path.name[:5]}~{self.random.randrange(3)}")
        other.write_bytes(self._bytes())
        other.replace(path)

    def delete(self) -> None:
        self._file().unlink()

    def change_bits(self) -> None:
        path = self.random.choice((self._file, self._directory))()
        if not path.is_symlink():
            path.chmod(self.random.choice((0o644, 0o600, 0o755, 0o700)))

    def link(self) -> None:
        self._name().symlink_to(self.random.choice(("a", "/tmp", ".", "sub/deep")))

    def hard_link(self) -> None:
        self._name().hardlink_to(self._file())

    def hard_link_outside(self) -> None:
        (self._outside / f"link {self.random.randrange(3)}").write_text("")
        self._name().hardlink_to(self._outside / f"link {self.random.randrange(3)}")

    def write_outside(self) -> None:
        (self._outside / f"link {self.random.randrange(3)}").write_bytes(self._bytes())

    def hold_open(self) -> None:
        path = self._file()
        if stat.S_ISREG(path.lstat().st_mode):
            self._open.append(os.open(path, os.O_WRONLY | os.O_APPEND))
        if len(self._open) > 5:
            os.close(self._open.pop(0))

    def write_open(self) -> None:
        if self._open:
            os.write(self.random.choice(self._open), b"more")

    def become_other_kind(self) -> None:
        path = self._file()
        path.unlink()
        kind = self.random.choice(("directory", "link", "fifo", "socket", "nothing"))
        if kind == "directory":
            make_tree(path, {"k": {"z": "1"}})
        elif kind == "link":
            path.symlink_to("a")
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))

    def move_file(self) -> None:
        self._file().rename(self._name())

    # Directories

    def make(self) -> None:
        path = self._name()
        if not os.path.lexists(path):
            make_tree(path, {"k": {"z": f"{self.random.random()}", "l": {}}})

    def delete_tree(self) -> None:
        if len(self._directories()) > 8:
            shutil.rmtree(self._subdirectory())

    def move_directory(self) -> None:
        self._subdirectory().rename(self._name())

    def swap(self) -> None:
        a, b = (os.fsencode(self._subdirectory().relative_to(self._top)) for _ in range(2))
        fd = os.open(self._top, os.O_RDONLY)
        try:
            exchange(fd, a, fd, b)
        finally:
            os.close(fd)

    def move_out(self) -> None:
        if len(self._directories()) > 6:
            self._subdirectory().rename(self._outside / f"{self.random.randrange(10**9)}")

    def _away(self) -> Path:
        away = sorted(path for path in self._outside.iterdir() if path.is_dir())
        return self.random.choice(away or [self._outside / "nothing"])

    def move_in(self) -> None:
        self._away().rename(self._name())

    def edit_outside(self) -> None:
        for at, _, files in os.walk(self._away()):
            for name in sorted(files)[:1]:
                self._write(Path(at, name))

    # Repositories

    def _git(self, at: Path, *arguments: str) -> None:
        environment = {**os.environ, **NO_HOOKS}
        subprocess.run(["git", "-C", at, *arguments], check=False, capture_output=True, env=environment)

    def init(self) -> None:
        self._git(self._directory(), "init", "--quiet")

    def add(self) -> None:
        self._git(self._directory(), "add", "--force", ".")

    def forget(self) -> None:
        path = self._file()
        self._git(path.parent, "rm", "--quiet", "--force", "--cached", path.name)

    def remove_repository(self) -> None:
        shutil.rmtree(self._directory() / ".git")


class Linker(Editor):
    """Gives files more names, covered and uncovered, in directories that are all covered.

    So every write through any of the names is reported, and nothing may be missed.
    """

    names = ("a", "b", "x.log", "y.log", "GIT~1", ".gitignore")
    rules = ("*.log\n", "a\n", "!x.log\n", "*.log\n.gitignore\n", ".gitignore\n", "")

    def __init__(self, top: Path, seed: int) -> None:
        super().__init__(top, seed)
        links = [self.hard_link, self.hard_link_in_new_directory]
        writes = [self.write_new, self.write, self.append, self.save, self.touch, self.change_bits]
        moves = [self.move_file, self.move_directory, self.delete, self.exchange_links]
        self._acts = [*(links * 4), *(writes * 2), *moves]

    def _new_directory(self) -> Path:
        return self._directory() / self.random.choice(("p", "q", "r"))

    def hard_link_in_new_directory(self) -> None:
        path, file = self._new_directory(), self._file()
        path.mkdir()
        name = path / self.random.choice(self.names)
        name.hardlink_to(file)
        self._write(name, self.random.choice(("wb", "ab")))

    def exchange_links(self) -> None:
        """Replace an existing name by a hard link."""
        other = self._directory() / "t"
        other.hardlink_to(self._file())
        other.replace(self._file())

    def move_directory(self) -> None:
        self._subdirectory().rename(self._new_directory())


@contextmanager
def editing(watched: Watched, seed: int, *, has_links: bool = False) -> Iterator[Editor]:
    """Make an editor for a worktree; a failure names its seed."""
    with noting(Editor(watched.top, seed, has_links=has_links), seed) as editor:
        yield editor


@contextmanager
def noting(editor: Editor, seed: int) -> Iterator[Editor]:
    """Add the seed of an editor to a failure, and close the editor."""
    try:
        yield editor
    except BaseException as error:
        error.add_note(f"the seed was {seed}")
        raise
    finally:
        editor.close()


def compare(watched: Watched, cold: Path, step: int) -> None:
    """Take a snapshot with the watcher and a cold one, in a store with the same history, and compare them."""
    warm = watched.shadow.take_snapshot()
    other = take_cold(watched.top, cold)
    assert view(warm) == view(other), (step, warm, other)


def look_over(watched: Watched) -> None:
    """Check for changes that no event reported, until everything was checked."""
    while not watched.shadow.look_over(10):
        pass


def run(watched: Watched, tmp_path: Path, seed: int, steps: int) -> None:
    """Edit and compare in turn; at the end nothing may have been missed."""
    with editing(watched, seed) as editor:
        for step in range(steps):
            for _ in range(editor.random.choice((0, 1, 1, 1, 2, 5))):
                editor.edit()
            if editor.random.random() < 0.1:
                watched.shadow.status()
            if editor.random.random() < 0.1:
                watched.shadow.drain()
            if editor.random.random() < 0.02:
                watched.shadow.look_over(1)
            compare(watched, tmp_path / "cold", step)
        look_over(watched)
    assert watched.watching().missed == 0
    watched.check()


@pytest.mark.parametrize("seed", range(SEED, SEED + 1))
def test_random_edits(seed: int, watched: Watched, tmp_path: Path) -> None:
    run(watched, tmp_path, seed, 120)


@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("seed", range(SEED, SEED + 1))
def test_random_edits_of_old_files(seed: int, watched: Watched, tmp_path: Path) -> None:
    """No file is read again only because it is young."""
    run(watched, tmp_path, 1000 + seed, 120)


@slow
@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_thousands_of_random_edits(seed: int, watched: Watched, tmp_path: Path) -> None:
    run(watched, tmp_path, 2000 + seed, 1000)


@slow
@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_thousands_of_random_edits_of_old_files(seed: int, watched: Watched, tmp_path: Path) -> None:
    run(watched, tmp_path, 3000 + seed, 1000)


# Files with several names


def run_with_links(watched: Watched, tmp_path: Path, seed: int, steps: int) -> int:
    """Edit with hard links to and from anywhere; return how often looking over was needed.

    No event may report a write through a name in an ignored directory, or through a removed name.
    """
    needed = 0
    with editing(watched, seed, has_links=True) as editor:
        for step in range(steps):
            editor.edit()
            warm, cold = watched.shadow.take_snapshot(), take_cold(watched.top, tmp_path / "cold")
            if view(warm) != view(cold):
                needed += 1
                missed = watched.watching().missed
                look_over(watched)
                assert watched.watching().missed > missed
                compare(watched, tmp_path / "cold", step)
    look_over(watched)
    watched.check()
    return needed


@pytest.mark.parametrize("seed", range(SEED, SEED + 1))
def test_random_edits_of_files_with_several_names(seed: int, watched: Watched, tmp_path: Path) -> None:
    assert run_with_links(watched, tmp_path, 8000 + seed, 150) <= 3


@slow
@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_thousands_of_random_edits_of_files_with_several_names(
    seed: int, watched: Watched, tmp_path: Path
) -> None:
    assert run_with_links(watched, tmp_path, 9000 + seed, 1000) <= 20


def run_with_links_in_sight(watched: Watched, tmp_path: Path, seed: int, steps: int) -> None:
    """Edit files with several names, all of them watched: each snapshot is right without looking over."""
    shutil.rmtree(watched.top / "build")
    shutil.rmtree(watched.top / "node_modules")
    watched.settle()
    with noting(Linker(watched.top, seed), seed) as editor:
        for step in range(steps):
            for _ in range(editor.random.choice((1, 1, 1, 2, 5))):
                editor.edit()
            compare(watched, tmp_path / "cold", step)
    look_over(watched)
    assert watched.watching().missed == 0
    watched.check()


@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("seed", range(SEED, SEED + 1))
def test_random_edits_by_names_that_are_not_covered(seed: int, watched: Watched, tmp_path: Path) -> None:
    run_with_links_in_sight(watched, tmp_path, 10_000 + seed, 120)


@slow
@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("seed", range(SEED, SEED + 10))
def test_thousands_of_random_edits_by_names_that_are_not_covered(
    seed: int, watched: Watched, tmp_path: Path
) -> None:
    run_with_links_in_sight(watched, tmp_path, 11_000 + seed, 1000)


# Others


class Commanded:
    """An editor in another process, which edits on request and reports when it is done."""

    def __init__(self, top: Path, seed: int) -> None:
        mine, its = socket.socketpair()

        def obey() -> None:
            mine.close()
            editor = Editor(top, seed)
            while its.recv(1):
                editor.edit()
                its.send(b"!")

        self._child = Child(obey)
        its.close()
        self._socket = mine

    def edit(self) -> None:
        """Make one edit, and wait for it."""
        self._socket.send(b"!")
        assert self._socket.recv(1)

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._child.wait().value()


def run_with_others(watched: Watched, tmp_path: Path, seed: int, steps: int) -> None:
    """Edit in this process and in another one, with a third that takes snapshots into the same store."""
    other = Commanded(watched.top, seed + 1)
    try:
        with editing(watched, seed) as editor:
            for step in range(steps):
                editor.random.choice((editor.edit, other.edit, other.edit))()
                if editor.random.random() < 0.1:
                    with Shadow(watched.top, store=watched.shadow.store, settings=SETTINGS) as third:
                        third.track()
                compare(watched, tmp_path / "cold", step)
    finally:
        other.close()
    watched.check()


@pytest.mark.parametrize("seed", range(SEED, SEED + 1))
def test_random_edits_of_another_process(seed: int, watched: Watched, tmp_path: Path) -> None:
    run_with_others(watched, tmp_path, 4000 + seed, 120)


@slow
@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_thousands_of_random_edits_of_another_process(seed: int, watched: Watched, tmp_path: Path) -> None:
    run_with_others(watched, tmp_path, 5000 + seed, 1000)


def race(watched: Watched, seed: int, snapshots: int, *, drains: bool = False) -> None:
    """Take snapshots while another process edits without a pause; when it stops, the next one is right."""

    stop = watched.top.parent / "stop"

    def edit_on() -> None:
        editor = Editor(watched.top, seed)
        while not stop.exists():
            editor.edit()

    for _ in range(3):
        child = Child(edit_on)
        try:
            for _ in range(snapshots):
                watched.shadow.take_snapshot()
                if drains:
                    watched.shadow.drain()
                watched.shadow.status()
        finally:
            # It is not killed, because processes that it started would go on.
            stop.touch()
            child.wait().value()
            stop.unlink()
        watched.check()
        seed += 1


@pytest.mark.parametrize("seed", range(SEED, SEED + 1))
def test_snapshots_in_a_race(seed: int, watched: Watched) -> None:
    race(watched, 6000 + 10 * seed, 15)


@slow
@pytest.mark.usefixtures("aged")
@pytest.mark.parametrize("drains", [False, True], ids=["", "with drains"])
@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_many_snapshots_in_a_race(seed: int, drains: bool, watched: Watched) -> None:
    """Among old files, a change that is not reported stays unseen."""
    race(watched, 7000 + 10 * seed, 200, drains=drains)


# Looking over


@pytest.mark.usefixtures("aged")
def test_looking_over_finds_what_nobody_told(watched: Watched, tmp_path: Path) -> None:
    """A hard link outside the worktree that was made after the file was read."""
    (tmp_path / "outside").hardlink_to(watched.top / "src/m.py")
    (tmp_path / "outside").write_text("by another name")
    look_over(watched)

    assert watched.watching().missed == 1
    watched.check_without_rescan()
    (tmp_path / "outside").write_text("once more, and it is known by now")
    watched.check_without_rescan()
    look_over(watched)
    assert watched.watching().missed == 1


@pytest.mark.usefixtures("aged")
def test_looking_over_counts_nothing_that_the_next_snapshot_finds_by_itself(
    watched: Watched, tmp_path: Path
) -> None:
    """Nor does it count a new link to a file, which is not a change."""
    (tmp_path / "outside").write_text("1")
    (watched.top / "src/link").hardlink_to(tmp_path / "outside")
    watched.settle()
    (tmp_path / "outside").write_text("by another name")
    (watched.top / "build/new").mkdir()
    (watched.top / ".gitignore").write_text("*.log\nbuild/\nd/\n")
    (watched.top / "node_modules/link").hardlink_to(watched.top / "a.txt")
    with (watched.top / "c/x").open("ab", buffering=0) as file:
        file.write(b"2")
        look_over(watched)

    assert watched.watching().missed == 0
    watched.check_without_rescan()


def test_looking_over_takes_no_longer_than_it_may(watched: Watched) -> None:
    """It checks at least one slice, and a round continues where the last one stopped."""
    make_tree(watched.top, {f"d{number}": {} for number in range(200)})
    watched.settle()

    rounds = [watched.shadow.look_over(0) for _ in range(10)]

    assert rounds == [False, False, False, False, True] * 2
    assert watched.watching().missed == 0


@pytest.mark.usefixtures("aged")
def test_looking_over_is_no_snapshot(watched: Watched) -> None:
    tree = watched.shadow.track()
    (watched.top / "a.txt").write_text("two\n")
    look_over(watched)

    assert watched.watching().missed == 0
    assert [change.path for change in watched.shadow.patch(tree).files] == ["a.txt"]
    watched.check_without_rescan()
