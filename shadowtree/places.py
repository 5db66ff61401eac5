"""Where a user's things are, as the environment says: the home, git's configuration, the stores.

The environment comes in as a value; this module reads none itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from shadowtree.errors import InvalidInput
from shadowtree.layout import store_of
from shadowtree.system import user_config_home, user_data_home

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
        data_home = user_data_home(environ)
        given = environ.get("SHADOWTREE_HOME") or (data_home and os.path.join(data_home, "shadowtree"))
        self.stores = os.path.realpath(given) if given else None
        """The directory of stores; None without a home."""
        config_home = user_config_home(environ)
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
