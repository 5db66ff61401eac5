"""The rows of the picker: the messages of the present line, newest first, with "now" among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from shadowtree.base.frozen import frozen
from shadowtree.results.messages import Message


@frozen
class Row:
    """A message, or now."""

    message: Message | None = None
    """None: now."""
    is_edited: bool = False
    """Files changed between the message before it and this one: usually your own edits."""
    lines_on: int = 1
    """How many branches continue from it, the present line included."""

    @property
    def id(self) -> str | None:
        """The id of its message; None for now."""
        return None if self.message is None else self.message.id

    @property
    def is_redoable(self) -> bool:
        """Whether redo can bring it back."""
        return self.message is not None and self.message.state == "undone" and not self.message.is_out

    @property
    def agent(self) -> str:
        """The agent of its message; empty if it is not known."""
        return "" if self.message is None else find_agent(self.message)


NOW = Row()


def make_rows(messages: Sequence[Message]) -> tuple[Row, ...]:
    """Make the rows of a session's newest messages, which are given oldest first.

    Messages that redo can bring back are above now, all others below it. Archived ones have no row: they are
    listed with their branches.
    """
    after = {message.id: message.after for message in messages}
    lines_on = Counter(message.parent for message in messages)
    rows = []
    for message in reversed(messages):
        if message.state != "archived":
            last = after.get(message.parent or "")
            is_edited = last is not None and last != message.before
            rows.append(Row(message, is_edited, max(1, lines_on[message.id])))
    place = next((place for place, row in enumerate(rows) if not row.is_redoable), len(rows))
    return (*rows[:place], NOW, *rows[place:])


def filter_rows(rows: Iterable[Row], query: str) -> tuple[Row, ...]:
    """Keep now, and the rows that have every word of a query in the number, text, agent or file names."""
    words = query.lower().split()
    return tuple(row for row in rows if row.message is None or all(word in _text_of(row) for word in words))


def find_agent(message: Message) -> str:
    """Name the agent of a message."""
    agent = (message.meta or {}).get("agent")
    return agent if isinstance(agent, str) else ""


def _text_of(row: Row) -> str:
    """Join the texts in which a query is searched."""
    assert row.message is not None
    paths = (changed.path for changed in row.message.patch.files)
    parts = (f"#{row.message.number}", row.message.id, row.message.text, row.agent, *paths)
    return "\n".join(parts).lower()
