"""All stores of a user: list them, sweep them, and remove those whose worktrees are gone for good.

An absent path proves little: a disk may be unplugged, a share not mounted, or the path may mean something
else in a container. So the parent directory must exist, on the same volume, and be the very directory that
was there when the store was created. Only then is a missing worktree known to be removed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress

from shadowtree.base.errors import (
    InvalidInput,
    Locked,
    ShadowError,
    StoreDamaged,
    StoreFailed,
    StoreTooOld,
    UnsafePath,
)
from shadowtree.base.frozen import frozen, replace
from shadowtree.results.reports import KnownStore, Removal, SweptStore
from shadowtree.shadow import Shadow
from shadowtree.store import directory as stores
from shadowtree.store.directory import StoreLayout
from shadowtree.store.files import refuse_foreign
from shadowtree.store.identity import (
    Anchor,
    Identity,
    find_anchor,
    identify,
    read_anchor,
    read_identity,
    refuse_newer_identity,
)
from shadowtree.store.lock import Lock
from shadowtree.system import disk
from shadowtree.system.locations import Places
from shadowtree.system.syscalls import directory_generation
from shadowtree.timeline.journal import Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.results.reports import WorktreeState


@frozen
class _Timeline:
    """A summary of a store's timeline."""

    messages: int
    used_ms: int | None
    is_interrupted: bool


def list_stores(environ: Mapping[str, str]) -> list[KnownStore]:
    """List all stores in the directory of stores, most recently used first.

    Stores elsewhere are not listed. A store that cannot be trusted is listed without details.
    """
    directory = Places(environ).stores
    if directory is None:
        return []
    found = [known for store in stores.list_all(directory) if (known := _describe_listed(store)) is not None]
    return sorted(found, key=lambda known: (-(known.used_ms or 0), known.store))


def _describe_listed(store: str) -> KnownStore | None:
    """Describe a store that was listed; return None if it has been removed since."""
    try:
        return describe_store(store)
    except InvalidInput:
        return None
    except UnsafePath as error:
        return KnownStore(store, None, "unknown", 0, None, None, str(error), is_trusted=False)


def describe_store(store: str | os.PathLike[str]) -> KnownStore:
    """Return a store's worktree and its state, and the store's size; raise InvalidInput if it is no store."""
    path, worktree = _require_store(store), None
    try:
        identity = read_identity(path)
        worktree = identity.worktree
        timeline = _read_timeline(path)
        state = _find_state(identity)
        doubt = _find_doubt(path, identity, state, is_interrupted=timeline.is_interrupted)
    except ShadowError as error:
        return KnownStore(path, worktree, "unknown", disk.measure_tree(path), None, None, str(error))
    size = disk.measure_tree(path)
    return KnownStore(path, identity.worktree, state, size, timeline.messages, timeline.used_ms, doubt)


def gc_all(
    environ: Mapping[str, str],
    *,
    settings: Mapping[str, object] | None = None,
    dry_run: bool = False,
) -> list[SweptStore]:
    """Run `Shadow.gc` in every store, with the settings of each project.

    A store whose worktree is not there, or whose `gc` fails, is listed with the reason.
    """
    return [_gc_store(known, settings, dry_run=dry_run) for known in list_stores(environ)]


def _gc_store(known: KnownStore, settings: Mapping[str, object] | None, *, dry_run: bool) -> SweptStore:
    if known.worktree is None or known.state != "there":
        return SweptStore(known.store, known.worktree, None, known.doubt or "its worktree is gone")
    try:
        with Shadow(known.worktree, store=known.store, settings=settings) as shadow:
            return SweptStore(known.store, known.worktree, shadow.gc(dry_run=dry_run))
    except ShadowError as error:
        return SweptStore(known.store, known.worktree, None, str(error))


def remove_orphans(
    environ: Mapping[str, str],
    *,
    dry_run: bool = False,
    confirm: Callable[[list[KnownStore]], bool] | None = None,
) -> Removal:
    """Remove the stores whose worktrees are gone for good, each completely or not at all.

    `confirm` is called once, with the stores to remove. A store that is in use, or that contains foreign
    files, is kept.
    """
    missing = [known for known in list_stores(environ) if known.state != "there"]
    orphans = [known for known in missing if known.is_orphan]
    kept = [known for known in missing if not known.is_orphan]
    if dry_run:
        return Removal([known.store for known in orphans], sum(each.bytes for each in orphans), kept, True)
    if orphans and confirm is not None and not confirm(orphans):
        return Removal([], 0, missing)
    removed: list[KnownStore] = []
    for known in orphans:
        doubt = _remove_orphan(known.store)
        if doubt is None:
            removed.append(known)
        else:
            kept.append(replace(known, doubt=doubt))
    directory = Places(environ).stores
    if directory is not None:
        # Remains of stores whose creation or removal was interrupted.
        stores.remove_all_unfinished(directory)
    return Removal([known.store for known in removed], sum(each.bytes for each in removed), kept)


