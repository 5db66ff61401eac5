"""Scanning a worktree that changes, refuses access or is extremely large.

A snapshot equals the disk in everything that it covers, and lists as skipped what it could not cover.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import random
import resource
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow, Snapshot, WorktreeFailed
from shadowtree.base.limits import Limits
from shadowtree.capture import read_files as walked
from shadowtree.system.files import stream_file
from tests.support.processes import Raised, in_child, surroundings
from tests.support.referee import assert_sound_store, files_in, git, git_tree, init
from tests.support.stores import recorded_trees
from tests.support.sweeps import fail_calls
from tests.support.trees import Tree, link, make_tree

STREAMED = 3 * 1024 * 1024
"""The size of a file that is read piece by piece."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


def blob_id(content: bytes) -> bytes:
    """Return the id that git gives to a file's content."""
    return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).digest()


def tree_id(*entries: tuple[bytes, bytes]) -> bytes:
    """Return the id of a tree; an entry is its mode and name, such as `100644 a`, and an id."""
    body = b"".join(entry + b"\0" + object_id for entry, object_id in entries)
    return sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).digest()


def tree_of_file(name: bytes, content: bytes) -> str:
    """Return the id of a tree that contains one file."""
    return tree_id((b"100644 " + name, blob_id(content))).hex()


def skipped(snapshot: Snapshot) -> list[str]:
    """Return the paths that a snapshot could not cover."""
    return [skip.path for skip in snapshot.skipped]


def run_python(script: str, *arguments: str | Path, **environment: str) -> Any:  # Any: JSON
    """Run a script in a separate process, and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=surroundings(**environment),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


class Interference:
    """Changes a file just when a function of `os` is called for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, victim: Path) -> None:
        self.times = 0
        self._seen = 0
        self._monkeypatch = monkeypatch
        self._victim = victim

    def before(self, call: str, act: Callable[[], object], *, turn: int = 1) -> None:
        """Act before one of the calls, by default the first."""
        real = getattr(os, call)

        def interfered(target: Any, *rest: Any, **named: Any) -> Any:  # Any: the arguments of the call
            if self._seen < turn and self._is_meant(target):
                self._seen += 1
                if self._seen == turn:
                    self.times += 1
                    act()
            return real(target, *rest, **named)

        self._monkeypatch.setattr(os, call, interfered)

    def after(self, call: str, act: Callable[[], object], *, most: int = 1) -> None:
        """Act after the first calls."""
        real = getattr(os, call)

        def interfered(target: Any, *rest: Any, **named: Any) -> Any:  # Any: the arguments of the call
            result = real(target, *rest, **named)
            if self.times < most and self._is_meant(target):
                self.times += 1
                act()
            return result

        self._monkeypatch.setattr(os, call, interfered)

    def _is_meant(self, target: object) -> bool:
        if isinstance(target, int):
            try:
                return os.fsdecode(Path(f"/proc/self/fd/{target}").readlink()) == str(self._victim)
            except OSError:
                return False
        assert isinstance(target, str | bytes | os.PathLike)
        return os.path.basename(os.fsencode(target)) == os.fsencode(self._victim.name)


def assert_true_of_disk(snapshot: Snapshot, worktree: Path, scratch: Path) -> None:
    """Compare a snapshot with the disk, apart from skipped paths, which are removed."""
    for path in skipped(snapshot):
        place = worktree / path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    assert snapshot.tree == git_tree(worktree, scratch)


# Files that change while they are read


def _vanish(path: Path) -> None:
    path.unlink()


def _become_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


