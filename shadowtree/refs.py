"""Which recorded tree a name means."""

from __future__ import annotations

from shadowtree.errors import AmbiguousMessage, InvalidInput, NotRecorded, UnknownMessage, UnknownTree
from shadowtree.events import MessageRow
from shadowtree.journal import Journal, TreeRecord
from shadowtree.sessions import MessageEvents, Session


def find_tree(journal: Journal, session: Session, name: str) -> TreeRecord:
    """Find the tree that a name means: after a message or a branch, with `^` before it, or a tree's id."""
    record = _find_tree_by_id(journal, name) if session.find_exact(name) is None else None
    if record is not None and session.find_branch(name) is None:
        return record
    try:
        row, is_before = _find_side(session, name)
    except AmbiguousMessage:
        raise
    except UnknownMessage as error:
        raise UnknownTree(name) from error
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
    is_id = len(tree) == 40 and not set(tree) - set("0123456789abcdef")
    return journal.find_tree(bytes.fromhex(tree)) if is_id else None
