"""A worktree, two sessions and their records in the model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from shadowtree import Shadow
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from tests.random.checks import Branches
from tests.random.editing import LARGEST, Editor
from tests.support import modelled
from tests.support.memory import make_place
from tests.support.modelled import Disk, Happening, Message, Seen, Session


@dataclass(frozen=True)
class Profile:
    """How often each step is made, and in what surroundings."""

    weights: dict[str, int]
    steps: int = 50
    """How long one story is."""
    opening: int = 0
    """The number of messages with which it begins."""
    is_quiet: bool = False
    """Only the messages of one session change anything, and all of that is covered."""
    is_watched: bool = False
    limits: Limits = DEFAULT_LIMITS
    max_branches: tuple[int, ...] = (20,)
    """One of these is drawn."""
    closing: tuple[str, ...] = field(default=())
    """The steps that are done with every message at the end."""


class World:
    """A worktree, its shadows and what the model knows about them."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self.profile = profile
        self.random = Random(seed)
        self.told: list[str] = []
        """The steps so far, to find out why one failed."""
        self.counted: Counter[str] = Counter()
        self.top = make_place()
        self.root = self.top / "worktree"
        self.root.mkdir()
        self.store = self.top / "store"
        self.outside = self.top / "outside"
        (self.outside / "kept" / "deep").mkdir(parents=True)
        (self.outside / "kept" / "deep" / "file").write_bytes(b"not yours")
        (self.outside / "file").write_bytes(b"not yours either")
        self.canary = modelled.read_disk(self.outside)
        self.editor = Editor(self.root, self.random, uncovered=not profile.is_quiet)
        self.sessions = [Session("one"), Session("two")]
        self.max_branches = self.random.choice(profile.max_branches)
        self.branches = [Branches(session, self.max_branches) for session in self.sessions]
        self.shadows: list[Shadow] = []
        self.clock = 0
        self.was_covered: set[str] = set()
        self.trees: dict[str, Seen] = {}
        """The worktree for each recorded tree id."""
        self.safe: set[str] = set()
        """The blobs that have to be in the store, until something is forgotten."""
        self.kept: set[str] = set()
        """The paths that acts had to keep as they were."""
        self.is_plain = False
        """Whether acts are simply done, never as a dry run or with a confirmation."""
        self.is_recorded = False
        """Whether something was recorded since the sessions were last compared."""
        self.open_shadows()
        self.editor.put_some(6)
        self.take(self.shadows[0].track())

    def open_shadows(self) -> None:
        settings = {"min_free": 0, "max_file_size": LARGEST, "max_branches": self.max_branches}
        self.shadows = [
            Shadow(
                self.root,
                store=self.store,
                session=session.name,
                settings=settings,
                watch=self.profile.is_watched,
                limits=self.profile.limits,
            )
            for session in self.sessions
        ]

    def tell(self, what: str) -> None:
        self.told[-1] += f" {what}"

    @property
    def disk(self) -> Disk:
        return modelled.read_disk(self.root)[0]

    @property
    def ids(self) -> list[str]:
        return list(self.sessions[0].messages)

    def draw_number(self) -> int:
        """Draw a session."""
        return 0 if self.profile.is_quiet else self.random.choice([0, 0, 0, 1])

    def draw_way(self) -> str:
        return self.random.choice(
            ["abort", "abort", "abort" if self.profile.is_quiet else "overwrite", "keep"]
        )

    def draw_message(self, session: Session) -> Message | None:
        """Draw one of the messages, most often a new one."""
        newest = list(session.messages.values())[-self.random.choice([8, 8, 100]) :]
        return self.random.choice(newest) if newest else None

    def see(self) -> Seen:
        self.is_recorded = True
        return Seen(self.disk, LARGEST, self.was_covered)

    def take(self, tree: str, seen: Seen | None = None) -> None:
        """Note that a state was recorded: from now on all of it is safe."""
        seen = seen or self.see()
        self.was_covered |= seen.covered
        # Two states may share a tree and differ in their facts; the id then means the last one.
        self.trees.pop(tree, None)
        self.trees[tree] = seen
        self.safe |= blobs_of(seen)

    def tick(self, session: Session, seen: Seen) -> int:
        """Note that something was recorded in a session."""
        self.clock += 1
        session.last, session.last_number = seen, self.clock
        return self.clock

    def end_open(
        self, session: Session, seen: Seen, only: list[str] | None = None, *, is_inferred: bool = True
    ) -> None:
        if session.open is None:
            return
        message = session.messages[session.open]
        message.after = self.find_end(session, seen, is_inferred=is_inferred)
        message.ended = self.foresee_end(session, seen, only, is_inferred=is_inferred)
        assert message.ended is not None
        message.changes = message.ended.changes
        message.ended.number = self.tick(session, message.after)
        if message.after is not seen:
            session.last_number = message.last_step_number
        session.story.append(message.ended)
        session.open = None
        session.open_steps.clear()
        if only is not None:
            # Changes of its steps to other paths belong to no message; the model does not cover that.
            message.steps.clear()

    def find_end(self, session: Session, seen: Seen, *, is_inferred: bool = True) -> Seen:
        """Return the state with which the open message ends: now, or at the last step if all steps ended."""
        message = session.messages[session.open or ""]
        is_at_step = is_inferred and message.last_step is not None and not session.open_steps
        return message.last_step or seen if is_at_step else seen

    def foresee_end(
        self, session: Session, seen: Seen, only: list[str] | None = None, *, is_inferred: bool = True
    ) -> Happening | None:
        if session.open is None:
            return None
        message = session.messages[session.open]
        end = self.find_end(session, seen, is_inferred=is_inferred)
        changes = modelled.compare(message.before, end)
        if only is not None:
            changes = modelled.attribute(changes, only)
        until = None if end is seen else message.last_step_number
        changes = self.without_acts(session, changes, message.began, until)
        return Happening(self.clock + 1, message.began, changes, message.id)

    def without_acts(
        self, session: Session, changes: modelled.Changes, since: int, until: int | None = None
    ) -> modelled.Changes:
        """Leave out changes that only acts of the other session made."""
        left = dict(changes)
        others = [
            happening
            for happening in self.others_story(session)
            if happening.message is None and since < happening.number < (until or self.clock + 1)
        ]
        for path, change in changes.items():
            acts = [happening.changes[path] for happening in others if path in happening.changes]
            states = [change[0], *(new for old, new in acts if old != new)]
            olds = [old for old, new in acts if old != new]
            if olds == states[:-1] and states[-1] == change[1]:
                del left[path]
        return left

    def others_story(self, session: Session) -> list[Happening]:
        return [each for other in self.sessions if other is not session for each in other.story]


def blobs_of(seen: Seen) -> set[str]:
    return {blob for path in seen.covered if (blob := modelled.blob_of(seen.disk[path]))}
