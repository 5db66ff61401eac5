"""`shadowtree hooks`: what is written for each agent, what stays, and the same bytes after an uninstall."""

from __future__ import annotations

import importlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from shadowtree.agents.known_agents import AGENTS
from shadowtree.cli.main import main
from shadowtree.daemon.endpoint import Endpoint
from shadowtree.daemon.launch import reach_daemon
from tests.support.daemons import end_daemon, list_served
from tests.support.processes import COMMAND, surroundings
from tests.support.referee import init

FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "qwen": ".qwen/settings.json",
    "cursor": ".cursor/hooks.json",
    "copilot": ".copilot/hooks/shadowtree.json",
    "opencode": ".config/opencode/plugins/shadowtree.js",
    "kilo": ".config/kilo/plugins/shadowtree.js",
    "cline": ".cline/hooks/TaskStart",
}
MERGED = ["claude-code", "codex", "gemini", "qwen", "cursor"]
FOREIGN: dict[str, Any] = {
    "model": "best",
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done", "timeout": 5}]}], "Other": []},
    "permissions": {"allow": ["Bash(ls:*)"]},
}

Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def home() -> Path:
    return Path(os.environ["HOME"])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A shadowtree to install."""
    return make_program(tmp_path / "bin")


def make_program(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "shadowtree"
    path.write_text("#!/bin/sh\necho shadowtree 9.9.9\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def run(program: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Run:
    """Run `shadowtree hooks` in the worktree; give the exit code, the JSON, and what was told."""
    monkeypatch.chdir(worktree)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")

    def call(*words: str) -> tuple[int, Any, str]:
        given = ["--executable", str(program)] if words[0] in ("install", "print") else []
        capsys.readouterr()
        exit_code = main(["hooks", *words, *given, "--json"])
        told = capsys.readouterr()
        return exit_code, json.loads(told.out) if told.out else None, told.err

    return call


def list_files(top: Path) -> dict[str, bytes]:
    """Give what is in the home, without the stores; directories are there by what is in them, or empty."""
    found = {}
    for path in sorted(top.rglob("*")):
        name = path.relative_to(top).as_posix()
        if path.is_file():
            found[name] = path.read_bytes()
        elif path.is_dir() and not any(path.iterdir()):
            found[f"{name}/"] = b""
    return found


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines_of(settings: Any) -> list[str]:  # Any: JSON
    """Give the commands of all hooks in settings, in groups or not."""
    found = []
    for items in settings["hooks"].values():
        for item in items:
            found += [entry["command"] for entry in item.get("hooks", [item])]
    return found


# The same bytes

CONTENTS = {
    "nothing": None,
    "an empty file": b"",
    "an empty object": b"{}",
    "an empty object on two lines": b"{\n}\n",
    "foreign hooks": json.dumps(FOREIGN, indent=2).encode() + b"\n",
    "tabs and CRLF": json.dumps(FOREIGN, indent="\t").replace("\n", "\r\n").encode(),
    "one line": json.dumps(FOREIGN).encode(),
    "no blanks": json.dumps(FOREIGN, separators=(",", ":")).encode(),
    "a mark of the byte order": b"\xef\xbb\xbf" + json.dumps(FOREIGN, indent=4).encode(),
    "empty hooks": b'{"hooks": {"Stop": [ ]}}',
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("agent", MERGED)
def test_settings_are_merged_and_an_uninstall_gives_back_the_same_bytes(
    run: Run, home: Path, program: Path, agent: str, content: bytes | None
) -> None:
    path = home / FILES[agent]
    if content is not None:
        write(path, content)
    before = list_files(home)
    installed, document, _ = run("install", agent)
    settings = json.loads(path.read_bytes().decode("utf-8-sig"))
    uninstalled, _, _ = run("uninstall", agent)

    line = f"{program} hook {agent}"
    assert (installed, uninstalled) == (0, 0)
    assert lines_of(settings).count(line) == len(AGENTS[agent].events)
    assert [command for command in lines_of(settings) if command != line] == (
        ["say done"] if content is not None and b"say done" in content else []
    )
    assert document["changes"][0]["action"] == ("added" if content is None else "changed")
    assert list_files(home) == before


@pytest.mark.parametrize("agent", FILES)
def test_an_uninstall_leaves_nothing_of_what_an_install_made(run: Run, home: Path, agent: str) -> None:
    before = list_files(home)
    run("install", agent)
    made = list_files(home)
    exit_code, document, _ = run("uninstall", agent)

    assert FILES[agent] in made
    assert exit_code == 0
    assert {change["action"] for change in document["changes"]} == {"removed"}
    assert list_files(home) == before


@pytest.mark.parametrize("agent", MERGED)
def test_what_others_changed_since_stays(run: Run, home: Path, agent: str) -> None:
    path = write(home / FILES[agent], json.dumps(FOREIGN, indent=2))
    run("install", agent)
    settings = json.loads(path.read_text())
    settings["theme"] = "dark"
    write(path, json.dumps(settings, indent=2))
    run("uninstall", agent)

    left = json.loads(path.read_text())
    left.pop("version", None)
    assert left == {**FOREIGN, "theme": "dark"}


def test_a_file_that_we_made_stays_if_others_use_it_by_now(run: Run, home: Path) -> None:
    run("install", "claude-code")
    path = home / FILES["claude-code"]
    settings = json.loads(path.read_text())
    write(path, json.dumps({"theme": "dark", **settings}, indent=2))
    run("uninstall", "claude-code")

    assert json.loads(path.read_text()) == {"theme": "dark"}


def test_the_keys_and_foreign_lines_stand_as_they_stood(run: Run, home: Path) -> None:
    own = '{"hooks":[{"type":"command","command":"x"}]}'
    text = f'{{\n    "z": 1,   "a": [1,2],\n    "hooks": {{\n        "Stop": [ {own} ]\n    }}\n}}\n'
    path = write(home / FILES["claude-code"], text)
    run("install", "claude-code")
    after = path.read_text()

    assert after.startswith(text[: text.index(" ]\n")] + ", {")
    assert '\n        "SessionStart": [\n            {\n' in after
    assert after.endswith("\n}\n")


# Install again


@pytest.mark.parametrize("agent", FILES)
def test_a_second_install_changes_nothing(run: Run, home: Path, agent: str) -> None:
    run("install", agent)
    before = list_files(home)
    exit_code, document, _ = run("install", agent)

    assert exit_code == 0
    assert {change["action"] for change in document["changes"]} == {"unchanged"}
    assert document["notes"] == []
    assert list_files(home) == before


@pytest.mark.parametrize("agent", FILES)
def test_another_program_takes_the_place_of_the_one_before(
    run: Run, home: Path, program: Path, tmp_path: Path, agent: str
) -> None:
    before = list_files(home)
    other = make_program(tmp_path / "other")
    main(["hooks", "install", agent, "--executable", str(other)])
    run("install", agent)
    texts = [content.decode() for content in list_files(home).values()]
    run("uninstall", agent)

    assert any(str(program) in text for text in texts)
    assert not any(str(other) in text for text in texts)
    assert list_files(home) == before


def test_what_an_older_install_lacks_is_added(run: Run, home: Path, program: Path) -> None:
    line = f"{program} hook claude-code"
    old = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": line, "timeout": 7}]}]}}
    path = write(home / FILES["claude-code"], json.dumps(old, indent=2))
    _, [state, *_], _ = run("status", "claude-code")
    run("install", "claude-code")
    settings = json.loads(path.read_text())

    assert state["state"] == "partly"
    assert settings["hooks"]["Stop"] == old["hooks"]["Stop"]
    assert set(settings["hooks"]) == set(AGENTS["claude-code"].events)


# Backups, links, modes


def test_the_first_content_is_kept_once_and_goes_with_the_hooks(run: Run, home: Path, stores: Path) -> None:
    first = json.dumps(FOREIGN).encode()
    path = write(home / FILES["gemini"], first)
    _, document, _ = run("install", "gemini")
    backup = Path(document["changes"][0]["backup"])
    write(path, path.read_text().replace("gemini", "gemini "))
    _, again, _ = run("install", "gemini")
    kept = backup.read_bytes(), stat.S_IMODE(backup.stat().st_mode)
    run("uninstall", "gemini")

    assert kept == (first, 0o600)
    assert again["changes"][0]["backup"] is None
    assert not (stores / "hooks").exists()


def test_a_link_stays_a_link_and_the_file_behind_it_keeps_its_mode(
    run: Run, home: Path, tmp_path: Path
) -> None:
    real = write(tmp_path / "dotfiles" / "claude.json", "{}")
    real.chmod(0o600)
    link = home / FILES["claude-code"]
    link.parent.mkdir()
    link.symlink_to(real)
    run("install", "claude-code")
    written = real.read_text()
    run("uninstall", "claude-code")

    assert "hook claude-code" in written
    assert link.is_symlink()
    assert real.read_text() == "{}"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_hooks_of_cline_are_programs(run: Run, home: Path, program: Path) -> None:
    run("install", "cline")
    hook = home / ".cline" / "hooks" / "PreToolUse"

    assert os.access(hook, os.X_OK)
    assert hook.read_text().endswith(f"exec {program} hook cline\n")


# What is refused

UNREADABLE = {
    "a comment": b'{\n  // mine\n  "a": 1\n}',
    "a trailing comma": b'{"a": 1,}',
    "no object": b"[]",
    "hooks that are no object": b'{"hooks": []}',
    "an event that has no list": b'{"hooks": {"Stop": {}}}',
    "no UTF-8": b'{"a": "\xff"}',
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("action", ["install", "uninstall"])
def test_a_file_that_cannot_be_understood_is_left_with_one_line(
    run: Run, home: Path, action: str, content: bytes
) -> None:
    """What names us may be our hooks; anything else is no concern of an uninstall."""
    path = write(
        home / FILES["claude-code"], content + b"  " * 8 + b'\n"shadowtree"' * (action == "uninstall")
    )
    before = list_files(home)
    exit_code, document, told = run(action, "claude-code")

    assert exit_code == 1
    assert document["changes"] == []
    assert told.count("\n") == 1
    assert told.startswith(f"shadowtree: Claude Code: {path}")
    assert "; repair the file and run this again" in told
    assert ("'shadowtree hooks print claude-code' shows" in told) == (action == "install")
    assert list_files(home) == before


def test_settings_that_broke_after_the_install_are_said_to_be_connected(
    run: Run, home: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("install", "claude-code")
    path = home / FILES["claude-code"]
    path.write_text("," + path.read_text())
    exit_code = main(["hooks", "uninstall", "claude-code"])
    told = capsys.readouterr()
    main(["hooks", "status", "claude-code"])
    shown = capsys.readouterr().out

    assert (exit_code, told.out) == (1, "")
    problem = f"{path}, line 1: unexpected ','; repair the file"
    assert told.err == f"shadowtree: Claude Code: {problem} and run this again\n"
    assert shown.startswith(f"claude-code  user  connected, but unreadable: {problem}\n")


@pytest.mark.parametrize("agent", ["claude-code", "gemini"])
@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_was_never_ours_is_no_concern_of_an_uninstall(
    run: Run, home: Path, content: bytes, agent: str
) -> None:
    write(home / FILES[agent], content)
    run("install", "codex")
    exit_code, document, told = run("uninstall", "--all")

    assert (exit_code, told) == (0, "")
    assert {change["agent"] for change in document["changes"]} == {"codex"}
    assert list_files(home) == {FILES[agent]: content}
    _, (state, *_), _ = run("status", agent)
    assert (state["state"], state["problem"] is None) == ("no", False)


def test_hooks_that_were_added_by_hand_between_comments_are_seen(run: Run, home: Path, program: Path) -> None:
    """Gemini CLI reads comments, Claude Code does not."""
    for agent in ("gemini", "claude-code"):
        _, document, _ = run("print", agent)
        write(home / FILES[agent], f'// "mine" */\n/* two\nlines */ {document["content"]} // the end')
    _, gemini, _ = run("status", "gemini")
    _, claude, _ = run("status", "claude-code")

    assert (gemini[0]["problem"], gemini[0]["executable"]) == (None, str(program))
    assert claude[0]["state"] == "unreadable"
    assert "line 1: comments are not strict JSON" in claude[0]["problem"]


def test_one_agent_that_fails_does_not_keep_the_others_from_it(run: Run, home: Path) -> None:
    write(home / FILES["claude-code"], "{,}")
    exit_code, document, _ = run("install", "claude-code", "gemini")

    assert exit_code == 1
    assert {change["agent"] for change in document["changes"]} == {"gemini"}
    assert len(document["failures"]) == 1


def test_a_foreign_file_where_ours_would_be_is_not_replaced(run: Run, home: Path) -> None:
    write(home / ".cline/hooks/TaskStart", "#!/bin/sh\necho mine\n")
    before = list_files(home)
    exit_code, _, told = run("install", "cline")

    assert exit_code == 1
    assert "it is not ours" in told
    assert list_files(home) == before


@pytest.mark.parametrize("name", [".cline/hooks/TaskStart", ".claude/commands/shadowtree-undo.md"])
def test_a_file_of_ours_that_was_edited_is_left(run: Run, home: Path, name: str) -> None:
    agent = "cline" if "cline" in name else "claude-code"
    run("install", agent)
    path = home / name
    path.write_text(path.read_text() + "# mine\n")
    again, _, _ = run("install", agent)
    exit_code, document, told = run("uninstall", agent)

    assert (again, exit_code) == (1 if agent == "cline" else 0, 1)
    assert [change["path"] for change in document["changes"] if change["action"] == "edited"] == [str(path)]
    assert f"{path} is left" in told
    assert list_files(home) == {name: path.read_bytes()}


@pytest.mark.parametrize(
    ("place", "why"),
    [("bin", "temporary directory"), (".cache/uv/archive-v0/x/bin", "cache of a tool")],
)
def test_a_program_that_will_not_stay_is_refused_with_the_reason(
    place: str, why: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    program = make_program(tmp_path / place)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    exit_code = main(["hooks", "install", "claude-code"])

    told = capsys.readouterr().err
    assert exit_code == 2
    assert why in told
    todo = "install shadowtree somewhere permanent (pipx install .), or use --executable PATH\n"
    assert told.endswith(f"; {todo}")
    assert list_files(home) == {}


@pytest.mark.parametrize("words", [["install", "--dry-run"], ["print"]], ids=["dry run", "print"])
def test_what_writes_nothing_works_with_a_program_that_will_not_stay(
    words: list[str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    program = make_program(tmp_path / "bin")
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    exit_code = main(["hooks", *words, "codex"])

    told = capsys.readouterr()
    assert exit_code == 0
    assert ("an install would be refused" in told.err) == ("--dry-run" in words)
    assert (f"{program} hook codex" in told.out) == (words == ["print"])
    assert list_files(home) == {}


def test_a_file_in_a_directory_that_cannot_be_written_is_one_line(run: Run, home: Path) -> None:
    write(home / ".claude", "a file where the directory should be")
    exit_code, _, told = run("install", "claude-code")

    assert exit_code == 1
    assert told.count("\n") == 1


# Codex

CODEX = """{
  "hooks": {
    "SessionStart": [
      {
        "hooks": [
          {
            "type": "command",
            "command": "PROGRAM hook codex",
            "timeout": 30
          }
        ]
      }
    ],
"""


def test_the_line_of_codex_never_changes(run: Run, home: Path, program: Path) -> None:
    """Codex trusts a hash of each entry: whoever changes one makes every user review all of them again."""
    run("install", "codex")
    path = home / FILES["codex"]
    entries = {
        event: groups[0]["hooks"][0] for event, groups in json.loads(path.read_text())["hooks"].items()
    }

    assert path.read_text().startswith(CODEX.replace("PROGRAM", str(program)))
    limits = {"SessionEnd": 3, "Interrupt": 3, "PreToolUse": 10, "PostToolUse": 10}
    events = [
        "SessionStart",
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "Stop",
        "SessionEnd",
        "Interrupt",
    ]
    assert entries == {
        event: {"type": "command", "command": f"{program} hook codex", "timeout": limits.get(event, 30)}
        for event in events
    }


def test_in_codex_ours_comes_last_and_leaves_its_place_to_nobody(run: Run, home: Path) -> None:
    """It trusts hooks by their place: what stands behind ours must not move up."""
    other = {"hooks": [{"type": "command", "command": "other"}]}
    path = write(home / FILES["codex"], json.dumps({"hooks": {"Stop": [other]}}, indent=2))
    _, document, _ = run("install", "codex")
    settings = json.loads(path.read_text())
    order = [group["hooks"][0]["command"] for group in settings["hooks"]["Stop"]]
    settings["hooks"]["Stop"].append(other)
    write(path, json.dumps(settings, indent=2))
    run("uninstall", "codex")

    assert order[0] == "other"
    assert order[1].endswith(" hook codex")
    assert "trust" in document["notes"][0]
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [other, {"hooks": []}, other]}}


# Scopes, detection, print, status


def test_a_project_has_its_own_settings_at_the_top_of_its_repository(
    run: Run, home: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(worktree)
    (worktree / "src").mkdir()
    monkeypatch.chdir(worktree / "src")
    before = list_files(worktree)
    run("install", "claude-code", "--project")
    made = set(list_files(worktree)) - set(before)
    exit_code, document, told = run("install", "claude-code", "--local")
    run("uninstall", "--all")

    assert ".claude/settings.json" in made
    assert ".claude/commands/shadowtree-undo.md" in made
    assert exit_code == 0
    assert str(worktree) in told
    assert [change["path"] for change in document["changes"]] == [
        str(worktree / ".claude/settings.local.json")
    ]
    assert list_files(worktree) == before
    assert list_files(home) == {}


@pytest.mark.parametrize(
    ("agent", "scope"), [("codex", "--local"), ("cline", "--project"), ("kilo", "--project")]
)
def test_a_scope_that_an_agent_does_not_have_is_refused(
    run: Run, worktree: Path, agent: str, scope: str
) -> None:
    exit_code, _, told = run("install", agent, scope)

    assert exit_code == 1
    assert "--user" in told
    assert list_files(worktree) == {}


def test_all_that_are_detected(run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing, _, told = run("install", "--all-detected")
    (home / ".codex").mkdir()
    programs = make_program(tmp_path / "programs")
    programs.rename(programs.parent / "gemini")
    monkeypatch.setenv("PATH", str(programs.parent))
    exit_code, document, _ = run("install", "--all-detected")

    assert nothing == 2
    assert "no agent was found" in told
    assert exit_code == 0
    assert {change["agent"] for change in document["changes"]} == {"codex", "gemini"}


@pytest.mark.parametrize(
    ("variable", "agent", "file"),
    [
        ("CLAUDE_CONFIG_DIR", "claude-code", "settings.json"),
        ("CODEX_HOME", "codex", "hooks.json"),
        ("XDG_CONFIG_HOME", "opencode", "opencode/plugins/shadowtree.js"),
    ],
)
def test_an_agents_own_variable_says_where_its_settings_are(
    run: Run,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    agent: str,
    file: str,
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "elsewhere"))
    run("install", agent)

    assert (tmp_path / "elsewhere" / file).is_file()
    assert list_files(home) == {}


@pytest.mark.parametrize("action", ["install", "uninstall"])
def test_a_dry_run_writes_nothing(run: Run, home: Path, stores: Path, action: str) -> None:
    write(home / FILES["codex"], "{}")
    if action == "uninstall":
        run("install", "claude-code", "codex", "opencode")
    before = list_files(home), list_files(stores)
    exit_code, document, _ = run(action, "claude-code", "codex", "opencode", "--dry-run")

    assert exit_code == 0
    assert document["dry_run"]
    assert {change["agent"] for change in document["changes"]} == {"claude-code", "codex", "opencode"}
    assert (list_files(home), list_files(stores)) == before


def test_uninstalling_what_is_not_installed_is_no_error(run: Run, home: Path) -> None:
    write(home / FILES["claude-code"], "{}")
    exit_code, document, _ = run("uninstall", "claude-code")

    assert exit_code == 0
    assert document["changes"] == []


def test_hooks_on_no_record_are_found_and_removed(
    run: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stores may be elsewhere than when they were installed, or gone."""
    write(home / FILES["claude-code"], "{}\n")
    run("install", "claude-code", "opencode", "copilot", "cline")
    monkeypatch.setenv("SHADOWTREE_HOME", str(tmp_path / "other"))
    exit_code, _, _ = run("uninstall", "--all")

    assert exit_code == 0
    files = {name: content for name, content in list_files(home).items() if not name.endswith("/")}
    assert files == {FILES["claude-code"]: b"{}\n"}


@pytest.mark.parametrize("agent", FILES)
def test_print_gives_what_would_be_written(run: Run, home: Path, program: Path, agent: str) -> None:
    exit_code, document, _ = run("print", agent)

    assert exit_code == 0
    assert str(program) in document["content"]
    assert document["path"] == str(home / FILES[agent])
    assert list_files(home) == {}
    run("install", agent)
    commands = {each["path"]: each["content"] for each in document["commands"]}
    assert commands == {str(path): path.read_text() for path in home.rglob("commands/*")}


def test_print_says_where_it_belongs_beside_the_output(
    run: Run, home: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["hooks", "print", "claude-code", "--executable", str(program)])
    told = capsys.readouterr()

    assert json.loads(told.out)["hooks"]
    assert told.err.splitlines() == [
        f"shadowtree: this belongs in {home / FILES['claude-code']}",
        "shadowtree: 'shadowtree hooks print claude-code --json' also lists its slash commands",
    ]


def test_print_without_an_agent_lists_their_names_in_one_line(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hooks", "print"]) == 2
    names = ", ".join(AGENTS)
    told = f"shadowtree: AGENT is missing; it is one of {names}; see 'shadowtree hooks print --help'\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("action", ["install", "uninstall"])
def test_only_one_scope_can_be_meant(run: Run, home: Path, action: str) -> None:
    exit_code, _, told = run(action, "claude-code", "--user", "--project")

    assert exit_code == 2
    assert told == "shadowtree: --user cannot be combined with --project\n"
    assert list_files(home) == {}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["install", "codex", "--all-detected"], "name agents or give --all-detected, not both"),
        (["install"], f"name agents or give --all-detected; agents are {', '.join(AGENTS)}"),
        (
            ["install", "--all-detected"],
            f"no agent was found on this machine; name those that you use: {', '.join(AGENTS)}",
        ),
        (["uninstall", "codex", "--all"], "name agents or give --all, not both"),
        (["uninstall"], f"name agents or give --all; agents are {', '.join(AGENTS)}"),
    ],
)
def test_which_agents_are_meant_has_to_be_said(run: Run, words: list[str], told: str) -> None:
    assert run(*words)[0::2] == (2, f"shadowtree: {told}\n")


