"""A small coding agent whose turns can be undone and redone, files and conversation alike.

    python examples/agent.py [--script FILE] DIRECTORY

It is complete but for its model, which is a script of tool calls, so that it needs no network: the nth
prompt of a conversation is answered by the nth turn of the script, whatever was typed. `/help` lists the
commands.

What an agent does for an undo that can be trusted:

- It records each message with `shadow.message()`, and each tool call inside it with `shadow.step()`.
- It cuts its conversation by the ids in the outcome of an undo, and puts back those of a redo.
- It refuses to undo while it is at work. Nobody else knows that it is.
- It tells which files were touched, and what stood in the way.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from threading import Lock, Thread
from typing import Literal, TextIO

from shadowtree import Conflict, InvalidInput, Outcome, Shadow, ShadowError

SCRIPT = Path(__file__).parent.parent / "fixtures" / "agent" / "shop.json"
BUSY = "Busy: I am at work. Wait for the prompt, or stop me with Ctrl-C."
HELP = """\
/undo [N] [keep|overwrite]   take back the last turn, or the last N
/redo [N] [keep|overwrite]   bring back what was undone
/revert ID [keep|overwrite]  go to where everything was before a message
/log                         list the last messages
/quit                        leave; the next run goes on from here
Anything else is a prompt. Ctrl-C stops the work after the tool call that runs.
An undo stops at files that you changed yourself: `keep` leaves those as they are, `overwrite` does not."""

Call = dict[str, str]
"""The name of a tool under `tool`, and its arguments."""


@dataclass(frozen=True)
class Said:
    """One message of the conversation."""

    id: str
    role: str
    text: str


@dataclass(frozen=True)
class Reply:
    """One message of the model: what it says, and the tools that it wants called."""

    text: str
    calls: list[Call]


class Model:
    """A script in the place of a language model."""

    def __init__(self, script: Path) -> None:
        turns = json.loads(script.read_text("utf-8"))
        self._turns = [[Reply(**message) for message in turn["messages"]] for turn in turns]

    def answer(self, conversation: list[Said]) -> list[Reply]:
        """Answer the last prompt. Asked again after an undo, it does the same again."""
        asked = sum(said.role == "user" for said in conversation)
        if asked > len(self._turns):
            return [Reply("My script is at its end.", [])]
        return self._turns[asked - 1]


class Tools:
    """What the model can do to a directory. A tool gives back what the model gets to read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tools: dict[str, Callable[..., str]] = {
            "write": self._write,
            "edit": self._edit,
            "delete": self._delete,
            "shell": self._shell,
        }

    def call(self, tool: str, **arguments: str) -> str:
        """Call a tool. That it failed is an answer too: the model may know another way."""
        try:
            return self._tools[tool](**arguments)
        except (LookupError, OSError, TypeError, ValueError) as error:
            return f"failed: {error}"

    def _write(self, path: str, content: str) -> str:
        target = self._inside(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content, "utf-8")
        return ""

    def _edit(self, path: str, old: str, new: str) -> str:
        content = self._inside(path).read_text("utf-8")
        if content.count(old) != 1:
            raise ValueError(f"the text to replace is there {content.count(old)} times")
        return self._write(path, content.replace(old, new))

    def _delete(self, path: str) -> str:
        self._inside(path).unlink()
        return ""

    def _shell(self, command: str) -> str:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self._root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        return done.stdout.decode("utf-8", "replace")

    def _inside(self, path: str) -> Path:
        target = self._root / path
        if not target.resolve().is_relative_to(self._root):
            raise ValueError(f"{path} is outside of {self._root}")
        return target


