"""A one-shot command must start fast, so what it imports is watched: a list is stable where times are not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import daemon, serve_kept
from tests.support.processes import surroundings

TOO_SLOW = {
    "argparse",
    "asyncio",
    "click",
    "concurrent",
    "ctypes",
    "difflib",
    "dulwich",
    "email",
    "importlib.metadata",
    "logging",
    "multiprocessing",
    "pathlib",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "tomllib",
    "unittest",
    "urllib",
    "uuid",
    "watchfiles",
}
"""Modules that a command agents call all the time cannot afford; `dataclasses` brings `inspect` with it."""

NOT_WITH_THE_DAEMON = {
    "enum",
    "hashlib",
    "json",
    "re",
    "shadowtree.access",
    "shadowtree.access.access",
    "shadowtree.access.queries",
    "shadowtree.access.upkeep",
    "shadowtree.timeline.journal",
    "shadowtree.shadow",
    "shadowtree.capture.read_files",
    "signal",
    "sqlite3",
    "threading",
    "zlib",
}
"""Modules that the same command does without when the daemon does its work."""

CONSOLE_SCRIPT = "import sys; from shadowtree.cli.main import main; sys.exit(main())"
"""What an installed `shadowtree` runs."""


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    (root / "pyproject.toml").write_text("[project]\nname = 'project'\n")
    return root


@pytest.mark.parametrize(
    "start", [["-m", "shadowtree"], ["-c", CONSOLE_SCRIPT]], ids=["module", "console script"]
)
@pytest.mark.parametrize("words", [["track"], ["track", "--json"], ["--session", "s", "track"]], ids=" ".join)
def test_a_hot_command_imports_nothing_slow(worktree: Path, start: list[str], words: list[str]) -> None:
    """The first call wraps, the second one is what agents do all day."""
    for _ in range(2):
        imported = _imports_of([*start, *words], worktree)

        assert "shadowtree" in imported
        assert not imported & TOO_SLOW
        assert "shadowtree.daemon.client" not in imported, "there is none"


@pytest.mark.parametrize("is_json", [False, True], ids=["plain", "json"])
def test_a_message_is_recorded_without_anything_slow(worktree: Path, is_json: bool) -> None:
    """Hosts of agents run these lines at every message and every tool call."""
    lines = [
        ["begin", "msg_1", "-m", "a text", "--role", "user", "--meta", "{}"],
        ["step", "edit"],
        ["step", "edit", "--end"],
        ["end", "msg_1", "--path", "a.txt"],
        ["snapshot", "msg_2"],
        ["run", "-m", "a text", "--", "true"],
    ]
    for words in lines:
        (worktree / "a.txt").write_text(" ".join(words))
        imported = _imports_of(["-m", "shadowtree", *(["--json"] if is_json else []), *words], worktree)

        assert "shadowtree" in imported
        assert not imported & TOO_SLOW


@pytest.mark.parametrize(
    "start", [["-m", "shadowtree"], ["-c", CONSOLE_SCRIPT]], ids=["module", "console script"]
)
def test_a_hot_command_with_the_daemon_imports_next_to_nothing(worktree: Path, start: list[str]) -> None:
    lines = [
        ["track"],
        ["begin", "msg_1", "-m", "a text", "--role", "user"],
        ["step", "edit"],
        ["step", "edit", "--end"],
        ["end", "msg_1", "--path", "a.txt"],
        ["snapshot", "msg_2"],
        ["end", "msg_1"],
    ]
    with daemon():
        serve_kept(worktree)
        for words in lines:
            (worktree / "a.txt").write_text(" ".join(words))
            imported = _imports_of([*start, *words], worktree)

            assert "shadowtree.daemon.client" in imported
            assert not imported & (TOO_SLOW | NOT_WITH_THE_DAEMON)


def test_a_hook_imports_nothing_slow(worktree: Path) -> None:
    """Agents run it at every turn and every tool call."""
    hook = ["-m", "shadowtree", "hook", "claude-code"]
    payloads = [
        _payload(name, worktree) for name in ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
    ]
    for payload in payloads:
        assert not _imports_of(hook, worktree, payload, CI="1") & TOO_SLOW
    with daemon():
        serve_kept(worktree)
        for payload in payloads:
            imported = _imports_of(hook, worktree, payload, CI="1")

            assert "shadowtree.daemon.client" in imported
            assert not imported & (TOO_SLOW | NOT_WITH_THE_DAEMON)


def _payload(name: str, worktree: Path) -> str:
    path = Path(__file__).parents[1] / "agents" / "payloads" / "claude-code" / f"{name}.json"
    return path.read_text("utf-8").replace("/home/u/project", str(worktree))


@pytest.mark.parametrize("words", [["log"], ["undo"], ["redo", "--json"]], ids=" ".join)
def test_an_act_loads_neither_dulwich_nor_asyncio(worktree: Path, words: list[str]) -> None:
    _imports_of(["-m", "shadowtree", "begin", "msg_1"], worktree)
    (worktree / "a.txt").write_text("changed\n")

    assert not _imports_of(["-m", "shadowtree", *words], worktree) & {"dulwich", "watchfiles", "asyncio"}


@pytest.mark.parametrize("words", [["--help"], ["track", "--help"], ["--version"]], ids=" ".join)
def test_help_does_not_load_dulwich(worktree: Path, words: list[str]) -> None:
    imported = _imports_of(["-m", "shadowtree", *words], worktree)

    assert "click" in imported
    assert not imported & {"dulwich", "watchfiles", "asyncio"}


def _imports_of(arguments: list[str], worktree: Path, given: str = "", **variables: str) -> set[str]:
    """Run Python in `worktree` and name the modules that it imported beyond those of a bare start."""
    return _loaded(arguments, worktree, given, **variables) - _loaded(["-c", "pass"], worktree)


def _loaded(arguments: list[str], worktree: Path, given: str = "", **variables: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=worktree,
        env=surroundings(**variables),
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
