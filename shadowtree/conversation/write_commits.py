"""Encode sessions as commits: those that `git log` shows, and one with the rows.

Each line of messages becomes a line of commits, in the order of events:

    State before the first message
    Fix the login                     a message: its text, and the state after it
    Edits between messages            what changed before the next message or act
    Restore                           an act that changed files on this line
    Now the tests

A commit depends only on the commits before it on its line, so a session has the same ids on every machine.
They change when something in it is forgotten or purged.

A remote gets a single line of commits for each session, in order of time: undone messages stay on it,
followed by the undo. So it only ever grows.

The rows are in the tree of one more commit. Each recorded tree becomes a commit too, whose parent is the tree
recorded before it: git compares a commit with its parents, and sends only what is new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter

from shadowtree.base.frozen import frozen
from shadowtree.conversation.ref_names import branch_ref, session_ref, undone_ref
from shadowtree.conversation.rows import FORMAT, ROWS_IN_BLOB, ROWS_PREFIX, TABLES, encode_row
from shadowtree.conversation.session_rows import (
    key_of,
    list_derivable,
    list_needed,
    list_sessions,
    read_session_rows,
)
from shadowtree.store.git_format import (
    EMPTY_TREE,
    MODE_FILE,
    TreeEntry,
    encode_commit,
    encode_tree,
    object_id,
)
from shadowtree.store.objects import Objects
from shadowtree.timeline.sqlite import schema
from shadowtree.timeline.sqlite.database import Database
from shadowtree.timeline.sqlite.schema import ACTS, BEGIN, CHANGES, END, SNAPSHOT, decode_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.conversation.rows import Row
    from shadowtree.conversation.session_rows import Rows
    from shadowtree.store.packs.pack_writer import ObjectSink

_SUBJECTS = {kind: kind.capitalize() for kind in ACTS} | {
    schema.HEAD_ONLY: "Revert without files",
    schema.JOIN: "Join messages of another machine",
}
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PLAIN_VALUE = re.compile('(?!["\\s])[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+(?<!\\s)')


def encode_conversation(database: Database, objects: Objects, sink: ObjectSink) -> dict[str, bytes]:
    """Write the commits of every session that are not stored yet; return the commit for each ref.

    Nothing refers to these objects until the caller has published them and written the refs. The caller must
    hold the lock, so that no tree is forgotten meanwhile. Raises StoreDamaged if a row is damaged.
    """
    database.require_sound()
    refs: dict[str, bytes] = {}
    for session in list_sessions(database):
        rows = read_session_rows(database, session.number)
        lines = _Lines(rows)
        named = lines.name_refs(session.name, rows["branches"])
        lines.put(named.values(), objects, sink)
        tree = encode_rows(rows, objects, sink)
        refs |= {**named, session.wire.rows_ref.decode(): commit_rows(rows, tree, objects, sink)}
    return refs


def encode_line(rows: Rows, objects: Objects, sink: ObjectSink) -> bytes | None:
    """Write everything that happened in a session as one line of commits; return the last, if any."""
    lines = _Lines(rows, is_in_order=True)
    if lines.last is not None:
        lines.put([lines.last], objects, sink)
    return lines.last


# Rows


def commit_rows(
    rows: Rows,
    tree: bytes,
    objects: Objects,
    sink: ObjectSink,
    parents: Sequence[bytes] = (),
    known: Collection[tuple[bytes, ...]] = (),
) -> bytes:
    """Write a commit of a session's rows, from which every object that they need can be reached.

    Its parents are `parents`, from which the objects of the `known` trees can be reached, and a chain of
    commits with those of all other trees.
    """
    new = [row for row in rows["trees"] if key_of(row) not in known]
    states = _put_states(new, _find_last(rows["trees"]), parents, objects, sink)
    name, time_ms = decode_text(rows["sessions"][0]["name"]), max([0, *(e["time"] for e in rows["events"])])
    text = f"Session {_as_value(name)}\n".encode("utf-8", "replace")
    content = encode_commit(tree, [*parents, *states], time_ms // 1000, text)
    return objects.put(sink, b"commit", content)


def encode_rows(rows: Rows, objects: Objects, sink: ObjectSink) -> bytes:
    """Write a git tree that contains the rows of a session and the tree recorded last."""
    last = _find_last(rows["trees"])
    entries = [] if last is None else list_needed(last)
    entries.append(TreeEntry(b"format", MODE_FILE, objects.put(sink, b"blob", b"%d\n" % FORMAT)))
    for name, content in _group_lines(rows).items():
        entries.append(TreeEntry(name, MODE_FILE, objects.put(sink, b"blob", content)))
    return objects.put(sink, b"tree", encode_tree(entries))


def _group_lines(rows: Rows) -> dict[bytes, bytes]:
    """Return the content of each blob of rows by name, in the order of events: a new message is appended.

    Rows that may change later are in a separate blob.
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
                lines.append((event, encode_row(table, row)))
    found: dict[bytes, list[bytes]] = {}
    for event, line in sorted(lines, key=itemgetter(0)):
        name = ROWS_PREFIX + (b"%x" % groups[event] if event in groups else b"more")
        found.setdefault(name, []).append(line)
    return {name: b"".join(each) for name, each in found.items()}


