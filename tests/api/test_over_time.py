"""Snapshots of a worktree that changes: cached state must never affect a tree.

Each test compares a warm snapshot, which reads only what changed, with a cold one, which reads everything.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep, time_ns
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.capture.read_files import read_files
from shadowtree.capture.rules.git_repository import find_at, index_stamp
from shadowtree.results.messages import Snapshot
from shadowtree.store.git_format import object_id
from tests.support.limits import change_limits
from tests.support.referee import assert_sound_store, git, init
from tests.support.trees import link, make_tree


@pytest.fixture
def far_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every scan believe that all changes are old, so that everything is cached.

    Then only the clock of the file system distinguishes changes: see `wait_for_tick`.
    """
    change_limits(monkeypatch, file_clock_ns=lambda: time_ns() + 10**10)


@pytest.fixture
def wait_for_tick(tmp_path: Path) -> Callable[[], None]:
    """Wait until the file system gives a change a later time than all earlier ones."""
    probe = tmp_path / "probe"
    probe.touch()

    def wait() -> None:
        os.utime(probe)
        before = probe.stat().st_mtime_ns
        while probe.stat().st_mtime_ns == before:
            os.utime(probe)

    return wait


class Observer:
    """A shadow with a cache, and the same snapshot without one to compare with."""

    def __init__(self, worktree: Path, scratch: Path, wait: Callable[[], None]) -> None:
        self.worktree = worktree
        self.settings: dict[str, object] = {"min_free": 0}
        self.shadow = Shadow(worktree, settings=self.settings)
        self._scratch = scratch
        self._wait = wait

    def look(self) -> tuple[Snapshot, Snapshot]:
        """Take a warm and a cold snapshot."""
        warm = self.shadow.take_snapshot()
        self._wait()
        with Shadow(self.worktree, store=self._scratch, settings=self.settings) as stranger:
            cold = stranger.take_snapshot()
        shutil.rmtree(self._scratch)
        return warm, cold

    def assert_same(self) -> None:
        """Take a warm and a cold snapshot, and compare them."""
        warm, cold = self.look()
        assert (warm.tree, warm.facts) == (cold.tree, cold.facts)
        assert (warm.files, warm.skipped) == (cold.files, cold.skipped)

    def change_settings(self, **settings: object) -> None:
        """Continue with other settings, as a new process would."""
        self.shadow.close()
        self.settings = {"min_free": 0, **settings}
        self.shadow = Shadow(self.worktree, settings=self.settings)


@pytest.fixture
def observer(
    worktree: Path, tmp_path: Path, far_apart: None, wait_for_tick: Callable[[], None]
) -> Iterator[Observer]:
    observer = Observer(worktree, tmp_path / "cold", wait_for_tick)
    yield observer
    observer.shadow.close()
    assert_sound_store(observer.shadow.store)


# A single change


