"""Add the events of one session to the journal, with their changes and the position after each.

Messages that leave the line are kept on a limited number of branches. A dropped branch is no longer listed;
its messages stay recorded, and a session can switch to each by its id.

Nothing here reads the worktree. Rows are added in the caller's transaction and take effect with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import field, frozen, replace
from shadowtree.base.limits import MOST_STAMPED
from shadowtree.base.paths import Change, RelPath, ancestors, is_among, is_file, to_text
from shadowtree.config.settings import Settings
from shadowtree.results.messages import Branch, Message
from shadowtree.timeline.branches import archive, name_text, number_name
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import fold, part_ways, starts_turn, undone_messages
from shadowtree.timeline.resolve import resolve_message
from shadowtree.timeline.session import NOBODY, MessageEvents, Session
from shadowtree.timeline.sqlite.database import BEYOND
from shadowtree.timeline.sqlite.schema import (
    ACTS,
    BEGIN,
    END,
    IS_HERE,
    SESSIONS,
    STEP,
    STEP_END,
    WRAP,
    BranchChange,
    BranchRow,
    Event,
    MessageRow,
    TreeRecord,
    encode_text,
)
from shadowtree.timeline.sqlite.unprotected import is_cut_short

Skipped = Sequence[tuple[str, str]]
"""What a snapshot left out: paths and reasons."""
ChangesSince = Callable[[TreeRecord, TreeRecord | None], list[Change]]
"""Lists the changes from one record to another, or to the present state."""


OUTSIDE = "outside"
"""The key in a step's meta for the files outside the worktree that its tool wrote."""
NO_ID = ""
"""The id of a message if the caller gave none."""


@frozen
class NewMessage:
    """A message to be recorded, as the caller describes it."""

    id: str
    text: str = ""
    role: str | None = None
    meta: str | None = None
    """A JSON object, as text."""


@frozen
class Ending:
    """The changes of the open message or an open step, computed before anything is added to the journal."""

    row: MessageRow
    begin: Event
    changes: list[Change]
    steps: list[Ending] = field(default_factory=list)
    """The endings of the message's open steps, which are added first."""
    last_step: Event | None = None
    """The end of the last step, if the message ends with it; None if the message ends now."""
    unprotected: Sequence[str] = ()
    """Uncovered files that changed since it began."""
    is_whole: bool = True
    """The changes are all the differences between the two trees."""


