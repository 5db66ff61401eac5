"""User names and passwords for HTTP, from where git's users keep them; read when needed, never stored.

They come from, in this order: the variables `SHADOWTREE_REMOTE_USER` and `SHADOWTREE_REMOTE_PASSWORD` (only
for the host in `SHADOWTREE_REMOTE_HOST`, if that is set), the netrc file and, only if the user's settings
name one, a credential helper of git. SSH uses its own agent.
"""

from __future__ import annotations

import netrc
import os
import shlex
import subprocess
from collections.abc import Mapping

from shadowtree.base.errors import RemoteRefused
from shadowtree.base.frozen import frozen
from shadowtree.remote.url import RemoteUrl

_USER = "SHADOWTREE_REMOTE_USER"
_PASSWORD = "SHADOWTREE_REMOTE_PASSWORD"
_HOST = "SHADOWTREE_REMOTE_HOST"
_MOST_BYTES = 1 << 16


class Credentials:
    """A user name and a password, which its `repr` does not show."""

    __slots__ = ("password", "user")

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self.password = password

    def __repr__(self) -> str:
        return f"Credentials({self.user!r}, ...)"


@frozen
class CredentialSources:
    """Where credentials may come from."""

    environ: Mapping[str, str]
    helper: str | None = None
    """The command of a credential helper, such as `git credential` or `git credential-store`."""
    timeout_s: float = 60


def find_at_once(url: RemoteUrl, sources: CredentialSources) -> Credentials | None:
    """Find credentials to send with the first request, in the environment or the netrc file."""
    return _from_environment(url, sources.environ) or _from_netrc(url, sources.environ)


def _from_environment(url: RemoteUrl, environ: Mapping[str, str]) -> Credentials | None:
    password, host = environ.get(_PASSWORD), environ.get(_HOST)
    if not password or (host and host not in (url.host, f"{url.host}:{url.port}")):
        return None
    return Credentials(url.user or environ.get(_USER) or "git", password)


def _from_netrc(url: RemoteUrl, environ: Mapping[str, str]) -> Credentials | None:
    """Read the netrc file; if it cannot be read, raise RemoteRefused without quoting it."""
    home = environ.get("HOME")
    path = environ.get("NETRC") or (os.path.join(home, ".netrc") if home else None)
    if path is None or not os.path.isfile(path):
        return None
    try:
        found = netrc.netrc(path).authenticators(url.host)
    except (OSError, ValueError, netrc.NetrcParseError) as error:
        line = getattr(error, "lineno", None)
        where = f"{path}, line {line}" if line else path
        raise RemoteRefused(url.text, f"{where} cannot be read") from None
    if found is None or found[2] is None or (url.user and found[0] and found[0] != url.user):
        return None
    return Credentials(found[0] or url.user or "git", found[2])


def ask_helper(url: RemoteUrl, sources: CredentialSources) -> Credentials | None:
    """Run the credential helper, if the user's settings name one; it must not prompt the user."""
    if not sources.helper:
        return None
    command = shlex.split(sources.helper)
    # `git credential` runs every helper in the user's configuration; any other command is a helper itself.
    command.append("fill" if os.path.basename(command[-1]) == "credential" else "get")
    host = url.host if url.port is None else f"{url.host}:{url.port}"
    asked = f"protocol={url.scheme}\nhost={host}\npath={url.path.lstrip('/')}\n"
    asked += f"username={url.user}\n\n" if url.user else "\n"
    try:
        answer = subprocess.run(
            command,
            input=asked.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(sources.environ, GIT_TERMINAL_PROMPT="0", GIT_ASKPASS="true"),
            timeout=sources.timeout_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        raise RemoteRefused(url.text, f"the credential helper {command[0]!r} cannot be run") from None
    lines = answer.stdout[:_MOST_BYTES].decode("utf-8", "replace").splitlines()
    values = dict(line.partition("=")[::2] for line in lines)
    if answer.returncode != 0 or not values.get("password"):
        return None
    return Credentials(values.get("username") or url.user or "git", values["password"])


def child_environment(environ: Mapping[str, str], **variables: str) -> dict[str, str]:
    """Return the environment for a child process, without `GIT_*` variables and credentials."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("GIT_") and name not in (_PASSWORD, _USER, _HOST)
    }
    return {**kept, **variables}
