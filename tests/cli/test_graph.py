"""The lanes of `log --graph`: values in, lines out. A small parser works the parents out again."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadowtree.cli.views.graph import GraphLine, Point, draw_graph

Parents = dict[int, int | None]
"""The parents of each point, in the order of the drawing; a point that is not a key is not drawn."""


def _points(parents: Parents, main: Sequence[int] = ()) -> list[Point]:
    return [
        Point(name, parent, "*" if name in main else "o", is_main=name in main)
        for name, parent in parents.items()
    ]


def _draw(parents: Parents, main: Sequence[int] = ()) -> list[str]:
    """Draw points with their names."""
    names = list(parents)
    return [
        line.drawing if line.place is None else f"{line.drawing} {names[line.place]}"
        for line in draw_graph(_points(parents, main))
    ]


# Drawings


@pytest.mark.parametrize(
    ("parents", "main", "drawing"),
    [
        ({}, [], []),
        ({1: None}, [1], ["* 1"]),
        ({1: None, 2: 1, 3: 2}, [1, 2], ["* 1", "* 2", "o 3"]),
        (
            {1: None, 2: 1, 3: 2, 4: 1},
            [1, 4],
            [
                "* 1",
                "|\\",
                "| o 2",
                "| o 3",
                "* 4",
            ],
        ),
        (
            {1: None, 2: 1, 3: 1, 4: 1},
            [1, 4],
            [
                "* 1",
                "|\\",
                "| o 2",
                "|\\",
                "| o 3",
                "* 4",
            ],
        ),
        (
            {1: None, 2: 1, 3: 1},
            [1, 2],
            [
                "* 1",
                "|\\",
                "* | 2",
                " /",
                "o 3",
            ],
        ),
        (
            {1: None, 2: 1, 3: 2, 4: 2, 5: 1},
            [1, 5],
            [
                "* 1",
                "|\\",
                "| o 2",
                "| |\\",
                "| | o 3",
                "| o 4",
                "* 5",
            ],
        ),
        (
            {1: None, 2: 1, 3: 1, 4: 2, 5: 1, 6: 3},
            [1, 5],
            [
                "* 1",
                "|\\",
                "| o 2",
                "|\\ \\",
                "| o | 3",
                "| | o 4",
                "* | 5",
                " /",
                "o 6",
            ],
        ),
        (
            {1: None, 2: 1, 3: 1, 4: 3, 5: 1, 6: 2},
            [1, 5],
            [
                "* 1",
                "|\\",
                "| o 2",
                "|\\ \\",
                "| o | 3",
                "| o | 4",
                "|  /",
                "* | 5",
                " /",
                "o 6",
            ],
        ),
        (
            {1: None, 2: 1, 3: None, 4: 3},
            [3, 4],
            [
                "o 1",
                "o 2",
                "",
                "* 3",
                "* 4",
            ],
        ),
        (
            {1: None, 2: None, 3: 1, 4: 2},
            [],
            [
                "o 1",
                "| o 2",
                "o | 3",
                " /",
                "o 4",
            ],
        ),
        ({5: 4, 6: 5}, [5, 6], ["~", "* 5", "* 6"]),
        (
            {5: 4, 6: 5, 7: 4, 8: 2},
            [5, 6],
            [
                "~",
                "|\\",
                "* | 5",
                "* | 6",
                " /",
                "o 7",
                "",
                "~",
                "o 8",
            ],
        ),
    ],
    ids=[
        "none",
        "one",
        "a line",
        "a branch",
        "two branches from one message",
        "the earlier one is in force",
        "a branch of a branch",
        "a branch opens beside its own lane and the others step aside",
        "an inner lane ends",
        "two beginnings",
        "two beginnings at once",
        "the first one's parent is not drawn",
        "some parents are not drawn",
    ],
)
def test_lanes_are_drawn(parents: Parents, main: list[int], drawing: list[str]) -> None:
    assert _draw(parents, main) == drawing


def test_a_lane_uses_the_place_of_one_that_just_ended() -> None:
    """Lanes further right need not move twice."""
    parents: Parents = {1: None, 2: 1, 3: 1, 4: 1, 5: 2, 6: 1}

    assert _draw(parents, [1, 6]) == [
        "* 1",
        "|\\",
        "| o 2",
        "|\\ \\",
        "| o | 3",
        "|\\  |",
        "| o | 4",
        "|  /",
        "| o 5",
        "* 6",
    ]


def test_a_name_may_be_anything_that_can_be_compared() -> None:
    points = [Point(("s", "1"), None, "*"), Point(("t", "1"), None, "*"), Point(("s", "2"), ("s", "1"), "@")]

    assert [line.drawing for line in draw_graph(points)] == ["*", "| *", "@"]


# Any tree


@st.composite
def _trees(draw: st.DrawFn) -> tuple[Parents, list[int]]:
    """Make a history: each message has any earlier one as its parent; the first few are not drawn."""
    size = draw(st.integers(0, 40))
    reach = draw(st.integers(1, 40))
    parents: Parents = {}
    for name in range(size):
        earlier = st.integers(max(0, name - reach), name - 1) if name else st.none()
        parents[name] = draw(st.one_of(earlier, st.none()) if draw(st.integers(0, 9)) == 0 else earlier)
    main: list[int] = []
    tip: int | None = draw(st.integers(0, size - 1)) if size else None
    while tip is not None:
        main.append(tip)
        tip = parents[tip]
    hidden = draw(st.integers(0, size))
    return {name: parent for name, parent in parents.items() if name >= hidden}, main


@given(_trees())
def test_every_drawing_can_be_read_again(tree: tuple[Parents, list[int]]) -> None:
    parents, main = tree
    points = _points(parents, main)

    lines = list(draw_graph(points))

    assert [line.place for line in lines if line.place is not None] == list(range(len(points)))
    read = _read(lines)
    names = list(parents)
    for place, (name, parent) in enumerate(parents.items()):
        found = read[place]
        if parent is None:
            assert found is None
        elif parent in parents:
            assert isinstance(found, int)
            assert names[found] == parent
        else:
            assert isinstance(found, str), f"{name} came after one that is not drawn"


@given(_trees())
def test_those_after_one_that_is_not_drawn_come_from_the_same_place(tree: tuple[Parents, list[int]]) -> None:
    parents, main = tree
    read = _read(list(draw_graph(_points(parents, main))))
    found = [
        (parent, read[place]) for place, parent in enumerate(parents.values()) if isinstance(read[place], str)
    ]

    assert len(set(found)) == len({parent for parent, _ in found}) == len({origin for _, origin in found})


@given(_trees())
def test_no_more_lanes_are_drawn_than_are_needed(tree: tuple[Parents, list[int]]) -> None:
    parents, main = tree
    names = list(parents)

    for line in draw_graph(_points(parents, main)):
        if line.place is not None:
            earlier, later = names[: line.place], names[line.place + 1 :]
            waiting = {parents[name] for name in later} & (
                set(earlier) | {parents[name] for name in earlier} | {parents[names[line.place]]}
            )
            waiting -= {None, names[line.place]}
            assert len(line.drawing.split()) == len(waiting) + 1


@given(_trees())
def test_the_line_in_force_goes_straight_down(tree: tuple[Parents, list[int]]) -> None:
    parents, main = tree
    if None in list(parents.values())[1:] or any(
        parent not in (None, *parents) for parent in parents.values()
    ):
        return  # there are several first points, and the one on the left may not be next
    names = list(parents)

    for line in draw_graph(_points(parents, main)):
        if line.place is not None and names[line.place] in main:
            assert line.drawing[0] == "*"


def test_a_long_history_with_many_branches_is_drawn_quickly() -> None:
    chance = random.Random(4)
    parents: Parents = {0: None}
    for name in range(1, 20_000):
        parents[name] = chance.randrange(max(0, name - 20), name)

    lines = list(draw_graph(_points(parents)))

    assert sum(line.place is not None for line in lines) == 20_000
    assert max(len(line.drawing) for line in lines) < 80


# The parser

Origin = int | str | None
"""Where a lane comes from: the column of a point, or a name for a point that is not drawn."""


def _read(lines: Sequence[GraphLine]) -> dict[int, Origin]:
    """Return the parents of each point, by following the lanes from line to line.

    Fails if a lane has no end, has no start, or meets another one.
    """
    parents: dict[int, Origin] = {}
    above: dict[int, Origin] = {}
    just_drawn: int | None = None
    for height, line in enumerate(lines):
        below: dict[int, Origin] = {}
        used = set()
        for column, char in enumerate(line.drawing):
            if char == " ":
                continue
            origin: Origin
            if char in "|\\/":
                start = column + {"|": 0, "\\": -1, "/": 1}[char]
                end = column + {"|": 0, "\\": 1, "/": -1}[char]
                assert start in above, f"a lane begins in the air: {line.drawing!r}"
                origin = above[start]
                used.add(start)
            elif char == "~":
                assert column not in above
                end, origin = column, f"hidden {height}"
            else:
                assert line.place is not None
                assert line.place not in parents
                parents[line.place] = above.get(column)
                used.add(column)
                end, origin = column, line.place
            assert end % 2 == 0
            assert end not in below, f"two lanes meet: {line.drawing!r}"
            below[end] = origin
        ended = above.keys() - used
        assert all(above[column] == just_drawn for column in ended), (
            f"a lane ends in the air: {line.drawing!r}"
        )
        above, just_drawn = below, line.place
    assert all(origin == just_drawn for origin in above.values())
    return parents


@pytest.mark.parametrize(
    ("drawing", "places"),
    [
        (["*", "| *"], [0, 1]),
        (["*", "|\\", "* | ", "|"], [0, None, 1, None]),
        (["*", "|\\", "| *", "|/", "*"], [0, None, 1, None, 2]),
        (["*", "|", "", "*"], [0, None, None, 1]),
        (["*", "", "|"], [0, None, None]),
    ],
    ids=["a lane goes on at the end", "a lane vanishes", "lanes meet", "a lane ends early", "from nowhere"],
)
def test_the_reader_refuses_wrong_drawings(drawing: list[str], places: list[int | None]) -> None:
    with pytest.raises(AssertionError):
        _read([GraphLine(line, place) for line, place in zip(drawing, places, strict=True)])
