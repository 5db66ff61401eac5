"""The rows of packs: the work that is left for each, and that no damaged row names a file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha1
from pathlib import Path

import pytest

from shadowtree.base.errors import StoreDamaged
from shadowtree.store.git_format import PackBytes
from shadowtree.store.packs.pack_writer import PackFile
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.sqlite.pack_rows import FRESH, JOURNALED, PLACING, REMOVING, PackRow, PackRows


def make_pack(number: int) -> PackBytes:
    pack = b"PACK" + bytes([number] * 5000)
    checksum = sha1(pack).digest()
    index = b"\xfftOc" + bytes(100) + checksum
    return PackBytes(f"pack-{checksum.hex()}", pack + checksum, index + sha1(index).digest())


PACK = make_pack(0)
OTHER_PACK = make_pack(1)
FILE = PackFile(f"pack-{'1' * 40}", "shadowtree-tmp-12-3f")
PAIRS = [(b"n" * 20, b"o" * 20), (b"m" * 20, b"n" * 20)]


@pytest.fixture
def packs(path: Path) -> Iterator[PackRows]:
    with closing(Journal(str(path))) as journal:
        yield journal.packs


def states(packs: PackRows) -> dict[str, str]:
    rows = packs.rows()
    assert len({row.name for row in rows}) == len(rows), "a pack has one row"
    return {row.name: row.state for row in rows}


def change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def test_a_journaled_pack_is_given_back(packs: PackRows) -> None:
    packs.add_journaled(PACK, "a", ())
    packs.add_journaled(OTHER_PACK, "b", ())

    assert packs.rows() == [
        PackRow(1, PACK.name, JOURNALED, "a", None, len(PACK.pack), len(PACK.index)),
        PackRow(2, OTHER_PACK.name, JOURNALED, "b", None, len(OTHER_PACK.pack), len(OTHER_PACK.index)),
    ]
    assert list(packs.read_all()) == [OTHER_PACK, PACK]
    assert packs.count() == 2
    packs.note_boot("c")
    assert [row.boot for row in packs.rows()] == ["c", "c"]
    first = packs.rows()[0]
    packs.drop([PACK.name])
    assert list(packs.read_all()) == [OTHER_PACK]
    assert packs.read(first) is None


def test_a_pack_that_is_placed_names_its_files(packs: PackRows) -> None:
    number = packs.add_placing(FILE, "a", ())

    assert packs.rows(PLACING) == [PackRow(number, FILE.name, PLACING, "a", FILE.temporary, 0, 0)]
    assert packs.rows(PLACING)[0].file == FILE
    assert packs.rows(JOURNALED, REMOVING) == []
    assert packs.count() == 0


def test_a_pack_of_new_versions_is_fresh_once_it_has_its_name(packs: PackRows) -> None:
    packs.settle([packs.add_placing(FILE, "a", PAIRS)], ())

    assert states(packs) == {FILE.name: FRESH}
    assert packs.rows()[0].temporary is None
    assert packs.versions() == {FILE.name: PAIRS}


def test_a_pack_without_versions_is_settled_once_it_has_its_name(packs: PackRows) -> None:
    packs.settle([packs.add_placing(FILE, "a", ())], ())

    assert states(packs) == {}


def test_a_pack_that_is_to_go_is_nothing_else_any_more(packs: PackRows) -> None:
    packs.add_journaled(PACK, "a", PAIRS)
    packs.mark_removing([PACK.name, FILE.name], "b")
    removing = packs.rows(REMOVING)
    left = packs.versions()
    packs.settle((), [row.number for row in removing])

    assert [row.name for row in removing] == [PACK.name, FILE.name]
    assert left == {}
    assert list(packs.read_all()) == []
    assert states(packs) == {}


@pytest.mark.parametrize("before", [JOURNALED, FRESH, REMOVING, PLACING])
@pytest.mark.parametrize("after", [JOURNALED, PLACING])
def test_a_pack_that_comes_once_more_has_one_row(packs: PackRows, before: str, after: str) -> None:
    """The pack was about to be removed; or a repack makes a part that equals a fresh pack byte for byte.

    With two rows it would be removed although it is needed, or stay fresh and be repacked again and again.
    """
    file = PackFile(PACK.name, FILE.temporary)
    if before == JOURNALED:
        packs.add_journaled(PACK, "a", PAIRS)
    elif before == REMOVING:
        packs.mark_removing([PACK.name], "a")
    else:
        number = packs.add_placing(PackFile(PACK.name, "shadowtree-tmp-0-0"), "a", PAIRS)
        packs.settle([number] if before == FRESH else [], ())
    if after == JOURNALED:
        packs.add_journaled(PACK, "b", ())
    else:
        packs.add_placing(file, "b", ())

    assert states(packs) == {PACK.name: after}
    assert packs.rows()[0].temporary == (FILE.temporary if after == PLACING else None)


def test_versions_are_given_oldest_first(packs: PackRows) -> None:
    packs.add_journaled(OTHER_PACK, "a", PAIRS[:1])
    packs.add_journaled(PACK, "a", PAIRS[1:])

    assert list(packs.versions().items()) == [(OTHER_PACK.name, PAIRS[:1]), (PACK.name, PAIRS[1:])]
    assert packs.versions([PACK.name, "nosuch"]) == {PACK.name: PAIRS[1:]}
    assert packs.versions([]) == {}


def test_a_pack_in_a_transaction_that_fails_is_not_journaled(path: Path) -> None:
    with closing(Journal(str(path))) as journal:
        with suppress(RuntimeError), journal.transaction():
            journal.packs.add_journaled(PACK, "a", ())
            journal.packs.add_placing(FILE, "a", ())
            journal.packs.mark_removing([OTHER_PACK.name], "a")
            raise RuntimeError

        assert journal.packs.rows() == []


# Damage


@pytest.mark.parametrize("column", ["name", "pack", "pack_index"])
def test_a_journaled_pack_whose_row_is_damaged_is_not_given(packs: PackRows, path: Path, column: str) -> None:
    """It would be written over files that may be whole."""
    packs.add_journaled(PACK, "a", ())
    with closing(sqlite3.connect(path)) as connection, connection:
        old = connection.execute(f"SELECT CAST({column} AS BLOB) FROM packs").fetchone()[0]
        new = old[:-1] + bytes([old[-1] ^ 1])
        value: object = new.decode() if column == "name" else new
        connection.execute(f"UPDATE packs SET {column} = ?", (value,))

    assert list(packs.read_all()) == []


@pytest.mark.parametrize(
    "name", ["", "pack-", "../" * 15, "pack-" + "/" * 40, "pack-" + "A" * 40, b"x" * 45, 7]
)
def test_no_file_can_be_named_by_a_damaged_row(packs: PackRows, path: Path, name: object) -> None:
    packs.add_journaled(PACK, "a", ())
    change(path, "UPDATE packs SET name = ?", name)

    with pytest.raises(StoreDamaged):
        packs.rows()
    with pytest.raises(StoreDamaged):
        packs.versions()


@pytest.mark.parametrize(
    "temporary", [None, "", "../../x", "shadowtree-tmp-/x", "shadowtree-tmp-", "tmp_pack", b"x", 7]
)
def test_no_temporary_file_can_be_named_by_a_damaged_row(
    packs: PackRows, path: Path, temporary: object
) -> None:
    packs.add_placing(FILE, "a", ())
    change(path, "UPDATE packs SET temporary = ?", temporary)

    with pytest.raises(StoreDamaged):
        packs.rows()


@pytest.mark.parametrize("state", ["", "gone", 7, b"fresh"])
def test_a_row_of_no_known_state_is_damage(packs: PackRows, path: Path, state: object) -> None:
    packs.add_journaled(PACK, "a", ())
    change(path, "UPDATE packs SET state = ?", state)

    with pytest.raises(StoreDamaged):
        packs.rows()


@pytest.mark.parametrize("versions", [b"x", b"x" * 20, b"x" * 41, "x" * 41])
def test_versions_that_are_no_pairs_are_damage(packs: PackRows, path: Path, versions: object) -> None:
    packs.add_journaled(PACK, "a", PAIRS)
    change(path, "UPDATE packs SET versions = ?", versions)

    with pytest.raises(StoreDamaged):
        packs.versions()


def test_a_boot_that_is_damaged_is_another_one(packs: PackRows, path: Path) -> None:
    """Then the files are compared, and the boot is written again."""
    packs.add_journaled(PACK, "a", ())
    change(path, "UPDATE packs SET boot = ?", b"\xff\xfe")

    assert packs.rows()[0].boot not in ("", "a")
