"""Three texts into one: what two sides made of a common base, merged line by line.

The result is that of `git merge-file`, byte for byte, and two sides collide exactly where git reports a
conflict: people know what git merges, and an agent's undo shall be no bolder and no shyer. That takes more
than a right diff. Of several right ones it has to be the one that git picks, so lines are left out, searches
are cut short and changes are slid by git's measures; each is told where it is used. The one thing of our
own is a budget: texts that would take too long are not merged at all, never merged in another way.

A line ends at a line feed and is compared by its bytes, the line feed included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from itertools import compress, count, pairwise

from shadowtree.frozen import frozen, replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

MAX_MERGE_BYTES = 2 * 1024 * 1024
"""A text above this is not merged."""
MAX_MERGE_LINES = 200_000
"""Nor is one of more lines."""

_MAX_STEPS = 8_000_000
"""How many lines one merge may look at, the same line again and again: about two seconds."""
_BINARY_WINDOW_BYTES = 8000
"""A NUL among so many first bytes makes a content binary, as in git."""


@frozen
class Hunk:
    """One place at which the texts collide: both sides changed it, and not alike."""

    ours: bytes
    base: bytes
    """What stood there before. Where one collision was narrowed to several hunks, each has the whole of it."""
    theirs: bytes
    ours_line: int
    """The number of the first line, from 1; of an empty part, of the line that follows."""
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

    If only one side changed anything, or both made the same, that is the result, whatever the content is.
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
        return _merge_lines(*_number_lines(*contents), _Steps(_MAX_STEPS))
    except _OutOfStepsError:
        return NotMerged("too different")


def write_markers(merge: Merge, *, ours_label: str, theirs_label: str) -> bytes:
    """Write a merge as one text in which marker lines enclose both sides of each hunk, as git does."""
    return b"".join(
        piece if isinstance(piece, bytes) else _write_hunk(piece, ours_label, theirs_label)
        for piece in merge.pieces
    )


def is_binary(content: bytes) -> bool:
    """Tell whether git would take a content for no text."""
    return b"\0" in content[:_BINARY_WINDOW_BYTES]


# From texts to lines, and back.


@frozen
class _Text:
    lines: list[bytes]
    numbers: list[int]
    """One for each line; equal lines of all three texts have the same."""

    def join(self, places: range) -> bytes:
        return b"".join(self.lines[places.start : places.stop])


def _is_too_large(content: bytes) -> bool:
    return len(content) > MAX_MERGE_BYTES or content.count(b"\n") > MAX_MERGE_LINES


def _number_lines(base: bytes, ours: bytes, theirs: bytes) -> tuple[_Text, _Text, _Text]:
    numbers: dict[bytes, int] = {}

    def number(content: bytes) -> _Text:
        # Not splitlines(): for it a carriage return ends a line too.
        lines = BytesIO(content).readlines()
        return _Text(lines, [numbers.setdefault(line, len(numbers)) for line in lines])

    return number(base), number(ours), number(theirs)


def _write_hunk(hunk: Hunk, ours_label: str, theirs_label: str) -> bytes:
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


# How three texts become one.


@frozen
class _Part:
    """A run of lines of one text, and what stands at the same place in another: two ranges of places."""

    old: range
    new: range


@frozen
class _Region:
    """A place at which something changed, in all three texts."""

    taken: Literal["ours", "theirs", "same", None]
    """Whose lines are taken: "same" if both sides have the same, None if they collide."""
    base: range
    ours: range
    theirs: range


def _merge_lines(base: _Text, ours: _Text, theirs: _Text, steps: _Steps) -> Merge:
    regions = _combine(
        _find_changes(base.numbers, ours.numbers, steps),
        _find_changes(base.numbers, theirs.numbers, steps),
        base,
        ours,
        theirs,
    )
    narrowed = [part for region in regions for part in _narrow(region, ours, theirs, steps)]
    return Merge(tuple(_list_pieces(_join_collisions(narrowed, ours), base, ours, theirs)))


def _combine(
    our_changes: list[_Part], their_changes: list[_Part], base: _Text, ours: _Text, theirs: _Text
) -> list[_Region]:
    """Lay the changes of both sides over each other.

    Changes with a line of the base between them do not know each other. Changes that overlap or only touch
    collide, unless both sides did the same to the same lines; such a change needs no region, since our text
    has it already.

        base     a b c d e f g
        ours     a B c d e f g       B is ours alone
        theirs   a b c D e f g       D is theirs alone: c lies between
        theirs   a b C d e f g       collides with B: they touch
    """
    regions: list[_Region] = []
    # What each end of file would be as a change: it gives the shift behind the last true one.
    our_end = _end_of(base, ours)
    their_end = _end_of(base, theirs)
    our_rest, their_rest = iter(our_changes), iter(their_changes)
    our, their = next(our_rest, our_end), next(their_rest, their_end)
    while our is not our_end or their is not their_end:
        if their is their_end or our.old.stop < their.old.start:
            _append(regions, _Region("ours", our.old, our.new, _shift(our.old, their)))
            our = next(our_rest, our_end)
        elif our is our_end or their.old.stop < our.old.start:
            _append(regions, _Region("theirs", their.old, _shift(their.old, our), their.new))
            their = next(their_rest, their_end)
        else:
            if not _is_alike(our, their, ours, theirs):
                _append(regions, _collide(our, their))
            our_stop, their_stop = our.old.stop, their.old.stop
            if our_stop <= their_stop:
                our = next(our_rest, our_end)
            if their_stop <= our_stop:
                their = next(their_rest, their_end)
    return regions


def _end_of(base: _Text, side: _Text) -> _Part:
    old_end, new_end = len(base.lines), len(side.lines)
    return _Part(range(old_end, old_end), range(new_end, new_end))


def _shift(places: range, change: _Part) -> range:
    """Find the same lines on the side that will change only later."""
    shift = change.new.start - change.old.start
    return range(places.start + shift, places.stop + shift)


def _is_alike(our: _Part, their: _Part, ours: _Text, theirs: _Text) -> bool:
    return our.old == their.old and (
        ours.numbers[our.new.start : our.new.stop] == theirs.numbers[their.new.start : their.new.stop]
    )


def _collide(our: _Part, their: _Part) -> _Region:
    """Make a region of all lines of the base that either change touches.

    base     a b c d      ours     a X d        theirs   a b c Y
               └─┘ our                                       ┘ their
               └───┘ the region: b c d, in ours X d, in theirs b c Y
    """
    base = range(min(our.old.start, their.old.start), max(our.old.stop, their.old.stop))
    return _Region(None, base, _stretch(our, base), _stretch(their, base))


def _stretch(change: _Part, base: range) -> range:
    return range(
        change.new.start - (change.old.start - base.start), change.new.stop + (base.stop - change.old.stop)
    )


def _append(regions: list[_Region], region: _Region) -> None:
    """Add a region; one that touches the last, on either side, becomes one with it."""
    last = regions[-1] if regions else None
    if last and (region.ours.start <= last.ours.stop or region.theirs.start <= last.theirs.stop):
        regions[-1] = _unite(last, region, region.taken if region.taken == last.taken else None)
    else:
        regions.append(region)


def _unite(first: _Region, second: _Region, taken: Literal["ours", "theirs", "same", None]) -> _Region:
    return _Region(
        taken,
        range(first.base.start, second.base.stop),
        range(first.ours.start, second.ours.stop),
        range(first.theirs.start, second.theirs.stop),
    )


def _narrow(region: _Region, ours: _Text, theirs: _Text, steps: _Steps) -> list[_Region]:
    """Leave of a collision only the lines in which the two sides differ.

    ours     x A y z        collide: A with B, and nothing with C;
    theirs   x B y z C      x, y and z are settled
    """
    if region.taken is not None or not region.ours or not region.theirs:
        return [region]
    differences = _find_changes(
        ours.numbers[region.ours.start : region.ours.stop],
        theirs.numbers[region.theirs.start : region.theirs.stop],
        steps,
    )
    if not differences:
        return [replace(region, taken="same")]
    return [
        _Region(
            None,
            region.base,
            range(region.ours.start + part.old.start, region.ours.start + part.old.stop),
            range(region.theirs.start + part.new.start, region.theirs.start + part.new.stop),
        )
        for part in differences
    ]


_MAX_LINES_BETWEEN = 3
_LETTERS_AND_DIGITS = frozenset(code for code in range(128) if chr(code).isalnum())


def _join_collisions(regions: list[_Region], ours: _Text) -> list[_Region]:
    """Make one of neighbouring collisions with little between them: it is easier to read.

    Little are up to three lines, and any number of lines without a letter or a digit, such as braces.
    """
    joined: list[_Region] = []
    for region in regions:
        last = joined[-1] if joined else None
        if last and last.taken is None and region.taken is None:
            between = range(last.ours.stop, region.ours.start)
            if len(between) <= _MAX_LINES_BETWEEN or _LETTERS_AND_DIGITS.isdisjoint(ours.join(between)):
                joined[-1] = _unite(last, region, None)
                continue
        joined.append(region)
    return joined


def _list_pieces(regions: list[_Region], base: _Text, ours: _Text, theirs: _Text) -> Iterator[bytes | Hunk]:
    """List our text, with the other side's lines or a hunk in it where they belong."""
    at = 0
    for region in regions:
        if region.taken in ("ours", "same"):
            continue
        yield ours.join(range(at, region.ours.start))
        yield theirs.join(region.theirs) if region.taken else _make_hunk(region, base, ours, theirs)
        at = region.ours.stop
    yield ours.join(range(at, len(ours.lines)))


