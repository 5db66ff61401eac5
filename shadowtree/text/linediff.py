"""Line diffs as git makes them: which lines have to change to get from one text to another.

Of several correct diffs this finds the one that git finds, because the diffs of the two sides of a merge
decide where they collide. Lines are represented by numbers: equal lines have the same number.

A comparison is two lists of equal length: the indexes of the lines that are kept, with one before the first
line and one after the last. Between two kept lines is a gap, which is usually closed (empty). Gaps with the
same index in both lists correspond.

    old   a b c d      kept   -1 0   2 3 4
    new   a X Y c d    kept   -1 0   3 4 5      gap 1 turns b into X Y
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from io import BytesIO
from itertools import compress, count
from operator import sub

from shadowtree.base.frozen import frozen

MAX_TEXT_BYTES = 2 * 1024 * 1024
"""A text with more bytes is neither compared nor merged."""
MAX_TEXT_LINES = 200_000
"""A text with more lines is neither compared nor merged."""
MAX_STEPS = 8_000_000
"""How many steps one diff or merge may take, mostly comparisons of two lines: about two seconds."""

_BINARY_WINDOW_BYTES = 8000
"""A NUL within the first `_BINARY_WINDOW_BYTES` makes a content binary, as in git."""
_COMPARISON_STEPS, _LINE_STEPS, _GAP_STEPS = 250, 4, 20
"""The cost, in steps, of any comparison, of each of its lines, and of each gap that slides."""


@frozen
class Text:
    """The lines of a text. A line ends with a line feed, which is part of it when lines are compared."""

    lines: list[bytes]
    numbers: list[int]
    """The number of each line; equal lines have equal numbers in all texts that were split together."""

    def join(self, places: range) -> bytes:
        """Return some lines as bytes."""
        return b"".join(self.lines[places.start : places.stop])

    def take(self, places: range) -> list[int]:
        """Return the numbers of some lines."""
        return self.numbers[places.start : places.stop]


@frozen
class Part:
    """A run of lines of one text, and the run that corresponds to it in another."""

    old: range
    new: range


def is_binary(content: bytes) -> bool:
    """Return whether git would take a content for binary."""
    return b"\0" in content[:_BINARY_WINDOW_BYTES]


def is_too_large(content: bytes) -> bool:
    """Return whether a text has too many bytes or lines to be compared."""
    return len(content) > MAX_TEXT_BYTES or content.count(b"\n") > MAX_TEXT_LINES


def split_texts(*contents: bytes) -> Iterator[Text]:
    """Split texts that are to be compared with each other."""
    numbers = defaultdict[bytes, int](count().__next__)
    for content in contents:
        # Not splitlines(), which also ends a line at a carriage return.
        lines = BytesIO(content).readlines()
        yield Text(lines, [numbers[line] for line in lines])


class OutOfStepsError(Exception):
    """The texts are too different."""


class Steps:
    """How many steps a comparison may still take."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, number: int) -> None:
        """Use up `number` steps; raise OutOfStepsError if fewer are left."""
        self._left -= number
        if self._left < 0:
            raise OutOfStepsError


def find_changes(old: list[int], new: list[int], steps: Steps) -> list[Part]:
    """List the changes that turn `old` into `new`, the same that git finds."""
    steps.spend(_COMPARISON_STEPS + _LINE_STEPS * (len(old) + len(new)))
    old_kept, new_kept = _find_kept(old, new, steps)
    gaps = {*_slide_gaps(old, old_kept, new_kept, steps), *_slide_gaps(new, new_kept, old_kept, steps)}
    return [
        Part(range(old_kept[gap] + 1, old_kept[gap + 1]), range(new_kept[gap] + 1, new_kept[gap + 1]))
        for gap in sorted(gaps)
        if _is_open(old_kept, gap) or _is_open(new_kept, gap)
    ]


def _is_open(kept: list[int], gap: int) -> bool:
    return kept[gap + 1] - kept[gap] > 1


def _find_kept(old: list[int], new: list[int], steps: Steps) -> tuple[list[int], list[int]]:
    """Find the lines to keep: the equal ones at both ends, and those that a search finds in between."""
    part = trim(Part(range(len(old)), range(len(new))), old, new)
    old_places, new_places = _choose(old, part.old, new), _choose(new, part.new, old)
    old_flags = _flag(len(old), part.old, old_places)
    new_flags = _flag(len(new), part.new, new_places)
    old_chosen, new_chosen = [old[place] for place in old_places], [new[place] for place in new_places]
    for change in _search(old_chosen, new_chosen, steps):
        for at in change.old:
            old_flags[old_places[at]] = False
        for at in change.new:
            new_flags[new_places[at]] = False
    old_kept = [-1, *compress(count(), old_flags), len(old)]
    new_kept = [-1, *compress(count(), new_flags), len(new)]
    assert len(old_kept) == len(new_kept)
    return old_kept, new_kept


