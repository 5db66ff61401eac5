"""The commands about the store: its size, what it keeps, whether it is sound, and its removal."""

from __future__ import annotations

import os
from contextlib import suppress

import click

import shadowtree
from shadowtree.all_stores import describe_store, destroy_store, gc_all, refuse_newer, remove_orphans
from shadowtree.base.errors import (
    InvalidInput,
    NotConfirmed,
    RemoteFailed,
    ShadowError,
    StoreDamaged,
    describe_size,
)
from shadowtree.base.frozen import frozen, replace
from shadowtree.cli.app import COUNT, COUNT_FROM_0, PATH, command, flag
from shadowtree.cli.completion import complete_message, complete_session
from shadowtree.cli.exit_codes import FAILED, STORE_DAMAGED
from shadowtree.cli.find_shadow import (
    Shared,
    absolute_path,
    find_wrapped,
    open_shadow,
    open_to_read,
    warning_of_recovery,
)
from shadowtree.cli.format import count, escape
from shadowtree.cli.output import ProgressBar, ask, ask_for, emit, now_ms, say, warn
from shadowtree.cli.views import store as view
from shadowtree.config.settings import read_config
from shadowtree.results.reports import KnownStore, PathFigure, Removal
from shadowtree.results.result import Result


@command()
@flag("--all", "is_all", help="List all stores, most recently used first")
def stats(shared: Shared, is_all: bool) -> None:
    """Show what the store contains and how much space it uses

    Shows its size by kind, the number of messages, trees and pins, the largest paths, and what
    'shadowtree gc' would free. With --all, lists every store with its size, its age and its directory.

    \b
    Examples:
      shadowtree stats
      shadowtree stats --all
    """
    if not is_all:
        with open_to_read(shared) as shadow:
            found = shadow.stats()
        emit(found, view.render_stats(found, now_ms=now_ms()))
        return
    stores = shadowtree.list_stores(os.environ)
    emit(stores, view.render_stores(stores, now_ms=now_ms()))
    used = sum(known.bytes for known in stores)
    budget = read_config(os.environ, given=shared.settings).read().total_budget
    if 0 < budget < used:
        sizes = f"{describe_size(used)}, over the {describe_size(budget)} budget"
        warn(f"all stores together use {sizes}")


@command()
@click.argument("path", required=False, type=PATH)
@click.option("--depth", metavar="N", type=COUNT_FROM_0, help="Go down N levels (default: 1)")
@flag("--by-session", help="Show how much space each session alone uses")
def du(shared: Shared, path: str | None, depth: int | None, by_session: bool) -> None:
    """Show how much space the recorded versions of PATH use

    The largest comes first, the total last. Content that is stored once is counted once, at its newest path.

    \b
    Examples:
      shadowtree du
      shadowtree du src --depth 2
      shadowtree du --by-session
    """
    if by_session and (path is not None or depth is not None):
        raise InvalidInput("--by-session cannot be combined with PATH or --depth")
    with open_to_read(shared) as shadow:
        if by_session:
            figures = shadow.du_by_session()
            emit(figures, view.list_figures(figures))
            return
        usage = shadow.du(absolute_path(path or "."), depth=1 if depth is None else depth)
    emit(usage, view.list_figures([*usage.entries, PathFigure(usage.path, usage.bytes, usage.versions)]))


@command()
@flag("--orphans", help="Remove stores whose directories no longer exist")
@flag("--all", "is_all", help="Clean up all stores, each by its project's settings")
@flag("--yes", help="Do not ask for confirmation")
@flag("--dry-run", help="Show what would be removed, without removing it")
def gc(shared: Shared, orphans: bool, is_all: bool, yes: bool, dry_run: bool) -> int:
    """Forget old messages, and free space the store no longer needs

    Forgets what the settings do not keep, in all sessions, and the oldest messages if the store is over its
    budget. Then it removes everything that is no longer needed. With --all, it cleans up every store; stores
    whose directory is missing are skipped.

    With --orphans, it removes the stores of directories that no longer exist. A store is kept if its
    directory may be on a volume that is not mounted. 'shadowtree stats --all' lists all stores.

    \b
    Examples:
      shadowtree gc
      shadowtree gc --all
      shadowtree gc --orphans --dry-run
    """
    if orphans and is_all:
        raise InvalidInput("--orphans cannot be combined with --all")
    if orphans:
        return _remove_orphans(is_agreed=yes, dry_run=dry_run)
    if is_all:
        return _gc_all(shared, dry_run=dry_run)
    with open_to_read(shared) as shadow:
        swept = shadow.gc(dry_run=dry_run)
    emit(swept, [view.describe_freed(swept.freed, dry_run=dry_run)], warnings=swept.warnings)
    return 0


