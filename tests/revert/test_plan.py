"""What a plan does to each path, with a dictionary as the worktree, and the order of its moves."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowtree.base.frozen import replace
from shadowtree.base.paths import (
    DIRECTORY,
    ROOT,
    TEMPORARY_PREFIX,
    Change,
    PathState,
    RelPath,
    Unknown,
    ancestors,
    parent_of,
    to_text,
)
from shadowtree.results.outcomes import Hunk
from shadowtree.revert import plan as real
from shadowtree.revert.contents import DiskState
from shadowtree.revert.intents import Move, order_moves
from shadowtree.revert.plan import (
    KEEP_OR_MOVE,
    KEEP_OR_OVERWRITE,
    MARK_OR_KEEP,
    Merged,
    PathPlan,
    make_plan,
)
from shadowtree.revert.requests import Options
from shadowtree.revert.wanted import Edit, Wanted

if TYPE_CHECKING:
    from shadowtree.base.arguments import OnConflict

State = PathState | None
Answer = PathState | Unknown | None

PIPE = Unknown("something that is neither file nor link")
MODES: tuple[OnConflict, ...] = ("abort", "keep", "overwrite")


def f(number: int, mode: int = 0o644) -> PathState:
    """Return the state of a file."""
    return PathState(stat.S_IFREG | mode, bytes([number]) * 20)


def ln(number: int) -> PathState:
    """Return the state of a link."""
    return PathState(stat.S_IFLNK, bytes([number]) * 20)


class Disk(DiskState):
    """A worktree in a dictionary, with the directories above its files."""

    def __init__(
        self, paths: Mapping[bytes, PathState | Unknown] | Mapping[RelPath, PathState | Unknown]
    ) -> None:
        self.paths: dict[RelPath, PathState | Unknown] = {}
        for path, state in paths.items():
            self.paths.update(dict.fromkeys(ancestors(RelPath(path)), DIRECTORY))
            self.paths[RelPath(path)] = state

    def state_of(self, path: RelPath, *, as_directory: bool = False) -> Answer:
        return self.paths.get(path)

    def below(self, path: RelPath) -> Iterator[RelPath]:
        return (each for each in self.paths if each.startswith(path + b"/"))


def plan(
    wanted: list[Wanted], present: Mapping[bytes, PathState | Unknown], on_conflict: OnConflict = "abort"
) -> PathPlan:
    return make_plan(wanted, Disk(present), NoMerger(), Options(on_conflict))


class NoMerger(real.Merger):
    """Must not be called: only conflicts of messages' changes are merged, and only on request."""

    def __init__(self) -> None:
        pass

    def merge(self, path: RelPath, present: State, edits: Sequence[Edit]) -> Merged:
        raise AssertionError(f"{path!r} was to be merged")


def want(
    path: bytes,
    target: Answer,
    expected: Answer,
    *,
    trouble: str | None = None,
    last: str = "",
    doubt: str | None = None,
    edits: Sequence[tuple[Answer, Answer]] = (),
    is_merged: bool = False,
) -> Wanted:
    own = RelPath(path)
    on_the_way = [Edit(old, new) for old, new in edits]
    return Wanted(own, target, expected, trouble, last, doubt, on_the_way, is_merged)


def changes(found: PathPlan) -> dict[bytes, tuple[Answer, Answer]]:
    """Return what a plan does if there are no conflicts."""
    assert found.conflicts == []
    return {change.path: (change.old, change.new) for change in found.changes}


def reasons(found: PathPlan) -> dict[str, str]:
    return {conflict.path: conflict.reason for conflict in found.conflicts}


EMPTY = PathPlan([], [], [], [])


# One path


@pytest.mark.parametrize("on_conflict", MODES)
@pytest.mark.parametrize(
    ("present", "target"),
    [(f(0), f(0)), (None, None), (ln(1), ln(1)), (DIRECTORY, DIRECTORY)],
    ids=["file", "nothing", "link", "directory"],
)
@pytest.mark.parametrize("expected", [f(9), None, DIRECTORY, PIPE])
def test_a_path_that_is_what_is_wanted_is_left_alone(
    present: State, target: State, expected: Answer, on_conflict: OnConflict
) -> None:
    """Whoever made it so: then neither trouble nor doubt matters."""
    disk = {} if present is None else {b"p": present}
    wanted = [want(b"p", target, expected, trouble="edited", doubt="unknown after")]

    found = plan(wanted, disk, on_conflict)
    assert replace(found, agreed=[]) == EMPTY
    assert found.agreed == ([] if present == expected else [Change(RelPath(b"p"), target, target)])


