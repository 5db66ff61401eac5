"""A private file that redirects the browser to the page.

Every user of the machine can read the command line of a browser, so the address with its token must not be in
it. The file exists while the server runs, in the directory of stores, which only its owner can enter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path

from shadowtree.system import disk

_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>shadowtree</title>
<p><a href="{url}">Open shadowtree</a></p>
"""


@contextmanager
def redirect_file(url: str, stores: str) -> Iterator[str]:
    """Write the file, yield its address, and remove it at the end."""
    directory = redirect_directory(stores)
    disk.make_directories(directory)
    disk.require_private(directory)
    path = os.path.join(directory, f"open-{os.getpid()}.html")
    disk.place_file(path, _PAGE.format(url=escape(url)).encode())
    try:
        yield Path(path).as_uri()
    finally:
        disk.remove_file(path)
        with suppress(OSError):  # Another server has its file there.
            os.rmdir(directory)


def redirect_directory(stores: str) -> str:
    """Return the directory of these files. A server that is killed leaves its file there."""
    return os.path.join(stores, "ui")
