"""Three-way merge by lines: combines the changes that two sides made to a common base.

The result is that of `git merge-file`, byte for byte, and two sides collide exactly where git reports a
conflict, because people know what git merges. A correct diff is not enough for that: of several correct diffs
it has to be the one that git finds. So lines are left out, searches are cut short and changes slide by git's
rules, which are described where they are used. Only the limit is our own: texts that would take too long are
not merged at all, rather than merged in another way.
"""

from __future__ import annotations

from collections.abc import Iterator

from shadowtree.base.frozen import frozen, replace
from shadowtree.text.linediff import (
    MAX_STEPS,
    OutOfStepsError,
    Part,
    Steps,
    Text,
    find_changes,
    is_binary,
    is_too_large,
    split_texts,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal


@frozen
class Collision:
    """A place where the texts collide: both sides changed it differently."""

    ours: bytes
    base: bytes
    """The lines of the base. If a collision was narrowed to several, each of them has all of these lines."""
    theirs: bytes
    ours_line: int
    """The number of the first line of `ours`, from 1; if `ours` is empty, of the line that would follow."""
    line_end: bytes
    """The line ending that is used here, also for marker lines."""


@frozen
class Merge:
    """A merged text: settled pieces, and collisions that somebody has to settle."""

    pieces: tuple[bytes | Collision, ...]
    """In the order of the text."""

    @property
    def collisions(self) -> list[Collision]:
        """The places where the texts collide."""
        return [piece for piece in self.pieces if isinstance(piece, Collision)]

    @property
    def content(self) -> bytes | None:
        """The merged text; None if there are collisions."""
        settled = [piece for piece in self.pieces if isinstance(piece, bytes)]
        return b"".join(settled) if len(settled) == len(self.pieces) else None


@frozen
class NotMerged:
    """Texts that could not be compared; it is unknown whether they collide."""

    reason: Literal["binary", "too large", "too different"]


def merge_text(base: bytes, ours: bytes, theirs: bytes, *, max_steps: int = MAX_STEPS) -> Merge | NotMerged:
    """Merge the changes that two sides made to `base`.

    Binary and large contents are not merged, not even equal ones: the caller compares ids first. `max_steps`
    limits the time; it never changes the result of a merge.
    """
    contents = (base, ours, theirs)
    if any(map(is_binary, contents)):
        return NotMerged("binary")
    if any(map(is_too_large, contents)):
        return NotMerged("too large")
    try:
        return _merge_lines(_Texts(*split_texts(*contents)), Steps(max_steps))
    except OutOfStepsError:
        return NotMerged("too different")


def write_markers(merge: Merge, *, ours_label: str, theirs_label: str) -> bytes:
    """Write a merge as one text, with both sides of each collision between marker lines, as git does."""
    ours, theirs = (label.encode("utf-8", "surrogateescape") for label in (ours_label, theirs_label))
    text: list[bytes] = []
    for piece in merge.pieces:
        if isinstance(piece, bytes):
            text.append(piece)
            continue
        end = piece.line_end
        text += [b"<<<<<<< " + ours + end, _end_line(piece.ours, end), b"=======" + end]
        text += [_end_line(piece.theirs, end), b">>>>>>> " + theirs + end]
    return b"".join(text)


def _end_line(part: bytes, line_end: bytes) -> bytes:
    return part if not part or part.endswith(b"\n") else part + line_end


# Merging. A run of lines is a range of line indexes.


@frozen
class _Texts:
    base: Text
    ours: Text
    theirs: Text


@frozen
class _Region:
    """A place where a side changed something, in all three texts."""

    taken: Literal["ours", "theirs", "same", None]
    """Whose lines are taken: "same" if both sides have the same lines, None if they collide."""
    base: range
    ours: range
    theirs: range


def _merge_lines(texts: _Texts, steps: Steps) -> Merge:
    our_changes = find_changes(texts.base.numbers, texts.ours.numbers, steps)
    their_changes = find_changes(texts.base.numbers, texts.theirs.numbers, steps)
    regions = _combine(texts, our_changes, their_changes)
    narrowed = [part for region in regions for part in _narrow(texts, region, steps)]
    pieces = _list_pieces(texts, _join_collisions(texts, narrowed))
    return Merge(tuple(piece for piece in pieces if piece))


def _combine(texts: _Texts, our_changes: list[Part], their_changes: list[Part]) -> list[_Region]:
    """Combine the changes of both sides into regions.

    Changes that are separated by a line of the base are independent. Changes that overlap or touch collide,
    unless both sides changed the same lines in the same way. Such a change makes no region: our text already
    has it, and a merge is our text with some regions replaced.

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


def _end_of(base: Text, side: Text) -> Part:
    """Return an empty change at the end of the texts."""
    return Part(_move(range(0), len(base.lines)), _move(range(0), len(side.lines)))


def _project(base: range, change: Part) -> range:
    """Find lines of the base on the side that has not changed them; `change` is that side's next change."""
    return _move(base, change.new.start - change.old.start)


def _move(places: range, by: int) -> range:
    return range(places.start + by, places.stop + by)


def _collide(our: Part, their: Part) -> _Region:
    """Make one region of two changes, with all lines of the base that either of them covers.

    If ours replaces b c by X, and theirs replaces c d by Y, then X d collides with b Y:

        base   a b c d e      ours   a X d e      theirs   a b Y e
    """
    base = range(min(our.old.start, their.old.start), max(our.old.stop, their.old.stop))
    return _Region(None, base, _stretch(our, base), _stretch(their, base))


def _stretch(change: Part, base: range) -> range:
    above, below = change.old.start - base.start, base.stop - change.old.stop
    return range(change.new.start - above, change.new.stop + below)


def _append(regions: list[_Region], region: _Region) -> None:
    """Append a region, or unite it with the last one if they touch on either side."""
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


def _narrow(texts: _Texts, region: _Region, steps: Steps) -> list[_Region]:
    """Narrow a collision to the lines in which the two sides differ; it may become several.

    Here A collides with B, and an empty run with C:

        ours   x A y z      theirs   x B y z C
    """
    if region.taken is not None or not region.ours or not region.theirs:
        return [region]
    differences = find_changes(texts.ours.take(region.ours), texts.theirs.take(region.theirs), steps)
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
    """Join neighbouring collisions with little between them, which makes them easier to read.

    Up to three lines are little, and so is any number of lines without a letter or a digit, such as braces.
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


def _list_pieces(texts: _Texts, regions: list[_Region]) -> Iterator[bytes | Collision]:
    """Yield the pieces of our text, with their lines or a collision where these belong."""
    at = 0
    for region in regions:
        if region.taken in ("ours", "same"):
            continue
        yield texts.ours.join(range(at, region.ours.start))
        yield texts.theirs.join(region.theirs) if region.taken else _make_collision(texts, region)
        at = region.ours.stop
    yield texts.ours.join(range(at, len(texts.ours.lines)))


def _make_collision(texts: _Texts, region: _Region) -> Collision:
    return Collision(
        ours=texts.ours.join(region.ours),
        base=texts.base.join(region.base),
        theirs=texts.theirs.join(region.theirs),
        ours_line=region.ours.start + 1,
        line_end=_find_line_end(texts, region),
    )


def _find_line_end(texts: _Texts, region: _Region) -> bytes:
    """Find the line ending for a collision: CR LF if the base's first line has it and no side differs, or LF.

    On each side, the line before the collision counts, or the first line if there is none before it.
    """
    our_answer = _ends_in_crlf(texts.ours.lines, max(region.ours.start - 1, 0))
    their_answer = _ends_in_crlf(texts.theirs.lines, max(region.theirs.start - 1, 0))
    is_crlf = _ends_in_crlf(texts.base.lines, 0) and our_answer is not False and their_answer is not False
    return b"\r\n" if is_crlf else b"\n"


def _ends_in_crlf(lines: list[bytes], place: int) -> bool | None:
    """Return whether a line ends in CR LF, or the one above if it has no end; None if there is no line."""
    if lines and not lines[place].endswith(b"\n"):
        place -= 1
    return lines[place].endswith(b"\r\n") if lines and place >= 0 else None