@pytest.mark.parametrize(
    ("present", "target"),
    [
        (f(1), f(0)),
        (f(1), None),
        (None, f(0)),
        (f(1), ln(0)),
        (ln(1), f(0)),
        (f(0, 0o600), f(0)),
        (DIRECTORY, None),
        (None, DIRECTORY),
        (f(1), DIRECTORY),
        (DIRECTORY, f(0)),
    ],
)
def test_a_path_that_is_as_recorded_becomes_what_is_wanted(present: State, target: State) -> None:
    disk = {} if present is None else {b"p": present}

    assert changes(plan([want(b"p", target, present)], disk)) == {b"p": (present, target)}


CONFLICTS: list[tuple[State, State, State, str]] = [
    (f(2), f(1), f(0), "it was edited after message 'm1'"),
    (f(2), None, f(0), "it was created after message 'm1'"),
    (f(2), None, None, ""),
    (None, f(1), f(0), "it was deleted after message 'm1'"),
    (f(1, 0o600), f(1), f(0), "its permissions were changed after message 'm1'"),
    (f(2, 0o600), f(1), f(0), "it was edited after message 'm1'"),
    (ln(1), f(1), f(0), "it was replaced by a link after message 'm1'"),
    (f(1), ln(1), f(0), "it was replaced by a file after message 'm1'"),
    (ln(2), ln(1), f(0), "it was edited after message 'm1'"),
    (DIRECTORY, f(1), f(0), "it was replaced by a directory after message 'm1'"),
    (f(1), DIRECTORY, None, "it was replaced by a file after message 'm1'"),
    (DIRECTORY, None, f(0), "it was created after message 'm1'"),
    (f(2), f(1), None, "it was edited after message 'm1'"),
]


@pytest.mark.parametrize(("present", "expected", "target", "reason"), [c for c in CONFLICTS if c[3]])
def test_a_path_that_somebody_changed_is_a_conflict(
    present: State, expected: State, target: State, reason: str
) -> None:
    disk = {} if present is None else {b"p": present}
    found = plan([want(b"p", target, expected, last="message 'm1'")], disk)

    assert reasons(found) == {"p": reason}
    assert found.conflicts[0].advice == KEEP_OR_OVERWRITE
    assert found.changes == []
    assert found.kept == []


@pytest.mark.parametrize(("present", "expected", "target", "reason"), [c for c in CONFLICTS if c[3]])
def test_a_conflict_is_kept_or_overwritten_when_asked_for(
    present: State, expected: State, target: State, reason: str
) -> None:
    disk = {} if present is None else {b"p": present}
    wanted = [want(b"p", target, expected, last="message 'm1'")]

    assert plan(wanted, disk, "keep") == PathPlan([], [], [RelPath(b"p")], [])
    assert changes(plan(wanted, disk, "overwrite")) == {b"p": (present, target)}


def test_trouble_is_a_conflict_whatever_is_there() -> None:
    wanted = [want(b"p", f(0), f(1), trouble="it was edited between m1 and m2")]

    assert reasons(plan(wanted, {b"p": f(1)})) == {"p": "it was edited between m1 and m2"}
    assert plan(wanted, {b"p": f(1)}, "keep").kept == [b"p"]
    assert changes(plan(wanted, {b"p": f(1)}, "overwrite")) == {b"p": (f(1), f(0))}


def test_one_conflict_leaves_the_other_paths_in_the_plan() -> None:
    """The plan does not decide whether anything is done; a dry run shows both."""
    wanted = [want(b"a", f(0), f(1)), want(b"b", f(0), f(1))]
    found = plan(wanted, {b"a": f(1), b"b": f(2)})

    assert [change.path for change in found.changes] == [b"a"]
    assert list(reasons(found)) == ["b"]


@pytest.mark.parametrize("on_conflict", MODES)
def test_a_path_that_nobody_knew_then_is_skipped_and_not_even_looked_at(on_conflict: OnConflict) -> None:
    found = plan([want(b"p", Unknown("not recorded before: large"), f(1))], {b"p": f(2)}, on_conflict)

    assert [(skip.path, skip.reason) for skip in found.skipped] == [("p", "not recorded before: large")]
    assert (found.changes, found.conflicts, found.kept) == ([], [], [])


@pytest.mark.parametrize("on_conflict", MODES)
def test_a_path_in_doubt_is_skipped(on_conflict: OnConflict) -> None:
    wanted = [want(b"p", f(0), PIPE, doubt="not recorded after: large", trouble="edited")]
    found = plan(wanted, {b"p": f(2)}, on_conflict)

    assert [(skip.path, skip.reason) for skip in found.skipped] == [("p", "not recorded after: large")]
    assert (found.changes, found.conflicts, found.kept) == ([], [], [])


