"""The commands about other machines: remotes, push and fetch, clone and resume, export and import."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress

import click

from shadowtree.base.errors import InvalidInput, ShadowError, describe_size
from shadowtree.base.frozen import replace
from shadowtree.cli.app import DIRECTORY, PATH, command, flag, group
from shadowtree.cli.commands.act import complete_back
from shadowtree.cli.exit_codes import FAILED
from shadowtree.cli.find_shadow import (
    Shared,
    absolute_path,
    current_directory,
    find_to_record,
    find_wrapped,
    open_shadow,
)
from shadowtree.cli.format import count, describe_age, escape, join_rows
from shadowtree.cli.output import ProgressBar, ask, emit, now_ms, say, talk
from shadowtree.cli.views.outcome import describe_effect, list_paths
from shadowtree.results.remotes import Fetched, Pushed, PushPreview, Remote, Resumed

_LABELS = {
    "send objects": "Sending objects",
    "receive bytes": "Receiving bytes",
    "check objects": "Checking objects",
}
_AT = click.option("--at", metavar="ID", help="Go to the state after this message, not to the last one")


class _Bars:
    """A progress bar for each part of a transfer."""

    def __init__(self) -> None:
        self._what = ""
        self._bar: ProgressBar | None = None

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.__exit__(*exc)

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what != self._what or self._bar is None:
            self.__exit__()
            self._what, self._bar = what, ProgressBar(_LABELS.get(what, what.capitalize()))
        self._bar(done, total)


@group
def remote(shared: Shared) -> None:
    """List the remotes of this directory

    A remote is a git repository on another machine, to which you push what was recorded here, and from which
    you fetch what other machines pushed. Any git server will do. A password is never kept: it comes from
    ~/.netrc, an SSH agent, or the environment.

    \b
    Examples:
      shadowtree remote
      shadowtree remote add origin ssh://git@example.com/team/history.git
      shadowtree remote remove origin
    """
    _list(shared)


@command("list", of=remote)
def list_(shared: Shared) -> None:
    """List the remotes of this directory

    \b
    Examples:
      shadowtree remote list
      shadowtree remote list --json
    """
    _list(shared)


def _list(shared: Shared) -> None:
    with open_shadow(shared, find_wrapped(shared)) as shadow:
        found = shadow.remotes.all()
    emit(found, join_rows([_describe_remote(each) for each in found], "<<<") or ["No remotes yet"])


@command(of=remote)
@click.argument("name")
@click.argument("url")
def add(shared: Shared, name: str, url: str) -> None:
    """Call the git repository at URL by NAME

    URL is a path, or an address with https, ssh or git, or user@host:path. Nothing is sent yet.

    \b
    Examples:
      shadowtree remote add origin https://git.example.com/team/history.git
      shadowtree remote add disk /mnt/backup/history.git
    """
    with open_shadow(shared, find_to_record(shared)) as shadow:
        added = shadow.remotes.add(name, url)
    emit(added, [f"Added remote {escape(added.name)}: {escape(added.url)}"])


@command(of=remote)
@click.argument("name")
def remove(shared: Shared, name: str) -> None:
    """Remove the remote NAME from the list

    What was pushed there stays there.

    \b
    Examples:
      shadowtree remote remove origin
    """
    with open_shadow(shared, find_wrapped(shared)) as shadow:
        removed = shadow.remotes.remove(name)
    emit(removed, [f"Removed remote {escape(removed.name)}; what was pushed stays there"])


@command()
@click.argument("name", required=False)
@flag("--text", help="Also push the texts of messages, such as prompts")
@flag("--replace", "replaces", help="Remove from the remote what is forgotten or purged here")
@flag("--yes", help="Do not ask before the first push")
def push(shared: Shared, name: str | None, text: bool, replaces: bool, yes: bool) -> None:
    """Push what was recorded here to the remote NAME

    Pushes all sessions, or the one you name with --session, and sends only what the remote does not have. On
    the server, 'git log' of a session's branch reads as the conversation.

    Texts stay here unless you add --text or set push_text. Paths that match push_exclude are never pushed.
    Before the first push, you are asked, and told how many files your own git does not track.

    What is forgotten or purged here stays on the remote until you push with --replace. This changes only what
    this machine pushed, and only if nobody changed it meanwhile.

    \b
    Examples:
      shadowtree push
      shadowtree push origin --text
      shadowtree push backup --session default
    """

    def confirm(preview: PushPreview) -> bool:
        if yes:
            return True
        talk(_describe_preview(preview))
        return ask("Push?")

    sessions = None if shared.session is None else (shared.session,)
    with open_shadow(shared, find_wrapped(shared)) as shadow, _Bars() as bars:
        done = shadow.remotes.push(
            name,
            sessions=sessions,
            text=True if text else None,
            replaces=replaces,
            confirm=confirm,
            progress=bars,
        )
    emit(done, [_describe_push(done)])
    for note in done.notes:
        say(note)


@command()
@click.argument("name", required=False)
def fetch(shared: Shared, name: str | None) -> int:
    """Fetch what other machines pushed to the remote NAME

    Adds their messages to the log. None of your files change: to get the files of a session, use 'resume';
    to go to messages that another machine added to a session of yours, use 'switch'.

    \b
    Examples:
      shadowtree fetch
      shadowtree fetch origin --session default
    """
    with open_shadow(shared, find_to_record(shared)) as shadow, _Bars() as bars:
        done = shadow.remotes.fetch(name, session=shared.session, progress=bars)
    return _tell_fetched(done)


@command()
@click.argument("url")
@click.argument("directory", required=False, type=DIRECTORY)
@_AT
def clone(shared: Shared, url: str, directory: str | None, at: str | None) -> None:
    """Make DIRECTORY what it was in a session at URL

    Takes the session in which something happened last, or the one you name with --session. You can undo and
    redo there as if it had been recorded on this machine. URL may be a file that 'export' wrote.

    \b
    Examples:
      shadowtree clone https://git.example.com/team/history.git shop
      shadowtree clone /mnt/backup/history.git shop --session default
    """
    target = absolute_path(directory or _folder_of(url))
    with ExitStack() as unless_cloned:
        is_new = not os.path.lexists(target)
        if is_new:
            os.makedirs(target)
            unless_cloned.callback(_remove_if_empty, target)
        with open_shadow(shared, target) as shadow, _Bars() as bars:
            try:
                done = shadow.remotes.resume(url, session=shared.session, at=at, progress=bars)
            except BaseException:
                if is_new and shadow.is_wrapped:
                    with suppress(ShadowError):
                        shadow.destroy()
                raise
        unless_cloned.pop_all()
    where = escape(os.path.relpath(done.worktree, current_directory()))
    emit(done, [f"Cloned {_name_point(done)} into {where}: {count(done.files, 'file')}"])


@command()
@click.argument("url")
@_AT
@click.option(
    "--on-conflict",
    type=click.Choice(["abort", "overwrite"]),
    default="abort",
    help="What to do with files that differ: abort (the default) or overwrite",
)
@flag("--dry-run", help="Fetch, and show what would change, without changing it")
def resume(shared: Shared, url: str, at: str | None, on_conflict: str, dry_run: bool) -> None:
    """Continue a session from URL in this directory

    The directory must be empty, or the same as the session left it; otherwise this is a conflict, and nothing
    changes. URL may be the name of a remote, or a file that 'export' wrote. Takes the session in which
    something happened last, or the one you name with --session.

    \b
    Examples:
      shadowtree resume https://git.example.com/team/history.git --session default
      shadowtree resume origin --session default --at msg_07
    """
    with open_shadow(shared, find_to_record(shared)) as shadow, _Bars() as bars:
        done = shadow.remotes.resume(
            url,
            session=shared.session,
            at=at,
            overwrite=on_conflict == "overwrite",
            dry_run=dry_run,
            progress=bars,
        )
    done = replace(done, outcome=replace(done.outcome, back=complete_back(shared, done.outcome.back)))
    emit(done, _describe_resumed(done))


@command()
@click.argument("file", type=PATH)
@flag("--text", help="Also export the texts of messages, such as prompts")
@flag("--overwrite", help="Replace FILE if it exists")
def export(shared: Shared, file: str, text: bool, overwrite: bool) -> None:
    """Write what was recorded here into FILE, as a git bundle

    FILE holds all sessions, as a push would send them. Bring it to another machine, and use 'clone' or
    'import' there; git can verify and unbundle it too.

    \b
    Examples:
      shadowtree export history.bundle
      shadowtree export history.bundle --text
    """
    if os.path.lexists(absolute_path(file)) and not overwrite:
        raise InvalidInput(f"{file} exists already; add --overwrite to replace it")
    with open_shadow(shared, find_wrapped(shared)) as shadow:
        done = shadow.remotes.export_file(
            absolute_path(file), text=True if text else None, overwrite=overwrite
        )
    size = describe_size(done.bytes)
    emit(done, [f"Exported {_list_names(done.sessions)} to {escape(file)}: {size}"])


@command("import")
@click.argument("file", type=PATH)
def import_(shared: Shared, file: str) -> int:
    """Add what is in FILE, a git bundle, to the log

    None of your files change. FILE is one that 'export' wrote. To get the files of a session, use 'clone' or
    'resume' with FILE.

    \b
    Examples:
      shadowtree import history.bundle
    """
    with open_shadow(shared, find_to_record(shared)) as shadow:
        done = shadow.remotes.import_file(absolute_path(file))
    return _tell_fetched(done)


# What is shown


def _describe_remote(found: Remote) -> tuple[str, ...]:
    if found.failures:
        state = f"failed {count(found.failures, 'time')} in a row: {found.why}"
    elif found.pushed_ms is None:
        state = "nothing pushed yet"
    else:
        state = f"pushed {describe_age(now_ms() - found.pushed_ms)} ago"
    return escape(found.name), escape(found.url), escape(state)


def _describe_preview(preview: PushPreview) -> Iterator[str]:
    yield f"This is the first push to {escape(preview.url)}"
    files = count(preview.files, "file")
    yield f"It makes {files} readable there, in all recorded versions, deleted files included"
    if preview.untracked:
        yield f"Your own git does not track {preview.untracked:,} of them, such as:"
        yield from (f"  {escape(path)}" for path in preview.examples)
    yield f"The texts of messages are {'pushed too' if preview.has_text else 'not pushed'}"


def _describe_push(done: Pushed) -> str:
    where = f"{escape(done.remote)} ({escape(done.url)})"
    if not done.refs:
        return f"Everything is at {where} already"
    return f"Pushed {_list_names(done.sessions)} to {where}: {describe_size(done.bytes)}"


def _tell_fetched(done: Fetched) -> int:
    lines = []
    for each in done.sessions:
        if not each.messages:
            continue
        where = f" on branch {escape(each.branch)}" if each.branch else ""
        lines.append(f"{escape(each.session)}: {count(len(each.messages), 'new message')}{where}")
    emit(done, lines or ["Nothing new"])
    for refused in done.refused:
        say(f"refused session {refused.session!r}: {refused.reason}")
    return FAILED if done.refused else 0


def _describe_resumed(done: Resumed) -> Iterator[str]:
    outcome = done.outcome
    verb = "Would resume" if outcome.dry_run else "Resumed"
    yield f"{verb} {_name_point(done)}: {describe_effect(outcome)}"
    yield from list_paths(outcome)
    if outcome.back is not None:
        yield f"To get back: {outcome.back}"


def _name_point(done: Resumed) -> str:
    head = f" at message {escape(done.head)}" if done.head else ""
    return f"session {escape(done.session)}{head}"


def _list_names(names: Iterable[str]) -> str:
    found = [escape(name) for name in names]
    return f"session {found[0]}" if len(found) == 1 else count(len(found), "session")


def _folder_of(url: str) -> str:
    """Return the directory that a clone makes if none is given."""
    name = url.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git").removesuffix(".bundle")
    if not name or name in (".", ".."):
        raise InvalidInput("name the directory to make")
    return os.path.join(current_directory(), name)


def _remove_if_empty(directory: str) -> None:
    with suppress(OSError):
        os.rmdir(directory)
