"""The packs of a timeline: journaled, announced, and fresh. Rows are removed when they are done with."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence

from shadowtree.base.frozen import frozen
from shadowtree.store.git_format import PackBytes
from shadowtree.timeline.database import Database
from shadowtree.timeline.schema import ANNOUNCED, FRESH, PACKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PACK_SIZES = "SELECT number, name, CAST(boot AS BLOB), length(pack), length(pack_index) FROM packs"
_HEX = set("0123456789abcdef")


@frozen
class PackRow:
    """A journaled pack, without its bytes."""

    number: int
    name: str
    boot: str
    """In which time between two starts of the machine its files were known to be whole; may be empty."""
    pack_size: int
    index_size: int


class PackRows:
    """The packs of one timeline."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def rows(self) -> list[PackRow]:
        """Give every journaled pack, oldest first."""
        return self._db.read(decode_pack, f"{PACK_SIZES} ORDER BY number")

    def count(self) -> int:
        """Tell how many packs are journaled."""
        return len(self._db.rows("SELECT 1 FROM packs"))

    def read(self, row: PackRow) -> PackBytes | None:
        """Read a journaled pack; None if another process has just merged it, or if its row is damaged."""
        select = "SELECT CAST(pack AS BLOB), CAST(pack_index AS BLOB) FROM packs WHERE number = ?"
        for pack, index in self._db.rows(select, row.number):
            content = PackBytes(row.name, pack, index)
            return content if content.is_whole() else None
        return None

    def read_all(self) -> Iterator[PackBytes]:
        """Read the journaled packs one by one, newest first."""
        found = (self.read(row) for row in reversed(self.rows()))
        return (content for content in found if content is not None)

    def add(self, content: PackBytes, boot: str) -> int:
        """Journal a pack: its objects are durable with this transaction, whatever becomes of its files."""
        return self._db.add(PACKS, content.name, boot, content.pack, content.index)

    def note_boot(self, boot: str) -> None:
        """Note that the files of every journaled pack are whole now."""
        self._db.forget(("UPDATE packs SET boot = ?", (boot,)))

    def announced(self) -> list[str]:
        """Name the packs that have files, and no record."""
        return self._db.read(decode_pack_name, "SELECT name FROM announced")

    def announce(self, name: str) -> None:
        """Say that a pack is about to have files, to be removed again if its record never comes."""
        self._db.add(ANNOUNCED, name)

    def confirm_announced(self) -> None:
        """Say once more which packs have files and no record, by a commit that changes nothing."""
        self._db.execute("UPDATE announced SET name = name")

    def forget_announced(self) -> None:
        """Forget the announced packs: they are recorded, in the same transaction, or gone."""
        self._db.execute("DELETE FROM announced")

    # Fresh packs

    def fresh(self) -> list[str]:
        """Name the packs whose objects are not on shelves yet, the oldest first."""
        return self._db.read(decode_pack_name, "SELECT name FROM fresh ORDER BY number")

    def versions(self) -> dict[bytes, bytes]:
        """Tell of the objects in fresh packs which one each came in place of."""
        found = self._db.read(decode_versions, "SELECT versions FROM fresh ORDER BY number")
        return dict(pair for pairs in found for pair in pairs)

    def add_fresh(self, name: str, versions: Collection[tuple[bytes, bytes]]) -> None:
        """Note that a pack is fresh, and which of its objects came in place of which."""
        self._db.add(FRESH, name, encode_versions(versions))

    def remove(
        self, names: Collection[str], merged: str | None = None, held: Container[bytes] | None = None
    ) -> None:
        """Forget packs whose objects are durable elsewhere, perhaps `merged` into one that is as fresh.

        If that one holds only some of them, `held` are those.
        """
        # Those that come back after a power cut get their files back, and are merged once more.
        marks = ", ".join("?" * len(names))
        select = f"SELECT versions FROM fresh WHERE name IN ({marks}) ORDER BY number"
        pairs = [
            pair
            for versions in self._db.read(decode_versions, select, *names)
            for pair in versions
            if held is None or pair[0] in held
        ]
        changes: list[tuple[str, Sequence[object]]] = [
            (f"DELETE FROM packs WHERE name IN ({marks})", [*names]),
            (f"DELETE FROM fresh WHERE name IN ({marks})", [*names]),
        ]
        if merged is not None:
            # At the end: which version is newer is told by the versions, and order only breaks ties.
            insert = "INSERT INTO fresh (name, versions) VALUES (?, ?)"
            changes.append((insert, [merged, encode_versions(pairs)]))
        self._db.forget(*changes)

    def drop_copies(self, names: Collection[str]) -> None:
        """Forget the bytes of journaled packs whose files are durable; they are as fresh as they were."""
        marks = ", ".join("?" * len(names))
        self._db.forget((f"DELETE FROM packs WHERE name IN ({marks})", [*names]))


def decode_pack(row: Any) -> PackRow:  # Any: a row of SQLite
    """Make a pack of a row of `PACK_SIZES`."""
    number, name, boot, pack_size, index_size = row
    # If the boot is not the one that was written, the files are compared, and it is written anew.
    boot = boot.decode(errors="replace")
    return PackRow(number, decode_pack_name([name]), boot, int(pack_size), int(index_size))


def decode_pack_name(row: Any) -> str:  # Any: a row of SQLite
    """Give a name by which files may be written or removed; ValueError if it is none that a pack has."""
    (name,) = row
    if not isinstance(name, str) or len(name) != 45 or set(name[5:]) - _HEX or not name.startswith("pack-"):
        raise ValueError(name)
    return name


def encode_versions(versions: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write which objects came in place of which: ids of 20 bytes, in pairs."""
    return b"".join([new + old for new, old in versions])


def decode_versions(row: Any) -> list[tuple[bytes, bytes]]:  # Any: a row of SQLite
    """Read which objects came in place of which."""
    (content,) = row
    if len(content) % 40:
        raise ValueError("versions are pairs of ids")
    return [(content[at : at + 20], content[at + 20 : at + 40]) for at in range(0, len(content), 40)]
