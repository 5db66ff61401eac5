"""Shell completion, requested as a shell does, with the variables that click reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shadowtree.capture.open_store import OpenStore
from shadowtree.store.directory import StoreLayout
from shadowtree.store.lock import Lock
from tests.support.processes import PACKAGE_PLACE, surroundings
from tests.support.terminal import Terminal


@pytest.fixture
def history(terminal: Terminal, project: Path) -> Terminal:
    """A message in another session, and two in the session that recorded last, one of them on a branch."""
    terminal.run("snapshot", "elsewhere", "--session", "other")
    for id in ("msg_one", "msg_two"):
        (project / "a.txt").write_text(id)
        terminal.run("snapshot", id, "-m", f"text of {id}\nmore")
    terminal.run("undo")
    terminal.run("snapshot", "later")
    return terminal


def complete(terminal: Terminal, *words: str, shell: str = "bash") -> list[str]:
    """Complete the last word as a shell does; return the proposals without their kind."""
    # bash counts the words; fish passes the words before the last one, and the last one.
    typed, last = (words, str(len(words))) if shell == "bash" else (words[:-1], words[-1])
    variables = {
        "_SHADOWTREE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(["shadowtree", *typed]),
        "COMP_CWORD": last,
    }
    out = terminal.run(variables=variables)
    assert terminal.err == ""
    return [line.partition(",")[2] for line in out.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (["unr"], ["unrevert"]),
        (["branches", "re"], ["rename"]),
        (["revert", "msg"], ["msg_one", "msg_two"]),
        (["show", "lat"], ["later"]),
        (["show", "--session", "other", ""], ["elsewhere"]),
        (["--session", "other", "pin", ""], ["elsewhere"]),
        (["undo", "--session", "o"], ["other"]),
        (["switch", "text"], ["text-of-msg-two"]),
        (["branches", "drop", ""], ["text-of-msg-two"]),
        (["undo", "--on-conflict", "ke"], ["keep"]),
        (["config", "get", "max_file_"], ["max_file_size"]),
        (["show", "none"], []),
    ],
    ids=lambda words: " ".join(words),
)
def test_what_is_completed(history: Terminal, words: list[str], proposed: list[str]) -> None:
    assert complete(history, *words) == proposed


def test_a_message_is_completed_where_the_line_leads(
    history: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.parent)

    assert complete(history, "show", "") == []
    assert complete(history, "-C", "project", "show", "msg_o") == ["msg_one"]


def test_fish_shows_the_text_of_a_message(history: Terminal) -> None:
    assert complete(history, "revert", "msg_o", shell="fish") == ["msg_one\ttext of msg_one"]


@pytest.mark.parametrize("words", [["show", ""], ["switch", "x"], ["undo", "--session", ""]], ids=" ".join)
def test_without_a_store_nothing_is_completed_or_printed(terminal: Terminal, words: list[str]) -> None:
    assert complete(terminal, *words) == []


def test_a_damaged_store_is_not_told_of(history: Terminal) -> None:
    store = Path(history.run_json("status")["store"])
    Path(StoreLayout(str(store)).timeline).write_bytes(b"nonsense" * 1000)

    assert complete(history, "show", "") == []


def test_an_interrupted_act_is_left_for_the_next_command(
    history: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pressing Tab must not change files."""
    monkeypatch.setattr(OpenStore, "has_to_recover", lambda opened: True)
    monkeypatch.setattr(Lock, "__enter__", lambda lock: pytest.fail("the lock was taken"))

    assert complete(history, "show", "lat") == ["later"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(terminal: Terminal, shell: str) -> None:
    script = terminal.run(variables={"_SHADOWTREE_COMPLETE": f"{shell}_source"})

    assert "_SHADOWTREE_COMPLETE" in script
    assert f"{shell}_complete" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_a_message(history: Terminal, project: Path, tmp_path: Path) -> None:
    """A real bash loads the script, and its function returns the proposals."""
    program = tmp_path / "bin" / "shadowtree"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shadowtree "$@"\n')
    program.chmod(0o755)
    script = """\
eval "$(_SHADOWTREE_COMPLETE=bash_source shadowtree)"
COMP_WORDS=(shadowtree revert msg_t) COMP_CWORD=2
$(complete -p shadowtree | sed 's/.*-F \\([^ ]*\\).*/\\1/') shadowtree msg_t revert
echo "${COMPREPLY[@]}"
"""
    path = f"{program.parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={**surroundings(), "PATH": path, "PYTHONPATH": PACKAGE_PLACE},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("msg_two\n", "")
