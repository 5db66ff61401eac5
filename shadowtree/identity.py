"""Whose a store is: the directory that it belongs to, as `shadowtree.json` in it says.

    {
     "format": 1,
     "worktree": "/home/ann/project",
     "inode": 1234,
     "generation": 5678,
     "check": "9ae0daaf"          of all before the comma; files of older stores have none
    }

A bit that flipped must not make a store another's: so the file bears a checksum. Should it be lost all the
same, the directory is noted a second time, in the store's git configuration, where git passes over it:

    [shadowtree]
        directory = INODE GENERATION
"""

from __future__ import annotations

import os
from binascii import crc32

from shadowtree import disk
from shadowtree.errors import StoreDamaged, StoreTooNew, WorktreeFailed, describe
from shadowtree.frozen import frozen
from shadowtree.layout import FORMAT, StoreLayout
from shadowtree.system import directory_generation

_NONE = -1
_CHECK = b',\n "check": "'
_END = b'"\n}\n'


@frozen
class Identity:
    """Which directory a store belongs to. Device numbers change between boots and are no part of it."""

    worktree: str
    inode: int
    generation: int | None
    """Tells two directories apart that got the same inode number one after the other."""

    def is_same_directory(self, other: Identity) -> bool:
        """Tell whether both are the same directory, wherever it is now."""
        same_generation = None in (self.generation, other.generation) or self.generation == other.generation
        return self.inode == other.inode and same_generation


def identify(worktree: str) -> Identity:
    """Look at the directory that is at this path now."""
    try:
        inode = os.stat(worktree).st_ino
    except OSError as error:
        raise WorktreeFailed(worktree, describe(error)) from error
    return Identity(worktree, inode, directory_generation(worktree))


def read_identity(store: str) -> Identity:
    """Read which directory a store belongs to."""
    path = StoreLayout(store).identity
    content = disk.read_if_there(path)
    if content is None:
        raise StoreDamaged(f"{path} is missing")
    body, mark, end = content.rpartition(_CHECK)
    if mark and end.rstrip(b"\n") != _checksum(body) + _END.rstrip(b"\n"):
        raise StoreDamaged(f"{path} is not what was written")
    try:
        return _parse(store, content)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreDamaged(f"{path} cannot be read") from error


def _parse(store: str, content: bytes) -> Identity:
    import json

    values = json.loads(content)
    version = values.pop("format")
    if version > FORMAT:
        raise StoreTooNew(store, version, FORMAT)
    values.pop("check", None)
    return Identity(**values)


def encode_identity(identity: Identity) -> bytes:
    """Write what `read_identity` reads."""
    generation = "null" if identity.generation is None else identity.generation
    text = (
        f'{{\n "format": {FORMAT},\n "worktree": {_quote(identity.worktree)},\n'
        f' "inode": {identity.inode},\n "generation": {generation}'
    )
    return _seal(text.encode())


def add_checksum(content: bytes) -> bytes:
    """Give a file of an older store, which can be read, its checksum; any other one is as it should be."""
    return content if has_checksum(content) else _seal(content.rstrip()[:-1].rstrip())


def has_checksum(content: bytes) -> bool:
    """Tell whether a file is none of an older store."""
    return _CHECK in content


def encode_note(identity: Identity) -> bytes:
    """Write for git's configuration which directory it is."""
    generation = _NONE if identity.generation is None else identity.generation
    return b"[shadowtree]\n\tdirectory = %d %d\n" % (identity.inode, generation)


def _seal(body: bytes) -> bytes:
    return body + _CHECK + _checksum(body) + _END


def _checksum(body: bytes) -> bytes:
    return b"%08x" % crc32(body)


def _quote(text: str) -> str:
    """Write text as JSON; what is plain, and that is nearly every path, needs no import for it."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    import json

    return json.dumps(text)
