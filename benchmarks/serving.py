"""The HTTP interface with a long history: how long the whole timeline takes, and its newest part."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from functools import partial

from benchmarks.area import Area
from benchmarks.contestants import OURS
from benchmarks.history import record_edits
from benchmarks.measure import Effort, timed
from benchmarks.report import Row, Unit
from shadowtree import Shadow
from shadowtree.web.server import Server

NEWEST = 300
"""How many messages a page shows first."""


def measure_serving(area: Area, files: int, effort: Effort) -> list[Row]:
    """Measure requests of one connection, one after the other; `--messages 10000` makes the history long."""
    store = area.new_store()
    record_edits(area, store, effort.messages)
    with Shadow(area.folder, store=store) as shadow, Server(shadow) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        get = partial(_get, connection, server.token)
        rows = [
            _measure(
                f"timeline of {effort.messages:,} messages over HTTP", files, effort, get, "/api/timeline"
            ),
            _measure(f"its newest {NEWEST}", files, effort, get, f"/api/timeline?limit={NEWEST}"),
        ]
        connection.close()
    return rows


def _measure(title: str, files: int, effort: Effort, get: Callable[[str], bytes], target: str) -> Row:
    get(target)
    samples = [timed(partial(get, target))[0] for _ in range(effort.runs)]
    return Row(title, files, Unit.SECONDS, {OURS: samples})


def _get(connection: http.client.HTTPConnection, token: str, target: str) -> bytes:
    connection.request("GET", target, headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    return content
