"""What each path should become, according to the timeline."""

from __future__ import annotations

import stat
from collections.abc import Callable

import pytest

from shadowtree.base.frozen import replace
from shadowtree.base.paths import DIRECTORY, Change, PathState, RelPath, Unknown
from shadowtree.revert.wanted import (
    Edit,
    EventChanges,
    OtherChange,
    Past,
    Wanted,
    join_wanted,
    narrow,
    want_across,
    want_back,
    want_forward,
    want_states,
    want_tree,
)

State = PathState | Unknown | None

P = RelPath(b"p")
RUNNABLE = PathState(stat.S_IFREG | 0o755, bytes([1]) * 20)
LARGE = Unknown("it is too large")
IGNORED = Unknown("an ignore rule excluded it")


def v(number: int) -> PathState:
    """Return a version of a file."""
    return PathState(stat.S_IFREG | 0o644, bytes([number]) * 20)


def happen(number: int, *changes: tuple[bytes, State, State], act: str = "") -> EventChanges:
    label = f"the last {act}" if act else f"message 'm{number}'"
    return EventChanges(
        number, label, [Change(RelPath(path), old, new) for path, old, new in changes], is_act=bool(act)
    )


def story_of(*links: tuple[State, State]) -> list[EventChanges]:
    """Return what messages 1, 2, 3 … did to one path."""
    return [happen(number, (P, old, new)) for number, (old, new) in enumerate(links, start=1)]


def _foreign(others: dict[RelPath, str] | None) -> dict[RelPath, OtherChange]:
    return {path: OtherChange(reason) for path, reason in (others or {}).items()}


def back(story: list[EventChanges], *over: int, others: dict[RelPath, str] | None = None) -> Wanted:
    (want,) = want_back(over or [each.number for each in story], Past(story, _foreign(others)))
    return want


def forward(story: list[EventChanges], *over: int, others: dict[RelPath, str] | None = None) -> Wanted:
    (want,) = want_forward(over or [each.number for each in story], Past(story, _foreign(others)))
    return want


# The example of the module: m1: v0→v1, m2: v1→v2, undo m2: v2→v1, m3: v1→v3

EXAMPLE = [
    happen(1, (P, v(0), v(1))),
    happen(2, (P, v(1), v(2))),
    happen(3, (P, v(2), v(1)), act="undo"),
    happen(4, (P, v(1), v(3))),
]


def test_the_example_goes_back_to_before_the_first_message() -> None:
    assert back(EXAMPLE, 1, 4) == Wanted(P, v(0), v(3), None, "message 'm4'", edits=[Edit(v(3), v(0))])


def test_the_example_goes_back_by_its_last_message_alone() -> None:
    assert back(EXAMPLE[3:], 4) == Wanted(P, v(1), v(3), None, "message 'm4'", edits=[Edit(v(3), v(1))])


# Back


@pytest.mark.parametrize(
    ("links", "target", "expected"),
    [
        ([(None, v(1))], None, v(1)),
        ([(v(0), None)], v(0), None),
        ([(v(0), v(1)), (v(1), None), (None, v(2))], v(0), v(2)),
        ([(None, v(1)), (v(1), None)], None, None),
        ([(v(0), DIRECTORY)], v(0), DIRECTORY),
    ],
    ids=["made", "deleted", "edited, deleted, made again", "made and deleted", "became a directory"],
)
def test_the_earliest_before_wins_and_the_latest_after_is_expected(
    links: list[tuple[State, State]], target: State, expected: State
) -> None:
    want = back(story_of(*links))

    assert (want.target, want.expected, want.trouble, want.doubt) == (target, expected, None, None)
    assert want.last == f"message 'm{len(links)}'"


def test_every_path_has_its_own_story_and_they_are_sorted() -> None:
    story = [
        happen(1, (b"z", None, v(1)), (b"a", v(0), v(1))),
        happen(2, (b"b", v(5), None), (b"z", v(1), v(2))),
    ]

    wanted = want_back({1, 2}, Past(story, {}))

    assert [(want.path, want.target, want.expected) for want in wanted] == [
        (b"a", v(0), v(1)),
        (b"b", v(5), None),
        (b"z", None, v(2)),
    ]


def test_paths_that_only_acts_touched_are_not_wished_for() -> None:
    story = [happen(1, (b"act", v(0), v(1)), act="restore"), happen(2, (b"own", v(0), v(1)))]

    assert [want.path for want in want_back({2}, Past(story, {}))] == [b"own"]


