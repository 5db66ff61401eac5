"""The main line of every act that writes into the worktree.

    take the present state ──▶ aim ──▶ plan ──▶ verify every object ──▶ write the intent
        ──▶ carry out ──▶ record the act ──▶ clean up

Revert, undo, redo, unrevert, switch and restore differ in their aim alone. Until the act is recorded,
anything that goes wrong takes everything back; after that, all that is left is to remove what was moved
aside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import time

from shadowtree.aims import Aim, Aims
from shadowtree.apply import Move, carry_out, clean_up, list_left, order_moves, take_back
from shadowtree.arguments import Manner
from shadowtree.blobs import Blobs, read_content
from shadowtree.capture import Site, capture, refuse_full
from shadowtree.errors import (
    Conflict,
    ForgottenMessage,
    NotConfirmed,
    ShadowError,
    StoreDamaged,
    WorktreeFailed,
)
from shadowtree.events import HEAD_ONLY, RESTORE, Position, TreeRecord
from shadowtree.frozen import frozen, replace
from shadowtree.intents import decode_intent, encode_intent
from shadowtree.interrupts import Cancellation, HeldInterrupts
from shadowtree.merging import Merging
from shadowtree.objects import Objects
from shadowtree.opened import OpenStore
from shadowtree.outcome import Outcome, Plan, PlannedChange
from shadowtree.patch import list_changes
from shadowtree.paths import ROOT, RelPath, ancestors, parent_of, to_text
from shadowtree.plan import PathPlan, make_plan
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.scan import Scan
from shadowtree.scribe import Ending, Scribe
from shadowtree.sight import DiskSight
from shadowtree.staging import Bench
from shadowtree.state import DIRECTORY, Change, PathState, Unknown, is_file
from shadowtree.timeline import in_force, redoable_messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.worktree import FileStamp

Choose = Callable[[Aims], Aim]
"""Says which act it is."""
Confirm = Callable[[Plan], bool]
"""Asks whether an act that deletes much shall be done."""


@frozen
class Prepared:
    """An act worked out and not done."""

    aim: Aim
    plan: PathPlan
    ending: Ending | None
    uncovered: dict[RelPath, PathState]
    made: dict[bytes, bytes]
    """Contents that came of merging, by their ids."""
    outcome: Outcome
    """What it would come to."""
    has_files: bool = True
    """Otherwise only the head moves."""

    def to_plan(self) -> Plan:
        """Give it as the value that a caller sees."""
        return Plan(self.outcome, [_show_change(change) for change in self.plan.changes])


def prepare(
    scribe: Scribe,
    objects: Objects,
    root: RecordedDirectory,
    bench: Bench,
    choose: Choose,
    manner: Manner,
    *,
    scan: Scan,
    git_head: str | None,
) -> Prepared:
    """Work out what an act would do to the present state, which `root` is. Changes nothing."""
    journal = scribe.journal

    def changes_since(before: int) -> list[Change]:
        record = journal.tree(before)
        return list_changes(open_recorded(objects, record.tree, record.facts), root)

    ending = scribe.prepare_ending(changes_since)
    aim = choose(Aims(journal, objects, scribe.session, root, ending))
    sight = DiskSight(root, bench, scan.find, scan.rule_files.tombstones)
    merging = Merging(read_content(objects, bench), theirs_label=aim.kind if manner.has_markers else None)
    if manner.has_files:
        with _telling_forgotten(aim, objects):
            plan = make_plan(aim.wishes, sight, merging, manner.on_conflict)
    else:
        aim, plan = _without_files(aim), PathPlan([], [], [], [])
    outcome = _foresee(scribe, aim, plan, root, scan.files)
    notes = [*_tell_head(scribe, aim, git_head), *_tell_rest(aim, sight, manner)]
    outcome = replace(outcome, notes=[*outcome.notes, *notes])
    return Prepared(aim, plan, ending, sight.uncovered, merging.made, outcome, manner.has_files)


def run(
    opened: OpenStore,
    site: Site,
    scribe: Scribe,
    choose: Choose,
    manner: Manner,
    confirm: Confirm | None,
    *,
    git_head: str | None,
    cancellation: Cancellation,
) -> Outcome:
    """Do an act, all of it or nothing. Only for the holder of the lock."""
    progress = cancellation.heed()
    with capture(site, opened, progress=progress) as taken, Bench(site.worktree) as bench:
        root = taken.publish(scribe.time_s)
        prepared = prepare(
            scribe,
            opened.objects,
            root,
            bench,
            choose,
            manner,
            scan=taken.scan,
            git_head=git_head,
        )
        if prepared.aim.is_nothing:
            taken.abandon()
            return replace(prepared.outcome, dry_run=False)
        _refuse(prepared, scribe, confirm)
        cancellation.check()
        moves = order_moves(prepared.plan.changes, os.urandom(6).hex())
        blobs = Blobs(opened.objects, prepared.made)
        with _telling_forgotten(prepared.aim, opened.objects):
            blobs.verify(moves, bench, taken)
        if not moves:
            with taken.record(scribe.time_s) as record:
                _add_act(scribe, prepared, [], record, record, None)
            return _with_warnings(_finish(prepared.outcome, [], record.tree.hex()), scribe)
        refuse_full(site.worktree, blobs.bytes_to_write, site.settings)
        planned = {change.path for change in prepared.plan.changes}
        also = [state.blob for path, state in prepared.uncovered.items() if path in planned]
        also += blobs.put_made(taken)
        with taken.record(scribe.time_s, also=also) as before:
            intent = opened.journal.add_intent(encode_intent(prepared.aim.kind, moves))
        act = _Act(opened, site, scribe, prepared, bench, blobs, cancellation)
        return act.run(moves, intent, before)


class _Act:
    """One act, from its intent on."""

    def __init__(
        self,
        opened: OpenStore,
        site: Site,
        scribe: Scribe,
        prepared: Prepared,
        bench: Bench,
        blobs: Blobs,
        cancellation: Cancellation,
    ) -> None:
        self._opened = opened
        self._site = site
        self._scribe = scribe
        self._prepared = prepared
        self._bench = bench
        self._blobs = blobs
        self._cancellation = cancellation

    def run(self, moves: list[Move], intent: int, before: TreeRecord) -> Outcome:
        """Carry it out and record it; whatever goes wrong until then takes everything back."""
        with HeldInterrupts(self._cancellation) as interrupts:
            try:
                carried = carry_out(moves, self._bench, self._blobs.read, interrupts.check)
                after = self._record(carried.moves, intent, before)
            except BaseException as error:
                notes = self._give_up(moves, intent)
                if isinstance(error, Conflict):
                    outcome = replace(self._prepared.outcome, conflicts=error.conflicts)
                    raise Conflict(error.conflicts, _as_untouched(outcome, self._scribe, notes)) from error
                for note in notes:
                    error.add_note(note)
                raise
            notes = self._finish(moves, intent, carried.aside)
            if interrupts.is_pending:
                notes.append("interrupted when it was done already")
        outcome = _finish(self._prepared.outcome, carried.moves, after)
        return _with_warnings(replace(outcome, notes=[*outcome.notes, *notes]), self._scribe)

    def _record(self, done: list[Move], intent: int, before: TreeRecord) -> str:
        touched = {ROOT, *(above for move in done for above in ancestors(move.path))}
        touched |= {move.path for move in done if DIRECTORY in (move.old, move.new)}
        with capture(self._site, self._opened, only=touched) as taken:
            # What the act put where no rule covers it is in no tree, but part of what it changed.
            written = ((move.path, move.new) for move in done if isinstance(move.new, PathState))
            also = [new.blob for path, new in written if new.blob and not _is_covered(taken.scan, path)]
            with taken.record(self._scribe.time_s, also=also) as record:
                _add_act(self._scribe, self._prepared, done, before, record, intent)
        return taken.tree.hex()

    def _finish(self, moves: list[Move], intent: int, known: Mapping[RelPath, FileStamp]) -> list[str]:
        """Remove what was moved aside. The act is done, so whatever fails is left to the next command."""
        try:
            return finish_intent(self._opened, self._site, self._bench, moves, intent, known)
        except ShadowError as error:
            return [f"temporary files are still there, the next command removes them: {error}"]

    def _give_up(self, moves: list[Move], intent: int) -> list[str]:
        """Take everything back; say what was rescued. If that fails too, the next command does it."""
        open_intents = self._opened.journal.open_intents()
        if any(each.number == intent and each.is_committed for each in open_intents):
            return []
        # Nothing counts that a bench believes which may have been interrupted.
        with self._bench.again() as bench:
            take_back(moves, bench, self._blobs.read)
            notes = rescue(self._opened, self._site, bench, list_left(moves, bench))
            is_whole = all(bench.list_names(parent_of(move.temporary)) is not None for move in moves)
        if is_whole:
            self._opened.journal.remove_intent(intent)
        # Else a directory is out of reach, swapped for a link perhaps: the next command tries again.
        return notes


def _is_covered(scan: Scan, path: RelPath) -> bool:
    directory = scan.find(parent_of(path))
    return directory is not None and directory.find_file(path.rpartition(b"/")[2]) is not None


def recover(opened: OpenStore, site: Site) -> list[str]:
    """Finish or take back what a process that died left undone; say what was done. Only under the lock."""
    notes = []
    for intent in opened.journal.open_intents():
        kind, moves = decode_intent(intent.content)
        with Bench(site.worktree) as bench:
            if intent.is_committed:
                notes.append(f"an interrupted {kind} was finished")
                notes += finish_intent(opened, site, bench, moves, intent.number)
            else:
                notes.append(f"an interrupted {kind} was taken back")
                notes += _take_back_intent(opened, site, bench, moves, intent.number)
    return notes


def _take_back_intent(
    opened: OpenStore, site: Site, bench: Bench, moves: list[Move], intent: int
) -> list[str]:
    left = take_back(moves, bench, Blobs(opened.objects).read)
    notes = rescue(opened, site, bench, list_left(moves, bench))
    opened.journal.remove_intent(intent)
    paths = ", ".join(to_text(path) for path in sorted(left))
    return [*notes, f"changed meanwhile and left as they are: {paths}"] if left else notes


def finish_intent(
    opened: OpenStore,
    site: Site,
    bench: Bench,
    moves: list[Move],
    intent: int,
    known: Mapping[RelPath, FileStamp] | None = None,
) -> list[str]:
    """Remove what a recorded act moved aside, and then the intent; say what was rescued."""
    notes = rescue(opened, site, bench, clean_up(moves, bench, known))
    opened.journal.remove_intent(intent)
    return notes


def rescue(opened: OpenStore, site: Site, bench: Bench, places: Collection[RelPath]) -> list[str]:
    """Put what somebody wrote to files that had been moved aside into the store, and say where it is.

    A program may save to a file in the very moment in which it is swapped, and once more right after. The
    later version is at the path then; the earlier one would only be in a temporary.
    """
    files = [place for place in places if is_file(bench.see(place))]
    if not files:
        return []
    blobs: dict[RelPath, bytes] = {}
    with capture(site, opened) as taken:
        for place in files:
            size, pieces = bench.open_content(place)
            blobs[place] = taken.put_stream(size, pieces)
        with taken.record(int(time()), also=list(blobs.values())):
            pass
    for place, blob in blobs.items():
        found = bench.see(place, is_settled=True)
        if not isinstance(found, PathState) or found.blob != blob:
            raise WorktreeFailed(to_text(place), "it is being written")
        bench.remove(place)
    return [f"a version saved meanwhile is in the store as blob {blob.hex()}" for blob in blobs.values()]


@contextmanager
def _telling_forgotten(aim: Aim, objects: Objects) -> Iterator[None]:
    """Name the forgotten message on the way of which something is missing: it is gone, not damaged."""
    try:
        yield
    except StoreDamaged as error:
        for blob, row in aim.forgotten.items():
            if row.forgotten_ms is not None and not objects.prove(blob):
                raise ForgottenMessage(row.id, row.forgotten_ms, is_on_way=True) from error
        raise


# Outcomes


def _foresee(scribe: Scribe, aim: Aim, plan: PathPlan, root: RecordedDirectory, covered: int) -> Outcome:
    """Say what an act would come to."""
    assert root.tree is not None
    tree = root.tree.hex()
    changes = plan.changes
    return Outcome(
        act=aim.kind,
        messages=[row.id for row in aim.messages],
        redone=[row.id for row in aim.redone],
        restored=[to_text(change.path) for change in changes if is_file(change.new)],
        deleted=[to_text(c.path) for c in changes if is_file(c.old) and not is_file(c.new)],
        kept=[to_text(path) for path in plan.kept],
        conflicts=plan.conflicts,
        skipped=plan.skipped,
        before=tree,
        after=tree,
        complete=not (plan.conflicts or plan.skipped or plan.marked or aim.is_short),
        dry_run=True,
        mode="only" if aim.is_only else "back",
        notes=[*aim.notes],
        turns=aim.turns,
        covered=covered,
        **_tell_position(scribe.session.position if aim.is_nothing else aim.position, scribe),
        merged=[to_text(change.path) for change in changes if change.is_merged and is_file(change.new)],
        marked=[to_text(path) for path in plan.marked],
    )


def _tell_position(position: Position, scribe: Scribe) -> dict[str, Any]:  # Any: fields of an outcome
    find = scribe.session.find
    head = next((row for row in in_force(position, find) if row.number != position.open), None)
    return {
        "head": None if head is None else head.id,
        "undone": [row.id for row in redoable_messages(position, find)],
    }


def _without_files(aim: Aim) -> Aim:
    """Leave every file alone, and record what the timeline says of it from now on."""
    known = [
        w for w in aim.wishes if not isinstance(w.target, Unknown) and not isinstance(w.expected, Unknown)
    ]
    noted = [Change(wish.path, wish.expected, wish.target) for wish in known]
    return replace(aim, noted=noted)


def _tell_rest(aim: Aim, sight: DiskSight, manner: Manner) -> list[str]:
    """Say that the files are not what the head stands for, if only that moves."""
    if manner.has_files or aim.is_nothing:
        return []
    differing = [w for w in aim.wishes if not isinstance(w.target, Unknown) and sight.see(w.path) != w.target]
    files = sum(is_file(wish.target) or is_file(wish.expected) for wish in differing)
    if not files:
        return ["no file was touched"]
    differ = "1 file differs" if files == 1 else f"{files:,} files differ"
    return [f"no file was touched, and {differ} now from what the timeline says"]


def _with_warnings(outcome: Outcome, scribe: Scribe) -> Outcome:
    """Say what became of branches."""
    return replace(outcome, notes=[*outcome.notes, *scribe.branches.warnings])


def _tell_head(scribe: Scribe, aim: Aim, git_head: str | None) -> list[str]:
    """Say if the user's repository stood elsewhere at the first of the messages."""
    if aim.first is None:
        return []
    then = scribe.git_head_of(aim.first)
    if then is None or git_head is None or then == git_head:
        return []
    return [f"the repository's HEAD moved since: it was {then[:12]}, it is {git_head[:12]}"]


