"""The examples do what they show, as programs of their own: an agent, a server, a look with dulwich."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.support.processes import surroundings
from tests.support.trees import Tree, assert_tree, link, make_tree
from tests.web.client import Client

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
AGENT = [sys.executable, str(ROOT / "examples" / "agent.py")]
SERVER = [sys.executable, str(ROOT / "examples" / "server.py")]
REPO = [sys.executable, str(ROOT / "examples" / "repo.py")]
PATIENCE_S = 60

PRICES = 'PRICES = {"tea": 4, "cake": 6}\n'
TAXED = PRICES + "TAX = 0.19\n\n\ndef price(name):\n    return PRICES[name] * (1 + TAX)\n"
REPORT = "backup/prices.py\nshop/prices.py\n"
AFTER: list[Tree] = [
    {},
    {"shop": {"prices.py": PRICES}, "notes.txt": "tax is missing\n"},
    {"shop": {"prices.py": TAXED}},
    {"shop": {"prices.py": TAXED}, "backup": {"prices.py": TAXED}, "report.txt": REPORT},
]
"""The directory after so many turns of `fixtures/agent/shop.json`."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_needs_only_what_comes_with_the_package(path: Path) -> None:
    imported = {
        name.partition(".")[0]
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert imported <= sys.stdlib_module_names | {"shadowtree", "dulwich"}


# The repository


def look(*words: str) -> tuple[int, str, str]:
    done = subprocess.run([*REPO, *words], env=surroundings(), capture_output=True, text=True, check=False)
    return done.returncode, re.sub(r"\b[0-9a-f]{8}\b", "ID", done.stdout), done.stderr


def test_the_repository_lists_messages_with_what_they_changed(worktree: Path) -> None:
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        make_tree(worktree, {"a.txt": "one\n"})
        with shadow.message("m1", text="Change a, add b"):
            make_tree(worktree, {"a.txt": "two\n", "sub": {"b.txt": "b\n"}})
        with shadow.message("m2", text="Remove a"):
            (worktree / "a.txt").unlink()

    assert look(str(worktree)) == (
        0,
        "ID Remove a\n  delete a.txt\n"
        "ID Change a, add b\n  modify a.txt\n  add sub/b.txt\n"
        "ID State before the first message\n  add a.txt\n",
        "",
    )
    assert look(str(worktree), "a.txt") == (
        0,
        "ID Remove a\n  (not there)\nID Change a, add b\ntwo\nID State before the first message\none\n",
        "",
    )
    assert "Shadowtree-Id: m1" in look(str(worktree), "--log")[1]
    assert_tree(worktree, {"sub": {"b.txt": "b\n"}})


def test_the_repository_of_nothing_is_one_line(worktree: Path) -> None:
    code, out, error = look(str(worktree))

    assert (code, out, error.count("\n")) == (1, "", 1)


# The agent


def talk(worktree: Path, *lines: str, script: Path | None = None) -> list[str]:
    """Run the agent over these lines, and give its answer to each."""
    words = [*AGENT, *(["--script", str(script)] if script else []), str(worktree)]
    done = subprocess.run(
        words,
        input="".join(f"{line}\n" for line in lines),
        env=surroundings(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    _, *answers, last = re.split(r"^> ", done.stdout, flags=re.MULTILINE)
    assert last == ""
    return [answer.removeprefix(f"{line}\n") for line, answer in zip(lines, answers, strict=True)]


def write_script(path: Path, *turns: list[dict[str, str]]) -> Path:
    """Write a script of turns with one message each, which makes these tool calls."""
    messages = [[{"text": f"turn {number}", "calls": calls}] for number, calls in enumerate(turns, 1)]
    path.write_text(json.dumps([{"prompt": "go", "messages": replies} for replies in messages]))
    return path


def test_the_agent_works_in_a_folder_without_git(worktree: Path) -> None:
    first, second, third = talk(worktree, "Start.", "Add the tax.", "Report.")

    assert_tree(worktree, AFTER[3])
    assert "write shop/prices.py" in first
    assert "msg_002 changed notes.txt, shop/prices.py" in first
    assert "delete notes.txt" in second
    assert "| shop/prices.py" in third


def test_undo_takes_back_the_last_turn_and_says_what_it_did(worktree: Path) -> None:
    *_, answer = talk(worktree, "Start.", "Add the tax.", "/undo")

    assert_tree(worktree, AFTER[1])
    assert "1 turn, 3 messages" in answer
    assert "restored notes.txt, shop/prices.py" in answer
    assert "You had asked: Add the tax." in answer


def test_undo_names_what_it_deleted(worktree: Path) -> None:
    *_, answer = talk(worktree, "Start.", "/undo")

    assert_tree(worktree, AFTER[0])
    assert "deleted notes.txt, shop/prices.py" in answer


def test_redo_brings_back_what_was_undone_deletions_too(worktree: Path) -> None:
    *_, answer = talk(worktree, "Start.", "Add the tax.", "/undo", "/redo")

    assert_tree(worktree, AFTER[2])
    assert "1 turn, 3 messages" in answer
    assert "deleted notes.txt" in answer
    assert "You had asked" not in answer


@pytest.mark.parametrize(
    ("commands", "turns"),
    [
        ("/undo 2", 1),
        ("/undo 3", 0),
        ("/undo, /undo", 1),
        ("/undo 3, /redo 2", 2),
        ("/undo 2, /redo, /redo", 3),
        ("/undo 9", 0),
        ("/undo 2, /redo 9", 3),
        ("/redo", 3),
    ],
)
def test_undo_and_redo_go_by_turns(worktree: Path, commands: str, turns: int) -> None:
    talk(worktree, "Start.", "Add the tax.", "Report.", *commands.split(", "))

    assert_tree(worktree, AFTER[turns])


def test_more_turns_than_there_are_is_told(worktree: Path) -> None:
    *_, answer = talk(worktree, "Start.", "Add the tax.", "/undo 5")

    assert "2 turns, 6 messages" in answer
    assert "Only 2 of 5 turns could be undone" in answer


def test_nothing_to_undo_or_redo_is_told(worktree: Path) -> None:
    answers = talk(worktree, "/undo", "/undo 3", "/redo")

    assert answers == ["Nothing to undo\n", "Nothing to undo\n", "Nothing to redo\n"]


def test_revert_goes_back_to_before_a_message_and_forward_again(worktree: Path) -> None:
    talk(worktree, "Start.", "Add the tax.", "Report.")

    (back,) = talk(worktree, "/revert msg_006")
    assert_tree(worktree, {"shop": {"prices.py": TAXED}, "notes.txt": "tax is missing\n"})
    assert "3 messages" in back
    (forward,) = talk(worktree, "/revert msg_007")
    assert_tree(worktree, AFTER[2])
    assert "1 message;" in forward


def test_an_unknown_message_is_told_and_changes_nothing(worktree: Path) -> None:
    *_, answer = talk(worktree, "Start.", "/revert msg_999")

    assert_tree(worktree, AFTER[1])
    assert "no message named 'msg_999'" in answer


def test_a_bad_count_is_told_and_changes_nothing(worktree: Path) -> None:
    words = ["0", "-1", "two", "1 2", "9" * 5000, "keep keep", "1.5"]
    _, *answers = talk(worktree, "Start.", *(f"/undo {word}" for word in words))

    assert_tree(worktree, AFTER[1])
    assert all(answer.startswith("Sorry: ") for answer in answers)


def test_a_conflict_changes_nothing_and_tells_path_reason_and_advice(worktree: Path) -> None:
    talk(worktree, "Start.", "Add the tax.")
    (worktree / "shop" / "prices.py").write_text("mine\n")

    (answer,) = talk(worktree, "/undo")

    assert_tree(worktree, {"shop": {"prices.py": "mine\n"}})
    sentence, conflict = answer.splitlines()
    assert sentence == "Sorry: 1 path in conflict; nothing was changed"
    assert conflict.startswith("  shop/prices.py: it was edited after")
    assert "use merge to combine, keep to leave yours" in conflict


@pytest.mark.parametrize(("word", "content"), [("keep", "mine\n"), ("overwrite", PRICES)])
def test_a_conflict_is_settled_by_a_word(worktree: Path, word: str, content: str) -> None:
    talk(worktree, "Start.", "Add the tax.")
    (worktree / "shop" / "prices.py").write_text("mine\n")

    (answer,) = talk(worktree, f"/undo {word}")

    assert_tree(worktree, {"shop": {"prices.py": content}, "notes.txt": "tax is missing\n"})
    assert ("kept shop/prices.py" in answer) == (word == "keep")


def test_what_the_user_did_between_turns_is_not_undone(worktree: Path) -> None:
    talk(worktree, "Start.")
    make_tree(worktree, {"mine.txt": "mine\n"})

    talk(worktree, "Add the tax.", "/undo 2")

    assert_tree(worktree, {"mine.txt": "mine\n"})


def test_the_conversation_is_cut_by_an_undo(worktree: Path) -> None:
    """The model answers by what it sees: the second prompt is its second turn again."""
    *_, again = talk(worktree, "Start.", "Add the tax.", "/undo", "Add the tax, please.")

    assert_tree(worktree, AFTER[2])
    assert "edit shop/prices.py" in again


def test_the_conversation_is_whole_again_after_a_redo(worktree: Path) -> None:
    *_, third = talk(worktree, "Start.", "Add the tax.", "/undo 2", "/redo 2", "Report.")

    assert_tree(worktree, AFTER[3])
    assert "| shop/prices.py" in third


def test_the_conversation_goes_on_in_the_next_run(worktree: Path) -> None:
    talk(worktree, "Start.", "Add the tax.", "/undo")
    talk(worktree, "/redo")
    talk(worktree, "Report.")

    assert_tree(worktree, AFTER[3])
    (end,) = talk(worktree, "And now?")
    assert "My script is at its end." in end


def test_the_log_tells_messages_and_what_is_undone(worktree: Path) -> None:
    *_, log = talk(worktree, "Start.", "Add the tax.", "/undo", "/log")

    lines = [line.split(maxsplit=3) for line in log.splitlines()]
    assert [words[:3] for words in lines] == [
        ["msg_001", "active", "user"],
        ["msg_002", "active", "assistant"],
        ["msg_003", "active", "assistant"],
        ["msg_004", "undone", "user"],
        ["msg_005", "undone", "assistant"],
        ["msg_006", "undone", "assistant"],
    ]
    assert lines[1][3].startswith("2 files")
    assert lines[3][3].endswith("Add the tax.")


def test_help_is_given_for_what_is_no_command(worktree: Path) -> None:
    for answer in talk(worktree, "/help", "/", "/what is this"):
        assert answer.startswith("/undo ")


def test_every_tool_call_is_a_step_to_go_back_to(worktree: Path) -> None:
    talk(worktree, "Start.")

    with Shadow(worktree, session="agent") as shadow:
        shadow.revert("msg_002", step="2 write")

    assert_tree(worktree, {"shop": {"prices.py": PRICES}})


def test_a_tool_that_fails_is_told_and_the_turn_goes_on(worktree: Path, tmp_path: Path) -> None:
    calls = [
        {"tool": "write", "path": "../outside.txt", "content": "x"},
        {"tool": "write", "path": "ln/outside.txt", "content": "x"},
        {"tool": "edit", "path": "a.txt", "old": "x", "new": "y"},
        {"tool": "dance", "path": "a.txt"},
        {"tool": "write", "path": "a.txt"},
        {"tool": "delete", "path": "ln"},
        {"tool": "write", "path": "b.txt", "content": "b\n"},
    ]
    make_tree(worktree, {"a.txt": "xx\n", "ln": link(str(tmp_path))})

    (answer,) = talk(worktree, "go", script=write_script(tmp_path / "script.json", calls))

    assert answer.count("| failed: ") == 6
    assert_tree(worktree, {"a.txt": "xx\n", "ln": link(str(tmp_path)), "b.txt": "b\n"})
    assert not (tmp_path / "outside.txt").exists()


def test_hostile_names_do_not_reach_the_terminal(worktree: Path, tmp_path: Path) -> None:
    calls = [{"tool": "shell", "command": r"printf x > \"$(printf 'a\033[31mb\377')\"".replace('\\"', '"')}]

    turn, undo = talk(worktree, "go", "/undo", script=write_script(tmp_path / "script.json", calls))

    assert "\x1b" not in turn + undo
    assert "deleted 'a\\x1b[31mb\\udcff'" in undo
    assert_tree(worktree, {})


def test_a_directory_that_is_not_there_is_one_line_on_standard_error(tmp_path: Path) -> None:
    words = [*AGENT, str(tmp_path / "nowhere")]
    done = subprocess.run(words, env=surroundings(), capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("agent: ")
    assert done.stderr.count("\n") == 1


class Person:
    """Somebody at a terminal, who can type while the agent works."""

    def __init__(self, *words: str) -> None:
        self._keyboard, terminal = pty.openpty()
        self.agent = subprocess.Popen(
            [*AGENT, *words],
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=surroundings(),
        )
        os.close(terminal)
        self._seen = ""

    def type(self, line: str) -> None:
        os.write(self._keyboard, f"{line}\n".encode())

    def see(self, text: str) -> str:
        """Wait for a text, and give all that was printed up to it."""
        assert self.agent.stdout is not None
        while text not in self._seen:
            ready, _, _ = select.select([self.agent.stdout], [], [], PATIENCE_S)
            read = os.read(self.agent.stdout.fileno(), 4096) if ready else b""
            assert read, f"no {text!r} in {self._seen!r}"
            self._seen += read.decode()
        seen, _, self._seen = self._seen.partition(text)
        return seen

    def leave(self) -> None:
        self.agent.kill()
        self.agent.wait(PATIENCE_S)
        assert self.agent.stdout is not None
        self.agent.stdout.close()
        os.close(self._keyboard)


class Gate:
    """A pipe that a shell command reads from: it waits until the gate is opened."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # For both directions, so that neither side waits for the other when it opens the pipe.
        self._pipe = os.open(path, os.O_RDWR)
        self.command = f"read line < '{path}'"

    def open(self) -> None:
        os.write(self._pipe, b"go\n")

    def remove(self) -> None:
        """Let go of the pipe; a command that still waits ends."""
        os.close(self._pipe)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.remove()


@pytest.fixture
def person(worktree: Path, tmp_path: Path, gate: Gate) -> Iterator[Person]:
    """Somebody whose agent writes a file, waits for the gate, and writes another file."""
    calls = [
        {"tool": "write", "path": "a.txt", "content": "a\n"},
        {"tool": "shell", "command": gate.command},
        {"tool": "write", "path": "b.txt", "content": "b\n"},
    ]
    person = Person("--script", str(write_script(tmp_path / "script.json", calls)), str(worktree))
    person.see("> ")
    yield person
    person.leave()


def test_a_working_agent_refuses(person: Person, gate: Gate, worktree: Path) -> None:
    person.type("go")
    person.see("shell read")

    for line in ["/undo", "/undo 2", "/redo", "/revert msg_001", "another prompt"]:
        person.type(line)
        person.see("Busy: ")
    assert_tree(worktree, {"a.txt": "a\n"})

    gate.open()
    person.see("> ")
    assert_tree(worktree, {"a.txt": "a\n", "b.txt": "b\n"})
    person.type("/undo")
    assert "deleted a.txt, b.txt" in person.see("> ")
    assert_tree(worktree, {})


def test_ctrl_c_stops_after_the_tool_call_and_the_message_has_its_end(
    person: Person, gate: Gate, worktree: Path
) -> None:
    person.type("go")
    person.see("shell read")
    person.agent.send_signal(signal.SIGINT)
    # It is answered only when the signal has been, because one thread does both.
    person.type("/undo")
    person.see("Busy: ")

    gate.open()

    assert "msg_002 changed a.txt" in person.see("Stopped.")
    person.see("> ")
    with Shadow(worktree, session="agent") as shadow:
        assert [message.state for message in shadow.messages()] == ["active", "active"]
    person.type("/undo")
    person.see("deleted a.txt")
    assert_tree(worktree, {})


def test_ctrl_c_leaves_when_nothing_is_done(person: Person) -> None:
    person.agent.send_signal(signal.SIGINT)

    assert person.agent.wait(PATIENCE_S) == 130


def test_quit_waits_for_the_tool_call_that_runs(person: Person, gate: Gate, worktree: Path) -> None:
    person.type("go")
    person.see("shell read")
    person.type("/undo")
    person.see("Busy: ")
    person.type("/quit")
    gate.open()

    assert person.agent.wait(PATIENCE_S) == 0
    with Shadow(worktree, session="agent") as shadow:
        assert shadow.messages()[-1].state == "active"


def test_an_agent_that_was_killed_at_work_can_undo_in_its_next_run(person: Person, worktree: Path) -> None:
    person.type("go")
    person.see("shell read")
    person.agent.kill()
    person.agent.wait(PATIENCE_S)

    (answer,) = talk(worktree, "/undo")

    assert "deleted a.txt" in answer
    assert "You had asked: go" in answer
    assert_tree(worktree, {})


# The server


def test_the_server_offers_the_routes_of_the_page(worktree: Path) -> None:
    process = subprocess.Popen(
        [*SERVER, str(worktree)], stdout=subprocess.PIPE, env=surroundings(), text=True
    )
    assert process.stdout is not None
    address, _, token = process.stdout.readline().strip().partition("/#")
    client = Client(int(address.rpartition(":")[2]), token)
    assert_tree(worktree, {"hello.txt": "hello\n"})
    client.act("/api/undo")
    assert_tree(worktree, {})
    assert client.get("/api/state")["undone"][0]["text"] == "say hello"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