def test_what_came_before_the_first_message_to_undo_is_not_looked_at() -> None:
    """An earlier act does not show whether the path was edited since."""
    story = [happen(1, (P, v(8), v(9)), act="undo"), happen(2, (P, v(0), v(1)))]

    assert back(story, 2) == Wanted(P, v(0), v(1), None, "message 'm2'", edits=[Edit(v(1), v(0))])


def test_acts_in_between_are_links_of_the_chain() -> None:
    story = [
        happen(1, (P, v(0), v(1))),
        happen(2, (P, v(1), v(0)), act="undo"),
        happen(3, (P, v(0), v(1)), act="redo"),
        happen(4, (P, v(1), v(7)), act="restore"),
    ]

    assert back(story, 1) == Wanted(P, v(0), v(7), None, "the last restore", edits=[Edit(v(1), v(0))])


def test_a_link_that_does_not_fit_is_an_edit_of_somebody_else() -> None:
    want = back(story_of((v(0), v(1)), (v(2), v(3))))

    assert want.trouble == "it was edited between message 'm1' and message 'm2'"
    assert (want.target, want.expected) == (v(0), v(3))


def test_bits_alone_are_an_edit_too() -> None:
    assert back(story_of((v(0), v(1)), (RUNNABLE, v(3)))).trouble is not None


def test_the_first_edit_is_the_one_that_is_told() -> None:
    want = back(story_of((v(0), v(1)), (v(1), v(2)), (v(3), v(4)), (v(5), v(6))))

    assert want.trouble == "it was edited between message 'm2' and message 'm3'"
    assert want.last == "message 'm4'"


def test_an_edit_that_an_act_replaced_is_told_only_if_it_came_back() -> None:
    story = [
        happen(1, (P, v(0), v(1))),
        happen(2, (P, v(5), v(0)), act="undo"),
        happen(3, (P, v(0), v(5)), act="unrevert"),
    ]

    assert back(story[:2], 1).trouble is None
    assert back(story, 1).trouble == "it was edited between message 'm1' and the last undo"


def test_an_edit_that_an_act_found_as_wished_is_agreed_upon() -> None:
    story = [happen(1, (P, v(0), v(1))), happen(2, (P, v(5), v(5)), act="restore")]

    assert back(story, 1) == Wanted(P, v(0), v(5), None, "the last restore", edits=[Edit(v(1), v(0))])


def test_another_session_is_told_before_an_edit() -> None:
    others = {P: "message 'x' of session 'y' changed it", RelPath(b"q"): "not this one"}

    assert back(story_of((v(0), v(1)), (v(2), v(3))), others=others).trouble == others[P]
    assert back(story_of((v(0), v(1))), others={RelPath(b"q"): "not this one"}).trouble is None


# Unknown sides


def test_a_path_that_was_unknown_before_has_no_target() -> None:
    want = back(story_of((LARGE, v(1)), (v(1), v(2))))

    assert want.target == Unknown("not recorded before: it is too large")
    assert want.expected == v(2)


def test_a_path_that_is_unknown_after_all_of_them_is_in_doubt() -> None:
    want = back(story_of((v(0), LARGE)))

    assert (want.target, want.expected) == (v(0), LARGE)
    assert want.doubt == "not recorded after: it is too large"


def test_what_was_known_last_is_expected_where_the_end_is_unknown() -> None:
    want = back(story_of((v(0), v(1)), (v(1), IGNORED)))

    assert (want.target, want.expected, want.trouble, want.doubt) == (v(0), v(1), None, None)


def test_what_nobody_knew_after_the_first_message_is_in_doubt_even_if_it_is_known_again() -> None:
    """The first message's patch does not have it, so it is not undone."""
    assert back(story_of((v(0), LARGE), (LARGE, v(2)))).doubt == "not recorded after: it is too large"
    assert back(story_of((v(0), LARGE), (LARGE, IGNORED))).doubt == "not recorded after: it is too large"


def test_nobody_is_said_to_have_edited_what_was_in_doubt_before() -> None:
    assert back(story_of((v(0), LARGE), (v(5), v(6)))).trouble is None