def trim(part: Part, old: list[int], new: list[int]) -> Part:
    """Remove the equal lines from both ends of a part."""
    old_start, old_stop, new_start, new_stop = part.old.start, part.old.stop, part.new.start, part.new.stop
    while old_start < old_stop and new_start < new_stop and old[old_start] == new[new_start]:
        old_start += 1
        new_start += 1
    while old_start < old_stop and new_start < new_stop and old[old_stop - 1] == new[new_stop - 1]:
        old_stop -= 1
        new_stop -= 1
    return Part(range(old_start, old_stop), range(new_start, new_stop))


def _flag(size: int, part: range, places: list[int]) -> bytearray:
    """Flag all lines outside a part, and the lines at `places` inside it."""
    flags = bytearray([True]) * size
    flags[part.start : part.stop] = bytes(len(part))
    for place in places:
        flags[place] = True
    return flags


# Choosing the lines to search for.

_ABSENT, _RARE, _COMMON = range(3)
_NOISE_WINDOW_LINES = 100


def _choose(lines: list[int], part: range, other: list[int]) -> list[int]:
    """Choose the lines of a part that are worth searching for in another text; return their indexes.

    A line that the other text does not have is not worth it. Neither is a line that the other text has very
    often, such as a brace, if nearly all lines around it are absent there: a match would be an accident.

        lines   p q r } s t u v      other   } } } }      nothing is chosen

    Very often means about as often as the square root of the number of lines. (Git limits that to 1024, which
    only matters for texts of a million lines.)
    """
    counts = Counter(other) if part else Counter[int]()
    common = _round_root(len(lines))
    kinds = bytes(
        [
            _COMMON if found >= common else _RARE if found else _ABSENT
            for found in map(counts.__getitem__, lines[part.start : part.stop])
        ]
    )
    return list(compress(part, _drop_noise(kinds)))


def _drop_noise(kinds: bytes) -> bytearray:
    """Flag the lines to choose: the rare ones, and the common ones that are not noise."""
    kept = bytearray(kinds)
    start = 0
    for run in kinds.split(bytes([_RARE])):
        if _COMMON in run and _ABSENT in run:
            for at, kind in enumerate(run):
                if kind == _COMMON and _is_noise(run, at):
                    kept[start + at] = _ABSENT
        start += len(run) + 1
    return kept


def _round_root(number: int) -> int:
    """Return a power of two above the square root: 4 for 4 to 15, 8 for 16 to 63."""
    return 1 << (number.bit_length() + 1) // 2


def _is_noise(run: bytes, at: int) -> bool:
    """Return whether a common line is surrounded by absent ones, in a run without rare lines.

    That is so if there are absent lines on both sides, and more than three times as many as common ones; the
    line itself counts once for each side.
    """
    start, stop = max(at - _NOISE_WINDOW_LINES, 0), min(at + 1 + _NOISE_WINDOW_LINES, len(run))
    absent_above, absent_below = run.count(_ABSENT, start, at), run.count(_ABSENT, at + 1, stop)
    if not absent_above or not absent_below:
        return False
    absent = absent_above + absent_below
    return absent > 3 * (stop - start + 1 - absent)


# The search. On a grid with the old lines across and the new lines down, a step to the right deletes a line,
# a step down adds one, and equal lines allow a diagonal step, which is free. Two fronts start from opposite
# corners of the grid and meet in the middle of a shortest path, where the grid is cut in two; both parts are
# searched in the same way. (E. W. Myers, An O(ND) Difference Algorithm and Its Variations, 1986.)

_COSTLY = 256
"""After more edits than this, a cut need not be on a shortest path."""
_LONG_RUN_LINES = 20
"""A longer run of equal lines is no accident."""