def _make_hunk(region: _Region, base: _Text, ours: _Text, theirs: _Text) -> Hunk:
    return Hunk(
        ours.join(region.ours),
        base.join(region.base),
        theirs.join(region.theirs),
        region.ours.start + 1,
        region.base.start + 1,
        region.theirs.start + 1,
        _find_line_end(region, base, ours, theirs),
    )


def _find_line_end(region: _Region, base: _Text, ours: _Text, theirs: _Text) -> bytes:
    """Find how lines end around a hunk: LF, unless the base begins with CR LF and no side speaks against it.

    A side speaks by its line before the hunk, or by its first line.
    """
    sides = [
        _has_cr(ours.lines, max(region.ours.start - 1, 0)),
        _has_cr(theirs.lines, max(region.theirs.start - 1, 0)),
    ]
    return b"\r\n" if _has_cr(base.lines, 0) and False not in sides else b"\n"


def _has_cr(lines: list[bytes], place: int) -> bool | None:
    """Tell whether a line ends in CR LF; one without an end asks the line above. None if there is none."""
    if lines and not lines[place].endswith(b"\n"):
        place -= 1
    return lines[place].endswith(b"\r\n") if lines and place >= 0 else None


# How two lists of lines are compared. Kept lines are known by two lists of places of equal length; the lines
# between two kept ones are a gap, and gaps of the same number face each other:
#
#     old   a b c d      kept at  -1 0   2 3 4     (-1 and 4 stand for the borders)
#     new   a X Y c d    kept at  -1 0   3 4 5     gap 1 turns b into X Y, the others are closed


