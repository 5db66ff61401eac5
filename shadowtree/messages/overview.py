"""Read a session at a glance: rows of its messages, and where it stands, counted in turns."""

from __future__ import annotations

from itertools import groupby

from shadowtree.base.arguments import check_count
from shadowtree.capture.capture import Site
from shadowtree.capture.open_store import OpenStore
from shadowtree.messages.read import last_tree
from shadowtree.results.messages import Branch
from shadowtree.results.overview import BranchTurns, SessionState, Timeline, TimelineRow, TurnEntry
from shadowtree.timeline.branches import find_branches
from shadowtree.timeline.position import (
    first_line,
    in_force,
    last_finished,
    redoable_messages,
    state_of,
    walk_back,
)
from shadowtree.timeline.session import Session, read_meta
from shadowtree.timeline.sqlite.schema import BEGIN, END, IS_COUNTED, IS_END, SNAPSHOT, STEP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shadowtree.timeline.journal import Journal
    from shadowtree.timeline.sqlite.schema import MessageRow

_TEXT_OF_ROW = 300
"""How many characters of a message's text a row holds."""


def read_timeline(
    opened: OpenStore, site: Site, session_name: str, last: int | None, before: int | None
) -> Timeline:
    """List messages of a session as rows: the `last` ones, among those numbered below `before`."""
    check_count(last, "the number of messages")
    session = Session(opened.journal, session_name)
    rows: list[MessageRow] = []
    if session.number is not None:
        rows = opened.journal.last_messages(session.number, last if before is None else None)
    if before is not None:
        rows = [row for row in rows if row.ordinal < before][-(last or 0) :]
    return Timeline(
        session=session.name,
        number=opened.journal.last_number(),
        total=opened.journal.retention.count_messages().get(session.number or 0, 0),
        **_describe_place(session),
        undone=[row.id for row in redoable_messages(session.position, session.find)],
        rows=_read_rows(session, rows),
    )


def _read_rows(session: Session, rows: Sequence[MessageRow]) -> list[TimelineRow]:
    """Make rows of some messages of a session, fast enough for ten thousand."""
    if not rows:
        return []
    session.keep(rows)
    first = min(row.number for row in rows)
    on_line = {row.number for row in walk_back(session.position.tip, session.find, first=first)}
    active = {row.number for row in walk_back(session.position.head, session.find, first=first)}
    undone = on_line - active
    archived = [row for row in rows if row.number not in on_line]
    branches = find_branches(archived, session.branch_rows(), session.find) if archived else {}
    glances = _Glances(session.journal, session.require_number(), first)
    pins, partly = session.journal.pins(), session.find_partly_reverted()
    found = []
    for row in rows:
        agent = (read_meta(row.meta) or {}).get("agent")
        marks = glances.marks_of(row.number)
        marks += ["out"] if session.position.is_out(row.number) else []
        marks += ["pinned"] if row.number in pins else []
        marks += ["partly_reverted"] if row.number in partly else []
        made = TimelineRow(
            row.id,
            row.ordinal,
            row.turn,
            row.role,
            agent if isinstance(agent, str) else None,
            row.text[:_TEXT_OF_ROW],
            glances.times_ms.get(row.number, 0),
            glances.files.get(row.number, 0),
            glances.steps.get(row.number, 0),
            glances.unprotected.get(row.number, 0),
            state_of(row, session.position, active, undone),
            branches.get(row.number),
            None if row.parent is None else session.find(row.parent).id,
            marks,
        )
        found.append(made)
    return found


