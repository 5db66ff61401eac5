"""Work out from the timeline what each path should become: the input for a plan. Pure.

The history of a path is what this session's messages and acts did to it, in order:

    m1: v0→v1      m2: v1→v2      undo m2: v2→v1      m3: v1→v3

To go back to before m1, the path should become v0, and should be v3 now, the last recorded state. If a change
does not start where the one before it ended, somebody else edited the path in between: a conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shadowtree.base.frozen import field, frozen, replace
from shadowtree.base.paths import PURGED, Change, PathState, RelPath, Unknown, is_among
from shadowtree.system.files import is_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.paths import Answer


@frozen
class Edit:
    """A change of messages to a path, in the direction of the act."""

    old: PathState | Unknown | None
    new: PathState | Unknown | None
    without: tuple[Change, ...] = ()
    """What removes from both sides the changes of messages that are out of the line."""


@frozen
class Wanted:
    """What a path should become, and what it should be now."""

    path: RelPath
    target: PathState | Unknown | None
    expected: PathState | Unknown | None
    """The state that the timeline last recorded; Unknown if no rule covered it: nothing should be there."""
    trouble: str | None = None
    """Why it is in conflict, whatever its present state."""
    last: str = ""
    """A description of the event that recorded it last."""
    doubt: str | None = None
    """Why its expected state is not known; then it is left alone, unless it already is the target."""
    edits: list[Edit] = field(default_factory=list)
    """The messages' changes on the way there, joined; merged if others changed the path too."""
    is_merged: bool = False
    """Merge the edits in any case, because later changes stay."""
    can_merge: bool = True
    """False if somebody else's changes are among the edits."""


@frozen
class EventChanges:
    """What one event of this session did to paths."""

    number: int
    """The number of the event; 0 for changes that do not count."""
    label: str
    """A description of the event, such as `message 'm1'`."""
    changes: list[Change]
    is_act: bool = False
    without: Mapping[RelPath, tuple[Change, ...]] = field(default_factory=dict)
    """By path, what removes from their states the changes of messages that are out of the line."""


@frozen
class OtherChange:
    """A change that another session made to a path."""

    reason: str
    """A description of the change."""
    is_inseparable: bool = False
    """It is part of a message's recorded changes, and cannot be separated from them."""


@frozen
class Past:
    """What was done to some paths from an event on."""

    events: list[EventChanges]
    """Everything that this session did to them."""
    others: dict[RelPath, OtherChange]
    """By path, what another session did to it."""


def want_back(
    over: Collection[int], past: Past, merged: Collection[RelPath] = (), passed: Collection[int] = ()
) -> list[Wanted]:
    """Return what takes every path that the events `over` changed back to before the first of them.

    At the paths in `merged`, later changes stay, and the messages' changes are merged out of them. The
    changes of the events in `passed` were undone earlier, so they are not reversed again.
    """
    found = []
    for path, seen in sorted(_follow(over, past, passed).items()):
        first = seen.first.new
        # If the state after the first change is unknown, the path is left alone.
        doubt = f"not recorded after: {first.reason}" if isinstance(first, Unknown) else None
        edits = [Edit(change.new, change.old, without) for change, without in reversed(seen.counted)]
        found.append(seen.want(_known(seen.first.old, "before"), edits, doubt, is_merged=path in merged))
    return found


def want_forward(over: Collection[int], past: Past, merged: Collection[RelPath] = ()) -> list[Wanted]:
    """Return what takes every path that the events `over` changed to after the last of them."""
    found = []
    for path, seen in sorted(_follow(over, past).items()):
        doubt = None if any(change.is_known for change, _ in seen.counted) else "not recorded before"
        target = _known(seen.counted[-1][0].new, "after")
        edits = [Edit(change.old, change.new, without) for change, without in seen.counted]
        want = seen.want(target, edits, doubt, is_merged=path in merged)
        found.append(replace(want, trouble=want.trouble or seen.edited_back))
    return found


