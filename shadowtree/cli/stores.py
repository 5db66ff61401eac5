"""The commands that remove: what a store does not need any more, or stores whole."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

import shadowtree
from shadowtree.cli.command import Command, Option, Shared
from shadowtree.cli.output import ask, ask_for, say, warn, write_json, write_lines
from shadowtree.cli.shadows import find_wrapped, open_to_read, telling
from shadowtree.cli.text import count, describe_bytes, escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_YES = Option("--yes", "is_agreed", "Answer yes to the question")
_ADOPT = "was only moved, do 'shadowtree wrap NEW --adopt STORE' first."
_MOVED = f"If one {_ADOPT}"
_DRY_RUN = Option("--dry-run", "dry_run", "Tell what would be removed, and remove nothing")


def gc(shared: Shared, orphans: bool = False, is_agreed: bool = False, dry_run: bool = False) -> int:
    if orphans:
        return _remove_orphans(shared, is_agreed=is_agreed, dry_run=dry_run)
    with open_to_read(shared) as shadow:
        swept = _foresee_gc(shadow) if dry_run else shadow.gc()
    if shared.as_json:
        write_json(swept.to_dict())
        return 0
    would = "would free" if dry_run else "freed"
    write_lines([f"This {would} {describe_bytes(swept.freed)}"])
    for warning in swept.warnings:
        warn(warning)
    return 0


def _foresee_gc(shadow: shadowtree.Shadow) -> shadowtree.Swept:
    planned = shadow.forget(dry_run=True)
    # How many objects go is known only when shelves are written anew: some that nothing needs are spared.
    return shadowtree.Swept(None, shadow.stats().free_bytes, planned.warnings)


def _remove_orphans(shared: Shared, *, is_agreed: bool, dry_run: bool) -> int:
    def confirm(orphans: list[shadowtree.KnownStore]) -> bool:
        size = describe_bytes(sum(known.bytes for known in orphans))
        names = ", ".join(escape(known.worktree or known.store) for known in orphans)
        question = f"This removes all that was recorded of {names}: {size}.\n{_MOVED}\nGo on?"
        if is_agreed or ask(question):
            return True
        planned = shadowtree.remove_orphans(os.environ, dry_run=True)
        raise shadowtree.NotConfirmed(planned, f"remove {count(len(orphans), 'store')}")

    removal = shadowtree.remove_orphans(os.environ, dry_run=dry_run, confirm=confirm)
    if shared.as_json:
        write_json(removal.to_dict())
    else:
        write_lines(_render_removal(removal))
    unseen = sum(not known.is_trusted for known in removal.kept)
    if unseen:
        say(f"{count(unseen, 'store')} could not be looked into")
    return 1 if unseen else 0


def destroy(shared: Shared, is_agreed: bool = False, dry_run: bool = False) -> int:
    known = _find_store(shared)
    if not dry_run:
        _confirm_destroying(known, is_agreed=is_agreed)
        _stop_serving(known)
        _destroy(shared, known)
    if shared.as_json:
        write_json(_Destroyed(known, dry_run).to_dict())
    else:
        verb = "would be removed" if dry_run else "is removed"
        write_lines([f"The store of {_name(known)} {verb}, {describe_bytes(known.bytes)}"])
    return 0


@dataclass(frozen=True, slots=True)
class _Destroyed:
    """A store that was destroyed, or would be."""

    known: shadowtree.KnownStore
    dry_run: bool

    def to_dict(self) -> dict[str, object]:
        """Give the documented JSON."""
        named = {"store": self.known.store, "worktree": self.known.worktree}
        return {**named, "freed": self.known.bytes, "dry_run": self.dry_run}


def _find_store(shared: Shared) -> shadowtree.KnownStore:
    """Find the store that is meant: the one that is named, wherever its worktree is, or this directory's.

    A variable names none: it may be left from another project.
    """
    if shared.store is not None:
        return shadowtree.describe_store(shared.store)
    worktree = find_wrapped(shared)
    return shadowtree.describe_store(shadowtree.Shadow(worktree).store, worktree=worktree)


def _confirm_destroying(known: shadowtree.KnownStore, *, is_agreed: bool) -> None:
    folder = os.path.basename(known.worktree or known.store) or os.path.basename(known.store)
    what = (
        f"remove all that was recorded of {_name(known)}, {count(known.messages, 'message')} and "
        f"{describe_bytes(known.bytes)}"
    )
    lines = [f"This would {what}, for good.", *_tell_of_worktree(known)]
    question = "\n".join([*lines, f"To go on, type the folder's name, {escape(folder)}:"])
    if not is_agreed and not ask_for(question, folder):
        raise shadowtree.NotConfirmed(_Destroyed(known, dry_run=True), what)


def _tell_of_worktree(known: shadowtree.KnownStore) -> Iterator[str]:
    """Say so if the path of a worktree is not the worktree any more."""
    if known.state == "replaced":
        yield f"Another directory is there now, and stays as it is. If the old one {_ADOPT}"
    if known.state == "gone":
        yield f"Nothing is there now. If it {_ADOPT}"


def _stop_serving(known: shadowtree.KnownStore) -> None:
    """Let the daemon let go of it, or what it records by itself would make a new store at once."""
    if known.worktree is None or not shadowtree.MeetingPlace.is_used(os.environ):
        return
    from shadowtree.daemon.start import find_daemon

    client = find_daemon(os.environ)
    if client is not None:
        with client:
            client.ask("stop", known.worktree, known.store)


def _destroy(shared: Shared, known: shadowtree.KnownStore) -> None:
    if known.state == "there" and known.worktree is not None:
        shadow = shadowtree.Shadow(known.worktree, store=known.store, settings=shared.settings)
        # In a damaged one nothing can be made good any more; it is not wanted either.
        with suppress(shadowtree.StoreDamaged), telling(shadow):
            shadow.destroy()
            return
    settings = shadowtree.read_config(os.environ, given=shared.settings).read()
    shadowtree.destroy_store(known.store, timeout_s=settings.lock_timeout)


def _render_removal(removal: shadowtree.Removal) -> Iterator[str]:
    would = "would be removed" if removal.dry_run else "removed"
    for store in removal.removed:
        yield f"{would}  {escape(store)}"
    for known in removal.kept:
        yield f"kept  {_name(known)}: {escape(known.doubt or '')}"
    if removal.removed:
        yield f"{count(len(removal.removed), 'store')} {would}, {describe_bytes(removal.freed)}"
        if removal.dry_run:
            yield _MOVED
    else:
        yield "No store was removed"


def _name(known: shadowtree.KnownStore) -> str:
    return escape(known.worktree or known.store)


GC = Command(
    gc,
    options=(
        Option("--orphans", "orphans", "Remove the stores whose directories are gone for good"),
        _YES,
        _DRY_RUN,
    ),
    help="""\
Free what the store does not need any more

Forgets what the settings do not keep, and the oldest messages if a budget is used up, and removes what
nothing that is left needs. If all stores together take more than total_budget, others shrink too.

With --orphans it removes whole stores, of directories that are gone. That nothing is there is not enough: the
directory above must be the one that was there, so that no volume is missing. 'shadowtree stats --all' lists
them.

\b
Examples:
  shadowtree gc
  shadowtree gc --orphans --dry-run
""",
)

DESTROY = Command(
    destroy,
    options=(_YES, _DRY_RUN),
    help="""\
Remove the store of this directory, with all that was recorded

The directory itself stays as it is. You are asked to type the folder's name. If the store belongs to a
directory that was here before, it is refused; with --store that one is removed, wherever its directory is.

\b
Examples:
  shadowtree destroy
  shadowtree destroy --store ~/.local/share/shadowtree/shop-549df1e2e63b
""",
)
