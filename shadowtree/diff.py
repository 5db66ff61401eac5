"""Textual diffs: two contents in, a patch in git's format out.

A patch is text for people and for JSON. Bytes that are no UTF-8 become U+FFFD in it, so that it can always
be printed and encoded; of UTF-8 it is exact, and `git apply` turns the old content into the new one. Files
are never restored from a patch.

The lines that both sides keep are found in bounded time: up to a budget by the shortest way to edit one
side into the other, beyond it by the lines that each side has once. Where both fail, all in between is
replaced. The budget decides how short a patch is, never whether it is right.
"""

from __future__ import annotations

import stat
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise

MAX_DIFF_BYTES = 2 * 1024 * 1024
"""A content above this, on either side, is not compared."""
MAX_DIFF_LINES = 200_000
"""Nor is one of more lines."""

_BINARY_WINDOW_BYTES = 8000
"""A NUL among so many first bytes makes a content binary, as in git."""
_CONTEXT_LINES = 3
_MAX_STEPS = 4_000_000
"""How many points the searches of one diff may visit in all: about two seconds."""
_MAX_SEARCH_STEPS = 1_000_000
"""How many points one search may visit: enough for 1,400 changed lines anywhere."""
_MAX_DEPTH = 16
"""How often a part is split again at unique lines; each time takes about as long as reading it."""


@dataclass(frozen=True, slots=True)
class TextDiff:
    """How two contents of one path differ."""

    additions: int
    deletions: int
    binary: bool
    """The contents differ, and one of them is no text."""
    patch: str
    """Empty if nothing differs, if `binary`, and for contents too large to compare; the counts are then 0."""


def diff_text(
    path: str, old: bytes | None, new: bytes | None, *, old_mode: int | None, new_mode: int | None
) -> TextDiff:
    """Compare two contents of `path`; None is an absent one, and has no mode.

    The content of a link is its target. A mode is written with all its permission bits, though git knows
    but one of them. A file that became a link is deleted and made anew, as in git.
    """
    assert (old is None) == (old_mode is None)
    assert (new is None) == (new_mode is None)
    if (old, old_mode) == (new, new_mode):
        return TextDiff(0, 0, binary=False, patch="")
    if old_mode is not None and new_mode is not None and stat.S_IFMT(old_mode) != stat.S_IFMT(new_mode):
        gone = diff_text(path, old, None, old_mode=old_mode, new_mode=None)
        made = diff_text(path, None, new, old_mode=None, new_mode=new_mode)
        return _join(gone, made)
    header = _format_header(path, old_mode, new_mode)
    if old == new:
        return TextDiff(0, 0, binary=False, patch=header)
    if _is_binary(old) or _is_binary(new):
        return TextDiff(0, 0, binary=True, patch="")
    if _is_too_large(old) or _is_too_large(new):
        return TextDiff(0, 0, binary=False, patch="")
    old_lines, new_lines = _split_lines(old), _split_lines(new)
    changes = list(_list_changes(match_lines(old_lines, new_lines), len(new_lines)))
    if changes:  # none: an empty file came or went
        header += _format_names(path, old_mode, new_mode)
    return TextDiff(
        additions=sum(change.new_end - change.new_start for change in changes),
        deletions=sum(change.old_end - change.old_start for change in changes),
        binary=False,
        patch=header + b"".join(_format_hunks(changes, old_lines, new_lines)).decode("utf-8", "replace"),
    )


def match_lines(old: Sequence[bytes], new: Sequence[bytes]) -> list[int | None]:
    """Find the lines that both sides keep: for each old line its place among the new ones, or None.

    The places ascend. A part is compared thus: equal lines at its two ends match; the shortest way to edit
    what is left is searched; if that takes too long, unique lines match, and each part between two of
    them is compared in the same way.
    """
    numbers: dict[bytes, int] = {}
    old_ids = [numbers.setdefault(line, len(numbers)) for line in old]
    new_ids = [numbers.setdefault(line, len(numbers)) for line in new]
    places: list[int | None] = [None] * len(old)
    pending = [(_Part(0, len(old), 0, len(new)), 0)]
    steps_left = _MAX_STEPS
    while pending:
        part, depth = pending.pop()
        part = _match_ends(part, old_ids, new_ids, places)
        # A line that only one side has cannot be kept: the search goes without it.
        old_at, new_at = _find_shared(part, old_ids, new_ids)
        old_shared, new_shared = [old_ids[at] for at in old_at], [new_ids[at] for at in new_at]
        pairs, steps = _search_shortest(old_shared, new_shared, min(steps_left, _MAX_SEARCH_STEPS))
        steps_left -= steps
        if pairs is None and depth < _MAX_DEPTH:
            pairs = _match_unique(old_shared, new_shared)
            kept = [(old_at[x], new_at[y]) for x, y in pairs]
            pending += [(between, depth + 1) for between in _split(part, kept)]
        for x, y in pairs or ():
            places[old_at[x]] = new_at[y]
    return places


