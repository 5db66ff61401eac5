"""Measure two installed versions of shadowtree side by side: the same work in turns, without pauses.

    python -m benchmarks.versions OLD/bin/python NEW/bin/python [--files 3000] [--rounds 100] [--watch]

Each version works in a process of its own, on a tree of its own. In every round each of them records a
message of ten changed files, undoes it, redoes it, and takes a snapshot of one changed file; who begins
alternates.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from benchmarks.report import spread

WORKER = r"""
import json, os, sys, time
from pathlib import Path
from shadowtree import Shadow

root, files, watch = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1"
names = [root / f"d{n // 100}" / f"f{n}.py" for n in range(files)]
for name in names:
    name.parent.mkdir(parents=True, exist_ok=True)
    name.write_text(f"# {name}\n" * 40)
os.sync()
shadow = Shadow(root, watch=watch, settings={"min_free": 0})

def clock(call):
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000

print(json.dumps({"first snapshot": clock(shadow.track)}), flush=True)
for line in sys.stdin:
    number = int(line)
    chosen = [names[(number * 37 + k * 311) % files] for k in range(10)]
    times = {"begin": clock(lambda: shadow.begin(f"m{number}"))}
    for name in chosen:
        name.write_text(f"# {name} {number}\n" * 40)
    times["end of 10 files"] = clock(lambda: shadow.end(f"m{number}"))
    times["undo"] = clock(shadow.undo)
    times["redo"] = clock(shadow.redo)
    chosen[0].write_text(f"one {number}\n" * 40)
    times["track of 1 file"] = clock(shadow.track)
    print(json.dumps(times), flush=True)
shadow.close()
"""
"""The program that both versions run: it uses only the public interface, which both have."""

Times = dict[str, list[float]]


class Version:
    """One installed version at work."""

    def __init__(self, python: str, box: Path, files: int, *, watch: bool) -> None:
        for name in ("home", "tree"):
            (box / name).mkdir(parents=True)
        environment = {**os.environ, "HOME": str(box / "home"), "SHADOWTREE_HOME": str(box / "stores")}
        self._worker = subprocess.Popen(
            [os.path.abspath(python), "-c", WORKER, str(box / "tree"), str(files), str(int(watch))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=box,  # away from any sources, which would be imported
        )
        self.times: Times = {}
        self._note()

    def work(self, number: int) -> None:
        """Do one round."""
        stdin = _require(self._worker.stdin)
        stdin.write(f"{number}\n")
        stdin.flush()
        self._note()

    def end(self) -> None:
        """Wait for the worker to finish."""
        _require(self._worker.stdin).close()
        self._worker.wait()

    def _note(self) -> None:
        line = _require(self._worker.stdout).readline()
        if not line:
            raise SystemExit("a version ended before its work did")
        for work, took in json.loads(line).items():
            self.times.setdefault(work, []).append(took)


def _require(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def render(old: Times, new: Times) -> list[str]:
    """Return a table: the median, the 95th percentile and the worst of each, and the ratio of the medians."""
    rows = ["work             |  old: median/95th/worst ms |                        new | new to old"]
    for work in old:
        ratio = spread(new[work])[0] / spread(old[work])[0]
        rows.append(f"{work:16} | {_figures(old[work]):>26} | {_figures(new[work]):>26} | {ratio:.2f}")
    return rows


def _figures(times: list[float]) -> str:
    return " / ".join(f"{figure:.1f}" for figure in spread(times))


def main() -> None:
    """Have both versions take turns, and print how long they took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", metavar="OLD_PYTHON")
    parser.add_argument("new", metavar="NEW_PYTHON")
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--watch", action="store_true", help="with the watcher on")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as box:
        versions = [
            Version(python, Path(box, name), given.files, watch=given.watch)
            for name, python in (("old", given.old), ("new", given.new))
        ]
        for number in range(given.rounds):
            for version in versions if number % 2 else reversed(versions):
                version.work(number)
        for version in versions:
            version.end()
    print("\n".join(render(versions[0].times, versions[1].times)))


if __name__ == "__main__":
    main()
