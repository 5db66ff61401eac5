"""The real SDKs, offline, with a scripted model: what one line of user code records.

`tox -e adapters` and `tox -e agents` install and run all of them; elsewhere, those that happen to be
installed. Each runs in a process of its own, because they set up whole worlds when they are imported.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.adapters.scripted_model import DONE, Model, serve
from tests.support.processes import surroundings
from tests.support.trees import assert_tree, make_tree

PATIENCE_S = 180
TOLD = "the user changed files back with shadowtree"
MODULES = {
    "claude-agent-sdk": "claude_agent_sdk",
    "openai-agents": "agents",
    "langchain": "langchain",
    "langchain-async": "langchain",
    "deepagents": "deepagents",
    "pydantic-ai": "pydantic_ai",
    "google-adk": "google.adk",
    "smolagents": "smolagents",
}
"""What is imported of each; OpenAI's library is there wherever it is needed."""


@pytest.fixture
def model() -> Iterator[Model]:
    with serve() as model:
        yield model


@pytest.fixture(params=MODULES)
def sdk(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    try:
        is_there = importlib.util.find_spec(MODULES[name]) is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there and not os.environ.get("SHADOWTREE_ALL_SDKS"):
        pytest.skip(f"{name} is not installed; `tox -e adapters` installs it")
    return name


def run(sdk: str, model: Model, worktree: Path, *prompts: str, session: str = "default") -> None:
    """Run an agent in the worktree, once for each prompt, in one conversation where the SDK has one."""
    words = [sdk, model.address, str(worktree), session, *prompts]
    command = [sys.executable, "-m", "tests.adapters.real_agents", *words]
    # The bundled program refuses to be run inside itself, and SDKs would report to their makers.
    hidden = ("CLAUDE", "ANTHROPIC", "OPENAI", "GOOGLE", "GEMINI", "LANGSMITH", "LANGCHAIN", "AI_AGENT")
    clean = {name: value for name, value in surroundings().items() if not name.startswith(hidden)}
    done = subprocess.run(
        command, cwd=worktree, env=clean, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split("\n")[:-1] == [DONE] * len(prompts), done.stdout + done.stderr


def test_a_real_agent_is_recorded_and_undone(sdk: str, model: Model, worktree: Path) -> None:
    make_tree(worktree, {"kept": "0\n", "gone": "0\n"})
    run(
        sdk,
        model,
        worktree,
        "run: echo 1 > kept; rm gone\nrun: mkdir d && echo 1 > d/new",
        "run: echo 2 > kept",
    )

    with Shadow(worktree) as shadow:
        one, two = shadow.messages()
        assert (one.text, two.text) == (
            "run: echo 1 > kept; rm gone\nrun: mkdir d && echo 1 > d/new",
            "run: echo 2 > kept",
        )
        assert [(each.state, each.inferred, each.role) for each in (one, two)] == [
            ("active", False, "user")
        ] * 2
        assert [(each.path, each.status) for each in one.patch.files] == [
            ("d/new", "added"),
            ("gone", "deleted"),
            ("kept", "modified"),
        ]
        changed = [[each.path for each in step.patch.files] for step in one.steps]
        assert [each for each in changed if each] == [["gone", "kept"], ["d/new"]]
        shadow.undo()
        assert_tree(worktree, {"kept": "1\n", "d": {"new": "1\n"}})
        shadow.undo()
        assert_tree(worktree, {"kept": "0\n", "gone": "0\n"})
        shadow.redo(None)
        assert_tree(worktree, {"kept": "2\n", "d": {"new": "1\n"}})


def test_the_model_of_a_real_agent_is_told_once_what_was_undone(
    sdk: str, model: Model, worktree: Path
) -> None:
    run(sdk, model, worktree, "run: echo 1 > kept")
    with Shadow(worktree) as shadow:
        shadow.undo()
    model.asked.clear()
    run(sdk, model, worktree, "run: echo 2 > other\nrun: echo 3 > other")
    told = [request for request in model.asked if TOLD in request]
    assert any('\\"kept\\"' in request for request in told), model.asked
    model.asked.clear()
    run(sdk, model, worktree, "run: echo 4 > other")

    assert not any(TOLD in request for request in model.asked)
    with Shadow(worktree) as shadow:
        assert [each.text for each in shadow.messages()][-1] == "run: echo 4 > other"


def test_a_second_agent_in_the_same_directory_keeps_its_own_timeline(
    sdk: str, model: Model, worktree: Path
) -> None:
    make_tree(worktree, {"kept": "0\n"})
    run(sdk, model, worktree, "run: echo 1 > ours", session="ours")
    with Shadow(worktree, session="theirs") as theirs, theirs.message("one of theirs"):
        make_tree(worktree, {"theirs": "1\n"})
    run(sdk, model, worktree, "run: echo 2 > kept", session="ours")

    with Shadow(worktree, session="ours") as ours:
        assert [each.text for each in ours.messages()] == ["run: echo 1 > ours", "run: echo 2 > kept"]
        ours.undo(2)
    assert_tree(worktree, {"kept": "0\n", "theirs": "1\n"})


@pytest.mark.parametrize("sdk", ["deepagents"], indirect=True)
def test_a_real_sub_agent_belongs_to_the_turn_of_its_caller(sdk: str, model: Model, worktree: Path) -> None:
    """Its middleware is its own."""
    run(f"{sdk}-sub-agent", model, worktree, "run: echo 1 > before\nrun: SUB-AGENT\nrun: echo 1 > after")

    with Shadow(worktree) as shadow:
        (message,) = shadow.messages()
        assert not message.inferred
        assert [each.path for each in message.patch.files] == ["after", "before", "by-sub-agent"]
