"""Sessions as commits and back: complete, deterministic, with small additions, or refused."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow, StoreDamaged
from shadowtree.base.errors import StoreTooNew
from shadowtree.conversation.read_commits import check_objects, read_session
from shadowtree.conversation.ref_names import ROWS, session_ref
from shadowtree.conversation.rows import TABLES, decode_row, encode_row
from shadowtree.store.git_format import MODE_FILE, TreeEntry, encode_commit, encode_tree
from shadowtree.store.objects import Objects
from shadowtree.timeline.sqlite.database import Database
from shadowtree.timeline.sqlite.schema import TREES
from tests.conversation.exports import (
    ODD,
    TEXT,
    LooseSink,
    Refs,
    export,
    read_rows,
    rebuild,
    tell_history,
    use_store,
)
from tests.remote.machines import Machine
from tests.support.memory import make_place
from tests.support.referee import git
from tests.support.stores import SETTINGS
from tests.support.trees import Tree, assert_tree, executable, file, link, make_tree


@pytest.fixture(scope="module")
def told() -> Iterator[Path]:
    """A directory with a worktree that has a rich history, and its store."""
    top = make_place()
    (top / "worktree").mkdir()
    tell_history(top / "worktree", top / "store")
    yield top
    shutil.rmtree(top)


@pytest.fixture
def store(told: Path, tmp_path: Path) -> Path:
    """A copy of the store that a test may change."""
    shutil.copytree(told / "store", tmp_path / "store")
    return tmp_path / "store"


def log(store: Path, ref: str, format: str) -> list[str]:
    return git("--git-dir", store, "log", f"--format={format}", ref).splitlines()


def documents(worktree: Path, store: Path) -> list[object]:
    """Return everything that a user can read of a store."""
    found: list[object] = []
    for session in ("default", ODD):
        with Shadow(worktree, store=store, session=session, settings=SETTINGS) as shadow:
            found += [message.to_dict() for message in shadow.messages()]
            found += [step.to_dict() for message in shadow.messages() for step in message.steps]
            found += [branch.to_dict() for branch in shadow.branches()]
            found += [shadow.show(message.id)[0].patch.to_dict() for message in shadow.messages()]
            status = shadow.status().to_dict()
            found += [status["head"], status["open"], status["undone"]]
    return found


# Export and rebuild


def test_a_timeline_is_rebuilt_exactly(store: Path, tmp_path: Path) -> None:
    """Only refs and git are needed, and nothing else of the store."""
    export(store)
    wanted = read_rows(store)

    machine = rebuild(store, tmp_path / "new")

    assert wanted.keys() == {"default", ODD}
    assert all(wanted["default"].values()), "every table has a row that travels"
    assert read_rows(machine.store) == wanted
    machine.check()


def test_a_rebuilt_timeline_reads_like_the_first_one(told: Path, store: Path, tmp_path: Path) -> None:
    export(store)
    machine = rebuild(store, tmp_path / "new")

    assert documents(machine.worktree, machine.store) == documents(told / "worktree", store)


def test_a_rebuilt_timeline_gives_the_same_commits(store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)
    machine = rebuild(store, tmp_path / "new")

    again, _, _ = export(machine.store)

    heads = {ref: id for ref, id in refs.items() if ref.startswith("refs/heads/")}
    assert {ref: id for ref, id in again.items() if ref.startswith("refs/heads/")} == heads
    assert sorted(again.values()) == sorted(refs.values())


def test_a_store_can_be_resumed_from_like_a_remote(worktree: Path, tmp_path: Path) -> None:
    """Modes, links, empty directories and strange names are as before."""
    files: Tree = {
        "a.txt": "a\n",
        "private": file("key", 0o600),
        "run.sh": executable("#!"),
        "empty": {"below": {}},
        "ln": link("a.txt"),
        os.fsdecode(b"na\xffme\n"): "odd",
    }
    with Shadow(worktree, store=tmp_path / "store", settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, files)
        shadow.repo.close()
    machine = Machine(tmp_path / "new", str(tmp_path / "store"))

    machine.resume()

    assert_tree(machine.worktree, files)


def test_blobs_that_a_tree_needs_beside_it_travel_too(store: Path, tmp_path: Path) -> None:
    def note(database: Database, objects: Objects) -> bytes:
        also = objects.put(LooseSink(store), b"blob", b"beside") + objects.put(
            LooseSink(store), b"blob", b"2nd"
        )
        ((number,),) = database.rows("SELECT after_tree FROM events WHERE kind = 'undo' LIMIT 1")
        database.change(TREES, number, also=also)
        return also

    also = use_store(store, note)
    export(store)

    machine = rebuild(store, tmp_path / "new")

    assert read_rows(machine.store) == read_rows(store)
    assert git("--git-dir", machine.store, "cat-file", "blob", also[20:].hex()) == "2nd"


def test_an_empty_store_has_no_refs(shadow: Shadow) -> None:
    shadow.track()
    shadow.close()

    assert export(shadow.store) == ({}, 0, 0)


# Another export, and one more message


def test_the_same_timeline_gives_the_same_ids_wherever_it_is(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(store, other)

    refs, count, _ = export(store)

    assert count > 20
    assert sorted(export(other)[0].values()) == sorted(refs.values())
    assert export(store) == (refs, 0, 0)


def test_one_more_message_adds_a_few_small_objects(worktree: Path, tmp_path: Path) -> None:
    """Git sends only these objects: those in a tree that the other side has are not sent."""
    store, other = tmp_path / "store", tmp_path / "other"
    git("init", "--quiet", "--bare", other)
    git("--git-dir", other, "config", "receive.unpackLimit", "1")

    def tell(number: int) -> None:
        with shadow.message(f"m{number}", text=f"do number {number}"):
            (worktree / f"f{number % 40}").write_text(f"{number}\n")

    def push() -> int:
        git("--git-dir", store, "push", "--quiet", other, "refs/heads/*:refs/heads/*")
        count = git("--git-dir", other, "count-objects", "-v")
        return int(count.partition("in-pack: ")[2].split()[0])

    with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
        for number in range(200):
            tell(number)
    _, many, _ = export(store)
    before = push()
    with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
        tell(200)
    _, count, size_bytes = export(store)
    sent = push() - before

    assert many > 600
    assert count <= 8
    assert size_bytes < 8_000
    assert sent <= count + 3, "the new file, its tree and nothing else beside them"


def test_what_is_forgotten_is_in_no_commit(told: Path, store: Path) -> None:
    before, _, _ = export(store)
    ref = session_ref("default")

    assert "soon forgotten" not in "".join(log(store, ref, "%B"))
    assert log(store, ref, "%s")[-3:] == [
        "Forgotten messages",
        "kept by a pin",
        "State before the first message",
    ]
    with Shadow(told / "worktree", store=store, settings=SETTINGS) as shadow:
        shadow.unpin("old-2")
        shadow.forget(keep_last=5)
    after, _, _ = export(store)
    assert after[ref] != before[ref]
    assert "kept by a pin" not in "".join(log(store, ref, "%B"))


# Compared with git


def test_git_log_reads_as_what_happened(store: Path) -> None:
    export(store)
    ref = session_ref("default")

    assert log(store, ref, "%s")[::-1][3:] == [
        "message fill-0",
        "message fill-1",
        "message fill-2",
        "Fix the login",
        "Edits between messages",
        "message m2",
        "nothing changed",
        "Revert",
        "Another Way",
    ]
    assert log(store, "undone/default", "%s")[0] == "undone in the end"
    assert log(store, "branches/default/on-a-line-of-its-own", "%s")[0] == "on a line of its own"
    assert log(store, session_ref(ODD), "%s")[0] == "of another session"
    stat = git("--git-dir", store, "log", "--stat", "--format=%s", ref)
    assert "Edits between messages\n\n src/b.py | 2 +-" in stat
    assert "nothing changed\nmessage m2\n\n c.txt | 1 +" in stat


def test_a_message_has_its_time_its_tree_and_trailers_that_git_reads(told: Path, store: Path) -> None:
    export(store)
    with Shadow(told / "worktree", store=store, session=ODD, settings=SETTINGS) as shadow:
        message = shadow.messages()[0]
    trailers = "%(trailers:key=Shadowtree-Id,valueonly)%(trailers:key=Shadowtree-Session,valueonly)"

    assert log(store, session_ref(ODD), f"%an <%ae>%n%at%n%ct%n%T%n{trailers}")[:6] == [
        "shadowtree <shadowtree@localhost>",
        str(message.time_ms // 1000),
        str(message.time_ms // 1000),
        message.after,
        "m1",
        ODD,
    ]


def test_a_text_cannot_forge_trailers_or_colours(store: Path) -> None:
    export(store)
    commit = next(line for line in log(store, session_ref("default"), "%H %s") if line.endswith("login"))[:40]

    assert TEXT.startswith("Fix the login\nas")
    assert git("--git-dir", store, "log", "-1", "--format=%B", commit).split("\n") == [
        "Fix the login",
        "",
        'as "asked"',
        "",
        "Shadowtree-Id: forged",
        "\ufffd \ufffd[31m? end",
        "",
        "Shadowtree-Id: m1",
        "Shadowtree-Role: user",
        "Shadowtree-Session: default",
    ]
    assert log(store, commit, "%(trailers:key=Shadowtree-Id,valueonly)")[0] == "m1"


def test_values_that_are_not_plain_are_json(worktree: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ids = ['"quoted"', " spaced ", "日本語 a", "a\u2028b"]
    with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
        for id in ids:
            shadow.snapshot(id)
    export(store)

    values = log(store, session_ref("default"), "%(trailers:key=Shadowtree-Id,valueonly,separator=%x2C)")
    assert values[::-1] == ['"\\"quoted\\""', '" spaced "', "日本語 a", '"a\\u2028b"']
    assert [json.loads(value) if value.startswith('"') else value for value in values[::-1]] == ids


def test_git_finds_no_fault_and_the_log_of_all_branches_has_no_rows(store: Path) -> None:
    export(store)

    git("--git-dir", store, "fsck", "--full", "--strict", "--no-dangling")
    git("--git-dir", store, "check-ref-format", session_ref(ODD))
    assert "facts" not in git("--git-dir", store, "log", "--branches", "--stat")
    git("--git-dir", store, "gc", "--quiet", "--prune=now")
    git("--git-dir", store, "fsck", "--full", "--strict", "--no-dangling")


# Incomplete exports are refused


def damage(store: Path, commit: bytes, name: bytes, change: Callable[[bytes], bytes | None]) -> bytes:
    """Change one blob in the tree of a commit, or with None remove it; return the new commit."""

    def write(_: Database, objects: Objects) -> bytes:
        sink = LooseSink(store)
        entries = []
        for entry in objects.read_tree(
            bytes.fromhex(git("--git-dir", store, "rev-parse", f"{commit.hex()}^{{tree}}"))
        ):
            content = change(objects.read(b"blob", entry.id)) if entry.name == name else b""
            if entry.name != name:
                entries.append(entry)
            elif content is not None:
                entries.append(TreeEntry(name, MODE_FILE, objects.put(sink, b"blob", content)))
        return objects.put(
            sink, b"commit", encode_commit(objects.put(sink, b"tree", encode_tree(entries)), [], 0, b"x")
        )

    made: bytes = use_store(store, write)
    assert made != commit
    return made


def edit(table: str, change: Callable[[list[dict[str, Any]]], object]) -> Callable[[bytes], bytes]:
    """Change the rows of a table in a blob."""

    def apply(content: bytes) -> bytes:
        rows = [decode_row(line) for line in content.splitlines()]
        chosen = [row for each, row in rows if each.name == table]
        others = [encode_row(each, row) for each, row in rows if each.name != table]
        change(chosen)
        (written,) = [each for each in TABLES if each.name == table]
        return b"".join([*others, *[encode_row(written, row) for row in chosen]])

    return apply


def put(table: str, **columns: object) -> Callable[[bytes], bytes]:
    """Change columns of the last row of a table."""
    return edit(table, lambda rows: rows[-1].update(columns))


FIRST, LAST, MORE = b"rows-0", b"rows-0", b"rows-more"
DAMAGE: dict[str, tuple[bytes, Callable[[bytes], bytes | None]]] = {
    "no format": (b"format", lambda _: None),
    "a format that is no number": (b"format", lambda _: b"one\n"),
    "format 0": (b"format", lambda _: b"0\n"),
    "no JSON": (FIRST, lambda content: content[:-9]),
    "deep JSON": (FIRST, lambda _: b"events " + b"[" * 100_000),
    "no row": (FIRST, lambda _: b"events 1\n"),
    "an unknown table": (FIRST, lambda content: content + b"packs [1]\n"),
    "a column too many": (FIRST, lambda content: content + b"pins [1,1,1]\n"),
    "a missing column": (FIRST, put("events", kind=None)),
    "text for a number": (FIRST, put("events", time="now")),
    "a fraction": (FIRST, put("events", time=1.5)),
    "a truth for a number": (FIRST, put("events", time=True)),
    "a number too large": (FIRST, put("events", time=1 << 63)),
    "a number for text": (FIRST, put("messages", text=1)),
    "no hex": (FIRST, put("messages", text={"hex": "zz"})),
    "no text": (FIRST, put("messages", text={"hex": "ff"})),
    "meta that is no JSON": (FIRST, put("messages", meta=b"{")),
    "meta that is no object": (FIRST, put("messages", meta=b"[]")),
    "meta of a step that is no object": (FIRST, put("events", meta=b"[]")),
    "a lost row": (FIRST, edit("events", lambda rows: rows.pop(2))),
    "a lost message": (FIRST, edit("messages", lambda rows: rows.pop())),
    "lost changes": (FIRST, edit("changes", lambda rows: rows.clear())),
    "a row twice": (FIRST, edit("events", lambda rows: rows.append(rows[-1]))),
    "all of one blob": (FIRST, lambda _: None),
    "two sessions": (
        MORE,
        edit("sessions", lambda rows: rows.append({**rows[0], "number": 2, "name": b"x"})),
    ),
    "a session that is forgotten": (MORE, put("sessions", forgotten=1)),
    "an unknown kind": (FIRST, put("events", kind="explode")),
    "an unknown message": (FIRST, put("events", message=99)),
    "an unknown tree": (FIRST, put("events", before_tree=99)),
    "an unknown session": (FIRST, put("events", session=99)),
    "no session": (FIRST, put("events", session=0)),
    "what is out is no list": (FIRST, put("events", out=b"x")),
    "a message above itself": (FIRST, edit("messages", lambda rows: rows[3].update(parent=4))),
    "a message that never began": (
        FIRST,
        edit("events", lambda rows: [row.update(kind="step", step=b"s") for row in rows]),
    ),
    "an id that is none": (FIRST, put("trees", tree=b"short")),
    "half an id beside": (FIRST, put("trees", also=b"7" * 10)),
    "a pin of nothing": (MORE, put("pins", message=99)),
    "a branch of nothing": (MORE, put("branches", tip=99)),
    "other skips": (FIRST, put("skips", content=b"[]")),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_malformed_is_refused(what: str, store: Path) -> None:
    commit = rows_of(export(store)[0])

    with pytest.raises(StoreDamaged):
        read(store, damage(store, commit, *DAMAGE[what]))


@pytest.mark.parametrize(
    "columns",
    [
        {"path": path}
        for path in (b"../a", b"/a", b"a/", b"a//b", b"", b".", b"a\0b", b".git/hooks/x", b"a/.GIT/b")
    ]
    + [{"new_mode": 0o104755}, {"new_mode": 0o020644}, {"new_blob": b"short"}],
    ids=str,
)
def test_a_change_that_no_snapshot_makes_is_refused(columns: dict[str, object], store: Path) -> None:
    commit = rows_of(export(store)[0])

    with pytest.raises(StoreDamaged):
        read(store, damage(store, commit, FIRST, put("changes", **columns)))


@pytest.mark.parametrize("column", ["tree", "facts", "also"])
def test_what_a_recorded_tree_needs_must_be_there(column: str, store: Path) -> None:
    commit = rows_of(export(store)[0])

    with pytest.raises(StoreDamaged):
        read(store, damage(store, commit, FIRST, put("trees", **{column: b"7" * 20})))


def test_a_missing_blob_of_a_file_is_refused(store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)
    blob = git("--git-dir", store, "rev-parse", f"{refs[session_ref('default')].hex()}:e.txt")
    other = tmp_path / "other"
    git("init", "--quiet", "--bare", other)
    git("--git-dir", other, "config", "receive.unpackLimit", "10000")
    git("--git-dir", store, "push", "--quiet", other, f"{ROWS}*:{ROWS}*")
    shutil.copy(store / "timeline.db", other)
    (other / "objects" / "pack").mkdir(exist_ok=True)
    read(other, rows_of(refs))
    (other / "objects" / blob[:2] / blob[2:]).unlink()

    with pytest.raises(StoreDamaged):
        read(other, rows_of(refs))


def test_a_newer_format_is_refused_as_such(store: Path) -> None:
    commit = rows_of(export(store)[0])
    newer = damage(store, commit, b"format", lambda _: b"2\n")

    with pytest.raises(StoreTooNew):
        read(store, damage(store, newer, FIRST, lambda _: b"rows of the future"))


@pytest.mark.parametrize("what", ["nothing", "a commit of something else"])
def test_a_commit_without_rows_is_refused(what: str, store: Path) -> None:
    refs, _, _ = export(store)

    with pytest.raises(StoreDamaged):
        read(store, bytes(20) if what == "nothing" else refs[session_ref("default")])


def rows_of(refs: Refs) -> bytes:
    """Return the commit with the rows of the session with the rich history."""
    (found,) = [id for ref, id in refs.items() if ref.startswith(f"{ROWS}default/")]
    return found


def read(store: Path, commit: bytes) -> None:
    """Read a session as a fetch does."""
    use_store(store, lambda _, objects: check_objects(read_session(commit, objects), objects))


def test_a_timeline_that_lost_changes_is_not_exported(store: Path) -> None:
    def lose(database: Database, _: Objects) -> None:
        database.execute("DELETE FROM changes WHERE path = ?", b"c.txt")

    use_store(store, lose)

    with pytest.raises(StoreDamaged):
        export(store)
