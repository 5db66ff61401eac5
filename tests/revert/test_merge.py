"""Merging several versions of a path: the rules for every kind of file."""

from __future__ import annotations

import stat
from collections.abc import Callable
from itertools import product

import pytest

from shadowtree.base.paths import DIRECTORY, MODE_LINK, Change, PathState, RelPath, Unknown
from shadowtree.results.outcomes import Hunk
from shadowtree.revert import contents as real
from shadowtree.revert.plan import Merged, Merger
from shadowtree.revert.wanted import Edit
from shadowtree.store.git_format import blob_id

State = PathState | None
P = RelPath(b"p")


def text(*changed: tuple[int, str], end: str = "\n") -> bytes:
    """Return twenty lines, some of them changed."""
    lines = {number: f"line {number}" for number in range(1, 21)} | dict(changed)
    return "".join(line + end for line in lines.values()).encode("utf-8", "surrogateescape")


class Contents(real.Contents):
    """Contents by their ids, except large ones."""

    def __init__(self) -> None:
        self.known: dict[bytes, bytes | None] = {}
        self.merged: dict[bytes, bytes] = {}
        self.blobs_read: list[bytes] = []

    def file(self, content: bytes, mode: int = 0o644, *, is_large: bool = False) -> PathState:
        blob = blob_id(content)
        self.known[blob] = None if is_large else content
        return PathState(stat.S_IFREG | mode, blob)

    def link(self, target: bytes) -> PathState:
        self.known[blob_id(target)] = target
        return PathState(MODE_LINK, blob_id(target))

    def read_to_merge(self, path: RelPath, blob: bytes) -> bytes | None:
        assert path == P
        self.blobs_read.append(blob)
        return self.known[blob]

    def add_merged(self, content: bytes) -> bytes:
        blob = blob_id(content)
        self.known[blob] = self.merged[blob] = content
        return blob


class Unreadable(Contents):
    """Contents that must not be read."""

    def read_to_merge(self, path: RelPath, blob: bytes) -> bytes | None:
        raise AssertionError(f"{blob.hex()} was read")


@pytest.fixture
def contents() -> Contents:
    """Empty contents."""
    return Contents()


def merge(
    contents: Contents, present: State, *edits: tuple[State, State], label: str | None = None
) -> Merged:
    merger = Merger(contents, theirs_label=label)
    return merger.merge(P, present, [Edit(old, new) for old, new in edits])


def content_of(contents: Contents, merged: Merged) -> bytes:
    assert merged.state is not None
    content = contents.known[merged.state.blob]
    assert content is not None
    return content


# Every kind of file

STORED = Contents()
TEXTS = {
    "text": text(),
    "top": text((1, "top")),
    "other top": text((1, "other top")),
    "bottom": text((20, "bottom")),
}
STATES: dict[str, State] = {
    "absent": None,
    **{name: STORED.file(content) for name, content in TEXTS.items()},
    "runnable text": STORED.file(TEXTS["text"], 0o755),
    "private bottom": STORED.file(TEXTS["bottom"], 0o600),
    "binary": STORED.file(b"\0binary"),
    "other binary": STORED.file(b"\0other"),
    "large": STORED.file(b"large", is_large=True),
    "link": STORED.link(b"text"),
    "other link": STORED.link(b"elsewhere"),
    "link to a text": STORED.link(TEXTS["top"]),
    "directory": DIRECTORY,
}
TRIPLES = list(product(STATES, repeat=3))
COLLIDES = "collides"


def expect(base: State, ours: State, theirs: State) -> State | str:
    """Return the expected merge of three versions, by the documented rules."""
    changed = {side for side in (ours, theirs) if side != base}
    if len(changed) < 2:
        return changed.pop() if changed else base
    sides = [side for side in (base, ours, theirs) if side is not None and stat.S_ISREG(side.mode)]
    if len(sides) < 3:
        return COLLIDES
    modes = {side.mode for side in sides[1:]} - {sides[0].mode} or {sides[0].mode}
    contents = {side.blob for side in sides[1:]} - {sides[0].blob} or {sides[0].blob}
    if len(modes) > 1:
        return COLLIDES
    if len(contents) == 1:
        return PathState(modes.pop(), contents.pop())
    lines = [(STORED.known[side.blob] or b"\0").split(b"\n") for side in sides]
    if any(len(side) != 21 for side in lines):
        return COLLIDES
    merged = []
    for line, *others in zip(*lines, strict=True):
        news = set(others) - {line}
        if len(news) > 1:
            return COLLIDES
        merged.append(news.pop() if news else line)
    return PathState(modes.pop(), blob_id(b"\n".join(merged)))


