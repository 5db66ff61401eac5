"""Results as rows, and the rows as a table, as JSON and as a picture."""

from __future__ import annotations

import enum
import html
import math
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.contestants import OPENCODE, OURS

BySize = Mapping[int, float]
"""A figure by the number of files; a size without an entry has no target."""
Targets = Mapping[str, BySize]
"""The ratios to reach, by rival."""
Samples = Mapping[str, Sequence[float]]
"""The figures, by contestant."""

HEADINGS = (
    "work",
    "files",
    "target",
    "ratio",
    "shadowtree: median / 95th / worst",
    "rival",
    "its median",
    "verdict",
)
VERDICTS = {True: "reached", False: "MISSED", None: ""}

_BAR_WIDTH = 400
_LABEL_WIDTH = 120
_LINE_HEIGHT = 18
_COLOURS = {OURS: "#2f7d4f"}
_RIVAL_COLOUR = "#8a8f98"


class Unit(enum.StrEnum):
    """The unit of the samples of a row."""

    SECONDS = "s"
    BYTES = "bytes"
    COUNT = "count"

    def show(self, *values: float) -> str:
        """Format values for people: milliseconds, megabytes of 1,000,000 bytes, or as they are."""
        factor, digits, name = {
            Unit.SECONDS: (1e3, 1, " ms"),
            Unit.BYTES: (1e-6, 2, " MB"),
            Unit.COUNT: (1, 0, ""),
        }[self]
        return " / ".join(f"{value * factor:,.{digits}f}" for value in values) + name


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
    """The limit for the worst of our own figures."""
    same_trees: bool = True
    """Whether all contestants named the same tree each time."""
    note: str = ""
    """A note for below the table."""

    @property
    def rivals(self) -> list[str]:
        """The contestants other than shadowtree that have samples."""
        return [name for name in self.samples if name != OURS]

    def median(self, name: str) -> float:
        """Return a contestant's median."""
        return statistics.median(self.samples[name])

    def spread(self) -> tuple[float, float, float]:
        """Return our median, the 95th percentile, and the worst."""
        return spread(self.samples[OURS])

    def ratio(self, rival: str) -> float:
        """Return the rival's median divided by ours: above 1 shadowtree needs less."""
        ours = self.median(OURS)
        return self.median(rival) / ours if ours > 0 else math.inf

    def is_reached(self, rival: str = OURS) -> bool | None:
        """Return whether the target against the rival, or our own limit, is reached; None: none is set."""
        if rival in self.targets:
            return self.ratio(rival) >= self.targets[rival]
        if self.limit is not None:
            return max(self.samples[OURS]) <= self.limit
        return None


def spread(samples: Sequence[float]) -> tuple[float, float, float]:
    """Return the median, the 95th percentile, and the worst."""
    ordered = sorted(samples)
    return statistics.median(ordered), ordered[math.ceil(0.95 * len(ordered)) - 1], ordered[-1]


def at_size(targets: Targets, files: int) -> dict[str, float]:
    """Pick the targets of one size."""
    return {rival: by_size[files] for rival, by_size in targets.items() if files in by_size}


def render_table(rows: Sequence[Row]) -> str:
    """Write the rows as a Markdown table, one line for each rival, and their notes below it."""
    ordered = _by_work(rows)
    lines = [cells for row in ordered for cells in _lines_of(row)]
    notes = [f"{row.work}, {row.files:,} files:\n{row.note}" for row in ordered if row.note]
    return "\n\n".join([_align(HEADINGS, lines), *notes])


def render_figures(rows: Sequence[Row]) -> str:
    """Write the figures to reach as a Markdown table, a line for each work and a column for each size.

    A cell has the figure that was reached, followed by the one to reach.
    """
    sizes = sorted({row.files for row in rows})
    works: dict[str, dict[int, str]] = {}
    for row in rows:
        for rival in [name for name in row.rivals if name == OPENCODE] or [OURS]:
            works.setdefault(row.work, {})[row.files] = _figure(row, rival)
    lines = [(work, *(cells.get(files, "") for files in sizes)) for work, cells in works.items()]
    return _align(("work", *(f"{files:,} files" for files in sizes)), lines)


def to_json(rows: Sequence[Row]) -> dict[str, Any]:  # Any: JSON
    """Return the rows, with all samples, and the machine they were measured on."""
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


def _by_work(rows: Sequence[Row]) -> list[Row]:
    """Group the rows by work, in the order in which works first come, and sort each group by size."""
    works = list(dict.fromkeys(row.work for row in rows))
    return sorted(rows, key=lambda row: (works.index(row.work), row.files))


def _align(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in (headings, *lines)) for column in range(len(headings))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in (headings, rule, *lines)
    )


def _lines_of(row: Row) -> Iterator[tuple[str, ...]]:
    start, ours = (row.work, f"{row.files:,}"), row.unit.show(*row.spread())
    if not row.rivals:
        yield (*start, _target(row, OURS), "", ours, "", "", _verdict(row, OURS))
    for rival in row.rivals:
        ratio, median = f"{row.ratio(rival):.2f}", row.unit.show(row.median(rival))
        yield (*start, _target(row, rival), ratio, ours, rival, median, _verdict(row, rival))


def _figure(row: Row, rival: str) -> str:
    """Write the figure that was reached and the one to reach; for a limit, the worst figure counts."""
    if row.limit is not None or rival == OURS:
        reached = row.unit.show(row.spread()[-1])
    else:
        reached = f"{row.ratio(rival):.2f}"
    target, verdict = _target(row, rival), _verdict(row, rival)
    return f"{reached} ({target}) {verdict}" if target else reached


def _verdict(row: Row, rival: str) -> str:
    return VERDICTS[row.is_reached(rival)] if row.same_trees else "trees differ"


def _target(row: Row, rival: str) -> str:
    if rival in row.targets:
        return f"{row.targets[rival]:.3g}"
    return "" if row.limit is None else f"at most {row.unit.show(row.limit)}"


def _row_to_json(row: Row) -> dict[str, Any]:  # Any: JSON
    return {
        "work": row.work,
        "files": row.files,
        "unit": row.unit.value,
        "samples": {name: list(samples) for name, samples in row.samples.items()},
        "medians": {name: row.median(name) for name in row.samples},
        "spread": dict(zip(("median", "95th", "worst"), row.spread(), strict=True)),
        "ratios": {rival: row.ratio(rival) for rival in row.rivals},
        "targets": dict(row.targets),
        "limit": row.limit,
        "reached": {name: row.is_reached(name) for name in row.rivals or [OURS]},
        "same_trees": row.same_trees,
        "note": row.note,
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
