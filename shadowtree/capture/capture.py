"""Capture the present state of a worktree: into the store with a record, or only into memory.

capture              scan ──▶ read_files ──▶ build_trees ──▶ record (the caller adds rows) ──▶ remember
capture_in_memory    scan ──▶ read_files ──▶ build_trees ──▶ a recorded tree that is not stored
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shadowtree.base.errors import ShadowError
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import RelPath
from shadowtree.capture.directories import Census
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.read_files import Progress, build_trees, read_files, settle
from shadowtree.capture.recorded_tree import RecordedDirectory, open_recorded
from shadowtree.capture.rules.sources import Surroundings
from shadowtree.capture.scan import Scan, ScanInput, ScanScope, scan_worktree
from shadowtree.capture.size_limits import require_free_space, require_size_within_limits
from shadowtree.capture.stat_cache import StatCache
from shadowtree.config.settings import Settings
from shadowtree.results.messages import Skipped, Watching
from shadowtree.store.objects import Objects, Scratch
from shadowtree.store.packs.pack_writer import PackWriter, part_size
from shadowtree.timeline.sqlite.schema import TreeRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from shadowtree.store.packs.pack_writer import ObjectSink

    class Watch(Protocol):
        """A watcher, which knows where a worktree may have changed."""

        def scan(self, given: ScanInput) -> Scan:
            """Scan what may have changed since the last recorded scan, or everything."""

        def commit(self, scan: Scan, cache: StatCache) -> None:
            """Note that a scan was recorded and saved in the cache."""

        @property
        def report(self) -> Watching:
            """How well the worktree is watched."""


_DEFLATED = 3
"""Text is stored in about one third of its size."""


@frozen
class Site:
    """The worktree to capture, with its settings."""

    worktree: str
    settings: Settings
    surroundings: Surroundings
    watch: Watch | None = None
    """The watcher of the worktree, if there is one."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user about the settings."""
    has_idle_time: bool = False
    """The host tidies the store in idle time, so records need not."""
    limits: Limits = DEFAULT_LIMITS


def scan_site(site: Site, opened: OpenStore | None) -> Scan:
    """Scan the worktree, or let its watcher scan it. Without a store everything is read."""
    given = make_scan_input(site, opened)
    return scan_worktree(given) if site.watch is None else site.watch.scan(given)


def scan_again(
    site: Site, opened: OpenStore, before: Scan, paths: Sequence[RelPath], changed_bits: Sequence[RelPath]
) -> Scan:
    """Scan only the paths that changed; take everything else from the scan `before`, which was recorded.

    If the bits of a file with other hard links changed, they changed under its other names too.
    """
    if site.watch is not None or any(before.has_other_links(path) for path in changed_bits):
        return scan_site(site, opened)
    census = Census.of(before.directories.values(), before.rules)
    return scan_worktree(make_scan_input(site, opened), census=census, scope=ScanScope(paths))


def make_scan_input(site: Site, opened: OpenStore | None) -> ScanInput:
    """Collect the input of a scan, with what the store recorded if there is one."""
    surroundings, clock_ns = site.surroundings, site.limits.file_clock_ns
    if opened is None:
        return ScanInput(site.worktree, site.settings, surroundings, None, lambda path: False, clock_ns)
    surroundings = replace(surroundings, tombstones=opened.journal.left_out.tombstones())
    return ScanInput(site.worktree, site.settings, surroundings, opened.cache, opened.was_covered, clock_ns)


