"""One session, read from the journal: its position, and its messages and branches as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from shadowtree.base.errors import ForgottenMessage, StoreDamaged, UnknownBranch
from shadowtree.base.frozen import replace
from shadowtree.base.paths import Change
from shadowtree.results.messages import (
    Branch,
    Message,
    Patch,
    Skipped,
    Step,
    make_patch,
)
from shadowtree.timeline.branches import find_branches, find_own, find_owners
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import first_line, part_ways, standing_acts, state_of, walk_back
from shadowtree.timeline.sqlite.schema import (
    BEGIN,
    END,
    SNAPSHOT,
    STEP,
    STEP_END,
    BranchRow,
    Event,
    MessageRow,
    Position,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.results.messages import MessageState

NOBODY = 0
"""The session number of events that belong to no session."""


class Session:
    """One session, read from the journal as needed; it may have recorded nothing yet."""

    def __init__(self, journal: Journal, name: str) -> None:
        self.journal = journal
        self.name = str(name)
        self._rows: dict[int, MessageRow] = {}
        self._tree_ids: dict[int, str] = {}
        self._lines: dict[int, int] = {}
        """How far back each line was read, by its last message."""

    @cached_property
    def number(self) -> int | None:
        """The number of the session; None if nothing was recorded in it."""
        return self.journal.session_number(self.name)

    @cached_property
    def last_event(self) -> Event | None:
        """The last event of the session."""
        return None if self.number is None else self.journal.last_event(self.number)

    @cached_property
    def position(self) -> Position:
        """Where the session stands."""
        return self.last_event.position if self.last_event is not None else Position()

    def require_number(self) -> int:
        """Return the number of a session that has recorded something."""
        assert self.number is not None
        return self.number

    def find(self, number: int) -> MessageRow:
        """Return a message by its number."""
        if number not in self._rows:
            self._rows[number] = self.journal.message(number)
        return self._rows[number]

    def keep(self, rows: Iterable[MessageRow]) -> None:
        """Keep messages that were already read, so that they are not read again."""
        self._rows.update((row.number, row) for row in rows)

    def load(self, numbers: Iterable[int]) -> None:
        """Read many messages at once, because each will be needed."""
        missing = {number for number in numbers if number not in self._rows}
        self._rows.update(self.journal.messages_by_number(list(missing)))

    def load_line(self, number: int, first: int) -> None:
        """Read the messages of a line, from one back to `first`, at once, unless that was already done."""
        if self._lines.get(number, number + 1) > first:
            self._lines[number] = first
            self._rows.update((row.number, row) for row in self.journal.line(number, first))

    def find_id(self, message_id: str) -> MessageRow | None:
        """Return the message with exactly this id."""
        return None if self.number is None else self.journal.find_message(self.number, message_id)

    # Branches

    def branch_rows(self) -> list[BranchRow]:
        """Return the branches, oldest first."""
        return [] if self.number is None else self.journal.branches(self.number)

    def find_branch(self, name: str) -> BranchRow | None:
        """Return the branch with this name."""
        return next((branch for branch in self.branch_rows() if branch.name == name), None)

    def require_branch(self, name: str) -> BranchRow:
        """Return the branch with this name, or raise."""
        branch = self.find_branch(name)
        if branch is None:
            raise UnknownBranch(name)
        return branch

    def is_active(self, branch: BranchRow) -> bool:
        """Return whether a branch is on the present line."""
        return self._is_on_line(branch.tip, self.position.tip)

    def find_tip(self, row: MessageRow, branch: BranchRow | None) -> int:
        """Return the tip of a message's line: the present line, `branch`, or the branch that it is on."""
        if self._is_on_line(row.number, self.position.tip):
            assert self.position.tip is not None
            return self.position.tip
        if branch is not None:
            return branch.tip
        for each in self.branch_rows():
            if (each.fork or 0) < row.number <= each.tip and self._is_on_line(row.number, each.tip):
                return each.tip
        return row.number

    def _is_on_line(self, number: int, tip: int | None) -> bool:
        return any(row.number == number for row in self._walk_to(tip, number))

    def read_branches(self, rows: Sequence[BranchRow] | None = None) -> list[Branch]:
        """Return branches as values, all of them by default."""
        wanted = self.branch_rows() if rows is None else rows
        if not wanted:
            return []
        first = min(branch.fork or 0 for branch in wanted)
        on_line = {row.number for row in self._walk_to(self.position.tip, first)}
        return [self._make_branch(branch, on_line) for branch in wanted]

    def tip_of(self, branch: BranchRow) -> int:
        """Return the last message of a branch, including those added since the session switched to it."""
        if not self.is_active(branch):
            return branch.tip
        owners = find_owners(self.branch_rows(), branch.tip, self.find)
        own = find_own(self._walk_to(self.position.tip, branch.tip), owners)
        assert self.position.tip is not None
        return self.position.tip if own is not None and own.number == branch.number else branch.tip

    def _make_branch(self, branch: BranchRow, on_line: set[int]) -> Branch:
        is_active = branch.tip in on_line
        rows = list(walk_back(self.tip_of(branch), self.find, branch.fork))[::-1]
        if not is_active:
            rows = [row for row in rows if row.number not in on_line]
        fork = rows[0].parent
        rows = [row for row in rows if row.forgotten_ms is None] or rows[-1:]
        ends = MessageEvents(self.journal.events_of([row.number for row in rows])).ends.values()
        return Branch(
            name=branch.name,
            fork=None if fork is None else self.find(fork).id,
            messages=[row.id for row in rows],
            time_ms=self.journal.event(branch.event).time_ms,
            label=first_line(rows[0].text),
            state="active" if is_active else "archived",
            files=len(self.journal.paths_of([event.number for event in ends])),
        )

    # Values

    @property
    def open(self) -> MessageRow | None:
        """The message that has begun and not ended."""
        return None if self.position.open is None else self.find(self.position.open)

    def read_messages(self, rows: Sequence[MessageRow]) -> list[Message]:
        """Return messages of this session as values."""
        if not rows:
            return []
        self._rows.update((row.number, row) for row in rows)
        events = MessageEvents(self.journal.events_of([row.number for row in rows]))
        ends = [*events.ends.values(), *events.step_ends.values()]
        changes = self.journal.changes_of([event.number for event in ends])
        self._load_trees([*events.begins.values(), *events.steps.values(), *ends])
        pins, first = self.journal.pins(), min(row.number for row in rows)
        on_line = {row.number for row in self._walk_to(self.position.tip, first)}
        active = {row.number for row in self._walk_to(self.position.head, first)}
        undone = on_line - active
        archived = [row for row in rows if row.number not in on_line]
        branches = find_branches(archived, self.branch_rows(), self.find) if archived else {}
        return [
            self._make_message(
                row,
                events,
                changes,
                state=state_of(row, self.position, active, undone),
                branch=branches.get(row.number),
                is_pinned=row.number in pins,
            )
            for row in rows
        ]

    def _make_message(
        self,
        row: MessageRow,
        events: MessageEvents,
        changes: Mapping[int, Sequence[Change]],
        *,
        state: MessageState,
        branch: str | None,
        is_pinned: bool,
    ) -> Message:
        begin, end = events.begins[row.number], events.ends.get(row.number)
        before = self.tree_id(begin.before)
        patch = make_patch(before, changes.get(end.number, ()) if end else ())
        return Message(
            id=row.id,
            session=self.name,
            role=row.role,
            text=row.text,
            meta=read_meta(row.meta),
            time_ms=begin.time_ms,
            before=before,
            after=self.tree_id(end.after) if end else None,
            state=state,
            branch=branch,
            skipped=self._read_skipped(end or begin, patch),
            patch=patch,
            number=row.ordinal,
            turn=row.turn,
            inferred=end is not None and end.is_inferred,
            steps=[self._make_step(row, *step, changes) for step in events.steps_of(row.number)],
            is_burst=end is not None and end.is_inferred and end.kind == SNAPSHOT,
            git_head=begin.git_head,
            git_head_after=None if end is None else end.git_head,
            parent=None if row.parent is None else self.find(row.parent).id,
            is_out=self.position.is_out(row.number),
            is_pinned=is_pinned,
            unprotected=self._read_unprotected(end),
        )

    def mark_reverted(self, messages: list[Message]) -> list[Message]:
        """Mark the messages of which a part is reverted."""
        ids = {self.find(number).id for number in self.find_partly_reverted()}
        return [replace(each, is_partly_reverted=True) if each.id in ids else each for each in messages]

    def find_partly_reverted(self) -> set[int]:
        """Find the messages of which a standing act reverted a part, and that stayed in force since."""
        if self.number is None:
            return set()
        acts = [act for act, _ in standing_acts(self.journal.acts_of(self.number))]
        found: set[int] = set()
        undone: set[int] = set()
        # Newest first: a message that was undone later came back whole, if it came back at all.
        for act in acts if any(act.part_of is not None for act in acts) else ():
            before = self.journal.last_event(act.session, before=act.number)
            left, _ = part_ways(
                None if before is None else before.position.head, act.position.head, self.find
            )
            undone |= {row.number for row in left}
            if act.part_of is not None and act.part_of not in undone:
                found.add(act.part_of)
        return found

    def read_message(self, row: MessageRow) -> Message:
        """Return one message as a value; raise ForgottenMessage if it was forgotten."""
        return self.read_messages([require_live(row)])[0]

    def _walk_to(self, number: int | None, first: int) -> Iterable[MessageRow]:
        """Return messages from one back to `first`, or to the oldest one after `first`."""
        if number is not None and number > first:
            self.load_line(number, first)
        return walk_back(number, self.find, first=first)

    def read_step(self, row: MessageRow, begin: Event, end: Event | None) -> Step:
        """Return a step as a value."""
        return self._make_step(row, begin, end, self.journal.changes_of([end.number] if end else []))

    def _make_step(
        self, row: MessageRow, begin: Event, end: Event | None, changes: Mapping[int, Sequence[Change]]
    ) -> Step:
        assert begin.step is not None
        before = self.tree_id(begin.before)
        patch = make_patch(before, changes[end.number] if end else ())
        return Step(
            name=begin.step,
            message=row.id,
            session=self.name,
            before=before,
            after=self.tree_id(end.after) if end else None,
            patch=patch,
            skipped=self._read_skipped(end or begin, patch),
            inferred=end is not None and end.is_inferred,
            meta=read_meta(begin.meta),
            time_ms=begin.time_ms,
            end_time_ms=None if end is None else end.time_ms,
        )

    def _read_skipped(self, event: Event, patch: Patch) -> list[Skipped]:
        """List what a snapshot left out, and the paths that are unknown in a patch."""
        reasons = {} if event.skips is None else dict(self.journal.left_out.skips(event.skips))
        reasons.update((skipped.path, skipped.reason) for skipped in patch.skipped)
        return [Skipped(path, reasons[path]) for path in sorted(reasons)]

    def _read_unprotected(self, end: Event | None) -> list[str]:
        """List the unprotected files that changed before a message ended."""
        if end is None or end.unprotected is None:
            return []
        return [path for path, _ in self.journal.left_out.skips(end.unprotected)]

    def unprotected_of(self, messages: Sequence[int]) -> set[str]:
        """Return the unprotected files that changed during some messages."""
        ends = MessageEvents(self.journal.events_of(messages)).ends.values()
        return {path for end in ends for path in self._read_unprotected(end)}

    def tree_id(self, number: int | None) -> str:
        """Return the id of the tree in a record that an event names."""
        if number in self._tree_ids:
            return self._tree_ids[number]
        return self.journal.tree(number).tree.hex()

    def _load_trees(self, events: Iterable[Event]) -> None:
        """Read many records at once, because each will be needed."""
        numbers = {number for event in events for number in (event.before, event.after) if number is not None}
        records = self.journal.trees(numbers)
        self._tree_ids.update((number, record.tree.hex()) for number, record in records.items())


