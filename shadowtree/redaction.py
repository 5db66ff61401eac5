"""Texts without what a purged file held.

What to look for is taken from every line of a content, whatever its size: the line, what stands behind `=` or
`:`, without quotes, passwords in addresses, and every run of characters without blanks, quotes and brackets
that is hardly a word. What is shorter than eight characters, or has fewer than four letters and digits that
differ, could not be told from any other text, and is let stand.

    {"user": "ann", "token": "sk-12345678"}    ──▶    the line, and  sk-12345678
    DB=postgres://ann:pass-word@db  # live     ──▶    the line,  postgres://ann:pass-word@db  and  pass-word

Where a content is no text, nobody can say where a secret in it begins. So it is looked for from the other
side too: each token of what was said that is hardly a word, anywhere in the content.

    rotate ghp_12345678, please    ──▶    ghp_12345678    ◀──    ..%ghp_12345678K..

Branches are named by the slugs of texts, cut to their length. There the slugs of what is hardly a word are
looked for, and a beginning of one at the end.

    rotate-ghp-12345678-please    use-the-new-token-wherever-it-is-ghp-123
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from shadowtree.slugs import LONGEST, is_cut, make_slug, without_number

REDACTED = "[purged]"
REDACTED_NAME = "purged"
_SHORTEST = 8
_FEWEST_CHARACTERS = 4
_LONGEST_WORD = 20
_BLOCK = 64 << 10
"""How many bytes of a content are looked through at once."""
_OVERLAP = 4 << 10
"""How many bytes are looked through twice where a block had to be cut within a line."""
_MANY_PARTS = 100_000
"""How many parts of contents wait until the texts are gone through for them."""
_MARKS = 1 << 22
"""How many beginnings are told apart when parts are sifted, in bytes of memory."""
_PAIR = re.compile(r"""[=:]\s*(?:"([^"]*)"|'([^']*)'|`([^`]*)`|([^\s"'`,;]+))""")
_PASSWORD = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
_RUN = re.compile(r"""[^\s"'`=:,;@/(){}\[\]<>]+""")
_NO_TOKEN = r"""\s"'`,;(){}\[\]<>"""
_TOKEN = re.compile(f"[^{_NO_TOKEN}]+")
_NO_TEXT = "\\x00-\\x08\\x0e-\\x1f\\x7f\\ud800-\\udfff"
_IS_NO_TEXT = re.compile(f"[{_NO_TEXT}]")
_TEXT = re.compile(f"[^\\n\\r{_NO_TEXT}]{{{_SHORTEST},}}")
"""What stands between bytes that are no text."""
_MAY_HOLD_TOKEN = re.compile(f"[^{_NO_TOKEN}{_NO_TEXT}]{{{_SHORTEST},}}")
_IN_NAMES = "-_.\\/:=@"
"""What stands inside of names and addresses as well, and of what is escaped."""

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

    def find_begun_in(self, text: str) -> set[str]:
        """Give the ends of a text that one of them begins with."""
        ends = (text[at:] for at in range(len(text) - _SHORTEST + 1))
        return {
            end
            for end in ends
            if any(part.startswith(end) for part in self._by_start.get(end[:_SHORTEST], ()))
        }


