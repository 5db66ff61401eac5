"""Check whether a store still holds what was recorded, and which messages are hurt if not. Changes nothing.

A check begins with what everything else depends on, and goes as far as it can:

    files ──▶ timeline ──▶ packs ──▶ trees and facts that the timeline names ──▶ cache ──▶ ref

What counts as proof is explained in docs/decisions/0020-check.md and 0029-seals-alone.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, suppress

from shadowtree.base.errors import (
    Locked,
    OutOfSpace,
    StoreDamaged,
    StoreFailed,
    UnsafePath,
)
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.paths import PathState
from shadowtree.capture import stat_cache
from shadowtree.check.objects import (
    ALTERED,
    PackFault,
    Reach,
    ends_with_checksum,
    find_pack_fault,
    list_entries,
    list_packs,
    open_pack,
)
from shadowtree.check.timeline import TimelineRows
from shadowtree.results.reports import CheckReport, HurtMessage, Problem
from shadowtree.store.directory import (
    HEAD_REF,
    ROOT_COMMIT,
    StoreLayout,
    find_faults,
    has_other_notes,
)
from shadowtree.store.files import StoreFile, find_lone_indexes, list_files
from shadowtree.store.git_format import EMPTY_TREE, PackBytes
from shadowtree.store.objects import Objects
from shadowtree.store.packs.pack_writer import has_same_bytes, list_unkept
from shadowtree.store.refs import read_refs
from shadowtree.store.walk import Walker

_KINDS = {"shadowtree.json": "identity", "config": "config", "HEAD": "head"}

Progress = Callable[[int, int], None]
"""Called with how many objects were read, and how many there are."""


@frozen
class Subject:
    """The store that is checked, which may be too damaged to be opened."""

    store: str
    worktree: str
    held: Callable[[], AbstractContextManager[None]]
    """Takes the lock without opening the store."""
    now_ns: int
    progress: Progress | None = None


def check_store(subject: Subject, *, read_data: bool) -> CheckReport:
    """Check a store, and once more under the lock if anything seems wrong.

    Another process may be in the middle of a write, so only what is still wrong under the lock counts.
    """
    report = check_once(subject, read_data=read_data)
    if report.ok and not report.harmless:
        return report
    try:
        with subject.held():
            return check_once(subject, read_data=read_data)
    except Locked as error:
        doubt = Problem("locked", "lock", f"this could not be verified again: {error}")
        return replace(report, harmless=[*report.harmless, doubt])
    except (StoreFailed, OutOfSpace, UnsafePath):
        return report


def check_once(subject: Subject, *, read_data: bool) -> CheckReport:
    """Check a store as it is now."""
    with closing(Check(subject)) as check:
        return check.run(read_data=read_data)


def find_hurt(subject: Subject) -> tuple[set[int], set[int], set[int]]:
    """Find the messages, events and trees, by number, that need lost objects."""
    with closing(Check(subject)) as check:
        check.run()
        trees = {number for number, lost in check.lost_of.items() if lost}
        events = {} if check.timeline is None else check.timeline.events
        messages = {events[number].message for number in check.hurt_events if number in events}
        return {message for message in messages if message is not None}, check.hurt_events, trees


class Check:
    """One check of a store. A repair works from what it found."""

    def __init__(self, subject: Subject) -> None:
        self.layout = StoreLayout(subject.store)
        self.worktree = subject.worktree
        self._progress = subject.progress
        self._now_s = subject.now_ns / 1e9
        self.problems: list[Problem] = []
        self.harmless: list[Problem] = []
        self.files: list[StoreFile] = []
        self.leftovers: list[str] = []
        """The temporary files of processes that died."""
        self.timeline: TimelineRows | None = None
        self.pack_faults: dict[str, PackFault] = {}
        """By pack name."""
        self.journaled: list[PackBytes] = []
        """The journaled packs whose rows are whole."""
        self.bad_rows: list[PackBytes] = []
        """The journaled packs whose rows are damaged, with their damaged bytes."""
        self.objects = Objects(self.layout.objects, journaled=lambda: reversed(self.journaled))
        self.reach = Reach(self.objects)
        self.lost_of: dict[int, set[bytes]] = {}
        """By the number of each live tree, the lost objects that it needs."""
        self.hurt_events: set[int] = set()
        """The events whose trees or changes need lost objects."""
        self._read_copies = 0
        self._damaged: set[bytes] = set()
        """Objects with a copy, among those that were read, that does not match its id."""

    def close(self) -> None:
        """Close every file."""
        self.objects.close()
        if self.timeline is not None:
            self.timeline.close()

    def run(self, *, read_data: bool = False) -> CheckReport:
        """Check everything; with `read_data`, read and hash every stored object too."""
        self._check_files()
        if any(file.is_closed for file in self.files):
            # Whatever cannot be read would seem to be missing.
            return CheckReport(self.problems, self.harmless)
        self._check_small_files()
        self._check_timeline()
        self._check_leftovers()
        if os.path.isdir(self.layout.packs):
            self.objects.refresh()
            for file in () if self.timeline is None else self.timeline.placing:
                with suppress(StoreDamaged, StoreFailed):  # It may have been renamed already.
                    self.objects.pack_set.hold_file(file)
            self._check_packs(read_data=read_data)
            if self.timeline is not None:
                self._check_reach(self.timeline)
            for why in stat_cache.find_faults(self.layout.cache, self._is_stored):
                self._add_harmless("cache", "cache.db", f"the cache cannot be used: {why}")
        try:
            self._check_refs()
        except StoreFailed as error:
            self._add("ref", HEAD_REF, str(error))
        if self.timeline is not None:
            for fault in self.timeline.faults:
                hurt = self.timeline.name_messages([fault.message])
                self._add("timeline", fault.what, f"the timeline is damaged: {fault.what} {fault.why}", hurt)
        return CheckReport(self.problems, self.harmless, self._read_copies, len(self.lost_of))

    def named(self, *kinds: str) -> list[str]:
        """Return the names of files or objects with problems of some kinds, harmless ones last."""
        return [each.what for each in [*self.problems, *self.harmless] if each.kind in kinds]

    # Files

    def _check_files(self) -> None:
        self.files = list(list_files(self.layout.store, passes_closed=True))
        for file in self.files:
            name, path = file.name or ".", os.path.join(self.layout.store, file.name)
            if file.is_of_others:
                self._add("permissions", name, f"user {file.owner} owns {name}")
            if not file.is_plain:
                self._add("permissions", name, f"{name} is neither a file nor a directory")
            elif not file.is_private:
                modes = f"mode {file.mode & 0o7777:o}, not {file.wanted_mode:o}"
                self._add("permissions", name, f"{name} has {modes}")
            if file.is_temporary:
                continue
            if not file.is_known:
                self._add_harmless("unknown", name, f"{name} does not belong to a store")
            elif file.is_derived and not file.is_closed and not ends_with_checksum(path):
                self._add_harmless("derived", name, f"{name} {ALTERED}; git does not need it")

    def _check_leftovers(self) -> None:
        """Find the files of processes that died; those that rows name are recorded, and are not leftovers."""
        placing = [] if self.timeline is None else self.timeline.placing
        recorded = {name for file in placing for name in (file.temporary, file.index)}
        for file in self.files:
            if file.is_left_behind(self._now_s) and os.path.basename(file.name) not in recorded:
                self.leftovers.append(file.name)
                said = f"{file.name} was left behind by a process that died"
                self._add_harmless("leftover", file.name, said)
        for file in find_lone_indexes(self.layout.store, self.files):
            self._add_harmless("leftover", file.name, f"{file.name} is an index without its pack")

    def _check_small_files(self) -> None:
        faults = dict(find_faults(self.layout.store, self.worktree))
        for name, why in faults.items():
            self._add(_KINDS.get(name, "directory"), name, f"{name} {why}")
        if "config" not in faults and has_other_notes(self.layout.store, self.worktree):
            why = "config does not record this directory and its parent"
            self._add_harmless("config", "config", f"{why}; 'gc --orphans' skips the store until a repair")

    # Timeline

    def _check_timeline(self) -> None:
        path = self.layout.timeline
        if not os.path.isfile(path):
            self._add("timeline", "timeline.db", "the timeline is missing")
            return
        try:
            self.timeline = TimelineRows(path)
            for content in self.timeline.packs():
                if content.is_whole():
                    self.journaled.append(content)
                else:
                    self.bad_rows.append(content)
                    self._add(
                        "journaled", content.name, f"the copy of {content.name} in the timeline is damaged"
                    )
        except StoreDamaged as error:  # Other errors say nothing about whether the store is sound.
            self._add("timeline", "timeline.db", error.what)
            return
        if self.timeline.intents:
            acts = (
                "operation is in progress, or was"
                if self.timeline.intents == 1
                else "operations are in progress, or were"
            )
            self._add_harmless("intent", "timeline.db", f"{self.timeline.intents} {acts} interrupted")

    # Packs

    def _check_packs(self, *, read_data: bool) -> None:
        packs = self.layout.packs
        names = list_packs(packs)
        whole = {content.name: content for content in self.journaled}
        total = sum(len(list_entries(packs, name)) for name in names) if read_data else 0
        for name in names:
            fault = find_pack_fault(packs, name, read_data=read_data)
            if fault is None and name in whole and not has_same_bytes(packs, whole[name]):
                fault = PackFault(None, "does not match its copy in the timeline")
            # If something is wrong with a pack, find out which objects are damaged.
            bad = self._read_pack(name, total) if fault is not None or read_data else 0
            if fault is None and bad:
                fault = PackFault(None, "is damaged")
            if fault is not None:
                self.pack_faults[name] = fault
                self._add_pack(name, fault, bad)
        for name in list_unkept(packs):
            self._add_harmless("keep", name, f"{name}.keep is missing, so git gc could remove the pack")
        if read_data:
            for id in self.objects.loose.ids():
                self._read_copies += 1
                if not self.objects.loose.is_whole(id):
                    self._damaged.add(id)
                    self._add("loose", id.hex(), f"the loose object {id.hex()} is damaged")

    def _read_pack(self, name: str, total: int) -> int:
        """Read every object that the index of a pack names; return how many are damaged."""
        pack, bad = open_pack(self.layout.packs, name), 0
        if pack is None:
            return 0
        with closing(pack):
            for id, offset, _ in pack.entries():
                if pack.hash_at(offset) != id:
                    self._damaged.add(id)
                    bad += 1
                self._read_copies += 1
                if self._progress is not None and total:
                    self._progress(self._read_copies, total)
        return bad

    def _add_pack(self, name: str, fault: PackFault, bad: int) -> None:
        if fault.index is not None:
            self._add("index", f"{name}.idx", f"{name}.idx {fault.index}")
        if fault.pack is not None:
            objects = "object in it is" if bad == 1 else "objects in it are"
            count = f"; {bad:,} {objects} damaged" if bad else ""
            self._add("pack", f"{name}.pack", f"{name}.pack {fault.pack}{count}")

    # Trees

    def _check_reach(self, timeline: TimelineRows) -> None:
        """Find the lost objects that live trees and changes need, and the events that this hurts."""
        self.reach = Reach(self.objects, self._damaged)
        events_of_tree: dict[int, set[int]] = {}
        for event in timeline.events.values():
            for number in (event.before, event.after):
                if number is not None:
                    events_of_tree.setdefault(number, set()).add(event.number)
        hurt: dict[bytes, set[int]] = {}
        self.lost_of = self.reach.find_lost(timeline.live_trees)
        for tree, lost in self.lost_of.items():
            for id in lost:
                hurt.setdefault(id, set()).update(events_of_tree.get(tree, ()))
        for number, change in timeline.changes():
            # A state that an act found as wanted already is on disk and need not be stored. Nor need states
            # that an act only noted, without moving any file.
            act = timeline.events.get(number)
            is_noted = act is not None and act.message is None and act.before == act.after
            if timeline.is_forgotten(number) or change.old == change.new or is_noted:
                continue
            for state in (change.old, change.new):
                if isinstance(state, PathState) and state.blob and self.reach.is_lost(state.blob):
                    hurt.setdefault(state.blob, set()).add(number)
        self.hurt_events = {event for events in hurt.values() for event in events}
        self._add_lost(timeline, hurt)

    def _add_lost(self, timeline: TimelineRows, hurt: dict[bytes, set[int]]) -> None:
        """Report lost objects, those that hurt the same messages together: a pack may have held thousands."""
        groups: dict[tuple[HurtMessage, ...], list[bytes]] = {}
        for id, events in hurt.items():
            known = [timeline.events[number] for number in sorted(events) if number in timeline.events]
            named = timeline.name_messages(event.message for event in known)
            groups.setdefault(tuple(named), []).append(id)
        for messages, ids in groups.items():
            why = self.reach.lost.get(ids[0], f"object {ids[0].hex()} is missing")
            objects = "object is" if len(ids) == 2 else "objects are"
            more = f", and {len(ids) - 1:,} more {objects} lost" if len(ids) > 1 else ""
            self._add("object", ids[0].hex(), why + more, messages)

    # Ref and cache

    def _check_refs(self) -> None:
        """Check that git can read the refs, what HEAD's names, and what those of the user lead to."""
        refs = read_refs(self.layout.store)
        found = refs.pop(HEAD_REF.encode(), None)
        if found is None:
            self._add("ref", HEAD_REF, f"{HEAD_REF} is missing, or does not name an object")
        elif not all(map(self.objects.is_listed, (found, EMPTY_TREE) if found == ROOT_COMMIT else (found,))):
            self._add("ref", HEAD_REF, f"{HEAD_REF} names {found.hex()}, which is missing, or its tree is")
        broken = [os.fsdecode(ref) for ref, id in refs.items() if id is None]
        for name in broken:
            self._add("ref", name, f"{name} is damaged, or has lines that git cannot read")
        try:
            if not broken:
                Walker(self.objects).walk_users_refs(self.layout.store)
        except StoreDamaged as error:
            self._add("object", "refs", f"your refs lead to a lost object: {error.what}")

    def _is_stored(self, id: bytes) -> bool:
        return id not in self.reach.lost and self.objects.is_listed(id)

    def _add(self, kind: str, what: str, message: str, messages: Iterable[HurtMessage] = ()) -> None:
        self.problems.append(Problem(kind, what, message, list(messages)))

    def _add_harmless(self, kind: str, what: str, message: str) -> None:
        self.harmless.append(Problem(kind, what, message))