def _search(old: list[int], new: list[int], steps: Steps) -> Iterator[Part]:
    """Yield the changes, as parts that have lines on one side only."""
    fronts = _Fronts(old, new, steps)
    pending = [(Part(range(len(old)), range(len(new))), False)]
    while pending:
        part, is_exact = pending.pop()
        part = trim(part, old, new)
        if part.old and part.new:
            cut = fronts.cut(part, is_exact=is_exact)
            above = Part(range(part.old.start, cut.x), range(part.new.start, cut.y))
            below = Part(range(cut.x, part.old.stop), range(cut.y, part.new.stop))
            pending += [(above, cut.is_above_exact), (below, cut.is_below_exact)]
        else:
            yield part


@frozen
class _Cut:
    """A point at which a part of the grid is cut in two."""

    x: int
    y: int
    is_above_exact: bool
    """Whether the part before the point is to be searched without short cuts: a front has crossed it."""
    is_below_exact: bool
    """Whether the part after the point is."""


class _Fronts:
    """Two fronts that cut parts of one grid."""

    def __init__(self, old: list[int], new: list[int], steps: Steps) -> None:
        self._width, self._height = len(old), len(new)
        self._forward = _Front(old, new, is_turned=False)
        self._backward = _Front(old[::-1], new[::-1], is_turned=True)
        self._max_cost = max(_round_root(len(old) + len(new) + 3), _COSTLY)
        self._steps = steps

    def cut(self, part: Part, *, is_exact: bool) -> _Cut:
        """Cut a part that has lines on both sides, and whose first and last lines differ."""
        forward, backward = self._forward, self._backward
        forward.start(part)
        turned_old = range(self._width - part.old.stop, self._width - part.old.start)
        turned_new = range(self._height - part.new.stop, self._height - part.new.start)
        backward.start(Part(turned_old, turned_new))
        # The front that makes the last edit of a shortest path is the one that checks for the other.
        is_odd = (len(part.old) - len(part.new)) % 2 == 1
        cost = 0
        while True:
            cost += 1
            if point := forward.advance(self._steps, backward if is_odd else None):
                return _Cut(*point, is_above_exact=True, is_below_exact=True)
            if point := backward.advance(self._steps, None if is_odd else forward):
                return _Cut(*self._turn_point(point), is_above_exact=True, is_below_exact=True)
            if not is_exact and (cut := self._cut_short(cost)):
                return cut

    def _cut_short(self, cost: int) -> _Cut | None:
        """Cut where a front got far with few edits or, if the cost is too high, where one got furthest."""
        if cost > _COSTLY and (self._forward.saw_long_run or self._backward.saw_long_run):
            if point := self._forward.find_promising(cost):
                return _Cut(*point, is_above_exact=True, is_below_exact=False)
            if point := self._backward.find_promising(cost):
                return _Cut(*self._turn_point(point), is_above_exact=False, is_below_exact=True)
        if cost < self._max_cost:
            return None
        furthest, furthest_back = self._forward.find_furthest(), self._backward.find_furthest()
        if self._forward.measure(furthest) > self._backward.measure(furthest_back):
            return _Cut(*furthest, is_above_exact=True, is_below_exact=False)
        return _Cut(*self._turn_point(furthest_back), is_above_exact=False, is_below_exact=True)

    def _turn_point(self, point: tuple[int, int]) -> tuple[int, int]:
        return self._width - point[0], self._height - point[1]


