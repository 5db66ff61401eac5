"""The page: one document without anything from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files


@cache
def read_page() -> bytes:
    """Give the document."""
    return (files("shadowtree.web") / "page" / "index.html").read_bytes()


def page_hashes() -> tuple[str, str]:
    """Name the page's script and its style, as a content security policy does."""
    return _name(_between(b"<script", b"</script>")), _name(_between(b"<style", b"</style>"))


def _between(start: bytes, end: bytes) -> bytes:
    return read_page().partition(start)[2].partition(b">")[2].partition(end)[0]


def _name(content: bytes) -> str:
    return f"'sha256-{b64encode(sha256(content).digest()).decode('ascii')}'"
