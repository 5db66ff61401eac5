"""Branches: which of them keeps the messages that leave the line, and what each is called. Pure.

`append` adds them to the journal, `session` makes values of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from shadowtree.base.frozen import frozen
from shadowtree.timeline.position import FindMessage, first_line, walk_back
from shadowtree.timeline.schema import BranchRow, MessageRow

_LONGEST = 40
"""So many characters of a slug a name has at most."""
_NO_LETTERS = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"-\d+\Z")


@frozen
class Archive:
    """A branch on which messages are kept that leave the line."""

    branch: BranchRow | None
    """The one that it was so far; None: a new one."""
    fork: int | None
    tip: int


def archive(left: list[MessageRow], branches: list[BranchRow], find: FindMessage) -> list[Archive]:
    """Decide which branches keep messages that leave the line, oldest first; those that stay are not named.

    A branch that was switched to and gone on with takes in what came since. No message is on two branches:

        m1 ── m2 ── m3        fix: m2, m3     the session goes from m4 to m1: m2 is on `fix` already,
               └─── m4        left: m2, m4    so that m4 is all that the new branch has

    A message that is on none belongs to the branch of the one after it.
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
    """Return on which branch each message is, from the one with the number `first` on."""
    return {
        row.number: branch
        for branch in branches
        for row in walk_back(branch.tip, find, branch.fork, first=first)
    }


def find_own(line: Iterable[MessageRow], owners: Mapping[int, BranchRow]) -> BranchRow | None:
    """Find the branch that a line, newest first, goes on with: the last message that is on one is its tip."""
    last = next((row for row in line if row.number in owners), None)
    if last is None or owners[last.number].tip != last.number:
        return None
    return owners[last.number]


def find_branches(rows: list[MessageRow], branches: list[BranchRow], find: FindMessage) -> dict[int, str]:
    """Return on which branch each of some archived messages is."""
    owners = find_owners(branches, min((row.number for row in rows), default=0), find)
    return {row.number: owners[row.number].name for row in rows if row.number in owners}


def _is_as_it_was(kept: Archive) -> bool:
    return kept.branch is not None and (kept.branch.fork, kept.branch.tip) == (kept.fork, kept.tip)


# Names


def name_text(text: str) -> str:
    """Return the slug of a text by which a branch is named; digits alone would be the number of a message."""
    slug = make_slug(first_line(text))[:_LONGEST].strip("-") or "branch"
    return f"branch-{slug}" if slug.isdigit() else slug


def make_slug(text: str) -> str:
    """Return the letters and digits of a text in small letters, with one dash for all between them.

    Fix the Login, now!    ──▶    fix-the-login-now
    """
    return _NO_LETTERS.sub("-", text.lower()).strip("-")


def without_number(name: str) -> str:
    """Return a name without the number by which it may differ from others: `fix-login` of `fix-login-2`."""
    return _NUMBER.sub("", name)


def number_name(base: str, is_used: Callable[[str], bool]) -> str:
    """Return a name that nothing else has: `fix-login`, `fix-login-2`."""
    name, number = base, 1
    while is_used(name):
        number += 1
        name = f"{base}-{number}"
    return name
