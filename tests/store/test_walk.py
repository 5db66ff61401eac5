"""The walker: reaches everything from trees and refs, reads each object once, and detects missing ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.paths import RelPath
from shadowtree.store.git_format import (
    EMPTY_TREE,
    MODE_FILE,
    MODE_LINK,
    MODE_TREE,
    TreeEntry,
    encode_commit,
    encode_tree,
)
from shadowtree.store.objects import Objects
from shadowtree.store.walk import Walker
from tests.support.packs import add, blob, finish, noise
from tests.support.referee import git


class Made:
    """Objects in a git repository, and their ids."""

    def __init__(self, repository: Path) -> None:
        git("init", "--quiet", "--bare", repository)
        self.repository = repository
        self.objects = Objects(str(repository / "objects"))
        self._writer = self.objects.start_pack()

    def blob(self, content: bytes) -> bytes:
        return add(self._writer, content)

    def tree(self, **entries: tuple[int, bytes]) -> bytes:
        listed = [TreeEntry(name.encode(), mode, id) for name, (mode, id) in entries.items()]
        return add(self._writer, encode_tree(listed), b"tree")

    def commit(self, tree: bytes, *parents: bytes) -> bytes:
        return add(self._writer, encode_commit(tree, parents, 0, b"tree of nothing\n\nparent 1\n"), b"commit")

    def tag(self, id: bytes) -> bytes:
        content = b"object " + id.hex().encode() + b"\ntype commit\ntag v1\n\nobject of nothing\n"
        return add(self._writer, content, b"tag")

    def write(self) -> Walker:
        finish(self._writer, self.repository / "objects" / "pack").close()
        self.objects.refresh()
        return Walker(self.objects)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    made = Made(tmp_path / "repository")
    with closing(made.objects):
        yield made


def test_everything_below_a_tree_is_reached(made: Made) -> None:
    a, b, target = made.blob(b"a"), made.blob(b"b"), made.blob(b"target")
    below = made.tree(b=(MODE_FILE, b), ln=(MODE_LINK, target))
    above = made.tree(a=(MODE_FILE, a), below=(MODE_TREE, below))
    made.blob(b"not needed")
    walker = made.write()
    walker.walk_trees([above])

    listed = git("--git-dir", made.repository, "rev-list", "--objects", "--no-object-names", above.hex())
    assert walker.reached == {a, b, target, below, above}
    assert {id.hex() for id in walker.reached} == set(listed.split())


def test_blobs_beside_a_tree_are_reached(made: Made) -> None:
    """A message keeps these although no tree contains them."""
    beside = made.blob(b"beside")
    tree = made.tree(a=(MODE_FILE, made.blob(b"a")))
    walker = made.write()
    walker.walk_trees([tree], [beside])

    assert walker.reached == {tree, blob(b"a"), beside}


def test_the_empty_tree_need_not_be_stored(made: Made) -> None:
    made.blob(b"a")
    walker = made.write()
    walker.walk_trees([EMPTY_TREE])

    assert walker.reached == {EMPTY_TREE}


def test_what_was_walked_is_not_read_again(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a tree does not share with earlier ones is read."""
    shared = made.tree(a=(MODE_FILE, made.blob(b"a")))
    trees = [
        made.tree(shared=(MODE_TREE, shared), **{f"x{number}": (MODE_FILE, made.blob(b"%d" % number))})
        for number in range(5)
    ]
    walker = made.write()
    read: list[bytes] = []
    real = Objects.read

    def note(objects: Objects, kind: bytes, wanted: bytes) -> bytes:
        read.append(wanted)
        return real(objects, kind, wanted)

    monkeypatch.setattr(Objects, "read", note)
    for tree in trees:
        walker.walk_trees([tree])
    walker.walk_trees(trees)

    assert sorted(read) == sorted([shared, *trees])