def _gc_all(shared: Shared, *, dry_run: bool) -> int:
    found = gc_all(os.environ, settings=shared.settings, dry_run=dry_run)
    emit(found, view.render_swept(found, dry_run=dry_run))
    for each in found:
        for warning in each.swept.warnings if each.swept is not None else ():
            warn(f"{each.worktree}: {warning}")
    return FAILED if any(each.swept is None for each in found) else 0


def _remove_orphans(*, is_agreed: bool, dry_run: bool) -> int:
    def confirm(orphans: list[KnownStore]) -> bool:
        if is_agreed or ask(view.describe_orphans(orphans)):
            return True
        planned = remove_orphans(os.environ, dry_run=True)
        raise NotConfirmed(planned, f"remove {count(len(orphans), 'store')}")

    removal = remove_orphans(os.environ, dry_run=dry_run, confirm=confirm)
    emit(removal, view.render_removal(removal))
    unseen = sum(not known.is_trusted for known in removal.kept)
    if unseen:
        say(f"{count(unseen, 'store')} could not be read")
    return FAILED if unseen else 0


@frozen
class _Destroyed(Result):
    """A store that was destroyed, or would be."""

    store: str
    worktree: str | None
    freed: int
    dry_run: bool


@command()
@flag("--all", "is_all", help="Remove all your stores")
@flag("--yes", help="Do not ask for confirmation")
@flag("--dry-run", help="Show what would be removed, without removing it")
def destroy(shared: Shared, is_all: bool, yes: bool, dry_run: bool) -> int:
    """Remove the store of this directory, with everything recorded

    The directory itself does not change. To confirm, you type the folder name. If this directory has no
    store, but one that used to be here has, that store is removed. With --store, the store that you name is
    removed; with --all, every store.

    \b
    Examples:
      shadowtree destroy
      shadowtree destroy --store ~/.local/share/shadowtree/shop-549df1e2e63b
      shadowtree destroy --all
    """
    if is_all:
        if shared.store is not None:
            raise InvalidInput("--all cannot be combined with --store")
        return _destroy_all(shared, is_agreed=yes, dry_run=dry_run)
    known = _find_store(shared)
    refuse_newer(known.store)
    destroyed = _Destroyed(known.store, known.worktree, known.bytes, dry_run=True)
    if not dry_run:
        folder = os.path.basename(known.worktree or known.store) or os.path.basename(known.store)
        if not yes and not ask_for("\n".join(view.ask_to_destroy(known, folder)), folder):
            raise NotConfirmed(destroyed, view.describe_destroying(known))
        _destroy(shared, known)
    verb = "Would remove" if dry_run else "Removed"
    line = f"{verb} {view.name_store(known)} ({describe_size(known.bytes)})"
    emit(replace(destroyed, dry_run=dry_run), [line])
    return 0


def _destroy_all(shared: Shared, *, is_agreed: bool, dry_run: bool) -> int:
    """Remove every store, one after the other; report those that cannot be removed."""
    found = shadowtree.list_stores(os.environ)
    planned = Removal([known.store for known in found], sum(known.bytes for known in found), [], True)
    if dry_run or not found:
        emit(replace(planned, dry_run=dry_run), view.render_destroyed(planned))
        return 0
    if not is_agreed and not ask_for("\n".join(view.ask_to_destroy_all(found)), "all"):
        raise NotConfirmed(planned, f"remove {count(len(found), 'store')}")
    removed, kept = [], []
    for known in found:
        try:
            _destroy(shared, known)
            removed.append(known)
        except ShadowError as error:
            kept.append(replace(known, doubt=str(error)))
    done = Removal([known.store for known in removed], sum(known.bytes for known in removed), kept)
    emit(done, view.render_destroyed(done))
    if kept:
        say(f"{count(len(kept), 'store')} could not be removed")
    return FAILED if kept else 0


def _find_store(shared: Shared) -> KnownStore:
    """Find the store to destroy: the one given by --store, wherever its worktree is, or this directory's.

    A store from SHADOWTREE_STORE must be this directory's: the variable may be left from another project.
    """
    if shared.store is not None:
        return describe_store(shared.store)
    with shadowtree.Shadow(find_wrapped(shared)) as shadow:
        # This finds the store of a directory that was moved.
        _ = shadow.is_wrapped
        return describe_store(shadow.store)


