"""Which recorded tree a name means."""

from __future__ import annotations

from shadowtree.errors import (
    AmbiguousMessage,
    ForgottenMessage,
    ForgottenTree,
    InvalidInput,
    NotRecorded,
    UnknownMessage,
    UnknownTree,
)
from shadowtree.events import MessageRow, TreeRecord
from shadowtree.journal import Journal
from shadowtree.sessions import MessageEvents, Session


def find_tree(journal: Journal, session: Session, name: str) -> TreeRecord:
    """Find the tree that a name means: after a message or a branch, with `^` before it, or a tree's id."""
    record = _find_tree_by_id(journal, name) if session.find_exact(name) is None else None
    if record is not None and session.find_branch(name) is None:
        return record
    try:
        row, is_before = _find_side(session, name)
    except (AmbiguousMessage, ForgottenMessage):
        raise
    except UnknownMessage as error:
        raise _unknown_tree(journal, name) from error
    events = MessageEvents(journal.events_of([row.number]))
    begin, end = events.begins[row.number], events.ends.get(row.number)
    number = begin.before if is_before else end.after if end is not None else None
    if number is not None:
        return journal.tree(number)
    if not is_before and end is None:
        raise InvalidInput(f"message {row.id!r} is still open")
    raise NotRecorded(row.id, (end.hole if end else None) or begin.hole or "it has no tree")


def _find_side(session: Session, name: str) -> tuple[MessageRow, bool]:
    is_before = name.endswith("^") and session.find_id(name) is None and session.find_branch(name) is None
    row, _ = session.resolve_ref(name[:-1] if is_before else name)
    return row, is_before


def _find_tree_by_id(journal: Journal, tree: str) -> TreeRecord | None:
    return journal.find_tree(bytes.fromhex(tree)) if _is_id(tree) else None


def _unknown_tree(journal: Journal, name: str) -> UnknownTree:
    gone = journal.find_forgotten_tree(bytes.fromhex(name)) if _is_id(name) else None
    if gone is None or gone.forgotten_ms is None:
        return UnknownTree(name)
    return ForgottenTree(name, gone.forgotten_ms)


def _is_id(name: str) -> bool:
    return len(name) == 40 and not set(name) - set("0123456789abcdef")