class _Front:
    """How far a search got on each diagonal k, where x - y = k. Each round allows one more edit.

    It gets from `a b c` to `b c d` with 2 edits:

        (0, 0) → (1, 0) ↘ (2, 1) ↘ (3, 2) ↓ (3, 3)

    The front from the opposite corner is another front like this, on a grid rotated by 180 degrees.
    """

    def __init__(self, old: list[int], new: list[int], *, is_turned: bool) -> None:
        self._old, self._new = old, new
        self._is_turned = is_turned
        # Negative diagonals index the list from its end.
        self._furthest = [-1] * (len(old) + len(new) + 3)

    def start(self, part: Part) -> None:
        self._left, self._right = part.old.start, part.old.stop
        self._top, self._bottom = part.new.start, part.new.stop
        self._low = self._high = self._left - self._top
        self._furthest[self._low] = self._left

    def advance(self, steps: Steps, other: _Front | None) -> tuple[int, int] | None:
        """Make one more edit on every second diagonal; return where this front meets `other`, if it does."""
        self._widen()
        old, new, furthest, right, bottom = self._old, self._new, self._furthest, self._right, self._bottom
        low, high, facing = (other._low, other._high, other._furthest) if other else (1, 0, furthest)
        width, turn = len(old), len(old) - len(new)
        free = longest = 0
        met = None
        diagonals = self._list_diagonals()
        for k in diagonals:
            x, above = furthest[k - 1], furthest[k + 1]
            x = start = x + 1 if x >= above else above
            y = x - k
            while x < right and y < bottom and old[x] == new[y]:
                x += 1
                y += 1
            furthest[k] = x
            if x > start:
                free += x - start
                if x - start > longest:
                    longest = x - start
            if low <= turn - k <= high and x + facing[turn - k] >= width:
                met = x, y
                break
        self.saw_long_run = longest > _LONG_RUN_LINES
        steps.spend(len(diagonals) + free)
        return met

    def _widen(self) -> None:
        """Add one diagonal at both ends; where the border of the part is reached, drop one instead."""
        if self._low > self._left - self._bottom:
            self._low -= 1
            self._furthest[self._low - 1] = -1
        else:
            self._low += 1
        if self._high < self._right - self._top:
            self._high += 1
            self._furthest[self._high + 1] = -1
        else:
            self._high -= 1

    def _list_diagonals(self) -> range:
        """List this round's diagonals, from the same end of the grid for both fronts: the first hit wins."""
        diagonals = range(self._low, self._high + 1, 2)
        return diagonals if self._is_turned else diagonals[::-1]

    def find_promising(self, cost: int) -> tuple[int, int] | None:
        """Find the furthest point that follows a long run of equal lines, and is far enough for its cost."""
        run, best, found = _LONG_RUN_LINES, 4 * cost, None
        for k in self._list_diagonals():
            x = self._furthest[k]
            y = x - k
            gain = self.measure((x, y)) - abs(k - (self._left - self._top))
            is_inside = self._left + run <= x < self._right and self._top + run <= y < self._bottom
            if gain > best and is_inside and self._old[x - run : x] == self._new[y - run : y]:
                best, found = gain, (x, y)
        return found

    def find_furthest(self) -> tuple[int, int]:
        """Find the furthest point; one beyond the border of the part is moved back to the border."""
        diagonals = self._list_diagonals()
        xs = [min(self._furthest[k], self._right, self._bottom + k) for k in diagonals]
        return max(((x, x - k) for x, k in zip(xs, diagonals, strict=True)), key=self.measure)

    def measure(self, point: tuple[int, int]) -> int:
        """Count the steps from the corner of the part to a point."""
        return point[0] - self._left + point[1] - self._top


# Sliding gaps.


def _slide_gaps(lines: list[int], kept: list[int], other_kept: list[int], steps: Steps) -> list[int]:
    """Slide the open gaps of a text to where git would show them; return their final indexes.

    If the first line of a gap equals the kept line below the gap, the first line can be kept instead, and the
    gap slides down. It may merge with other gaps. It ends at the lowest position that faces an open gap of
    the other text or, if there is none, at the lowest position.

        a (b c) b c d      a b (c b) c d      a b c (b c) d
    """
    sizes = map(sub, kept[1:], kept)
    settled: list[int] = []
    for gap in list(compress(count(), map((1).__lt__, sizes))):
        if _is_open(kept, gap) and not (settled and gap <= settled[-1]):
            settled.append(_slide_gap(lines, kept, other_kept, gap, steps))
    return settled


def _slide_gap(lines: list[int], kept: list[int], other_kept: list[int], gap: int, steps: Steps) -> int:
    """Slide one gap, and return its new index, which is one higher for each line that it slid down."""
    while True:
        size = kept[gap + 1] - kept[gap]
        highest = _slide_up(lines, kept, gap, 0)
        gap = _slide_down(lines, kept, highest)
        steps.spend(_GAP_STEPS + gap - highest)
        if kept[gap + 1] - kept[gap] == size:
            break
    beside = (at for at in range(gap, highest - 1, -1) if _is_open(other_kept, at))
    return _slide_up(lines, kept, gap, next(beside, gap))


def _slide_up(lines: list[int], kept: list[int], gap: int, first: int) -> int:
    while gap > first and lines[kept[gap]] == lines[kept[gap + 1] - 1]:
        kept[gap] = kept[gap + 1] - 1
        gap -= 1
    return gap


def _slide_down(lines: list[int], kept: list[int], gap: int) -> int:
    while gap + 2 < len(kept) and lines[kept[gap] + 1] == lines[kept[gap + 1]]:
        kept[gap + 1] = kept[gap] + 1
        gap += 1
    return gap
