"""From what the timeline recorded to what each path should become: input for a plan. Pure.

The history of a path is what this session's messages and acts did to it, in order:

    m1: v0→v1      m2: v1→v2      undo m2: v2→v1      m3: v1→v3

Going back to before m1 wants v0, and expects v3, which is what the timeline recorded last. Where a link of
the chain does not fit the next one, somebody else edited the path in between: a conflict.
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
class Wanted:
    """What a path should become, and what it should be now."""

    path: RelPath
    target: PathState | Unknown | None
    expected: PathState | Unknown | None
    """What the timeline last recorded for it; unknown: no rule covered it, so nothing should be there."""
    trouble: str | None = None
    """Why it is in conflict, whatever it is now."""
    last: str = ""
    """What recorded it last, in words."""
    doubt: str | None = None
    """Why nobody knows what it should be now: it is left alone then, unless it already is the target."""
    edits: list[Change] = field(default_factory=list)
    """What the messages' changes come to on the way there, to be merged where others changed it too."""
    is_merged: bool = False
    """Merge them in any case: what came later stays."""
    can_merge: bool = True
    """Otherwise somebody else's changes are among them."""


@frozen
class EventChanges:
    """What one event of this session did to paths."""

    number: int
    """Of the event; they come in this order."""
    label: str
    """What it was, in words: `message 'm1'`."""
    changes: list[Change]
    is_act: bool = False


@frozen
class OtherChange:
    """Something that another session did to a path."""

    reason: str
    """What it was, in words."""
    is_inseparable: bool = False
    """It is part of what a message is recorded to have done, and cannot be separated from it."""


@frozen
class Past:
    """What was done to some paths from an event on."""

    events: list[EventChanges]
    """All that this session did to them."""
    others: dict[RelPath, OtherChange]
    """What other sessions did to each."""


def want_back(
    over: Collection[int], past: Past, merged: Collection[RelPath] = (), passed: Collection[int] = ()
) -> list[Wanted]:
    """Want every path that the events `over` changed to be what it was before the first of them.

    At the paths `merged` the messages' changes are to be taken out from under what came later. What the
    events `passed` did was taken out before, and is not there any more.
    """
    found = []
    for path, seen in sorted(_follow(over, past, passed).items()):
        first = seen.first.new
        # Where nobody knows what was made of it, it is reverted only if it is what it was anyway.
        doubt = f"not recorded after: {first.reason}" if isinstance(first, Unknown) else None
        edits = [Change(path, change.new, change.old) for change in reversed(seen.counted)]
        found.append(seen.want(_known(seen.first.old, "before"), edits, doubt, is_merged=path in merged))
    return found


def want_forward(over: Collection[int], past: Past, merged: Collection[RelPath] = ()) -> list[Wanted]:
    """Want every path that the events `over` changed to be what it was after the last of them."""
    found = []
    for path, seen in sorted(_follow(over, past).items()):
        doubt = None if any(change.is_known for change in seen.counted) else "not recorded before"
        target = _known(seen.counted[-1].new, "after")
        want = seen.want(target, seen.counted, doubt, is_merged=path in merged)
        found.append(replace(want, trouble=want.trouble or seen.edited_back))
    return found


def want_across(back: Sequence[Wanted], forward: Sequence[Wanted]) -> list[Wanted]:
    """Want to go back first and then forward.

    A path that is to be the same at both ends is left alone, whatever somebody else made of it.
    """
    return [want for want in join_wanted(back, forward) if want.edits or want.target != want.expected]


def join_wanted(first: Sequence[Wanted], then: Sequence[Wanted]) -> list[Wanted]:
    """Want one thing and then another: for a path in both, the second one's target counts."""
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
    """Want some paths to be in states that are known from elsewhere.

    One that is in that state already, as far as the timeline knows, is left alone.
    """
    mended = [
        replace(want, target=_known(states[want.path], "in the tree")) if want.path in states else want
        for want in wanted
    ]
    return [want for want in mended if want.path not in states or want.target != want.expected]


