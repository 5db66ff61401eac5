"""Add to the journal what happens in one session: its events, what each changed, where it leads.

What leaves the line is kept on branches, so many at most, under names. A branch that is dropped is no longer
listed; its messages stay recorded, and each can be switched to by its id.

The worktree is not looked at here. What is added counts with the transaction that the caller is in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from shadowtree.base.errors import InvalidInput, StoreDamaged
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.paths import Change, RelPath, ancestors, is_among, is_file
from shadowtree.config.settings import Settings
from shadowtree.results.messages import Branch
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import archive, first_line, fold, part_ways
from shadowtree.timeline.schema import ACTS, END, STEP_END, WRAP, Event, MessageRow, Position, TreeRecord
from shadowtree.timeline.session import NOBODY, MessageEvents, Session

_LONGEST = 40
"""So many characters of a slug a name has at most."""
_NO_LETTERS = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"-\d+\Z")

Skipped = Sequence[tuple[str, str]]
"""What a snapshot left out: paths, and why."""


@frozen
class Said:
    """What the caller says of a message."""

    id: str
    text: str = ""
    role: str | None = None
    meta: str | None = None
    """A JSON object, as text."""


@frozen
class StepEnding:
    """What the open step changed."""

    begin: Event
    changes: list[Change]


@frozen
class Ending:
    """What the open message changed, worked out before anything is added to the journal."""

    row: MessageRow
    begin: Event
    changes: list[Change]
    step: StepEnding | None


class SessionWriter:
    """Adds to one session. Only for the holder of the lock."""

    def __init__(
        self,
        journal: Journal,
        session: str,
        *,
        settings: Settings,
        time_ms: int,
        git_head: Callable[[], str | None],
    ) -> None:
        self.journal = journal
        self._time_ms = time_ms
        self._find_git_head = git_head
        self.branches = Branches(journal, settings)
        self.session = Session(journal, session)

    @property
    def time_s(self) -> int:
        """The time of what is recorded, in seconds since 1970."""
        return self._time_ms // 1000

    def git_head_of(self, row: MessageRow) -> str | None:
        """Tell where the user's repository stood when a message began."""
        return self._begin_of(row).git_head

    def _begin_of(self, row: MessageRow) -> Event:
        return MessageEvents(self.journal.events_of([row.number])).begins[row.number]

    # Acts, and the first record

    def add_act(
        self,
        kind: str,
        position: Position,
        *,
        before: TreeRecord,
        after: TreeRecord,
        takes_back: int | None,
        intent: int | None,
        changes: list[Change],
    ) -> None:
        """Add an act to the journal, with where it leads."""
        left, _ = part_ways(self.session.position.tip, position.tip, self.session.find)
        act = Event(
            0,
            self._session_number(),
            kind,
            self._time_ms,
            position,
            before=before.number,
            after=after.number,
            git_head=self._find_git_head(),
            takes_back=takes_back,
        )
        event = self.journal.add_event(act, intent=intent)
        self.journal.add_changes(event.number, changes)
        self.session.position, self.session.last_event = position, event
        if left:
            self.branches.archive(self.session, left, event.number)
            self.branches.limit(self.session)

    def add_wrap(self, record: TreeRecord) -> None:
        """Note that a record is the one that `wrap` took."""
        self.journal.add_event(Event(0, NOBODY, WRAP, self._time_ms, after=record.number))

    # Endings

    def prepare_ending(
        self, changes_since: Callable[[int], list[Change]], paths: Collection[RelPath] | None = None
    ) -> Ending | None:
        """Work out what the open message changed, and its open step; None if no message is open."""
        row = self.session.open
        if row is None:
            return None
        begin = self._begin_of(row)
        changes = changes_since(_tree_before(begin))
        if paths is not None:
            changes = _attribute(changes, paths)
        changes = self._without_acts(changes, begin.number)
        return Ending(row, begin, changes, self._prepare_step_ending(changes_since))

    def _without_acts(self, changes: list[Change], since: int) -> list[Change]:
        """Leave out what acts of other sessions did meanwhile: it is theirs, and they can take it back."""
        acts: dict[RelPath, list[Change]] = {}
        paths = {change.path for change in changes}
        for number, change in self.journal.changes_at(paths, since, self._session_number()):
            if self.journal.event(number).kind in ACTS:
                acts.setdefault(change.path, []).append(change)
        return [change for change in changes if not _is_explained(change, acts.get(change.path, []))]

    def add_ending(self, ending: Ending, record: TreeRecord, skipped: Skipped, *, is_inferred: bool) -> Event:
        """Add the end of the open message to the journal."""
        if ending.step is not None:
            self._add_step_ending(ending.step, record, skipped, is_inferred=True)
        event = self._add(
            Event(
                0,
                0,
                END,
                message=ending.row.number,
                before=ending.begin.before,
                after=record.number,
                since=ending.begin.number,
                is_inferred=is_inferred,
            ),
            skipped,
        )
        self.journal.add_changes(event.number, ending.changes)
        return event

    def _prepare_step_ending(self, changes_since: Callable[[int], list[Change]]) -> StepEnding | None:
        row, name = self.session.open, self.session.position.step
        if row is None or name is None:
            return None
        begin = MessageEvents(self.journal.events_of([row.number])).steps.get((row.number, name))
        if begin is None:
            raise StoreDamaged(f"the timeline does not say how step {name!r} of message {row.id!r} began")
        return StepEnding(begin, changes_since(_tree_before(begin)))

    def _add_step_ending(
        self, step: StepEnding, record: TreeRecord, skipped: Skipped, *, is_inferred: bool
    ) -> Event:
        event = self._add(
            Event(
                0,
                0,
                STEP_END,
                message=step.begin.message,
                step=step.begin.step,
                before=step.begin.before,
                after=record.number,
                since=step.begin.number,
                is_inferred=is_inferred,
            ),
            skipped,
        )
        self.journal.add_changes(event.number, step.changes)
        return event

    # Rows

    def _add_message(self, said: Said) -> MessageRow:
        """Add a message after the head, and archive what was undone."""
        undone = self.session.undone()
        position = self.session.position
        self.branches.warn_of(self.session, said.id)
        number = self._session_number()
        row = self.journal.add_message(number, said.id, said.role, said.text, said.meta, position.head)
        if undone:
            event = self.session.last_event
            assert event is not None, "only an act can have undone something"
            self.session.position = replace(self.session.position, tip=position.head)
            self.branches.archive(self.session, undone, event.number)
        return row

    def _session_number(self) -> int:
        if self.session.number is None:
            self.session.number = self.journal.add_session(self.session.name)
        return self.session.number

    def _add(self, event: Event, skipped: Skipped = ()) -> Event:
        """Add what happened, with what the snapshot left out; the session stands elsewhere afterwards."""
        happened = replace(
            event,
            session=self._session_number(),
            time_ms=self._time_ms,
            position=fold(self.session.position, event),
            skips=self.journal.add_skips(skipped),
        )
        added = self.journal.add_event(happened)
        self.session.position, self.session.last_event = added.position, added
        return added


