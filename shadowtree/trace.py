"""From what the timeline recorded to what each path shall be: wishes for a plan. Pure.

The story of a path is what this session's messages and acts did to it, in order:

    m1: v0→v1      m2: v1→v2      undo m2: v2→v1      m3: v1→v3

Going back to before m1 wants v0, and expects v3, which is what the timeline recorded last. Where a link of
the chain does not fit the next one, somebody else edited the path in between: a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from shadowtree.frozen import frozen, replace
from shadowtree.paths import RelPath, is_among
from shadowtree.plan import Wish
from shadowtree.state import Change, Unknown
from shadowtree.tombstones import PURGED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.state import Answer


@frozen
class Foreign:
    """Something that another session did to a path."""

    reason: str
    """What it was, in words."""
    is_entangled: bool = False
    """It is part of what a message is said to have done, and cannot be told from it."""


@frozen
class Happening:
    """Something that this session did to paths."""

    number: int
    """Of the event; they come in this order."""
    label: str
    """What it was, in words: `message 'm1'`."""
    changes: list[Change]
    is_act: bool = False


def wish_back(
    over: Collection[int],
    story: Sequence[Happening],
    others: Mapping[RelPath, Foreign],
    merged: Collection[RelPath] = (),
    passed: Collection[int] = (),
) -> list[Wish]:
    """Wish every path that the happenings `over` changed to what it was before the first of them.

    `story` is all that the session did to these paths since, those included. `others` tells for a path what
    another session did to it. At the paths `merged` the messages' changes are to be taken out from under
    what came later. What the happenings `passed` did was taken out before, and is not there any more.
    """
    return [
        seen.wish(path, _known(seen.first.old, "before"), others.get(path), path in merged)
        for path, seen in sorted(_follow(over, story, _Path.take_out, passed).items())
    ]


def wish_forward(
    over: Collection[int],
    story: Sequence[Happening],
    others: Mapping[RelPath, Foreign],
    merged: Collection[RelPath] = (),
) -> list[Wish]:
    """Wish every path that the happenings `over` changed to what it was after the last of them."""
    return [
        seen.wish_forward(path, others.get(path), path in merged)
        for path, seen in sorted(_follow(over, story, _Path.put_in).items())
    ]


def wish_across(back: Sequence[Wish], forward: Sequence[Wish]) -> list[Wish]:
    """Wish to go back first and then forward.

    A path that is to be the same at both ends is left alone, whatever somebody else made of it.
    """
    return [wish for wish in join_wishes(back, forward) if wish.edits or wish.target != wish.expected]


def join_wishes(first: Sequence[Wish], then: Sequence[Wish]) -> list[Wish]:
    """Wish one thing and then another: of a path in both, what the second wish says comes of it."""
    wishes = {wish.path: wish for wish in first}
    for wish in then:
        before = wishes.get(wish.path)
        if before is not None:
            trouble = before.trouble or wish.trouble
            edits = _join([*before.edits, *wish.edits])
            can_merge = before.can_merge and wish.can_merge
            wish = replace(wish, trouble=trouble, edits=edits, can_merge=can_merge)
        wishes[wish.path] = wish
    return [wishes[path] for path in sorted(wishes)]


def wish_states(states: Mapping[RelPath, Answer], wishes: Sequence[Wish]) -> list[Wish]:
    """Wish some paths to be in states that are known from elsewhere.

    One that is in that state already, as far as the timeline knows, is left alone.
    """
    mended = [
        replace(wish, target=_known(states[wish.path], "in the tree")) if wish.path in states else wish
        for wish in wishes
    ]
    return [wish for wish in mended if wish.path not in states or wish.target != wish.expected]


def wish_tree(changes: Iterable[Change]) -> list[Wish]:
    """Wish every path to what a tree has, given how that differs from now; what is there is expected."""
    return [
        Wish(change.path, _known(change.new, "in the tree"), change.old)
        for change in changes
        # What no rule covers now and the tree does not have is nobody's business.
        if change.new is not None or not isinstance(change.old, Unknown)
    ]


def narrow(wishes: Iterable[Wish], paths: Collection[RelPath]) -> list[Wish]:
    """Leave out the wishes for other paths than these and those below them."""
    return [wish for wish in wishes if is_among(wish.path, paths)]


def _follow(
    over: Collection[int],
    story: Sequence[Happening],
    count: Callable[[_Path, Change], None],
    passed: Collection[int] = (),
) -> dict[RelPath, _Path]:
    """Tell the story of every path that the happenings `over` changed, from the first of them on."""
    paths: dict[RelPath, _Path] = {}
    for happening in story:
        for change in happening.changes:
            if change.path in paths:
                paths[change.path].go_on(change, happening)
            elif happening.number in over:
                paths[change.path] = _Path(change, happening.label)
            if happening.number in over and happening.number not in passed:
                count(paths[change.path], change)
    return paths


class _Path:
    """The story of one path so far."""

    def __init__(self, first: Change, label: str) -> None:
        self.first = first
        self.last: Answer = first.new
        """What was last recorded for it; where that is unknown, what was known before."""
        self._left = first.new
        """What the last happening left, known or not."""
        self.label = label
        self.edits: list[Change] = []
        """What the way does to it, in the order of the way."""
        self.target: Answer = None
        """What it was after the last happening on the way."""
        self.is_known = False
        """Some happening on the way has it in its patch."""
        self._edited: dict[Answer, str] = {}
        """States that hold somebody's edit, and what tells that."""
        self._plain: set[Answer] = {first.old, first.new}
        """States that hold none."""

    def take_out(self, change: Change) -> None:
        """Count a change that is to be taken back."""
        self.edits = _join([Change(change.path, change.new, change.old), *self.edits])

    def put_in(self, change: Change) -> None:
        """Count a change that is to be made again."""
        self.edits = _join([*self.edits, change])
        self.target = change.new
        self.is_known = self.is_known or change.is_known

    def go_on(self, change: Change, happening: Happening) -> None:
        """Take in the next change.

        A message that goes on from somebody's edit still holds it. An act moves from state to state: the edit
        is in the way as long as the path is in one that holds it.
        """
        if happening.is_act and change.old == change.new:
            # The act found it as it was wished: whoever made it so, it is agreed upon.
            self._edited.pop(change.old, None)
            self.last, self._left, self.label = change.new, change.new, happening.label
            return
        reason = self._find_edit(change, happening)
        self._left = change.new
        if reason is not None:
            self._mark(change.old, reason)
        if reason is not None and (change.is_merged or not happening.is_act):
            self._mark(change.new, reason)
        elif reason is None:
            self._plain.add(change.new)
        if not isinstance(change.new, Unknown) or isinstance(self.last, Unknown):
            self.last = change.new
        self.label = happening.label

    def _find_edit(self, change: Change, happening: Happening) -> str | None:
        """Say in words whose edit a change goes on from; None: it goes on from what was recorded last."""
        if change.old in self._edited:
            return self._edited[change.old]
        if isinstance(change.old, Unknown):
            if change.new == self.last or change.old == self._left == Unknown(PURGED):
                # What one left and the next one found was the same, before it was purged.
                return None
            # Whoever changed it while no rule covered it, it may have been the user.
            return f"nobody knows what it was between {self.label} and {happening.label}"
        if isinstance(self.last, Unknown) or change.old == self.last:
            return None
        # Of several edits the first one is told.
        return self._edited.get(self.last) or f"it was edited between {self.label} and {happening.label}"

    def _mark(self, state: Answer, reason: str) -> None:
        if state not in self._plain:
            self._edited[state] = reason

    def wish(self, path: RelPath, target: Answer, other: Foreign | None, is_merged: bool) -> Wish:
        """Wish it back to what it was."""
        trouble = self._edited.get(self.last) if other is None else other.reason
        first = self.first.new
        # Where nobody knows what was made of it, it is taken back only if it is what it was anyway.
        doubt = f"unknown after: {first.reason}" if isinstance(first, Unknown) else None
        can_merge = other is None or not other.is_entangled
        return Wish(path, target, self.last, trouble, self.label, doubt, self.edits, is_merged, can_merge)

    def wish_forward(self, path: RelPath, other: Foreign | None, is_merged: bool) -> Wish:
        """Wish it to be what was made of it."""
        trouble = self._edited.get(self.last) if other is None else other.reason
        doubt = None if self.is_known else "unknown before"
        target = _known(self.target, "after")
        can_merge = other is None or not other.is_entangled
        return Wish(path, target, self.last, trouble, self.label, doubt, self.edits, is_merged, can_merge)


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
    return Unknown(f"unknown {when}: {answer.reason}") if isinstance(answer, Unknown) else answer
