"""A store as a directory: created whole or not at all, checked when it is opened, bound to one worktree.

It is an ordinary git repository with further files: the identity (`shadowtree.json`), the timeline, a cache
that may be deleted, and the lock. This module also names these files, and decides which worktrees are too
broad to have a store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

from shadowtree.base.errors import (
    InvalidInput,
    NotWrapped,
    ShadowError,
    StoreDamaged,
    StoreFailed,
    UnsafePath,
    WorktreeReplaced,
)
from shadowtree.base.frozen import replace
from shadowtree.store.git_format import EMPTY_TREE, deflate, encode_commit, object_id
from shadowtree.store.identity import (
    IDENTITY,
    encode_anchor,
    encode_identity,
    encode_note,
    find_anchor,
    find_moved,
    identify,
    read_anchor,
    read_identity,
)
from shadowtree.store.lock import Lock
from shadowtree.store.packs.pack_writer import PackWriter, name_pack
from shadowtree.system import disk
from shadowtree.system.locations import Places
from shadowtree.system.syscalls import host_name, is_process_alive

HEAD_REF = "refs/heads/shadowtree"
"""The ref that HEAD names. It leads to an empty commit, until sessions are written as commits. Without any
ref, git would complain about a store."""

_NEW_SUFFIX = ".new"
_ASIDE_SUFFIX = "-old"
_DIRECTORIES = ("objects", "objects/pack", "objects/info", "refs", "refs/heads", "info")
_HEAD = f"ref: {HEAD_REF}\n".encode()
_ROOT_COMMIT = encode_commit(EMPTY_TREE, (), 0, b"A store of shadowtree\n")
ROOT_COMMIT = object_id(b"commit", _ROOT_COMMIT)
"""The empty commit that the ref in HEAD leads to at first."""


class StoreLayout:
    """The paths of one store's files."""

    def __init__(self, store: str) -> None:
        self.store = store
        # Formatted: this is made several times per command, and `os.path.join` takes ten times as long.
        self.objects = f"{store}/objects"
        self.packs = f"{store}/objects/pack"
        self.ref = f"{store}/{HEAD_REF}"
        self.config = f"{store}/config"
        self.identity = f"{store}/{IDENTITY}"
        self.timeline = f"{store}/timeline.db"
        self.cache = f"{store}/cache.db"
        self.lock = f"{store}/lock"


def exists(store: str) -> bool:
    """Return whether a store is at this path.

    A store that lost its identity still counts, because of its timeline, and so does a directory that cannot
    be entered: neither path is free for a new store.
    """
    layout = StoreLayout(store)
    if os.path.lexists(layout.identity) or os.path.lexists(layout.timeline):
        return True
    return os.path.isdir(store) and not os.access(store, os.X_OK)


def refuse_no_store(path: str | os.PathLike[str]) -> None:
    """Raise InvalidInput if a path exists and is not a store; a missing store may have been moved already."""
    if os.path.lexists(path) and not exists(os.path.realpath(path)):
        raise InvalidInput(f"{os.fspath(path)} is not a store")


def list_all(directory: str) -> list[str]:
    """List the paths of the stores in the directory of stores, sorted by name."""
    if not os.path.isdir(directory):
        return []
    with disk.store_errors(directory):
        names = sorted(os.listdir(directory))
    paths = [os.path.join(directory, name) for name in names]
    return [path for path in paths if exists(path) and not path.endswith(_NEW_SUFFIX)]


def find_wrapped(directory: str, places: Places, store: str | os.PathLike[str] | None) -> str | None:
    """Find the nearest wrapped directory at or above a real path; if a store is given, only its worktree.

    If there is none, find a directory that was moved here after its store was made.
    """
    given = places.given_store(store)
    if given is not None:
        if not exists(given):
            return None
        worktree = read_identity(given).worktree
        return worktree if is_inside(directory, worktree) else _find_moved_above(directory, [given])
    found = find_usual(directory, places)
    if found is None and places.stores is not None:
        return _find_moved_above(directory, list_all(places.stores))
    return found