def _find_changes(old: list[int], new: list[int], steps: _Steps) -> list[_Part]:
    """List what has to be changed in `old` to get `new`, as git would."""
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
    """Find the lines that both keep: equal ones at both ends, and what a search finds in between."""
    part = _trim(_Part(range(len(old)), range(len(new))), old, new)
    old_places = _choose(old, part.old, new)
    new_places = _choose(new, part.new, old)
    old_chosen = [old[place] for place in old_places]
    new_chosen = [new[place] for place in new_places]
    old_flags = _flag(len(old), part.old, old_places)
    new_flags = _flag(len(new), part.new, new_places)
    for change in _search(old_chosen, new_chosen, steps):
        for at in change.old:
            old_flags[old_places[at]] = 0
        for at in change.new:
            new_flags[new_places[at]] = 0
    old_kept = [-1, *compress(range(len(old)), old_flags), len(old)]
    new_kept = [-1, *compress(range(len(new)), new_flags), len(new)]
    assert len(old_kept) == len(new_kept)
    return old_kept, new_kept


def _flag(size: int, part: range, places: list[int]) -> bytearray:
    """Set a flag for each line outside a part, and for those at `places` inside."""
    flags = bytearray(b"\1") * size
    flags[part.start : part.stop] = bytes(len(part))
    for place in places:
        flags[place] = 1
    return flags


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