def _tree_before(begin: Event) -> int:
    if begin.before is None:
        raise StoreDamaged(f"the timeline has no tree before event {begin.number}")
    return begin.before


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


# Branches


class Branches:
    """Keeps the branches of sessions. Only for the holder of the lock."""

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._settings = settings
        self._has_grown = False
        self.warnings: list[str] = []
        """What a user should know of what was archived."""

    def archive(self, session: Session, left: list[MessageRow], event: int) -> None:
        """Keep messages, oldest first, that the position of a session has left by now."""
        for branch in session.branch_rows():
            session.load_line(branch.tip, left[0].number)
        for kept in archive(left, session.branch_rows(), session.find):
            if kept.branch is not None:
                self._journal.move_branch(kept.branch.number, fork=kept.fork, tip=kept.tip, event=event)
                continue
            first = next(row for row in left if row.parent == kept.fork)
            name = name_branch(first.text or f"branch {first.id}", lambda name: self._is_used(session, name))
            self._journal.add_branch(first.session, name, kept.fork, kept.tip, event)
            self._has_grown = True

    def _is_used(self, session: Session, name: str) -> bool:
        # A message goes before a branch: nobody could switch to one that is called like it.
        return session.find_branch(name) is not None or session.find_exact(name) is not None

    def limit(self, session: Session) -> None:
        """Drop the oldest branches above the limit, and say so; say too when it comes near."""
        most, warns_from = self._settings.max_branches, self._settings.warn_branches
        rows = session.branch_rows()
        if len(rows) <= most and not (self._has_grown and len(rows) >= warns_from):
            return
        branches = [row for row in rows if not session.is_active(row)]
        for branch in sorted(branches, key=lambda row: row.event)[: max(0, len(branches) - most)]:
            self._journal.drop_branch(branch.number)
            self.warnings.append(
                f"branch {branch.name!r} is no longer listed: a session keeps {most:,}; "
                f"its last message, {session.find(branch.tip).id!r}, can still be switched to"
            )
        if self._has_grown and warns_from <= len(branches) <= most:
            self.warnings.append(f"this session has {len(branches):,} branches, and keeps {most:,} at most")

    def warn_of(self, session: Session, message_id: str) -> None:
        """Warn of a message that is called like a branch: a message goes before a branch."""
        if session.find_branch(message_id) is not None:
            self.warnings.append(
                f"a branch is called {message_id!r} too, and can be switched to after 'branches rename' only"
            )

    def rename(self, session: Session, name: str, new: str) -> Branch:
        """Give a branch another name."""
        branch = session.require_branch(name)
        if not new.strip() or new.startswith(("#", "@")):
            raise InvalidInput(f"a branch cannot be called {new!r}")
        if new != name and session.find_branch(new) is not None:
            raise InvalidInput(f"a branch is called {new!r} already")
        if session.find_exact(new) is not None:
            raise InvalidInput(f"a message is called {new!r}, so that nobody could switch to the branch")
        with self._journal.transaction():
            self._journal.rename_branch(branch.number, new)
            return session.read_branches([session.require_branch(new)])[0]

    def drop(self, session: Session, name: str) -> Branch:
        """Take a branch from the list; its messages stay recorded."""
        branch = session.require_branch(name)
        if session.is_active(branch):
            raise InvalidInput(f"branch {name!r} is the present line")
        dropped = session.read_branches([branch])[0]
        self._journal.drop_branch(branch.number)
        return dropped


# Names


def name_branch(text: str, is_used: Callable[[str], bool]) -> str:
    """Make up the name of a branch from the text of its first message: `fix-login`, `fix-login-2`."""
    return number_name(name_text(text), is_used)


def name_text(text: str) -> str:
    """Give the slug of a text by which a branch is named."""
    return make_slug(first_line(text))[:_LONGEST].strip("-") or "branch"


def make_slug(text: str) -> str:
    """Give the letters and digits of a text in small letters, with one dash for all between them.

    Fix the Login, now!    ──▶    fix-the-login-now
    """
    return _NO_LETTERS.sub("-", text.lower()).strip("-")


def without_number(name: str) -> str:
    """Give a name without the number by which it may differ from others: `fix-login` of `fix-login-2`."""
    return _NUMBER.sub("", name)


def number_name(base: str, is_used: Callable[[str], bool]) -> str:
    """Give a name that nothing else has: `fix-login`, `fix-login-2`."""
    name, number = base, 1
    while is_used(name):
        number += 1
        name = f"{base}-{number}"
    return name
