"""Three texts into one: what two sides made of a common base, merged by lines.

The result is that of `git merge-file`, byte for byte, and two sides collide exactly where git reports a
conflict: people know what git merges, and nothing here is bolder or shyer. That takes more than a right diff:
of several right ones it has to be the one that git finds. So lines are left out, searches are cut short and
changes are slid by git's measures; each is told where it is used. Only the budget is our own: texts that
would take too long are not merged at all, never merged in another way.

A line ends at a line feed, and is compared by its bytes, the line feed included.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from io import BytesIO
from itertools import compress, count
from operator import sub

from shadowtree.frozen import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

MAX_MERGE_BYTES = 2 * 1024 * 1024
"""A text above this is not merged."""
MAX_MERGE_LINES = 200_000
"""Nor is one of more lines."""

_MAX_STEPS = 8_000_000
"""How many pairs of lines one merge may look at, some of them again and again: about two seconds."""
_COMPARISON_STEPS, _LINE_STEPS, _GAP_STEPS = 250, 4, 20
"""What takes as long as so many steps: a comparison in any case, each of its lines, each gap that slides."""
_BINARY_WINDOW_BYTES = 8000
"""A NUL among so many first bytes makes a content binary, as in git."""


@frozen
class Hunk:
    """One place at which the texts collide: both sides changed it, and not alike."""

    ours: bytes
    base: bytes
    """What stood there before. If one collision was narrowed to several hunks, each has all of it."""
    theirs: bytes
    ours_line: int
    """The number of the first line, from 1; if there is none, of the line that would follow."""
    base_line: int
    theirs_line: int
    line_end: bytes
    """How lines end around here, and so the lines with markers."""


@frozen
class Merge:
    """Three texts in one: settled pieces, and hunks that somebody has to settle."""

    pieces: tuple[bytes | Hunk, ...]
    """In the order of the text."""

    @property
    def hunks(self) -> list[Hunk]:
        """Where the texts collide."""
        return [piece for piece in self.pieces if isinstance(piece, Hunk)]

    @property
    def content(self) -> bytes | None:
        """The merged text; None if there are hunks."""
        settled = [piece for piece in self.pieces if isinstance(piece, bytes)]
        return b"".join(settled) if len(settled) == len(self.pieces) else None


@frozen
class NotMerged:
    """Texts that were not compared to the end; whether they collide is not known."""

    reason: Literal["binary", "too large", "too different"]


def merge_text(base: bytes, ours: bytes, theirs: bytes) -> Merge | NotMerged:
    """Merge what two sides made of `base`.

    If only one side changed anything, or both made the same of it, that is the result, of any content.
    """
    if theirs in (base, ours):
        return Merge((ours,))
    if ours == base:
        return Merge((theirs,))
    contents = (base, ours, theirs)
    if any(map(is_binary, contents)):
        return NotMerged("binary")
    if any(map(_is_too_large, contents)):
        return NotMerged("too large")
    try:
        return _merge_lines(_split_lines(base, ours, theirs), _Steps(_MAX_STEPS))
    except _OutOfStepsError:
        return NotMerged("too different")


def write_markers(merge: Merge, *, ours_label: str, theirs_label: str) -> bytes:
    """Write a merge as one text, with both sides of each hunk between lines with markers, as git does."""
    return b"".join(
        piece if isinstance(piece, bytes) else _mark_hunk(piece, ours_label, theirs_label)
        for piece in merge.pieces
    )


def is_binary(content: bytes) -> bool:
    """Tell whether git would take a content for no text."""
    return b"\0" in content[:_BINARY_WINDOW_BYTES]


def _is_too_large(content: bytes) -> bool:
    return len(content) > MAX_MERGE_BYTES or content.count(b"\n") > MAX_MERGE_LINES


def _mark_hunk(hunk: Hunk, ours_label: str, theirs_label: str) -> bytes:
    return b"".join(
        [
            b"<<<<<<< " + ours_label.encode("utf-8", "surrogateescape") + hunk.line_end,
            _end_line(hunk.ours, hunk.line_end),
            b"=======" + hunk.line_end,
            _end_line(hunk.theirs, hunk.line_end),
            b">>>>>>> " + theirs_label.encode("utf-8", "surrogateescape") + hunk.line_end,
        ]
    )


def _end_line(part: bytes, line_end: bytes) -> bytes:
    return part if not part or part.endswith(b"\n") else part + line_end


class _OutOfStepsError(Exception):
    """The texts are too different."""


class _Steps:
    """How many steps a merge may still take."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, number: int) -> None:
        self._left -= number
        if self._left < 0:
            raise _OutOfStepsError


