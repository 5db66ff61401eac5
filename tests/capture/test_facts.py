"""Facts: written and read back, and equal for equal files."""

from __future__ import annotations

import random
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.paths import ROOT
from shadowtree.capture.directories import NORMAL, Directory
from shadowtree.capture.facts import (
    DirectoryFacts,
    RootRules,
    decode_directory,
    decode_rules,
    encode_directory,
    encode_rules,
)

_names = st.binary(min_size=1, max_size=8).filter(lambda name: b"/" not in name and b"\0" not in name)
_modes = st.integers(0, 0o7777).map(lambda bits: 0o100000 | bits) | st.just(0o120777)


def directory_of(modes: dict[bytes, int], *, skipped: dict[bytes, str] | None = None) -> Directory:
    """Describe a directory that contains files with these modes."""
    directory = Directory(ROOT, NORMAL)
    directory.names = tuple(sorted(modes))
    directory.stats = array("q", [number for name in directory.names for number in (0, 0, 0, 0, modes[name])])
    directory.skipped = tuple((skipped or {}).items())
    return directory


def permissions(facts: DirectoryFacts, modes: dict[bytes, int]) -> dict[bytes, int]:
    """Return the bits of each regular file, as the facts have them."""
    return {
        name: facts.permissions(name, is_executable=bool(mode & 0o100))
        for name, mode in modes.items()
        if mode & 0o170000 == 0o100000
    }


@given(
    st.dictionaries(_names, _modes),
    st.dictionaries(_names, st.text("abc: /\u00e9", min_size=1)),
    st.booleans(),
)
def test_facts_come_back_as_they_were(
    modes: dict[bytes, int], skipped: dict[bytes, str], has_entry: bool
) -> None:
    directory = directory_of(modes, skipped=skipped)

    facts = decode_directory(encode_directory(directory, has_entry=has_entry), "of a test")

    regular = {name: mode & 0o777 for name, mode in modes.items() if mode != 0o120777}
    assert permissions(facts, modes) == regular
    assert facts.is_directory is not has_entry
    assert facts.skipped == skipped


@given(
    st.dictionaries(_names, _modes), st.dictionaries(_names, st.just("x")), st.randoms(use_true_random=False)
)
def test_the_same_files_give_the_same_facts(
    modes: dict[bytes, int], skipped: dict[bytes, str], dice: random.Random
) -> None:
    one, other = directory_of(modes, skipped=skipped), directory_of(modes, skipped=skipped)
    other.skipped = tuple(dice.sample(other.skipped, len(other.skipped)))

    assert encode_directory(one, has_entry=True) == encode_directory(other, has_entry=True)


def test_a_usual_directory_has_nothing_to_tell() -> None:
    directory = directory_of({b"a": 0o100644, b"b": 0o100755, b"c": 0o120777})

    assert encode_directory(directory, has_entry=True) == b""
    assert encode_directory(directory_of({}), has_entry=True) == b""


def test_a_directory_without_an_entry_tells_that_it_is_there() -> None:
    assert encode_directory(directory_of({}), has_entry=False) == b"directory\0"


def test_bits_that_most_files_have_are_told_once() -> None:
    modes = {b"a": 0o100600, b"b": 0o100600, b"c": 0o100644, b"d": 0o100700}

    content = encode_directory(directory_of(modes), has_entry=True)

    assert content == b"modes 600 700\0mode 644 c\0"


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        ([0o644, 0o600], b"mode 600 b\0"),
        ([0o600, 0o644], b"mode 600 a\0"),
        ([0o660, 0o600], b"modes 600 755\0mode 660 a\0"),
        ([0o600, 0o660], b"modes 600 755\0mode 660 b\0"),
        ([0o755, 0o700], b"mode 700 b\0"),
        ([0o711, 0o700], b"modes 644 700\0mode 711 a\0"),
    ],
)
def test_a_tie_goes_to_the_usual_bits_and_then_to_the_lower(modes: list[int], expected: bytes) -> None:
    directory = directory_of({b"a": 0o100000 | modes[0], b"b": 0o100000 | modes[1]})

    assert encode_directory(directory, has_entry=True) == expected


def test_bits_above_the_permissions_are_not_told() -> None:
    directory = directory_of({b"a": 0o104755, b"b": 0o101644, b"c": 0o102644})

    assert encode_directory(directory, has_entry=True) == b""


@pytest.mark.parametrize(
    "content",
    [b"unknown\0", b"mode x a\0", b"modes 644\0", b"modes 1 2 3\0", b"mode\0", b"\0", b"modes 9 9\0"],
    ids=repr,
)
def test_facts_that_cannot_be_are_damage(content: bytes) -> None:
    with pytest.raises(StoreDamaged):
        decode_directory(content, "of a test")


@given(st.binary(max_size=60))
def test_garbage_is_facts_or_damage(content: bytes) -> None:
    try:
        facts = decode_directory(content, "of a test")
    except StoreDamaged:
        return

    assert all(0 <= mode <= 0o777 for mode in facts.modes.values())


# Rules

_texts = st.binary(max_size=20)


@given(
    _texts, _texts, st.none() | _texts, st.lists(st.tuples(_texts, _texts)), st.lists(_texts), st.integers(0)
)
def test_rules_come_back_as_they_were(
    own: bytes,
    everywhere: bytes,
    exclude: bytes | None,
    around: list[tuple[bytes, bytes]],
    heavy: list[bytes],
    size: int,
) -> None:
    rules = RootRules(own, everywhere, exclude, around, heavy, size)

    assert decode_rules(encode_rules(rules), "of a test") == rules


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"1",
        b'{"around": 1}',
        b'{"around": [[1]]}',
        b'{"own_text": 1, "global_text": "", "exclude_text": null, "around": [], "heavy_dirs": []}',
        b"\xff",
    ],
)
def test_rules_that_cannot_be_are_damage(content: bytes) -> None:
    with pytest.raises(StoreDamaged):
        decode_rules(content, "of a test")