def find_usual(directory: str, places: Places) -> str | None:
    """Find the nearest directory, at or above a real path, that has a store at the usual place."""
    while not exists(places.usual_store(directory)):
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above
    return directory


def _find_moved_above(start: str, stores: list[str]) -> str | None:
    """Find the nearest directory, at or above a real path, that was moved here.

    A directory above `start` counts only if it cannot be confused with another one (`Moved.is_likely`).
    """
    directory = start
    while stores:
        moved = find_moved(directory, stores)
        if moved is not None and (moved.is_likely or directory == start):
            return directory
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above
    return None


def find_around(path: str) -> str | None:
    """Find the store that is at `path` or contains it."""
    while not (exists(path) and os.path.isdir(StoreLayout(path).packs)):
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    return path


def create(store: str, worktree: str, prepare: Callable[[StoreLayout], None]) -> None:
    """Create an empty store for a worktree, whole or not at all; keep one that another process just created.

    `prepare` adds files to the store before other processes can see it.
    """
    parent = os.path.dirname(store)
    disk.make_directories(parent)
    disk.require_trusted_parent(parent)
    remove_unfinished(store)
    is_empty = os.path.isdir(store) and not os.path.islink(store) and not os.listdir(store)
    if os.path.lexists(store) and not is_empty:
        if exists(store):
            return
        raise UnsafePath(store, "it already exists and is not a store")
    building = _name_unfinished(store)
    try:
        disk.make_directory(building)
        _fill(StoreLayout(building), worktree, prepare)
        _publish(building, store)
    except BaseException:
        if os.path.lexists(building):
            disk.remove_tree(building)
        raise


def remove_temporaries(layout: StoreLayout) -> None:
    """Remove the unfinished small files of dead processes. Only for the lock holder."""
    disk.remove_temporaries(layout.store)
    disk.remove_temporaries(os.path.dirname(layout.ref))
    if os.path.lexists(os.path.join(layout.store, "packed-refs.lock")):
        remove_dead_locks(layout.store)


def remove_dead_locks(store: str) -> None:
    """Remove the lock files of refs that dead processes left. Only for the lock holder."""
    for directory, _, files in os.walk(os.path.join(store, "refs")):
        for name in files:
            if name.endswith(disk.LOCK_SUFFIX):
                disk.remove_stale_lock(os.path.join(directory, name))
    # Last, because it was taken first: as long as it is there, others may be.
    for name in ("HEAD", "packed-refs"):
        disk.remove_stale_lock(os.path.join(store, name + disk.LOCK_SUFFIX))


def remove(store: str) -> None:
    """Remove a store; at any time, either all of it or nothing is at its path."""
    unwanted = _name_unfinished(store)
    disk.rename(store, unwanted)
    disk.sync_names(os.path.dirname(store))
    disk.remove_tree(unwanted)


def open_store(store: str, worktree: str, bound_to: str | None = None) -> StoreLayout:
    """Check that a store can be trusted and belongs to this worktree.

    `bound_to` is the path that the store is bound to, if the worktree was moved since.
    """
    layout = StoreLayout(store)
    if not exists(store):
        raise NotWrapped(worktree)
    disk.require_private(store)
    content = disk.read_if_there(layout.identity)
    if content is None:
        raise StoreDamaged(f"{layout.identity} is missing")
    disk.require_private(layout.identity)
    here = identify(worktree)
    if bound_to is not None:
        here = replace(here, worktree=bound_to)
    # The file is parsed as JSON only if its bytes are not exactly those expected.
    if content != encode_identity(here) and not belongs_to(store, worktree, bound_to):
        raise WorktreeReplaced(worktree, store)
    return layout


def belongs_to(store: str, worktree: str, bound_to: str | None = None) -> bool:
    """Return whether a store exists and belongs to the directory that is at this path now."""
    if not exists(store):
        return False
    found = read_identity(store)
    return found.worktree == (bound_to or worktree) and found.is_at(worktree)


def bind(store: str, worktree: str) -> None:
    """Bind a store to the directory that is at this path now."""
    layout = StoreLayout(store)
    disk.write_file(layout.config, _git_config(worktree))
    disk.write_file(layout.identity, encode_identity(identify(worktree)))