@pytest.mark.parametrize("what", ["blob", "blob beside", "tree", "no tree"])
def test_what_is_missing_on_the_way_is_damage(what: str, made: Made) -> None:
    a = made.blob(b"a")
    wrong = {
        "blob": (MODE_FILE, blob(b"missing")),
        "tree": (MODE_TREE, blob(b"missing")),
        "no tree": (MODE_TREE, a),
        "blob beside": (MODE_FILE, a),
    }[what]
    tree = made.tree(a=wrong)
    walker = made.write()

    with pytest.raises(StoreDamaged):
        walker.walk_trees([tree], [blob(b"missing")] if what == "blob beside" else [])


def test_a_damaged_tree_is_damage(made: Made) -> None:
    tree = made.tree(**{f"n{number}": (MODE_FILE, made.blob(noise(9, number))) for number in range(20)})
    walker = made.write()
    [pack] = (made.repository / "objects" / "pack").glob("*.pack")
    content = bytearray(pack.read_bytes())
    content[-40] ^= 1
    pack.write_bytes(content)

    with pytest.raises(StoreDamaged):
        walker.walk_trees([tree])


def test_refs_lead_to_tags_commits_their_parents_and_trees(made: Made) -> None:
    """Trees and parents that the text of a commit mentions do not count."""
    a, b = made.blob(b"a"), made.blob(b"b")
    first = made.tree(a=(MODE_FILE, a))
    second = made.tree(b=(MODE_FILE, b), first=(MODE_TREE, first))
    root = made.commit(first)
    tip = made.commit(second, root)
    tag = made.tag(tip)
    walker = made.write()
    walker.walk_any([tag])

    assert walker.reached == {a, b, first, second, root, tip, tag}


def test_what_young_objects_lead_to_in_vain_is_passed_over(made: Made) -> None:
    """What git or a user of the repository wrote may be incomplete."""
    a = made.blob(b"a")
    tree = made.tree(a=(MODE_FILE, a), b=(MODE_FILE, blob(b"missing")))
    commit = made.commit(tree, blob(b"no commit"))
    walker = made.write()
    walker.walk_any([commit, blob(b"missing too")])

    assert walker.reached == {a, tree, commit}


def test_a_tree_that_refs_named_when_it_lacked_something_is_walked_again(made: Made) -> None:
    """Otherwise gc would remove what a snapshot stored meanwhile."""
    late = blob(b"late")
    below = made.tree(b=(MODE_FILE, late))
    tree = made.tree(below=(MODE_TREE, below))
    walker = made.write()
    walker.walk_any([tree])
    writer = made.objects.start_pack()
    add(writer, b"late")
    finish(writer, made.repository / "objects" / "pack").close()
    made.objects.refresh()
    walker.walk_trees([tree])

    assert walker.reached == {tree, below, late}


def test_a_deep_tree_is_walked(made: Made) -> None:
    deep = made.tree(a=(MODE_FILE, made.blob(b"a")))
    for _ in range(3000):
        deep = made.tree(d=(MODE_TREE, deep))
    walker = made.write()
    walker.walk_trees([deep])

    assert len(walker.reached) == 3002


def test_trees_are_given_with_their_paths_the_upper_ones_first_and_each_once(made: Made) -> None:
    a = made.blob(b"a")
    inner = made.tree(a=(MODE_FILE, a))
    outer = made.tree(inner=(MODE_TREE, inner))
    root = made.tree(a=(MODE_FILE, a), inner=(MODE_TREE, inner), outer=(MODE_TREE, outer))
    walker = made.write()

    walked = [(path, tree, [name for _, name, _ in rows]) for path, tree, rows in walker.walk(root)]

    assert walked == [
        (b"", root, [b"a", b"inner", b"outer"]),
        (b"outer", outer, [b"inner"]),
        (b"inner", inner, [b"a"]),
    ]
    assert list(walker.walk(outer)) == []


def test_whoever_walks_can_decide_what_is_entered(made: Made) -> None:
    inner = made.tree(a=(MODE_FILE, made.blob(b"a")))
    other = made.tree(b=(MODE_FILE, made.blob(b"b")))
    root = made.tree(one=(MODE_TREE, inner), other=(MODE_TREE, other), two=(MODE_TREE, inner))
    made.write()

    walked = Walker(made.objects, lambda id: id != other).walk(root, RelPath(b"top"))

    assert sorted(path for path, _, _ in walked) == [b"top", b"top/one", b"top/two"]
