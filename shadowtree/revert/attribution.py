"""Whose changes an act reverses: messages that nobody ended, and a repository whose HEAD moved meanwhile.

A message that nobody ended was closed later, by the next one or by an act. What changed before that counts as
the message's, though somebody else may have made it:

    begin m1   step s1   step s1 ends   (the agent dies)   edits   begin m2 closes m1
                                        └───────── uncertain ────────┘

With all steps ended m1 ends with the last of them, and nothing is uncertain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shadowtree.base.paths import Change, RelPath, is_file, to_text
from shadowtree.capture.recorded_tree import list_changes
from shadowtree.revert.history import History
from shadowtree.timeline.schema import END, MessageRow
from shadowtree.timeline.session import MessageEvents

_NAMED = 3
"""How many messages a note names."""


class Attribution:
    """What is to be known of the messages that an act passes."""

    def __init__(self, history: History, over: Sequence[MessageRow], undone: Sequence[MessageRow]) -> None:
        self._history = history
        self._over = over
        numbers = {row.number for row in (*over, *undone)}
        self._events = MessageEvents(history.journal.events_of(sorted(numbers)) if numbers else ())
        self._never_ended = [row for row in undone if self._is_inferred(row)]
        self._changes = history.changes_of(self._never_ended) if self._never_ended else []

    def _is_inferred(self, row: MessageRow) -> bool:
        end = self._events.ends.get(row.number)
        return end is None or (end.kind == END and end.is_inferred)

    def note_ends(self, act: str) -> Iterator[str]:
        """Note which message the act ends, and which ones nobody ended."""
        changed = {message.message for message in self._changes if message.changes}
        at_step = [row for row in self._never_ended if self._events.last_step_of(row.number) is not None]
        closed = [row for row in self._never_ended if row not in at_step and row.number in changed]
        if self._history.ending is not None:
            row = self._history.ending.row
            end = " with its last step" if row in at_step else ""
            if row in closed:
                end = "; edits that you made meanwhile may be undone too"
            yield f"message {row.id!r} was still open, so this {act} ends it{end}"
            at_step, closed = ([each for each in rows if each != row] for rows in (at_step, closed))
        if len(closed) == 1:
            end = "edits you made before it was closed may be undone too"
            yield f"{_name(closed)} was never ended: {end}"
        elif closed:
            end = "edits you made before they were closed may be undone too"
            yield f"{_name(closed)} were never ended: {end}"
        if at_step:
            end = "was never ended: it" if len(at_step) == 1 else "were never ended: each"
            yield f"{_name(at_step)} {end} ends with its last step"

    def note_head(self, now: str | None) -> Iterator[str]:
        """Note that the HEAD of the user's repository moved during the messages, or since."""
        if not self._over:
            return
        then, moved = self._events.begins[self._over[0].number].git_head, []
        for row in self._over:
            begin, end = self._events.begins[row.number], self._events.ends.get(row.number)
            heads = (None, None) if end is None else (begin.git_head, end.git_head)
            if None not in heads and heads[0] != heads[1]:
                moved.append(row)
                then = heads[1]
        if moved:
            yield f"git HEAD moved during {_name(moved)}"
        if then is not None and now is not None and then != now:
            yield f"git HEAD has moved since then, from {then[:12]} to {now[:12]}"

    def list_uncertain(self, changes: Iterable[Change]) -> list[str]:
        """List those of some changed paths that somebody else than the messages may have changed."""
        uncertain = self._find_uncertain()
        return [
            to_text(change.path)
            for change in changes
            if change.path in uncertain and (is_file(change.old) or is_file(change.new))
        ]

    def _find_uncertain(self) -> set[RelPath]:
        """Find what messages that nobody ended changed after their last finished step."""
        history, found = self._history, set[RelPath]()
        for message in self._changes:
            if self._events.last_step_of(message.message) is not None:
                continue
            own = {change.path for change in message.changes}
            finished = self._events.finished_steps(message.message)
            if finished:
                last = max(finished, key=lambda end: end.number)
                end = self._events.ends.get(message.message)
                own &= {c.path for c in list_changes(history.tree_after(last), history.tree_after(end))}
            found |= own
        return found


def _name(rows: Sequence[MessageRow]) -> str:
    names = ", ".join(repr(row.id) for row in rows[:_NAMED])
    more = f" and {len(rows) - _NAMED:,} more" if len(rows) > _NAMED else ""
    return f"{'message' if len(rows) == 1 else 'messages'} {names}{more}"
