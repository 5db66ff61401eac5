"""Results as rows, and the rows as a table, as JSON and as a picture."""

from __future__ import annotations

import enum
import html
import os
import platform
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contestants import OURS

BySize = Mapping[int, float]
"""Number of files to a figure; a size without an entry has no target."""
Targets = Mapping[str, BySize]
"""A rival to the ratios that are to be reached against it."""
Samples = Mapping[str, Sequence[float]]
"""A contestant to its figures."""

HEADINGS = ("work", "files", "shadowtree", "rival", "its figure", "ratio", "target", "verdict")

_BAR_WIDTH = 400
_LABEL_WIDTH = 120
_LINE_HEIGHT = 18
_COLOURS = {OURS: "#2f7d4f"}
_RIVAL_COLOUR = "#8a8f98"


class Unit(enum.StrEnum):
    """What the samples of a row are."""

    SECONDS = "s"
    BYTES = "bytes"
    COUNT = "count"

    def show(self, value: float) -> str:
        """Write a value for people: milliseconds, megabytes of 1,000,000 bytes, or as it is."""
        if self is Unit.COUNT:
            return f"{value:,.0f}"
        factor, name = (1e3, "ms") if self is Unit.SECONDS else (1e-6, "MB")
        return f"{value * factor:,.1f} {name}"


@dataclass(frozen=True, slots=True)
class Row:
    """One work at one size, measured with every contestant."""

    work: str
    files: int
    unit: Unit
    samples: Samples
    """By contestant; ours is always there."""
    targets: Mapping[str, float] = field(default_factory=dict)
    """The least ratio to reach, by rival."""
    limit: float | None = None
    """What our own median must stay under."""
    same_trees: bool = True
    """Whether all contestants named the same tree each time."""
    most_growth: float | None = None
    """How many times as much shadowtree may need for the largest tree as for the smallest."""

    @property
    def rivals(self) -> list[str]:
        """The contestants other than shadowtree that have samples."""
        return [name for name in self.samples if name != OURS]

    def median(self, name: str) -> float:
        """Return a contestant's median."""
        return statistics.median(self.samples[name])

    def ratio(self, rival: str) -> float:
        """Return the rival's median divided by ours: above 1 shadowtree needs less."""
        return self.median(rival) / self.median(OURS)

    def is_reached(self, rival: str = OURS) -> bool | None:
        """Tell whether the target against the rival, or our own limit, is reached; None where none is set."""
        if rival in self.targets:
            return self.ratio(rival) >= self.targets[rival]
        if self.limit is not None:
            return self.median(OURS) < self.limit
        return None


def at_size(targets: Targets, files: int) -> dict[str, float]:
    """Pick the targets of one size."""
    return {rival: by_size[files] for rival, by_size in targets.items() if files in by_size}


def compare_sizes(rows: Sequence[Row]) -> list[Row]:
    """Set the largest tree beside the smallest one, in each work that must not grow with the tree."""
    by_work: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.files):
        if row.most_growth is not None:
            by_work[row.work].append(row)
    return [_compare(same[0], same[-1]) for same in by_work.values() if same[0].files < same[-1].files]


def render_table(rows: Sequence[Row]) -> str:
    """Write the rows as a Markdown table with aligned columns, one line for each rival."""
    lines = [HEADINGS, *(cells for row in rows for cells in _lines_of(row))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    rule = tuple("-" * width for width in widths)
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (lines[0], rule, *lines[1:])
    )


def to_json(rows: Sequence[Row]) -> dict[str, Any]:  # Any: JSON
    """Give the rows, with all samples, and the machine they were measured on."""
    return {"machine": _describe_machine(), "rows": [_row_to_json(row) for row in rows]}


def render_plot(rows: Sequence[Row]) -> str:
    """Draw the rows as an SVG: a group of bars for each, the longest one being its largest median."""
    height = sum((len(row.samples) + 2) * _LINE_HEIGHT for row in rows) + _LINE_HEIGHT
    width = _BAR_WIDTH + 2 * _LABEL_WIDTH
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif"'
        ' font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    top = _LINE_HEIGHT
    for row in rows:
        parts += _draw_group(row, top)
        top += (len(row.samples) + 2) * _LINE_HEIGHT
    return "\n".join([*parts, "</svg>", ""])


def _compare(smallest: Row, largest: Row) -> Row:
    assert largest.most_growth is not None
    rival = f"at {smallest.files:,} files"
    return Row(
        f"{largest.work}: growth",
        largest.files,
        largest.unit,
        {OURS: largest.samples[OURS], rival: smallest.samples[OURS]},
        {rival: 1 / largest.most_growth},
        same_trees=smallest.same_trees and largest.same_trees,
    )


def _lines_of(row: Row) -> Iterator[tuple[str, ...]]:
    verdicts = {True: "reached", False: "MISSED", None: ""}
    start = (row.work, f"{row.files:,}", row.unit.show(row.median(OURS)))
    if not row.rivals:
        yield (*start, "", "", "", _target(row, OURS), verdicts[row.is_reached()])
    for rival in row.rivals:
        verdict = verdicts[row.is_reached(rival)] if row.same_trees else "trees differ"
        figure = row.unit.show(row.median(rival))
        yield (*start, rival, figure, f"{row.ratio(rival):.2f}", _target(row, rival), verdict)


def _target(row: Row, rival: str) -> str:
    if rival in row.targets:
        return f"{row.targets[rival]:.3g}"
    return "" if row.limit is None else f"under {row.unit.show(row.limit)}"


def _row_to_json(row: Row) -> dict[str, Any]:  # Any: JSON
    return {
        "work": row.work,
        "files": row.files,
        "unit": row.unit.value,
        "samples": {name: list(samples) for name, samples in row.samples.items()},
        "medians": {name: row.median(name) for name in row.samples},
        "ratios": {rival: row.ratio(rival) for rival in row.rivals},
        "targets": dict(row.targets),
        "limit": row.limit,
        "reached": {name: row.is_reached(name) for name in row.rivals or [OURS]},
        "same_trees": row.same_trees,
    }


def _describe_machine() -> dict[str, Any]:  # Any: JSON
    git = subprocess.run(["git", "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "git": git.removeprefix("git version "),
    }


def _draw_group(row: Row, top: int) -> Iterator[str]:
    yield f'<text x="8" y="{top}" font-weight="bold">{html.escape(row.work)}, {row.files:,} files</text>'
    largest = max(row.median(name) for name in row.samples) or 1
    for number, name in enumerate(row.samples, start=1):
        y = top + number * _LINE_HEIGHT
        length = row.median(name) / largest * _BAR_WIDTH
        colour = _COLOURS.get(name, _RIVAL_COLOUR)
        yield f'<text x="8" y="{y}">{html.escape(name)}</text>'
        yield f'<rect x="{_LABEL_WIDTH}" y="{y - 11}" width="{length:.1f}" height="13" fill="{colour}"/>'
        yield f'<text x="{_LABEL_WIDTH + length + 5:.1f}" y="{y}">{row.unit.show(row.median(name))}</text>'
