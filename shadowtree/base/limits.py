"""The limits, thresholds and clocks that tests lower or stop; the defaults are what everybody runs with.

They are no settings: nobody but a test has a reason to change one. They come in through the front door and
are passed down, so that no test has to reach into a module.
"""

from __future__ import annotations

from collections.abc import Callable
from time import sleep, time_ns

from shadowtree.base.frozen import frozen


@frozen
class PackLimits:
    """When packs are journaled, merged and put on shelves."""

    journaled_bytes: int = 256 << 10
    """A pack of at most this many bytes, with its index, is journaled in the timeline."""
    fresh_part: int = 4
    """A large pack is fresh if at least one object in this many replaces another one."""
    many: int = 4
    """With this many journaled packs a command puts them on shelves, unless idle time is to come."""
    very_many: int = 24
    """With this many it merges them in any case."""
    large_bytes: int = 1 << 20
    """A fresh pack of more bytes goes on shelves at once."""
    most_objects_at_once: int = 250
    """How many objects one step puts on a shelf."""
    most_bytes_at_once: int = 64 << 20
    """Shelves with more bytes than this are left to gc."""
    idle_bytes: int = 64 << 10
    """In idle time fresh packs go on shelves if they have more bytes than this..."""
    idle_part: int = 96
    """...and more than this part of what the shelves have."""
    shelf_bytes: int = 2 << 20
    """How many bytes a shelf has, at least."""
    shelf_objects: int = 4000
    """How many objects a shelf has, at least: with more it takes long to look through."""
    waiting_bytes: int = 32 << 10
    """A shelf is rewritten when this many bytes wait for it..."""
    worth_part: int = 64
    """...and this part of what it weighs."""
    spared_part: int = 20
    """A shelf of which less than this part is garbage is left alone."""
    run_objects: int = 1000
    """About how many objects are copied at once from an old shelf to a new one."""


@frozen
class MarkLimits:
    """How much memory is used to mark what recorded trees need."""

    remembered_bytes: int = 32 << 20
    """How many bytes of trees are remembered: the neighbours of the next ones, and the bases of deltas."""
    largest_loaded: int = 4 << 20
    """Packs of up to this many bytes are read at once..."""
    loaded_bytes: int = 32 << 20
    """...as long as all of them together have no more than this."""


@frozen
class Limits:
    """How much, how long, how many."""

    clock_ns: Callable[[], int] = time_ns
    """What time it is, in nanoseconds since the epoch."""
    file_clock_ns: Callable[[], int] = time_ns
    """When a scan begins, by the clock that file times are compared with."""
    sleep: Callable[[float], None] = sleep
    """Waits for so many seconds."""
    boot_id: str | None = None
    """Which start of the machine this is; None: the one that the system names."""
    unwritten_bytes: int | None = None
    """How much waits to be written to the disks of this machine; None: as much as the system says."""
    packs: PackLimits = PackLimits()
    """When packs are journaled, merged and put on shelves."""
    mark: MarkLimits = MarkLimits()
    """How much memory is used to mark what recorded trees need."""
    timeline_free_bytes: int = 128 << 10
    """The timeline is compacted when more bytes than this are free in it."""
    sweep_hold_s: float = 0.5
    """How long a sweep holds the lock before it lets others have it."""
    sweep_pause_s: float = 0.06
    """For how long it lets them: until they look for it."""
    diff_bytes: int = 256 << 20
    """How much of what changed a diff looks at; of files beyond that it tells only that they changed."""
    watch_limit_file: str = "/proc/sys/fs/inotify/max_user_watches"
    """Where Linux says how many directories a user may watch."""
    most_dirty_paths: int = 200_000
    """With more changed paths than this, looking at everything is no slower."""
    most_watchfiles_paths: int = 4000
    """With more paths in one round of watchfiles some may have been lost."""
    cookie_timeout_s: float = 2.0
    """How long to wait until watchfiles reports a change of our own."""


DEFAULT_LIMITS = Limits()
