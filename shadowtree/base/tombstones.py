"""What was purged: paths and contents that no tree holds any more, and that no snapshot takes again."""

from __future__ import annotations

from shadowtree.base.frozen import frozen
from shadowtree.base.paths import RelPath, is_among

PURGED = "purged"
"""Why nothing is known of a path that was purged."""


@frozen
class Tombstones:
    """The paths and the contents that are left out because they were purged."""

    paths: frozenset[RelPath] = frozenset()
    """Files, or directories with all that is below them."""
    blobs: frozenset[bytes] = frozenset()
    """Contents, by their ids, wherever they are."""

    def covers(self, path: RelPath) -> bool:
        """Tell whether a path, or a directory above it, was purged."""
        return bool(self.paths) and is_among(path, self.paths)

    def is_near(self, directory: RelPath) -> bool:
        """Tell whether something in or below a directory may have been purged."""
        start = directory + b"/" if directory else b""
        return bool(self.blobs) or any(path.startswith(start) for path in self.paths)

    def key(self) -> bytes:
        """Tell these tombstones from others; empty if there are none."""
        parts = [*sorted(self.paths), b"", *sorted(self.blobs)]
        return b"\0".join(parts) if len(parts) > 1 else b""


NO_TOMBSTONES = Tombstones()
