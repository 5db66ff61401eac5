"""The cost of a snapshot with the watcher, counted and not timed: it must not grow with the tree."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shadowtree.capture import capture
from shadowtree.capture.scan import Scan
from tests.support.trees import Tree, make_tree
from tests.support.watching import Watched

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's"),
    pytest.mark.usefixtures("aged"),
]

CALLS = ("scandir", "listdir", "stat", "lstat", "open", "read")


@contextmanager
def counted(top: Path) -> Iterator[Counter[str]]:
    """Count the system calls that read something in a worktree, by their names."""
    counts: Counter[str] = Counter()
    place = os.fsencode(top)

    def count(name: str, real: Callable[..., Any]) -> Callable[..., Any]:  # Any: the arguments of the call
        def call(target: Any = ".", *rest: Any, **named: Any) -> Any:
            if isinstance(target, int):
                is_inside = os.readlink(b"/proc/self/fd/%d" % target).startswith(place)
            else:
                dir_fd = named.get("dir_fd")
                path = os.fsencode(target)
                if dir_fd is not None:
                    path = os.path.join(os.readlink(b"/proc/self/fd/%d" % dir_fd), path)
                is_inside = path.startswith(place)
            counts[name] += is_inside
            return real(target, *rest, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, count(name, getattr(os, name)))
        yield counts


@contextmanager
def scans() -> Iterator[list[Scan]]:
    """Collect the scans."""
    found: list[Scan] = []
    real = capture.scan_site

    def scan_site(*arguments: Any, **named: Any) -> Scan:  # Any: the arguments of the call
        found.append(real(*arguments, **named))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capture, "scan_site", scan_site)
        yield found


def make_wide(directories: int) -> Tree:
    """Describe a tree with this many directories, three levels deep, with three files in each."""
    files: Tree = {f"f{number}": f"{number}" for number in range(3)}
    return {f"d{number}": {"e": {**files, "g": {**files}}, **files} for number in range(directories // 3)}


EDITS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda top: None,
    "write": lambda top: (top / "d1/e/g/f1").write_text("changed"),
    "save": lambda top: _save(top / "d1/e/g/f1"),
    "create": lambda top: (top / "d1/e/g/new").write_text("new"),
    "delete": lambda top: (top / "d1/e/g/f1").unlink(),
    "make": lambda top: (top / "d1/e/g/new").mkdir(),
    "bits": lambda top: (top / "d1/e/g/f1").chmod(0o600),
    "ignored": lambda top: (top / "d1/e/g/x.log").write_text("changed"),
    "ten": lambda top: [(top / f"d{number}/e/g/f1").write_text("changed") for number in range(10)],
}


def _save(path: Path) -> None:
    path.with_name("t").write_text("changed")
    path.with_name("t").replace(path)


def cost(place: Path, directories: int, edit: Callable[[Path], object]) -> tuple[Counter[str], int, int]:
    """Return the calls of a snapshot after an edit, and how many directories it visited and found changed."""
    top = make_tree(place / f"{directories}", make_wide(directories))
    (top / ".gitignore").write_text("*.log\n")
    watched = Watched(top, place / f"store of {directories}")
    with watched.shadow:
        watched.settle()
        edit(top)
        with counted(top) as calls, scans() as found:
            watched.shadow.take_snapshot()
        assert watched.rescans() == 1
        (scan,) = found
        return calls, len(scan.directories), len(scan.changed)


@pytest.mark.parametrize("name", EDITS)
def test_a_snapshot_costs_what_changed_and_not_what_is_there(name: str, tmp_path: Path) -> None:
    small = cost(tmp_path, 30, EDITS[name])
    large = cost(tmp_path, 120, EDITS[name])

    assert small == large


def test_one_changed_file_among_many_directories(tmp_path: Path) -> None:
    calls, passed, changed = cost(tmp_path, 600, EDITS["write"])

    assert passed == 4, "the way from the root to the file"
    assert changed == 4, "the trees on the way up"
    assert calls["scandir"] == 0
    assert calls["listdir"] == 0
    assert calls["stat"] + calls["lstat"] <= 10
    assert calls["open"] <= 14


def test_hard_links_by_ignored_names_are_searched_once(tmp_path: Path) -> None:
    """The search happens when a link appears; files with known other names are checked each time."""
    top = make_tree(tmp_path / "top", make_wide(300))
    (top / ".gitignore").write_text("*.log\n")
    watched = Watched(top, tmp_path)
    with watched.shadow, scans() as found:
        watched.settle()
        (top / "d2/x.log").hardlink_to(top / "d1/f1")
        watched.settle()
        found.clear()
        (top / "d3/f1").write_text("changed")
        watched.shadow.take_snapshot()

    assert not found[0].aliases
    assert sorted(found[0].directories) == [b"", b"d1", b"d2", b"d3"]


def test_a_look_costs_no_more(tmp_path: Path) -> None:
    top = make_tree(tmp_path / "top", make_wide(600))
    watched = Watched(top, tmp_path)
    with watched.shadow:
        watched.settle()
        (top / "d1/e/g/f1").write_text("changed")
        with counted(top) as calls:
            assert watched.shadow.status().changed == 1
    assert calls["scandir"] == 0
    assert calls["stat"] <= 20


def test_a_new_rule_is_read_once_and_no_file_for_it(tmp_path: Path) -> None:
    """The directories below are checked in memory, and files only where a verdict may change."""
    top = make_tree(tmp_path / "top", make_wide(300))
    watched = Watched(top, tmp_path)
    with watched.shadow:
        watched.settle()
        (top / "d1/.gitignore").write_text("f2\n")
        with counted(top) as calls, scans() as found:
            watched.shadow.take_snapshot()
        assert len(found[0].directories) == 4
        assert calls["scandir"] == 3
        assert watched.check().files == 897 + 1