@pytest.mark.parametrize("on_conflict", ["abort", "overwrite"])
def test_what_cannot_be_stored_is_never_replaced(on_conflict: OnConflict) -> None:
    found = plan([want(b"p", f(0), f(1))], {b"p": PIPE}, on_conflict)

    assert reasons(found) == {"p": f"something is in the way: {PIPE.reason}"}
    assert found.conflicts[0].advice == KEEP_OR_MOVE
    assert found.changes == []


def test_what_cannot_be_stored_can_be_kept() -> None:
    assert plan([want(b"p", f(0), f(1))], {b"p": PIPE}, "keep") == PathPlan([], [], [RelPath(b"p")], [])


def test_something_uncovered_is_in_the_way_only_if_it_is_there() -> None:
    wanted = [want(b"p", f(0), Unknown("an ignore rule excluded it"))]

    assert changes(plan(wanted, {})) == {b"p": (None, f(0))}
    assert reasons(plan(wanted, {b"p": f(5)})) == {
        "p": "something unprotected is in the way: an ignore rule excluded it"
    }
    assert changes(plan(wanted, {b"p": f(5)}, "overwrite")) == {b"p": (f(5), f(0))}


def test_a_name_that_is_no_utf_8_is_told_as_text() -> None:
    found = plan([want(b"\xff", f(0), f(1))], {b"\xff": f(2)})

    assert list(reasons(found)) == ["\udcff"]


# Merger


class Merger(real.Merger):
    """Returns given results, and stores its arguments."""

    def __init__(self, answer: Merged) -> None:
        self.answer = answer
        self.asked: list[tuple[bytes, State, list[Edit]]] = []

    def merge(self, path: RelPath, present: State, edits: Sequence[Edit]) -> Merged:
        self.asked.append((path, present, list(edits)))
        return self.answer


def merge(
    answer: Merged,
    wanted: list[Wanted],
    present: Mapping[bytes, PathState | Unknown],
    on_conflict: OnConflict,
) -> tuple[PathPlan, Merger]:
    merger = Merger(answer)
    return make_plan(wanted, Disk(present), merger, Options(on_conflict)), merger


HUNKS = [Hunk(3, "ours", "base", "theirs")]
FITS = Merged(f(7))
COLLIDES = Merged(f(2), "the changes overlap in 1 place", HUNKS)
COLLIDES_OTHERWISE = Merged(f(2), "it is not a text file")
MARKED = Merged(f(8), "the changes overlap in 1 place", HUNKS, has_markers=True)

EDITED = want(b"p", f(0), f(1), last="message 'm1'", edits=[(f(1), f(0))])
"""Somebody changed f(1), which the message had made of f(0), to f(2)."""
TROUBLED = want(b"p", f(0), f(2), trouble="it was edited between m1 and m2", edits=[(f(1), f(0))])
TAKEN_OUT = want(b"p", f(0), f(2), edits=[(f(1), f(0))], is_merged=True)
"""A later message changed f(1) to f(2)."""
TAKEN_OUT_AND_EDITED = want(b"p", f(0), f(1), last="message 'm2'", edits=[(f(1), f(0))], is_merged=True)


@pytest.mark.parametrize(
    "wanted", [EDITED, TROUBLED, TAKEN_OUT_AND_EDITED], ids=["edited", "trouble", "both"]
)
def test_a_conflict_is_merged_when_asked_for(wanted: Wanted) -> None:
    found, merger = merge(FITS, [wanted], {b"p": f(2)}, "merge")

    assert found == PathPlan(
        [Change(RelPath(b"p"), f(2), f(7), is_merged=True)], [], [], [], edited=[RelPath(b"p")]
    )
    assert merger.asked == [(b"p", f(2), [Edit(f(1), f(0))])]


@pytest.mark.parametrize("on_conflict", ["abort", "keep", "overwrite", "merge"])
def test_a_message_is_taken_out_from_under_later_ones_without_any_conflict(on_conflict: OnConflict) -> None:
    found, merger = merge(FITS, [TAKEN_OUT], {b"p": f(2)}, on_conflict)

    assert found == PathPlan([Change(RelPath(b"p"), f(2), f(7), is_merged=True)], [], [], [])
    assert merger.asked == [(b"p", f(2), [Edit(f(1), f(0))])]


@pytest.mark.parametrize("state", [None, ln(3), f(7, 0o600)], ids=["nothing", "link", "bits"])
def test_whatever_a_merge_comes_to_is_done(state: State) -> None:
    found, _ = merge(Merged(state), [EDITED], {b"p": f(2)}, "merge")

    assert changes(found) == {b"p": (f(2), state)}


def test_what_was_deleted_meanwhile_is_merged_with_nothing() -> None:
    found, merger = merge(FITS, [EDITED], {}, "merge")

    assert changes(found) == {b"p": (None, f(7))}
    assert merger.asked[0][1] is None


