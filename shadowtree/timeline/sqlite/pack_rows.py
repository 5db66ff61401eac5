"""The packs of a timeline that still need work, one row each.

    journaled   its bytes are in the row; its files are written again whenever they are not whole
    placing     complete and durable under a temporary name; it has to be renamed
    fresh       it has its name; the versions that its objects replaced are noted until it is repacked
    removing    everything in it is durable elsewhere; its files have to be removed

A pack without a row is settled.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from shadowtree.base.frozen import frozen
from shadowtree.store.git_format import PackBytes
from shadowtree.store.packs.pack_writer import PackFile
from shadowtree.system.disk import TEMPORARY_PREFIX
from shadowtree.timeline.sqlite.database import Database
from shadowtree.timeline.sqlite.schema import PACKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

JOURNALED = "journaled"
PLACING = "placing"
FRESH = "fresh"
REMOVING = "removing"

ROWS = (
    "SELECT number, name, state, CAST(boot AS BLOB), temporary, length(pack), length(pack_index) FROM packs"
)
_NAME = re.compile(r"pack-[0-9a-f]{40}")
_TEMPORARY = re.compile(re.escape(TEMPORARY_PREFIX) + r"[0-9a-f-]+")

Versions = Sequence[tuple[bytes, bytes]]
"""Of objects that replaced older versions: the new id and the old id."""


@frozen
class PackRow:
    """A pack that still needs work, without its bytes."""

    number: int
    name: str
    state: str
    boot: str
    """The boot of the machine in which its files were known to be whole; may be empty."""
    temporary: str | None
    pack_size: int
    index_size: int

    @property
    def file(self) -> PackFile:
        """The pack under its temporary name, while it is placed."""
        return PackFile(self.name, self.temporary or "")


class PackRows:
    """The packs of one timeline that still need work."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def rows(self, *states: str) -> list[PackRow]:
        """Return the packs in these states, or in any if none is given, oldest first."""
        wanted = f"WHERE state IN ({', '.join('?' * len(states))})" if states else ""
        return self._db.read(decode_row, f"{ROWS} {wanted} ORDER BY number", *states)

    def count(self) -> int:
        """Return how many packs are journaled."""
        ((count,),) = self._db.rows("SELECT count(*) FROM packs WHERE state = ?", JOURNALED)
        return int(count)

    def journaled_bytes(self) -> int:
        """Return how many bytes the journaled packs have, without their indexes."""
        ((total,),) = self._db.rows("SELECT total(length(pack)) FROM packs WHERE state = ?", JOURNALED)
        return int(total)

    def read(self, row: PackRow) -> PackBytes | None:
        """Read a journaled pack; return None if another process just merged it, or if its row is damaged."""
        select = "SELECT CAST(pack AS BLOB), CAST(pack_index AS BLOB) FROM packs WHERE number = ?"
        for pack, index in self._db.rows(select, row.number):
            content = PackBytes(row.name, pack or b"", index or b"")
            return content if content.is_whole() else None
        return None

    def read_all(self) -> Iterator[PackBytes]:
        """Read the journaled packs one by one, newest first."""
        found = (self.read(row) for row in reversed(self.rows(JOURNALED)))
        return (content for content in found if content is not None)

    def versions(self, names: Collection[str] | None = None) -> dict[str, list[tuple[bytes, bytes]]]:
        """Return which objects replaced which, by pack, oldest first; for all packs that stay, or `names`."""
        wanted = "" if names is None else f"AND name IN ({', '.join('?' * len(names))})"
        select = f"SELECT name, versions FROM packs WHERE state <> ? {wanted} ORDER BY number"
        return dict(self._db.read(decode_versions, select, REMOVING, *(names or ())))

    # Within a transaction

    def add_journaled(self, content: PackBytes, boot: str, versions: Versions) -> int:
        """Journal a pack: its objects are durable with this transaction, even if its files are lost."""
        self._forget(content.name)
        pairs = encode_versions(versions)
        return self._db.add(PACKS, content.name, JOURNALED, boot, None, pairs, content.pack, content.index)

    def add_placing(self, file: PackFile, boot: str, versions: Versions) -> int:
        """Note that a pack has to be renamed; from this transaction on, recovery makes sure of it."""
        self._forget(file.name)
        return self._db.add(PACKS, file.name, PLACING, boot, file.temporary, encode_versions(versions))

    def mark_removing(self, names: Iterable[str], boot: str) -> None:
        """Note that packs have to be removed: everything needed of them is durable elsewhere."""
        for name in names:
            self._forget(name)
            self._db.add(PACKS, name, REMOVING, boot, None, b"")

    def _forget(self, name: str) -> None:
        """Remove the row of a pack that is added again, with exactly the same objects.

        It may have been about to be removed, or fresh, and a repack produced the same pack again.
        """
        self._db.execute("DELETE FROM packs WHERE name = ?", name)

    # After a power cut, other rows of finished work are only processed again

    def note_boot(self, boot: str) -> None:
        """Note that the files of every journaled pack are whole in this boot."""
        self._db.forget(("UPDATE packs SET boot = ?", (boot,)))

    def settle(self, placed: Collection[int], removed: Collection[int]) -> None:
        """Note that packs, by the numbers of their rows, were placed, and durably that others were removed.

        If the row of a removed pack came back, so would its removal: meanwhile, `Shadow.repo` may have
        written the same pack again.
        """
        changes: list[tuple[str, Sequence[object]]] = [
            *(("UPDATE packs SET state = ?, temporary = NULL WHERE number = ?", (FRESH, n)) for n in placed),
            ("DELETE FROM packs WHERE state = ? AND versions = x''", (FRESH,)),
            *(("DELETE FROM packs WHERE number = ?", (number,)) for number in removed),
        ]
        if not removed:
            self._db.forget(*changes)
            return
        with self._db.transaction():
            for statement, values in changes:
                self._db.rows(statement, *values)

    def drop(self, names: Iterable[str]) -> None:
        """Remove the rows of packs whose files are durable."""
        self._db.forget(*(("DELETE FROM packs WHERE name = ?", (name,)) for name in names))


def decode_row(row: Any) -> PackRow:  # Any: a row of SQLite
    """Decode a row of `ROWS`."""
    number, name, state, boot, temporary, pack_size, index_size = row
    if state not in (JOURNALED, PLACING, FRESH, REMOVING):
        raise ValueError(state)
    if state == PLACING and not _TEMPORARY.fullmatch(temporary):
        raise ValueError(temporary)
    # A damaged boot only causes the files to be compared and the boot to be written again.
    boot = boot.decode(errors="replace")
    return PackRow(number, require_name(name), state, boot, temporary, pack_size or 0, index_size or 0)


def require_name(name: Any) -> str:  # Any: a column of SQLite
    """Return a name by which files may be written or removed; raise ValueError if no pack has such a name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(name)
    return name


def encode_versions(versions: Versions) -> bytes:
    """Encode which objects replaced which: pairs of ids of 20 bytes, the new one first."""
    return b"".join([new + old for new, old in versions])


def decode_versions(row: Any) -> tuple[str, list[tuple[bytes, bytes]]]:  # Any: a row of SQLite
    """Decode the name of a pack, and which of its objects replaced which."""
    name, pairs = row
    if len(pairs) % 40:
        raise ValueError("versions are pairs of ids")
    ids = [pairs[at : at + 20] for at in range(0, len(pairs), 20)]
    return require_name(name), list(zip(ids[::2], ids[1::2], strict=True))