def want_across(back: Sequence[Wanted], forward: Sequence[Wanted]) -> list[Wanted]:
    """Join a way back with the way forward that follows it.

    A path with the same state at both ends is left alone, even if somebody else changed it.
    """
    return [want for want in join_wanted(back, forward) if want.edits or want.target != want.expected]


def join_wanted(first: Sequence[Wanted], then: Sequence[Wanted]) -> list[Wanted]:
    """Join two lists, applied one after the other: for a path in both, the second target counts."""
    wanted = {want.path: want for want in first}
    for want in then:
        before = wanted.get(want.path)
        if before is not None:
            trouble = before.trouble or want.trouble
            edits = _join([*before.edits, *want.edits])
            can_merge = before.can_merge and want.can_merge
            want = replace(want, trouble=trouble, edits=edits, can_merge=can_merge)
        wanted[want.path] = want
    return [wanted[path] for path in sorted(wanted)]


def want_states(states: Mapping[RelPath, Answer], wanted: Sequence[Wanted]) -> list[Wanted]:
    """Replace the targets of the paths in `states` by those states.

    A path that is in that state already, as far as the timeline knows, is left out.
    """
    mended = [
        replace(want, target=_known(states[want.path], "in the tree")) if want.path in states else want
        for want in wanted
    ]
    return [want for want in mended if want.path not in states or want.target != want.expected]


def want_tree(changes: Iterable[Change]) -> list[Wanted]:
    """Return what makes every path equal to a tree, given the changes from now to that tree.

    The present state is expected. A path that is not covered now and not in the tree is left out. But if it
    only could not be read, it would have to be removed: it stays, and is listed as skipped.
    """
    found = []
    for change in changes:
        if change.new is not None or not isinstance(change.old, Unknown):
            found.append(Wanted(change.path, _known(change.new, "in the tree"), change.old))
        elif is_failure(change.old.reason):
            found.append(Wanted(change.path, change.old, change.old))
    return found


def describe_edit(recorded: PathState | None, found: PathState | None) -> str:
    """Describe how somebody changed a path from its recorded state."""
    if recorded is None:
        return "it was created"
    if found is None:
        return "it was deleted"
    if found.is_directory or recorded.is_directory or found.is_link != recorded.is_link:
        kind = "a directory" if found.is_directory else "a link" if found.is_link else "a file"
        return f"it was replaced by {kind}"
    if found.blob == recorded.blob:
        return "its permissions were changed"
    return "it was edited"


def narrow(wanted: Iterable[Wanted], paths: Collection[RelPath]) -> list[Wanted]:
    """Keep only these paths and those below them."""
    return [want for want in wanted if is_among(want.path, paths)]


def is_never_recorded(want: Wanted) -> bool:
    """Return whether the messages' changes only say that a path came, changed or went uncovered.

    A path that was purged, or that could not be read, is another matter: it would have been recorded.
    """
    sides = [side for edit in want.edits for side in (edit.old, edit.new) if side is not None]
    return bool(sides) and not any(
        isinstance(side, PathState) or side.reason == PURGED or is_failure(side.reason) for side in sides
    )


def _follow(over: Collection[int], past: Past, passed: Collection[int] = ()) -> dict[RelPath, _Path]:
    """Build the history of every path that the events `over` changed, from the first of them on."""
    paths: dict[RelPath, _Path] = {}
    for event in past.events:
        for change in event.changes:
            if change.path in paths:
                paths[change.path].go_on(change, event)
            elif event.number not in over or (event.is_act and change.is_known and change.old == change.new):
                # Not on the way, or an act that left the path alone because it was as wanted already.
                continue
            else:
                paths[change.path] = _Path(change, event.label, past.others.get(change.path))
            if event.number in over and event.number not in passed:
                paths[change.path].counted.append((change, event.without.get(change.path, ())))
    return paths


