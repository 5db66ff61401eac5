"""Repacking: few packs instead of many, and older versions as deltas of newer ones. Nobody waits for it.

    fresh packs, as records add them ──▶ parts: about eight packs, each of which is rewritten by itself

A fresh pack holds whole objects, and it is noted which one each came in place of. A job rewrites the part
that has the older versions, together with the newer ones that wait for it:

    part   [a1] [b1] [c1]      fresh   [a2] [c2]
    new    [a2] [a1 of a2] [b1] [c2] [c1 of c2]

What does not change is copied as it stands. Deltas name their bases by id, so that an entry can stand
anywhere in its pack. What was made anew is read back before the old pack goes. A large part is rewritten only
when enough waits for it. While one is rewritten, that part of the store is there twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from itertools import pairwise
from time import monotonic

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.base.frozen import frozen
from shadowtree.base.limits import DEFAULT_LIMITS, PackLimits
from shadowtree.store.git_format import deflate, parse_entry_head
from shadowtree.store.objects import Objects
from shadowtree.store.pack_writer import PackWriter, part_size
from shadowtree.store.packs import HEAD_SIZE, Pack, Span

_TINY = 4
"""A part with less than one part in so many of the usual bytes is tiny; so many of them become one."""
_OBJECT_WEIGHT = 500
"""To look at one more object takes as long as to copy so many bytes."""
_LONGEST_CHAIN = 50
"""How many deltas one after the other are read at most for one object."""
_REMEMBERED = 64
"""How many objects are kept in memory that were read."""
_LARGE_ENTRY = 4 << 20
"""An entry of more bytes than this is copied piece by piece."""

_LARGEST_DELTA = 256 << 10
"""An object above this many bytes is never a delta, nor the base of one."""
_MOST_SECONDS = 0.05
"""How long one delta may take..."""
_WORK_A_SECOND = 10 << 30
"""...if dulwich looks at so many bytes times bytes that differ in a second."""
_SHORTEST_DELTA = 4
"""Real git takes a shorter delta for damage: what is empty is made of nothing."""
_WORTH = 0.8
"""A delta has to be smaller than this part of what it stands for."""
_TREE_ENTRY = re.compile(rb"[0-7]+ [^\0]+\0.{20}", re.DOTALL)


Delta = tuple[bytes, int, bytes]
"""Of an object: what it is made of, and by how many bytes, which are deflated."""


def weigh(pack: Pack) -> int:
    """Return how long it takes to rewrite a pack, as bytes to copy."""
    return pack.size + _OBJECT_WEIGHT * pack.count


@frozen
class Job:
    """Parts to rewrite as one, and what to put into them."""

    parts: tuple[Pack, ...]
    incoming: tuple[bytes, ...]
    """Objects of fresh packs, the newest first."""


class Repacker:
    """One look at the packs of a store: what waits for which part, and which job is worth it.

    `fresh` gives by the names of fresh packs, the oldest first, which object came in place of which. With
    `live`, all else goes, and packs that are not ours are taken apart but for those that are `left_alone`;
    without it, these stay as they are.
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
        """Which part has an object of fresh packs, or a version before one."""
        asked = set(self._before.values()).union(*(pack.ids() for pack in self._fresh))
        self._impure: list[Pack] = []
        """The parts that hold something that is not live."""
        for part in self._parts:
            ids = part.ids()
            self._part_of.update(dict.fromkeys(asked.intersection(ids), part))
            if live is not None and not live.issuperset(ids):
                self._impure.append(part)
        self._whole: dict[Pack, bool] = {}
        """By part, whether its checksum is right."""
        self._part_before: dict[bytes, Pack | None] = {}
        """Which part has the nearest version before an object."""
        self._part_size = part_size(sum(pack.size for pack in self._parts), limits)
        self._fresh_in: dict[bytes, Pack] = {}
        """What waits, the newest first, and which fresh pack each is in."""
        self._waiting = self._sort()
        """What waits for which part, None being a new one."""

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
        """Find the part that has the nearest version before an object.

        The answer holds for every version in between. It is kept for them: the root of a tree may have had a
        new version in every message, and they would be passed once for each.
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

    # What to do

    def choose(self, most: int | None = None) -> Job | None:
        """Choose the part for which most waits, if rewriting it is worth it, and weighs at most so much."""
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
        """Take what waits for a part, the oldest of it if that is too much at once."""
        waiting = self._waiting.get(part, [])
        return Job(() if part is None else (part,), tuple(waiting[-self._limits.job_objects :]))

    def choose_stale(self, *, is_thorough: bool) -> Job | None:
        """Choose a part that holds what is not live, or what waits; or tiny parts to be joined."""
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
        """Return whether a part holds what is not live, and more than a little of it."""
        garbage = [id for id in part.ids() if not self._is_live(id)]
        size = sum(part.stored_size(id) or 0 for id in garbage)
        return bool(garbage) and (is_thorough or size * self._limits.spared_part > part.size)

    def _is_due(self, part: Pack) -> bool:
        """Return whether enough waits for a part.

        What is left of a fresh pack counts as all of it: until that is gone too, the rest is there twice.
        """
        left = Counter(self._fresh_in.values())
        held = (pack.size // left[pack] for pack in map(self._fresh_in.__getitem__, self._waiting[part]))
        return sum(held) * self._limits.worth_part >= weigh(part)

    def find_empty(self, written: Container[bytes] = ()) -> list[Pack]:
        """Find the fresh packs of which all that is needed was `written`, or is in parts.

        The latter is proved by reading the part now: its checksum, and the object unless this process has
        read the part back before.
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
        """Raise StoreDamaged unless all is whole that would be rewritten; return how many bytes that takes.

        Those are needed for a while, before the first pack goes.
        """
        stale = [part for part in self._impure if self._is_stale(part, is_thorough=is_thorough)]
        waited_for = [part for part in self._waiting if part is not None]
        for pack in {*stale, *waited_for, *self._fresh_in.values()}:
            if not pack.is_whole():
                raise StoreDamaged(f"{pack.path} does not match what was written")
        waiting = sum(pack.stored_size(id) or 0 for id, pack in self._fresh_in.items())
        return waiting + max((part.size for part in (*stale, *waited_for)), default=0)

    # How it is done

    def write(self, job: Job) -> list[PackWriter]:
        """Write the packs that take the place of the parts of a job."""
        rewriting = _Rewriting(self._objects, self._before, self._live)
        for part in job.parts:
            rewriting.take_part(part)
        for id in job.incoming:
            rewriting.take_fresh(id, self._fresh_in[id])
        return rewriting.write(self._part_size)