def destroy_store(store: str | os.PathLike[str], *, timeout_s: float) -> None:
    """Remove a store whether or not its worktree exists; raise StoreFailed if an act was interrupted.

    If the worktree exists, use `Shadow.destroy`, which recovers the act first. A store that a newer version
    wrote is refused with StoreTooNew.
    """
    path = _require_store(store)
    refuse_newer(path)
    with Lock(StoreLayout(path).lock, timeout_s):
        if _is_interrupted(path):
            raise StoreFailed(path, "an operation was interrupted in it and cannot be recovered here")
        refuse_foreign(path)
        stores.remove(path)


def refuse_newer(store: str) -> None:
    """Raise StoreTooNew if a newer version wrote a store: this one cannot know what is at stake in it."""
    refuse_newer_identity(store)
    with suppress(StoreDamaged, StoreTooOld):
        _read_timeline(store)


def _require_store(store: str | os.PathLike[str]) -> str:
    path = os.path.realpath(store)
    if not stores.exists(path):
        raise InvalidInput(f"{os.fspath(store)} is not a store")
    disk.require_private(path)
    return path


def _read_timeline(store: str) -> _Timeline:
    with closing(Journal(StoreLayout(store).timeline)) as journal:
        tree, event = journal.last_tree(), journal.latest_event()
        times = [] if tree is None else [tree.time_s * 1000]
        times += [] if event is None else [event.time_ms]
        messages = sum(journal.retention.count_messages().values())
        return _Timeline(messages, max(times, default=None), bool(journal.open_intents()))


def _is_interrupted(store: str) -> bool:
    """Return whether an act still has to be recovered; with a damaged timeline, none can be."""
    try:
        return _read_timeline(store).is_interrupted
    except StoreDamaged:
        return False


def _find_state(identity: Identity) -> WorktreeState:
    """Return whether a worktree is still at its path, gone or replaced."""
    try:
        os.lstat(identity.worktree)
    except OSError as error:
        return "gone" if error.errno in (errno.ENOENT, errno.ENOTDIR) else "unknown"
    try:
        is_same = identity.is_same_directory(identify(identity.worktree))
    except ShadowError:
        return "unknown"
    return "there" if is_same else "replaced"


def _find_doubt(store: str, identity: Identity, state: WorktreeState, *, is_interrupted: bool) -> str | None:
    """Return why a store must be kept, as a sentence about its worktree; None if it is an orphan."""
    anchor = read_anchor(store)
    if state != "gone":
        return "something exists at its path"
    if is_interrupted:
        return "an operation was interrupted there and has not been recovered"
    try:
        moved_to = _find_renamed(identity)
        if moved_to is not None:
            return f"it was renamed to {moved_to}"
        return find_volume_doubt(anchor, find_anchor(identity.worktree))
    except OSError:
        return find_volume_doubt(anchor, None)


def _find_renamed(identity: Identity) -> str | None:
    """Find a renamed worktree in its old parent directory; raise OSError if that cannot be read."""
    with os.scandir(os.path.dirname(identity.worktree)) as entries:
        for entry in entries:
            if entry.inode() == identity.inode and entry.is_dir(follow_symlinks=False):
                found = Identity(entry.path, entry.inode(), directory_generation(entry.path))
                if identity.is_same_directory(found):
                    return entry.path
    return None


def _remove_orphan(store: str) -> str | None:
    """Remove a store if it is still an orphan under the lock; otherwise return why it is kept."""
    try:
        with Lock(StoreLayout(store).lock, 0):
            doubt = describe_store(store).doubt
            if doubt is None:
                refuse_foreign(store)
                stores.remove(store)
            return doubt
    except Locked:
        return "it is in use"
    except ShadowError as error:
        return str(error)


def find_volume_doubt(anchor: Anchor | None, above: Anchor | None) -> str | None:
    """Return why a missing worktree may be on a volume that is not mounted; None if it is gone for good.

    `anchor` describes the parent directory when the store was created, or is None if that was not recorded.
    `above` describes the parent directory now, or is None if it is missing or cannot be read.
    """
    if above is None:
        return "its parent directory is missing, so a volume may not be mounted"
    if anchor is None:
        return "its store was made by an earlier version, which did not record where it was"
    if anchor.is_mount:
        return "it was a mount point, so a volume may not be mounted"
    if not anchor.is_same_directory(above):
        return "its parent directory was replaced, so a volume may not be mounted"
    return None
