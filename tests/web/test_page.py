"""The document of the page, as it is served; `tests/browser` opens it."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from shadowtree.web import page

PLACE = Path(page.__file__).parent / "page"
MOST_BYTES = 150_000


def test_it_is_one_small_document() -> None:
    assert len(page.read_page()) < MOST_BYTES


def test_it_asks_no_foreign_host() -> None:
    named = re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^\s'\"]*", page.read_page())

    assert set(named) == {b"http://www.w3.org/2000/svg"}, "the namespace of pictures, which is never fetched"


def test_every_part_is_in_it() -> None:
    assert {path.stem for path in PLACE.glob("*.js")} == set(page.PARTS)
    assert {path.name for path in PLACE.iterdir() if path.suffix != ".js"} == {"index.html", "style.css"}


def test_the_hashes_are_those_of_what_is_inline() -> None:
    document = page.read_page()
    inline = [*re.findall(rb"<script[^>]*>(.*?)</script>", document, re.DOTALL)]
    styles = [*re.findall(rb"<style[^>]*>(.*?)</style>", document, re.DOTALL)]
    hashes = [base64.b64encode(hashlib.sha256(content).digest()).decode() for content in (*inline, *styles)]

    assert [f"'sha256-{each}'" for each in hashes] == list(page.page_hashes())


@pytest.mark.parametrize(
    "word",
    [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "eval(",
        "new Function",
        "srcdoc",
    ],
)
def test_no_script_makes_markup_or_code_from_text(word: str) -> None:
    assert word.encode() not in page.read_page()


def test_the_markup_has_no_inline_styles_or_listeners() -> None:
    markup = (PLACE / "index.html").read_text("utf-8")

    assert re.findall(r"\s(?:on\w+|style)=", markup) == []