def make_deltas(
    objects: Objects, packs: Iterable[Pack], versions: Mapping[bytes, bytes], seconds: float
) -> dict[bytes, Delta]:
    """Make deltas of newer versions for older ones, all of them in these packs, as far as there is time.

    The largest come first: the same time saves more there.
    """
    deadline, made = monotonic() + seconds, dict[bytes, Delta]()
    pack_of = {id: pack for pack in packs for id in pack.ids()}
    pairs = [(old, new) for new, old in versions.items() if old in pack_of and new in pack_of]
    sizes = {old: pack_of[old].stored_size(old) or 0 for old, _ in pairs}
    for old, new in sorted(pairs, key=lambda pair: sizes[pair[0]], reverse=True):
        if (left := deadline - monotonic()) <= 0:
            break
        if old not in made and not _is_made_of(new, old, made):
            (kind, content), (base_kind, base) = objects.read_any(old), objects.read_any(new)
            delta = make_delta(kind, base, content, sizes[old], left) if kind == base_kind else None
            if delta is not None:
                made[old] = (new, *delta)
    return made


def _is_made_of(id: bytes, other: bytes, made: Mapping[bytes, Delta]) -> bool:
    """Return whether one object would be a delta of another, or of too many one after the other."""
    steps = 0
    while id != other and id in made and steps < _LONGEST_CHAIN:
        id, steps = made[id][0], steps + 1
    return id == other or steps == _LONGEST_CHAIN


