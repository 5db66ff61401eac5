"""Which message, branch or tree a name means: `m1`, `#7`, `@~2`, `fix-login`, `m1^`, a tree's id."""

from __future__ import annotations

from shadowtree.base.errors import (
    AmbiguousMessage,
    ForgottenMessage,
    ForgottenTree,
    InvalidInput,
    UnknownMessage,
    UnknownTree,
)
from shadowtree.timeline.position import in_force
from shadowtree.timeline.schema import BranchRow, MessageRow, TreeRecord
from shadowtree.timeline.session import MessageEvents, Session, require_live


def resolve_message(session: Session, name: str) -> MessageRow:
    """Tell which message a name means: an id, `#7`, `@`, `@~2`, or the beginning of one id.

    ForgottenMessage if it was forgotten.
    """
    row = find_exact(session, name) or _find_prefix(session, name)
    if row is None:
        raise UnknownMessage(name)
    return require_live(row)


def resolve_ref(session: Session, name: str) -> tuple[MessageRow, BranchRow | None]:
    """Tell which message a name means, or which branch, whose last message it is then."""
    row = find_exact(session, name)
    branch = session.find_branch(name) if row is None else None
    if branch is not None:
        return require_live(session.find(session.tip_of(branch))), branch
    row = row or _find_prefix(session, name)
    if row is None:
        raise UnknownMessage(name, f"no message or branch is called {name!r}")
    return require_live(row), None


def resolve_tree(session: Session, name: str) -> TreeRecord:
    """Find the tree that a name means: after a message or a branch, with `^` before it, or a tree's id."""
    record = None
    if find_exact(session, name) is None and len(name) == 40 and not set(name) - set("0123456789abcdef"):
        record = session.journal.find_tree(bytes.fromhex(name))
    gone_ms = None if record is None else record.forgotten_ms
    if record is not None and gone_ms is None and session.find_branch(name) is None:
        return record
    is_before = name.endswith("^") and session.find_id(name) is None and session.find_branch(name) is None
    try:
        row, _ = resolve_ref(session, name[:-1] if is_before else name)
    except (AmbiguousMessage, ForgottenMessage):
        raise
    except UnknownMessage as error:
        raise (UnknownTree(name) if gone_ms is None else ForgottenTree(name, gone_ms)) from error
    events = MessageEvents(session.journal.events_of([row.number]))
    end = events.ends.get(row.number)
    if not is_before and end is None:
        raise InvalidInput(f"message {row.id!r} is still open")
    return session.journal.tree(events.begins[row.number].before if is_before or end is None else end.after)


def find_exact(session: Session, name: str) -> MessageRow | None:
    """Give the message that a name means as it stands: an id, `#7`, `@` or `@~2`."""
    if session.number is None:
        return None
    row = session.find_id(name)
    if row is not None:
        return row
    if name.startswith("#") and _is_number(name[1:]):
        return session.journal.find_ordinal(session.number, int(name[1:]))
    if name != "@" and not (name.startswith("@~") and _is_number(name[2:])):
        return None
    back = int(name[2:]) if name != "@" else 0
    for row in in_force(session.position, session.find):
        if not back:
            return row
        back -= 1
    raise UnknownMessage(name)


def _find_prefix(session: Session, name: str) -> MessageRow | None:
    """Give the one message whose id begins thus; a forgotten one only if there is no other."""
    if session.number is None or not name:
        return None
    candidates = session.journal.find_prefix(session.number, name)
    live = [row for row in candidates if row.forgotten_ms is None]
    candidates = live or candidates
    if len(candidates) > 1:
        raise AmbiguousMessage(name, [row.id for row in candidates])
    return candidates[0] if candidates else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
