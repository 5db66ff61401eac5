"""Carry out acts: the one path that all of them share.

    capture ──▶ target ──▶ plan ──▶ verify ──▶ intent ──▶ move ──▶ check ──▶ record ──▶ clean up

Revert, undo, redo, unrevert, switch and restore differ only in their request. If anything fails before the
act is recorded, everything is rolled back; after that, only files that were moved aside remain to be removed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from functools import cache, partial

from shadowtree.base.errors import Conflict, NotConfirmed, PlanOutdated, ShadowError, WorktreeFailed
from shadowtree.base.frozen import replace
from shadowtree.base.interrupts import Cancellation, HeldInterrupts
from shadowtree.base.paths import (
    Change,
    PathState,
    RelPath,
    Unknown,
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
    capture_in_memory,
    scan_again,
    scan_site,
)
from shadowtree.capture.diff import diff_patch
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import RecordedDirectory, list_changes, open_recorded
from shadowtree.capture.rules.git_repository import find_head
from shadowtree.capture.scan import Scan, stamp_uncovered
from shadowtree.capture.size_limits import require_free_space, without_reserve
from shadowtree.results.messages import make_patch
from shadowtree.results.outcomes import Outcome, Plan
from shadowtree.revert.confirmation import needs_confirmation
from shadowtree.revert.contents import Contents, DiskState
from shadowtree.revert.history import History, is_same_place
from shadowtree.revert.intents import ActIntent, Move, order_moves
from shadowtree.revert.moves import carry_out, identify_files
from shadowtree.revert.outcome import (
    Act,
    Attribution,
    Prepared,
    as_untouched,
    describe_position,
    finish,
    foresee,
    name_way_back,
)
from shadowtree.revert.plan import Merger, PathPlan, make_plan
from shadowtree.revert.recover import finish_moves, undo_moves
from shadowtree.revert.requests import Options, Redo, Request, Revert, Undo, Unrevert
from shadowtree.revert.targets import Target, find_target
from shadowtree.revert.writer import Writer
from shadowtree.store.git_format import EMPTY_TREE
from shadowtree.store.objects import Objects, Scratch
from shadowtree.timeline.append import Ending, SessionWriter
from shadowtree.timeline.last_session import LastSession, refuse_ambiguous_session
from shadowtree.timeline.sqlite.schema import HEAD_ONLY, RESTORE, Event, TreeRecord


def run(
    opened: OpenStore,
    site: Site,
    session: str,
    request: Request,
    options: Options,
    time_ms: int,
    cancellation: Cancellation,
) -> Outcome:
    """Do all of an act or nothing. The caller holds the lock.

    Raises NotConfirmed if the user must confirm the act first.
    """
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
        intent = ActIntent(prepared.target.kind, identify_files(moves, writer))
        merged = prepared.contents.verify(intent.moves, taken)
        if not intent.moves:
            with taken.record(act.session_writer.time_s) as record:
                _add_event(act, prepared, [], record, record, None)
            return finish(act, prepared, [], record.tree.hex(), [])
        return _change_files(act, prepared, intent, merged, taken, writer)


def preview(
    opened: OpenStore, site: Site, session: str, request: Request, options: Options, time_ms: int
) -> Plan:
    """Return what an act would do, without changing anything. Needs no lock."""
    act = _start(opened, site, session, request, options, time_ms, Cancellation())
    opened.refresh()
    scan, scratch = scan_site(act.site, opened), Scratch(site.limits.diff_bytes if options.diff else 0)
    with (
        capture_in_memory(act.site, opened, scan, scratch) as (objects, root),
        Writer(act.site.worktree) as writer,
    ):
        prepared = prepare(act, objects, root, scan, writer)
        plan = prepared.to_plan()
        if not options.diff:
            return plan
        for content in prepared.contents.made:
            objects.put(scratch, b"blob", content)
        diff = diff_patch(make_patch(plan.outcome.before, prepared.plan.changes), objects)
        return replace(plan, outcome=replace(plan.outcome, diff=diff))


def plan_nothing(request: Request) -> Plan | None:
    """Plan an act where nothing is recorded; None if it names something, which cannot exist then."""
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
    """Collect what an act of a session needs. The act may use the space that `min_free` reserves."""
    if isinstance(session, LastSession):
        refuse_ambiguous_session(opened.journal, session)
    session_writer = SessionWriter(opened.journal, session, site.settings, time_ms)
    site = replace(site, settings=without_reserve(site.settings))
    git_head = find_head(site.worktree)
    return Act(request, options, opened, site, session_writer, git_head, cancellation)


# Target and plan


def prepare(act: Act, objects: Objects, root: RecordedDirectory, scan: Scan, writer: Writer) -> Prepared:
    """Work out what an act would do to the present state `root`, without changing anything.

    Raises PlanOutdated if the plan is not the one that the caller expects.
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
        notes = [
            *attribution.note_ends(target.kind),
            *attribution.note_open(target.kind, [want.path for want in target.wanted]),
            *attribution.note_head(act.git_head),
        ]
        target = replace(target, notes=[*target.notes, *notes, *_note_unused(act.options, target)])
    contents, present = Contents(objects, writer), DiskState(root, scan, writer)
    if act.options.files:
        merger = Merger(contents, theirs_label=target.kind if act.options.markers else None)
        plan = make_plan(target.wanted, present, merger, act.options)
    else:
        target, plan = _without_files(target, present), PathPlan([], [], [], [])
    outcome = foresee(act, target, plan, root, scan, _list_unprotected(act, target, ending))
    outcome = replace(
        outcome,
        uncertain=attribution.list_uncertain(plan.changes),
        edited=[*outcome.edited, *_list_unrecorded(act, objects, target, plan.changes)],
        **describe_position(act, None if target.is_nothing else target.position),
    )
    is_move = not is_same_place(history.position, target.position)
    back = name_way_back(act, target)
    prepared = Prepared(target, plan, ending, present.uncovered, contents, is_move, back, outcome)
    if act.options.expect not in (None, outcome.id):
        raise PlanOutdated(as_untouched(act, outcome), prepared.to_plan())
    return prepared