@pytest.mark.parametrize(
    ("links", "between"),
    [
        ([(v(0), v(1)), (LARGE, v(6))], "message 'm1' and message 'm2'"),
        ([(v(0), v(1)), (v(1), LARGE), (LARGE, v(3))], "message 'm2' and message 'm3'"),
    ],
    ids=["unknown before the second", "unknown in between"],
)
def test_what_changed_while_nobody_knew_it_may_be_somebody_s(
    links: list[tuple[State, State]], between: str
) -> None:
    assert back(story_of(*links)).trouble == f"it was not recorded between {between}"


def test_an_edit_around_an_unknown_stretch_is_noticed() -> None:
    """The last known state counts while the path is unknown."""
    links: list[tuple[State, State]] = [(v(0), v(1)), (v(1), LARGE), (v(4), v(5))]

    assert back(story_of(*links)).trouble == "it was edited between message 'm2' and message 'm3'"


# Forward

UNDONE = [
    happen(1, (P, v(0), v(1))),
    happen(2, (P, v(1), v(2))),
    happen(3, (P, v(2), v(0)), act="undo"),
]


@pytest.mark.parametrize(
    ("over", "target"), [((1,), v(1)), ((1, 2), v(2)), ((2,), v(2))], ids=["one", "both", "the second"]
)
def test_going_forward_wants_what_the_last_of_them_made(over: tuple[int, ...], target: PathState) -> None:
    edits = [Edit(v(1) if over == (2,) else v(0), target)]

    assert forward(UNDONE, *over) == Wanted(P, target, v(0), None, "the last undo", edits=edits)


def test_going_forward_after_an_edit_that_was_overwritten_is_no_trouble() -> None:
    """The undo overwrote the edit, and the state that it left counts."""
    story = [happen(1, (P, v(0), v(1))), happen(2, (P, v(9), v(0)), act="undo")]

    assert forward(story, 1) == Wanted(P, v(1), v(0), None, "the last undo", edits=[Edit(v(0), v(1))])


def test_going_forward_deletes_again() -> None:
    story = [happen(1, (P, v(0), None)), happen(2, (P, None, v(0)), act="undo")]

    assert forward(story, 1) == Wanted(P, None, v(0), None, "the last undo", edits=[Edit(v(0), None)])


def test_going_forward_over_nothing_that_was_recorded_to_be_undone_expects_its_own_state() -> None:
    """A path that the undo left unchanged has no change in the undo's record."""
    story = [happen(1, (P, v(0), v(1)))]

    assert forward(story, 1) == Wanted(P, v(1), v(1), None, "message 'm1'", edits=[Edit(v(0), v(1))])


def test_going_forward_names_what_another_session_did() -> None:
    assert (
        forward(UNDONE, 1, others={P: "it was changed by somebody"}).trouble == "it was changed by somebody"
    )


def test_going_forward_leaves_the_paths_of_later_messages_alone() -> None:
    story = [
        happen(1, (b"a", None, v(1))),
        happen(2, (b"b", None, v(2)), (b"a", v(1), v(3))),
        happen(3, (b"a", v(3), None), (b"b", v(2), None), act="undo"),
    ]

    wanted = want_forward({1}, Past(story, {}))

    edits = [Edit(None, v(1))]
    assert wanted == [Wanted(RelPath(b"a"), v(1), None, None, "the last undo", edits=edits)]


def test_going_forward_to_what_is_unknown_has_no_target() -> None:
    story = [happen(1, (P, v(0), LARGE)), happen(2, (P, v(0), v(0)), act="undo")]

    assert forward(story, 1).target == Unknown("not recorded after: it is too large")


def test_wishes_forward_are_sorted() -> None:
    story = [happen(1, (b"b", None, v(1)), (b"a/x", None, v(1)), (b"a", None, DIRECTORY))]

    assert [want.path for want in want_forward({1}, Past(story, {}))] == [b"a", b"a/x", b"b"]


# The joined changes of messages

