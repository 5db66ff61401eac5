"""Find what a name means, a message, branch or tree: `m1`, `#7`, `7`, `@~2`, `fix-login`, `m1^`, a tree's id.

An exact name takes precedence over the beginning of one, a message over a branch, and a branch over a tree:

    msg_01        its exact id
    #7, 7         its number; digits that also begin another id are ambiguous
    @, @~2, @~    the last message in force, the second before it, the one before it
    msg_01^       the one before it; as a tree, the state before it
    msg_          the beginning of one id, or of one branch: four characters or more, not all digits
    3f2a91c       the beginning of one tree's id: seven digits or more
"""

from __future__ import annotations

from shadowtree.base.errors import (
    AmbiguousMessage,
    ForgottenTree,
    InvalidInput,
    UnknownMessage,
    UnknownTree,
)
from shadowtree.timeline.position import in_force, walk_back
from shadowtree.timeline.session import MessageEvents, Session, require_live
from shadowtree.timeline.sqlite.schema import BranchRow, MessageRow, TreeRecord

SHORTEST_BEGINNING = 4
"""The fewest characters of an id or a branch; with fewer, a typo would name another message."""
SHORTEST_TREE = 7
_TREE_DIGITS = 40

Found = tuple[MessageRow, BranchRow | None]
"""A message, and the branch whose last message it is, if a branch was named."""


def resolve_message(session: Session, name: str) -> MessageRow:
    """Return the message that a name means; raise ForgottenMessage if it was forgotten."""
    _require_text(name)
    row = find_exact(session, name) or _find_above(session, name) or _find_prefix(session, name)
    if row is None:
        raise UnknownMessage(name)
    return require_live(row)


def resolve_ref(session: Session, name: str) -> Found:
    """Return the message that a name means, or the last message of a branch, with the branch."""
    _require_text(name)
    found = _find_ref(session, name)
    if found is None:
        raise UnknownMessage(name, f"no message or branch named {name!r}")
    row, branch = found
    return require_live(row), branch


def resolve_tree(session: Session, name: str) -> TreeRecord:
    """Return the tree that a name means: after a message or branch, before it (`^`), or with this id."""
    _require_text(name)
    if name == "@" and (wrap := _find_wrap(session)) is not None:
        return wrap
    found = _find_exact_ref(session, name)
    tree = None if found is not None else _find_exact_tree(session, name)
    if tree is not None and tree.forgotten_ms is None:
        return tree
    if found is None and name.endswith("^"):
        before = _find_ref(session, name[:-1])
        if before is not None:
            return _tree_of(session, require_live(before[0]), is_before=True)
    found = found or _find_beginning(session, name)
    if found is not None:
        return _tree_of(session, require_live(found[0]), is_before=False)
    tree = tree or _find_short_tree(session, name)
    if tree is None:
        raise UnknownTree(name)
    if tree.forgotten_ms is not None:
        raise ForgottenTree(name, tree.forgotten_ms)
    return tree


