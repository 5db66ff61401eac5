"""A timeline as lines for people: its messages, its branches, and who changed a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from shadowtree.cli.format import (
    GAP,
    align_rows,
    count,
    cut,
    describe_age,
    escape,
    first_line,
    join_rows,
    shorten_ids,
)
from shadowtree.cli.output import can_show, paint
from shadowtree.cli.views.graph import GraphLine, Point, draw_graph
from shadowtree.cli.views.status import (
    LETTERS,
    describe_diff,
    explain_unprotected,
    list_skipped,
    list_unprotected,
    render_diff,
)
from shadowtree.results.messages import BlameEntry, Branch, FileDiff, Message, Step, join_renames

LineCount = tuple[int, int] | None
"""How many lines a message added and removed; None: not counted."""

_MARKS = {"open": "*", "active": "*", "undone": "o", "archived": "."}
"""The mark of a message in its lane, unless it is the head or was reverted alone."""
_NAMED = 3
"""How many paths of a step are named."""
_MAX_BRANCH, _MAX_NAME, _MAX_FILE = 24, 32, 32
"""The most columns of a branch's name next to messages, of a name or an id elsewhere, and of a path."""
_NARROW = 80
"""On a terminal with fewer columns, files are counted rather than named."""


# Messages


def render_log(
    messages: Sequence[Message],
    counts: Sequence[LineCount],
    *,
    now_ms: int,
    width: int | None = None,
    has_sessions: bool = False,
    has_graph: bool = False,
    known: Sequence[Message] = (),
    details: Sequence[Sequence[str]] = (),
) -> Iterator[str]:
    """Yield a row for each message; texts are cut so that a row fits into `width`, if it is given.

    The last message in force is marked with `@`; with `has_sessions`, sessions are named instead. With
    `has_graph`, lanes come before the rows, separate for each session, the last message in force is always
    marked, and branches are named. `details` are the lines below the row of each message; `known` are all
    messages, if `messages` are only some of them.
    """
    heads = _find_heads(known or messages)
    lines = list(draw_graph([_make_point(message, heads) for message in messages])) if has_graph else []
    lanes = [line.drawing for line in lines if line.place is not None] or [""] * len(messages)
    names = shorten_ids(message.id for message in messages)
    is_narrow = width is not None and width < _NARROW
    numbers = [f"#{message.number}" for message in messages]
    columns = [
        lanes,
        numbers if has_graph else _mark_heads(messages, numbers, {} if has_sessions else heads),
        _name_turns(messages),
        [describe_age(now_ms - message.time_ms) for message in messages],
        [escape(message.session) if has_sessions else "" for message in messages],
        _name_states(messages, has_graph=has_graph),
        [escape(names[message.id]) for message in messages],
        [first_line(message.text) for message in messages],
        [_describe_all_files(message, is_narrow=is_narrow) for message in messages],
        [f"+{counted[0]}" if counted else "" for counted in counts],
        [f"-{counted[1]}" if counted else "" for counted in counts],
    ]
    aligned = align_rows(list(zip(*columns, strict=True)), "<><><<<~<>>", width=width)
    painted = [_paint_row(*each) for each in zip(messages, counts, aligned, strict=True)]
    for line in lines or [GraphLine("", place) for place in range(len(messages))]:
        if line.place is None:
            yield line.drawing
            continue
        yield painted[line.place]
        if details:
            yield from details[line.place]


def describe_nothing(session: str | None, *, is_filtered: bool = False) -> str:
    """Say that there is no message to list."""
    if is_filtered:
        return "No matching messages"
    if session is not None:
        return f"Session {escape(session)} has no messages (run 'shadowtree sessions')"
    return "No messages yet"


def _find_heads(messages: Sequence[Message]) -> dict[str, str]:
    """Find the last message in force of each session."""
    # Messages come oldest first, so the last one wins.
    return {message.session: message.id for message in messages if message.state in ("open", "active")}


def _mark_heads(messages: Sequence[Message], numbers: Sequence[str], heads: Mapping[str, str]) -> list[str]:
    pairs = zip(messages, numbers, strict=True)
    return [f"{'@' if heads.get(each.session) == each.id else ' '} {number}" for each, number in pairs]


def _name_turns(messages: Sequence[Message]) -> list[str]:
    """Name the turn at its first message, unless every message is a turn of its own."""
    if all(message.role in (None, "user") for message in messages):
        return [""] * len(messages)
    seen: set[tuple[str, int, str | None]] = set()
    names = []
    for message in messages:
        turn = message.session, message.turn, message.branch
        names.append("" if turn in seen else f"turn {message.turn}")
        seen.add(turn)
    return names


