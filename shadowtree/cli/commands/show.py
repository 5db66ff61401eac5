"""The commands that show the worktree, its messages, branches and trees; they change no files."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

import click

import shadowtree
from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen
from shadowtree.cli.app import COUNT_FROM_0, PATH, PathsCommand, command, flag, group
from shadowtree.cli.completion import complete_branch, complete_message
from shadowtree.cli.find_shadow import Shared, absolute_path, open_to_read
from shadowtree.cli.format import escape, shorten_ids
from shadowtree.cli.output import emit, find_width, now_ms, writes_json
from shadowtree.cli.views.lines import render_blame_lines, render_stat
from shadowtree.cli.views.log import (
    LineCount,
    describe_nothing,
    list_steps,
    render_blame,
    render_branches,
    render_dropped,
    render_log,
    render_message,
)
from shadowtree.cli.views.status import (
    render_diff,
    render_patch,
    render_status,
    summarise_skipped,
)
from shadowtree.results.messages import FileDiff, Message, join_renames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.arguments import MessageFilter

LOGGED = 20
"""How many messages the log shows to people by default."""
COUNTED_FILES = 200
"""The log does not count the lines of messages that changed more files."""
COUNTING_S = 1.0
"""How long the log counts lines; after that, older messages are shown without counts."""
_DAYS = {"today": 0, "yesterday": 1}
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@frozen
class Details:
    """What the log shows of each message in addition to its row."""

    patch: bool
    stat: bool
    steps: bool

    @property
    def needs_diff(self) -> bool:
        """Whether the messages have to be compared."""
        return self.patch or self.stat


@command()
def status(shared: Shared) -> None:
    """Show what is protected, what is not, and what changed

    \b
    Examples:
      shadowtree status
      shadowtree status --json
    """
    with open_to_read(shared) as shadow:
        found = shadow.status()
    emit(found, render_status(found))


@command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=PATH)
@flag("--graph", "has_graph", help="Draw the history as a graph, with its branches")
@flag("--all", "all_sessions", help="List the messages of all sessions")
@click.option(
    "-n",
    "last",
    metavar="N",
    type=COUNT_FROM_0,
    help="List the last N messages, 0 for all (default: 20; with --json, all)",
)
@click.option("--since", metavar="TIME", help="List messages since TIME: 2h, 3d, yesterday, 2026-01-31")
@flag("-p", "--patch", "has_patch", help="Show the diff of each message")
@flag("--stat", "has_stat", help="List the files that each message changed")
@flag("--steps", "has_steps", help="List the steps of each message")
def log(
    shared: Shared,
    paths: tuple[str, ...],
    has_graph: bool,
    all_sessions: bool,
    last: int | None,
    since: str | None,
    has_patch: bool,
    has_stat: bool,
    has_steps: bool,
) -> None:
    """List messages, newest last

    Each row shows the number, age, id and text of a message, the first file it changed, and how many lines
    were added and removed. With PATH, only messages that changed it are listed.

    '@' marks the current message. 'shadowtree redo' brings back undone messages, 'shadowtree switch' archived
    ones. The number after a fork sign is how many branches continue from there.

    With --graph, the marks are:

    \b
      @  the current message             o  undone (redo brings it back)
      *  an earlier active message       x  reverted with 'revert --only'
      .  archived on a branch            ~  its parent is not shown

    \b
    Examples:
      shadowtree log
      shadowtree log -n 5 --stat
      shadowtree log --since 2h -p
      shadowtree log src/login.py
      shadowtree log --all --json
    """
    wanted = LOGGED if last is None and not writes_json() else last
    own = [absolute_path(path) for path in paths] or None
    start_s = None if since is None else parse_since(since, datetime.now().astimezone()).timestamp()
    which: MessageFilter = {"all_sessions": all_sessions, "since": start_s, "paths": own}
    details = Details(has_patch, has_stat, has_steps)
    with open_to_read(shared, names_session=not all_sessions) as shadow:
        shown, has_more = _read_last(shadow, wanted, which)
        diffs = [shadow.diff_message(each, paths=own) if details.needs_diff else None for each in shown]
        if writes_json():
            emit([_to_json(*each, details) for each in zip(shown, diffs, strict=True)], ())
            return
        counts = _count_lines(shadow, shown, diffs)
        known = shadow.messages(all_sessions=all_sessions) if paths else ()
    lines = ["Earlier messages are not shown (use -n 0 to list all)"] if has_more else []
    lines += render_log(
        shown,
        counts,
        now_ms=now_ms(),
        width=find_width(),
        has_sessions=all_sessions,
        has_graph=has_graph,
        known=known,
        details=[_render_details(*each, details) for each in zip(shown, diffs, strict=True)],
    )
    lines = lines or [describe_nothing(shared.session, is_filtered=bool(paths or since))]
    emit(shown, lines, utf8=has_patch)


@command()
@click.argument("id", shell_complete=complete_message)
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=PATH)
@flag("--stat", "has_stat", help="List the changed files, without the diff")
@flag("--binary", help="Include binary files in the patch, so that 'git apply' accepts it")
def show(shared: Shared, id: str, paths: tuple[str, ...], has_stat: bool, binary: bool) -> None:
    """Show a message and its diff

    ID is a message id or the start of one, its number (7 or '#7'), '@' for the last message, '@~2' for the
    second before that, or 'ID^' for the one before ID. With PATH, only changes to it are shown. A file that
    was probably renamed is shown once, as 'OLD -> NEW'.

    \b
    Examples:
      shadowtree show msg_01
      shadowtree show @ src/login.py
      shadowtree show 7 --stat
      shadowtree show 7 --json
    """
    own = [absolute_path(path) for path in paths] or None
    with open_to_read(shared) as shadow:
        message, diffs = shadow.show(id, paths=own, binary=binary)
        is_told = diffs or message.unprotected or writes_json()
        why = {} if is_told else _explain_left_out(shadow, paths)
    document = message.to_dict() | {
        "files": message.patch.files,
        "diff": diffs,
        "skipped": message.skipped,
        "steps": message.steps,
    }
    escapes = sys.stdout.isatty()
    lines = render_message(
        message,
        diffs,
        now_ms=now_ms(),
        escape_content=escapes,
        has_diff=not has_stat,
        why_unprotected=why,
    )
    emit(document, lines, utf8=True)


def _explain_left_out(shadow: shadowtree.Shadow, paths: Sequence[str]) -> dict[str, str]:
    """Return why no snapshot covers some of these paths."""
    reasons = {path: shadow.why_unprotected(absolute_path(path)) for path in paths}
    return {path: why for path, why in reasons.items() if why is not None}


@command(cls=PathsCommand)
@click.argument("a", required=False, shell_complete=complete_message)
@click.argument("b", required=False, shell_complete=complete_message)
@flag("--stat", "has_stat", help="List the files that differ, and by how many lines")
@flag("--binary", help="Include binary files in the patch, so that 'git apply' accepts it")
def diff(
    shared: Shared, paths: tuple[str, ...], a: str | None, b: str | None, has_stat: bool, binary: bool
) -> None:
    """Show the changes from A to B

    A and B are messages (the state after it; with '^', the state before it), branches, or tree ids. B
    defaults to the files as they are now, A to what was recorded last. With PATH after '--', only changes to
    it are shown.

    You can apply the output with 'git apply'; for binary files, add --binary.

    \b
    Examples:
      shadowtree diff
      shadowtree diff --stat -- src
      shadowtree diff msg_01^ msg_03
      shadowtree diff --binary "$before" "$after" > changes.patch
    """
    own = [absolute_path(path) for path in paths] or None
    with open_to_read(shared) as shadow:
        diffs = shadow.diff(a, b, paths=own, binary=binary)
    if has_stat:
        emit(diffs, render_stat(diffs))
        return
    # Into a file or a pipe, lines are written as they are, so that `git apply` accepts them.
    emit(diffs, render_diff(diffs, escape_content=sys.stdout.isatty()), utf8=True)


@command()
@click.argument("name", metavar="REF:PATH")
def cat(shared: Shared, name: str) -> None:
    """Print a recorded version of a file

    REF is a message (the state after it; with '^', the state before it), a branch, or a tree id. PATH is
    relative to the worktree; if it starts with './' or '../', to the current directory. For a link, its
    target is printed.

    \b
    Examples:
      shadowtree cat @:src/login.py
      shadowtree cat msg_01^:./login.py > login.py.before
    """
    for mark in (":./", ":../"):
        ref, found, path = name.rpartition(mark)
        if found and ref:
            name = f"{ref}:{absolute_path(mark[1:] + path)}"
            break
    with open_to_read(shared) as shadow:
        shadow.cat(name, sys.stdout.buffer.write)


@command()
@click.argument("path", type=PATH)
@flag("--lines", "by_line", help="Show which message last changed each line")
def blame(shared: Shared, path: str, by_line: bool) -> None:
    """Show which messages changed PATH, newest first

    Each row shows a letter (A added, M modified, D deleted, T type changed) and the age, id and text of the
    message. Changes outside any message are listed too.

    \b
    Examples:
      shadowtree blame src/login.py
      shadowtree blame src/login.py --lines
      shadowtree blame src/login.py --json
    """
    if by_line:
        with open_to_read(shared) as shadow:
            lines = shadow.blame_lines(absolute_path(path))
        names = shorten_ids(line.message.id for line in lines if line.message is not None)
        emit(lines, render_blame_lines(lines, names, now_ms=now_ms()))
        return
    with open_to_read(shared) as shadow:
        found, session = shadow.blame(absolute_path(path)), shadow.session
        why = None if writes_json() else shadow.why_unprotected(absolute_path(path))
    width = find_width()
    emit(found, render_blame(path, found, session=session, now_ms=now_ms(), width=width, why_unprotected=why))


@command()
@click.argument("tree")
def patch(shared: Shared, tree: str) -> None:
    """List the paths that changed since TREE

    Each line has a letter (A added, M modified, D deleted, T type changed) and the path.

    \b
    Examples:
      shadowtree patch "$before"
      shadowtree patch --json "$before"
    """
    with open_to_read(shared) as shadow:
        found = shadow.patch(tree)
    skipped = [f"not compared: {summarise_skipped(found.skipped)}"] if found.skipped else []
    emit(found, render_patch(found), warnings=skipped)


@group
def branches(shared: Shared) -> None:
    """List branches, newest last

    Recording a new message after an undo keeps the undone messages as a branch, and 'shadowtree switch' keeps
    what it leaves. Each row shows the name, the message it forks from, how many messages it has and how many
    files they changed, its age, and the text of its first message. '@' marks the current branch.

    \b
    Examples:
      shadowtree branches
      shadowtree branches rename fix-login-2 tokens
      shadowtree branches drop tokens
    """
    with open_to_read(shared) as shadow:
        found = shadow.branches()
    emit(found, render_branches(found, now_ms=now_ms(), width=find_width()))


@command(of=branches)
@click.argument("old", shell_complete=complete_branch)
@click.argument("new")
def rename(shared: Shared, old: str, new: str) -> None:
    """Rename the branch OLD to NEW

    \b
    Examples:
      shadowtree branches rename fix-login-2 tokens
    """
    with open_to_read(shared) as shadow:
        branch = shadow.rename_branch(old, new)
    emit(branch, [f"Renamed branch {escape(old)} to {escape(branch.name)}"])


@command(of=branches)
@click.argument("name", shell_complete=complete_branch)
def drop(shared: Shared, name: str) -> None:
    """Remove the branch NAME from the list

    Files do not change, and you can still switch to its messages by their ids.

    \b
    Examples:
      shadowtree branches drop fix-login-2
    """
    with open_to_read(shared) as shadow:
        branch = shadow.drop_branch(name)
    emit(branch, render_dropped(branch))


def parse_since(text: str, now: datetime) -> datetime:
    """Parse a point in time: an age such as `2h`, a day such as `yesterday`, or a date, perhaps with a time.

    `now` has a time zone, which also applies to a text without one.
    """
    if text in _DAYS:
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - timedelta(days=_DAYS[text])
    age = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?) ?([smhdw]|min)", text)
    if age is not None:
        return now - timedelta(seconds=float(age[1]) * _SECONDS[age[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"--since must be like 2h, 3d, yesterday or 2026-01-31, not {text!r}") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)


def _read_last(
    shadow: shadowtree.Shadow, count: int | None, which: MessageFilter
) -> tuple[list[Message], bool]:
    """Return the last `count` messages, or all, and whether there are more."""
    if not count:
        return shadow.messages(**which), False
    one_more: MessageFilter = {**which, "last": count + 1}
    found = shadow.messages(**one_more)
    return found[-count:], len(found) > count


def _count_lines(
    shadow: shadowtree.Shadow, messages: Sequence[Message], known: Sequence[Sequence[FileDiff] | None]
) -> list[LineCount]:
    """Count added and removed lines, newest message first, for at most about `COUNTING_S`."""
    counts: list[LineCount] = [None] * len(messages)
    stop = time.monotonic() + COUNTING_S
    for place in reversed(range(len(messages))):
        message = messages[place]
        if time.monotonic() > stop:
            break
        if 0 < len(message.patch.files) <= COUNTED_FILES:
            found = known[place]
            diffs = join_renames(shadow.diff_message(message) if found is None else found)
            counts[place] = (sum(each.additions for each in diffs), sum(each.deletions for each in diffs))
    return counts


def _render_details(message: Message, diffs: Sequence[FileDiff] | None, details: Details) -> list[str]:
    """Return the lines below the row of a message in the log, with an empty line at the end."""
    lines: list[str] = []
    if details.steps:
        lines += [f"    {line}" for line in list_steps(message.steps)]
    if details.stat:
        lines += [f"    {line}" for line in render_stat(diffs or ())]
    if details.patch and diffs:
        lines += ["", *render_diff(diffs, escape_content=sys.stdout.isatty())]
    return [*lines, ""] if lines else []


def _to_json(message: Message, diffs: Sequence[FileDiff] | None, details: Details) -> dict[str, object]:
    """Return an entry of the log with the requested details; --stat is a diff without patches."""
    document: dict[str, object] = message.to_dict()
    if diffs is not None:
        entries = [each.to_dict() for each in diffs]
        hidden = set() if details.patch else {"patch"}
        document["diff"] = [{key: entry[key] for key in entry if key not in hidden} for entry in entries]
    return document | ({"steps": message.steps} if details.steps else {})