def test_a_merge_that_comes_to_what_is_there_changes_nothing() -> None:
    found, _ = merge(Merged(f(2)), [EDITED], {b"p": f(2)}, "merge")

    assert found == replace(EMPTY, agreed=[Change(RelPath(b"p"), f(2), f(2), is_merged=True)])


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (EDITED, "it was edited after message 'm1', and the changes overlap in 1 place"),
        (TROUBLED, "it was edited between m1 and m2, and the changes overlap in 1 place"),
        (TAKEN_OUT, "the changes overlap in 1 place"),
    ],
    ids=["edited", "trouble", "taken out"],
)
def test_what_collides_is_a_conflict_with_its_hunks(wanted: Wanted, reason: str) -> None:
    found, _ = merge(COLLIDES, [wanted, want(b"q", f(0), f(1))], {b"p": f(2), b"q": f(1)}, "merge")

    assert reasons(found) == {"p": reason}
    assert found.conflicts[0].hunks == HUNKS
    assert found.conflicts[0].advice == MARK_OR_KEEP
    assert [change.path for change in found.changes] == [b"q"]
    assert found.marked == []


def test_markers_are_not_proposed_for_what_is_no_text() -> None:
    found, _ = merge(COLLIDES_OTHERWISE, [EDITED], {b"p": f(2)}, "merge")

    assert reasons(found) == {"p": "it was edited after message 'm1', and it is not a text file"}
    assert (found.conflicts[0].hunks, found.conflicts[0].advice) == ([], KEEP_OR_OVERWRITE)


@pytest.mark.parametrize("answer", [COLLIDES, COLLIDES_OTHERWISE], ids=["texts", "no texts"])
def test_what_collides_where_nobody_edited_stops_keeps_or_is_overwritten(answer: Merged) -> None:
    stopped, _ = merge(answer, [TAKEN_OUT], {b"p": f(2)}, "abort")
    kept, _ = merge(answer, [TAKEN_OUT], {b"p": f(2)}, "keep")
    overwritten, _ = merge(answer, [TAKEN_OUT], {b"p": f(2)}, "overwrite")

    assert reasons(stopped) == {"p": answer.collision}
    assert stopped.changes == []
    assert kept == PathPlan([], [], [RelPath(b"p")], [])
    assert overwritten == PathPlan([Change(RelPath(b"p"), f(2), f(0))], [], [], [])


@pytest.mark.parametrize("on_conflict", ["abort", "keep"])
@pytest.mark.parametrize(
    "wanted", [EDITED, TROUBLED, TAKEN_OUT_AND_EDITED], ids=["edited", "trouble", "both"]
)
def test_nothing_is_merged_with_an_edit_unless_that_is_asked_for(
    wanted: Wanted, on_conflict: OnConflict
) -> None:
    found, merger = merge(FITS, [wanted], {b"p": f(2)}, on_conflict)

    assert merger.asked == []
    assert found.changes == []
    assert (list(reasons(found)), found.kept) == (([], [b"p"]) if on_conflict == "keep" else (["p"], []))


@pytest.mark.parametrize("wanted", [EDITED, TROUBLED], ids=["edited", "trouble"])
def test_nothing_is_merged_where_an_edit_is_overwritten(wanted: Wanted) -> None:
    found, merger = merge(FITS, [wanted], {b"p": f(2)}, "overwrite")

    assert merger.asked == []
    assert found == PathPlan([Change(RelPath(b"p"), f(2), f(0))], [], [], [], edited=[RelPath(b"p")])


def test_markers_are_written_and_told() -> None:
    found, _ = merge(MARKED, [EDITED], {b"p": f(2)}, "merge")

    assert changes(found) == {b"p": (f(2), f(8))}
    assert found.marked == [b"p"]
    assert found.changes[0].is_merged


def test_where_no_message_changed_anything_there_is_nothing_to_merge() -> None:
    """As when a tree is restored."""
    found, merger = merge(
        FITS, [want(b"p", f(0), PIPE), want(b"q", f(0), f(1))], {b"p": f(2), b"q": f(1)}, "merge"
    )

    assert merger.asked == []
    assert list(reasons(found)) == ["p"]
    assert found.conflicts[0].advice == KEEP_OR_OVERWRITE
    assert [change.path for change in found.changes] == [b"q"]


def test_without_a_conflict_nothing_is_merged() -> None:
    found, merger = merge(FITS, [want(b"p", f(0), f(1), edits=[(f(1), f(0))])], {b"p": f(1)}, "merge")

    assert merger.asked == []
    assert found == PathPlan([Change(RelPath(b"p"), f(1), f(0))], [], [], [])


def test_what_is_as_wished_already_is_not_merged() -> None:
    for wanted in (EDITED, TROUBLED, TAKEN_OUT):
        found, merger = merge(FITS, [wanted], {b"p": f(0)}, "merge")

        assert merger.asked == []
        assert found.changes == []


