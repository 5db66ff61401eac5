"""The main line of every act that writes into the worktree, and what makes good one that was cut off.

    capture ──▶ target ──▶ plan ──▶ verify ──▶ intent ──▶ move ──▶ check ──▶ record ──▶ clean up

Revert, undo, redo, unrevert, switch and restore differ in their request alone. Until the act is recorded,
anything that goes wrong is rolled back; after that, all that is left is to remove what was moved aside.

The intent lists every move. By it the next command rolls back an act that a kill or a power cut interrupted,
or finishes one that is recorded. What somebody saved meanwhile is never lost: the store keeps it, and its
blob is named.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from shadowtree.base.errors import Conflict, NotConfirmed, ShadowError, WorktreeFailed
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.interrupts import Cancellation, HeldInterrupts
from shadowtree.base.paths import (
    DIRECTORY,
    ROOT,
    Change,
    PathState,
    RelPath,
    Unknown,
    ancestors,
    is_among,
    is_file,
    parent_of,
    to_text,
)
from shadowtree.capture.capture import Capture, Site, capture, look, refuse_full, scan_again, scan_site
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import RecordedDirectory, list_changes, open_recorded
from shadowtree.capture.rules.git_repository import find_head
from shadowtree.capture.scan import Scan
from shadowtree.results.outcomes import Outcome, Plan, PlannedChange
from shadowtree.revert.contents import Contents, DiskState
from shadowtree.revert.history import History
from shadowtree.revert.moves import (
    Move,
    carry_out,
    clean_up,
    encode_intent,
    list_left,
    order_moves,
    take_back,
)
from shadowtree.revert.plan import Merger, PathPlan, make_plan
from shadowtree.revert.recover import rescue
from shadowtree.revert.requests import Options, Request, Revert
from shadowtree.revert.targets import Target, find_target
from shadowtree.revert.writer import Writer
from shadowtree.store.objects import Objects
from shadowtree.timeline.append import Ending, SessionWriter
from shadowtree.timeline.position import last_finished, redoable_messages
from shadowtree.timeline.schema import HEAD_ONLY, RESTORE, Event, Position, TreeRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@frozen
class Act:
    """One act: what is requested, and all that it needs from its first step to its last."""

    request: Request
    options: Options
    opened: OpenStore
    site: Site
    session_writer: SessionWriter
    git_head: str | None
    """Where the user's repository stands now."""
    cancellation: Cancellation


@frozen
class Prepared:
    """An act worked out and not done."""

    target: Target
    plan: PathPlan
    ending: Ending | None
    uncovered: dict[RelPath, PathState]
    contents: Contents
    outcome: Outcome
    """What it would come to."""

    def to_plan(self) -> Plan:
        """Return it as the value that callers see."""
        return Plan(self.outcome, [_show_change(change) for change in self.plan.changes])


def start_act(
    opened: OpenStore,
    site: Site,
    session: str,
    request: Request,
    options: Options,
    time_ms: int,
    cancellation: Cancellation,
) -> Act:
    """Gather what an act of a session needs."""
    session_writer = SessionWriter(opened.journal, session, site.settings, time_ms)
    return Act(request, options, opened, site, session_writer, find_head(site.worktree), cancellation)


