"""What agents run: our slash commands, and the step after an agent's own undo."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.agents.slash_commands import list_files
from shadowtree.cli.main import main
from tests.support.trees import assert_tree

SESSION = "75aa9d9f-dba2-44c5-afe7-5e8c07ecb454"
NAME = "claude-code-07ecb454"


@pytest.fixture(autouse=True)
def _inside(worktree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(worktree)


def record(worktree: Path, session: str, count: int, *, prefix: str = "m") -> None:
    with Shadow(worktree, session=session, settings={"min_free": 0}) as shadow:
        for number in range(1, count + 1):
            with shadow.message(f"{prefix}{number}", meta={"agent": session.rpartition("-")[0]}):
                (worktree / f"{prefix}{number}").write_text(str(number))


def test_an_undo_acts_on_the_session_of_its_agent(
    worktree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(worktree, NAME, 3)
    record(worktree, "claude-code-00000000", 1, prefix="other")
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", SESSION)
    undone = main(["hooks", "slash", "claude-code", "undo", "2"])
    told = capsys.readouterr()
    after = sorted(path.name for path in worktree.iterdir())
    redone = main(["hooks", "slash", "claude-code", "redo"])

    assert (undone, redone) == (0, 0)
    assert told.out.startswith("Undid 2 turns")
    assert told.err == ""
    assert after == ["m1", "other1"]
    assert_tree(worktree, {"m1": "1", "m2": "2", "other1": "1"})


def test_an_agent_that_does_not_say_its_session_means_its_last_one(
    worktree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(worktree, "opencode-aaaaaaaa", 1, prefix="a")
    record(worktree, "opencode-bbbbbbbb", 1, prefix="b")
    record(worktree, "default", 1, prefix="c")
    main(["hooks", "slash", "opencode", "undo", ""])

    assert_tree(worktree, {"a1": "1", "c1": "1"})


@pytest.mark.parametrize("words", [("x",), ("1", "2"), ("1; rm -rf .",), ("-1",)])
def test_what_is_no_number_changes_nothing(
    worktree: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    record(worktree, "gemini-aaaaaaaa", 1)
    exit_code = main(["hooks", "slash", "gemini", "undo", "--", *words])

    assert exit_code == 0
    assert capsys.readouterr().out.startswith("Nothing was changed")
    assert_tree(worktree, {"m1": "1"})


def test_what_goes_wrong_is_told_on_standard_output_and_exits_0(
    worktree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", SESSION)
    nowhere = main(["hooks", "slash", "claude-code", "undo"])
    record(worktree, NAME, 1)
    (worktree / "m1").write_text("mine")
    capsys.readouterr()
    conflict = main(["hooks", "slash", "claude-code", "undo"])
    told = capsys.readouterr()

    assert (nowhere, conflict) == (0, 0)
    assert "1 path in conflict; nothing was changed\n" in told.out
    assert told.err == ""
    assert_tree(worktree, {"m1": "mine"})


def test_a_conflict_names_the_command_for_a_terminal(
    worktree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slash commands take no options."""
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", SESSION)
    (worktree / "text").write_text("1\n2\n3\n4\n5\n")
    with Shadow(worktree, session=NAME, settings={"min_free": 0}) as shadow, shadow.message("m1"):
        (worktree / "text").write_text("one\n2\n3\n4\n5\n")
    (worktree / "text").write_text("one\n2\n3\n4\nmine\n")
    main(["hooks", "slash", "claude-code", "undo", "1"])
    told = capsys.readouterr().out
    command = told.splitlines()[-1].removeprefix("In a terminal, run: shadowtree ")

    assert "use --on-conflict" not in told
    assert command == f"undo 1 --session {NAME} --on-conflict merge"
    assert main(command.split()) == 0
    assert_tree(worktree, {"text": "1\n2\n3\n4\nmine\n"})


@pytest.mark.parametrize("agent", ["claude-code", "gemini", "opencode", "qwen"])
def test_the_model_is_not_told_that_it_is_done(agent: str) -> None:
    """It may have been stopped by a conflict."""
    for text in list_files(agent, "/bin/shadowtree").values():
        assert "is done" not in text


def test_the_log_lists_the_session(
    worktree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(worktree, NAME, 2)
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", SESSION)
    main(["hooks", "slash", "claude-code", "log"])

    assert "#2" in capsys.readouterr().out


# An agent's own undo


def follow(monkeypatch: pytest.MonkeyPatch, worktree: Path, revert: object, session: object = "ses_1") -> int:
    payload = json.dumps({"directory": str(worktree), "session": session, "revert": revert})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(payload.encode())))
    return main(["hooks", "follow", "opencode"])


def head(worktree: Path) -> str | None:
    with Shadow(worktree, session="opencode-ses1") as shadow:
        return shadow.status().head


def test_the_head_follows_back_further_forward_and_to_the_end_and_no_file_is_written(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(worktree, "opencode-ses1", 4, prefix="msg_")
    before = {path.name: path.stat().st_mtime_ns for path in worktree.iterdir()}
    heads = []
    for revert in ("msg_3", "msg_2", "msg_2", "msg_4", None):
        assert follow(monkeypatch, worktree, revert) == 0
        heads.append(head(worktree))

    assert heads == ["msg_2", "msg_1", "msg_1", "msg_3", "msg_4"]
    assert {path.name: path.stat().st_mtime_ns for path in worktree.iterdir()} == before


def test_coming_forward_does_not_redo_what_shadowtree_undid(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(worktree, "opencode-ses1", 2, prefix="msg_")
    with Shadow(worktree, session="opencode-ses1") as shadow:
        shadow.undo()
    follow(monkeypatch, worktree, None)

    assert head(worktree) == "msg_1"
    assert_tree(worktree, {"msg_1": "1"})


@pytest.mark.parametrize(
    ("revert", "session"),
    [("msg_9", "ses_1"), ("msg_1", "ses_9"), (7, "ses_1"), ("msg_1", None), ("\0", "\0")],
)
def test_what_means_nothing_changes_nothing(
    worktree: Path, monkeypatch: pytest.MonkeyPatch, revert: object, session: object
) -> None:
    record(worktree, "opencode-ses1", 1, prefix="msg_")

    assert follow(monkeypatch, worktree, revert, session) == 0
    assert head(worktree) == "msg_1"


def test_a_payload_that_is_no_json_is_logged(
    worktree: Path, stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{")))

    assert main(["hooks", "follow", "opencode"]) == 0
    assert "opencode undo:" in Path(os.environ["SHADOWTREE_HOME"], "hooks", "log").read_text()
