"""Paths as bytes and text, and the names that git forbids: git's own fsck is asked about each spelling."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowtree import Shadow
from shadowtree.base.paths import (
    ROOT,
    RelPath,
    ancestors,
    from_text,
    is_among,
    is_forbidden,
    is_own_temporary,
    join,
    parent_of,
    to_text,
)
from shadowtree.store.git_format import object_id
from tests.support.referee import assert_sound_store, git
from tests.support.trees import make_tree

_paths = st.binary(max_size=20).map(RelPath)


@given(_paths)
def test_a_path_comes_back_from_text(path: RelPath) -> None:
    assert from_text(to_text(path)) == path


@given(st.lists(st.binary(min_size=1, max_size=5).filter(lambda name: b"/" not in name), min_size=1))
def test_a_path_joined_can_be_taken_apart(names: list[bytes]) -> None:
    path = ROOT
    for name in names:
        above, path = path, join(path, name)

        assert parent_of(path) == above

    assert path.split(b"/") == names


@pytest.mark.parametrize(
    ("path", "above"),
    [(b"", []), (b"a", []), (b"a/b", [b"a"]), (b"a/b/c", [b"a/b", b"a"]), (b"\xff/b", [b"\xff"])],
)
def test_the_directories_above_a_path_come_nearest_first(path: bytes, above: list[bytes]) -> None:
    assert list(ancestors(RelPath(path))) == above


@pytest.mark.parametrize(
    ("path", "paths", "is_one"),
    [
        (b"a", [b"a"], True),
        (b"a/b/c", [b"a"], True),
        (b"a/b", [b"x", b"a/b"], True),
        (b"a", [b"a/b"], False),
        (b"ab", [b"a"], False),
        (b"a-b/c", [b"a"], False),
        (b"a", [], False),
        (b"a/b", [ROOT], True),
        (ROOT, [ROOT], True),
        (ROOT, [b"a"], False),
    ],
)
def test_a_path_is_among_others_if_it_is_one_or_below_one(
    path: bytes, paths: list[bytes], is_one: bool
) -> None:
    assert is_among(RelPath(path), [RelPath(each) for each in paths]) is is_one


def test_only_what_begins_so_is_a_temporary_of_ours() -> None:
    token = b".shadowtree-tmp-0123456789ab"
    others = (token, token + b"-x", token + b"1-1", b"x" + token + b"-1", b".shadowtree-tmp-notes-1", b"")

    assert all(map(is_own_temporary, (token + b"-1", token + b"-22-x")))
    assert not any(map(is_own_temporary, others))


# What git forbids

SPELLINGS = [
    *[
        b".git",
        b".GIT",
        b".Git",
        b".gIT",
        b"git",
        b".gi",
        b".gitt",
        b".git2",
        b".gitignore",
        b".github",
        b"x.git",
        b"..git",
    ],
    *[b".git ", b".git.", b".git. . ", b".git  ", b".git...", b" .git", b".git x", b".git.x", b".git .git"],
    *[
        b".git:",
        b".git:x",
        b".git::$INDEX_ALLOCATION",
        b".git :x",
        b".git. :",
        b".git;x",
        b":.git",
        b"x:.git",
    ],
    *[
        b"git~1",
        b"GIT~1",
        b"Git~1",
        b"git~1 ",
        b"git~1.",
        b"git~1:x",
        b"git~2",
        b"git~10",
        b"git~",
        b"git~1x",
        b"git~0",
        b".git~1",
    ],
    *[
        b"a\\.git",
        b".git\\a",
        b"a\\git~1\\b",
        b"\\.git",
        b".git\\",
        b"a\\.GIT .",
        b"a\\b\\.git:x",
        b"a\\.gitx",
        b"\\",
        b"a\\",
    ],
    *[b"git~1\\", b"a\\ .git", b".git.\\x", b".git:\\x", b".git:x\\y", b"x\\y:.git"],
    ".g\u200cit".encode(),
    ".\u200dgit".encode(),
    "\u200e.git".encode(),
    ".git\u200f".encode(),
    ".g\u202ai\u202et".encode(),
    ".G\u206aI\u206fT".encode(),
    "\ufeff.git".encode(),
    "\u200c".encode(),
    ".g\u200bit".encode(),
    ".g\u2010it".encode(),
    ".g\u2029it".encode(),
    ".g\u202fit".encode(),
    ".g\u2069it".encode(),
    ".g\u2070it".encode(),
    ".git\u00e9".encode(),
    ".g\u0131t".encode(),
    ".\u24d6it".encode(),
    ".git\u200c ".encode(),
    "git~1\u200c".encode(),
    "a\\.g\u200cit".encode(),
    "\u200c.git\u200c\u200d".encode(),
    b".git\xff",
    b"\xff.git",
    b".g\xe2\x80it",
    b".g\xe2\x80\x8cit\xff",
]

GITMODULES = [
    *[
        b".gitmodules",
        b".GitModules",
        b".GITMODULES",
        b"gitmodules",
        b".gitmodule",
        b".gitmodulesx",
        b".gitmodules2",
    ],
    *[
        b".gitmodules ",
        b".gitmodules.",
        b".gitmodules . ",
        b".gitmodules:x",
        b".gitmodules::$DATA",
        b".gitmodules .x",
    ],
    *[
        b"gitmod~1",
        b"GITMOD~1",
        b"gitmod~2",
        b"gitmod~4",
        b"gitmod~1 ",
        b"gitmod~1.",
        b"gitmod~1:x",
        b"gitmod~4.",
    ],
    *[
        b"gi7eba~1",
        b"GI7EBA~9",
        b"gi7eba~1 .",
        b"gi7eba~1:x",
        b"gi7eb~10",
        b"GI7EB~99",
        b"gi7e~100",
        b"gi7~1000",
        b"gi~10000",
    ],
    *[
        b"g~100000",
        b"~1000000",
        b"~9999999",
        b"~1000000 .",
        b"gi7eba~",
        b"gi7eba~0",
        b"gi7eb~01",
        b"gi7eb~1",
        b"gi7eba~10",
    ],
    *[
        b"a\\.gitmodules",
        b"a\\gitmod~1",
        b"a\\gi7eba~1",
        b"a\\.gitmodules:x",
        b"a\\b\\gi7eb~10",
        b"a\\~1000000",
    ],
    *[b"x~1", b"~", b"~1", b"~100000", b"~10000000", b"gi7ebb~1", b"gi7ebax~1", b"a~1000000", b"backup~"],
    ".g\u200citmodules".encode(),
    ".gitmodules\u200d".encode(),
    ".GITMODULES\ufeff".encode(),
    "gitmod\u200c~1".encode(),
    ".gitmodules\u200c ".encode(),
    "a\\.g\u200citmodules".encode(),
]

OTHERS = [
    b"gitmod~0",
    b"gitmod~5",
    b"gitmod~9",
    b"gitmod~1x",
    b"gitmod~x",
    b"gitmodern~1",
    b"gitmod~",
    b".gitmodules\\x",
]


class Fsck:
    """A repository in which raw trees are put for git to judge."""

    def __init__(self, path: Path) -> None:
        self._path = path
        git("init", "--quiet", "--bare", path)
        self._blob = self._write("blob", b"")
        self._tree = self._write("tree", b"")

    def _write(self, kind: str, content: bytes) -> bytes:
        command = ["git", "hash-object", "-t", kind, "-w", "--stdin", "--literally"]
        done = subprocess.run(command, cwd=self._path, input=content, capture_output=True, check=True)
        return bytes.fromhex(done.stdout.decode().strip())

    def forbidden(self, names: list[bytes], mode: bytes) -> set[bytes]:
        """Put each name into a tree of its own, and give those of which git says that they must not be."""
        target = self._tree if mode == b"40000" else self._blob
        trees = {}
        for name in names:
            content = mode + b" " + name + b"\0" + target
            trees[object_id(b"tree", content).hex()] = name
            self._write("tree", content)
        done = subprocess.run(
            ["git", "fsck", "--full", "--strict", "--no-dangling"],
            cwd=self._path,
            capture_output=True,
            check=False,
        )
        said = done.stderr.decode().splitlines()
        return {
            trees[word.rstrip(":")]
            for line in said
            if line.startswith("error in tree")
            for word in line.split()
            if word.rstrip(":") in trees
        }


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[bytes]]:
    """What git says of every spelling, as a file, a directory and a link."""
    return {
        kind: Fsck(tmp_path_factory.mktemp("fsck") / kind).forbidden(SPELLINGS + GITMODULES + OTHERS, mode)
        for kind, mode in (("file", b"100644"), ("directory", b"40000"), ("link", b"120000"))
    }


def test_the_referee_knows_some_names(verdicts: dict[str, set[bytes]]) -> None:
    assert {b".git", b".GIT", b"git~1", b".git "} <= verdicts["file"] & verdicts["directory"] & verdicts[
        "link"
    ]
    assert b".gitmodules" in verdicts["link"] - verdicts["file"]
    assert b"git" not in verdicts["link"]


@pytest.mark.parametrize("name", SPELLINGS, ids=repr)
@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_spelling_of_git_is_forbidden_where_git_forbids_it(
    kind: str, name: bytes, verdicts: dict[str, set[bytes]]
) -> None:
    assert is_forbidden(name, is_link=kind == "link") == (name in verdicts[kind])


@pytest.mark.parametrize("name", [*GITMODULES, *OTHERS], ids=repr)
def test_a_link_that_could_be_gitmodules_is_forbidden_where_git_forbids_it(
    name: bytes, verdicts: dict[str, set[bytes]]
) -> None:
    assert is_forbidden(name, is_link=True) == (name in verdicts["link"])


@pytest.mark.parametrize("name", [*GITMODULES, *OTHERS], ids=repr)
def test_a_file_that_could_be_gitmodules_is_allowed(name: bytes, verdicts: dict[str, set[bytes]]) -> None:
    assert not is_forbidden(name)
    assert name not in verdicts["file"]


@pytest.mark.parametrize("name", [".gitmodules", ".gitattributes"])
def test_a_directory_named_like_a_file_of_git_leaves_the_store_sound(name: str, worktree: Path) -> None:
    make_tree(worktree, {"s": {name: {"a": "1"}}})
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.track()

    assert_sound_store(shadow.store)
