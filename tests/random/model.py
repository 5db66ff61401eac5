"""One worktree, two sessions and a user, held against a model that copies the directory.

A `Model` does random steps by the weights of a profile. `modelled` reads the contract a second time, on plain
dicts; after every step the worktree, the log, the branches and where the sessions stand are compared with it.

What comes of an act is worked out path by path, with all conflicts. Where messages are out of the line, or a
switch met somebody's edits, that is not worked out: the act may be refused or not (`vague`), and the rest
still has to hold. As long as the work is quiet, which means that nobody changed anything but the messages of
one session, every act leads exactly to the copy that was made after a message.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from shadowtree import Conflict, InvalidInput, NotConfirmed, Outcome, Shadow, UnknownMessage, UnknownTree
from shadowtree.base.errors import ForgottenMessage
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.store.layout import StoreLayout
from shadowtree.store.objects.read import Objects
from tests.random.checks import Branches, assert_folds, assert_kept, assert_patch
from tests.random.editing import LARGEST, Editor
from tests.random.forecast import Forecast, check_lists
from tests.support import modelled
from tests.support.modelled import Disk, Happening, Message, Place, Seen, Session, Wish
from tests.support.referee import assert_sound_store, git
from tests.support.stores import assert_records_whole
from tests.support.watching import view

FAST_PLACE = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
WORDS = ["fix login", "Fix: login!", "add tests", "", "rename all of it", "zwölf", "m 3"]

Call = Callable[..., Outcome]


@dataclass(frozen=True)
class Profile:
    """How often each step is made, and in what surroundings."""

    weights: dict[str, int]
    steps: int = 50
    """How long one story is."""
    opening: int = 0
    """With so many messages it begins."""
    is_quiet: bool = False
    """Nobody changes anything but the messages of one session, and all of that is covered."""
    is_watched: bool = False
    limits: Limits = DEFAULT_LIMITS
    max_branches: tuple[int, ...] = (20,)
    """One of these is drawn."""
    closing: tuple[str, ...] = field(default=())
    """What is done with every message at the end."""


class Model:
    """A worktree and its shadows, and what must be true of them."""

    def __init__(self, profile: Profile, seed: int) -> None:
        self.profile = profile
        self.random = Random(seed)
        self.told: list[str] = []
        """The steps so far, for whoever has to find out why one failed."""
        self.counted: Counter[str] = Counter()
        self.top = Path(tempfile.mkdtemp(prefix="shadowtree-model-", dir=FAST_PLACE))
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
        """What each recorded tree id was."""
        self.safe: set[str] = set()
        """The blobs that have to be in the store, until something is forgotten."""
        self.is_plain = False
        """Acts are done, not tried as a dry run, nor asked about."""
        self.is_recorded = False
        """Something was recorded since the sessions were last compared."""
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

    # Steps

    def run(self, steps: int | None = None) -> None:
        """Make the steps of one story, and check all that is left at its end."""
        weights = self.profile.weights
        count = steps or self.profile.steps
        drawn = self.random.choices(list(weights), list(weights.values()), k=count - self.profile.opening)
        for name in ["message"] * self.profile.opening + drawn:
            self.told.append(name)
            getattr(self, name)()
            self.check()
        self.is_plain = True
        for name in self.profile.closing:
            for id in self.random.sample(self.ids, len(self.ids)):
                self.told.append(f"{name} {id}")
                getattr(self, name)(id)
                self.check()
        self.check_store()

    def close(self) -> None:
        for shadow in self.shadows:
            shadow.close()
        shutil.rmtree(self.top)

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

    # Work, by anybody

    def edit(self) -> None:
        self.random.choice([self.editor.put_some, self.editor.change])()

    def change_rules(self) -> None:
        self.editor.change_rules()

    # Recording

    def begin(self, number: int | None = None) -> None:
        number = self.draw_number() if number is None else number
        session, shadow = self.sessions[number], self.shadows[number]
        if session.open is not None and self.random.random() < 0.3:
            assert shadow.begin(session.open).state == "open"
            return
        id, text, role = self.draw_name()
        seen = self.see()
        recorded = shadow.begin(id, role=role, text=text)
        self.branches[number].hear(recorded.warnings)
        self.end_open(session, seen)
        assert recorded.before is not None
        self.take(recorded.before, seen)
        parent = session.place.head
        starts = role != "assistant"
        session.messages[id] = Message(id, text, parent, starts, seen, self.tick(session, seen))
        session.begin_at(id)
        session.open = id

    def end(self, number: int | None = None, *, is_whole: bool = False) -> None:
        number = self.draw_number() if number is None else number
        session, shadow = self.sessions[number], self.shadows[number]
        if session.open is None:
            with pytest.raises(UnknownMessage):
                shadow.end()
            return
        paths = None if is_whole or self.profile.is_quiet else self.editor.draw_paths()
        seen = self.see()
        message = session.messages[session.open]
        recorded = shadow.end(message.id, paths=paths)
        self.end_open(session, seen, paths)
        assert recorded.after is not None
        self.take(recorded.after, seen)
        assert_patch(recorded.patch.files, message.changes)
        again = shadow.end(message.id)
        assert (again.patch, again.after) == (recorded.patch, recorded.after)

    def message(self) -> None:
        """A whole message at once, so that there are many; sometimes it stays open."""
        number = self.draw_number()
        self.begin(number)
        self.editor.put_some(4)
        if self.random.random() < 0.8:
            self.end(number, is_whole=True)

    def snapshot(self) -> None:
        """A message that is recorded after its work; what was open until then has it instead."""
        number = self.draw_number()
        session, shadow = self.sessions[number], self.shadows[number]
        if self.random.random() < 0.5:
            self.editor.put_some()
        id, text, role = self.draw_name()
        seen = self.see()
        recorded = shadow.snapshot(id, role=role, text=text)
        self.branches[number].hear(recorded.warnings)
        self.end_open(session, seen)
        before = session.last or seen
        since = session.last_number
        assert recorded.after is not None
        self.take(recorded.after, seen)
        message = Message(id, text, session.place.head, role != "assistant", before, 0, after=seen)
        message.changes = self.without_acts(session, modelled.compare(before, seen), since)
        message.began = self.tick(session, seen)
        message.ended = Happening(message.began, since or message.began, message.changes, id)
        session.story.append(message.ended)
        session.messages[id] = message
        session.begin_at(id)
        assert_patch(recorded.patch.files, message.changes)

    def step(self) -> None:
        number = self.draw_number()
        session, shadow = self.sessions[number], self.shadows[number]
        if session.open is None:
            with pytest.raises(UnknownMessage):
                shadow.begin_step("s")
            return
        message = session.messages[session.open]
        seen = self.see()
        if session.step is not None and self.random.random() < 0.5:
            ended = shadow.end_step(session.step)
            assert_patch(ended.patch.files, modelled.compare(message.steps[session.step], seen))
            assert ended.after is not None
            self.take(ended.after, seen)
            session.step = None
        else:
            name = f"s{len(message.steps)}"
            self.take(shadow.begin_step(name).before, seen)
            session.step = name
            message.steps[name] = seen
        self.tick(session, seen)

    def track(self) -> None:
        """Take a snapshot of no message; another process that looks at everything finds the same."""
        if self.random.random() < 0.5:
            self.reopen()
        seen = self.see()
        snapshot = self.shadows[0].take_snapshot()
        self.take(snapshot.tree, seen)
        assert snapshot.files == len(seen.covered)
        with Shadow(self.root, store=self.store, settings=self.shadows[0].settings) as other:
            assert view(other.take_snapshot()) == view(snapshot)

    def reopen(self) -> None:
        for shadow in self.shadows:
            shadow.close()
        self.open_shadows()
        self.is_recorded = True

    def draw_name(self) -> tuple[str, str, str | None]:
        serial = sum(len(session.messages) for session in self.sessions) + 1
        role = self.random.choice([None, "user", "assistant"])
        self.tell(f"m{serial:04}")
        return f"m{serial:04}", self.random.choice(WORDS), role

    def see(self) -> Seen:
        self.is_recorded = True
        return Seen(self.disk, LARGEST, self.was_covered)

    def take(self, tree: str, seen: Seen | None = None) -> None:
        """Note that a state was recorded: from now on all of it is safe."""
        seen = seen or self.see()
        self.was_covered |= seen.covered
        # Two states may share a tree and differ in what stands beside it; the name means the last one.
        self.trees.pop(tree, None)
        self.trees[tree] = seen
        self.safe |= blobs_of(seen)

    def tick(self, session: Session, seen: Seen) -> int:
        """Note that something was recorded in a session."""
        self.clock += 1
        session.last, session.last_number = seen, self.clock
        return self.clock

    def end_open(self, session: Session, seen: Seen, only: list[str] | None = None) -> None:
        if session.open is None:
            return
        message = session.messages[session.open]
        message.after = seen
        message.ended = self.foresee_end(session, seen, only)
        assert message.ended is not None
        message.changes = message.ended.changes
        message.ended.number = self.tick(session, seen)
        session.story.append(message.ended)
        session.open = session.step = None
        if only is not None:
            # What a step of it did to other paths is nobody's; the model does not go into that.
            message.steps.clear()

    def foresee_end(self, session: Session, seen: Seen, only: list[str] | None = None) -> Happening | None:
        if session.open is None:
            return None
        message = session.messages[session.open]
        changes = modelled.compare(message.before, seen)
        if only is not None:
            changes = modelled.attribute(changes, only)
        changes = self.without_acts(session, changes, message.began)
        return Happening(self.clock + 1, message.began, changes, message.id)

    def without_acts(self, session: Session, changes: modelled.Changes, since: int) -> modelled.Changes:
        """Leave out what nobody but acts of the other session did."""
        left = dict(changes)
        for path, change in changes.items():
            acts = [
                happening.changes[path]
                for happening in self.others_story(session)
                if happening.message is None and happening.number > since and path in happening.changes
            ]
            states = [change[0], *(new for old, new in acts if old != new)]
            olds = [old for old, new in acts if old != new]
            if olds == states[:-1] and states[-1] == change[1]:
                del left[path]
        return left

    def others_story(self, session: Session) -> list[Happening]:
        return [each for other in self.sessions if other is not session for each in other.story]

    # Acts

    def undo(self) -> None:
        number, turns = self.draw_number(), self.random.choice([1, 1, 2, 3])
        session = self.sessions[number]
        chosen = session.choose_undo(turns)
        head = chosen[0].parent if chosen else None
        outcome = self.travel(number, chosen, head, lambda **o: self.shadows[number].undo(turns, **o))
        if outcome is not None and not session.place.out:
            count = sum(m.starts_turn for m in chosen) + bool(chosen and not chosen[0].starts_turn)
            assert outcome.turns == count
            if chosen and self.profile.is_quiet and not session.forgotten:
                assert outcome.complete == (count == turns)

    def redo(self) -> None:
        number, turns = self.draw_number(), self.random.choice([1, 1, 2, 3, None])
        chosen = self.sessions[number].choose_redo(turns)
        head = chosen[-1].id if chosen else None
        self.travel(number, chosen, head, lambda **o: self.shadows[number].redo(turns, **o), is_forward=True)

    def revert(self) -> None:
        number = self.draw_number()
        session, shadow = self.sessions[number], self.shadows[number]
        message = self.draw_message(session)
        if message is None:
            return
        if message.id in session.forgotten or session.state_of(message.id) == "archived":
            self.tell(f"{message.id}, which is archived or forgotten")
            with pytest.raises((InvalidInput, ForgottenMessage)):
                shadow.revert(message.id)
            return
        chosen, is_forward = session.choose_revert(message.id)
        self.travel(
            number,
            chosen,
            message.parent,
            lambda **o: shadow.revert(message.id, **o),
            is_forward=is_forward,
        )

    def revert_part(self) -> None:
        """Revert only some paths, or only what a step and all after it did; the head stays."""
        number = self.draw_number()
        session, shadow = self.sessions[number], self.shadows[number]
        message, paths = self.draw_message(session), self.editor.draw_paths()
        if message is None or message.id in session.forgotten or session.state_of(message.id) == "archived":
            return
        step = self.random.choice([None, *message.steps])
        chosen, is_forward = session.choose_revert(message.id)
        if (paths, step) == (None, None) or self.is_vague(session, chosen, session.place):
            return

        def call(**options: object) -> Outcome:
            return shadow.revert(message.id, step=step, paths=paths, **options)  # type: ignore[arg-type]

        if is_forward and step is not None:
            with pytest.raises(InvalidInput):
                call()
            return
        wishes = self.wish(session, chosen, is_forward=is_forward, step=step)
        if paths is not None:
            wishes = {p: w for p, w in wishes.items() if any(modelled.is_below(p, each) for each in paths)}
            if not wishes:
                self.do_nothing(call)
                return
        self.act(number, wishes, call, session.place)

    def take_out(self) -> None:
        """Revert one message and keep the later ones."""
        number = self.draw_number()
        session, shadow = self.sessions[number], self.shadows[number]
        message = self.draw_message(session)
        if message is None:
            return
        self.tell(message.id)

        def call(**options: object) -> Outcome:
            return shadow.revert(message.id, only=True, **options)  # type: ignore[arg-type]

        if message.id in session.forgotten or session.state_of(message.id) == "archived":
            with pytest.raises((InvalidInput, ForgottenMessage)):
                call()
        elif message not in session.in_force:
            self.do_nothing(call)
        else:
            self.act(number, None, call, session.place._replace(out=session.place.out | {message.id}))

    def switch(self, ref: str | None = None) -> None:
        """Go to just after a message, or to the end of a branch."""
        number = 0 if ref is not None else self.draw_number()
        session, shadow = self.sessions[number], self.shadows[number]
        # Which branches are left when something was forgotten is not modelled.
        names = [] if session.forgotten else list(self.branches[number].known)
        refs = [*session.messages, *names * 2]
        if not refs:
            return
        ref = ref or self.random.choice(refs)
        target = ref if ref in session.messages else self.branches[number].known[ref].messages[-1]
        before = session.place
        self.tell(ref)

        def call(**options: object) -> Outcome:
            return shadow.switch(ref, **options)  # type: ignore[arg-type]

        if target == before.head and not before.out and self.profile.is_quiet and not session.forgotten:
            self.do_nothing(call)
            return
        self.act(number, None, call, lambda: self.read_place(number, target, before))

    def read_place(self, number: int, target: str, before: Place) -> Place:
        """Read where the line goes on after a switch; it has to be a line."""
        session, shadow = self.sessions[number], self.shadows[number]
        undone = shadow.status().undone
        states = {message.id: message.state for message in shadow.messages()}
        above = target
        for id in undone:
            assert above in {message.id for message in session.walk_back(session.messages[id].parent)}
            above = id
        line = [id for id, state in states.items() if state in ("active", "undone")]
        inner = {each.id for id in line for each in session.walk_back(session.messages[id].parent)}
        tips = [id for id in line if id not in inner]
        assert len(tips) == 1, ("the line is a line", tips)
        ids = [message.id for message in session.walk_back(tips[0])]
        out = frozenset(id for id in ids if states.get(id) == "undone" and id not in undone)
        if target in {message.id for message in session.walk_back(before.tip)} and not (out | before.out):
            assert tips == [before.tip], "a message on the line leaves the line as it is"
        return Place(target, tips[0], out)

    def unrevert(self) -> None:
        number = self.draw_number()
        session, shadow = self.sessions[number], self.shadows[number]
        if not session.acts:
            if not session.has_lost_acts:
                self.do_nothing(shadow.unrevert)
            return
        last = session.acts[-1]
        story = self.tell_story(session)
        gone = [(first, end) for first, end in session.taken_back if first > last.number]
        whole = [happening for happening in story if happening.number >= last.number]
        since = [h for h in whole if not any(first <= h.number <= end for first, end in gone)]
        over = {happening.number for happening in since}
        wishes = modelled.wish_back(over, since, self.find_others(session), last.number)
        # An act that was taken back counts for nothing, or for what it and its unrevert did: either will do.
        told = modelled.wish_back(over, whole, self.find_others(session), last.number)
        for path, wish in wishes.items():
            other = told[path]
            wish.is_vague |= (wish.expected, wish.is_troubled) != (other.expected, other.is_troubled)
        modelled.doubt({p: w for p, w in wishes.items() if p not in since[0].changes}, last.seen)
        before = self.disk
        is_vague = not self.profile.is_quiet and session.vague_until >= last.number
        outcome = self.act(
            number, None if is_vague else wishes, shadow.unrevert, last.place, is_unrevert=True
        )
        if outcome is not None and before == last.disk_after and not outcome.kept and not outcome.skipped:
            assert self.disk == last.disk_before, "unrevert gives back exactly what was there"

    def restore(self) -> None:
        """Have the state before or after a message, or of a tree; the head stays."""
        number = self.draw_number()
        session = self.sessions[number]
        ended = [message for message in session.live if message.after is not None]
        kind = self.random.choice(["after", "before", "tree"])
        if kind == "tree" or not ended:
            if self.trees:
                ref = self.random.choice(list(self.trees))
                self.restore_to(number, ref, self.trees[ref])
            return
        message = self.random.choice(ended)
        assert message.after is not None
        if kind == "before":
            self.restore_to(number, message.id + "^", message.before)
        else:
            self.restore_to(number, message.id, message.after)

    def restore_to(self, number: int, ref: str, then: Seen) -> Outcome | None:
        self.tell(ref)
        wishes = modelled.wish_tree(self.see(), then)
        place = self.sessions[number].place
        return self.act(number, wishes, lambda **o: self.shadows[number].restore(ref, **o), place)

    def visit(self, id: str | None = None) -> None:
        """Have the state after a message, be it archived, and come back; what is forgotten says so."""
        session, shadow = self.sessions[0], self.shadows[0]
        drawn = self.draw_message(session) if id is None else session.messages[id]
        if drawn is None or drawn.after is None:
            return
        if drawn.id in session.forgotten:
            with pytest.raises((ForgottenMessage, UnknownTree)):
                shadow.restore(drawn.id)
            return
        before, was_plain, self.is_plain = self.disk, self.is_plain, True
        outcome = self.restore_to(0, drawn.id, drawn.after)
        if outcome is not None:
            assert self.disk == drawn.after.disk or not self.profile.is_quiet
            if self.disk != before:
                self.told.append("and unrevert")
                self.unrevert()
                assert self.disk == before or not self.profile.is_quiet
        self.is_plain = was_plain

    def travel(
        self,
        number: int,
        chosen: list[Message],
        head: str | None,
        call: Call,
        *,
        is_forward: bool = False,
    ) -> Outcome | None:
        """Undo or redo messages."""
        session = self.sessions[number]
        if not chosen:
            return self.do_nothing(call)
        ids = [message.id for message in chosen]
        self.tell(" ".join(ids))
        place = session.place._replace(head=head)
        wishes = None
        if not self.is_vague(session, chosen, place):
            wishes = self.wish(session, chosen, is_forward=is_forward)
        outcome = self.act(number, wishes, call, place)
        if outcome is not None:
            assert outcome.messages == ids
            in_force = [message.id for message in session.in_force]
            assert outcome.head == (in_force[0] if in_force else None)
        return outcome

    def is_vague(self, session: Session, chosen: list[Message], place: Place) -> bool:
        """Check whether nobody worked out what an act over these messages comes to."""
        if session.place.out or place.out:
            return True
        first = min((m.ended.number for m in chosen if m.ended is not None), default=self.clock + 1)
        return not self.profile.is_quiet and first <= session.vague_until

    def do_nothing(self, call: Call) -> Outcome:
        before = modelled.read_disk(self.root)
        outcome = call(on_conflict=self.draw_way())
        assert (outcome.restored, outcome.deleted, outcome.messages) == ([], [], [])
        assert outcome.notes
        assert modelled.read_disk(self.root) == before
        return outcome

    def tell_story(self, session: Session) -> list[Happening]:
        """Tell all that a session did, as if its open message ended now."""
        ending = self.foresee_end(session, self.see())
        return [*session.story, *([ending] if ending is not None else [])]

    def wish(
        self, session: Session, chosen: list[Message], *, is_forward: bool, step: str | None = None
    ) -> dict[str, Wish]:
        story = self.tell_story(session)
        ids = {message.id for message in chosen}
        over = {happening.number for happening in story if happening.message in ids}
        story = [happening for happening in story if happening.number >= min(over, default=0)]
        if step is not None:
            first = chosen[0]
            after = first.after or self.see()
            own = next(happening for happening in story if happening.message == first.id)
            nobodys = modelled.compare(first.before, after).keys() - own.changes.keys()
            later = modelled.compare(first.steps[step], after)
            later = {path: change for path, change in later.items() if path not in nobodys}
            rest = [happening for happening in story if happening is not own]
            story = [Happening(own.number, own.since, later, first.id), *rest]
        if is_forward:
            return modelled.wish_forward(over, story, self.find_others(session))
        wishes = modelled.wish_back(over, story, self.find_others(session))
        return modelled.doubt(wishes, chosen[0].before if step is None else chosen[0].steps[step])

    def find_others(self, session: Session) -> modelled.Others:
        """Look for messages of the other session that are in force and did something to the same path."""

        def find(path: str, since: int) -> str:
            in_force = {m.id for other in self.sessions if other is not session for m in other.in_force}
            story = [h for h in self.others_story(session) if h.number > since and path in h.changes]
            later = [happening.changes[path] for happening in story if happening.message in in_force]
            if any(not any(isinstance(side, modelled.Unknown) for side in sides) for sides in later):
                return "yes"
            # What an act did during one of our messages is in the way, and what it did later is not.
            return "perhaps" if later or any(not happening.message for happening in story) else "no"

        return find

    def act(
        self,
        number: int,
        wishes: dict[str, Wish] | None,
        call: Call,
        place: Place | Callable[[], Place],
        *,
        is_unrevert: bool = False,
    ) -> Outcome | None:
        """Do an act and compare what came of it with the wishes; None if it was refused, rightly.

        Without wishes, it is not known what it comes to; see the top.
        """
        session = self.sessions[number]
        way, seen = self.draw_way(), self.see()
        now, marks = modelled.read_disk(self.root)
        forecast = None if wishes is None else Forecast(wishes, now, way)
        self.tell(way)
        if not self.is_plain and self.random.random() < 0.15:
            self.try_dry(call, way, forecast)
            return None
        answer = None if self.is_plain else self.random.choice([None] * 6 + [True, False])
        self.counted["acts"] += 1
        try:
            outcome = call(on_conflict=way, confirm=None if answer is None else lambda plan: answer)
        except ForgottenMessage:
            assert session.forgotten
            assert wishes is None or not is_unrevert
            assert modelled.read_disk(self.root) == (now, marks)
            return None
        except Conflict as error:
            assert modelled.read_disk(self.root) == (now, marks), "what is refused changes nothing"
            if isinstance(error, NotConfirmed):
                assert answer is False
                return None
            self.counted["conflicts"] += 1
            self.tell("(conflict)")
            if forecast is not None:
                forecast.check_conflicts([conflict.path for conflict in error.conflicts], is_refused=True)
            out = session.place.out or (isinstance(place, Place) and place.out)
            assert out or not self.profile.is_quiet, "nobody else changed anything"
            return None
        after, marks_after = modelled.read_disk(self.root)
        if any("in force already" in note for note in outcome.notes):
            assert after == now
            return outcome
        self.counted["done"] += 1
        self.end_open(session, seen)
        self.take(outcome.before, seen)
        self.take(outcome.after, Seen(after, LARGEST, self.was_covered))
        self.branches[number].hear(outcome.notes)
        place = place if isinstance(place, Place) else place()
        was = session.place
        self.note_act(session, seen, now, after, wishes, place, is_unrevert=is_unrevert)
        if forecast is not None:
            forecast.check_conflicts([], is_refused=False)
            forecast.check_worktree(after, marks, marks_after, outcome)
        check_lists(now, after, outcome)
        self.check_safe(now, after)
        self.check_quiet(session, was, outcome)
        return outcome

    def try_dry(self, call: Call, way: str, forecast: Forecast | None) -> None:
        before = modelled.read_disk(self.root)
        try:
            outcome = call(on_conflict=way, dry_run=True)
        except ForgottenMessage:
            assert any(session.forgotten for session in self.sessions)
            return
        assert modelled.read_disk(self.root) == before, "a dry run changes nothing"
        assert outcome.dry_run or outcome.notes
        if forecast is not None:
            found = [conflict.path for conflict in outcome.conflicts]
            forecast.check_conflicts(found, is_refused=bool(found))

    def note_act(
        self,
        session: Session,
        seen: Seen,
        now: Disk,
        after: Disk,
        wishes: dict[str, Wish] | None,
        place: Place,
        *,
        is_unrevert: bool,
    ) -> None:
        number = self.tick(session, Seen(after, LARGEST, self.was_covered))
        changes = modelled.compare_disks(now, after)
        agreed: modelled.Changes = {
            path: (wish.target, wish.target)
            for path, wish in (wishes or {}).items()
            if now.get(path) == wish.target != wish.expected
        }
        session.story.append(Happening(number, number, {**agreed, **changes}))
        if wishes is None:
            session.vague_until = number
        if is_unrevert:
            session.taken_back.append((session.acts.pop().number, number))
        elif changes or place != session.place:
            session.acts.append(modelled.Act(number, seen, now, after, session.place))
        session.place = place

    # Forgetting, and what is done in idle time

    def pin(self) -> None:
        """Pin a message, or unpin one."""
        session, shadow = self.sessions[0], self.shadows[0]
        if session.pinned and self.random.random() < 0.4:
            shadow.unpin(session.pinned.pop())
        elif session.live:
            id = self.random.choice(session.live).id
            shadow.pin(id)
            session.pinned.add(id)
        self.is_recorded = True

    def forget(self) -> None:
        """Forget old messages: never pinned ones, nor the newest."""
        last = self.random.randint(2, 12)
        self.shadows[0].forget(keep_last=last, gc=self.random.random() < 0.6)
        self.is_recorded = True
        for session, shadow in zip(self.sessions, self.shadows, strict=True):
            left = {message.id for message in shadow.messages()}
            newest = list(session.messages)[-last:]
            assert left >= {*newest, *session.pinned} - session.forgotten
            gone = set(session.messages) - left
            assert gone >= session.forgotten, "what is forgotten stays so"
            session.forgotten = gone
            for id in sorted(gone)[:2]:
                with pytest.raises(ForgottenMessage):
                    shadow.show(id)
        self.keep_only_live()

    def keep_only_live(self) -> None:
        """Expect only what messages need: old acts and snapshots may be forgotten, too."""
        self.trees.clear()
        for session in self.sessions:
            session.acts.clear()
            session.has_lost_acts = True
            session.vague_until = self.clock
        live = [message for each in self.sessions for message in each.live]
        states = [state for message in live for state in (message.before, message.after) if state is not None]
        self.safe = {blob for state in states for blob in blobs_of(state)}

    def sweep(self) -> None:
        self.shadows[0].gc()

    def tidy(self) -> None:
        """Do what is done in idle time."""
        self.shadows[0].tidy(self.random.choice([0, 100]))
        while self.profile.is_watched and not self.shadows[0].look_over(10):
            pass

    def pack(self) -> None:
        """Let real git pack the store."""
        git("--git-dir", self.store, "gc", "--quiet", "--prune=now")
        for path in self.store.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)

    # What must hold

    def check(self) -> None:
        """Compare the surroundings, the log and the branches with the model."""
        self.counted["steps"] += 1
        assert modelled.read_disk(self.outside) == self.canary
        assert sorted(os.listdir(self.top)) == ["outside", "store", "worktree"]
        assert not [path for path in self.disk if ".shadowtree-tmp-" in path]
        if self.is_recorded:
            for number in range(len(self.sessions)):
                self.check_session(number)
            self.is_recorded = False

    def check_session(self, number: int) -> None:
        session, shadow = self.sessions[number], self.shadows[number]
        status = shadow.status()
        assert status.open == session.open
        assert status.undone == [m.id for m in session.undone if m.id not in session.forgotten]
        if not session.forgotten:
            assert status.head == session.finished_head
        found = {message.id: message for message in shadow.messages()}
        said = {id: (message.parent, message.state) for id, message in found.items()}
        assert said == {m.id: (m.parent, session.state_of(m.id)) for m in session.live}
        if not session.forgotten:
            branches = {branch.name: branch for branch in shadow.branches()}
            self.branches[number].check(found, branches)

    def check_quiet(self, session: Session, was: Place, outcome: Outcome) -> None:
        """As long as only messages changed anything, each place on the line is a copy that was made."""
        head = session.place.head
        is_exact = outcome.act == "switch" or not (was.out or session.place.out)
        if not self.profile.is_quiet or not is_exact or outcome.act in ("restore", "unrevert"):
            return
        assert outcome.complete or outcome.notes
        first = next(iter(session.messages.values()))
        then = first.before if head is None else session.messages[head].after
        assert then is not None
        assert self.disk == then.disk

    def check_safe(self, now: Disk, after: Disk) -> None:
        """What was there is there, or in the store."""
        gone = {modelled.blob_of(entry) for path, entry in now.items() if after.get(path) != entry}
        objects = Objects(StoreLayout(str(self.store)).objects)
        try:
            for blob in gone - {None}:
                assert blob is not None
                objects.read(b"blob", bytes.fromhex(blob))
                self.safe.add(blob)
        finally:
            objects.close()

    def check_store(self) -> None:
        """The store is whole, by its own check and by real git's, and holds all that is safe."""
        assert self.shadows[0].check().ok
        for shadow in self.shadows:
            shadow.close()
        assert_records_whole(self.store)
        assert_sound_store(self.store)
        if not any(session.forgotten for session in self.sessions):
            assert_folds(self.store)
        assert_kept(self.store, self.safe)


def blobs_of(seen: Seen) -> set[str]:
    return {blob for path in seen.covered if (blob := modelled.blob_of(seen.disk[path]))}
