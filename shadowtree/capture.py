"""Take the present state of a worktree: into the store with a record, or into a scratch for a look.

capture      scan ──▶ seed ──▶ read_files ──▶ build_trees ──▶ record (the caller adds rows) ──▶ remember
read_ahead   scan ───────────▶ read_files ──▶ build_trees ──▶ kept, so that the next capture begins at record
look         scan ───────────▶ read_files ──▶ build_trees ──▶ a recorded tree that is nowhere stored
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from shadowtree import disk
from shadowtree.census import Outlook
from shadowtree.errors import OutOfSpace, WorktreeTooBig
from shadowtree.events import TreeRecord
from shadowtree.frozen import frozen
from shadowtree.model import Skipped
from shadowtree.objects import Objects
from shadowtree.opened import OpenStore
from shadowtree.packwriter import PackFull, PackWriter
from shadowtree.paths import RelPath
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.rulefiles import Surroundings
from shadowtree.scan import Scan, scan_worktree
from shadowtree.settings import Settings
from shadowtree.shelving import shelf_size
from shadowtree.sink import Scratch
from shadowtree.snapshot import Progress, build_trees, read_files, settle
from shadowtree.system import free_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.watch import Watch

_DEFLATED = 3
"""About how much smaller texts become when they are stored."""
_MOST_AHEAD = 200
_LARGEST_AHEAD = 1 << 20
"""How many paths and how many bytes are read ahead: whoever wants to record meanwhile has to wait."""


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


def scan_site(site: Site, opened: OpenStore, only: Collection[RelPath] | None = None) -> Scan:
    """Look at the worktree; with `only`, at these directories alone, the others being as they are cached.

    Who watches the worktree knows by itself where to look.
    """
    surroundings = opened.surround(site.surroundings)
    if site.watch is not None:
        return site.watch.scan(site.settings, surroundings, opened.cache, opened.was_covered)
    return scan_worktree(
        site.worktree,
        site.settings,
        surroundings,
        opened.cache,
        opened.was_covered,
        indexes=opened.cache.info("indexes"),
        outlook=None if only is None else Outlook(directories=only),
    )


def scan_unwrapped(site: Site) -> Scan:
    """Look at a worktree that has no store yet."""
    if site.watch is not None:
        return site.watch.scan(site.settings, site.surroundings, None, _was_never_covered)
    return scan_worktree(site.worktree, site.settings, site.surroundings, None, _was_never_covered)


def _was_never_covered(path: RelPath) -> bool:
    del path
    return False


class Capture:
    """The present state on its way into the store: taken, recorded, and remembered for the next scan."""

    def __init__(
        self, site: Site, opened: OpenStore, scan: Scan, pack: PackWriter, tree: bytes, facts: bytes
    ) -> None:
        self._watch = site.watch
        self._warnings = site.warnings
        self._has_idle_time = site.has_idle_time
        self._opened = opened
        self._pack = pack
        self.scan = scan
        self.tree = tree
        self.facts = facts

    def publish(self, time_s: int) -> RecordedDirectory:
        """Make the objects readable, and give what is there as a recorded tree.

        The commit that keeps them goes along, so that `record` with the same time needs no pack of its own.
        """
        if self._pack.ids():
            self._opened.add_keeper(
                self._pack, self.tree, self.facts, time_s=time_s, after=self._opened.last_keeper()
            )
            self._opened.publish(self._pack)
            self._pack = self._opened.objects.start_pack()
        return open_recorded(self._opened.objects, self.tree, self.facts)

    @property
    def skipped(self) -> list[Skipped]:
        """What was left out."""
        return list_skipped(self.scan)

    @property
    def warnings(self) -> list[str]:
        """What a user should know of the settings and the rules."""
        return [*self._warnings, *list_warnings(self.scan)]

    def put_stream(self, size: int, pieces: Iterator[bytes]) -> bytes:
        """Store the content of a file that no rule covers, and give its id; `record` has to be told of it."""
        return self._pack.add_stream(size, pieces, self._opened.objects.has)

    @contextmanager
    def record(self, time_s: int, *, also: Sequence[bytes] = ()) -> Iterator[TreeRecord]:
        """Record the tree. What the body adds to the journal counts together with it, or not at all."""
        with self._opened.recording(
            self._pack, self.tree, self.facts, files=self.scan.files, time_s=time_s, also=also
        ) as record:
            yield record
        self._opened.tidy(has_idle_time=self._has_idle_time)
        settle(self.scan)
        self._opened.remember(self.scan)
        if self._watch is not None:
            self._watch.commit(self.scan, self._opened.cache)

    def abandon(self) -> None:
        """Throw away what is not recorded."""
        self._pack.abandon()
        self._opened.abandon()


@contextmanager
def capture(
    site: Site,
    opened: OpenStore,
    *,
    first_scan: Scan | None = None,
    only: Collection[RelPath] | None = None,
    progress: Progress | None = None,
) -> Iterator[Capture]:
    """Take the present state; the body records it. With `only`, just these directories are looked at.

    If the body raises, nothing is recorded.
    """
    taken = _take_ahead(site, opened) or _take(site, opened, first_scan, only, progress)
    try:
        yield taken
    except BaseException:
        taken.abandon()
        raise


def _take(
    site: Site,
    opened: OpenStore,
    first_scan: Scan | None,
    only: Collection[RelPath] | None,
    progress: Progress | None,
) -> Capture:
    is_first = opened.journal.last_tree() is None
    scan = first_scan if first_scan is not None and is_first else scan_site(site, opened, only)
    if is_first:
        refuse_too_big(site, scan)
    if any(scan.changed):
        refuse_full(opened.layout.store, scan.pending_bytes, site.settings)
    pack = opened.objects.start_pack(shelf_size(scan.pending_bytes // _DEFLATED))
    try:
        if is_first:
            _seed(site, scan, pack)
        read_files(scan, site.worktree, opened.objects, pack, progress)
        tree, facts = build_trees(scan, opened.objects, pack)
    except BaseException:
        pack.abandon()
        raise
    return Capture(site, opened, scan, pack, tree, facts)


# Ahead


def read_ahead(site: Site, opened: OpenStore) -> bool:
    """Take what changed for the next capture to find, if it is little and rests; tell whether it is ready.

    Nothing is written, so it needs no lock: who holds that next makes sure that nobody else held it since.
    """
    watch, cache = site.watch, opened.cache
    # Loose objects may be removed by real git at any time, and it needs no lock for that.
    if watch is None or opened.objects.loose.is_there or not watch.is_little_told(cache, _MOST_AHEAD):
        return False
    from shadowtree.ahead import Ahead, is_fit

    surroundings = opened.surround(site.surroundings)
    scan = watch.scan(site.settings, surroundings, cache, opened.was_covered)
    if not watch.is_quiet or not is_fit(scan) or scan.pending_bytes > _LARGEST_AHEAD:
        return False
    pack = opened.objects.start_pack()
    pack.confine(is_confined=True)
    try:
        read_files(scan, site.worktree, opened.objects, pack, None)
        tree, facts = build_trees(scan, opened.objects, pack)
    except PackFull:
        return False
    ahead = Ahead(scan, pack, tree, facts, site.settings, surroundings, cache)
    return is_fit(scan) and watch.keep_ahead(ahead)


def _take_ahead(site: Site, opened: OpenStore) -> Capture | None:
    """Give what was read ahead, if it is still what is there."""
    watch = site.watch
    if watch is None or not watch.has_ahead:
        return None
    surroundings = opened.surround(site.surroundings)
    ahead = watch.take_ahead(site.settings, surroundings, opened.cache, opened.was_covered)
    if ahead is None:
        return None
    if any(ahead.scan.changed):
        refuse_full(opened.layout.store, ahead.scan.pending_bytes, site.settings)
    ahead.pack.confine(is_confined=False)
    return Capture(site, opened, ahead.scan, ahead.pack, ahead.tree, ahead.facts)


@contextmanager
def look(
    site: Site, opened: OpenStore, scan: Scan | None = None, *, file_bytes: int = 0
) -> Iterator[tuple[Objects, RecordedDirectory]]:
    """Take a snapshot in memory: nothing is stored, so it needs no lock and no room.

    Of the contents of files up to `file_bytes` are kept.
    """
    scratch = Scratch(file_bytes)
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


def refuse_full(directory: str, needed: int, settings: Settings) -> None:
    """Refuse to write so much that less than `min_free` would be left on a disk."""
    with disk.store_errors(directory):
        free = free_bytes(directory)
    if free - needed < settings.min_free:
        raise OutOfSpace(directory, free=free, needed=needed, min_free=settings.min_free)


def list_skipped(scan: Scan) -> list[Skipped]:
    """List what the rules would have covered, and why it is not."""
    return [Skipped(path, reason) for path, reason in scan.skipped()]


def list_warnings(scan: Scan) -> list[str]:
    """List what a user should know of the rules."""
    warnings = list(dict.fromkeys(scan.rule_files.warnings))
    if not scan.files and scan.ignored:
        warnings.append("nothing is covered: the rules leave out everything")
    return warnings


def _seed(site: Site, scan: Scan, pack: PackWriter) -> None:
    from shadowtree.seed import seed

    around = site.surroundings
    seed(scan, site.worktree, pack, home=around.home, config_home=around.config_home)
