"""A private file that leads the browser to the page.

Every user of the machine can read the command line of a browser, so the address with its token must not be in
it. The file is in the directory of stores, which only its owner can enter, as long as the server serves.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path

from shadowtree.system import disk

_DIRECTORY = "ui"
_PAGE = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>shadowtree</title>
<p><a href="{url}">Open shadowtree</a></p>
"""


@contextmanager
def redirect_file(url: str, stores: str) -> Iterator[str]:
    """Write the file, give its address, and remove it at the end."""
    directory = os.path.join(stores, _DIRECTORY)
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


def remove_redirects(stores: str, *, dry_run: bool) -> list[str]:
    """Remove the files of servers that were killed, and the directory; name what was there."""
    directory = os.path.join(stores, _DIRECTORY)
    if not os.path.isdir(directory) or os.path.islink(directory):
        return []
    disk.require_private(directory)
    files = [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    if not dry_run:
        disk.remove_tree(directory)
    return [*files, directory]