@pytest.mark.parametrize("on_conflict", ["merge", "abort"])
def test_what_cannot_be_stored_is_never_merged(on_conflict: OnConflict) -> None:
    found, merger = merge(FITS, [TAKEN_OUT], {b"p": PIPE}, on_conflict)

    assert merger.asked == []
    assert found.conflicts[0].advice == KEEP_OR_MOVE


def test_what_nobody_knows_is_skipped_and_not_merged() -> None:
    wanted = [
        want(b"p", Unknown("not recorded before: large"), f(1), edits=[(f(1), f(0))], is_merged=True),
        want(b"q", f(0), f(1), doubt="not recorded after: large", edits=[(f(1), f(0))], is_merged=True),
    ]
    found, merger = merge(FITS, wanted, {b"p": f(2), b"q": f(2)}, "merge")

    assert merger.asked == []
    assert [skip.path for skip in found.skipped] == ["p", "q"]


def test_what_is_merged_has_to_fit_the_shape() -> None:
    """The user replaced the directory above it by a file."""
    wanted = [want(b"d/p", f(0), f(1), edits=[(f(1), f(0))])]
    found, _ = merge(MARKED, wanted, {b"d": f(9)}, "merge")

    assert list(reasons(found)) == ["d/p"]
    assert (found.changes, found.marked) == ([], [])


# Paths above


def test_missing_directories_are_made() -> None:
    found = plan([want(b"a/b/c", f(0), None)], {})

    assert changes(found) == {b"a": (None, DIRECTORY), b"a/b": (None, DIRECTORY), b"a/b/c": (None, f(0))}


def test_a_directory_that_is_there_is_left_alone() -> None:
    assert changes(plan([want(b"a/b", f(0), None)], {b"a/x": f(1)})) == {b"a/b": (None, f(0))}


def test_a_directory_that_shall_go_stays_if_something_comes_into_it() -> None:
    wanted = [want(b"a", None, DIRECTORY), want(b"a/new", f(0), None), want(b"a/old", None, f(1))]

    assert changes(plan(wanted, {b"a/old": f(1)})) == {b"a/new": (None, f(0)), b"a/old": (f(1), None)}


def test_a_file_that_goes_makes_room_for_a_directory() -> None:
    wanted = [want(b"a", None, f(1)), want(b"a/b/c", f(0), None)]

    assert changes(plan(wanted, {b"a": f(1)})) == {
        b"a": (f(1), DIRECTORY),
        b"a/b": (None, DIRECTORY),
        b"a/b/c": (None, f(0)),
    }


@pytest.mark.parametrize("path", [b"a/x", b"a/b/x"], ids=["near", "deep"])
def test_a_foreign_file_in_place_of_a_directory_is_a_conflict(path: bytes) -> None:
    found = plan([want(path, f(0), None)], {b"a": f(9)})

    assert reasons(found)[to_text(path)] == "a is not a directory"
    assert found.changes == []


@pytest.mark.parametrize("path", [b"a/x", b"a/b/x"], ids=["near", "deep"])
def test_a_foreign_file_in_place_of_a_directory_can_be_kept(path: bytes) -> None:
    found = plan([want(path, f(0), None), want(b"other", f(0), f(1))], {b"a": f(9), b"other": f(1)}, "keep")

    assert changes(found) == {b"other": (f(1), f(0))}
    assert path in found.kept


@pytest.mark.parametrize("state", [f(9), ln(9)], ids=["file", "link"])
def test_a_foreign_file_in_place_of_a_directory_can_be_overwritten(state: PathState) -> None:
    found = plan([want(b"a/b/x", f(0), None)], {b"a": state}, "overwrite")

    assert changes(found) == {
        b"a": (state, DIRECTORY),
        b"a/b": (None, DIRECTORY),
        b"a/b/x": (None, f(0)),
    }


@pytest.mark.parametrize("on_conflict", MODES)
def test_a_pipe_in_place_of_a_directory_stays(on_conflict: OnConflict) -> None:
    found = plan([want(b"a/x", f(0), None)], {b"a": PIPE}, on_conflict)

    assert found.changes == []
    assert found.kept == ([b"a/x"] if on_conflict == "keep" else [])
    assert list(reasons(found)) == ([] if on_conflict == "keep" else ["a/x"])


def test_what_belongs_into_a_kept_file_is_kept_too() -> None:
    """The user replaced the directory by a file and edited it: neither is touched."""
    wanted = [want(b"a", DIRECTORY, f(1)), want(b"a/x", f(0), None), want(b"a/y/z", f(0), None)]
    found = plan(wanted, {b"a": f(9)}, "keep")

    assert found.changes == []
    assert {b"a", b"a/x", b"a/y/z"} <= set(found.kept)


