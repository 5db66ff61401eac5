"""Whether the rows of a session that came from elsewhere are ones that a person could have recorded.

Each row by itself was read already: its columns, and that what it names is there. Here is what they say:
names that can be shown, times that a calendar has, an order in which things can have happened. Pure.
"""

from __future__ import annotations

import json
import re
import zlib

from shadowtree.base.arguments import check_message_id, check_name
from shadowtree.timeline.schema import ACTS, BEGIN, END, SNAPSHOT, STEP, STEP_END, decode_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.conversation.rows import Row
    from shadowtree.conversation.session_rows import Rows

_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, after which no calendar here goes on."""
_COMMIT = re.compile(rb"[0-9a-f]{40}([0-9a-f]{24})?")
_MOST_SKIPS_BYTES = 64 << 20
_NEEDED = {
    BEGIN: ("message", "before_tree"),
    END: ("message", "before_tree", "after_tree"),
    SNAPSHOT: ("message", "before_tree", "after_tree"),
    STEP: ("message", "step", "before_tree"),
    STEP_END: ("message", "step", "before_tree", "after_tree"),
    **dict.fromkeys(ACTS, ("before_tree", "after_tree")),
}
"""What an event of each kind has to say."""


def require(is_so: bool, otherwise: str) -> None:
    """Raise ValueError unless it is so."""
    if not is_so:
        raise ValueError(otherwise)


def check_session(rows: Rows) -> None:
    """Raise ValueError or InvalidInput if rows are not those of one session, or say what cannot be."""
    require([row["number"] for row in rows["sessions"]] == [1], "it is not one session")
    require(rows["sessions"][0]["forgotten"] is None, "it is forgotten")
    for row in (*rows["messages"], *rows["events"], *rows["branches"]):
        require(row["session"] == 1, "a row is of another session")
    check_name(decode_text(rows["sessions"][0]["name"]), "session")
    for table, column, factor in (("events", "time", 1), ("trees", "time", 1000), ("pins", "time", 1)):
        require(all(0 <= row[column] * factor <= _LAST_MS for row in rows[table]), f"a time of {table}")
    for table in ("trees", "messages", "events"):
        times = (row["forgotten"] for row in rows[table])
        require(all(time is None or 0 <= time <= _LAST_MS for time in times), f"a time of {table}")
    _check_messages(rows["messages"])
    _check_events(rows["events"])
    for row in rows["branches"]:
        check_name(decode_text(row["name"]), "branch")


def _check_messages(messages: list[Row]) -> None:
    for row in messages:
        check_message_id(decode_text(row["id"]))
        if row["role"] is not None:
            check_name(decode_text(row["role"]), "role")
        require(row["ordinal"] > 0 and row["turn"] > 0, "a message has no place")
    for column in ("id", "ordinal"):
        require(
            len({row[column] for row in messages}) == len(messages), f"a message has the {column} of another"
        )


def _check_events(events: list[Row]) -> None:
    """Make sure that each message begins once, ends once at most, and does nothing outside of that."""
    begun: set[int] = set()
    ended: set[int] = set()
    steps: set[tuple[int, bytes]] = set()
    for row in events:
        kind, message = row["kind"], row["message"]
        require(kind in _NEEDED, f"{kind!r} is not a kind of event")
        require(all(row[column] is not None for column in _NEEDED[kind]), f"a {kind} does not say enough")
        require(row["git_head"] is None or bool(_COMMIT.fullmatch(row["git_head"])), "a commit has no id")
        require(row["since"] is None or row["since"] < row["number"], "an event follows a later one")
        if kind in ACTS:
            require(message is None, "an act has a message")
            continue
        if kind in (BEGIN, SNAPSHOT):
            require(message not in begun, "a message begins twice")
            begun.add(message)
        require(message in begun and message not in ended, "something happens in no message")
        if kind in (END, SNAPSHOT):
            ended.add(message)
        if kind in (STEP, STEP_END):
            step = message, row["step"]
            check_name(decode_text(row["step"]), "step")
            require((step in steps) == (kind == STEP_END), "a step begins twice, or ends only")
            steps.add(step)


def check_skips(content: bytes) -> None:
    """Raise ValueError if a list of paths and reasons is none, or much longer than it looks."""
    if not content.startswith(b"["):
        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(content, _MOST_SKIPS_BYTES)
        except zlib.error as error:
            raise ValueError(error) from error
        require(inflater.eof, "a list of paths is too long")
    for path, reason in json.loads(content):
        require(isinstance(path, str) and isinstance(reason, str), "a list of paths has something else")
