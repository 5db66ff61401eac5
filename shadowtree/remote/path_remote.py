"""A remote at a path: a git repository on this machine or on a shared disk, used without a server.

No git binary is needed, and no hook of the repository runs. Objects are durable before a ref names them. Refs
are locked as git locks them, by a file next to each, and written by rename. A lock file that shadowtree wrote
and no process holds any more was left by a dead process, and is removed; other lock files are not touched.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha1
from typing import BinaryIO

from dulwich.config import ConfigFile
from dulwich.object_store import DiskObjectStore
from dulwich.objects import ObjectID, RawObjectID, hex_to_sha, sha_to_hex
from dulwich.refs import DiskRefsContainer, Ref

from shadowtree.base.errors import RemoteFailed, describe
from shadowtree.remote.thin_pack import ObjectSource, PackedObject, encode_entry
from shadowtree.store.git_format import (
    EMPTY_TREE,
    INDEX_SUFFIX,
    KIND_NAMES,
    PACK_SUFFIX,
    PackEntry,
    encode_pack_index,
    pack_header,
)

_MARK = b"shadowtree\n"


class PathSource:
    """The objects of a repository at a path."""

    def __init__(self, objects: DiskObjectStore) -> None:
        self._objects = objects

    def read(self, id: bytes) -> tuple[bytes, bytes]:
        """Return the kind and the content of an object."""
        if id == EMPTY_TREE:
            return b"tree", b""
        kind_number, content = self._objects.get_raw(RawObjectID(id))
        return KIND_NAMES[kind_number], content

    def has(self, id: bytes) -> bool:
        """Return whether an object is there."""
        return id == EMPTY_TREE or sha_to_hex(RawObjectID(id)) in self._objects

    def head_of(self, id: bytes) -> tuple[bytes, int]:
        """Return the kind of an object and its size."""
        kind, content = self.read(id)
        return kind, len(content)

    def stream_blob(self, id: bytes) -> Iterator[bytes]:
        """Yield the content of a blob."""
        yield self.read(id)[1]


class PathRemote:
    """A repository at a path."""

    def __init__(self, url: str, path: str) -> None:
        self._url = url
        self._directory = self._find(path)
        self._config = self._read_config()
        self.objects = DiskObjectStore(os.path.join(self._directory, "objects"))
        self.source = PathSource(self.objects)

    def close(self) -> None:
        """Close every file."""
        self.objects.close()

    def _find(self, path: str) -> str:
        for directory in (path, os.path.join(path, ".git")):
            if all(os.path.exists(os.path.join(directory, name)) for name in ("HEAD", "objects", "refs")):
                return directory
        raise RemoteFailed(self._url, "no git repository there")

    def _read_config(self) -> ConfigFile:
        try:
            config = ConfigFile.from_path(os.path.join(self._directory, "config"), expand_includes=False)
        except FileNotFoundError:
            return ConfigFile()
        except (OSError, ValueError) as error:
            raise RemoteFailed(self._url, "its configuration cannot be read") from error
        for name, known in ((b"objectformat", b"sha1"), (b"refstorage", b"files")):
            with suppress(KeyError):
                if config.get((b"extensions",), name).lower() != known:
                    raise RemoteFailed(self._url, f"a repository with {name.decode()} is not supported")
        return config

    def list_refs(self) -> dict[bytes, bytes]:
        """Return every ref and the id that it names."""
        refs = DiskRefsContainer(self._directory)
        packed, found = refs.get_packed_refs(), {}
        for name in refs.allkeys():
            with suppress(KeyError, ValueError):
                value = refs.read_loose_ref(name) or packed.get(name)
                if value and not value.startswith(b"ref:"):
                    found[bytes(name)] = bytes(hex_to_sha(ObjectID(value)))
        return found

    def is_checked_out(self, ref: bytes) -> bool:
        """Return whether a ref is the branch that is checked out in a working copy."""
        try:
            is_bare = self._config.get_boolean((b"core",), b"bare", False)
        except (KeyError, ValueError):
            is_bare = False
        if is_bare:
            return False
        try:
            with open(os.path.join(self._directory, "HEAD"), "rb") as file:
                return file.read(4096).strip() == b"ref: " + ref
        except OSError:
            return False

    def store(self, source: ObjectSource, objects: Sequence[PackedObject]) -> int:
        """Write objects as a pack, durably; return its size in bytes.

        A pack on disk must contain the bases of its deltas. The names of unfinished files begin with `tmp_`,
        so `git gc` removes what a killed process left.
        """
        if not objects:
            return 0
        ids = {object.id for object in objects}
        packs = os.path.join(self._directory, "objects", "pack")
        names = [os.path.join(packs, f"tmp_{kind}_{os.urandom(6).hex()}") for kind in ("pack", "idx")]
        entries: list[PackEntry] = []
        try:
            with _create(names[0]) as file:
                size, checksum = _write_pack(file, source, objects, ids, entries)
            with _create(names[1]) as file:
                file.write(encode_pack_index(sorted(entries), checksum))
            # The pack comes first: git ignores a pack without an index.
            for name, suffix in zip(names, (PACK_SUFFIX, INDEX_SUFFIX), strict=True):
                os.rename(name, os.path.join(packs, f"pack-{checksum.hex()}{suffix}"))
        except OSError:
            for name in names:
                with suppress(OSError):
                    os.unlink(name)
            raise
        _sync_directory(packs)
        return size

    def update(self, updates: Mapping[bytes, tuple[bytes | None, bytes | None]]) -> set[bytes]:
        """Change refs if all have their expected old values; return those that do not.

        Removals come last, and leave a ref that another process changes at the same time.
        """
        deleted = {ref for ref, (_, new) in updates.items() if new is None}
        with self._locked(updates.keys() - deleted):
            present = self.list_refs()
            changed = {ref for ref, (old, _) in updates.items() if present.get(ref) != old}
            if changed:
                return changed
            for ref, (_, new) in updates.items():
                if new is not None:
                    self._write(ref, new)
            self._sync_names(updates.keys() - deleted)
            refs = DiskRefsContainer(self._directory)
            for ref in sorted(deleted):
                old = updates[ref][0]
                if old is not None and not refs.remove_if_equals(Ref(ref), sha_to_hex(RawObjectID(old))):
                    changed.add(ref)
        return changed

    @contextmanager
    def _locked(self, refs: Iterable[bytes]) -> Iterator[None]:
        """Hold git's lock files of refs: hard links to one file, so that one descriptor is enough."""
        own, made = self._temporary(), []
        fd = os.open(own, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.write(fd, _MARK)
            fcntl.flock(fd, fcntl.LOCK_EX)
            for ref in sorted(refs):
                lock = os.path.join(os.fsencode(self._directory), ref) + b".lock"
                os.makedirs(os.path.dirname(lock), exist_ok=True)
                if os.path.lexists(lock):
                    _remove_stale(lock)
                try:
                    os.link(own, lock)
                except FileExistsError:
                    raise RemoteFailed(self._url, f"{ref.decode('utf-8', 'replace')} is locked") from None
                made.append(lock)
            yield
        except OSError as error:
            raise RemoteFailed(self._url, describe(error)) from error
        finally:
            for path in (*made, own):
                with suppress(FileNotFoundError):
                    os.unlink(path)
            os.close(fd)

    def _temporary(self) -> bytes:
        """Return the name of a new file that `git gc` removes if a killed process leaves it."""
        return os.path.join(
            os.fsencode(self._directory), b"objects", b"tmp_ref_" + os.urandom(6).hex().encode()
        )

    def _write(self, ref: bytes, new: bytes) -> None:
        path, temporary = os.path.join(os.fsencode(self._directory), ref), self._temporary()
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            os.write(fd, sha_to_hex(RawObjectID(new)) + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        # Refs that were below this name may have left an empty directory.
        with suppress(OSError):
            os.rmdir(path)
        os.rename(temporary, path)

    def _sync_names(self, refs: Iterable[bytes]) -> None:
        """Make the names of refs, and of the directories above them, durable."""
        above = {part for ref in refs for part in _directories(ref)}
        for directory in sorted(above, key=len, reverse=True):
            _sync_directory(os.path.join(self._directory, os.fsdecode(directory)))


def _directories(ref: bytes) -> Iterator[bytes]:
    while ref:
        ref = os.path.dirname(ref)
        yield ref


@contextmanager
def _create(path: str) -> Iterator[BinaryIO]:
    """Create a read-only file, as git's packs are, and make what the body writes durable."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    with open(fd, "wb") as file:
        yield file
        file.flush()
        os.fsync(fd)


def _write_pack(
    file: BinaryIO,
    source: ObjectSource,
    objects: Sequence[PackedObject],
    ids: set[bytes],
    entries: list[PackEntry],
) -> tuple[int, bytes]:
    """Write a pack and append its entries to `entries`; return its size and checksum."""
    head = pack_header(len(objects))
    digest, offset = sha1(head, usedforsecurity=False), file.write(head)
    for object in objects:
        crc, start = 0, offset
        base = object.base if object.base in ids else None
        for piece in encode_entry(source, PackedObject(object.id, object.kind, base)):
            crc = zlib.crc32(piece, crc)
            digest.update(piece)
            offset += file.write(piece)
        entries.append((object.id, start, crc))
    file.write(digest.digest())
    return offset + 20, digest.digest()


def _remove_stale(lock: bytes) -> None:
    """Remove a lock file that shadowtree wrote and no process holds any more."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if os.read(fd, len(_MARK) + 1) == _MARK:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(lock) and os.fstat(fd).st_ino == os.stat(lock).st_ino:
                os.unlink(lock)
    except (BlockingIOError, FileNotFoundError):
        return
    finally:
        os.close(fd)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
