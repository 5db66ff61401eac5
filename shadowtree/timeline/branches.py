"""Branches: which one keeps the messages that leave the line, and what each is named. Pure.

`append` adds them to the journal, `session` returns them as values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from shadowtree.base.frozen import frozen
from shadowtree.timeline.position import FindMessage, first_line, walk_back
from shadowtree.timeline.sqlite.schema import BranchRow, MessageRow

_LONGEST = 40
"""At most this many characters of a slug are used as a name."""
_NO_LETTERS = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"-\d+\Z")


@frozen
class Archive:
    """A branch that keeps messages that leave the line."""

    branch: BranchRow | None
    """The branch as it was so far; None if it is new."""
    fork: int | None
    tip: int


def archive(left: list[MessageRow], branches: list[BranchRow], find: FindMessage) -> list[Archive]:
    """Decide which branches keep the messages that leave the line (oldest first); omit unchanged branches.

    A branch that the session switched to and continued also gets the newer messages. No message is on two
    branches:

        m1 ── m2 ── m3        fix: m2, m3     the session goes from m4 to m1: m2 is on `fix` already,
               └─── m4        left: m2, m4    so that m4 is all that the new branch has

    A message that is on no branch yet goes to the branch of the message after it.
    """
    owners = find_owners(branches, left[0].number, find)
    own = find_own(reversed(left), owners)
    found: dict[int | None, Archive] = {}
    branch = own
    for row in reversed(left):
        branch = owners.get(row.number, branch)
        tip = left[-1].number if branch is None or branch is own else branch.tip
        fork = row.parent if branch is None else min(branch.fork or 0, row.parent or 0) or None
        found[None if branch is None else branch.number] = Archive(branch, fork, tip)
    return [kept for kept in found.values() if kept.branch is own or not _is_as_it_was(kept)]


def find_owners(branches: list[BranchRow], first: int, find: FindMessage) -> dict[int, BranchRow]:
    """Return the branch of each message, from the number `first` on."""
    return {
        row.number: branch
        for branch in branches
        for row in walk_back(branch.tip, find, branch.fork, first=first)
    }


def find_own(line: Iterable[MessageRow], owners: Mapping[int, BranchRow]) -> BranchRow | None:
    """Return the branch that a line (newest first) continues, if its last message on a branch is the tip."""
    last = next((row for row in line if row.number in owners), None)
    if last is None or owners[last.number].tip != last.number:
        return None
    return owners[last.number]


def find_branches(rows: list[MessageRow], branches: list[BranchRow], find: FindMessage) -> dict[int, str]:
    """Return the name of the branch of each archived message, by the message's number."""
    owners = find_owners(branches, min((row.number for row in rows), default=0), find)
    return {row.number: owners[row.number].name for row in rows if row.number in owners}


def _is_as_it_was(kept: Archive) -> bool:
    return kept.branch is not None and (kept.branch.fork, kept.branch.tip) == (kept.fork, kept.tip)


# Names


def name_text(text: str) -> str:
    """Return a branch name made of a text; never digits alone, which would mean the number of a message."""
    slug = make_slug(first_line(text))[:_LONGEST].strip("-") or "branch"
    return f"branch-{slug}" if slug.isdigit() else slug


def make_slug(text: str) -> str:
    """Return the letters and digits of a text in lower case, with one dash for everything between them.

    Fix the Login, now!    ──▶    fix-the-login-now
    """
    return _NO_LETTERS.sub("-", text.lower()).strip("-")


def without_number(name: str) -> str:
    """Return a name without the number that `number_name` may have added: `fix-login` of `fix-login-2`."""
    return _NUMBER.sub("", name)


def number_name(base: str, is_used: Callable[[str], bool]) -> str:
    """Return a name that is not in use: `fix-login`, `fix-login-2`."""
    name, number = base, 1
    while is_used(name):
        number += 1
        name = f"{base}-{number}"
    return name
