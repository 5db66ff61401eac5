"""The files that we wrote or changed for agents: their original content is kept, so it can be restored.

They are recorded next to the stores, in the directory of the hooks' log:

    hooks/
    ├── installed.json    what was written where; replaced as a whole
    └── backups/          0700: what files held before we first changed them; settings may hold secrets
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from shadowtree.agents.agent_files import replace_file
from shadowtree.base.errors import InvalidInput, StoreFailed, describe
from shadowtree.base.frozen import frozen
from shadowtree.system import disk
from shadowtree.system.syscalls import try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DIRECTORY = "hooks"
_RECORD = "installed.json"
_BACKUPS = "backups"
_PATIENCE_S = 10.0
"""How long one installation waits for another."""
_PAUSE_S = 0.02


@frozen
class Installed:
    """A file that we wrote, or changed."""

    path: str
    """Its real path."""
    agent: str
    scope: str
    project: str | None
    """The project that it is for; None: all projects."""
    written: str | None
    """The hash of what we wrote last; None: others had changed it between two of our writes."""
    backup: str | None
    """The name of the file with the original content; None: there was no file."""


class InstalledFiles:
    """The record of what was written for agents."""

    def __init__(self, stores: str) -> None:
        self._stores = stores
        self._directory = os.path.join(stores, _DIRECTORY)
        self._record = os.path.join(self._directory, _RECORD)
        self._backups = os.path.join(self._directory, _BACKUPS)
        self._made: list[str] = []
        """The directories that we made for files."""
        self.files = {entry.path: entry for entry in self._read()}

    def can_exist(self) -> bool:
        """Return whether the directory of stores exists, without which there is no record."""
        return os.path.isdir(self._stores)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the record and read it again, so that two installations take turns.

        The directory of stores itself is locked, because a lock file would be one more file to remove.
        """
        disk.make_directories(self._stores)
        fd = os.open(self._stores, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _wait_for_lock(fd)
            self.files = {entry.path: entry for entry in self._read()}
            yield
        finally:
            os.close(fd)

    def _read(self) -> list[Installed]:
        content = disk.read_if_there(self._record)
        try:
            document = json.loads(content) if content else {"files": [], "directories": []}
            self._made = list(document["directories"])
            return [Installed(**entry) for entry in document["files"]]
        except (ValueError, TypeError, KeyError) as error:
            raise StoreFailed(self._record, "it cannot be read; remove it to go on without it") from error

    def save(self) -> None:
        """Write the record; remove it if it lists no file."""
        if not self.files:
            disk.remove_file(self._record)
            for directory in (self._backups, self._directory):
                _remove_if_empty(directory)
            return
        disk.make_directories(self._directory)
        entries = [_to_json(entry) for entry in self.files.values()]
        document = {"files": entries, "directories": self._made}
        disk.write_file(self._record, json.dumps(document, indent=1).encode() + b"\n")

    def _remove_made(self) -> None:
        for directory in sorted(self._made, key=len, reverse=True):
            _remove_if_empty(directory)
        self._made = [directory for directory in self._made if os.path.isdir(directory)]

    def write(
        self,
        path: str,
        content: bytes,
        before: bytes | None,
        *,
        agent: str,
        scope: str,
        project: str | None,
        is_program: bool = False,
    ) -> str | None:
        """Write a file; return the path of its backup if one was made now.

        `before` is the content that was read. The original content is backed up before anything is written.
        """
        known = self.files.get(path)
        backup = known.backup if known is not None else None
        made_backup = None
        if known is None and before is not None:
            backup = f"{agent}-{sha256(os.fsencode(path)).hexdigest()[:12]}-{os.path.basename(path)}"
            made_backup = os.path.join(self._backups, backup)
            disk.make_directories(self._backups)
            disk.write_file(made_backup, before)
        written: str | None = _digest(content)
        if known is not None and (before is None or _digest(before) != known.written):
            written = None
        self._made += _make_parents(path)
        self.files[path] = Installed(path, agent, scope, project, written, backup)
        # Recorded first: a file that we wrote but did not record would never be removed.
        self.save()
        try:
            replace_file(path, content, before, is_program=is_program)
        except InvalidInput:
            self._take_back(path, known, content)
            raise
        return made_backup

    def _take_back(self, path: str, known: Installed | None, content: bytes) -> None:
        """Record a file as it was recorded before, unless it was written after all."""
        if disk.read_if_there(path) == content:
            return
        if known is None:
            self.forget(path)
        else:
            self.files[path] = known
            self.save()

    def is_untouched(self, path: str, content: bytes) -> bool:
        """Return whether a file is as we wrote it."""
        known = self.files.get(path)
        return known is not None and known.written == _digest(content)

    def read_first(self, path: str) -> bytes | None:
        """Return what a file held before we changed it; None: there was no file, or it is unknown."""
        known = self.files.get(path)
        if known is None or known.backup is None:
            return None
        return disk.read_if_there(os.path.join(self._backups, known.backup))

    def was_made(self, path: str) -> bool:
        """Return whether we created a file, rather than changed it."""
        known = self.files.get(path)
        return known is not None and known.backup is None

    def forget(self, path: str) -> None:
        """Drop a file from the record, with its backup and the directories of ours that are empty now."""
        known = self.files.pop(path, None)
        if known is None:
            return
        if known.backup is not None:
            disk.remove_file(os.path.join(self._backups, known.backup))
        self._remove_made()
        self.save()


def _wait_for_lock(fd: int) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    try:
        while not try_lock(fd):
            if time.monotonic() > deadline_s:
                raise InvalidInput("another 'shadowtree hooks' is still running; try again when it is done")
            time.sleep(_PAUSE_S)
    except OSError:
        # Not every file system locks directories; files are still compared before they are replaced.
        return


def _make_parents(path: str) -> list[str]:
    """Make the missing directories above a file, and return them, the deepest first."""
    missing, directory = [], os.path.dirname(path)
    while not os.path.isdir(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    try:
        for each in reversed(missing):
            os.mkdir(each)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {describe(error)}") from error
    return missing


def _remove_if_empty(directory: str) -> None:
    try:
        os.rmdir(directory)
    except OSError:
        # Others have put something there, or it is gone.
        return


def _to_json(entry: Installed) -> dict[str, Any]:  # Any: JSON
    return {name: getattr(entry, name) for name in Installed.__match_args__}


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()