def test_an_agent_that_is_not_found_can_be_connected_anyway(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["hooks", "status", "cursor"])

    todo = "to connect it anyway, run 'shadowtree hooks install cursor'"
    assert f"cursor  user  not found on this machine; {todo}\n" in capsys.readouterr().out


def test_status_tells_what_is_installed_and_whether_the_program_is_there(
    run: Run, home: Path, program: Path
) -> None:
    _, before, _ = run("status", "codex")
    run("install", "codex")
    _, after, _ = run("status", "codex")
    program.unlink()
    _, gone, _ = run("status", "codex")

    assert [each["state"] for each in before] == ["no", "no"]
    assert after[0]["state"] == "installed"
    assert after[0]["executable"] == str(program)
    assert (after[0]["executable_there"], gone[0]["executable_there"]) == (True, False)
    assert after[0]["path"] == str(home / FILES["codex"])


def test_a_path_with_blanks_is_quoted(run: Run, home: Path, tmp_path: Path) -> None:
    program = make_program(tmp_path / "my programs")
    main(["hooks", "install", "claude-code", "cline", "opencode", "--executable", str(program)])
    settings = json.loads((home / FILES["claude-code"]).read_text())
    _, [state, *_], _ = run("status", "claude-code")

    assert set(lines_of(settings)) == {f"'{program}' hook claude-code"}
    assert f"exec '{program}' hook cline" in (home / FILES["cline"]).read_text()
    assert f'const PROGRAM = "{program}"' in (home / FILES["opencode"]).read_text()
    assert state["executable"] == str(program)