# How three texts become one. Lines are known by their places, and runs of lines by ranges of places.


@frozen
class _Text:
    lines: list[bytes]
    numbers: list[int]
    """One for each line; equal lines have the same, in all three texts."""

    def join(self, places: range) -> bytes:
        return b"".join(self.lines[places.start : places.stop])

    def take(self, places: range) -> list[int]:
        return self.numbers[places.start : places.stop]


@frozen
class _Texts:
    base: _Text
    ours: _Text
    theirs: _Text


@frozen
class _Part:
    """A run of lines of one text, and the run that stands at the same place in another."""

    old: range
    new: range


@frozen
class _Region:
    """A place at which somebody changed something, in all three texts."""

    taken: Literal["ours", "theirs", "same", None]
    """Whose lines are taken: "same" if both sides have the same, None if they collide."""
    base: range
    ours: range
    theirs: range


def _split_lines(base: bytes, ours: bytes, theirs: bytes) -> _Texts:
    numbers = defaultdict[bytes, int](count().__next__)

    def split(content: bytes) -> _Text:
        # Not splitlines(): for it a carriage return ends a line too.
        lines = BytesIO(content).readlines()
        return _Text(lines, [numbers[line] for line in lines])

    return _Texts(split(base), split(ours), split(theirs))


def _merge_lines(texts: _Texts, steps: _Steps) -> Merge:
    our_changes = _find_changes(texts.base.numbers, texts.ours.numbers, steps)
    their_changes = _find_changes(texts.base.numbers, texts.theirs.numbers, steps)
    regions = _combine(texts, our_changes, their_changes)
    narrowed = [part for region in regions for part in _narrow(texts, region, steps)]
    pieces = _list_pieces(texts, _join_collisions(texts, narrowed))
    return Merge(tuple(piece for piece in pieces if piece))


def _combine(texts: _Texts, our_changes: list[_Part], their_changes: list[_Part]) -> list[_Region]:
    """Lay the changes of both sides over each other.

    Changes with a line of the base between them do not know each other. Changes that overlap or only touch
    collide, unless both sides did the same to the same lines. What they did alike makes no region: our text
    has it, and a merge is our text with regions in it.

        base     a b c d
        ours     a B c d
        theirs   a b c D      B is ours, D is theirs: c lies between
        theirs   a b C d      collides with B: they touch
    """
    regions: list[_Region] = []
    our_end, their_end = _end_of(texts.base, texts.ours), _end_of(texts.base, texts.theirs)
    our_rest, their_rest = iter(our_changes), iter(their_changes)
    our, their = next(our_rest, our_end), next(their_rest, their_end)
    while our is not our_end or their is not their_end:
        if their is their_end or our.old.stop < their.old.start:
            _append(regions, _Region("ours", our.old, our.new, _project(our.old, their)))
            our = next(our_rest, our_end)
        elif our is our_end or their.old.stop < our.old.start:
            _append(regions, _Region("theirs", their.old, _project(their.old, our), their.new))
            their = next(their_rest, their_end)
        else:
            if our.old != their.old or texts.ours.take(our.new) != texts.theirs.take(their.new):
                _append(regions, _collide(our, their))
            our_stop, their_stop = our.old.stop, their.old.stop
            if our_stop <= their_stop:
                our = next(our_rest, our_end)
            if their_stop <= our_stop:
                their = next(their_rest, their_end)
    return regions


def _end_of(base: _Text, side: _Text) -> _Part:
    """Make an empty change of the end of a text."""
    return _Part(_move(range(0), len(base.lines)), _move(range(0), len(side.lines)))


def _project(base: range, change: _Part) -> range:
    """Find lines of the base on a side that has them unchanged, before its next change."""
    return _move(base, change.new.start - change.old.start)


def _move(places: range, by: int) -> range:
    return range(places.start + by, places.stop + by)


def _collide(our: _Part, their: _Part) -> _Region:
    """Make one region of two changes: all lines of the base that either of them touches.

    Ours makes X of b c, theirs makes Y of c d; then X d collides with b Y:

        base   a b c d e      ours   a X d e      theirs   a b Y e
    """
    base = range(min(our.old.start, their.old.start), max(our.old.stop, their.old.stop))
    return _Region(None, base, _stretch(our, base), _stretch(their, base))


def _stretch(change: _Part, base: range) -> range:
    above, below = change.old.start - base.start, base.stop - change.old.stop
    return range(change.new.start - above, change.new.stop + below)


