"""What an act did to branches, so that reversing it can restore them: as a value, and as it is stored."""

from __future__ import annotations

from collections.abc import Sequence

from shadowtree.base.frozen import frozen


@frozen
class BranchChange:
    """What an act did to a branch."""

    number: int
    was_listed: bool
    """Otherwise the act added it, or listed it again."""
    was: tuple[int, int, int] | None = None
    """Fork (0: none), tip and event before the act moved it; None: it only left the list, or joined it."""


def encode_branch_changes(changes: Sequence[BranchChange]) -> bytes | None:
    """Return what an act did to branches as it is stored: `+7` joined the list, `-7` left it, `7:5:6:12`."""
    signs = {True: "-", False: "+"}
    each = [
        f"{signs[change.was_listed]}{change.number}"
        if change.was is None
        else ":".join(map(str, (change.number, *change.was)))
        for change in changes
    ]
    return ",".join(each).encode("ascii") or None


def decode_branch_changes(content: bytes) -> tuple[BranchChange, ...]:
    """Read what an act did to branches."""
    found = []
    for each in content.split(b","):
        if each[:1] in (b"+", b"-"):
            found.append(BranchChange(int(each[1:]), was_listed=each[:1] == b"-"))
        else:
            number, fork, tip, event = map(int, each.split(b":"))
            found.append(BranchChange(number, was_listed=True, was=(fork, tip, event)))
    return tuple(found)
