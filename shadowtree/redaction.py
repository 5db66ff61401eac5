"""Texts without what a purged file held.

What to look for is taken from texts of up to 64 KiB: every line of them, what stands behind `=` or `:`,
without quotes, passwords in addresses, and every run of characters without blanks, quotes and brackets that
is hardly a word. What is shorter than eight characters, or has fewer than four letters and digits that
differ, could not be told from any other text, and is let stand.

    {"user": "ann", "token": "sk-12345678"}    ──▶    the line, and  sk-12345678
    DB=postgres://ann:pass-word@db  # live     ──▶    the line,  postgres://ann:pass-word@db  and  pass-word
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

LARGEST = 64 << 10
"""Of a content above this many bytes nothing is looked for."""
REDACTED = "[purged]"
_SHORTEST = 8
_FEWEST_CHARACTERS = 4
_LONGEST_WORD = 20
_PAIR = re.compile(r"""[=:]\s*(?:"([^"]*)"|'([^']*)'|`([^`]*)`|([^\s"'`,;]+))""")
_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
_RUN = re.compile(r"""[^\s"'`=:,;@/(){}\[\]<>]+""")
_IN_NAMES = "-_.\\"
"""What stands inside of names as well, and of what is escaped."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Secrets:
    """What is looked for in texts: however much it is, a text is gone through once."""

    def __init__(self, parts: Iterable[str]) -> None:
        self._by_start: dict[str, list[str]] = {}
        for part in set(parts):
            self._by_start.setdefault(part[:_SHORTEST], []).append(part)

    def __bool__(self) -> bool:
        return bool(self._by_start)

    def __contains__(self, text: str) -> bool:
        return text in self._by_start.get(text[:_SHORTEST], ())

    def find_in(self, text: str) -> set[str]:
        """Give those that stand in a text."""
        starts = {text[at : at + _SHORTEST] for at in range(len(text) - _SHORTEST + 1)}
        return {
            part for start in starts & self._by_start.keys() for part in self._by_start[start] if part in text
        }


def find_secrets(content: bytes) -> set[str] | None:
    """Give what is looked for in texts once this content is purged; None: it is too large, or no text."""
    if len(content) > LARGEST or b"\0" in content:
        return None
    lines = content.decode("utf-8", "surrogateescape").splitlines()
    found = {part for line in lines for part in _split(line) if _is_telling(part)}
    return found | {run for line in lines for run in _list_runs(line) if _is_no_word(run)}


def _split(line: str) -> Iterator[str]:
    """Give a line, and what it says of something: whatever that looks like, it may be secret."""
    yield line.strip()
    for mark in ("=", ":"):
        yield _bare(line.partition(mark)[2])
    for pair in _PAIR.finditer(line):
        yield _bare(pair[pair.lastindex or 0])
    for password in _PASSWORD.finditer(line):
        yield password[1]


def _bare(value: str) -> str:
    return value.strip().rstrip(",;").strip("\"'`").strip()


def _list_runs(line: str) -> Iterator[str]:
    for run in _RUN.findall(line):
        yield run.strip(".!?*")


def _is_telling(part: str) -> bool:
    return (
        len(part) >= _SHORTEST
        and len({character for character in part if character.isalnum()}) >= _FEWEST_CHARACTERS
    )


def _is_no_word(run: str) -> bool:
    """Tell whether a run is hardly a word: by digits, by capitals in the midst of it, by signs, by length."""
    has_sign = any(not character.isalnum() and character not in _IN_NAMES for character in run)
    is_mixed = run[1:] != run[1:].lower() and run != run.upper()
    is_long = run.isalnum() and len(run) > _LONGEST_WORD
    has_digit = any(character.isdigit() for character in run)
    return _is_telling(run) and (has_digit or is_mixed or has_sign or is_long)


def redact(text: str, secrets: Secrets) -> str:
    """Give a text without any of the secrets, the longest of which go first."""
    for secret in sorted(secrets.find_in(text), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def redact_role(role: str, secrets: Secrets) -> str:
    """Do the same to a role, by which turns begin: it goes as a whole, and only if it is hardly a word."""
    return REDACTED if role in secrets and _is_no_word(role) else role


def redact_json(document: str, secrets: Secrets) -> str:
    """Do the same to every string and number in a JSON document, however it is written there."""
    import json

    value = json.loads(document)
    redacted = _redact_value(value, secrets)
    return document if redacted == value else json.dumps(redacted)


def _redact_value(value: Any, secrets: Secrets) -> Any:  # Any: JSON
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, int):
        return REDACTED if str(value) in secrets else value
    if isinstance(value, list):
        return [_redact_value(item, secrets) for item in value]
    if isinstance(value, dict):
        return {redact(key, secrets): _redact_value(item, secrets) for key, item in value.items()}
    return value