def run(act: Act) -> Outcome:
    """Do an act, all of it or nothing. Only for the holder of the lock."""
    with (
        capture(act.site, act.opened, progress=act.cancellation.heed()) as taken,
        Writer(act.site.worktree, act.site.limits.unwritten_bytes) as writer,
    ):
        root = taken.publish()
        prepared = prepare(act, act.opened.objects, root, taken.scan, writer)
        if prepared.target.is_nothing:
            taken.abandon()
            return replace(prepared.outcome, dry_run=False)
        _refuse(act, prepared)
        act.cancellation.check()
        moves = order_moves(prepared.plan.changes, os.urandom(6).hex())
        merged = prepared.contents.verify(moves, taken)
        if not moves:
            with taken.record(act.session_writer.time_s) as record:
                _add_event(act, prepared, [], record, record, None)
            return _finish(act, prepared.outcome, [], record.tree.hex(), [])
        refuse_full(act.site.worktree, prepared.contents.bytes_to_write, act.site.settings)
        before, intent = _add_intent(act, prepared, moves, merged, taken)
        with HeldInterrupts(act.cancellation) as interrupts:
            try:
                done = carry_out(moves, writer, prepared.contents.read, interrupts.check)
                after = _record(act, prepared, done, before, intent, taken.scan)
            except BaseException as error:
                _roll_back(act, prepared, moves, intent, writer, error)
                raise
            notes = _clean_up(act, moves, intent, writer)
            if interrupts.is_pending:
                notes.append("interrupted when it was done already")
        return _finish(act, prepared.outcome, done, after, notes)


def preview(
    opened: OpenStore, site: Site, session: str, request: Request, options: Options, time_ms: int
) -> Plan:
    """Work out what an act would do, and change nothing. Needs no lock."""
    act = start_act(opened, site, session, request, options, time_ms, Cancellation())
    opened.refresh()
    scan = scan_site(act.site, act.opened)
    with look(act.site, act.opened, scan) as (objects, root), Writer(act.site.worktree) as writer:
        return prepare(act, objects, root, scan, writer).to_plan()


def prepare(act: Act, objects: Objects, root: RecordedDirectory, scan: Scan, writer: Writer) -> Prepared:
    """Work out what an act would do to the present state, which `root` is. Changes nothing."""
    session_writer, contents = act.session_writer, Contents(objects, writer)
    ending = session_writer.prepare_ending(
        lambda record: list_changes(open_recorded(objects, record.tree, record.facts), root)
    )
    target = find_target(act.request, History(objects, session_writer.session, root, ending))
    _refuse_unread_rules(target, ending, scan)
    target = replace(target, notes=[*target.notes, *_note_head(act, target)])
    present = DiskState(root, scan, writer)
    if act.options.files:
        merger = Merger(contents, theirs_label=target.kind if act.options.markers else None)
        plan = make_plan(target.wanted, present, merger, act.options.on_conflict)
    else:
        target, plan = _without_files(target, present), PathPlan([], [], [], [])
    outcome = _foresee(act, target, plan, root, scan)
    return Prepared(target, plan, ending, present.uncovered, contents, outcome)


def _refuse_unread_rules(target: Target, ending: Ending | None, scan: Scan) -> None:
    """Stop an act where rules that cannot be read may leave out what it would replace or delete.

    What recorded messages did does not depend on them; what a restore finds, and what the message that is
    open did up to now, does.
    """
    rules = scan.rule_files.unread
    if not rules:
        return
    found = [
        want.path
        for want in target.wanted
        if isinstance(want.expected, PathState) and not isinstance(want.target, Unknown)
    ]
    if target.kind != RESTORE:
        open_now = set() if ending is None else {change.path for change in ending.changes}
        found = [path for path in found if path in open_now]
    for directory, file in rules.items():
        if any(is_among(path, {directory}) for path in found):
            raise WorktreeFailed(file, "its rules cannot be read, and may leave out files that would change")


def _refuse(act: Act, prepared: Prepared) -> None:
    """Stop an act with conflicts, or one that deletes much and is not confirmed."""
    outcome, confirm = replace(prepared.outcome, dry_run=False), act.options.confirm
    if outcome.conflicts:
        raise Conflict(outcome.conflicts, _as_untouched(act, outcome))
    is_much = 2 * len(outcome.deleted) > outcome.covered
    is_restore = prepared.target.kind == RESTORE and bool(prepared.plan.changes)
    if (is_much or is_restore) and confirm is not None and not confirm(prepared.to_plan()):
        raise NotConfirmed(replace(outcome, complete=False, **_describe_position(act)))


