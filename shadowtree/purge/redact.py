"""Redact messages, steps and branches: remove the purged text from them.

This removes the exact lines and values of a purged content, or one text that the user gave:

    content   token: sk_live_51HxYz     ──▶    the line, and  sk_live_51HxYz
    text      use sk_live_51HxYz now    ──▶    use [purged] now
    branch    use-sk-live-51hxyz-now    ──▶    use-purged-now

A line or value counts if it has at least eight characters, with four different letters or digits: anything
less occurs in many texts. A branch that was named after a redacted text is renamed after the rest of the
text. Message ids and session names stay, because other programs use them; those that contain a secret are
reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from shadowtree.base.errors import StoreDamaged
from shadowtree.base.frozen import frozen
from shadowtree.capture.open_store import OpenStore
from shadowtree.timeline.branches import make_slug, name_text, number_name, without_number
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.sqlite.schema import BranchRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.timeline.sqlite.removal import Place

REDACTED = "[purged]"
_REDACTED_NAME = "purged"
_SHORTEST = 8
_FEWEST_CHARACTERS = 4
_LONGEST_LINE = 1 << 20
"""A line of a content that has more bytes is split."""
_MARKS = 1 << 22
"""The size of the filter of first characters, in bytes of memory."""
_NAMED = 10
"""How many message ids or session names a note lists."""
_VALUE = re.compile(r"""[=:]\s*(?:"([^"]*)"|'([^']*)'|`([^`]*)`|([^\s"'`,;]+))""")


@frozen
class Redactions:
    """How the texts of messages, steps and branches change."""

    texts: Sequence[tuple[Place, str]]
    """Where texts change, with the redacted texts."""
    branches: Sequence[tuple[int, str]]
    """The numbers of branches that are renamed, with their new names."""
    unread: Sequence[bytes]
    """Contents that cannot be read, so texts may still repeat parts of them."""
    ids: Sequence[str]
    """Ids of messages that contain a secret."""
    sessions: Sequence[str]
    """Names of sessions that contain a secret."""

    @property
    def is_nothing(self) -> bool:
        """Whether no text holds a secret."""
        return not (self.texts or self.branches or self.ids or self.sessions)

    def describe(self) -> Iterator[str]:
        """Yield what a user should know, one line each."""
        for _, name in self.branches:
            yield f"a branch whose name contained it was renamed to {name!r}"
        for kind, names in (("message ids", self.ids), ("session names", self.sessions)):
            if names:
                named = ", ".join(names[:_NAMED])
                more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
                yield f"{kind} that contain part of it stay, because other programs use them: {named}{more}"
        for blob in self.unread:
            yield f"{blob.hex()} cannot be read, so messages may still repeat parts of it"


def plan_redactions(opened: OpenStore, blobs: Iterable[bytes], text: str | None) -> Redactions:
    """Find what to redact once contents, or one text, are purged. Changes nothing."""
    journal = opened.journal
    texts, branches = journal.purges.texts(), journal.purges.all_branches()
    ids, sessions = journal.purges.message_ids(), list(journal.session_names().values())
    names = [branch.name for branch in branches]
    strings = [string for place, each in texts for string in _list_strings(place, each)]
    secrets = [] if text is None else [text]
    unread = []
    strings += [*ids, *sessions, *names]
    if any(strings):
        search = _SecretSearch(strings, names)
        for blob in sorted(blobs):
            try:
                search.add(opened.objects.stream_blob(blob))
            except StoreDamaged:
                unread.append(blob)
        secrets += search.found
    # The longest first: it may contain another one.
    secrets.sort(key=len, reverse=True)
    # A value from a content may be an ordinary word, which roles and ids contain as well.
    telling = [secret for secret in secrets if secret == text or not secret.isalpha()]
    redacted = [(place, new) for place, old in texts if (new := _redact(place, old, secrets, telling)) != old]
    return Redactions(
        redacted,
        list(_rename_branches(journal, branches, redacted, secrets)),
        unread,
        [id for id in ids if any(secret in id for secret in telling)],
        [name for name in sessions if any(secret in name for secret in telling)],
    )


# Secrets


