"""What callers said, without what is purged: texts, and names of branches, which are slugs of texts.

    text      use sk_live_51HxYz now    ──▶    use [purged] now
    branch    use-sk-live-51hxyz-now    ──▶    use-purged-now

A branch that is named after a text which loses something is named anew after what is left. Any other name,
one that a user gave or whose text was forgotten, loses what is found in it. Ids of messages and names of
sessions stay, because others call by them, and are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from shadowtree.errors import StoreDamaged
from shadowtree.events import BranchRow
from shadowtree.frozen import frozen
from shadowtree.journal import Journal
from shadowtree.opened import OpenStore
from shadowtree.redaction import (
    Said,
    Secrets,
    list_strings,
    redact,
    redact_json,
    redact_name,
    redact_role,
    tells,
)
from shadowtree.slugs import without_number
from shadowtree.timeline import name_text, number_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.purgedrows import Place

_REDACTIONS = {"meta": redact_json, "role": redact_role}
"""How the texts of some columns are redacted that are not just text."""
_NAMED = 10
"""How many ids and names of sessions are named to people."""


@frozen
class Retold:
    """What becomes of what callers said."""

    texts: Sequence[tuple[Place, str]]
    """Texts that lose something, and where they stand."""
    branches: Sequence[tuple[int, str]]
    """Branches that get another name, by their numbers."""
    unread: Sequence[bytes]
    """Contents that nobody can read, so that texts may still say what was in them."""
    ids: Sequence[str]
    """Ids of messages that hold something of it."""
    sessions: Sequence[str]
    """Names of sessions that do."""

    def describe(self) -> Iterator[str]:
        """Tell what a user should know of it."""
        for _, name in self.branches:
            yield f"a branch whose name told of it is called {name!r}"
        for kind, names in (("ids of messages", self.ids), ("names of sessions", self.sessions)):
            if names:
                named = ", ".join(names[:_NAMED])
                more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
                yield f"{kind} that hold something of it stay, because others call by them: {named}{more}"
        for blob in self.unread:
            yield f"{blob.hex()} cannot be read, so that messages may still say what was in it"


def retell(opened: OpenStore, blobs: Iterable[bytes]) -> Retold:
    """Decide what becomes of what callers said once some contents are purged. Changes nothing."""
    journal = opened.journal
    texts, branches = journal.texts(), journal.all_branches()
    ids, sessions = journal.message_ids(), journal.session_names().values()
    strings = (string for place, text in texts for string in _strings(place, text))
    said = Said((*strings, *ids, *sessions), [branch.name for branch in branches])
    unread = list(_compare(opened, blobs, said)) if said else []
    secrets = said.secrets()
    redacted = list(_redact_texts(texts, secrets))
    names = _redact_names(branches, said, _redact_slugs(journal, redacted))
    return Retold(
        redacted,
        list(_rename(journal, branches, names)),
        unread,
        [id for id in ids if tells(id, secrets)],
        [name for name in sessions if tells(name, secrets)],
    )


def _strings(place: Place, text: str) -> Iterable[str]:
    return list_strings(text) if place[1] == "meta" else (text,)


def _compare(opened: OpenStore, blobs: Iterable[bytes], said: Said) -> Iterator[bytes]:
    """Compare contents with what was said, and give those that cannot be read."""
    for blob in sorted(blobs):
        try:
            said.compare(opened.objects.stream_blob(blob))
        except StoreDamaged:
            yield blob


def _redact_texts(texts: Iterable[tuple[Place, str]], secrets: Secrets) -> Iterator[tuple[Place, str]]:
    for place, text in texts if secrets else ():
        redacted = _REDACTIONS.get(place[1], redact)(text, secrets)
        if redacted != text:
            yield place, redacted


# Names of branches

_Names = dict[tuple[int, str], str]
"""By the number of a session and a name another one."""


def _redact_slugs(journal: Journal, redacted: Iterable[tuple[Place, str]]) -> _Names:
    """Give the names after texts that lose something, and those after what is left of them."""
    texts = {number: text for (_, column, number), text in redacted if column == "text"}
    rows = journal.messages_by_number(sorted(texts)).values()
    return {(row.session, name_text(row.text)): name_text(texts[row.number]) for row in rows}


def _redact_names(branches: Iterable[BranchRow], said: Said, by_text: _Names) -> _Names:
    """Give another name for each that tells of what is purged; it may be in use."""
    secrets, slugs = said.secrets(), said.slugs()
    found = {}
    for branch in branches:
        session, name = branch.session, branch.name
        base = without_number(name)
        new = by_text.get((session, name)) or by_text.get((session, base))
        new = redact_name(name, secrets, slugs) if new is None else new
        if new not in (name, base):
            found[session, name] = new
    return found


def _rename(journal: Journal, branches: Sequence[BranchRow], names: _Names) -> Iterator[tuple[int, str]]:
    """Give the numbers of branches that get another name, and one that nothing else in the session has."""
    used = {(branch.session, branch.name) for branch in branches}
    for branch in branches:
        base = names.get((branch.session, branch.name))
        if base is not None:
            name = number_name(base, partial(_is_used, journal, used, branch.session))
            used.add((branch.session, name))
            yield branch.number, name


def _is_used(journal: Journal, names: set[tuple[int, str]], session: int, name: str) -> bool:
    # A message goes before a branch: nobody could switch to one that is called like it.
    return (session, name) in names or journal.find_message(session, name) is not None
