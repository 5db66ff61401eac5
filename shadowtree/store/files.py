"""The files of a store: which of them belong there, and who can read or write them.

Only names, owners and modes are read, and only `open_up` changes something: modes.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress

from shadowtree.base.errors import StoreFailed
from shadowtree.base.frozen import frozen, replace
from shadowtree.store.directory import HEAD_REF
from shadowtree.store.git_format import INDEX_SUFFIX, PACK_SUFFIX
from shadowtree.system import disk

_NAMED = 10
"""How many names an error lists."""

INCOMING_S = 24 * 3600
"""A received pack that nobody wrote to for this long was left by a process that died."""
QUARANTINE = "quarantine"
"""Where a repair keeps the files that it changed or removed; its contents are not checked."""

_OURS = r"shadowtree\.json|lock|(timeline|cache)\.db(-wal|-shm|-journal)?|config|HEAD|refs/heads/shadowtree"
_WRITTEN = re.compile(_OURS)
_PACKS = r"objects/pack/pack-[0-9a-f]{40}\.(pack|idx|keep)"
_LOOSE = r"objects/[0-9a-f]{2}/[0-9a-f]{38}"
_OF_GIT = (
    r"objects/pack/pack-[0-9a-f]{40}\.(rev|bitmap|mtimes|promisor)|objects/pack/multi-pack-index.*"
    r"|objects/info/.*|info/.*|logs/.*|refs/.*|hooks/.*|branches/.*|packed-refs|description|gc\.(log|pid).*"
    r"|[A-Z_]+HEAD|index|shallow|worktrees/.*|config\.worktree"
)
_KNOWN = re.compile(f"(?:{_OURS}|{_PACKS}|{_LOOSE}|{_OF_GIT})", re.DOTALL)
_DERIVED = re.compile(
    r"objects/pack/pack-[0-9a-f]{40}\.(rev|bitmap|mtimes)|objects/pack/multi-pack-index"
    r"|objects/info/commit-graph|objects/info/commit-graphs/.*\.graph"
)
_OF_COMMITS = re.compile(
    r"logs/.*|refs/.*|packed-refs|info/refs|gc\.(log|pid).*|[A-Z_]+HEAD|index|worktrees/.*", re.DOTALL
)
_PACK_DIRECTORY = "objects/pack"
_GIT_TEMPORARY = re.compile(r"objects/(pack/|[0-9a-f]{2}/)?\.?tmp_.*|.*\.lock", re.DOTALL)


@frozen
class StoreFile:
    """One file or directory of a store."""

    name: str
    """Its path in the store."""
    mode: int
    owner: int
    written_s: float
    """When it was last written to, in seconds since the epoch."""
    is_closed: bool = False
    """Whether its mode keeps this process from reading it."""

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def wanted_mode(self) -> int:
        """The permission bits that it should have."""
        return 0o700 if self.is_directory else 0o600

    @property
    def is_usable(self) -> bool:
        """Whether its mode lets its owner read it and, if it is a directory or a file of ours, write it."""
        is_written = self.is_directory or _WRITTEN.fullmatch(self.name)
        needed = self.wanted_mode if is_written else 0o400
        return self.mode & needed == needed

    @property
    def is_private(self) -> bool:
        """Whether its owner can use it, and nobody else has any permission."""
        return not self.mode & 0o077 and self.is_usable

    @property
    def is_of_others(self) -> bool:
        """Whether another user owns it."""
        return self.owner != os.geteuid()

    @property
    def is_plain(self) -> bool:
        """Whether it is a file or a directory, as everything in a store should be."""
        return stat.S_ISREG(self.mode) or self.is_directory

    @property
    def is_temporary(self) -> bool:
        """Whether it is a temporary file. If no process is writing to the store, one that died left it."""
        base = os.path.basename(self.name)
        return not self.is_directory and (
            base.startswith(disk.TEMPORARY_PREFIX) or bool(_GIT_TEMPORARY.fullmatch(self.name))
        )

    def is_left_behind(self, now_s: float) -> bool:
        """Return whether it is a temporary file of a process that died, if nobody else holds the lock.

        Packs are received without the lock: such a file counts as live until it is old.
        """
        is_received = os.path.basename(self.name).startswith("tmp_")
        return self.is_temporary and not (is_received and self.written_s > now_s - INCOMING_S)

    @property
    def is_known(self) -> bool:
        """Whether shadowtree or git has files of this name in a store; always True for a directory."""
        return self.is_directory or bool(_KNOWN.fullmatch(self.name))

    @property
    def is_of_commits(self) -> bool:
        """Whether git records commits in it, such as a ref or a reflog; a store works without it."""
        return bool(_OF_COMMITS.fullmatch(self.name)) and self.name != HEAD_REF

    @property
    def pack(self) -> str | None:
        """The name of the pack, without suffix; None if the file is not a pack."""
        directory, base = os.path.split(self.name)
        return (
            base.removesuffix(PACK_SUFFIX)
            if directory == _PACK_DIRECTORY and base.endswith(PACK_SUFFIX)
            else None
        )

    @property
    def is_derived(self) -> bool:
        """Whether git made it from packs, and can do without it; such files end with a checksum."""
        return bool(_DERIVED.fullmatch(self.name))


def list_files(store: str, *, passes_closed: bool = False) -> Iterator[StoreFile]:
    """Yield everything in a store, and the store itself first; the contents of the quarantine are left out.

    A directory is read after it was yielded, so the caller can make it accessible first. If it cannot be
    read, StoreFailed is raised; with `passes_closed`, a directory that `is_closed` is skipped instead.
    """
    with disk.store_errors(store):
        pending = [_look(store, "")]
        yield pending[0]
        while pending:
            directory = pending.pop()
            try:
                found = _list_directory(store, directory.name)
            except PermissionError:
                if not (passes_closed and directory.is_closed):
                    raise
                continue
            for file in found:
                yield file
                if file.is_directory and file.name != QUARANTINE:
                    pending.append(file)


def _list_directory(store: str, directory: str) -> list[StoreFile]:
    found = []
    for name in sorted(os.listdir(os.path.join(store, directory))):
        # Another process may remove files meanwhile.
        with suppress(FileNotFoundError):
            found.append(_look(store, os.path.join(directory, name)))
    return found


def find_lone_indexes(store: str, files: list[StoreFile]) -> list[StoreFile]:
    """List the indexes that have no pack: a process died while it added or removed the pack."""
    return [
        file
        for file in files
        if file.name.startswith("objects/pack/pack-")
        and file.name.endswith(INDEX_SUFFIX)
        and not os.path.lexists(os.path.join(store, file.name.removesuffix(INDEX_SUFFIX) + PACK_SUFFIX))
    ]


def _look(store: str, name: str) -> StoreFile:
    path = os.path.join(store, name)
    status = os.lstat(path)
    found = StoreFile(name, status.st_mode, status.st_uid, status.st_mtime)
    if found.is_usable or not found.is_plain:
        return found
    needed = os.R_OK | os.X_OK if found.is_directory else os.R_OK
    return replace(found, is_closed=not os.access(path, needed))


def refuse_foreign(store: str) -> None:
    """Raise StoreFailed if a store, which is to be removed, contains files that do not belong there."""
    foreign = [
        file.name
        for file in list_files(store)
        if not file.is_plain or not (file.is_known or file.is_temporary)
    ]
    if foreign:
        more = f" and {len(foreign) - _NAMED} more" if len(foreign) > _NAMED else ""
        named = ", ".join(foreign[:_NAMED])
        raise StoreFailed(
            store, f"it contains files that are not shadowtree's: {named}{more}; nothing was removed"
        )


def open_up(store: str) -> Iterator[str]:
    """Repair the modes of a store so that its owner can use all of it; yield a sentence for each change."""
    for file in list_files(store, passes_closed=True):
        if file.is_plain and not file.is_usable and not file.is_of_others:
            disk.set_mode(os.path.join(store, file.name), file.wanted_mode)
            yield f"mode of {file.name or 'the store'} set to {file.wanted_mode:o}"
