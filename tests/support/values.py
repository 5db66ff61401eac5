"""Values as the library returns them, for tests of code that uses them."""

from __future__ import annotations

from shadowtree import ChangedPath, Message, Outcome, Patch

NOW_MS = 1_800_000_000_000
BEFORE, AFTER = "a" * 40, "b" * 40


def make_message(number: int = 1, **fields: object) -> Message:
    """Make a message that began `number` minutes before `NOW_MS`; `files` is how many files it changed."""
    files = fields.pop("files", 1)
    assert isinstance(files, int)
    values: dict[str, object] = {
        "id": f"msg_{number}",
        "session": "default",
        "role": None,
        "text": f"do number {number}",
        "meta": None,
        "time_ms": NOW_MS - 60_000 * number,
        "before": BEFORE,
        "after": AFTER,
        "state": "active",
        "branch": None,
        "skipped": [],
        "patch": Patch(BEFORE, [make_change(f"f{n}") for n in range(files)]),
        "number": number,
    }
    return Message(**(values | fields))  # type: ignore[arg-type]  # fields of several types


def make_change(path: str) -> ChangedPath:
    """Make an entry of a patch for a file that was modified."""
    return ChangedPath(path, "modified", BEFORE, AFTER, 0o100644, 0o100644)


def make_outcome(act: str = "undo", **fields: object) -> Outcome:
    """Make the outcome of an act that undid the message `msg_2`."""
    values: dict[str, object] = {
        "act": act,
        "messages": ["msg_2"],
        "restored": [],
        "deleted": [],
        "kept": [],
        "conflicts": [],
        "skipped": [],
        "before": BEFORE,
        "after": AFTER,
        "complete": True,
        "dry_run": False,
        "mode": "back",
        "notes": [],
        "turns": 1 if act in ("undo", "redo") else None,
        "covered": 14,
        "head": "msg_1",
    }
    return Outcome(**(values | fields))  # type: ignore[arg-type]  # fields of several types
