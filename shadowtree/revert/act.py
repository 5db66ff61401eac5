"""The main line of every act that writes into the worktree.

    capture ──▶ target ──▶ plan ──▶ verify ──▶ intent ──▶ move ──▶ check ──▶ record ──▶ clean up

Revert, undo, redo, unrevert, switch and restore differ in their request alone. Until the act is recorded,
anything that goes wrong is rolled back; after that, all that is left is to remove what was moved aside.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, partial

from shadowtree.base.errors import Conflict, NotConfirmed, PlanOutdated, ShadowError, WorktreeFailed
from shadowtree.base.frozen import replace
from shadowtree.base.interrupts import Cancellation, HeldInterrupts
from shadowtree.base.paths import (
    DIRECTORY,
    ROOT,
    Change,
    PathState,
    RelPath,
    Unknown,
    ancestors,
    from_text,
    is_among,
    is_file,
    parent_of,
    to_text,
)
from shadowtree.capture.capture import (
    Capture,
    Site,
    capture,
    look,
    refuse_full,
    scan_again,
    scan_site,
    without_reserve,
)
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import RecordedDirectory, diff_patch, list_changes, open_recorded
from shadowtree.capture.rules.git_repository import find_head
from shadowtree.capture.scan import Scan, stamp_uncovered
from shadowtree.results.messages import make_patch
from shadowtree.results.outcomes import Outcome, Plan
from shadowtree.revert.confirmation import needs_confirmation
from shadowtree.revert.contents import Contents, DiskState
from shadowtree.revert.history import History, is_same_place
from shadowtree.revert.moves import (
    Move,
    carry_out,
    clean_up,
    encode_intent,
    list_left,
    order_moves,
    roll_back,
)
from shadowtree.revert.outcome import (
    Act,
    Attribution,
    Prepared,
    as_untouched,
    describe_position,
    finish,
    foresee,
)
from shadowtree.revert.plan import Merger, PathPlan, make_plan
from shadowtree.revert.recover import rescue
from shadowtree.revert.requests import Options, Redo, Request, Revert, Undo, Unrevert
from shadowtree.revert.targets import Target, find_target
from shadowtree.revert.writer import Writer
from shadowtree.store.git_format import EMPTY_TREE
from shadowtree.store.objects import Objects, Scratch
from shadowtree.timeline.append import Ending, SessionWriter
from shadowtree.timeline.resolve import LastSession, refuse_open_elsewhere
from shadowtree.timeline.schema import HEAD_ONLY, RESTORE, Event, TreeRecord


def run(
    opened: OpenStore,
    site: Site,
    session: str,
    request: Request,
    options: Options,
    time_ms: int,
    cancellation: Cancellation,
) -> Outcome:
    """Do an act, all of it or nothing. Only for the holder of the lock."""
    act = _start(opened, site, session, request, options, time_ms, cancellation)
    with (
        capture(act.site, opened, progress=cancellation.heed()) as taken,
        Writer(act.site.worktree, act.site.limits.unwritten_bytes) as writer,
    ):
        prepared = prepare(act, opened.objects, taken.publish(), taken.scan, writer)
        if prepared.target.is_nothing:
            taken.abandon()
            return replace(prepared.outcome, dry_run=False)
        _refuse(act, prepared)
        cancellation.check()
        moves = order_moves(prepared.plan.changes, os.urandom(6).hex())
        merged = prepared.contents.verify(moves, taken)
        if not moves:
            with taken.record(act.session_writer.time_s) as record:
                _add_event(act, prepared, [], record, record, None)
            return finish(act, prepared, [], record.tree.hex(), [])
        refuse_full(act.site.worktree, prepared.contents.bytes_to_write, act.site.settings)
        before, intent = _add_intent(act, prepared, moves, merged, taken)
        with HeldInterrupts(cancellation) as interrupts:
            try:
                done = carry_out(moves, writer, prepared.contents.read, interrupts.check)
                after = _record(act, prepared, done, before, intent, taken.scan)
            except BaseException as error:
                _roll_back(act, prepared, moves, intent, writer, error)
                raise
            notes = _clean_up(act, moves, intent, writer)
            if interrupts.is_pending:
                notes.append("interrupted, but it was already done")
        return finish(act, prepared, done, after, notes)


def preview(
    opened: OpenStore, site: Site, session: str, request: Request, options: Options, time_ms: int
) -> Plan:
    """Work out what an act would do, and change nothing. Needs no lock."""
    act = _start(opened, site, session, request, options, time_ms, Cancellation())
    opened.refresh()
    scan, scratch = scan_site(act.site, opened), Scratch(site.limits.diff_bytes if options.diff else 0)
    with look(act.site, opened, scan, scratch) as (objects, root), Writer(act.site.worktree) as writer:
        prepared = prepare(act, objects, root, scan, writer)
        plan = prepared.to_plan()
        if not options.diff:
            return plan
        for content in prepared.contents.made:
            objects.put(scratch, b"blob", content)
        diff = diff_patch(make_patch(plan.outcome.before, prepared.plan.changes), objects)
        return replace(plan, outcome=replace(plan.outcome, diff=diff))


def plan_nothing(request: Request) -> Plan | None:
    """Plan an act where nothing is recorded; None: it names something, which cannot be there."""
    if not isinstance(request, Undo | Redo | Unrevert):
        return None
    kind, tree = type(request).__name__.lower(), EMPTY_TREE.hex()
    turns = None if isinstance(request, Unrevert) else 0
    notes = [f"nothing to {kind}"]
    return Plan(Outcome(kind, [], [], [], [], [], [], tree, tree, True, True, "back", notes, turns), [])


def _start(
    opened: OpenStore,
    site: Site,
    session: str,
    request: Request,
    options: Options,
    time_ms: int,
    cancellation: Cancellation,
) -> Act:
    """Gather what an act of a session needs. It may use the room that `min_free` keeps."""
    if isinstance(session, LastSession):
        refuse_open_elsewhere(opened.journal, session)
    session_writer = SessionWriter(opened.journal, session, site.settings, time_ms)
    git_head, site = find_head(site.worktree), without_reserve(site)
    return Act(request, options, opened, site, session_writer, git_head, cancellation)


# Target and plan


def prepare(act: Act, objects: Objects, root: RecordedDirectory, scan: Scan, writer: Writer) -> Prepared:
    """Work out what an act would do to the present state, which `root` is. Changes nothing.

    PlanOutdated if that is not what the caller expects.
    """
    _note_uncovered(act, scan)
    ending = act.session_writer.prepare_ending(
        lambda record, until: list_changes(
            open_recorded(objects, record.tree, record.facts),
            root if until is None else open_recorded(objects, until.tree, until.facts),
        ),
        is_inferred=True,
    )
    history = History(objects, act.session_writer.session, root, ending)
    target = find_target(act.request, history)
    _refuse_unread_rules(target, ending, scan)
    attribution = Attribution(history, target.over, target.undone)
    if not target.is_nothing:
        notes = [*attribution.note_ends(target.kind), *attribution.note_head(act.git_head)]
        target = replace(target, notes=[*target.notes, *notes, *_note_unused(act.options, target)])
    contents, present = Contents(objects, writer), DiskState(root, scan, writer)
    if act.options.files:
        merger = Merger(contents, theirs_label=target.kind if act.options.markers else None)
        plan = make_plan(target.wanted, present, merger, act.options)
    else:
        target, plan = _without_files(target, present), PathPlan([], [], [], [])
    outcome = foresee(act, target, plan, root, scan)
    outcome = replace(
        outcome,
        unprotected=_list_unprotected(act, target, ending),
        uncertain=attribution.list_uncertain(plan.changes),
        edited=[*outcome.edited, *_list_unrecorded(act, objects, target, plan.changes)],
        **describe_position(act, None if target.is_nothing else target.position),
    )
    is_move = not is_same_place(history.position, target.position)
    prepared = Prepared(target, plan, ending, present.uncovered, contents, is_move, outcome)
    if act.options.expect not in (None, outcome.id):
        raise PlanOutdated(as_untouched(act, outcome), prepared.to_plan())
    return prepared


def _refuse(act: Act, prepared: Prepared) -> None:
    """Stop an act that is in conflict, or that the user has to confirm and does not."""
    outcome, confirm = prepared.outcome, act.options.confirm
    if outcome.conflicts:
        raise Conflict(outcome.conflicts, as_untouched(act, outcome))
    if confirm is not None and needs_confirmation(prepared) and not confirm(prepared.to_plan()):
        raise NotConfirmed(as_untouched(act, outcome), plan=prepared.to_plan())


def _note_unused(options: Options, target: Target) -> list[str]:
    """Note the paths that the caller chose something for, and that the act does not change."""
    return [
        f"on_conflict names {to_text(path)!r}, but nothing changes there"
        for path in options.chosen
        if not any(is_among(want.path, {path}) for want in target.wanted)
    ]


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
            raise WorktreeFailed(
                file, "its ignore rules cannot be read, and they may exclude files that would change"
            )


def _note_uncovered(act: Act, scan: Scan) -> None:
    """Let the session record the state of the files that a scan did not cover."""
    act.session_writer.stamp_uncovered = cache(partial(stamp_uncovered, scan, act.site.worktree))


def _list_unprotected(act: Act, target: Target, ending: Ending | None) -> list[str]:
    """List the files that the messages of an act changed and no snapshot covers: they are left alone."""
    request, rows = act.request, target.messages or target.over
    found = act.session_writer.session.unprotected_of([row.number for row in rows])
    if ending is not None and any(row.number == ending.row.number for row in rows):
        found.update(ending.unprotected)
    if isinstance(request, Revert) and request.paths is not None:
        return sorted(path for path in found if is_among(from_text(path), request.paths))
    return sorted(found)


def _list_unrecorded(act: Act, objects: Objects, target: Target, changes: Sequence[Change]) -> list[str]:
    """List what a restore would replace of files that changed since the last record, in no message.

    Whatever is there is expected by a restore, so these are no conflicts.
    """
    if target.kind != RESTORE or act.session_writer.session.open is not None:
        return []
    record = act.opened.journal.last_tree()
    if record is None:
        return []
    last = open_recorded(objects, record.tree, record.facts)
    return [to_text(c.path) for c in changes if is_file(c.old) and last.find(c.path) != c.old]


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
    differ = "1 file now differs" if files == 1 else f"{files:,} files now differ"
    rest = f"; {differ} from the timeline" if files else ""
    return replace(target, noted=noted, notes=[*target.notes, f"no files were changed{rest}"])


# Doing it


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
        _note_uncovered(act, taken.scan)
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
        act.session_writer.add_ending(prepared.ending, before, (), act.git_head, is_inferred=True)
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
        part_of=prepared.target.part_of if done else None,
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
            roll_back(moves, fresh, prepared.contents.read)
            notes = rescue(act.opened, act.site, fresh, list_left(moves, fresh))
            is_whole = all(fresh.list_names(parent_of(move.temporary)) is not None for move in moves)
        # Else a directory is out of reach, swapped for a link perhaps: the next command tries again.
        if is_whole:
            act.opened.journal.remove_intent(intent)
    if isinstance(error, Conflict):
        outcome = replace(prepared.outcome, conflicts=error.conflicts)
        raise Conflict(error.conflicts, as_untouched(act, outcome, notes)) from error
    for note in notes:
        error.add_note(note)


def _clean_up(act: Act, moves: list[Move], intent: int, writer: Writer) -> list[str]:
    """Remove what was moved aside. The act is done, so whatever fails is left to the next command."""
    try:
        notes = rescue(act.opened, act.site, writer, clean_up(moves, writer))
        act.opened.journal.remove_intent(intent)
    except ShadowError as error:
        return [f"temporary files could not be removed; the next command removes them: {error}"]
    return notes
