"""The limits on a whole snapshot: free disk space (`min_free`), files (`max_files`), bytes (`max_bytes`).

The limit on one file, `max_file_size`, is a rule of coverage: see `list_directory`.
"""

from __future__ import annotations

from shadowtree.base.errors import OutOfSpace, WorktreeTooBig
from shadowtree.base.frozen import replace
from shadowtree.capture.scan import Scan
from shadowtree.config.settings import Settings
from shadowtree.system import disk
from shadowtree.system.syscalls import free_bytes


def require_size_within_limits(worktree: str, scan: Scan, settings: Settings) -> None:
    """Raise WorktreeTooBig if a first snapshot has more files or bytes than the settings allow."""
    if scan.files > settings.max_files:
        raise WorktreeTooBig(worktree, setting="max_files", found=scan.files, limit=settings.max_files)
    if scan.bytes > settings.max_bytes:
        raise WorktreeTooBig(worktree, setting="max_bytes", found=scan.bytes, limit=settings.max_bytes)


def require_free_space(directory: str, needed: int, *, min_free: int, is_first: bool = False) -> None:
    """Raise OutOfSpace if writing `needed` bytes would leave less than `min_free` on a disk.

    `is_first`: the store does not exist yet.
    """
    with disk.store_errors(directory):
        free = free_bytes(directory)
    if free - needed < min_free:
        raise OutOfSpace(directory, free=free, needed=needed, min_free=min_free, is_first=is_first)


def without_reserve(settings: Settings) -> Settings:
    """Return the settings without `min_free`, for a record that may use that reserve."""
    return replace(settings, min_free=0)