class _Rewriting:
    """Objects on their way from old packs into new ones, and which is a delta of which there."""

    def __init__(self, objects: Objects, before: Mapping[bytes, bytes], live: set[bytes] | None) -> None:
        self._objects = objects
        self._live = live
        self._before = before
        self._taken: dict[bytes, tuple[Pack, Span]] = {}
        """By the objects their packs, and where they are in them."""
        self._stood: dict[bytes, bytes | None] = {}
        """By the objects of parts their bases where they stand; None: they are whole."""
        self._bases: dict[bytes, bytes] = {}
        """What becomes, or stays, a delta of what."""
        self._depths: dict[bytes, int] = {}
        self._heights: dict[bytes, int] = {}
        """How many deltas one after the other are made of an object where it stands."""
        self._contents: dict[bytes, tuple[bytes, bytes]] = {}

    def take_part(self, part: Pack) -> None:
        """Take what a part has, but for what is not live."""
        spans = part.spans()
        ids = {offset: id for id, (offset, _, _) in spans.items()}
        for id, span in spans.items():
            if self._live is None or id in self._live:
                base = part.read_head(span[0]).base
                self._taken[id] = part, span
                self._stood[id] = ids.get(base) if isinstance(base, int) else base

    def take_fresh(self, id: bytes, pack: Pack) -> None:
        """Take an object of a fresh pack."""
        if id not in self._taken:
            self._taken[id] = pack, pack.span_of(id)

    def write(self, size: int) -> list[PackWriter]:
        """Write it all, what is made of each other together, into packs of about so many bytes."""
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
        """Decide what is a delta of what."""
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
        if depth + self._heights.get(id, 0) <= _LONGEST_CHAIN:
            self._bases[id], self._depths[id] = base, depth

    def _depth_of(self, id: bytes) -> int:
        """Return how many deltas are read for an object, as far as it is linked."""
        depth = 0
        while id in self._bases and id not in self._depths:
            id, depth = self._bases[id], depth + 1
        return depth + self._depths.get(id, 0)

    def _root_of(self, id: bytes) -> bytes:
        """Return what an object is made of in the end; a damaged pack may have a ring, which is as good."""
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
        """Read an object; of one that was read a moment ago, another is mostly made next."""
        if id not in self._contents:
            if len(self._contents) >= _REMEMBERED:
                self._contents.clear()
            self._contents[id] = self._objects.read_any(id)
        return self._contents[id]

    def _copy(self, id: bytes, into: PackWriter, base: bytes | None) -> None:
        """Copy an entry as it stands if it stands as it should, with this base; else write it whole."""
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
            # There may be another copy.
            pass
        kind, content = self._objects.read_any(id)
        into.add(kind, id, len(content), deflate(content))


def load_dulwich() -> None:
    """Load what deltas are made and read with: a host that stays waits for it once, at its start."""
    import shadowtree.store.dulwich_packs  # noqa: F401  # it is loaded, not used


def verify(packs: Iterable[Pack], writers: Sequence[PackWriter]) -> None:
    """Read packs back that were just written; StoreDamaged if they are not what they should be.

    Checksums tell that all bytes are what was written. What was made anew is hashed as well; what was copied
    stands as it stood, and what it is made of is told by its id.
    """
    made = {id for writer in writers for id in writer.ids - writer.copied}
    for pack in packs:
        if not pack.is_whole() or not all(map(pack.is_sound, made.intersection(pack.ids()))):
            raise StoreDamaged(f"{pack.path} was not written correctly")
        pack.is_verified = True


def make_delta(
    kind: bytes, base: bytes, wanted: bytes, deflated_size: int, seconds: float = _MOST_SECONDS
) -> tuple[int, bytes] | None:
    """Make a delta by which `wanted` comes of `base`; return its size, and what it is deflated.

    dulwich makes it, in time that grows with the sizes times what differs: so it is asked only where the two
    are much alike. None if they are not, if it would take longer than `seconds`, or if that is no smaller
    than `wanted` deflated by itself.
    """
    from dulwich.pack import create_delta

    if not _are_alike(kind, base, wanted, seconds):
        return None
    delta = b"".join(create_delta(base, wanted))
    deflated = deflate(delta)
    if len(delta) < _SHORTEST_DELTA or len(deflated) >= _WORTH * deflated_size:
        return None
    return len(delta), deflated


def _are_alike(kind: bytes, one: bytes, other: bytes, seconds: float) -> bool:
    """Return whether the other version has at least half of the pieces, and a delta takes no longer.

    a b c d      a b x d       three of four: alike
    """
    if not one or not other or max(len(one), len(other)) > _LARGEST_DELTA:
        return False
    known = set(_split(kind, one))
    shared = sum(len(piece) for before, piece in _split(kind, other) if (before, piece) in known)
    differing = len(one) + len(other) - 2 * min(shared, len(one))
    return 2 * shared >= len(other) and differing * (len(one) + len(other)) <= seconds * _WORK_A_SECOND


def _split(kind: bytes, content: bytes) -> Iterable[tuple[bytes, bytes]]:
    """Split a tree into its entries; a text into lines, each with the one before it.

    The same lines in another order are not alike: dulwich takes long for them and gains nothing.
    """
    if kind == b"tree":
        return ((b"", entry) for entry in _TREE_ENTRY.findall(content))
    return pairwise([b"", *content.splitlines(keepends=True)])
