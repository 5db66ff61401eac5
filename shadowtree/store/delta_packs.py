"""A shelf: a pack in which each object stands before its older versions, each a delta of the one before it.

    [v5][v4 of v5][v3 of v4]  [w1]  [x2][x1 of x2]
     a family                  one   one

New versions go to the head of their family, whose old head becomes a delta. What stands behind that is copied
as it stands, and so are families in which nothing changes, many at once: writing a shelf anew costs little
more than its bytes. A family that would become too long is left as it is, and new versions begin another one.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cached_property

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.limits import DEFAULT_LIMITS
from shadowtree.store.deltas import BadDelta, apply_delta, make_delta
from shadowtree.store.git_format import KIND_NAMES, KIND_NUMBERS, PackEntry, deflate, object_id
from shadowtree.store.objects import Objects
from shadowtree.store.pack_writer import PackWriter
from shadowtree.store.packs import Pack, RawEntry

LONGEST_FAMILY = 50
"""How many objects are made of one another at most: to read the last one, all of them are read."""
_LARGEST_DELTIFIED = 1 << 20
"""An object above this many bytes is never a delta, nor the base of one."""
_SMALLEST_DELTA = 4
"""Real git takes a shorter one for damage: what is empty is made of nothing."""
_LARGEST_HELD = 4 << 20
"""What is stored in more bytes than this is never held in memory."""
_WORTH = 0.8
"""A delta has to be smaller than this part of what it stands for."""
_RUN = 256 << 10
"""About how many bytes are copied at once."""

FindPack = Callable[[bytes], Pack | None]
"""Tells which pack an object is in, if it is known."""
Family = Sequence[bytes]
"""The ids of versions of one thing, the newest first."""


class NoShelf(StoreDamaged):
    """A pack that is whole, and in which deltas stand elsewhere than on a shelf: real git made it."""

    def __init__(self, pack: Pack) -> None:
        super().__init__(f"{pack.path} is no shelf")
        self.pack = pack.name


class Shelf:
    """A shelf that is read to be written anew. Families go by their numbers."""

    def __init__(self, pack: Pack, run_objects: int = DEFAULT_LIMITS.packs.run_objects) -> None:
        self._run_objects = run_objects
        if pack.size <= _LARGEST_HELD:
            # The very bytes of which the checksum is compared are copied then.
            pack = pack.load()
        if not pack.is_whole():
            raise StoreDamaged(f"{pack.path} is not what was written")
        self._pack = pack
        self._entries = pack.entries()
        self._ids = [id for id, _, _ in self._entries]
        heads = pack.find_heads()
        if heads is None:
            raise NoShelf(pack)
        self._starts = [*heads, pack.count]
        """Which entries are the heads of families, and at the end how many entries there are."""
        self._places = [offset for _, offset, _ in self._entries] + [pack.size - 20]
        """Where entries begin, and where the last one ends."""

    def families(self) -> Iterator[Family]:
        """Give every family, in order."""
        return map(self._members, range(len(self._starts) - 1))

    def find_family(self, id: bytes) -> int | None:
        """Tell which family an object belongs to."""
        entry = self._numbers.get(id)
        return None if entry is None else bisect_right(self._starts, entry) - 1

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        return {id: number for number, id in enumerate(self._ids)}

    def _members(self, family: int) -> Family:
        return self._ids[self._starts[family] : self._starts[family + 1]]

    def write(
        self,
        into: PackWriter,
        objects: Objects,
        newer: Mapping[int, Family],
        unwanted: Set[bytes] = frozenset(),
        find_pack: FindPack | None = None,
    ) -> None:
        """Write it anew, with `newer` versions before the families they belong to, but nothing unwanted."""
        run = 0
        for family in sorted({*newer, *self._find_families(unwanted)}):
            first, after = self._starts[family], self._starts[family + 1]
            versions, members = newer.get(family, ()), self._members(family)
            kept = [id for id in members if id not in unwanted]
            end = first + len(kept)
            if kept != members[: len(kept)]:
                self._copy_run(run, first, into)
                write_family([*versions, *kept], into, objects, find_pack)
            elif not versions:
                # It goes with what stands before it.
                self._copy_run(run, end, into)
            elif not kept or len(versions) + len(kept) > LONGEST_FAMILY:
                self._copy_run(run, first, into)
                write_family(versions, into, objects, find_pack)
                self._copy(first, end, into)
            else:
                self._copy_run(run, first, into)
                write_family([*versions, kept[0]], into, objects, find_pack)
                self._copy_behind(first, end, into)
            run = after
        self._copy_run(run, len(self._entries), into)

    def _find_families(self, unwanted: Set[bytes]) -> Iterator[int]:
        """Name the families of some objects."""
        if unwanted:
            entries = (entry for entry, id in enumerate(self._ids) if id in unwanted)
            yield from (bisect_right(self._starts, entry) - 1 for entry in entries)

    def _copy_run(self, first: int, after: int, into: PackWriter) -> None:
        """Copy entries from the head of a family on, few enough at once that a part of a pack can end."""
        while first < after:
            end = min(first + self._run_objects, bisect_left(self._places, self._places[first] + _RUN))
            if end < after:
                following = max(bisect_right(self._starts, first), bisect_left(self._starts, end))
                end = min(after, self._starts[following])
            else:
                end = after
            self._copy(first, end, into)
            first = end

    def _copy(self, first: int, after: int, into: PackWriter) -> None:
        """Copy entries that follow each other, of whole families."""
        if first < after:
            into.copy_entries(*self._read(first, after))

    def _copy_behind(self, head: int, after: int, into: PackWriter) -> None:
        """Copy what stands behind a head that was appended a moment ago.

        How far back its base is stands in each delta: that the base has another length now is told to the one
        behind it, which may have another length by that, for a byte more or less.
        """
        for entry in range(head + 1, after):
            if into.last_length() == self._places[entry] - self._places[entry - 1]:
                into.copy_deltas(*self._read(entry, after))
                return
            id = self._entries[entry][0]
            into.add_delta(id, *self._pack.read_delta(self._entries[entry], self._places[entry + 1]))
            into.copied.add(id)

    def _read(self, first: int, after: int) -> tuple[Iterator[bytes], list[PackEntry]]:
        return self._pack.read_pieces(self._places[first], self._places[after]), self._entries[first:after]

    def verify(self, copied: Set[bytes]) -> None:
        """Read what was not `copied`, and what stands before it in its family; StoreDamaged if it differs."""
        if not self._pack.has_sound(self._entries):
            raise StoreDamaged(f"{self._pack.path} was not copied as it stood")
        last: dict[int, int] = {}
        for entry, (id, _, _) in enumerate(self._entries):
            if id not in copied:
                last[bisect_right(self._starts, entry) - 1] = entry
        for family, entry in last.items():
            start, end = self._starts[family], self._places[entry + 1]
            _verify_family(self._pack, self._entries[start : entry + 1], end)


def write_family(
    family: Family, into: PackWriter, objects: Objects, find_pack: FindPack | None = None
) -> None:
    """Append versions of one thing, each as a delta of the newer one before it where that is worth it.

    With `find_pack` they need not be looked for in every pack.
    """
    before: _Version | None = None
    length = 0
    for id in family:
        if id in into:
            continue
        pack = None if find_pack is None else find_pack(id)
        size = None if pack is None else pack.stored_size(id)
        if (size is None or size > _LARGEST_HELD) and objects.copy_large(id, into, _LARGEST_HELD):
            before, length = None, 0
            continue
        version = _Version(id, objects, pack)
        delta = None if before is None or length >= LONGEST_FAMILY else version.as_delta_of(before)
        if delta is not None:
            into.add_delta(id, *delta)
            length += 1
        else:
            kind, size, deflated = version.as_whole()
            into.add(kind, id, size, deflated)
            length = 1
        if version.is_as_it_stood:
            into.copied.add(id)
        before = version


class _Version:
    """One object on its way to a shelf. It is inflated only if it has to be."""

    def __init__(self, id: bytes, objects: Objects, pack: Pack | None) -> None:
        self._id = id
        self._objects = objects
        self._raw: RawEntry | None = None if pack is None else pack.find_entry(id)
        if self._raw is None:
            self._raw = objects.find_raw(id)
        self._content: tuple[bytes, bytes] | None = None
        self.is_as_it_stood = False
        """Whether what was given last is what it was where it was read: whole, or a delta of the same."""

    def as_whole(self) -> tuple[bytes, int, bytes]:
        """Give its kind, its size, and what it is deflated."""
        raw = self._raw
        is_tree = raw is not None and raw.kind_number == KIND_NUMBERS[b"tree"]
        self.is_as_it_stood = raw is not None and raw.base is None and not is_tree
        if raw is not None and self.is_as_it_stood:
            return KIND_NAMES[raw.kind_number], raw.size, raw.deflated
        # Trees are deflated in haste when they are recorded.
        kind, content = self._read()
        return kind, len(content), deflate(content)

    def as_delta_of(self, base: _Version) -> tuple[int, bytes] | None:
        """Give the size of a delta, and what it is deflated; None if it is not worth it."""
        raw = self._raw
        if raw is not None and raw.base == base._id:
            self.is_as_it_stood = True
            return raw.size, raw.deflated
        if self._is_large() or base._is_large():
            return None
        (kind, content), (base_kind, base_content) = self._read(), base._read()
        if kind != base_kind:
            return None
        delta = make_delta(base_content, content, is_tree=kind == b"tree")
        if len(delta) < _SMALLEST_DELTA:
            return None
        deflated = deflate(delta)
        whole = raw.deflated if raw is not None and raw.base is None else deflate(content)
        self.is_as_it_stood = False
        return (len(delta), deflated) if len(deflated) < _WORTH * len(whole) else None

    def _is_large(self) -> bool:
        raw = self._raw
        size = raw.size if raw is not None and raw.base is None else len(self._read()[1])
        return size > _LARGEST_DELTIFIED

    def _read(self) -> tuple[bytes, bytes]:
        if self._content is None:
            self._content = self._inflate() or self._objects.read_any(self._id)
        return self._content

    def _inflate(self) -> tuple[bytes, bytes] | None:
        """Read it where it was found; None if it is a delta there, or damaged."""
        raw = self._raw
        if raw is None or raw.base is not None:
            return None
        try:
            content = zlib.decompress(raw.deflated)
        except zlib.error:
            return None
        kind = KIND_NAMES[raw.kind_number]
        return (kind, content) if object_id(kind, content) == self._id else None


def verify_shelves(packs: Sequence[Pack], expected: Set[bytes], copied: Set[bytes] = frozenset()) -> None:
    """Read shelves that were just written; StoreDamaged unless they hold just what is `expected`, and whole.

    Checksums tell that all bytes are what they should be. What was put together anew is hashed as well. What
    was `copied` stands as it stood where it was read; a delta does, if what is before it was proved.

        [v6][v5 of v6][v4 of v5][v3 of v4]     new are v6 and the delta by which v5 comes of it: when v5 is
         new  new      copied    copied        hashed, v4 and v3 come of it as they did before
    """
    ids = [id for pack in packs for id in pack.ids()]
    if len(ids) != len(expected) or set(ids) != expected:
        raise StoreDamaged("a pack that was just written holds something else")
    for pack in packs:
        Shelf(pack).verify(copied)


def _verify_family(pack: Pack, entries: Sequence[PackEntry], end: int) -> None:
    """Read the entries of a family from its head on, the last of which ends there."""
    kind, content = b"", b""
    ends = [offset for _, offset, _ in entries[1:]] + [end]
    for (id, offset, _), after in zip(entries, ends, strict=True):
        kind_number, base, inflated = pack.read_between(offset, after)
        try:
            content = inflated if base is None else apply_delta(content, inflated)
        except BadDelta as error:
            raise StoreDamaged(f"{pack.path} has a delta that does not fit its base") from error
        kind = KIND_NAMES[kind_number] if base is None else kind
        if object_id(kind, content) != id:
            raise StoreDamaged(f"{pack.path} has other content for {id.hex()} than its name says")
