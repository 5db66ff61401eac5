"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import trees
from benchmarks.area import Area
from benchmarks.measure import Effort
from benchmarks.report import Row, render_figures, render_plot, render_table, to_json
from benchmarks.works import WORKS, Work

DESCRIPTION = """\
Measure shadowtree beside what else could do its work, in one run on one machine.

works (those with a * have figures to reach, and make the table):
{works}

rivals:
  OpenCode        the sequence of git commands that OpenCode issues for a snapshot or a revert
  git add         `git add -A` and `git write-tree` with a separate GIT_DIR
  python -c pass  the bare start of Python, for the one-shot command
  10 messages     shadowtree itself after a short history, for the switch
  track           shadowtree's scan of the unchanged worktree, which every act begins with
  early message   shadowtree itself at the beginning of its history
  shadowtree log  the list without the screen, for the picker

The ratio is the rival's median divided by shadowtree's: above 1, shadowtree needs less time, memory or
room. A target is the ratio that should be reached, or what the worst of shadowtree's own figures should
not exceed. Nothing rests between a change and its record."""

EPILOG = """\
the table of figures to reach, and parts of it:
  python -m benchmarks --table --sizes 1000 10000 --runs 40
  python -m benchmarks --sizes 10000 --only series
  python -m benchmarks --sizes 10000 --only growth --only gc

docs/benchmarks.md tells how each work is measured. OpenCode's first snapshot of 100,000 files in a folder
takes some 400 s: from 50,000 on it is taken once, or with --skip-slow not at all."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the chosen works and print the table."""
    options = _parser().parse_args(arguments)
    works = [work for work in WORKS if _is_wanted(work, options)]
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=options.work) as work_area:
        rows = _measure(Path(work_area).resolve(), works, options)
        # Printed before the area is removed, which takes minutes if it is large.
        _tell(rows, options)
    return 0


def _is_wanted(work: Work, options: argparse.Namespace) -> bool:
    if options.only:
        return work.name in options.only
    return work.is_in_table or not options.table


def _tell(rows: Sequence[Row], options: argparse.Namespace) -> None:
    parts = [render_table(rows), render_figures(rows)] if options.table else [render_table(rows)]
    print("\n\n".join(parts), flush=True)
    if options.json:
        options.json.write_text(json.dumps(to_json(rows), indent=2) + "\n")
    if options.plot:
        options.plot.write_text(render_plot(rows))


def _measure(root: Path, works: Sequence[Work], options: argparse.Namespace) -> list[Row]:
    rows = []
    sizes = options.sizes if options.tree is None else [len(trees.list_files(options.tree))]
    for files in sizes:
        area = Area(root / str(files), files=files, tree=options.tree, settle_s=options.settle)
        effort = Effort(
            runs=options.runs or (40 if files <= 20_000 else 15),
            long_runs=options.long_runs,
            only_targets=options.table,
            skip_slow=options.skip_slow,
            idle_s=options.idle,
            messages=options.messages,
        )
        for work in works:
            print(f"{files:,} files: {work.summary}", file=sys.stderr, flush=True)
            rows += work.measure(area, files, effort)
    return rows


def _parser() -> argparse.ArgumentParser:
    works = [f"{'*' if work.is_in_table else ' '} {work.name:<15} {work.summary}" for work in WORKS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=DESCRIPTION.format(works="\n".join(works)),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--sizes",
        type=_positive,
        nargs="+",
        default=[1_000, 10_000],
        metavar="N",
        help="files of the trees (1000 10000)",
    )
    add("--tree", type=Path, metavar="DIR", help="measure on a copy of this directory instead")
    add(
        "--table",
        action="store_true",
        help="measure what has figures to reach, and print them by size below the rest",
    )
    add(
        "--only",
        action="append",
        choices=[work.name for work in WORKS],
        help="this work alone; may be repeated",
    )
    add("--runs", type=_positive, metavar="N", help="runs of each work (40 up to 20,000 files, else 15)")
    add(
        "--long-runs",
        type=_positive,
        default=3,
        metavar="N",
        help="runs of what takes long: first snapshots, growth, thousandth, gc (3)",
    )
    add(
        "--skip-slow",
        action="store_true",
        help="leave out OpenCode's first snapshot of 50,000 files and more",
    )
    add(
        "--settle",
        type=float,
        default=2.1,
        metavar="S",
        help="seconds that a new tree rests before the first record of it (2.1)",
    )
    add(
        "--idle",
        type=float,
        default=5,
        metavar="S",
        help="seconds that a process which watches is left alone, for its processor time (5)",
    )
    add(
        "--messages",
        type=_positive,
        default=1_000,
        metavar="N",
        help="messages of a long history; series has two fifths as many, growth one fifth (1000)",
    )
    add(
        "--work",
        type=Path,
        metavar="DIR",
        help="where to make the work area, removed at the end (system default)",
    )
    add("--json", type=Path, metavar="FILE", help="write all samples as JSON")
    add("--plot", type=Path, metavar="FILE", help="draw the medians as SVG")
    return parser


def _positive(text: str) -> int:
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return number


if __name__ == "__main__":
    sys.exit(main())
