"""The transcripts in docs/agents.md are what really happens.

`python -m tests.agents_real.test_transcripts [AGENT...]` writes them anew. Agents get what they need to talk
to the stand-in for their model; of what they print, their answer is kept, and what we told them.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents_real import programs
from tests.agents_real.model import DONE
from tests.agents_real.programs import PROGRAMS
from tests.agents_real.test_trust import trust_all
from tests.agents_real.user import User, make_user
from tests.support.trees import Tree, make_tree

pytestmark = pytest.mark.agents

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"
BLOCK = re.compile(r"(?<=```console\n)\$ shadowtree hooks install ([a-z-]+)\n.*?(?=```)", re.DOTALL)
BLOCKS = {found[1]: found[0] for found in BLOCK.finditer(PAGE.read_text("utf-8"))}
"""By the agent that each installs hooks for."""
FILES: Tree = {"notes.txt": "buy milk\n", "price.py": "PRICE = 10\n"}
TIDY = "rm notes.txt && echo 'PRICE = 12' > price.py"
"""What the model does when it is asked to tidy up."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("agent", PROGRAMS, indirect=True)
def test_a_transcript_is_what_really_happens(agent: str, user: User) -> None:
    written = BLOCKS[agent]
    made = run_block(agent, written, user)

    assert made == written, "run python -m tests.agents_real.test_transcripts"


def run_block(agent: str, block: str, user: User) -> str:
    """Run the commands of a transcript in a small project, and give them with what they print."""
    shop = User(user.home, make_tree(user.home / "shop", FILES), user.model, user.executable)
    programs.prepare(agent, user.home, user.model.address)
    lines: list[str] = []
    for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        words = shlex.split(command, comments=True)
        if words == ["codex"]:
            trust_all(shop)
            printed = ""
        elif words[0] == PROGRAMS[agent].binary:
            printed = _ask(agent, words[-1], shop)
        else:
            printed = _run(words[1:], shop)
        lines += [f"$ {command}", *_settle(printed, user).splitlines()]
    return "".join(f"{line.rstrip()}\n" for line in lines if line.strip())


def _ask(agent: str, prompt: str, user: User) -> str:
    user.model.play(prompt, PROGRAMS[agent].shell(TIDY))
    address = user.model.address
    if agent == "codex":
        arguments = programs.codex_arguments(address, prompt, trusts_hooks=False)
        printed = programs.execute(agent, user.home, user.worktree, address, arguments)
    else:
        printed = programs.run(agent, user.home, user.worktree, address, prompt)
    lines = [_COLOURS.sub("", line).strip() for line in printed.splitlines()]
    return "\n".join(dict.fromkeys(line for line in lines if line == DONE or "shadowtree protects" in line))


def _run(words: list[str], user: User) -> str:
    given = ["--executable", str(user.executable)] if words[:2] == ["hooks", "install"] else []
    done = subprocess.run(
        [user.executable, *words, *given],
        cwd=user.worktree,
        env=programs.surroundings(user.home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def _settle(text: str, user: User) -> str:
    """Replace what differs from run to run: where things are, how long ago they were, and ids."""
    text = text.replace(str(user.home), "/home/ana")
    text = re.sub(r"/backups/([a-z-]+)-[0-9a-f]{12}-", r"/backups/\1-549df1e2e63b-", text)
    text = re.sub(r"\b\d+ s\b", "1 s", text)
    text = re.sub(r"turn-\d{15}", "turn-261118130155643", text)
    text = re.sub(r"turn-[0-9a-f]{12}\b", "turn-638d67679167", text)
    text = re.sub(r"msg_\w+", "msg_1eeb0c47", text)
    return re.sub(rf"({'|'.join(PROGRAMS)})-\w{{8}}\b", r"\1-07ecb454", text)


@contextmanager
def _scratch() -> Iterator[User]:
    with tempfile.TemporaryDirectory() as scratch, make_user(Path(scratch).resolve()) as user:
        yield user


if __name__ == "__main__":
    for name in sys.argv[1:] or BLOCKS:
        with _scratch() as somebody:
            text = PAGE.read_text("utf-8")
            PAGE.write_text(text.replace(BLOCKS[name], run_block(name, BLOCKS[name], somebody)), "utf-8")
