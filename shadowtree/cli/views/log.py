"""What a timeline holds as lines for people: its messages, its branches, and who changed a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shadowtree.cli.format import (
    GAP,
    align_left,
    align_right,
    count,
    cut,
    describe_age,
    escape,
    first_line,
    make_rows,
)
from shadowtree.cli.output import paint
from shadowtree.cli.views.graph import Point, draw_graph
from shadowtree.cli.views.status import LETTERS, list_skipped, render_diff
from shadowtree.results.messages import BlameEntry, Branch, FileDiff, Message

LineCount = tuple[int, int] | None
"""How many lines a message added and removed; None: not counted."""

_MARKS = {"open": "*", "active": "*", "undone": "o", "archived": "."}
"""What stands for a message in its lane, unless it is the head or was taken out."""
_MAX_BRANCH, _MAX_NAME = 24, 32
"""How many columns of a branch's name are shown beside messages, and of a name or an id elsewhere."""


# Messages


def render_log(
    messages: Sequence[Message],
    counts: Sequence[LineCount],
    *,
    now_ms: int,
    width: int | None = None,
    has_sessions: bool = False,
) -> Iterator[str]:
    """Give a row for each message; texts are cut so that a row fits into `width`, if there is one.

    The last message in force is marked with `@`, unless the messages are of several sessions; those are
    named then.
    """
    heads = {} if has_sessions else _find_heads(messages)
    marks = ["@" if heads.get(message.session) is message else " " for message in messages]
    places = [f"{mark} #{message.number}" for mark, message in zip(marks, messages, strict=True)]
    states = [_describe_states(message) for message in messages]
    left = [align_right(places), *_align_times(messages, states, now_ms=now_ms, has_sessions=has_sessions)]
    yield from _render_rows(messages, counts, left, width)


def render_graph(
    messages: Sequence[Message],
    counts: Sequence[LineCount],
    *,
    now_ms: int,
    width: int | None = None,
    has_sessions: bool = False,
) -> Iterator[str]:
    """Give the rows of the log with lanes before them, and what branches are called.

    Each session has its own lanes, in which the last message in force is marked with `@`.
    """
    heads = _find_heads(messages)
    lines = list(draw_graph([_make_point(message, heads) for message in messages]))
    states = [
        _describe_states(message) if message.branch is None else cut(escape(message.branch), _MAX_BRANCH)
        for message in messages
    ]
    left = [
        align_left([line.drawing for line in lines if line.place is not None]),
        align_right([f"#{message.number}" for message in messages]),
        *_align_times(messages, states, now_ms=now_ms, has_sessions=has_sessions),
    ]
    rows = _render_rows(messages, counts, left, width)
    for line in lines:
        yield line.drawing if line.place is None else next(rows)


def render_message(
    message: Message, diffs: Sequence[FileDiff], *, now_ms: int, escape_content: bool
) -> Iterator[str]:
    """Tell all of one message: what was said, what it changed, line by line."""
    yield paint("bold", f"#{message.number} {escape(message.id)}")
    yield ", ".join(_describe_circumstances(message, now_ms))
    for line in message.text.splitlines():
        yield f"    {escape(line)}".rstrip()
    yield ""
    if message.state != "open":
        yield _describe_files(message) + " changed" if diffs else "Nothing changed"
    yield from _list_files(diffs)
    yield from list_skipped(message.skipped, "not protected")
    if diffs:
        yield ""
        yield from render_diff(diffs, escape_content=escape_content)


def _find_heads(messages: Sequence[Message]) -> dict[str, Message]:
    """Find what `@` means in each session, among messages with the oldest first: the last one in force."""
    return {message.session: message for message in messages if message.state in ("open", "active")}


def _make_point(message: Message, heads: Mapping[str, Message]) -> Point:
    mark = "x" if message.is_out else _MARKS[message.state]
    if heads.get(message.session) is message:
        mark = "@"
    parent = None if message.parent is None else (message.session, message.parent)
    return Point((message.session, message.id), parent, mark, is_main=message.state != "archived")


def _align_times(
    messages: Sequence[Message], states: Sequence[str], *, now_ms: int, has_sessions: bool
) -> Iterator[list[str]]:
    """Give the columns of ages, of sessions if they are wanted, and of states if there are any."""
    yield align_right([describe_age(now_ms - message.time_ms) for message in messages])
    if has_sessions:
        yield align_left([escape(message.session) for message in messages])
    if any(states):
        yield align_left(states)


def _render_rows(
    messages: Sequence[Message],
    counts: Sequence[LineCount],
    left: Sequence[Sequence[str]],
    width: int | None,
) -> Iterator[str]:
    """Put the columns that all logs have behind those on the left."""
    texts = [first_line(message.text) or escape(message.id) for message in messages]
    files = align_right([_describe_files(message) for message in messages])
    added = align_right([f"+{counted[0]}" if counted else "" for counted in counts])
    removed = align_right([f"-{counted[1]}" if counted else "" for counted in counts])
    rows = make_rows(left, texts, files, added, removed, width=width)
    for message, row in zip(messages, rows, strict=True):
        if message.state in ("undone", "archived"):
            yield paint("dim", GAP.join(row).rstrip())
        elif row[-1].strip():
            yield GAP.join([*row[:-2], paint("green", row[-2]), paint("red", row[-1])])
        else:
            yield GAP.join(row).rstrip()


