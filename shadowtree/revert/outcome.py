"""The outcome of an act, as a value: predicted before the act, and reported after it, done or not.

An `Act` is a request with everything that it needs; `Prepared` is an act worked out but not done.
`Attribution` finds what the user should know about the messages that the act passes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from shadowtree.base.frozen import frozen, replace
from shadowtree.base.interrupts import Cancellation
from shadowtree.base.paths import DIRECTORY, Change, PathState, RelPath, is_file, to_text
from shadowtree.capture.capture import Site
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import RecordedDirectory, list_changes
from shadowtree.capture.scan import Scan
from shadowtree.results.messages import Skipped
from shadowtree.results.outcomes import Outcome, Plan, PlannedChange
from shadowtree.revert.contents import Contents
from shadowtree.revert.history import History, paths_of, with_session
from shadowtree.revert.intents import Move
from shadowtree.revert.plan import PathPlan, identify_plan
from shadowtree.revert.requests import Options, Request, Revert
from shadowtree.revert.targets import Target
from shadowtree.revert.wanted import is_never_recorded
from shadowtree.timeline.append import Ending, SessionWriter
from shadowtree.timeline.position import last_finished, redoable_messages
from shadowtree.timeline.session import MessageEvents
from shadowtree.timeline.sqlite.schema import END, UNREVERT, MessageRow, Position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMED = 3
"""How many messages a note names at most."""


@frozen
class Act:
    """One act: the request, and everything that it needs from its first step to its last."""

    request: Request
    options: Options
    opened: OpenStore
    site: Site
    session_writer: SessionWriter
    git_head: str | None
    """The commit that the user's repository is at now."""
    cancellation: Cancellation


@frozen
class Prepared:
    """An act worked out but not done."""

    target: Target
    plan: PathPlan
    ending: Ending | None
    uncovered: dict[RelPath, PathState]
    contents: Contents
    is_move: bool
    """The head or the tip moves, or a message leaves the line or comes back into it."""
    back: str
    """The command that would reverse it."""
    outcome: Outcome
    """The outcome that it would have."""

    def to_plan(self) -> Plan:
        """Return it as the value that callers see."""
        return Plan(self.outcome, [_show_change(change) for change in self.plan.changes])


def foresee(
    act: Act,
    target: Target,
    plan: PathPlan,
    root: RecordedDirectory,
    scan: Scan,
    unprotected: list[str],
) -> Outcome:
    """Return the outcome that an act would have, according to its target and its plan.

    A file that is only `unprotected` is not among the skipped: it was never recorded, so nothing is missing.
    """
    assert root.tree is not None
    tree, changes = root.tree.hex(), plan.changes
    skipped = _list_skipped(target, plan, unprotected)
    return Outcome(
        id=identify_plan(plan, target, act.session_writer.session.name),
        act=target.kind,
        messages=[row.id for row in target.messages],
        redone=[row.id for row in target.redone],
        restored=[to_text(change.path) for change in changes if is_file(change.new)],
        deleted=[to_text(c.path) for c in changes if is_file(c.old) and not is_file(c.new)],
        created=[to_text(c.path) for c in changes if c.old is None and is_file(c.new)],
        kept=[to_text(path) for path in plan.kept],
        conflicts=plan.conflicts,
        skipped=skipped,
        before=tree,
        after=tree,
        complete=not (plan.conflicts or skipped or plan.marked or target.is_short),
        dry_run=True,
        mode="only" if isinstance(act.request, Revert) and act.request.only else "back",
        notes=target.notes,
        turns=target.turns,
        reverses=target.reverses,
        covered=scan.files,
        merged=[to_text(change.path) for change in changes if change.is_merged and is_file(change.new)],
        marked=[to_text(path) for path in plan.marked],
        edited=[to_text(path) for path in plan.edited],
        unprotected=unprotected,
    )


def _list_skipped(target: Target, plan: PathPlan, unprotected: list[str]) -> list[Skipped]:
    if not (plan.skipped and unprotected):
        return plan.skipped
    only = {to_text(want.path) for want in target.wanted if is_never_recorded(want)} & {*unprotected}
    return [each for each in plan.skipped if each.path not in only]


