"""Whether a store holds what was put there, and which messages would be hurt if it does not. Changes nothing.

It begins with what everything else stands on and goes on as far as it can get:

    files ──▶ timeline ──▶ packs ──▶ trees, facts and keepers that the timeline names ──▶ cache

What it trusts is told in docs/decisions/0020-check.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable

from shadowtree import disk, statcache
from shadowtree.audit import Audit, RecordedTree
from shadowtree.chain import find_beyond, read_ref, tell_beyond
from shadowtree.copies import (
    PackFault,
    count_objects,
    find_bad_copies,
    find_derived_fault,
    find_pack_fault,
    list_packs,
)
from shadowtree.errors import OutOfSpace, ShadowError, StoreDamaged, StoreFailed
from shadowtree.events import ACTS, BEGIN, SNAPSHOT, Event, Position
from shadowtree.gitformat import PackBytes
from shadowtree.inventory import StoreFile, find_lone_indexes, list_files
from shadowtree.layout import KEEPER_REF, StoreLayout
from shadowtree.objects import Objects
from shadowtree.packwriter import is_written
from shadowtree.paths import to_text
from shadowtree.reach import Reach
from shadowtree.reports import CheckReport, HurtMessage, Problem
from shadowtree.state import PathState
from shadowtree.store import find_faults, has_other_notes
from shadowtree.tally import find_wrong_changes
from shadowtree.timeline import fold

_KINDS = {"shadowtree.json": "identity", "config": "config", "HEAD": "head"}
_PACKED_REF = re.compile(rb"#.*|[0-9a-f]{40} \S+|\^[0-9a-f]{40}")

Progress = Callable[[int, int], None]
"""Called with how many objects were read, and how many there are."""


class Check:
    """One look at a store. What it found can be asked for, by whoever wants to repair it."""

    def __init__(self, layout: StoreLayout, worktree: str, progress: Progress | None = None) -> None:
        self._layout = layout
        self._worktree = worktree
        self._progress = progress
        self.problems: list[Problem] = []
        self.harmless: list[Problem] = []
        self.files: list[StoreFile] = []
        self.small_faults: list[str] = []
        """The small files and directories that have to be made anew."""
        self.has_other_notes = False
        """What `config` notes of the worktree is not so, and nothing else is wrong with it."""
        self.audit: Audit | None = None
        self.pack_faults: dict[str, PackFault] = {}
        self.bad_copies: dict[str, list[bytes]] = {}
        """For each pack the objects in it that are not what their names say, of those that were read."""
        self.bad_loose: list[bytes] = []
        self.journaled: list[PackBytes] = []
        """The journaled packs whose rows are whole."""
        self.bad_rows: list[PackBytes] = []
        """The journaled packs whose rows are not, as they are."""
        self.is_cache_bad = False
        self.objects = Objects(layout.objects, journaled=lambda: reversed(self.journaled))
        self.reach = Reach(self.objects)
        self.lost_of: dict[int, frozenset[bytes]] = {}
        """For each recorded tree what it needs and is lost."""
        self.hurt_events: set[int] = set()
        """The events whose trees or changes need something that is lost."""
        self.beyond: list[int] = []
        """The times of trees that the ref leads to and the timeline does not hold, the newest first."""
        self._read_copies = 0

    def close(self) -> None:
        """Let go of every file."""
        self.objects.close()
        if self.audit is not None:
            self.audit.close()

    def run(self, *, read_data: bool = False) -> CheckReport:
        """Look at everything; with `read_data`, read every stored object too."""
        self._check_files()
        if any(file.is_closed for file in self.files):
            # Whatever stands behind it would seem to be missing.
            return CheckReport(self.problems, self.harmless)
        self._check_small_files()
        self._check_timeline()
        if os.path.isdir(self._layout.packs):
            self.objects.refresh()
            self._check_packs(read_data=read_data)
            self._check_reach()
            self._check_cache()
        self._check_ref()
        self._tell_of_faults()
        return CheckReport(self.problems, self.harmless, self._read_copies, len(self.lost_of))

    # Files

    def _check_files(self) -> None:
        self.files = list(list_files(self._layout.store, passes_closed=True))
        for file in self.files:
            self._check_file(file)
        for file in find_lone_indexes(self.files):
            self._tell("leftover", file.name, f"{file.name} is an index without its pack")

    def _check_small_files(self) -> None:
        for name, why in find_faults(self._layout.store, self._worktree):
            self.small_faults.append(name)
            self._add(_KINDS.get(name, "directory"), name, f"{name} {why}")
        if "config" not in self.small_faults and has_other_notes(self._layout.store, self._worktree):
            self.has_other_notes = True
            why = "config does not tell which directory this is, or which one is above it"
            self._tell("config", "config", f"{why}; 'gc --orphans' leaves the store alone until a repair")

    def _check_file(self, file: StoreFile) -> None:
        name = file.name or "."
        if file.is_of_others:
            self._add("permissions", name, f"user {file.owner} owns {name}")
        if not file.is_plain:
            self._add("permissions", name, f"{name} is neither a file nor a directory")
        elif not file.is_private:
            self._add(
                "permissions", name, f"{name} has mode {file.mode & 0o7777:o}, not {file.wanted_mode:o}"
            )
        if file.is_temporary:
            self._tell("leftover", name, f"{name} was left behind by a process that died")
        elif not file.is_known:
            self._tell("unknown", name, f"{name} does not belong to a store")
        elif file.is_derived and not file.is_closed:
            self._check_derived(name)

    def _check_derived(self, name: str) -> None:
        why = find_derived_fault(os.path.join(self._layout.store, name))
        if why is not None:
            self._tell("derived", name, f"{name} {why}; git can do without it")

    # Timeline

    def _check_timeline(self) -> None:
        path = self._layout.timeline
        if not os.path.exists(path):
            self._add("timeline", "timeline.db", "the timeline is missing")
            return
        try:
            self.audit = Audit(path)
            for content in self.audit.packs():
                self._check_journaled(content)
        except OutOfSpace:
            # That says nothing of the store.
            raise
        except ShadowError as error:
            self._add("timeline", "timeline.db", _say(error))
            return
        for session in self.audit.sessions:
            self._check_positions([e for e in self.audit.events.values() if e.session == session])
        intents = self.audit.count_intents()
        if intents:
            acts = "act is going on, or was" if intents == 1 else "acts are going on, or were"
            self._tell("intent", "timeline.db", f"{intents} {acts} interrupted")

    def _check_journaled(self, content: PackBytes) -> None:
        if content.is_whole():
            self.journaled.append(content)
        else:
            self.bad_rows.append(content)
            self._add("journaled", content.name, f"{content.name} is not whole in the timeline")

    def _check_positions(self, events: list[Event]) -> None:
        """Work out anew where the session stood after each event."""
        assert self.audit is not None
        position = Position()
        begun: set[int] = set()
        for event in events:
            row = None if event.message is None else self.audit.messages.get(event.message)
            # A message begins once more if the first snapshot of it failed.
            is_new = row is not None and row.number not in begun and event.kind in (BEGIN, SNAPSHOT)
            is_astray = is_new and row is not None and row.parent != position.head
            begun |= {row.number} if row is not None else set()
            if is_astray or fold(position, event) != event.position or not self._is_on_line(event):
                why = f"event {event.number} says that the session stood where it cannot have stood"
                self._add("timeline", f"events {event.number}", why, self._messages_of_events([event.number]))
            position = event.position

    def _is_on_line(self, event: Event) -> bool:
        """Tell whether the head of an act is on the way to its tip."""
        assert self.audit is not None
        if event.kind not in ACTS:
            return True
        number = event.position.tip
        while number is not None and number != event.position.head:
            row = self.audit.messages.get(number)
            # A parent is older, or it would be a circle.
            number = row.parent if row is not None and (row.parent or 0) < number else None
        return number == event.position.head

    # Packs

    def _check_packs(self, *, read_data: bool) -> None:
        names = list_packs(self._layout.packs)
        whole = {content.name: content for content in self.journaled}
        total = count_objects(self._layout.packs, names) if read_data else 0
        for name in names:
            fault = find_pack_fault(self._layout.packs, name, read_data=read_data)
            if fault is None and name in whole and not is_written(self._layout.packs, whole[name]):
                fault = PackFault(name, None, "is not what the timeline holds of it")
            if fault is not None:
                self.pack_faults[name] = fault
            # Where something is wrong with a pack, the next question is with which objects.
            if fault is not None or read_data:
                self._read_pack(name, total)
            if fault is not None or name in self.bad_copies:
                self._tell_of_pack(name, fault)
        if read_data:
            self._read_loose()

    def _read_pack(self, name: str, total: int) -> None:
        def tell() -> None:
            self._read_copies += 1
            if self._progress is not None and total:
                self._progress(self._read_copies, total)

        bad = list(find_bad_copies(self.objects, self._layout.packs, name, tell))
        if bad:
            self.bad_copies[name] = bad

    def _tell_of_pack(self, name: str, fault: PackFault | None) -> None:
        bad = len(self.bad_copies.get(name, ()))
        objects = "object in it is" if bad == 1 else "objects in it are"
        count = f"; {bad:,} {objects} damaged" if bad else ""
        if fault is not None and fault.index is not None:
            self._add("index", f"{name}.idx", f"{name}.idx {fault.index}")
        if fault is None or fault.pack is not None:
            why = "is damaged" if fault is None else fault.pack
            self._add("pack", f"{name}.pack", f"{name}.pack {why}{count}")

    def _read_loose(self) -> None:
        for id in self.objects.loose.ids():
            self._read_copies += 1
            if not self.objects.loose.is_whole(id):
                self.bad_loose.append(id)
                self._add("loose", id.hex(), f"the loose object {id.hex()} is damaged")

    # Trees

    def _check_reach(self) -> None:
        if self.audit is None:
            return
        damaged = {id for bad in self.bad_copies.values() for id in bad} | set(self.bad_loose)
        self.reach = Reach(self.objects, damaged)
        hurt: dict[bytes, set[int]] = {}
        for record in self._live_trees():
            lost = self.reach.lost_of_tree(record.tree) | self.reach.lost_of_tree(record.facts)
            self.lost_of[record.number] = lost
            for id in lost:
                hurt.setdefault(id, set()).update(self._events_of_tree.get(record.number, ()))
            for id in self.reach.lost_of_keeper(record.keeper, record.tree, record.facts):
                hurt.setdefault(id, set())
        self._check_chain(hurt)
        self._check_changes(hurt)
        self.hurt_events = {event for events in hurt.values() for event in events}
        self._tell_of_lost(hurt)

    def _tell_of_faults(self) -> None:
        if self.audit is None:
            return
        for fault in self.audit.faults:
            events = [] if fault.event is None else [fault.event]
            named = self._messages_of_events(events) if fault.message is None else self._name([fault.message])
            self._add("timeline", fault.what, f"the timeline is damaged: {fault.what} {fault.why}", named)

    def _live_trees(self) -> list[RecordedTree]:
        assert self.audit is not None
        self._events_of_tree: dict[int, set[int]] = {}
        for event in self.audit.events.values():
            for number in (event.before, event.after):
                if number is not None:
                    self._events_of_tree.setdefault(number, set()).add(event.number)
        return [tree for tree in self.audit.trees.values() if tree.is_live]

    def _check_chain(self, hurt: dict[bytes, set[int]]) -> None:
        """Go from the last keeper to the first, as git does; each live tree must be kept by one of them."""
        assert self.audit is not None
        live = [tree for tree in self.audit.trees.values() if tree.is_live]
        keeper: bytes | None = live[-1].keeper if live else None
        chain: set[bytes] = set()
        while keeper is not None and keeper not in chain:
            chain.add(keeper)
            read = self.reach.read_keeper(keeper)
            if read is None:
                hurt.setdefault(keeper, set())
                return
            keeper = read.parent
        unkept = [tree for tree in live if tree.keeper not in chain]
        if unkept:
            trees = "recorded tree is" if len(unkept) == 1 else "recorded trees are"
            why = f"{len(unkept):,} {trees} not kept from 'git gc', such as {unkept[0].tree.hex()}"
            self._add("keeper", unkept[0].keeper.hex(), why)

    def _check_changes(self, hurt: dict[bytes, set[int]]) -> None:
        assert self.audit is not None
        gone = self._forgotten_events()
        for number, path in find_wrong_changes(self.audit, self.objects, gone):
            why = f"event {number} says of {to_text(path)} what the trees do not say"
            self._add("timeline", f"changes {number}", why, self._messages_of_events([number]))
        for number, change in self.audit.changes():
            # What an act only found as it should be is as it is on the disk; it need not be stored.
            if number in gone or change.old == change.new:
                continue
            for state in (change.old, change.new):
                if isinstance(state, PathState) and state.blob and self.reach.is_lost(state.blob):
                    hurt.setdefault(state.blob, set()).add(number)

    def _forgotten_events(self) -> set[int]:
        assert self.audit is not None
        gone = self.audit.forgotten_messages
        of_messages = {event.number for event in self.audit.events.values() if event.message in gone}
        return self.audit.forgotten_events | of_messages

    def _tell_of_lost(self, hurt: dict[bytes, set[int]]) -> None:
        """Put together what hurts the same messages: a pack may have held thousands of objects."""
        groups: dict[tuple[HurtMessage, ...], list[bytes]] = {}
        for id, events in hurt.items():
            groups.setdefault(tuple(self._messages_of_events(events)), []).append(id)
        for messages, ids in groups.items():
            why = self.reach.lost.get(ids[0], f"object {ids[0].hex()} is missing")
            objects = "object is" if len(ids) == 2 else "objects are"
            more = f", and {len(ids) - 1:,} more {objects} lost" if len(ids) > 1 else ""
            self._add("object", ids[0].hex(), why + more, messages)

    def _messages_of_events(self, events: Iterable[int]) -> list[HurtMessage]:
        assert self.audit is not None
        known = [self.audit.events[number] for number in sorted(events) if number in self.audit.events]
        return self._name(event.message for event in known if event.message is not None)

    @property
    def hurt_messages(self) -> set[int]:
        """The numbers of the messages that need something that is lost."""
        events = {} if self.audit is None else self.audit.events
        found = (events[number].message for number in self.hurt_events if number in events)
        return {message for message in found if message is not None}

    @property
    def hurt_trees(self) -> set[int]:
        """The numbers of the recorded trees that need something that is lost."""
        return {number for number, lost in self.lost_of.items() if lost}

    def _name(self, messages: Iterable[int]) -> list[HurtMessage]:
        assert self.audit is not None
        rows = [self.audit.messages.get(number) for number in dict.fromkeys(messages)]
        live = [row for row in rows if row is not None and row.number not in self.audit.forgotten_messages]
        return [HurtMessage(self.audit.sessions.get(row.session, "?"), row.id) for row in live]

    # The rest

    def _check_ref(self) -> None:
        """Compare where git begins with what was recorded last."""
        try:
            self._compare_ref()
        except StoreFailed as error:
            self._add("ref", KEEPER_REF, _say(error))

    def _compare_ref(self) -> None:
        packed = disk.read_if_there(os.path.join(self._layout.store, "packed-refs")) or b""
        lines = packed.split(b"\n")
        if lines.pop() or not all(_PACKED_REF.fullmatch(line) for line in lines):
            self._add("ref", "packed-refs", "packed-refs holds lines that git cannot read")
        if self.audit is None:
            return
        last, found = self.audit.last_keeper, read_ref(self._layout)
        known = {tree.keeper: tree.time_s for tree in self.audit.trees.values()}
        self.beyond = find_beyond(self.objects, found, known, last)
        if last is not None and found != last.hex():
            why = (
                "is missing"
                if found is None
                else f"names {found!r}, not {last.hex()}, which was recorded last"
            )
            self._add("ref", KEEPER_REF, f"{KEEPER_REF} {why}")
        if self.beyond:
            self._add("ref", KEEPER_REF, f"{KEEPER_REF} leads to {tell_beyond(self.beyond)}")

    def _check_cache(self) -> None:
        for why in statcache.find_faults(self._layout.cache, lambda id: not self._is_lost(id)):
            self.is_cache_bad = True
            self._tell("cache", "cache.db", f"the cache is of no use: {why}")

    def _is_lost(self, id: bytes) -> bool:
        return id in self.reach.lost or not self.objects.is_listed(id)

    def _add(self, kind: str, what: str, message: str, messages: Iterable[HurtMessage] = ()) -> None:
        self.problems.append(Problem(kind, what, message, list(messages)))

    def _tell(self, kind: str, what: str, message: str) -> None:
        self.harmless.append(Problem(kind, what, message))


def _say(error: ShadowError) -> str:
    return error.what if isinstance(error, StoreDamaged) else str(error)
