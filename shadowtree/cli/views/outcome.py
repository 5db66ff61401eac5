"""What an undo, redo, revert, switch, unrevert or restore did, as lines for people: values in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from shadowtree.base.errors import count_changes
from shadowtree.cli.format import LISTED, count, cut, escape, escape_line, list_first
from shadowtree.cli.output import paint
from shadowtree.cli.views.status import list_skipped, list_unprotected, render_diff, summarise_skipped
from shadowtree.results.outcomes import ConflictingPath, Hunk, Outcome

_VERBS = {
    "undo": ("Undid", "Would undo"),
    "redo": ("Redid", "Would redo"),
    "revert": ("Reverted", "Would revert"),
    "switch": ("Switched", "Would switch"),
    "unrevert": ("Reversed", "Would reverse"),
    "restore": ("Restored", "Would restore"),
}
"""The verb for each act when it is done, and when it was only planned."""
_DONE = {"undo": "undone", "redo": "redone"}

_NAMED = 3
"""How many messages or paths a sentence names."""
_SHOWN_LINES = 5
"""How many lines of each side are shown where texts collide."""
_SHOWN_COLUMNS = 100


def render_outcome(
    outcome: Outcome,
    *,
    target: str | None = None,
    is_part: bool = False,
    has_files: bool = True,
) -> Iterator[str]:
    """Describe in one sentence what happened, list the files, and add notes.

    `target` is the user's own name for the target; `is_part`: the act was limited to some paths; `has_files`:
    it was to change files at all.
    """
    touched = outcome.restored or outcome.deleted or outcome.kept or outcome.conflicts
    # An act may change only the timeline.
    has_substance = bool(outcome.messages or touched)
    if has_substance:
        act = _describe_act(outcome, target, is_part=is_part)
        where = "" if has_files else ", in the timeline only"
        yield f"{act}{where}: {describe_effect(outcome)}"
    yield from list_paths(outcome)
    yield from _list_marked(outcome)
    yield from list_skipped(outcome.skipped, "left alone")
    yield from list_unprotected(outcome.unprotected, is_act=True, is_planned=outcome.dry_run)
    if outcome.conflicts:
        yield paint("yellow", f"{count(len(outcome.conflicts), 'path')} in conflict:")
        yield from list_conflicts(outcome.conflicts, outcome.act)
    yield from (escape(note[:1].upper() + note[1:]) for note in outcome.notes)
    if not has_substance and not outcome.notes:
        yield f"Nothing to {outcome.act}"


def render_preview(outcome: Outcome) -> Iterator[str]:
    """List what would happen to each file, those with the user's own changes first, and then the diff."""
    if outcome.messages:
        yield _describe_act(outcome, None, is_part=False)
    conflicts = [conflict.path for conflict in outcome.conflicts]
    deeds = {deed: (paths, colour) for deed, colour, paths in _list_deeds(outcome)}
    first = [("conflict", conflicts, "yellow"), *((deed, *deeds.pop(deed)) for deed in ("keep", "merge"))]
    for deed, paths, colour in (*first, *((deed, *each) for deed, each in deeds.items())):
        yield from (f"  {paint(colour, f'{deed:8}')}  {escape(path)}" for path in paths)
    yield from list_skipped(outcome.skipped, "left alone")
    yield ""
    yield from render_diff(outcome.diff, escape_content=True)


def list_conflicts(conflicts: Sequence[ConflictingPath], act: str = "undo") -> Iterator[str]:
    """List every path in conflict with its reason; neighbours with the same advice share it."""
    for advice, group in groupby(conflicts, key=lambda conflict: conflict.advice):
        for conflict in group:
            yield f"  {escape(conflict.path)}: {escape(conflict.reason)}"
            yield from _list_hunks(conflict.hunks, act)
        yield f"    {escape(advice)}"


def describe_shortfall(outcome: Outcome, turns: int | None = None) -> str:
    """Say why less was done than requested; `turns`: how many turns were requested."""
    reasons = []
    if turns is not None and outcome.turns is not None and outcome.turns < turns:
        reasons.append(f"only {outcome.turns:,} of {count(turns, 'turn')} could be {_DONE[outcome.act]}")
    if outcome.marked:
        reasons.append(f"conflict markers in {count(len(outcome.marked), 'file')}")
    if outcome.skipped:
        reasons.append(f"left alone: {summarise_skipped(outcome.skipped)}")
    return "; ".join(reasons or outcome.notes)


def describe_effect(outcome: Outcome) -> str:
    """Count the files by what was done to them, or would be."""
    told: list[str] = []
    for deed, _, paths in _list_deeds(outcome):
        if paths:
            number = f"{len(paths):,}" if told else count(len(paths), "file")
            told.append(f"{number} to {deed}" if outcome.dry_run else f"{number} {deed}")
    return ", ".join(told) or ("no files to change" if outcome.dry_run else "no files changed")


def describe_later(messages: Sequence[str]) -> str:
    """Count the later messages that went with a message, as a phrase to put after its name."""
    return f"and the {'message' if len(messages) == 1 else f'{len(messages):,} messages'} after it"


def describe_plan(outcome: Outcome) -> str:
    """Describe what the user has to confirm."""
    return f"This {count_changes(outcome, 's')}"


