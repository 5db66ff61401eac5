"""An open store: its objects, its timeline and its cache, and the order in which they are written.

    objects published ──▶ rows in the timeline ──▶ files and ref ──▶ cache

The rows are the moment at which a tree counts, with all its objects (invariant 2). What comes before it is
not seen without it, and what comes after it can be made again; how objects are published is `intake`'s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shadowtree import disk
from shadowtree.errors import StoreDamaged
from shadowtree.gitformat import MODE_FILE, MODE_TREE, TreeEntry, encode_commit, encode_tree
from shadowtree.intake import Intake
from shadowtree.journal import Journal, TreeRecord
from shadowtree.layout import StoreLayout
from shadowtree.objects import Objects, Scratch
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
        self.objects = self.open_objects()
        self._intake = Intake(layout, self.objects, self.journal)
        self.cache = StatCache(layout.cache)
        self._searched: dict[bytes, int] = {}
        """For paths above the size limit the last recorded tree in which they were looked for."""

    def open_objects(self, scratch: Scratch | None = None) -> Objects:
        """Open the objects once more, to read them together with those of a scratch."""
        return Objects(self.layout.objects, scratch, self.journal.read_packs)

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
        """Do the same as the holder of the lock, who also makes good what dead processes left behind."""
        self.abandon()
        self.objects.remove_temporaries()
        if self.journal.upgrade():
            # Earlier versions took objects for stored whose names a dead process had not made durable.
            disk.sync_names(self.layout.packs)
        self._intake.recover()
        self.cache.load()
        if not self._is_cache_sound():
            self.cache.discard()

    def _is_cache_sound(self) -> bool:
        known = self.cache.info("packs") or {}
        now = self.objects.stamp()
        return all(now.get(name) == stamp for name, stamp in known.items())

    def has_to_recover(self) -> bool:
        """Tell whether something was interrupted that the next holder of the lock makes good."""
        return bool(self.journal.open_intents()) or self._intake.has_to_recover()

    def publish(self, pack: PackWriter) -> None:
        """Make the objects of a pack readable, so that they may be compared and then recorded."""
        self._intake.publish(pack)

    def abandon(self) -> None:
        """Throw away what was published and not recorded, and what memory holds of it."""
        if self._intake.abandon():
            self.cache.forget()

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
            self.publish(pack)
            with self._intake.recording(None):
                yield last
            return
        keeper = self.add_keeper(pack, tree, facts, time_s=time_s, also=also)
        self.publish(pack)
        with self._intake.recording(keeper):
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
        """Merge small packs once there are many."""
        self._intake.tidy()

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
