"""The URLs of remotes, as git's users write them, but never with a password.

`https://host/path`, `ssh://user@host:port/path`, `user@host:path`, `git://host/path`,
`file:///path`, `/path`.
"""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import frozen

_SCP_LIKE = re.compile(
    r"(?:(?P<user>[^@:/\s]+)@)?(?P<host>\[[0-9a-fA-F:.]+\]|[^@:/\s\[\]]+):(?P<path>[^:].*)"
)
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECRET = re.compile(r"(?<=://)[^/@\s]*:[^/\s]*@")
"""A user with a password, up to the last `@` before the path."""
_SCHEMES = ("http", "https", "ssh", "git", "file")


@frozen
class RemoteUrl:
    """The parsed URL of a remote."""

    text: str
    """The URL as it is shown and saved; it never contains a password."""
    scheme: str
    """`http`, `https`, `ssh`, `git` or `file`."""
    host: str
    port: int | None
    user: str | None
    path: str
    """The path on the server; for `ssh` and `git`, as it is sent there."""


def parse_url(text: str) -> RemoteUrl:
    """Parse a URL or a path; raise InvalidInput if it is malformed or contains a password."""
    if not text or any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise InvalidInput(f"not a URL of a remote: {strip_password(text)!r}")
    if _HAS_SCHEME.match(text):
        return _parse_full(text)
    scp_like = _SCP_LIKE.fullmatch(text)
    if scp_like is None or text.startswith((".", "/", "~")) or os.path.exists(text):
        path = os.path.abspath(text)
        return RemoteUrl(path, "file", "", None, None, path)
    host, user = scp_like["host"].strip("[]"), scp_like["user"]
    _check_host(host, user, text)
    return RemoteUrl(text, "ssh", host, None, user, scp_like["path"])


def _parse_full(text: str) -> RemoteUrl:
    shown = strip_password(text)
    try:
        parts = urlsplit(text)
        port, host = parts.port, parts.hostname or ""
    except ValueError as error:
        raise InvalidInput(f"not a URL of a remote: {shown!r}") from error
    if parts.scheme not in _SCHEMES:
        raise InvalidInput(f"remotes are reached by {', '.join(_SCHEMES)}, not by {parts.scheme!r}")
    if parts.password is not None:
        raise InvalidInput(f"a URL must not contain a password: {shown!r}")
    if parts.query or parts.fragment:
        raise InvalidInput(f"not a URL of a remote: {shown!r}")
    if parts.scheme == "file":
        if host not in ("", "localhost"):
            raise InvalidInput(f"not a path on this machine: {shown!r}")
        return RemoteUrl(text, "file", "", None, None, unquote(parts.path))
    _check_host(host, parts.username, text)
    user = None if parts.username is None else unquote(parts.username)
    path = parts.path if parts.scheme.startswith("http") else unquote(parts.path)
    return RemoteUrl(text, parts.scheme, host, port, user, path)


def _check_host(host: str, user: str | None, text: str) -> None:
    """Refuse a host or user that `ssh` would take for an option."""
    if not host or host.startswith("-") or (user or "").startswith("-"):
        raise InvalidInput(f"not a URL of a remote: {strip_password(text)!r}")


def strip_password(text: str) -> str:
    """Remove user names with passwords from every URL in a text."""
    return _SECRET.sub("", text)
