"""An open store: its objects, its timeline and its cache, and the order in which they are written.

    pack durable ──▶ keeper ref ──▶ row in the timeline ──▶ cache

The row is the moment at which a tree counts (invariant 2). What comes before it is not seen without it, and
what comes after it can be made again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shadowtree import disk
from shadowtree.errors import ShadowError, StoreDamaged
from shadowtree.gitformat import MODE_FILE, MODE_TREE, TreeEntry, encode_commit, encode_tree
from shadowtree.journal import Journal, TreeRecord
from shadowtree.layout import StoreLayout
from shadowtree.objects import Objects
from shadowtree.packs import PackWriter
from shadowtree.paths import RelPath
from shadowtree.recorded import PathSearch
from shadowtree.scan import Scan
from shadowtree.statcache import StatCache


class OpenStore:
    """The open files of a store. Writing needs its lock."""

    def __init__(self, layout: StoreLayout) -> None:
        self.layout = layout
        self._timeline = _identify(layout.timeline)
        self.journal = Journal(layout.timeline)
        self.objects = Objects(layout.objects)
        self.cache = StatCache(layout.cache)
        self._searched: dict[bytes, int] = {}
        """For paths above the size limit the last recorded tree in which they were looked for."""

    def is_current(self) -> bool:
        """Tell whether the open timeline is still the one in the store, which may have been made anew."""
        return self._timeline == _identify(self.layout.timeline)

    def close(self) -> None:
        """Let go of every file."""
        self.cache.close()
        self.journal.close()
        self.objects.close()

    def __del__(self) -> None:
        # For those who never close: a host that drops a shadow should not keep its files open.
        if hasattr(self, "cache"):
            self.close()

    def refresh(self) -> None:
        """See what other processes did. The cache counts only if the packs it relies on are as they were."""
        self.objects.refresh()
        self.cache.load()
        if not self._is_cache_sound():
            self.cache.forget()

    def prepare_to_write(self) -> None:
        """Do the same as the holder of the lock, who also removes what dead processes left behind."""
        self.objects.remove_temporaries()
        self.journal.upgrade()
        last = self.journal.last_tree()
        if last is not None:
            self._mend_ref(last)
        self.objects.refresh()
        self.cache.load()
        if not self._is_cache_sound():
            self.cache.discard()

    def _is_cache_sound(self) -> bool:
        known = self.cache.info("packs") or {}
        now = self.objects.stamp()
        return all(now.get(name) == stamp for name, stamp in known.items())

    @contextmanager
    def recording(
        self,
        pack: PackWriter,
        tree: bytes,
        facts: bytes,
        *,
        files: int,
        time_s: int,
        also: Sequence[bytes] = (),
    ) -> Iterator[TreeRecord]:
        """Publish a pack and give the record of the tree in it, which may be the one that was last.

        What the body adds to the journal counts together with the record, when the body is over, or not at
        all. `also` are blobs beside the tree that must be kept as long as it is.
        """
        last = self.journal.last_tree()
        if last is not None and (last.tree, last.facts) == (tree, facts) and not also:
            self.objects.publish(pack)
            with self.journal.transaction():
                yield last
            return
        keeper = self.add_keeper(pack, tree, facts, time_s=time_s, also=also)
        if not self.objects.publish(pack):
            # All was there already, perhaps from a process that died before it made the names durable.
            disk.sync_names(self.layout.packs)
        self._keep(keeper)
        with self.journal.transaction():
            yield self.journal.add_tree(tree=tree, facts=facts, keeper=keeper, files=files, time_s=time_s)

    def add_keeper(
        self, pack: PackWriter, tree: bytes, facts: bytes, *, time_s: int, also: Sequence[bytes] = ()
    ) -> bytes:
        """Add the commit that keeps a tree, its facts and other blobs from `git gc`; give its id."""
        entries = [TreeEntry(b"facts", MODE_TREE, facts), TreeEntry(b"files", MODE_TREE, tree)]
        if also:
            others = [TreeEntry(blob.hex().encode(), MODE_FILE, blob) for blob in sorted(set(also))]
            kept_also = self.objects.put(pack, b"tree", encode_tree(others))
            entries.append(TreeEntry(b"also", MODE_TREE, kept_also))
        kept = self.objects.put(pack, b"tree", encode_tree(entries))
        last = self.journal.last_tree()
        commit = encode_commit(kept, last.keeper if last is not None else None, time_s, "tree " + tree.hex())
        return self.objects.put(pack, b"commit", commit)

    def tidy(self) -> None:
        """Merge small packs. A failure is no failure of the snapshot, which is recorded by now."""
        try:
            self.objects.merge_small_packs()
        except ShadowError:
            self.objects.refresh()

    def _keep(self, keeper: bytes) -> None:
        """Let the store's ref end at a commit, durably: what `git gc` may prune is decided by it alone."""
        disk.write_file(self.layout.ref, _ref_text(keeper))

    def _mend_ref(self, last: TreeRecord) -> None:
        """Let the ref end where the journal says: a kill may have left it one commit further."""
        if disk.read_if_there(self.layout.ref) != _ref_text(last.keeper):
            self._keep(last.keeper)

    def remember(self, scan: Scan) -> None:
        """Save what the scan found for the next one."""
        self.cache.save(
            (directory for directory, is_new in zip(scan.directories, scan.changed, strict=True) if is_new),
            scan.gone,
            {
                "packs": self.objects.stamp(),
                "indexes": scan.rule_files.indexes,
                "searched": {**(self.cache.info("searched") or {}), **self._searched},
            },
        )

    def was_covered(self, path: RelPath) -> bool:
        """Tell whether any recorded tree covers a path; what was searched once is not searched again."""
        known: dict[bytes, int] = self.cache.info("searched") or {}
        number = self._searched.get(path, known.get(path, 0))
        search = PathSearch(self.objects, path)
        for record in self.journal.trees_after(number):
            if self._may_hold(search, record.tree):
                self._searched[path] = record.number - 1
                return True
            number = record.number
        self._searched[path] = number
        return False

    def _may_hold(self, search: PathSearch, tree: bytes) -> bool:
        try:
            return search.is_in(tree)
        except StoreDamaged:
            # Nobody can say that it did not: covering too much loses nothing.
            return True


def _identify(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, os.getpid()


def _ref_text(commit: bytes) -> bytes:
    return commit.hex().encode() + b"\n"
