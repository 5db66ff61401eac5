"""Where a user's things are, as the environment says: the home, git's configuration, the stores.

The environment comes in as a value; this module reads none itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from shadowtree.base.errors import InvalidInput
from shadowtree.system.syscalls import IS_MAC

VARIABLE_PREFIX = "SHADOWTREE_"
_OTHER_VARIABLES = frozenset(
    VARIABLE_PREFIX + name for name in ("CONFIG", "DEBUG", "HOME", "RUN", "SESSION", "STORE")
)
"""Variables of ours that are no settings."""


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
        """The user's file of settings, which need not be there; None without a home."""
        self.variables = {
            name: value
            for name, value in environ.items()
            if name.startswith(VARIABLE_PREFIX) and name not in _OTHER_VARIABLES
        }
        """The variables that may be settings."""

    def given_store(self, store: str | os.PathLike[str] | None) -> str | None:
        """Name the store that somebody asked for, by argument or by environment."""
        given = os.fspath(store) if store is not None else self._given_store
        return os.path.realpath(given) if given else None

    def usual_store(self, worktree: str) -> str:
        """Name the store that a worktree has unless somebody asks for another."""
        if self.stores is None:
            raise InvalidInput("there is no home directory to keep the store in")
        return store_of(worktree, self.stores)

    def store_of(self, worktree: str, store: str | os.PathLike[str] | None) -> str:
        """Name the store of a worktree."""
        return self.given_store(store) or self.usual_store(worktree)


def store_of(worktree: str, stores: str) -> str:
    """Name the store of a worktree, given by its real path, in the directory of stores."""
    # Some milliseconds, which a command that the daemon answers does not pay.
    from hashlib import sha256

    digest = sha256(os.fsencode(worktree)).hexdigest()[:12]
    folder = os.path.basename(worktree) or "root"
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in folder)
    # Cut by bytes, which is how file systems count.
    short = safe.encode("utf-8", "replace")[:80].decode("utf-8", "ignore")
    return os.path.join(stores, f"{short}-{digest}")


def _user_home(environ: Mapping[str, str], variable: str, *usual: str) -> str | None:
    """Name the directory in which this platform keeps a user's data, or settings; None without a home."""
    home = environ.get("HOME") or None
    if IS_MAC:
        return home and os.path.join(home, "Library", "Application Support")
    given = environ.get(variable, "")
    return given if os.path.isabs(given) else home and os.path.join(home, *usual)