@pytest.mark.parametrize("base", STATES)
def test_three_versions_come_to_what_the_rules_say(base: str) -> None:
    for ours, theirs in product(STATES, repeat=2):
        sides = STATES[base], STATES[ours], STATES[theirs]
        expected = expect(*sides)
        merged = merge(STORED, STATES[ours], (STATES[base], STATES[theirs]))

        if isinstance(expected, str):
            assert merged.collision, (base, ours, theirs)
            assert merged.hunks or merged.state == STATES[ours]
            assert not merged.has_markers
        else:
            assert (merged.state, merged.collision) == (expected, None), (base, ours, theirs)
            assert merged.hunks == []


def test_the_rules_meet_every_case() -> None:
    """The table above would prove nothing if all results were equal."""
    found = [expect(*(STATES[name] for name in triple)) for triple in TRIPLES]

    assert found.count(COLLIDES) > 1000
    assert len([each for each in found if each not in STATES.values() and each != COLLIDES]) > 10
    assert len(set(found)) > len(STATES)


@pytest.mark.parametrize("base", STATES)
def test_hunks_are_shown_where_texts_collide_and_nowhere_else(base: str) -> None:
    for ours, theirs in product(STATES, repeat=2):
        merged = merge(STORED, STATES[ours], (STATES[base], STATES[theirs]))
        are_texts = {base, ours, theirs} <= {*TEXTS, "runnable text", "private bottom"}
        if merged.hunks:
            assert are_texts
            assert merged.collision == "the changes overlap in 1 place"
        elif merged.collision and are_texts:
            assert merged.collision == "both sides changed its permissions"


@pytest.mark.parametrize("base", STATES)
def test_markers_are_written_into_texts_alone(base: str) -> None:
    """If anything else collides the path stays as it is, and a link is never merged as text."""
    for ours, theirs in product(STATES, repeat=2):
        plain = merge(STORED, STATES[ours], (STATES[base], STATES[theirs]))
        marked = merge(STORED, STATES[ours], (STATES[base], STATES[theirs]), label="undo")

        assert marked.has_markers == bool(plain.hunks)
        if not plain.hunks:
            assert marked == plain
        else:
            assert marked.hunks == plain.hunks
            assert b"<<<<<<< current\n" in content_of(STORED, marked)


REASONS: dict[str, tuple[str, str, str, str]] = {
    "a deletion and an edit": ("text", "top", "absent", "it would have to be deleted"),
    "an edit and a deletion": ("text", "absent", "top", "there is nothing to merge with"),
    "two files made": ("absent", "text", "top", "the versions have nothing in common"),
    "a binary": ("binary", "text", "top", "it is not a text file"),
    "a binary of ours": ("text", "binary", "top", "it is not a text file"),
    "a binary of theirs": ("text", "top", "binary", "it is not a text file"),
    "two links": ("link", "other link", "link to a text", "a link cannot be merged"),
    "a link and a file": ("text", "link", "top", "a link cannot be merged"),
    "a directory": ("text", "directory", "top", "a directory cannot be merged with a file"),
    "a directory that was to go": ("directory", "text", "absent", "a directory cannot be merged with a file"),
    "large": ("large", "text", "top", "it is too large to merge"),
    "large of theirs": ("text", "top", "large", "it is too large to merge"),
    "bits": ("text", "runnable text", "private bottom", "both sides changed its permissions"),
    "texts": ("text", "top", "other top", "the changes overlap in 1 place"),
}


@pytest.mark.parametrize(("base", "ours", "theirs", "reason"), REASONS.values(), ids=REASONS)
def test_a_collision_is_told_in_words(base: str, ours: str, theirs: str, reason: str) -> None:
    assert merge(STORED, STATES[ours], (STATES[base], STATES[theirs])).collision == reason


# Contents


