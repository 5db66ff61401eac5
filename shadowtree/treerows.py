"""The recorded trees of a timeline.

One that was forgotten keeps its row, so that who asks for it can be told; its objects may be gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from shadowtree.errors import ForgottenTree
from shadowtree.events import TreeRecord
from shadowtree.rows import Rows, RowsStamp
from shadowtree.tables import IS_LIVE, IS_WRAP, TREES, decode_tree

_WITH_TREES = 1


class TreeRows(Rows):
    """The recorded trees. All questions but one are about those that were not forgotten."""

    _last: tuple[RowsStamp, TreeRecord | None] | None = None
    """The tree recorded last, and the stamp of the rows then."""

    def last_tree(self) -> TreeRecord | None:
        """Give the tree recorded last, which is never forgotten.

        Whoever records asks for it half a dozen times: it is read again only if something was written since.
        """
        stamp = self.stamp()
        if stamp is None or self._last is None or self._last[0] != stamp:
            last = next(self._trees("ORDER BY number DESC LIMIT 1"), None)
            if stamp is None:
                return last
            self._last = stamp, last
        return self._last[1]

    def first_tree(self) -> TreeRecord | None:
        """Give the first one that is recorded."""
        return next(self._trees(f"WHERE {IS_LIVE} ORDER BY number LIMIT 1"), None)

    def find_tree(self, tree: bytes) -> TreeRecord | None:
        """Give the latest record of a tree."""
        return next(self._trees(f"WHERE tree = ? AND {IS_LIVE} ORDER BY number DESC LIMIT 1", tree), None)

    def find_forgotten_tree(self, tree: bytes) -> TreeRecord | None:
        """Give the latest record of a tree that was forgotten, if there was one."""
        found = next(self._trees("WHERE tree = ? ORDER BY number DESC LIMIT 1", tree), None)
        return None if found is None or found.forgotten_ms is None else found

    def tree(self, number: int) -> TreeRecord:
        """Give the record with a number that another row names; ForgottenTree if it was forgotten."""
        record = self._existing("tree", number, next(self._trees("WHERE number = ?", number), None))
        if record.forgotten_ms is not None:
            raise ForgottenTree(record.tree.hex(), record.forgotten_ms)
        return record

    def is_forgotten_tree(self, number: int) -> bool:
        """Tell whether a record that another row names was forgotten."""
        record = self._existing("tree", number, next(self._trees("WHERE number = ?", number), None))
        return record.forgotten_ms is not None

    def trees_after(self, number: int) -> Iterator[TreeRecord]:
        """Give every recorded tree from the one after `number` on, oldest first."""
        return self._trees(f"WHERE number > ? AND {IS_LIVE} ORDER BY number", number)

    def live_trees(self) -> Iterator[TreeRecord]:
        """Give every tree that was not forgotten, oldest first."""
        return self.trees_after(0)

    def forgotten_trees(self) -> Iterator[TreeRecord]:
        """Give every tree that was forgotten; its objects may be gone."""
        return (record for record in self._trees("ORDER BY number") if record.forgotten_ms is not None)

    def sessions_of_trees(self) -> dict[int, set[int]]:
        """Tell, by their numbers, which trees messages and acts name, and in which sessions."""
        select = f"SELECT session, before_tree, after_tree FROM events WHERE NOT {IS_WRAP} AND {IS_LIVE}"
        found: dict[int, set[int]] = {}
        for session, *numbers in self._session_rows(select):
            for number in numbers:
                if number is not None:
                    found.setdefault(number, set()).add(session)
        return found

    def add_tree(self, *, tree: bytes, facts: bytes, keeper: bytes, files: int, time_s: int) -> TreeRecord:
        """Record a tree; this is the moment at which it counts."""
        number = self._add("trees", tree=tree, facts=facts, keeper=keeper, files=files, time=time_s)
        return TreeRecord(number, tree, facts, keeper, files, time_s)

    def set_keepers(self, keepers: Mapping[int, bytes]) -> None:
        """Let trees, by their numbers, be kept by other commits."""
        self._do_all(
            "UPDATE trees SET keeper = ? WHERE number = ?",
            [(keeper, number) for number, keeper in keepers.items()],
        )

    def forget_trees(self, numbers: Collection[int], time_ms: int) -> None:
        """Mark trees as forgotten: from now on nothing needs their objects. Never the last one."""
        last = self.last_tree()
        assert last is None or last.number not in numbers
        self._do_all(
            f"UPDATE trees SET forgotten = ? WHERE number = ? AND {IS_LIVE}",
            [(time_ms, number) for number in numbers],
        )

    def _trees(self, condition: str, *values: object) -> Iterator[TreeRecord]:
        rows = self._rows_since(_WITH_TREES, f"{TREES} {condition}", *values)
        return iter(self._decode(decode_tree, rows))
