"""Add to the journal what happens in one session: its events, what each changed, where it leads.

What leaves the line is kept on branches, so many at most. A branch that is dropped is no longer listed; its
messages stay recorded, and each can be switched to by its id.

The worktree is not looked at here. What is added counts with the transaction that the caller is in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from shadowtree.base.errors import InvalidInput, StoreDamaged
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.paths import Change, RelPath, ancestors, is_among, is_file, to_text
from shadowtree.base.stamps import list_stamped
from shadowtree.config.settings import Settings
from shadowtree.results.messages import Branch, Message
from shadowtree.timeline.branches import archive, name_text, number_name
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import fold, part_ways, undone_messages
from shadowtree.timeline.resolve import find_exact, resolve_message
from shadowtree.timeline.schema import (
    ACTS,
    BEGIN,
    END,
    STEP,
    STEP_END,
    WRAP,
    BranchChange,
    BranchRow,
    Event,
    MessageRow,
    TreeRecord,
)
from shadowtree.timeline.session import NOBODY, MessageEvents, Session

Skipped = Sequence[tuple[str, str]]
"""What a snapshot left out: paths, and why."""
ChangesSince = Callable[[TreeRecord], list[Change]]
"""Lists what changed from a record to the present state."""


@frozen
class Said:
    """What the caller says of a message."""

    id: str
    text: str = ""
    role: str | None = None
    meta: str | None = None
    """A JSON object, as text."""


@frozen
class Ending:
    """What the open message changed, or its open step, worked out before anything is added to the journal."""

    row: MessageRow
    begin: Event
    changes: list[Change]
    step: Ending | None = None
    """The end of the message's open step, which comes first."""
    unprotected: Sequence[str] = ()
    """Files that no snapshot covers, and that changed since."""


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
        """What was done to branches so far."""
        self.warnings: list[str] = []
        """What a user should know of the branches."""
        self.stamp_uncovered: Callable[[], bytes] | None = None
        """Looks at the files that the present snapshot does not cover, the first time that it is called."""

    def git_head_of(self, row: MessageRow) -> str | None:
        """Tell where the user's repository stood when a message began."""
        return MessageEvents(self.journal.events_of([row.number])).begins[row.number].git_head

    # Events

    def add(
        self,
        event: Event,
        skipped: Skipped = (),
        changes: Iterable[Change] = (),
        intent: int | None = None,
        *,
        unprotected: Sequence[str] = (),
    ) -> Event:
        """Add what happened, what the snapshot left out, and what changed; the session stands elsewhere then.

        With an `intent`, this is when that is committed. `unprotected` changed too, and is not covered.
        """
        happened = replace(
            event,
            session=self._session_number(),
            time_ms=self.time_ms,
            position=fold(self.session.position, event),
            skips=self.journal.add_skips(skipped),
            unprotected=self.journal.add_skips([(path, "") for path in unprotected]),
        )
        added = self.journal.add_event(happened, intent=intent)
        if self.stamp_uncovered is not None and event.kind not in (STEP, STEP_END):
            self.journal.keep_stamps(added.session, self.stamp_uncovered())
        self.journal.add_changes(added.number, changes)
        self.session.position, self.session.last_event = added.position, added
        return added

    def add_wrap(self, record: TreeRecord) -> None:
        """Note that a record is the one that `wrap` took."""
        self.journal.add_event(Event(0, NOBODY, WRAP, self.time_ms, after=record.number))

    def add_message(self, said: Said) -> MessageRow:
        """Add a message after the head, and archive what was undone. Its first event is still to be added."""
        undone = undone_messages(self.session.position, self.session.find)
        head = self.session.position.head
        if self.session.find_branch(said.id) is not None:
            self.warnings.append(
                f"a branch is called {said.id!r} too, and can be switched to after 'branches rename' only"
            )
        number = self._session_number()
        row = self.journal.add_message(number, said.id, said.role, said.text, said.meta, head)
        if undone:
            event = self.session.last_event
            assert event is not None, "only an act can have undone something"
            self.session.position = replace(self.session.position, tip=head)
            self._archive(undone, event.number)
        self._limit_branches()
        return row

    def add_act(self, act: Event, changes: Iterable[Change], intent: int | None) -> None:
        """Add an act, which says where it leads, and archive what it leaves.

        One that reverses another leaves the branches as they were before that one.
        """
        left, _ = part_ways(self.session.position.tip, act.position.tip, self.session.find)
        event = self.add(act, changes=changes, intent=intent)
        if act.takes_back is not None:
            self._restore_branches(self.journal.event(act.takes_back).branches)
        elif left:
            self._archive(left, event.number)
            self._limit_branches()
        if self._branch_changes:
            self.journal.note_branches(event.number, self._branch_changes)

    def _session_number(self) -> int:
        if self.session.number is None:
            self.session.number = self.journal.add_session(self.session.name)
        return self.session.number

    # Endings

    def prepare_ending(
        self, changes_since: ChangesSince, paths: Collection[RelPath] | None = None
    ) -> Ending | None:
        """Work out what the open message changed, and its open step; None if no message is open.

        With `paths`, only what is there is the message's own.
        """
        row = self.session.open
        if row is None:
            return None
        begin = MessageEvents(self.journal.events_of([row.number])).begins[row.number]
        own = changes_since(self.journal.tree(begin.before))
        own = own if paths is None else _attribute(own, paths)
        unprotected = self.list_unprotected(own, paths)
        own = self.without_acts(own, begin.number)
        return Ending(row, begin, own, self.prepare_step_ending(changes_since), unprotected)

    def prepare_step_ending(self, changes_since: ChangesSince) -> Ending | None:
        """Work out what the open step of the open message changed; None if no step is open."""
        row, step = self.session.open, self.session.position.step
        if row is None or step is None:
            return None
        begin = MessageEvents(self.journal.events_of([row.number])).steps.get((row.number, step))
        if begin is None:
            raise StoreDamaged(f"the timeline does not say how step {step!r} of message {row.id!r} began")
        return Ending(row, begin, changes_since(self.journal.tree(begin.before)))

    def without_acts(self, changes: list[Change], since: int) -> list[Change]:
        """Leave out what acts of other sessions did meanwhile: it is theirs, and they can take it back."""
        acts: dict[RelPath, list[Change]] = {}
        paths = {change.path for change in changes}
        for number, change in self.journal.changes_at(paths, since, self._session_number()):
            if self.journal.event(number).kind in ACTS:
                acts.setdefault(change.path, []).append(change)
        return [change for change in changes if not _is_explained(change, acts.get(change.path, []))]

    def add_ending(self, ending: Ending, record: TreeRecord, skipped: Skipped, *, is_inferred: bool) -> Event:
        """Add the end of the open message to the journal, or of the open step."""
        if ending.step is not None:
            self.add_ending(ending.step, record, skipped, is_inferred=True)
        begin = ending.begin
        end = Event(
            0,
            0,
            END if begin.kind == BEGIN else STEP_END,
            message=begin.message,
            step=begin.step,
            before=begin.before,
            after=record.number,
            since=begin.number,
            is_inferred=is_inferred,
        )
        return self.add(end, skipped, ending.changes, unprotected=ending.unprotected)

    def list_unprotected(
        self, changes: Iterable[Change] = (), paths: Collection[RelPath] | None = None
    ) -> list[str]:
        """List the uncovered files that changed since the session last looked, sorted; at `paths` only.

        What other rules cover by now, or covered then, is among the `changes`: it did not change by itself.
        """
        before = None if self.session.number is None else self.journal.stamps(self.session.number)
        if before is None or self.stamp_uncovered is None:
            return []
        covered = {change.path for change in changes if is_file(change.old) or is_file(change.new)}
        return [
            to_text(path)
            for path in list_stamped(before, self.stamp_uncovered())
            if path not in covered and (paths is None or is_among(path, paths))
        ]

    # Branches

    def _archive(self, left: list[MessageRow], event: int) -> None:
        """Keep messages, oldest first, that the position of the session has left by now."""
        session = self.session
        branches = session.branch_rows()
        for branch in branches:
            session.load_line(branch.tip, left[0].number)
        for kept in archive(left, branches, session.find):
            if kept.branch is not None:
                self._move_branch(kept.branch, kept.fork, kept.tip, event)
                continue
            first = next(row for row in left if row.parent == kept.fork)
            # A message goes before a branch: nobody could switch to one that is called like it.
            name = number_name(
                name_text(first.text or f"branch {first.id}"),
                lambda name: session.find_branch(name) is not None or find_exact(session, name) is not None,
            )
            added = self.journal.add_branch(first.session, name, kept.fork, kept.tip, event)
            self._branch_changes.append(BranchChange(added.number, was_listed=False))
            self._has_new_branch = True

    def _move_branch(self, branch: BranchRow, fork: int | None, tip: int, event: int) -> None:
        was = branch.fork or 0, branch.tip, branch.event
        self._branch_changes.append(BranchChange(branch.number, was_listed=True, was=was))
        self.journal.move_branch(branch.number, fork=fork, tip=tip, event=event)

    def _restore_branches(self, changes: Sequence[BranchChange]) -> None:
        """Reverse what an act did to branches; one that the user dropped since stays dropped."""
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
        """Drop the oldest branches above the limit, and say so; say too when it comes near."""
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
                f"branch {branch.name!r} is no longer listed: a session keeps {most:,}; "
                f"its last message, {session.find(branch.tip).id!r}, can still be switched to"
            )
        if self._has_new_branch and warns_from <= len(branches) <= most:
            self.warnings.append(f"this session has {len(branches):,} branches, and keeps {most:,} at most")

    def rename_branch(self, name: str, new: str) -> Branch:
        """Give a branch another name."""
        session = self.session
        branch = session.require_branch(name)
        if not new.strip() or new.startswith(("#", "@")):
            raise InvalidInput(f"a branch cannot be called {new!r}")
        if new != name and session.find_branch(new) is not None:
            raise InvalidInput(f"a branch is called {new!r} already")
        if find_exact(session, new) is not None:
            raise InvalidInput(f"a message is called {new!r}, so that nobody could switch to the branch")
        with self.journal.transaction():
            self.journal.rename_branch(branch.number, new)
            return session.read_branches([session.require_branch(new)])[0]

    def drop_branch(self, name: str) -> Branch:
        """Take a branch from the list; its messages stay recorded."""
        branch = self.session.require_branch(name)
        if self.session.is_active(branch):
            raise InvalidInput(f"branch {name!r} is the present line")
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
        """Let a message be forgotten when its time comes."""
        row = resolve_message(self.session, name)
        with self.journal.transaction():
            self.journal.unpin(row.number)
            return self.session.read_message(row)


def _is_explained(change: Change, acts: list[Change]) -> bool:
    """Tell whether acts, one after the other, made all of a change."""
    state = change.old
    for act in acts:
        if act.old != act.new:
            if act.old != state:
                return False
            state = act.new
    return state == change.new


def _attribute(changes: list[Change], paths: Collection[RelPath]) -> list[Change]:
    """Leave to a message the changes at these paths and below, and of the directories that lead there."""
    own = [change for change in changes if is_among(change.path, paths)]
    leading = {above for change in own for above in ancestors(change.path)}
    return [
        change
        for change in changes
        if is_among(change.path, paths)
        or (change.path in leading and not is_file(change.old) and not is_file(change.new))
    ]
