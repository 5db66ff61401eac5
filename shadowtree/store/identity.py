"""The identity of a store: the directory that it belongs to, as `shadowtree.json` in the store says.

    {
     "format": 1,
     "worktree": "/home/ann/project",
     "inode": 1234,
     "generation": 5678,
     "check": "9ae0daaf"          the checksum of everything before the comma
    }

A directory that was moved keeps its inode and its generation. Its store is found again by these, if the move
can be proved. Where inodes are not stable, only the path counts.

The checksum prevents a flipped bit from making the store another directory's. In case the file is lost, the
directory is noted a second time, in the store's git configuration, where git ignores it:

    [shadowtree]
        directory = INODE GENERATION
        anchor = INODE GENERATION FILE-SYSTEM IS-MOUNT

The anchor is the directory above the worktree. It distinguishes a worktree that is gone from a volume that is
not mounted: an empty mount point and the top of the volume that was mounted there are different directories,
and a container has different directories under the same names.
"""

from __future__ import annotations

import os
from binascii import crc32
from collections.abc import Iterable, Iterator
from contextlib import suppress

from shadowtree.base.errors import (
    ShadowError,
    StoreDamaged,
    StoreTooNew,
    StoreTooOld,
    WorktreeFailed,
    describe,
)
from shadowtree.base.frozen import frozen
from shadowtree.system import disk
from shadowtree.system.syscalls import directory_generation, file_system_id

IDENTITY = "shadowtree.json"
"""The name of the identity file in a store."""
FORMAT = 1
"""The store format that this version writes."""

_ANCHOR = b"\tanchor = "
_NONE = -1
_CHECK = b',\n "check": "'
_END = b'"\n}\n'


@frozen
class Identity:
    """The directory that a store belongs to, without its device number, which changes between boots."""

    worktree: str
    inode: int
    generation: int | None
    """Distinguishes directories that had the same inode number one after the other; None if unknown."""

    def is_same_directory(self, other: Identity) -> bool:
        """Return whether both are the same directory, wherever it is now."""
        same_generation = None in (self.generation, other.generation) or self.generation == other.generation
        return self.inode == other.inode and same_generation

    def is_at(self, worktree: str) -> bool:
        """Return whether it is the directory at this path; True if inodes are not stable there."""
        # Imported here, because most commands do not need it.
        from shadowtree.system.mounts import has_stable_inodes

        return self.is_same_directory(identify(worktree)) or not has_stable_inodes(worktree)


def identify(worktree: str) -> Identity:
    """Return the identity of the directory that is at this path now."""
    try:
        inode = os.stat(worktree).st_ino
    except OSError as error:
        raise WorktreeFailed(worktree, describe(error)) from error
    return Identity(worktree, inode, directory_generation(worktree))


def read_identity(store: str) -> Identity:
    """Read the identity of a store."""
    path = f"{store}/{IDENTITY}"
    content = disk.read_if_there(path)
    if content is None:
        raise StoreDamaged(f"{path} is missing")
    body, mark, end = content.rpartition(_CHECK)
    if mark and end.rstrip(b"\n") != _checksum(body) + _END.rstrip(b"\n"):
        raise StoreDamaged(f"{path} does not match its checksum")
    try:
        found = _parse(store, content)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreDamaged(f"{path} cannot be read") from error
    if not mark:
        # Only a newer format, refused above, may have its checksum elsewhere.
        raise StoreDamaged(f"{path} has no checksum")
    return found


