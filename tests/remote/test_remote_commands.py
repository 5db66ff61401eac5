"""The commands for remotes, as people type them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shadowtree import InvalidInput, Shadow
from shadowtree.base.errors import RemoteFailed
from shadowtree.remote import remotes
from shadowtree.remote.bundle import write_bundle
from tests.remote.machines import list_refs, make_server
from tests.support.referee import git
from tests.support.terminal import Terminal, run_on_terminal
from tests.support.trees import assert_tree, make_tree


@pytest.fixture
def server(tmp_path: Path) -> Path:
    return make_server(tmp_path / "server.git")


@pytest.fixture
def told(project: Path, terminal: Terminal) -> Path:
    """A directory with two messages, as the current directory."""
    for number in (1, 2):
        terminal.run("begin", f"m{number}", "-m", f"do {number}")
        (project / "a.txt").write_text(f"{number}\n")
        terminal.run("end")
    return project


def test_the_first_push_asks_and_counts_what_git_does_not_track(
    told: Path, server: Path, terminal: Terminal
) -> None:
    git("init", "--quiet", cwd=told)
    git("add", "a.txt", "b.txt", cwd=told)
    (told / "gone.txt").write_text("in what is pushed all the same\n")
    (told / "log.txt").write_text("left out\n")
    (told / "new.txt").write_text("new\n")
    terminal.run("snapshot", "m3")
    (told / "gone.txt").unlink()
    terminal.run("snapshot", "m4")
    terminal.run("config", "set", "push_exclude", "log.txt")
    terminal.run("remote", "add", "origin", str(server))

    asked = terminal.run_json("push", exit_code=13)

    assert asked["error"] == "NotConfirmed"
    assert (asked["plan"]["files"], asked["plan"]["untracked"]) == (4, 2)
    assert asked["plan"]["examples"] == ["gone.txt", "new.txt"]
    assert list_refs(server) == []
    shown = run_on_terminal("push", answer="y\n").decode()
    assert "Your own git does not track 2 of them" in shown
    assert "The texts of messages are not pushed" in shown
    assert len(list_refs(server)) == 2
    assert terminal.run("push").startswith("Everything is at origin")


def test_the_first_push_counts_sessions_that_were_only_fetched(
    told: Path, server: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("push", "--yes", "--text")
    (tmp_path / "copy").mkdir()
    monkeypatch.chdir(tmp_path / "copy")
    terminal.run("wrap")
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("fetch")
    other = make_server(tmp_path / "other.git")
    terminal.run("remote", "add", "other", str(other))

    plan = terminal.run_json("push", "other", exit_code=13)["plan"]

    assert (plan["sessions"], plan["files"]) == (["default"], 2)
    assert terminal.run_json("push", "other", "--yes")["sessions"] == ["default"]


def test_remotes_are_listed_and_removed(told: Path, server: Path, terminal: Terminal) -> None:
    terminal.run("remote", "add", "origin", str(server))

    assert terminal.run_json("remote", "list") == [
        {"name": "origin", "url": str(server), "pushed": None, "failures": 0, "why": ""}
    ]
    assert "origin" in terminal.run("remote")
    terminal.run("remote", "add", "origin", str(server), exit_code=2)
    terminal.run("remote", "remove", "origin")
    assert terminal.run("remote") == "No remotes yet\n"
    terminal.run("push", exit_code=12)
    assert "shadowtree remote add origin URL" in terminal.err


def test_a_url_with_a_password_is_refused(told: Path, terminal: Terminal) -> None:
    terminal.run("remote", "add", "origin", "https://me:hunter2@example.com/x.git", exit_code=2)

    assert "hunter2" not in terminal.err


def test_a_clone_makes_the_directory_and_its_log(
    told: Path, server: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("push", "--yes", "--text")
    log = terminal.run("log", "--json")
    monkeypatch.chdir(tmp_path)

    cloned = terminal.run_json("clone", str(server), "copy")

    assert (cloned["session"], cloned["head"], cloned["files"]) == ("default", "m2", 2)
    assert (tmp_path / "copy" / "a.txt").read_text() == "2\n"
    monkeypatch.chdir(tmp_path / "copy")
    assert json.loads(terminal.run("log", "--json")) == json.loads(log)
    terminal.run("undo")
    assert (tmp_path / "copy" / "a.txt").read_text() == "1\n"


def test_a_clone_that_fails_leaves_nothing(tmp_path: Path, server: Path, terminal: Terminal) -> None:
    terminal.run("clone", str(server), str(tmp_path / "copy"), exit_code=12)

    assert not (tmp_path / "copy").exists()
    assert terminal.run_json("stats", "--all") == []


def test_a_directory_that_differs_is_a_conflict(
    told: Path, server: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("push", "--yes")
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("mine\n")
    monkeypatch.chdir(other)

    conflict = terminal.run_json("resume", str(server), "--session", "default", exit_code=13)

    assert [each["path"] for each in conflict["conflicts"]] == ["a.txt"]
    assert (other / "a.txt").read_text() == "mine\n"
    assert "keep" not in terminal.err
    terminal.run("clone", str(server), ".", exit_code=13)
    assert "'shadowtree resume' with --on-conflict overwrite" in terminal.err


def test_what_a_resume_replaced_can_be_brought_back(
    told: Path, server: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("push", "--yes")
    other = tmp_path / "other"
    make_tree(other, {"a.txt": "mine\n", "own.txt": "own\n"})
    monkeypatch.chdir(other)
    asked = ("resume", str(server), "--session", "default", "--on-conflict", "overwrite")

    planned = terminal.run(*asked, "--dry-run")

    assert planned.startswith("Would resume session default at message m2: ")
    assert "delete    own.txt" in planned
    assert_tree(other, {"a.txt": "mine\n", "own.txt": "own\n"})
    done = terminal.run(*asked)
    assert (other / "a.txt").read_text() == "2\n"
    assert "deleted   own.txt" in done
    back = done.splitlines()[-1].removeprefix("To get back: shadowtree ")
    terminal.run(*back.split(), "--yes")
    assert_tree(other, {"a.txt": "mine\n", "own.txt": "own\n"})


def test_a_bundle_is_one_that_git_verifies_and_another_machine_imports(
    told: Path, server: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("export", "../history.bundle", "--text")
    log = json.loads(terminal.run("log", "--json"))

    git("--git-dir", server, "bundle", "verify", "--quiet", tmp_path / "history.bundle")
    git("--git-dir", server, "fetch", "--quiet", tmp_path / "history.bundle", "refs/*:refs/*")
    assert git("--git-dir", server, "fsck", "--full", "--strict", "--no-dangling") == ""
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    terminal.run("import", "../history.bundle")
    assert json.loads(terminal.run("log", "--json")) == log
    assert terminal.run("import", "../history.bundle") == "Nothing new\n"
    (tmp_path / "no.bundle").write_text("no")
    terminal.run("import", "../no.bundle", exit_code=1)
    assert "it is not a git bundle" in terminal.err
    whole = (tmp_path / "history.bundle").read_bytes()
    (tmp_path / "cut.bundle").write_bytes(whole[:-100])
    terminal.run("import", "../cut.bundle", exit_code=1)
    assert "it is cut off or damaged" in terminal.err


def test_a_bundle_is_cloned_and_resumed_like_a_server(
    told: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("export", "../history.bundle", "--text")
    monkeypatch.chdir(tmp_path)

    terminal.run("clone", "history.bundle")

    assert (tmp_path / "history" / "a.txt").read_text() == "2\n"
    monkeypatch.chdir(tmp_path / "history")
    terminal.run("undo")
    assert (tmp_path / "history" / "a.txt").read_text() == "1\n"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    terminal.run("import", "../history.bundle")
    terminal.run("resume", "../history.bundle", "--at", "m1")
    assert (tmp_path / "other" / "a.txt").read_text() == "1\n"
    assert terminal.run("remote") == "No remotes yet\n"
    terminal.run("resume", "../history.bundle", "--session", "unknown", exit_code=12)


def test_an_export_never_replaces_a_file_of_yours(told: Path, terminal: Terminal) -> None:
    before = (told / "a.txt").read_bytes()

    terminal.run("export", "a.txt", exit_code=2)

    assert (told / "a.txt").read_bytes() == before
    assert "a.txt exists already; add --overwrite to replace it" in terminal.err
    with Shadow(told) as shadow, pytest.raises(InvalidInput):
        shadow.remotes.export_file(told / "a.txt")
    terminal.run("export", "../history.bundle")
    terminal.run("export", "../history.bundle", "--overwrite")


def test_an_export_replaces_no_file_that_appears_meanwhile(
    told: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.bundle"

    def write(*arguments: Any, **options: Any) -> None:  # Any: the arguments of the real one
        write_bundle(*arguments, **options)
        path.write_text("mine")

    monkeypatch.setattr(remotes, "write_bundle", write)
    with Shadow(told) as shadow, pytest.raises(RemoteFailed, match="exists"):
        shadow.remotes.export_file(path)

    assert path.read_text() == "mine"
    assert [each.name for each in tmp_path.glob("history*")] == ["history.bundle"]


def test_a_bundle_without_a_session_is_an_error(
    told: Path, server: Path, terminal: Terminal, tmp_path: Path
) -> None:
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("push", "--yes")
    git("--git-dir", server, "bundle", "create", "--quiet", tmp_path / "lines.bundle", "--branches")

    terminal.run("import", "../lines.bundle", exit_code=1)

    assert "no session in it" in terminal.err


def test_forget_and_purge_replace_what_was_pushed(told: Path, server: Path, terminal: Terminal) -> None:
    (told / ".env").write_text("KEY=hunter2\n")
    terminal.run("snapshot", "m3")
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("push", "--yes", "--text")
    git("--git-dir", server, "config", "receive.denyNonFastForwards", "false")

    purged = terminal.run_json("purge", ".env", "--yes")
    assert purged["remotes"] == ["origin"]
    terminal.run("push", "--replace")
    terminal.run("forget", "--keep-last", "1", "--remote")

    git("--git-dir", server, "reflog", "expire", "--expire=now", "--all")
    git("--git-dir", server, "gc", "--quiet", "--prune=now")
    everything = git("--git-dir", server, "cat-file", "--batch-all-objects", "--batch")
    assert "hunter2" not in everything
    assert "do 1" not in everything
    assert git("--git-dir", server, "fsck", "--full", "--strict", "--no-dangling") == ""


def test_what_was_forgotten_and_purged_is_told_even_if_a_remote_is_gone(
    told: Path, server: Path, terminal: Terminal
) -> None:
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("push", "--yes")
    server.rename(server.with_suffix(".gone"))

    assert "Forgot 1 message" in terminal.run("forget", "--keep-last", "1", "--remote", exit_code=1)

    assert "to try again: shadowtree push origin --replace" in terminal.err
    purged = terminal.run_json("purge", "a.txt", "--yes", "--remote", exit_code=1)
    assert purged["remotes"] == ["origin"]


def test_a_project_cannot_name_a_remote(told: Path, terminal: Terminal) -> None:
    (told / ".shadowtree.toml").write_text('auto_push = "evil"\npush_text = true\n')

    settings = {each["key"]: each["value"] for each in terminal.run_json("config", "list")}

    assert (settings["auto_push"], settings["push_text"]) == ("", False)


def test_status_and_doctor_tell_of_a_push_that_failed(
    told: Path, server: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.run("remote", "add", "origin", str(server))
    terminal.run("push", "--yes")
    server.rename(server.with_suffix(".gone"))
    with Shadow(told, settings={"auto_push": "origin"}) as shadow:
        first = shadow.remotes.push_if_due()
        again = shadow.remotes.push_if_due()

    assert first is not None
    assert again is not None
    assert again <= first
    assert any("the last push to origin failed" in line for line in terminal.run_json("status")["warnings"])
    found = terminal.run_json("doctor", exit_code=1)
    assert any(each["check"] == "remote" and each["level"] == "problem" for each in found)
    server.with_suffix(".gone").rename(server)
    terminal.run("push")
    assert not terminal.run_json("status")["warnings"]