def want_tree(changes: Iterable[Change]) -> list[Wanted]:
    """Want every path to be what a tree has, given how that differs from now; what is there is expected.

    What is not covered now and the tree does not have is nobody's business. But what only could not be read
    would have to go: nobody knows what it is, so it stays, and is listed.
    """
    found = []
    for change in changes:
        if change.new is not None or not isinstance(change.old, Unknown):
            found.append(Wanted(change.path, _known(change.new, "in the tree"), change.old))
        elif is_failure(change.old.reason):
            found.append(Wanted(change.path, change.old, change.old))
    return found


def narrow(wanted: Iterable[Wanted], paths: Collection[RelPath]) -> list[Wanted]:
    """Leave out other paths than these and those below them."""
    return [want for want in wanted if is_among(want.path, paths)]


def _follow(over: Collection[int], past: Past, passed: Collection[int] = ()) -> dict[RelPath, _Path]:
    """Follow every path that the events `over` changed, from the first of them on."""
    paths: dict[RelPath, _Path] = {}
    for event in past.events:
        for change in event.changes:
            if change.path in paths:
                paths[change.path].go_on(change, event)
            elif event.number not in over or (event.is_act and change.is_known and change.old == change.new):
                # Not on the way, or an act that found the path as it was wanted, and did nothing to it.
                continue
            else:
                paths[change.path] = _Path(change, event.label, past.others.get(change.path))
            if event.number in over and event.number not in passed:
                paths[change.path].counted.append(change)
    return paths


class _Path:
    """The history of one path so far."""

    def __init__(self, first: Change, label: str, other: OtherChange | None) -> None:
        self.first = first
        self.counted: list[Change] = []
        """What the events on the way did to it."""
        self._last: Answer = first.new
        """What was last recorded for it; where that is unknown, what was known before."""
        self._left = first.new
        """What the last event left, known or not."""
        self._label = label
        self._other = other
        self._edited: dict[Answer, str] = {}
        """States that hold somebody's edit, and why we know."""
        self._plain: set[Answer] = {first.old, first.new}
        """States that hold none."""
        self._edited_back: dict[Answer, str] = {}
        """Of these, states in which somebody's edit ended that nobody overwrote, and why we know."""

    def go_on(self, change: Change, event: EventChanges) -> None:
        """Add the next change.

        A message that goes on from somebody's edit still holds it. An act moves from state to state: the edit
        is in the way as long as the path is in one that holds it.
        """
        if event.is_act and change.old == change.new:
            # The act found it as it was wanted. An edit in this state is still there.
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
        """The edit that is not in what is there now, and that going forward again would bring back.

            m1: v0→v1      a line is deleted: v1→u      m2: u→v2      it is added again      undo, merged: →v0

        To go back from v0 loses nothing. Forward, v2 lacks the line: it is somebody's.
        """
        return self._edited_back.get(self._last)

    def _find_edit(self, change: Change, event: EventChanges) -> str | None:
        """Describe the edit that a change goes on from; None: it goes on from what was recorded last."""
        if change.old in self._edited:
            return self._edited[change.old]
        if isinstance(change.old, Unknown):
            if change.new == self._last or change.old == self._left == Unknown(PURGED):
                # What one left and the next one found was the same, before it was purged.
                return None
            # It changed while no rule covered it, perhaps by the user.
            return f"it was not recorded between {self._label} and {event.label}"
        if isinstance(self._last, Unknown) or change.old == self._last:
            return None
        # Of several edits the first one is reported.
        return self._edited.get(self._last) or f"it was edited between {self._label} and {event.label}"

    def want(self, target: Answer, edits: list[Change], doubt: str | None, *, is_merged: bool) -> Wanted:
        """Want a target for it, to which some edits lead."""
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


def _join(edits: list[Change]) -> list[Change]:
    """Make one edit of those that follow each other: from a to b and from b to c is from a to c."""
    joined: list[Change] = []
    for edit in edits:
        if joined and joined[-1].new == edit.old and not isinstance(edit.old, Unknown):
            edit = Change(edit.path, joined.pop().old, edit.new)
        if edit.old != edit.new:
            joined.append(edit)
    return joined


def _known(answer: Answer, when: str) -> Answer:
    return Unknown(f"not recorded {when}: {answer.reason}") if isinstance(answer, Unknown) else answer
