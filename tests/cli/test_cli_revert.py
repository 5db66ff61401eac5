"""The commands that write into the worktree: their questions, their output, their exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shadowtree import Conflict, ConflictingPath, NotConfirmed, Outcome, Plan, Shadow, Skipped
from shadowtree.cli import output
from shadowtree.cli.commands import act
from shadowtree.cli.errors import report
from shadowtree.cli.views.outcome import describe_plan, describe_shortfall, render_outcome
from tests.support.daemons import end_daemon
from tests.support.processes import COMMAND
from tests.support.terminal import Terminal, run_on_terminal
from tests.support.values import make_outcome

KEYS = [
    "messages", "restored", "deleted", "kept", "conflicts", "skipped", "before", "after", "complete",
    "dry_run", "mode", "notes", "redone", "head", "undone", "merged", "marked", "created",
    "unprotected", "uncertain", "edited", "id", "back",
]  # fmt: skip


# Outcomes: values in, lines out


def test_an_undo_is_told_in_a_sentence_and_the_files() -> None:
    outcome = make_outcome(restored=["b", "a/x\x1b"], deleted=["a/y"])

    assert list(render_outcome(outcome)) == [
        "Undid 1 turn (msg_2): 2 files restored, 1 deleted",
        "  restored  a/x\\x1b",
        "  deleted   a/y",
        "  restored  b",
    ]


def test_ten_files_are_listed_and_the_others_counted() -> None:
    lines = list(render_outcome(make_outcome(restored=[f"f{n:02}" for n in range(12)])))

    assert lines[10:] == ["  restored  f09", "  and 2 more (use --json to list all)"]


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (make_outcome(restored=["a"]), "Undid 1 turn (msg_2): 1 file restored"),
        (make_outcome(), "Undid 1 turn (msg_2): no files changed"),
        (
            make_outcome(turns=2, messages=["a", "b", "c", "d"]),
            "Undid 2 turns (4 messages): no files changed",
        ),
        (make_outcome("redo", deleted=["a"]), "Redid 1 turn (msg_2): 1 file deleted"),
        (make_outcome("revert", restored=["a"]), "Reverted msg_2: 1 file restored"),
        (
            make_outcome("revert", messages=["m", "n", "o"], deleted=["a", "b"]),
            "Reverted m and the 2 messages after it: 2 files deleted",
        ),
        (
            make_outcome("revert", messages=["m", "n"], redone=["m", "n"], restored=["a"], head="n"),
            "Moved forward to just before NAME: 1 file restored",
        ),
        (
            make_outcome("restore", messages=[], restored=["a"]),
            "Restored everything to NAME: 1 file restored",
        ),
        (
            make_outcome("unrevert", restored=["a"], reverses="undo"),
            "Reversed the last undo: 1 file restored",
        ),
        (make_outcome(restored=["a"], dry_run=True), "Would undo 1 turn (msg_2): 1 file to restore"),
        (make_outcome(restored=["a"], kept=["b"]), "Undid 1 turn (msg_2): 1 file restored, 1 kept"),
    ],
)
def test_each_act_has_its_sentence(outcome: Outcome, told: str) -> None:
    assert next(iter(render_outcome(outcome, target="NAME"))) == told


def test_a_part_is_told_as_such() -> None:
    lines = list(render_outcome(make_outcome("revert", restored=["a"]), target="msg_2", is_part=True))

    assert lines[0] == "Reverted a to before msg_2: 1 file restored"


def test_nothing_to_do_is_told_by_the_notes() -> None:
    nothing = make_outcome(messages=[], turns=0, notes=["nothing to undo"])

    assert list(render_outcome(nothing)) == ["Nothing to undo"]


def test_a_dry_run_lists_the_conflicts() -> None:
    conflict = ConflictingPath("a\u202e", "it was edited after", "look at it")
    lines = list(render_outcome(make_outcome(conflicts=[conflict], dry_run=True)))

    assert lines[-3:] == ["1 path in conflict:", "  a\\u202e: it was edited after", "    look at it"]


def test_what_was_left_alone_is_listed_with_the_reason() -> None:
    lines = list(render_outcome(make_outcome(skipped=[Skipped("big", "it is too big")], complete=False)))

    assert lines[1:] == ["1 path left alone:", "  big (it is too big)"]


@pytest.mark.parametrize(
    ("outcome", "turns", "told"),
    [
        (make_outcome(turns=3), 5, "only 3 of 5 turns could be undone"),
        (make_outcome(skipped=[Skipped("a", "why")]), None, "left alone: a (why)"),
        (
            make_outcome(notes=["the state before msg_1 is not known"]),
            1,
            "the state before msg_1 is not known",
        ),
    ],
)
def test_less_than_asked_for_is_explained(outcome: Outcome, turns: int | None, told: str) -> None:
    assert describe_shortfall(outcome, turns) == told


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"deleted": ["x"] * 12}, "This deletes 12 of 14 files"),
        ({"deleted": ["x"] * 12, "restored": ["y"]}, "This deletes 12 of 14 files and replaces 1"),
        ({"restored": ["y"]}, "This replaces 1 of 14 files"),
        ({"restored": ["y"], "created": ["y"]}, "This creates 1 file"),
        (
            {"deleted": ["x"] * 12, "restored": ["y", "z"], "created": ["z"]},
            "This deletes 12 of 14 files, replaces 1 and creates 1",
        ),
        ({}, "This changes no files"),
    ],
)
def test_the_question_has_the_figures(fields: dict[str, object], told: str) -> None:
    assert describe_plan(make_outcome("restore", **fields)) == told


# Errors


def test_a_conflict_lists_every_path_before_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    choices = ["merge", "keep", "overwrite"]
    conflicts = [
        ConflictingPath(f"f{n:02}\x1b", "it was edited after", "use merge", choices=choices)
        for n in range(30)
    ]

    assert report(Conflict(conflicts, make_outcome(conflicts=conflicts)), as_json=False) == 13

    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert lines[0] == "  f00\\x1b: it was edited after"
    assert lines[29:31] == ["  f29\\x1b: it was edited after", "    use merge"]
    assert lines[-1].startswith(
        "shadowtree: 30 paths in conflict; nothing was changed; use --on-conflict merge, keep or overwrite"
    )


def test_a_conflict_as_json_is_the_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    conflicts = [ConflictingPath("f", "it was edited after", "look at it")]

    assert report(Conflict(conflicts, make_outcome(conflicts=conflicts)), as_json=True) == 13

    out, err = capsys.readouterr()
    assert list(json.loads(out)) == [*KEYS, "turns"]
    assert json.loads(out)["conflicts"][0]["path"] == "f"
    assert err.count("\n") == 1


def test_a_missing_confirmation_names_the_figures_and_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    planned = make_outcome("restore", deleted=["a", "b"])

    assert report(NotConfirmed(make_outcome("restore"), plan=Plan(planned, [])), as_json=False) == 13
    assert capsys.readouterr().err == (
        "shadowtree: this would delete 2 of 14 files; nothing was changed; add --yes to confirm\n"
    )


# The commands


@pytest.fixture
def work(terminal: Terminal, project: Path) -> Callable[[str, dict[str, str | None]], None]:
    """Record a message that writes files, or deletes those whose content is None."""

    def work(message: str, files: dict[str, str | None]) -> None:
        terminal.run("begin", message)
        for name, content in files.items():
            if content is None:
                (project / name).unlink()
            else:
                (project / name).write_text(content)
        terminal.run("end", message)

    return work


Work = Callable[[str, dict[str, str | None]], None]


def _files(project: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(project.iterdir())}


ORIGINAL = {"a.txt": "one\n", "b.txt": "two\n"}
CHANGED = {"a.txt": "changed\n", "c.txt": "new\n"}


@pytest.fixture
def changed(work: Work) -> None:
    """One message that modified, deleted and added a file."""
    work("msg_1", {"a.txt": "changed\n", "b.txt": None, "c.txt": "new\n"})


@pytest.mark.usefixtures("changed")
def test_undo_tells_what_happened_and_how_to_get_back(terminal: Terminal, project: Path) -> None:
    lines = terminal.run("undo").splitlines()

    assert lines == [
        "Undid 1 turn (msg_1): 1 file restored, 1 created, 1 deleted",
        "  restored  a.txt",
        "  created   b.txt",
        "  deleted   c.txt",
        "To get back: shadowtree unrevert",
    ]
    assert _files(project) == ORIGINAL
    assert terminal.err == ""


@pytest.mark.usefixtures("changed")
def test_every_act_gives_the_documented_json(terminal: Terminal, project: Path) -> None:
    undone = terminal.run_json("undo")
    redone = terminal.run_json("redo")
    reverted = terminal.run_json("revert", "msg_1")
    unreverted = terminal.run_json("unrevert")
    restored = terminal.run_json("restore", "msg_1^", "--yes")

    assert [list(found) for found in (undone, redone)] == [[*KEYS, "turns"]] * 2
    assert [list(found) for found in (reverted, restored)] == [KEYS] * 2
    assert (list(unreverted), unreverted["reverses"]) == ([*KEYS, "reverses"], "revert")
    assert (undone["created"], redone["created"]) == (["b.txt"], ["c.txt"])
    assert (undone["messages"], undone["turns"], undone["mode"]) == (["msg_1"], 1, "back")
    assert (undone["restored"], undone["deleted"]) == (["a.txt", "b.txt"], ["c.txt"])
    assert (redone["restored"], redone["deleted"]) == (["a.txt", "c.txt"], ["b.txt"])
    assert (redone["before"], redone["after"]) == (undone["after"], undone["before"])
    assert all(found["complete"] and not found["dry_run"] for found in (undone, redone, reverted, restored))
    assert _files(project) == ORIGINAL


@pytest.mark.usefixtures("changed")
def test_a_dry_run_changes_nothing(terminal: Terminal, project: Path) -> None:
    for words in (["undo"], ["revert", "msg_1"], ["restore", "msg_1^"]):
        found = terminal.run_json(*words, "--dry-run")
        assert found["dry_run"]
        assert found["deleted"] == ["c.txt"]

    lines = terminal.run("undo", "--dry-run").splitlines()
    assert lines[0] == "Would undo 1 turn (msg_1): 1 file to restore, 1 to create, 1 to delete"
    assert lines[-1] == "  delete    c.txt"
    assert _files(project) == CHANGED
    assert terminal.run_json("status")["undone"] == []


@pytest.mark.usefixtures("changed")
def test_a_conflict_exits_13_and_changes_nothing(terminal: Terminal, project: Path) -> None:
    (project / "a.txt").write_text("my own\n")

    found = terminal.run_json("undo", exit_code=13)

    assert list(found) == [*KEYS, "turns"]
    assert [conflict["path"] for conflict in found["conflicts"]] == ["a.txt"]
    assert found["conflicts"][0]["reason"]
    assert not found["complete"]
    assert terminal.run("undo", exit_code=13) == ""
    lines = terminal.err.splitlines()
    assert lines[0].startswith("  a.txt: ")
    assert lines[-1].startswith(
        "shadowtree: 1 path in conflict; nothing was changed; use --on-conflict merge"
    )
    assert _files(project) == CHANGED | {"a.txt": "my own\n"}


@pytest.mark.usefixtures("changed")
def test_a_conflict_in_a_dry_run_exits_0(terminal: Terminal, project: Path) -> None:
    (project / "a.txt").write_text("my own\n")

    assert [each["path"] for each in terminal.run_json("undo", "--dry-run")["conflicts"]] == ["a.txt"]
    assert "1 path in conflict:" in terminal.run("undo", "--dry-run")


@pytest.mark.usefixtures("changed")
def test_keep_leaves_what_somebody_else_changed(terminal: Terminal, project: Path) -> None:
    (project / "a.txt").write_text("my own\n")

    found = terminal.run_json("undo", "--on-conflict", "keep")

    assert (found["kept"], found["restored"], found["deleted"]) == (["a.txt"], ["b.txt"], ["c.txt"])
    assert found["complete"]
    assert _files(project) == ORIGINAL | {"a.txt": "my own\n"}


@pytest.mark.usefixtures("changed")
def test_after_overwriting_unrevert_is_the_way_back(terminal: Terminal, project: Path) -> None:
    (project / "a.txt").write_text("my own\n")

    lines = terminal.run("undo", "--on-conflict", "overwrite").splitlines()

    assert lines[-1] == "To get back: shadowtree unrevert"
    assert _files(project) == ORIGINAL
    terminal.run("unrevert")
    assert _files(project) == CHANGED | {"a.txt": "my own\n"}


def test_there_is_a_way_back_after_unrevert(terminal: Terminal, project: Path, work: Work) -> None:
    work("msg_1", {"a.txt": "changed\n"})
    terminal.run("revert", "msg_1")
    (project / "b.txt").write_text("my own\n")

    way_back = terminal.run("unrevert").splitlines()[-1].removeprefix("To get back: shadowtree ").split()

    assert way_back == ["unrevert", "--undo"]
    terminal.run(*way_back)
    assert _files(project) == {"a.txt": "one\n", "b.txt": "my own\n"}


@pytest.mark.usefixtures("changed")
def test_the_way_back_names_the_session(terminal: Terminal) -> None:
    terminal.run("snapshot", "other_1", "--session", "o t")
    terminal.run("begin", "other_2", "--session", "o t")

    assert terminal.run("undo", "--session", "o t").endswith(
        "To get back: shadowtree unrevert --session 'o t'\n"
    )


def test_counts_of_turns(terminal: Terminal, project: Path, work: Work) -> None:
    for number in range(1, 4):
        work(f"msg_{number}", {"a.txt": f"work {number}\n"})

    assert terminal.run_json("undo", "2")["messages"] == ["msg_2", "msg_3"]
    assert _files(project)["a.txt"] == "work 1\n"
    assert terminal.run_json("redo", "--all")["turns"] == 2
    assert _files(project)["a.txt"] == "work 3\n"
    found = terminal.run_json("undo", "5", exit_code=1)
    assert (found["turns"], found["complete"]) == (3, False)
    assert terminal.err == "shadowtree: only 3 of 5 turns could be undone\n"
    assert terminal.run_json("redo", "2")["messages"] == ["msg_1", "msg_2"]


def test_nothing_to_do_is_no_error(terminal: Terminal) -> None:
    terminal.run("wrap")

    for words in (["undo"], ["redo"], ["redo", "--all"], ["unrevert"]):
        assert terminal.run(*words).startswith("Nothing to ")
        assert terminal.err == ""
        found = terminal.run_json(*words)
        assert found["complete"]
        assert found.get("turns", 0) == 0


def test_revert_of_paths_and_steps(
    terminal: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "deep").mkdir()
    terminal.run("begin", "msg_1")
    (project / "a.txt").write_text("first\n")
    terminal.run("step", "edit")
    (project / "a.txt").write_text("second\n")
    (project / "b.txt").write_text("second\n")
    terminal.run("step", "edit", "--end")
    terminal.run("end")
    monkeypatch.chdir(project / "deep")

    assert terminal.run_json("revert", "msg_1", "--path", "../b.txt")["restored"] == ["b.txt"]
    assert terminal.run_json("revert", "msg_1", "--step", "edit")["restored"] == ["a.txt"]
    assert (project / "a.txt").read_text() == "first\n"
    assert terminal.run_json("status")["head"] == "msg_1"
    assert terminal.run_json("revert", "msg_1", "--path", ".")["restored"] == []
    assert terminal.run_json("revert", "msg_1", "--path", "../..", exit_code=2)["error"] == "InvalidInput"


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (["undo", "0"], 2),
        (["undo", "-1"], 2),
        (["undo", "two"], 2),
        (["undo", "1.5"], 2),
        (["undo", "9" * 5000], 2),
        (["undo", ""], 2),
        (["undo", "1", "2"], 2),
        (["redo", "0"], 2),
        (["redo", "1", "--all"], 2),
        (["undo", "--on-conflict", "mend"], 2),
        (["undo", "--path", "a.txt"], 2),
        (["revert"], 2),
        (["revert", "msg_1", "--only", "--no-files"], 2),
        (["revert", "unknown"], 12),
        (["revert", "msg_1", "--step", "unknown"], 12),
        (["restore", "unknown"], 12),
        (["restore", "f" * 40], 12),
        (["restore"], 2),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("changed")
def test_what_is_refused_changes_nothing(
    terminal: Terminal, project: Path, words: list[str], exit_code: int
) -> None:
    found = terminal.run_json(*words, exit_code=exit_code)

    assert list(found) == ["error", "message"]
    assert terminal.err.startswith("shadowtree: ")
    assert terminal.err.count("\n") == 1
    assert _files(project) == CHANGED


# Confirmation


@pytest.fixture
def grown(terminal: Terminal, project: Path) -> None:
    """A message that created many files, and that nobody ended."""
    terminal.run("begin", "msg_1")
    for number in range(21):
        (project / f"new{number}").write_text("x")


@pytest.mark.usefixtures("grown")
def test_what_deletes_much_because_of_an_inferred_end_needs_a_yes(terminal: Terminal, project: Path) -> None:
    """First-hour row B10."""
    found = terminal.run_json("undo", exit_code=13)

    assert (found["error"], found["deleted"], found["messages"]) == ("NotConfirmed", [], [])
    assert len(found["plan"]["deleted"]) == 21
    assert found["conflicts"] == []
    assert not found["complete"]
    assert terminal.err.startswith("shadowtree: this would delete 21 of 23 files; nothing")
    assert terminal.err.endswith("add --yes to confirm\n")
    assert len(_files(project)) == 23
    assert terminal.run_json("undo", "--yes")["turns"] == 1
    assert _files(project) == ORIGINAL


def test_an_agent_that_scaffolds_a_project_is_undone_without_a_question(
    terminal: Terminal, project: Path, work: Work
) -> None:
    """First-hour row B10."""
    work("msg_1", {f"new{number}": "x" for number in range(50)})

    terminal.run("undo")
    assert _files(project) == ORIGINAL
    terminal.run("redo")
    assert len(_files(project)) == 52


@pytest.mark.usefixtures("changed")
def test_restore_asks_whenever_it_changes_something(terminal: Terminal, project: Path) -> None:
    terminal.run("restore", "msg_1^", exit_code=13)
    assert _files(project) == CHANGED
    assert terminal.run_json("restore", "msg_1")["complete"]
    terminal.run("restore", "msg_1^", "--yes")

    assert _files(project) == ORIGINAL


@pytest.mark.parametrize("turns", ["0", "9999999999"])
def test_a_wrong_number_of_turns_is_refused_with_both_limits(terminal: Terminal, turns: str) -> None:
    terminal.run("undo", turns, exit_code=2)

    assert "TURNS must be 1 to 999,999,999; see 'shadowtree undo --help'" in terminal.err


def test_restore_says_that_it_creates_files(terminal: Terminal, project: Path) -> None:
    terminal.run("snapshot", "msg_1")
    (project / "a.txt").unlink()

    terminal.run("restore", "msg_1", exit_code=13)

    assert terminal.err.startswith("shadowtree: this would create 1 file; nothing was changed")


@pytest.mark.parametrize(
    "words",
    [
        ["restore", "msg_1^"],
        ["purge", "a.txt"],
        ["sessions", "drop", "default"],
        ["destroy"],
        ["destroy", "--all"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("changed")
def test_without_a_yes_nothing_was_done_and_it_was_no_dry_run(terminal: Terminal, words: list[str]) -> None:
    found = terminal.run_json(*words, exit_code=13)

    assert found["error"] == "NotConfirmed"
    assert not found["dry_run"]
    assert not found.get("complete")
    assert found["plan"]["dry_run"]


@pytest.mark.usefixtures("grown")
@pytest.mark.parametrize("answer", ["y", "YES", "n", "", "\x04"], ids=["y", "YES", "n", "return", "end"])
def test_on_a_terminal_the_user_is_asked(project: Path, answer: str) -> None:
    is_yes = answer.lower() in ("y", "yes")
    typed = answer if answer == "\x04" else answer + "\n"

    shown = run_on_terminal("undo", answer=typed, exit_code=0 if is_yes else 13)

    assert b"This deletes 21 of 23 files. Continue? [y/N] " in shown
    assert len(_files(project)) == (2 if is_yes else 23)


@pytest.mark.usefixtures("grown")
def test_an_interrupt_at_the_question_changes_nothing(
    terminal: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(question: str) -> bool:
        signal.raise_signal(signal.SIGINT)
        return True

    monkeypatch.setattr(act, "ask", interrupt)

    terminal.run("undo", exit_code=130)

    assert terminal.err == "shadowtree: interrupted\n"
    assert len(_files(project)) == 23


# Previews


@pytest.mark.usefixtures("changed")
def test_conflicts_are_settled_by_path_and_for_the_rest(
    terminal: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "a.txt").write_text("my own\n")
    (project / "c.txt").write_text("my own\n")

    found = terminal.run_json("undo", "--on-conflict", "a.txt=keep", exit_code=13)
    assert [conflict["path"] for conflict in found["conflicts"]] == ["c.txt"]
    monkeypatch.chdir(project.parent)
    terminal.run("undo", "-C", str(project), "--on-conflict", "./a.txt=keep", "--on-conflict", "overwrite")
    assert _files(project) == {"a.txt": "my own\n", "b.txt": "two\n"}


@pytest.mark.usefixtures("changed")
def test_an_act_takes_the_plan_that_was_seen(terminal: Terminal, project: Path) -> None:
    plan = terminal.run_json("undo", "--dry-run")["id"]
    (project / "b.txt").write_text("my own\n")

    found = terminal.run_json("undo", "--expect", plan, exit_code=13)
    assert (found["error"], found["deleted"], found["plan"]["deleted"]) == ("PlanOutdated", [], ["c.txt"])
    (project / "b.txt").unlink()
    assert terminal.run_json("undo", "--expect", plan)["id"] == plan
    assert _files(project) == ORIGINAL


@pytest.mark.parametrize("answer", ["y", "n"])
@pytest.mark.usefixtures("changed")
def test_a_preview_lists_the_files_and_the_diff_and_asks(project: Path, answer: str) -> None:
    (project / "a.txt").write_text("my own\n")
    words = ["undo", "-i", "--on-conflict", "a.txt=keep"]

    shown = run_on_terminal(*words, answer=f"{answer}\n", exit_code=0 if answer == "y" else 13).decode()
    lines = shown.replace("\r\n", "\n").splitlines()
    assert lines[lines.index("  keep      a.txt") :][:3] == [
        "  keep      a.txt",
        "  create    b.txt",
        "  delete    c.txt",
    ]
    assert "-new" in lines
    assert "Continue? [y/N] " in shown
    assert (project / "c.txt").exists() == (answer == "n")
    assert ("cancelled; nothing was changed" in shown) == (answer == "n")


@pytest.mark.usefixtures("changed")
def test_a_preview_needs_a_terminal(terminal: Terminal, project: Path) -> None:
    for name in (["undo"], ["redo"], ["revert", "msg_1"]):
        terminal.run(*name, "-i", exit_code=2)
        assert terminal.err == "shadowtree: -i needs a terminal\n"
        terminal.run(*name, "-i", "--json", exit_code=2)
        assert terminal.err == "shadowtree: -i cannot be combined with --json\n"
    assert _files(project) == CHANGED


@pytest.mark.usefixtures("changed")
def test_some_paths_are_restored(terminal: Terminal, project: Path) -> None:
    out = terminal.run("restore", "msg_1^", "--path", "b.txt", "--yes")

    assert out.splitlines()[0] == "Restored b.txt to msg_1^: 1 file created"
    assert _files(project) == CHANGED | {"b.txt": "two\n"}


@pytest.mark.usefixtures("changed")
def test_a_part_that_was_reverted_is_marked_in_the_log(terminal: Terminal) -> None:
    terminal.run("revert", "msg_1", "--path", "c.txt")

    assert "partly reverted" in terminal.run("log")
    assert terminal.run_json("log")[0]["partly_reverted"]


def test_nobody_is_asked_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not output.ask("Continue?")
    assert capsys.readouterr().err == ""


# Interrupted acts


def test_what_was_recovered_is_told_by_any_command(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("wrap")
    monkeypatch.setattr(Shadow, "recovered", ["an undo was interrupted\x1b; it was taken back"])
    told = "shadowtree: warning: an undo was interrupted\\x1b; it was taken back\n"

    for words in (["status"], ["log"], ["track"], ["wrap"], ["begin", "msg_1"], ["undo"]):
        terminal.run_json(*words)
        assert terminal.err == told
    terminal.run_json("show", "unknown", exit_code=12)
    assert terminal.err.startswith(told)


DIES = """
import os, signal, sys
from shadowtree.system import disk
from shadowtree.cli.main import main

