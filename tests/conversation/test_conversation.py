"""A timeline as commits and back: complete, deterministic, growing little; refused when it is not whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from shadowtree import Shadow, ShadowError, StoreDamaged
from shadowtree.base.errors import InvalidInput, StoreTooNew
from shadowtree.conversation.encode import encode_conversation
from shadowtree.conversation.ref_names import TIMELINE_REF, session_ref
from shadowtree.conversation.rows import TABLES
from shadowtree.store.git_format import MODE_FILE, MODE_TREE, TreeEntry, encode_tree
from shadowtree.store.objects import Objects
from shadowtree.timeline.database import Database
from shadowtree.timeline.schema import TREES as TREES_TABLE
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
from tests.support.memory import make_place
from tests.support.referee import git
from tests.support.stores import SETTINGS


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
    """All that a user can read of a store."""
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


# There and back


def test_a_timeline_is_rebuilt_exactly(store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)

    found = read_rows(rebuild(store, refs, tmp_path / "new"))

    wanted = read_rows(store / "timeline.db")
    assert all(wanted.values()), "every table has a row that travels"
    assert found == wanted


def test_a_rebuilt_timeline_reads_like_the_first_one(told: Path, store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)
    path = rebuild(store, refs, tmp_path / "new")
    other = tmp_path / "other"
    shutil.copytree(store, other, ignore=shutil.ignore_patterns("timeline.db*", "cache.db*"))
    shutil.copy(path, other)
    worktree = told / "worktree"

    assert documents(worktree, other) == documents(worktree, store)
    with Shadow(worktree, store=other, settings=SETTINGS) as shadow:
        assert shadow.check(read_data=True).ok
        plans = [shadow.plan_revert(id, on_conflict="keep").to_dict() for id in ("m1", "m5")]
    with Shadow(worktree, store=store, settings=SETTINGS) as shadow:
        assert plans == [shadow.plan_revert(id, on_conflict="keep").to_dict() for id in ("m1", "m5")]


def test_a_rebuilt_timeline_gives_the_same_refs(store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)
    path = rebuild(store, refs, tmp_path / "new")

    with closing(Database(str(path))) as database, closing(Objects(str(store / "objects"))) as objects:
        objects.refresh()
        sink = LooseSink(store)
        assert encode_conversation(database, objects, sink) == refs
        assert not sink.ids


def test_refs_alone_carry_all_of_it_to_another_repository(told: Path, store: Path, tmp_path: Path) -> None:
    """What git pushes is enough; nothing else of the store is needed."""
    refs, _, _ = export(store)
    other = tmp_path / "other"
    git("init", "--quiet", "--bare", other)
    git("--git-dir", store, "push", "--quiet", other, f"{TIMELINE_REF}:{TIMELINE_REF}")
    (other / "objects" / "pack").mkdir(exist_ok=True)

    assert read_rows(rebuild(other, refs, tmp_path / "new")) == read_rows(store / "timeline.db")


def test_blobs_that_a_tree_needs_beside_it_travel_too(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git("init", "--quiet", "--bare", other)

    def note(database: Database, objects: Objects) -> bytes:
        also = objects.put(LooseSink(store), b"blob", b"beside") + objects.put(
            LooseSink(store), b"blob", b"2nd"
        )
        ((number,),) = database.rows("SELECT max(number) FROM trees")
        database.change(TREES_TABLE, number, also=also)
        return also

    also = use_store(store, note)
    refs, _, _ = export(store)
    git("--git-dir", store, "push", "--quiet", other, f"{TIMELINE_REF}:{TIMELINE_REF}")

    assert read_rows(rebuild(other, refs, tmp_path / "new")) == read_rows(store / "timeline.db")
    assert git("--git-dir", other, "cat-file", "blob", also[20:].hex()) == "2nd"


def test_an_empty_store_has_an_empty_timeline(shadow: Shadow, tmp_path: Path) -> None:
    shadow.track()
    shadow.close()

    refs, _, _ = export(shadow.store)

    assert refs.keys() == {TIMELINE_REF}
    assert read_rows(rebuild(shadow.store, refs, tmp_path / "new")) == read_rows(shadow.store / "timeline.db")
    shutil.rmtree(shadow.store)


# The same again, and a little more


def test_the_same_timeline_gives_the_same_ids_wherever_it_is(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(store, other)

    refs, count, _ = export(store)

    assert count > 20
    assert export(other)[0] == refs
    assert export(store) == (refs, 0, 0)


def test_one_more_message_adds_a_few_small_objects(worktree: Path, tmp_path: Path) -> None:
    """Git sends no more than these: what is in a tree that the other side has stays behind."""
    store, other = tmp_path / "store", tmp_path / "other"
    git("init", "--quiet", "--bare", other)
    git("--git-dir", other, "config", "receive.unpackLimit", "1")

    def tell(number: int) -> None:
        with shadow.message(f"m{number}", text=f"do number {number}"):
            (worktree / f"f{number % 40}").write_text(f"{number}\n")

    def push() -> int:
        git("--git-dir", store, "push", "--quiet", "--force", other, "refs/*:refs/*")
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
    assert count <= 25
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


# Git as the referee


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


def test_git_finds_no_fault_and_log_of_all_refs_is_short(store: Path) -> None:
    export(store)

    git("--git-dir", store, "fsck", "--full", "--strict", "--no-dangling")
    git("--git-dir", store, "check-ref-format", session_ref(ODD))
    assert "kept/" not in git("--git-dir", store, "log", "--all", "--stat")
    git("--git-dir", store, "gc", "--quiet", "--prune=now")
    git("--git-dir", store, "fsck", "--full", "--strict", "--no-dangling")


# What is not whole is refused

Lines = list[dict[str, object]]


def alter(store: Path, refs: Refs, place: str, change: Callable[[bytes], bytes | None]) -> Refs:
    """Change one blob below the ref, or with None leave it out, and everything above it so that ids fit."""

    def write(_: Database, objects: Objects) -> Refs:
        sink = LooseSink(store)

        def visit(tree: bytes, names: list[str]) -> bytes:
            name, *below = names
            entries = []
            for entry in objects.read_tree(tree):
                if entry.name.decode() != name:
                    entries.append(entry)
                elif below:
                    entries.append(TreeEntry(entry.name, MODE_TREE, visit(entry.id, below)))
                elif (content := change(objects.read(b"blob", entry.id))) is not None:
                    blob = objects.put(sink, b"blob", content)
                    entries.append(TreeEntry(entry.name, MODE_FILE, blob))
            return objects.put(sink, b"tree", encode_tree(entries))

        changed = visit(refs[TIMELINE_REF], place.split("/"))
        return {**refs, TIMELINE_REF: changed}

    made: Refs = use_store(store, write)
    return made


def edit(change: Callable[[Lines], object]) -> Callable[[bytes], bytes]:
    """Change rows."""

    def apply(content: bytes) -> bytes:
        rows: Lines = [json.loads(line) for line in content.splitlines()]
        change(rows)
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    return apply


def put(**columns: object) -> Callable[[bytes], bytes]:
    """Change columns of the last row; None leaves one out."""

    def change(rows: Lines) -> None:
        rows[-1].update(columns)
        for name in [name for name, value in columns.items() if value is None]:
            del rows[-1][name]

    return edit(change)


EVENTS, TREES, MESSAGE = "rows/events/0/00", "rows/trees/0/00", "rows/messages/0/00/08"
CHANGES = "rows/changes/0/00/"
DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "no format": ("format", lambda _: None),
    "a format that is no number": ("format", lambda _: b"one\n"),
    "format 0": ("format", lambda _: b"0\n"),
    "no JSON": (EVENTS, lambda content: content[:-9]),
    "deep JSON": (EVENTS, lambda _: b"[" * 100_000),
    "no row": (EVENTS, lambda _: b"[1]\n"),
    "another column": (EVENTS, put(colour=1)),
    "a local column": (EVENTS, put(intent=1)),
    "a missing column": (EVENTS, put(kind=None)),
    "text for a number": (EVENTS, put(time="now")),
    "a fraction": (EVENTS, put(time=1.5)),
    "a truth for a number": (EVENTS, put(time=True)),
    "a number too large": (EVENTS, put(time=1 << 63)),
    "a number for text": (MESSAGE, put(text=1)),
    "half a character": (MESSAGE, put(text="\ud800")),
    "no hex": (MESSAGE, put(text={"hex": "zz"})),
    "no text": (MESSAGE, put(text={"hex": "ff"})),
    "meta that is no JSON": (MESSAGE, put(meta="{")),
    "meta that is no object": (MESSAGE, put(meta="[]")),
    "a lost row": (EVENTS, edit(lambda rows: rows.pop(2))),
    "a row twice": (EVENTS, edit(lambda rows: rows.append(rows[-1]))),
    "an unknown kind": (EVENTS, put(kind="explode")),
    "an unknown message": (EVENTS, put(message=99)),
    "an unknown tree": (EVENTS, put(before_tree=99)),
    "an unknown session": (EVENTS, put(session=99)),
    "what is out is no list": (EVENTS, put(out="x")),
    "a message above itself": (MESSAGE, put(parent=8)),
    "a message that never began": (EVENTS, edit(lambda rows: [row.update(kind="step") for row in rows])),
    "the last tree forgotten": (TREES, put(forgotten=1)),
    "a tree that is not there": (TREES, put(tree={"hex": "77" * 20})),
    "facts that are not there": (TREES, put(facts={"hex": "77" * 20})),
    "an id that is none": (TREES, put(tree="short")),
    "a blob beside that is not there": (TREES, put(also={"hex": "77" * 20})),
    "half an id beside": (TREES, put(also={"hex": "77" * 10})),
    "a name taken twice": ("rows/sessions/0/00", edit(lambda rows: rows[0].update(name=rows[1]["name"]))),
    "a pin of nothing": ("rows/pins/0/00", put(message=99)),
    "a branch of nothing": ("rows/branches/0/00", put(tip=99)),
    "other skips": ("rows/skips/0/00/01", put(content="[]")),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_malformed_is_refused_and_nothing_is_written(what: str, store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)

    damaged = alter(store, refs, *DAMAGE[what])

    assert damaged != refs, "it was changed"
    assert_refused(store, damaged, tmp_path, StoreDamaged)


@pytest.mark.parametrize(
    "columns",
    [{"path": path} for path in ("../a", "/a", "a/", "a//b", "", ".", "a\0b", ".git/hooks/x", "a/.GIT/b")]
    + [{"new_mode": 0o104755}, {"new_mode": 0o020644}, {"new_blob": "short"}],
    ids=str,
)
def test_a_change_that_no_snapshot_makes_is_refused(
    columns: dict[str, object], store: Path, tmp_path: Path
) -> None:
    refs, _, _ = export(store)
    event = next(row for row in read_rows(store / "timeline.db")["changes"] if row[1] == b"c.txt")[0]
    assert isinstance(event, int)

    assert_refused(store, alter(store, refs, f"{CHANGES}{event:02x}", put(**columns)), tmp_path, StoreDamaged)


def test_lost_changes_and_tables_are_refused(store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)
    event = next(row for row in read_rows(store / "timeline.db")["changes"] if row[1] == b"c.txt")[0]

    assert_refused(
        store, alter(store, refs, f"{CHANGES}{event:02x}", lambda _: None), tmp_path / "1", StoreDamaged
    )
    assert_refused(store, alter(store, refs, MESSAGE, lambda _: None), tmp_path / "2", StoreDamaged)
    assert_refused(store, {}, tmp_path / "3", StoreDamaged)
    assert_refused(store, {TIMELINE_REF: bytes(20)}, tmp_path / "4", StoreDamaged)
    assert_refused(store, {TIMELINE_REF: refs[session_ref("default")]}, tmp_path / "5", StoreDamaged)


def test_a_missing_blob_of_a_file_is_refused(store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)
    blob = git("--git-dir", store, "rev-parse", f"{refs[session_ref('default')].hex()}:e.txt")
    other = tmp_path / "other"
    git("init", "--quiet", "--bare", other)
    git("--git-dir", other, "config", "receive.unpackLimit", "10000")
    git("--git-dir", store, "push", "--quiet", other, f"{TIMELINE_REF}:{TIMELINE_REF}")
    (other / "objects" / blob[:2] / blob[2:]).unlink()

    assert_refused(other, refs, tmp_path, StoreDamaged)


def test_a_newer_format_is_refused_as_such(store: Path, tmp_path: Path) -> None:
    refs, _, _ = export(store)
    newer = alter(store, refs, "format", lambda _: b"2\n")

    assert_refused(store, alter(store, newer, EVENTS, lambda _: b"rows of the future"), tmp_path, StoreTooNew)


def assert_refused(store: Path, refs: Refs, into: Path, error: type[ShadowError]) -> None:
    with pytest.raises(error):
        rebuild(store, refs, into / "new")
    assert read_rows(into / "new" / "timeline.db") == {table.name: [] for table in TABLES}


def test_only_an_empty_timeline_is_filled(store: Path) -> None:
    from shadowtree.conversation.rebuild import rebuild_timeline

    refs, _, _ = export(store)
    before = read_rows(store / "timeline.db")

    with pytest.raises(InvalidInput):
        use_store(store, lambda database, objects: rebuild_timeline(refs, objects, database))
    assert read_rows(store / "timeline.db") == before


def test_a_timeline_that_lost_changes_is_not_exported(store: Path) -> None:
    def lose(database: Database, _: Objects) -> None:
        database.execute("DELETE FROM changes WHERE path = ?", b"c.txt")

    use_store(store, lose)

    with pytest.raises(StoreDamaged):
        export(store)
