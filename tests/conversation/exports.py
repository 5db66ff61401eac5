"""A rich history, its export into the objects of its own store, and stores rebuilt from it."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from shadowtree import Shadow
from shadowtree.conversation.ref_names import ROWS
from shadowtree.conversation.session_rows import list_sessions, read_session_rows
from shadowtree.conversation.write_commits import encode_conversation
from shadowtree.store.objects import Objects
from shadowtree.timeline.sqlite.database import Database
from tests.remote.machines import Machine
from tests.support.referee import git
from tests.support.stores import SETTINGS
from tests.support.trees import executable, file, link, make_tree

ODD = "Ünï/code ..@{x} 🙂.lock"
TEXT = 'Fix the login\nas "asked"\r\n\r\nShadowtree-Id: forged\n\0 \x1b[31m\ud800 end\n'
Refs = dict[str, bytes]
Rows = dict[str, list[dict[str, Any]]]  # Any: the values of columns


def tell_history(worktree: Path, store: Path) -> None:
    """Record something of every kind."""
    make_tree(worktree, {"a.txt": "one\n", "src": {"b.py": "b = 1\n"}, ".gitignore": "*.log\n", "x.log": "-"})
    settings = {**SETTINGS, "max_file_size": 4096}
    with Shadow(worktree, store=store, settings=settings) as shadow:
        shadow.wrap()
        with shadow.message("old-1", text="soon forgotten", role="user"):
            (worktree / "a.txt").write_text("older\n")
        with shadow.message("old-2", text="kept by a pin", meta={"model": "x", "n": [1, None, "é"]}):
            (worktree / "a.txt").write_text("old\n")
        shadow.pin("old-2")
        with shadow.message("old-3", text="soon forgotten too"):
            (worktree / "a.txt").write_text("one\n")
        for number in range(3):
            shadow.snapshot(f"fill-{number}", role="user")
        shadow.forget(keep_last=3)
        with shadow.message("m1", text=TEXT, role="user", meta={"a": "\ud83d", "b": {}}):
            (worktree / "a.txt").write_text("two\n")
            (worktree / "x.log").write_text("not covered\n")
            with shadow.step("write", meta={"tool": "\ud83d"}):
                make_tree(worktree, {"private": file("key", 0o600), "run.sh": executable("#!"), "empty": {}})
            with shadow.step("link"):
                make_tree(worktree, {"ln": link("src/b.py"), os.fsdecode(b"na\xffme\n"): "odd"})
        (worktree / "large").write_bytes(bytes(5000))
        (worktree / "src" / "b.py").write_text("b = 2  # by the user\n")
        with shadow.message("m2", text="   \n", role="assistant"):
            (worktree / "c.txt").write_text("c\n")
        shadow.snapshot("m3", text="nothing changed")
        shadow.revert("m2", only=True)
        with shadow.message("m4", text="on a line of its own"):
            (worktree / "d.txt").write_text("d\n")
        shadow.undo()
        with shadow.message("m5", text="Another Way", role="user"):
            (worktree / "e.txt").write_text("e\n")
        shadow.undo()
        shadow.redo()
        shadow.switch("m4")
        shadow.rename_branch("another-way", "The 2nd/way: 🙂")
        shadow.switch("m5")
        with shadow.message("m6", text="undone in the end"):
            (worktree / "private").chmod(0o640)
            shutil.rmtree(worktree / "src")
        (worktree / "f.txt").write_text("by the user\n")
        shadow.restore("m5", on_conflict="overwrite")
        shadow.undo(on_conflict="overwrite")
        shadow.pin("m3")
    with Shadow(worktree, store=store, session=ODD, settings=settings) as shadow:
        with shadow.message("m1", text="of another session"):
            (worktree / "g.txt").write_text("g\n")
        shadow.begin("open", text="still going on")
        shadow.begin_step("half")
        (worktree / "g.txt").write_text("gg\n")


class LooseSink:
    """Writes new objects as separate files, where they are found at once."""

    def __init__(self, store: Path) -> None:
        self._objects = store / "objects"
        self.ids: set[bytes] = set()
        self.size_bytes = 0

    def __contains__(self, object_id: bytes) -> bool:
        return object_id in self.ids

    def add(self, kind: bytes, object_id: bytes, size: int, deflated: bytes) -> None:
        name = object_id.hex()
        path = self._objects / name[:2] / name[2:]
        if path.exists():
            return
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(zlib.compress(b"%b %d\0" % (kind, size) + zlib.decompress(deflated)))
        path.chmod(0o600)
        self.ids.add(object_id)
        self.size_bytes += len(deflated)

    def note_version(self, object_id: bytes, before: bytes) -> None:
        raise NotImplementedError

    def takes_file(self, object_id: bytes, size: int) -> bool:
        raise NotImplementedError

    def add_stream(self, size: int, pieces: Iterator[bytes], is_known: Callable[[bytes], bool]) -> bytes:
        raise NotImplementedError


def use_store(store: Path, use: Callable[[Database, Objects], Any]) -> Any:  # Any: the result of the call
    """Open the rows and the objects of a store that nobody else uses."""
    with (
        closing(Database(str(store / "timeline.db"))) as database,
        closing(Objects(str(store / "objects"))) as objects,
    ):
        objects.refresh()
        return use(database, objects)


def export(store: Path) -> tuple[Refs, int, int]:
    """Export a store into itself, with refs; return the refs, and how many objects and bytes were added."""

    def write(database: Database, objects: Objects) -> tuple[Refs, int, int]:
        sink = LooseSink(store)
        refs = encode_conversation(database, objects, sink)
        return refs, len(sink.ids), sink.size_bytes

    made: tuple[Refs, int, int] = use_store(store, write)
    for area in ("heads/sessions", "heads/undone", "heads/branches", "shadowtree/sessions"):
        shutil.rmtree(store / "refs" / area, ignore_errors=True)
    for ref, commit in made[0].items():
        (store / ref).parent.mkdir(parents=True, exist_ok=True)
        (store / ref).write_text(commit.hex() + "\n")
    for path in (store / "refs").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return made


def rebuild(store: Path, into: Path) -> Machine:
    """Fetch all sessions into a new store, from a repository that has only the refs of the first one."""
    server = into / "server.git"
    git("init", "--quiet", "--bare", server)
    git("--git-dir", store, "push", "--quiet", server, f"{ROWS}*:{ROWS}*")
    machine = Machine(into, str(server))
    assert machine.fetch().refused == []
    return machine


def read_rows(store: Path) -> dict[str, Rows]:
    """Read the rows of every session, by its name where it began."""

    def read(database: Database, _: Objects) -> dict[str, Rows]:
        sessions = list_sessions(database)
        return {each.wire.session: read_session_rows(database, each.number) for each in sessions}

    found: dict[str, Rows] = use_store(store, read)
    return found
