"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.support.limits import LARGE_PACKS, UNTIDIED, change_limits, use_limits
from tests.support.memory import clear_memory, make_place, new_place
from tests.support.processes import PACKAGE_PLACE
from tests.support.referee import assert_sound_store
from tests.support.terminal import Terminal
from tests.support.trees import make_tree
from tests.support.turns import this_turn
from tests.support.watching import BASE, Watched, forget_youth

GIT_HOOKS = [
    "post-checkout",
    "post-index-change",
    "post-merge",
    "pre-auto-gc",
    "pre-commit",
    "reference-transaction",
]
BYTECODE = Path(PACKAGE_PLACE, ".pytest_cache", "bytecode")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell starts what runs in the background deaf to interrupts, and so would be all that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    # Hundreds of processes are started here; each would compile all that it imports.
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
    sys.dont_write_bytecode = False


@pytest.fixture(scope="session", autouse=True)
def _own_memory() -> Iterator[None]:
    """Leave nothing in memory."""
    clear_memory()
    yield
    clear_memory()


ABOUT_STORES = ("store", "timeline", "faults", "project")
"""The tests that are about stores, which are on the disk there."""


@pytest.fixture
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Where stores are kept: in memory, unless they are the matter; worktrees are always on the disk."""
    on_disk = tmp_path / "stores"
    stores = on_disk if request.path.parent.name in ABOUT_STORES else new_place(on_disk)
    yield stores
    shutil.rmtree(stores, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, stores: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every test away from the user's home, stores and git configuration."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SHADOWTREE_HOME", str(stores))
    ours = ("SHADOWTREE_CONFIG", "SHADOWTREE_SESSION", "SHADOWTREE_STORE")
    for name in (*ours, "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")


@pytest.fixture(autouse=True)
def _limits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the shadows of a test the limits that it is marked with."""
    marker = request.node.get_closest_marker("limits")
    if marker is not None:
        use_limits(monkeypatch, *marker.args)


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    """An empty directory to wrap."""
    path = tmp_path / "worktree"
    path.mkdir()
    return path


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that another user can reach."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    subprocess.run(["chmod", "-R", "u+rwX", place], check=True)
    shutil.rmtree(place)


@pytest.fixture
def fast_place() -> Iterator[Path]:
    """A directory in memory where there is one: for what is written a thousand times and never measured."""
    place = make_place()
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def asks_git(request: pytest.FixtureRequest) -> bool:
    """Whether real git looks at the store: always where stores are the matter, elsewhere in every fifth test.

    Which fifth turns with the commit, as in sweeps.
    """
    is_sampled = (zlib.crc32(request.node.nodeid.encode()) + this_turn()) % 5 == 0
    return is_sampled or request.path.parent.name in ("store", "faults")


@pytest.fixture
def shadow(worktree: Path, asks_git: bool) -> Iterator[Shadow]:
    """A shadow of the worktree, whose store is checked when the test is over."""
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        yield shadow
    if shadow.is_wrapped:
        assert_sound_store(shadow.store, asks_git=asks_git)


@pytest.fixture
def small(worktree: Path) -> Iterator[Shadow]:
    """A shadow that takes only small files."""
    with Shadow(worktree, settings={"min_free": 0, "max_file_size": 64}) as shadow:
        yield shadow


@pytest.fixture
def watched(tmp_path: Path, worktree: Path, asks_git: bool) -> Iterator[Watched]:
    """A worktree with something of everything, watched and recorded."""
    make_tree(worktree, BASE)
    watched = Watched(worktree, tmp_path)
    watched.settle()
    with watched.shadow:
        yield watched
        if watched.is_checked:
            watched.check_in_another_process()
    if watched.shadow.is_wrapped:
        assert_sound_store(watched.shadow.store, asks_git=asks_git)


@pytest.fixture
def aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no file be read again only because it is young."""
    forget_youth(monkeypatch)


@pytest.fixture
def large_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pack be a small one, so that nothing comes back from the journal."""
    change_limits(monkeypatch, packs=LARGE_PACKS)


@pytest.fixture
def no_tidying(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let packs stay as snapshots add them."""
    change_limits(monkeypatch, packs=UNTIDIED)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two files, as the current one, for command lines; stores are kept beside it."""
    monkeypatch.setenv("PYTHONPATH", PACKAGE_PLACE)
    for name in ("SHADOWTREE_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    (root / "b.txt").write_text("two\n")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def terminal(project: Path) -> Terminal:
    """Where command lines are typed, in the project."""
    return Terminal()


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that every hook, filter and helper of the user would make; it must not be there at the end."""
    path = tmp_path / "canary"
    script = tmp_path / "helper"
    script.write_text(f'#!/bin/sh\necho ran "$0" "$@" >>\'{path}\'\ntr a-z A-Z\n')
    script.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for name in GIT_HOOKS:
        (hooks / name).symlink_to(script)
    config = tmp_path / "gitconfig"
    config.write_text(
        f"[core]\nhooksPath = {hooks}\nfsmonitor = {script}\nautocrlf = true\npager = {script}\n"
        f'[filter "upper"]\nclean = {script}\nsmudge = {script}\nprocess = {script}\nrequired = true\n'
        f'[diff]\nexternal = {script}\n[diff "upper"]\ntextconv = {script}\ncommand = {script}\n'
        f"[gc]\nauto = 1\n[credential]\nhelper = {script}\n"
    )
    shutil.copy(config, Path(os.environ["HOME"], ".gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    yield path
    assert not path.exists(), path.read_text()


def pytest_xdist_auto_num_workers() -> int:
    """Let three work on two processors: a third of the time is spent waiting for disks and processes."""
    cores = os.cpu_count() or 1
    return cores + max(1, cores // 2)


def pytest_collection_finish() -> None:
    """Let the collector of garbage, and the pages that a fork copies, be spared thousands of tests."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what repeats the sweeps of this run."""
    terminalreporter.write_line(f"SHADOWTREE_SWEEP_TURN={this_turn()}")