def _destroy(shared: Shared, known: KnownStore) -> None:
    if known.worktree is not None:
        from shadowtree.cli.commands.watch import stop_serving

        # Otherwise the daemon might record by itself, and so make a new store at once.
        stop_serving(known.worktree, known.store)
    if known.state == "there" and known.worktree is not None:
        shadow = shadowtree.Shadow(known.worktree, store=known.store, settings=shared.settings)
        # A damaged store cannot be recovered, and need not be.
        with suppress(StoreDamaged), warning_of_recovery(shadow):
            shadow.destroy()
            return
    settings = read_config(os.environ, given=shared.settings).read()
    destroy_store(known.store, timeout_s=settings.lock_timeout)


@command()
@flag("--read-data", help="Read and verify the content of every object")
@flag("--repair", help="Repair what can be repaired")
@flag("--forget-lost", help="With --repair, forget messages that need lost content")
@flag("--dry-run", help="With --repair, show what would be done, without doing it")
def check(shared: Shared, read_data: bool, repair: bool, forget_lost: bool, dry_run: bool) -> int:
    """Verify the store

    Checks the timeline, its trees, the packs and the permissions, and lists every message that is affected.
    If there are problems, the exit code is 15. Nothing is changed.

    With --repair, lost content is restored from other copies or from your files, where possible. Whatever a
    repair changes is first copied to the store's 'quarantine' directory.

    \b
    Examples:
      shadowtree check
      shadowtree check --read-data
      shadowtree check --repair --dry-run
    """
    if (dry_run or forget_lost) and not repair:
        flag = "--dry-run" if dry_run else "--forget-lost"
        raise InvalidInput(f"{flag} requires --repair")
    with open_shadow(shared, find_wrapped(shared)) as shadow, ProgressBar("Reading objects") as bar:
        shadow.only_wrapped()
        if repair:
            report = shadow.repair(dry_run=dry_run, forget_lost=forget_lost, progress=bar)
        else:
            report = shadow.check(read_data=read_data, progress=bar)
    where = str(shadow.worktree), str(shadow.store)
    emit(report, view.render_check(report, *where, has_repaired=repair and not dry_run))
    if report.ok:
        return 0
    say(f"the store is damaged: {count(len(report.problems), 'problem')}")
    return STORE_DAMAGED


@command()
@click.argument("id", shell_complete=complete_message)
def pin(shared: Shared, id: str) -> None:
    """Keep the message ID forever

    A pinned message is never forgotten, however old it is and however full the store.

    \b
    Examples:
      shadowtree pin msg_01
      shadowtree pin @
    """
    with open_to_read(shared) as shadow:
        message = shadow.pin(id)
    emit(message, [f"Pinned {escape(message.id)}"])


@command()
@click.argument("id", shell_complete=complete_message)
def unpin(shared: Shared, id: str) -> None:
    """Let the message ID be forgotten again

    \b
    Examples:
      shadowtree unpin msg_01
    """
    with open_to_read(shared) as shadow:
        message = shadow.unpin(id)
    emit(message, [f"Unpinned {escape(message.id)}"])


@command()
@click.option("--keep-last", metavar="N", type=COUNT, help="Keep the newest N messages of each session")
@click.option("--keep-within", metavar="TIME", help="Keep messages newer than TIME, such as 12h or 30d")
@click.option(
    "--keep-session",
    "keep_sessions",
    metavar="ID",
    multiple=True,
    shell_complete=complete_session,
    help="Keep all messages of this session; may be repeated",
)
@flag("--all-sessions", help="Forget in all sessions, not only in one")
@flag("--no-gc", help="Do not free the space yet; a later gc does")
@flag("--remote", "is_remote", help="Also replace what was pushed, so that your remotes forget it too")
@flag("--dry-run", help="Show what would be forgotten, without forgetting it")
def forget(
    shared: Shared,
    keep_last: int | None,
    keep_within: str | None,
    keep_sessions: tuple[str, ...],
    all_sessions: bool,
    no_gc: bool,
    is_remote: bool,
    dry_run: bool,
) -> int:
    """Forget old messages of a session, and free their space

    By default, the settings decide: it keeps messages newer than keep_within (30 days), the last keep_last
    (1,000) messages, and the last keep_turns (20) turns. With --keep-last or --keep-within, only these
    options count, and the last turn is always kept. Pinned and open messages are never forgotten.

    With --all-sessions, it applies to every session; unless you say what to keep, max_sessions and
    store_budget apply too, as in 'shadowtree gc'.

    Files do not change. A forgotten message can no longer be shown, undone or reverted.

    \b
    Examples:
      shadowtree forget --dry-run
      shadowtree forget --keep-last 100
      shadowtree forget --all-sessions --keep-within 7d --keep-session release
    """
    if keep_sessions and not all_sessions:
        raise InvalidInput("--keep-session requires --all-sessions")
    with open_to_read(shared) as shadow:
        found = shadow.forget(
            all_sessions=all_sessions,
            keep_last=keep_last,
            keep_within=keep_within,
            keep_sessions=list(keep_sessions),
            dry_run=dry_run,
            gc=not no_gc,
        )
    emit(found, view.render_forgotten(found), warnings=found.warnings)
    return FAILED if is_remote and not dry_run and _replace_pushed(shared) else 0


