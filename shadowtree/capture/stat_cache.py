"""The stat cache: the state of each directory when it was last read, one row per directory.

The cache only saves time. A directory whose row is missing or damaged is read again; a database that cannot
be opened, or has another version, is discarded. It is written without waiting for the disk: after a power cut
a row may be old or torn, and a checksum in each row detects a torn one.
"""

from __future__ import annotations

import marshal
import os
import sqlite3
import zlib
from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import closing

from shadowtree.base.errors import ShadowError
from shadowtree.base.paths import RelPath
from shadowtree.capture.directories import Directory
from shadowtree.system import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VERSION = 7
_MARSHAL_VERSION = 4
"""The layout of plain values is the same in every Python that knows this version."""
_WAL_PAGES = 64
"""How many pages may wait in the log before they are copied into the file, without a flush: 512 KiB."""
_WAL_BYTES = 512 << 10
"""The size that the log keeps when it is empty."""
_SCHEMA = f"""
PRAGMA page_size = 8192;
CREATE TABLE directories (path BLOB PRIMARY KEY, row BLOB NOT NULL);
CREATE TABLE info (key TEXT PRIMARY KEY, value BLOB NOT NULL);
PRAGMA user_version = {_VERSION};
"""
_TOKEN = "token"
_UNREADABLE = (sqlite3.Error, ValueError, EOFError, TypeError, ShadowError)
_FIELDS = (
    "mode",
    "stamp",
    "rules_key",
    "tracked_key",
    "names",
    "subdirectories",
    "excluded",
    "uncovered_files",
    "skipped",
    "missing",
    "ignore_stamp",
    "ignore_text",
    "has_repository",
    "exclude_text",
    "tree",
    "facts",
    "below_ids",
)
"""The attributes that are stored unchanged; `stats` and `ids` follow as bytes."""
_SAVE = "INSERT INTO directories VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET row = excluded.row"
"""Not `INSERT OR REPLACE`, which would also rewrite the index of paths."""


