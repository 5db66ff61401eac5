"""The requests that keys make: values, which `actions` carries out."""

from __future__ import annotations

from collections.abc import Mapping

from shadowtree.base.frozen import field, frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from shadowtree.base.arguments import OnConflict
    from shadowtree.results.messages import Message

    ActKind = Literal["back", "only", "redo_to", "undo", "redo", "switch", "unrevert"]
    Choices = Mapping[str, OnConflict]
    """What to do with conflicts, by path."""


@frozen
class Act:
    """An act and its target."""

    kind: ActKind
    """`back`: to before a message; `only`: undo it alone; `redo_to`: redo up to it."""
    target: str = ""
    """The id of a message."""
    branch: str = ""
    """The name of the branch that ends with this message, if a branch was chosen."""


@frozen
class Preview:
    """Show what an act would do."""

    act: Act
    choices: Choices = field(default_factory=dict)


@frozen
class Carry:
    """Carry out the plan that was shown, if it is still the same."""

    act: Act
    choices: Choices
    plan: str
    """The id of the plan that was shown."""


@frozen
class PreviewDiff:
    """Show how each file would differ."""

    act: Act
    choices: Choices
    path: str = ""
    """A file in conflict: show only the edits in it."""


@frozen
class ShowDiff:
    """Show the diff of a message; None: what changed since the last record."""

    message: Message | None


@frozen
class ShowFiles:
    """List the files of a message; None: those that changed since the last record."""

    message: Message | None


@frozen
class ShowBranches:
    """List the branches that fork after a message; None: all of them."""

    fork: Message | None


@frozen
class Quit:
    """Leave the picker."""


Request = Preview | Carry | PreviewDiff | ShowDiff | ShowFiles | ShowBranches | Quit
