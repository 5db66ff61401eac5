"""The timeline as commits: what `git log` shows of a session, and all rows beside it.

Each line of messages becomes a line of commits, in the order in which things happened:

    State before the first message
    Fix the login                     a message: its text, and the state after it
    Edits between messages            what came to be there before the next message or act
    Restore                           an act that left the head where it was, or left other files there
    Now the tests

A commit depends on what came before it on its line alone, and on nothing that was exported before: the same
timeline gives the same ids, and one that was forgotten or purged since gives others. The exact rows are below
`refs/shadowtree/timeline`, with every recorded tree that is not forgotten.

For other machines one session is a single line of commits, in the order of time: what was undone stays on it,
and the undo follows. So it only ever grows. Beside it is a commit whose tree holds the rows of the session.
Each recorded tree is a commit too, after the one that was recorded before: git compares a commit with its
parents, and sends what is new in it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen
from shadowtree.conversation.ref_names import TIMELINE_REF, branch_ref, session_ref, undone_ref
from shadowtree.conversation.rows import (
    FORMAT,
    ROWS_IN_BLOB,
    ROWS_PREFIX,
    TABLES,
    encode_row,
    encode_short,
    place_of,
    split_number,
)
from shadowtree.store.git_format import (
    EMPTY_TREE,
    MODE_FILE,
    MODE_TREE,
    TreeEntry,
    encode_commit,
    encode_tree,
    object_id,
)
from shadowtree.store.objects import Objects
from shadowtree.timeline import schema
from shadowtree.timeline.database import Database
from shadowtree.timeline.schema import ACTS, BEGIN, CHANGES, END, SNAPSHOT, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.conversation.rows import Row
    from shadowtree.conversation.session_rows import Rows
    from shadowtree.store.objects import ObjectSink

    Folder = dict[str, "Folder | TreeEntry"]
    """A tree that is being made."""

_SUBJECTS = {kind: kind.capitalize() for kind in ACTS} | {
    schema.HEAD_ONLY: "Revert without files",
    schema.JOIN: "Join messages of another machine",
}
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PLAIN_VALUE = re.compile('(?!["\\s])[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+(?<!\\s)')
_LOST = f"SELECT number FROM ({schema.CHANGE_COUNTS.replace(' FROM', ' AS counted FROM', 1)})" + (
    " WHERE counted <> (SELECT count(*) FROM changes WHERE event = number) LIMIT 1"
)


def encode_conversation(database: Database, objects: Objects, sink: ObjectSink) -> dict[str, bytes]:
    """Give what each ref names, commits and one tree, and put what is not stored yet into the sink.

    Nothing names these objects before the caller has published them and written the refs. Only for the holder
    of the lock, so that no tree is forgotten meanwhile. StoreDamaged if a row is not what was written.
    """
    with database.reading():
        database.require_sound()
        for (event,) in database.rows(_LOST):
            raise StoreDamaged(f"{database.path} has lost changes of event {event}")
        rows = {table.name: list(_read_rows(database, table)) for table in TABLES if table is not CHANGES}
        lines = _Lines(rows)
        refs = lines.name_refs(rows["sessions"], rows["branches"])
        for id, content in lines.list_commits(refs):
            put = objects.put(sink, b"commit", content)
            assert put == id
        tables = {table.name: table for table in TABLES}
        folder = _make_folder(
            objects,
            sink,
            lambda name: rows[name] if name in rows else _read_rows(database, tables[name]),
        )
        for row in rows["trees"]:
            for name, mode, id in list_needed(row):
                _enter(folder, ("kept", *split_number(row["number"]), name), mode, id)
        refs[TIMELINE_REF] = _put_folder(objects, sink, folder)
    return refs


@frozen
class SessionCommits:
    """One session, for other machines."""

    line: bytes | None
    """The last commit of its line; None: it has none yet."""
    rows: bytes
    """The commit that holds its rows."""
    tree: bytes
    """The tree of that."""


def encode_session(
    rows: Rows,
    objects: Objects,
    sink: ObjectSink,
    parents: Sequence[bytes] = (),
    known: Collection[tuple[bytes, ...]] = (),
) -> SessionCommits:
    """Put one session into commits, from rows with numbers of its own.

    The commit with the rows follows `parents`, which lead to what the trees need that are `known`.
    """
    lines = _Lines(rows, is_in_order=True)
    last = lines.last_of(1)
    for id, content in lines.list_commits({} if last is None else {"": last}):
        put = objects.put(sink, b"commit", content)
        assert put == id
    tree, trees = encode_rows(rows, objects, sink), rows["trees"]
    new = [row for row in trees if key_of(row) not in known]
    states = _put_states(new, key_of(_find_last(trees)), parents, objects, sink)
    name, time_ms = _read_text(rows["sessions"][0]["name"]), max([0, *(e["time"] for e in rows["events"])])
    text = f"Session {_as_value(name)}\n".encode("utf-8", "replace")
    content = encode_commit(tree, [*parents, *states], time_ms // 1000, text)
    return SessionCommits(last, objects.put(sink, b"commit", content), tree)


def encode_rows(rows: Rows, objects: Objects, sink: ObjectSink) -> bytes:
    """Put the rows of a session into a tree, together with what was recorded last."""
    last = _find_last(rows["trees"])
    entries = [TreeEntry(name.encode(), mode, id) for name, mode, id in list_needed(last)] if last else []
    entries.append(TreeEntry(b"format", MODE_FILE, objects.put(sink, b"blob", b"%d\n" % FORMAT)))
    for name, content in _group_lines(rows).items():
        entries.append(TreeEntry(name, MODE_FILE, objects.put(sink, b"blob", content)))
    return objects.put(sink, b"tree", encode_tree(entries))


def _group_lines(rows: Rows) -> dict[bytes, bytes]:
    """Write rows into blobs, by name: what happened later comes later, so that one more message is appended.

    Rows that are changed now and then stand in a blob of their own.
    """
    left_out, first, newest = list_derivable(rows), _find_events(rows), 0
    groups: dict[int, int] = {}
    for row in rows["events"]:
        newest = max(newest, row["message"] or 0)
        groups[row["number"]] = newest // ROWS_IN_BLOB
    lines: list[tuple[int, bytes]] = []
    for table in TABLES:
        for row in rows[table.name]:
            if table is not CHANGES or row["event"] not in left_out:
                event = first[table.name].get(row[table.key], 0) if table.name in first else 0
                lines.append((event, encode_short(table, row)))
    found: dict[bytes, list[bytes]] = {}
    for event, line in sorted(lines, key=itemgetter(0)):
        name = ROWS_PREFIX + (b"%x" % groups[event] if event in groups else b"more")
        found.setdefault(name, []).append(line)
    return {name: b"".join(each) for name, each in found.items()}


def _find_events(rows: Rows) -> dict[str, dict[int, int]]:
    """Tell, by table and key, with which event a row comes."""
    first: dict[str, dict[int, int]] = {name: {} for name in ("trees", "skips", "messages", "events")}
    columns: dict[str, tuple[str, ...]] = {
        "trees": ("before_tree", "after_tree"),
        "skips": ("skips", "unprotected"),
        "messages": ("message",),
        "events": ("number",),
    }
    for event in rows["events"]:
        for table, named in columns.items():
            for column in named:
                first[table].setdefault(event[column], event["number"])
    return {**first, "changes": first["events"]}


def list_derivable(rows: Rows) -> set[int]:
    """List the events whose changes anybody can work out who has their trees."""
    live = {row["number"] for row in rows["trees"] if row["forgotten"] is None}
    return {
        row["number"]
        for row in rows["events"]
        if row["whole"] and row["forgotten"] is None and {row["before_tree"], row["after_tree"]} <= live
    }


def key_of(row: Row | None) -> tuple[bytes, ...]:
    """Tell what a recorded tree needs from what others need."""
    return () if row is None else (row["tree"], row["facts"], row["also"])


def _find_last(trees: Sequence[Row]) -> Row | None:
    return next((row for row in reversed(trees) if row["forgotten"] is None), None)


def _put_states(
    trees: Iterable[Row],
    last: tuple[bytes, ...],
    parents: Sequence[bytes],
    objects: Objects,
    sink: ObjectSink,
) -> list[bytes]:
    """Put what trees need into commits, one after the other, but for the last one; give the last commit."""
    made, seen = list[bytes](), {last}
    for row in trees:
        needed = [TreeEntry(name.encode(), mode, id) for name, mode, id in list_needed(row)]
        if needed and key_of(row) not in seen:
            seen.add(key_of(row))
            tree = objects.put(sink, b"tree", encode_tree(needed))
            content = encode_commit(tree, made or parents, row["time"], b"State %d\n" % row["number"])
            made = [objects.put(sink, b"commit", content)]
    return made


def _read_rows(database: Database, table: Table) -> Iterator[Row]:
    unseal = table.unseal if table.is_sealed else list
    for row in database.stream(f"{table.select} ORDER BY 1, 2"):
        (columns,) = database.decode(unseal, [row])
        yield dict(zip(table.columns, columns, strict=True))


# Rows


def _make_folder(objects: Objects, sink: ObjectSink, read: Callable[[str], Iterable[Row]]) -> Folder:
    """Put all rows, as they are read by table, into blobs."""
    root: Folder = {}
    _enter(root, ("format",), MODE_FILE, objects.put(sink, b"blob", b"%d\n" % FORMAT))
    for table in TABLES:
        for place, group in itertools.groupby(read(table.name), partial(place_of, table)):
            blob = objects.put(sink, b"blob", b"".join([encode_row(table, row) for row in group]))
            _enter(root, place, MODE_FILE, blob)
    return root


def list_needed(row: Row) -> list[tuple[str, int, bytes]]:
    """Name what a recorded tree needs, with the mode and the id of each; one that is forgotten nothing."""
    if row["forgotten"] is not None:
        return []
    also: bytes = row["also"]
    blobs = [also[start : start + 20] for start in range(0, len(also), 20)]
    return [
        ("tree", MODE_TREE, row["tree"]),
        ("facts", MODE_TREE, row["facts"]),
        *[(f"also-{place}", MODE_FILE, blob) for place, blob in enumerate(blobs)],
    ]


def _enter(root: Folder, place: tuple[str, ...], mode: int, id: bytes) -> None:
    *above, name = place
    folder = root
    for each in above:
        below = folder.setdefault(each, {})
        assert isinstance(below, dict)
        folder = below
    folder[name] = TreeEntry(name.encode(), mode, id)


def _put_folder(objects: Objects, sink: ObjectSink, folder: Folder) -> bytes:
    entries = [
        TreeEntry(name.encode(), MODE_TREE, _put_folder(objects, sink, entry))
        if isinstance(entry, dict)
        else entry
        for name, entry in folder.items()
    ]
    return objects.put(sink, b"tree", encode_tree(entries))


# Commits


@frozen
class _Line:
    """Where a line of commits ends."""

    commit: bytes | None = None
    tree: bytes = EMPTY_TREE


class _Lines:
    """The lines of commits of all sessions, made of their events one after the other.

    If it `is_in_order`, each session is one line, on which all stands that ever happened in it.
    """

    def __init__(self, rows: Rows, *, is_in_order: bool = False) -> None:
        self._is_in_order = is_in_order
        self._trees = {row["number"]: row["tree"] for row in rows["trees"] if row["forgotten"] is None}
        self._messages = {row["number"]: row for row in rows["messages"]}
        self._sessions = {row["number"]: _read_text(row["name"]) for row in rows["sessions"]}
        self._made: dict[bytes, tuple[bytes | None, bytes]] = {}
        """By the ids of commits the one before each, and its content."""
        self._lines: dict[tuple[int, int | None], _Line] = {}
        """By session and message what stands after it, edits and acts included, where it is the head."""
        self._own: dict[int, _Line] = {}
        """By message its own commit; while it is open, or if it was forgotten, the one that it came after."""
        self._times: dict[int, int] = {}
        self._last: dict[int, Row] = {}
        """By session the last event."""
        for event in rows["events"]:
            if event["kind"] in (BEGIN, SNAPSHOT):
                self._begin(event)
            if event["kind"] in (END, SNAPSHOT):
                self._end(event)
            if event["kind"] in ACTS:
                self._act(event)
            self._last[event["session"]] = event

    def name_refs(self, sessions: list[Row], branches: list[Row]) -> dict[str, bytes]:
        """Give the last commit of each ref."""
        found: dict[str, bytes | None] = {}
        for row in sessions:
            event, name = self._last.get(row["number"]), self._sessions[row["number"]]
            if event is not None and row["forgotten"] is None:
                found[session_ref(name)] = self._line_of(event).commit
                if event["tip"] != event["head"] and event["tip"] is not None:
                    found[undone_ref(name)] = self._own[event["tip"]].commit
        for row in branches:
            if row["dropped"] is None:
                name = self._sessions[row["session"]]
                ref = branch_ref(name, _read_text(row["name"]), row["number"])
                found[ref] = self._own[row["tip"]].commit
        return {ref: commit for ref, commit in found.items() if commit is not None}

    def last_of(self, session: int) -> bytes | None:
        """Give the last commit of a session."""
        event = self._last.get(session)
        return None if event is None else self._line_of(event).commit

    def list_commits(self, refs: dict[str, bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Give every commit that refs lead to."""
        seen: set[bytes] = set()
        for commit in refs.values():
            at: bytes | None = commit
            while at is not None and at not in seen:
                seen.add(at)
                above, content = self._made[at]
                yield at, content
                at = above

    def _line_of(self, event: Row) -> _Line:
        """Give the line that the head is on after an event."""
        return self._lines.get(self._place(event["session"], event["head"]), _Line())

    def _place(self, session: int, head: int | None) -> tuple[int, int | None]:
        return session, None if self._is_in_order else head

    def _begin(self, event: Row) -> None:
        row, session = self._messages[event["message"]], event["session"]
        above = self._place(session, row["parent"])
        line = self._lines.get(above, _Line())
        if row["forgotten"] is None:
            parent = self._messages.get(row["parent"])
            is_gap = parent is not None and parent["forgotten"] is not None
            self._lines[above] = line = self._catch_up(line, event, is_gap=is_gap)
        self._lines[self._place(session, row["number"])] = self._own[row["number"]] = line
        self._times[row["number"]] = event["time"]

    def _end(self, event: Row) -> None:
        row, tree = self._messages[event["message"]], self._trees.get(event["after_tree"])
        if row["forgotten"] is not None or tree is None:
            return
        number, id = row["number"], _read_text(row["id"])
        text = _read_text(row["text"] or b"").replace("\r\n", "\n").replace("\r", "\n")
        subject, _, body = _NO_TEXT.sub("\ufffd", text).strip().partition("\n")
        trailers = _trailer("Id", id)
        if row["role"] is not None:
            trailers += _trailer("Role", _read_text(row["role"]))
        said = f"{subject.rstrip()}\n\n{body.strip()}".rstrip() if subject else f"message {_as_value(id)}"
        line = self._commit(self._own[number], event["session"], tree, self._times[number], said, trailers)
        self._lines[self._place(event["session"], number)] = self._own[number] = line

    def _act(self, event: Row) -> None:
        tree, before = self._trees.get(event["after_tree"]), self._last.get(event["session"])
        if event["forgotten"] is not None or tree is None:
            return
        line = self._line_of(event)
        if self._is_in_order or (before is not None and before["head"] == event["head"]):
            line = self._catch_up(line, event)
        if tree != line.tree:
            trailers = _trailer("Act", event["kind"])
            said = _SUBJECTS[event["kind"]]
            line = self._commit(line, event["session"], tree, event["time"], said, trailers)
        self._lines[self._place(event["session"], event["head"])] = line

    def _catch_up(self, line: _Line, event: Row, *, is_gap: bool = False) -> _Line:
        """Go on to the state before an event, if that is another one."""
        tree = self._trees.get(event["before_tree"])
        if tree is None or tree == line.tree:
            return line
        said = "Forgotten messages" if is_gap else "Edits between messages"
        said = said if line.commit is not None else "State before the first message"
        return self._commit(line, event["session"], tree, event["time"], said)

    def _commit(
        self, line: _Line, session: int, tree: bytes, time_ms: int, said: str, trailers: str = ""
    ) -> _Line:
        text = f"{said}\n\n{trailers}{_trailer('Session', self._sessions[session])}"
        parents = [] if line.commit is None else [line.commit]
        content = encode_commit(tree, parents, max(0, time_ms // 1000), text.encode("utf-8", "replace"))
        id = object_id(b"commit", content)
        self._made[id] = line.commit, content
        return _Line(id, tree)


def _trailer(name: str, value: str) -> str:
    return f"Shadowtree-{name}: {_as_value(value)}\n"


def _as_value(value: str) -> str:
    """Write a value on one line: as it is, or as JSON if git or a reader could take it for something else."""
    return value if _PLAIN_VALUE.fullmatch(value) else json.dumps(value)


def _read_text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")
