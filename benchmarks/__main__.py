"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import trees
from benchmarks.area import PAUSE_S, Area
from benchmarks.growing import EDITS, LOOK_S
from benchmarks.holding import SNAPSHOTS
from benchmarks.later import GROWTH_FROM_FILES
from benchmarks.measure import Effort
from benchmarks.report import Row, compare_sizes, render_plot, render_table, to_json
from benchmarks.works import WORKS, Work

DESCRIPTION = """\
Measure shadowtree beside what else could do its work, in one run on one machine.

works:
{works}

rivals:
  OpenCode        the sequence of git commands that OpenCode issues for a snapshot
  git add         `git add -A` and `git write-tree` with a separate GIT_DIR
  python -c pass  the bare start of Python, for the one-shot command
  10 messages     shadowtree itself after a short history, for the switch
  track           shadowtree's scan of the unchanged worktree, which every act begins with
  at 10,000 files shadowtree itself in the smallest tree, for what must not grow with it
  git gc          `git gc --prune=now` on a copy of shadowtree's own store, also with `--aggressive`
  early message   shadowtree itself at the beginning of its history

The table shows medians. The ratio is the rival's median divided by shadowtree's: above 1, shadowtree
needs less time, memory or room. A target is the ratio that should be reached, or what shadowtree's own
figure should stay under."""

EPILOG = """\
how it is measured:
  Trees are made from a seed (--sizes), or copied from a directory without its .git (--tree). In the
  repositories all files are committed: one is packed as after a clone, one loose as after a first commit.

  The contestants take turns: each run measures all of them, beginning with another one each time. File
  caches are warm, and what earlier work left unwritten is flushed before the clock starts.

  A first snapshot makes its store as part of the work, in a new place and in a new process; imports are
  done before. Its memory is that of the largest process taking part, the one that starts git included.

  Later snapshots are taken in this process. Files are rewritten, rest for {pause:g} s, and are then seen by
  all alike. OpenCode's store is filled by one `git add -A` before its own sequence of commands: that gives
  the same index and objects as its first snapshot, whose time is quadratic, hours for 500,000 files. The
  rivals keep their stores from one such work to the next.

  With the watcher on, the kernel tells shadowtree what changed; OpenCode does as ever. Snapshots should not
  grow with the tree: of the sizes from {growth_from:,} files on, the largest is set beside the smallest.
  Larger trees are deeper: with 500,000 files the directories that 1, 10 and 100 changed files lie in, and
  that are rewritten, are 1.3, 1.5 and 2.2 times as many as with 10,000.

  The process that watches wraps the folder itself, and takes {snapshots} more snapshots before its memory is
  looked at. The daemon has a directory of stores of its own and ends with the work; that it served every
  command is checked.

  The store grows by a fifth of --messages, of {edits} edits each: in some files some lines are inserted,
  changed or deleted. Growth is what a store has more than after the first snapshot, in bytes of all its
  files. `git gc --aggressive` packs copies of shadowtree's store from before and after, and its objects alone
  are counted, without the lists and bitmaps that it adds. At no moment should the store be larger than 1.2
  times what it is at last and the new contents together; it is looked at every {look_ms:g} ms.

  Of the messages around the 10th and the last one, the time of begin and end is taken. The mean of the 100
  messages around each tells what putting packs together adds.

  To collect, half of a long history is forgotten, and each contestant works on a copy of the same store, in a
  process of its own. For git the chain of commits is made anew before, so that the same objects may go.

  git runs without the user's configuration. Its durability is left at its defaults, which do not flush
  loose objects to the disk; shadowtree always flushes all that it writes.

  All contestants must name the same tree; where they do not, the table says "trees differ" in place of a
  verdict. With a given directory that is to be expected, as their rules differ.

OpenCode's first snapshot of 100,000 files in a folder takes some 400 s: from 50,000 on it is taken once.

All figures of the watcher and the daemon; 500,000 files need some 10 GB, and most of the time:

  python -m benchmarks --sizes 10000,100000,500000 \\
      --only watched --only watched-message --only watched-memory --only daemon"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for and print the table."""
    options = _parser().parse_args(arguments)
    works = [work for work in WORKS if not options.only or work.name in options.only]
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir=options.work) as work_area:
        rows = _measure(Path(work_area).resolve(), works, options)
        # Told before the area is removed, which takes minutes if it is large.
        _tell(rows, options)
    return 0


def _tell(rows: Sequence[Row], options: argparse.Namespace) -> None:
    print(render_table(rows), flush=True)
    if options.json:
        options.json.write_text(json.dumps(to_json(rows), indent=2) + "\n")
    if options.plot:
        options.plot.write_text(render_plot(rows))


def _measure(root: Path, works: Sequence[Work], options: argparse.Namespace) -> list[Row]:
    rows = []
    sizes = options.sizes if options.tree is None else [len(trees.list_files(options.tree))]
    for files in sizes:
        area = Area(root / str(files), files=files, tree=options.tree, settle_s=options.settle)
        runs = options.runs or _default_runs(files)
        effort = Effort(runs, options.rival_runs or runs, options.skip_slow, options.idle, options.messages)
        for work in works:
            print(f"{files:,} files: {work.summary}", file=sys.stderr, flush=True)
            rows += work.measure(area, files, effort)
    return rows + compare_sizes(rows)


def _default_runs(files: int) -> int:
    return 9 if files <= 2_000 else 5 if files <= 20_000 else 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=DESCRIPTION.format(
            works="\n".join(f"  {work.name:<15} {work.summary}" for work in WORKS)
        ),
        epilog=EPILOG.format(
            pause=PAUSE_S,
            growth_from=GROWTH_FROM_FILES,
            snapshots=SNAPSHOTS,
            edits=EDITS,
            look_ms=1000 * LOOK_S,
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--sizes",
        type=_sizes,
        default=[1_000, 10_000],
        metavar="N,...",
        help="files of the trees (1000,10000)",
    )
    add("--tree", type=Path, metavar="DIR", help="measure on a copy of this directory instead")
    add(
        "--only",
        action="append",
        choices=[work.name for work in WORKS],
        help="this work alone; may be repeated",
    )
    add(
        "--runs",
        type=_positive,
        metavar="N",
        help="runs of each work (9 up to 2,000 files, 5 up to 20,000, else 3)",
    )
    add(
        "--rival-runs",
        type=_positive,
        metavar="N",
        help="let rivals take part in N runs of a first snapshot only",
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
        help="seconds that a new tree rests before use (2.1)",
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
        help="messages of a long history, for the works growth, thousandth and gc (1000)",
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


def _sizes(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def _positive(text: str) -> int:
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return number


if __name__ == "__main__":
    sys.exit(main())
