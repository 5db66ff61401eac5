"""The present state of a watched worktree, taken before anybody asked for it.

    something is told ──▶ it is quiet ──▶ scan, read, build ──▶ `Ahead`, in memory ──▶ told anything since?
                                                                                         no: recorded as it is
                                                                                         yes: thrown away

Whatever it was made of stays pending, so throwing it away costs nothing but the work.
"""

from __future__ import annotations

from stat import S_ISLNK

from shadowtree.directory import Directory
from shadowtree.errors import ShadowError
from shadowtree.frozen import frozen
from shadowtree.gitformat import blob_id
from shadowtree.packwriter import PackWriter
from shadowtree.paths import ROOT, join
from shadowtree.rulefiles import Surroundings
from shadowtree.scan import Scan
from shadowtree.settings import Settings
from shadowtree.statcache import StatCache
from shadowtree.worktree import Cursor, TooLong, Unreadable, Vanished, read_file, read_link


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

    def is_as_read(self, root: str) -> bool:
        """Read the files once more, and tell whether they are what they were.

        A mapping stamps a file once for many writes, and nobody tells of them.
        """
        try:
            with Cursor(root) as cursor:
                fd = cursor.enter(ROOT)
                return all(
                    _is_same(directory, row, fd)
                    for directory in self.scan.directories
                    for row in directory.pending
                )
        except (OSError, ShadowError, Unreadable, Vanished, TooLong):
            # Whoever looks at everything finds out what that means.
            return False


def _is_same(directory: Directory, row: int, root_fd: int) -> bool:
    # The whole way there, in one step: whatever changed on it would have been told.
    path = join(directory.path, directory.names[row])
    if S_ISLNK(directory.file_mode(row)):
        stamp, content = read_link(root_fd, path)
    else:
        stamp, content = read_file(root_fd, path, directory.file_size(row))
    return stamp == directory.file_stamp(row) and blob_id(content) == directory.file_id(row)


def is_fit(scan: Scan) -> bool:
    """Tell whether a watcher can vouch, until the next scan, for all that a scan on top of a census found.

    So it is with files that came, went or were edited in directories that it knew. Not with a file that has
    other names, one of which may be written where nobody watches; nor with what each scan looks at anew: what
    was skipped, and the files of repositories. And new rules may concern everything.
    """
    is_plain = not (scan.is_whole or scan.gone or scan.aliases or scan.has_new_rules)
    return is_plain and all(_is_fit(directory, scan.known(directory.path)) for directory in scan.list_news())


def _is_fit(directory: Directory, known: Directory | None) -> bool:
    is_restless = directory.linked or directory.skipped or directory.has_repository
    return known is not None and known.ignore_text == directory.ignore_text and not is_restless