def _add_intent(
    act: Act, prepared: Prepared, moves: list[Move], merged: list[bytes], taken: Capture
) -> tuple[TreeRecord, int]:
    """Record the present state and all moves, before the first file is touched; number the intent."""
    uncovered = [prepared.uncovered[move.path].blob for move in moves if move.path in prepared.uncovered]
    with taken.record(act.session_writer.time_s, also=[*uncovered, *merged]) as before:
        return before, act.opened.journal.add_intent(encode_intent(prepared.target.kind, moves))


def _record(
    act: Act, prepared: Prepared, done: list[Move], before: TreeRecord, intent: int, scan: Scan
) -> str:
    """Record the state after the act, and the act; return the tree's id."""
    touched = {ROOT, *(above for move in done for above in ancestors(move.path))}
    touched |= {move.path for move in done if DIRECTORY in (move.old, move.new)}
    with capture(act.site, act.opened, scan=scan_again(act.site, act.opened, scan, touched)) as taken:
        # What the act put where no rule covers it is in no tree, but part of what it changed.
        uncovered = [move.new for move in done if not _is_covered(taken.scan, move.path)]
        also = [state.blob for state in uncovered if state is not None and state.blob]
        with taken.record(act.session_writer.time_s, also=also) as record:
            _add_event(act, prepared, done, before, record, intent)
    return taken.tree.hex()


def _is_covered(scan: Scan, path: RelPath) -> bool:
    directory = scan.find(parent_of(path))
    return directory is not None and directory.find_file(path.rpartition(b"/")[2]) is not None


def _add_event(
    act: Act, prepared: Prepared, done: list[Move], before: TreeRecord, after: TreeRecord, intent: int | None
) -> None:
    """Add the act to the journal, and before that the end of the message that was open."""
    if prepared.ending is not None:
        act.session_writer.add_ending(prepared.ending, before, (), is_inferred=True)
    merged = {change.path for change in prepared.plan.changes if change.is_merged}
    event = Event(
        0,
        0,
        prepared.target.kind if act.options.files else HEAD_ONLY,
        position=prepared.target.position,
        before=before.number,
        after=after.number,
        git_head=act.git_head,
        takes_back=prepared.target.takes_back,
    )
    changes = [Change(move.path, move.old, move.new, move.path in merged) for move in done]
    act.session_writer.add_act(event, [*changes, *prepared.plan.agreed, *prepared.target.noted], intent)


def _roll_back(
    act: Act, prepared: Prepared, moves: list[Move], intent: int, writer: Writer, error: BaseException
) -> None:
    """Undo all moves, and add to the error what was rescued. If that fails too, the next command does it."""
    open_intents = act.opened.journal.open_intents()
    notes: list[str] = []
    if not any(each.number == intent and each.is_committed for each in open_intents):
        # Where the writer believes to be may be wrong: it was perhaps interrupted.
        with writer.reopen() as fresh:
            take_back(moves, fresh, prepared.contents.read)
            notes = rescue(act.opened, act.site, fresh, list_left(moves, fresh))
            is_whole = all(fresh.list_names(parent_of(move.temporary)) is not None for move in moves)
        # Else a directory is out of reach, swapped for a link perhaps: the next command tries again.
        if is_whole:
            act.opened.journal.remove_intent(intent)
    if isinstance(error, Conflict):
        outcome = replace(prepared.outcome, conflicts=error.conflicts)
        raise Conflict(error.conflicts, _as_untouched(act, outcome, notes)) from error
    for note in notes:
        error.add_note(note)


def _clean_up(act: Act, moves: list[Move], intent: int, writer: Writer) -> list[str]:
    """Remove what was moved aside. The act is done, so whatever fails is left to the next command."""
    try:
        notes = rescue(act.opened, act.site, writer, clean_up(moves, writer))
        act.opened.journal.remove_intent(intent)
    except ShadowError as error:
        return [f"temporary files are still there, the next command removes them: {error}"]
    return notes


# Outcomes


