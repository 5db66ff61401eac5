"""Which program the hooks run: an absolute path that will still be there tomorrow."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from shadowtree.base.errors import InvalidInput

NAME = "shadowtree"
_TEMPORARY = ("/tmp", "/var/tmp", "/private/tmp", "/private/var/tmp", "/private/var/folders", "/dev/shm")
_CACHES = (".cache", "Caches", "archive-v0", "environments-v2")
"""Directories in which tools such as `uvx` and `pipx run` keep programs only for some time."""


def find_executable(given: str | None = None) -> str:
    """Return the path of the program that hooks run: the given one, else the running one."""
    if given is not None:
        path = os.path.abspath(given)
        if os.path.basename(path) != NAME:
            raise InvalidInput(f"the program must be called {NAME}, not {os.path.basename(path)!r}")
        if not can_run(path):
            raise InvalidInput(f"{path} is not a program that you can run")
        return path
    return _find_own()


def require_lasting(path: str, environ: Mapping[str, str]) -> None:
    """Raise InvalidInput if a program may not stay where it is."""
    why = _find_doubt(path, environ)
    if why is not None:
        todo = "install shadowtree somewhere permanent (pipx install .), or use --executable PATH"
        raise InvalidInput(f"{path} {why}; {todo}")


def make_line(executable: str, agent: str) -> str:
    """Return the line that an agent runs. It must never change: Codex trusts exactly this text."""
    return f"{shlex.quote(executable)} hook {agent}"


def read_line(line: object, agent: str) -> str | None:
    """Return the program in a line that we wrote; None: it is not ours."""
    try:
        words = shlex.split(line) if isinstance(line, str) else []
    except ValueError:
        return None
    is_ours = len(words) == 3 and words[1:] == ["hook", agent] and os.path.basename(words[0]) == NAME
    return words[0] if is_ours else None


def _find_own() -> str:
    """Find the running program: as it was called, else the one next to this Python, else in PATH."""
    import shutil

    called = sys.argv[0] if os.path.basename(sys.argv[0]) == NAME else None
    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    candidates: Sequence[str | None] = (called and os.path.abspath(called), beside, shutil.which(NAME))
    for path in candidates:
        if path is not None and can_run(path):
            return os.path.abspath(path)
    raise InvalidInput(f"there is no program called {NAME}; try --executable with its path")


def _find_doubt(path: str, environ: Mapping[str, str]) -> str | None:
    """Return why a program may not stay where it is; None: there is no reason."""
    temporary = {*_TEMPORARY, environ.get("TMPDIR") or "/tmp"}
    caches = {environ.get(name) or "" for name in ("UV_CACHE_DIR", "XDG_CACHE_HOME")} - {""}
    for place in (path, os.path.realpath(path)):
        if not set(place.split("/")).isdisjoint(_CACHES) or any(_is_inside(place, each) for each in caches):
            return "is in the cache of a tool such as uvx or 'pipx run', which removes it again"
        if any(_is_inside(place, directory) for directory in temporary):
            return "is in a temporary directory"
    return None


def _is_inside(path: str, directory: str) -> bool:
    return path.startswith((os.path.realpath(directory).rstrip("/") + "/", directory.rstrip("/") + "/"))


def can_run(path: str) -> bool:
    """Return whether a path is a program that this user can run."""
    return os.path.isfile(path) and os.access(path, os.X_OK)