class _Begins(dict[int, Event]):
    """The first event of each message; a missing one means that the timeline is damaged."""

    def __missing__(self, number: int) -> Event:
        raise StoreDamaged(f"the timeline does not say how message {number} began")


class MessageEvents:
    """The events of some messages, by the numbers of the messages."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.begins = _Begins()
        self.ends: dict[int, Event] = {}
        self.steps: dict[tuple[int, str], Event] = {}
        self.step_ends: dict[tuple[int, str], Event] = {}
        self._step_keys: dict[int, list[tuple[int, str]]] = {}
        for event in events:
            if event.message is None:
                raise StoreDamaged(f"the timeline does not name the message of event {event.number}")
            if event.kind in (BEGIN, SNAPSHOT):
                self.begins[event.message] = event
            if event.kind in (END, SNAPSHOT):
                self.ends[event.message] = event
            if event.kind in (STEP, STEP_END):
                if event.step is None:
                    raise StoreDamaged(f"the timeline does not name the step of event {event.number}")
                key = event.message, event.step
                if event.kind == STEP:
                    self.steps[key] = event
                    self._step_keys.setdefault(event.message, []).append(key)
                elif key in self.steps:
                    self.step_ends[key] = event
                else:
                    raise StoreDamaged(f"the timeline does not say how step {event.step!r} began")

    def steps_of(self, message: int) -> list[tuple[Event, Event | None]]:
        """Return the begin and the end of each step of a message, in the order in which they began."""
        keys = self._step_keys.get(message, ())
        return [(self.steps[key], self.step_ends.get(key)) for key in keys]

    def last_step_of(self, message: int) -> Event | None:
        """Return the last end of a step; None if there is none, or the caller did not end every step."""
        ends = self.finished_steps(message)
        return (
            max(ends, key=lambda end: end.number)
            if ends and len(ends) == len(self._step_keys[message])
            else None
        )

    def finished_steps(self, message: int) -> list[Event]:
        """Return the ends of the steps of a message that the caller ended."""
        return [end for _, end in self.steps_of(message) if end is not None and not end.is_inferred]

    def open_steps(self, message: int) -> list[Event]:
        """Return the begins of the steps of a message that have not ended."""
        return [begin for begin, end in self.steps_of(message) if end is None]


def require_live(row: MessageRow) -> MessageRow:
    """Return a message; raise ForgottenMessage if it was forgotten."""
    if row.forgotten_ms is not None:
        raise ForgottenMessage(row.id, row.forgotten_ms)
    return row


def read_meta(meta: str | None) -> dict[str, object] | None:
    """Read the caller's JSON object of a message or a step."""
    if meta is None:
        return None
    import json

    found: dict[str, object] = json.loads(meta)
    return found