class _Starts:
    """How parts begin that stand anywhere in some texts: rarely a part passes for one of them by accident."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._seen = bytearray(_MARKS)
        for text in texts:
            for at in range(len(text) - _SHORTEST + 1):
                self._seen[hash(text[at : at + _SHORTEST]) % _MARKS] = 1

    def __contains__(self, part: str) -> bool:
        return bool(self._seen[hash(part[:_SHORTEST]) % _MARKS])


class Said:
    """What callers said, to be compared with what is purged."""

    def __init__(self, texts: Iterable[str], names: Iterable[str] = ()) -> None:
        """Take texts, and names that may be slugs of texts."""
        self._names = set(names)
        self._texts = {text for text in (*texts, *self._names) if _is_telling(text)}
        self._longest = max(map(len, self._texts), default=0)
        self._starts, self._name_starts = _Starts(self._texts), _Starts(self._names)
        self._tokens = Secrets(token for text in self._texts for token in _list_tokens(text))
        self._waiting: set[str] = set()
        self._waiting_slugs: set[str] = set()
        self._found: set[str] = set()
        self._found_slugs: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._texts)

    def compare(self, pieces: Iterable[bytes]) -> None:
        """Look for what a content, that comes in pieces, has in common with what was said."""
        for block in _cut_blocks(pieces):
            self._found |= _find_tokens(block, self._tokens)
            parts, runs = _list_parts(block)
            # Most of a content was never said: sifting it is quicker than judging it.
            self._waiting |= _judge(filter(self._may_be_said, parts), filter(self._may_be_said, runs))
            self._waiting_slugs |= set(_list_slugs(parts | runs, self._name_starts)) if self._names else set()
            if len(self._waiting) + len(self._waiting_slugs) >= _MANY_PARTS:
                self._look_for_waiting()

    def _may_be_said(self, part: str) -> bool:
        return _SHORTEST <= len(part) <= self._longest and part in self._starts

    def secrets(self) -> Secrets:
        """Give what was found."""
        self._look_for_waiting()
        return Secrets(self._found)

    def slugs(self) -> Secrets:
        """Give what was found in names only."""
        self._look_for_waiting()
        return Secrets(self._found_slugs)

    def _look_for_waiting(self) -> None:
        parts, slugs = Secrets(self._waiting), Secrets(self._waiting_slugs)
        self._waiting, self._waiting_slugs = set(), set()
        for text in self._texts if parts else ():
            self._found |= parts.find_in(text)
        for name in self._names if slugs else ():
            self._found_slugs |= slugs.find_in(name) | _find_cut(name, slugs)


def _list_slugs(parts: Iterable[str], starts: _Starts) -> Iterator[str]:
    """Give the slugs of what is hardly a word, as far as a name has room for them."""
    for part in parts:
        slug = make_slug(part)[:LONGEST]
        if slug in starts and _is_telling(slug) and _is_no_word(part) and not any(map(str.isspace, part)):
            yield slug


def _find_cut(name: str, slugs: Secrets) -> set[str]:
    """Give the beginnings of slugs at the end of a name that had no room for more."""
    names = {name, without_number(name)}
    return {end for name in names if is_cut(name) for end in slugs.find_begun_in(name) if _is_telling(end)}


def _cut_blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Put pieces together, and cut them behind a line; one that is too long is cut anywhere, and overlaps."""
    rest = b""
    for piece in pieces:
        rest += piece
        start = 0
        while len(rest) - start > _BLOCK:
            end = rest.rfind(b"\n", start, start + _BLOCK) + 1
            yield rest[start : end or start + _BLOCK]
            start = end or start + _BLOCK - _OVERLAP
        rest = rest[start:]
    yield rest


def _find_tokens(block: bytes, tokens: Secrets) -> set[str]:
    # UTF-16 has a zero beside each plain letter.
    versions = (block, block.replace(b"\0", b"")) if b"\0" in block else (block,)
    texts = [version.decode("utf-8", "surrogateescape") for version in versions] if tokens else []
    return tokens.find_in(" ".join({run for text in texts for run in _MAY_HOLD_TOKEN.findall(text)}))


def _list_tokens(text: str) -> Iterator[str]:
    """Give what stands between blanks, what stands behind a mark in it, and its runs, if hardly a word."""
    for token in _TOKEN.findall(text):
        for part in (token, token.partition("=")[2], token.partition(":")[2], *_RUN.findall(token)):
            bare = part.strip(".!?*")
            if _is_no_word(bare):
                yield bare


def find_secrets(block: bytes) -> set[str]:
    """Give what is looked for in texts once this is purged."""
    return _judge(*_list_parts(block))


def _list_parts(block: bytes) -> tuple[set[str], set[str]]:
    """Give what may be looked for: what lines say, and their runs."""
    lines = _list_lines(block.decode("utf-8", "surrogateescape"))
    return {part for line in lines for part in _split(line)}, {
        run for line in lines for run in _list_runs(line)
    }


def _judge(parts: Iterable[str], runs: Iterable[str]) -> set[str]:
    return set(filter(_is_telling, parts)) | set(filter(_is_no_word, runs))


def _list_lines(text: str) -> list[str]:
    lines = [] if "\0" in text else text.splitlines()
    return lines + _TEXT.findall(text) if _IS_NO_TEXT.search(text) else lines


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
    if not _is_telling(run):
        return False
    has_sign = any(not character.isalnum() and character not in _IN_NAMES for character in run)
    is_mixed = run[1:] != run[1:].lower() and run != run.upper()
    is_long = run.isalnum() and len(run) > _LONGEST_WORD
    has_digit = any(character.isdigit() for character in run)
    return has_digit or is_mixed or has_sign or is_long


def redact(text: str, secrets: Secrets) -> str:
    """Give a text without any of the secrets, the longest of which go first."""
    for secret in sorted(secrets.find_in(text), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text


def redact_name(name: str, secrets: Secrets, slugs: Secrets) -> str:
    """Do the same to the name of a branch, which shall stay easy to type."""
    for secret in sorted(secrets.find_in(name) | slugs.find_in(name), key=len, reverse=True):
        name = name.replace(secret, REDACTED_NAME)
    return name


def redact_role(role: str, secrets: Secrets) -> str:
    """Do the same to a role, by which turns begin: it goes as a whole, and not for what may be a word."""
    return REDACTED if tells(role, secrets) else role


def tells(name: str, secrets: Secrets) -> bool:
    """Tell whether a name holds a secret, other than something that may be a word."""
    return any(map(_is_no_word, secrets.find_in(name)))


def list_strings(document: str) -> Iterator[str]:
    """Give every string and number in a JSON document."""
    import json

    waiting = [json.loads(document)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (str, int)):
            yield str(value)
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]


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