class StatCache:
    """The cached directories of one store, read lazily and kept in memory. Writing needs the store's lock."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Device and inode of the file that the connection has open."""
        self.forget()

    def close(self) -> None:
        """Close the file, and drop the cache in memory."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self.forget()

    def forget(self) -> None:
        """Drop the cache in memory, which may be ahead of the database after a failure."""
        self._seen_version = -1
        self._has_rows = False
        """Whether the directories were read from the database since `load`."""
        self._rows: dict[RelPath, bytes] = {}
        """Rows of the database that are not yet decoded."""
        self._directories: dict[RelPath, Directory] = {}
        self._info: dict[str, Any] = {}  # Any: plain values, whose types their readers know

    def load(self) -> None:
        """Drop the cache in memory if the database changed; directories are read when one is needed."""
        try:
            if self._connection is not None and self._file != _identify(self._path):
                # Another process discarded it. SQLite goes on with the file that has no name any more.
                self.close()
            connection = self._connect()
            version = connection.execute("PRAGMA data_version").fetchone()[0]
            if version != self._seen_version:
                self.forget()
                info = connection.execute("SELECT key, value FROM info")
                self._info = {key: _decode_value(value) for key, value in info}
                self._seen_version = version
        except _UNREADABLE:
            self.discard()

    def _load_rows(self) -> None:
        """Read the directories, unless they were already read."""
        if self._has_rows:
            return
        self._has_rows = True
        try:
            rows = self._connect().execute("SELECT path, row FROM directories")
            self._rows = {path: row for path, row in rows if path not in self._directories}
        except _UNREADABLE:
            self.discard()
            self._has_rows = True

    @property
    def token(self) -> bytes | None:
        """An id that no other database at this path has had or will have; None if there is no database."""
        token: bytes | None = self._info.get(_TOKEN)
        return token

    def renew_token(self) -> None:
        """Make other processes ignore what they have in memory; the rows stay valid."""
        if self.token is not None:
            self.save((), (), {_TOKEN: os.urandom(16)})

    def paths(self) -> list[RelPath]:
        """List every cached directory."""
        self._load_rows()
        return [*self._rows, *self._directories]

    def get(self, path: RelPath) -> Directory | None:
        """Return a cached directory; None if it is not cached."""
        self._load_rows()
        known = self._directories.get(path)
        if known is None and path in self._rows:
            known = _decode(path, self._rows.pop(path))
            if known is not None:
                self._directories[path] = known
        return known

    def named_ids(self) -> Iterator[bytes]:
        """Yield the id of every object that the cache takes for stored, some more than once."""
        for path in self.paths():
            directory = self.get(path)
            if directory is not None:
                yield from _ids_in(directory)

    def info(self, key: str) -> Any:  # Any: whatever was put there
        """Return a value that was saved with the directories."""
        return self._info.get(key)

    def save(self, changed: Collection[Directory], gone: Collection[RelPath], info: dict[str, Any]) -> None:
        """Save directories that changed, and remove those that are gone."""
        for path in gone:
            self._rows.pop(path, None)
            self._directories.pop(path, None)
        self._directories.update((directory.path, directory) for directory in changed)
        new_info = {key: value for key, value in info.items() if self._info.get(key) != value}
        self._info.update(new_info)
        if not changed and not gone and not new_info:
            return
        try:
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM directories WHERE path = ?", [(path,) for path in gone])
            connection.executemany(_SAVE, ((d.path, _encode(d)) for d in changed))
            connection.executemany(
                "INSERT OR REPLACE INTO info VALUES (?, ?)",
                [(key, _encode_value(value)) for key, value in new_info.items()],
            )
            connection.execute("COMMIT")
        except (sqlite3.Error, ShadowError):
            self.discard()

    def wipe(self) -> None:
        """Remove everything, so that nothing is left in the file; other processes notice by a new token."""
        self.forget()
        try:
            connection = self._connect()
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM directories")
            connection.execute("DELETE FROM info")
            connection.execute("INSERT INTO info VALUES (?, ?)", (_TOKEN, _encode_value(os.urandom(16))))
            connection.execute("COMMIT")
            connection.execute("VACUUM")
            if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                self.discard()
        except (sqlite3.Error, ShadowError):
            self.discard()

    def discard(self) -> None:
        """Delete the database; the next one starts empty."""
        self.close()
        for suffix in ("", "-wal", "-shm", "-journal"):
            try:
                disk.remove_file(self._path + suffix)
            except ShadowError:
                return

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            if not os.path.exists(self._path):
                os.close(disk.create_file(self._path))
            # Before it is opened: if it is replaced in between, `load` notices.
            self._file = _identify(self._path)
            connection = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False, timeout=10
            )
            self._connection = connection
            connection.execute("PRAGMA synchronous = OFF")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError("another version")
            if version == 0:
                connection.executescript(_SCHEMA)
                token = _encode_value(os.urandom(16))
                connection.execute("INSERT INTO info VALUES (?, ?)", (_TOKEN, token))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
        return self._connection


def _identify(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def find_faults(path: str, is_stored: Callable[[bytes], bool]) -> Iterator[str]:
    """Yield the faults of a cache, and change nothing; `is_stored` checks the objects that it relies on."""
    if not os.path.exists(path):
        return
    from urllib.parse import quote

    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=rw", uri=True)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != _VERSION:
                yield "it has a different version"
                return
            if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
                yield "SQLite finds it damaged"
                return
            rows = connection.execute("SELECT path, row FROM directories").fetchall()
            info = connection.execute("SELECT value FROM info").fetchall()
        if any(_decode_value(value) is None for (value,) in info):
            yield "a value in it is damaged"
        directories = [_decode(directory, row) for directory, row in rows]
    except _UNREADABLE as error:
        yield str(error)
        return
    if None in directories:
        yield "a row in it is damaged"
    named = {id for directory in directories if directory is not None for id in _ids_in(directory)}
    missing = [id for id in sorted(named) if not is_stored(id)]
    if missing:
        yield f"it relies on object {missing[0].hex()}, which is not stored"


def _ids_in(directory: Directory) -> Iterator[bytes]:
    yield from (id for id in (directory.tree, directory.facts) if id)
    ids = bytes(directory.ids)
    yield from (ids[at : at + 20] for at in range(0, len(ids), 20) if any(ids[at : at + 20]))


def _encode(directory: Directory) -> bytes:
    values = [getattr(directory, name) for name in _FIELDS]
    values += [directory.stats.tobytes(), bytes(directory.ids)]
    return _encode_value(values)


def _encode_value(value: Any) -> bytes:  # Any: plain values, as marshal takes them
    plain = marshal.dumps(value, _MARSHAL_VERSION)
    return zlib.crc32(plain).to_bytes(4, "big") + plain


def _decode_value(checked: bytes) -> Any:  # Any: whatever was encoded; None if it is torn
    if not isinstance(checked, bytes) or len(checked) < 5:
        return None
    if zlib.crc32(memoryview(checked)[4:]) != int.from_bytes(checked[:4], "big"):
        return None
    return marshal.loads(memoryview(checked)[4:])


def _decode(path: RelPath, row: bytes) -> Directory | None:
    """Decode a row; return None if it is torn."""
    values = _decode_value(row)
    if values is None:
        return None
    directory = Directory(path, 0)
    for name, value in zip(_FIELDS, values, strict=False):
        setattr(directory, name, value)
    directory.is_stale = False
    directory.stats = array("q", values[-2])
    directory.ids = bytearray(values[-1])
    return directory