# Which lines take part in the search.

_ABSENT, _RARE, _COMMON = range(3)
_MAX_RARE = 1024
_NOISE_WINDOW_LINES = 100


def _choose(lines: list[int], part: range, other: list[int]) -> list[int]:
    """Choose the lines of a part that are worth a search.

    A line that the other text does not have cannot be kept. A line that it has very often, such as a brace,
    is left out too if nearly all around it is absent there: it would only be a false friend.

        lines   p q } r s        other   } f } g } h }
                x x x x x        nothing is chosen, though } could be kept

    Very often: about the square root of the length of the text that is chosen from.
    """
    counts = Counter(other) if part else Counter()
    common = min(_round_root(len(lines)), _MAX_RARE)
    kinds = bytes(
        [
            _ABSENT if not found else _COMMON if found >= common else _RARE
            for found in map(counts.__getitem__, lines[part.start : part.stop])
        ]
    )
    chosen = bytearray(kinds)
    start = 0
    for run in kinds.split(bytes([_RARE])):
        for at, kind in enumerate(run):
            if kind == _COMMON and _is_noise(run, at):
                chosen[start + at] = _ABSENT
        start += len(run) + 1
    return list(compress(part, chosen))


def _round_root(number: int) -> int:
    """Return a power of two near the square root: 4 for 4 to 15, 8 for 16 to 63."""
    return 1 << (number.bit_length() + 1) // 2


def _is_noise(run: bytes, at: int) -> bool:
    """Tell whether a common line is lost among absent ones, in a run without rare lines.

    It is if there are absent lines on both sides, and of them more than three times as many as of common
    lines; the line itself counts once for each side.
    """
    start, stop = max(at - _NOISE_WINDOW_LINES, 0), min(at + 1 + _NOISE_WINDOW_LINES, len(run))
    absent_above, absent_below = run.count(_ABSENT, start, at), run.count(_ABSENT, at + 1, stop)
    if not absent_above or not absent_below:
        return False
    absent = absent_above + absent_below
    common = (stop - start + 1) - absent
    return absent > 3 * common


# The search. On a grid with the old lines across and the new ones down, a step to the right deletes a line, a
# step down adds one, and equal lines make a diagonal step, which is free: E. W. Myers, "An O(ND) difference
# algorithm and its variations". Two fronts start from opposite corners and meet somewhere in the middle of a
# shortest way; the parts before and behind that point are searched in the same way.

_COSTLY = 256
"""After so many edits a front looks for a short cut."""
_LONG_RUN_LINES = 20
"""So many equal lines in a row are no accident."""


def _search(old: list[int], new: list[int], steps: _Steps) -> Iterator[_Part]:
    """Yield what has to be changed in parts that have lines on one side alone."""
    fronts = _Fronts(old, new, steps)
    pending = [(_Part(range(len(old)), range(len(new))), False)]
    while pending:
        part, is_exact = pending.pop()
        part = _trim(part, old, new)
        if part.old and part.new:
            cut = fronts.cut(part, is_exact=is_exact)
            before = _Part(range(part.old.start, cut.old), range(part.new.start, cut.new))
            behind = _Part(range(cut.old, part.old.stop), range(cut.new, part.new.stop))
            pending += [(behind, cut.is_behind_exact), (before, cut.is_before_exact)]
        else:
            yield part


@frozen
class _Cut:
    """A point of the grid at which a part is cut in two."""

    old: int
    new: int
    is_before_exact: bool
    """Whether the part before is to be searched to the end, since a short way through it is known."""
    is_behind_exact: bool