def describe_position(
    act: Act, position: Position | None = None
) -> dict[str, Any]:  # Any: fields of an outcome
    """Return the head and what can be redone at a position; None stands for the present one."""
    session = act.session_writer.session
    position = position or session.position
    head = last_finished(position, session.find)
    undone = [row.id for row in redoable_messages(position, session.find)]
    return {"head": None if head is None else head.id, "undone": undone}


def name_way_back(act: Act, target: Target) -> str:
    """Return the command that would reverse an act."""
    command = "shadowtree unrevert --undo" if target.kind == UNREVERT else "shadowtree unrevert"
    return with_session(command, act.session_writer.session)


def as_untouched(act: Act, outcome: Outcome, notes: Sequence[str] = ()) -> Outcome:
    """Return the outcome of an act that did nothing."""
    return replace(
        outcome,
        notes=[*outcome.notes, *notes],
        messages=[],
        redone=[],
        restored=[],
        created=[],
        deleted=[],
        kept=[],
        merged=[],
        marked=[],
        after=outcome.before,
        complete=False,
        dry_run=False,
        **describe_position(act),
    )


def finish(
    act: Act,
    prepared: Prepared,
    done: list[Move],
    after: str,
    notes: list[str],
    stayed: Collection[RelPath] = (),
) -> Outcome:
    """Return the outcome of an act that was done, with notes on directories and branches.

    `stayed` are directories that could not be removed after all. Nothing is read here: the act is recorded,
    and nothing may fail any more (invariant 11).
    """
    outcome = prepared.outcome
    made = sum(move.new == DIRECTORY for move in done)
    gone = sum(move.is_leaving and move.path not in stayed for move in done)
    counts = [
        f"{count:,} {'directory was' if count == 1 else 'directories were'} {verb}"
        for count, verb in ((made, "created"), (gone, "removed"))
        if count
    ]
    notes = [*outcome.notes, *counts, *notes, *act.session_writer.warnings]
    has_changed = bool(done) or prepared.is_move or prepared.target.takes_back is not None
    back = prepared.back if has_changed else None
    return replace(outcome, after=after, dry_run=False, notes=notes, back=back)


def _show_change(change: Change) -> PlannedChange:
    old, new = (side if isinstance(side, PathState) else None for side in (change.old, change.new))
    return PlannedChange(
        to_text(change.path),
        old.blob.hex() if old is not None and old.blob else None,
        new.blob.hex() if new is not None and new.blob else None,
        None if old is None else old.mode,
        None if new is None else new.mode,
    )