class _Glances:
    """What a list on a screen shows of the messages of a session, from `first` on.

    The columns are read directly: nothing is written into a worktree because of them, so the rows need not be
    compared with their seals, which takes most of the time of reading them.
    """

    def __init__(self, journal: Journal, session: int, first: int) -> None:
        self.times_ms: dict[int, int] = {}
        """By message, like the other figures."""
        self.files: dict[int, int] = {}
        self.steps: dict[int, int] = {}
        self.unprotected: dict[int, int] = {}
        self._marks: dict[int, list[str]] = {}
        self._read_events(journal, session, first)
        counted = f"changes.event = events.number AND {IS_COUNTED}"
        self.files.update(
            journal.database.rows(
                f"SELECT message, count(*) FROM events JOIN changes ON {counted}"
                f" WHERE session = ? AND {IS_END} AND message >= ? GROUP BY message",
                session,
                first,
            )
        )

    def marks_of(self, message: int) -> list[str]:
        """Return the marks of a message."""
        return list(self._marks.get(message, ()))

    def _read_events(self, journal: Journal, session: int, first: int) -> None:
        events = journal.database.rows(
            "SELECT session, kind, time, message, before_tree, after_tree, inferred, unprotected FROM events"
            " WHERE number >= (SELECT min(number) FROM events WHERE message = ?) - 1 ORDER BY number",
            first,
        )
        edits: dict[int, tuple[int, int]] = {}
        at_work: set[int] = set()
        last_tree: int | None = None
        for own, kind, time_ms, message, before, after, is_inferred, unprotected in events:
            if kind == BEGIN and last_tree not in (None, before) and not at_work:
                edits[message] = last_tree, before
            at_work = at_work | {own} if kind == BEGIN else at_work - {own} if kind == END else at_work
            last_tree = after if after is not None else before if before is not None else last_tree
            if own != session or message is None:
                continue
            if kind in (BEGIN, SNAPSHOT):
                self.times_ms[message] = time_ms
            elif kind == STEP:
                self.steps[message] = self.steps.get(message, 0) + 1
            if kind in (END, SNAPSHOT):
                if is_inferred:
                    self._marks[message] = ["inferred", "burst"] if kind == SNAPSHOT else ["inferred"]
                if unprotected is not None:
                    self.unprotected[message] = len(journal.left_out.skips(unprotected))
        numbers = {number for pair in edits.values() for number in pair}
        trees = dict(journal.database.rows_of("SELECT number, tree FROM trees WHERE number IN", numbers))
        for message, (old, new) in edits.items():
            if trees.get(old) != trees.get(new):
                self._marks[message] = [*self._marks.get(message, ()), "edited"]


def read_state(opened: OpenStore, site: Site, session_name: str) -> SessionState:
    """Return where a session stands, counted in turns, and its branches."""
    session = Session(opened.journal, session_name)
    position = session.position
    newest = next(in_force(position, session.find), None)
    last = last_tree(opened, session)
    return SessionState(
        worktree=site.worktree,
        store=opened.layout.store,
        session=session.name,
        number=opened.journal.last_number(),
        **_describe_place(session),
        tree=None if last is None else last.tree.hex(),
        turn=0 if newest is None else newest.turn,
        turns=0 if position.tip is None else session.find(position.tip).turn,
        undone=_group_turns(redoable_messages(position, session.find)),
        branches=[_describe_branch(session, branch) for branch in session.read_branches()],
    )


def _describe_place(session: Session) -> dict[str, str | None]:
    head = last_finished(session.position, session.find)
    open_now = session.open
    return {"head": None if head is None else head.id, "open": None if open_now is None else open_now.id}


def _describe_branch(session: Session, branch: Branch) -> BranchTurns:
    rows = [row for id in branch.messages if (row := session.find_id(id)) is not None]
    return BranchTurns(
        branch.name,
        branch.label,
        branch.state,
        branch.time_ms,
        branch.fork,
        branch.files,
        _group_turns(rows),
    )


def _group_turns(rows: Iterable[MessageRow]) -> list[TurnEntry]:
    found = []
    for turn, group in groupby(rows, key=lambda row: row.turn):
        own = list(group)
        found.append(TurnEntry(turn, [row.id for row in own], first_line(own[0].text)))
    return found