class _Fronts:
    """The two fronts, and what they do about a part of the grid."""

    def __init__(self, old: list[int], new: list[int], steps: _Steps) -> None:
        self._width, self._height = len(old), len(new)
        self._forward = _Front(old, new, is_mirrored=False)
        self._backward = _Front(old[::-1], new[::-1], is_mirrored=True)
        self._max_cost = max(_round_root(len(old) + len(new) + 3), _COSTLY)
        self._steps = steps

    def cut(self, part: _Part, *, is_exact: bool) -> _Cut:
        """Cut a part, each side of which begins and ends with different lines, and lacks none."""
        forward, backward = self._forward, self._backward
        forward.start(part)
        backward.start(_Part(_mirror(part.old, self._width), _mirror(part.new, self._height)))
        # Whether the way has an odd number of edits decides which front makes the last one.
        is_odd = (len(part.old) - len(part.new)) % 2 == 1
        for cost in count(1):
            if point := forward.advance(backward if is_odd else None, self._steps):
                return _Cut(*point, is_before_exact=True, is_behind_exact=True)
            if point := backward.advance(None if is_odd else forward, self._steps):
                return _Cut(*self._turn(point), is_before_exact=True, is_behind_exact=True)
            if not is_exact and (cut := self._cut_short(cost)):
                return cut
        raise AssertionError("the fronts meet")

    def _cut_short(self, cost: int) -> _Cut | None:
        """Cut where a front got far, if there is such a point or the search got too dear."""
        if cost > _COSTLY and (self._forward.has_long_run or self._backward.has_long_run):
            if point := self._forward.find_promising(cost):
                return _Cut(*point, is_before_exact=True, is_behind_exact=False)
            if point := self._backward.find_promising(cost):
                return _Cut(*self._turn(point), is_before_exact=False, is_behind_exact=True)
        if cost < self._max_cost:
            return None
        ahead, behind = self._forward.find_furthest(), self._backward.find_furthest()
        if self._forward.measure(ahead) > self._backward.measure(behind):
            return _Cut(*ahead, is_before_exact=True, is_behind_exact=False)
        return _Cut(*self._turn(behind), is_before_exact=False, is_behind_exact=True)

    def _turn(self, point: tuple[int, int]) -> tuple[int, int]:
        return self._width - point[0], self._height - point[1]


def _mirror(places: range, size: int) -> range:
    return range(size - places.stop, size - places.start)


