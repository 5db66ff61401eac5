"""The names of refs, for sessions and branches that may have any name. Pure.

    refs/heads/sessions/SESSION          the line in force, up to the head, and what acts did there since
    refs/heads/undone/SESSION            the present line up to its tip, while something on it is undone
    refs/heads/branches/SESSION/BRANCH   a branch up to its last message
    refs/shadowtree/sessions/NAME/BY     the rows, and everything they need; named as on a remote

A remote is shared by many machines. So `NAME` is the session's name where it began, and `BY` is `ORIGIN`, an
id of the store and session where it began, or `ORIGIN-WRITER` if another machine writes:

    refs/heads/sessions/NAME/BY          everything that happened, in one line of commits
    refs/shadowtree/sessions/NAME/BY     the rows, and everything they need

Names are encoded so that git accepts them, that they differ even if the file system ignores case, and that
they can be decoded exactly:

    default        default               lower-case letters, digits, `-`, `_`, `@`, and dots between them
    MyApp          +my+app               a capital letter
    fix it/é       fix%20it%2f%c3%a9     anything else: each byte of its UTF-8, lone surrogates included
    a..b, c.lock   a%2e.b, c%2elock      a dot that git would refuse

A name that is too long for one file continues in a directory whose name ends with a bare `%`. The last part
of a name never ends like that, so no path has to be both a file and a directory.
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
"""The refs that keep what each remote had when last contacted, so that only new objects are sent."""

_PLAIN = frozenset(string.ascii_lowercase + string.digits + "-_@.")
_REFUSED_DOT = re.compile(r"\A\.|\.(?=\.|\Z|lock\Z)")
_PART = re.compile(r".{1,200}(?!\.)")
"""As much as fits in a file name with `%` and git's `.lock` after it; the next part begins with no dot."""
_WRITTEN = re.compile(r"%([0-9a-f]{2})|\+([a-z])|([-a-z0-9_@.])")
_ID = re.compile(r"[0-9a-f]{12}")
_NOTHING = "+"
"""The encoding of an empty name."""


def session_ref(session: str) -> str:
    """Return the ref of the line in force."""
    return _SESSIONS + encode_name(session)


def undone_ref(session: str) -> str:
    """Return the ref of the undone messages."""
    return _UNDONE + encode_name(session)


def branch_ref(session: str, branch: str, number: int) -> str:
    """Return the ref of a branch; a branch with a very long name is named by its number."""
    name = encode_name(branch)
    return f"{_BRANCHES}{encode_name(session)}/{f'%%{number}' if '/' in name else name}"


@frozen
class Wire:
    """One machine's account of a session."""

    session: str
    """Its name where it began."""
    origin: str
    writer: str
    """The machine that writes it; equal to `origin` where the session began."""

    @property
    def rows_ref(self) -> bytes:
        """The ref of its rows."""
        return f"{ROWS}{self._path}".encode()

    @property
    def line_ref(self) -> bytes:
        """The ref of its line of commits."""
        return f"{_SESSIONS}{self._path}".encode()

    def tracked_ref(self, remote: str) -> bytes:
        """Return the ref of this store that keeps what a remote has of it."""
        return f"{TRACKED}{encode_name(remote)}/{self._path}".encode()

    @property
    def _path(self) -> str:
        by = self.origin if self.writer == self.origin else f"{self.origin}-{self.writer}"
        return f"{encode_name(self.session)}/{by}"


def read_rows_ref(ref: bytes) -> Wire | None:
    """Parse the ref of a session's rows on a remote; return None for any other ref."""
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
    """Return the prefix of the refs of a session's rows, or of all sessions' rows if it is None."""
    return (ROWS if session is None else f"{ROWS}{encode_name(session)}/").encode()


def encode_name(name: str) -> str:
    """Encode any name as one or more parts of a ref."""
    written = "".join(map(_encode_character, name))
    parts = _PART.findall(_REFUSED_DOT.sub("%2e", written) or _NOTHING)
    return "%/".join(parts)


def decode_name(written: str) -> str:
    """Decode a name that `encode_name` encoded; raise ValueError for any other text."""
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
