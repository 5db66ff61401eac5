"""Limits that are so low that a short story reaches them, and how all shadows of a test get them."""

from __future__ import annotations

import pytest

from shadowtree import Shadow
from shadowtree.base.frozen import replace
from shadowtree.base.limits import Limits, PackLimits

TINY = Limits(
    packs=PackLimits(
        many=5,
        much_bytes=3_000,
        slice_records=3,
        idle_bytes=0,
        idle_part=1_000_000,
        part_bytes=3_000,
    ),
    timeline_free_bytes=4_096,
)
"""A few packs count as many, parts are small, and little free room is much: a short story reaches all."""
LARGE_PACKS = PackLimits(journaled_bytes=0)
"""No pack is small enough for the journal."""
UNTIDIED = PackLimits(many=1 << 60, much_bytes=1 << 60)
"""Packs stay as snapshots add them."""


def use_limits(patch: pytest.MonkeyPatch, limits: Limits) -> None:
    """Open every Shadow from now on with these limits, unless it gets others.

    For stories that open many, in helpers that know nothing about limits.
    """
    patch.setitem(_defaults(), "limits", limits)


def change_limits(patch: pytest.MonkeyPatch, **fields: object) -> None:
    """Change only some of the limits."""
    use_limits(patch, replace(usual_limits(), **fields))


def usual_limits() -> Limits:
    """Return the limits of a Shadow that is opened without others."""
    return _defaults()["limits"]


def _defaults() -> dict[str, Limits]:
    defaults = Shadow.__init__.__kwdefaults__
    assert defaults is not None
    return defaults