class _Path:
    """The history of one path so far."""

    def __init__(self, first: Change, label: str, other: OtherChange | None) -> None:
        self.first = first
        self.counted: list[tuple[Change, tuple[Change, ...]]] = []
        """Its changes by the events on the way, each with what is to be removed from its states."""
        self._last: Answer = first.new
        """The last recorded state that is known; Unknown if none is."""
        self._left = first.new
        """The state after the last event, known or not."""
        self._label = label
        self._other = other
        self._edited: dict[Answer, str] = {}
        """States that contain somebody's edit, with the reason."""
        self._plain: set[Answer] = {first.old, first.new}
        """States that contain no such edit."""
        self._edited_back: dict[Answer, str] = {}
        """States in which somebody's edit ended without being overwritten, with the reason."""

    def go_on(self, change: Change, event: EventChanges) -> None:
        """Add the next change.

        A message that starts from somebody's edit still contains it afterwards. An act moves from state to
        state: the edit is in the way only while the path is in a state that contains it.
        """
        if event.is_act and change.old == change.new:
            # The act found the path as wanted already. An edit in this state is still there.
            self._end_edit(change, self._edited.get(self._last) or self._edited_back.get(self._last))
            self._last, self._left, self._label = change.new, change.new, event.label
            return
        reason = self._find_edit(change, event)
        if change.is_merged or not event.is_act:
            self._end_edit(
                change, self._edited_back.get(change.old) or (reason if change.is_merged else None)
            )
        self._left = change.new
        if reason is None:
            self._plain.add(change.new)
        else:
            holding = {change.old, change.new} if change.is_merged or not event.is_act else {change.old}
            self._edited.update(dict.fromkeys(holding - self._plain, reason))
        if not isinstance(change.new, Unknown) or isinstance(self._last, Unknown):
            self._last = change.new
        self._label = event.label

    def _end_edit(self, change: Change, reason: str | None) -> None:
        if reason is not None:
            self._edited_back[change.new] = reason

    @property
    def edited_back(self) -> str | None:
        """An edit that the present state does not contain, and that going forward would bring back.

            m1: v0→v1      a line is deleted: v1→u      m2: u→v2      it is added again      undo, merged: →v0

        Going back from v0 loses nothing. Going forward to v2 would delete the line that somebody added.
        """
        return self._edited_back.get(self._last)

    def _find_edit(self, change: Change, event: EventChanges) -> str | None:
        """Describe the edit that a change starts from; None if it starts from the last recorded state."""
        if change.old in self._edited:
            return self._edited[change.old]
        if isinstance(change.old, Unknown):
            if change.new == self._last or change.old == self._left == Unknown(PURGED):
                # It came back to the last known state, or both sides are unknown because of a purge.
                return None
            # It changed while no rule covered it; perhaps the user changed it.
            return f"it was not recorded between {self._label} and {event.label}"
        if isinstance(self._last, Unknown) or change.old == self._last:
            return None
        # If there are several edits, the first one is reported.
        return self._edited.get(self._last) or (
            f"{describe_edit(self._last, change.old)} between {self._label} and {event.label}"
        )

    def want(self, target: Answer, edits: list[Edit], doubt: str | None, *, is_merged: bool) -> Wanted:
        """Return what the path should become, with the edits that lead there."""
        other = self._other
        return Wanted(
            self.first.path,
            target,
            self._last,
            trouble=self._edited.get(self._last) if other is None else other.reason,
            last=self._label,
            doubt=doubt,
            edits=_join(edits),
            is_merged=is_merged,
            can_merge=other is None or not other.is_inseparable,
        )


def _join(edits: list[Edit]) -> list[Edit]:
    """Join edits that follow each other: a→b and b→c become a→c. Drop those that cancel out."""
    joined: list[Edit] = []
    for edit in edits:
        follows = joined and (joined[-1].new, joined[-1].without) == (edit.old, edit.without)
        if follows and not isinstance(edit.old, Unknown):
            edit = Edit(joined.pop().old, edit.new, edit.without)
        if edit.old != edit.new:
            joined.append(edit)
    return joined


def _known(answer: Answer, when: str) -> Answer:
    return Unknown(f"not recorded {when}: {answer.reason}") if isinstance(answer, Unknown) else answer
