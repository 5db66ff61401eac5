"""The checks of every scene after a fault: the error is one of ours, and the store is sound."""

from __future__ import annotations

from pathlib import Path

from shadowtree import CheckReport, OutOfSpace, Shadow, ShadowError, StoreFailed, WorktreeFailed
from tests.faults.engine import Hit, Scene
from tests.support.referee import assert_sound_store, git
from tests.support.stores import SETTINGS


def check_damaged(scene: Scene, hit: Hit) -> CheckReport | None:
    """Check after a flipped bit that an error is one of ours and its cause is found; return the report."""
    assert hit.error is None or isinstance(hit.error, ShadowError), repr(hit.error)
    if not scene.store.exists():
        return None
    with Shadow(scene.worktree, store=scene.store, settings=SETTINGS) as shadow:
        report = shadow.check(read_data=True)
    assert hit.error is None or report.problems, report
    return report


def assert_ours(hit: Hit) -> None:
    """Check that an error of the disk is reported as what it is."""
    if hit.error is not None and not isinstance(hit.error, KeyboardInterrupt):
        wanted = OutOfSpace if hit.is_full else WorktreeFailed if hit.is_reading else StoreFailed
        assert type(hit.error) is wanted, repr(hit.error)


def assert_sound(store: Path, hit: Hit) -> None:
    """Check that real git finds no fault; files that git made have other modes than ours."""
    if hit.fault == "git gc":
        git("--git-dir", store, "fsck", "--full", "--strict", "--no-dangling")
    else:
        assert_sound_store(store)
