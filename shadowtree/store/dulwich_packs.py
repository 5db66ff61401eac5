"""dulwich's packs over ours, and the list of what is in a pack that comes in.

As it comes, dulwich maps packs into memory, where a file that is cut short kills the process, and checks no
hash. Here each entry is read by itself, and what it comes to is hashed by `Objects`. Private names of dulwich
are used here, and a few in `repo`; the tests fail when a release changes what is relied upon.
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
"""How many bytes are kept of each pack of what deltas are made of; dulwich would keep 96 MiB."""
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
"""What dulwich raises when a pack is not what was written."""


class Pack(Protocol):
    """A pack of ours, as far as it is needed here."""

    path: str
    size: int
    count: int
    index: bytes

    def find(self, object_id: bytes) -> int | None:
        """Return where an object is."""

    def ids(self) -> list[bytes]:
        """Return the id of every object."""

    def entries(self) -> list[PackEntry]:
        """Return id, offset and CRC of every entry."""

    def pread(self, offset: int, size: int) -> bytes:
        """Return the bytes at a place, as many as there are."""


class Indexed(Protocol):
    """What is in a pack that came in."""

    def __iter__(self) -> Iterator[PackIndexEntry]:
        """Return id, offset and CRC of every entry."""

    def ext_refs(self) -> Iterable[RawObjectID]:
        """Return the ids of what deltas are made of and is not in the pack."""


class DulwichPack(BasePack):
    """A pack of dulwich that reads through one of ours, which has the file."""

    def __init__(self, pack: Pack) -> None:
        super().__init__(pack.path.removesuffix(".pack"), object_format=SHA1)
        # Not by `from_objects`, which gives up a pack that is damaged anywhere.
        self._data, self._idx = _Data(pack), _Index(pack)
        self._data_load = self._idx_load = None

    def read_at(self, offset: int) -> tuple[bytes, bytes]:
        """Return the kind and the content of the object at a place; StoreDamaged if it cannot be read."""
        try:
            kind_number, chunks = self.resolve_object(offset, *self.data.get_object_at(offset))
            return KIND_NAMES[kind_number], b"".join(chunks)  # type: ignore[arg-type]  # no deltas are left
        except _ERRORS as error:
            raise StoreDamaged(f"{self._data_path} has no complete object at {offset}") from error

    def keep(self, msg: bytes | None = None) -> str:
        """Refuse to say something else of whose the pack is."""
        raise InvalidInput(f"{self._data_path} is already kept; Shadow.gc removes it when nothing needs it")

    def unkeep(self) -> bool:
        """Refuse to leave the pack to `git gc`."""
        return bool(self.keep())

    def close(self) -> None:
        """Leave the file to the pack that has it."""

    def __del__(self) -> None:
        """Hold nothing that has to be closed."""


class Indexer(PackIndexer):
    """Lists the entries of a pack that comes in, and refuses trees that nobody could walk."""

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
        # Not by that of dulwich, which maps the file.
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
        """Read all of it, for who goes through a whole pack."""
        return self._pack.pread(0, self._pack.size)

    def get_unpacked_object_at(self, offset: int, *, include_comp: bool = False) -> UnpackedObject:
        raw = self._pack.pread(offset, _FIRST_READ)
        head = parse_entry_head(raw[:64], offset, self._pack.path)
        # Deflating adds a thousandth at most, and dulwich wants to see a byte more.
        bound = head.start - offset + head.size + head.size // 512 + 128
        if bound > len(raw):
            raw = self._pack.pread(offset, min(bound, self._pack.size - offset))
        unpacked, _ = unpack_object_at(raw, 0, SHA1.hash_func, include_comp=include_comp)
        unpacked.offset = offset
        return unpacked

    def close(self) -> None:
        """Leave the file to the pack that has it."""


class _Index(PackIndex):
    """The index of a pack, as dulwich asks for it."""

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
        """Hold no file."""
