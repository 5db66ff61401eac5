"""The commands for messages: those that hosts of agents call, and their output for people."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from shadowtree import FileDiff, Message, Skipped
from shadowtree.cli import output
from shadowtree.cli.format import cut, describe_age, measure, shorten_ids
from shadowtree.cli.views.log import render_log, render_message
from shadowtree.cli.views.status import list_unprotected, summarise_unprotected
from tests.support.terminal import Terminal
from tests.support.trees import make_tree
from tests.support.values import NOW_MS, make_message


def _diff(path: str = "f0") -> FileDiff:
    patch = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1,2 @@\n-one\n+two\n+three\n"
    return FileDiff(path, "modified", 2, 1, False, patch)


# The log: values in, lines out


def test_the_log_has_a_row_for_each_message_in_columns() -> None:
    messages = [
        make_message(9, files=12, time_ms=NOW_MS - 7_200_000),
        make_message(10, time_ms=NOW_MS - 180_000),
        make_message(11, text="", state="open", time_ms=NOW_MS - 2_000),
    ]

    rows = list(render_log(messages, [(100, 20), (1, 1), None], now_ms=NOW_MS))

    assert rows == [
        "   #9    2 h        msg_9   do number 9   f0 +11 more  +100  -20",
        "  #10  3 min        msg_10  do number 10  f0             +1   -1",
        "@ #11    2 s  open  msg_11",
    ]


def test_undone_messages_are_named_and_dimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "can_steer", lambda stream: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    messages = [make_message(1), make_message(2, state="undone"), make_message(3, state="archived")]

    rows = list(render_log(messages, [(1, 1)] * 3, now_ms=NOW_MS))

    assert rows[0] == ("@ #1  1 min            msg_1  do number 1  f0  \x1b[32m+1\x1b[0m  \x1b[31m-1\x1b[0m")
    assert rows[1] == "\x1b[2m  #2  2 min  undone    msg_2  do number 2  f0  +1  -1\x1b[0m"
    assert rows[2] == "\x1b[2m  #3  3 min  archived  msg_3  do number 3  f0  +1  -1\x1b[0m"


def test_texts_are_cut_to_the_width_of_the_terminal() -> None:
    messages = [make_message(1, text="x" * 200), make_message(2, text="漢" * 100)]

    rows = list(render_log(messages, [(1, 1), (2, 2)], now_ms=NOW_MS, width=60))

    assert [measure(row) for row in rows] == [60, 60]
    assert all("…" in row for row in rows)


def test_without_a_terminal_a_long_text_is_cut_too() -> None:
    """Otherwise one row would push the columns of all rows out of sight."""
    (row,) = render_log([make_message(1, text="x" * 5000)], [None], now_ms=NOW_MS)

    assert f"  {'x' * 99}…  f0" in row


def test_a_narrow_terminal_still_shows_something_of_a_text() -> None:
    (row,) = render_log([make_message(1, text="x" * 200)], [None], now_ms=NOW_MS, width=10)

    assert "x" * 19 + "…" in row


def test_the_log_of_all_sessions_names_them_and_marks_no_head() -> None:
    messages = [make_message(1), make_message(1, session="other")]

    rows = list(render_log(messages, [None, None], now_ms=NOW_MS, has_sessions=True))

    assert rows == [
        "  #1  1 min  default  msg_1  do number 1  f0",
        "  #1  1 min  other    msg_1  do number 1  f0",
    ]


def test_turns_are_numbered_where_a_turn_has_several_messages() -> None:
    messages = [make_message(1, role="user", turn=1), make_message(2, role="assistant", turn=1)]
    messages += [make_message(3, role="user", turn=2)]

    rows = list(render_log(messages, [None] * 3, now_ms=NOW_MS))

    assert [row[4:14] for row in rows] == ["  turn 1  ", "          ", "  turn 2  "]


def test_an_inferred_end_is_marked() -> None:
    (row,) = render_log([make_message(1, inferred=True)], [None], now_ms=NOW_MS)

    assert "end inferred" in row


def test_long_ids_are_shortened_to_what_tells_them_apart() -> None:
    ids = ["0192ab34-aaaa-bbbb-cccc-1", "0192ab34-aaab-bbbb-cccc-2", "short", "12345678901234567890123"]

    assert shorten_ids(ids) == {
        "0192ab34-aaaa-bbbb-cccc-1": "0192ab34-aaaa",
        "0192ab34-aaab-bbbb-cccc-2": "0192ab34-aaab",
        "short": "short",
        "12345678901234567890123": "12345678901234567890123",
    }


def test_where_lines_part_their_number_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [make_message(1), make_message(2, parent="msg_1", state="undone")]
    messages += [make_message(3, parent="msg_1")]

    assert "fork 2" in _log_in("ascii", messages, monkeypatch)[0]
    assert "⑂ 2" in _log_in("utf-8", messages, monkeypatch)[0]


def _log_in(encoding: str, messages: list[Message], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding))
    return list(render_log(messages, [None] * len(messages), now_ms=NOW_MS))


def test_a_text_cannot_steer_the_terminal() -> None:
    (row,) = render_log([make_message(text="\n \n a\x1b[2J\t\u202eb \nsecond")], [None], now_ms=NOW_MS)

    assert "  a\\x1b[2J \\u202eb  " in row
    assert "second" not in row


def test_an_empty_log_has_no_rows() -> None:
    assert list(render_log([], [], now_ms=NOW_MS, width=80)) == []


@pytest.mark.parametrize(
    ("age_s", "told"),
    [
        (-5, "0 s"),
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (86399, "23 h"),
        (86400, "1 day"),
        (29 * 86400, "29 days"),
        (60 * 86400, "2 months"),
        (800 * 86400, "2 years"),
    ],
)
def test_an_age_is_told_in_its_largest_unit(age_s: int, told: str) -> None:
    assert describe_age(age_s * 1000) == told


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("漢字", 3, "漢…"),
        ("ab cd", 4, "ab…"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
    ],
)
def test_cut_counts_columns_not_characters(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown


def test_a_message_is_shown_in_full() -> None:
    message = make_message(
        7,
        text="add a page\n\nand a \x1btest",
        role="user",
        state="undone",
        time_ms=NOW_MS - 180_000,
        skipped=[Skipped("pipe", "it is a pipe")],
    )

    lines = list(render_message(message, [_diff()], now_ms=NOW_MS, escape_content=True))

    assert lines == [
        "#7 msg_7",
        f"3 min ago, {message.time.astimezone():%Y-%m-%d %H:%M}, session default, role user, undone",
        "    add a page",
        "",
        "    and a \\x1btest",
        "",
        "1 file changed",
        "M f0  +2 -1",
        "1 path not protected:",
        "  pipe (it is a pipe)",
        "",
        "diff --git a/f0 b/f0",
        "--- a/f0",
        "+++ b/f0",
        "@@ -1 +1,2 @@",
        "-one",
        "+two",
        "+three",
    ]


def test_a_message_without_changes_says_so() -> None:
    lines = list(render_message(make_message(1, files=0), [], now_ms=NOW_MS, escape_content=True))

    assert lines[-1] == "Nothing changed"


# The commands


def test_begin_and_end_give_the_documented_json(terminal: Terminal, project: Path) -> None:
    begun = terminal.run_json("begin", "msg_1", "-m", "add c", "--role", "user", "--meta", '{"k": [1]}')
    (project / "c.txt").write_text("new\n")
    ended = terminal.run_json("end", "msg_1")

    assert list(begun) == ["message", "session", "before", "skipped"]
    assert (begun["message"], begun["session"], begun["skipped"]) == ("msg_1", "default", [])
    assert list(ended) == ["message", "session", "before", "after", "files", "skipped", "unprotected"]
    assert ended["before"] == begun["before"]
    assert ended["after"] == terminal.run("track").strip()
    assert ended["files"] == [{"path": "c.txt", "status": "added"}]
    (entry,) = terminal.run_json("log")
    assert (entry["text"], entry["role"], entry["meta"]) == ("add c", "user", {"k": [1]})


def test_begin_and_end_tell_people_in_a_line(terminal: Terminal, project: Path) -> None:
    assert terminal.run("begin", "msg_1") == "Began message msg_1\n"
    (project / "c.txt").write_text("new\n")
    assert terminal.run("end") == "Message msg_1 changed 1 file\n"
    assert terminal.run("snapshot", "msg_2") == "Message msg_2 changed nothing\n"
    assert terminal.err == ""


def test_snapshot_takes_what_changed_since_the_last_record(terminal: Terminal, project: Path) -> None:
    terminal.run("snapshot", "msg_1")
    (project / "a.txt").unlink()

    found = terminal.run_json("snapshot", "msg_2", "-m", "remove a")

    assert list(found) == ["message", "session", "before", "after", "files", "skipped", "unprotected"]
    assert found["files"] == [{"path": "a.txt", "status": "deleted"}]


def test_a_step_has_its_own_files(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "msg_1")
    begun = terminal.run_json("step", "edit")
    (project / "a.txt").write_text("changed\n")
    ended = terminal.run_json("step", "edit", "--end")

    assert list(begun) == ["message", "step", "before"]
    assert list(ended) == ["message", "step", "before", "after", "files"]
    assert (ended["message"], ended["step"]) == ("msg_1", "edit")
    assert ended["files"] == [{"path": "a.txt", "status": "modified"}]
    assert terminal.run("step", "look") == "Began step look of message msg_1\n"
    assert terminal.run("step", "look", "--end") == "Step look of message msg_1 changed nothing\n"


def test_end_takes_paths_relative_to_the_current_directory(
    terminal: Terminal, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "deep").mkdir()
    terminal.run("begin", "msg_1")
    (project / "deep" / "mine").write_text("mine\n")
    (project / "a.txt").write_text("mine too\n")
    (project / "b.txt").write_text("somebody else's\n")
    monkeypatch.chdir(project / "deep")

    found = terminal.run_json("end", "--path", "mine", "--path", "../a.txt")

    assert [entry["path"] for entry in found["files"]] == ["a.txt", "deep/mine"]


def test_a_path_is_found_through_a_link_to_the_worktree(terminal: Terminal, project: Path) -> None:
    (project.parent / "way").symlink_to(project)
    terminal.run("begin", "msg_1")
    (project / "a.txt").write_text("mine\n")

    found = terminal.run_json("end", "--path", str(project.parent / "way" / "a.txt"))

    assert [entry["path"] for entry in found["files"]] == ["a.txt"]


def test_a_path_outside_of_the_worktree_is_wrong_usage(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "msg_1")

    found = terminal.run_json("end", "--path", "../elsewhere", exit_code=2)

    assert found["message"] == f"'{project.parent}/elsewhere' is not in the worktree"
    assert terminal.run_json("status")["open"] == "msg_1"


def test_without_an_id_one_is_made_and_printed(terminal: Terminal, project: Path) -> None:
    first = terminal.run("begin").strip()
    second = terminal.run_json("snapshot", "-m", "a text")["message"]
    third = terminal.run("snapshot", "-m", "another text")

    ids = [message["id"] for message in terminal.run_json("log")]
    assert ids[:2] == [first, second]
    assert third == f"Message {ids[2]} changed nothing\n"
    assert len(ids) == 3


def test_a_message_that_was_never_ended_is_told_of(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "m1")
    (project / "z.txt").write_text("agent")
    terminal.run("begin", "m2")
    warning = "message 'm1' was never ended: it ends here, and undoing it may undo your edits too"
    assert terminal.err == f"shadowtree: warning: {warning}\n"
    (project / "a.txt").write_text("agent")
    terminal.run("end")
    assert terminal.run_json("begin", "m3")["message"] == "m3"
    assert terminal.run_json("begin", "m4")["warnings"][0].startswith("message 'm3' was never ended")
    terminal.run("end")
    shown = terminal.run("revert", "m1", "--dry-run").splitlines()

    assert shown[1] == "  delete    z.txt  (may be your own edit)"
    assert shown[2] == "  restore   a.txt"
    note = "Message 'm1' was never ended: edits you made before it was closed may be undone too"
    assert note in shown, "m3 changed nothing"
    assert "never ended; closed by a later command" in terminal.run("show", "m1")


def test_steps_are_shown_with_what_each_changed(terminal: Terminal, project: Path) -> None:
    terminal.run("begin", "m1")
    begun = terminal.run_json("step", "edit-1", "--meta", '{"tool": "edit"}')
    terminal.run("step", "edit-2")
    for name in "vwxyz":
        (project / name).write_text("1")
    ended = terminal.run_json("step", "edit-1", "--end")
    terminal.run("end")
    found = terminal.run_json("show", "m1")
    lines = terminal.run("show", "m1").splitlines()

    assert list(begun) == ["message", "step", "before"]
    assert list(ended) == ["message", "step", "before", "after", "files"]
    first, second = found["steps"]
    assert (first["step"], first["meta"], first["inferred"]) == ("edit-1", {"tool": "edit"}, False)
    assert (second["step"], second["meta"], second["inferred"]) == ("edit-2", None, True)
    assert [file["path"] for file in first["files"]] == [*"vwxyz"]
    assert first["time"].endswith("+00:00")
    place = lines.index("2 steps:")
    assert lines[place + 1] == "  edit-1  5 files  v, w, x +2 more"


def test_the_log_is_what_the_contract_says(terminal: Terminal, project: Path) -> None:
    _record(terminal, project, 3)

    found = terminal.run_json("log")

    keys = ["id", "number", "turn", "session", "role", "text", "time", "before", "after", "files", "state"]
    assert list(found[0])[:13] == [*keys, "branch", "inferred"]
    assert [entry["id"] for entry in found] == ["msg_1", "msg_2", "msg_3"]
    assert [entry["files"] for entry in found] == [1, 1, 1]
    assert found[0]["time"].endswith("+00:00")


def test_the_log_counts_lines_and_marks_the_head(terminal: Terminal, project: Path) -> None:
    _record(terminal, project, 2)

    rows = terminal.run("log").splitlines()

    assert [row[:4] for row in rows] == ["  #1", "@ #2"]
    assert [row.split()[-2:] for row in rows] == [["+1", "-1"], ["+1", "-1"]]


def test_the_log_shows_twenty_messages_unless_told(terminal: Terminal, project: Path) -> None:
    _record(terminal, project, 22)

    first, second = terminal.run("log").splitlines()[:2]
    assert first == "Earlier messages are not shown (use -n 0 to list all)"
    assert second.split()[0] == "#3"
    assert len(terminal.run("log").splitlines()) == 21
    assert len(terminal.run("log", "-n", "0").splitlines()) == 22
    assert len(terminal.run("log", "-n", "22").splitlines()) == 22
    assert len(terminal.run_json("log")) == 22
    assert [entry["id"] for entry in terminal.run_json("log", "-n", "2")] == ["msg_21", "msg_22"]


def test_the_log_of_all_sessions(terminal: Terminal, project: Path) -> None:
    _record(terminal, project, 1)
    terminal.run("snapshot", "other_1", "--session", "other")

    assert [entry["session"] for entry in terminal.run_json("log", "--all")] == ["default", "other"]
    assert [entry["session"] for entry in terminal.run_json("log")] == ["other"]
    assert [entry["session"] for entry in terminal.run_json("log", "--session", "default")] == ["default"]
    assert terminal.run("log", "--all").count("\n") == 2


def test_a_log_without_messages_says_so(terminal: Terminal) -> None:
    terminal.run("wrap")

    assert terminal.run("log") == "No messages yet\n"
    assert terminal.run_json("log") == []


@pytest.mark.parametrize("name", ["msg_2", "#2", "2", "@", "@~0"])
def test_show_finds_a_message_by_its_names(terminal: Terminal, project: Path, name: str) -> None:
    _record(terminal, project, 2)

    found = terminal.run_json("show", name)

    assert found["id"] == "msg_2"
    assert found["files"] == [{"path": "a.txt", "status": "modified"}]
    assert [entry["path"] for entry in found["diff"]] == ["a.txt"]
    assert "+work 2" in terminal.run("show", name).splitlines()


def test_an_ambiguous_name_lists_the_candidates(terminal: Terminal, project: Path) -> None:
    _record(terminal, project, 2)

    found = terminal.run_json("show", "msg_", exit_code=2)

    assert found["error"] == "AmbiguousMessage"
    assert terminal.err == (
        "shadowtree: 'msg_' matches 2 messages: 'msg_1', 'msg_2';"
        " use the full id or the number, such as '#7'\n"
    )


def test_a_number_that_also_begins_an_id_is_told_with_a_name_that_works(terminal: Terminal) -> None:
    terminal.run("snapshot", "msg_1")
    terminal.run("snapshot", "1abc")

    terminal.run("show", "1", exit_code=2)

    assert terminal.err == (
        "shadowtree: '1' could mean #1 ('msg_1') or '1abc'; use the full id or the number, such as '#7'\n"
    )
    assert terminal.run_json("show", "#1")["id"] == "msg_1"


def test_diff_takes_names_of_messages(terminal: Terminal, project: Path) -> None:
    _record(terminal, project, 2)

    (found,) = terminal.run_json("diff", "msg_1^", "msg_2")

    assert (found["path"], found["additions"], found["deletions"]) == ("a.txt", 1, 1)
    assert terminal.run_json("diff", "msg_2") == []


def test_status_tells_of_the_timeline(terminal: Terminal, project: Path) -> None:
    _record(terminal, project, 2)
    terminal.run("undo")
    found = terminal.run_json("status")
    assert (found["head"], found["open"], found["undone"]) == ("msg_1", None, ["msg_2"])
    assert "The session is default, last message msg_1, 1 undone message" in terminal.run("status")
    terminal.run("begin", "msg_3")

    assert "The session is default, last message msg_1, open message msg_3" in terminal.run("status")


def test_status_counts_from_the_last_record_of_the_session(terminal: Terminal, project: Path) -> None:
    terminal.run("track")
    assert "0 paths changed since the last snapshot" in terminal.run("status")
    _record(terminal, project, 1)
    make_tree(project, {"new.txt": "1"})
    terminal.run("track")

    assert "1 path changed since the session last recorded, outside any message:" in terminal.run("status")


def test_an_id_with_a_dash_comes_after_two_dashes(terminal: Terminal) -> None:
    assert terminal.run("begin", "--", "-x") == "Began message -x\n"
    assert terminal.run_json("end", exit_code=0)["message"] == "-x"


def test_a_text_may_be_empty_or_no_utf8(terminal: Terminal) -> None:
    terminal.run("snapshot", "msg_1", "-m", "")
    terminal.run("snapshot", "msg_2", "-m", os.fsdecode(b"caf\xe9"))

    assert [entry["text"] for entry in terminal.run_json("log")] == ["", "caf\ufffd"]


@pytest.mark.parametrize(
    ("words", "exit_code", "name"),
    [
        (["begin", "msg_1"], 2, "DuplicateMessage"),
        (["snapshot", "msg_1"], 2, "DuplicateMessage"),
        (["end"], 12, "UnknownMessage"),
        (["end", "unknown"], 12, "UnknownMessage"),
        (["show", "unknown"], 12, "UnknownMessage"),
        (["diff", "unknown"], 12, None),
        (["step", "edit"], 12, "UnknownMessage"),
        (["begin", "a\nb"], 2, "InvalidInput"),
        (["begin", "x" * 257], 2, "InvalidInput"),
        (["begin", "msg_2", "--meta", "[]"], 2, "InvalidInput"),
        (["begin", "msg_2", "--meta", "{"], 2, "InvalidInput"),
        (["begin", "msg_2", "--meta", '{"a": NaN}'], 2, "InvalidInput"),
        (["begin", "msg_2", "--meta", '{"a":' * 100_000], 2, "InvalidInput"),
        (["begin", ""], 2, "InvalidInput"),
        (["begin", "@~2"], 2, "InvalidInput"),
        (["snapshot", "#1"], 2, "InvalidInput"),
        (["step", "edit", "--end", "--meta", "{}"], 2, "InvalidInput"),
        (["end", "--path", ""], 2, "InvalidInput"),
        (["log", "-n", "-1"], 2, "InvalidInput"),
        (["log", "-n", "many"], 2, "InvalidInput"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_what_is_refused_changes_nothing(
    terminal: Terminal, project: Path, words: list[str], exit_code: int, name: str | None
) -> None:
    _record(terminal, project, 1)
    before = terminal.run_json("log")

    found = terminal.run_json(*words, exit_code=exit_code)

    assert list(found) == ["error", "message"]
    assert name is None or found["error"] == name
    assert terminal.err.startswith("shadowtree: ")
    assert terminal.err.count("\n") == 1
    assert terminal.run_json("log") == before


@pytest.mark.parametrize(
    "words", [["end"], ["step", "x"], ["log"], ["show", "x"]], ids=lambda words: words[0]
)
def test_what_does_not_wrap_exits_10(terminal: Terminal, stores: Path, words: list[str]) -> None:
    assert terminal.run_json(*words, exit_code=10)["error"] == "NotWrapped"
    assert not stores.exists()


def test_recording_tells_of_what_is_not_protected(terminal: Terminal, project: Path) -> None:
    os.mkfifo(project / "pipe")

    for words in (["begin", "msg_1"], ["end"], ["snapshot", "msg_2"]):
        terminal.run(*words)
        assert terminal.err.startswith("shadowtree: warning: not protected: pipe (")
        assert terminal.err.count("\n") == 1


def _record(terminal: Terminal, project: Path, messages: int) -> None:
    """Record messages that change `a.txt` one after the other; its first content is `one`."""
    for number in range(1, messages + 1):
        terminal.run("begin", f"msg_{number}", "-m", f"do {number}")
        (project / "a.txt").write_text(f"work {number}\n")
        terminal.run("end", f"msg_{number}")


# Files that are not protected


def test_a_file_that_is_not_protected_is_told_where_it_matters(terminal: Terminal, project: Path) -> None:
    """First hour, B6."""
    make_tree(project, {".gitignore": ".env\n", ".env": "S=1"})
    terminal.run("begin", "m1")
    (project / ".env").write_text("S=22")

    assert terminal.run_json("end")["unprotected"] == [".env"]
    blamed = terminal.run("blame", ".env")
    assert "Nobody" not in blamed
    assert ".env is not protected: an ignore rule excludes it\n" in blamed
    assert "m1  not protected" in blamed
    for words in (["show", "m1"], ["blame", ".env"], ["undo", "--dry-run"], ["undo"]):
        assert "to protect it: shadowtree protect .env\n" in terminal.run(*words)
    assert "1 unprotected" in terminal.run("log")
    why = "1 file changed, but it is not protected"
    assert f"{why}, so it would be left alone:\n" in terminal.run("redo", "--dry-run")
    assert f"{why}, so it was left alone:\n" in terminal.run("redo")
    assert f"{why}:\n" in terminal.run("show", "m1")
    terminal.run("undo")
    assert terminal.run_json("log")[0]["unprotected"] == [".env"]
    assert terminal.run_json("redo")["unprotected"] == [".env"]


def test_show_of_a_path_lists_no_other_file_that_is_not_protected(terminal: Terminal, project: Path) -> None:
    make_tree(project, {".gitignore": "*.env\n", "a.env": "1", "sub": {"b.env": "1"}})
    terminal.run("begin", "m1")
    make_tree(project, {"a.env": "22", "sub": {"b.env": "22"}})
    terminal.run("end")

    for path, unprotected in (("a.env", ["a.env"]), ("sub", ["sub/b.env"]), ("a.txt", [])):
        assert terminal.run_json("show", "m1", path)["unprotected"] == unprotected
    assert terminal.run_json("show", "m1", ".")["unprotected"] == ["a.env", "sub/b.env"]
    assert "sub/b.env" not in terminal.run("show", "m1", "a.env")


def test_show_does_not_say_that_nothing_changed_at_a_path_that_is_not_protected(
    terminal: Terminal, project: Path
) -> None:
    """Only the first 1,000 ignored files are checked for changes, and this one comes after them."""
    logs = {f"{number:04}.log": "1" for number in range(1000)}
    make_tree(project, {".gitignore": "*.log\nz.env\n", "z.env": "1", **logs})
    terminal.run("begin", "m1")
    make_tree(project, {"z.env": "22"})
    terminal.run("end")

    assert "only the first 1,000 ignored or too big files are checked for changes" in terminal.err
    assert terminal.run("show", "m1", "z.env").splitlines()[-3:] == [
        "No protected file changed",
        "z.env is not protected: an ignore rule excludes it",
        "    to protect it: shadowtree protect z.env",
    ]


def test_the_number_of_unprotected_files_is_a_lower_bound_if_there_are_too_many() -> None:
    paths = [f"{number:04}.log" for number in range(1000)]

    assert next(list_unprotected(paths)) == "At least 1,000 files changed, but they are not protected:"
    assert summarise_unprotected(paths).startswith("0000.log and at least 999 other files changed")
    assert next(list_unprotected(paths[1:])) == "999 files changed, but they are not protected:"


def test_protect_says_what_it_writes_first(terminal: Terminal, project: Path) -> None:
    make_tree(project, {".gitignore": ".env\n", ".env": "S=1", "sub": {".env": "S=1"}})
    terminal.run("wrap")

    assert terminal.run("protect", "--dry-run", ".env") == "Would add to .shadowtreeignore: !/.env\n"
    assert terminal.run("protect", "sub/.env") == "sub/.env will be protected from the next snapshot on\n"
    assert f"adding !/sub/.env to {project}/.shadowtreeignore" in terminal.err
    assert terminal.run("protect", "sub/.env", "typo") == (
        "sub/.env is already protected\ntypo does not exist and is not ignored\n"
    )
    assert terminal.run_json("protect", ".env") == [
        {"path": ".env", "rule": "!/.env", "exists": True, "dry_run": False}
    ]
    assert (project / ".shadowtreeignore").read_text() == "!/sub/.env\n!/.env\n"
