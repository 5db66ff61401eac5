"""The one list of scenes for faults: what people do, on worktrees with something of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadowtree import Shadow
from tests.faults.acts import (
    Act,
    Recording,
    Recovery,
    do_nothing,
    edit_text,
    fork,
    fork_and_begin,
    fork_and_go_on,
    fork_and_switch,
    fork_twice,
    go_on_with_the_text,
    take_out,
    take_out_under_edits,
    undo,
    undo_twice,
)
from tests.faults.engine import Scene
from tests.faults.lesser_systems import LESS
from tests.faults.snapshots import Adoption, FirstSnapshot, MergingSnapshot, OpenShadow, Snapshot
from tests.faults.upkeep import (
    Destruction,
    Purge,
    Repair,
    Story,
    WholeMessage,
    be_about_to_merge,
    forget_first,
    kill_twice,
    leave_fresh,
    leave_it,
    leave_little_fresh,
    record_last,
)
from tests.support.limits import TINY, use_limits
from tests.support.stories import Told, forget, let_git_pack, sweep, sweep_briefly, tidy

Make = Callable[[Path, Path], Scene]


def act(
    before: Callable[[Shadow], object],
    then: Callable[[Shadow], object],
    of: Callable[..., Scene] = Act,
    **settings: object,
) -> Make:
    """Return the maker of a scene of an act."""
    return lambda worktree, place: of(worktree, place, before, then, **settings)


def story(before: Callable[[Told], object], then: Callable[[Shadow], object]) -> Make:
    """Return the maker of a scene in which something is done to a story."""
    return lambda worktree, place: Story(worktree, place, before, then)


SCENES: dict[str, Make] = {
    "first snapshot": FirstSnapshot,
    "later snapshot": Snapshot,
    "later snapshot, large pack": lambda worktree, place: Snapshot(worktree, place, size=400_000),
    "snapshot of an open shadow": OpenShadow,
    "snapshot that merges packs": MergingSnapshot,
    "adoption": Adoption,
    "message": lambda worktree, place: WholeMessage(worktree, place, size=10),
    "message, large pack": lambda worktree, place: WholeMessage(worktree, place, size=300_000),
    "revert": act(do_nothing, lambda shadow: shadow.revert("m2")),
    "undo": act(do_nothing, undo),
    "redo": act(undo, lambda shadow: shadow.redo()),
    "unrevert": act(undo, lambda shadow: shadow.unrevert()),
    "restore": act(do_nothing, lambda shadow: shadow.restore("m2^")),
    **{name: act(do_nothing, undo) for name in LESS},
    **{
        f"recovery of {name}, killed at {at}": act(before, then, Recovery, at=at)
        for name, before, then in (
            ("an undo", do_nothing, undo),
            ("a redo", undo, lambda shadow: shadow.redo()),
        )
        for at in (0.5, 0.75, 0.9)
    },
    "switch": act(fork, lambda shadow: shadow.switch("old")),
    "switch from a named line": act(fork_and_go_on, lambda shadow: shadow.switch("m3")),
    "switch from an open message": act(fork_and_begin, lambda shadow: shadow.switch("old")),
    "switch at the limit": act(fork_twice, lambda shadow: shadow.switch("m2"), max_branches=1),
    "switch to what was taken out": act(take_out, lambda shadow: shadow.switch("m3")),
    "unrevert of a switch": act(fork_and_switch, lambda shadow: shadow.unrevert()),
    "merge": act(
        lambda shadow: edit_text(shadow, 10, "line 10 of the user"),
        lambda shadow: shadow.revert("m2", on_conflict="merge"),
    ),
    "unrevert of a merge": act(take_out_under_edits, lambda shadow: shadow.unrevert()),
    "only": act(go_on_with_the_text, lambda shadow: shadow.revert("m2", only=True)),
    "markers": act(
        lambda shadow: edit_text(shadow, 3, "line 3 of the user"),
        lambda shadow: shadow.revert("m2", on_conflict="merge", markers=True),
    ),
    "without files": act(do_nothing, lambda shadow: shadow.revert("m2", files=False), Recording),
    "begin": act(undo, lambda shadow: shadow.begin("m8"), Recording),
    "begin at the limit": act(undo_twice, lambda shadow: shadow.begin("m8"), Recording, max_branches=1),
    "snapshot at the limit": act(undo_twice, lambda shadow: shadow.snapshot("m8"), Recording, max_branches=1),
    "forget": story(leave_it, forget),
    "gc": story(leave_it, sweep),
    "gc of what was forgotten": story(forget_first, sweep),
    "gc of what git packed": story(let_git_pack, sweep),
    "gc that was killed twice": story(kill_twice, sweep),
    "gc, briefly": story(leave_little_fresh, sweep_briefly),
    "tidy": story(leave_fresh, tidy),
    "snapshot that merges many": story(be_about_to_merge, record_last),
    "purge": Purge,
    "repair": Repair,
    "destroy": Destruction,
}


@contextmanager
def make_scene(name: str, worktree: Path, place: Path) -> Iterator[Scene]:
    """Make a scene; if it merges packs, with limits by which a few packs are many."""
    with pytest.MonkeyPatch.context() as patch:
        if name.startswith(("gc", "tidy", "snapshot that")):
            use_limits(patch, TINY)
        if name in LESS:
            LESS[name](patch)
        yield SCENES[name](worktree, place)
