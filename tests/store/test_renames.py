"""Renames: files with the same content, similar ones, and the limits."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path

import pytest

from shadowtree.base.frozen import replace
from shadowtree.base.paths import RelPath
from shadowtree.store.objects import TooLarge
from shadowtree.store.renames import RenameLimits, TreeFile, find_renames
from tests.support.patience import comes_back
from tests.support.referee import git, init

LIMITS = RenameLimits()
FILE, SCRIPT, LINK = 0o100644, 0o100755, 0o120777


class Blobs:
    """Contents by their ids, and a list of those that were read."""

    def __init__(self) -> None:
        self._contents: dict[bytes, bytes] = {}
        self.read_ids: list[bytes] = []

    def put(self, path: str, content: bytes, mode: int = FILE) -> TreeFile:
        blob = sha1(b"blob %d\0%s" % (len(content), content)).digest()
        self._contents[blob] = content
        return TreeFile(RelPath(path.encode()), mode, blob)

    def read(self, blob: bytes, limit: int) -> bytes:
        if len(self._contents[blob]) > limit:
            raise TooLarge
        self.read_ids.append(blob)
        return self._contents[blob]

    def find(
        self, deleted: Sequence[TreeFile], added: Sequence[TreeFile], limits: RenameLimits = LIMITS
    ) -> dict[str, str]:
        found = find_renames(deleted, added, self.read, limits)
        return {new.decode(): old.decode() for new, old in found.items()}


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()


def text(word: str, lines: int = 20, *, other: int = 0) -> bytes:
    """Return lines that no other word yields, the last ones changed."""
    changed = "".join(f"{word} became another one in line {n}\n" for n in range(other))
    return ("".join(f"{word} is in line {n}\n" for n in range(lines - other)) + changed).encode()


# The same content


def test_the_same_content_is_a_rename_and_nothing_is_read_for_it(blobs: Blobs) -> None:
    assert blobs.find([blobs.put("old", b"x")], [blobs.put("new", b"x")]) == {"new": "old"}
    assert not blobs.read_ids


def test_permission_bits_may_change_with_the_name(blobs: Blobs) -> None:
    assert blobs.find([blobs.put("old", b"x")], [blobs.put("new", b"x", SCRIPT)]) == {"new": "old"}


def test_a_link_is_renamed_but_never_becomes_a_file(blobs: Blobs) -> None:
    old = blobs.put("old", b"target", LINK)

    assert blobs.find([old], [blobs.put("new", b"target", LINK)]) == {"new": "old"}
    assert blobs.find([old], [blobs.put("new", b"target")]) == {}
    assert blobs.find([blobs.put("old", b"target")], [blobs.put("new", b"target", LINK)]) == {}


def test_links_with_similar_targets_are_different_links(blobs: Blobs) -> None:
    deleted = [blobs.put("old", b"a/very/long/target/1", LINK), blobs.put("o2", b"a/very/long/target/1")]
    added = [blobs.put("new", b"a/very/long/target/2", LINK)]

    assert blobs.find(deleted, added) == {}


def test_of_the_same_contents_the_same_names_belong_together(blobs: Blobs) -> None:
    deleted = [blobs.put(f"a/{name}", b"same") for name in "xyz"]
    added = [blobs.put(f"b/{name}", b"same") for name in "qzx"]

    assert blobs.find(deleted, added) == {"b/q": "a/y", "b/x": "a/x", "b/z": "a/z"}


def test_a_file_is_in_one_rename_at_most(blobs: Blobs) -> None:
    assert blobs.find([blobs.put("old", b"x")], [blobs.put("1", b"x"), blobs.put("2", b"x")]) == {"1": "old"}
    assert blobs.find([blobs.put("1", b"x"), blobs.put("2", b"x")], [blobs.put("new", b"x")]) == {"new": "1"}


def test_thousands_of_the_same_contents_take_no_time(blobs: Blobs) -> None:
    deleted = [blobs.put(f"a/{n}", b"%d" % (n // 5_000)) for n in range(20_000)]
    added = [blobs.put(f"b/{n}", b"%d" % (n // 5_000)) for n in range(20_000)]

    with comes_back():
        found = blobs.find(deleted, added)

    assert found == {f"b/{n}": f"a/{n}" for n in range(20_000)}


# Similar contents


@pytest.mark.parametrize(
    ("other", "is_rename"), [(1, True), (6, True), (14, False), (20, False)], ids=["1", "6", "14", "all"]
)
def test_similar_contents_are_a_rename(blobs: Blobs, other: int, is_rename: bool) -> None:
    """Of twenty lines, some differ."""
    deleted, added = [blobs.put("old", text("a"))], [blobs.put("new", text("a", other=other))]

    assert blobs.find(deleted, added) == ({"new": "old"} if is_rename else {})


def test_half_of_the_content_is_enough_as_in_git(blobs: Blobs) -> None:
    half = b"".join(b"%03d\n" % n for n in range(50))

    assert blobs.find([blobs.put("old", half * 2)], [blobs.put("new", half + b"xxx\n" * 50)]) == {
        "new": "old"
    }
    assert blobs.find([blobs.put("old", half * 2)], [blobs.put("new", half + b"xxx\n" * 51)]) == {}


def test_the_most_similar_ones_belong_together(blobs: Blobs) -> None:
    deleted = [blobs.put("1", text("a", other=8)), blobs.put("2", text("a", other=2))]

    assert blobs.find(deleted, [blobs.put("new", text("a"))]) == {"new": "2"}


def test_a_namesake_is_enough_if_it_is_very_similar(blobs: Blobs) -> None:
    """As in git: otherwise moving a large directory could not be compared at all."""
    deleted = [blobs.put("a/x", text("a", other=2)), blobs.put("a/y", text("a", other=1))]

    assert blobs.find(deleted, [blobs.put("b/x", text("a"))]) == {"b/x": "a/x"}
    assert blobs.find([blobs.put("a/x", text("a", other=7)), deleted[1]], [blobs.put("b/x", text("a"))]) == {
        "b/x": "a/y"
    }


def test_who_lost_the_best_match_gets_the_next_best(blobs: Blobs) -> None:
    deleted = [blobs.put("1", text("a")), blobs.put("2", text("a", other=7))]
    added = [blobs.put("3", text("a", other=1)), blobs.put("4", text("a", other=2))]

    assert blobs.find(deleted, added) == {"3": "1", "4": "2"}


def test_the_same_content_goes_before_a_similar_one(blobs: Blobs) -> None:
    deleted = [blobs.put("1", text("a", other=1)), blobs.put("2", text("a"))]
    added = [blobs.put("3", text("a")), blobs.put("4", text("a", other=3))]

    assert blobs.find(deleted, added) == {"3": "2", "4": "1"}


def test_binary_files_can_be_similar(blobs: Blobs) -> None:
    content = random.Random(1).randbytes(10_000)

    assert blobs.find([blobs.put("old", content)], [blobs.put("new", content + b"more")]) == {"new": "old"}


def test_an_empty_file_is_similar_to_nothing(blobs: Blobs) -> None:
    assert blobs.find([blobs.put("old", b"")], [blobs.put("new", b"x")]) == {}
    assert blobs.find([blobs.put("old", b"")], [blobs.put("new", b"")]) == {"new": "old"}


def test_names_may_be_any_bytes(blobs: Blobs) -> None:
    old = replace(blobs.put("", text("a")), path=RelPath(b"\xff\n -> x/y"))

    assert find_renames([old], [blobs.put("new", text("a", other=1))], blobs.read) == {b"new": old.path}


# Limits


def test_of_too_many_files_only_the_same_contents_are_found(blobs: Blobs) -> None:
    deleted = [blobs.put("1", text("a")), blobs.put("2", text("b")), blobs.put("3", text("c"))]
    added = [
        blobs.put("4", text("a", other=1)),
        blobs.put("5", text("b", other=1)),
        blobs.put("6", text("c")),
    ]

    assert blobs.find(deleted, added, RenameLimits(files=1)) == {"6": "3"}
    assert not blobs.read_ids
    assert blobs.find(deleted, added, RenameLimits(files=2)) == {"4": "1", "5": "2", "6": "3"}


def test_of_too_many_files_namesakes_are_compared_nevertheless(blobs: Blobs) -> None:
    """A directory was moved, and some lines in its files changed."""
    deleted = [blobs.put(f"a/{n}", text(f"w{n}")) for n in range(300)] + [blobs.put("a/x", text("x"))]
    added = [blobs.put(f"b/{n}", text(f"w{n}", other=2)) for n in range(300)] + [
        blobs.put("b/y", text("x", other=1))
    ]

    assert blobs.find(deleted, added) == {f"b/{n}": f"a/{n}" for n in range(300)}


def test_a_file_that_is_too_large_is_left_out(blobs: Blobs) -> None:
    deleted = [blobs.put("1", text("a", 30)), blobs.put("2", text("b"))]
    added = [blobs.put("3", text("a", 30, other=1)), blobs.put("4", text("b", other=1))]
    limits = RenameLimits(file_bytes=len(text("b", other=1)))

    assert blobs.find(deleted, added, limits) == {"4": "2"}
    assert blobs.find(deleted, [blobs.put("5", text("a", 30))], limits) == {"5": "1"}


def test_no_more_than_so_much_is_read(blobs: Blobs) -> None:
    deleted = [blobs.put(f"old{n}", text(f"w{n}")) for n in range(10)]
    added = [blobs.put(f"new{n}", text(f"w{n}", other=1)) for n in range(10)]
    size = len(text("w0"))

    assert blobs.find(deleted, added, RenameLimits(read_bytes=5 * size)) == {}
    assert len(blobs.read_ids) <= 6
    assert len(blobs.find(deleted, added, RenameLimits(read_bytes=25 * size))) == 10


def test_no_more_than_so_much_is_compared(blobs: Blobs) -> None:
    deleted, added = [blobs.put("old", text("a"))], [blobs.put("new", text("a", other=1))]

    assert blobs.find(deleted, added, RenameLimits(compared_bytes=500)) == {}
    assert blobs.find(deleted, added, RenameLimits(compared_bytes=1_500)) == {"new": "old"}


def test_the_most_that_is_compared_takes_no_time(blobs: Blobs) -> None:
    """Each is slightly similar to all others, so many are second choices again and again."""
    deleted = [blobs.put(f"a{n:03}", text("a", 10) + b"%d\n" % n) for n in range(200)]
    added = [blobs.put(f"b{n:03}", text("a", 10) + b"new %d\n" % n) for n in range(200)]

    with comes_back():
        found = blobs.find(deleted, added)

    assert found
    assert len(set(found.values())) == len(found)


def test_dulwich_is_loaded_only_to_compare(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from shadowtree.store.renames import TreeFile, find_renames\n"
        "old = [TreeFile(b'a', 0o100644, b'1' * 20), TreeFile(b'b', 0o100644, b'2' * 20)]\n"
        "new = [TreeFile(b'c', 0o100644, b'1' * 20), TreeFile(b'd', 0o100644, b'3' * 20)]\n"
        "find_renames(old[:1], new, lambda *_: b'')\n"
        "find_renames(old, new, lambda blob, _: blob * (blob[0] - 48) ** 2)\n"
        "print('dulwich' in sys.modules)\n"
        "find_renames(old, new, lambda *_: b'x')\n"
        "print('dulwich' in sys.modules)\n"
    )

    assert subprocess.check_output([sys.executable, script], text=True).split() == ["False", "True"]


# Real git


@pytest.mark.parametrize("seed", range(4))
def test_git_finds_the_same(tmp_path: Path, blobs: Blobs, seed: int) -> None:
    chance = random.Random(seed)
    files = {
        f"{chance.choice('abc')}/f{n}": text(f"word{seed}.{n}", chance.randrange(10, 40)) for n in range(30)
    }
    deleted, added = dict(files), {}
    for n, content in enumerate(files.values()):
        path = f"{chance.choice('de')}/{chance.choice('fg')}{n}"
        kind = chance.choice(["same", "similar", "other", "gone"])
        if kind != "gone":
            lines = content.splitlines(keepends=True)
            few = {"same": 0, "similar": len(lines) // 6, "other": len(lines) * 5 // 6}[kind]
            lines[:few] = [b"new line %d of %s\n" % (n, path.encode()) for n in range(few)]
            added[path] = b"".join(lines)
    top = init(tmp_path / "git")
    for path, content in deleted.items():
        (top / path).parent.mkdir(exist_ok=True)
        (top / path).write_bytes(content)
    git("add", ".", cwd=top)
    before = git("write-tree", cwd=top)
    git("rm", "-rq", "--force", ".", cwd=top)
    for path, content in added.items():
        (top / path).parent.mkdir(exist_ok=True)
        (top / path).write_bytes(content)
    git("add", ".", cwd=top)
    listed = git(
        "diff", "-M", "--name-status", "--diff-filter=R", before, git("write-tree", cwd=top), cwd=top
    )
    expected = dict(line.split("\t")[:0:-1] for line in listed.splitlines())

    found = blobs.find(
        [blobs.put(path, content) for path, content in sorted(deleted.items())],
        [blobs.put(path, content) for path, content in sorted(added.items())],
    )

    assert expected
    assert found == expected