def test_what_belongs_into_a_directory_kept_away_is_kept_too() -> None:
    wanted = [want(b"a", DIRECTORY, f(1)), want(b"a/x", f(0), None)]
    found = plan(wanted, {}, "keep")

    assert found.changes == []
    assert found.kept == [b"a", b"a/x"]


# Paths below


def test_a_directory_becomes_a_file_when_all_below_it_goes() -> None:
    wanted = [
        want(b"a", f(0), DIRECTORY),
        want(b"a/s", None, DIRECTORY),
        want(b"a/s/y", None, f(1)),
        want(b"a/x", None, f(1)),
    ]

    assert changes(plan(wanted, {b"a/x": f(1), b"a/s/y": f(1)})) == {
        b"a": (DIRECTORY, f(0)),
        b"a/s": (DIRECTORY, None),
        b"a/s/y": (f(1), None),
        b"a/x": (f(1), None),
    }


FOREIGN: dict[str, tuple[bytes, PathState | Unknown]] = {
    "a file": (b"a/u", f(9)),
    "a deep file": (b"a/s/t/u", f(9)),
    "a pipe": (b"a/u", PIPE),
    "an empty directory": (b"a/u", DIRECTORY),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("on_conflict", MODES)
def test_a_directory_that_holds_something_foreign_stays(
    foreign: tuple[bytes, PathState | Unknown], on_conflict: OnConflict
) -> None:
    path, state = foreign
    wanted = [want(b"a", f(0), DIRECTORY), want(b"a/x", None, f(1))]
    found = plan(wanted, {b"a/x": f(1), path: state}, on_conflict)

    assert b"a" not in {change.path for change in found.changes}
    if on_conflict == "keep":
        assert found.kept == [b"a"]
        assert changes(found) == {b"a/x": (f(1), None)}
    else:
        assert list(reasons(found)) == ["a"]
        assert "which must stay" in reasons(found)["a"]
        assert found.conflicts[0].advice == KEEP_OR_MOVE


def test_a_directory_that_holds_something_kept_stays() -> None:
    wanted = [want(b"a", f(0), DIRECTORY), want(b"a/x", None, f(1)), want(b"a/y", None, f(1))]
    found = plan(wanted, {b"a/x": f(1), b"a/y": f(9)}, "keep")

    assert changes(found) == {b"a/x": (f(1), None)}
    assert found.kept == [b"a", b"a/y"]


def test_a_directory_that_holds_something_skipped_stays() -> None:
    wanted = [want(b"a", f(0), DIRECTORY), want(b"a/x", Unknown("not recorded before"), f(1))]
    found = plan(wanted, {b"a/x": f(1)}, "overwrite")

    assert reasons(found) == {"a": "it contains a/x, which must stay"}


def test_a_directory_that_holds_what_was_wished_for_stays() -> None:
    """The two cannot both be done, as after others' edits: neither is guessed."""
    wanted = [want(b"a", f(0), f(7)), want(b"a/x", f(0), f(1))]
    found = plan(wanted, {b"a/x": f(1)}, "overwrite")

    assert list(reasons(found)) == ["a"]
    assert [change.path for change in found.changes] == [b"a/x"]


@pytest.mark.parametrize("on_conflict", MODES)
def test_removing_a_directory_binds_nobody(on_conflict: OnConflict) -> None:
    """It is in the plan, but stays if something is left in it."""
    wanted = [want(b"a", None, DIRECTORY), want(b"a/x", None, f(1))]
    found = plan(wanted, {b"a/x": f(1), b"a/u": f(9)}, on_conflict)

    assert changes(found) == {b"a": (DIRECTORY, None), b"a/x": (f(1), None)}
    assert found.kept == []


def test_a_foreign_directory_in_place_of_a_file_is_a_conflict() -> None:
    found = plan([want(b"a", f(0), f(1))], {b"a/u": f(9)})

    assert reasons(found) == {"a": "it was replaced by a directory in the meantime"}
    assert plan([want(b"a", f(0), f(1))], {b"a/u": f(9)}, "keep").kept == [b"a"]


@pytest.mark.parametrize("target", [f(0), None], ids=["a file", "nothing"])
def test_a_foreign_directory_goes_only_if_it_is_empty(target: State) -> None:
    wanted = [want(b"a", target, f(1))]

    assert changes(plan(wanted, {b"a": DIRECTORY}, "overwrite")) == {b"a": (DIRECTORY, target)}
    for below in (b"a/u", b"a/s/t/u"):
        found = plan(wanted, {below: f(9)}, "overwrite")

        assert found.changes == []
        assert "which must stay" in reasons(found)["a"]


def test_a_chain_of_things_in_each_others_way_is_kept() -> None:
    """The edit a/b/x stays, so a/b cannot become a file, nor can a, which c would need."""
    wanted = [
        want(b"a", f(0), DIRECTORY),
        want(b"a/b", None, DIRECTORY),
        want(b"a/b/x", None, f(1)),
        want(b"a/y", None, f(1)),
        want(b"c", None, f(1)),
    ]
    found = plan(wanted, {b"a/b/x": f(9), b"a/y": f(1), b"c": f(1)}, "keep")

    assert found.kept == [b"a", b"a/b/x"]
    # The directory a/b should be removed, but stays.
    assert changes(found) == {b"a/b": (DIRECTORY, None), b"a/y": (f(1), None), b"c": (f(1), None)}


def test_file_and_directory_change_places() -> None:
    wanted = [
        want(b"a", DIRECTORY, f(1)),
        want(b"a/x", f(0), None),
        want(b"b", f(0), DIRECTORY),
        want(b"b/x", None, f(1)),
    ]

    assert changes(plan(wanted, {b"a": f(1), b"b/x": f(1)})) == {
        b"a": (f(1), DIRECTORY),
        b"a/x": (None, f(0)),
        b"b": (DIRECTORY, f(0)),
        b"b/x": (f(1), None),
    }


def test_what_comes_out_is_sorted() -> None:
    wanted = [want(path, None, f(1)) for path in (b"z", b"a", b"m")]
    edited = [want(path, None, f(2)) for path in (b"y", b"b")]
    present = {path: f(1) for path in (b"z", b"a", b"m", b"y", b"b")}

    assert [change.path for change in plan(wanted, present).changes] == [b"a", b"m", b"z"]
    assert list(reasons(plan(edited, present))) == ["b", "y"]
    assert plan(edited, present, "keep").kept == [b"b", b"y"]


# The order of moves


def order(*changed: tuple[bytes, State, State]) -> list[Move]:
    return order_moves([Change(RelPath(path), old, new) for path, old, new in changed], "t")


def test_first_goes_what_goes_then_directories_from_below_then_comes_what_comes() -> None:
    moves = order(
        (b"a", DIRECTORY, f(0)),
        (b"a/s", DIRECTORY, None),
        (b"a/s/x", f(1), None),
        (b"b", f(1), DIRECTORY),
        (b"b/c", None, DIRECTORY),
        (b"b/c/x", None, f(0)),
        (b"z", f(1), f(0)),
    )

    assert [move.path for move in moves] == [b"a/s/x", b"a/s", b"a", b"b", b"b/c", b"b/c/x", b"z"]


@pytest.mark.parametrize(
    ("changed", "homes"),
    [
        ([(b"x", f(1), f(0))], [b""]),
        ([(b"s/x", f(1), f(0))], [b"s"]),
        ([(b"s/x", f(1), None)], [b"s"]),
        ([(b"s", None, DIRECTORY), (b"s/t", None, DIRECTORY), (b"s/t/x", None, f(0))], [b"", b"", b""]),
        ([(b"r/s", f(1), DIRECTORY), (b"r/s/x", None, f(0))], [b"r", b"r"]),
        ([(b"s/x", f(1), None), (b"s", DIRECTORY, f(0))], [b"s", b""]),
    ],
    ids=[
        "at the root",
        "in its own directory",
        "going",
        "below directories to come",
        "in place of a file",
        "in one that goes",
    ],
)
def test_a_temporary_is_in_the_nearest_directory_that_is_there_and_stays(
    changed: list[tuple[bytes, State, State]], homes: list[bytes]
) -> None:
    moves = order(*changed)

    assert [parent_of(move.temporary) for move in moves] == homes


def test_temporaries_have_names_of_their_own() -> None:
    moves = order(*[(b"s/%d" % number, None, f(0)) for number in range(30)])
    names = {move.temporary for move in moves}

    assert len(names) == 30
    assert all(name.startswith(b"s/" + TEMPORARY_PREFIX) for name in names)


@pytest.mark.parametrize(
    ("old", "new", "is_mode_only"),
    [
        (f(1), f(1, 0o600), True),
        (f(1), f(2), False),
        (None, f(1), False),
        (f(1), None, False),
        (ln(1), PathState(stat.S_IFREG | 0o644, ln(1).blob), False),
        (DIRECTORY, f(1), False),
    ],
)
def test_bits_alone_are_changed_in_place(old: State, new: State, is_mode_only: bool) -> None:
    (move,) = order((b"x", old, new))

    assert move.is_mode_only is is_mode_only


# From any tree to any other, with a model that refuses what a file system refuses


class Impossible(Exception):
    """A file system would refuse this."""


class Model:
    """The entry at each path, with moves done as `carry_out` does them."""

    def __init__(self, paths: Mapping[RelPath, PathState | Unknown]) -> None:
        self.paths = dict(paths)

    def run(self, moves: list[Move]) -> None:
        for move in moves:
            if move.new is not None:
                self._require_directory(parent_of(move.temporary))
        for move in moves:
            self._do(move)

    def _do(self, move: Move) -> None:
        self._require_directory(parent_of(move.path))
        self._require_directory(parent_of(move.temporary))
        if self.paths.get(move.path) != move.old:
            raise Impossible(f"{move.path!r} is not what it was")
        is_full = any(path.startswith(move.path + b"/") for path in self.paths)
        if move.old == DIRECTORY and is_full:
            if move.new is None:
                return
            raise Impossible(f"{move.path!r} is not empty")
        if move.new is None:
            del self.paths[move.path]
        else:
            self.paths[move.path] = move.new

    def _require_directory(self, path: RelPath) -> None:
        if path != ROOT and self.paths.get(path) != DIRECTORY:
            raise Impossible(f"{path!r} is not a directory")


_names = st.sampled_from([b"a", b"b"])
_paths = st.lists(_names, min_size=1, max_size=3).map(lambda names: RelPath(b"/".join(names)))
_states = st.sampled_from([f(0), f(1), f(1, 0o600), ln(1), DIRECTORY])


@st.composite
def trees(draw: st.DrawFn) -> dict[RelPath, PathState]:
    """Return any tree: nothing is below a file or a link, and everything above an entry is a directory."""
    found: dict[RelPath, PathState] = {}
    for path, state in draw(st.dictionaries(_paths, _states, max_size=6)).items():
        above = list(ancestors(path))
        is_in_file = any(found.get(each, DIRECTORY) != DIRECTORY for each in above)
        is_full = state != DIRECTORY and any(each.startswith(path + b"/") for each in found)
        if not is_in_file and not is_full:
            found.update(dict.fromkeys(above, DIRECTORY))
            found[path] = state
    return found


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[RelPath, PathState | Unknown], list[Wanted]]:
    """Return a present tree with somebody else's changes, and the wanted states of another tree."""
    target: Mapping[RelPath, PathState] = draw(trees())
    recorded: Mapping[RelPath, PathState] = draw(trees())
    present: dict[RelPath, PathState | Unknown] = dict(draw(st.sampled_from([recorded, target])))
    if draw(st.booleans()):
        present = dict(draw(trees()))
    if draw(st.integers(0, 4)) == 0:
        leaves = [path for path in present if not any(each.startswith(path + b"/") for each in present)]
        present.update((path, PIPE) for path in leaves[:1])
    wanted = []
    for path in sorted({*recorded, *target}):
        if recorded.get(path) != target.get(path) and draw(st.integers(0, 5)):
            state: Answer = target.get(path) if draw(st.integers(0, 9)) else Unknown("not recorded before")
            wanted.append(Wanted(path, state, recorded.get(path)))
    return present, wanted


