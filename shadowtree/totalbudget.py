"""Keep all stores of a user together within their budget: the one that was used least recently shrinks first.

Nobody waits long for that. Who looks takes one store after the other, if nobody is at work in it, and ends
when his time is up; what is left is done by the next look, or in idle time. What is forgotten in a store is
freed before anything is forgotten in the next one. Only one process looks at a time.

If all stores gave what they may, and it will not do, who looked leaves a note beside them. As long as it is
there, nobody records anything: stores are measured again before each refusal, and only then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

from shadowtree import disk
from shadowtree import store as stores
from shadowtree.budget import SHARE, Relief, compare, count_forgotten, forget_to_fit
from shadowtree.errors import OverTotalBudget, ShadowError, StoreFailed
from shadowtree.forgetting import Forgetting
from shadowtree.frozen import frozen
from shadowtree.layout import OVER_NOTE, StoreLayout
from shadowtree.lock import Lock
from shadowtree.opened import OpenStore
from shadowtree.settings import Settings
from shadowtree.sweeping import Sweep

_LOCK = "budget.lock"
_NOTE_MS = 60 * 60 * 1000
"""For how long a note counts: then another look decides, since pins may be gone, or damage."""
_TOLD = 3
"""How many of the largest stores are told."""

IsOver = Callable[[], bool]


@frozen
class StoreSize:
    """What one of several stores takes."""

    store: str
    bytes: int
    used_ns: int
    """When it was last written to."""


@frozen
class Look:
    """What came of a look at all stores."""

    used: int
    """How many bytes all of them took."""
    excess: int
    """How many of these are still too many."""
    told: list[str]
    """What was forgotten, and where nothing could be freed, a line each."""
    is_through: bool
    """Whether there is no other store in which something could still be done."""
    is_sure: bool = True
    """Whether none was left as it is, because it is locked or damaged."""


def measure_stores(directory: str) -> list[StoreSize]:
    """Measure every store in the directory of stores, the one that was used least recently first."""
    found = [_measure(place) for place in _list_stores(directory)]
    return sorted((size for size in found if size is not None), key=lambda size: size.used_ns)


def shrink_stores(
    directory: str, settings: Settings, now_ms: int, is_over: IsOver, *, but: str | None = None
) -> Look:
    """Let stores shrink, all `but` one, until they are within their budget together, or it `is_over`.

    One step is done in any case. A store that is locked or damaged is left as it is, and that is told.
    """
    try:
        with Lock(os.path.join(directory, _LOCK), 0):
            return _shrink_stores(directory, settings, now_ms, is_over, but)
    except ShadowError:
        # Somebody else looks already, or nobody may.
        return _NOTHING


def shrink_own(opened: OpenStore, look: Look, settings: Settings, now_ms: int, relief: Relief) -> None:
    """Forget in the own store what no other one had to give. Only for the holder of its lock."""
    if look.excess > 0 and look.is_through:
        limit = max(0, opened.measure() - look.excess)
        done = forget_to_fit(opened, limit, settings, now_ms)
        relief.add(done, _say_where(opened.layout.store, look.used, settings))


def note_if_over(directory: str, look: Look, settings: Settings, now_ms: int) -> None:
    """After a look, and what the own store gave: note that nothing is left to forget, if it will not do."""
    if look.excess <= 0 or not look.is_through or not look.is_sure:
        return
    if sum(size.bytes for size in measure_stores(directory)) > settings.total_budget:
        note = {"time_ms": now_ms, **_terms(settings)}
        disk.place_file(os.path.join(directory, OVER_NOTE), json.dumps(note).encode())


def refuse_over_total(directory: str, settings: Settings, now_ms: int) -> None:
    """Refuse to record more while a note says that all stores are over their budget, and it is still so."""
    if not _is_noted(directory, settings, now_ms):
        return
    sizes = measure_stores(directory)
    used = sum(size.bytes for size in sizes)
    if used <= settings.total_budget:
        disk.remove_file(os.path.join(directory, OVER_NOTE))
        return
    largest = sorted(sizes, key=lambda size: -size.bytes)[:_TOLD]
    told = [(size.store, size.bytes) for size in largest]
    raise OverTotalBudget(directory, used, settings.total_budget, told)


def _is_noted(directory: str, settings: Settings, now_ms: int) -> bool:
    """Tell whether there is a note that counts still: young, and made under the same settings."""
    try:
        note = json.loads(disk.read_if_there(os.path.join(directory, OVER_NOTE)) or b"{}")
        age_ms = now_ms - int(note.pop("time_ms"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return False
    return note == _terms(settings) and 0 <= age_ms < _NOTE_MS


def _terms(settings: Settings) -> dict[str, int]:
    """Give the settings by which it is decided what may be forgotten."""
    return {"total_budget": settings.total_budget, "keep_turns": settings.keep_turns}


def _shrink_stores(directory: str, settings: Settings, now_ms: int, is_over: IsOver, but: str | None) -> Look:
    sizes = measure_stores(directory)
    used = sum(size.bytes for size in sizes)
    if not 0 < settings.total_budget < used:
        return _NOTHING
    excess = used - int(settings.total_budget * SHARE)
    spared = None if but is None else os.path.realpath(but)
    told: list[str] = []
    is_sure = True
    for number, size in enumerate(each for each in sizes if each.store != spared):
        if excess <= 0:
            break
        if number and is_over():
            return Look(used, excess, told, is_through=False)
        try:
            shrunk = _shrink(size, max(0, size.bytes - excess), settings, now_ms, is_over)
        except ShadowError as error:
            told.append(f"nothing could be freed in {size.store}: {error}")
            is_sure = False
            continue
        told += _tell(size.store, shrunk.forgotten, used, settings)
        if not shrunk.is_swept:
            return Look(used, excess, told, is_through=False)
        after = _measure(size.store)
        excess -= size.bytes - after.bytes if after is not None else size.bytes
    return Look(used, excess, told, is_through=True, is_sure=is_sure)


@frozen
class _Shrunk:
    """What was done to one store."""

    forgotten: Forgetting | None
    is_swept: bool
    """Whether all is freed that can be."""


def _shrink(size: StoreSize, limit: int, settings: Settings, now_ms: int, is_over: IsOver) -> _Shrunk:
    """Let a store shrink to `limit` bytes, if nobody is at work in it and nothing in it was interrupted."""
    disk.require_private(size.store)
    layout = StoreLayout(size.store)
    with Lock(layout.lock, 0):
        try:
            with closing(OpenStore(layout)) as opened:
                if opened.journal.open_intents():
                    raise StoreFailed(size.store, "an act in it was interrupted")
                opened.prepare_to_write()
                if not _sweep(opened, is_over):
                    return _Shrunk(None, is_swept=False)
                if opened.measure() <= limit:
                    return _Shrunk(None, is_swept=True)
                forgotten = forget_to_fit(opened, limit, settings, now_ms)
                return _Shrunk(forgotten, forgotten.is_nothing or _sweep(opened, is_over))
        finally:
            # This was no use of it: the next look begins here again, and not in a store used more recently.
            with suppress(OSError):
                os.utime(layout.timeline, ns=(size.used_ns, size.used_ns))


def _sweep(opened: OpenStore, is_over: IsOver) -> bool:
    """Free what nothing needs, a step at least, until it `is_over`; tell whether all is done."""
    sweep = Sweep()
    while sweep.step(opened, is_over):
        if is_over():
            return False
    return True


def _tell(store: str, forgotten: Forgetting | None, used: int, settings: Settings) -> list[str]:
    if forgotten is None or forgotten.is_nothing:
        return []
    return [f"{count_forgotten(forgotten)} forgotten{_say_where(store, used, settings)}"]


def _say_where(store: str, used: int, settings: Settings) -> str:
    return f" in {store}: all stores took {compare(used, settings.total_budget)}"


def _list_stores(directory: str) -> Iterator[str]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False) and stores.exists(entry.path):
            yield os.path.realpath(entry.path)


def _measure(store: str) -> StoreSize | None:
    """Measure a store without opening it; None if it has gone meanwhile."""
    layout = StoreLayout(store)
    try:
        packs = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(layout.packs))
        timeline = os.stat(layout.timeline)
    except OSError:
        return None
    beside = timeline.st_size + disk.size_if_there(layout.cache)
    return StoreSize(store, packs + beside, timeline.st_mtime_ns)


_NOTHING = Look(0, 0, [], is_through=True)
