"""The commands about the store itself: what it takes, whether it is sound, what it can do without."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import click

import shadowtree
from shadowtree.all_stores import describe_store, destroy_store, gc_all, remove_orphans
from shadowtree.base.errors import InvalidInput, NotConfirmed, StoreDamaged
from shadowtree.base.frozen import frozen
from shadowtree.cli.app import COUNT_FROM_0, PATH, Command, pass_shared
from shadowtree.cli.find_shadow import (
    Shared,
    find_wrapped,
    open_shadow,
    open_to_read,
    open_with_root,
    path_in_worktree,
    warning_of_recovery,
)
from shadowtree.cli.output import (
    ProgressBar,
    ask,
    ask_for,
    count,
    describe_bytes,
    emit,
    escape,
    now_ms,
    say,
    warn,
)
from shadowtree.cli.views.store import (
    MOVED,
    list_figures,
    render_check,
    render_removal,
    render_stats,
    render_stores,
    render_swept,
)
from shadowtree.config.sources import read_config
from shadowtree.results.reports import KnownStore, PathFigure

NOT_OK = 15
"""The exit code of a check that found something wrong."""
_ADOPT = "was only moved, do 'shadowtree wrap NEW --adopt STORE' first."


@click.command(cls=Command)
@click.option("--all", "is_all", is_flag=True, help="List all stores, the one that was used last first")
@pass_shared
def stats(shared: Shared, is_all: bool) -> None:
    """Show what the store holds and how much space it takes

    Bytes by kind, messages, trees and pins, the paths that take most, and what 'shadowtree gc' would free.
    With --all every store, its worktree, when something was recorded there last, and whether the worktree is
    there.

    \b
    Examples:
      shadowtree stats
      shadowtree stats --all
    """
    if is_all:
        _report_all(shared)
        return
    with open_to_read(shared) as shadow:
        found = shadow.stats()
    emit(found, render_stats(found, now_ms=now_ms()))


def _report_all(shared: Shared) -> None:
    found = shadowtree.list_stores(os.environ)
    emit(found, render_stores(found, now_ms=now_ms()))
    used = sum(known.bytes for known in found)
    budget = read_config(os.environ, given=shared.settings).read().total_budget
    if 0 < budget < used:
        warn(f"all stores together take {describe_bytes(used)}, and the budget is {describe_bytes(budget)}")


@click.command(cls=Command)
@click.argument("path", required=False, type=PATH)
@click.option("--depth", metavar="N", type=COUNT_FROM_0, help="Go down so many levels; 1 if it is not given")
@click.option("--by-session", is_flag=True, help="Tell what each session alone needs")
@pass_shared
def du(shared: Shared, path: str | None, depth: int | None, by_session: bool) -> None:
    """Show how much space the recorded versions of PATH take

    The largest comes first, and the sum last. What is stored once counts once, where the newest tree has it;
    a directory counts with its own listings.

    \b
    Examples:
      shadowtree du
      shadowtree du src --depth 2
      shadowtree du --by-session
    """
    if by_session and (path is not None or depth is not None):
        raise InvalidInput("--by-session tells of the whole store, without PATH and --depth")
    with open_with_root(shared) as (root, shadow):
        if by_session:
            figures = shadow.du_by_session()
            emit(figures, list_figures(figures))
            return
        usage = shadow.du(path_in_worktree(root, path or "."), depth=1 if depth is None else depth)
    emit(usage, list_figures([*usage.entries, PathFigure(usage.path, usage.bytes, usage.versions)]))


@click.command(cls=Command)
@click.option("--orphans", is_flag=True, help="Remove the stores whose directories are gone for good")
@click.option(
    "--all", "is_all", is_flag=True, help="Do it in all stores, each by the settings of its project"
)
@click.option("--yes", is_flag=True, help="Answer yes to the question")
@click.option("--dry-run", is_flag=True, help="Tell what would be removed, and remove nothing")
@pass_shared
def gc(shared: Shared, orphans: bool, is_all: bool, yes: bool, dry_run: bool) -> int:
    """Free what the store does not need any more

    Forgets what the settings do not keep, and the oldest messages if the budget is used up, and removes what
    nothing that is left needs. With --all it does so in every store, each by the settings of its own project;
    a store whose directory is not there is left as it is.

    With --orphans it removes whole stores, of directories that are gone. That nothing is there is not enough:
    the directory above must be the one that was there, so that no volume is missing. 'shadowtree stats --all'
    lists them.

    \b
    Examples:
      shadowtree gc
      shadowtree gc --all
      shadowtree gc --orphans --dry-run
    """
    if orphans and is_all:
        raise InvalidInput("--orphans and --all exclude each other")
    if orphans:
        return _remove_orphans(is_agreed=yes, dry_run=dry_run)
    if is_all:
        return _gc_all(shared, dry_run=dry_run)
    with open_to_read(shared) as shadow:
        swept = shadow.gc(dry_run=dry_run)
    would = "would free" if dry_run else "freed"
    emit(swept, [f"This {would} {describe_bytes(swept.freed)}"], warnings=swept.warnings)
    return 0


def _gc_all(shared: Shared, *, dry_run: bool) -> int:
    found = gc_all(os.environ, settings=shared.settings, dry_run=dry_run)
    emit(found, render_swept(found, dry_run=dry_run))
    for each in found:
        for warning in each.swept.warnings if each.swept is not None else ():
            warn(f"{each.worktree}: {warning}")
    return 1 if any(each.swept is None for each in found) else 0


def _remove_orphans(*, is_agreed: bool, dry_run: bool) -> int:
    def confirm(orphans: list[KnownStore]) -> bool:
        size = describe_bytes(sum(known.bytes for known in orphans))
        names = ", ".join(escape(known.worktree or known.store) for known in orphans)
        question = f"This removes all that was recorded of {names}: {size}.\n{MOVED}\nGo on?"
        if is_agreed or ask(question):
            return True
        planned = remove_orphans(os.environ, dry_run=True)
        raise NotConfirmed(planned, f"remove {count(len(orphans), 'store')}")

    removal = remove_orphans(os.environ, dry_run=dry_run, confirm=confirm)
    emit(removal, render_removal(removal))
    unseen = sum(not known.is_trusted for known in removal.kept)
    if unseen:
        say(f"{count(unseen, 'store')} could not be looked into")
    return 1 if unseen else 0


@frozen
class _Destroyed:
    """A store that was destroyed, or would be."""

    known: KnownStore
    dry_run: bool

    def to_dict(self) -> dict[str, object]:
        """Give the documented JSON."""
        named = {"store": self.known.store, "worktree": self.known.worktree}
        return {**named, "freed": self.known.bytes, "dry_run": self.dry_run}


@click.command(cls=Command)
@click.option("--yes", is_flag=True, help="Answer yes to the question")
@click.option("--dry-run", is_flag=True, help="Tell what would be removed, and remove nothing")
@pass_shared
def destroy(shared: Shared, yes: bool, dry_run: bool) -> None:
    """Remove the store of this directory, with all that was recorded

    The directory itself stays as it is. You are asked to type the folder's name. If the store belongs to a
    directory that was here before, it is refused; with --store that one is removed, wherever its directory
    is.

    \b
    Examples:
      shadowtree destroy
      shadowtree destroy --store ~/.local/share/shadowtree/shop-549df1e2e63b
    """
    known = _find_store(shared)
    if not dry_run:
        _confirm_destroying(known, is_agreed=yes)
        if known.worktree is not None:
            from shadowtree.cli.commands.watch import stop_serving

            # Or what the daemon records by itself would make a new store at once.
            stop_serving(known.worktree, known.store)
        _destroy(shared, known)
    verb = "would be removed" if dry_run else "is removed"
    name = escape(known.worktree or known.store)
    emit(_Destroyed(known, dry_run), [f"The store of {name} {verb}, {describe_bytes(known.bytes)}"])


def _find_store(shared: Shared) -> KnownStore:
    """Find the store that is meant: the one that is named, wherever its worktree is, or this directory's.

    A variable names none: it may be left from another project.
    """
    if shared.store is not None:
        return describe_store(shared.store)
    worktree = find_wrapped(shared)
    return describe_store(shadowtree.Shadow(worktree).store, worktree=worktree)


def _confirm_destroying(known: KnownStore, *, is_agreed: bool) -> None:
    folder = os.path.basename(known.worktree or known.store) or os.path.basename(known.store)
    what = (
        f"remove all that was recorded of {escape(known.worktree or known.store)},"
        f" {count(known.messages, 'message')} and {describe_bytes(known.bytes)}"
    )
    lines = [f"This would {what}, for good.", *_describe_worktree(known)]
    question = "\n".join([*lines, f"To go on, type the folder's name, {escape(folder)}:"])
    if not is_agreed and not ask_for(question, folder):
        raise NotConfirmed(_Destroyed(known, dry_run=True), what)


def _describe_worktree(known: KnownStore) -> Iterator[str]:
    """Say so if the path of a worktree is not the worktree any more."""
    if known.state == "replaced":
        yield f"Another directory is there now, and stays as it is. If the old one {_ADOPT}"
    if known.state == "gone":
        yield f"Nothing is there now. If it {_ADOPT}"


def _destroy(shared: Shared, known: KnownStore) -> None:
    if known.state == "there" and known.worktree is not None:
        shadow = shadowtree.Shadow(known.worktree, store=known.store, settings=shared.settings)
        # In a damaged one nothing can be made good any more; it is not wanted either.
        with suppress(StoreDamaged), warning_of_recovery(shadow):
            shadow.destroy()
            return
    settings = read_config(os.environ, given=shared.settings).read()
    destroy_store(known.store, timeout_s=settings.lock_timeout)


@click.command(cls=Command)
@click.option("--read-data", is_flag=True, help="Read and hash every object, not only what names it")
@click.option("--repair", is_flag=True, help="Make good what can be, and say what cannot")
@click.option(
    "--forget-lost", is_flag=True, help="With --repair: forget the messages that need what stays lost"
)
@click.option("--dry-run", is_flag=True, help="Only say what a repair would do")
@pass_shared
def check(shared: Shared, read_data: bool, repair: bool, forget_lost: bool, dry_run: bool) -> int:
    """Verify that the store holds what was put there

    It looks at the timeline, at all trees that it names, at packs, permissions and leftovers, and names every
    message that is hurt by what is damaged; then the exit code is 15. Nothing is changed.

    A repair first copies what it changes into the directory 'quarantine' of the store. What is lost is taken
    from other copies, or from the worktree as far as the content is still there.

    \b
    Examples:
      shadowtree check
      shadowtree check --read-data
      shadowtree check --repair --dry-run
    """
    if (dry_run or forget_lost) and not repair:
        flag = "--dry-run" if dry_run else "--forget-lost"
        raise InvalidInput(f"{flag} goes with --repair; a check changes nothing")
    with open_shadow(shared, find_wrapped(shared)) as shadow, ProgressBar("Reading objects") as bar:
        if repair:
            report = shadow.repair(dry_run=dry_run, forget_lost=forget_lost, progress=bar)
        else:
            report = shadow.check(read_data=read_data, progress=bar)
    emit(report, render_check(report, has_repaired=repair and not dry_run))
    if report.ok:
        return 0
    say(f"the store is damaged: {count(len(report.problems), 'problem')}")
    return NOT_OK