def test_what_comes_of_merging_is_held_until_it_is_stored(contents: Contents) -> None:
    base, ours = contents.file(text()), contents.file(text((3, "ours")), 0o600)
    theirs = contents.file(text((9, "theirs")))
    merged = Merger(contents).merge(P, ours, [Edit(base, theirs)])

    both = text((3, "ours"), (9, "theirs"))
    assert merged == Merged(PathState(stat.S_IFREG | 0o600, blob_id(both)))
    assert contents.merged == {blob_id(both): both}


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        ("text", "text", "large"),
        ("large", "top", "large"),
        ("text", "top", "top"),
        ("binary", "other binary", "binary"),
        ("link", "link", "large"),
        ("absent", "large", "large"),
    ],
)
def test_where_one_side_alone_changed_no_content_is_read(base: str, ours: str, theirs: str) -> None:
    unreadable = Unreadable()
    merged = Merger(unreadable).merge(P, STATES[ours], [Edit(STATES[base], STATES[theirs])])

    assert merged.collision is None
    assert unreadable.merged == {}


def test_bits_of_one_side_and_content_of_the_other_need_no_reading() -> None:
    runnable, large = STATES["runnable text"], STATES["large"]
    assert runnable is not None
    assert large is not None
    merged = Merger(Unreadable()).merge(P, runnable, [Edit(STATES["text"], large)])

    assert merged == Merged(PathState(runnable.mode, large.blob))