def _require_text(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidInput(f"messages, branches and trees are named by text, not {name!r}")


def _find_wrap(session: Session) -> TreeRecord | None:
    """Return the tree that `wrap` recorded, if no message is in force."""
    wrap = session.journal.last_wrap()
    if wrap is None or any(in_force(session.position, session.find)):
        return None
    return session.journal.tree(wrap.after)


def find_exact(session: Session, name: str) -> MessageRow | None:
    """Return the message that a name means exactly: an id, `#7`, `7`, `@`, `@~2` or `@~`."""
    if session.number is None:
        return None
    row = session.find_id(name)
    if row is not None:
        return row
    if name.startswith("#") and _is_number(name[1:]):
        return session.journal.find_ordinal(session.number, int(name[1:]))
    if _is_number(name):
        return _find_number(session, session.number, name)
    if name in ("@", "@~"):
        return _find_back(session, name, len(name) - 1)
    if name.startswith("@~") and _is_number(name[2:]):
        return _find_back(session, name, int(name[2:]))
    return None


def _find_number(session: Session, number: int, digits: str) -> MessageRow | None:
    """Return the message with a number; raise AmbiguousMessage if another message's id begins with it."""
    row = session.journal.find_ordinal(number, int(digits))
    if row is None:
        return None
    others = [
        each.id
        for each in session.journal.find_prefix(number, digits)
        if each.number != row.number and each.forgotten_ms is None
    ]
    if others:
        first = f"#{row.ordinal} ({row.id!r})"
        raise AmbiguousMessage(digits, [row.id, *others], f"{digits!r} could mean {first} or {others[0]!r}")
    return row


def _find_back(session: Session, name: str, back: int) -> MessageRow:
    for place, row in enumerate(in_force(session.position, session.find)):
        if place == back:
            return row
    raise UnknownMessage(name)


def _find_above(session: Session, name: str) -> MessageRow | None:
    """Return the message before the one in `m1^`, skipping those taken out of the line."""
    found = _find_ref(session, name[:-1]) if name.endswith("^") else None
    if found is None:
        return None
    above = walk_back(found[0].parent, session.find)
    row = next((row for row in above if not session.position.is_out(row.number)), None)
    if row is None:
        raise UnknownMessage(name, f"{found[0].id!r} is the first message, so there is none before it")
    return row


def _find_ref(session: Session, name: str) -> Found | None:
    found = _find_exact_ref(session, name)
    if found is not None:
        return found
    above = _find_above(session, name)
    return (above, None) if above is not None else _find_beginning(session, name)


def _find_exact_ref(session: Session, name: str) -> Found | None:
    row = find_exact(session, name)
    if row is not None:
        return row, None
    branch = session.find_branch(name)
    return None if branch is None else (session.find(session.tip_of(branch)), branch)


def _find_beginning(session: Session, name: str) -> Found | None:
    row = _find_prefix(session, name)
    if row is not None:
        return row, None
    if not _is_beginning(name):
        return None
    branches = [branch for branch in session.branch_rows() if branch.name.startswith(name)]
    _require_one(name, [branch.name for branch in branches], "branches")
    return (session.find(session.tip_of(branches[0])), branches[0]) if branches else None


def _find_prefix(session: Session, name: str) -> MessageRow | None:
    """Return the only message whose id begins with `name`; a forgotten one only if there is no other."""
    if session.number is None or not _is_beginning(name):
        return None
    candidates = session.journal.find_prefix(session.number, name)
    live = [row for row in candidates if row.forgotten_ms is None]
    candidates = live or candidates
    _require_one(name, [row.id for row in candidates], "messages")
    return candidates[0] if candidates else None


def _find_exact_tree(session: Session, name: str) -> TreeRecord | None:
    is_id = _is_tree(name) and len(name) == _TREE_DIGITS
    return session.journal.find_tree(bytes.fromhex(name)) if is_id else None


def _find_short_tree(session: Session, name: str) -> TreeRecord | None:
    ids = session.journal.find_tree_ids(name) if _is_tree(name) else []
    _require_one(name, [each.hex() for each in ids], "trees")
    return session.journal.find_tree(ids[0]) if ids else None


def _tree_of(session: Session, row: MessageRow, *, is_before: bool) -> TreeRecord:
    events = MessageEvents(session.journal.events_of([row.number]))
    end = events.ends.get(row.number)
    if not is_before and end is None:
        raise InvalidInput(f"message {row.id!r} is still open")
    return session.journal.tree(events.begins[row.number].before if is_before or end is None else end.after)


def _require_one(name: str, candidates: list[str], what: str) -> None:
    if len(candidates) > 1:
        raise AmbiguousMessage(name, candidates, what=what)


def _is_beginning(name: str) -> bool:
    return len(name) >= SHORTEST_BEGINNING and not (name.isascii() and name.isdigit())


def _is_tree(name: str) -> bool:
    return SHORTEST_TREE <= len(name) <= _TREE_DIGITS and not set(name) - set("0123456789abcdef")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
