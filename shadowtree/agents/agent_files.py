"""Read, replace and remove whole files of agents, without losing what others wrote meanwhile.

An agent may save its settings at any time. So a file is exchanged with the new one atomically, and its
content is then compared with what was read before; if it differs, the two files are exchanged back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress

from shadowtree.base.errors import InvalidInput, describe
from shadowtree.system import disk
from shadowtree.system.syscalls import exchange, is_being_written, move

_MOST_BYTES = 8 << 20
_MODE = 0o666
_PROGRAM_MODE = 0o777


def read_whole(path: str) -> bytes | None:
    """Read an agent's file; None if there is none. Raise InvalidInput if it cannot be read as settings."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(f"{path} is not a regular file")
        if status.st_size > _MOST_BYTES:
            raise InvalidInput(f"{path} is too big to be an agent's settings")
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {describe(error)}") from error


def replace_file(path: str, content: bytes, before: bytes | None, *, is_program: bool = False) -> None:
    """Write a file whole or not at all, with the mode that it had; refuse if it changed since it was read."""
    temporary = _name_temporary(path)
    try:
        try:
            _write(temporary, content, _PROGRAM_MODE if is_program else _MODE, like=path)
            if before is None:
                _rename(move, temporary, path)
            else:
                _swap(temporary, path, before)
        finally:
            _discard(temporary, content, before)
    except FileExistsError as error:
        raise _just_changed(path) from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {describe(error)}") from error


def remove_file(path: str, before: bytes | None) -> None:
    """Remove a file; refuse if it changed since it was read."""
    temporary = _name_temporary(path)
    try:
        _rename(move, path, temporary)
        if not _is_still(temporary, before):
            _rename(move, temporary, path)
            raise _just_changed(path)
        os.unlink(temporary)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InvalidInput(f"{path} cannot be removed: {describe(error)}") from error


def _swap(temporary: str, path: str, before: bytes) -> None:
    """Exchange a file with the new one; if it changed since it was read, exchange them back and raise."""
    _rename(exchange, temporary, path)
    if not _is_still(temporary, before):
        _rename(exchange, temporary, path)
        raise _just_changed(path)


def _discard(temporary: str, content: bytes, before: bytes | None) -> None:
    """Remove a temporary file, unless it holds another program's content."""
    with suppress(FileNotFoundError):
        with open(temporary, "rb") as file:
            found = file.read()
        if found == before or content.startswith(found):
            os.unlink(temporary)


def _is_still(path: str, before: bytes | None) -> bool:
    """Return whether a file holds what was read, and no process has it open for writing."""
    with open(path, "rb") as file:
        return file.read() == before and not is_being_written(file.fileno())


def _write(path: str, content: bytes, mode: int, *, like: str) -> None:
    """Write a new file, with the mode of the file `like` if that exists."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(fd, "wb") as file:
        with suppress(FileNotFoundError):
            os.fchmod(fd, stat.S_IMODE(os.stat(like).st_mode))
        file.write(content)
        file.flush()
        os.fsync(fd)


def _rename(way: Callable[[int, bytes, int, bytes], None], source: str, target: str) -> None:
    directory_fd = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        names = (os.fsencode(os.path.basename(path)) for path in (source, target))
        way(directory_fd, next(names), directory_fd, next(names))
    finally:
        os.close(directory_fd)


def _name_temporary(path: str) -> str:
    return f"{path}.{disk.TEMPORARY_PREFIX}{os.urandom(4).hex()}"


def _just_changed(path: str) -> InvalidInput:
    return InvalidInput(f"{path} has just been changed by another program; try again")