ENDS: dict[str, Callable[[bytes], bytes]] = {
    "unix": lambda content: content,
    "dos": lambda content: content.replace(b"\n", b"\r\n"),
    "no final newline": lambda content: content.removesuffix(b"\n"),
    "dos without a final newline": lambda content: content.replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
    "not utf-8": lambda content: content.replace(b"line 7", b"line \xff\xfe"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_line_ends_the_final_newline_and_bytes_stay_as_they_are(
    contents: Contents, end: Callable[[bytes], bytes]
) -> None:
    base, ours = contents.file(end(text())), contents.file(end(text((3, "ours"))))
    theirs = contents.file(end(text((12, "theirs"))))

    assert content_of(contents, merge(contents, ours, (base, theirs))) == end(
        text((3, "ours"), (12, "theirs"))
    )


def test_a_side_that_changed_all_line_ends_collides_with_an_edit(contents: Contents) -> None:
    base, ours = contents.file(text()), contents.file(text(end="\r\n"))
    theirs = contents.file(text((3, "theirs")))

    assert merge(contents, ours, (base, theirs)).collision == "the changes overlap in 1 place"


def test_a_final_newline_that_one_side_added_stays(contents: Contents) -> None:
    bare = text().removesuffix(b"\n")
    base, ours = contents.file(bare), contents.file(text())
    theirs = contents.file(text((3, "theirs")).removesuffix(b"\n"))

    assert content_of(contents, merge(contents, ours, (base, theirs))) == text((3, "theirs"))


# Several edits


def test_edits_are_done_one_after_the_other(contents: Contents) -> None:
    """The second one is merged with the result of the first, which is stored nowhere else."""
    present = contents.file(text((1, "one"), (5, "five"), (10, "mine"), (15, "fifteen")))
    first = (contents.file(text((1, "one"), (15, "fifteen"))), contents.file(text((15, "fifteen"))))
    second = (contents.file(text((5, "five"), (15, "fifteen"))), contents.file(text((5, "five"))))

    merged = merge(contents, present, first, second)

    assert merged.collision is None
    assert content_of(contents, merged) == text((5, "five"), (10, "mine"))


def test_no_edit_leaves_what_is_there(contents: Contents) -> None:
    assert merge(contents, DIRECTORY) == Merged(DIRECTORY)
    assert merge(contents, None) == Merged(None)


def test_edits_that_lead_to_what_is_there_change_nothing(contents: Contents) -> None:
    one, two, three = (contents.file(text((1, word))) for word in ("one", "two", "three"))

    assert merge(contents, three, (one, two), (two, three)).collision is not None
    assert merge(contents, one, (one, two), (two, one)) == Merged(one)


def test_the_first_edit_that_collides_is_told_and_the_others_are_left(contents: Contents) -> None:
    base, ours, theirs = (contents.file(text((1, word))) for word in ("base", "ours", "theirs"))
    other = contents.link(b"x")

    merged = merge(contents, ours, (base, theirs), (theirs, other))

    assert merged.collision == "the changes overlap in 1 place"
    assert merged.state == ours


def test_nothing_more_is_done_to_a_text_with_markers(contents: Contents) -> None:
    base, ours, theirs = (contents.file(text((1, word))) for word in ("base", "ours", "theirs"))
    more = contents.file(text((1, "theirs"), (9, "more")))

    merged = merge(contents, ours, (base, theirs), (theirs, more), label="undo")

    assert merged.collision == "the changes overlap in 1 place"
    assert not merged.has_markers
    assert merge(contents, ours, (base, theirs), label="undo").has_markers


@pytest.mark.parametrize("is_old", [True, False], ids=["before", "after"])
def test_what_nobody_knows_is_not_merged(contents: Contents, is_old: bool) -> None:
    known, unknown = contents.file(text()), Unknown("it is too large")
    edit = Edit(unknown, known) if is_old else Edit(known, unknown)
    present = contents.file(text((1, "mine")))

    merged = Merger(contents).merge(P, present, [edit])
    assert merged == Merged(present, "what it was in between is not recorded")


# Without what is out of the line


@pytest.mark.parametrize(
    ("present", "old", "new", "expected"),
    [
        # The edit goes from `old` to `new`. Both contain the word "out" of a message that is out of the line.
        ([], [(9, "edit")], [(3, "out")], []),
        ([(9, "edit")], [(9, "edit"), (3, "out")], [(3, "out")], []),
        ([(3, "out"), (9, "edit")], [(9, "edit")], [(3, "out")], [(3, "out")]),
        ([(3, "over"), (9, "edit")], [(3, "over"), (9, "edit")], [(3, "out")], []),
        ([(3, "mine"), (9, "edit")], [(3, "out"), (9, "edit")], [(3, "out")], [(3, "mine")]),
    ],
    ids=["would come back", "is gone", "is the user's", "is overwritten", "is edited"],
)
def test_an_edit_is_merged_without_what_is_out_of_the_line(
    contents: Contents,
    present: list[tuple[int, str]],
    old: list[tuple[int, str]],
    new: list[tuple[int, str]],
    expected: list[tuple[int, str]],
) -> None:
    removal = Change(P, contents.file(text((3, "out"))), contents.file(text()))
    edit = Edit(contents.file(text(*old)), contents.file(text(*new)), (removal,))
    merged = Merger(contents, theirs_label="undo").merge(P, contents.file(text(*present)), [edit])

    assert merged == Merged(contents.file(text(*expected)))


# Hunks and markers


def test_every_hunk_tells_what_each_side_has(contents: Contents) -> None:
    base = contents.file(text())
    ours = contents.file(text((2, "ours"), (3, "ours too"), (12, "ours again"), (20, "alone")))
    theirs = contents.file(text((2, "theirs"), (3, "theirs too"), (12, "\udcff")))

    merged = merge(contents, ours, (base, theirs))

    assert merged.collision == "the changes overlap in 2 places"
    assert merged.hunks == [
        Hunk(2, "ours\nours too\n", "line 2\nline 3\n", "theirs\ntheirs too\n"),
        Hunk(12, "ours again\n", "line 12\n", "\ufffd\n"),
    ]


def test_markers_stand_around_both_versions_of_what_collides(contents: Contents) -> None:
    base, ours = contents.file(text()), contents.file(text((3, "ours"), (9, "alone")), 0o600)
    theirs = contents.file(text((3, "theirs"), (15, "theirs alone")))

    merged = merge(contents, ours, (base, theirs), label="revert")

    marked = "<<<<<<< current\nours\n=======\ntheirs\n>>>>>>> revert"
    assert content_of(contents, merged) == text((3, marked), (9, "alone"), (15, "theirs alone"))
    assert merged.state is not None
    assert merged.state.mode == stat.S_IFREG | 0o600
    assert merged.has_markers


def test_markers_end_as_the_lines_around_them(contents: Contents) -> None:
    base, ours, theirs = (contents.file(text((3, word), end="\r\n")) for word in ("line 3", "ours", "theirs"))
    merged = merge(contents, ours, (base, theirs), label="undo")

    marked = "<<<<<<< current\r\nours\r\n=======\r\ntheirs\r\n>>>>>>> undo"
    assert content_of(contents, merged) == text((3, marked), end="\r\n")


def test_markers_need_a_line_of_their_own_at_the_end_of_a_text_without_a_newline(contents: Contents) -> None:
    base, ours, theirs = (contents.file(word) for word in (b"a\nbase", b"a\nours", b"a\ntheirs"))
    merged = merge(contents, ours, (base, theirs), label="undo")

    assert content_of(contents, merged) == b"a\n<<<<<<< current\nours\n=======\ntheirs\n>>>>>>> undo\n"