def _refuse(act: Act, prepared: Prepared) -> None:
    """Raise if the act has conflicts, or if the user must confirm it first."""
    outcome = prepared.outcome
    if outcome.conflicts:
        raise Conflict(outcome.conflicts, as_untouched(act, outcome))
    if act.options.confirm is not None and needs_confirmation(prepared):
        raise NotConfirmed(as_untouched(act, outcome), plan=prepared.to_plan())


def _note_unused(options: Options, target: Target) -> list[str]:
    """Note the paths in `on_conflict` that the act does not change."""
    return [
        f"no change at {to_text(path)!r}, so the choice for it was not used"
        for path in options.chosen
        if not any(is_among(want.path, {path}) for want in target.wanted)
    ]


def _refuse_unread_rules(target: Target, ending: Ending | None, scan: Scan) -> None:
    """Raise if rules that cannot be read may exclude files that the act would replace or delete.

    The changes of recorded messages do not depend on these rules. What a restore finds does, and so do the
    changes of the open message up to now.
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
    """Make the session record the stamps of files that the scan did not cover."""
    act.session_writer.stamp_uncovered = cache(partial(stamp_uncovered, scan, act.site.worktree))


def _list_unprotected(act: Act, target: Target, ending: Ending | None) -> list[str]:
    """List uncovered files that changed during the messages of an act: the act leaves them alone."""
    request, rows = act.request, target.messages or target.over
    found = act.session_writer.session.unprotected_of([row.number for row in rows])
    if ending is not None and any(row.number == ending.row.number for row in rows):
        found.update(ending.unprotected)
    if isinstance(request, Revert) and request.paths is not None:
        return sorted(path for path in found if is_among(from_text(path), request.paths))
    return sorted(found)


def _list_unrecorded(act: Act, objects: Objects, target: Target, changes: Sequence[Change]) -> list[str]:
    """List the files that a restore would replace and that changed since the last record, in no message.

    A restore expects whatever is there, so these are not conflicts.
    """
    if target.kind != RESTORE or act.session_writer.session.open is not None:
        return []
    record = act.opened.journal.last_tree()
    if record is None:
        return []
    last = open_recorded(objects, record.tree, record.facts)
    return [to_text(c.path) for c in changes if is_file(c.old) and last.find(c.path) != c.old]


def _without_files(target: Target, present: DiskState) -> Target:
    """Return a target that leaves all files alone, and only records what the timeline now expects of them."""
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


def _change_files(
    act: Act, prepared: Prepared, intent: ActIntent, merged: list[bytes], taken: Capture, writer: Writer
) -> Outcome:
    """Record the intent, carry it out, record the act, and clean up; if anything fails before, roll back."""
    require_free_space(act.site.worktree, prepared.contents.bytes_to_write, min_free=0)
    before, number = _add_intent(act, prepared, intent, merged, taken)
    with HeldInterrupts(act.cancellation) as interrupts:
        try:
            made = carry_out(intent.moves, writer, prepared.contents.read, interrupts.check)
            done = replace(intent, moves=made)
            after = _record(act, prepared, done, before, number, taken.scan)
        except BaseException as error:
            _roll_back(act, prepared, number, intent, writer, error)
            raise
        interrupts.is_done = True
        notes, stayed = _clean_up(act, number, done, writer)
        if interrupts.is_pending:
            notes.append("interrupted, but it was already done")
    return finish(act, prepared, made, after, notes, stayed)


def _add_intent(
    act: Act, prepared: Prepared, intent: ActIntent, merged: list[bytes], taken: Capture
) -> tuple[TreeRecord, int]:
    """Record the present state and the intent, before any file is touched; return the record and a number."""
    uncovered = [prepared.uncovered[m.path].blob for m in intent.moves if m.path in prepared.uncovered]
    with taken.record(act.session_writer.time_s, also=[*uncovered, *merged]) as before:
        return before, act.opened.journal.add_intent(intent.encode())


def _record(
    act: Act, prepared: Prepared, done: ActIntent, before: TreeRecord, intent: int, scan: Scan
) -> str:
    """Record the state after the act, and the act, with the moves that were made; return the tree's id."""
    paths = [move.path for move in done.moves]
    changed_bits = [move.path for move in done.moves if move.is_mode_only]
    again = scan_again(act.site, act.opened, scan, paths, changed_bits)
    with capture(act.site, act.opened, scan=again) as taken:
        # Files that the act wrote where no rule covers them are in no tree, but are among its changes.
        uncovered = [move.new for move in done.moves if not _is_covered(taken.scan, move.path)]
        also = [state.blob for state in uncovered if state is not None and state.blob]
        _note_uncovered(act, taken.scan)
        with taken.record(act.session_writer.time_s, also=also) as record:
            _add_event(act, prepared, done.moves, before, record, intent)
            if len(done.moves) < len(prepared.plan.changes):
                # Directories that stayed must not count as gone while the act is cleaned up.
                act.opened.journal.change_intent(intent, done.encode())
    return taken.tree.hex()