def test_what_an_index_no_longer_tracks_goes(observer: Observer, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.o\n", "a.o": "1", "s": {"t": {"b.o": "1"}}, "c": "1"})
    git("add", "--force", "a.o", "s/t/b.o", cwd=worktree)
    observer.assert_same()
    git("rm", "--quiet", "--cached", "a.o", "s/t/b.o", cwd=worktree)

    observer.assert_same()


def test_what_an_index_tracks_from_now_on_comes(observer: Observer, worktree: Path) -> None:
    init(worktree)
    make_tree(
        worktree, {".gitignore": "*.o\nbuild/\n", "a.o": "1", "build": {"t": {"b": "1"}}, "venv": {"d": "1"}}
    )
    observer.assert_same()
    git("add", "--force", "a.o", "build/t/b", "venv/d", cwd=worktree)

    observer.assert_same()


@pytest.mark.parametrize("directory", ["build", "venv", "own"])
def test_the_last_covered_file_of_a_directory_left_out_can_go(
    directory: str, observer: Observer, worktree: Path
) -> None:
    init(worktree)
    make_tree(
        worktree,
        {
            ".gitignore": "build/\n",
            ".shadowtreeignore": "own/\n!own/a\n",
            directory: {"a": "1"},
        },
    )
    git("add", "--force", f"{directory}/a", cwd=worktree)
    observer.assert_same()
    (worktree / directory / "a").unlink()

    observer.assert_same()


def test_a_nested_repository_in_an_ignored_directory_can_stop_tracking(
    observer: Observer, worktree: Path
) -> None:
    make_tree(worktree, {".gitignore": "vendor/\n", "vendor": {"lib": {"a": "1"}}})
    nested = init(worktree / "vendor" / "lib")
    git("add", "a", cwd=nested)
    observer.assert_same()
    git("rm", "--quiet", "--cached", "a", cwd=nested)

    observer.assert_same()


@pytest.mark.parametrize(
    "path",
    [".gitignore", "s/.gitignore", ".git/info/exclude", "s/n/.git/info/exclude", ".shadowtreeignore", "~"],
)
def test_a_rule_changed_in_place_counts_at_once(
    path: str, observer: Observer, worktree: Path, tmp_path: Path
) -> None:
    """Neither the directory nor the size of the file shows the change."""
    init(worktree)
    init(worktree / "s" / "n")
    make_tree(
        worktree,
        {"1.o": "1", "2.o": "1", "s": {"n": {"1.o": "1", "2.o": "1", "t": {"1.o": "1", "2.o": "1"}}}},
    )
    rules = tmp_path / "home" / ".config" / "git" / "ignore" if path == "~" else worktree / path
    rules.parent.mkdir(parents=True, exist_ok=True)
    rules.write_text("1.o\n")
    observer.assert_same()
    rules.write_text("2.o\n")
    observer.assert_same()
    rules.unlink()

    observer.assert_same()


def test_settings_changed_count_at_once(observer: Observer, worktree: Path) -> None:
    make_tree(worktree, {"out": {"a": "1"}, "s": {"out": {"b": "1"}, "c": "1" * 50}})
    observer.assert_same()
    observer.change_settings(heavy_dirs="out")
    observer.assert_same()
    observer.change_settings()

    observer.assert_same()


def test_a_size_limit_raised_lets_a_file_in(observer: Observer, worktree: Path) -> None:
    make_tree(worktree, {"s": {"large": "1" * 50, "a": "1"}})
    observer.change_settings(max_file_size=10)
    observer.assert_same()
    observer.change_settings(max_file_size=100)

    observer.assert_same()


def test_a_repository_that_comes_and_goes_changes_what_is_tracked(observer: Observer, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "*.o\n", "s": {"t": {"a.o": "1", "u": {"b.o": "1"}}}})
    observer.assert_same()
    git("add", "--force", "a.o", "u/b.o", cwd=init(worktree / "s" / "t"))
    observer.assert_same()
    shutil.rmtree(worktree / "s" / "t" / ".git")

    observer.assert_same()


def test_a_repository_that_breaks_in_place_changes_what_is_tracked(
    observer: Observer, worktree: Path
) -> None:
    make_tree(worktree, {".gitignore": "*.o\n", "s": {"a.o": "1", "b": "1"}})
    nested = init(worktree / "s")
    git("add", "--force", "a.o", cwd=nested)
    observer.assert_same()
    (nested / ".git" / "HEAD").rename(nested / ".git" / "HEAD.off")
    observer.assert_same()
    (nested / ".git" / "HEAD.off").rename(nested / ".git" / "HEAD")

    observer.assert_same()


def test_a_rewrite_that_keeps_size_and_mtime_is_seen(observer: Observer, worktree: Path) -> None:
    make_tree(worktree, {"s": {"a": "11"}})
    observer.assert_same()
    status = (worktree / "s" / "a").stat()
    (worktree / "s" / "a").write_text("22")
    os.utime(worktree / "s" / "a", ns=(status.st_atime_ns, status.st_mtime_ns))

    observer.assert_same()