EDITS: dict[str, tuple[list[tuple[State, State]], list[tuple[State, State]]]] = {
    "one": ([(v(0), v(1))], [(v(0), v(1))]),
    "two in a row": ([(v(0), v(1)), (v(1), v(2))], [(v(0), v(2))]),
    "made and deleted": ([(None, v(1)), (v(1), None)], []),
    "deleted and made": ([(v(0), None), (None, v(2))], [(v(0), v(2))]),
    "there and back": ([(v(0), v(1)), (v(1), v(0))], []),
    "there and back, and on": ([(v(0), v(1)), (v(1), v(0)), (v(0), v(2))], [(v(0), v(2))]),
    "around a detour": ([(v(0), v(1)), (v(1), v(2)), (v(2), v(1)), (v(1), v(3))], [(v(0), v(3))]),
    "an edit in between": ([(v(0), v(1)), (v(2), v(3))], [(v(0), v(1)), (v(2), v(3))]),
    "an edit, then two in a row": (
        [(v(0), v(1)), (v(2), v(3)), (v(3), v(4))],
        [(v(0), v(1)), (v(2), v(4))],
    ),
    "an edit of bits": ([(v(0), v(1)), (RUNNABLE, v(3))], [(v(0), v(1)), (RUNNABLE, v(3))]),
    "an edit that was deleted": ([(v(0), v(1)), (None, v(3))], [(v(0), v(1)), (None, v(3))]),
    "unknown in between": ([(v(0), LARGE), (LARGE, v(1))], [(v(0), LARGE), (LARGE, v(1))]),
}


@pytest.mark.parametrize(("links", "edits"), EDITS.values(), ids=EDITS)
def test_changes_that_follow_each_other_are_one_edit(
    links: list[tuple[State, State]], edits: list[tuple[State, State]]
) -> None:
    story = story_of(*links)

    assert forward(story).edits == [Edit(old, new) for old, new in edits]
    assert back(story).edits == [Edit(new, old) for old, new in reversed(edits)]


def test_what_others_than_the_messages_did_is_no_edit_of_the_way() -> None:
    """The changes of an act, and of a message that stays, are merged with the edits."""
    story = [
        happen(1, (P, v(0), v(1))),
        happen(2, (P, v(1), v(7)), act="restore"),
        happen(3, (P, v(7), v(8))),
        happen(4, (P, v(8), v(9))),
    ]

    assert back(story, 1, 4).edits == [Edit(v(9), v(8)), Edit(v(1), v(0))]
    assert forward(story, 1, 4).edits == [Edit(v(0), v(1)), Edit(v(8), v(9))]


@pytest.mark.parametrize("want", [want_back, want_forward])
def test_only_the_paths_that_are_said_to_be_are_merged_in_any_case(want: Callable[..., list[Wanted]]) -> None:
    story = [happen(1, (b"a", v(0), v(1)), (b"b", v(0), v(1)))]
    found = want({1}, Past(story, {}), {RelPath(b"b"), RelPath(b"c")})

    assert [each.is_merged for each in found] == [False, True]
    assert [each.is_merged for each in want({1}, Past(story, {}))] == [False, False]


# After an act that merged: somebody's edit is still there


def merge_into(number: int, old: State, new: State, act: str = "undo") -> EventChanges:
    return EventChanges(number, f"the last {act}", [Change(P, old, new, is_merged=True)], is_act=True)


EDITED = [
    happen(1, (P, v(0), v(1))),
    happen(2, (P, v(1), v(2))),
    merge_into(3, v(5), v(6)),
]
"""Somebody changed v2 to v5, and the undo of the second message made v6 of that."""
REASON = "it was edited between message 'm2' and the last undo"


def test_going_further_back_than_an_act_that_merged_meets_the_edit() -> None:
    assert back(EDITED, 1) == Wanted(P, v(0), v(6), REASON, "the last undo", edits=[Edit(v(1), v(0))])


def test_going_forward_again_after_an_act_that_merged_meets_the_edit() -> None:
    assert forward(EDITED, 2) == Wanted(P, v(2), v(6), REASON, "the last undo", edits=[Edit(v(1), v(2))])


def test_an_edit_that_was_edited_back_is_met_only_on_the_way_forward() -> None:
    """It ends in v1, the state before the message: the edit is not in it, and it was not in v2 either."""
    edited_back = [*EDITED[:2], merge_into(3, v(5), v(1))]

    assert back(edited_back, 1).trouble is None
    assert forward(edited_back, 2).trouble == REASON


def test_the_edit_is_met_by_an_act_that_did_not_merge_only_before_it() -> None:
    overwriting = happen(3, (P, v(5), v(1)), act="undo")

    assert back([*EDITED[:2], overwriting], 1).trouble is None
    assert forward([*EDITED[:2], overwriting], 2).trouble is None