def _describe_state(message: Message) -> str:
    if message.is_out:
        return "taken out"
    if message.state == "active":
        return "inferred" if message.is_burst else ""
    return message.state


def _describe_states(message: Message) -> str:
    return " ".join(filter(None, [_describe_state(message), "pinned" if message.is_pinned else ""]))


def _describe_files(message: Message) -> str:
    return "" if message.state == "open" else count(len(message.patch.files), "file")


def _describe_circumstances(message: Message, now_ms: int) -> Iterator[str]:
    yield f"{describe_age(now_ms - message.time_ms)} ago"
    yield f"{message.time:%Y-%m-%d %H:%M} UTC"
    yield f"session {escape(message.session)}"
    if message.role is not None:
        yield f"role {escape(message.role)}"
    if message.state != "active":
        on = "" if message.branch is None else f" on branch {escape(message.branch)}"
        yield f"{_describe_state(message)}{on}"
    if message.is_pinned:
        yield "pinned"
    if message.is_burst:
        yield "inferred from changes that nobody announced"
    elif message.is_inferred:
        yield "ended by what came after it"


def _list_files(diffs: Sequence[FileDiff]) -> Iterator[str]:
    for file_diff in diffs:
        letter, colour = LETTERS[file_diff.status]
        lines = "" if file_diff.binary else f"  +{file_diff.additions} -{file_diff.deletions}"
        yield f"{paint(colour, letter)} {escape(file_diff.path)}{lines}"


# Branches


def render_branches(branches: Sequence[Branch], *, now_ms: int, width: int | None = None) -> Iterator[str]:
    """Give a row for each branch; those that the session is on are marked with `@`."""
    if not branches:
        yield "There is no branch; a message that begins after an undo makes one of what is undone"
        return
    left = [
        align_left([_mark_branch(branch) for branch in branches]),
        align_left([_describe_fork(branch) for branch in branches]),
        align_right([count(len(branch.messages), "message") for branch in branches]),
        align_right([count(branch.files, "file") for branch in branches]),
        align_right([describe_age(now_ms - branch.time_ms) for branch in branches]),
    ]
    rows = make_rows(left, [first_line(branch.label) for branch in branches], width=width)
    for branch, row in zip(branches, rows, strict=True):
        line = GAP.join(row).rstrip()
        yield paint("bold", line) if branch.state == "active" else line


def _mark_branch(branch: Branch) -> str:
    mark = "@" if branch.state == "active" else " "
    return f"{mark} {cut(escape(branch.name), _MAX_NAME)}"


def _describe_fork(branch: Branch) -> str:
    return "from the start" if branch.fork is None else f"after {cut(escape(branch.fork), _MAX_NAME)}"


def render_dropped(branch: Branch) -> Iterator[str]:
    """Tell what is no longer listed, and how to get there nevertheless."""
    number = count(len(branch.messages), "message")
    yield f"The branch {escape(branch.name)} with its {number} is no longer listed"
    if branch.messages:
        yield f"Its last message is {escape(branch.messages[-1])}, which can still be switched to"


# Who changed a file


def render_blame(
    path: str,
    entries: Sequence[BlameEntry],
    *,
    session: str,
    now_ms: int,
    width: int | None = None,
) -> Iterator[str]:
    """Give a row for each change of a path; sessions are named if there are others than `session`."""
    if not entries:
        yield f"Nobody has changed {escape(path)} since it was recorded first"
        return
    messages = [entry.message for entry in entries]
    left = [
        [LETTERS[entry.status][0] for entry in entries],
        align_right([_describe_time(entry, now_ms) for entry in entries]),
        align_left([_name_author(entry) for entry in entries]),
    ]
    if any(message is not None and message.session != session for message in messages):
        left.append(align_left(["" if message is None else escape(message.session) for message in messages]))
    if any(message is not None and message.state != "active" for message in messages):
        left.append(align_left([_describe_place(message) for message in messages]))
    texts = ["" if message is None else first_line(message.text) for message in messages]
    for entry, row in zip(entries, make_rows(left, texts, width=width), strict=True):
        line = GAP.join(row).rstrip()
        if entry.message is not None and entry.message.state in ("undone", "archived"):
            yield paint("dim", line)
        else:
            letter, colour = LETTERS[entry.status]
            yield paint(colour, letter) + line.removeprefix(letter)


def _describe_time(entry: BlameEntry, now_ms: int) -> str:
    return "now" if entry.time_ms is None else describe_age(now_ms - entry.time_ms)


def _name_author(entry: BlameEntry) -> str:
    if entry.message is not None:
        return cut(escape(entry.message.id), _MAX_NAME)
    return "a forgotten message" if entry.is_forgotten else "outside any message"


def _describe_place(message: Message | None) -> str:
    if message is None or message.state == "active":
        return ""
    return message.state if message.branch is None else cut(escape(message.branch), _MAX_NAME)
