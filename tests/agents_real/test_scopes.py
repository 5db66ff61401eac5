"""Hooks in the settings of one project, with the real agents."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.agents_real import programs
from tests.agents_real.programs import PROGRAMS
from tests.agents_real.user import BEFORE, NOT_WRAPPED, User, require
from tests.support.trees import make_tree

pytestmark = pytest.mark.agents

PLACES = [
    ("claude-code", "--project", ".claude/settings.json"),
    ("claude-code", "--local", ".claude/settings.local.json"),
    ("gemini", "--project", ".gemini/settings.json"),
    ("codex", "--project", ".codex/hooks.json"),
    ("qwen", "--project", ".qwen/settings.json"),
    ("copilot", "--project", ".github/hooks/shadowtree.json"),
]


@pytest.mark.parametrize(("agent", "scope", "file"), PLACES, ids=[f"{each[0]}{each[1]}" for each in PLACES])
def test_hooks_of_a_project_record_there_and_nowhere_else(
    agent: str, scope: str, file: str, user: User
) -> None:
    require(agent)
    program = PROGRAMS[agent]
    programs.prepare(agent, user.home, user.model.address)
    trust = f'[projects."{user.worktree}"]\ntrust_level = "trusted"\n'
    make_tree(user.home, {".codex": {"config.toml": trust}})
    before = user.files()
    user.install(agent, scope)
    assert (user.worktree / file).is_file()
    user.ask(agent, "in the project", program.shell("echo 1 > kept; rm gone"))
    elsewhere = replace(user, worktree=make_tree(user.home.parent / "elsewhere", BEFORE))
    elsewhere.ask(agent, "in another one", program.shell("echo 1 > kept"))

    assert [text for _, text, _ in user.log()] == ["in the project"]
    elsewhere.shadowtree("log", exit_code=NOT_WRAPPED)
    user.shadowtree("undo")
    user.shadowtree("hooks", "uninstall", agent, scope)
    assert {path: content for path, content in user.files().items() if path in before} == before
    left = user.worktree / file
    # Qwen Code notes in each of its files which version it is of.
    assert not left.exists() or "hooks" not in json.loads(left.read_text())


@pytest.mark.parametrize("agent", ["claude-code", "gemini", "qwen"], indirect=True)
def test_hooks_for_all_projects_and_for_this_one_record_once(agent: str, user: User) -> None:
    user.connect(agent)
    user.install(agent, "--project")
    user.ask(agent, "only once", PROGRAMS[agent].shell("echo 1 > kept"))

    assert [text for _, text, _ in user.log()] == ["only once"]


def test_copilot_runs_the_hooks_of_claude_code_and_is_recorded_as_copilot_and_once(user: User) -> None:
    require("copilot")
    user.connect("copilot")
    user.install("claude-code", "--project")
    user.ask("copilot", "whose turn", PROGRAMS["copilot"].shell("echo 1 > kept"))

    ((session, text, _),) = user.log()
    assert (session.partition("-")[0], text) == ("copilot", "whose turn")
