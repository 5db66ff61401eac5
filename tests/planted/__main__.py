"""Plant every fault, or the named ones, and check that the tests turn red: `python -m tests.planted`.

The working tree is never changed: each fault is planted into a temporary copy of it. A fault is

    caught       its tests failed
    NOT caught   its tests passed, could not be run, or did not come to an end
    broken       its tests failed because the planted code uses a name that is gone
    stale        its snippet does not occur exactly once in its module: the list has to follow the package

The same tests run without any fault first: a test that fails there proves nothing about a fault.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.planted.faults import FAULTS, Fault

PROJECT = Path(__file__).parents[2]
COPIED = ("shadowtree", "tests", "fixtures", "examples", "pyproject.toml")
"""The files that the tests need."""
LIMIT_S = 120.0
"""How long the tests of one fault may take."""
RED = 1
"""The exit code of pytest when tests failed; other codes mean that it could not run them."""
CAUGHT, NOT_CAUGHT, BROKEN, STALE = "caught", "NOT caught", "broken", "stale"


def main(arguments: list[str]) -> int:
    """Plant faults and print which were caught; return 0 if all were."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.planted", description="Plant faults one at a time."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a fault to plant; all of them by default")
    parser.add_argument("-j", dest="workers", type=int, default=os.cpu_count(), help="how many at a time")
    asked = parser.parse_args(arguments)
    unknown = set(asked.names) - {fault.name for fault in FAULTS}
    if unknown:
        parser.error(f"no fault is called {', '.join(sorted(unknown))}")
    faults = [fault for fault in FAULTS if not asked.names or fault.name in asked.names]
    with tempfile.TemporaryDirectory(prefix="planted-") as scratch, ThreadPoolExecutor(asked.workers) as pool:
        clean = copy_project(PROJECT, Path(scratch, "clean"))
        tests = list(dict.fromkeys(fault.caught_by for fault in faults))
        if not print_red(zip(tests, pool.map(lambda each: run_tests(clean, each)[0], tests), strict=True)):
            return 1
        return print_verdicts(zip(faults, pool.map(lambda fault: judge(fault, clean), faults), strict=True))


def print_red(results: Iterable[tuple[str, int | None]]) -> bool:
    """Print the tests that fail without any fault; return whether there are none."""
    is_green = True
    for tests, code in results:
        if code != 0:
            is_green = False
            say(f"red without any fault: {tests}")
    return is_green


def print_verdicts(results: Iterable[tuple[Fault, str]]) -> int:
    """Print one line per fault, and how many were caught; return the exit code."""
    verdicts = []
    for fault, verdict in results:
        verdicts.append(verdict)
        notes = {
            CAUGHT: "",
            NOT_CAUGHT: f": {fault.why}",
            BROKEN: f": {fault.plant}",
            STALE: f": {locate(fault)}",
        }
        say(f"{verdict:<10} {fault.name}{notes[verdict]}")
    say(f"{verdicts.count(CAUGHT)} of {len(verdicts)} caught")
    return 0 if verdicts.count(CAUGHT) == len(verdicts) else 1


def judge(fault: Fault, clean: Path) -> str:
    """Plant a fault into a copy of its own, run its tests, and return the verdict."""
    place = copy_project(clean, clean.with_name(fault.name))
    try:
        if not plant(fault, place / "shadowtree" / fault.module):
            return STALE
        code, output = run_tests(place, fault.caught_by)
        if code != RED:
            return NOT_CAUGHT
        return BROKEN if b"NameError: " in output else CAUGHT
    finally:
        shutil.rmtree(place, ignore_errors=True)


def plant(fault: Fault, module: Path) -> bool:
    """Replace the snippet; return False if it does not occur exactly once."""
    source = module.read_text(encoding="utf-8") if module.exists() else ""
    if source.count(fault.find) != 1:
        return False
    module.write_text(source.replace(fault.find, fault.plant), encoding="utf-8")
    return True


def locate(fault: Fault) -> str:
    """Name the modules that hold the snippet of a stale fault now."""
    package = PROJECT / "shadowtree"
    modules = [
        path for path in sorted(package.rglob("*.py")) if fault.find in path.read_text(encoding="utf-8")
    ]
    return f"now in {', '.join(str(path.relative_to(package)) for path in modules) or 'no module'}"


def copy_project(source: Path, target: Path) -> Path:
    """Copy what the tests need, including compiled modules, so that they are not compiled again."""
    target.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copy2(source / name, target / name)
    return target


def run_tests(place: Path, tests: str) -> tuple[int | None, bytes]:
    """Run tests in a copy up to the first failure; return exit code (None: timeout) and output."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", *shlex.split(tests)],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": ""},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end(process)
        output.seek(0)
        return code, output.read()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the tests with every process that they left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def say(line: str) -> None:
    """Print a line at once, even into a pipe."""
    print(line, flush=True)  # noqa: T201  # a command of our own, with nobody else to print for it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