def _foresee(act: Act, target: Target, plan: PathPlan, root: RecordedDirectory, scan: Scan) -> Outcome:
    """Return what an act would do to paths and messages."""
    assert root.tree is not None
    tree, changes = root.tree.hex(), plan.changes
    return Outcome(
        act=target.kind,
        messages=[row.id for row in target.messages],
        redone=[row.id for row in target.redone],
        restored=[to_text(change.path) for change in changes if is_file(change.new)],
        deleted=[to_text(c.path) for c in changes if is_file(c.old) and not is_file(c.new)],
        kept=[to_text(path) for path in plan.kept],
        conflicts=plan.conflicts,
        skipped=plan.skipped,
        before=tree,
        after=tree,
        complete=not (plan.conflicts or plan.skipped or plan.marked or target.is_short),
        dry_run=True,
        mode="only" if isinstance(act.request, Revert) and act.request.only else "back",
        notes=target.notes,
        turns=target.turns,
        covered=scan.files,
        merged=[to_text(change.path) for change in changes if change.is_merged and is_file(change.new)],
        marked=[to_text(path) for path in plan.marked],
        **_describe_position(act, None if target.is_nothing else target.position),
    )


def _describe_position(
    act: Act, position: Position | None = None
) -> dict[str, Any]:  # Any: fields of an outcome
    """Name the head and what can be redone; None: as the session stands."""
    session = act.session_writer.session
    position = position or session.position
    head = last_finished(position, session.find)
    undone = [row.id for row in redoable_messages(position, session.find)]
    return {"head": None if head is None else head.id, "undone": undone}


def _note_head(act: Act, target: Target) -> list[str]:
    """Note that the user's repository was elsewhere at the first of the messages."""
    then = None if target.first is None else act.session_writer.git_head_of(target.first)
    if then is None or act.git_head is None or then == act.git_head:
        return []
    return [f"the repository's HEAD moved since: it was {then[:12]}, it is {act.git_head[:12]}"]


def _without_files(target: Target, present: DiskState) -> Target:
    """Leave every file alone, record what the timeline expects of it from now on, and note what differs."""
    wanted = [want for want in target.wanted if not isinstance(want.target, Unknown)]
    noted = [
        Change(want.path, want.expected, want.target)
        for want in wanted
        if not isinstance(want.expected, Unknown)
    ]
    if target.is_nothing:
        return replace(target, noted=noted)
    differing = [want for want in wanted if present.state_of(want.path) != want.target]
    files = sum(is_file(want.target) or is_file(want.expected) for want in differing)
    differ = "1 file differs" if files == 1 else f"{files:,} files differ"
    rest = f", and {differ} now from what the timeline says" if files else ""
    return replace(target, noted=noted, notes=[*target.notes, f"no file was touched{rest}"])


def _as_untouched(act: Act, outcome: Outcome, notes: Sequence[str] = ()) -> Outcome:
    """Return the outcome of an act that did nothing."""
    return replace(
        outcome,
        notes=[*outcome.notes, *notes],
        messages=[],
        redone=[],
        restored=[],
        deleted=[],
        kept=[],
        merged=[],
        marked=[],
        after=outcome.before,
        complete=False,
        **_describe_position(act),
    )


def _finish(act: Act, outcome: Outcome, done: list[Move], after: str, notes: list[str]) -> Outcome:
    """Return the outcome of an act that was done, with notes on directories and branches."""
    made = sum(move.new == DIRECTORY for move in done)
    gone = sum(move.is_leaving for move in done)
    counts = [
        f"{count:,} {'directory was' if count == 1 else 'directories were'} {verb}"
        for count, verb in ((made, "made"), (gone, "removed"))
        if count
    ]
    notes = [*outcome.notes, *counts, *notes, *act.session_writer.warnings]
    return replace(outcome, after=after, dry_run=False, notes=notes)


def _show_change(change: Change) -> PlannedChange:
    old, new = (side if isinstance(side, PathState) else None for side in (change.old, change.new))
    return PlannedChange(
        to_text(change.path),
        old.blob.hex() if old is not None and old.blob else None,
        new.blob.hex() if new is not None and new.blob else None,
        None if old is None else old.mode,
        None if new is None else new.mode,
    )