def _is_covered(scan: Scan, path: RelPath) -> bool:
    directory = scan.find(parent_of(path))
    return directory is not None and directory.find_file(path.rpartition(b"/")[2]) is not None


def _add_event(
    act: Act,
    prepared: Prepared,
    done: Sequence[Move],
    before: TreeRecord,
    after: TreeRecord,
    intent: int | None,
) -> None:
    """Add the act to the journal, after the end of the message that was open."""
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
    act: Act, prepared: Prepared, number: int, intent: ActIntent, writer: Writer, error: BaseException
) -> None:
    """Undo all moves; add notes on rescued files to the error. If this fails, the next command does it."""
    open_intents = act.opened.journal.open_intents()
    notes: list[str] = []
    if not any(each.number == number and each.is_committed for each in open_intents):
        # The writer may have been interrupted, so the directories that it holds open may be stale.
        with writer.reopen() as fresh:
            done = undo_moves(act.opened, act.site, fresh, number, intent, prepared.contents.read)
        notes = [*done.notes, *([f"everything was put back{done.rest}"] if done.rest else [])]
    if isinstance(error, Conflict):
        outcome = replace(prepared.outcome, conflicts=error.conflicts)
        raise Conflict(error.conflicts, as_untouched(act, outcome, notes)) from error
    for note in notes:
        error.add_note(note)


def _clean_up(
    act: Act, number: int, intent: ActIntent, writer: Writer
) -> tuple[list[str], Collection[RelPath]]:
    """Remove what was moved aside; return notes, and what stays, directories at their paths among it.

    The act is done, so a failure is left to the next command.
    """
    try:
        done = finish_moves(act.opened, act.site, writer, number, intent)
    except ShadowError as error:
        return [f"temporary files could not be removed; the next command removes them: {error}"], ()
    rest = [f"temporary files were removed{done.rest}"] if done.rest else []
    return [*done.notes, *rest], done.left
