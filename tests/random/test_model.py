"""Random stories in a worktree, each compared with the model; the profiles are below.

    SHADOWTREE_STATEFUL_STEPS   how many steps of the profile `everything`, 600 if it is not set
                                (`tox -e stateful`: 100,000)
    SHADOWTREE_STATEFUL_SEED    the seed of the first story, 0 if it is not set

Each story has a seed of its own, which a failure names. With that seed, and the number of steps of one story,
only this story is repeated.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.random.model import Model
from tests.random.world import Profile
from tests.support.limits import TINY

STEPS = int(os.environ.get("SHADOWTREE_STATEFUL_STEPS", "600"))
SEED = int(os.environ.get("SHADOWTREE_STATEFUL_SEED", "0"))
SHARDS = 4

EDITS = {"edit": 6, "change_rules": 3}
RECORDS = {"begin": 3, "end": 3, "message": 6, "snapshot": 2, "step": 3, "track": 2}
ACTS = {"undo": 5, "redo": 4, "revert": 4, "revert_part": 3, "unrevert": 3, "restore": 3}
BRANCHES = {"message": 4, "snapshot": 1, "undo": 4, "redo": 2, "revert": 2, "switch": 6, "unrevert": 2}
UPKEEP = {"forget": 2, "pin": 1, "sweep": 1, "tidy": 1, "pack": 1, "visit": 1}
MANY = (20, 20, 3, 1)

PROFILES = {
    "everything": Profile(
        {**EDITS, **RECORDS, **ACTS, **UPKEEP, "forget": 0, "switch": 1, "take_out": 1}, opening=1
    ),
    "taking out amid edits": Profile({**EDITS, **RECORDS, **ACTS, "switch": 1, "take_out": 4}, opening=1),
    "watching": Profile({**EDITS, **RECORDS, **ACTS, "track": 6, "tidy": 2}, opening=1, is_watched=True),
    "histories": Profile(
        BRANCHES, steps=30, opening=3, is_quiet=True, max_branches=MANY, closing=("switch",)
    ),
    "taking out": Profile(
        {**BRANCHES, "switch": 3, "take_out": 5, "redo": 5},
        steps=40,
        opening=4,
        is_quiet=True,
        max_branches=MANY,
        closing=("switch",),
    ),
    "retention": Profile(
        {**UPKEEP, "message": 6, "undo": 2, "redo": 2, "revert": 2, "unrevert": 1, "track": 1},
        steps=40,
        opening=2,
        is_quiet=True,
        limits=TINY,
        closing=("visit",),
    ),
    "long stories": Profile(
        {**BRANCHES, **UPKEEP, "message": 10},
        steps=150,
        opening=3,
        is_quiet=True,
        limits=TINY,
        closing=("visit",),
    ),
}
"""In quiet ones, every place on the line has to equal a copy: see the model."""


def tell(name: str, seed: int, steps: int | None = None) -> Counter[str]:
    """Run one story; a failure names its seed and its steps."""
    model = Model(PROFILES[name], seed)
    try:
        model.run(steps)
    except BaseException as error:
        error.add_note(f"profile {name!r}, seed {seed}, step {len(model.told)}: " + "; ".join(model.told))
        raise
    finally:
        model.close()
    return model.counted


@pytest.mark.parametrize("shard", range(SHARDS))
def test_everything(shard: int) -> None:
    """Each shard runs every fourth story, so that they can be spread over processes."""
    counted: Counter[str] = Counter()
    stories = -(-STEPS // PROFILES["everything"].steps)
    for seed in range(SEED + shard, SEED + stories, SHARDS):
        counted += tell("everything", seed)
    print(f"from seed {SEED}: {dict(counted)}")  # noqa: T201  # shown with -s


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        *[("histories", seed) for seed in range(2)],
        *[("taking out", seed) for seed in range(1, 3)],
        *[("taking out amid edits", seed) for seed in (0, 2130)],
        *[("watching", seed) for seed in range(2)],
        *[("retention", seed) for seed in range(2)],
    ],
)
def test_profiles(name: str, seed: int) -> None:
    tell(name, SEED + seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1050))
@pytest.mark.parametrize(
    "name", ["histories", "taking out", "taking out amid edits", "watching", "retention", "long stories"]
)
def test_many_stories(name: str, seed: int) -> None:
    tell(name, SEED + seed)