class Attribution:
    """Whose changes an act reverses: unended messages, sessions at work, and a git HEAD that moved meanwhile.

    A message that nobody ended is closed later, by the next message or by an act. Changes before that count
    as the message's, although the user may have made them:

        begin m1   step s1   step s1 ends   (the agent dies)   edits   begin m2 closes m1
                                            └───────── uncertain ────────┘

    If all steps of m1 have ended, it ends with the last of them, and nothing is uncertain.

    A message of another session that began before m1 ended and is still open may have changed the same paths.
    Those that differ from its begin are uncertain: nobody can tell which of the two changed them.
    """

    def __init__(self, history: History, over: Sequence[MessageRow], undone: Sequence[MessageRow]) -> None:
        self._history = history
        self._over = over
        numbers = {row.number for row in (*over, *undone)}
        self._events = MessageEvents(history.journal.events_of(sorted(numbers)) if numbers else ())
        self._never_ended = [row for row in undone if self._is_inferred(row)]
        self._changes = history.changes_of(self._never_ended) if self._never_ended else []
        self._shared = _find_shared(history, undone)

    def _is_inferred(self, row: MessageRow) -> bool:
        end = self._events.ends.get(row.number)
        return end is None or (end.kind == END and end.is_inferred)

    def note_ends(self, act: str) -> Iterator[str]:
        """Note which message the act ends, and which ones nobody ended."""
        changed = {message.message for message in self._changes if message.changes}
        at_step = [row for row in self._never_ended if self._events.last_step_of(row.number) is not None]
        closed = [row for row in self._never_ended if row not in at_step and row.number in changed]
        if self._history.ending is not None:
            row = self._history.ending.row
            end = " with its last step" if row in at_step else ""
            if row in closed:
                end = "; edits that you made meanwhile may be undone too"
            yield f"message {row.id!r} was still open, so this {act} ends it{end}"
            at_step, closed = ([each for each in rows if each != row] for rows in (at_step, closed))
        if len(closed) == 1:
            end = "edits you made before it was closed may be undone too"
            yield f"{_name(closed)} was never ended: {end}"
        elif closed:
            end = "edits you made before they were closed may be undone too"
            yield f"{_name(closed)} were never ended: {end}"
        if at_step:
            end = "was never ended: it" if len(at_step) == 1 else "were never ended: each"
            yield f"{_name(at_step)} {end} ends with its last step"

    def note_open(self, act: str, paths: Collection[RelPath]) -> Iterator[str]:
        """Note which open messages of other sessions may have changed paths of the act too."""
        for number, shared in self._shared.items():
            if shared & {*paths}:
                row, names = self._history.session.find(number), self._history.journal.session_names()
                session = names[row.session]
                yield f"message {row.id!r} of session {session!r} is open: this {act} may undo its edits too"

    def note_head(self, now: str | None) -> Iterator[str]:
        """Note that the HEAD of the user's repository moved during the messages, or since."""
        if not self._over:
            return
        then, moved = self._events.begins[self._over[0].number].git_head, []
        for row in self._over:
            begin, end = self._events.begins[row.number], self._events.ends.get(row.number)
            heads = (None, None) if end is None else (begin.git_head, end.git_head)
            if None not in heads and heads[0] != heads[1]:
                moved.append(row)
                then = heads[1]
        if moved:
            yield f"git HEAD moved during {_name(moved)}"
        if then is not None and now is not None and then != now:
            yield f"git HEAD has moved since then, from {then[:12]} to {now[:12]}"

    def list_uncertain(self, changes: Iterable[Change]) -> list[str]:
        """List the changed paths that the user, and not the messages, may have changed."""
        uncertain = self._find_uncertain()
        return [
            to_text(change.path)
            for change in changes
            if change.path in uncertain and (is_file(change.old) or is_file(change.new))
        ]

    def _find_uncertain(self) -> set[RelPath]:
        """Find the paths that changed in unended messages, after their last finished step."""
        history, found = self._history, set[RelPath]().union(*self._shared.values())
        for message in self._changes:
            if self._events.last_step_of(message.message) is not None:
                continue
            own = {change.path for change in message.changes}
            finished = self._events.finished_steps(message.message)
            if finished:
                last = max(finished, key=lambda end: end.number)
                end = self._events.ends.get(message.message)
                own &= {c.path for c in list_changes(history.tree_after(last), history.tree_after(end))}
            found |= own
        return found


def _find_shared(history: History, undone: Sequence[MessageRow]) -> dict[int, set[RelPath]]:
    """Find by open message of another session which paths both it and messages to undo may have changed."""
    open_now = history.journal.open_messages() if undone else {}
    numbers = [number for session, number in open_now.items() if session != history.session.number]
    if not numbers:
        return {}
    messages = history.changes_of(undone)
    found: dict[int, set[RelPath]] = {}
    for number, begin in MessageEvents(history.journal.events_of(numbers)).begins.items():
        paths = paths_of(message for message in messages if message.number > begin.number)
        if paths and begin.before is not None:
            before = history.open(begin.before)
            found[number] = {path for path in paths if before.find(path) != history.root.find(path)}
    return found


def _name(rows: Sequence[MessageRow]) -> str:
    names = ", ".join(repr(row.id) for row in rows[:_NAMED])
    more = f" and {len(rows) - _NAMED:,} more" if len(rows) > _NAMED else ""
    return f"{'message' if len(rows) == 1 else 'messages'} {names}{more}"
