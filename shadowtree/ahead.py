"""The present state of a watched worktree, taken before anybody asked for it.

    something is told ──▶ it is quiet ──▶ scan, read, build ──▶ `Ahead`, in memory ──▶ told anything since?
                                                                                         no: recorded as it is
                                                                                         yes: thrown away

Whatever it was made of stays pending, so throwing it away costs nothing but the work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from shadowtree.directory import Directory
from shadowtree.frozen import frozen
from shadowtree.packwriter import PackWriter
from shadowtree.paths import join
from shadowtree.rulefiles import Surroundings
from shadowtree.scan import Scan
from shadowtree.settings import Settings
from shadowtree.statcache import StatCache
from shadowtree.worktree import stamp_of


@frozen
class Ahead:
    """What a capture would come to, if nothing happens until then. Nothing of it is stored."""

    scan: Scan
    pack: PackWriter
    tree: bytes
    facts: bytes
    settings: Settings
    surroundings: Surroundings
    cache: StatCache
    news: object
    """Stands for all that the watcher had told when it was made."""

    def is_as_read(self, root: str) -> bool:
        """Tell whether every file that was read has the same stamp still.

        A change that the kernel does not tell, through a mapping for one, mostly shows there.
        """
        top = os.fsencode(root)
        try:
            for directory in self.scan.directories:
                for row in directory.pending:
                    path = os.path.join(top, join(directory.path, directory.names[row]))
                    if stamp_of(os.stat(path, follow_symlinks=False)) != directory.file_stamp(row):
                        return False
        except OSError:
            return False
        return True


def is_fit(scan: Scan) -> bool:
    """Tell whether a watcher can vouch, until the next scan, for all that a scan on top of a census found.

    So it is with files that came, went or were edited in directories that it knew. Not with a file that has
    other names, one of which may be written where nobody watches; nor with what each scan looks at anew: what
    was skipped, and the files of repositories. And new rules may concern everything.
    """
    return not (scan.gone or scan.aliases or scan.has_new_rules) and all(
        is_known and not (directory.linked or directory.skipped or directory.has_repository)
        for directory, is_known in _list_changed(scan)
    )


def _list_changed(scan: Scan) -> Iterator[tuple[Directory, bool]]:
    """Give the directories in which something changed, and whether they are known under the same rules."""
    for directory, is_changed in zip(scan.directories, scan.changed, strict=True):
        if is_changed and directory.path not in scan.only_built:
            known = scan.known(directory.path)
            yield directory, known is not None and known.ignore_text == directory.ignore_text
