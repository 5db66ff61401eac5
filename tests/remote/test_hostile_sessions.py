"""Forged rows are refused before anything becomes part of a timeline, or of a worktree."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from shadowtree import ShadowError
from shadowtree.conversation import write_commits
from shadowtree.conversation.session_rows import read_session_rows
from shadowtree.conversation.write_commits import encode_rows
from shadowtree.store.git_format import encode_commit
from shadowtree.store.objects import Objects
from shadowtree.timeline.sqlite.database import Database
from tests.conversation.exports import LooseSink
from tests.remote.machines import Machine, list_refs, make_server

Rows = dict[str, list[dict[str, Any]]]  # Any: the values of columns
Change = Callable[[Rows], None]


def at(table: str, place: int, **columns: object) -> Change:
    """Change columns of a row."""
    return lambda rows: rows[table][place].update(columns)


def bomb(rows: Rows) -> None:
    content = b"[" + b" " * (65 << 20) + b"]"
    row = {"number": 1, "digest": sha256(content).digest(), "content": zlib.compress(content, 1)}
    rows["skips"] = [row]
    rows["events"][0]["skips"] = 1


def swap_parents(rows: Rows) -> None:
    rows["messages"][0]["parent"], rows["messages"][1]["parent"] = 2, 1


HOSTILE: dict[str, Change] = {
    "path-out": at("changes", 0, path=b"../evil"),
    "path-absolute": at("changes", 0, path=b"/etc/passwd"),
    "path-git": at("changes", 0, path=b".git/config"),
    "path-nul": at("changes", 0, path=b"a\0b"),
    "mode": at("changes", 0, new_mode=0o160000),
    "no-blob": at("changes", 0, new_blob=b""),
    "time-far": at("events", 0, time=1 << 62),
    "time-negative": at("events", 0, time=-1),
    "tree-time": at("trees", 0, time=1 << 61),
    "tree-missing": at("trees", 0, tree=b"\x11" * 20),
    "facts-missing": at("trees", 0, facts=b"\x11" * 20),
    "loop": swap_parents,
    "parent-unknown": at("messages", 1, parent=77),
    "id-twice": at("messages", 1, id=b"m1"),
    "id-reference": at("messages", 1, id=b"#3"),
    "id-control": at("messages", 1, id=b"\x1b[31m"),
    "id-bytes": at("messages", 1, id=b"\xff\xfe"),
    "ordinal-twice": at("messages", 1, ordinal=1),
    "role": at("messages", 1, role=b"a\nb"),
    "meta": at("messages", 1, meta=b"[1]"),
    "meta-deep": at("messages", 1, meta=b"[" * 100_000),
    "kind": at("events", 0, kind="explode"),
    "wrap": at("events", 0, kind="wrap"),
    "no-before": at("events", 0, before_tree=None),
    "head-unknown": at("events", -1, head=99),
    "out-unknown": at("events", -1, out=b"99:99"),
    "out-malformed": at("events", -1, out=b"x"),
    "branches-malformed": at("events", -1, branches=b"7:x"),
    "commit": at("events", 0, git_head=b"$(reboot)"),
    "session-other": at("events", 0, session=2),
    "session-name": at("sessions", 0, name=b"other"),
    "branch-name": lambda rows: rows["branches"].append(
        {"number": 1, "session": 1, "name": b"a\nb", "fork": 1, "tip": 2, "event": 1, "dropped": None}
    ),
    "change-lost": lambda rows: rows["changes"].clear(),
    "end-twice": lambda rows: rows["events"].append(
        {**rows["events"][-1], "number": len(rows["events"]) + 1}
    ),
    "skips-bomb": bomb,
}


@dataclass
class World:
    """A server that a hostile machine controls, and a machine that fetches from it."""

    server: Path
    attacker: Machine
    victim: Machine


@pytest.fixture(scope="module", params=[False, True], ids=["new", "known"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The victim does not have the session, or has resumed it and continued."""
    top = tmp_path_factory.mktemp("world")
    server = make_server(top / "server.git")
    attacker, victim = Machine(top / "attacker", str(server)), Machine(top / "victim", str(server))
    attacker.tell("m1", {"a.txt": "one\n"})
    attacker.push()
    if request.param:
        victim.resume()
    victim.tell("mine", {"a.txt": "mine\n"}, session="default" if request.param else "mine")
    attacker.tell("m2", {"a.txt": "two\n"})
    yield World(server, attacker, victim)
    victim.check()


def forge(attacker: Machine, server: Path, change: Change) -> None:
    """Put changed rows on the server."""
    with (
        closing(Database(str(attacker.store / "timeline.db"))) as database,
        closing(Objects(str(attacker.store / "objects"))) as objects,
    ):
        objects.refresh()
        rows = read_session_rows(database, 1)
        for event in rows["events"]:
            # Otherwise changes would be left out, and derived by the reader.
            event["whole"] = None
        change(rows)
        sink = LooseSink(attacker.store)
        commit = encode_commit(encode_rows(rows, objects, sink), [], 0, b"x\n")
        id = objects.put(sink, b"commit", commit)
    (ref,) = list_refs(server, "refs/shadowtree")
    # Git would refuse to send incomplete objects, but a hostile server need not.
    shutil.copytree(attacker.store / "objects", server / "objects", dirs_exist_ok=True)
    (server / ref).write_text(id.hex() + "\n")


@pytest.mark.parametrize("name", HOSTILE)
def test_forged_rows_are_refused_and_nothing_changes(world: World, name: str) -> None:
    victim = world.victim
    before, files = victim.log(), victim.files()
    forge(world.attacker, world.server, HOSTILE[name])

    try:
        fetched = victim.fetch()
    except ShadowError as error:
        told = [str(error)]
    else:
        assert not any(each.messages for each in fetched.sessions)
        told = [each.reason for each in fetched.refused]
    assert told
    assert not any("\n" in line for line in told)

    assert victim.log() == before
    assert victim.files() == files


def test_a_session_of_a_newer_version_does_not_keep_others_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = str(make_server(tmp_path / "server.git"))
    newer, same, here = (Machine(tmp_path / name, server) for name in ("newer", "same", "here"))
    newer.tell("m1", {"a.txt": "one\n"}, session="new")
    same.tell("m2", {"b.txt": "two\n"}, session="old")
    with monkeypatch.context() as patch:
        patch.setattr(write_commits, "FORMAT", 2)
        newer.push()
    same.push()

    fetched = here.fetch()

    assert [(each.session, "format 2" in each.reason) for each in fetched.refused] == [("new", True)]
    assert [each.session for each in fetched.sessions] == ["old"]
