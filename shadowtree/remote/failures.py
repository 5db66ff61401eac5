"""Translate failures of a remote into our own errors: one line, safe to print, without credentials."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable

import urllib3
from dulwich.client import HTTPProxyUnauthorized, HTTPUnauthorized
from dulwich.errors import (
    ApplyDeltaError,
    ChecksumMismatch,
    FileFormatException,
    GitProtocolError,
    HangupException,
    NotGitRepository,
    SendPackError,
)
from dulwich.pack import PackFileDisappeared, UnresolvedDeltas

from shadowtree.base.errors import RemoteFailed, RemoteRefused, describe
from shadowtree.remote.url import RemoteUrl

OUTSIDE_ERRORS = (
    ApplyDeltaError,
    AssertionError,
    ChecksumMismatch,
    EOFError,
    FileFormatException,
    GitProtocolError,
    HTTPProxyUnauthorized,
    HTTPUnauthorized,
    IndexError,
    KeyError,
    NotGitRepository,
    OSError,
    OverflowError,
    PackFileDisappeared,
    SendPackError,
    TypeError,
    UnresolvedDeltas,
    ValueError,
    struct.error,
    urllib3.exceptions.HTTPError,
    zlib.error,
)
"""The errors that dulwich raises if a server is unreachable, refuses, or does not follow git's protocol."""
_LONGEST_LINE = 300
_CUT = "the connection was cut"
_PASSING = re.compile(
    "transaction failed|failed to (update|lock) ref|cannot lock ref|incorrect old value"
    "|reference (already exists|does not exist)"
)
"""Messages of git if another process has locked a ref, or has changed it since it was listed."""


def translate(
    error: Exception,
    url: RemoteUrl,
    timeout_s: float,
    hide: Callable[[str], str],
    *,
    has_credentials: bool,
) -> RemoteFailed:
    """Translate an error from outside into our own; `hide` removes credentials from a text."""
    no_answer = f"no answer for {timeout_s:g} s"
    match error:
        case HTTPUnauthorized():
            return RemoteRefused(url.text, f"{'wrong' if has_credentials else 'it asks for'} credentials")
        case HTTPProxyUnauthorized():
            return RemoteRefused(url.text, "the proxy asks for credentials")
        case SendPackError():
            return RemoteRefused(url.text, f"it refused the objects: {as_line(hide(_words_of(error)))}")
        case NotGitRepository():
            why = "no git repository there"
        case HangupException():
            why = as_line(hide(_last_words(error)))
        case FileNotFoundError() if url.scheme == "ssh":
            why = "the program ssh cannot be found"
        case TimeoutError():
            why = no_answer
        case OSError():
            why = as_line(hide(describe(error)))
        case GitProtocolError() | urllib3.exceptions.HTTPError():
            cause = _cause_of(error)
            is_timeout = isinstance(cause, TimeoutError | urllib3.exceptions.TimeoutError)
            is_refused = isinstance(cause, urllib3.exceptions.NewConnectionError)
            why = no_answer if is_timeout and not is_refused else as_line(hide(_words_of(cause)))
        case _ if url.scheme == "file":
            why = "the repository is damaged"
        case _:
            why = "it sent something that is not git's protocol"
    return RemoteFailed(url.text, why)


def is_passing(reason: str | None) -> bool:
    """Return whether a ref was refused for a reason that may soon pass."""
    return reason is not None and _PASSING.search(reason) is not None


def _cause_of(error: BaseException) -> BaseException:
    """Return the innermost error: those of urllib3 wrap each other."""
    while True:
        inner = getattr(error, "reason", None) or error.__cause__
        if not isinstance(inner, BaseException):
            return error
        error = inner


def _words_of(error: BaseException) -> str:
    words = error.args[0] if error.args else ""
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else str(error)
    # urllib3's message begins with the `repr` of an object of its own.
    return text.rpartition("object at 0x")[2].partition(">: ")[2] or text or _CUT


def _last_words(error: HangupException) -> str:
    """Return the most informative line that `ssh` or the server printed before it hung up."""
    lines = [line.decode("utf-8", "replace").strip() for line in error.stderr_lines or ()]
    said = [line for line in lines if line]
    refused = [line for line in said if "denied" in line.lower() or "verification failed" in line.lower()]
    told = [line for line in said if line.lower().startswith(("fatal:", "error:", "remote:"))]
    return (refused or told or said[-1:] or [_CUT])[0]


def as_line(text: str) -> str:
    """Return a text from outside as one short line that is safe to print on a terminal."""
    line = " ".join(text.split())[:_LONGEST_LINE]
    return "".join(character if character.isprintable() else "?" for character in line)