@pytest.mark.parametrize(
    ("later", "is_met"),
    [
        ([merge_into(4, v(6), v(7))], True),
        ([merge_into(4, v(6), v(7)), merge_into(5, v(7), v(8))], True),
        ([happen(4, (P, v(6), v(0)), act="restore")], False),
        ([happen(4, (P, v(6), v(0)), act="restore"), happen(5, (P, v(0), v(6)), act="unrevert")], True),
        ([happen(4, (P, v(6), v(6)), act="undo")], True),
        ([happen(4, (P, v(6), v(5)), act="unrevert")], True),
        ([happen(4, (P, v(6), v(9)))], True),
    ],
    ids=[
        "merged once more",
        "merged twice more",
        "overwritten",
        "overwritten and brought back",
        "found as wanted",
        "as before the merge",
        "changed by a message",
    ],
)
def test_an_edit_stays_in_the_story_until_it_is_overwritten(later: list[EventChanges], is_met: bool) -> None:
    assert (back([*EDITED, *later], 1).trouble == REASON) is is_met


def test_a_merge_without_any_edit_meets_nobody() -> None:
    """As when a message was reverted alone from under a later one."""
    story = [*EDITED[:2], merge_into(3, v(2), v(6), act="revert")]

    assert back(story, 1, 2).trouble is None
    assert forward(story, 2).trouble is None


# Back first, and then forward


def across(back: list[Wanted], forward: list[Wanted]) -> dict[bytes, Wanted]:
    found = want_across(back, forward)
    assert [want.path for want in found] == sorted(want.path for want in found)
    return {want.path: want for want in found}


def way(path: bytes, old: State, new: State, expected: State, trouble: str | None = None) -> Wanted:
    """Return a wanted path that goes from one state to another on the way."""
    own = RelPath(path)
    return Wanted(own, new, expected, trouble, "m", edits=[Edit(old, new)] if old != new else [])


def test_a_path_of_one_way_is_wished_as_that_way_has_it() -> None:
    only_back, only_forward = way(b"b", v(1), v(0), v(1)), way(b"a", v(0), v(2), v(0))

    assert want_across([only_back], [only_forward]) == [only_forward, only_back]


def test_a_path_of_both_ways_goes_from_one_end_to_the_other() -> None:
    found = across([way(b"p", v(1), v(0), v(1))], [way(b"p", v(0), v(2), v(1))])

    assert found == {b"p": way(b"p", v(1), v(2), v(1))}


def test_a_path_that_is_the_same_at_both_ends_is_left_alone_whatever_somebody_made_of_it() -> None:
    to_fork = way(b"p", v(1), v(0), v(1), trouble="edited")

    assert across([to_fork], [way(b"p", v(0), v(1), v(1), trouble="edited")]) == {}


def test_a_path_that_a_way_left_as_it_was_is_left_alone() -> None:
    """The file was created and deleted again."""
    assert across([way(b"p", None, None, None)], [way(b"q", None, None, None)]) == {}


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [("a", None, "a"), (None, "b", "b"), ("a", "b", "a"), (None, None, None)],
)
def test_trouble_on_either_way_is_trouble(one: str | None, other: str | None, told: str | None) -> None:
    to_fork = replace(way(b"p", v(1), v(0), v(1)), trouble=one)
    from_fork = replace(way(b"p", v(0), v(2), v(1)), trouble=other)

    assert across([to_fork], [from_fork])[b"p"].trouble == told


def test_edits_that_do_not_follow_each_other_stay_apart() -> None:
    """Somebody edited the path before the branch was made."""
    found = across([way(b"p", v(1), v(0), v(1))], [way(b"p", v(5), v(6), v(1))])

    assert found[b"p"].edits == [Edit(v(1), v(0)), Edit(v(5), v(6))]


def test_a_path_that_is_merged_stays_so() -> None:
    to_fork = replace(way(b"p", v(1), v(0), v(1)), is_merged=True)
    from_fork = replace(way(b"p", v(0), v(2), v(1)), is_merged=True)

    assert across([to_fork], [from_fork])[b"p"].is_merged


