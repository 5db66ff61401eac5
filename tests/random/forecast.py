"""What an act must do to a worktree, and what it may do, compared with what it did."""

from __future__ import annotations

from shadowtree import Outcome
from tests.support.modelled import (
    DIRECTORY,
    UNKNOWN,
    UNSURE,
    Disk,
    Entry,
    Marks,
    Wish,
    ancestors,
    is_below,
    is_file,
)


class Forecast:
    """The meaning of wishes for a worktree: which paths have to be in conflict, and which may be."""

    def __init__(self, wishes: dict[str, Wish], now: Disk, way: str) -> None:
        self.wishes = wishes
        self.now = now
        self.way = way
        self.frozen = {path for path, wish in wishes.items() if wish.target == UNKNOWN}
        self.must = {path for path in wishes if self.has_to_conflict(path)}
        self.vague = {
            path for path, wish in wishes.items() if wish.is_vague or wish.target == UNSURE
        } - self.frozen
        self.unsettled = self.vague | {path for path in wishes if self.is_directory_only(path)}
        self.may = self.unsettled | {path for path in wishes if self.is_shape_in_doubt(path)}

    def is_open(self, path: str) -> bool:
        """Return whether something is to be done to a path."""
        wish = self.wishes[path]
        return path not in self.frozen and self.now.get(path) != wish.target

    def is_directory_only(self, path: str) -> bool:
        """Return whether only a directory comes or goes, which somebody else already did or undid."""
        wish, present = self.wishes[path], self.now.get(path)
        sides = (wish.target, present)
        return all(side in (None, DIRECTORY) for side in sides) and (
            wish.is_troubled or present != wish.expected
        )

    def has_to_conflict(self, path: str) -> bool:
        wish, present = self.wishes[path], self.now.get(path)
        if not self.is_open(path) or wish.is_vague or self.is_directory_only(path):
            return False
        if wish.expected == UNKNOWN:
            return present is not None
        return wish.is_troubled or present != wish.expected

    def is_shape_in_doubt(self, path: str) -> bool:
        """Return whether a directory becomes something else, or the reverse, near a possible conflict."""
        if not self.is_open(path):
            return False
        wish, present = self.wishes[path], self.now.get(path)
        above = list(ancestors(path))
        blocks = [each for each in above if self.now.get(each, DIRECTORY) != DIRECTORY]
        turned = [each for each in above if each in self.wishes and is_file(self.wishes[each].target)]
        is_turned = present == DIRECTORY and wish.target != DIRECTORY
        if not (blocks or turned or is_turned) and wish.target is not None:
            # Only a path above that stays in the way can matter.
            return any(each in self.must | self.unsettled | self.frozen for each in above)
        if wish.target is None and not is_turned:
            return False
        near = {
            each
            for each in self.wishes
            if is_below(each, path) or each in above or any(is_below(each, b) for b in blocks + turned)
        }
        if (near - {path}) & (self.frozen | self.must | self.unsettled):
            return True
        if any(each not in self.wishes for each in blocks) or (turned and wish.target is not None):
            return True
        return any(
            is_below(each, path) and (each not in self.wishes or self.wishes[each].target is not None)
            for each in self.now
            if each != path
        )

    def check_conflicts(self, found: list[str], *, is_refused: bool) -> None:
        if self.way == "keep":
            assert not is_refused, ("with keep nothing is refused", found)
            return
        expected = self.listed() if self.way == "abort" else set()
        allowed = self.must | self.may if self.way == "abort" else set(self.may)
        # Whatever blocks a directory, or will block it, blocks everything that should come into it.
        turned = {path for path, wish in self.wishes.items() if is_file(wish.target)}
        allowed |= {p for p in found if any(is_file(self.now.get(a)) or a in turned for a in ancestors(p))}
        assert is_refused == bool(found)
        assert set(found) <= allowed, (
            "no conflict",
            set(found) - allowed,
            self.explain(set(found) - allowed),
        )
        assert expected <= set(found), ("conflicts not seen", self.explain(expected - set(found)))

    def listed(self) -> set[str]:
        """Return the conflicts that must be listed, except for paths that come and go again on the way."""
        return {path for path in self.must if self.wishes[path].target != self.wishes[path].expected}

    def check_worktree(self, after: Disk, marks: Marks, marks_after: Marks, outcome: Outcome) -> None:
        for path in self.wishes.keys() | self.now.keys() | after.keys():
            was, became = self.now.get(path), after.get(path)
            assert self.is_right(path, was, became, after), (
                path, "was", was, "became", became, self.explain({path}), outcome,
            )  # fmt: skip
            if was == became and is_file(was):
                assert marks[path] == marks_after[path], (path, "was touched")
        assert outcome.complete or outcome.skipped or outcome.notes, outcome
        if self.way == "keep":
            allowed = self.must | self.may
            allowed |= {above for path in allowed for above in ancestors(path)}
            assert set(outcome.kept) <= allowed, self.explain(set(outcome.kept))
            assert self.listed() <= set(outcome.kept)
        else:
            assert not outcome.kept

    def is_right(self, path: str, was: Entry | None, became: Entry | None, after: Disk) -> bool:
        wish = self.wishes.get(path)
        is_full = any(is_below(each, path) for each in after if each != path)
        if wish is None or path in self.frozen:
            if became == was:
                return True
            is_led_to = any(is_below(each, path) for each in self.wishes if each != path)
            is_free = was is None or (self.way == "overwrite" and is_file(was))
            return became == DIRECTORY and is_led_to and is_full and is_free
        if path in self.must and self.way == "keep":
            return became == was
        if became == wish.target:
            return True
        # A path that comes and goes again on the way does not matter.
        if became == was and (path in self.may or wish.target == wish.expected):
            return True
        if wish.target == UNSURE and became in (None, DIRECTORY):
            return True
        # Somebody turned a directory into a file; not both can be there, and the paths below come back.
        below = [each for each in self.wishes if each != path and is_below(each, path)]
        has_come = became == DIRECTORY and any(each in after for each in below)
        if self.way == "overwrite" and has_come:
            return True
        # A directory that should go stays if something is left in it, or has to be put into it.
        return wish.target is None and became == DIRECTORY and is_full

    def explain(self, paths: set[str]) -> list[object]:
        return [
            (
                path,
                "now",
                self.now.get(path),
                self.wishes.get(path),
                "must" * (path in self.must),
                "may" * (path in self.may),
            )
            for path in sorted(paths)
        ]


def check_lists(now: Disk, after: Disk, outcome: Outcome) -> None:
    """Check that an outcome lists exactly the files and links that came, changed or went."""
    changed = {path for path in now.keys() | after.keys() if now.get(path) != after.get(path)}
    assert set(outcome.restored) == {path for path in changed if is_file(after.get(path))}
    assert set(outcome.deleted) == {
        path for path in changed if is_file(now.get(path)) and not is_file(after.get(path))
    }
    assert not outcome.conflicts