@settings(max_examples=200, deadline=None)
@given(cases(), st.sampled_from(MODES))
def test_every_plan_without_conflicts_can_be_done_and_touches_what_was_wished_alone(
    case: tuple[dict[RelPath, PathState | Unknown], list[Wanted]], on_conflict: OnConflict
) -> None:
    present, wanted = case
    found = make_plan(wanted, Disk(present), NoMerger(), Options(on_conflict))
    if found.conflicts:
        assert on_conflict != "keep"
        return
    model = Model(present)
    model.run(order_moves(found.changes, "t"))

    by_path = {want.path: want for want in wanted if not isinstance(want.target, Unknown)}
    for path in {*present, *model.paths, *by_path}:
        after = model.paths.get(path)
        is_needed = after == DIRECTORY and any(each.startswith(path + b"/") for each in model.paths)
        if path in found.kept:
            assert after == present.get(path)
        elif path not in by_path:
            assert after == present.get(path) or is_needed
        else:
            # A directory to remove may have to hold something.
            assert after == by_path[path].target or (by_path[path].target is None and is_needed)


@settings(max_examples=150, deadline=None)
@given(trees(), trees())
def test_from_any_tree_to_any_other_nothing_stands_in_the_way(
    present: dict[RelPath, PathState], target: dict[RelPath, PathState]
) -> None:
    """If the present state is the expected one, there is never a conflict."""
    wanted = [
        Wanted(path, target.get(path), present.get(path))
        for path in sorted({*present, *target})
        if present.get(path) != target.get(path)
    ]
    found = make_plan(wanted, Disk(present), NoMerger(), Options())
    model = Model(present)
    model.run(order_moves(found.changes, "t"))

    assert (found.conflicts, found.kept, found.skipped) == ([], [], [])
    assert {change.path for change in found.changes} == {want.path for want in wanted}
    assert model.paths == target
