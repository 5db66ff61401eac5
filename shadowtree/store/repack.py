"""Putting packs together, so that there are few, and a thing is stored once, with what changed in it.

    fresh packs, as snapshots add them ──shelve──▶ shelves for which enough waits
                                       ──merge───▶ one fresh pack of the rest

In fresh packs each version is whole, which takes the room; on shelves versions are deltas. A step writes one
shelf anew and puts into it what belongs there. It takes time by what the shelf holds, so that it is worth it
only if enough waits for it: each fresh byte pays for so many bytes of shelves, however long the history is.

Only for the holder of the store's lock. Nothing goes before it is durable elsewhere and was read there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, filterfalse

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.base.limits import DEFAULT_LIMITS, PackLimits
from shadowtree.store.delta_packs import Family, Shelf, verify_shelves, write_family
from shadowtree.store.git_format import INDEX_SUFFIX
from shadowtree.store.objects import Objects
from shadowtree.store.pack_set import LARGEST_MERGED, Release, choose_to_merge, remove_packs
from shadowtree.store.pack_writer import PackWriter, remove_pack
from shadowtree.store.packs import Pack

_SHELVES = 8
"""About how many shelves there are: while one is written anew, that part of the store is there twice."""
_FEW_TINY = 4
"""A shelf that has less than this part of the usual bytes and objects is tiny; so many of them become one."""
_OBJECT_WEIGHT = 500
"""To look at one more object on a shelf takes as long as to copy so many bytes."""


def shelf_size(total: int, limits: PackLimits) -> int:
    """Tell how large a shelf should be where all together have `total` bytes."""
    return max(limits.shelf_bytes, total // _SHELVES)


class Shelving:
    """What is on which shelf, what waits to be put there, and one step of doing it.

    `fresh` names the fresh packs, the oldest first, and `before` says for an object which one it came in
    place of. With `live`, nothing else is put on a shelf, and a shelf that is written anew loses the rest; it
    is, unless it `spares` what is next to nothing. With `leaves`, what is too little for a shelf stays fresh.
    What is in `foreign` packs never does: they are real git's, and hold deltas.
    """

    def __init__(
        self,
        objects: Objects,
        fresh: Iterable[str],
        before: Mapping[bytes, bytes],
        release: Release,
        *,
        live: set[bytes] | None = None,
        spares: bool = False,
        leaves: bool = False,
        foreign: Collection[str] = (),
        limits: PackLimits = DEFAULT_LIMITS.packs,
    ) -> None:
        self._limits = limits
        self._spares = spares
        self._leaves = leaves
        self._objects = objects
        self._before = before
        self._release = release
        self._live = live
        packs = {pack.name: pack for pack in objects.packs()}
        names = [*foreign, *fresh]
        self._fresh = [packs[name] for name in names if name in packs]
        self._foreign = frozenset(foreign)
        self._shelves = [pack for pack in packs.values() if pack.is_ours and pack.name not in names]
        self._shelf_size = shelf_size(sum(pack.size for pack in self._shelves), limits)
        self._shelf_count = max(limits.shelf_objects, sum(pack.count for pack in self._shelves) // _SHELVES)
        self._where = self._locate()
        """Which shelf an object is on: all of them if the rest shall go, else those that matter here."""
        self._has_twins = live is not None and len(self._where) < sum(pack.count for pack in self._shelves)
        """Whether something stands on two shelves."""
        self._order: dict[bytes, tuple[int, int]] = {}
        """What waits, and by what it is sorted: first what came in place of most others, then the newest."""
        self._fresh_in: dict[bytes, Pack] = {}
        """Which fresh pack each of that is in."""
        self._waiting: dict[Pack | None, dict[bytes, list[bytes]]] = {}
        """By shelf, None being a new one: objects, and what joins their families, newest first."""
        self._shelved: set[bytes] = set()
        """What was put on shelves, and read there."""
        self._unwanted: dict[Pack, set[bytes]] = {}
        """What shelves hold that shall go, as far as that was looked at."""
        self._sound: dict[Pack, bool] = {}
        """Whether shelves are whole, as far as that was looked at."""
        self.merged: str | None = None
        """The name of the pack that fresh ones were put together in."""
        self._sort()

    def _locate(self) -> dict[bytes, Pack]:
        found: dict[bytes, Pack] = {}
        if self._live is not None:
            for pack in self._shelves:
                found.update(dict.fromkeys(pack.ids(), pack))
            return found
        wanted = {*self._before, *self._before.values(), *(id for pack in self._fresh for id in pack.ids())}
        for pack in self._shelves:
            here = pack.having(wanted)
            found.update(dict.fromkeys(here, pack))
            wanted.difference_update(here)
        return found

    def _sort(self) -> None:
        with_room = [
            shelf
            for shelf in self._shelves
            if shelf.size < self._shelf_size and shelf.count < self._shelf_count
        ]
        roomy = min(with_room, key=lambda shelf: shelf.size, default=None)
        for pack in reversed(self._fresh):
            for id in pack.ids():
                if id in self._order or id in self._where or not self._is_live(id):
                    continue
                self._fresh_in[id] = pack
                anchor, age = self._find_anchor(id)
                self._order[id] = (-age, len(self._order))
                shelf = self._where.get(anchor, roomy)
                self._waiting.setdefault(shelf, {}).setdefault(anchor, []).append(id)

    def _is_live(self, id: bytes) -> bool:
        return self._live is None or id in self._live

    def _find_anchor(self, id: bytes) -> tuple[bytes, int]:
        """Give which version before this one is on a shelf, or is the first, and how many came since."""
        passed = {id}
        while id not in self._where:
            before = self._before.get(id)
            if before is None or before in passed:
                break
            passed.add(before)
            id = before
        return id, len(passed) - 1

    def shelve_due(self, *, largest: int, most: int, at_once: int) -> None:
        """Write those shelves anew for which enough waits, while they weigh no more than `at_once` together.

        Only shelves of at most `largest` bytes are taken, and at most `most` objects are put on each.
        """
        done = 0
        for shelf in self._list_due(largest):
            weight = _weigh(shelf)
            if done and done + weight > at_once:
                return
            with suppress(StoreDamaged):
                # What cannot be read waits on; it is no reason to leave all else as it is.
                self._write_if_sound(shelf, most)
            done += weight

    def _list_due(self, largest: int) -> list[Pack | None]:
        """List the shelves for which enough waits, first the one for which most does."""
        sizes = {
            shelf: self._weigh_waiting(shelf)
            for shelf in self._waiting
            if shelf is None or shelf.size <= largest
        }
        least, part = self._limits.waiting_bytes, self._limits.worth_part
        due = [shelf for shelf, size in sizes.items() if size >= max(least, _weigh(shelf) // part)]
        return sorted(due, key=lambda shelf: -sizes[shelf])

    def _weigh_waiting(self, shelf: Pack | None) -> int:
        """Tell how many bytes wait for a shelf."""
        waiting = chain.from_iterable(self._waiting.get(shelf, {}).values())
        return sum(self._fresh_in[id].stored_size(id) or 0 for id in waiting)

    def merge(self) -> str | None:
        """Put small fresh packs together, without what is on shelves by now; give the name of what is left.

        Larger ones go when all that is in them is on shelves.
        """
        if not self._shelved:
            self._remove_shelved()
        fresh = [pack for pack in self._fresh if pack in self._objects.packs()]
        return self._objects.pack_set.merge(fresh, self._release, self._shelved)

    def step(
        self,
        largest: int | None = None,
        most: int | None = None,
        is_over: Callable[[], bool] = lambda: True,
    ) -> bool:
        """Write one shelf anew, and more until it `is_over`, and remove packs of which all is on shelves.

        Only shelves of at most `largest` bytes are taken, and at most `most` objects are put on each.

        True if there was something to do; then there may be more, which another `Shelving` does. Nothing is
        done to a shelf that is damaged; with `live`, that is an error.

        It comes to an end, as each time there is less of something. What waits is less by all that is put on
        a shelf, where nothing waits again. If nothing waits, what is not live is less by all that the shelf
        loses, or fresh packs lose. If there is none of that, there are fewer packs. Neither of the later ones
        makes more of an earlier one.
        """
        is_done = False
        if self._live is not None and self._has_twins:
            self._require_twins()
        for shelf in self._rank(largest):
            is_done |= self._write_if_sound(shelf, most)
            # At once, and not at the end: or else all that is fresh would be there twice.
            self._remove_shelved()
            if is_done and is_over():
                return True
        is_done |= self._remove_shelved() or self._merge_left()
        # Who leaves something need not look once more whether all is done.
        return (is_done and not self._leaves) or self._join_tiny()

    def require_whole(self) -> int:
        """Raise StoreDamaged unless all is whole that would be read until nothing is left to do.

        Give how many bytes that may take for a while, before the first pack goes.
        """
        self._require_twins()
        shelves = [shelf for shelf in self._rank(None) if shelf is not None]
        for pack in {*shelves, *self._fresh_in.values()}:
            _require_whole(pack)
        for pack in self._choose_left():
            _require_whole(pack)
        waiting = sum(pack.stored_size(id) or 0 for id, pack in self._fresh_in.items())
        joined = sum(shelf.size for shelf in self._choose_to_join())
        return waiting + max([joined, *(shelf.size for shelf in shelves)])

    def _write_if_sound(self, shelf: Pack | None, most: int | None) -> bool:
        """Write a shelf anew unless it is damaged, which is an error if the rest shall go; tell whether."""
        try:
            read = None if shelf is None else Shelf(shelf, self._limits.run_objects)
        except (StoreDamaged, StoreFailed):
            if self._live is not None:
                raise
            return False
        self._write(shelf, read, _take(self._waiting.get(shelf, {}), most))
        return True

    def _rank(self, largest: int | None) -> list[Pack | None]:
        """List the shelves that have to be written anew, first the one for which most waits."""
        stale = {shelf for shelf in self._shelves if self._is_stale(shelf)}
        shelves = [
            shelf
            for shelf in {*filter(self._is_awaited, self._waiting), *stale}
            if shelf is None or largest is None or shelf.size <= largest
        ]
        return sorted(shelves, key=lambda shelf: -sum(map(len, self._waiting.get(shelf, {}).values())))

    def _is_awaited(self, shelf: Pack | None) -> bool:
        """Tell whether what waits for a shelf has to be put there, or is worth it."""
        waiting = chain.from_iterable(self._waiting.get(shelf, {}).values())
        if not self._leaves or not all(self._may_stay(self._fresh_in[id]) for id in waiting):
            return True
        return self._weigh_waiting(shelf) >= _weigh(shelf) // self._limits.worth_part

    def _may_stay(self, fresh: Pack) -> bool:
        """Tell whether what is not worth it may stay in a fresh pack, which is small enough to be merged."""
        return fresh.size <= LARGEST_MERGED and fresh.name not in self._foreign

    def _is_stale(self, shelf: Pack) -> bool:
        """Tell whether a shelf holds what is not live, or what stands on another one too; or much of it."""
        if self._live is None:
            return False
        unwanted = self._list_unwanted(shelf)
        if not unwanted or not self._spares:
            return bool(unwanted)
        return shelf.weigh(unwanted) * self._limits.spared_part > shelf.size

    def _require_twins(self) -> None:
        """Raise StoreDamaged unless those shelves are whole that keep what other ones have too."""
        counts = Counter(id for shelf in self._shelves for id in shelf.ids())
        for shelf in {self._where[id] for id, count in counts.items() if count > 1}:
            _require_whole(shelf)

    def _list_unwanted(self, shelf: Pack) -> set[bytes]:
        """List what a shelf holds that is not live, or stands on another one."""
        if self._live is None:
            return set()
        if shelf not in self._unwanted:
            unwanted = set(filterfalse(self._live.__contains__, shelf.ids()))
            if self._has_twins:
                unwanted.update(id for id in shelf.ids() if self._where[id] is not shelf)
            self._unwanted[shelf] = unwanted
        return self._unwanted[shelf]

    def _write(self, shelf: Pack | None, read: Shelf | None, waiting: dict[bytes, list[bytes]]) -> None:
        taken = {id for family in waiting.values() for id in family}
        with self._writing([] if shelf is None else [shelf], self._find_extent(shelf, taken)) as into:
            if shelf is not None and read is not None:
                self._copy(shelf, read, into, self._take_newer(read, waiting))
            for family in waiting.values():
                ordered = sorted(family, key=self._order.__getitem__)
                write_family(ordered, into, self._objects, self._fresh_in.get)
        self._shelved |= taken

    def _copy(self, shelf: Pack, read: Shelf, into: PackWriter, newer: Mapping[int, Family]) -> None:
        """Write anew what is on a shelf, with what is newer, and nothing unwanted."""
        unwanted = self._list_unwanted(shelf)
        read.write(into, self._objects, newer, unwanted, lambda id: self._fresh_in.get(id, shelf))

    @contextmanager
    def _writing(
        self, replaced: Sequence[Pack], extent: tuple[int | None, int | None] = (None, None)
    ) -> Iterator[PackWriter]:
        """Let the body write shelves in place of others, which go when the new ones are durable and read."""
        with self._replacing(replaced, extent) as (into, names):
            yield into
        made = [pack for pack in self._objects.packs() if pack.name in names]
        self._shelves = [*(shelf for shelf in self._shelves if shelf not in replaced), *made]
        for pack in made:
            self._where.update(dict.fromkeys(pack.ids(), pack))
            self._sound[pack] = True

    @contextmanager
    def _replacing(
        self, replaced: Sequence[Pack], extent: tuple[int | None, int | None] = (None, None)
    ) -> Iterator[tuple[PackWriter, set[str]]]:
        """Let the body write packs in place of others, and give their names when these are gone."""
        into = self._objects.start_pack(*extent)
        names: set[str] = set()
        try:
            yield into, names
            made = into.finish()
        except BaseException:
            into.abandon()
            raise
        self._verify(made, into)
        names.update(map(os.path.basename, made))
        # A fresh pack may become a shelf just as it is: the same bytes, and so the same name.
        self._release([pack.name for pack in self._fresh if pack.name in names])
        self._fresh = [pack for pack in self._fresh if pack.name not in names]
        remove_packs(replaced, names, self._release)
        self._objects.refresh()

    def _find_extent(self, shelf: Pack | None, taken: Collection[bytes]) -> tuple[int, int]:
        """Say how many bytes and objects a new shelf has at most: what grew too large becomes several."""
        size, count = (0, 0) if shelf is None else (shelf.size, shelf.count)
        size += sum(self._fresh_in[id].stored_size(id) or 0 for id in taken)
        count += len(taken)
        return _share(size, 3 * self._shelf_size // 2), _share(count, 3 * self._shelf_count // 2)

    def _take_newer(self, read: Shelf, waiting: dict[bytes, list[bytes]]) -> dict[int, Family]:
        """Give by families what goes before them, newest first, and take that from what waits."""
        newer: dict[int, list[bytes]] = {}
        for anchor in list(waiting):
            family = read.find_family(anchor)
            if family is not None:
                newer.setdefault(family, []).extend(waiting.pop(anchor))
        return {family: sorted(ids, key=self._order.__getitem__) for family, ids in newer.items()}

    def _verify(self, made: Sequence[str], into: PackWriter) -> None:
        """Read what was written; if it is not what it should be, it goes again."""
        packs = [Pack(path + INDEX_SUFFIX) for path in made]
        try:
            verify_shelves(packs, into.ids, into.copied)
        except StoreDamaged:
            known = {pack.name for pack in self._objects.packs()}
            for pack in packs:
                if pack.name not in known:
                    remove_pack(os.path.dirname(pack.path), pack.name)
            raise
        finally:
            for pack in packs:
                pack.close()

    def _remove_shelved(self) -> bool:
        """Remove the fresh packs of which all is on shelves that are whole."""
        # First what costs nothing: whether a shelf is whole is told by reading it.
        candidates = [
            pack
            for pack in self._fresh
            if all(id in self._where or not self._is_live(id) for id in pack.ids())
        ]
        shelved = [pack for pack in candidates if all(map(self._is_needless, pack.ids()))]
        if shelved:
            remove_packs(shelved, (), self._release)
            self._fresh = [pack for pack in self._fresh if pack not in shelved]
            self._objects.refresh()
        return bool(shelved)

    def _is_sound(self, shelf: Pack) -> bool:
        if shelf not in self._sound:
            self._sound[shelf] = shelf.is_whole()
        return self._sound[shelf]

    def _merge_left(self) -> bool:
        """Put together what stays fresh, without what nothing needs or a shelf has; tell whether."""
        left = self._choose_left()
        if not left:
            return False
        needless = {id for pack in left for id in pack.ids() if self._is_needless(id)}
        with self._replacing(left) as (into, names):
            for pack in left:
                for id, raw in pack.raw_entries():
                    if id not in needless:
                        into.copy_entry(id, raw)
        self._fresh = [pack for pack in self._fresh if pack not in left]
        self.merged = next(iter(names), None)
        return True

    def _choose_left(self) -> list[Pack]:
        """Choose the fresh packs that stay, and are many or hold much that is needless."""
        if not self._leaves:
            return []
        staying = [pack for pack in self._fresh if self._may_stay(pack)]
        small = choose_to_merge(staying)
        chosen = set(small if len(small) > 1 else [])
        for pack in staying:
            needless = set(filter(self._is_needless, pack.ids()))
            if pack.weigh(needless) * self._limits.spared_part > pack.size:
                chosen.add(pack)
        return list(chosen)

    def _is_needless(self, id: bytes) -> bool:
        """Tell whether an object is on a shelf that is whole, or nothing needs it."""
        return not self._is_live(id) or (id in self._where and self._is_sound(self._where[id]))

    def _join_tiny(self) -> bool:
        """Put tiny shelves together, in a sweep, if there are some; tell whether.

        Families stand as they stood, and one shelf has room for all of them: so it never becomes several, and
        whoever comes next finds nothing to do.
        """
        tiny = self._choose_to_join()
        if not tiny:
            return False
        with self._writing(tiny) as into:
            for shelf in tiny:
                self._copy(shelf, Shelf(shelf, self._limits.run_objects), into, {})
        return True

    def _choose_to_join(self) -> list[Pack]:
        """Choose as many tiny shelves as one has room for, if there are some; a damaged one stays."""
        if self._live is None:
            return []
        tiny = [shelf for shelf in self._shelves if self._is_tiny(shelf)]
        if len(tiny) >= _FEW_TINY:
            tiny = [shelf for shelf in tiny if self._is_sound(shelf)]
        if len(tiny) < _FEW_TINY:
            return []
        chosen: list[Pack] = []
        size = count = 0
        for shelf in sorted(tiny, key=lambda shelf: shelf.size):
            size, count = size + shelf.size, count + shelf.count
            if size > self._shelf_size or count > self._shelf_count:
                break
            chosen.append(shelf)
        return chosen

    def _is_tiny(self, shelf: Pack) -> bool:
        """Tell whether a shelf has few bytes and few objects: of tiny ones it may be full all the same."""
        return _FEW_TINY * shelf.size < self._shelf_size and _FEW_TINY * shelf.count < self._shelf_count


def _require_whole(pack: Pack) -> None:
    if not pack.is_whole():
        raise StoreDamaged(f"{pack.path} is not what was written")


def _share(total: int, most: int) -> int:
    """Say how much each of equal parts has, none of which has more than `most`."""
    parts = -(-total // most)
    return most if parts < 2 else -(-total // parts)


def _weigh(shelf: Pack | None) -> int:
    """Tell how long it takes to write a shelf anew, as bytes to copy."""
    return 0 if shelf is None else shelf.size + _OBJECT_WEIGHT * shelf.count


def _take(waiting: dict[bytes, list[bytes]], most: int | None) -> dict[bytes, list[bytes]]:
    """Take whole families as long as they have no more than `most` objects together, but at least one."""
    taken: dict[bytes, list[bytes]] = {}
    count = 0
    for anchor, family in waiting.items():
        count += len(family)
        if taken and most is not None and count > most:
            break
        taken[anchor] = family
    return taken
