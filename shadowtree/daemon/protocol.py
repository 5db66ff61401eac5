"""What the daemon and a command may say to each other.

    command                        daemon
    hello PROTOCOL VERSION HOW   ▶
                                 ◀ welcome            or: other PROTOCOL VERSION PID WHY
    find DIRECTORY STORE         ▶
                                 ◀ found WORKTREE ... or: without WHY
    call METHOD ...              ▶
                                 ◀ number, progress, working, confirm, recovered
    answer, cancel               ▶
                                 ◀ result, error      or: without WHY

A command that is `other` in its circumstances alone may still ask for `status` and `stop`, which concern the
daemon itself.

`hello`, `other` and `end` stay as they are for ever, so that any version can end a daemon of any other.
"""

from __future__ import annotations

PROTOCOL = 4
"""Grows with every change of what is said. Only equals talk, and only if their versions are equal too."""

HELLO_S = 1.0
"""How long a command waits for the welcome; then it does without."""
BEAT_S = 2.0
"""How often the daemon says that it is still at work."""
SILENCE_S = 10.0
"""How long a command waits for any word about its work; then the daemon is hung."""

READING = frozenset({"blame", "branches", "diff", "diff_message", "messages", "patch", "show", "status"})
"""Methods of a shadow that record nothing."""
AGAIN = frozenset({"begin", "begin_step", "end", "end_step", "take_snapshot"})
"""Methods that record, and may be called again with the same arguments if nobody knows what came of it."""
ONCE = frozenset({"redo", "restore", "revert", "snapshot", "switch", "undo", "unrevert"})
"""Methods of which a second call is another one."""
METHODS = READING | AGAIN | ONCE
"""All that the daemon does for commands."""


def may_repeat(method: str, arguments: list[object], named: dict[str, object]) -> bool:
    """Tell whether a call may be made again if nobody knows what came of it."""
    if method == "end":
        # Without a name it means the open message, which would be another one, or none.
        return bool(arguments) and arguments[0] is not None
    return method not in ONCE or bool(named.get("dry_run"))