def adopt(store: str, worktree: str, usual: str, timeout_s: float) -> str:
    """Bind a store to a worktree, and move it to `usual` if it is in the same directory; return its path.

    If this is interrupted, another call finishes it.
    """
    is_beside = os.path.dirname(store) == os.path.dirname(usual)
    if not exists(store):
        if not is_beside or not belongs_to(usual, worktree):
            raise InvalidInput(f"{store} is not a store")
        return usual
    disk.require_private(store)
    # An identity that cannot be read does not matter: the user decides. A newer format is refused.
    with suppress(StoreDamaged):
        read_identity(store)
    with Lock(StoreLayout(store).lock, timeout_s):
        if is_beside and store != usual and exists(usual):
            raise InvalidInput(f"{worktree} already has a store: {usual}")
        bind(store, worktree)
        if is_beside and store != usual:
            move(store, usual)
            return usual
    return store


def refuse_another(store: str, worktree: str) -> None:
    """Raise WorktreeReplaced if the store's identity names another directory.

    An identity that can be read is relied on: to change it, the user has to adopt the store.
    """
    with suppress(StoreDamaged, StoreFailed):
        if not belongs_to(store, worktree):
            raise WorktreeReplaced(worktree, store)


def find_faults(store: str, worktree: str) -> Iterator[tuple[str, str]]:
    """Check a store's identity, git's small files and the directories; yield each bad one with the reason."""
    for file in (IDENTITY, "config", "HEAD"):
        try:
            why = _find_fault(store, worktree, file)
        except ShadowError as error:
            why = error.what if isinstance(error, StoreDamaged) else str(error)
        if why is not None:
            yield file, why
    missing = [part for part in _DIRECTORIES if not os.path.isdir(os.path.join(store, part))]
    yield from ((part, "is missing") for part in missing)


def _find_fault(store: str, worktree: str, file: str) -> str | None:
    if file == IDENTITY:
        read_identity(store)
        return None
    if file == "HEAD":
        is_named = disk.read_if_there(os.path.join(store, file)) == _HEAD
        return None if is_named else f"does not name {HEAD_REF}"
    is_told = _is_configured(store, _core_config(worktree))
    return None if is_told else "lacks settings that git needs"


def _is_configured(store: str, text: bytes) -> bool:
    """Return whether the store's git configuration has all lines of a text; it may have more."""
    lines = (disk.read_if_there(StoreLayout(store).config) or b"").splitlines()
    return all(line in lines for line in text.splitlines())


def has_other_notes(store: str, worktree: str) -> bool:
    """Return whether the directory, or its anchor, differs from the notes in the store."""
    is_noted = _is_configured(store, _encode_notes(worktree))
    # A later line may override the anchor, or be malformed.
    return not is_noted or read_anchor(store) != find_anchor(worktree)


def proves_to_belong(store: str, worktree: str) -> bool:
    """Return whether a store provably belongs to a worktree, even if its identity cannot be read.

    Then its git configuration must name this path, and note this very directory: another project at the same
    path would have only the path in common.
    """
    with suppress(StoreDamaged, StoreFailed):
        return belongs_to(store, worktree)
    with suppress(StoreFailed):
        return _is_configured(store, _worktree_line(worktree) + b"\n" + encode_note(identify(worktree)))
    return False


def mend(store: str, file: str, worktree: str) -> None:
    """Write a file, or make a directory, in which `find_faults` found a fault."""
    layout = StoreLayout(store)
    if file in _DIRECTORIES:
        disk.make_directories(os.path.join(store, file))
        return
    contents = {
        "shadowtree.json": lambda: encode_identity(identify(worktree)),
        "config": lambda: _git_config(worktree),
        "HEAD": lambda: _HEAD,
    }
    disk.write_file(os.path.join(layout.store, file), contents[file]())


def move(store: str, target: str) -> None:
    """Move a store to another place on the same disk."""
    disk.make_directories(os.path.dirname(target))
    if os.path.lexists(target):
        raise StoreFailed(target, "a store already exists there")
    disk.rename(store, target)
    disk.sync_names(os.path.dirname(target))