class Agent:
    """A conversation about a directory. One line at a time is answered, in a thread of its own."""

    def __init__(self, shadow: Shadow, model: Model) -> None:
        self._shadow = shadow
        self._model = model
        self._tools = Tools(shadow.worktree)
        recorded = shadow.messages()
        self._number = recorded[-1].number if recorded else 0
        line = [message for message in recorded if message.state != "archived"]
        self._said = [Said(message.id, message.role or "user", message.text) for message in line]
        self._undone = {message.id for message in line if message.state == "undone"}
        self._work = Lock()
        """Held while a line is being answered."""
        self._worker: Thread | None = None
        self._is_stopping = False

    def converse(self, lines: TextIO) -> None:
        """Answer each line. At `/quit`, or when they end, stop the work that still goes on."""
        self._show_prompt()
        for line in map(str.strip, lines):
            if line == "/quit":
                break
            if lines.isatty():
                self._begin_answer(line)
            else:  # Only a person can type while the agent works, and sees what was typed.
                print(shown(line))
                self._begin_answer(line)
                self._wait()
        self._is_stopping = True
        self._wait()

    def interrupt(self, *_: object) -> None:
        """Handle Ctrl-C: the tool call that runs is the last, and its message gets its end."""
        if not self._work.locked():
            raise KeyboardInterrupt
        self._is_stopping = True

    def _begin_answer(self, line: str) -> None:
        if not self._work.acquire(blocking=False):
            print(BUSY)
            return
        self._is_stopping = False
        self._worker = Thread(target=self._answer, args=[line])
        self._worker.start()

    def _answer(self, line: str) -> None:
        try:
            if line.startswith("/"):
                self._obey(*line.split())
            elif line:
                self._take_turn(line)
        except ShadowError as error:
            print_lines(explain(error))
        finally:
            self._work.release()
            self._show_prompt()

    def _wait(self) -> None:
        if self._worker is not None:
            self._worker.join()

    def _show_prompt(self) -> None:
        print("> ", end="", flush=True)

    def _conversation(self) -> list[Said]:
        """Give the messages in force, which are all that the model sees."""
        return [said for said in self._said if said.id not in self._undone]

    def _take_turn(self, prompt: str) -> None:
        with self._message("user", prompt):
            pass  # Nothing is done in it: it is where the turn starts.
        for reply in self._model.answer(self._conversation()):
            if self._is_stopping:
                break
            print(shown(reply.text))
            with self._message("assistant", reply.text):
                self._call_tools(reply.calls)
        if self._is_stopping:
            print("Stopped. What was done so far can be undone.")

    def _call_tools(self, calls: list[Call]) -> None:
        for number, call in enumerate(calls, 1):
            if self._is_stopping:
                break
            print(f"  {call['tool']} {shown(call.get('path') or call.get('command', ''))}")
            with self._shadow.step(f"{number} {call['tool']}"):
                result = self._tools.call(**call)
            print_lines(f"  | {shown(line)}" for line in result.splitlines())

    @contextmanager
    def _message(self, role: str, text: str) -> Iterator[None]:
        """Record what is done inside as one message; it goes into the conversation too."""
        self._number += 1
        said = Said(f"msg_{self._number:03}", role, text)
        with self._shadow.message(said.id, text=text, role=role) as message:
            self._said = [*self._conversation(), said]  # What was undone is a branch now.
            self._undone = set()
            yield
        if message.patch.files:
            print(f"  {said.id} changed {listed([changed.path for changed in message.patch.files])}")

    def _obey(self, command: str, *words: str) -> None:
        if command in ("/undo", "/redo", "/revert"):
            self._follow(self._act(command, list(words)))
        elif command == "/log":
            print_lines(self._log())
        else:
            print(HELP)

    def _act(self, command: str, words: list[str]) -> Outcome:
        on_conflict: Literal["abort", "keep", "overwrite"] = "abort"
        match words:
            case [*words, "keep"]:
                on_conflict = "keep"
            case [*words, "overwrite"]:
                on_conflict = "overwrite"
        match command, words:
            case "/undo", ([] | [_]):
                return self._shadow.undo(read_count(words), on_conflict=on_conflict)
            case "/redo", ([] | [_]):
                return self._shadow.redo(read_count(words), on_conflict=on_conflict)
            case "/revert", [message_id]:
                return self._shadow.revert(message_id, on_conflict=on_conflict)
        raise InvalidInput(f"{command} is not used like this, see /help")

    def _follow(self, outcome: Outcome) -> None:
        """Cut from the conversation what was undone, or put back what was redone; then tell of it."""
        self._undone ^= set(outcome.messages)
        print_lines(describe(outcome))
        cut = self._undone.intersection(outcome.messages)
        prompts = [said.text for said in self._said if said.id in cut and said.role == "user"]
        print_lines(f"You had asked: {shown(prompt)}" for prompt in prompts)

    def _log(self) -> Iterator[str]:
        for message in self._shadow.messages(last=20):
            role, files = message.role or "user", counted(len(message.patch.files), "file")
            yield f"{message.id}  {message.state:8}  {role:9}  {files:8}  {shown(message.text)}"


def describe(outcome: Outcome) -> Iterator[str]:
    """Tell what an undo, redo or revert did."""
    turns = "" if outcome.turns is None else counted(outcome.turns, "turn") + ", "
    verbs = {"restored": outcome.restored, "deleted": outcome.deleted, "kept": outcome.kept}
    parts = [f"; {verb} {listed(paths)}" for verb, paths in verbs.items() if paths]
    if outcome.messages:
        messages = counted(len(outcome.messages), "message")
        yield f"{outcome.act.capitalize()}: {turns}{messages}{''.join(parts)}"
    yield from (f"Left alone: {shown(skipped.path)}, {skipped.reason}" for skipped in outcome.skipped)
    yield from (note[:1].upper() + note[1:] for note in outcome.notes)


def explain(error: ShadowError) -> Iterator[str]:
    """Tell why nothing was done, and what the user can do."""
    yield f"Sorry: {error}"
    if isinstance(error, Conflict):
        yield from (f"  {shown(path.path)}: {path.reason}; {path.advice}" for path in error.conflicts)


def read_count(words: list[str]) -> int:
    """Read how many turns are meant: one, unless a word says more."""
    try:
        return int(words[0]) if words else 1
    except ValueError:
        raise InvalidInput(f"{words[0]!r} is no count of turns") from None


def counted(number: int, noun: str) -> str:
    """Give a number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(paths: list[str], most: int = 6) -> str:
    """Name the first few paths."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(map(shown, paths[:most])) + more


def shown(text: str) -> str:
    """Make text fit for a terminal: no control or bidirectional characters, no broken names."""
    return text if text.isprintable() else ascii(text)


def print_lines(lines: Iterable[str]) -> None:
    """Print each line."""
    for line in lines:
        print(line)


def main() -> int:
    """Hold a conversation about a directory."""
    parser = argparse.ArgumentParser(description="A small coding agent whose turns can be undone.")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="what it works on")
    parser.add_argument("--script", type=Path, default=SCRIPT, metavar="FILE", help="what its model does")
    arguments = parser.parse_args()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace", line_buffering=True)
    try:
        with Shadow(arguments.directory, session="agent") as shadow:
            print(f"{counted(shadow.take_snapshot().files, 'file')} in {shadow.worktree} can be undone")
            agent = Agent(shadow, Model(arguments.script))
            print_lines(shadow.recovered)
            signal.signal(signal.SIGINT, agent.interrupt)
            agent.converse(sys.stdin)
    except (ShadowError, OSError, ValueError) as error:
        print(f"agent: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