@dataclass(frozen=True, slots=True)
class _Part:
    """A run of old lines, up to but without `old_end`, and the run of new lines at the same place."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


# How lines are matched.


def _match_ends(part: _Part, old: list[int], new: list[int], places: list[int | None]) -> _Part:
    """Match the equal lines at both ends of a part; return what is left between them."""
    old_start, old_end, new_start, new_end = part.old_start, part.old_end, part.new_start, part.new_end
    while old_start < old_end and new_start < new_end and old[old_start] == new[new_start]:
        places[old_start] = new_start
        old_start += 1
        new_start += 1
    while old_start < old_end and new_start < new_end and old[old_end - 1] == new[new_end - 1]:
        old_end -= 1
        new_end -= 1
        places[old_end] = new_end
    return _Part(old_start, old_end, new_start, new_end)


def _find_shared(part: _Part, old: list[int], new: list[int]) -> tuple[list[int], list[int]]:
    """Find the old and the new lines of a part that the other side has too."""
    old_here = set(old[part.old_start : part.old_end])
    new_here = set(new[part.new_start : part.new_end])
    return (
        [at for at in range(part.old_start, part.old_end) if old[at] in new_here],
        [at for at in range(part.new_start, part.new_end) if new[at] in old_here],
    )


def _split(part: _Part, kept: list[tuple[int, int]]) -> list[_Part]:
    """List the parts before, between and after kept lines that have lines on both sides."""
    if not kept:
        return []
    borders = [(part.old_start - 1, part.new_start - 1), *kept, (part.old_end, part.new_end)]
    return [
        _Part(old_before + 1, old_after, new_before + 1, new_after)
        for (old_before, new_before), (old_after, new_after) in pairwise(borders)
        if old_before + 1 < old_after and new_before + 1 < new_after
    ]


def _search_shortest(
    old: list[int], new: list[int], max_steps: int
) -> tuple[list[tuple[int, int]] | None, int]:
    """Search the shortest way to edit `old` into `new`: the pairs that it keeps, and the steps it took.

    The pairs are None if `max_steps` are not enough. This is the greedy search of E. W. Myers. On a grid
    with the old lines across and the new ones down, a step to the right deletes a line, a step down adds
    one, and equal lines make a diagonal step, which is free. The diagonal k is where x - y = k. Each
    further edit reaches every other diagonal further: from a neighbour by one step, then as far as it is
    free. From `a b c` to `b c d`, 2 edits, kept (1, 0) and (2, 1):

        (0, 0) → (1, 0) ↘ (2, 1) ↘ (3, 2) ↓ (3, 3)
    """
    width, height = len(old), len(new)
    # Negative diagonals are counted from the end; -1 stands for not reached.
    furthest = [-1] * (width + height + 3)
    furthest[1] = 0
    rows: list[array[int]] = []
    steps = 0
    while steps <= max_steps:
        diagonals = _list_diagonals(len(rows), width, height)
        for k in diagonals:
            above, x = furthest[k + 1], furthest[k - 1] + 1
            x = start = above if above > x else x  # max() would cost a third of the time
            y = x - k
            while x < width and y < height and old[x] == new[y]:
                x += 1
                y += 1
            furthest[k] = x
            steps += x - start
        steps += len(diagonals)
        rows.append(array("i", [furthest[k] for k in diagonals]))
        if furthest[width - height] == width:
            return _trace_back(rows, width, height), steps
    return None, steps


def _list_diagonals(edits: int, width: int, height: int) -> range:
    """List the diagonals that so many edits can reach inside the grid: each border turns them back."""
    return range(edits - 2 * min(edits, height), 2 * min(edits, width) - edits + 1, 2)


def _trace_back(rows: list[array[int]], width: int, height: int) -> list[tuple[int, int]]:
    """List the pairs on the way that led to the last corner, the last first."""
    pairs: list[tuple[int, int]] = []
    x, k = width, width - height
    for edits in range(len(rows) - 1, 0, -1):
        diagonals = _list_diagonals(edits - 1, width, height)
        before = rows[edits - 1]
        above = before[diagonals.index(k + 1)] if k + 1 in diagonals else -1
        left = before[diagonals.index(k - 1)] if k - 1 in diagonals else -1
        start = max(above, left + 1)
        pairs += [(at, at - k) for at in range(x - 1, start - 1, -1)]
        x, k = (above, k + 1) if above > left else (left, k - 1)
    pairs += [(at, at) for at in range(x - 1, -1, -1)]
    return pairs


def _match_unique(old: list[int], new: list[int]) -> list[tuple[int, int]]:
    """Match the most lines that each side has exactly once and that are in the same order on both."""
    old_counts, new_counts = Counter(old), Counter(new)
    new_places = {line: at for at, line in enumerate(new) if new_counts[line] == 1}
    return _keep_ascending(
        [
            (at, new_places[line])
            for at, line in enumerate(old)
            if old_counts[line] == 1 and line in new_places
        ]
    )


def _keep_ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Keep the most pairs whose second numbers ascend, as their first ones do.

    A chain is extended as in the game of patience: each pair goes onto the first pile whose top is not
    smaller, and remembers the top of the pile before.

        3 1 2 4    piles: 3→1, 2, 4    kept: 1 2 4
    """
    tops: list[int] = []
    top_pairs: list[int] = []
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        pile = bisect_left(tops, place)
        before.append(top_pairs[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [place]
        top_pairs[pile : pile + 1] = [number]
    kept: list[tuple[int, int]] = []
    number = top_pairs[-1] if top_pairs else -1
    while number >= 0:
        kept.append(pairs[number])
        number = before[number]
    return kept[::-1]


# How a patch is written.


def _is_binary(content: bytes | None) -> bool:
    return content is not None and b"\0" in content[:_BINARY_WINDOW_BYTES]


def _is_too_large(content: bytes | None) -> bool:
    return content is not None and (len(content) > MAX_DIFF_BYTES or content.count(b"\n") > MAX_DIFF_LINES)


def _split_lines(content: bytes | None) -> list[bytes]:
    # Not splitlines(): for it a carriage return ends a line too.
    return BytesIO(content or b"").readlines()


def _join(gone: TextDiff, made: TextDiff) -> TextDiff:
    if not (gone.patch and made.patch):
        return TextDiff(0, 0, binary=gone.binary or made.binary, patch="")
    return TextDiff(made.additions, gone.deletions, binary=False, patch=gone.patch + made.patch)


def _list_changes(places: list[int | None], new_count: int) -> Iterator[_Part]:
    """List what lies between the kept lines."""
    old_start = new_start = 0
    for at, place in [*enumerate(places), (len(places), new_count)]:
        if place is None:
            continue
        if old_start < at or new_start < place:
            yield _Part(old_start, at, new_start, place)
        old_start, new_start = at + 1, place + 1


def _format_header(path: str, old_mode: int | None, new_mode: int | None) -> str:
    header = f"diff --git {_quote('a/' + path)} {_quote('b/' + path)}\n"
    if old_mode is None:
        return f"{header}new file mode {new_mode:06o}\n"
    if new_mode is None:
        return f"{header}deleted file mode {old_mode:06o}\n"
    if old_mode != new_mode:
        return f"{header}old mode {old_mode:06o}\nnew mode {new_mode:06o}\n"
    return header


def _format_names(path: str, old_mode: int | None, new_mode: int | None) -> str:
    # The tab tells `patch` where a name with a blank ends.
    end = "\t\n" if " " in path else "\n"
    old_name = "/dev/null\n" if old_mode is None else _quote("a/" + path) + end
    new_name = "/dev/null\n" if new_mode is None else _quote("b/" + path) + end
    return f"--- {old_name}+++ {new_name}"


_ESCAPES = {ord(char): "\\" + name for char, name in zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True)}
_ESCAPES |= {code: f"\\{code:03o}" for code in (*range(0x20), 0x7F) if code not in _ESCAPES}
_ESCAPES |= {0xDC00 + byte: f"\\{byte:03o}" for byte in range(0x80, 0x100)}
"""How a name is written in quotes; a byte that is no UTF-8 came as a surrogate escape."""


def _quote(name: str) -> str:
    quoted = name.translate(_ESCAPES)
    return name if quoted == name else f'"{quoted}"'


def _format_hunks(changes: list[_Part], old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    for group in _group(changes):
        before = min(_CONTEXT_LINES, group[0].old_start)
        after = min(_CONTEXT_LINES, len(old) - group[-1].old_end)
        old_range = _format_range(group[0].old_start - before, group[-1].old_end + after)
        new_range = _format_range(group[0].new_start - before, group[-1].new_end + after)
        yield f"@@ -{old_range} +{new_range} @@\n".encode("ascii")
        at = group[0].old_start - before
        for change in group:
            yield from _format_lines(b" ", old[at : change.old_start])
            yield from _format_lines(b"-", old[change.old_start : change.old_end])
            yield from _format_lines(b"+", new[change.new_start : change.new_end])
            at = change.old_end
        yield from _format_lines(b" ", old[at : at + after])


def _group(changes: list[_Part]) -> list[list[_Part]]:
    """Put changes into one hunk whose contexts touch."""
    groups: list[list[_Part]] = []
    for change in changes:
        if groups and change.old_start - groups[-1][-1].old_end <= 2 * _CONTEXT_LINES:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _format_range(start: int, end: int) -> str:
    """Write a range as git does: its first line, or the one before if it is empty, and how many lines."""
    if end - start == 1:
        return str(end)
    return f"{start + (end > start)},{end - start}"


def _format_lines(mark: bytes, lines: list[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + line
        if not line.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"