def _find_events(rows: Rows) -> dict[str, dict[int, int]]:
    """Map each row, by table and key, to the first event that refers to it."""
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


def _find_last(trees: Sequence[Row]) -> Row | None:
    return next((row for row in reversed(trees) if row["forgotten"] is None), None)


def _put_states(
    trees: Iterable[Row], last: Row | None, parents: Sequence[bytes], objects: Objects, sink: ObjectSink
) -> list[bytes]:
    """Write a chain of commits with what the trees need; return a list of the last commit, or of none.

    The last tree is in the tree of the rows. It gets a commit only if an equal tree was recorded before, so
    that this chain grows only at its end, wherever an undo leads.
    """
    states: dict[tuple[bytes, ...], Row] = {}
    for row in trees:
        if row["forgotten"] is None:
            states.setdefault(key_of(row), row)
    if last is not None and [*states][-1:] == [key_of(last)]:
        del states[key_of(last)]
    made = list[bytes]()
    for row in states.values():
        tree = objects.put(sink, b"tree", encode_tree(list_needed(row)))
        content = encode_commit(tree, made or parents, row["time"], b"State %d\n" % row["number"])
        made = [objects.put(sink, b"commit", content)]
    return made


# Commits


@frozen
class _Line:
    """The end of a line of commits."""

    commit: bytes | None = None
    tree: bytes = EMPTY_TREE