def _become_link_outside(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def _become_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _become_directory(path: Path) -> None:
    path.unlink()
    make_tree(path, {"below": "1"})


def _become_another_file(path: Path) -> None:
    other = path.with_name("other")
    other.write_text("another inode")
    other.rename(path)


def _grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def _shrink(path: Path) -> None:
    os.truncate(path, 1)


def _rewrite(path: Path) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(b"y" * path.stat().st_size)


FILE_MOVES = [
    _vanish,
    _become_link,
    _become_link_outside,
    _become_fifo,
    _become_directory,
    _become_another_file,
    _grow,
    _shrink,
    _rewrite,
]


@pytest.mark.parametrize("move", FILE_MOVES)
@pytest.mark.parametrize(
    ("call", "turn", "size"),
    [("stat", 1, 100), ("open", 1, 100), ("read", 1, 100), ("read", 2, 100), ("read", 2, STREAMED)],
    ids=["stat", "open", "read", "read again", "stream"],
)
def test_a_file_that_moves_during_a_snapshot_is_true_or_skipped(
    shadow: Shadow,
    worktree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[[Path], None],
    call: str,
    turn: int,
    size: int,
) -> None:
    """F24: the old state, the new state, or listed; never a mixture."""
    make_tree(worktree, {"sub": {"victim": b"x" * size, "bystander": "1"}, "other": "1"})
    victim = worktree / "sub" / "victim"
    before = git_tree(worktree, tmp_path / "before")
    # A stamp in the future is always doubted, so the file is read twice.
    os.utime(victim, (2**32, 2**32))
    with monkeypatch.context() as patch:
        interference = Interference(patch, victim)
        interference.before(call, lambda: move(victim), turn=turn)
        snapshot = shadow.take_snapshot()
    after = shadow.take_snapshot()

    assert interference.times == 1, f"nothing calls os.{call} for a file any more"
    assert snapshot.tree in (before, after.tree) or skipped(snapshot) == ["sub/victim"]
    assert skipped(after) == (["sub/victim"] if move is _become_fifo else [])
    assert_true_of_disk(after, worktree, tmp_path / "scratch")


@pytest.mark.parametrize("move", [_vanish, _become_another_file, _become_directory, _become_fifo])
def test_a_link_that_moves_during_a_snapshot_is_true_or_skipped(
    shadow: Shadow,
    worktree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[[Path], None],
) -> None:
    make_tree(worktree, {"victim": link("somewhere"), "bystander": "1"})
    victim = worktree / "victim"
    with monkeypatch.context() as patch:
        interference = Interference(patch, victim)
        interference.before("readlink", lambda: move(victim))
        snapshot = shadow.take_snapshot()

    assert interference.times == 1
    assert_true_of_disk(snapshot, worktree, tmp_path / "scratch")


def _directory_vanishes(path: Path) -> None:
    shutil.rmtree(path)


def _directory_becomes_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file now")


def _directory_becomes_link(path: Path) -> None:
    path.rename(path.with_name("renamed"))
    path.symlink_to("renamed")


def _directory_becomes_link_outside(path: Path) -> None:
    shutil.rmtree(path)
    path.symlink_to("/etc")


@pytest.mark.parametrize(
    "move",
    [
        _directory_vanishes,
        _directory_becomes_file,
        _directory_becomes_link,
        _directory_becomes_link_outside,
    ],
)
def test_a_directory_that_moves_during_a_snapshot_is_true_or_skipped(
    shadow: Shadow,
    worktree: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    move: Callable[[Path], None],
) -> None:
    """If it were left out silently, a later command would take it for absent."""
    make_tree(worktree, {"victim": {"x": "1", "deep": {"y": "2"}}, "bystander": "1"})
    victim = worktree / "victim"
    with monkeypatch.context() as patch:
        interference = Interference(patch, victim)
        interference.before("open", lambda: move(victim))
        snapshot = shadow.take_snapshot()
    again = shadow.take_snapshot()

    assert interference.times == 1
    assert snapshot.tree == again.tree or "victim" in skipped(snapshot)
    assert_true_of_disk(again, worktree, tmp_path / "scratch")


@pytest.mark.parametrize("is_watched", [False, True])
@pytest.mark.parametrize("name", ["b/victim", "b"])
def test_what_is_moved_to_a_place_that_was_scanned_is_recorded_there(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_watched: bool, name: str
) -> None:
    """Invariant 3: otherwise it would be at neither place, and a later command would take it for absent."""
    make_tree(worktree, {"a": {"x": "1"}, "b": {"victim": "1", "y": "1"}})
    with Shadow(worktree, watch=is_watched) as shadow:
        shadow.take_snapshot()
        make_tree(worktree, {"b": {"victim": "23", "new": "1"}})
        victim = worktree / name
        with monkeypatch.context() as patch:
            interference = Interference(patch, victim)
            interference.before("open", lambda: victim.rename(worktree / "a" / "moved"))
            message = shadow.snapshot("m1")

        assert interference.times == 1
        assert message.after == git_tree(worktree, tmp_path / "scratch")


@pytest.mark.parametrize("size", [100, STREAMED], ids=["small", "streamed"])
def test_a_file_that_changes_during_each_attempt_to_read_it_is_skipped_with_its_reason(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    make_tree(worktree, {"restless": b"x" * size, "bystander": "1"})
    restless = worktree / "restless"
    letters = iter(range(10**9))
    with monkeypatch.context() as patch:
        interference = Interference(patch, restless)
        interference.after(
            "read", lambda: restless.write_bytes(b"%c" % (next(letters) % 26 + 65) * size), most=10**6
        )
        snapshot = shadow.take_snapshot()

    assert interference.times > 1
    assert [(skip.path, skip.reason) for skip in snapshot.skipped] == [
        ("restless", "kept changing while it was read")
    ]
    assert files_in(shadow.store, snapshot.tree) == ["bystander"]
    assert shadow.take_snapshot().skipped == []


def _write_over(path: Path, content: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(content)


def _put_in_place(path: Path, content: bytes) -> None:
    state, new = path.parent.with_name(f"state {content[:1]!r}"), path.parent.with_name("new")
    if not state.exists():
        state.write_bytes(content)
    os.link(state, new)
    new.replace(path)
    new.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("flip", "size"), [(_write_over, 4096), (_put_in_place, 4096), (_put_in_place, STREAMED)]
)
def test_a_writer_that_flips_a_file_never_gives_a_mixed_blob(
    shadow: Shadow, worktree: Path, flip: Callable[[Path, bytes], None], size: int
) -> None:
    """F23. The disk only ever has all A or all B.

    More than one page would not do: a `write` may be delayed between two pages for longer than a snapshot
    takes, and then the disk really holds the mixture.
    """
    states = [b"A" * size, b"B" * size]
    allowed = {tree_of_file(b"flipping", state) for state in states}
    flipping = worktree / "flipping"
    flipping.write_bytes(states[0])
    over = threading.Event()

    def write() -> None:
        while not over.is_set():
            for state in states:
                flip(flipping, state)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        snapshots = [shadow.take_snapshot() for _ in range(100 if size < STREAMED else 20)]
    finally:
        over.set()
        writer.join()

    assert {snapshot.tree for snapshot in snapshots if not snapshot.skipped} <= allowed
    assert {path for snapshot in snapshots for path in skipped(snapshot)} <= {"flipping"}
    assert shadow.track() in allowed


def test_a_file_that_only_grows_is_stored_as_one_of_its_states(shadow: Shadow, worktree: Path) -> None:
    """F25."""
    log = worktree / "log"
    line = bytes(range(256))
    over = threading.Event()

    def append() -> None:
        with log.open("ab", buffering=0) as file:
            while not over.is_set() and file.tell() < 2 * STREAMED:
                file.write(line)

    log.touch()
    writer = threading.Thread(target=append)
    writer.start()
    try:
        snapshots = [shadow.take_snapshot() for _ in range(30)]
    finally:
        over.set()
        writer.join()

    for tree in {snapshot.tree for snapshot in snapshots if not snapshot.skipped}:
        size = int(git("--git-dir", shadow.store, "cat-file", "-s", f"{tree}:log"))
        assert size % len(line) == 0
        assert tree == tree_of_file(b"log", line * (size // len(line)))
    assert shadow.track() == tree_of_file(b"log", log.read_bytes())


def test_files_that_come_and_go_during_snapshots_raise_nothing(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    """2a.32 of the research on OpenCode, F24."""
    make_tree(worktree, {"still": "1", "busy": {}})
    over = threading.Event()

    def churn() -> None:
        chance = random.Random(3)
        while not over.is_set():
            path = worktree / "busy" / str(chance.randrange(50))
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()
            elif chance.random() < 0.3:
                make_tree(path, {"x": "1", "y": {"z": "2"}})
            else:
                path.write_text("3")

    writers = [threading.Thread(target=churn)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(40):
            shadow.take_snapshot()
    finally:
        over.set()
        for writer in writers:
            writer.join()

    snapshot = shadow.take_snapshot()
    assert snapshot.skipped == []
    assert snapshot.tree == git_tree(worktree, tmp_path / "scratch")


def test_rules_that_change_during_a_snapshot_never_make_a_file_known_to_be_absent(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scan left the file out by the old rules; the tree must not contain only the new rules."""
    make_tree(worktree, {".gitignore": "a.log\n", "a.log": "precious"})
    rules = worktree / ".gitignore"
    with monkeypatch.context() as patch:
        interference = Interference(patch, rules)
        interference.before("close", lambda: rules.write_text("b.log\n"))
        tree = shadow.track()

    assert interference.times == 1
    assert "a.log" not in [changed.path for changed in shadow.patch(tree).files]


# Kinds that are neither file nor link


def test_special_files_are_skipped_and_never_opened(
    shadow: Shadow, worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F22: opening a FIFO would wait forever, and opening a device may do anything."""
    make_tree(worktree, {"sub": {"plain": "1"}})
    os.mkfifo(worktree / "sub" / "fifo")
    monkeypatch.chdir(worktree)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        snapshot = shadow.take_snapshot()

    assert [(skip.path, skip.reason) for skip in snapshot.skipped] == [
        ("socket", "not a regular file or link"),
        ("sub/fifo", "not a regular file or link"),
    ]
    assert_true_of_disk(snapshot, worktree, tmp_path / "scratch")


@needs_root
def test_devices_are_skipped(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"plain": "1"})
    try:
        os.mknod(worktree / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(worktree / "loop", stat.S_IFBLK | 0o600, os.makedev(7, 200))
    except PermissionError:
        pytest.skip("no device may be made here")

    snapshot = shadow.take_snapshot()

    assert skipped(snapshot) == ["loop", "null"]
    assert files_in(shadow.store, snapshot.tree) == ["plain"]


@pytest.mark.parametrize("name", [".gitignore", ".shadowtreeignore", ".git", ".gitattributes"])
@pytest.mark.parametrize("kind", ["fifo", "directory", "loop", "dangling"])
def test_files_of_rules_of_another_kind_do_no_harm(
    shadow: Shadow, worktree: Path, name: str, kind: str
) -> None:
    make_tree(worktree, {"plain": "1", "sub": {"plain": "1"}})
    for place in (worktree / name, worktree / "sub" / name):
        if kind == "fifo":
            os.mkfifo(place)
        elif kind == "directory":
            place.mkdir()
        else:
            place.symlink_to(name if kind == "loop" else "nowhere")

    tree = shadow.track()

    assert [path for path in files_in(shadow.store, tree) if not path.endswith(name)] == [
        "plain",
        "sub/plain",
    ]


def test_loops_of_links_are_links(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    make_tree(
        worktree,
        {
            "self": link("self"),
            "one": link("two"),
            "two": link("one"),
            "sub": {"up": link(".."), "deep": {"root": link("../.."), "abs": link("/")}},
        },
    )

    snapshot = shadow.take_snapshot()

    assert snapshot.files == 6
    assert snapshot.tree == git_tree(worktree, tmp_path / "scratch")


def test_a_change_through_another_name_of_a_hard_link_is_seen(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    """F32: one of the names may even be outside the worktree."""
    make_tree(worktree, {"one": "old", "sub": {}})
    os.link(worktree / "one", worktree / "sub" / "two")
    os.link(worktree / "one", tmp_path / "outside")
    before = shadow.track()
    (tmp_path / "outside").write_text("new")

    patch = shadow.patch(before)

    assert {changed.path: changed.status for changed in patch.files} == {
        "one": "modified",
        "sub/two": "modified",
    }
    assert shadow.track() == git_tree(worktree, tmp_path / "scratch")


# Names and sizes


@pytest.mark.parametrize("variables", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"}])
@pytest.mark.parametrize("utf8_mode", ["0", "1"])
def test_names_are_bytes_in_every_locale(
    shadow: Shadow, worktree: Path, tmp_path: Path, variables: dict[str, str], utf8_mode: str
) -> None:
    """F70."""
    names = [b"\xff\xfe", "\u00e9".encode(), "e\u0301".encode(), "\U0001f600".encode(), b"\x80d"]
    make_tree(worktree, {os.fsdecode(name): {os.fsdecode(name): "x"} for name in names})
    script = (
        "import json, sys; from shadowtree import Shadow\n"
        "with Shadow(sys.argv[1], store=sys.argv[2], settings={'min_free': 0}) as shadow:\n"
        "    print(json.dumps(shadow.take_snapshot().to_dict()))\n"
    )

    found = run_python(script, worktree, tmp_path / "other", PYTHONUTF8=utf8_mode, **variables)

    assert found == shadow.take_snapshot().to_dict()
    assert found["tree"] == git_tree(worktree, tmp_path / "scratch")


@pytest.fixture
def deep_worktree(worktree: Path) -> Iterator[Path]:
    """The worktree; at the end a tool removes it that does not recurse."""
    yield worktree
    subprocess.run(["rm", "-rf", worktree], check=True)


def _nest(root: Path, depth: int, name: str, leaf: Callable[[int], None] = lambda fd: None) -> None:
    """Make nested directories, each with a file; `leaf` fills the last one by its descriptor."""
    fd = os.open(root, os.O_RDONLY)
    for level in range(depth):
        os.mkdir(name, dir_fd=fd)
        fd = _enter(fd, name)
        _write_at(fd, "f", b"%d" % level)
    leaf(fd)
    os.close(fd)


def _enter(fd: int, name: str) -> int:
    below = os.open(name, os.O_RDONLY, dir_fd=fd)
    os.close(fd)
    return below


def _write_at(directory_fd: int, name: str, content: bytes) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=directory_fd)
    os.write(fd, content)
    os.close(fd)


def _nested_tree(depth: int, name: bytes) -> str:
    """Return the id of the tree that `_nest` makes."""
    tree = b""
    for level in reversed(range(depth)):
        entries = [(b"100644 f", blob_id(b"%d" % level))]
        if tree:
            entries.append((b"40000 " + name, tree))
        tree = tree_id(*sorted(entries, key=lambda entry: entry[0].partition(b" ")[2]))
    return tree_id((b"40000 " + name, tree)).hex()


LONG = "n" * 255
"""Twenty of these, nested, are longer than PATH_MAX."""


def test_a_tree_two_thousand_deep_is_covered(shadow: Shadow, deep_worktree: Path) -> None:
    """F27: longer than PATH_MAX and deeper than any recursion."""
    depth = 2100
    _nest(deep_worktree, depth, "d")

    before = shadow.take_snapshot()

    assert (before.tree, before.files, before.skipped) == (_nested_tree(depth, b"d"), depth, [])
    fd = os.open(deep_worktree, os.O_RDONLY)
    for _ in range(depth):
        fd = _enter(fd, "d")
    _write_at(fd, "f", b"changed")
    os.close(fd)
    (changed,) = shadow.patch(before.tree).files
    assert changed.path == "d/" * depth + "f"
    assert shadow.status().changed == 1


def test_a_path_longer_than_path_max_is_covered(shadow: Shadow, deep_worktree: Path) -> None:
    """F27."""
    _nest(deep_worktree, 40, LONG)

    snapshot = shadow.take_snapshot()

    assert snapshot.skipped == []
    assert snapshot.tree == _nested_tree(40, LONG.encode())


def test_links_and_rules_below_path_max_count_too(shadow: Shadow, deep_worktree: Path) -> None:
    def fill(fd: int) -> None:
        _write_at(fd, ".gitignore", b"*.log\n")
        _write_at(fd, "x.log", b"ignored")
        os.symlink("f", "link", dir_fd=fd)
        os.mkdir("empty", dir_fd=fd)

    _nest(deep_worktree, 20, LONG, fill)

    snapshot = shadow.take_snapshot()

    bottom = (LONG + "/") * 20
    assert snapshot.skipped == []
    found = [path for path in files_in(shadow.store, snapshot.tree) if path.startswith(bottom)]
    assert found == [bottom + name for name in (".gitignore", "f", "link")]


def test_a_repository_below_path_max_does_no_harm(shadow: Shadow, deep_worktree: Path) -> None:
    """Its files are covered, or the snapshot lists them as skipped."""

    def fill(fd: int) -> None:
        os.mkdir(".git", dir_fd=fd)
        git_fd = os.open(".git", os.O_RDONLY, dir_fd=fd)
        _write_at(git_fd, "HEAD", b"ref: refs/heads/main\n")
        for name in ("objects", "refs"):
            os.mkdir(name, dir_fd=git_fd)
        os.close(git_fd)
        _write_at(fd, "tracked", b"1")

    _nest(deep_worktree, 20, LONG, fill)

    snapshot = shadow.take_snapshot()

    bottom = (LONG + "/") * 20
    is_covered = bottom + "tracked" in files_in(shadow.store, snapshot.tree)
    assert is_covered or bottom.rstrip("/") in skipped(snapshot)


def test_few_open_files_are_enough(shadow: Shadow, worktree: Path, tmp_path: Path) -> None:
    """F17: 3,000 files and a depth of 200 with 32 descriptors."""
    nest: Tree = {"leaf": "x"}
    for level in range(200):
        nest = {"d": nest, f"f{level}": "y"}
    wide: Tree = {f"{n}": {f"{m}": f"{n} {m}" for m in range(100)} for n in range(28)}
    make_tree(worktree, {"nest": nest, "wide": wide})
    script = (
        "import json, resource, sys; from shadowtree import Shadow\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))\n"
        "with Shadow(sys.argv[1], store=sys.argv[2], settings={'min_free': 0}) as shadow:\n"
        "    first = shadow.take_snapshot()\n"
        "    open(sys.argv[1] + '/new', 'w').close()\n"
        "    changed = [c.path for c in shadow.patch(first.tree).files]\n"
        "    print(json.dumps([shadow.take_snapshot().to_dict(), changed, shadow.status().changed]))\n"
    )

    snapshot, changed, count = run_python(script, worktree, tmp_path / "other")

    assert snapshot == shadow.take_snapshot().to_dict()
    assert (snapshot["files"], snapshot["skipped"]) == (3002, [])
    assert (changed, count) == (["new"], 0)
    assert_sound_store(tmp_path / "other")


@needs_root
def test_a_mount_point_inside_is_a_directory_like_others(
    shadow: Shadow, worktree: Path, tmp_path: Path
) -> None:
    make_tree(worktree, {"mounted": {"hidden": "1"}, "plain": "1"})
    before = shadow.track()
    with mounted("tmpfs", worktree / "mounted"):
        make_tree(worktree / "mounted", {"seen": "2", "sub": {"x": "3"}})

        patch = shadow.patch(before)

        assert {changed.path: changed.status for changed in patch.files} == {
            "mounted/hidden": "deleted",
            "mounted/seen": "added",
            "mounted/sub/x": "added",
        }
        assert shadow.track() == git_tree(worktree, tmp_path / "scratch")
    assert shadow.track() == before


@contextmanager
def mounted(kind: str, place: Path, *options: str, source: str = "none") -> Iterator[None]:
    """Mount something for the duration of a block; skip the test if that is not allowed."""
    command = ["mount", "-t", kind, *options, source, str(place)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no mount is allowed here: {done.stderr.decode()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


# Paths that cannot be read

AS_NOBODY = """
import json, os, sys
from shadowtree import Shadow
place = sys.argv[1]
def act(shadow, work):
    found = []
    def see():
        snapshot = shadow.take_snapshot()
        found.append([snapshot.tree, {skip.path: skip.reason for skip in snapshot.skipped}])
        return snapshot.tree
    before = see()
    os.chmod(work + "/file", 0)
    os.chmod(work + "/closed", 0)
    os.chmod(work + "/names only", 0o444)
    closed = see()
    patch = shadow.patch(before)
    found.append([[c.path for c in patch.files], [s.path for s in patch.skipped]])
    found.append(shadow.status().changed)
    for name, mode in (("/file", 0o644), ("/closed", 0o755), ("/names only", 0o755)):
        os.chmod(work + name, mode)
    see()
    return found
def make(work):
    os.makedirs(work + "/closed/sub")
    os.makedirs(work + "/names only")
    for name in ("/plain", "/file", "/closed/x", "/closed/sub/y", "/names only/z"):
        with open(work + name, "w") as file:
            file.write(name)
    for number in range(300):
        os.makedirs(f"{work}/many/{number}")
        open(f"{work}/many/{number}/f", "w").close()
def run(name):
    work = os.path.join(place, name)
    make(work)
    with Shadow(work, store=work + ".store", settings={"min_free": 0}) as shadow:
        return act(shadow, work)
run("warm-up")  # so that nothing has to be imported later on
os.mkdir(place + "/theirs")
if os.geteuid() == 0:
    nobody = 65534
    os.chown(place + "/theirs", nobody, nobody)
    os.setgroups([])
    os.setgid(nobody)
    os.setuid(nobody)
print(json.dumps(run("theirs/worktree")))
"""


def test_what_cannot_be_read_is_skipped_and_unknown(open_place: Path) -> None:
    """F20, as a user who is not root."""
    first, closed, patch, changed, last = run_python(AS_NOBODY, open_place)

    reason = "cannot be read: permission denied"
    assert first[1] == {}
    assert closed[1] == dict.fromkeys(["closed", "file", "names only/z"], reason)
    assert closed[0] != first[0]
    assert patch == [[], ["closed/sub/y", "closed/x", "file", "names only/z"]]
    assert changed == 0
    assert last == first
    assert_sound_store(open_place / "theirs" / "worktree.store")


@pytest.mark.parametrize("is_known", [False, True], ids=["new", "known"])
def test_a_file_that_cannot_be_looked_at_is_skipped_alone(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    """Some network file systems list names for which stat then fails."""
    make_tree(worktree, {"bad": "1", "good": "1", "sub": {"good": "1"}})
    if is_known:
        shadow.track()
    with monkeypatch.context() as patch:
        fail_calls(patch, "stat", b"bad", errno.EIO)
        snapshot = shadow.take_snapshot()

    assert skipped(snapshot) == ["bad"]
    assert files_in(shadow.store, snapshot.tree) == ["good", "sub/good"]


@pytest.mark.parametrize("name", ["file", "folder"])
def test_what_may_be_there_and_cannot_be_looked_at_is_not_absent(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_tree(worktree, {"file": "1", "folder": {"a": "1"}, "good": "1"})
    victim = os.fsencode(name)
    real = os.open

    def lose(target: Any, *rest: Any, **named: Any) -> int:  # Any: the arguments of `open`
        if target == victim:
            fail_calls(patch, "stat", victim, errno.EIO)
            raise FileNotFoundError(errno.ENOENT, "gone", target)
        return real(target, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lose)
        snapshot = shadow.take_snapshot()

    assert skipped(snapshot) == [name]
    assert name not in {path.partition("/")[0] for path in files_in(shadow.store, snapshot.tree)}


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", [b"a", b"folder"], ids=["file", "folder"])
def test_trouble_of_the_process_is_no_reason_to_skip_a_file(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, name: bytes, code: int
) -> None:
    make_tree(worktree, {"a": "1", "folder": {"b": "1"}})
    tree = shadow.track()
    make_tree(worktree, {"a": "changed"})
    with monkeypatch.context() as patch:
        fail_calls(patch, "open", name, code)
        with pytest.raises(WorktreeFailed):
            shadow.take_snapshot()

    assert [record.tree.hex() for record in recorded_trees(shadow.store)] == [tree]


def test_a_process_out_of_descriptors_raises_and_records_nothing(shadow: Shadow, worktree: Path) -> None:
    init(worktree)
    make_tree(worktree, {".gitignore": "*.log\n", "a.log": "1", "b.log": "1"})
    make_tree(
        worktree, {f"d{number}": {"f": "1", "e": {".gitignore": "x\n", "x": "2"}} for number in range(3)}
    )
    git("add", "--force", "a.log", cwd=worktree)
    tree = shadow.track()
    shadow.close()

    outcomes = [in_child(partial(_track_with_few_descriptors, worktree, free)).result for free in range(30)]

    assert outcomes[0] != tree
    assert outcomes[-1] == tree
    for outcome in outcomes:
        assert outcome == tree or (isinstance(outcome, Raised) and "ShadowError" in outcome.names), outcome
    assert [record.tree.hex() for record in recorded_trees(shadow.store)] == [tree]


def _track_with_few_descriptors(worktree: Path, free: int) -> str:
    """Take a snapshot with this many descriptors that may still be opened."""
    make_tree(worktree, {"d1": {"f": "1"}})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    del soft
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            for fd in taken[len(taken) - free :]:
                os.close(fd)
        return shadow.track()


def test_a_file_that_grows_between_the_scan_and_its_reading_is_streamed(
    shadow: Shadow, worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, {"a": "1", "sub": {"log": "1"}})
    log = worktree / "sub" / "log"
    streamed: list[int] = []

    def grow(done: int, total: int) -> None:
        if done == 1:
            log.write_bytes(b"x" * STREAMED)
            os.utime(log, (0, 0))

    def stream(fd: int, size: int) -> Iterator[bytes]:
        streamed.append(size)
        return stream_file(fd, size)

    monkeypatch.setattr(walked, "stream_file", stream)
    snapshot = shadow.take_snapshot(progress=grow)

    assert set(streamed) == {STREAMED}
    assert snapshot.tree == git_tree(worktree, tmp_path / "scratch")


# Memory

PEAK_MEMORY = """
import json, sys
from shadowtree import Shadow
def peak_kib():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
sizes = {"max_file_size": "1T", "min_free": 0}
with Shadow(sys.argv[1], store=sys.argv[2], settings=sizes) as shadow:
    before = shadow.take_snapshot()
    after_track = peak_kib()
    with open(sys.argv[1] + "/big", "r+b") as file:
        file.seek(1 << 20)
        file.write(b"changed")
    changed = shadow.status().changed
    after_status = peak_kib()
    patch = shadow.patch(before.tree)
    after_patch = peak_kib()
    diffs = shadow.diff(before.tree)
    print(json.dumps({
        "tree": before.tree, "skipped": len(before.skipped), "changed": changed,
        "patch": [c.path for c in patch.files], "diff": [d.path for d in diffs],
        "track": after_track, "status": after_status, "patch_kib": after_patch, "diff_kib": peak_kib(),
    }))
"""


def _measure_big_file(place: Path, size: int) -> dict[str, Any]:
    worktree = place / "worktree"
    worktree.mkdir()
    with (worktree / "big").open("wb") as big:
        for offset in range(0, size, size // 10):
            big.seek(offset)
            big.write(random.Random(offset).randbytes(1 << 20))
        big.truncate(size)
    expected = bytes.fromhex(git("hash-object", "--no-filters", worktree / "big"))
    # VmHWM and not ru_maxrss, which starts with the parent's value before exec.
    found: dict[str, Any] = run_python(PEAK_MEMORY, worktree, place / "store")
    assert_sound_store(place / "store")
    shutil.rmtree(place)
    return {**found, "expected": tree_id((b"100644 big", expected)).hex()}


LIMIT_KIB = 100 * 1000 * 1000 // 1024


def test_a_big_file_takes_no_memory_in_a_snapshot_a_status_a_patch_or_a_diff(tmp_path: Path) -> None:
    """F18, F28: a separate process records, changes and compares a file of 120 MB."""
    figures = _measure_big_file(tmp_path, 120 * 1000 * 1000)

    assert figures["tree"] == figures["expected"]
    assert (figures["skipped"], figures["changed"]) == (0, 1)
    assert figures["patch"] == figures["diff"] == ["big"]
    peaks = {act: figures[act] for act in ("track", "status", "patch_kib", "diff_kib")}
    assert max(peaks.values()) < LIMIT_KIB, peaks


@pytest.mark.slow
def test_two_gibibytes_stream_through_a_snapshot(tmp_path: Path) -> None:
    figures = _measure_big_file(tmp_path, 2 * 1024**3)

    assert figures["tree"] == figures["expected"]
    assert figures["track"] < LIMIT_KIB


# Clocks


@pytest.mark.parametrize("restored", [False, True], ids=["plain", "mtime put back"])
def test_a_change_of_the_same_size_right_after_a_snapshot_is_seen(
    shadow: Shadow, worktree: Path, restored: bool
) -> None:
    """F34."""
    _assert_every_change_seen(shadow, worktree / "f", rounds=100, restored=restored)


def _assert_every_change_seen(shadow: Shadow, path: Path, *, rounds: int, restored: bool) -> None:
    path.write_bytes(b"start")
    status = path.stat()
    for number in range(rounds):
        content = b"%05d" % number
        with path.open("r+b", buffering=0) as file:
            file.write(content)
        if restored:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

        assert shadow.track() == tree_of_file(path.name.encode(), content)


def test_a_file_replaced_by_another_of_the_same_size_and_mtime_is_seen(
    shadow: Shadow, worktree: Path
) -> None:
    path, other = worktree / "f", worktree.with_name("other")
    path.write_bytes(b"start")
    status = path.stat()
    for number in range(50):
        content = b"%05d" % number
        other.write_bytes(content)
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.rename(path)

        assert shadow.track() == tree_of_file(b"f", content)


def test_a_change_through_a_mapping_is_seen(shadow: Shadow, worktree: Path) -> None:
    """After it is flushed: until then not even the file's times change."""
    path = worktree / "f"
    path.write_bytes(b"start")
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 5) as mapping:
        for number in range(50):
            mapping[:] = content = b"%05d" % number
            mapping.flush()

            assert shadow.track() == tree_of_file(b"f", content)


def test_a_write_that_outlasts_its_stamp_is_seen(worktree: Path) -> None:
    """F34: a write stamps a file when it begins, and a busy disk may delay the rest for 0.3 s and more.

    A mapping shows the same without a busy disk: only the first store to a page changes the times.
    """
    path, size = worktree / "f", 5
    path.write_bytes(b"0" * size)
    limits = Limits(file_clock_ns=lambda: path.stat().st_mtime_ns + 300_000_000)
    shadow = Shadow(worktree, settings={"min_free": 0}, limits=limits)
    with shadow, path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapping:
        mapping[:] = b"1" * size
        shadow.track()
        mapping[:] = b"2" * size

        assert shadow.track() == tree_of_file(b"f", b"2" * size)


@pytest.mark.parametrize("seconds", [0, -1, -(10**9), 1, 2**31, 2**33], ids=str)
def test_strange_times_hide_nothing(shadow: Shadow, worktree: Path, seconds: int) -> None:
    path = worktree / "f"
    for content in (b"one", b"two", b"six"):
        path.write_bytes(content)
        os.utime(path, (seconds, seconds))
        os.utime(worktree, (seconds, seconds))

        assert shadow.track() == tree_of_file(b"f", content)
        assert shadow.track() == tree_of_file(b"f", content)


def test_names_that_come_and_go_behind_restored_times_are_seen(shadow: Shadow, worktree: Path) -> None:
    status = worktree.stat()
    for number in range(50):
        name = b"%05d" % number
        (worktree / name.decode()).write_bytes(b"x")
        os.utime(worktree, ns=(status.st_atime_ns, status.st_mtime_ns))

        assert shadow.track() == tree_of_file(name, b"x")
        (worktree / name.decode()).unlink()


@needs_root
def test_changes_within_one_tick_of_the_kernel_are_seen(tmp_path: Path) -> None:
    """F34: ramfs stamps files with the time of the last tick; ticks are some milliseconds apart."""
    place = tmp_path / "ticks"
    place.mkdir()
    with mounted("ramfs", place), Shadow(place, settings={"min_free": 0}) as shadow:
        _assert_every_change_seen(shadow, place / "f", rounds=100, restored=False)
    assert_sound_store(shadow.store)


@pytest.fixture
def coarse_worktree(tmp_path: Path) -> Iterator[Path]:
    """A directory on a file system that stores only whole seconds."""
    image, place = tmp_path / "image", tmp_path / "coarse"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(32 * 1024 * 1024)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-I", "128", image], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no such file system can be made here")
    with mounted("ext4", place, "-o", "loop", source=str(image)):
        worktree = place / "worktree"
        worktree.mkdir()
        yield worktree


def _wait_for_second() -> None:
    """Wait for the beginning of a second of the kernel's clock."""
    now = time.time()
    time.sleep(1.02 - now % 1)


@needs_root
@pytest.mark.slow
def test_changes_within_one_second_of_a_coarse_clock_are_seen(coarse_worktree: Path) -> None:
    """F34."""
    with Shadow(coarse_worktree, settings={"min_free": 0}) as shadow:
        _assert_every_change_seen(shadow, coarse_worktree / "f", rounds=100, restored=False)
    assert_sound_store(shadow.store)


@needs_root
@pytest.mark.slow
def test_rules_changed_within_one_second_of_a_coarse_clock_are_seen(coarse_worktree: Path) -> None:
    make_tree(coarse_worktree, {".gitignore": "a.log\n", "a.log": "1", "b.log": "1"})
    with Shadow(coarse_worktree, settings={"min_free": 0}) as shadow:
        shadow.track()
        time.sleep(4)  # until the directory itself is old enough to be cached
        shadow.track()
        _wait_for_second()
        for ignored, left in (("a", "b"), ("b", "a"), ("a", "b")):
            with (coarse_worktree / ".gitignore").open("r+b", buffering=0) as rules:
                rules.write(f"{ignored}.log\n".encode())

            assert files_in(shadow.store, shadow.track()) == [".gitignore", f"{left}.log"]
    assert_sound_store(shadow.store)


@needs_root
@pytest.mark.slow
def test_a_streamed_file_written_within_one_second_of_a_coarse_clock_is_never_mixed(
    coarse_worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F23: reading a large file may take longer than its stamp is doubted."""
    path = coarse_worktree / "f"
    states = [b"A" * STREAMED, b"B" * STREAMED]

    def write_and_wait() -> None:
        with path.open("r+b", buffering=0) as file:
            file.write(states[1])
        time.sleep(3)

    with Shadow(coarse_worktree, settings={"min_free": 0}) as shadow:
        _wait_for_second()
        path.write_bytes(states[0])
        before = path.stat()
        with monkeypatch.context() as patch:
            interference = Interference(patch, path)
            interference.after("read", write_and_wait)
            tree = shadow.track()
        after = path.stat()

        assert interference.times == 1
        assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
        assert tree in [tree_of_file(b"f", state) for state in states]
        assert shadow.track() == tree_of_file(b"f", states[1])
    assert_sound_store(shadow.store)
