"""Repacking: merges many packs into few, with older versions as deltas of newer ones.

    fresh packs, as records add them ──▶ parts: about eight packs, each of which is rewritten separately

A fresh pack holds mostly whole objects, with a note of the older version that each one replaced. A job
rewrites the part that has the older versions, together with the newer ones that wait for it:

    part   [a1] [b1] [c1]      fresh   [a2] [c2]
    new    [a2] [a1 of a2] [b1] [c2] [c1 of c2]

Entries that do not change are copied. Deltas name their bases by id, so an entry can be anywhere in its pack.
New entries are read back before the old pack is removed. A large part is rewritten only when enough waits for
it. While a part is rewritten, the store has its objects twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.limits import DEFAULT_LIMITS, PackLimits
from shadowtree.store.git_format import deflate, parse_entry_head
from shadowtree.store.objects import Objects
from shadowtree.store.packs.delta import LONGEST_CHAIN, make_delta
from shadowtree.store.packs.pack import HEAD_SIZE, Pack, Span
from shadowtree.store.packs.pack_writer import PackWriter, part_size

_TINY = 4
"""A part is tiny if it is smaller than the usual size divided by this; this many tiny parts become one."""
_OBJECT_WEIGHT = 500
"""Handling one object takes as long as copying this many bytes."""
_REMEMBERED = 64
"""How many objects are cached that were read."""
_LARGE_ENTRY = 4 << 20
"""An entry of more bytes than this is copied piece by piece."""


def weigh(pack: Pack) -> int:
    """Estimate how long it takes to rewrite a pack, as a number of bytes to copy."""
    return pack.size + _OBJECT_WEIGHT * pack.count


@frozen
class Job:
    """Parts to rewrite together, and objects to add to them."""

    parts: tuple[Pack, ...]
    incoming: tuple[bytes, ...]
    """The ids of objects of fresh packs, the newest first."""


class Repacker:
    """The packs of a store at one time: which objects wait for which part, and which job is worth doing.

    `fresh` maps the names of fresh packs, the oldest first, to pairs of an object and the version that it
    replaced. With `live`, all other objects are dropped, and packs that are not ours are moved into parts,
    except those that are `left_alone`. Without it, packs that are not ours stay as they are.
    """

    def __init__(
        self,
        objects: Objects,
        fresh: Mapping[str, Iterable[tuple[bytes, bytes]]],
        limits: PackLimits = DEFAULT_LIMITS.packs,
        live: set[bytes] | None = None,
        left_alone: Collection[Pack] = (),
    ) -> None:
        self._objects = objects
        self._limits = limits
        self._live = live
        packs = [pack for pack in objects.packs() if pack not in left_alone]
        foreign = [pack for pack in packs if not pack.is_ours]
        if live is None:
            packs, foreign = [pack for pack in packs if pack not in foreign], []
        self._fresh = [*foreign, *(pack for pack in packs if pack.name in fresh and pack not in foreign)]
        self._parts = [pack for pack in packs if pack not in self._fresh]
        self._before = dict(pair for pairs in fresh.values() for pair in pairs)
        self._part_of: dict[bytes, Pack] = {}
        """The part that already has an object of a fresh pack, or the version that one replaced."""
        asked = set(self._before.values()).union(*(pack.ids() for pack in self._fresh))
        self._impure: list[Pack] = []
        """The parts that hold objects that are not live."""
        for part in self._parts:
            ids = part.ids()
            self._part_of.update(dict.fromkeys(asked.intersection(ids), part))
            if live is not None and not live.issuperset(ids):
                self._impure.append(part)
        self._whole: dict[Pack, bool] = {}
        """Whether the checksum of each part is right."""
        self._part_before: dict[bytes, Pack | None] = {}
        """The part that has the nearest older version of an object."""
        self._part_size = part_size(sum(pack.size for pack in self._parts), limits)
        self._fresh_in: dict[bytes, Pack] = {}
        """The objects that wait, the newest first, and the fresh pack that each is in."""
        self._waiting = self._sort()
        """The objects that wait for each part; None stands for a new part."""

    @property
    def fresh_bytes(self) -> int:
        """How many bytes the fresh packs have."""
        return sum(pack.size for pack in self._fresh)

    def _sort(self) -> dict[Pack | None, list[bytes]]:
        roomy = min((part for part in self._parts if part.size < self._part_size), key=weigh, default=None)
        waiting: dict[Pack | None, list[bytes]] = {}
        for pack in reversed(self._fresh):
            for id in pack.ids():
                if id in self._fresh_in or id in self._part_of or not self._is_live(id):
                    continue
                self._fresh_in[id] = pack
                waiting.setdefault(self._find_part(id) or roomy, []).append(id)
        return waiting

    def _find_part(self, id: bytes) -> Pack | None:
        """Find the part that has the nearest older version of an object.

        The result is cached for every version in between: the root of a tree may have a new version in every
        message, and each search would pass all of them.
        """
        passed, before = [id], self._before.get(id)
        while before is not None and before not in self._part_before and before not in self._part_of:
            self._part_before[before] = None
            passed.append(before)
            before = self._before.get(before)
        part = None if before is None else self._part_of.get(before) or self._part_before.get(before)
        self._part_before.update(dict.fromkeys(passed, part))
        return part

    def _is_live(self, id: bytes) -> bool:
        return self._live is None or id in self._live

    # Choosing a job

    def choose(self, most: int | None = None) -> Job | None:
        """Choose the part for which most bytes wait, of those worth rewriting with a weight up to `most`."""
        sizes = {
            part: sum(self._fresh_in[id].stored_size(id) or 0 for id in ids)
            for part, ids in self._waiting.items()
        }
        for part in sorted(sizes, key=lambda part: -sizes[part]):
            weight = sizes[part] + (weigh(part) if part is not None else 0)
            is_worth = part is None or self._is_due(part)
            if is_worth and (most is None or weight <= most):
                return self._make_job(part)
        return None

    def _make_job(self, part: Pack | None) -> Job:
        """Make a job of the objects that wait for a part, or of the oldest of them if they are too many."""
        waiting = self._waiting.get(part, [])
        return Job(() if part is None else (part,), tuple(waiting[-self._limits.job_objects :]))

    def choose_stale(self, *, is_thorough: bool) -> Job | None:
        """Choose a part that holds garbage, or one for which objects wait, or tiny parts to be joined."""
        for part in self._impure:
            if self._is_stale(part, is_thorough=is_thorough):
                return self._make_job(part)
        for target, ids in self._waiting.items():
            sources = {self._fresh_in[id] for id in ids}
            has_to_go = any(not pack.is_ours or self._is_stale(pack, is_thorough=False) for pack in sources)
            if target is None or is_thorough or has_to_go or self._is_due(target):
                return self._make_job(target)
        tiny = [part for part in self._parts if _TINY * part.size < self._part_size]
        return Job(tuple(tiny), ()) if len(tiny) >= _TINY else None

    def _is_stale(self, part: Pack, *, is_thorough: bool) -> bool:
        """Return whether a part holds enough garbage, or with `is_thorough` any, to be rewritten."""
        garbage = [id for id in part.ids() if not self._is_live(id)]
        size = sum(part.stored_size(id) or 0 for id in garbage)
        return bool(garbage) and (is_thorough or size * self._limits.spared_part > part.size)

    def _is_due(self, part: Pack) -> bool:
        """Return whether enough bytes wait for a part.

        The objects of a fresh pack that still wait count as the whole pack: until they are moved too, the
        pack stays, and the store has its other objects twice.
        """
        left = Counter(self._fresh_in.values())
        held = (pack.size // left[pack] for pack in map(self._fresh_in.__getitem__, self._waiting[part]))
        return sum(held) * self._limits.worth_part >= weigh(part)

    def find_empty(self, written: Container[bytes] = ()) -> list[Pack]:
        """Find the fresh packs whose needed objects were all `written`, or are in parts.

        That an object is in a part is proved by reading the part now: its checksum, and the object unless
        this process has read the part back before.
        """
        return [
            pack
            for pack in self._fresh
            if all(id in written or self._is_in_part(id) for id in pack.ids() if self._is_live(id))
        ]

    def _is_in_part(self, id: bytes) -> bool:
        part = self._part_of.get(id)
        if part is None or id in self._fresh_in or not self._is_whole(part):
            return False
        return part.is_verified or part.is_sound(id)

    def _is_whole(self, part: Pack) -> bool:
        if part not in self._whole:
            self._whole[part] = part.is_whole()
        return self._whole[part]

    def require_whole(self, *, is_thorough: bool) -> int:
        """Raise StoreDamaged if a pack that would be rewritten is damaged; return how many bytes that takes.

        They are needed until the first old pack is removed.
        """
        stale = [part for part in self._impure if self._is_stale(part, is_thorough=is_thorough)]
        waited_for = [part for part in self._waiting if part is not None]
        for pack in {*stale, *waited_for, *self._fresh_in.values()}:
            if not pack.is_whole():
                raise StoreDamaged(f"{pack.path} does not match what was written")
        waiting = sum(pack.stored_size(id) or 0 for id, pack in self._fresh_in.items())
        return waiting + max((part.size for part in (*stale, *waited_for)), default=0)

    # Rewriting

    def write(self, job: Job) -> list[PackWriter]:
        """Write the packs that replace the parts of a job."""
        rewriting = _Rewriting(self._objects, self._before, self._live)
        for part in job.parts:
            rewriting.take_part(part)
        for id in job.incoming:
            rewriting.take_fresh(id, self._fresh_in[id])
        return rewriting.write(self._part_size)


class _Rewriting:
    """Moves objects from old packs into new ones, and decides which become deltas of which."""

    def __init__(self, objects: Objects, before: Mapping[bytes, bytes], live: set[bytes] | None) -> None:
        self._objects = objects
        self._live = live
        self._before = before
        self._taken: dict[bytes, tuple[Pack, Span]] = {}
        """The pack of each object, and its span there."""
        self._stood: dict[bytes, bytes | None] = {}
        """The base of each object of a part, as stored now; None if the object is whole."""
        self._bases: dict[bytes, bytes] = {}
        """The base of each object that becomes, or stays, a delta."""
        self._depths: dict[bytes, int] = {}
        self._heights: dict[bytes, int] = {}
        """The length of the longest stored chain of deltas that ends at an object."""
        self._contents: dict[bytes, tuple[bytes, bytes]] = {}

    def take_part(self, part: Pack) -> None:
        """Take the live objects of a part; raise StoreDamaged if its index is damaged."""
        part.require_sound_index()
        spans = part.spans()
        ids = {offset: id for id, (offset, _, _) in spans.items()}
        for id, span in spans.items():
            if self._live is None or id in self._live:
                base = part.read_head(span[0]).base
                self._taken[id] = part, span
                self._stood[id] = ids.get(base) if isinstance(base, int) else base

    def take_fresh(self, id: bytes, pack: Pack) -> None:
        """Take an object of a fresh pack; raise StoreDamaged if its index is damaged."""
        pack.require_sound_index()
        if id not in self._taken:
            self._taken[id] = pack, pack.span_of(id)

    def write(self, size: int) -> list[PackWriter]:
        """Write all objects into packs of about `size` bytes, each delta in the same pack as its base."""
        self._link()
        families: dict[bytes, list[bytes]] = {}
        for id in self._taken:
            families.setdefault(self._root_of(id), []).append(id)
        writers = [self._objects.start_pack()]
        try:
            for family in families.values():
                if writers[-1].size >= size:
                    writers.append(self._objects.start_pack())
                for id in family:
                    self._put(id, writers[-1])
        except BaseException:
            for writer in writers:
                writer.abandon()
            raise
        return [writer for writer in writers if writer.ids]

    def _link(self) -> None:
        """Decide which objects are deltas of which."""
        for id, base in self._stood.items():
            if base in self._taken and base is not None:
                self._bases[id] = base
        for id in self._bases:
            steps, at = 0, id
            while at in self._bases and steps <= len(self._bases):
                at, steps = self._bases[at], steps + 1
            self._heights[at] = max(self._heights.get(at, 0), steps)
        newer = {old: new for new, old in self._before.items() if new in self._taken}
        for id in newer:
            chain: dict[bytes, bytes] = {}
            while id in newer and id in self._taken and id not in self._bases and id not in chain:
                chain[id] = id = newer[id]
            for older, base in reversed(chain.items()):
                self._link_one(older, base)

    def _link_one(self, id: bytes, base: bytes) -> None:
        if id in self._bases or self._root_of(base) == id:
            return
        depth = self._depth_of(base) + 1
        if depth + self._heights.get(id, 0) <= LONGEST_CHAIN:
            self._bases[id], self._depths[id] = base, depth

    def _depth_of(self, id: bytes) -> int:
        """Return the length of the chain of deltas from an object, as far as it is linked."""
        depth = 0
        while id in self._bases and id not in self._depths:
            id, depth = self._bases[id], depth + 1
        return depth + self._depths.get(id, 0)

    def _root_of(self, id: bytes) -> bytes:
        """Return the object at the end of a chain of deltas, or any of a ring, if damage made it one."""
        passed = set()
        while id in self._bases and id not in passed:
            passed.add(id)
            id = self._bases[id]
        return id

    def _put(self, id: bytes, into: PackWriter) -> None:
        base = self._bases.get(id)
        if base is None or base == self._stood.get(id):
            self._copy(id, into, base)
        elif not self._put_delta(id, base, into):
            self._copy(id, into, None)

    def _put_delta(self, id: bytes, base: bytes, into: PackWriter) -> bool:
        (_, (_, size, _)), (_, (_, base_size, _)) = self._taken[id], self._taken[base]
        if max(size, base_size) > _LARGE_ENTRY:
            return False
        (kind, content), (base_kind, base_content) = self._read(id), self._read(base)
        delta = make_delta(kind, base_content, content, size) if kind == base_kind else None
        if delta is not None:
            into.add_delta(id, base, *delta)
        return delta is not None

    def _read(self, id: bytes) -> tuple[bytes, bytes]:
        """Read an object and cache it, because it is often the base of the next one."""
        if id not in self._contents:
            if len(self._contents) >= _REMEMBERED:
                self._contents.clear()
            self._contents[id] = self._objects.read_any(id)
        return self._contents[id]

    def _copy(self, id: bytes, into: PackWriter, base: bytes | None) -> None:
        """Copy an entry if it has this base already; otherwise write the object whole."""
        pack, span = self._taken[id]
        offset, size, crc = span
        try:
            if size > _LARGE_ENTRY:
                if pack.read_head(offset).base == base:
                    into.copy(id, pack.stream_span(span), crc)
                    return
            else:
                raw = pack.read_span(span)
                if parse_entry_head(raw[:HEAD_SIZE], offset, pack.path).base == base:
                    into.copy_whole(id, raw, crc)
                    return
        except (StoreDamaged, StoreFailed):
            # There may be an intact copy.
            pass
        kind, content = self._objects.read_any(id)
        into.add(kind, id, len(content), deflate(content))


def verify(packs: Iterable[Pack], writers: Sequence[PackWriter]) -> None:
    """Read back packs that were just written; raise StoreDamaged if they are not correct.

    The checksum of a large pack was made from its file, so it is the CRCs that prove that all bytes are as
    they were in memory. New entries are hashed as well; copied entries did not change, and name their bases
    by id.
    """
    made = {id for writer in writers for id in writer.ids - writer.copied}
    for pack in packs:
        if not pack.is_whole() or not all(map(pack.is_sound, made.intersection(pack.ids()))):
            raise StoreDamaged(f"{pack.path} was not written correctly")
        pack.require_sound_entries()
        pack.is_verified = True
