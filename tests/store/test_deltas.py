"""Deltas: what they make is what was wanted, and git reads them as we do."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowtree.store.deltas import BadDelta, apply_delta, make_delta
from shadowtree.store.git_format import MODE_FILE, TreeEntry, deflate, encode_tree, object_id
from shadowtree.store.pack_writer import PackWriter
from tests.support.referee import git


def test_only_what_differs_is_inserted() -> None:
    """The drawing at the top of the module."""
    base, wanted = b"line a\nline b\nline c\nline d\nline e\n", b"line a\nline b\nline x\nline d\nline e\n"
    delta = make_delta(base, wanted, is_tree=False)

    assert delta == bytes([35, 35, 0x90, 19, 1]) + b"x" + bytes([0x91, 20, 15])


lines = st.lists(st.sampled_from([b"\n", b"a\n", b"some line\n", b"\r\n", b"another\x00one", b"x" * 300]))


@given(lines, lines)
def test_a_text_comes_of_any_other(base: list[bytes], wanted: list[bytes]) -> None:
    one, other = b"".join(base), b"".join(wanted)

    assert apply_delta(one, make_delta(one, other, is_tree=False)) == other


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_bytes_come_of_any_others(start: bytes, old: bytes, new: bytes, end: bytes) -> None:
    base, wanted = start + old + end, start + new + end

    assert apply_delta(base, make_delta(base, wanted, is_tree=False)) == wanted


names = st.sets(st.sampled_from([b"a", b"b", b"lib", b"main.py", b"name with spaces", b"z" * 100]))


@given(names, names, st.integers(0, 3))
def test_a_tree_comes_of_any_other(before: set[bytes], after: set[bytes], seed: int) -> None:
    def tree(present: set[bytes]) -> bytes:
        return encode_tree(TreeEntry(name, MODE_FILE, random.Random(seed).randbytes(20)) for name in present)

    base, wanted = tree(before), tree(after)

    assert apply_delta(base, make_delta(base, wanted, is_tree=True)) == wanted


def test_large_contents_are_copied_in_parts() -> None:
    base = random.Random(1).randbytes(300_000)
    wanted = base[:140_000] + b"!" + base[140_000:]
    delta = make_delta(base, wanted, is_tree=False)

    assert apply_delta(base, delta) == wanted
    assert len(delta) < 100


@pytest.mark.parametrize("delta", [b"", b"\x05", b"\x05\x05\x90\x06", b"\x05\x01\x00", b"\x04\x01\x01a"])
def test_a_delta_that_cannot_be_is_refused(delta: bytes) -> None:
    with pytest.raises(BadDelta):
        apply_delta(b"12345", delta)


def test_git_reads_a_chain_of_our_deltas(tmp_path: Path) -> None:
    git("init", "--quiet", "--bare", tmp_path)
    versions = [b"".join(b"line %d %d\n" % (line, line < age) for line in range(200)) for age in range(150)]
    ids = [object_id(b"blob", version) for version in versions]
    writer = PackWriter(str(tmp_path / "objects" / "pack"))
    writer.add(b"blob", ids[0], len(versions[0]), deflate(versions[0]))
    for number in range(1, 150):
        delta = make_delta(versions[number - 1], versions[number], is_tree=False)
        writer.add_delta(ids[number], len(delta), deflate(delta))
    [path] = writer.finish()

    git("verify-pack", f"{path}.pack")
    assert git("cat-file", "blob", ids[-1].hex(), cwd=tmp_path) == versions[-1].decode().rstrip()