def _append(regions: list[_Region], region: _Region) -> None:
    """Add a region; if it touches the last one on either side, the two are one."""
    last = regions[-1] if regions else None
    if last and (region.ours.start <= last.ours.stop or region.theirs.start <= last.theirs.stop):
        united = _unite(last, region)
        regions[-1] = replace(united, taken=last.taken) if last.taken == region.taken else united
    else:
        regions.append(region)


def _unite(first: _Region, second: _Region) -> _Region:
    return _Region(
        None,
        range(first.base.start, second.base.stop),
        range(first.ours.start, second.ours.stop),
        range(first.theirs.start, second.theirs.stop),
    )


def _narrow(texts: _Texts, region: _Region, steps: _Steps) -> list[_Region]:
    """Leave of a collision only the lines in which the two sides differ.

    Of these, A collides with B, and nothing with C:

        ours   x A y z      theirs   x B y z C
    """
    if region.taken is not None or not region.ours or not region.theirs:
        return [region]
    differences = _find_changes(texts.ours.take(region.ours), texts.theirs.take(region.theirs), steps)
    if not differences:
        return [replace(region, taken="same")]
    return [
        replace(
            region,
            ours=_move(difference.old, region.ours.start),
            theirs=_move(difference.new, region.theirs.start),
        )
        for difference in differences
    ]


_MAX_LINES_BETWEEN = 3
_LETTERS_AND_DIGITS = frozenset(code for code in range(128) if chr(code).isalnum())


def _join_collisions(texts: _Texts, regions: list[_Region]) -> list[_Region]:
    """Make one of neighbouring collisions with little between them, which is easier to read.

    Little are three lines, and any number of lines without a letter or a digit, such as braces.
    """
    joined: list[_Region] = []
    for region in regions:
        if joined and joined[-1].taken is None and region.taken is None:
            between = range(joined[-1].ours.stop, region.ours.start)
            text = texts.ours.join(between)
            if len(between) <= _MAX_LINES_BETWEEN or _LETTERS_AND_DIGITS.isdisjoint(text):
                joined[-1] = _unite(joined[-1], region)
                continue
        joined.append(region)
    return joined


def _list_pieces(texts: _Texts, regions: list[_Region]) -> Iterator[bytes | Hunk]:
    """List our text, with their lines or a hunk in it where they belong."""
    at = 0
    for region in regions:
        if region.taken in ("ours", "same"):
            continue
        yield texts.ours.join(range(at, region.ours.start))
        yield texts.theirs.join(region.theirs) if region.taken else _make_hunk(texts, region)
        at = region.ours.stop
    yield texts.ours.join(range(at, len(texts.ours.lines)))


def _make_hunk(texts: _Texts, region: _Region) -> Hunk:
    return Hunk(
        ours=texts.ours.join(region.ours),
        base=texts.base.join(region.base),
        theirs=texts.theirs.join(region.theirs),
        ours_line=region.ours.start + 1,
        base_line=region.base.start + 1,
        theirs_line=region.theirs.start + 1,
        line_end=_find_line_end(texts, region),
    )


def _find_line_end(texts: _Texts, region: _Region) -> bytes:
    """Find how lines end around a hunk: in LF, unless the base begins with CR LF and no side objects.

    A side is asked by its line before the hunk, or its first one.
    """
    our_answer = _ends_in_crlf(texts.ours.lines, max(region.ours.start - 1, 0))
    their_answer = _ends_in_crlf(texts.theirs.lines, max(region.theirs.start - 1, 0))
    is_crlf = _ends_in_crlf(texts.base.lines, 0) and our_answer is not False and their_answer is not False
    return b"\r\n" if is_crlf else b"\n"


def _ends_in_crlf(lines: list[bytes], place: int) -> bool | None:
    """Tell how a line ends, or the one above if it has no end; None if there is no such line."""
    if lines and not lines[place].endswith(b"\n"):
        place -= 1
    return lines[place].endswith(b"\r\n") if lines and place >= 0 else None


# How two texts are compared. A comparison is two lists of equal length: the places of the lines to be kept,
# with one before the first line and one behind the last. Between two kept lines is a gap, mostly closed; gaps
# of one number face each other.
#
#     old   a b c d      kept   -1 0   2 3 4
#     new   a X Y c d    kept   -1 0   3 4 5      gap 1 makes X Y of b


