"""Line counts of changes, and the lines of a file with their authors, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shadowtree.cli.format import align_rows, count, describe_age, escape, escape_line
from shadowtree.cli.output import paint
from shadowtree.cli.views.status import describe_diff
from shadowtree.results.messages import BlameLine, FileDiff, join_renames

_ORIGINS = {
    "outside": "outside any message",
    "forgotten": "a forgotten message",
    "first": "before the first message",
    "unrecorded": "not recorded yet",
    "unknown": "unknown",
}
"""What is shown in place of the id of a message."""


def render_stat(diffs: Sequence[FileDiff]) -> Iterator[str]:
    """Yield a row for each file with its line counts, and then the totals."""
    joined = join_renames(diffs)
    if not joined:
        return
    rows = []
    for each in joined:
        letter, _, path = describe_diff(each)
        counts = f"+{each.additions} -{each.deletions}"
        if each.binary or not (each.patch or each.renamed_from):
            counts = "binary" if each.binary else "too large to compare"
        rows.append((letter, path, counts))
    for each, (letter, *rest) in zip(joined, align_rows(rows, "<<<"), strict=True):
        _, colour, _ = describe_diff(each)
        yield f"{paint(colour, letter)} {'  '.join(rest)}".rstrip()
    added, removed = sum(each.additions for each in joined), sum(each.deletions for each in joined)
    yield f"{count(len(joined), 'file')} changed, {count(added, 'line')} added, {removed:,} removed"


def render_blame_lines(lines: Sequence[BlameLine], names: Mapping[str, str], *, now_ms: int) -> Iterator[str]:
    """Yield a row for each line of a file: its number, its age, its author, and the line itself.

    `names` maps ids to their short forms.
    """
    rows = []
    for line in lines:
        is_now = line.origin == "unrecorded"
        age = "now" if is_now else "" if line.time_ms is None else describe_age(now_ms - line.time_ms)
        author = _ORIGINS.get(line.origin, "")
        if line.message is not None:
            author = escape(names.get(line.message.id, line.message.id))
        rows.append((str(line.number), age, author))
    for line, row in zip(lines, align_rows(rows, ">><"), strict=True):
        yield f"{paint('dim', '  '.join(row))}  {escape_line(line.text)}".rstrip()
