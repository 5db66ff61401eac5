"""The commands `forget`, `pin` and `unpin`, and how other commands report forgotten messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.terminal import Terminal


@pytest.fixture
def messages(terminal: Terminal, project: Path) -> Terminal:
    """Three recorded messages; each wrote one file."""
    for id in ("m1", "m2", "m3"):
        terminal.run("begin", id, "-m", f"work on {id}")
        (project / f"{id}.txt").write_text(id)
        terminal.run("end")
    return terminal


def test_forget_gives_the_documented_json(messages: Terminal) -> None:
    found = messages.run_json("forget", "--keep-last", "1")

    assert found["forgotten"] == [
        {"id": "m1", "session": "default"},
        {"id": "m2", "session": "default"},
    ]
    assert found["removed"] > 0
    assert found["freed"] >= 0
    assert [entry["id"] for entry in messages.run_json("log")] == ["m3"]


def test_forget_tells_people_what_goes(messages: Terminal) -> None:
    assert "Nothing to forget" in messages.run("forget")
    told = messages.run("forget", "--keep-last", "2", "--dry-run")
    assert told.startswith("Would forget 1 message and ")
    assert told.endswith("  m1  (session default)\n")
    assert len(messages.run_json("log")) == 3


def test_a_forgotten_message_is_exit_12_and_says_so(messages: Terminal) -> None:
    messages.run("forget", "--keep-last", "1", "--no-gc")

    for words in (["show", "m1"], ["revert", "m1"], ["switch", "m1"], ["restore", "m1"], ["diff", "m1"]):
        told = messages.run(*words, "--json", exit_code=12)
        document = json.loads(told)
        assert document["error"] == "ForgottenMessage"
        assert document["message"].startswith("message 'm1' was forgotten on ")


def test_a_pinned_message_is_marked_in_log_and_show(messages: Terminal) -> None:
    assert "Pinned m1" in messages.run("pin", "m1")

    assert [entry["pinned"] for entry in messages.run_json("log")] == [True, False, False]
    assert "pinned" in messages.run("log").splitlines()[0]
    assert "pinned" in messages.run("log", "--graph")
    assert ", pinned" in messages.run("show", "m1")
    assert messages.run_json("pin", "m1")["pinned"] is True
    messages.run("forget", "--keep-last", "1")
    assert [entry["id"] for entry in messages.run_json("log")] == ["m1", "m3"]
    assert "Unpinned m1" in messages.run("unpin", "m1")
    assert messages.run_json("unpin", "m1")["pinned"] is False
    messages.run("pin", "nothing", exit_code=12)


def test_the_graph_shows_that_what_a_message_came_after_is_not_there(messages: Terminal) -> None:
    messages.run("forget", "--keep-last", "2")

    lines = messages.run("log", "--graph").splitlines()
    assert "m1" not in "".join(lines)
    assert any("~" in line for line in lines)


@pytest.mark.parametrize(
    "words", [["--keep-last", "0"], ["--keep-last", "x"], ["--keep-within", "soon"], ["--keep-within", ""]]
)
def test_what_cannot_be_meant_is_refused(messages: Terminal, words: list[str]) -> None:
    messages.run("forget", *words, exit_code=2)

    assert len(messages.run_json("log")) == 3


def test_an_undo_that_ends_early_is_incomplete(messages: Terminal) -> None:
    messages.run("forget", "--keep-last", "1")

    found = json.loads(messages.run("undo", "2", "--json", exit_code=1))
    assert (found["turns"], found["messages"]) == (1, ["m3"])
    assert "undo stops at message 'm2', which was forgotten" in found["notes"]
    assert "m2" in messages.run("undo")


def test_a_store_over_its_budget_records_and_warns(messages: Terminal, project: Path) -> None:
    (project / "new.txt").write_text("new")
    told = messages.run_json("track", "--set", "store_budget=10K")

    assert "and nothing else can be forgotten" in told["warnings"][0]
    assert messages.run("status", "--set", "store_budget=10K")
    assert messages.run("undo", "--set", "store_budget=10K")
