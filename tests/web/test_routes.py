"""Each route against a real worktree: what it returns, and what it does to the files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from tests.support.trees import Tree, assert_tree, make_tree
from tests.web.client import Client, Reply
from tests.web.schemas import ERROR, RETURNS, find_faults

BEFORE: Tree = {"a": "0\n", "same": "same\n"}
AFTER: list[Tree] = [
    BEFORE,
    {"a": "1\n", "b": "1\n", "same": "same\n"},
    {"a": "2\n", "b": "1\n", "same": "same\n"},
    {"a": "2\n", "b": "1\n", "c": "3\n", "d": "4\n", "same": "same\n"},
]
"""The worktree after so many turns."""


@pytest.fixture
def archived(client: Client, history: Shadow, worktree: Path) -> Client:
    """A history with a branch: the second and third turn were undone, and another one was made."""
    client.act("/api/undo", turns=2)
    with history.message("five", text="other way", role="user"):
        (worktree / "e").write_text("5\n")
    return client


@pytest.mark.parametrize(
    "target",
    [
        "/api/state",
        "/api/sessions",
        "/api/timeline",
        "/api/message?id=one",
        "/api/message?id=five",
        "/api/diff?message=one",
        "/api/diff?a=one&b=five",
        "/api/diff",
        "/api/branches",
        "/api/status",
        "/api/unprotected",
        "/api/stats",
        "/api/verify",
    ],
)
def test_an_answer_is_what_the_schema_says(archived: Client, target: str) -> None:
    reply = archived.send("GET", target)

    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert not find_faults(reply.json, RETURNS[target.partition("?")[0]])
    assert "sandbox" in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/undo", {"turns": 1}),
        ("/api/undo", {"turns": 2, "diff": True}),
        ("/api/redo", {"turns": None}),
        ("/api/revert", {"message": "one", "only": True}),
        ("/api/revert", {"message": "five", "paths": ["e"]}),
        ("/api/revert", {"message": "one", "step": "edit"}),
        ("/api/unrevert", {}),
        ("/api/switch", {"ref": "write-a"}),
        ("/api/restore", {"ref": "one^"}),
    ],
)
def test_a_plan_and_its_outcome_are_what_the_schema_says(
    archived: Client, path: str, body: dict[str, Any]
) -> None:
    schema = RETURNS[path]

    plan = archived.plan(path, **body)
    assert not find_faults(plan, schema)
    assert plan["dry_run"] is True

    body = {name: value for name, value in body.items() if name != "diff"}
    done = archived.post(path, expect=plan["id"], **body).json
    assert not find_faults(done, schema)
    assert (done["dry_run"], done["id"]) == (False, plan["id"])


def test_the_state_tells_a_host_where_the_conversation_is(archived: Client) -> None:
    state = archived.get("/api/state")

    assert (state["session"], state["head"], state["open"]) == ("default", "five", None)
    assert (state["turn"], state["turns"], state["undone"]) == (2, 2, [])
    assert state["tree"] == archived.get("/api/message", id="five")["message"]["after"]
    (branch,) = state["branches"]
    assert (branch["name"], branch["fork"], branch["state"]) == ("write-a", "one", "archived")
    assert branch["turns"] == [
        {"turn": 2, "messages": ["two"], "text": "write a"},
        {"turn": 3, "messages": ["three", "four"], "text": "write c"},
    ]

    archived.act("/api/undo", turns=1)
    state = archived.get("/api/state")
    assert (state["head"], state["turn"], state["turns"]) == ("one", 1, 2)
    assert state["undone"] == [{"turn": 2, "messages": ["five"], "text": "other way"}]


def test_the_timeline_has_a_row_for_each_message(archived: Client, history: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("mine\n")
    history.begin("six", text="x" * 1000)
    timeline = archived.get("/api/timeline")

    rows = {row["id"]: row for row in timeline["rows"]}
    assert list(rows) == ["one", "two", "three", "four", "five", "six"]
    assert (timeline["total"], timeline["head"], timeline["open"]) == (6, "five", "six")
    one = rows["one"]
    assert (one["text"], one["agent"], one["role"]) == ("write a and b\nand more", "claude", "user")
    assert (one["files"], one["steps"], one["parent"], one["marks"]) == (2, 1, None, [])
    assert [(row["state"], row["branch"]) for row in rows.values()] == [
        ("active", None),
        ("archived", "write-a"),
        ("archived", "write-a"),
        ("archived", "write-a"),
        ("active", None),
        ("open", None),
    ]
    assert (rows["five"]["parent"], rows["five"]["marks"]) == ("one", [])
    assert (rows["six"]["marks"], len(rows["six"]["text"])) == (["edited"], 300)


def test_a_timeline_comes_in_pages(client: Client) -> None:
    newest = client.get("/api/timeline", limit=2)
    older = client.get("/api/timeline", limit=1, before=newest["rows"][0]["number"])

    assert [row["id"] for row in newest["rows"]] == ["three", "four"]
    assert [row["id"] for row in older["rows"]] == ["two"]
    assert client.get("/api/timeline", before=1)["rows"] == []
    assert newest["total"] == older["total"] == 4


def test_a_row_is_marked_as_the_log_marks_it(client: Client, history: Shadow, worktree: Path) -> None:
    (worktree / ".gitignore").write_text("*.log\n")
    (worktree / "x.log").write_text("0\n")
    history.begin("five")
    (worktree / "x.log").write_text("1\n")
    history.begin("six")
    history.end("six")
    history.pin("six")
    client.act("/api/revert", message="two", only=True)
    client.act("/api/revert", message="one", paths=["b"])

    rows = {row["id"]: row for row in client.get("/api/timeline")["rows"]}
    assert (rows["five"]["marks"], rows["five"]["unprotected"]) == (["inferred", "edited"], 1)
    assert rows["six"]["marks"] == ["pinned"]
    assert (rows["two"]["marks"], rows["two"]["state"]) == (["out"], "undone")
    assert rows["one"]["marks"] == ["partly_reverted"]
    log = {message.id: message for message in history.messages()}
    for id, row in rows.items():
        message = log[id]
        assert (row["files"], row["steps"]) == (len(message.patch.files), len(message.steps))
        assert (row["state"], row["number"], row["turn"]) == (message.state, message.number, message.turn)
        assert (row["time"], row["parent"]) == (message.to_dict()["time"], message.parent)
        assert row["unprotected"] == len(message.unprotected)
        assert ("inferred" in row["marks"], "out" in row["marks"]) == (message.inferred, message.is_out)


def test_a_message_comes_with_its_steps_and_files(client: Client, history: Shadow, worktree: Path) -> None:
    with history.message("five"):
        (worktree / "b").rename(worktree / "z")
        (worktree / "i.png").write_bytes(b"\x89PNG\0")
    one, five = client.get("/api/message", id="one"), client.get("/api/message", id="five")

    assert (one["message"]["id"], one["message"]["meta"]) == ("one", {"agent": "claude"})
    assert (one["additions"], one["deletions"]) == (2, 1)
    (step,) = one["steps"]
    assert (step["step"], [file["path"] for file in step["files"]]) == ("edit", ["a", "b"])
    image, renamed = five["files"]
    assert (image["path"], image["status"], image["image"], image["binary"]) == ("i.png", "added", True, True)
    assert (renamed["path"], renamed["status"], renamed["renamed_from"]) == ("z", "renamed", "b")


def test_a_diff_can_be_narrowed_and_widened(client: Client, history: Shadow, worktree: Path) -> None:
    lines = [f"{number}\n" for number in range(20)]
    (worktree / "long").write_text("".join(lines))
    with history.message("five"):
        (worktree / "long").write_text("".join(["changed\n" if line == "9\n" else line for line in lines]))

    one = client.get("/api/diff", message="one")["files"]
    assert [(file["path"], file["status"], file["additions"]) for file in one] == [
        ("a", "modified", 1),
        ("b", "added", 1),
    ]
    assert "-0\n+1\n" in one[0]["patch"]
    assert [file["path"] for file in client.get("/api/diff", message="one", path="b")["files"]] == ["b"]
    (narrow,) = client.get("/api/diff", message="five", context=0)["files"]
    (wide,) = client.get("/api/diff", message="five", context=100)["files"]
    assert "\n 8\n" not in narrow["patch"]
    assert "\n 0\n" in wide["patch"]
    assert "\n 19\n" in wide["patch"]
    (worktree / "a").write_text("mine\n")
    (now,) = client.get("/api/diff", a="five")["files"]
    assert "-2\n+mine\n" in now["patch"]


def test_a_diff_that_is_too_long_is_cut_and_says_so(client: Client, history: Shadow, worktree: Path) -> None:
    with history.message("five"):
        (worktree / "long").write_text("0123456789abcdef\n" * 100_000)
        (worktree / "long2").write_text("0123456789abcdef\n" * 100_000)
    first, second = client.get("/api/diff", message="five")["files"]

    assert (first["cut"], second["cut"], second["patch"], second["additions"]) == (False, True, "", 100_000)
    (alone,) = client.get("/api/diff", message="five", path="long2")["files"]
    assert (alone["cut"], len(alone["patch"]) > 1_000_000) == (False, True)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("x.png", "image/png"),
        ("x.JPG", "image/jpeg"),
        ("x.svg", None),
        ("x.html", None),
        ("x.js", None),
        ("png", "image/png"),
        ("x", None),
    ],
)
def test_a_file_is_an_image_or_something_to_save(
    client: Client, history: Shadow, worktree: Path, name: str, kind: str | None
) -> None:
    with history.message("five"):
        (worktree / name).write_bytes(b"<script>alert(1)</script>\0")
    reply = client.send("GET", f"/api/file?ref=five&path={name}")

    assert (reply.status, reply.body) == (200, b"<script>alert(1)</script>\0")
    assert reply.headers["content-type"] == (kind or "application/octet-stream")
    assert reply.headers.get("content-disposition") == (None if kind else "attachment")
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in reply.headers["content-security-policy"]


def test_hostile_names_stay_exact(client: Client, history: Shadow, worktree: Path) -> None:
    names = [
        '<img src=x onerror="alert(1)">',
        "a\u202eb",
        "line\nbreak",
        "é & ü?#%",
        "quo\"te'",
        os.fsdecode(b"\xff\x80"),
    ]
    with history.message("<b>&/../ id", text="<script>\u202e\n"):
        for name in names:
            (worktree / name).write_text("x\n")
    history.begin("..")
    history.end("..")

    shown = client.get("/api/message", id="<b>&/../ id")
    assert {file["path"] for file in shown["files"]} == set(names)
    assert client.get("/api/message", id="..")["message"]["id"] == ".."
    for name in names:
        (file,) = client.get("/api/diff", message="<b>&/../ id", path=name)["files"]
        assert file["path"] == name
    plan = client.plan("/api/revert", message="<b>&/../ id", paths=names)
    assert sorted(plan["deleted"]) == sorted(names)
    client.act("/api/revert", message="<b>&/../ id", paths=names)
    assert_tree(worktree, AFTER[3])


@pytest.mark.parametrize(
    ("target", "status", "error"),
    [
        ("/api/message?id=nothing", 404, "UnknownMessage"),
        ("/api/message", 400, "InvalidInput"),
        ("/api/message?id=one&id=two", 400, "InvalidInput"),
        ("/api/message?id=", 404, "UnknownMessage"),
        ("/api/diff?message=nothing", 404, "UnknownMessage"),
        ("/api/diff?a=nothing", 404, "UnknownTree"),
        ("/api/diff?message=one&path=../up", 400, "InvalidInput"),
        ("/api/diff?message=one&context=-1", 400, "InvalidInput"),
        ("/api/file?ref=one&path=none", 404, "UnknownName"),
        ("/api/file?ref=one&path=/etc/passwd", 400, "InvalidInput"),
        ("/api/file?ref=one&path=../../etc/passwd", 400, "InvalidInput"),
        ("/api/file?ref=one&path=.", 400, "InvalidInput"),
        ("/api/file?ref=one&path=a%00b", 400, "InvalidInput"),
        ("/api/timeline?limit=0", 400, "InvalidInput"),
        ("/api/timeline?limit=many", 400, "InvalidInput"),
        ("/api/state?session=%0a", 400, "InvalidInput"),
        ("/api/state?sesion=default", 400, "InvalidInput"),
        ("/api/state?" + "&".join(["session=a"] * 2000), 400, "InvalidInput"),
    ],
)
def test_what_is_wrong_or_unknown_is_told(client: Client, target: str, status: int, error: str) -> None:
    reply = client.send("GET", target)

    assert (reply.status, reply.error) == (status, error)
    assert not find_faults(reply.json, ERROR)


def test_sessions_are_kept_apart(client: Client, history: Shadow, worktree: Path) -> None:
    other = history.for_session("other")
    with other.message("one", text="in another session"):
        (worktree / "o").write_text("o\n")

    assert [each["id"] for each in client.get("/api/sessions")["sessions"]] == ["default", "other"]
    assert client.get("/api/state")["session"] == "other"
    assert client.get("/api/timeline", session="other")["total"] == 1
    assert client.get("/api/timeline", session="default")["total"] == 4
    assert client.get("/api/timeline", session="nobody")["rows"] == []
    client.act("/api/undo", session="default")
    assert_tree(worktree, {**AFTER[2], "o": "o\n"})


# Acts


def test_undo_and_redo_change_the_files(client: Client, worktree: Path) -> None:
    assert client.act("/api/undo")["messages"] == ["three", "four"]
    assert_tree(worktree, AFTER[2])
    client.act("/api/undo", turns=2)
    assert_tree(worktree, AFTER[0])
    client.act("/api/redo")
    assert_tree(worktree, AFTER[1])
    assert client.act("/api/redo", turns=None)["turns"] == 2
    assert_tree(worktree, AFTER[3])


def test_revert_and_the_way_back(client: Client, worktree: Path) -> None:
    done = client.act("/api/revert", message="two")
    assert_tree(worktree, AFTER[1])

    back = done["back_call"]
    assert (done["back"], back["route"]) == ("shadowtree unrevert", "/api/unrevert")
    again = client.act(back["route"], **back["body"])
    assert_tree(worktree, AFTER[3])
    client.act(again["back_call"]["route"], **again["back_call"]["body"])
    assert_tree(worktree, AFTER[1])


def test_one_message_or_one_file_can_be_undone_alone(client: Client, worktree: Path) -> None:
    assert client.act("/api/revert", message="one", only=True, paths=["b"])["mode"] == "only"
    assert_tree(worktree, {name: text for name, text in AFTER[3].items() if name != "b"})
    assert client.act("/api/revert", message="three", only=True)["messages"] == ["three"]
    assert_tree(worktree, {"a": "2\n", "d": "4\n", "same": "same\n"})


def test_switch_goes_to_a_branch_and_restore_to_a_state(archived: Client, worktree: Path) -> None:
    archived.act("/api/switch", ref="write-a")
    assert_tree(worktree, AFTER[3])
    archived.act("/api/restore", ref="one^", paths=["a"])
    assert_tree(worktree, {**AFTER[3], "a": "0\n"})
    archived.act("/api/restore", ref="one^")
    assert_tree(worktree, AFTER[0])


def test_protect_writes_a_rule(client: Client, history: Shadow, worktree: Path) -> None:
    (worktree / ".gitignore").write_text(".env\n")
    (worktree / ".env").write_text("0\n")
    with history.message("five"):
        (worktree / ".env").write_text("1\n")
    assert client.get("/api/unprotected")["unprotected"] == [
        {"path": ".env", "reason": "an ignore rule excludes it"}
    ]

    planned = client.post("/api/protect", paths=[".env"], dry_run=True).json
    assert not find_faults(planned, RETURNS["/api/protect"])
    assert not (worktree / ".shadowtreeignore").exists()
    done = client.post("/api/protect", paths=[".env"]).json
    assert done["protected"][0]["rule"] == "!/.env"
    assert "!/.env" in (worktree / ".shadowtreeignore").read_text()
    assert client.get("/api/unprotected")["unprotected"] == []


def test_a_file_that_changed_since_and_is_not_protected_is_listed(
    client: Client, history: Shadow, worktree: Path
) -> None:
    (worktree / ".gitignore").write_text("*.log\n")
    (worktree / "x.log").write_text("0\n")
    with history.message("five"):
        pass
    (worktree / "x.log").write_text("1\n")

    assert [each["path"] for each in client.get("/api/unprotected")["unprotected"]] == ["x.log"]


# Plans


def test_an_act_needs_the_id_of_a_plan(client: Client, worktree: Path) -> None:
    reply = client.post("/api/undo", turns=1)

    assert (reply.status, reply.error) == (428, "ExpectMissing")
    assert_tree(worktree, AFTER[3])


def test_a_plan_that_is_out_of_date_is_refused_and_given_anew(client: Client, worktree: Path) -> None:
    plan = client.plan("/api/undo")
    (worktree / "c").write_text("mine\n")
    refused = client.post("/api/undo", expect=plan["id"])

    assert (refused.status, refused.error) == (409, "PlanOutdated")
    assert_tree(worktree, {**AFTER[3], "c": "mine\n"})
    new = refused.json["plan"]
    assert not find_faults(new, RETURNS["/api/undo"])
    assert (new["id"] != plan["id"], new["id"]) == (True, client.plan("/api/undo")["id"])
    assert new["files"][0] == {
        "path": "c",
        "action": "conflict",
        "own": True,
        "reason": "it was edited after message 'three'",
        "choices": ["keep", "overwrite"],
        "hunks": [],
    }


def test_a_plan_lists_every_file_and_your_own_edits_first(
    client: Client, history: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"z": "1\n2\n3\n4\n5\n", "y": "1\n"})
    with history.message("five"):
        make_tree(worktree, {"z": "1\n2\n3\n4\nfive\n", "y": "five\n", "n": "new\n"})
        (worktree / "a").unlink()
    make_tree(worktree, {"z": "one\n2\n3\n4\nfive\n", "y": "mine\n"})

    files = client.plan("/api/undo", diff=True)["files"]
    assert [(file["path"], file["action"], file["own"]) for file in files] == [
        ("y", "conflict", True),
        ("z", "conflict", True),
        ("a", "create", False),
        ("n", "delete", False),
    ]
    assert files[0]["choices"] == ["keep", "overwrite"]
    assert files[0]["hunks"] == [{"line": 1, "ours": "mine\n", "base": "five\n", "theirs": "1\n"}]
    assert (files[1]["choices"], files[1]["hunks"]) == (["merge", "keep", "overwrite"], [])

    chosen = {"y": "overwrite", "z": "merge"}
    plan = client.plan("/api/undo", on_conflict=chosen, diff=True)
    assert [(file["path"], file["action"], file["own"]) for file in plan["files"]] == [
        ("y", "restore", True),
        ("z", "merge", True),
        ("a", "create", False),
        ("n", "delete", False),
    ]
    assert {each["path"] for each in plan["diff"]} == {"a", "n", "y", "z"}
    client.act("/api/undo", on_conflict=chosen)
    assert_tree(worktree, {**AFTER[3], "z": "one\n2\n3\n4\n5\n", "y": "1\n"})


def test_a_conflict_stops_an_act_and_is_told(client: Client, worktree: Path) -> None:
    (worktree / "c").write_text("mine\n")
    plan = client.plan("/api/undo")
    refused = client.post("/api/undo", expect=plan["id"])

    assert (refused.status, refused.error) == (409, "Conflict")
    assert [conflict["path"] for conflict in refused.json["conflicts"]] == ["c"]
    assert refused.json["complete"] is False
    assert_tree(worktree, {**AFTER[3], "c": "mine\n"})
    client.act("/api/undo", on_conflict="keep")
    assert_tree(worktree, {**AFTER[2], "c": "mine\n"})


def test_two_clients_and_a_terminal_do_not_act_on_what_they_have_not_seen(
    client: Client, history: Shadow, worktree: Path
) -> None:
    here, there = client, Client(client.port, client.token)
    mine, theirs = here.plan("/api/undo"), there.plan("/api/undo")
    assert mine["id"] == theirs["id"]

    assert here.post("/api/undo", expect=mine["id"]).status == 200
    refused: Reply = there.post("/api/undo", expect=theirs["id"])
    assert (refused.status, refused.json["plan"]["messages"]) == (409, ["two"])
    assert_tree(worktree, AFTER[2])

    with Shadow(worktree, settings={"min_free": 0}) as terminal:
        terminal.redo()
    refused = there.post("/api/undo", expect=refused.json["plan"]["id"])
    assert (refused.status, refused.json["plan"]["messages"]) == (409, ["three", "four"])
    assert_tree(worktree, AFTER[3])
    assert json.loads(refused.body)["error"] == "PlanOutdated"
