"""The choices of retention: tables of small stores, and rules that hold for any store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowtree.base.frozen import replace
from shadowtree.retention.policy import (
    Choice,
    Keep,
    Remaining,
    choose,
    choose_up_to,
    find_protected,
    find_turns,
    rank_trees,
)
from shadowtree.timeline.sqlite.removal import Act, Age, Named

NOW_MS = 1_000_000
"""Messages are one second apart, and the last one has just begun."""


def make(words: str) -> Remaining:
    """Make a store from words: `a1` is a message of session a; `a1p` pinned, `a1o` open, `a1u` not in force.

    `a1x` belongs to the turn before it, and `a!` is an act.
    """
    messages, acts, open_, in_force = [], [], set(), set()
    tokens = words.split()
    for place, token in enumerate(tokens):
        session, event = ord(token[0]) - ord("a") + 1, place + 1
        time_ms = NOW_MS - 1000 * (len(tokens) - event)
        if token[1] == "!":
            acts.append(Act(event, session, time_ms))
            continue
        number, marks = int(token[1]), token[2:]
        role = "assistant" if "x" in marks else None
        messages.append(Age(number, session, role, event, time_ms, "p" in marks))
        open_ |= {number} if "o" in marks else set()
        in_force |= set() if "u" in marks else {number}
    return Remaining(messages, acts, [], frozenset(open_), frozenset(in_force))


@pytest.mark.parametrize(
    ("store", "keep", "gone"),
    [
        pytest.param("a1 a2 a3 a4", Keep(last=2), [1, 2], id="by number"),
        pytest.param("a1 a2 a3 a4", Keep(last=9), [], id="fewer than that"),
        pytest.param("a1 a2 a3 a4", Keep(within_ms=2000), [1], id="by age"),
        pytest.param("a1 a2 a3 a4", Keep(last=1, within_ms=2000), [1], id="whichever is more, age"),
        pytest.param("a1 a2 a3 a4", Keep(last=3, within_ms=1000), [1], id="whichever is more, number"),
        pytest.param("a1 b2 a3 b4 a5", Keep(last=1), [1, 2, 3], id="of each session"),
        pytest.param("a1 b2 a3 b4 a5", Keep(last=1, sessions=frozenset({2})), [1, 3], id="a session whole"),
        pytest.param("a1p a2 a3 a4", Keep(last=1), [2, 3], id="pinned"),
        pytest.param("a1o b2 b3 b4", Keep(last=1), [2, 3], id="newest of each"),
        pytest.param("a1o a2 a3", Keep(), [2], id="open"),
        pytest.param("a1 a2 a3 a4", Keep(turns=2), [1, 2], id="the newest turns"),
        pytest.param("a1 a2x a3x a4 a5x", Keep(turns=1), [1, 2, 3], id="a turn of several"),
        pytest.param("a1 b2 a3x b4x", Keep(turns=1), [1, 3], id="a turn between others"),
        pytest.param("a1 a2 a3u a4u", Keep(turns=1), [1, 3], id="the newest that is in force"),
        pytest.param("a1 a2 a3", Keep(), [1, 2], id="never all"),
        pytest.param("", Keep(), [], id="nothing there"),
    ],
)
def test_messages(store: str, keep: Keep, gone: list[int]) -> None:
    assert choose(make(store), keep, NOW_MS).messages == gone


@pytest.mark.parametrize(
    ("store", "keep", "gone"),
    [
        pytest.param("a1 a! a2 a3 a!", Keep(last=1), [2], id="before a message that goes"),
        pytest.param("a! a! a! a!", Keep(last=2), [1, 2], id="by number"),
        pytest.param("a! a! a! a!", Keep(within_ms=2000), [1], id="by age"),
        pytest.param("a! a! a1 a! b2", Keep(last=3), [], id="since the newest turn"),
        pytest.param("a! a! a! b1", Keep(sessions=frozenset({1})), [], id="a session whole"),
        pytest.param("a1p a! a2 a3", Keep(last=1), [2], id="after a pinned message"),
        pytest.param("a1 b! a2", Keep(last=1), [], id="of another session"),
    ],
)
def test_acts(store: str, keep: Keep, gone: list[int]) -> None:
    assert choose(make(store), keep, NOW_MS).acts == gone


def test_bare_trees_go_by_the_same_rule() -> None:
    remaining = replace(make("a1"), bare=[(1, 990), (2, 995), (3, 998), (4, 1000)])

    assert choose(remaining, Keep(last=2), NOW_MS).bare == [1, 2]
    assert choose(remaining, Keep(within_ms=4000), NOW_MS).bare == [1, 2]
    assert choose(remaining, Keep(turns=3), NOW_MS).bare == [1]


def test_a_message_that_is_out_of_a_line_stays_while_others_hold_what_it_did() -> None:
    remaining = replace(make("a1 a2 a3 a4"), out={1: 3})

    assert choose(remaining, Keep(last=2), NOW_MS).messages == [2]
    assert choose(remaining, Keep(last=1), NOW_MS).messages == [1, 2, 3]


def test_turns_are_counted_session_by_session() -> None:
    assert find_turns(make("a1x a2 b3 a4x b5 b6x").messages) == {1: 1, 2: 2, 3: 3, 4: 2, 5: 5, 6: 5}


# Budgets


def name(remaining: Remaining, *trees: tuple[int, ...]) -> list[Named]:
    """Make the messages and acts, in the order of their events, name these trees."""
    items = sorted([(each.event, each.number) for each in remaining.messages])
    items += [(act.number, None) for act in remaining.acts]  # type: ignore[misc]  # an act has no message
    return [Named(event, message, own) for (event, message), own in zip(sorted(items), trees, strict=True)]


@pytest.mark.parametrize(
    ("store", "last", "gone"),
    [
        ("a1 a2 a3 a4", 4, Choice([1, 2], [], [])),
        ("a1 a2 a3 a4", 3, Choice([1], [], [])),
        ("a1 a2 a3 a4", 8, Choice([1, 2, 3], [], [])),
        ("a1p a2 a3 a4", 4, Choice([2], [], [])),
        ("a1 a! a3 a4", 4, Choice([1], [2], [])),
        ("a1 a2 a3o a4", 8, Choice([1, 2], [], [])),
        ("b1 b! a3 a4", 4, Choice([1], [2], [])),
    ],
)
def test_up_to_a_tree(store: str, last: int, gone: Choice) -> None:
    remaining = make(store)
    named = name(remaining, (1, 2), (3, 4), (5, 6), (7, 8))

    assert choose_up_to(remaining, 1, named, last) == gone


def test_what_starts_from_an_old_tree_goes_when_its_own_time_comes() -> None:
    held = make("a1 b2 b3 a4 b5 b6")
    named = name(held, (1,), (2,), (3,), (1, 4), (5,), (6,))

    assert rank_trees(named) == {1: 4, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}
    assert choose_up_to(held, 1, named, 2) == Choice([1, 2], [], [])


# Any store

TOKENS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["", "p", "u", "x", "!"])), min_size=1, max_size=9
)


def words_of(tokens: list[tuple[str, str]]) -> str:
    return " ".join(
        f"{session}!" if mark == "!" else f"{session}{place}{mark}"
        for place, (session, mark) in enumerate(tokens, 1)
    )


@given(TOKENS, st.integers(0, 5), st.integers(0, 9000), st.integers(1, 4))
def test_nothing_goes_that_is_protected_and_the_more_is_kept_the_less_goes(
    tokens: list[tuple[str, str]], last: int, within_ms: int, turns: int
) -> None:
    remaining = make(words_of(tokens))
    keep = Keep(last, within_ms, turns)
    gone = choose(remaining, keep, NOW_MS)

    assert not set(gone.messages) & find_protected(remaining, turns)
    for more in (
        replace(keep, last=last + 1),
        replace(keep, within_ms=within_ms + 1000),
        replace(keep, turns=turns + 1),
        replace(keep, sessions=frozenset({1})),
    ):
        less = choose(remaining, more, NOW_MS)
        assert set(less.messages) <= set(gone.messages)
        assert set(less.acts) <= set(gone.acts)


@given(TOKENS, st.integers(0, 5), st.integers(1, 4))
def test_what_was_chosen_is_chosen_once(tokens: list[tuple[str, str]], last: int, turns: int) -> None:
    remaining, keep = make(words_of(tokens)), Keep(last, 0, turns)
    gone = choose(remaining, keep, NOW_MS)
    rest = replace(
        remaining,
        messages=[each for each in remaining.messages if each.number not in gone.messages],
        acts=[act for act in remaining.acts if act.number not in gone.acts],
    )

    assert choose(rest, keep, NOW_MS).messages == []
