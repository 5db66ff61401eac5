"""Carry out what retention chose: mark messages, acts and trees as forgotten, in one transaction.

Nothing is freed by that; what no live tree needs any more goes when the store is swept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shadowtree.events import MessageRow
from shadowtree.frozen import frozen
from shadowtree.journal import Journal
from shadowtree.objects import Objects
from shadowtree.paths import RelPath
from shadowtree.recorded import open_recorded
from shadowtree.retention import Choice, Remaining
from shadowtree.sessions import MessageEvents
from shadowtree.state import Change, PathState


@frozen
class Forgetting:
    """What is about to be forgotten."""

    messages: list[tuple[str, str]]
    """The session and the id of each, oldest first."""
    choice: Choice
    trees: list[int]
    """The numbers of the trees that nothing needs then."""

    @property
    def is_nothing(self) -> bool:
        """Whether all is kept."""
        return not (self.choice.messages or self.choice.acts or self.trees)


def read_remaining(journal: Journal) -> Remaining:
    """Tell what is left of a store."""
    open_: set[int] = set()
    in_force: set[int] = set()
    out: dict[int, int] = {}
    for session in journal.session_names():
        last = journal.last_event(session)
        position = None if last is None else last.position
        if position is not None and position.open is not None:
            open_.add(position.open)
        if position is not None:
            out.update((taken.message, taken.newest) for taken in position.out)
        if position is not None and position.head is not None:
            line = journal.line(position.head, journal.first_live(session))
            in_force |= {row.number for row in line if not position.is_out(row.number)}
    return Remaining(
        journal.ages(),
        journal.live_acts(),
        journal.bare_trees(),
        frozenset(open_),
        frozenset(in_force),
        out,
    )


def plan_forgetting(journal: Journal, objects: Objects, choice: Choice) -> Forgetting:
    """Find out which trees nothing needs without what was chosen. Changes nothing."""
    journal.require_sound()
    names = journal.session_names()
    rows = journal.messages_by_number(choice.messages)
    trees = {record.number for record in journal.live_trees()} - find_needed(journal, objects, choice)
    messages = [(names[rows[number].session], rows[number].id) for number in choice.messages]
    return Forgetting(messages, choice, sorted(trees))


def forget(journal: Journal, forgetting: Forgetting, time_ms: int) -> None:
    """Mark it all as forgotten, or nothing if anything fails."""
    choice = forgetting.choice
    with journal.transaction():
        journal.forget_messages(choice.messages, time_ms)
        journal.forget_acts(choice.acts, time_ms)
        journal.forget_trees(forgetting.trees, time_ms)
        sessions = journal.session_names()
        journal.forget_changes(sessions)
        for session in sessions:
            _drop_branches(journal, session)


def find_needed(journal: Journal, objects: Objects, choice: Choice) -> set[int]:
    """Name the trees that are needed without what was chosen.

    The last tree; those of live messages, steps and acts; bare ones that stay. And, unless they are lost,
    that of the last wrap, which sessions start from, and those that going back over forgotten messages needs:
    who does without is told so.
    """
    gone = set(choice.messages)
    needed = {
        tree
        for named in journal.named_trees()
        if named.message not in gone and named.event not in choice.acts
        for tree in named.trees
    }
    needed |= {number for number, _ in journal.bare_trees()} - set(choice.bare)
    last, wrap = journal.last_tree(), journal.last_wrap()
    needed |= {last.number} if last is not None else set()
    useful = _find_passed(journal, objects, gone)
    useful |= {wrap.after} if wrap is not None and wrap.after is not None else set()
    return needed | (useful - choice.lost)


def _find_passed(journal: Journal, objects: Objects, gone: Collection[int]) -> set[int]:
    """Name the trees before forgotten messages that hold what going back over them needs.

    Who goes back to a live message passes those after it, and each path becomes what it was before the first
    of them that changed it. Mostly that is what the live message left; but somebody else may have changed the
    path in between.
    """
    first = min((age.number for age in journal.ages() if age.number not in gone), default=None)
    if first is None:
        return set()
    found: set[int] = set()
    for session in journal.session_names():
        rows = journal.messages_from(session, first)
        if any(row.forgotten_ms is not None or row.number in gone for row in rows):
            found |= _find_passed_in(journal, objects, rows, gone)
    return found


def _find_passed_in(
    journal: Journal, objects: Objects, rows: list[MessageRow], gone: Collection[int]
) -> set[int]:
    """Do so for the messages of one session, oldest first."""
    events = MessageEvents(journal.events_of([row.number for row in rows]))
    changes = journal.changes_of([event.number for event in events.ends.values()])
    ways: dict[int, _Way] = {}
    found: set[int] = set()
    for row in rows:
        end, begin = events.ends.get(row.number), events.begins[row.number]
        own = changes[end.number] if end is not None else []
        if row.forgotten_ms is None and row.number not in gone:
            ways[row.number] = _Way(None if end is None else end.after, frozenset())
        elif row.parent in ways:
            way = ways[row.parent]
            if begin.before is not None and any(_is_news(journal, objects, way, change) for change in own):
                found.add(begin.before)
            ways[row.number] = _Way(way.tree, way.paths | {change.path for change in own})
    return found


@frozen
class _Way:
    """The way back from a message to the nearest live one."""

    tree: int | None
    """What that one left."""
    paths: frozenset[RelPath]
    """What the forgotten messages between changed."""


def _is_news(journal: Journal, objects: Objects, way: _Way, change: Change) -> bool:
    """Tell whether a path would become something that the live message's trees do not hold."""
    if not isinstance(change.old, PathState) or not change.old.blob or change.path in way.paths:
        return False
    if way.tree is None:
        return True
    record = journal.tree(way.tree)
    return open_recorded(objects, record.tree, record.facts).find(change.path) != change.old


def _drop_branches(journal: Journal, session: int) -> None:
    """Take branches from the list of which no message is left."""
    for branch in journal.branches(session):
        rows = _messages_of(journal, branch.tip, branch.fork)
        if all(row.forgotten_ms is not None for row in rows):
            journal.drop_branch(branch.number)


def _messages_of(journal: Journal, tip: int, fork: int | None) -> Iterator[MessageRow]:
    return (row for row in journal.line(tip, (fork or 0) + 1))
