"""What an act would do, or did, in words: a headline, and every file with what happens to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

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
_OVERLAP = "They overlap, so merge cannot combine them: choose k or o"
_NO_MERGE = "Merge cannot combine the versions: choose k or o"
_NAMED = 8
"""How many messages a headline names."""
_MESSAGE = re.compile(r"\b[Mm]essage '([^']+)'")
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
    choices: Sequence[str] = ()
    """For a file in conflict, what you can choose: `merge`, `keep`, `overwrite`."""
    hint: str = ""
    """For one that cannot be merged, what to choose instead."""

    @property
    def is_conflict(self) -> bool:
        """Whether there is, or was, something to choose."""
        return bool(self.choices)


def list_entries(
    outcome: Outcome, choices: Choices, known: Mapping[str, ConflictingPath], numbers: Numbers
) -> tuple[Entry, ...]:
    """List every file of a plan, those with your own edits first.

    `choices` are what you chose for files in conflict, and `known` all conflicts that were seen so far.
    """
    uncertain = set(outcome.uncertain)
    in_conflict = {conflict.path for conflict in outcome.conflicts}
    own = [_make_conflict(each, CONFLICT, numbers) for each in outcome.conflicts]
    rest: list[Entry] = []
    for deed, paths in _list_deeds(outcome):
        for path in paths:
            if path in in_conflict:
                continue
            if path in known:
                is_replaced = deed == "restore" and choices.get(path) == "overwrite"
                own.append(_make_conflict(known[path], "overwrite" if is_replaced else deed, numbers))
            elif path in uncertain:
                own.append(Entry(path, deed, "may be your own edit", _UNCERTAIN))
            else:
                rest.append(Entry(path, deed))
    left = [Entry(each.path, "leave", each.reason) for each in outcome.skipped]
    left += [Entry(path, "leave", "not protected", _UNPROTECTED) for path in outcome.unprotected]
    return (*sorted(own, key=_path_of), *sorted(rest, key=_path_of), *left)


def _make_conflict(conflict: ConflictingPath, deed: str, numbers: Numbers) -> Entry:
    why = name_messages(conflict.reason, numbers)
    return Entry(conflict.path, deed, _CHANGED, why, tuple(conflict.choices), _advise(conflict))


def _advise(conflict: ConflictingPath) -> str:
    """Say what to choose for a file that cannot be merged."""
    if "merge" in conflict.choices:
        return ""
    if "overwrite" not in conflict.choices:
        return "Move what is in the way, or choose k"
    return _OVERLAP if conflict.hunks else _NO_MERGE


def _path_of(entry: Entry) -> str:
    return entry.path


def describe_act(act: Act, outcome: Outcome, numbers: Numbers) -> str:
    """Describe what an act would do, or did, to messages."""
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
    """Describe the files after an act."""
    name = f"#{numbers[act.target]}" if act.target in numbers else ""
    return {
        "back": f"Files go back to before {name}.",
        "only": f"Files lose what {name} changed, and nothing else.",
        "redo_to": f"Files go forward to after {name}.",
    }.get(act.kind, "")


def list_remarks(outcome: Outcome, numbers: Numbers) -> list[str]:
    """Return the notes of an outcome, and the files with conflict markers."""
    notes = [name_messages(note, numbers) for note in outcome.notes]
    remarks = [escape(note[:1].upper() + note[1:]) for note in notes]
    if outcome.marked:
        names = ", ".join(map(escape, outcome.marked))
        remarks.append(f"Conflict markers are in {names}")
    return remarks


def name_messages(sentence: str, numbers: Numbers) -> str:
    """Replace the ids of messages in a sentence of the library by their numbers."""

    def name(found: re.Match[str]) -> str:
        return f"#{numbers[found[1]]}" if found[1] in numbers else found[0]

    return _MESSAGE.sub(name, sentence)


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
    """List messages by their numbers; if there are many, only the first and the last ones."""
    names = [f"#{numbers[id]}" if id in numbers else escape(id) for id in ids]
    if len(names) > _NAMED:
        return f"{', '.join(names[:3])} … {', '.join(names[-2:])}"
    return ", ".join(names)