class _Lines:
    """The lines of commits of a session, made from its events in order.

    With `is_in_order`, there is one line, with everything that ever happened.
    """

    def __init__(self, rows: Rows, *, is_in_order: bool = False) -> None:
        self._is_in_order = is_in_order
        self._trees = {row["number"]: row["tree"] for row in rows["trees"] if row["forgotten"] is None}
        self._messages = {row["number"]: row for row in rows["messages"]}
        self._session = decode_text(rows["sessions"][0]["name"])
        self._made: dict[bytes, tuple[bytes | None, bytes]] = {}
        """For each commit, by its id, the one before it and its content."""
        self._lines: dict[int | None, _Line] = {}
        """For each message, where the line ends if it is the head, edits and acts after it included."""
        self._own: dict[int, _Line] = {}
        """For each message, its own commit; if it is open or forgotten, the commit that it began after."""
        self._times: dict[int, int] = {}
        self._last: Row | None = None
        """The last event."""
        for event in rows["events"]:
            if event["kind"] in (BEGIN, SNAPSHOT):
                self._begin(event)
            if event["kind"] in (END, SNAPSHOT):
                self._end(event)
            if event["kind"] in ACTS:
                self._act(event)
            self._last = event

    @property
    def last(self) -> bytes | None:
        """The last commit of the line that the head is on."""
        return None if self._last is None else self._line_at(self._last["head"]).commit

    def name_refs(self, session: str, branches: Iterable[Row]) -> dict[str, bytes]:
        """Return the commit that each ref must name."""
        found = {session_ref(session): self.last}
        if self._last is not None and self._last["tip"] not in (None, self._last["head"]):
            found[undone_ref(session)] = self._own[self._last["tip"]].commit
        for row in branches:
            if row["dropped"] is None:
                ref = branch_ref(session, decode_text(row["name"]), row["number"])
                found[ref] = self._own[row["tip"]].commit
        return {ref: commit for ref, commit in found.items() if commit is not None}

    def put(self, commits: Iterable[bytes], objects: Objects, sink: ObjectSink) -> None:
        """Write the commits and their ancestors to the sink."""
        for id, content in self._list_commits(commits):
            put = objects.put(sink, b"commit", content)
            assert put == id

    def _list_commits(self, commits: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        seen: set[bytes] = set()
        for commit in commits:
            at: bytes | None = commit
            while at is not None and at not in seen:
                seen.add(at)
                above, content = self._made[at]
                yield at, content
                at = above

    def _line_at(self, head: int | None) -> _Line:
        return self._lines.get(self._place(head), _Line())

    def _place(self, head: int | None) -> int | None:
        return None if self._is_in_order else head

    def _begin(self, event: Row) -> None:
        row = self._messages[event["message"]]
        line = self._line_at(row["parent"])
        if row["forgotten"] is None:
            parent = self._messages.get(row["parent"])
            is_gap = parent is not None and parent["forgotten"] is not None
            line = self._catch_up(line, event, is_gap=is_gap)
            self._lines[self._place(row["parent"])] = line
        self._lines[self._place(row["number"])] = self._own[row["number"]] = line
        self._times[row["number"]] = event["time"]

    def _end(self, event: Row) -> None:
        row, tree = self._messages[event["message"]], self._trees.get(event["after_tree"])
        if row["forgotten"] is not None or tree is None:
            return
        number, id = row["number"], decode_text(row["id"])
        text = decode_text(row["text"] or b"").replace("\r\n", "\n").replace("\r", "\n")
        subject, _, body = _NO_TEXT.sub("\ufffd", text).strip().partition("\n")
        trailers = _trailer("Id", id)
        if row["role"] is not None:
            trailers += _trailer("Role", decode_text(row["role"]))
        said = f"{subject.rstrip()}\n\n{body.strip()}".rstrip() if subject else f"message {_as_value(id)}"
        line = self._commit(self._own[number], tree, self._times[number], said, trailers)
        self._lines[self._place(number)] = self._own[number] = line

    def _act(self, event: Row) -> None:
        tree, before = self._trees.get(event["after_tree"]), self._last
        if event["forgotten"] is not None or tree is None:
            return
        line = self._line_at(event["head"])
        if self._is_in_order or (before is not None and before["head"] == event["head"]):
            line = self._catch_up(line, event)
        if tree != line.tree:
            trailers = _trailer("Act", event["kind"])
            line = self._commit(line, tree, event["time"], _SUBJECTS[event["kind"]], trailers)
        self._lines[self._place(event["head"])] = line

    def _catch_up(self, line: _Line, event: Row, *, is_gap: bool = False) -> _Line:
        """Add a commit of the state before an event, if it differs from the end of the line."""
        tree = self._trees.get(event["before_tree"])
        if tree is None or tree == line.tree:
            return line
        said = "Forgotten messages" if is_gap else "Edits between messages"
        said = said if line.commit is not None else "State before the first message"
        return self._commit(line, tree, event["time"], said)

    def _commit(self, line: _Line, tree: bytes, time_ms: int, said: str, trailers: str = "") -> _Line:
        text = f"{said}\n\n{trailers}{_trailer('Session', self._session)}"
        parents = [] if line.commit is None else [line.commit]
        content = encode_commit(tree, parents, max(0, time_ms // 1000), text.encode("utf-8", "replace"))
        id = object_id(b"commit", content)
        self._made[id] = line.commit, content
        return _Line(id, tree)


def _trailer(name: str, value: str) -> str:
    return f"Shadowtree-{name}: {_as_value(value)}\n"


def _as_value(value: str) -> str:
    """Return a value on one line: unchanged, or as JSON if git or a reader could misread it."""
    return value if _PLAIN_VALUE.fullmatch(value) else json.dumps(value)