class Capture:
    """A captured state: record it, and remember it for the next scan."""

    def __init__(
        self, site: Site, opened: OpenStore, scan: Scan, pack: PackWriter, tree: bytes, facts: bytes
    ) -> None:
        self._site = site
        self._opened = opened
        self._pack = pack
        self.scan = scan
        self.tree = tree
        self.facts = facts

    def publish(self) -> RecordedDirectory:
        """Make the objects readable, and return the state as a recorded tree."""
        opened = self._opened
        opened.publisher.publish(self._pack)
        self._pack = opened.objects.start_pack()
        return open_recorded(opened.objects, self.tree, self.facts)

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user about the settings and the rules."""
        return list_warnings(self._site, self.scan)

    def put_stream(self, size: int, pieces: Iterator[bytes]) -> bytes:
        """Store the content of an uncovered file and return its id, which `record` needs in `also`."""
        return self._pack.add_stream(size, pieces, self._opened.objects.has)

    @contextmanager
    def record(self, time_s: int, *, also: Sequence[bytes] = ()) -> Iterator[TreeRecord]:
        """Publish the pack and yield the record of its tree, which is the last record if nothing changed.

        The record and the body's rows in the journal are committed together when the body ends, or not at
        all. `also` lists blobs outside the tree that must be kept as long as it is.
        """
        opened, tree, facts = self._opened, self.tree, self.facts
        opened.publisher.publish(self._pack)
        with opened.publisher.recording():
            last = opened.journal.last_tree()
            is_new = last is None or (last.tree, last.facts) != (tree, facts) or bool(also)
            if last is None or is_new:
                last = opened.journal.add_tree(
                    tree=tree, facts=facts, also=also, files=self.scan.files, time_s=time_s
                )
            yield last
        settle(self.scan)
        try:
            if is_new:
                opened.tidy_a_little(last, has_idle_time=self._site.has_idle_time)
            opened.remember(self.scan)
            if self._site.watch is not None:
                self._site.watch.commit(self.scan, opened.cache)
        except ShadowError:
            # The state is recorded, so this is not a failure (invariant 11); the next scan checks everything.
            opened.cache.discard()

    def abandon(self) -> None:
        """Discard what is not recorded."""
        self._pack.abandon()
        self._opened.abandon()


@contextmanager
def capture(
    site: Site,
    opened: OpenStore,
    *,
    scan: Scan | None = None,
    progress: Progress | None = None,
) -> Iterator[Capture]:
    """Capture the present state, from `scan` if it was just made; the body records it.

    If the body raises, everything that is not recorded is discarded.
    """
    # Objects in a pack that still has to be removed do not count as stored.
    opened.publisher.make_good()
    is_first = opened.journal.last_tree() is None
    scan = scan_site(site, opened) if scan is None else scan
    if is_first:
        require_size_within_limits(site.worktree, scan, site.settings)
    if scan.changed:
        require_free_space(opened.layout.store, scan.pending_bytes, min_free=site.settings.min_free)
    pack = opened.objects.start_pack(part_size(scan.pending_bytes // _DEFLATED, opened.limits.packs))
    try:
        scan = _read_all(site, opened, scan, opened.objects, pack, progress)
        tree, facts = build_trees(scan, opened.objects, pack)
    except BaseException:
        pack.abandon()
        raise
    taken = Capture(site, opened, scan, pack, tree, facts)
    try:
        yield taken
    except BaseException:
        taken.abandon()
        raise


def _read_all(
    site: Site, opened: OpenStore, scan: Scan, objects: Objects, pack: ObjectSink, progress: Progress | None
) -> Scan:
    """Read what a scan found, and return the scan.

    If something was gone by then, scan and read once more: it may have been moved to a place that had been
    scanned before, and would be in the tree at neither.
    """
    read_files(scan, site.worktree, objects, pack, progress)
    if scan.has_lost:
        scan = scan_site(site, opened)
        read_files(scan, site.worktree, objects, pack, progress)
    return scan


@contextmanager
def capture_in_memory(
    site: Site,
    opened: OpenStore,
    scan: Scan | None = None,
    scratch: Scratch | None = None,
    *,
    file_bytes: int = 0,
) -> Iterator[tuple[Objects, RecordedDirectory]]:
    """Take a snapshot in memory: nothing is stored, so it needs no lock and no disk space.

    At most `file_bytes` of file contents are kept, unless a `scratch` with its own limit is given.
    """
    scratch = Scratch(file_bytes) if scratch is None else scratch
    objects = opened.open_objects(scratch)
    try:
        objects.refresh()
        if scan is None:
            opened.refresh()
            scan = _read_all(site, opened, scan_site(site, opened), objects, scratch, None)
        else:
            read_files(scan, site.worktree, objects, scratch, None)
        tree, facts = build_trees(scan, objects, scratch)
        yield objects, open_recorded(objects, tree, facts)
    finally:
        objects.close()


def list_skipped(scan: Scan) -> list[Skipped]:
    """List the paths that the rules would have covered, and why they are not covered."""
    return [Skipped(path, reason) for path, reason in scan.skipped()]


def list_warnings(site: Site, scan: Scan) -> list[str]:
    """List the warnings for the user about the settings and the rules."""
    warnings = [*site.warnings, *dict.fromkeys(scan.rule_files.warnings)]
    if not scan.files and scan.ignored:
        warnings.append("nothing is protected: the ignore rules exclude everything")
    return warnings