def hit(act, path):
    if act == "{act}":
        os.kill(os.getpid(), signal.{signal})

disk.before_write = hit
sys.exit(main(["undo"]))
"""


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("words", [["status"], ["undo"], ["log"], ["begin", "msg_2"]], ids=" ".join)
def test_any_command_makes_good_what_was_killed(terminal: Terminal, project: Path, words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", DIES.format(act="move", signal="SIGKILL")], check=False)
    assert done.returncode == -signal.SIGKILL

    found = terminal.run_json(*words)

    assert terminal.err == "shadowtree: warning: an interrupted undo was rolled back\n"
    assert _files(project) == (ORIGINAL if words == ["undo"] else CHANGED)
    assert words != ["undo"] or "an interrupted undo was rolled back" in found["notes"]


@pytest.mark.usefixtures("changed")
def test_any_command_finishes_what_was_killed_once_it_was_recorded(terminal: Terminal, project: Path) -> None:
    killed = DIES.format(act="unlink", signal="SIGKILL")
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -signal.SIGKILL

    terminal.run("status")

    assert terminal.err == "shadowtree: warning: an interrupted undo was finished\n"
    assert _files(project) == ORIGINAL


@pytest.mark.usefixtures("changed")
def test_an_interrupt_in_the_middle_of_an_act_changes_nothing(terminal: Terminal, project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DIES.format(act="move", signal="SIGINT")], check=False, capture_output=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"shadowtree: interrupted\n")
    assert _files(project) == CHANGED
    terminal.run("status")
    assert terminal.err == ""


@pytest.mark.usefixtures("changed")
def test_an_interrupt_once_an_act_is_recorded_does_not_make_it_a_failure(
    terminal: Terminal, project: Path
) -> None:
    """By I11. Files that were moved aside are being removed, and the interrupt waits until that is done."""
    done = subprocess.run(
        [sys.executable, "-c", DIES.format(act="unlink", signal="SIGINT")], check=False, capture_output=True
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert b"nterrupted, but it was already done" in done.stdout
    assert _files(project) == ORIGINAL
    terminal.run("status")
    assert terminal.err == ""


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("is_served", [False, True], ids=["alone", "by the daemon"])
def test_an_interrupt_while_an_act_is_reported_comes_too_late(
    terminal: Terminal, project: Path, is_served: bool
) -> None:
    """Otherwise the exit code would say that nothing was changed."""
    if is_served:
        terminal.run("watch", "--detach")
    with subprocess.Popen(
        [*COMMAND, "-C", str(project), "--json", "undo"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    end_daemon()

    assert process.returncode == 0
    assert json.loads(first + rest)["complete"]
    assert _files(project) == ORIGINAL


def test_a_colour_shows_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "can_steer", lambda stream: True)
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert list(render_outcome(make_outcome(deleted=["a"])))[1] == "  \x1b[31mdeleted \x1b[0m  a"


def test_merge_is_not_proposed_where_nothing_can_be_merged(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "m1")
    (project / "gone").write_text("1")
    terminal.run("end")
    terminal.run("begin", "m2")
    (project / "gone").write_text("2")
    terminal.run("end")
    (project / "gone").unlink()
    terminal.run("undo", exit_code=13)

    assert "merge" not in terminal.err
    assert terminal.err.endswith("use --on-conflict keep or overwrite\n")


@pytest.mark.parametrize("words", [[], ["--on-conflict", "overwrite"]], ids=["abort", "overwrite"])
def test_overwriting_is_not_proposed_where_something_must_stay(
    terminal: Terminal, project: Path, work: Work, words: list[str]
) -> None:
    work("msg_1", {"a.txt": None})
    (project / "a.txt").mkdir()
    (project / "a.txt" / "own").write_text("own")

    (conflict,) = terminal.run_json("undo", *words, exit_code=13)["conflicts"]

    assert conflict["choices"] == ["keep"]
    assert "overwrite" not in conflict["advice"]
    assert terminal.err.endswith("; use --on-conflict keep\n")
    assert terminal.run_json("undo", "--on-conflict", "keep")["kept"] == ["a.txt"]


def test_the_last_line_proposes_what_resolves_all_conflicts(
    terminal: Terminal, project: Path, work: Work
) -> None:
    work("msg_1", {"a.txt": "changed\n", "b.txt": "changed\n"})
    (project / "a.txt").write_text("my own\n")
    (project / "b.txt").unlink()
    found = terminal.run_json("undo", exit_code=13)["conflicts"]

    assert [each["choices"] for each in found] == [["merge", "keep", "overwrite"], ["keep", "overwrite"]]
    assert terminal.err.endswith("; use --on-conflict keep or overwrite\n")
