"""A store as a directory: made whole or not at all, opened with suspicion, bound to one worktree.

It is an ordinary git repository with three files of ours beside: who it belongs to (`shadowtree.json`), the
timeline, and a cache that may be thrown away.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from shadowtree import disk
from shadowtree.errors import (
    NotWrapped,
    ShadowError,
    StoreDamaged,
    StoreFailed,
    StoreTooNew,
    UnsafePath,
    WorktreeFailed,
    WorktreeReplaced,
    describe,
)
from shadowtree.frozen import frozen
from shadowtree.layout import FORMAT, KEEPER_REF, StoreLayout
from shadowtree.system import directory_generation, host_name, is_process_alive

_NEW_SUFFIX = ".new"


@frozen
class Identity:
    """Which directory a store belongs to. Device numbers change between boots and are no part of it."""

    worktree: str
    inode: int
    generation: int | None
    """Tells two directories apart that got the same inode number one after the other."""

    def is_same_directory(self, other: Identity) -> bool:
        """Tell whether both are the same directory, wherever it is now."""
        same_generation = None in (self.generation, other.generation) or self.generation == other.generation
        return self.inode == other.inode and same_generation


def identify(worktree: str) -> Identity:
    """Look at the directory that is at this path now."""
    try:
        inode = os.stat(worktree).st_ino
    except OSError as error:
        raise WorktreeFailed(worktree, describe(error)) from error
    return Identity(worktree, inode, directory_generation(worktree))


def exists(store: str) -> bool:
    """Tell whether a store is here. A directory that holds no identity is none."""
    return os.path.lexists(StoreLayout(store).identity)


def find_around(path: str) -> str | None:
    """Find a store that `path` is, or lies in."""
    while not (exists(path) and os.path.isdir(StoreLayout(path).packs)):
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above
    return path


def create(store: str, worktree: str, prepare: Callable[[StoreLayout], None]) -> None:
    """Make an empty store for a worktree, whole or not at all; one that another process just made is fine.

    `prepare` adds to the store what it needs before anybody can see it.
    """
    parent = os.path.dirname(store)
    disk.make_directories(parent)
    disk.require_trusted_parent(parent)
    remove_unfinished(store)
    if os.path.lexists(store) and not _is_empty_directory(store):
        if exists(store):
            return
        raise UnsafePath(store, "it is there already and is no store")
    building = f"{_building_prefix(store)}{os.getpid()}-{os.urandom(4).hex()}{_NEW_SUFFIX}"
    try:
        disk.make_directory(building)
        _fill(StoreLayout(building), worktree, prepare)
        _publish(building, store)
    except BaseException:
        if os.path.lexists(building):
            disk.remove_tree(building)
        raise


def remove_temporaries(layout: StoreLayout) -> None:
    """Remove the unfinished small files of dead processes; only for the holder of the lock."""
    disk.remove_temporaries(layout.store)
    disk.remove_temporaries(os.path.dirname(layout.ref))


def remove(store: str) -> None:
    """Remove a store so that at any moment there is all of it or none."""
    unwanted = f"{_building_prefix(store)}{os.getpid()}-{os.urandom(4).hex()}{_NEW_SUFFIX}"
    disk.rename(store, unwanted)
    disk.remove_tree(unwanted)


def open_store(store: str, worktree: str) -> StoreLayout:
    """Check that a store may be trusted and belongs to this worktree."""
    layout = StoreLayout(store)
    if not exists(store):
        raise NotWrapped(worktree)
    disk.require_private(store)
    disk.require_private(layout.identity)
    # Reading the file as JSON is left to the case in which it is not just what it should be.
    is_expected = disk.read_file(layout.identity) == _encode_identity(identify(worktree))
    if not is_expected and not belongs_to(store, worktree):
        raise WorktreeReplaced(worktree, store)
    return layout


def belongs_to(store: str, worktree: str) -> bool:
    """Tell whether there is a store that belongs to the directory that is at this path now."""
    if not exists(store):
        return False
    found = read_identity(store)
    return found.worktree == worktree and found.is_same_directory(identify(worktree))


def read_identity(store: str) -> Identity:
    """Read which directory a store belongs to."""
    import json

    path = StoreLayout(store).identity
    try:
        content = json.loads(disk.read_file(path))
        version = content.pop("format")
        if version > FORMAT:
            raise StoreTooNew(store, version, FORMAT)
        return Identity(**content)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreDamaged(f"{path} cannot be read") from error


def bind(store: str, worktree: str) -> None:
    """Let a store belong to the directory that is at this path now."""
    layout = StoreLayout(store)
    disk.write_file(layout.config, _git_config(worktree))
    disk.write_file(layout.identity, _encode_identity(identify(worktree)))


def move(store: str, target: str) -> None:
    """Give a store another place on the same disk."""
    disk.make_directories(os.path.dirname(target))
    if os.path.lexists(target):
        raise StoreFailed(target, "a store is there already")
    disk.rename(store, target)
    disk.sync_names(os.path.dirname(target))


def _fill(layout: StoreLayout, worktree: str, prepare: Callable[[StoreLayout], None]) -> None:
    """Make what git wants to see, then what we add; the identity comes last: without it there is no store."""
    for part in ("objects", "objects/pack", "objects/info", "refs", "refs/heads", "info"):
        disk.make_directory(os.path.join(layout.store, part))
    disk.sync_names(layout.objects)
    disk.write_file(os.path.join(layout.store, "HEAD"), f"ref: {KEEPER_REF}\n".encode())
    disk.write_file(layout.config, _git_config(worktree))
    prepare(layout)
    disk.write_file(layout.identity, _encode_identity(identify(worktree)))


def _publish(building: str, store: str) -> None:
    try:
        disk.rename(building, store)
    except StoreFailed:
        # Another process was faster: its store is as good as ours.
        if not exists(store):
            raise
        disk.remove_tree(building)
        return
    disk.sync_names(os.path.dirname(store))


def remove_unfinished(store: str) -> None:
    """Remove what processes of this machine left that died while they made this store, or removed it.

    Whatever cannot be removed stays: it is in nobody's way.
    """
    parent, prefix = os.path.split(_building_prefix(store))
    try:
        entries = os.listdir(parent)
    except OSError:
        return
    for entry in entries:
        if entry.startswith(prefix) and entry.endswith(_NEW_SUFFIX):
            pid = entry[len(prefix) :].partition("-")[0]
            if pid.isdecimal() and not is_process_alive(int(pid)):
                try:
                    disk.require_private(os.path.join(parent, entry))
                    disk.remove_tree(os.path.join(parent, entry))
                except ShadowError:
                    continue


def _building_prefix(store: str) -> str:
    """Name a store that is being made; no lock could guard it, because it is not there yet."""
    return f"{store}.{host_name()}-"


def _is_empty_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)


def _encode_identity(identity: Identity) -> bytes:
    generation = "null" if identity.generation is None else identity.generation
    text = (
        f'{{\n "format": {FORMAT},\n "worktree": {_quote(identity.worktree)},\n'
        f' "inode": {identity.inode},\n "generation": {generation}\n}}\n'
    )
    return text.encode()


def _quote(text: str) -> str:
    """Write text as JSON; what is plain, and that is nearly every path, needs no import for it."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    import json

    return json.dumps(text)


def _git_config(worktree: str) -> bytes:
    """Write the configuration that real git reads: it never packs by itself, and what it makes is private."""
    quoted = os.fsencode(worktree).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return (
        b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
        b'\tworktree = "' + quoted + b'"\n'
        b"\tautocrlf = false\n\tsharedRepository = 0600\n[gc]\n\tauto = 0\n"
    )
