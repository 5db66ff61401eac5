"""What a store knows about its remotes: their names and URLs, the refs they have, and failed pushes.

This is kept in the store's timeline, so no file of a project can add or change a remote.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from shadowtree.base.arguments import check_name
from shadowtree.base.errors import InvalidInput, UnknownRemote
from shadowtree.base.frozen import field, frozen, replace
from shadowtree.results.remotes import Remote
from shadowtree.timeline.sqlite.database import Database
from shadowtree.timeline.sqlite.schema import REMOTES, encode_text


@frozen
class RemoteState:
    """One remote, as the store knows it."""

    number: int
    name: str
    url: str
    is_confirmed: bool = False
    """Somebody has agreed to push this project there."""
    known: dict[str, str] = field(default_factory=dict)
    """The commit that each of its refs named when it was last contacted."""
    told: dict[str, int] = field(default_factory=dict)
    """For the ref of each session, the number of the last message whose text was pushed."""
    pushed_ms: int | None = None
    failures: int = 0
    why: str = ""
    retry_ms: int = 0
    """No push is retried automatically before this time."""

    def to_remote(self) -> Remote:
        """Return the remote as the value that callers get."""
        return Remote(self.name, self.url, self.pushed_ms, self.failures, self.why)

    def knows(self, ref: bytes, id: bytes) -> bool:
        """Return whether a ref named this commit when the remote was last contacted."""
        return self.known.get(ref.decode()) == id.hex()


def list_remotes(database: Database) -> list[RemoteState]:
    """List the remotes, sorted by name."""
    return sorted(database.read(_decode, REMOTES.select), key=lambda remote: remote.name)


def find_remote(database: Database, name: str | None) -> RemoteState:
    """Find a remote by name; without a name, the only remote or `origin`. Raises UnknownRemote."""
    remotes = {remote.name: remote for remote in list_remotes(database)}
    if name is None and len(remotes) == 1:
        return next(iter(remotes.values()))
    found = remotes.get(name or "origin")
    if found is None:
        raise UnknownRemote(name or "origin")
    return found


def add_remote(database: Database, name: str, url: str) -> RemoteState:
    """Add a remote; raise InvalidInput if the name is taken or invalid."""
    check_name(name, "remote")
    if name.startswith("-") or "/" in name or any(remote.name == name for remote in list_remotes(database)):
        is_there = any(remote.name == name for remote in list_remotes(database))
        raise InvalidInput(
            f"a remote named {name!r} already exists" if is_there else f"invalid name {name!r}"
        )
    number = database.add(REMOTES, name, url, b"{}")
    return RemoteState(number, name, url)


def remove_remote(database: Database, remote: RemoteState) -> None:
    """Remove a remote from the list; what was pushed stays there."""
    database.execute("DELETE FROM remotes WHERE number = ?", remote.number)


def save_remote(database: Database, remote: RemoteState, **changes: object) -> RemoteState:
    """Save changes to the state of a remote, and return the new state."""
    changed: RemoteState = replace(remote, **changes)
    names = ("is_confirmed", "known", "told", "pushed_ms", "failures", "why", "retry_ms")
    content = json.dumps({name: getattr(changed, name) for name in names})
    database.change(REMOTES, remote.number, url=encode_text(changed.url), state=content.encode())
    return changed


def _decode(row: object) -> RemoteState:
    number, name, url, state = REMOTES.decode(row)
    return RemoteState(number, name, url, **json.loads(state))


def note_refs(known: Mapping[str, str], refs: Mapping[bytes, bytes | None]) -> dict[str, str]:
    """Return the known refs after some were changed there; None stands for a removed ref."""
    now = {**known, **{ref.decode(): id.hex() for ref, id in refs.items() if id is not None}}
    return {ref: id for ref, id in now.items() if refs.get(ref.encode(), b"") is not None}
