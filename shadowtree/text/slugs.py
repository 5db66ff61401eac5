"""Slugs: texts as plain names, of which branches get theirs.

Fix the Login, now!    ──▶    fix-the-login-now
"""

from __future__ import annotations

import re

LONGEST = 40
"""So many characters of a slug a name has at most."""
_NO_LETTERS = re.compile(r"[\W_]+")
_NUMBER = re.compile(r"-\d+\Z")


def make_slug(text: str) -> str:
    """Give the letters and digits of a text in small letters, with one dash for all between them."""
    return _NO_LETTERS.sub("-", text.lower()).strip("-")


def cut_slug(slug: str) -> str:
    """Give as much of a slug as a name has room for."""
    return slug[:LONGEST].strip("-")


def without_number(name: str) -> str:
    """Give a name without the number by which it may differ from others: `fix-login` of `fix-login-2`."""
    return _NUMBER.sub("", name)


def is_cut(name: str) -> bool:
    """Tell whether a name may be the beginning of a longer slug."""
    return len(name) >= LONGEST - 1