def _name_states(messages: Sequence[Message], *, has_graph: bool) -> list[str]:
    """Name the state of each message, and count the lines that continue from it if there are several."""
    forks = Counter((message.session, message.parent) for message in messages)
    sign = "⑂" if can_show("⑂") else "fork"
    names = []
    for message in messages:
        state = _describe_states(message)
        if has_graph and message.branch is not None:
            state = cut(escape(message.branch), _MAX_BRANCH)
        lines_on = forks[message.session, message.id]
        names.append(f"{state} {sign} {lines_on}".strip() if lines_on > 1 else state)
    return names


def _name_files(message: Message) -> str:
    """Name the first file that a message changed, and count the others."""
    paths = [changed.path for changed in message.patch.files]
    if message.state == "open":
        return ""
    if not paths:
        return "no changes"
    return cut(escape(paths[0]), _MAX_FILE) + (f" +{len(paths) - 1:,} more" if len(paths) > 1 else "")


def render_message(
    message: Message,
    diffs: Sequence[FileDiff],
    *,
    now_ms: int,
    escape_content: bool,
    has_diff: bool = True,
    why_unprotected: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Show one message in full: its text, the files that it changed, and with `has_diff` their diff.

    `why_unprotected`: by path, why no snapshot covers it, so that nothing shows whether it changed.
    """
    yield paint("bold", f"#{message.number} {escape(message.id)}")
    yield ", ".join(_describe_circumstances(message, now_ms))
    for line in message.text.splitlines():
        yield f"    {escape(line)}".rstrip()
    yield ""
    if message.state != "open":
        nothing = "No protected file changed" if message.unprotected or why_unprotected else "Nothing changed"
        yield _describe_files(message) + " changed" if diffs else nothing
    yield from _list_files(diffs)
    if (why := _why_not_protected(message)) is not None:
        yield paint("yellow", f"Not protected: {escape(why)}")
    yield from list_skipped(message.skipped, "not protected")
    yield from list_unprotected(message.unprotected)
    for path, why in (why_unprotected or {}).items():
        yield from explain_unprotected(path, why)
    yield from list_steps(message.steps)
    if diffs and has_diff:
        yield ""
        yield from render_diff(diffs, escape_content=escape_content)


def list_steps(steps: Sequence[Step]) -> Iterator[str]:
    """Yield a row for each step: its name, how many files it changed, and the first ones."""
    if not steps:
        return
    yield f"{count(len(steps), 'step')}:"
    rows = []
    for step in steps:
        paths = [escape(changed.path) for changed in step.patch.files]
        named = ", ".join(paths[:_NAMED]) + (f" +{len(paths) - _NAMED} more" if len(paths) > _NAMED else "")
        rows.append((escape(step.name), "open" if step.after is None else count(len(paths), "file"), named))
    yield from (f"  {row}" for row in join_rows(rows, "<><"))


def _make_point(message: Message, heads: Mapping[str, str]) -> Point:
    mark = "x" if message.is_out else _MARKS[message.state]
    if heads.get(message.session) == message.id:
        mark = "@"
    parent = None if message.parent is None else (message.session, message.parent)
    return Point((message.session, message.id), parent, mark, is_main=message.state != "archived")


def _paint_row(message: Message, counted: LineCount, row: Sequence[str]) -> str:
    line = GAP.join(row).rstrip()
    if message.state in ("undone", "archived"):
        return paint("dim", line)
    if counted is None:
        return line
    *rest, added, removed = row
    return GAP.join([*rest, paint("green", added), paint("red", removed)])


def _describe_state(message: Message) -> str:
    if message.is_out:
        return "reverted on its own"
    if message.state == "active":
        return "inferred" if message.is_burst else "end inferred" if message.inferred else ""
    return message.state


def _describe_states(message: Message) -> str:
    marks = [
        _describe_state(message),
        "partly reverted" if message.is_partly_reverted else "",
        "pinned" if message.is_pinned else "",
        "not protected" if _why_not_protected(message) else "",
    ]
    return " ".join(filter(None, marks))


def _why_not_protected(message: Message) -> str | None:
    """Return why a message's changes are unknown, as hooks of agents note it; None: they are known."""
    why = (message.meta or {}).get("not_protected")
    return why if isinstance(why, str) else None


def _describe_files(message: Message) -> str:
    return "" if message.state == "open" else count(len(message.patch.files), "file")


def _describe_all_files(message: Message, *, is_narrow: bool) -> str:
    """Name or count the files of a message, and count the unprotected ones that changed."""
    files, left = _describe_files(message) if is_narrow else _name_files(message), len(message.unprotected)
    return f"{files}, {left:,} unprotected" if left else files


def _describe_circumstances(message: Message, now_ms: int) -> Iterator[str]:
    yield f"{describe_age(now_ms - message.time_ms)} ago"
    yield f"{message.time.astimezone():%Y-%m-%d %H:%M}"
    yield f"session {escape(message.session)}"
    if message.role is not None:
        yield f"role {escape(message.role)}"
    if message.state != "active":
        on = "" if message.branch is None else f" on branch {escape(message.branch)}"
        yield f"{_describe_state(message)}{on}"
    if message.is_partly_reverted:
        yield "partly reverted"
    if message.is_pinned:
        yield "pinned"
    if message.is_burst:
        yield "recorded from changes outside any message"
    elif message.inferred:
        yield "never ended; closed by a later command"
    old, new = message.git_head, message.git_head_after
    if old is not None and new is not None and old != new:
        yield f"git HEAD moved from {old[:12]} to {new[:12]}"


def _list_files(diffs: Sequence[FileDiff]) -> Iterator[str]:
    for file_diff in join_renames(diffs):
        lines = "" if file_diff.binary else f"  +{file_diff.additions} -{file_diff.deletions}"
        letter, colour, path = describe_diff(file_diff)
        yield f"{paint(colour, letter)} {path}{lines}"


# Branches


def render_branches(branches: Sequence[Branch], *, now_ms: int, width: int | None = None) -> Iterator[str]:
    """Yield a row for each branch; those that the session is on are marked with `@`."""
    if not branches:
        yield "No branches yet; a new message after an undo keeps the undone messages as a branch"
        return
    rows = []
    for branch in branches:
        mark = "@" if branch.state == "active" else " "
        name, fork = (cut(escape(each), _MAX_NAME) for each in (branch.name, branch.fork or ""))
        rows.append(
            (
                f"{mark} {name}",
                f"after {fork}" if fork else "from the start",
                count(len(branch.messages), "message"),
                count(branch.files, "file"),
                describe_age(now_ms - branch.time_ms),
                first_line(branch.label),
            )
        )
    for branch, line in zip(branches, join_rows(rows, "<<>>>~", width=width), strict=True):
        yield paint("bold", line) if branch.state == "active" else line


def render_dropped(branch: Branch) -> Iterator[str]:
    """Show which branch is no longer listed, and how to switch to it anyway."""
    yield f"Dropped branch {escape(branch.name)} ({count(len(branch.messages), 'message')})"
    if branch.messages:
        yield f"You can still switch to its last message, {escape(branch.messages[-1])}"


# Who changed a file


def render_blame(
    path: str,
    entries: Sequence[BlameEntry],
    *,
    session: str,
    now_ms: int,
    width: int | None = None,
    why_unprotected: str | None = None,
) -> Iterator[str]:
    """Yield a row for each change of a path; sessions are named if there are others than `session`.

    `why_unprotected`: why no snapshot covers the path.
    """
    if why_unprotected is not None:
        yield from explain_unprotected(path, why_unprotected)
    elif not entries:
        yield f"{escape(path)} has not changed since it was first recorded"
    sessions = {entry.message.session for entry in entries if entry.message is not None}
    rows = []
    for entry in entries:
        message = entry.message
        rows.append(
            (
                LETTERS[entry.status][0],
                "now" if entry.time_ms is None else describe_age(now_ms - entry.time_ms),
                _name_author(entry),
                escape(message.session) if message is not None and sessions - {session} else "",
                _describe_place(message),
                "not protected" if entry.is_unprotected else "",
                "" if message is None else first_line(message.text),
            )
        )
    for entry, line in zip(entries, join_rows(rows, "<><<<<~", width=width), strict=True):
        if entry.message is not None and entry.message.state in ("undone", "archived"):
            yield paint("dim", line)
        else:
            letter, colour = LETTERS[entry.status]
            yield paint(colour, letter) + line.removeprefix(letter)


def _name_author(entry: BlameEntry) -> str:
    if entry.message is not None:
        return cut(escape(entry.message.id), _MAX_NAME)
    return "a forgotten message" if entry.is_forgotten else "outside any message"


def _describe_place(message: Message | None) -> str:
    if message is None or message.state == "active":
        return ""
    return message.state if message.branch is None else cut(escape(message.branch), _MAX_NAME)
