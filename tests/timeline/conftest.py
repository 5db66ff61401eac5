"""Fixtures of the tests of timelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from shadowtree.timeline.sqlite.database import create_journal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An empty timeline."""
    path = tmp_path / "timeline.db"
    create_journal(str(path))
    return path
