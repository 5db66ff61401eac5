"""Limits, thresholds and clocks that tests can replace; in production the defaults apply.

They are not settings: only a test has a reason to change them. They are given to `Shadow` and passed down,
so that no test has to patch a module.
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
    """With this many journaled packs, a command merges the smallest..."""
    merged_bytes: int = 128 << 10
    """...into one of at most this many bytes, which takes a few milliseconds."""
    much_bytes: int = 512 << 10
    """If all journaled packs have more bytes than this, records move the oldest out of the timeline..."""
    slice_records: int = 5
    """...at every n-th record, where n is this number..."""
    most_bytes: int = 2 << 20
    """...or at every record if they have more bytes than this..."""
    drained_weight: int = 384 << 10
    """...until the weight of the packs moved (see `repack.weigh`) exceeds this..."""
    drain_s: float = 0.002
    """...and make deltas for at most this long."""
    close_s: float = 0.1
    """How long a host repacks when it closes a store."""
    bytes_a_second: int = 40 << 20
    """The estimated speed at which packs are rewritten."""
    idle_bytes: int = 64 << 10
    """In idle time, fresh packs are repacked if they have more bytes than this..."""
    idle_part: int = 96
    """...and more than the bytes of all other packs divided by this."""
    part_bytes: int = 2 << 20
    """The smallest size that parts are made for."""
    worth_part: int = 64
    """A part is rewritten when the bytes waiting for it are at least its weight divided by this."""
    job_objects: int = 500
    """How many objects one job adds to a part at most: about 50 ms of work."""
    spared_part: int = 20
    """A part is left alone if its garbage is at most its size divided by this."""
    grace_s: int = 14 * 24 * 3600
    """How long objects that were written through `Shadow.repo`, or by git, are kept without a ref."""


@frozen
class Limits:
    """All limits and clocks of a shadow."""

    clock_ns: Callable[[], int] = time_ns
    """Returns the time in nanoseconds since the epoch."""
    file_clock_ns: Callable[[], int] = time_ns
    """Returns the time by the clock that file times are compared with."""
    sleep: Callable[[float], None] = sleep
    """Sleeps for a number of seconds."""
    boot_id: str | None = None
    """The id of the machine's present boot; None: ask the system."""
    unwritten_bytes: int | None = None
    """How many bytes wait to be written to the disks of this machine; None: ask the system."""
    packs: PackLimits = PackLimits()
    """When packs are journaled, merged and repacked."""
    timeline_free_bytes: int = 128 << 10
    """The timeline is compacted when more bytes than this are free in it."""
    sweep_hold_s: float = 0.25
    """About how long a sweep, or tidying in idle time, holds the lock before it releases it for others."""
    sweep_pause_s: float = 0.06
    """How long it then waits: longer than another process waits between two attempts to take the lock."""
    diff_bytes: int = 256 << 20
    """How many bytes of changed files a diff reads; files beyond that are only reported as changed."""
    watch_limit_file: str = "/proc/sys/fs/inotify/max_user_watches"
    """The file in which Linux says how many directories a user may watch."""
    watch_share: float = 0.75
    """The share of these that shadowtree may use: editors watch directories too."""
    watches_taken: int = 0
    """How many of this share other watchers use already."""
    most_dirty_paths: int = 200_000
    """With more changed paths than this, a full scan is no slower."""
    most_watchfiles_paths: int = 4000
    """If watchfiles reports more paths than this at once, some may have been lost."""
    cookie_timeout_s: float = 2.0
    """How long to wait for watchfiles to report a change that shadowtree made itself."""


DEFAULT_LIMITS = Limits()
MOST_STAMPED = 1000
"""At most this many uncovered files are stamped, so that a directory of logs does not slow down a message."""