def _refuse(prepared: Prepared, scribe: Scribe, confirm: Confirm | None) -> None:
    outcome = replace(prepared.outcome, dry_run=False)
    if outcome.conflicts:
        raise Conflict(outcome.conflicts, _as_untouched(outcome, scribe))
    is_much = 2 * len(outcome.deleted) > outcome.covered
    is_restore = prepared.aim.kind == RESTORE and bool(prepared.plan.changes)
    if (is_much or is_restore) and confirm is not None and not confirm(prepared.to_plan()):
        standing = _tell_position(scribe.session.position, scribe)
        raise NotConfirmed(replace(outcome, complete=False, **standing))


def _as_untouched(outcome: Outcome, scribe: Scribe, notes: Sequence[str] = ()) -> Outcome:
    """Say that nothing was done."""
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
        **_tell_position(scribe.session.position, scribe),
    )


def _finish(outcome: Outcome, done: list[Move], after: str) -> Outcome:
    made = sum(move.new == DIRECTORY for move in done)
    gone = sum(move.is_leaving for move in done)
    notes = list(outcome.notes)
    if made:
        notes.append(f"{made:,} {'directory was' if made == 1 else 'directories were'} made")
    if gone:
        notes.append(f"{gone:,} {'directory was' if gone == 1 else 'directories were'} removed")
    return replace(outcome, after=after, dry_run=False, notes=notes)


def _add_act(
    scribe: Scribe,
    prepared: Prepared,
    done: list[Move],
    before: TreeRecord,
    after: TreeRecord,
    intent: int | None,
) -> None:
    """Add to the journal that an act was done, and before that the end of the message that was open."""
    if prepared.ending is not None:
        scribe.add_ending(prepared.ending, before, None, is_inferred=True)
    merged = {change.path for change in prepared.plan.changes if change.is_merged}
    scribe.add_act(
        prepared.aim.kind if prepared.has_files else HEAD_ONLY,
        prepared.aim.position,
        before=before,
        after=after,
        takes_back=prepared.aim.takes_back,
        intent=intent,
        changes=[
            *(Change(move.path, move.old, move.new, move.path in merged) for move in done),
            *prepared.plan.agreed,
            *prepared.aim.noted,
        ],
    )


def _show_change(change: Change) -> PlannedChange:
    sides = [side if isinstance(side, PathState) else None for side in (change.old, change.new)]
    old, new = sides
    return PlannedChange(
        to_text(change.path),
        old.blob.hex() if old is not None and old.blob else None,
        new.blob.hex() if new is not None and new.blob else None,
        None if old is None else old.mode,
        None if new is None else new.mode,
    )