def refuse_newer_identity(store: str) -> None:
    """Raise StoreTooNew if the identity of a store names a newer format, even with a checksum that is wrong.

    A newer version may compute it in another way.
    """
    content = disk.read_if_there(f"{store}/{IDENTITY}") or b""
    with suppress(StoreTooOld, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        _parse(store, content)


def _parse(store: str, content: bytes) -> Identity:
    import json

    values = json.loads(content)
    version = values.pop("format")
    if version > FORMAT:
        raise StoreTooNew(store, version, FORMAT)
    check = values.pop("check", None)
    identity = Identity(**values)
    if check is None:
        raise StoreTooOld(store)
    return identity


def encode_identity(identity: Identity) -> bytes:
    """Encode an identity as `read_identity` reads it."""
    generation = "null" if identity.generation is None else identity.generation
    text = (
        f'{{\n "format": {FORMAT},\n "worktree": {_quote(identity.worktree)},\n'
        f' "inode": {identity.inode},\n "generation": {generation}'
    )
    body = text.encode()
    return body + _CHECK + _checksum(body) + _END


def encode_note(identity: Identity) -> bytes:
    """Encode the note on the directory for the store's git configuration."""
    generation = _NONE if identity.generation is None else identity.generation
    return b"[shadowtree]\n\tdirectory = %d %d\n" % (identity.inode, generation)


@frozen
class Anchor:
    """The directory above a worktree."""

    inode: int
    generation: int | None
    file_system: int | None
    is_mount: bool
    """Whether the worktree itself is a mount point, so that the directory above proves nothing."""

    def is_same_directory(self, other: Anchor) -> bool:
        """Return whether both are the same directory on the same volume; False if the volume is unknown."""
        return (self.inode, self.generation) == (other.inode, other.generation) and (
            self.file_system is not None and self.file_system == other.file_system
        )


def find_anchor(worktree: str) -> Anchor | None:
    """Return the directory above a path where a worktree is or was; None if it cannot be found."""
    # Imported here, because most commands do not need it.
    from shadowtree.system.mounts import is_mount_point

    above = os.path.dirname(worktree)
    try:
        inode = os.stat(above).st_ino
    except OSError:
        return None
    return Anchor(inode, directory_generation(above), file_system_id(above), is_mount_point(worktree))


def read_anchor(store: str) -> Anchor | None:
    """Read the anchor that is noted in a store; None if there is none."""
    # The last line counts, as in git.
    _, _, noted = disk.read_file(f"{store}/config").rpartition(_ANCHOR)
    try:
        inode, generation, file_system, is_mount = map(int, noted.partition(b"\n")[0].split())
    except ValueError:
        return None
    return Anchor(inode, _or_none(generation), _or_none(file_system), bool(is_mount))


def encode_anchor(worktree: str) -> bytes:
    """Encode the directory that is above a worktree now, as a line for the store's git configuration."""
    anchor = find_anchor(worktree)
    if anchor is None:
        return b""
    others = [_NONE if number is None else number for number in (anchor.generation, anchor.file_system)]
    return _ANCHOR + b"%d %d %d %d\n" % (anchor.inode, *others, anchor.is_mount)


# Directories that were moved


@frozen
class Moved:
    """The store of a directory that was moved, or may have been."""

    store: str
    worktree: str
    """Where the directory was."""
    doubt: str | None
    """Why the move cannot be proved; None if it is proved."""
    is_likely: bool
    """Whether the generation matches too, so that no other directory can have got the same inode."""


def find_moved(directory: str, stores: Iterable[str]) -> Moved | None:
    """Find the store that was made for this directory when it was elsewhere; None if there is none.

    If several stores match, return one of them, with a doubt.
    """
    from shadowtree.system.mounts import has_stable_inodes

    if not has_stable_inodes(directory):
        return None
    here = identify(directory)
    found = list(_list_same(here, stores))
    # A process may have died after it bound the store to this path, and before it moved the store.
    bound = [moved for moved in found if moved.worktree == directory]
    found = bound or found
    if len(found) > 1:
        why = f"the store {found[1].store} belongs to it too"
        return Moved(found[0].store, found[0].worktree, why, found[0].is_likely)
    return found[0] if found else None


def _list_same(here: Identity, stores: Iterable[str]) -> Iterator[Moved]:
    """Yield the stores that were made for a directory with this inode."""
    file_system, mark = file_system_id(here.worktree), b'"inode": %d,' % here.inode
    for store in stores:
        try:
            # There may be hundreds of stores, and hardly any of them has to be parsed.
            if mark not in (disk.read_if_there(f"{store}/{IDENTITY}") or b""):
                continue
            # A store that another user can write to proves nothing.
            disk.require_private(store)
            identity = read_identity(store)
            if not identity.is_same_directory(here):
                continue
            anchor = read_anchor(store)
        except ShadowError:
            continue
        is_elsewhere = anchor is not None and not anchor.is_mount and anchor.file_system != file_system
        if is_elsewhere and None not in (anchor and anchor.file_system, file_system):
            continue
        is_likely = None not in (identity.generation, here.generation)
        doubt = None if identity.worktree == here.worktree else _find_doubt(identity, here, anchor)
        yield Moved(store, identity.worktree, doubt, is_likely)


def _find_doubt(identity: Identity, here: Identity, anchor: Anchor | None) -> str | None:
    """Return why it cannot be proved that a directory was moved here; None if it can."""
    if None in (identity.generation, here.generation):
        return "its file system cannot tell it from a new directory"
    if anchor is None or anchor.is_mount or anchor.file_system is None:
        return "the volume it was on is unknown"
    if os.path.lexists(identity.worktree):
        return "something else is at its old path"
    above = find_anchor(identity.worktree)
    if above is None:
        return "the parent of its old path is gone"
    if not anchor.is_same_directory(above):
        return "the parent of its old path was replaced"
    return None


def _or_none(number: int) -> int | None:
    return None if number == _NONE else number


def _checksum(body: bytes) -> bytes:
    return b"%08x" % crc32(body)


def _quote(text: str) -> str:
    """Encode text as JSON, without importing `json` for plain text, which nearly every path is."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    import json

    return json.dumps(text)
