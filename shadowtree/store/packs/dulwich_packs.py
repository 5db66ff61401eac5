"""dulwich's packs on top of ours, and the indexer of packs that are received.

By default, dulwich maps packs into memory, so that a truncated file kills the process, and checks no hashes.
Here each entry is read separately, and `Objects` checks the hash of the result. Private names of dulwich are
used here, and a few in `repo`; the tests fail if a release changes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import error as StructError
from typing import Protocol

from dulwich.errors import ApplyDeltaError, ObjectFormatException
from dulwich.object_format import SHA1
from dulwich.objects import ObjectID, RawObjectID
from dulwich.pack import (
    Pack as BasePack,
)
from dulwich.pack import (
    PackData,
    PackIndex,
    PackIndexEntry,
    PackIndexer,
    UnpackedObject,
    UnresolvedDeltas,
    unpack_object_at,
)

from shadowtree.base.errors import InvalidInput, StoreDamaged
from shadowtree.store.git_format import KIND_NAMES, KIND_NUMBERS, PackEntry, list_tree, parse_entry_head

_FIRST_READ = 4096
"""Most entries have fewer bytes than this."""
_REMEMBERED_BYTES = 4 << 20
"""How many bytes of delta bases are cached for each pack; dulwich would cache 96 MiB."""
_ERRORS = (
    ApplyDeltaError,
    AssertionError,
    IndexError,
    KeyError,
    OverflowError,
    StructError,
    TypeError,
    UnresolvedDeltas,
    ValueError,
    zlib.error,
)
"""The errors that dulwich raises for a damaged pack."""


class Pack(Protocol):
    """The attributes of our packs that are needed here."""

    path: str
    size: int
    count: int
    index: bytes

    def find(self, object_id: bytes) -> int | None:
        """Return the offset of an object."""

    def ids(self) -> list[bytes]:
        """Return the id of every object."""

    def entries(self) -> list[PackEntry]:
        """Return id, offset and CRC of every entry."""

    def pread(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at an offset."""


class Indexed(Protocol):
    """The index of a pack that was received."""

    def __iter__(self) -> Iterator[PackIndexEntry]:
        """Return id, offset and CRC of every entry."""

    def ext_refs(self) -> Iterable[RawObjectID]:
        """Return the ids of the delta bases that are not in the pack."""


class DulwichPack(BasePack):
    """A pack of dulwich that reads through one of our packs, which owns the file."""

    def __init__(self, pack: Pack) -> None:
        super().__init__(pack.path.removesuffix(".pack"), object_format=SHA1)
        # Not by `from_objects`, which rejects a pack with any damage.
        self._data, self._idx = _Data(pack), _Index(pack)
        self._data_load = self._idx_load = None

    def read_at(self, offset: int) -> tuple[bytes, bytes]:
        """Return kind and content of the object at an offset; raise StoreDamaged if it cannot be read."""
        try:
            kind_number, chunks = self.resolve_object(offset, *self.data.get_object_at(offset))
            return KIND_NAMES[kind_number], b"".join(chunks)  # type: ignore[arg-type]  # no deltas are left
        except _ERRORS as error:
            raise StoreDamaged(f"{self._data_path} has no complete object at {offset}") from error

    def keep(self, msg: bytes | None = None) -> str:
        """Refuse to change the `.keep`, which shows who wrote the pack."""
        raise InvalidInput(f"{self._data_path} is already kept; Shadow.gc removes it when nothing needs it")

    def unkeep(self) -> bool:
        """Refuse to remove the `.keep`, which protects the pack from `git gc`."""
        return bool(self.keep())

    def close(self) -> None:
        """Do nothing: our pack owns the file."""

    def __del__(self) -> None:
        """Do nothing: there is nothing to close."""


class Indexer(PackIndexer):
    """Lists the entries of a pack that is received, and refuses trees that are malformed."""

    def _result(self, unpacked: UnpackedObject) -> PackIndexEntry:
        if unpacked.obj_type_num == KIND_NUMBERS[b"tree"]:
            try:
                list_tree(b"".join(unpacked.obj_chunks or ()), "in a pack")
            except StoreDamaged as error:
                raise ObjectFormatException(f"{unpacked.sha().hex()} is not a tree") from error
        return super()._result(unpacked)


class _Data(PackData):
    """The content of a pack, read entry by entry and never mapped."""

    def __init__(self, pack: Pack) -> None:
        # The method of the base class is not called, because it maps the file.
        self._pack = pack
        self._filename = pack.path
        self.object_format = SHA1
        self._header_size = 12
        self._size = pack.size
        self._num_objects = pack.count
        self._file = None  # type: ignore[assignment]  # as after `close`: there is nothing to be closed
        self._contents = None
        self.delta_window_size = self.window_memory = self.delta_cache_size = self.depth = None
        self.threads = self.big_file_threshold = self.delta_base_cache_limit = None
        self._init_offset_cache(_REMEMBERED_BYTES)

    def _buffer(self) -> bytes:
        """Read all of it, for code that goes through a whole pack."""
        return self._pack.pread(0, self._pack.size)

    def get_unpacked_object_at(self, offset: int, *, include_comp: bool = False) -> UnpackedObject:
        raw = self._pack.pread(offset, _FIRST_READ)
        head = parse_entry_head(raw[:64], offset, self._pack.path)
        # Deflating adds a thousandth at most, and dulwich needs one byte more.
        bound = head.start - offset + head.size + head.size // 512 + 128
        if bound > len(raw):
            raw = self._pack.pread(offset, min(bound, self._pack.size - offset))
        unpacked, _ = unpack_object_at(raw, 0, SHA1.hash_func, include_comp=include_comp)
        unpacked.offset = offset
        return unpacked

    def close(self) -> None:
        """Do nothing: our pack owns the file."""


class _Index(PackIndex):
    """The index of a pack, as dulwich expects it."""

    object_format = SHA1

    def __init__(self, pack: Pack) -> None:
        self._pack = pack

    def __len__(self) -> int:
        return self._pack.count

    def object_offset(self, sha: ObjectID | RawObjectID) -> int:
        offset = self._pack.find(sha if len(sha) == 20 else bytes.fromhex(sha.decode("ascii")))
        if offset is None:
            raise KeyError(sha)
        return offset

    def _itersha(self) -> Iterator[bytes]:
        return iter(self._pack.ids())

    def iterentries(self) -> Iterator[PackIndexEntry]:
        return ((RawObjectID(id), offset, crc) for id, offset, crc in sorted(self._pack.entries()))

    def get_pack_checksum(self) -> bytes:
        return self._pack.index[-40:-20]

    def close(self) -> None:
        """Do nothing: there is no file."""