def set_aside(store: str) -> str:
    """Rename a store, so that another one can take its place; return the new path."""
    number = 1
    while os.path.lexists(aside := f"{store}{_ASIDE_SUFFIX}{number if number > 1 else ''}"):
        number += 1
    move(store, aside)
    return aside


def _fill(layout: StoreLayout, worktree: str, prepare: Callable[[StoreLayout], None]) -> None:
    """Create git's files, then ours; the identity comes last, because without it there is no store."""
    for part in _DIRECTORIES:
        disk.make_directory(os.path.join(layout.store, part))
    disk.sync_names(layout.objects)
    disk.write_file(os.path.join(layout.store, "HEAD"), _HEAD)
    disk.write_file(layout.config, _git_config(worktree))
    begin_ref(layout)
    prepare(layout)
    disk.write_file(layout.identity, encode_identity(identify(worktree)))


def begin_ref(layout: StoreLayout) -> None:
    """Set the ref that HEAD names to an empty commit, durably."""
    pack = PackWriter(layout.packs)
    pack.add(b"tree", EMPTY_TREE, 0, deflate(b""))
    pack.add(b"commit", ROOT_COMMIT, len(_ROOT_COMMIT), deflate(_ROOT_COMMIT))
    for file in pack.complete():
        name_pack(layout.packs, file, has_row=False)
    disk.sync_names(layout.packs)
    # For git, a temporary file among the refs would be a broken ref.
    disk.write_file(layout.ref, ROOT_COMMIT.hex().encode() + b"\n", beside=layout.config)


def _publish(building: str, store: str) -> None:
    try:
        disk.rename(building, store)
    except StoreFailed:
        # Another process was faster; its store is just as good.
        if not exists(store):
            raise
        disk.remove_tree(building)
        return
    disk.sync_names(os.path.dirname(store))


def remove_unfinished(store: str) -> None:
    """Remove the leftovers of this machine's processes that died while they created or removed this store.

    Leftovers that cannot be removed stay, since they do no harm.
    """
    parent, name = os.path.split(store)
    prefix = f"{name}.{host_name()}-"
    for entry in _list_unfinished(parent):
        if entry.startswith(prefix):
            _remove_if_dead(parent, entry, entry[len(prefix) :])


def remove_all_unfinished(directory: str) -> None:
    """Remove such leftovers of every store in a directory of stores."""
    for entry in _list_unfinished(directory):
        _, mark, owner = entry.rpartition(f".{host_name()}-")
        if mark:
            _remove_if_dead(directory, entry, owner)


def _list_unfinished(directory: str) -> list[str]:
    try:
        return [entry for entry in os.listdir(directory) if entry.endswith(_NEW_SUFFIX)]
    except OSError:
        return []


def _remove_if_dead(directory: str, entry: str, owner: str) -> None:
    pid = owner.partition("-")[0]
    if pid.isdecimal() and not is_process_alive(int(pid)):
        with suppress(ShadowError):
            disk.require_private(os.path.join(directory, entry))
            disk.remove_tree(os.path.join(directory, entry))


def _name_unfinished(store: str) -> str:
    """Return a name for a store that is being created or removed, with the process id in it."""
    return f"{store}.{host_name()}-{os.getpid()}-{os.urandom(4).hex()}{_NEW_SUFFIX}"


def _git_config(worktree: str) -> bytes:
    """Encode the configuration for real git, followed by the notes on the directory and its anchor."""
    return _core_config(worktree) + _encode_notes(worktree)


def _encode_notes(worktree: str) -> bytes:
    return encode_note(identify(worktree)) + encode_anchor(worktree)


def _core_config(worktree: str) -> bytes:
    """Encode git's settings: it never packs on its own, and its files are private."""
    return (
        b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
        + _worktree_line(worktree)
        + b"\n\tautocrlf = false\n\tsharedRepository = 0600\n[gc]\n\tauto = 0\n"
    )


def _worktree_line(worktree: str) -> bytes:
    quoted = os.fsencode(worktree).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'\tworktree = "' + quoted + b'"'


def is_inside(path: str, directory: str) -> bool:
    """Return whether `path` is `directory` or lies below it; both are real paths."""
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
