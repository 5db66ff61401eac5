"""Stores: open one as a new process would, and read its content without touching it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from shadowtree import Shadow
from shadowtree.store.git_format import MODE_TREE, PackBytes
from shadowtree.store.objects import Objects
from shadowtree.store.packs.pack_writer import PackFile
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.sqlite.pack_rows import PLACING
from tests.support.memory import make_place

Read = TypeVar("Read")

SETTINGS = {"min_free": 0, "lock_timeout": 120}
"""The lock is not granted in order: if many processes want it on a busy machine, some wait long."""


def open_shadow(worktree: Path, store: Path | None = None) -> Shadow:
    """Open a worktree as a new process would."""
    return Shadow(worktree, store=store, settings=SETTINGS)


def track(worktree: Path, store: Path | None = None) -> str:
    """Take a snapshot as a new process would."""
    with open_shadow(worktree, store) as shadow:
        return shadow.track()


def store_of(worktree: Path) -> Path:
    """Return where the store of a worktree is, or would be."""
    return Shadow(worktree).store


def put_back(saved: Path, place: Path) -> None:
    """Replace a directory by a saved one."""
    shutil.rmtree(place)
    shutil.copytree(saved, place)


# What must be true


def assert_records_whole(store: Path) -> None:
    """Read every object that a record needs, down to the last blob, and check its hash.

    The timeline is read from a copy, so that the next command finds it as the dead process left it.
    """
    if not (store / "timeline.db").exists():
        return
    packs, placing, records = read_timeline(
        store,
        lambda journal: (list(journal.packs.read_all()), journal.packs.rows(PLACING), journal.live_trees()),
    )
    objects = Objects(str(store / "objects"), journaled=lambda: packs)
    seen: set[bytes] = set()
    try:
        for row in placing:
            hold_unnamed(objects, store / "objects" / "pack", row.file)
        for record in records:
            for tree in (record.tree, record.facts):
                read_below(objects, tree, seen)
            for blob in record.blobs_beside:
                objects.read(b"blob", blob)
    finally:
        objects.close()


def hold_unnamed(objects: Objects, packs: Path, file: PackFile) -> None:
    """Read a pack that a row names, and whose files do not all have their final names."""
    pack, index = packs / file.temporary, packs / file.index
    if index.exists():
        content = (pack if pack.exists() else packs / f"{file.name}.pack").read_bytes()
        objects.pack_set.hold(PackBytes(file.name, content, index.read_bytes()))


def recorded_trees(store: Path) -> list[Any]:  # Any: records of the journal
    """Return every recorded tree of a store, without touching it."""
    if not (store / "timeline.db").exists():
        return []
    return read_timeline(store, lambda journal: journal.live_trees())


def journaled_packs(store: Path) -> list[PackBytes]:
    """Return the packs that the journal of a store holds, without touching it."""
    if not (store / "timeline.db").exists():
        return []
    return read_timeline(store, lambda journal: list(journal.packs.read_all()))


def read_timeline(store: Path, read: Callable[[Journal], Read]) -> Read:
    """Read from the timeline of a store without touching it."""
    scratch = make_place()
    for path in store.glob("timeline.db*"):
        shutil.copy(path, scratch)
    journal = Journal(str(scratch / "timeline.db"))
    try:
        return read(journal)
    finally:
        journal.close()
        shutil.rmtree(scratch)


def read_below(objects: Objects, tree: bytes, seen: set[bytes]) -> None:
    """Read a tree and everything below it."""
    if tree in seen:
        return
    seen.add(tree)
    for entry in objects.read_tree(tree):
        if entry.mode == MODE_TREE:
            read_below(objects, entry.id, seen)
        elif entry.id not in seen:
            seen.add(entry.id)
            objects.read(b"blob", entry.id)


def assert_no_leftovers(store: Path) -> None:
    """Check for what a dead process may leave: temporary files, unfinished stores, packs without an index."""
    assert leftovers(store) == []


def leftovers(store: Path) -> list[str]:
    """List what a dead process may leave."""
    found = [path.name for path in store.parent.glob("*.new")]
    found += [str(path.relative_to(store)) for path in store.rglob("*") if "tmp" in path.name]
    packs = {path.name for path in (store / "objects" / "pack").glob("*")}
    found += [name for name in packs if name.endswith(".pack") and name[:-5] + ".idx" not in packs]
    found += [name for name in packs if name.endswith(".idx") and name[:-4] + ".pack" not in packs]
    return sorted(found)


def drop_unfinished_of_this_process(store: Path) -> None:
    """Remove this process's unfinished stores: no other process may, as long as this one lives."""
    for path in store.parent.glob(f"*-{os.getpid()}-*.new"):
        shutil.rmtree(path)


def count_packs(store: Path) -> int:
    """Count the packs of a store."""
    return len(list((store / "objects" / "pack").glob("*.idx")))