def _describe_act(outcome: Outcome, target: str | None, *, is_part: bool) -> str:
    verb = _VERBS[outcome.act][outcome.dry_run]
    if outcome.turns is not None:
        names = ", ".join(map(escape, outcome.messages))
        told = names if len(outcome.messages) <= _NAMED else count(len(outcome.messages), "message")
        return f"{verb} {count(outcome.turns, 'turn')} ({told})"
    if outcome.act == "unrevert":
        return f"{verb} the last {outcome.reverses or 'act'}"
    if outcome.act == "restore":
        what = _name_paths(outcome) if is_part else "everything"
        return f"{verb} {what} to {escape(target or 'that tree')}"
    if outcome.act == "switch":
        return f"{verb} to {escape(target or 'it')} ({_describe_way(outcome)})"
    if outcome.mode == "only":
        return _describe_only(outcome, target, is_part=is_part)
    if is_part:
        return f"{verb} {_name_paths(outcome)} to before {escape(target or 'then')}"
    if outcome.redone:
        forward = "Would move" if outcome.dry_run else "Moved"
        return f"{forward} forward to just before {escape(target or 'it')}"
    first, *later = outcome.messages or [target or "it"]
    return f"{verb} {escape(first)}" + (f" {describe_later(later)}" if later else "")


def _describe_way(outcome: Outcome) -> str:
    """Count the messages that a switch undid and reapplied."""
    redone = len(outcome.redone)
    undone = len(outcome.messages) - redone
    if not redone:
        return f"{count(undone, 'message')} undone"
    return (
        f"{count(undone, 'message')} undone, {redone:,} reapplied"
        if undone
        else (f"{count(redone, 'message')} reapplied")
    )


def _describe_only(outcome: Outcome, target: str | None, *, is_part: bool) -> str:
    """Say that one message was reverted alone, and that later ones did not change."""
    verb = _VERBS[outcome.act][outcome.dry_run]
    name = escape(outcome.messages[0] if outcome.messages else target or "it")
    what = f"{_name_paths(outcome)} from {name}" if is_part else f"only {name}"
    return f"{verb} {what}; later messages are unchanged"


def _name_paths(outcome: Outcome) -> str:
    """Name the paths that were changed, or count them."""
    paths = sorted({*outcome.restored, *outcome.deleted, *outcome.kept})
    return ", ".join(map(escape, paths)) if 0 < len(paths) <= _NAMED else count(len(paths), "file")


def _list_deeds(outcome: Outcome) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield each deed with its colour and its paths; each path belongs to one deed only."""
    others = {*outcome.merged, *outcome.created}
    restored = [path for path in outcome.restored if path not in others]
    yield "restore" if outcome.dry_run else "restored", "green", restored
    yield "create" if outcome.dry_run else "created", "green", outcome.created
    yield "merge" if outcome.dry_run else "merged", "cyan", outcome.merged
    yield "delete" if outcome.dry_run else "deleted", "red", outcome.deleted
    yield "keep" if outcome.dry_run else "kept", "yellow", outcome.kept


def list_paths(outcome: Outcome) -> Iterator[str]:
    """List what happens to each path, beginning with those that may hold the user's own edits."""
    deeds, uncertain = _list_deeds(outcome), set(outcome.uncertain)
    changed = [(path not in uncertain, path, deed, colour) for deed, colour, paths in deeds for path in paths]
    if not any(is_certain for is_certain, *_ in changed):
        # The notes say so if all of them are uncertain.
        uncertain.clear()

    def render(each: tuple[bool, str, str, str]) -> str:
        _, path, deed, colour = each
        doubt = "  (may be your own edit)" if path in uncertain else ""
        return f"  {paint(colour, f'{deed:8}')}  {escape(path)}{doubt}"

    return list_first(sorted(changed), render)


def _list_marked(outcome: Outcome) -> Iterator[str]:
    """List every file with conflict markers, because each must be edited by hand, and say what to do."""
    if not outcome.marked:
        return
    number = count(len(outcome.marked), "file")
    would = "Would write conflict markers into" if outcome.dry_run else "Edit the conflict markers in"
    yield paint("yellow", f"{would} {number}:")
    yield from (f"  {escape(path)}" for path in outcome.marked)
    if not outcome.dry_run:
        yield "    Search for '<<<<<<<', keep the lines you want, and delete the markers."


def _list_hunks(hunks: Sequence[Hunk], act: str) -> Iterator[str]:
    """Show where texts collide, with the lines of each side."""
    for hunk in hunks[:LISTED]:
        yield f"    line {hunk.line:,}:"
        yield from _show_side("current", hunk.ours)
        yield from _show_side("recorded", hunk.base)
        yield from _show_side(f"after {act}", hunk.theirs)
    if len(hunks) > LISTED:
        yield f"    and {count(len(hunks) - LISTED, 'more place')} (use --json to list all)"


def _show_side(name: str, text: str) -> Iterator[str]:
    if not text:
        yield f"      {name:14}  nothing"
        return
    lines = text.removesuffix("\n").split("\n")
    for place, line in enumerate(lines[:_SHOWN_LINES]):
        yield f"      {'' if place else name:14}  | {cut(escape_line(line), _SHOWN_COLUMNS)}"
    more = len(lines) - _SHOWN_LINES
    if more > 0:
        yield f"{'':22}and {count(more, 'more line')} (use --json to show all)"
    elif not text.endswith("\n"):
        yield f"{'':22}(no newline at the end)"
