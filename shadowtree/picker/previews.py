"""What an act would do, or did, in words: a headline, and every file with what happens to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shadowtree.base.display import count, escape
from shadowtree.base.frozen import frozen
from shadowtree.results.outcomes import ConflictingPath, Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.picker.requests import Act, Choices

    Numbers = Mapping[str, int]
    """The numbers of messages, by id."""

CONFLICT = "conflict"
_CHANGED = "changed since"
_UNCERTAIN = "it changed after the last recorded step of a message that was never ended"
_UNPROTECTED = "it changed during these messages, but it is not protected, so it stays as it is"
_NAMED = 8
"""How many messages a headline names."""
_DONE = {
    "restore": "restored",
    "create": "created",
    "merge": "merged",
    "delete": "deleted",
    "keep": "kept",
}


@frozen
class Entry:
    """One file of a plan."""

    path: str
    deed: str
    """What happens to it: `restore`, `create`, `delete`, `merge`, `keep`, `overwrite`, `leave`,
    or `conflict`."""
    label: str = ""
    """What is special about it, in a few words."""
    why: str = ""
    """The reason, for people."""
    is_conflict: bool = False
    """There is a choice: to merge, to keep or to overwrite."""


def list_entries(
    outcome: Outcome, choices: Choices, known: Mapping[str, ConflictingPath]
) -> tuple[Entry, ...]:
    """List every file of a plan, those with your own edits first.

    `choices` are what you chose for files in conflict, and `known` all conflicts that were seen so far.
    """
    uncertain = set(outcome.uncertain)
    in_conflict = {conflict.path for conflict in outcome.conflicts}
    own = [Entry(each.path, CONFLICT, _CHANGED, each.reason, True) for each in outcome.conflicts]
    rest: list[Entry] = []
    for deed, paths in _list_deeds(outcome):
        for path in paths:
            if path in in_conflict:
                continue
            if path in known:
                is_replaced = deed == "restore" and choices.get(path) == "overwrite"
                told = "overwrite" if is_replaced else deed
                own.append(Entry(path, told, _CHANGED, known[path].reason, True))
            elif path in uncertain:
                own.append(Entry(path, deed, "may be your own edit", _UNCERTAIN))
            else:
                rest.append(Entry(path, deed))
    left = [Entry(each.path, "leave", each.reason) for each in outcome.skipped]
    left += [Entry(path, "leave", "not protected", _UNPROTECTED) for path in outcome.unprotected]
    return (*sorted(own, key=_path_of), *sorted(rest, key=_path_of), *left)


def _path_of(entry: Entry) -> str:
    return entry.path


def describe_act(act: Act, outcome: Outcome, numbers: Numbers) -> str:
    """Say what an act would do, or did, with messages."""
    is_plan = outcome.dry_run
    redone = outcome.redone
    undone = outcome.messages[: len(outcome.messages) - len(redone)]
    undo, redo = ("undo", "redo") if is_plan else ("undid", "redid")
    if act.kind == "only":
        return f"{undo.title()} only {_name(outcome.messages or [act.target], numbers)}; later messages stay"
    parts = [f"{undo} {_list_messages(undone, numbers, is_plan=is_plan)}"] if undone else []
    parts += [f"{redo} {_list_messages(redone, numbers, is_plan=is_plan)}"] if redone else []
    what = ", ".join(parts) or ("no message changes" if is_plan else "no message changed")
    if act.kind == "unrevert":
        return f"{'Reverse' if is_plan else 'Reversed'} the last {outcome.reverses or 'act'}: {what}"
    if act.kind == "switch":
        to = f"branch {escape(act.branch)}" if act.branch else _name([act.target], numbers)
        return f"{'Switch' if is_plan else 'Switched'} to {to}: {what}"
    return what[:1].upper() + what[1:]


def describe_effect(outcome: Outcome) -> str:
    """Count the files by what happens to them."""
    told: list[str] = []
    for deed, paths in _list_deeds(outcome):
        if paths:
            number = f"{len(paths):,}" if told else count(len(paths), "file")
            told.append(f"{number} to {deed}" if outcome.dry_run else f"{number} {_DONE[deed]}")
    if outcome.conflicts:
        number = f"{len(outcome.conflicts):,}" if told else count(len(outcome.conflicts), "file")
        told.append(f"{number} in conflict")
    return ", ".join(told) or ("no files to change" if outcome.dry_run else "no files changed")


def describe_goal(act: Act, numbers: Numbers) -> str:
    """Say how files will be."""
    name = f"#{numbers[act.target]}" if act.target in numbers else ""
    return {
        "back": f"Files go back to before {name}.",
        "only": f"Files lose what {name} changed, and nothing else.",
        "redo_to": f"Files go forward to after {name}.",
    }.get(act.kind, "")


def list_remarks(outcome: Outcome) -> list[str]:
    """Give what else is to be known."""
    remarks = [escape(note[:1].upper() + note[1:]) for note in outcome.notes]
    if outcome.marked:
        names = ", ".join(map(escape, outcome.marked))
        remarks.append(f"Conflict markers are in {names}")
    return remarks


def _list_deeds(outcome: Outcome) -> Iterator[tuple[str, list[str]]]:
    others = {*outcome.merged, *outcome.created}
    yield "restore", [path for path in outcome.restored if path not in others]
    yield "create", outcome.created
    yield "merge", outcome.merged
    yield "delete", outcome.deleted
    yield "keep", outcome.kept


def _list_messages(ids: list[str], numbers: Numbers, *, is_plan: bool) -> str:
    named = _name(ids, numbers)
    if len(ids) == 1:
        return named
    return f"{len(ids):,} messages: {named}" if is_plan else f"{len(ids):,} messages ({named})"


def _name(ids: list[str], numbers: Numbers) -> str:
    """Name messages by their numbers; of many, the first and the last ones."""
    names = [f"#{numbers[id]}" if id in numbers else escape(id) for id in ids]
    if len(names) > _NAMED:
        return f"{', '.join(names[:3])} … {', '.join(names[-2:])}"
    return ", ".join(names)
