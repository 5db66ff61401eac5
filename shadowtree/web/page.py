"""The page that `shadowtree ui` shows: one document, joined from the readable parts in `page/`."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

PARTS = (
    "dom",
    "api",
    "state",
    "list",
    "timeline",
    "turns",
    "acts",
    "words",
    "highlight",
    "diff",
    "notes",
    "dialogs",
    "plan",
    "branches",
    "keys",
    "main",
)
"""The scripts in the order in which they are joined. They share one scope; `main` starts the page."""


@cache
def read_page() -> bytes:
    """Return the whole document, with one style and one script, both inline; it loads nothing from others."""
    page = _read("index.html").replace("/* style.css */", _style()).replace("/* script.js */", _script())
    return page.encode()


def page_hashes() -> tuple[str, str]:
    """Return the hashes of the script and of the style, as a content security policy lists them."""
    return _hash(_script()), _hash(_style())


@cache
def _script() -> str:
    return "\n".join(_read(f"{part}.js") for part in PARTS)


@cache
def _style() -> str:
    return _read("style.css")


def _read(name: str) -> str:
    return files(__package__).joinpath("page", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
