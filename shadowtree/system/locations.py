"""Where a user's files are, according to the environment: the home, git's configuration, the stores.

The environment is passed in; this module does not read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from shadowtree.base.arguments import check_path
from shadowtree.base.errors import InvalidInput
from shadowtree.system.syscalls import IS_MAC

VARIABLE_PREFIX = "SHADOWTREE_"
_OTHERS = "CONFIG DEBUG HOME PAGER REMOTE_HOST REMOTE_PASSWORD REMOTE_USER RUN SESSION STORE"
_OTHER_VARIABLES = frozenset(VARIABLE_PREFIX + name for name in _OTHERS.split())
"""Variables of ours that are not settings."""


class Places:
    """The directories of one user."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        home = environ.get("HOME") or None
        self.home = os.path.realpath(home) if home else None
        self.config_home = environ.get("XDG_CONFIG_HOME") or None
        self._given_store = environ.get("SHADOWTREE_STORE") or None
        data_home = _user_home(environ, "XDG_DATA_HOME", ".local", "share")
        given = environ.get("SHADOWTREE_HOME") or (data_home and os.path.join(data_home, "shadowtree"))
        self.stores = os.path.realpath(given) if given else None
        """The directory of stores; None without a home."""
        config_home = _user_home(environ, "XDG_CONFIG_HOME", ".config")
        self.user_config = environ.get("SHADOWTREE_CONFIG") or (
            config_home and os.path.join(config_home, "shadowtree", "config.toml")
        )
        """The user's settings file, which need not exist; None without a home."""
        self.variables = {
            name: value
            for name, value in environ.items()
            if name.startswith(VARIABLE_PREFIX) and name not in _OTHER_VARIABLES
        }
        """The variables that may be settings."""

    def given_store(self, store: str | os.PathLike[str] | None) -> str | None:
        """Return the store that is given by argument or by environment; None if there is none."""
        given = self._given_store if store is None else check_path(store)
        return os.path.realpath(given) if given else None

    def usual_store(self, worktree: str) -> str:
        """Return the store that a worktree has if none is given."""
        if self.stores is None:
            raise InvalidInput("there is no home directory to keep the store in")
        return store_of(worktree, self.stores)

    def store_of(self, worktree: str, store: str | os.PathLike[str] | None) -> str:
        """Return the store of a worktree: the given one or the usual one."""
        return self.given_store(store) or self.usual_store(worktree)


def store_of(worktree: str, stores: str) -> str:
    """Return the path of a worktree's store in the directory of stores; `worktree` is a real path."""
    # Imported here: it takes some milliseconds, and a command that the daemon serves does not need it.
    from hashlib import sha256

    digest = sha256(os.fsencode(worktree)).hexdigest()[:12]
    folder = os.path.basename(worktree) or "root"
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in folder)
    # Cut by bytes, because file systems limit names in bytes.
    short = safe.encode("utf-8", "replace")[:80].decode("utf-8", "ignore")
    return os.path.join(stores, f"{short}-{digest}")


def _user_home(environ: Mapping[str, str], variable: str, *usual: str) -> str | None:
    """Return where this platform keeps a user's data, or settings; None without a home."""
    home = environ.get("HOME") or None
    if IS_MAC:
        return home and os.path.join(home, "Library", "Application Support")
    given = environ.get(variable, "")
    return given if os.path.isabs(given) else home and os.path.join(home, *usual)