def _find_changes(old: list[int], new: list[int], steps: _Steps) -> list[_Part]:
    """List what is to be changed in `old` to get `new`, as git finds it."""
    steps.spend(_COMPARISON_STEPS + _LINE_STEPS * (len(old) + len(new)))
    old_kept, new_kept = _find_kept(old, new, steps)
    gaps = {
        *_slide_gaps(old, old_kept, new_kept, steps),
        *_slide_gaps(new, new_kept, old_kept, steps),
    }
    return [
        _Part(range(old_kept[gap] + 1, old_kept[gap + 1]), range(new_kept[gap] + 1, new_kept[gap + 1]))
        for gap in sorted(gaps)
        if _is_open(old_kept, gap) or _is_open(new_kept, gap)
    ]


def _is_open(kept: list[int], gap: int) -> bool:
    return kept[gap + 1] - kept[gap] > 1


def _find_kept(old: list[int], new: list[int], steps: _Steps) -> tuple[list[int], list[int]]:
    """Find the lines to keep: equal ones at both ends, and what a search finds in between."""
    part = _trim(_Part(range(len(old)), range(len(new))), old, new)
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


def _trim(part: _Part, old: list[int], new: list[int]) -> _Part:
    """Take the equal lines off both ends of a part."""
    old_start, old_stop, new_start, new_stop = part.old.start, part.old.stop, part.new.start, part.new.stop
    while old_start < old_stop and new_start < new_stop and old[old_start] == new[new_start]:
        old_start += 1
        new_start += 1
    while old_start < old_stop and new_start < new_stop and old[old_stop - 1] == new[new_stop - 1]:
        old_stop -= 1
        new_stop -= 1
    return _Part(range(old_start, old_stop), range(new_start, new_stop))


def _flag(size: int, part: range, places: list[int]) -> bytearray:
    """Flag all lines outside a part, and inside those at some places."""
    flags = bytearray([True]) * size
    flags[part.start : part.stop] = bytes(len(part))
    for place in places:
        flags[place] = True
    return flags


# Which lines are searched for.

_ABSENT, _RARE, _COMMON = range(3)
_NOISE_WINDOW_LINES = 100


