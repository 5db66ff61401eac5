"""What the timeline holds for a while: acts that are about to be done, and packs on their way.

These rows are removed when they are done with.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Sequence

from shadowtree.events import Intent, PackRow
from shadowtree.gitformat import PackBytes
from shadowtree.rows import WITH_FORGETTING, WITH_PACKS, Rows
from shadowtree.seals import unseal
from shadowtree.tables import INTENTS, PACKS, check_pack_name, decode_pack, decode_versions, encode_versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PassingRows(Rows):
    """The intents and the packs of a timeline."""

    # Intents

    def open_intents(self) -> list[Intent]:
        """Give every intent that was not removed, oldest first."""
        rows = self._session_rows(f"{INTENTS} ORDER BY number")
        return [
            Intent(number, content, self._is_committed(number))
            for number, content in self._decode(unseal, rows)
        ]

    def _is_committed(self, intent: int) -> bool:
        return bool(self._session_rows("SELECT 1 FROM events WHERE intent = ?", intent))

    def add_intent(self, content: bytes) -> int:
        """Say what is about to be done, so that it can be taken back; durable before that begins."""
        return self._add("intents", act="intent", content=content)

    def remove_intent(self, number: int) -> None:
        """Forget an intent of which nothing is left to do."""
        # If it comes back after a power cut, there is nothing left to do for it.
        self._forget("DELETE FROM intents WHERE number = ?", number)

    # Packs

    def pack_rows(self) -> list[PackRow]:
        """Give every journaled pack, oldest first."""
        return self._decode(decode_pack, self._pack_rows(f"{PACKS} ORDER BY number"))

    def count_packs(self) -> int:
        """Tell how many packs are journaled."""
        return len(self._pack_rows("SELECT 1 FROM packs"))

    def read_pack(self, row: PackRow) -> PackBytes | None:
        """Read a journaled pack; None if another process has just merged it, or if its row is damaged."""
        select = "SELECT CAST(pack AS BLOB), CAST(pack_index AS BLOB) FROM packs WHERE number = ?"
        for pack, index in self._pack_rows(select, row.number):
            content = PackBytes(row.name, pack, index)
            return content if content.is_whole() else None
        return None

    def read_packs(self) -> Iterator[PackBytes]:
        """Read the journaled packs one by one, newest first."""
        found = (self.read_pack(row) for row in reversed(self.pack_rows()))
        return (content for content in found if content is not None)

    def add_pack(self, content: PackBytes, boot: str) -> int:
        """Journal a pack: its objects are durable with this transaction, whatever becomes of its files."""
        return self._add("packs", name=content.name, boot=boot, pack=content.pack, pack_index=content.index)

    def note_boot(self, boot: str) -> None:
        """Note that the files of every journaled pack are whole now."""
        self._forget("UPDATE packs SET boot = ?", boot)

    def announced_packs(self) -> list[str]:
        """Name the packs that have files, and no record."""
        rows = self._pack_rows("SELECT name FROM announced")
        return self._decode(lambda row: check_pack_name(row[0]), rows)

    def announce_pack(self, name: str) -> None:
        """Say that a pack is about to have files, to be removed again if its record never comes."""
        self._add("announced", name=name)

    def confirm_announced(self) -> None:
        """Say once more which packs have files and no record, by a commit that changes nothing."""
        self._update("UPDATE announced SET name = name")

    def forget_announced(self) -> None:
        """Forget the announced packs: they are recorded, in the same transaction, or gone."""
        self._update("DELETE FROM announced")

    # Fresh packs

    def fresh_packs(self) -> list[str]:
        """Name the packs whose objects are not on shelves yet, the oldest first."""
        rows = self._rows_since(WITH_FORGETTING, "SELECT name FROM fresh ORDER BY number")
        return self._decode(lambda row: check_pack_name(row[0]), rows)

    def versions(self) -> dict[bytes, bytes]:
        """Tell of the objects in fresh packs which one each came in place of."""
        rows = self._rows_since(WITH_FORGETTING, "SELECT versions FROM fresh ORDER BY number")
        return {new: old for pairs in self._decode(decode_versions, rows) for new, old in pairs}

    def add_fresh(self, name: str, versions: Collection[tuple[bytes, bytes]]) -> None:
        """Note that a pack is fresh, and which of its objects came in place of which."""
        self._add("fresh", name=name, versions=encode_versions(versions))

    def remove_packs(
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
            for versions in self._decode(decode_versions, self._rows_since(WITH_FORGETTING, select, *names))
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
        self._forget_all(changes)

    def drop_pack_copies(self, names: Collection[str]) -> None:
        """Forget the bytes of journaled packs whose files are durable; they are as fresh as they were."""
        marks = ", ".join("?" * len(names))
        self._forget_all([(f"DELETE FROM packs WHERE name IN ({marks})", [*names])])

    def _pack_rows(self, statement: str, *values: object) -> list[Any]:  # Any: rows of SQLite
        return self._rows_since(WITH_PACKS, statement, *values)
