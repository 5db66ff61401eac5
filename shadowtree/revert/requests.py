"""The requests and options of callers, as values. Loads nothing of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from shadowtree.base.arguments import CHOICES, REST, check_count, parse_path, parse_paths, refuse_unknown
from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import field, frozen, replace
from shadowtree.base.paths import RelPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from shadowtree.base.arguments import OnConflict, Paths, StrPath
    from shadowtree.results.outcomes import Plan

    class ActOptions(TypedDict, total=False):
        """How to do an act."""

        on_conflict: OnConflict | Mapping[StrPath, OnConflict]
        """What to do with a path that somebody else changed: `abort`, `keep`, `overwrite` or `merge`.

        A mapping sets this for files and directories; `"*"` stands for all other paths, by default `abort`.
        """
        markers: bool
        """Merge, and write both versions between markers where texts collide."""
        dry_run: bool
        """Change nothing, and return what would be done."""
        diff: bool
        """With `dry_run`, also return how each file would differ."""
        expect: str | None
        """The id of the plan to carry out; raises PlanOutdated if the plan is a different one by now."""
        confirm: Confirm | None
        """Called before a restore, or if inferred ends would delete many files; False stops the act."""

    class UnrevertOptions(ActOptions, total=False):
        """Which act to reverse, and how."""

        undo: bool
        """Reverse the very last act, even an unrevert."""

    class RestoreOptions(ActOptions, total=False):
        """What to restore, and how."""

        paths: Paths
        """Only these files and directories."""

    class RevertOptions(ActOptions, total=False):
        """What to revert, and how."""

        step: str | None
        """Go back only to before this step of the message."""
        paths: Paths
        """Only these files and directories."""
        only: bool
        """Undo only that message or step, and keep later ones."""
        files: bool
        """False: move only the head."""


@frozen
class Undo:
    """Go back by turns."""

    turns: int = 1


@frozen
class Redo:
    """Go forward by turns, or to the end if `turns` is None."""

    turns: int | None = 1


@frozen
class Revert:
    """Go to just before a message."""

    id: str
    step: str | None = None
    """Go back only to before this step of the message."""
    paths: frozenset[RelPath] | None = None
    """Only these files and directories."""
    only: bool = False
    """Take out only that message or step; later ones stay."""

    @property
    def is_part(self) -> bool:
        """Whether the head stays where it is."""
        return self.step is not None or self.paths is not None


@frozen
class Unrevert:
    """Reverse the last act that was not reversed; with `undo`, the very last act, even an unrevert."""

    undo: bool = False


@frozen
class Switch:
    """Go to just after a message, or to the end of a branch."""

    ref: str


@frozen
class Restore:
    """Make all covered files equal to a recorded tree."""

    ref: str
    paths: frozenset[RelPath] | None = None
    """Only these files and directories."""


Confirm = Callable[["Plan"], "bool | Awaitable[bool]"]
"""Called before an act that must be confirmed; False stops it. `AsyncShadow` also takes coroutines."""
Request = Undo | Redo | Revert | Unrevert | Switch | Restore


@frozen
class Options:
    """How to do an act."""

    on_conflict: OnConflict = "abort"
    chosen: Mapping[RelPath, OnConflict] = field(default_factory=dict)
    """What to do instead of `on_conflict` at some paths and below them."""
    markers: bool = False
    """Where texts collide, write both versions between markers."""
    confirm: Confirm | None = None
    dry_run: bool = False
    """Change nothing, and return what would be done."""
    diff: bool = False
    """With `dry_run`, also return how each file would differ."""
    expect: str | None = None
    """The id of the plan that the caller has seen."""
    files: bool = True
    """If False, only the head moves."""


def read_undo(turns: int) -> Undo:
    """Check how many turns to undo; unlike a redo, an undo of all turns has to say how many they are."""
    check_count(turns, "the number of turns")
    if turns is None:
        raise InvalidInput("the number of turns must be 1 or more, not None")
    return Undo(turns)


def read_redo(turns: int | None) -> Redo:
    """Check how many turns to redo."""
    check_count(turns, "the number of turns")
    return Redo(turns)


def read_revert(id: str, how: RevertOptions, worktree: str) -> tuple[Revert, Options]:
    """Check the options of a revert; `files=False` cannot be combined with `paths`, `step` or `only`."""
    own = parse_paths(how.pop("paths", None), worktree)
    request = Revert(id, how.pop("step", None), own, bool(how.pop("only", False)))
    files = bool(how.pop("files", True))
    if not files and (request.is_part or request.only):
        raise InvalidInput("files=False cannot be combined with paths, step or only")
    return request, replace(read_options(how, worktree), files=files)


def read_unrevert(how: UnrevertOptions, worktree: str) -> tuple[Unrevert, Options]:
    """Check the options of an unrevert."""
    request = Unrevert(bool(how.pop("undo", False)))
    return request, read_options(how, worktree)


def read_restore(ref: str, how: RestoreOptions, worktree: str) -> tuple[Restore, Options]:
    """Check the options of a restore."""
    request = Restore(ref, parse_paths(how.pop("paths", None), worktree))
    return request, read_options(how, worktree)


def read_options(how: ActOptions, worktree: str) -> Options:
    """Check the options that all acts share; `markers` implies merging."""
    refuse_unknown(how, "on_conflict", "markers", "dry_run", "diff", "expect", "confirm")
    on_conflict, chosen = _read_choices(how.get("on_conflict", "abort"), worktree)
    if how.get("markers"):
        if on_conflict in ("keep", "overwrite"):
            raise InvalidInput(f"markers cannot be combined with {on_conflict!r}, only with 'merge'")
        on_conflict = "merge"
    return Options(
        on_conflict,
        chosen,
        bool(how.get("markers")),
        how.get("confirm"),
        bool(how.get("dry_run")),
        bool(how.get("diff")),
        how.get("expect"),
    )


def _read_choices(
    given: OnConflict | Mapping[StrPath, OnConflict], worktree: str
) -> tuple[OnConflict, dict[RelPath, OnConflict]]:
    """Read how to handle conflicts by default, and the exceptions by path."""
    choices = given if isinstance(given, Mapping) else {REST: given}
    for choice in choices.values():
        if choice not in CHOICES:
            raise InvalidInput(f"on_conflict must be 'abort', 'keep', 'overwrite' or 'merge', not {choice!r}")
    chosen = {parse_path(path, worktree): choice for path, choice in choices.items() if path != REST}
    return choices.get(REST, "abort"), chosen