@command()
@click.argument("what", required=False, type=PATH)
@click.option("--text", "secret", metavar="SECRET", help="Remove SECRET from the text of messages")
@flag("--everywhere", help="Remove the content of PATH from all other paths too")
@flag("--allow", help="Record WHAT again, which was purged, from the next snapshot on")
@flag("--remote", "is_remote", help="Also replace what was pushed to your remotes")
@flag("--dry-run", help="Show what would be removed, without removing it")
@flag("--yes", help="Do not ask for confirmation")
def purge(
    shared: Shared,
    what: str | None,
    secret: str | None,
    everywhere: bool,
    allow: bool,
    is_remote: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Permanently remove a secret from everything recorded

    WHAT is a file, a directory with everything in it, or a blob id (40 hex digits, as in 'shadowtree show
    --json'). It is removed from every tree, its bytes from the store, and each of its lines and values from
    the text of messages. With --text, SECRET is removed from the text of messages. The file itself does not
    change.

    Undo cannot bring it back. From then on, reverts leave the path alone, and it is not recorded until you
    --allow it.

    What you pushed to a remote stays there unless you add --remote; other machines that have it have to purge
    it too.

    If other paths have the same content, or files contain SECRET, they keep it and the exit code is 1, unless
    you add --everywhere. Message ids and session names that contain part of it are kept and listed, and the
    exit code is 1.

    \b
    Examples:
      shadowtree purge .env --dry-run
      shadowtree purge .env --everywhere
      shadowtree purge 83baae61804e65cc73a7201a7252750c76066a30
      shadowtree purge --text sk_live_51HxYz
      shadowtree purge .env --allow
    """
    if allow and (everywhere or dry_run or secret is not None):
        raise InvalidInput("--allow cannot be combined with --text, --everywhere or --dry-run")
    if (what is None) == (secret is None):
        raise InvalidInput("name what to purge: a path, a blob id, or --text SECRET")
    target = what if what is None or _is_id(what) else absolute_path(what)
    with open_to_read(shared) as shadow:
        if allow and target is not None:
            allowed = list(shadow.allow(target))
            lines = (f"Recorded again from the next snapshot on: {escape(name)}" for name in allowed)
            emit({"allowed": allowed}, lines)
            return 0
        purged = shadow.purge(
            target,
            text=secret,
            everywhere=everywhere,
            dry_run=dry_run,
            confirm=lambda planned: yes or ask(f"{view.describe_purge(planned)}. Continue?"),
        )
    if is_remote and not dry_run:
        purged = replace(purged, remotes=_replace_pushed(shared))
    emit(purged, view.render_purged(purged))
    if purged.complete or dry_run:
        return FAILED if is_remote and purged.remotes and not dry_run else 0
    say("; ".join(view.list_left_of_purge(purged)))
    return FAILED


def _replace_pushed(shared: Shared) -> list[str]:
    """Push with --replace to all remotes that were pushed to; return the names of those that failed."""
    failed = []
    with open_shadow(shared, find_wrapped(shared)) as shadow:
        for remote in shadow.remotes.all():
            if remote.pushed_ms is None:
                continue
            try:
                shadow.remotes.push(remote.name, replaces=True)
            except RemoteFailed as error:
                failed.append(remote.name)
                say(f"{error}; to try again: shadowtree push {remote.name} --replace")
            else:
                say(f"replaced what was pushed to {remote.name}")
    return failed


def _is_id(word: str) -> bool:
    return len(word) == 40 and not word.strip("0123456789abcdef")
