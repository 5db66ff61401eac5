"""`shadowtree purge`: it asks, reports what stays, and takes a path or a blob id."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowtree.store.git_format import blob_id
from tests.api.test_purge import lose
from tests.support.referee import assert_sound_store
from tests.support.searching import find_bytes
from tests.support.terminal import Terminal, run_on_terminal

SECRET = b"KEY=k93jdpq81mzn4x7s\n"
BLOB = blob_id(SECRET).hex()


@pytest.fixture
def store(project: Path, terminal: Terminal) -> Path:
    """A store with a secret in one message."""
    (project / "sub").mkdir()
    terminal.run("wrap")
    terminal.run("begin", "m1", "-m", "put k93jdpq81mzn4x7s into .env")
    (project / "sub" / ".env").write_bytes(SECRET)
    (project / "a.txt").write_text("changed\n")
    terminal.run("end", "m1")
    return Path(terminal.run_json("status")["store"])


def test_without_a_terminal_and_yes_nothing_is_purged(terminal: Terminal, store: Path) -> None:
    said = terminal.run("purge", "sub/.env", exit_code=13)
    document = terminal.run_json("purge", "sub/.env", exit_code=13)

    assert said == ""
    assert document["plan"] == terminal.run_json("purge", "sub/.env", "--dry-run")
    assert (document["error"], document["purged"], document["messages"]) == ("NotConfirmed", [], [])
    assert find_bytes(store, [SECRET.strip()])


def test_it_tells_what_it_would_do(terminal: Terminal, store: Path) -> None:
    document = terminal.run_json("purge", "sub/.env", "--dry-run")

    assert document == {
        "purged": ["sub/.env"],
        "blobs": [BLOB],
        "trees": 1,
        "messages": [{"id": "m1", "session": "default"}],
        "also_at": [],
        "left": [],
        "unread": [],
        "names": [],
        "removed": 0,
        "freed": 0,
        "complete": True,
        "notes": [],
        "dry_run": True,
    }
    assert find_bytes(store, [SECRET.strip()])


def test_a_path_is_relative_to_the_current_directory(
    project: Path, terminal: Terminal, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "sub")

    said = terminal.run("purge", ".env", "--yes")

    assert "Purged: sub/.env\n1 file version in 1 tree and 1 message\n" in said
    assert find_bytes(store, [SECRET.strip(), b"k93jdpq81mzn4x7s"]) == []
    assert terminal.run_json("show", "m1")["text"] == "put [purged] into .env"
    assert_sound_store(store)


def test_the_same_bytes_elsewhere_make_it_incomplete(project: Path, terminal: Terminal, store: Path) -> None:
    (project / "copy").write_bytes(SECRET)
    terminal.run("track")

    said = terminal.run("purge", "sub/.env", "--yes", exit_code=1)

    assert f"copy has the same content\nTo remove it everywhere: shadowtree purge {BLOB}\n" in said
    assert terminal.run_json("purge", BLOB, "--yes")["purged"] == ["copy"]
    assert find_bytes(store, [SECRET.strip()]) == []


def test_a_content_that_cannot_be_read_makes_it_incomplete(terminal: Terminal, store: Path) -> None:
    terminal.run("gc")
    lose(store, SECRET)

    document = terminal.run_json("purge", "sub/.env", "--yes", exit_code=1)

    assert (document["complete"], document["unread"]) == (False, [BLOB])
    assert document["notes"] == [f"{BLOB} cannot be read, so messages may still repeat parts of it"]


def test_an_id_that_holds_it_makes_it_incomplete(project: Path, terminal: Terminal, store: Path) -> None:
    terminal.run("snapshot", "k93jdpq81mzn4x7s")

    said = terminal.run("purge", "sub/.env", "--yes", exit_code=1)

    assert (
        "message ids that contain part of it stay, because other programs use them: k93jdpq81mzn4x7s" in said
    )
    assert terminal.run_json("log")[1]["id"] == "k93jdpq81mzn4x7s"


def test_a_text_is_purged_from_messages_and_files_that_hold_it_are_named(
    terminal: Terminal, store: Path
) -> None:
    said = terminal.run("purge", "--text", "k93jdpq81mzn4x7s", "--yes", exit_code=1)

    assert "sub/.env has the same content" in said
    assert terminal.run_json("log")[0]["text"] == "put [purged] into .env"
    document = terminal.run_json("purge", "--text", "k93jdpq81mzn4x7s", "--everywhere", "--yes")
    assert (document["complete"], document["purged"]) == (True, ["sub/.env"])


def test_everywhere_takes_the_others_too(project: Path, terminal: Terminal, store: Path) -> None:
    (project / "copy").write_bytes(SECRET)
    terminal.run("track")

    assert terminal.run_json("purge", "sub/.env", "--everywhere", "--yes")["purged"] == ["copy", "sub/.env"]
    assert find_bytes(store, [SECRET.strip()]) == []


def test_what_was_purged_can_be_allowed_again(terminal: Terminal, store: Path) -> None:
    terminal.run("purge", "sub/.env", "--yes")

    assert terminal.run_json("track")["skipped"] == [{"path": "sub/.env", "reason": "purged"}]
    assert terminal.run_json("purge", "sub/.env", "--allow") == {"allowed": ["sub/.env"]}
    assert terminal.run_json("track")["skipped"] == []


def test_a_file_that_is_called_like_an_id_is_named_with_its_directory(
    project: Path, terminal: Terminal, store: Path
) -> None:
    (project / ("a" * 40)).write_bytes(b"another secret thing")
    terminal.run("track")

    terminal.run("purge", "a" * 40, "--yes", exit_code=12)
    assert terminal.run_json("purge", "./" + "a" * 40, "--yes")["purged"] == ["a" * 40]


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (["nothing"], 12),
        (["0" * 40], 12),
        (["nothing", "--allow"], 12),
        (["a.txt", "--allow", "--everywhere"], 2),
        (["a.txt", "--allow", "--dry-run"], 2),
        (["."], 2),
    ],
)
def test_wrong_words_change_nothing(
    terminal: Terminal, store: Path, words: list[str], exit_code: int
) -> None:
    terminal.run("purge", *words, "--yes", exit_code=exit_code)

    assert terminal.run_json("track")["skipped"] == []


@pytest.mark.parametrize(("answer", "exit_code"), [("y\n", 0), ("n\n", 13)])
def test_on_a_terminal_it_asks(terminal: Terminal, store: Path, answer: str, exit_code: int) -> None:
    said = run_on_terminal("purge", "sub/.env", answer=answer, exit_code=exit_code)

    assert (
        b"This will permanently remove sub/.env from 1 tree and 1 message; undo cannot bring it back" in said
    )
    assert bool(find_bytes(store, [SECRET.strip()])) is bool(exit_code)