class _SecretSearch:
    """Finds which lines and values of contents occur in texts or branch names."""

    def __init__(self, texts: Iterable[str], branches: Iterable[str]) -> None:
        self._all = "\0".join(texts)
        self._branches = "\0".join(branches)
        # A content may have millions of lines, and hardly any occurs in a text: filter by first characters.
        self._starts = bytearray(_MARKS)
        for at in range(len(self._all) - _SHORTEST + 1):
            self._starts[hash(self._all[at : at + _SHORTEST]) % _MARKS] = 1
        self.found: set[str] = set()

    def add(self, pieces: Iterable[bytes]) -> None:
        """Find what a content, given in pieces, has in common with the texts."""
        for line in _split_lines(pieces):
            for part in list_secrets(line.decode("utf-8", "surrogateescape")):
                if self._starts[hash(part[:_SHORTEST]) % _MARKS] and part in self._all:
                    self.found.add(part)
                # Branch names are slugs.
                slug = make_slug(part) if self._branches else ""
                if len(slug) >= _SHORTEST and slug in self._branches:
                    self.found.add(slug)


def list_secrets(line: str) -> Iterator[str]:
    """List what to redact if a line is purged: the line, and its values, without quotes."""
    values = [line.partition(mark)[2] for mark in ("=", ":")]
    values += [pair[pair.lastindex or 0] for pair in _VALUE.finditer(line)]
    for part in (line.strip(), *(value.strip().rstrip(",;").strip("\"'`").strip() for value in values)):
        if len(part) >= _SHORTEST and len(set(filter(str.isalnum, part))) >= _FEWEST_CHARACTERS:
            yield part


def _split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > _LONGEST_LINE:
            yield rest
            rest = b""
    yield rest


# Texts


def _list_strings(place: Place, text: str) -> Iterator[str]:
    """List a text, or every string and number in a JSON document."""
    waiting: list[Any] = [json.loads(text) if place[1] == "meta" else text]  # Any: JSON
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, str | int):
            yield str(value)


def _redact(place: Place, text: str, secrets: Sequence[str], telling: Sequence[str]) -> str:
    if place[1] == "role":
        # Roles decide where turns begin: one is replaced only as a whole, and not for an ordinary word.
        return REDACTED if any(secret in text for secret in telling) else text
    if place[1] != "meta":
        return _replace(text, secrets)
    value = json.loads(text)
    redacted = _redact_value(value, secrets)
    return text if redacted == value else json.dumps(redacted)


def _redact_value(value: Any, secrets: Sequence[str]) -> Any:  # Any: JSON
    if isinstance(value, str):
        return _replace(value, secrets)
    if isinstance(value, list):
        return [_redact_value(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_replace(key, secrets): _redact_value(item, secrets) for key, item in value.items()}
    return REDACTED if isinstance(value, int) and str(value) in secrets else value


def _replace(text: str, secrets: Sequence[str], redacted: str = REDACTED) -> str:
    for secret in secrets:
        text = text.replace(secret, redacted)
    return text


# Branches


def _rename_branches(
    journal: Journal,
    branches: Sequence[BranchRow],
    redacted: Iterable[tuple[Place, str]],
    secrets: Sequence[str],
) -> Iterator[tuple[int, str]]:
    """Yield new names, unique in their sessions, for branches named after a redacted text or a secret."""
    texts = {number: text for (_, column, number), text in redacted if column == "text"}
    rows = journal.messages_by_number(sorted(texts)).values()
    by_text = {(row.session, name_text(row.text)): name_text(texts[row.number]) for row in rows}
    used = {(branch.session, branch.name) for branch in branches}
    for branch in branches:
        session, name = branch.session, branch.name
        base = without_number(name)
        new = by_text.get((session, name)) or by_text.get((session, base))
        new = _replace(name, secrets, _REDACTED_NAME) if new is None else new
        if new in (name, base):
            continue

        def is_used(name: str, session: int = session) -> bool:
            # A message takes precedence over a branch of the same name: nobody could switch to the branch.
            return (session, name) in used or journal.find_message(session, name) is not None

        unique = number_name(new, is_used)
        used.add((session, unique))
        yield branch.number, unique
