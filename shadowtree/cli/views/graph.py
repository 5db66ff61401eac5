r"""Draw lanes next to a list of messages to show which came after which: values in, lines of ASCII out.

Points are drawn in the given order. Each continues the lane that leads down to it from its parent, the point
that it came after. Lanes part as late as possible, and a new lane opens directly to the right of the old one,
so that no lane ever crosses another:

    *      1, the parent of 2, 4 and 5
    |\
    | .    2
    | .    3, after 2: the lane ends here
    |\
    | .    4
    @      5

When a lane ends, those to the right of it move left. A point whose parent is not drawn has a `~` above it,
and the first one of a line has nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from shadowtree.base.frozen import frozen

_NOT_DRAWN = "~"


@frozen
class Point:
    """A point of the drawing, for one message."""

    name: Hashable
    parent: Hashable | None
    """The name of its parent, drawn or not; None: it is the first of its line."""
    mark: str
    """One character."""
    is_main: bool = False
    """Where lanes part, it stays in the straight lane, and later points step aside."""


@frozen
class GraphLine:
    """One line of the drawing."""

    drawing: str
    place: int | None = None
    """The index of the point that is drawn in it; None: it has only lanes."""


@frozen
class _NotDrawn:
    """Replaces a parent that is not drawn, or not above its children."""

    name: Hashable


def draw_graph(points: Sequence[Point]) -> Iterator[GraphLine]:
    """Draw the points, each in a line of its own, and the lines that are needed between them."""
    parents = _find_parents(points)
    lanes = _Lanes(parents)
    for place, (point, parent) in enumerate(zip(points, parents, strict=True)):
        yield from map(GraphLine, lanes.lead_to(point, parent))
        yield GraphLine(lanes.draw_point(point), place)


def _find_parents(points: Sequence[Point]) -> list[Hashable | None]:
    """Return the parent of each point, or a `_NotDrawn` if the parent is not drawn above it."""
    parents: list[Hashable | None] = []
    drawn = set()
    for point in points:
        is_above = point.parent is None or point.parent in drawn
        parents.append(point.parent if is_above else _NotDrawn(point.parent))
        drawn.add(point.name)
    return parents


class _Lanes:
    """The lanes at the current height, each as the name of the point that it comes from."""

    def __init__(self, parents: Sequence[Hashable | None]) -> None:
        self._to_come = Counter(parents)
        """How many children of each point are still to be drawn."""
        self._names: list[Hashable] = []
        self._column = 0
        """The lane of the next point."""
        self._gap: int | None = None
        """The lane that ended in the line above: it is free, but its last point is directly above."""

    def lead_to(self, point: Point, parent: Hashable | None) -> Iterator[str]:
        """Draw the lines that are needed before a point with this parent, and choose its lane."""
        if parent is None:
            yield from self._begin(point.name)
            return
        if parent not in self._names:
            yield from self._begin(parent)
            yield self._draw({self._column: _NOT_DRAWN})
        self._to_come[parent] -= 1
        if self._to_come[parent]:
            yield from self._part(parent, is_main=point.is_main)
        else:
            yield from self._close_gap()
            self._column = self._names.index(parent)

    def draw_point(self, point: Point) -> str:
        """Draw a point in the lane that leads to it."""
        assert self._gap is None
        self._names[self._column] = point.name
        line = self._draw({self._column: point.mark})
        if not self._to_come[point.name]:
            self._gap = self._column
        return line

    def _begin(self, name: Hashable) -> Iterator[str]:
        """Open a lane at the right end, but not directly below one that ended there."""
        is_below_another = self._gap is not None and self._gap == len(self._names) - 1
        yield from self._close_gap()
        if is_below_another:
            yield self._draw({})
        self._column = len(self._names)
        self._names.append(name)

    def _part(self, parent: Hashable, *, is_main: bool) -> Iterator[str]:
        r"""Open a lane to the right of the one that comes from `parent`; those further right step aside.

        If there is a gap, only those before it, else all of them: `|\ \ |`, `|\ \ \`
        """
        if self._gap is not None and self._gap < self._names.index(parent):
            yield from self._close_gap()
        column = self._names.index(parent)
        end = len(self._names) if self._gap is None else self._gap
        del self._names[end : end + 1]
        self._gap = None
        cells = {2 * lane: "|" for lane in range(len(self._names) + 1) if lane <= column or lane > end}
        cells |= {2 * lane + 1: "\\" for lane in range(column, end)}
        self._names.insert(column + 1, parent)
        self._column = column if is_main else column + 1
        yield _write(cells)

    def _close_gap(self) -> Iterator[str]:
        """Move the lanes to the right of a gap to the left, as in `|  / /`."""
        gap, self._gap = self._gap, None
        if gap is None:
            return
        del self._names[gap]
        moving = range(gap + 1, len(self._names) + 1)
        if moving:
            cells = {2 * lane: "|" for lane in range(gap)}
            yield _write(cells | {2 * lane - 1: "/" for lane in moving})

    def _draw(self, marks: dict[int, str]) -> str:
        return " ".join(marks.get(lane, "|") for lane in range(len(self._names)))


def _write(cells: dict[int, str]) -> str:
    """Return a line with characters at their columns."""
    return "".join(cells.get(column, " ") for column in range(max(cells) + 1))
