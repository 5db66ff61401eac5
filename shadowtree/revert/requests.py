"""What a caller asks for, as values: which act, and how to handle conflicts. Loads nothing of the store."""

from __future__ import annotations

from collections.abc import Callable

from shadowtree.base.arguments import parse_paths, refuse_unknown
from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen, replace
from shadowtree.base.paths import RelPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from shadowtree.base.arguments import OnConflict, Paths
    from shadowtree.results.outcomes import Plan

    class ActOptions(TypedDict, total=False):
        """How an act is done."""

        on_conflict: OnConflict
        """Where somebody else changed a path: stop (`abort`), leave it (`keep`), `overwrite` or `merge`."""
        markers: bool
        """Merge, and put both versions of colliding texts between markers."""
        dry_run: bool
        """Change nothing, and return what would be done."""
        confirm: Confirm | None
        """Asked before an act that deletes much."""

    class RevertOptions(ActOptions, total=False):
        """Which part is reverted, and how."""

        step: str | None
        """Only to before this step of the message."""
        paths: Paths
        """Only these files and directories."""
        only: bool
        """Only that message, or that step; later ones stay."""
        files: bool
        """False: only the head moves."""


@frozen
class Undo:
    """Go back by turns."""

    turns: int = 1


@frozen
class Redo:
    """Go forward by turns; None: to the end."""

    turns: int | None = 1


@frozen
class Revert:
    """Go to just before a message."""

    id: str
    step: str | None = None
    """Only to before this step of it."""
    paths: frozenset[RelPath] | None = None
    """Only these files and directories."""
    only: bool = False
    """Take out that message alone, or that step; later ones stay."""

    @property
    def is_part(self) -> bool:
        """Whether the head stays where it is."""
        return self.step is not None or self.paths is not None


@frozen
class Unrevert:
    """Reverse the last act."""


@frozen
class Switch:
    """Go to just after a message, or to the end of a branch."""

    ref: str


@frozen
class Restore:
    """Make all covered files equal to a recorded tree."""

    ref: str


Confirm = Callable[["Plan"], bool]
"""Asked before an act that deletes much; False stops it."""
Request = Undo | Redo | Revert | Unrevert | Switch | Restore


@frozen
class Options:
    """How an act handles conflicts, and whom it asks."""

    on_conflict: OnConflict = "abort"
    markers: bool = False
    """Where texts collide, write both versions between markers."""
    confirm: Confirm | None = None
    dry_run: bool = False
    """Change nothing, and return what would be done."""
    files: bool = True
    """Otherwise only the head moves."""


def read_revert(id: str, how: RevertOptions, worktree: str) -> tuple[Revert, Options]:
    """Check the options of a revert, and refuse a part of one that moves only the head."""
    own = parse_paths(how.pop("paths", None), worktree)
    request = Revert(id, how.pop("step", None), own, bool(how.pop("only", False)))
    files = bool(how.pop("files", True))
    if not files and (request.is_part or request.only):
        raise InvalidInput("without files only the head moves, so there is no part of them to revert")
    return request, replace(read_options(how), files=files)


def read_options(how: ActOptions) -> Options:
    """Check the options of a caller; markers imply merging."""
    refuse_unknown(how, "on_conflict", "markers", "dry_run", "confirm")
    on_conflict, markers = how.get("on_conflict", "abort"), how.get("markers", False)
    if on_conflict not in ("abort", "keep", "overwrite", "merge"):
        raise InvalidInput(f"on_conflict is 'abort', 'keep', 'overwrite' or 'merge', not {on_conflict!r}")
    if markers and on_conflict in ("keep", "overwrite"):
        raise InvalidInput(f"markers are for merging, which {on_conflict!r} is not")
    wanted: OnConflict = "merge" if markers else on_conflict
    return Options(wanted, bool(markers), how.get("confirm"), bool(how.get("dry_run")))
