"""Add what another machine recorded in a session to the timeline here; no file is touched.

A session that is not here yet is taken as it is. In one that is here, messages are identified by their ids
and start times; new messages are added after those that are here, as a branch:

    here      m1 ── m2 ── m3                      m1 ── m2 ── m3        m3 stays the head
    there     m1 ── m2 ── n3 ── n4       ──▶             └─── n3 ── n4  a branch to switch to

The history of a path must have no gaps, or an undo would take a gap for somebody's edit. So a `join` event
leads from the state that this machine recorded last to the state before n3, and another one leads back from
n4, as if the session had switched there and back.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from shadowtree.base.frozen import frozen, replace
from shadowtree.base.paths import Change
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import list_changes, open_recorded
from shadowtree.config.settings import Settings
from shadowtree.conversation.read_commits import check_objects, derive_changes, refusing
from shadowtree.conversation.rows import TABLES
from shadowtree.conversation.session_rows import list_derivable, renumber
from shadowtree.timeline.append import SessionWriter
from shadowtree.timeline.branches import number_name
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.session import Session
from shadowtree.timeline.sqlite.schema import (
    BEGIN,
    BRANCHES,
    CHANGES,
    EVENTS,
    IS_BEGIN,
    JOIN,
    MESSAGES,
    PINS,
    SESSIONS,
    SKIPS,
    SNAPSHOT,
    TREES,
    Event,
    Position,
    Table,
    TreeRecord,
    decode_event,
    decode_text,
    encode_text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.conversation.rows import Row
    from shadowtree.conversation.session_rows import Numbers, Rows

_SUFFIX = re.compile(r"~[0-9a-f]{4}\Z")
"""Added to the id of a message from another machine if the id is taken here: digits of that machine."""
Key = tuple[str, int]


@frozen
class Came:
    """The result of adding a session."""

    session: str
    """Its name here."""
    messages: list[str]
    """The ids of the messages that are new here."""
    branch: str | None = None
    """The branch that the last of them is on, if any."""


@frozen
class Source:
    """Where rows come from."""

    name: str
    """The session's name where it began."""
    origin: str
    writer: str
    """The store that they come from."""


def keys_of(rows: Rows) -> dict[int, Key]:
    """Return the key of each message, which identifies it on every machine: its id and start time."""
    times = {row["message"]: row["time"] for row in rows["events"] if row["kind"] in (BEGIN, SNAPSHOT)}
    return {row["number"]: make_key(decode_text(row["id"]), times[row["number"]]) for row in rows["messages"]}


def make_key(id: str, time_ms: int) -> Key:
    """Return the key of a message: its id without the suffix, and its start time."""
    return _SUFFIX.sub("", id), time_ms


def join_session(
    opened: OpenStore,
    session: int | None,
    rows: Rows,
    source: Source,
    settings: Settings,
    time_ms: int,
    *,
    follows: bool = False,
) -> Came:
    """Add what is new in the checked rows of a session, all of it or nothing. The caller must hold the lock.

    `session` is its number here, or None if it is not here yet. First reads back every object that is needed;
    raises StoreDamaged if one is missing. With `follows`, for a session in which nothing was recorded here,
    the session takes over the position that it has there.
    """
    joiner = _Joiner(opened, session, rows, source, settings, time_ms)
    check_objects(rows, opened.objects, joiner.has_tree)
    last = opened.journal.last_tree()
    with refusing(f"session {source.name!r}"), opened.journal.transaction():
        came = None
        if session is None:
            came = joiner.take()
        elif follows:
            came = joiner.follow(session)
        if came is None:
            assert session is not None
            came = joiner.join(session)
        if last is not None and opened.journal.last_tree() != last:
            # Record it again: the last recorded tree must be the one that the worktree matches.
            opened.journal.add_tree(
                tree=last.tree,
                facts=last.facts,
                also=last.blobs_beside,
                files=last.files,
                time_s=last.time_s,
            )
    return came


