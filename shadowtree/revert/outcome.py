"""What an act comes to, as a value: foreseen before it is done, told when it was, or was not.

An `Act` is what is requested and all that it needs; `Prepared` is one worked out and not done.
"""

from __future__ import annotations

from collections.abc import Sequence

from shadowtree.base.frozen import frozen, replace
from shadowtree.base.interrupts import Cancellation
from shadowtree.base.paths import DIRECTORY, Change, PathState, RelPath, is_file, to_text
from shadowtree.capture.capture import Site
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import RecordedDirectory
from shadowtree.capture.scan import Scan
from shadowtree.results.outcomes import Outcome, Plan, PlannedChange
from shadowtree.revert.contents import Contents
from shadowtree.revert.history import with_session
from shadowtree.revert.moves import Move
from shadowtree.revert.plan import PathPlan, identify_plan
from shadowtree.revert.requests import Options, Redo, Request, Revert, Undo, Unrevert
from shadowtree.revert.targets import Target
from shadowtree.store.git_format import EMPTY_TREE
from shadowtree.timeline.append import Ending, SessionWriter
from shadowtree.timeline.position import last_finished, redoable_messages
from shadowtree.timeline.schema import UNREVERT, Position

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
    is_move: bool
    """The head goes elsewhere, or a message goes out of the line, or comes back."""
    outcome: Outcome
    """What it would come to."""

    def to_plan(self) -> Plan:
        """Return it as the value that callers see."""
        return Plan(self.outcome, [_show_change(change) for change in self.plan.changes])


def plan_nothing(request: Request) -> Plan | None:
    """Plan an act where nothing is recorded; None: it names something, which cannot be there."""
    if not isinstance(request, Undo | Redo | Unrevert):
        return None
    kind, tree = type(request).__name__.lower(), EMPTY_TREE.hex()
    turns = None if isinstance(request, Unrevert) else 0
    notes = [f"nothing to {kind}"]
    return Plan(Outcome(kind, [], [], [], [], [], [], tree, tree, True, True, "back", notes, turns), [])


def foresee(
    act: Act, target: Target, plan: PathPlan, root: RecordedDirectory, scan: Scan, unprotected: list[str]
) -> Outcome:
    """Return what an act would do to paths and messages."""
    assert root.tree is not None
    tree, changes = root.tree.hex(), plan.changes
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
        skipped=plan.skipped,
        before=tree,
        after=tree,
        complete=not (plan.conflicts or plan.skipped or plan.marked or target.is_short),
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
        **_describe_position(act),
    )


def finish(act: Act, prepared: Prepared, done: list[Move], after: str, notes: list[str]) -> Outcome:
    """Return the outcome of an act that was done, with notes on directories and branches."""
    outcome = prepared.outcome
    made = sum(move.new == DIRECTORY for move in done)
    gone = sum(move.is_leaving for move in done)
    counts = [
        f"{count:,} {'directory was' if count == 1 else 'directories were'} {verb}"
        for count, verb in ((made, "created"), (gone, "removed"))
        if count
    ]
    notes = [*outcome.notes, *counts, *notes, *act.session_writer.warnings]
    has_changed = bool(done) or prepared.is_move or prepared.target.takes_back is not None
    back = _name_way_back(act, prepared.target) if has_changed else None
    return replace(outcome, after=after, dry_run=False, notes=notes, back=back)


def _name_way_back(act: Act, target: Target) -> str:
    """Return the command that brings back what was there right before an act, files and log."""
    command = "shadowtree unrevert --undo" if target.kind == UNREVERT else "shadowtree unrevert"
    return with_session(command, act.session_writer.session)


def _show_change(change: Change) -> PlannedChange:
    old, new = (side if isinstance(side, PathState) else None for side in (change.old, change.new))
    return PlannedChange(
        to_text(change.path),
        old.blob.hex() if old is not None and old.blob else None,
        new.blob.hex() if new is not None and new.blob else None,
        None if old is None else old.mode,
        None if new is None else new.mode,
    )
