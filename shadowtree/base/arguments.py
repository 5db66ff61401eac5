"""Checks of arguments: names, counts, paths, the JSON object of a message."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from shadowtree.base.errors import InvalidInput
from shadowtree.base.paths import ROOT, RelPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import datetime
    from typing import Literal, TypedDict, TypeVar

    Planned = TypeVar("Planned")
    OnConflict = Literal["abort", "keep", "overwrite", "merge"]
    Paths = Collection["StrPath"] | None

    class MessageOptions(TypedDict, total=False):
        """The options of a message."""

        text: str
        """Shown to people in `log`, such as the prompt."""
        role: str | None
        """`user` or None starts a turn."""
        meta: Mapping[str, object] | None
        """A JSON object of your own."""

    class MessageFilter(TypedDict, total=False):
        """Which messages to list."""

        all_sessions: bool
        last: int | None
        """At most this many, the newest ones."""
        since: datetime | float | None
        """Only those that began at this time or later; a number is in seconds since 1970."""
        paths: Paths
        """Only those that changed these files or directories."""

    class DiffOptions(TypedDict, total=False):
        """How to compare."""

        paths: Paths
        """Only these files and directories."""
        binary: bool
        """Put binary contents into patches, for `git apply`."""
        context: int | None
        """How many unchanged lines to show around each change; by default 3."""


StrPath = str | os.PathLike[str]
CHOICES = ("abort", "keep", "overwrite", "merge")
"""What `on_conflict` can be."""
REST = "*"
"""Stands for every path that has no choice of its own."""


def check_name(name: str, what: str) -> str:
    """Return `name`; refuse one that is empty, too long, or has control characters or surrogates."""
    is_text = isinstance(name, str) and 1 <= len(name) <= 256
    if not is_text or any(_is_control(character) for character in name):
        raise InvalidInput(f"invalid {what} {name!r}: use 1 to 256 characters, and no control characters")
    try:
        # Python turns bytes of the command line that are not UTF-8 into surrogates.
        name.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"invalid {what} {name!r}: it is not valid UTF-8") from error
    return name


def check_message_id(id: str) -> str:
    """Return `id`; refuse an invalid name, and references to messages: `@`, `@~2`, `#3`, a trailing `^`."""
    check_name(id, "message id")
    if is_reference(id):
        raise InvalidInput(f"{id!r} is reserved for referring to messages; choose another id")
    return id


def is_reference(name: str) -> bool:
    """Return whether a name refers to a message by its place: `@`, `@~2`, `#3`, a trailing `^`."""
    rest = name[1:].removeprefix("~") if name.startswith("@") else name[1:]
    is_number = rest.isascii() and rest.isdigit()
    return name.endswith("^") or name in ("@", "@~") or (is_number and name.startswith(("@~", "#")))


def refuse_unknown(options: Mapping[str, object], *known: str) -> None:
    """Raise TypeError for an option that is not `known`, as Python does for an unknown keyword."""
    for name in options.keys() - set(known):
        raise TypeError(f"got an unexpected keyword argument {name!r}")


def check_count(count: int | None, what: str, *, at_least: int = 1) -> None:
    """Refuse a count that is not a whole number, or is less than `at_least`; None is fine."""
    is_whole = isinstance(count, int) and not isinstance(count, bool)
    if count is not None and not (is_whole and count >= at_least):
        raise InvalidInput(f"{what} must be {at_least} or more, not {count!r}")


def is_agreed(confirm: Callable[[Planned], object], planned: Planned) -> bool:
    """Call a caller's `confirm`; refuse an answer that is no bool, such as a coroutine that nobody awaits."""
    answer = confirm(planned)
    if not isinstance(answer, bool):
        if hasattr(answer, "close"):
            answer.close()  # a coroutine, of which Python would warn
        raise InvalidInput(f"confirm must return True or False, not {answer!r}")
    return answer


def encode_meta(meta: Mapping[str, object] | None) -> str | None:
    """Encode the caller's JSON object as text; None stays None."""
    if meta is None:
        return None
    import json

    if not isinstance(meta, Mapping):
        raise InvalidInput("meta must be a JSON object")
    try:
        return json.dumps(dict(meta), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"meta must be a JSON object: {error}") from error


def check_path(given: StrPath) -> str:
    """Return a path as text; refuse bytes, an empty path, and any other value that is no path."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str):
        raise InvalidInput(f"a path must be a string or a Path, not {given!r}")
    try:
        is_valid = b"\0" not in os.fsencode(path) and path != ""
    except UnicodeEncodeError:
        is_valid = False
    if not is_valid:
        raise InvalidInput(f"{path!r} is not a valid path")
    return path


def parse_paths(paths: Collection[StrPath] | None, worktree: str) -> frozenset[RelPath] | None:
    """Convert a caller's paths of files and directories with `parse_path`; None stays None."""
    if paths is None:
        return None
    if isinstance(paths, str | bytes) or not isinstance(paths, Iterable):
        raise InvalidInput("paths must be a list of paths")
    return frozenset(parse_path(path, worktree) for path in paths)


def parse_path(given: str | os.PathLike[str], worktree: str) -> RelPath:
    """Convert a path, absolute or relative to the worktree; refuse one outside the worktree."""
    path = check_path(given)
    encoded = os.fsencode(_make_relative(path, worktree) if os.path.isabs(path) else path)
    names: list[bytes] = []
    for name in encoded.split(os.fsencode(os.sep)):
        if name == b"..":
            if not names:
                raise InvalidInput(f"{path!r} is not in the worktree")
            names.pop()
        elif name not in (b"", b"."):
            names.append(name)
    return RelPath(b"/".join(names)) if names else ROOT


def _make_relative(path: str, worktree: str) -> str:
    """Make an absolute path relative to `worktree`, which is a real path.

    A path that begins with `worktree` is taken literally: it may name something that was recorded below a
    directory that has become a link since. In any other path, links on the way to the worktree are resolved.
    """
    written = os.path.normpath(path)
    if os.path.commonpath([worktree, written]) == worktree:
        return os.path.relpath(written, worktree)
    if os.path.realpath(written) == worktree:
        return "."
    real = os.path.join(os.path.realpath(os.path.dirname(written)), os.path.basename(written))
    return os.path.relpath(real, worktree)


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f"