def _choose(lines: list[int], part: range, other: list[int]) -> list[int]:
    """Choose the places in a part whose lines are worth a search in another text.

    A line that the other text does not have is not. Nor is one that it has very often, such as a brace, if
    nearly all around is absent there: a match would be by accident.

        lines   p q r } s t u v      other   } } } }      nothing is chosen

    Very often means about the square root of the number of lines. (Git's limit of 1024 is met only by a
    million lines.)
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
    """Make common lines absent that are noise."""
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
    """Return a power of two for the square root: 4 for 4 to 15, 8 for 16 to 63."""
    return 1 << (number.bit_length() + 1) // 2


def _is_noise(run: bytes, at: int) -> bool:
    """Tell whether a common line is lost among absent ones, in a run without rare ones.

    It is if there are absent lines on both sides, and of them more than three times as many as common ones;
    the line itself counts once for each side.
    """
    start, stop = max(at - _NOISE_WINDOW_LINES, 0), min(at + 1 + _NOISE_WINDOW_LINES, len(run))
    absent_above, absent_below = run.count(_ABSENT, start, at), run.count(_ABSENT, at + 1, stop)
    if not absent_above or not absent_below:
        return False
    absent = absent_above + absent_below
    return absent > 3 * (stop - start + 1 - absent)


# The search. On a grid with the old lines across and the new ones down, a step to the right deletes a line, a
# step down adds one, and equal lines make a diagonal step, which is free. Two fronts start from opposite
# corners of the grid and meet in the middle of a shortest way, where the grid is cut; both parts are searched
# in the same way. (E. W. Myers, An O(ND) Difference Algorithm and Its Variations, 1986.)

_COSTLY = 256
"""After so many edits a short cut will do."""
_LONG_RUN_LINES = 20
"""So many equal lines on end are no accident."""


def _search(old: list[int], new: list[int], steps: _Steps) -> Iterator[_Part]:
    """Yield what is to be changed, as parts that have lines on one side only."""
    fronts = _Fronts(old, new, steps)
    pending = [(_Part(range(len(old)), range(len(new))), False)]
    while pending:
        part, is_exact = pending.pop()
        part = _trim(part, old, new)
        if part.old and part.new:
            cut = fronts.cut(part, is_exact=is_exact)
            above = _Part(range(part.old.start, cut.x), range(part.new.start, cut.y))
            below = _Part(range(cut.x, part.old.stop), range(cut.y, part.new.stop))
            pending += [(above, cut.is_above_exact), (below, cut.is_below_exact)]
        else:
            yield part


@frozen
class _Cut:
    """A point at which a part of the grid is cut in two."""

    x: int
    y: int
    is_above_exact: bool
    """Whether what lies before the point is to be searched without short cuts: a front has been through."""
    is_below_exact: bool


class _Fronts:
    """Two fronts that cut parts of one grid."""

    def __init__(self, old: list[int], new: list[int], steps: _Steps) -> None:
        self._width, self._height = len(old), len(new)
        self._forward = _Front(old, new, is_turned=False)
        self._backward = _Front(old[::-1], new[::-1], is_turned=True)
        self._max_cost = max(_round_root(len(old) + len(new) + 3), _COSTLY)
        self._steps = steps

    def cut(self, part: _Part, *, is_exact: bool) -> _Cut:
        """Cut a part that has lines on both sides, and different ones at both ends."""
        forward, backward = self._forward, self._backward
        forward.start(part)
        backward.start(_Part(_turn(part.old, self._width), _turn(part.new, self._height)))
        # The front that makes the last edit of a shortest way is the one to look for the other.
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
        """Cut where a front came far with few edits, or, if the cost is too high, where one came furthest."""
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


def _turn(places: range, size: int) -> range:
    return range(size - places.stop, size - places.start)


class _Front:
    """How far a search came on each diagonal k, where x - y = k, with one edit more each time.

    From `a b c` to `b c d` it comes with 2 edits:

        (0, 0) → (1, 0) ↘ (2, 1) ↘ (3, 2) ↓ (3, 3)

    The front from the last corner is another one like it on a grid that is turned by half.
    """

    def __init__(self, old: list[int], new: list[int], *, is_turned: bool) -> None:
        self._old, self._new = old, new
        self._is_turned = is_turned
        # Negative diagonals are counted from the end.
        self._furthest = [-1] * (len(old) + len(new) + 3)

    def start(self, part: _Part) -> None:
        self._left, self._right = part.old.start, part.old.stop
        self._top, self._bottom = part.new.start, part.new.stop
        self._low = self._high = self._left - self._top
        self._furthest[self._low] = self._left

    def advance(self, steps: _Steps, other: _Front | None) -> tuple[int, int] | None:
        """Make one more edit on every other diagonal; return where this front meets the other one."""
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
        """Take in one more diagonal at both ends; at the border of the part, give one up instead."""
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
        """List the diagonals of this round, from the same end of the grid for both fronts: the first wins."""
        diagonals = range(self._low, self._high + 1, 2)
        return diagonals if self._is_turned else diagonals[::-1]

    def find_promising(self, cost: int) -> tuple[int, int] | None:
        """Find the point behind a long run of equal lines that came furthest, and far for its cost."""
        best, found = 4 * cost, None
        for k in self._list_diagonals():
            x = self._furthest[k]
            y = x - k
            gain = self.measure((x, y)) - abs(k - (self._left - self._top))
            if gain > best and self._ends_long_run(x, y):
                best, found = gain, (x, y)
        return found

    def _ends_long_run(self, x: int, y: int) -> bool:
        run = _LONG_RUN_LINES
        is_inside = self._left + run <= x < self._right and self._top + run <= y < self._bottom
        return is_inside and self._old[x - run : x] == self._new[y - run : y]

    def find_furthest(self) -> tuple[int, int]:
        """Find the point that came furthest; one that left the part counts where it did so."""
        diagonals = self._list_diagonals()
        xs = [min(self._furthest[k], self._right, self._bottom + k) for k in diagonals]
        return max(((x, x - k) for x, k in zip(xs, diagonals, strict=True)), key=self.measure)

    def measure(self, point: tuple[int, int]) -> int:
        """Count the steps from the corner of the part to a point."""
        return point[0] - self._left + point[1] - self._top


# How gaps slide.


def _slide_gaps(lines: list[int], kept: list[int], other_kept: list[int], steps: _Steps) -> list[int]:
    """Slide the open gaps of a text to where git would show them; list them as they were left.

    If the first line of a gap equals the kept line below it, that line can be kept in its stead, and the gap
    slides down. It may become one with others. In the end it is at the lowest place beside an open gap of
    the other text, or simply at the lowest place.

        a (b c) b c d      a b (c b) c d      a b c (b c) d
    """
    sizes = map(sub, kept[1:], kept)
    settled: list[int] = []
    for gap in list(compress(count(), map((1).__lt__, sizes))):
        if _is_open(kept, gap) and not (settled and gap <= settled[-1]):
            settled.append(_slide_gap(lines, kept, other_kept, gap, steps))
    return settled


def _slide_gap(lines: list[int], kept: list[int], other_kept: list[int], gap: int, steps: _Steps) -> int:
    """Slide one gap, and return its new number: a line further down it is the next one."""
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
