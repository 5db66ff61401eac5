"""The examples do what they show, as programs of their own: an agent, a server, a look with dulwich."""

from __future__ import annotations

import ast
import http.client
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shadowtree import Shadow
from tests.support.processes import surroundings
from tests.support.trees import Tree, assert_tree, link, make_tree, read_tree

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
AGENT = [sys.executable, str(ROOT / "examples" / "agent.py")]
SERVER = [sys.executable, str(ROOT / "examples" / "server.py"), "--port", "0"]
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


class Answer(NamedTuple):
    status: int
    body: Any  # Any: JSON
    headers: http.client.HTTPMessage


class Client:
    """Talks to a server that runs as a process of its own."""

    def __init__(self, worktree: Path, log: Path, env: dict[str, str]) -> None:
        self.log = log
        with log.open("ab") as stderr:
            self.server = subprocess.Popen(
                [*SERVER, str(worktree)], stdout=subprocess.PIPE, stderr=stderr, env=env, text=True
            )
        assert self.server.stdout is not None
        with self.server.stdout as stdout:
            self.address = stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), log.read_text()

    def ask(
        self, method: str, path: str, body: bytes | str | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request with exactly these headers, beside Host and the length of the body."""
        connection = http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=PATIENCE_S)
        connection.request(method, path, body, headers or {})
        with connection.getresponse() as response:
            content = response.read()
        connection.close()
        assert response.headers["Content-Type"] == "application/json"
        assert b"Traceback" not in content
        return Answer(response.status, json.loads(content) if method != "HEAD" else None, response.headers)

    def post(self, session: str, act: str, **body: object) -> Answer:
        headers = {"Content-Type": "application/json"}
        return self.ask("POST", f"/session/{session}/{act}", json.dumps(body), headers)

    def message(self, session: str, id: str, writes: dict[str, str], **more: object) -> Answer:
        answer = self.post(session, "message", id=id, writes=writes, **more)
        assert answer.status == 200, answer.body
        return answer

    def messages(self, session: str) -> list[tuple[str, str]]:
        answer = self.ask("GET", f"/session/{session}/messages")
        return [(message["id"], message["state"]) for message in answer.body["messages"]]

    def stop(self) -> None:
        self.server.send_signal(signal.SIGINT)
        assert self.server.wait(PATIENCE_S) == 0
        assert "Traceback" not in self.log.read_text()


@pytest.fixture
def client(worktree: Path, tmp_path: Path) -> Iterator[Client]:
    client = Client(worktree, tmp_path / "server.log", surroundings())
    yield client
    if client.server.returncode is None:
        client.stop()


@pytest.fixture(scope="module")
def lasting_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server whose session `known` is never changed."""
    place = tmp_path_factory.mktemp("lasting")
    (place / "worktree").mkdir()
    env = surroundings(HOME=str(place), SHADOWTREE_HOME=str(place / "stores"))
    client = Client(place / "worktree", place / "server.log", env)
    client.message("known", "m1", {"a.txt": "a\n"})
    yield client
    assert client.messages("known") == [("m1", "active")]
    client.stop()


def test_a_message_tells_what_it_changed(client: Client, worktree: Path) -> None:
    make_tree(worktree, {"old.txt": "old\n"})

    answer = client.post(
        "s", "message", id="m1", text="go", role="user", writes={"src/a.py": "a\n"}, deletes=["old.txt", "no"]
    )

    assert answer.status == 200
    assert (answer.body["id"], answer.body["role"], answer.body["text"]) == ("m1", "user", "go")
    assert answer.body["files"] == [
        {"path": "old.txt", "status": "deleted"},
        {"path": "src/a.py", "status": "added"},
    ]
    assert answer.body["failed"] == {"no": "No such file or directory"}
    assert_tree(worktree, {"src": {"a.py": "a\n"}})


def test_undo_with_a_count_tells_turns_messages_files_and_tree(client: Client, worktree: Path) -> None:
    make_tree(worktree, {"keep.txt": "keep\n", "gone.txt": "gone\n"})
    before = read_tree(worktree)
    first = client.message("s", "u1", {}, role="user").body
    client.message("s", "a1", {"a.py": "a\n"}, role="assistant")
    client.message("s", "u2", {}, role="user")
    client.message("s", "a2", {"a.py": "aa\n"}, role="assistant", deletes=["gone.txt"])

    answer = client.post("s", "undo", count=2)

    assert answer.status == 200
    assert answer.body["turns"] == 2
    assert answer.body["messages_removed"] == ["u1", "a1", "u2", "a2"]
    assert answer.body["files_reverted"] == ["a.py", "gone.txt"]
    assert answer.body["tree_restored"] == first["before"]
    assert answer.body["complete"] is True
    assert read_tree(worktree) == before


def test_undo_removes_the_directories_that_the_message_made(client: Client, worktree: Path) -> None:
    client.message("s", "m1", {"src/deep/a.py": "a\n"})

    assert client.post("s", "undo").body["files_reverted"] == ["src/deep/a.py"]
    assert_tree(worktree, {})


def test_redo_brings_back_what_was_undone(client: Client, worktree: Path) -> None:
    client.message("s", "m1", {"a.txt": "a\n"})
    last = client.message("s", "m2", {"a.txt": "aa\n", "b.txt": "b\n"}).body
    client.post("s", "undo", count=2)

    answer = client.post("s", "redo", count=2)

    assert (answer.status, answer.body["turns"]) == (200, 2)
    assert answer.body["messages_restored"] == ["m1", "m2"]
    assert answer.body["files_reverted"] == ["a.txt", "b.txt"]
    assert answer.body["tree_restored"] == last["after"]
    assert_tree(worktree, {"a.txt": "aa\n", "b.txt": "b\n"})


def test_a_count_left_out_is_one_turn(client: Client, worktree: Path) -> None:
    client.message("s", "m1", {"a.txt": "a\n"})
    client.message("s", "m2", {"b.txt": "b\n"})

    assert client.post("s", "undo").body["messages_removed"] == ["m2"]
    assert client.messages("s") == [("m1", "active"), ("m2", "undone")]
    assert client.post("s", "redo").body["messages_restored"] == ["m2"]
    assert_tree(worktree, {"a.txt": "a\n", "b.txt": "b\n"})


def test_less_than_was_asked_for_is_told(client: Client) -> None:
    client.message("s", "m1", {"a.txt": "a\n"})

    answer = client.post("s", "undo", count=10**30)

    assert (answer.status, answer.body["turns"], answer.body["complete"]) == (200, 1, False)
    nothing = client.post("s", "undo")
    assert (nothing.status, nothing.body["turns"], nothing.body["complete"]) == (200, 0, True)
    assert nothing.body["notes"]


def test_revert_goes_to_before_a_message(client: Client, worktree: Path) -> None:
    for number in (1, 2, 3):
        client.message("s", f"m{number}", {f"{number}.txt": "x\n"})

    answer = client.post("s", "revert", message="m2")

    assert (answer.status, answer.body["messages"]) == (200, ["m2", "m3"])
    assert_tree(worktree, {"1.txt": "x\n"})


def test_a_conflict_lists_its_paths_and_changes_nothing(client: Client, worktree: Path) -> None:
    client.message("s", "m1", {"a.txt": "a\n", "b.txt": "b\n"})
    make_tree(worktree, {"a.txt": "mine\n"})

    answer = client.post("s", "undo")

    assert (answer.status, answer.body["error"]) == (409, "Conflict")
    (conflict,) = answer.body["conflicts"]
    assert conflict["path"] == "a.txt"
    assert conflict["reason"]
    assert conflict["advice"]
    assert_tree(worktree, {"a.txt": "mine\n", "b.txt": "b\n"})

    kept = client.post("s", "undo", on_conflict="keep")
    assert (kept.status, kept.body["files_kept"], kept.body["files_reverted"]) == (200, ["a.txt"], ["b.txt"])
    assert_tree(worktree, {"a.txt": "mine\n"})


def test_a_used_id_is_a_conflict_too(client: Client, worktree: Path) -> None:
    client.message("s", "m1", {"a.txt": "a\n"})

    answer = client.post("s", "message", id="m1", writes={"b.txt": "b\n"})

    assert (answer.status, answer.body["error"]) == (409, "DuplicateMessage")
    assert_tree(worktree, {"a.txt": "a\n"})


def until(is_true: Callable[[], bool]) -> None:
    """Ask until something is true."""
    end = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < end


@pytest.fixture
def gated(worktree: Path) -> Path:
    """A pipe in the directory: a message that writes to it waits until somebody reads."""
    path = worktree / "gate"
    os.mkfifo(path)
    return path


def test_a_session_at_work_is_busy_and_another_is_not(client: Client, worktree: Path, gated: Path) -> None:
    client.message("s", "m1", {"a.txt": "a\n"})
    with ThreadPoolExecutor() as pool:
        work = pool.submit(client.message, "s", "m2", {"b.txt": "b\n", gated.name: "x"})
        until(lambda: work.done() or client.messages("s")[-1] == ("m2", "open"))

        refusals = [
            client.post("s", "undo"),
            client.post("s", "redo"),
            client.post("s", "revert", message="m1"),
            client.post("s", "message", id="m3"),
        ]
        other = client.message("other", "m1", {"c.txt": "c\n"})
        undone = client.post("other", "undo")
        gated.read_text()

    assert [(refusal.status, refusal.body["error"]) for refusal in refusals] == [(409, "Busy")] * 4
    assert (other.status, undone.body["files_reverted"]) == (200, ["c.txt"])
    assert work.result().status == 200
    assert client.post("s", "undo", count=2).body["files_reverted"] == ["a.txt", "b.txt"]


def test_sessions_that_work_at_the_same_time_undo_only_their_own(client: Client, worktree: Path) -> None:
    def work(session: str) -> None:
        for number in range(8):
            writes = {f"{session}/{number}.txt": session, f"{session}/all.txt": f"{number}\n"}
            client.message(session, f"m{number}", writes)
        for _ in range(2):
            answer = client.post(session, "undo", count=3)
            assert (answer.status, answer.body["turns"]) == (200, 3), answer.body
        assert client.post(session, "redo").status == 200

    with ThreadPoolExecutor() as pool:
        list(pool.map(work, ["left", "right"]))

    left = {"0.txt": "left", "1.txt": "left", "2.txt": "left", "all.txt": "2\n"}
    right = {"0.txt": "right", "1.txt": "right", "2.txt": "right", "all.txt": "2\n"}
    assert_tree(worktree, {"left": {**left}, "right": {**right}})


def test_a_server_that_was_killed_at_work_undoes_it_in_its_next_run(
    client: Client, worktree: Path, gated: Path, tmp_path: Path
) -> None:
    client.message("s", "m1", {"a.txt": "a\n"})
    with ThreadPoolExecutor() as pool:
        work = pool.submit(client.message, "s", "m2", {"a.txt": "aa\n", "gate": "x"})
        until(lambda: work.done() or client.messages("s")[-1] == ("m2", "open"))
        until(lambda: work.done() or (worktree / "a.txt").read_text() == "aa\n")
        client.server.kill()
        client.server.wait(PATIENCE_S)
        assert isinstance(work.exception(), http.client.HTTPException | ConnectionError)
    gated.unlink()

    again = Client(worktree, tmp_path / "again.log", surroundings())
    answer = again.post("s", "undo")

    assert answer.body["messages_removed"] == ["m2"]
    assert_tree(worktree, {"a.txt": "a\n"})
    again.stop()


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_stopped_ends_the_message_under_way(
    client: Client, worktree: Path, gated: Path, sign: signal.Signals
) -> None:
    with ThreadPoolExecutor() as pool:
        work = pool.submit(client.message, "s", "m1", {"a.txt": "a\n", "gate": "x"})
        until(lambda: work.done() or (worktree / "a.txt").exists())
        client.server.send_signal(sign)
        gated.read_text()
        assert client.server.wait(PATIENCE_S) == 0

    assert work.result().status == 200
    with Shadow(worktree, session="s") as shadow:
        assert shadow.messages()[-1].state == "active"


JSON = {"Content-Type": "application/json"}
BAD_REQUESTS: dict[str, tuple[int, str, str | bytes | None, dict[str, str]]] = {
    "unknown session": (404, "POST /session/unknown/undo", "{}", JSON),
    "redo in an unknown session": (404, "POST /session/unknown/redo", "{}", JSON),
    "messages of an unknown session": (404, "GET /session/unknown/messages", None, {}),
    "no session name": (404, "POST /session/%FF/undo", "{}", JSON),
    "bad session name": (400, "POST /session/%00/message", '{"id": "m"}', JSON),
    "broken session name": (400, "POST /session/%FF/message", '{"id": "m"}', JSON),
    "unknown message": (404, "POST /session/known/revert", '{"message": "x"}', JSON),
    "no message": (400, "POST /session/known/revert", "{}", JSON),
    "no path": (404, "POST /", "{}", JSON),
    "no session": (404, "POST /session//undo", "{}", JSON),
    "too long a path": (404, "POST /session/known/undo/more", "{}", JSON),
    "unknown act": (404, "POST /session/known/dance", "{}", JSON),
    "no body": (400, "POST /session/known/undo", "", JSON),
    "no JSON": (400, "POST /session/known/undo", "{", JSON),
    "no UTF-8": (400, "POST /session/known/undo", b"\xff{}", JSON),
    "deep JSON": (400, "POST /session/known/undo", "[" * 100_000, JSON),
    "no object": (400, "POST /session/known/undo", "[]", JSON),
    "count 0": (400, "POST /session/known/undo", '{"count": 0}', JSON),
    "count -1": (400, "POST /session/known/undo", '{"count": -1}', JSON),
    "count in quotes": (400, "POST /session/known/undo", '{"count": "2"}', JSON),
    "count true": (400, "POST /session/known/undo", '{"count": true}', JSON),
    "count 1.0": (400, "POST /session/known/undo", '{"count": 1.0}', JSON),
    "count null": (400, "POST /session/known/undo", '{"count": null}', JSON),
    "bad on_conflict": (400, "POST /session/known/undo", '{"on_conflict": "win"}', JSON),
    "GET undo": (405, "GET /session/known/undo", None, {}),
    "HEAD undo": (405, "HEAD /session/known/undo", None, {}),
    "PUT undo": (405, "PUT /session/known/undo", "{}", JSON),
    "DELETE messages": (405, "DELETE /session/known/messages", None, {}),
    "POST messages": (405, "POST /session/known/messages", "{}", JSON),
    "no method": (501, "BREW /session/known/undo", "{}", JSON),
    "no content type": (415, "POST /session/known/undo", "{}", {}),
    "plain text": (415, "POST /session/known/undo", "{}", {"Content-Type": "text/plain"}),
    "an Origin": (403, "POST /session/known/undo", "{}", JSON | {"Origin": "http://evil.example"}),
    "Origin null": (403, "POST /session/known/undo", "{}", JSON | {"Origin": "null"}),
    "foreign Host": (403, "POST /session/known/undo", "{}", JSON | {"Host": "evil.example"}),
    "Host like ours": (403, "POST /session/known/undo", "{}", JSON | {"Host": "127.0.0.1.evil.example"}),
    "no Host": (403, "POST /session/known/undo", "{}", JSON | {"Host": ""}),
    "GET with a foreign Host": (403, "GET /session/known/messages", None, {"Host": "evil.example"}),
    "too long a body": (413, "POST /session/known/undo", None, JSON | {"Content-Length": "2000000"}),
    "length -1": (400, "POST /session/known/undo", None, JSON | {"Content-Length": "-1"}),
    "length in words": (400, "POST /session/known/undo", None, JSON | {"Content-Length": "many"}),
    "chunked": (400, "POST /session/known/undo", None, JSON | {"Transfer-Encoding": "chunked"}),
}
"""The status that each is answered with; method and path, body, headers."""


@pytest.mark.parametrize(("status", "line", "body", "headers"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_bad_request_is_refused(
    lasting_client: Client, status: int, line: str, body: str | bytes | None, headers: dict[str, str]
) -> None:
    method, path = line.split()

    answer = lasting_client.ask(method, path, body, headers)

    assert answer.status == status
    if method != "HEAD":
        assert answer.body["error"]
        assert answer.body["message"]
    if status == 405:
        assert answer.headers["Allow"] in ("GET", "POST")


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"id": 1},
        {"id": ""},
        {"id": "new\nline"},
        {"id": "m", "text": 1},
        {"id": "m", "role": []},
        {"id": "m", "writes": []},
        {"id": "m", "writes": {"a.txt": 1}},
        {"id": "m", "writes": {"../a.txt": "x"}},
        {"id": "m", "writes": {"/tmp/a.txt": "x"}},
        {"id": "m", "writes": {"": "x"}},
        {"id": "m", "writes": {".": "x"}},
        {"id": "m", "writes": {"a\0": "x"}},
        {"id": "m", "writes": {"a.txt": "\ud800"}},
        {"id": "m", "deletes": {}},
        {"id": "m", "deletes": [1]},
        {"id": "m", "deletes": [".."]},
    ],
    ids=str,
)
def test_a_message_that_cannot_be_meant_is_refused(
    lasting_client: Client, message: dict[str, object]
) -> None:
    answer = lasting_client.post("known", "message", **message)

    assert answer.status == 400
    assert answer.body["message"]