class SessionWriter:
    """Adds to one session. Only for the holder of the lock."""

    def __init__(self, journal: Journal, session: str, settings: Settings, time_ms: int) -> None:
        self.journal = journal
        self.session = Session(journal, session)
        self.time_ms = time_ms
        self.time_s = time_ms // 1000
        self._settings = settings
        self._has_new_branch = False
        self._branch_changes: list[BranchChange] = []
        """The changes made to branches so far."""
        self.warnings: list[str] = []
        """Sentences for the user: about branches, renamed sessions, and messages that were never ended."""
        self.stamp_uncovered: Callable[[], bytes] | None = None
        """Stamps the files that the present snapshot does not cover; later calls return the same stamps."""

    # Events

    def add(
        self,
        event: Event,
        skipped: Skipped = (),
        changes: Iterable[Change] = (),
        intent: int | None = None,
        *,
        unprotected: Sequence[str] = (),
        is_whole: bool = False,
    ) -> Event:
        """Add an event with its skipped paths and changes, and move the session's position.

        The event commits `intent`. `unprotected` lists the uncovered files that changed too.
        """
        happened = replace(
            event,
            session=self._session_number(),
            time_ms=self.time_ms,
            position=fold(self.session.position, event),
            skips=event.skips or self.journal.left_out.add_skips(skipped),
            unprotected=self.journal.left_out.add_skips([(path, "") for path in unprotected]),
            branches=tuple(self._branch_changes) if event.kind == BEGIN else (),
        )
        added = self.journal.add_event(happened, intent=intent)
        if self.stamp_uncovered is not None and event.kind not in (STEP, STEP_END):
            self.journal.left_out.keep_stamps(added.session, self.stamp_uncovered())
        self.journal.add_changes(added.number, changes, is_whole=is_whole)
        self.session.position, self.session.last_event = added.position, added
        return added

    def leave_fetched(self) -> None:
        """Rename a fetched session that has this name and was never resumed, to start a new one instead."""
        last, database = self.session.last_event, self.journal.database
        if last is None or not last.is_elsewhere:
            return
        if database.rows(f"SELECT 1 FROM events WHERE session = ? AND {IS_HERE} LIMIT 1", last.session):
            return
        name = self.session.name
        ((origin,),) = database.rows("SELECT origin FROM sessions WHERE number = ?", last.session)
        base = f"{name[:200]}@{origin[:6]}"
        other = number_name(base, lambda each: self.journal.session_number(each) is not None)
        database.change(SESSIONS, last.session, name=encode_text(other))
        self.session = Session(self.journal, name)
        self.warnings.append(
            f"session {name!r} of another machine is now called {other!r}; to continue it, use 'resume'"
        )

    def add_wrap(self, record: TreeRecord) -> None:
        """Mark a record as the one that `wrap` took."""
        self.journal.add_event(Event(0, NOBODY, WRAP, self.time_ms, after=record.number))

    def add_message(self, new: NewMessage) -> MessageRow:
        """Add a message after the head, and archive the undone ones. The caller adds its first event."""
        undone = undone_messages(self.session.position, self.session.find)
        head = self.session.position.head
        if self.session.find_branch(new.id) is not None:
            self.warnings.append(
                f"a branch is also named {new.id!r}; to switch to it, rename it with 'branches rename'"
            )
        number = self._session_number()
        turn = 0 if head is None else self.session.find(head).turn
        if head is None or starts_turn(new.role):
            turn += 1
        row = self.journal.add_message(number, new.id, new.role, new.text, new.meta, head, turn)
        if undone:
            event = self.session.last_event
            assert event is not None, "only an act can have undone something"
            self.session.position = replace(self.session.position, tip=head)
            # With the number that the message's first event will have: `drop_message` finds branches by it.
            self._archive(undone, event.number, self.journal.last_number() + 1)
        self._limit_branches()
        return row

    def drop_message(self, ending: Ending) -> bool:
        """Remove the open message as if it had never begun; return False if others recorded since."""
        with self.journal.transaction():
            is_gone = self.journal.remove_message(ending.row.number, ending.begin.number)
            if is_gone:
                self._restore_branches(ending.begin.branches)
        return is_gone

    def add_act(self, act: Event, changes: Iterable[Change], intent: int | None) -> None:
        """Add an act, whose position is set, and archive the messages that leave the line.

        An act that reverses another restores the branches as they were before that one.
        """
        left, _ = part_ways(self.session.position.tip, act.position.tip, self.session.find)
        event = self.add(act, changes=changes, intent=intent)
        if act.takes_back is not None:
            self._restore_branches(self.journal.event(act.takes_back).branches)
        elif left:
            self._archive(left, event.number, event.number)
            self._limit_branches()
        if self._branch_changes:
            self.journal.note_branches(event.number, self._branch_changes)

    def _session_number(self) -> int:
        if self.session.number is None:
            self.session.number = self.journal.add_session(self.session.name)
        return self.session.number

    # Endings

    def prepare_ending(
        self, changes_since: ChangesSince, paths: Collection[RelPath] | None = None, *, is_inferred: bool
    ) -> Ending | None:
        """Compute the changes of the open message and of its open steps; return None if no message is open.

        With `paths`, only changes there count as the message's. If the end `is_inferred` and all steps have
        ended, the message ends with the last step, because later changes may not be its own.
        """
        row = self.session.open
        if row is None:
            return None
        events = MessageEvents(self.journal.events_of([row.number]))
        begin, last_step = events.begins[row.number], events.last_step_of(row.number) if is_inferred else None
        until = None if last_step is None else self.journal.tree(last_step.after)
        every = changes_since(self.journal.tree(begin.before), until)
        own = every if paths is None else _attribute(every, paths)
        unprotected = [*self.list_unprotected(own, paths), *_list_outside(events.steps.values())]
        own = self.without_acts(own, begin.number, BEYOND if last_step is None else last_step.number)
        steps = [self.prepare_step_ending(row, step, changes_since) for step in events.open_steps(row.number)]
        return Ending(row, begin, own, steps, last_step, unprotected, len(own) == len(every))

    def prepare_step_ending(self, row: MessageRow, begin: Event, changes_since: ChangesSince) -> Ending:
        """Compute the changes of an open step."""
        return Ending(row, begin, changes_since(self.journal.tree(begin.before), None))

    def without_acts(self, changes: list[Change], since: int, until: int = BEYOND) -> list[Change]:
        """Leave out changes that acts of other sessions made meanwhile: those sessions can reverse them."""
        acts: dict[RelPath, list[Change]] = {}
        paths = {change.path for change in changes}
        for number, change in self.journal.changes_at(paths, since, self._session_number()):
            if number < until and self.journal.event(number).kind in ACTS:
                acts.setdefault(change.path, []).append(change)
        return [change for change in changes if not _is_explained(change, acts.get(change.path, []))]

    def add_ending(
        self,
        ending: Ending,
        record: TreeRecord,
        skipped: Skipped,
        git_head: str | None = None,
        *,
        is_inferred: bool,
    ) -> Event:
        """Add the end of the open message, or of an open step, to the journal."""
        for step in ending.steps:
            self.add_ending(step, record, skipped, is_inferred=True)
        begin, last_step = ending.begin, ending.last_step
        end = Event(
            0,
            0,
            END if begin.kind == BEGIN else STEP_END,
            message=begin.message,
            step=begin.step,
            before=begin.before,
            after=record.number if last_step is None else last_step.after,
            since=begin.number,
            is_inferred=is_inferred,
            git_head=git_head if last_step is None else None,
            skips=None if last_step is None else last_step.skips,
        )
        own = () if last_step is not None else skipped
        is_whole = ending.is_whole
        return self.add(end, own, ending.changes, unprotected=ending.unprotected, is_whole=is_whole)

    def warn_of_inferred(self, ending: Ending) -> None:
        """Warn that a message was never ended."""
        if ending.last_step is not None:
            consequence = "it ends with its last step, without later changes"
        else:
            consequence = "it ends here, and undoing it may undo your edits too"
        self.warnings.append(f"message {ending.row.id!r} was never ended: {consequence}")

    def list_unprotected(
        self, changes: Iterable[Change] = (), paths: Collection[RelPath] | None = None
    ) -> list[str]:
        """List the uncovered files that changed since the session last stamped them, sorted; only at `paths`.

        A file that became covered or uncovered is among the `changes`, and is not listed here. Warns if there
        may be more uncovered files than were stamped.
        """
        found = self.journal.left_out.list_changed(self.session.number, self.stamp_uncovered)
        if self.stamp_uncovered is not None and is_cut_short(self.stamp_uncovered()):
            first = f"only the first {MOST_STAMPED:,} ignored or too big files are checked for changes"
            self.warnings += [] if first in self.warnings else [first]
        covered = {change.path for change in changes if is_file(change.old) or is_file(change.new)}
        return [
            to_text(path)
            for path in found
            if path not in covered and (paths is None or is_among(path, paths))
        ]

    # Branches

    def _archive(self, left: list[MessageRow], event: int, new_event: int) -> None:
        """Keep messages, oldest first, that the session's position has left.

        A branch that already existed is archived by `event`, a new one by `new_event`.
        """
        session = self.session
        branches = session.branch_rows()
        for branch in branches:
            session.load_line(branch.tip, left[0].number)
        for kept in archive(left, branches, session.find):
            if kept.branch is not None:
                self._move_branch(kept.branch, kept.fork, kept.tip, event)
                continue
            first = next(row for row in left if row.parent == kept.fork)
            # Message ids are resolved before branches: a branch named like one could not be switched to.
            name = number_name(
                name_text(first.text or f"branch {first.id}"),
                lambda name: session.find_branch(name) is not None or session.find_id(name) is not None,
            )
            added = self.journal.add_branch(first.session, name, kept.fork, kept.tip, new_event)
            self._branch_changes.append(BranchChange(added.number, was_listed=False))
            self._has_new_branch = True

    def _move_branch(self, branch: BranchRow, fork: int | None, tip: int, event: int) -> None:
        was = branch.fork or 0, branch.tip, branch.event
        self._branch_changes.append(BranchChange(branch.number, was_listed=True, was=was))
        self.journal.move_branch(branch.number, fork=fork, tip=tip, event=event)

    def _restore_branches(self, changes: Sequence[BranchChange]) -> None:
        """Reverse an act's changes to branches; a branch that the user dropped since stays dropped."""
        for change in reversed(changes):
            listed = {branch.number: branch for branch in self.session.branch_rows()}
            if change.was is not None and change.number in listed:
                fork, tip, event = change.was
                self._move_branch(listed[change.number], fork or None, tip, event)
            elif change.was is None and change.was_listed != (change.number in listed):
                restore = self.journal.list_branch if change.was_listed else self.journal.drop_branch
                restore(change.number)
                self._branch_changes.append(BranchChange(change.number, was_listed=not change.was_listed))

    def _limit_branches(self) -> None:
        """Drop the oldest branches above the limit, with a warning; warn also when the limit is near."""
        session, settings = self.session, self._settings
        most, warns_from = settings.max_branches, settings.warn_branches
        rows = session.branch_rows()
        if len(rows) <= most and not (self._has_new_branch and len(rows) >= warns_from):
            return
        branches = [row for row in rows if not session.is_active(row)]
        for branch in sorted(branches, key=lambda row: row.event)[: max(0, len(branches) - most)]:
            self.journal.drop_branch(branch.number)
            self._branch_changes.append(BranchChange(branch.number, was_listed=True))
            self.warnings.append(
                f"branch {branch.name!r} is no longer listed (a session keeps {most:,}); "
                f"you can still switch to its last message, {session.find(branch.tip).id!r}"
            )
        if self._has_new_branch and warns_from <= len(branches) <= most:
            noun = "branch" if len(branches) == 1 else "branches"
            self.warnings.append(f"this session has {len(branches):,} {noun}; it keeps at most {most:,}")

    def rename_branch(self, name: str, new: str) -> Branch:
        """Rename a branch."""
        session = self.session
        branch = session.require_branch(name)
        if not new.strip() or new.startswith(("#", "@")) or new.endswith("^") or new.isdigit():
            raise InvalidInput(f"a branch cannot be named {new!r}")
        if new != name and session.find_branch(new) is not None:
            raise InvalidInput(f"a branch named {new!r} already exists")
        if session.find_id(new) is not None:
            raise InvalidInput(f"{new!r} is the id of a message; choose another name")
        with self.journal.transaction():
            self.journal.rename_branch(branch.number, new)
            return session.read_branches([session.require_branch(new)])[0]

    def drop_branch(self, name: str) -> Branch:
        """Remove a branch from the list; its messages stay recorded."""
        branch = self.session.require_branch(name)
        if self.session.is_active(branch):
            raise InvalidInput(f"branch {name!r} is the current one, so it cannot be dropped")
        dropped = self.session.read_branches([branch])[0]
        self.journal.drop_branch(branch.number)
        return dropped

    # Pins

    def pin(self, name: str) -> Message:
        """Keep a message from being forgotten."""
        row = resolve_message(self.session, name)
        with self.journal.transaction():
            self.journal.pin(row.number, self.time_ms)
            return self.session.read_message(row)

    def unpin(self, name: str) -> Message:
        """Allow retention to forget a message again."""
        row = resolve_message(self.session, name)
        with self.journal.transaction():
            self.journal.unpin(row.number)
            return self.session.read_message(row)


def _list_outside(steps: Iterable[Event]) -> list[str]:
    """List the files outside the worktree that tools wrote; agents' hooks note them in the meta of steps."""
    found: set[str] = set()
    for step in steps:
        if step.meta is not None and OUTSIDE in step.meta:
            import json

            outside = json.loads(step.meta).get(OUTSIDE)
            # A caller may use this key for values of another type.
            names = outside if isinstance(outside, list) else []
            found.update(name for name in names if isinstance(name, str) and name.startswith("/"))
    return sorted(found)


def _is_explained(change: Change, acts: list[Change]) -> bool:
    """Return whether acts, one after the other, account for a whole change."""
    state = change.old
    for act in acts:
        if act.old != act.new:
            if act.old != state:
                return False
            state = act.new
    return state == change.new


def _attribute(changes: list[Change], paths: Collection[RelPath]) -> list[Change]:
    """Return the changes at these paths and below, and those of the directories above them."""
    own = [change for change in changes if is_among(change.path, paths)]
    leading = {above for change in own for above in ancestors(change.path)}
    return [
        change
        for change in changes
        if is_among(change.path, paths)
        or (change.path in leading and not is_file(change.old) and not is_file(change.new))
    ]