class _Joiner:
    """Adds the rows of one session."""

    def __init__(
        self,
        opened: OpenStore,
        session: int | None,
        rows: Rows,
        source: Source,
        settings: Settings,
        time_ms: int,
    ) -> None:
        self._journal, self._database = opened.journal, opened.journal.database
        self._objects = opened.objects
        self._rows, self._source = rows, source
        self._settings, self._time_ms = settings, time_ms
        self._numbers: Numbers = {table.name: {} for table in TABLES}
        """For each table, the local number of each row from the other machine."""
        if session is not None:
            self._numbers["sessions"] = {1: session}

    def has_tree(self, row: Row) -> bool:
        """Return whether a tree is recorded here, so that everything it needs is stored."""
        return self._find_tree(row) is not None

    def _find_tree(self, row: Row) -> TreeRecord | None:
        known = self._journal.find_tree(row["tree"])
        if known is None or known.forgotten_ms is not None:
            return None
        return known if (known.facts, known.also) == (row["facts"], row["also"]) else None

    # A session that is not here yet

    def take(self) -> Came:
        """Add the whole session as it is."""
        name = self._free_name()
        session = self._database.add(SESSIONS, name, None, self._source.origin, self._source.name)
        self._numbers["sessions"] = {1: session}
        for table in (TREES, MESSAGES, EVENTS, BRANCHES):
            self._number(table, self._rows[table.name])
        self._add_skips(self._rows["events"])
        for table in (TREES, MESSAGES, EVENTS, BRANCHES, PINS):
            self._insert(table, self._rows[table.name])
        self._insert_changes(self._rows["events"])
        live = [row for row in self._rows["messages"] if row["forgotten"] is None]
        return Came(name, [decode_text(row["id"]) for row in live])

    def _free_name(self) -> str:
        name = self._source.name
        if self._journal.session_number(name) is None:
            return name
        base = f"{name[:200]}@{self._source.origin[:6]}"
        return number_name(base, lambda each: self._journal.session_number(each) is not None)

    def _number(self, table: Table, rows: Iterable[Row]) -> None:
        """Assign the next free numbers to rows."""
        ((first,),) = self._database.rows(table.next_number)
        self._numbers[table.name] |= {row["number"]: first + place for place, row in enumerate(rows)}

    def _add_skips(self, events: Iterable[Row]) -> None:
        """Add the lists that events refer to; reuse a list that is here already."""
        named = {row[column] for row in events for column in ("skips", "unprotected")}
        for row in self._rows["skips"]:
            if row["number"] in named:
                known = self._database.rows("SELECT number FROM skips WHERE digest = ?", row["digest"])
                number = known[0][0] if known else self._database.add(SKIPS, row["digest"], row["content"])
                self._numbers["skips"][row["number"]] = number

    def _insert(self, table: Table, rows: Iterable[Row]) -> None:
        new = [renumber(table, row, self._numbers) for row in rows]
        if table is EVENTS:
            new = [{**row, "elsewhere": 1} for row in new]
        sealed = [table.seal([row[column] for column in table.columns]) for row in new]
        self._database.execute_all(table.insert, sealed)

    def _insert_changes(self, events: Sequence[Row]) -> None:
        """Insert the changes of events; derive those that were left out from the trees."""
        trees = {row["number"]: row for row in self._rows["trees"]}
        numbers, derivable = {row["number"] for row in events}, list_derivable(self._rows)
        given = [row for row in self._rows["changes"] if row["event"] in numbers]
        derivable -= {row["event"] for row in given}
        for event in events:
            if event["number"] in derivable and event["change_count"]:
                given += derive_changes(event, trees, self._objects)
        self._insert(CHANGES, given)

    # A session in which nothing was recorded here

    def follow(self, session: int) -> Came | None:
        """Add what was recorded there since; return None if theirs does not begin with what is here."""
        columns = ("number", "kind", "time", "message", "step", "before_tree", "after_tree")
        here = [
            dict(zip(columns, row, strict=True))
            for row in self._database.rows(
                f"SELECT {', '.join(columns)} FROM events WHERE session = ? ORDER BY number", session
            )
        ]
        theirs, messages = (
            self._rows["events"],
            self._database.rows("SELECT number, id FROM messages WHERE session = ? ORDER BY number", session),
        )
        same = ("kind", "time", "step")
        if [[row[c] for c in same] for row in here] != [
            [row[c] for c in same] for row in theirs[: len(here)]
        ]:
            return None
        if [id for _, id in messages] != [row["id"] for row in self._rows["messages"][: len(messages)]]:
            return None
        branches = self._database.rows(
            "SELECT number FROM branches WHERE session = ? ORDER BY number", session
        )
        known = {EVENTS: [row["number"] for row in here], MESSAGES: [number for number, _ in messages]}
        known[BRANCHES] = [number for (number,) in branches]
        for table, numbers in known.items():
            self._numbers[table.name] = dict(enumerate(numbers, 1))
        for row, ours in zip(theirs, here, strict=False):
            for column in ("before_tree", "after_tree"):
                self._numbers["trees"][row[column]] = ours[column]
        self._add_tail(known)
        new = self._rows["messages"][len(messages) :]
        return Came(self._journal.session_names()[session], [decode_text(row["id"]) for row in new])

    def _add_tail(self, known: Mapping[Table, Sequence[int]]) -> None:
        """Add the rows that come after the known ones, and update known branches to match theirs."""
        tail = {table: self._rows[table.name][len(numbers) :] for table, numbers in known.items()}
        new_trees = {row[column] for row in tail[EVENTS] for column in ("before_tree", "after_tree")}
        self._add_trees(new_trees - self._numbers["trees"].keys())
        self._add_skips(tail[EVENTS])
        for table, rows in tail.items():
            self._number(table, rows)
        for table in (MESSAGES, EVENTS, BRANCHES):
            self._insert(table, tail[table])
        self._insert_changes(tail[EVENTS])
        for row in self._rows["branches"][: len(known[BRANCHES])]:
            now = renumber(BRANCHES, row, self._numbers)
            columns = {name: now[name] for name in ("name", "fork", "tip", "event", "dropped")}
            self._database.change(BRANCHES, now["number"], **columns)
        for row in self._rows["pins"]:
            self._journal.pin(self._numbers["messages"][row["message"]], row["time"])

    # A session in which something was recorded here

    def join(self, session: int) -> Came:
        """Add the new messages and their events."""
        name, here = self._journal.session_names()[session], self._journal.last_event(session)
        new = self._find_new(session)
        if not new:
            return Came(name, [])
        events = self._choose_events(session, new)
        self._add_messages(session, new)
        self._add_trees({row[column] for row in events for column in ("before_tree", "after_tree")})
        self._add_skips(events)
        self._lead_to(name, here, events)
        self._number(EVENTS, events)
        self._insert(EVENTS, [{**row, "branches": None} for row in events])
        self._insert_changes(events)
        self._add_branches(session, new)
        if here is not None:
            self._lead_back(name, session, here)
        rows = self._journal.messages_by_number([self._numbers["messages"][row["number"]] for row in new])
        (last,) = Session(self._journal, name).read_messages([*rows.values()][-1:])
        return Came(name, [row.id for row in rows.values()], last.branch)

    def _find_new(self, session: int) -> list[Row]:
        """Return the messages that are not here, and note the numbers of those that are.

        A message that is open there is left out until it has ended.
        """
        select = (
            "SELECT messages.number, id, time FROM messages JOIN events ON message = messages.number"
            f" AND {IS_BEGIN} WHERE messages.session = ?"
        )
        rows = self._database.rows(select, session)
        here = {make_key(decode_text(id), time): number for number, id, time in rows}
        keys, going_on = keys_of(self._rows), self._rows["events"][-1]["open"]
        self._numbers["messages"] = {number: here[key] for number, key in keys.items() if key in here}
        unknown = [row for row in self._rows["messages"] if row["number"] not in self._numbers["messages"]]
        return [row for row in unknown if row["number"] != going_on]

    def _choose_events(self, session: int, new: Sequence[Row]) -> list[Row]:
        """Return the events of new messages, and the acts after the first of them that are not here."""
        numbers = {row["number"] for row in new}
        found: list[Row] = []
        select = "SELECT kind, time FROM events WHERE session = ? AND message IS NULL"
        known = {(kind, time) for kind, time in self._database.rows(select, session)}
        for row in self._rows["events"]:
            is_new_act = row["message"] is None and row["kind"] != JOIN and bool(found)
            if row["message"] in numbers or (is_new_act and (row["kind"], row["time"]) not in known):
                found.append(row)
        return found

    def _add_messages(self, session: int, new: Sequence[Row]) -> None:
        self._number(MESSAGES, new)
        select = "SELECT coalesce(max(ordinal), 0) FROM messages WHERE session = ?"
        ((last,),) = self._database.rows(select, session)
        rows = []
        for place, row in enumerate(new, 1):
            id = decode_text(row["id"])
            if self._journal.find_message(session, id) is not None:
                id = f"{_SUFFIX.sub('', id)[:250]}~{self._source.writer[:4]}"
            rows.append({**row, "ordinal": last + place, "id": encode_text(id)})
        self._insert(MESSAGES, rows)
        numbers = {row["number"] for row in new}
        self._insert(PINS, [row for row in self._rows["pins"] if row["message"] in numbers])

    def _add_trees(self, named: Collection[int | None]) -> None:
        """Record the `named` ones of their trees, unless they are recorded here already."""
        missing = []
        for row in self._rows["trees"]:
            known = self._find_tree(row) if row["number"] in named else None
            if known is not None:
                self._numbers["trees"][row["number"]] = known.number
            elif row["number"] in named:
                missing.append(row)
        self._number(TREES, missing)
        self._insert(TREES, missing)

    def _add_branches(self, session: int, new: Sequence[Row]) -> None:
        """Add the branches whose tips are new messages."""
        tips, event = {row["number"] for row in new}, self._journal.last_number()
        used = {branch.name for branch in self._journal.branches(session)}
        messages = self._numbers["messages"]
        for row in self._rows["branches"]:
            if row["tip"] in tips and row["dropped"] is None:
                name = number_name(
                    decode_text(row["name"]),
                    lambda each: each in used or self._journal.find_message(session, each) is not None,
                )
                used.add(name)
                fork = None if row["fork"] is None else messages[row["fork"]]
                self._journal.add_branch(session, name, fork, messages[row["tip"]], event)

    # There and back

    def _lead_to(self, name: str, here: Event | None, events: Sequence[Row]) -> None:
        """Add a join from the position here to the position before the first of their events."""
        before = [row for row in self._rows["events"] if row["number"] < events[0]["number"]]
        stood = self._position_after(before[-1]) if before else Position()
        tree = self._numbers["trees"].get(events[0]["before_tree"])
        if here is not None and (replace(here.position, open=None), _tree_of(here)) != (stood, tree):
            self._add_join(name, stood, _tree_of(here), tree, archives=False)

    def _lead_back(self, name: str, session: int, here: Event) -> None:
        """Add a join from the position after the last of their events back to the position here."""
        last = self._journal.last_event(session)
        assert last is not None
        self._add_join(name, here.position, _tree_of(last), _tree_of(here), archives=True)

    def _position_after(self, row: Row) -> Position:
        """Return the position after one of their events; a message that is not here is not open."""
        theirs = decode_event(EVENTS.seal([row[column] for column in EVENTS.columns])).position
        messages = self._numbers["messages"]
        return Position(
            None if theirs.head is None else messages.get(theirs.head, self._above(theirs.head)),
            None if theirs.tip is None else messages.get(theirs.tip, self._above(theirs.tip)),
            None if theirs.open is None else messages.get(theirs.open),
            tuple(
                replace(out, message=messages[out.message], newest=messages.get(out.newest, 0))
                for out in theirs.out
            ),
        )

    def _above(self, message: int) -> int | None:
        """Return the local number of the parent of a message that is open there and not here."""
        parent = next(row["parent"] for row in self._rows["messages"] if row["number"] == message)
        return None if parent is None else self._numbers["messages"][parent]

    def _add_join(
        self, name: str, position: Position, before: int | None, after: int | None, *, archives: bool
    ) -> None:
        writer = SessionWriter(self._journal, name, self._settings, self._time_ms)
        event = Event(0, 0, JOIN, position=position, before=before or after, after=after or before)
        changes = self._compare(before, after)
        if archives:
            writer.add_act(event, changes, None)
        else:
            writer.add(event, (), changes)
        assert writer.session.last_event is not None
        self._database.change(EVENTS, writer.session.last_event.number, elsewhere=1)

    def _compare(self, before: int | None, after: int | None) -> list[Change]:
        """List the changes from one recorded tree to another; none if either is forgotten."""
        if before is None or after is None or any(map(self._journal.is_forgotten_tree, (before, after))):
            return []
        one, other = (
            open_recorded(self._objects, record.tree, record.facts)
            for record in (self._journal.tree(before), self._journal.tree(after))
        )
        return list_changes(one, other)


def add_barrier(journal: Journal, session: str, settings: Settings, time_ms: int) -> None:
    """Add a join where a session is resumed here; unrevert reverses nothing before it."""
    writer = SessionWriter(journal, session, settings, time_ms)
    last = writer.session.last_event
    assert last is not None
    tree = _tree_of(last)
    writer.add(Event(0, 0, JOIN, position=last.position, before=tree, after=tree))


def _tree_of(event: Event) -> int | None:
    """Return the number of the tree that an event left."""
    return event.after if event.after is not None else event.before
