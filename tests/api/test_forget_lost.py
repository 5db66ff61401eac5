"""`--forget-lost`: messages that need lost content are forgotten, so that the store works again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shadowtree import Shadow, StoreDamaged, StoreFailed
from shadowtree.base.limits import Limits
from tests.support.referee import git

pytestmark = pytest.mark.usefixtures("large_packs")
"""No pack is kept in the timeline, so damage in a pack stays."""

FIRST = os.urandom(400)
"""The content, as `wrap` recorded it, of the file that every message changes: random, to be in a pack."""


@pytest.fixture
def recorded(worktree: Path) -> Iterator[Shadow]:
    """Three messages that change one file."""
    (worktree / "f").write_bytes(FIRST)
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.wrap()
        for name in ("m1", "m2", "m3"):
            with shadow.message(name):
                (worktree / "f").write_bytes(os.urandom(400))
        yield shadow


def lose(shadow: Shadow, content: bytes) -> None:
    """Damage the only pack that holds a content."""
    for path in (shadow.store / "objects" / "pack").glob("*.pack"):
        stored = path.read_bytes()
        at = stored.find(content[100:200])
        if at >= 0:
            path.chmod(0o600)
            path.write_bytes(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :])
    shadow.close()


def ids(shadow: Shadow) -> list[str]:
    return [message.id for message in shadow.messages()]


def assert_goes_on(shadow: Shadow) -> None:
    """Assert that maintenance of the store works again."""
    assert shadow.check(read_data=True).ok
    shadow.gc()
    shadow.forget(keep_last=1)
    git("--git-dir", shadow.store, "fsck", "--full", "--strict")


def test_what_is_lost_of_the_tree_that_wrap_took_can_be_forgotten(recorded: Shadow) -> None:
    lose(recorded, FIRST)

    report = recorded.repair(forget_lost=True)

    assert report.ok, report.problems
    assert ids(recorded) == ["m2", "m3"]
    assert report.repaired[-1] == "everything that needs lost objects forgotten (messages: 1, trees: 1)"
    assert_goes_on(recorded)


def test_a_tree_that_wrap_took_goes_also_after_the_messages_that_needed_it(recorded: Shadow) -> None:
    recorded.forget(keep_last=2)
    lose(recorded, FIRST)

    report = recorded.repair(forget_lost=True)

    assert report.ok, report.problems
    assert ids(recorded) == ["m2", "m3"]
    assert_goes_on(recorded)


def test_a_session_begins_anew_where_the_tree_that_wrap_took_is_forgotten(
    recorded: Shadow, worktree: Path
) -> None:
    lose(recorded, FIRST)
    recorded.repair(forget_lost=True)

    message = recorded.for_session("other").snapshot("o1")

    assert message.patch.files == []
    assert message.warnings == ["the state before this message was forgotten, so it records no changes"]


def test_a_lost_tree_that_was_only_tracked_goes_too(recorded: Shadow, worktree: Path) -> None:
    content = os.urandom(400)
    (worktree / "f").write_bytes(content)
    recorded.track()
    (worktree / "f").write_bytes(os.urandom(400))
    recorded.track()
    lose(recorded, content)

    report = recorded.repair(forget_lost=True)

    assert report.ok, report.problems
    assert ids(recorded) == ["m1", "m2", "m3"]
    assert_goes_on(recorded)


def test_nothing_is_forgotten_as_long_as_a_pinned_message_needs_what_is_lost(recorded: Shadow) -> None:
    recorded.pin("m1")
    lose(recorded, FIRST)

    report = recorded.repair(forget_lost=True)

    assert not report.ok
    assert ids(recorded) == ["m1", "m2", "m3"]
    assert report.repaired[-1] == (
        "not done: messages that need lost objects forgotten:"
        " the store is damaged: pinned or open messages need it: m1"
    )
    with pytest.raises(StoreDamaged):
        recorded.gc()
    recorded.unpin("m1")
    assert recorded.repair(forget_lost=True).ok
    assert_goes_on(recorded)


def test_what_was_forgotten_is_told_if_it_could_not_be_freed(recorded: Shadow, worktree: Path) -> None:
    """Nothing can predict an I/O error."""

    def fail(seconds: float) -> None:
        raise StoreFailed("disk", "input/output error")

    lose(recorded, FIRST)
    limits = Limits(sleep=fail, sweep_hold_s=0)
    with Shadow(worktree, store=recorded.store, settings={"min_free": 0}, limits=limits) as shadow:
        report = shadow.repair(forget_lost=True)

    assert ids(recorded) == ["m2", "m3"]
    assert report.repaired[-2:] == [
        "everything that needs lost objects forgotten (messages: 1, trees: 1)",
        "what was forgotten has not been freed yet: disk: input/output error",
    ]
