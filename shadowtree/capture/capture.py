"""Take the present state of a worktree: into the store with a record, or into a scratch for a look.

capture   scan ──▶ read_files ──▶ build_trees ──▶ record (the caller adds rows) ──▶ remember
look      scan ──▶ read_files ──▶ build_trees ──▶ a recorded tree that is nowhere stored
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from shadowtree.base.errors import OutOfSpace, ShadowError, WorktreeTooBig
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.base.paths import RelPath
from shadowtree.capture.directories import Census
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.read_files import Progress, build_trees, read_files, settle
from shadowtree.capture.recorded_tree import RecordedDirectory, open_recorded
from shadowtree.capture.rules.sources import Surroundings
from shadowtree.capture.scan import Outlook, Scan, ScanInput, scan_worktree
from shadowtree.capture.stat_cache import StatCache
from shadowtree.config.settings import Settings
from shadowtree.results.messages import Skipped, Watching
from shadowtree.store.objects import Objects, Scratch
from shadowtree.store.pack_writer import PackWriter, part_size
from shadowtree.system import disk
from shadowtree.system.syscalls import free_bytes
from shadowtree.timeline.schema import TreeRecord

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    class Watch(Protocol):
        """What knows where a worktree may have changed."""

        def scan(self, given: ScanInput) -> Scan:
            """Look at what may have changed since the last scan that was recorded, or at everything."""

        def commit(self, scan: Scan, cache: StatCache) -> None:
            """Note that a scan was recorded, and is remembered in the cache."""

        @property
        def report(self) -> Watching:
            """How well the worktree is watched."""


_DEFLATED = 3
"""About how much smaller texts become when they are stored."""


@frozen
class Site:
    """What is captured, and under which settings."""

    worktree: str
    settings: Settings
    surroundings: Surroundings
    watch: Watch | None = None
    """What keeps the worktree in sight, if anything does."""
    warnings: tuple[str, ...] = ()
    """What a user should know of the settings."""
    has_idle_time: bool = False
    """Somebody tidies the store when nobody wants anything of it."""
    limits: Limits = DEFAULT_LIMITS


def scan_site(site: Site, opened: OpenStore | None) -> Scan:
    """Look at the worktree; who watches it knows where. Without a store nothing is known yet."""
    given = make_scan_input(site, opened)
    return scan_worktree(given) if site.watch is None else site.watch.scan(given)


def scan_again(site: Site, opened: OpenStore, before: Scan, only: Collection[RelPath]) -> Scan:
    """Look at some directories once more; the others are as they were before, which was recorded."""
    given = make_scan_input(site, opened)
    if site.watch is not None:
        return site.watch.scan(given)
    census = Census.of(before.directories.values(), before.rules)
    return scan_worktree(given, census=census, outlook=Outlook(directories=only))


def make_scan_input(site: Site, opened: OpenStore | None) -> ScanInput:
    """Put together what a scan has to know, by what is recorded in the store if there is one."""
    surroundings, clock_ns = site.surroundings, site.limits.file_clock_ns
    if opened is None:
        return ScanInput(site.worktree, site.settings, surroundings, None, lambda path: False, clock_ns)
    surroundings = replace(surroundings, tombstones=opened.journal.left_out.tombstones())
    return ScanInput(site.worktree, site.settings, surroundings, opened.cache, opened.was_covered, clock_ns)


class Capture:
    """The present state on its way into the store: taken, recorded, and remembered for the next scan."""

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
        """Make the objects readable, and give what is there as a recorded tree."""
        opened = self._opened
        opened.publisher.publish(self._pack)
        self._pack = opened.objects.start_pack()
        return open_recorded(opened.objects, self.tree, self.facts)

    @property
    def warnings(self) -> list[str]:
        """What a user should know of the settings and the rules."""
        warnings = [*self._site.warnings, *dict.fromkeys(self.scan.rule_files.warnings)]
        if not self.scan.files and self.scan.ignored:
            warnings.append("nothing is protected: the ignore rules exclude everything")
        return warnings

    def put_stream(self, size: int, pieces: Iterator[bytes]) -> bytes:
        """Store the content of a file that no rule covers, and give its id; `record` has to be told of it."""
        return self._pack.add_stream(size, pieces, self._opened.objects.has)

    @contextmanager
    def record(self, time_s: int, *, also: Sequence[bytes] = ()) -> Iterator[TreeRecord]:
        """Publish the pack and give the record of the tree in it, which may be the one that was last.

        What the body adds to the journal counts together with the record, when the body is over, or not at
        all. `also` are blobs beside the tree that must be kept as long as it is.
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
        try:
            if is_new:
                opened.publisher.merge()
                opened.tidy_a_little(last, has_idle_time=self._site.has_idle_time)
            settle(self.scan)
            opened.remember(self.scan)
            if self._site.watch is not None:
                self._site.watch.commit(self.scan, opened.cache)
        except ShadowError:
            # It is recorded, so this is no failure (invariant 11); the next scan looks at everything again.
            opened.cache.discard()

    def abandon(self) -> None:
        """Throw away what is not recorded."""
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
    """Take the present state, by a scan that was just made if there is one; the body records it.

    If the body raises, nothing is recorded.
    """
    is_first = opened.journal.last_tree() is None
    scan = scan_site(site, opened) if scan is None else scan
    if is_first:
        refuse_too_big(site, scan)
    if scan.changed:
        refuse_full(opened.layout.store, scan.pending_bytes, site.settings)
    pack = opened.objects.start_pack(part_size(scan.pending_bytes // _DEFLATED, opened.limits.packs))
    try:
        read_files(scan, site.worktree, opened.objects, pack, progress)
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


@contextmanager
def look(
    site: Site,
    opened: OpenStore,
    scan: Scan | None = None,
    scratch: Scratch | None = None,
    *,
    file_bytes: int = 0,
) -> Iterator[tuple[Objects, RecordedDirectory]]:
    """Take a snapshot in memory: nothing is stored, so it needs no lock and no room.

    Of the contents of files up to `file_bytes` are kept, unless a `scratch` says how many.
    """
    scratch = Scratch(file_bytes) if scratch is None else scratch
    objects = opened.open_objects(scratch)
    try:
        objects.refresh()
        if scan is None:
            opened.refresh()
            scan = scan_site(site, opened)
        read_files(scan, site.worktree, objects, scratch, None)
        tree, facts = build_trees(scan, objects, scratch)
        yield objects, open_recorded(objects, tree, facts)
    finally:
        objects.close()


def refuse_too_big(site: Site, scan: Scan) -> None:
    """Refuse a first snapshot that takes more files or bytes than the settings allow."""
    settings = site.settings
    if scan.files > settings.max_files:
        raise WorktreeTooBig(site.worktree, setting="max_files", found=scan.files, limit=settings.max_files)
    if scan.bytes > settings.max_bytes:
        raise WorktreeTooBig(site.worktree, setting="max_bytes", found=scan.bytes, limit=settings.max_bytes)


def without_reserve(site: Site) -> Site:
    """Return a site where something is recorded that may use the room that `min_free` keeps."""
    return replace(site, settings=replace(site.settings, min_free=0))


def refuse_full(directory: str, needed: int, settings: Settings) -> None:
    """Refuse to write so much that less than `min_free` would be left on a disk."""
    with disk.store_errors(directory):
        free = free_bytes(directory)
    if free - needed < settings.min_free:
        raise OutOfSpace(directory, free=free, needed=needed, min_free=settings.min_free)


def list_skipped(scan: Scan) -> list[Skipped]:
    """List what the rules would have covered, and why it is not."""
    return [Skipped(path, reason) for path, reason in scan.skipped()]
