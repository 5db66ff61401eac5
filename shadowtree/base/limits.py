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
    """When packs are journaled, merged and repacked."""

    journaled_bytes: int = 256 << 10
    """A pack of at most this many bytes, with its index, is journaled in the timeline."""
    many: int = 16
    """With this many journaled packs a command merges some of them..."""
    merged_bytes: int = 128 << 10
    """...into one of at most this many bytes, which takes a few milliseconds."""
    much_bytes: int = 512 << 10
    """If journaled packs have more bytes than this, records take some of them out of the timeline..."""
    slice_records: int = 5
    """...one record in so many..."""
    drained_weight: int = 384 << 10
    """...at most so many bytes at once, an object counting as 500..."""
    drain_s: float = 0.002
    """...with deltas, as many as are made in this time."""
    close_s: float = 0.1
    """For how long a host that closes a store does."""
    bytes_a_second: int = 40 << 20
    """How fast packs are rewritten, as a guess beforehand."""
    idle_bytes: int = 64 << 10
    """In idle time fresh packs are repacked if they have more bytes than this..."""
    idle_part: int = 96
    """...and more than this part of what all others have."""
    part_bytes: int = 2 << 20
    """How many bytes a part has, at least."""
    worth_part: int = 64
    """A part is rewritten when as many bytes wait for it as this part of what it weighs."""
    job_objects: int = 500
    """How many objects come into a part at once, at most: a twentieth of a second's work."""
    spared_part: int = 20
    """A part of which less than this part is garbage is left alone."""
    grace_s: int = 14 * 24 * 3600
    """For how long what was written through `Shadow.repo`, or by git, stays without a ref to it."""


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
    """When packs are journaled, merged and repacked."""
    timeline_free_bytes: int = 128 << 10
    """The timeline is compacted when more bytes than this are free in it."""
    sweep_hold_s: float = 0.25
    """After how long a sweep begins no other step before it lets others have the lock."""
    sweep_pause_s: float = 0.06
    """For how long it lets them: until they look for it."""
    diff_bytes: int = 256 << 20
    """How much of what changed a diff looks at; of files beyond that it tells only that they changed."""
    watch_limit_file: str = "/proc/sys/fs/inotify/max_user_watches"
    """Where Linux says how many directories a user may watch."""
    watch_share: float = 0.75
    """How much of that is taken: editors watch too."""
    watches_taken: int = 0
    """How many watches others have taken of it already."""
    most_dirty_paths: int = 200_000
    """With more changed paths than this, looking at everything is no slower."""
    most_watchfiles_paths: int = 4000
    """With more paths in one round of watchfiles some may have been lost."""
    cookie_timeout_s: float = 2.0
    """How long to wait until watchfiles reports a change of our own."""


DEFAULT_LIMITS = Limits()
