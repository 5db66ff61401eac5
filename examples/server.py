"""The undo routes of an agent's own server: record with `Shadow`, and serve what `shadowtree ui` serves.

    python examples/server.py DIRECTORY

It prints the address with its token; docs/http.md lists the routes. Ctrl-C ends it.
"""

from __future__ import annotations

import signal
import sys

from shadowtree import Shadow
from shadowtree.web.server import Server

with Shadow(sys.argv[1]) as shadow, Server(shadow) as server:
    with shadow.message(text="say hello"):  # your agent's turn
        (shadow.worktree / "hello.txt").write_text("hello\n")
    print(server.url, flush=True)
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pause()