def test_two_files_that_change_places_are_seen(observer: Observer, worktree: Path) -> None:
    make_tree(worktree, {"s": {"a": "11", "b": "22"}, "t": {"a": "33"}})
    observer.assert_same()
    for source, target in (("s/a", "x"), ("s/b", "s/a"), ("x", "s/b"), ("s", "x"), ("t", "s"), ("x", "t")):
        (worktree / source).rename(worktree / target)

    observer.assert_same()


@pytest.fixture
def whole_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a file system that stores whole seconds, on which directories changed long ago."""
    look, look_at_open = os.stat, os.fstat

    def coarse(status: os.stat_result) -> os.stat_result:
        age = 1000 if stat.S_ISDIR(status.st_mode) else 0
        times = {
            "st_mtime_ns": (status.st_mtime_ns // 10**9 - age) * 10**9,
            "st_ctime_ns": (status.st_ctime_ns // 10**9 - age) * 10**9,
        }
        return os.stat_result(tuple(status), times)

    def stat_coarsely(
        path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True
    ) -> os.stat_result:
        return coarse(look(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks))

    monkeypatch.setattr(os, "stat", stat_coarsely)
    monkeypatch.setattr(os, "fstat", lambda fd: coarse(look_at_open(fd)))


def test_a_rule_rewritten_within_one_tick_of_the_clock_counts(whole_seconds: None, worktree: Path) -> None:
    make_tree(worktree, {"s": {".gitignore": "1.o\n", "1.o": "x", "2.o": "x"}})
    rules = worktree / "s" / ".gitignore"
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        before = after = -1.0
        while before != after or before < 0:
            rules.write_text("1.o\n")
            before = os.stat(rules).st_mtime
            shadow.track()
            rules.write_text("2.o\n")
            after = os.stat(rules).st_mtime

        listed = git("--git-dir", shadow.store, "ls-tree", "-r", "--name-only", shadow.track())

    assert listed.splitlines() == ["s/.gitignore", "s/1.o"]


def test_a_rule_changed_while_a_snapshot_runs_makes_nothing_known(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that existed and was ignored must not seem to have been absent: reverts would remove it."""
    make_tree(worktree, {"s": {".gitignore": "*.o\n", "a.o": "1"}})

    def read_files_late(*arguments: Any, **named: Any) -> Any:  # Any: passed on unchanged
        (worktree / "s" / ".gitignore").write_text("#.o\n")
        return read_files(*arguments, **named)

    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        with monkeypatch.context() as patched:
            patched.setattr("shadowtree.capture.capture.read_files", read_files_late)
            tree = shadow.track()
        patch = shadow.patch(tree)

    assert "s/a.o" not in [changed.path for changed in patch.files]
    assert [skip.path for skip in patch.skipped] == ["s/a.o"]


# All kinds of changes

NAMES = ["a", "b", "c", "d", "x.o", "y.o", "k.py", "venv", "build", "node_modules"]
PATTERNS = [
    "*.o",
    "x.o",
    "a",
    "a/",
    "build/",
    "*.py",
    "/b",
    "b/c",
    "**/d",
    "*",
    "c/**",
    "[ab]",
    "venv/",
    "y.*",
    "a/x.o",
]
FORBIDDEN = [".GIT", "git~1", ".git.", ".g\u200cit"]
MODES = [0o600, 0o640, 0o644, 0o664, 0o444, 0o700, 0o755, 0o775, 0o711, 0o4755]


