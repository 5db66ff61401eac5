"""The branches of a session: what leaves the line is kept on them, so many at most, under names.

A branch that is dropped is no longer listed. Its messages stay recorded, and each can be switched to by its
id.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from shadowtree.base.errors import InvalidInput
from shadowtree.config.settings import Settings
from shadowtree.results.messages import Branch
from shadowtree.timeline.events import MessageRow
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import archive, first_line
from shadowtree.timeline.session import Session

_LONGEST = 40
"""So many characters of a slug a name has at most."""
_NO_LETTERS = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"-\d+\Z")


class Branches:
    """Keeps the branches of sessions. Only for the holder of the lock."""

    def __init__(self, journal: Journal, settings: Settings) -> None:
        self._journal = journal
        self._settings = settings
        self._has_grown = False
        self.warnings: list[str] = []
        """What a user should know of what was archived."""

    def archive(self, session: Session, left: list[MessageRow], event: int) -> None:
        """Keep messages, oldest first, that the position of a session has left by now."""
        for branch in session.branch_rows():
            session.load_line(branch.tip, left[0].number)
        for kept in archive(left, session.branch_rows(), session.find):
            if kept.branch is not None:
                self._journal.move_branch(kept.branch.number, fork=kept.fork, tip=kept.tip, event=event)
                continue
            first = next(row for row in left if row.parent == kept.fork)
            name = name_branch(first.text or f"branch {first.id}", lambda name: self._is_used(session, name))
            self._journal.add_branch(first.session, name, kept.fork, kept.tip, event)
            self._has_grown = True

    def _is_used(self, session: Session, name: str) -> bool:
        # A message goes before a branch: nobody could switch to one that is called like it.
        return session.find_branch(name) is not None or session.find_exact(name) is not None

    def limit(self, session: Session) -> None:
        """Drop the oldest branches above the limit, and say so; say too when it comes near."""
        most, warns_from = self._settings.max_branches, self._settings.warn_branches
        rows = session.branch_rows()
        if len(rows) <= most and not (self._has_grown and len(rows) >= warns_from):
            return
        branches = [row for row in rows if not session.is_active(row)]
        for branch in sorted(branches, key=lambda row: row.event)[: max(0, len(branches) - most)]:
            self._journal.drop_branch(branch.number)
            self.warnings.append(
                f"branch {branch.name!r} is no longer listed: a session keeps {most:,}; "
                f"its last message, {session.find(branch.tip).id!r}, can still be switched to"
            )
        if self._has_grown and warns_from <= len(branches) <= most:
            self.warnings.append(f"this session has {len(branches):,} branches, and keeps {most:,} at most")

    def warn_of(self, session: Session, message_id: str) -> None:
        """Warn of a message that is called like a branch: a message goes before a branch."""
        if session.find_branch(message_id) is not None:
            self.warnings.append(
                f"a branch is called {message_id!r} too, and can be switched to after 'branches rename' only"
            )

    def rename(self, session: Session, name: str, new: str) -> Branch:
        """Give a branch another name."""
        branch = session.require_branch(name)
        if not new.strip() or new.startswith(("#", "@")):
            raise InvalidInput(f"a branch cannot be called {new!r}")
        if new != name and session.find_branch(new) is not None:
            raise InvalidInput(f"a branch is called {new!r} already")
        if session.find_exact(new) is not None:
            raise InvalidInput(f"a message is called {new!r}, so that nobody could switch to the branch")
        with self._journal.transaction():
            self._journal.rename_branch(branch.number, new)
            return session.read_branches([session.require_branch(new)])[0]

    def drop(self, session: Session, name: str) -> Branch:
        """Take a branch from the list; its messages stay recorded."""
        branch = session.require_branch(name)
        if session.is_active(branch):
            raise InvalidInput(f"branch {name!r} is the present line")
        dropped = session.read_branches([branch])[0]
        self._journal.drop_branch(branch.number)
        return dropped


# Names


def name_branch(text: str, is_used: Callable[[str], bool]) -> str:
    """Make up the name of a branch from the text of its first message: `fix-login`, `fix-login-2`."""
    return number_name(name_text(text), is_used)


def name_text(text: str) -> str:
    """Give the slug of a text by which a branch is named."""
    return make_slug(first_line(text))[:_LONGEST].strip("-") or "branch"


def make_slug(text: str) -> str:
    """Give the letters and digits of a text in small letters, with one dash for all between them.

    Fix the Login, now!    ──▶    fix-the-login-now
    """
    return _NO_LETTERS.sub("-", text.lower()).strip("-")


def without_number(name: str) -> str:
    """Give a name without the number by which it may differ from others: `fix-login` of `fix-login-2`."""
    return _NUMBER.sub("", name)


def number_name(base: str, is_used: Callable[[str], bool]) -> str:
    """Give a name that nothing else has: `fix-login`, `fix-login-2`."""
    name, number = base, 1
    while is_used(name):
        number += 1
        name = f"{base}-{number}"
    return name