def test_uninstalling_shadowtree_removes_hooks_everywhere_and_their_log(
    run: Run, home: Path, worktree: Path, stores: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home / FILES["codex"], "{}")
    run("install", "codex", "opencode")
    run("install", "claude-code", "--project")
    for name in ("log", "log.1", "last-codex"):
        write(stores / "hooks" / name, "")
    planned = main(["uninstall", "--dry-run", "--json"])
    would_be = json.loads(capsys.readouterr().out)["removed"]
    still_there = (stores / "hooks" / "log").exists()
    exit_code = main(["uninstall", "--json"])
    removed = json.loads(capsys.readouterr().out)["removed"]

    assert (planned, exit_code) == (0, 0)
    assert still_there
    assert removed == would_be
    assert str(worktree / ".claude/settings.json") in removed
    assert str(home / FILES["codex"]) not in removed
    assert list_files(home) == {FILES["codex"]: b"{}"}
    assert list_files(worktree) == {}
    assert not (stores / "hooks").exists()


@pytest.mark.parametrize(("words", "verb"), [(["--dry-run"], "Would remove"), ([], "Removed")])
def test_a_file_that_is_only_changed_back_is_not_said_to_be_removed(
    run: Run, home: Path, capsys: pytest.CaptureFixture[str], words: list[str], verb: str
) -> None:
    settings = write(home / FILES["claude-code"], "{}")
    run("install", "claude-code")
    main(["uninstall", *words])

    lines = capsys.readouterr().out.splitlines()
    assert f"{verb} our hooks from {settings}" in lines
    assert f"{verb} {settings}" not in lines
    assert f"{verb} {home / '.claude/commands/shadowtree-undo.md'}" in lines


