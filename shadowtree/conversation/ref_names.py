"""The names of refs, for sessions and branches that may be called anything. Pure.

    refs/heads/sessions/SESSION          the line in force, up to the head, and what acts did there since
    refs/heads/undone/SESSION            the present line up to its tip, while something on it is undone
    refs/heads/branches/SESSION/BRANCH   a branch up to its last message
    refs/shadowtree/sessions/NAME/BY     the rows, and all that they need; named as on a remote

On a remote many machines meet. So `NAME` is what a session was called where it began, and `BY` is `ORIGIN`,
where that was, or `ORIGIN-WRITER`, if another machine writes:

    refs/heads/sessions/NAME/BY          all that happened, in one line of commits
    refs/shadowtree/sessions/NAME/BY     the rows, and all that they need

A name is written so that git takes it, that no two names are the same on a disk that ignores case, and that
it comes back exactly:

    default        default               small letters, digits, `-`, `_`, `@`, and a dot between others
    MyApp          +my+app               a capital letter
    fix it/é       fix%20it%2f%c3%a9     all else: each byte of UTF-8, in which lone surrogates pass
    a..b, c.lock   a%2e.b, c%2elock      a dot that git would refuse

What does not fit into the name of a file goes on in a directory whose name ends with a bare `%`. No last part
of a name ends so, so that nothing has to be a file and a directory.
"""

from __future__ import annotations

import re
import string

from shadowtree.base.frozen import frozen

_SESSIONS = "refs/heads/sessions/"
_UNDONE = "refs/heads/undone/"
_BRANCHES = "refs/heads/branches/"
ROWS = "refs/shadowtree/sessions/"
TRACKED = "refs/shadowtree/remotes/"
"""What remotes named when they were last asked, so that only what is new is sent."""

_PLAIN = frozenset(string.ascii_lowercase + string.digits + "-_@.")
_REFUSED_DOT = re.compile(r"\A\.|\.(?=\.|\Z|lock\Z)")
_PART = re.compile(r".{1,200}(?!\.)")
"""As much as one file name holds, with `%` and git's `.lock` after it; the next one begins with no dot."""
_WRITTEN = re.compile(r"%([0-9a-f]{2})|\+([a-z])|([-a-z0-9_@.])")
_ID = re.compile(r"[0-9a-f]{12}")
_NOTHING = "+"
"""Stands for an empty name."""


def session_ref(session: str) -> str:
    """Name the ref of the line in force."""
    return _SESSIONS + encode_name(session)


def undone_ref(session: str) -> str:
    """Name the ref of what is undone."""
    return _UNDONE + encode_name(session)


def branch_ref(session: str, branch: str, number: int) -> str:
    """Name the ref of a branch; one with a very long name goes by its number."""
    name = encode_name(branch)
    return f"{_BRANCHES}{encode_name(session)}/{f'%%{number}' if '/' in name else name}"


@frozen
class Wire:
    """One machine's account of a session."""

    session: str
    """Its name where it began."""
    origin: str
    writer: str
    """The machine; the same as `origin` where it began."""

    @property
    def rows_ref(self) -> bytes:
        """The ref of its rows."""
        return f"{ROWS}{self._path}".encode()

    @property
    def line_ref(self) -> bytes:
        """The ref of its line of commits."""
        return f"{_SESSIONS}{self._path}".encode()

    def tracked_ref(self, remote: str) -> bytes:
        """Name the ref of this store that remembers what a remote has of it."""
        return f"{TRACKED}{encode_name(remote)}/{self._path}".encode()

    @property
    def _path(self) -> str:
        by = self.origin if self.writer == self.origin else f"{self.origin}-{self.writer}"
        return f"{encode_name(self.session)}/{by}"


def read_rows_ref(ref: bytes) -> Wire | None:
    """Read the ref of a session's rows on a remote; None if it is another ref."""
    try:
        text = ref.decode("ascii")
        path, _, by = text.removeprefix(ROWS).rpartition("/")
        origin, _, writer = by.partition("-")
        if not text.startswith(ROWS) or not all(map(_ID.fullmatch, (origin, writer or origin))):
            return None
        found = Wire(decode_name(path), origin, writer or origin)
    except ValueError:
        return None
    return found if found.rows_ref == ref else None


def rows_prefix(session: str | None) -> bytes:
    """Return what the refs of the rows of a session begin with; None: of all."""
    return (ROWS if session is None else f"{ROWS}{encode_name(session)}/").encode()


def encode_name(name: str) -> str:
    """Write any name so that it can be a part of a ref, or several."""
    written = "".join(map(_encode_character, name))
    parts = _PART.findall(_REFUSED_DOT.sub("%2e", written) or _NOTHING)
    return "%/".join(parts)


def decode_name(written: str) -> str:
    """Read a name as `encode_name` writes it; ValueError if it is none."""
    text = written.replace("%/", "") if written != _NOTHING else ""
    content = _WRITTEN.sub(_decode_match, text).encode("latin-1")
    name = content.decode("utf-8", "surrogatepass")
    if encode_name(name) != written:
        raise ValueError(f"{written!r} is not a valid name")
    return name


def _encode_character(character: str) -> str:
    if character in _PLAIN:
        return character
    if character in string.ascii_uppercase:
        return f"+{character.lower()}"
    return "".join([f"%{byte:02x}" for byte in character.encode("utf-8", "surrogatepass")])


def _decode_match(match: re.Match[str]) -> str:
    byte, capital, plain = match.groups()
    return chr(int(byte, 16)) if byte else capital.upper() if capital else plain