def test_across_a_story_of_two_lines() -> None:
    """m1, then m2, undone, then m3: the way from m3 to m2; both changed one of the paths."""
    story = [
        happen(1, (b"a", None, v(1))),
        happen(2, (b"a", v(1), v(2)), (b"b", None, v(2)), (b"same", v(0), v(9))),
        happen(3, (b"a", v(2), v(1)), (b"b", v(2), None), (b"same", v(9), v(0)), act="undo"),
        happen(4, (b"a", v(1), v(4)), (b"c", None, v(4)), (b"same", v(0), v(9))),
    ]

    found = across(want_back({4}, Past(story, {})), want_forward({2}, Past(story, {})))

    assert {path: (want.expected, want.target, want.trouble) for path, want in found.items()} == {
        b"a": (v(4), v(2), None),
        b"b": (None, v(2), None),
        b"c": (v(4), None, None),
    }
    assert [(each.old, each.new) for each in found[b"a"].edits] == [(v(4), v(2))]


# States from recorded trees


def test_a_path_is_wished_to_be_as_it_was_in_a_tree() -> None:
    wanted = [way(b"a", v(0), v(1), v(0)), way(b"b", v(0), v(1), v(5), trouble="edited")]

    found = want_states({RelPath(b"b"): v(3)}, wanted)

    assert found == [wanted[0], replace(wanted[1], target=v(3))]


def test_what_was_edited_is_merged_by_what_the_messages_did_and_not_by_how_the_tree_differs() -> None:
    """The expected state may contain the edit, which a difference of trees would remove."""
    (found,) = want_states({P: v(3)}, [way(b"p", v(0), v(1), v(5))])

    assert [(each.old, each.new) for each in found.edits] == [(v(0), v(1))]


def test_of_two_wishes_for_a_path_the_later_counts_and_they_are_sorted() -> None:
    one, other, third = way(b"z", v(0), v(1), v(0)), way(b"z", v(4), v(2), v(4)), way(b"a", v(0), v(1), v(0))

    found = join_wanted([one, third], [other])

    assert [want.path for want in found] == [b"a", b"z"]
    assert (found[1].target, found[1].expected) == (v(2), v(4))
    assert [(each.old, each.new) for each in found[1].edits] == [(v(0), v(1)), (v(4), v(2))]


def test_a_path_that_is_as_in_the_tree_already_is_left_alone() -> None:
    assert want_states({P: v(5)}, [way(b"p", v(0), v(1), v(5))]) == []
    assert want_states({P: None}, [way(b"p", v(0), v(1), None)]) == []


def test_a_path_that_nobody_wishes_anything_for_is_left_alone() -> None:
    assert want_states({P: v(5)}, []) == []


def test_a_path_that_the_tree_does_not_know_has_no_target() -> None:
    (found,) = want_states({P: LARGE}, [way(b"p", v(0), v(1), v(0))])

    assert found.target == Unknown("not recorded in the tree: it is too large")


# Nothing, trees, parts


@pytest.mark.parametrize("want", [want_back, want_forward])
def test_over_nothing_nothing_is_wished(want: Callable[..., list[Wanted]]) -> None:
    assert want((), Past(EXAMPLE, {})) == []
    assert want({1}, Past([], {})) == []


def test_a_tree_is_wished_for_and_what_is_there_expected() -> None:
    changes = [
        Change(RelPath(b"a"), v(1), v(0)),
        Change(RelPath(b"b"), v(1), None),
        Change(RelPath(b"c"), v(1), LARGE),
        Change(RelPath(b"d"), IGNORED, v(2)),
    ]

    assert want_tree(changes) == [
        Wanted(RelPath(b"a"), v(0), v(1)),
        Wanted(RelPath(b"b"), None, v(1)),
        Wanted(RelPath(b"c"), Unknown("not recorded in the tree: it is too large"), v(1)),
        Wanted(RelPath(b"d"), v(2), IGNORED),
    ]


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ([b"s"], [b"s", b"s/a", b"s/t/b"]),
        ([b"s/t"], [b"s/t/b"]),
        ([b"s/a", b"z"], [b"s/a", b"z"]),
        ([b"s-more"], [b"s-more"]),
        ([b"nobody"], []),
        ([b""], [b"s", b"s-more", b"s/a", b"s/t/b", b"z"]),
        ([], []),
    ],
    ids=["a directory", "a deep one", "files", "a similar name", "nothing there", "the root", "no path"],
)
def test_narrowing_leaves_the_paths_and_what_is_below_them(paths: list[bytes], found: list[bytes]) -> None:
    wanted = [Wanted(RelPath(path), None, v(1)) for path in (b"s", b"s-more", b"s/a", b"s/t/b", b"z")]

    narrowed = narrow(wanted, [RelPath(path) for path in paths])

    assert [want.path for want in narrowed] == found