class Chaos:
    """Changes a worktree in all kinds of ways; the same random numbers make the same changes."""

    def __init__(self, worktree: Path, home: Path, dice: random.Random, largest: int = 2) -> None:
        self.worktree = worktree
        self.home = home
        self.largest = largest
        self.dice = dice
        self.log: list[str] = []
        self._count = 0
        self._tops: list[Path] = []
        self._acts: list[Callable[[], str]] = [
            *[self.write] * 4,
            *[self.rewrite_in_place] * 4,
            *[self.replace_file] * 2,
            *[self.delete] * 3,
            *[self.rename] * 3,
            *[self.swap] * 2,
            *[self.change_type] * 3,
            *[self.change_mode] * 2,
            self.touch,
            self.hard_link,
            *[self.make_directory] * 2,
            *[self.empty_directory] * 2,
            self.remake_directory,
            self.chmod_directory,
            *[self.edit_gitignore] * 4,
            self.drop_gitignore,
            *[self.edit_own_rules] * 2,
            self.edit_exclude,
            self.edit_global_excludes,
            *[self.track] * 4,
            *[self.untrack] * 3,
            self.track_everything,
            *[self.make_repository] * 2,
            self.drop_repository,
            self.break_repository,
            *[self.pack_repository] * 2,
            self.make_odd,
        ]

    def begin(self, where: str) -> None:
        """Create the worktree: at the top of a repository, inside one, or without any."""
        self.worktree.mkdir(parents=True)
        tops = {"repository": [self.worktree], "folder of a repository": [self.worktree.parent]}
        self._tops = tops.get(where, [])
        self.refill()

    def refill(self) -> None:
        """Replace all files, and keep the indexes of repositories and the global rules."""
        for top in self._tops:
            init(top)
        for entry in self.worktree.iterdir():
            if entry.name != ".git":
                self.remove(entry)
        make_tree(
            self.worktree,
            {
                "a": {"x.o": "1", "b": {"c": "1", "y.o": "1"}, "k.py": "1"},
                "build": {"x.o": "1", "d": {"a": "1", "b": {"c": "1"}}},
                "venv": {"a": "1", "c": {"b": "1"}},
                "c": {"d": {"a": {"b": "1", "x.o": "1"}}, "ln": link("d")},
                ".gitignore": "build/\n*.o\n",
            },
        )
        self.log.append("refill")
        for _ in range(4):
            self.act_out(self.track)

    def act(self) -> None:
        """Make one change, or none if it is not possible."""
        self.act_out(self.dice.choice(self._acts))

    def act_out(self, act: Callable[[], str]) -> None:
        try:
            self.log.append(f"{act.__name__} {act()}")
        except IndexError:
            self.log.append(f"{act.__name__} -")

    # The present state

    def paths(self) -> list[Path]:
        found = []
        for directory, directories, files in os.walk(self.worktree):
            directories[:] = sorted(name for name in directories if name != ".git")
            found += [Path(directory, name) for name in [*directories, *sorted(files)] if name != ".git"]
        return found

    def directories(self) -> list[Path]:
        below = [path for path in self.paths() if path.is_dir() and not path.is_symlink()]
        return [self.worktree, *below]

    def files(self) -> list[Path]:
        return [path for path in self.paths() if path.is_file() and not path.is_symlink()]

    def repositories(self) -> list[Path]:
        """List the repositories, those around others first."""
        return [
            path for path in [self.worktree.parent, *self.directories()] if (path / ".git" / "HEAD").exists()
        ]

    def new_path(self) -> Path:
        return self.dice.choice(self.directories()) / self.dice.choice(NAMES)

    def text(self) -> str:
        self._count += 1
        return f"{self._count:06d}"

    def rules(self, *prefixes: str) -> str:
        lines = [
            self.dice.choice(prefixes) + self.dice.choice(PATTERNS) for _ in range(self.dice.randint(0, 3))
        ]
        return "".join(f"{line}\n" for line in lines)

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.worktree.parent))

    def remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    # The changes

    def write(self) -> str:
        path = self.new_path()
        if not path.is_dir() or path.is_symlink():
            self.remove(path)
            path.write_text(self.text() * self.dice.choice([0, 1, 2, self.largest]))
        return self.name(path)

    def rewrite_in_place(self) -> str:
        """Write the same number of other bytes into a file, and sometimes restore its mtime."""
        path = self.dice.choice(self.files())
        status = path.stat()
        with path.open("r+b") as file:
            file.write((self.text() * 20).encode()[: status.st_size])
        if self.dice.random() < 0.5:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return self.name(path)

    def replace_file(self) -> str:
        path = self.dice.choice(self.files())
        size, mtime_ns = path.stat().st_size, path.stat().st_mtime_ns
        other = path.with_name("replacing")
        other.write_bytes((self.text() * 20).encode()[:size])
        os.utime(other, ns=(mtime_ns, mtime_ns))
        other.rename(path)
        return self.name(path)

    def delete(self) -> str:
        path = self.dice.choice(self.paths())
        self.remove(path)
        return self.name(path)

    def rename(self) -> str:
        source, target = self.dice.choice(self.paths()), self.new_path()
        if source != target and source not in target.parents and target not in source.parents:
            self.remove(target)
            source.rename(target)
        return f"{self.name(source)} {self.name(target)}"

    def swap(self) -> str:
        one, other = self.dice.choice(self.paths()), self.dice.choice(self.paths())
        if one != other and one not in other.parents and other not in one.parents:
            aside = self.worktree / "aside"
            one.rename(aside)
            other.rename(one)
            aside.rename(other)
        return f"{self.name(one)} {self.name(other)}"

    def change_type(self) -> str:
        path = self.dice.choice(self.paths())
        self.remove(path)
        kind = self.dice.choice(["file", "link", "directory", "pipe"])
        if kind == "file":
            path.write_text(self.text())
        elif kind == "link":
            path.symlink_to(self.dice.choice(NAMES))
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
            (path / self.dice.choice(NAMES)).write_text(self.text())
        return f"{self.name(path)} {kind}"

    def change_mode(self) -> str:
        path = self.dice.choice(self.files())
        path.chmod(self.dice.choice(MODES))
        return self.name(path)

    def chmod_directory(self) -> str:
        path = self.dice.choice(self.directories())
        path.chmod(self.dice.choice([0o700, 0o755]))
        return self.name(path)

    def touch(self) -> str:
        path = self.dice.choice(self.paths())
        times = self.dice.choice([None, (10**9, 10**9)])
        os.utime(path, times, follow_symlinks=False)
        return self.name(path)

    def hard_link(self) -> str:
        path, target = self.dice.choice(self.files()), self.new_path()
        if not os.path.lexists(target):
            os.link(path, target)
        return f"{self.name(path)} {self.name(target)}"

    def make_directory(self) -> str:
        path = self.new_path()
        if not os.path.lexists(path):
            path.mkdir()
        return self.name(path)

    def empty_directory(self) -> str:
        path = self.dice.choice(self.directories()[1:])
        for entry in list(path.iterdir()):
            self.remove(entry)
        return self.name(path)

    def remake_directory(self) -> str:
        """Create a directory and its files again, with the same names."""
        path = self.dice.choice(self.directories()[1:])
        aside = self.worktree.parent / "aside"
        path.rename(aside)
        shutil.copytree(aside, path, symlinks=True, copy_function=shutil.copy, ignore=self._ignore_pipes)
        shutil.rmtree(aside)
        return self.name(path)

    @staticmethod
    def _ignore_pipes(directory: str, names: list[str]) -> list[str]:
        return [name for name in names if stat.S_ISFIFO(os.lstat(os.path.join(directory, name)).st_mode)]

    def edit_gitignore(self) -> str:
        directory = self.dice.choice(self.directories())
        path = directory / ".gitignore"
        self._put(path, self.rules("", "", "!"))
        return self.name(path)

    def drop_gitignore(self) -> str:
        path = self.dice.choice([path for path in self.files() if path.name == ".gitignore"])
        path.unlink()
        return self.name(path)

    def edit_own_rules(self) -> str:
        self._put(self.worktree / ".shadowtreeignore", self.rules("", "!", "!"))
        return ""

    def edit_exclude(self) -> str:
        path = self.dice.choice(self.repositories()) / ".git" / "info" / "exclude"
        self._put(path, self.rules("", "!"))
        return self.name(path)

    def edit_global_excludes(self) -> str:
        self._put(
            self.home / ".config" / "git" / "ignore", self.rules("") if self.dice.random() < 0.5 else ""
        )
        return ""

    def _put(self, path: Path, content: str) -> None:
        """Write a file in place or by a rename, or remove it."""
        how = self.dice.random()
        if path.is_dir() or path.is_symlink() or path.is_fifo() or how < 0.2:
            self.remove(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if how < 0.6:
            path.write_text(content)
        elif how < 0.9:
            other = path.with_name("other")
            other.write_text(content)
            other.rename(path)

    def track(self) -> str:
        path = self.dice.choice(self.files())
        top = self._top_of(path)
        git("add", "--force", "--", path.relative_to(top), cwd=top)
        return self.name(path)

    def untrack(self) -> str:
        top = self.dice.choice(self.repositories())
        tracked = git("ls-files", "-z", cwd=top).split("\0")[:-1]
        path = self.dice.choice(tracked)
        git("rm", "--quiet", "--cached", "--force", "--", f":(literal){path}", cwd=top)
        return f"{self.name(top)} {path}"

    def track_everything(self) -> str:
        """Add every file below a repository to its index, whatever ignores it."""
        top = self.dice.choice(self.repositories())
        names = [
            path.relative_to(top)
            for path in self.files()
            if top in path.parents and self._top_of(path) == top
        ]
        git("add", "--force", "--", *[name for name in names if name.name not in FORBIDDEN], cwd=top)
        return self.name(top)

    def _top_of(self, path: Path) -> Path:
        """Find the nearest repository: git adds a file only there."""
        tops = [top for top in self.repositories() if top in path.parents]
        inside = path.relative_to(tops[-1]).parts
        if any(part in FORBIDDEN for part in inside):
            raise IndexError
        return tops[-1]

    def make_repository(self) -> str:
        path = self.dice.choice(self.directories())
        if not (path / ".git").exists():
            init(path)
        return self.name(path)

    def drop_repository(self) -> str:
        path = self.dice.choice(self.repositories())
        shutil.rmtree(path / ".git")
        return self.name(path)

    def break_repository(self) -> str:
        """Remove its HEAD, so that it is no repository any more, or put it back."""
        heads = [path / ".git" / "HEAD" for path in self.directories() if (path / ".git").is_dir()]
        head = self.dice.choice(heads)
        if head.exists():
            head.rename(head.with_name("HEAD.off"))
        else:
            head.with_name("HEAD.off").rename(head)
        return self.name(head)

    def pack_repository(self) -> str:
        """Commit what is tracked, so that the contents are in a pack of the user's repository."""
        top = self.dice.choice(self.repositories())
        git("commit", "--quiet", "--allow-empty", "--message=x", cwd=top)
        git("repack", "-a", "-d", "-q", "--depth=0", cwd=top)
        return self.name(top)

    def make_odd(self) -> str:
        path = self.dice.choice(self.directories()) / self.dice.choice(FORBIDDEN)
        if os.path.lexists(path):
            self.remove(path)
        elif self.dice.random() < 0.5:
            path.mkdir()
            (path / "a").write_text(self.text())
        else:
            path.write_text(self.text())
        return self.name(path)


def assert_equals_disk(shadow: Shadow, tree: str) -> None:
    """Read every file that a tree covers, and compare."""
    for line in git("--git-dir", shadow.store, "ls-tree", "-r", "-z", tree).split("\0")[:-1]:
        about, _, name = line.partition("\t")
        path = shadow.worktree / name
        content = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
        mode = "120000" if path.is_symlink() else "100755" if path.stat().st_mode & 0o100 else "100644"
        assert about == f"{mode} blob {object_id(b'blob', content).hex()}", name


def live_through(
    chaos: Chaos, observer: Observer, look: Callable[[], tuple[Snapshot, Snapshot]], steps: int
) -> None:
    """Change the worktree step by step, and compare a warm with a cold snapshot after each."""
    dice = chaos.dice
    for step in range(steps):
        warm, cold = look()
        assert (warm.tree, warm.facts) == (cold.tree, cold.facts), chaos.log[-8:]
        assert (warm.files, warm.skipped) == (cold.files, cold.skipped), chaos.log[-8:]
        assert_equals_disk(observer.shadow, warm.tree)
        for _ in range(dice.choice([1, 1, 1, 2, 4])):
            chaos.act()
        if step % 20 == 19 or len(chaos.paths()) < 12:
            chaos.refill()
        if dice.random() < 0.1:
            observer.change_settings(heavy_dirs=dice.choice(["", "build", "c,d"]))
            chaos.log.append(f"settings {observer.settings}")
    observer.shadow.close()
    assert_sound_store(observer.shadow.store)


FEW_OR_MANY = [pytest.param(20, id="few"), pytest.param(60, id="many", marks=pytest.mark.slow)]


@pytest.mark.parametrize("changes", FEW_OR_MANY)
@pytest.mark.parametrize("where", ["repository", "plain folder", "folder of a repository"])
def test_a_warm_snapshot_is_a_cold_one_after_any_change(
    where: str, changes: int, tmp_path: Path, far_apart: None, wait_for_tick: Callable[[], None]
) -> None:
    worktree = tmp_path / "top" / "worktree"
    chaos = Chaos(worktree, tmp_path / "home", random.Random(f"{where} 4"))
    chaos.begin(where)
    observer = Observer(worktree, tmp_path / "cold", wait_for_tick)

    live_through(chaos, observer, observer.look, changes)


@pytest.mark.parametrize("changes", FEW_OR_MANY)
def test_a_warm_snapshot_is_a_cold_one_right_after_a_change(changes: int, tmp_path: Path) -> None:
    """There is no pause, so times are too young to be trusted."""
    worktree = tmp_path / "top" / "worktree"
    chaos = Chaos(worktree, tmp_path / "home", random.Random(1))
    chaos.begin("repository")
    observer = Observer(worktree, tmp_path / "cold", lambda: None)

    live_through(chaos, observer, observer.look, changes)


def test_a_snapshot_with_a_history_is_the_same_without_its_cache(
    tmp_path: Path, far_apart: None, wait_for_tick: Callable[[], None]
) -> None:
    """The size limit depends on what was covered before, so both shadows have the same history."""
    worktree = tmp_path / "top" / "worktree"
    chaos = Chaos(worktree, tmp_path / "home", random.Random(2), largest=50)
    chaos.begin("repository")
    observer = Observer(worktree, tmp_path / "cold", wait_for_tick)
    store = tmp_path / "forgetful"

    def look() -> tuple[Snapshot, Snapshot]:
        observer.change_settings(**{**observer.settings, "max_file_size": chaos.dice.choice([20, 200])})
        warm = observer.shadow.take_snapshot()
        wait_for_tick()
        for path in tmp_path.glob("forgetful/cache.db*"):
            path.unlink()
        with Shadow(worktree, store=store, settings=observer.settings) as forgetful:
            return warm, forgetful.take_snapshot()

    live_through(chaos, observer, look, 50)


@pytest.mark.parametrize("is_young", [True, False])
def test_an_index_is_read_again_if_its_stamp_may_hide_a_change(
    worktree: Path, monkeypatch: pytest.MonkeyPatch, is_young: bool
) -> None:
    """Without this, what git tracks since then would stay ignored."""
    init(worktree)
    make_tree(worktree, {"a.log": "1", "b": "1"})
    exclude = worktree / ".git" / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("*.log\n")
    sleep(0.2)  # so that only the index is young
    git("-C", worktree, "add", "b")
    repository = find_at(os.fsencode(worktree))
    assert repository is not None
    stamp = index_stamp(repository)
    monkeypatch.setattr("shadowtree.capture.rules.sources.index_stamp", lambda repository: stamp)
    clock_ns = (worktree / ".git" / "index").stat().st_mtime_ns + (10**6 if is_young else 10**10)
    change_limits(monkeypatch, file_clock_ns=lambda: clock_ns)
    shadow = Shadow(worktree)
    before = shadow.take_snapshot()
    git("-C", worktree, "add", "--force", "a.log")

    assert shadow.take_snapshot().files == before.files + is_young
