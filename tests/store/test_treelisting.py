"""What stands in a tree, and in which places two versions of it differ."""

from __future__ import annotations

import random

import pytest

from shadowtree.base.errors import StoreDamaged
from shadowtree.store.git_format import TreeListing

FILE, EXEC, TREE = b"100644", b"100755", b"40000"
Row = tuple[bytes, bytes, bytes]


def encode(*rows: Row) -> bytes:
    return b"".join(mode + b" " + name + b"\0" + id for mode, name, id in rows)


def id_of(number: int) -> bytes:
    """Give an id in which zeros and spaces stand, as in real ones."""
    return bytes([number, 0, 32, 0]) * 5


KNOWN = [(TREE, b"doc", id_of(1)), (FILE, b"a b", id_of(2)), (FILE, b"c", id_of(3)), (EXEC, b"d", id_of(4))]


def test_a_listing_tells_what_stands_at_each_place() -> None:
    listing = TreeListing(encode(*KNOWN))

    assert len(listing) == 4
    assert [listing.id(place) for place in range(4)] == [id for _, _, id in KNOWN]
    assert [listing.name(place) for place in range(4)] == [name for _, name, _ in KNOWN]
    assert [listing.is_tree(place) for place in range(4)] == [True, False, False, False]


def test_an_empty_tree_has_no_places() -> None:
    listing = TreeListing(b"")

    assert len(listing) == 0
    assert list(listing.find_changes(b"") or ()) == []


@pytest.mark.parametrize("content", [b"x", encode(*KNOWN)[:-1], encode(*KNOWN) + b"1", b"\0" * 40])
def test_what_is_no_tree_is_damage(content: bytes) -> None:
    with pytest.raises(StoreDamaged):
        TreeListing(content)


@pytest.mark.parametrize(
    "places",
    [[], [0], [1], [3], [0, 1], [0, 3], [1, 2], [0, 1, 2, 3]],
    ids=lambda places: "-".join(map(str, places)) or "none",
)
def test_other_ids_under_the_same_names_are_found(places: list[int]) -> None:
    rows = [(mode, name, id_of(9) if n in places else id) for n, (mode, name, id) in enumerate(KNOWN)]

    found = TreeListing(encode(*KNOWN)).find_changes(encode(*rows))

    assert found is not None
    assert list(found) == places


@pytest.mark.parametrize(
    ("place", "row"),
    [
        (2, (FILE, b"b", id_of(3))),
        (2, (EXEC, b"c", id_of(3))),
        (2, (EXEC, b"c", id_of(9))),
        (2, (FILE, b"", id_of(3) + b"x")),
        (0, (TREE, b"cod", id_of(9))),
        (3, (FILE, b"d", id_of(4))),
        (2, (FILE, b"longer", id_of(3))),
    ],
)
def test_another_name_or_mode_is_no_mere_change_of_ids(place: int, row: Row) -> None:
    """Also where the bytes are as many: the places of ids would be taken for what they are not."""
    rows = [*KNOWN[:place], row, *KNOWN[place + 1 :]]

    assert TreeListing(encode(*KNOWN)).find_changes(encode(*rows)) is None


def test_a_name_that_changed_between_two_ids_that_did_is_noticed() -> None:
    rows = [
        (TREE, b"doc", id_of(7)),
        (FILE, b"a-b", id_of(2)),
        (FILE, b"c", id_of(3)),
        (EXEC, b"d", id_of(8)),
    ]

    assert TreeListing(encode(*KNOWN)).find_changes(encode(*rows)) is None


def test_a_listing_by_the_names_of_another_is_that_of_its_own_content() -> None:
    """Over trees of many sizes with some ids changed, as versions of a directory are."""
    chance = random.Random(6)
    for size in range(1, 60):
        rows = [(chance.choice([FILE, TREE]), b"%d" % n, chance.randbytes(20)) for n in range(size)]
        changed = chance.sample(range(size), chance.randint(1, size))
        news = [
            (mode, name, chance.randbytes(20) if n in changed else id)
            for n, (mode, name, id) in enumerate(rows)
        ]
        known = TreeListing(encode(*rows))

        assert list(known.find_changes(encode(*news)) or ()) == sorted(changed)
        alike = TreeListing(encode(*news), known)
        assert [alike.id(place) for place in range(size)] == [id for _, _, id in news]