def test_a_link_does_not_lead_a_message_out(client: Client, worktree: Path, tmp_path: Path) -> None:
    make_tree(worktree, {"out": link(str(tmp_path))})

    answer = client.post("s", "message", id="m1", writes={"out/a.txt": "x"})

    assert answer.status == 400
    assert not (tmp_path / "a.txt").exists()


def test_a_request_that_breaks_off_is_not_done(lasting_client: Client) -> None:
    host, _, port = lasting_client.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(
            b"POST /session/known/undo HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{}"
        )
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").readline()

    assert answer.split()[1] == b"400"


def test_localhost_is_a_name_of_this_machine_too(lasting_client: Client) -> None:
    port = lasting_client.address.rpartition(":")[2]

    answer = lasting_client.ask("GET", "/session/known/messages", headers={"Host": f"localhost:{port}"})

    assert answer.status == 200


def test_what_goes_wrong_below_is_told_without_a_traceback(client: Client, worktree: Path) -> None:
    client.message("s", "m1", {"a.txt": "a\n"})
    worktree.rename(worktree.parent / "elsewhere")

    answer = client.post("s", "undo")

    assert answer.status == 500
    assert answer.body["message"]


def test_a_port_in_use_is_one_line_on_standard_error(lasting_client: Client, worktree: Path) -> None:
    port = lasting_client.address.rpartition(":")[2]
    words = [*SERVER[:-1], port, str(worktree)]
    done = subprocess.run(words, env=surroundings(), capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("server: ")
    assert done.stderr.count("\n") == 1