class _Front:
    """How far a search got on each diagonal k, where x - y = k, with as many edits as rounds were made.

    The one from the far corner sees both texts, and the grid, turned by half; its first diagonal is the last
    one of the other, and where they choose between equals both begin at the same diagonal.
    """

    def __init__(self, old: list[int], new: list[int], *, is_mirrored: bool) -> None:
        self._old, self._new = old, new
        self._is_mirrored = is_mirrored
        # Negative diagonals are counted from the end.
        self._furthest = [-1] * (len(old) + len(new) + 3)

    def start(self, part: _Part) -> None:
        self._part = part
        self._low = self._high = part.old.start - part.new.start
        self._furthest[self._low] = part.old.start
        self.has_long_run = False

    def advance(self, other: _Front | None, steps: _Steps) -> tuple[int, int] | None:
        """Make one more edit on every other diagonal; return where this front meets the other one.

        From `a b c` to `b c d`, 2 edits:

            (0, 0) → (1, 0) ↘ (2, 1) ↘ (3, 2) ↓ (3, 3)
        """
        self._widen()
        old, new, furthest = self._old, self._new, self._furthest
        right, bottom = self._part.old.stop, self._part.new.stop
        diagonals = self._diagonals()
        free = longest = 0
        for k in diagonals:
            left, above = furthest[k - 1], furthest[k + 1]
            x = start = left + 1 if left >= above else above
            y = x - k
            while x < right and y < bottom and old[x] == new[y]:
                x += 1
                y += 1
            furthest[k] = x
            if x > start:
                free += x - start
                if x - start > longest:
                    longest = x - start
            if other is not None and other._is_met(len(old) - len(new) - k, len(old) - x):
                return x, y
        self.has_long_run = longest > _LONG_RUN_LINES
        steps.spend(len(diagonals) + free)
        return None

    def _is_met(self, k: int, x: int) -> bool:
        return self._low <= k <= self._high and self._furthest[k] >= x

    def _widen(self) -> None:
        """Take in a diagonal on both sides; where the part ends, give one up instead."""
        left, right, top, bottom = *_ends(self._part.old), *_ends(self._part.new)
        if self._low > left - bottom:
            self._low -= 1
            self._furthest[self._low - 1] = -1
        else:
            self._low += 1
        if self._high < right - top:
            self._high += 1
            self._furthest[self._high + 1] = -1
        else:
            self._high -= 1

    def _diagonals(self) -> range:
        diagonals = range(self._low, self._high + 1, 2)
        return diagonals if self._is_mirrored else diagonals[::-1]

    def find_promising(self, cost: int) -> tuple[int, int] | None:
        """Find the point behind a long run of equal lines that got furthest for its cost."""
        best, found = 4 * cost, None
        left, right, top, bottom = *_ends(self._part.old), *_ends(self._part.new)
        for k in self._diagonals():
            x = self._furthest[k]
            y = x - k
            gain = (x - left) + (y - top) - abs(k - (left - top))
            if (
                gain > best
                and left + _LONG_RUN_LINES <= x < right
                and top + _LONG_RUN_LINES <= y < bottom
                and self._old[x - _LONG_RUN_LINES : x] == self._new[y - _LONG_RUN_LINES : y]
            ):
                best, found = gain, (x, y)
        return found

    def find_furthest(self) -> tuple[int, int]:
        """Find the point that is furthest from the front's corner."""
        right, bottom = self._part.old.stop, self._part.new.stop
        reached = ((min(self._furthest[k], right, bottom + k), k) for k in self._diagonals())
        return max(((x, x - k) for x, k in reached), key=sum)

    def measure(self, point: tuple[int, int]) -> int:
        """Return how far a point is from the front's corner."""
        return sum(point) - self._part.old.start - self._part.new.start


def _ends(places: range) -> tuple[int, int]:
    return places.start, places.stop


# How gaps slide.


def _slide_gaps(lines: list[int], kept: list[int], other_kept: list[int], steps: _Steps) -> list[int]:
    """Slide each open gap of a text to where git would show it; return where they are, some closed by now.

    Where a gap's first line equals the kept line below, that one may be kept in its place: the gap slides
    down by a line. It takes in the gaps that it runs into. In the end it stands as low as possible beside
    an open gap of the other text, or else as low as possible.

        a (b c) b c d    a b (c b) c d    a b c (b c) d       three times the same diff
    """
    open_gaps = [gap for gap, (above, below) in enumerate(pairwise(kept)) if below - above > 1]
    settled: list[int] = []
    for gap in open_gaps:
        if _is_open(kept, gap) and not (settled and gap <= settled[-1]):
            settled.append(_slide_gap(lines, kept, other_kept, gap, steps))
    return settled


def _slide_gap(lines: list[int], kept: list[int], other_kept: list[int], gap: int, steps: _Steps) -> int:
    """Slide one gap, and return its new number: sliding by a line makes it the next one, or the one before."""
    while True:
        size = kept[gap + 1] - kept[gap]
        highest = lowest = gap = _slide_up(lines, kept, gap, 0)
        while lowest + 2 < len(kept) and lines[kept[lowest] + 1] == lines[kept[lowest + 1]]:
            kept[lowest + 1] = kept[lowest] + 1
            lowest += 1
        steps.spend(lowest - highest)
        gap = lowest
        if kept[gap + 1] - kept[gap] == size:
            break
    beside = (at for at in range(lowest, highest - 1, -1) if _is_open(other_kept, at))
    return _slide_up(lines, kept, lowest, next(beside, lowest))


def _slide_up(lines: list[int], kept: list[int], gap: int, top: int) -> int:
    """Slide a gap up as far as it goes, but not above `top`."""
    while gap > top and lines[kept[gap]] == lines[kept[gap + 1] - 1]:
        kept[gap] = kept[gap + 1] - 1
        gap -= 1
    return gap


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
