"""Codex runs no hook that its user has not trusted: the step that we cannot do for them, done by machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agents_real import programs
from tests.agents_real.model import Call
from tests.agents_real.programs import OTHERS_TRACE
from tests.agents_real.terminal import DOWN, ENTER, Terminal
from tests.agents_real.user import NOT_WRAPPED, User, require
from tests.support.daemons import wait_until

pytestmark = pytest.mark.agents

SHELL = programs.PROGRAMS["codex"].shell
LATER_TRACE = "later-hook-ran"


@pytest.fixture
def codex(user: User) -> User:
    """Somebody with Codex and our hooks, between two of others."""
    require("codex")
    user.connect("codex")
    hooks = user.home / ".codex" / "hooks.json"
    settings = json.loads(hooks.read_text())
    later = {"type": "command", "command": f'touch "$HOME/{LATER_TRACE}"'}
    settings["hooks"]["Stop"].append({"hooks": [later]})
    hooks.write_text(json.dumps(settings, indent=3))
    return user


def ask(user: User, prompt: str, call: Call) -> None:
    """Have a turn without leave to run hooks that are not trusted."""
    user.model.play(prompt, call)
    address = user.model.address
    arguments = programs.codex_arguments(address, prompt, trusts_hooks=False)
    programs.execute("codex", user.home, user.worktree, address, arguments)


def trust_all(user: User) -> None:
    """Do what `hooks install` and `doctor` say: start Codex, and choose."""
    address = user.model.address
    command = programs.make_command("codex", [*programs.codex_settings(address), "--no-daemon"])
    with Terminal(command, user.worktree, programs.make_environment("codex", user.home, address)) as screen:
        screen.expect("Trust all and continue")
        screen.press(DOWN, ENTER)
        settings = user.home / ".codex" / "config.toml"
        wait_until(lambda: settings.exists() and "trusted_hash" in settings.read_text())


def list_traces(user: User) -> list[str]:
    """Tell which of the others' hooks have run, and forget it."""
    traces = [user.home / name for name in (OTHERS_TRACE, LATER_TRACE)]
    found = [trace.name for trace in traces if trace.exists()]
    for trace in traces:
        trace.unlink(missing_ok=True)
    return found


def read_doctor(user: User, *, exit_code: int) -> str:
    return user.shadowtree("doctor", exit_code=exit_code)


def test_hooks_run_once_they_are_trusted(codex: User) -> None:
    ask(codex, "nobody sees this", SHELL("echo 1 > kept"))
    codex.shadowtree("log", exit_code=NOT_WRAPPED)
    assert "7 of 7 hooks are not trusted" in read_doctor(codex, exit_code=1)
    trust_all(codex)
    assert "not trusted" not in read_doctor(codex, exit_code=0)
    ask(codex, "with trust", SHELL("echo 2 > kept"))

    assert [text for _, text, _ in codex.log()] == ["with trust"]
    assert list_traces(codex) == [OTHERS_TRACE, LATER_TRACE]
    assert "its hooks ran" in read_doctor(codex, exit_code=0)
    codex.shadowtree("undo")
    assert Path(codex.path("kept")).read_text() == "1\n"


def test_a_second_install_needs_no_new_trust_and_an_uninstall_takes_none_from_others(codex: User) -> None:
    trust_all(codex)
    codex.install("codex")
    ask(codex, "with trust", SHELL("echo 2 > kept"))
    assert len(codex.log()) == 1
    assert list_traces(codex) == [OTHERS_TRACE, LATER_TRACE]
    codex.shadowtree("hooks", "uninstall", "codex")
    ask(codex, "without hooks", SHELL("echo 3 > kept"))

    assert len(codex.log()) == 1
    assert list_traces(codex) == [OTHERS_TRACE, LATER_TRACE]
