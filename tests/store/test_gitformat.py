"""Git's formats, compared with git itself, and hostile trees that lead out of the worktree."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.paths import is_forbidden
from shadowtree.store.git_format import (
    EMPTY_TREE,
    KIND_NUMBERS,
    MODE_EXEC,
    MODE_FILE,
    MODE_LINK,
    MODE_TREE,
    OFS_DELTA,
    TreeEntry,
    decode_tree,
    deflate,
    encode_commit,
    encode_pack_index,
    encode_rows,
    encode_tree,
    entry_header,
    object_id,
    offset_in_index,
    parse_entry_head,
    prefixes_in_index,
)
from shadowtree.store.packs.pack_writer import PackWriter
from tests.support.referee import git

ID = bytes(range(20))
MODES = [MODE_FILE, MODE_EXEC, MODE_LINK, MODE_TREE]


def raw(mode: bytes, name: bytes, id: bytes = ID) -> bytes:
    return mode + b" " + name + b"\0" + id


def values(entries: list[TreeEntry]) -> list[tuple[bytes, int, bytes]]:
    return [(entry.name, entry.mode, entry.id) for entry in entries]


# Ids


@pytest.mark.parametrize("content", [b"", b"x", b"\0" * 1000, b"a\r\n"], ids=repr)
def test_a_blob_has_the_id_that_git_gives(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)

    assert object_id(b"blob", content).hex() == git("hash-object", "--no-filters", tmp_path / "x")


def test_the_empty_tree_has_its_id() -> None:
    assert object_id(b"tree", b"") == EMPTY_TREE == object_id(b"tree", encode_tree([]))


# Trees

_names = st.binary(min_size=1, max_size=12).filter(
    lambda name: (
        b"/" not in name and b"\0" not in name and name not in (b".", b"..") and not is_forbidden(name)
    )
)


@given(st.dictionaries(_names, st.tuples(st.sampled_from(MODES), st.binary(min_size=20, max_size=20))))
def test_a_tree_comes_back_as_it_was(files: dict[bytes, tuple[int, bytes]]) -> None:
    entries = [TreeEntry(name, mode, id) for name, (mode, id) in files.items()]

    decoded = decode_tree(encode_tree(entries), "of a test")

    assert sorted(values(decoded)) == sorted(values(entries))


@given(st.dictionaries(_names, st.sampled_from(MODES)), st.randoms(use_true_random=False))
def test_a_tree_is_the_same_in_whatever_order_its_entries_come(
    files: dict[bytes, int], dice: random.Random
) -> None:
    entries = [TreeEntry(name, mode, ID) for name, mode in files.items()]
    shuffled = dice.sample(entries, len(entries))

    assert encode_tree(entries) == encode_tree(shuffled)


def test_a_tree_is_in_the_order_of_git(tmp_path: Path) -> None:
    names = [b"a", b"a.b", b"a-b", b"a0", b"ab", b"A", b"a\x80", b"-", b"z"]
    entries = [TreeEntry(name, MODE_TREE if at % 2 else MODE_FILE, ID) for at, name in enumerate(names)]
    git("init", "--quiet", "--bare", tmp_path / "git")
    lines = [
        b"%06o %b %b\t%b\0"
        % (entry.mode, b"tree" if entry.mode == MODE_TREE else b"blob", entry.id.hex().encode(), entry.name)
        for entry in entries
    ]

    made = subprocess.run(
        ["git", "mktree", "-z", "--missing"],
        cwd=tmp_path / "git",
        input=b"".join(lines),
        capture_output=True,
        check=True,
    )

    assert made.stdout.decode().strip() == object_id(b"tree", encode_tree(entries)).hex()


@pytest.mark.parametrize(
    "content",
    [
        raw(b"100644", b".."),
        raw(b"40000", b".."),
        raw(b"40000", b"."),
        raw(b"100644", b""),
        raw(b"100644", b"a/b"),
        raw(b"100644", b"/etc"),
        raw(b"40000", b"../.."),
        raw(b"40000", b".git"),
        raw(b"40000", b".GIT"),
        raw(b"100644", b"git~1"),
        raw(b"100644", b".git "),
        raw(b"40000", ".g\u200cit".encode()),
        raw(b"40000", b"a\\.git"),
        raw(b"100644", b"a") + raw(b"100644", b"a"),
        raw(b"100644", b"a") + raw(b"40000", b"a"),
        raw(b"100644", b"a") + raw(b"100644", b"a.b") + raw(b"40000", b"a"),
        raw(b"100644", b"b") + raw(b"100644", b"a"),
        raw(b"40000", b"a") + raw(b"100644", b"a.b"),
        raw(b"160000", b"a"),
        raw(b"100664", b"a"),
        raw(b"100600", b"a"),
        raw(b"040000", b"a"),
        raw(b"0", b"a"),
        raw(b"", b"a"),
        raw(b"-100644", b"a"),
        raw(b"100644 ", b"a")[:7] + b"\0" + ID,
        raw(b"100644", b"a")[:-1],
        raw(b"100644", b"a")[:8],
        raw(b"100644", b"a")[:6],
        raw(b"100644", b"a") + b"1",
        raw(b"100644", b"a") + b"100644 b",
        raw(b"100644", b"a") + b"100644 b\0" + ID[:19],
        b"\0",
        b" ",
        b"garbage",
        ID,
    ],
    ids=repr,
)
def test_a_hostile_tree_is_refused(content: bytes) -> None:
    with pytest.raises(StoreDamaged):
        decode_tree(content, "of a test")


@given(st.binary(max_size=200) | st.binary(max_size=40).map(lambda rest: raw(b"100644", b"a") + rest))
def test_garbage_is_a_tree_or_damage(content: bytes) -> None:
    try:
        entries = decode_tree(content, "of a test")
    except StoreDamaged:
        return

    assert encode_tree(entries) == content


def test_a_commit_is_one_to_git(tmp_path: Path) -> None:
    git("init", "--quiet", "--bare", tmp_path / "git")
    commit = encode_commit(EMPTY_TREE, (), 1_700_000_000, b"tree \xff\xc3\xa9")
    child = encode_commit(EMPTY_TREE, [object_id(b"commit", commit)], 1_700_000_001, b"x")
    merge = encode_commit(EMPTY_TREE, [object_id(b"commit", each) for each in (commit, child)], 0, b"")
    for content in (commit, child, merge):
        written = subprocess.run(
            ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
            cwd=tmp_path / "git",
            input=content,
            capture_output=True,
            check=True,
        )

        assert written.stdout.decode().strip() == object_id(b"commit", content).hex()


# Packs


@given(st.sampled_from([1, 2, 3, 4]), st.integers(0, 1 << 60), st.binary(max_size=5))
def test_the_head_of_an_entry_comes_back(kind: int, size: int, rest: bytes) -> None:
    head = entry_header(kind, size)

    found = parse_entry_head(head + rest, 12, "a pack")

    assert (found.kind_number, found.size, found.start, found.base) == (kind, size, 12 + len(head), None)


@pytest.mark.parametrize(
    ("head", "distance"),
    [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x00", 128), (b"\xff\x7f", 16511), (b"\x80\x80\x00", 16512)],
)
def test_the_distance_to_a_base_is_read_as_git_writes_it(head: bytes, distance: int) -> None:
    found = parse_entry_head(entry_header(OFS_DELTA, 7) + head + b"rest", 20_000, "a pack")

    assert (found.kind_number, found.size) == (OFS_DELTA, 7)
    assert (found.base, found.start) == (20_000 - distance, 20_001 + len(head))


def test_an_index_is_byte_for_byte_the_one_that_git_makes(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path))
    for number in range(700):
        content = b"%d" % number * (number % 7)
        writer.add(b"blob", object_id(b"blob", content), len(content), deflate(content))
    sealed = writer.seal(1 << 20)
    assert sealed is not None
    (tmp_path / "ours.pack").write_bytes(sealed.pack)

    git("init", "--quiet", tmp_path / "repository")
    git("index-pack", "-o", tmp_path / "of-git.idx", tmp_path / "ours.pack", cwd=tmp_path / "repository")

    assert sealed.index == (tmp_path / "of-git.idx").read_bytes()


def test_an_index_tells_how_the_ids_in_it_begin() -> None:
    ids = sorted([*(object_id(b"blob", b"%d" % number) for number in range(2000)), bytes(20), b"\xff" * 20])
    index = encode_pack_index([(id, 12 + at, at) for at, id in enumerate(ids)], bytes(20))

    prefixes = prefixes_in_index(len(ids), index)

    assert list(prefixes) == [int.from_bytes(id[:4], "big") for id in ids]
    assert [offset_in_index(row, len(ids), index) for row in range(len(ids))] == [
        12 + at for at in range(len(ids))
    ]


def test_an_empty_index_holds_nothing() -> None:
    index = encode_pack_index([], bytes(20))

    assert len(index) == 8 + 1024 + 40
    assert list(prefixes_in_index(0, index)) == []


def test_offsets_beyond_two_gibibytes_are_kept() -> None:
    offsets = [12, 2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**40, 7, 2**33]
    entries = [(bytes([at]) * 20, offset, at) for at, offset in enumerate(offsets)]
    index = encode_pack_index(entries, bytes(20))

    assert len(index) == 8 + 1024 + 28 * len(offsets) + 8 * 5 + 40
    assert [offset_in_index(row, len(offsets), index) for row in range(len(offsets))] == offsets


def test_git_reads_offsets_beyond_two_gibibytes_as_they_are_written(tmp_path: Path) -> None:
    entries = [(bytes([at]) * 20, 2**31 + at * 2**32, 0xFFFF_FFFF - at) for at in range(3)]
    (tmp_path / "x.idx").write_bytes(encode_pack_index(entries, bytes(20)))

    shown = subprocess.run(
        ["git", "show-index"], input=(tmp_path / "x.idx").read_bytes(), capture_output=True, check=True
    )

    assert shown.stdout.decode().splitlines() == [
        f"{offset} {id.hex()} ({crc:08x})" for id, offset, crc in entries
    ]


def test_the_kinds_have_the_numbers_of_git() -> None:
    assert KIND_NUMBERS == {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}


def test_the_rows_of_a_directory_make_the_same_tree_as_its_entries() -> None:
    """If names begin alike, a directory sorts differently from a file of the same name."""
    draw = random.Random(0)
    names = [b"a", b"a-b", b"a.b", b"a0", b"a b", b"ab", b"b", b"b-", b"b0", b"a\xff"]
    for _ in range(200):
        chosen = draw.sample(names, draw.randrange(1, len(names)))
        entries = [TreeEntry(name, draw.choice(MODES), draw.randbytes(20)) for name in chosen]
        files = sorted((entry for entry in entries if entry.mode != MODE_TREE), key=lambda entry: entry.name)
        rows = encode_rows(
            [entry.name for entry in files],
            [entry.mode for entry in files],
            b"".join(entry.id for entry in files),
            [(entry.name, entry.id) for entry in entries if entry.mode == MODE_TREE],
        )

        assert rows == encode_tree(entries)
        assert len(decode_tree(rows, "rows")) == len(entries)