def test_hooks_that_are_installed_elsewhere_are_pointed_out(run: Run) -> None:
    run("install", "claude-code", "--local")
    exit_code, document, told = run("uninstall", "claude-code")

    assert exit_code == 0
    assert document["changes"] == []
    assert "try --local" in told


def test_a_link_that_leads_nowhere_is_refused(run: Run, home: Path, tmp_path: Path) -> None:
    link = home / FILES["claude-code"]
    link.parent.mkdir()
    link.symlink_to(tmp_path / "unmounted" / "settings.json")
    exit_code, _, told = run("install", "claude-code")

    assert exit_code == 1
    assert "where nothing is" in told
    assert not (tmp_path / "unmounted").exists()


def test_hooks_that_somebody_else_removed_are_forgotten(run: Run, home: Path, stores: Path) -> None:
    path = write(home / FILES["codex"], "{}")
    run("install", "codex")
    write(path, '{"mine": 1}')
    run("uninstall", "codex")

    assert path.read_text() == '{"mine": 1}'
    assert not (stores / "hooks").exists()


def test_the_daemon_lets_go_of_what_it_watched_for_hooks_alone(
    run: Run, worktree: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run("install", "codex", "gemini")
    try:
        with reach_daemon(Endpoint(os.environ)) as client:
            client.ask("serve", {"worktree": str(other), "store": None}, True)
            wish = {"worktree": str(worktree), "store": None, "idle_s": 100.0, "watch_share": 0.25}
            client.ask("serve", wish, True)
        run("uninstall", "codex")
        before = list_served()
        run("uninstall", "gemini")
        after = list_served()
    finally:
        end_daemon()

    assert sorted(before) == sorted([str(other), str(worktree)])
    assert after == [str(other)]


def test_a_plugin_of_another_version_is_pointed_out_and_replaced(run: Run, home: Path) -> None:
    path = home / FILES["opencode"]
    run("install", "opencode")
    new = path.read_text()
    record = Path(os.environ["SHADOWTREE_HOME"], "hooks", "installed.json")
    old = new.replace("LIMIT_MS = 30_000", "LIMIT_MS = 20_000")
    write(path, old)
    record.write_text(record.read_text().replace(digest(new), digest(old)))
    _, [before, *_], _ = run("status", "opencode")
    run("install", "opencode")
    _, [after, *_], _ = run("status", "opencode")

    assert before["missing"] == [f"this version of {path}"]
    assert path.read_text() == new
    assert after["state"] == "installed"


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


@pytest.mark.parametrize("moment", ["os.fsync", "shadowtree.agents.agent_files.exchange"])
def test_a_file_that_the_agent_writes_meanwhile_is_not_replaced(
    run: Run, home: Path, stores: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    path = write(home / FILES["claude-code"], "{}")
    _write_before(monkeypatch, moment, path, '{"theme": "dark"}')
    exit_code, _, told = run("install", "claude-code")

    assert exit_code == 1
    assert "changed by another program" in told
    assert path.read_text() == '{"theme": "dark"}'
    assert [each.name for each in path.parent.iterdir()] == ["settings.json"]
    assert not (stores / "hooks").exists(), "no backup and no record of what was not done"
    _, document, _ = run("install", "claude-code")
    assert Path(document["changes"][0]["backup"]).read_text() == '{"theme": "dark"}'


@pytest.mark.parametrize("action", ["install", "uninstall"])
def test_a_file_that_the_agent_makes_meanwhile_is_not_replaced_or_removed(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    path = home / FILES["codex"]
    if action == "uninstall":
        run("install", "codex")
    _write_before(monkeypatch, "shadowtree.agents.agent_files.move", path, '{"theme": "dark"}')
    exit_code, _, told = run(action, "codex")

    assert exit_code == 1
    assert "changed by another program" in told
    assert path.read_text() == '{"theme": "dark"}'
    assert [each.name for each in path.parent.iterdir()] == ["hooks.json"]


def _write_before(monkeypatch: pytest.MonkeyPatch, moment: str, path: Path, text: str) -> None:
    """Let somebody else write a file, once, right before a function is called."""
    module, _, name = moment.rpartition(".")
    plain = getattr(importlib.import_module(module), name)

    def write_first(*arguments: Any) -> Any:  # Any: whatever it takes and gives
        monkeypatch.setattr(moment, plain)
        path.write_text(text)
        return plain(*arguments)

    monkeypatch.setattr(moment, write_first)


def test_installations_at_the_same_moment_take_turns(
    run: Run, home: Path, stores: Path, program: Path, worktree: Path
) -> None:
    """Each would otherwise write a record without what the others had just installed."""
    for agent in MERGED:
        write(home / FILES[agent], json.dumps(FOREIGN, indent=3))
    before = list_files(home)
    command = [*COMMAND, "hooks", "install", "--executable", str(program)]
    started = [
        subprocess.Popen([*command, agent], cwd=worktree, env=surroundings(), stdout=subprocess.DEVNULL)
        for agent in [*FILES, "claude-code", "codex"]
    ]

    assert [each.wait(60) for each in started] == [0] * len(started)
    record = json.loads((stores / "hooks" / "installed.json").read_text())
    assert {entry["agent"] for entry in record["files"]} == set(FILES)
    settings = json.loads((home / FILES["claude-code"]).read_text())
    assert lines_of(settings).count(f"{program} hook claude-code") == len(settings["hooks"]) - 1
    exit_code, _, _ = run("uninstall", "--all")
    assert exit_code == 0
    assert list_files(home) == before
