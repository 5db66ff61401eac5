"""The timeline as a check reads it: every row that can be read, and a fault for whatever cannot.

A seal proves that a row is what was written (docs/decisions/0024-seals.md). Lost rows leave gaps in the
numbers, or too few changes. SQLite's own check finds damaged indexes and pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import Change
from shadowtree.results.reports import HurtMessage
from shadowtree.store.objects.git_format import PackBytes
from shadowtree.timeline.database import Database
from shadowtree.timeline.events import Event, MessageRow, TreeRecord
from shadowtree.timeline.schema import (
    BRANCHES,
    CHANGE_COUNTS,
    CHANGES,
    EVENTS,
    FRESH,
    INTENTS,
    MESSAGES,
    PACKS,
    PINS,
    PURGED,
    SESSIONS,
    SKIPS,
    TREES,
    WITHOUT_GAPS,
    Table,
    check_pack_name,
    decode_branch,
    decode_change,
    decode_event,
    decode_message,
    decode_skips,
    decode_tombstone,
    decode_tree,
    decode_versions,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Value = TypeVar("Value")

_COUNTED = CHANGE_COUNTS.replace(" FROM", ", (SELECT count(*) FROM changes WHERE event = number) FROM", 1)
_PACKS = "SELECT name, CAST(pack AS BLOB), CAST(pack_index AS BLOB) FROM packs ORDER BY number"
_MESSAGE_OF_EVENT = EVENTS.columns.index("message")


@frozen
class Fault:
    """Something that is wrong with a timeline."""

    what: str
    """Which row or table."""
    why: str
    messages: tuple[int, ...] = ()
    """The numbers of the messages that it hurts."""


class TimelineRows:
    """The rows of a timeline, as far as they can be read. Raises StoreDamaged if the file is no timeline."""

    def __init__(self, path: str) -> None:
        self.faults: list[Fault] = []
        self.is_file_damaged = False
        """SQLite finds the file damaged, whatever the rows say."""
        self.trees: dict[int, TreeRecord] = {}
        self.sessions: dict[int, str] = {}
        self.messages: dict[int, MessageRow] = {}
        self.events: dict[int, Event] = {}
        self.intents = 0
        """How many acts are going on, or were interrupted."""
        self._damaged_trees: set[int] = set()
        self._damaged_messages: dict[int, tuple[int, str]] = {}
        """Session and id of messages whose rows are damaged, as far as these can be read."""
        self._database = Database(path, for_check=True)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @property
    def live_trees(self) -> list[TreeRecord]:
        """The trees that are not forgotten, oldest first."""
        return [tree for tree in self.trees.values() if tree.forgotten_ms is None]

    @property
    def last_keeper(self) -> bytes | None:
        """The keeper of the tree that was recorded last; None: nothing was."""
        return self.trees[max(self.trees)].keeper if self.trees else None

    def is_forgotten(self, event: int) -> bool:
        """Whether an event, or its message, was forgotten, so that nothing needs its objects."""
        row = self.events.get(event)
        message = None if row is None or row.message is None else self.messages.get(row.message)
        return any(each is not None and each.forgotten_ms is not None for each in (row, message))

    def name_messages(self, numbers: Iterable[int]) -> list[HurtMessage]:
        """Name messages by session and id, but for forgotten ones."""
        found = []
        for number in dict.fromkeys(numbers):
            row = self.messages.get(number)
            if row is not None and row.forgotten_ms is None:
                found.append(HurtMessage(self.sessions.get(row.session, "?"), row.id))
            elif row is None and number in self._damaged_messages:
                session, id = self._damaged_messages[number]
                found.append(HurtMessage(self.sessions.get(session, "?"), id))
        return found

    def changes(self) -> Iterator[tuple[int, Change]]:
        """Give every change with the number of its event."""
        return self._rows(CHANGES, decode_change)

    def packs(self) -> Iterator[PackBytes]:
        """Give every journaled pack, whole or not."""
        return self._rows(PACKS, lambda row: PackBytes(check_pack_name(row[0]), *row[1:]), _PACKS)

    def _read(self) -> None:
        try:
            for why in self._database.find_file_faults():
                self._add_file_fault(why)
        except StoreDamaged as error:
            self._add_file_fault(error.what)
        self.trees = {row.number: row for row in self._rows(TREES, decode_tree)}
        self.sessions = dict(self._rows(SESSIONS, SESSIONS.decode))
        self.messages = {row.number: row for row in self._rows(MESSAGES, decode_message)}
        self.events = {row.number: row for row in self._rows(EVENTS, decode_event)}
        self.intents = len(list(self._rows(INTENTS, INTENTS.decode)))
        self._check(BRANCHES, decode_branch)
        self._check(SKIPS, decode_skips)
        self._check(PINS, PINS.decode)
        self._check(PURGED, decode_tombstone)
        self._check(FRESH, decode_versions, "SELECT versions FROM fresh")
        self._check(FRESH, lambda row: check_pack_name(row[0]), "SELECT name FROM fresh")
        self._find_lost_rows()
        for event in self.events.values():
            for number in {event.before, event.after} & self._damaged_trees:
                self.faults.append(Fault(f"trees {number}", "cannot be read", _messages_of(event)))

    def _check(self, table: Table, decode: Callable[[Any], object], statement: str | None = None) -> None:
        for _ in self._rows(table, decode, statement):
            pass

    def _rows(
        self,
        table: Table,
        decode: Callable[[Any], Value],  # Any: a row of SQLite
        statement: str | None = None,
    ) -> Iterator[Value]:
        def add_fault(row: Any, error: Exception) -> None:
            if row is None:
                self._add_file_fault(error.what if isinstance(error, StoreDamaged) else str(error))
            else:
                self._add_row_fault(table.name, row, error)

        return self._database.read_all(statement or table.select, decode, add_fault)

    def _add_file_fault(self, why: str) -> None:
        self.is_file_damaged = True
        self.faults.append(Fault("timeline", why))

    def _add_row_fault(self, table: str, row: Any, error: Exception) -> None:
        """Note a damaged row, with the messages that it hurts: its columns are good enough to name them."""
        number = row[0] if isinstance(row[0], int) else None
        messages: tuple[object, ...] = ()
        if table == "trees" and number is not None:
            self._damaged_trees.add(number)
        elif table == "messages" and number is not None and isinstance(row[3], bytes):
            self._damaged_messages[number] = row[1], row[3].decode(errors="replace")
            messages = (number,)
        elif table == "events":
            messages = (row[_MESSAGE_OF_EVENT],)
        elif table == "changes" and number in self.events:
            messages = _messages_of(self.events[number])
        what = table if number is None else f"{table} {number}"
        hurt = tuple(each for each in messages if isinstance(each, int))
        self.faults.append(Fault(what, f"cannot be read: {error}", hurt))

    def _find_lost_rows(self) -> None:
        for table in WITHOUT_GAPS:
            # A plus keeps SQLite from answering from an index, which may be damaged.
            numbers = {number for (number,) in self._rows(table, tuple, f"SELECT +number FROM {table.name}")}
            if numbers != set(range(1, len(numbers) + 1)):
                self.faults.append(Fault(table.name, "has lost rows"))
        for event, count, found in self._rows(EVENTS, tuple, _COUNTED):
            if count != found:
                messages = _messages_of(self.events[event]) if event in self.events else ()
                self.faults.append(
                    Fault(f"events {event}", f"has {count} changes, but {found} are there", messages)
                )


def _messages_of(event: Event) -> tuple[int, ...]:
    return () if event.message is None else (event.message,)
