"""From what the timeline recorded to what each path shall be: wishes for a plan. Pure.

The story of a path is what this session's messages and acts did to it, in order:

    m1: v0→v1      m2: v1→v2      undo m2: v2→v1      m3: v1→v3

Going back to before m1 wants v0, and expects v3, which is what the timeline recorded last. Where a link of
the chain does not fit the next one, somebody else edited the path in between: a conflict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shadowtree.frozen import frozen
from shadowtree.paths import RelPath, is_among
from shadowtree.plan import Wish
from shadowtree.state import Change, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.state import Answer


@frozen
class Happening:
    """Something that this session did to paths."""

    number: int
    """Of the event; they come in this order."""
    label: str
    """What it was, in words: `message 'm1'`."""
    changes: list[Change]
    is_act: bool = False


def wish_back(over: Collection[int], story: Sequence[Happening], others: Mapping[RelPath, str]) -> list[Wish]:
    """Wish every path that the happenings `over` changed to what it was before the first of them.

    `story` is all that the session did since, those included. `others` tells for a path what another session
    did to it.
    """
    wishes: dict[RelPath, _Path] = {}
    for happening in story:
        for change in happening.changes:
            if change.path in wishes:
                wishes[change.path].go_on(change, happening)
            elif happening.number in over:
                wishes[change.path] = _Path(change, happening.label)
    return [wishes[path].wish(path, others.get(path)) for path in sorted(wishes)]


def wish_forward(
    over: Collection[int], story: Sequence[Happening], others: Mapping[RelPath, str]
) -> list[Wish]:
    """Wish every path that the happenings `over` changed to what it was after the last of them."""
    targets: dict[RelPath, Answer] = {}
    in_patch: set[RelPath] = set()
    wishes: dict[RelPath, _Path] = {}
    for happening in story:
        for change in happening.changes:
            if happening.number in over:
                targets[change.path] = change.new
                if change.is_known:
                    in_patch.add(change.path)
            if change.path in wishes:
                wishes[change.path].go_on(change, happening)
            elif change.path in targets:
                wishes[change.path] = _Path(change, happening.label)
    return [
        Wish(
            path,
            _known(targets[path], "after"),
            seen.last,
            others.get(path),
            seen.label,
            None if path in in_patch else "unknown before",
        )
        for path, seen in sorted(wishes.items())
        if path in targets
    ]


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


class _Path:
    """The story of one path so far."""

    def __init__(self, first: Change, label: str) -> None:
        self.target = first.old
        self.last: Answer = first.new
        """What was last recorded for it; where that is unknown, what was known before."""
        self.label = label
        self.trouble: str | None = None
        self.doubt = f"unknown after: {first.new.reason}" if isinstance(first.new, Unknown) else None
        """Why nobody knows what the first of them made of it."""
        self._edits: dict[Answer, str] = {}
        """States that hold somebody's edit, which an act replaced and another one may have brought back."""

    def go_on(self, change: Change, happening: Happening) -> None:
        """Take in the next change. An edit that an act replaced is in the way only if it came back."""
        if happening.is_act and change.old == change.new:
            # The act found it as it was wished: whoever made it so, it is agreed upon.
            self._edits.pop(change.old, None)
            self.last, self.label = change.new, happening.label
            return
        is_known = not isinstance(change.old, Unknown) and not isinstance(self.last, Unknown)
        reason = self._edits.get(change.old)
        if is_known and change.old != self.last and reason is None:
            reason = f"it was edited between {self.label} and {happening.label}"
        if isinstance(change.old, Unknown) and change.new != self.last and reason is None:
            # Whoever changed it while no rule covered it, it may have been the user.
            reason = f"nobody knows what it was between {self.label} and {happening.label}"
        if reason is not None and happening.is_act:
            self._edits[change.old] = reason
        elif reason is not None:
            self.trouble = self.trouble or reason
        if not isinstance(change.new, Unknown) or isinstance(self.last, Unknown):
            self.last = change.new
        self.label = happening.label

    def wish(self, path: RelPath, other: str | None) -> Wish:
        """Wish it back to what it was."""
        trouble = other or self.trouble or self._edits.get(self.last)
        # Where nobody knows what was made of it, it is taken back only if it is what it was anyway.
        return Wish(path, _known(self.target, "before"), self.last, trouble, self.label, self.doubt)


def _known(answer: Answer, when: str) -> Answer:
    return Unknown(f"unknown {when}: {answer.reason}") if isinstance(answer, Unknown) else answer
