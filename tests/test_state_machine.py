"""Random work, random messages and random acts, held against a model that copies the directory.

`modelled` reads the contract a second time, on plain dicts. After every step the worktree, the outcome and
where the sessions stand are compared with what it says. How long it runs is told by the environment:

    SHADOWTREE_STATEFUL_STEPS   how many steps in all, 2,000 if it is not set (`tox -e stateful`: 100,000)
    SHADOWTREE_STATEFUL_SEED    where the random numbers start, 0 if it is not set
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from shadowtree import Conflict, InvalidInput, NotConfirmed, Outcome, Shadow, UnknownMessage
from shadowtree.events import Position
from shadowtree.journal import Journal
from shadowtree.layout import StoreLayout
from shadowtree.objects import Objects
from shadowtree.timeline import fold
from tests import modelled
from tests.modelled import DIRECTORY, UNKNOWN, UNSURE, Disk, Happening, Marks, Message, Seen, Session, Wish
from tests.referee import assert_sound_store
from tests.trees import File, Link

STEPS = int(os.environ.get("SHADOWTREE_STATEFUL_STEPS", "2000"))
SEED = int(os.environ.get("SHADOWTREE_STATEFUL_SEED", "0"))
SHARDS = 4
STEPS_EACH = 50
LARGEST = 64
FAST_PLACE = "/dev/shm"

# What there is to draw from: few names, so that things meet.

NAMES = ["a", "b", "x.log", "d", "build", "n\udcff"]
PATHS = [
    *NAMES,
    *[f"{directory}/{name}" for directory in ("d", "build", "a") for name in ("a", "x.log", "d", "build")],
    *[f"d/d/{name}" for name in ("a", "b", "x.log")],
    "node_modules/a",
]
CONTENTS = [b"", b"1", b"2", b"one\ntwo\n", b"x" * 100, b"y" * 100]
MODES = [0o644, 0o600, 0o755]
TARGETS = [b"a", b"nowhere", b"d", b"..", b"../outside/kept", b"../outside", b"../../outside"]
IGNORE_FILES = [".gitignore", ".gitignore", "d/.gitignore", ".shadowtreeignore"]
IGNORE_LINES = ["*.log", "build/", "/a", "b", "d", "!x.log", "!b", "d/a", "!build/"]

paths = st.sampled_from(PATHS)
entries = st.one_of(
    st.builds(File, st.sampled_from(CONTENTS), st.sampled_from(MODES)),
    st.builds(File, st.sampled_from(CONTENTS), st.sampled_from(MODES)),
    st.builds(Link, st.sampled_from(TARGETS)),
    st.just(DIRECTORY),
)
places = st.integers(0, 30)
"""Chooses among what there is at the time."""
sessions = st.sampled_from([0, 0, 0, 1])
ways = st.sampled_from(["abort", "abort", "keep", "overwrite"])
answers = st.sampled_from([None, None, None, True, False])
"""What is said when an act asks: None asks nobody."""

Call = Callable[..., Outcome]

counted = {"steps": 0, "acts": 0, "done": 0, "conflicts": 0}


class Worktrees(RuleBasedStateMachine):
    """One worktree, two sessions, and somebody who works in it whenever they like."""

    def __init__(self) -> None:
        super().__init__()
        fast = FAST_PLACE if os.access(FAST_PLACE, os.W_OK) else None
        self.top = Path(tempfile.mkdtemp(prefix="shadowtree-state-", dir=fast))
        self.root = self.top / "worktree"
        self.root.mkdir()
        self.outside = self.top / "outside"
        (self.outside / "kept" / "deep").mkdir(parents=True)
        (self.outside / "kept" / "deep" / "file").write_bytes(b"not yours")
        (self.outside / "file").write_bytes(b"not yours either")
        self.canary = modelled.read_disk(self.outside)
        self.store = self.top / "store"
        self.sessions = [Session("one"), Session("two")]
        self.shadows: list[Shadow] = []
        self.open_shadows()
        self.clock = 0
        self.was_covered: set[str] = set()
        self.trees: dict[str, Seen] = {}
        """What each recorded tree id was."""
        self.safe: set[str] = set()
        """The blobs that have to be in the store, for good."""
        self.serial = 0
        self.is_recorded = False
        """Something was recorded or asked for since the sessions were last looked at."""
        self.take(self.shadows[0].track())

    def open_shadows(self) -> None:
        self.shadows = [
            Shadow(
                self.root,
                store=self.store,
                session=session.name,
                settings={"min_free": 0, "max_file_size": LARGEST},
            )
            for session in self.sessions
        ]

    # Work, by anybody

    def put(self, path: str, entry: modelled.Entry) -> None:
        self.make_way(path)
        target = self.root / path
        if isinstance(entry, File):
            target.write_bytes(entry.content)
            target.chmod(entry.mode)
        elif isinstance(entry, Link):
            os.symlink(entry.target, os.fsencode(target))
        else:
            target.mkdir()

    @rule(puts=st.lists(st.tuples(paths, entries), min_size=1, max_size=3))
    def put_many(self, puts: list[tuple[str, modelled.Entry]]) -> None:
        for path, entry in puts:
            self.put(path, entry)

    @rule(
        place=places,
        way=st.sampled_from(["delete", "rename", "chmod", "edit"]),
        to=paths,
        content=st.sampled_from(CONTENTS),
        mode=st.sampled_from(MODES),
    )
    def change(self, place: int, way: str, to: str, content: bytes, mode: int) -> None:
        """Change something that is there."""
        if way == "delete":
            self.delete(place)
        elif way == "rename":
            self.rename(place, to)
        else:
            files = [path for path, entry in self.disk.items() if isinstance(entry, File)]
            chosen = [path for path in sorted(files) if way == "chmod" or "ignore" not in path]
            if chosen and way == "chmod":
                (self.root / chosen[place % len(chosen)]).chmod(mode)
            elif chosen:
                # Keeps the inode.
                (self.root / chosen[place % len(chosen)]).write_bytes(content)

    def delete(self, place: int) -> None:
        path = self.choose_path(place)
        if path is not None:
            self.remove(self.root / path)

    def rename(self, place: int, to: str) -> None:
        path = self.choose_path(place)
        if path is None or modelled.is_below(to, path) or modelled.is_below(path, to):
            return
        self.make_way(to)
        if os.path.lexists(self.root / path):
            (self.root / path).rename(self.root / to)

    @rule(
        path=st.sampled_from(IGNORE_FILES),
        lines=st.one_of(st.just([]), st.lists(st.sampled_from(IGNORE_LINES), min_size=1, max_size=3)),
    )
    def change_rules(self, path: str, lines: list[str]) -> None:
        file = self.root / path
        if not lines:
            if file.exists():
                file.unlink()
            return
        self.make_way(path)
        file.write_text("".join(line + "\n" for line in lines))

    def make_way(self, path: str) -> None:
        """Let the directories above a path be there, and nothing at it."""
        for above in reversed(list(modelled.ancestors(path))):
            directory = self.root / above
            if directory.is_symlink() or not directory.is_dir():
                self.remove(directory)
                directory.mkdir()
        self.remove(self.root / path)

    def remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()

    def choose_path(self, place: int) -> str | None:
        found = sorted(self.disk)
        return found[place % len(found)] if found else None

    @property
    def disk(self) -> Disk:
        return modelled.read_disk(self.root)[0]

    # Recording

    @rule(number=sessions, role=st.sampled_from([None, "user", "assistant"]), again=st.booleans())
    def begin(self, number: int, role: str | None, again: bool) -> None:
        session, shadow = self.sessions[number], self.shadows[number]
        if again and session.open is not None:
            assert shadow.begin(session.open).state == "open"
            return
        id = self.name_message()
        seen = self.see()
        recorded = shadow.begin(id, role=role)
        self.end_open(session, seen)
        assert recorded.before is not None
        self.take(recorded.before, seen)
        message = Message(id, session.head, role != "assistant", seen, self.tick(session, seen))
        session.messages[id] = message
        session.head = session.tip = session.open = id

    @rule(number=sessions, only=st.one_of(st.none(), st.none(), st.lists(paths, min_size=1, max_size=3)))
    def end(self, number: int, only: list[str] | None) -> None:
        session, shadow = self.sessions[number], self.shadows[number]
        if session.open is None:
            with pytest.raises(UnknownMessage):
                shadow.end()
            return
        # A path that leads through a link names another place; the model does without.
        disk = self.disk
        if only and any(isinstance(disk.get(above), Link) for p in only for above in modelled.ancestors(p)):
            only = None
        seen = self.see()
        message = session.messages[session.open]
        recorded = shadow.end(message.id, paths=only)
        self.end_open(session, seen, only)
        assert recorded.after is not None
        self.take(recorded.after, seen)
        assert_patch(recorded.patch.files, message.changes)
        again = shadow.end(message.id)
        assert (again.patch, again.after) == (recorded.patch, recorded.after)

    @rule(
        number=sessions,
        role=st.sampled_from([None, "user", "assistant"]),
        puts=st.lists(st.tuples(paths, entries), min_size=1, max_size=4),
        place=st.one_of(st.none(), places),
    )
    def message(
        self, number: int, role: str | None, puts: list[tuple[str, modelled.Entry]], place: int | None
    ) -> None:
        """A whole message at once, so that there are many."""
        self.begin(number, role, again=False)
        self.put_many(puts)
        if place is not None:
            self.delete(place)
        self.end(number, None)

    @rule(number=sessions, role=st.sampled_from([None, "assistant"]))
    def snapshot(self, number: int, role: str | None) -> None:
        session, shadow = self.sessions[number], self.shadows[number]
        id = self.name_message()
        seen = self.see()
        recorded = shadow.snapshot(id, role=role)
        self.end_open(session, seen)
        before = session.last or seen
        since = session.last_number
        assert recorded.after is not None
        self.take(recorded.after, seen)
        message = Message(id, session.head, role != "assistant", before, 0, after=seen)
        message.changes = self.without_acts(session, modelled.compare(before, seen), since)
        message.began = self.tick(session, seen)
        message.ended = Happening(message.began, since or message.began, message.changes, id)
        session.story.append(message.ended)
        session.messages[id] = message
        session.head = session.tip = id
        assert_patch(recorded.patch.files, message.changes)

    @precondition(lambda self: any(session.open for session in self.sessions))
    @rule(number=sessions, is_end=st.booleans())
    def step(self, number: int, is_end: bool) -> None:
        session, shadow = self.sessions[number], self.shadows[number]
        if session.open is None:
            with pytest.raises(UnknownMessage):
                shadow.begin_step("s")
            return
        message = session.messages[session.open]
        seen = self.see()
        if is_end and session.step is not None:
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

    @rule(reopens=st.booleans())
    def track(self, reopens: bool) -> None:
        if reopens:
            self.reopen()
        seen = self.see()
        snapshot = self.shadows[0].take_snapshot()
        self.take(snapshot.tree, seen)
        assert snapshot.files == len(seen.covered)

    def reopen(self) -> None:
        for shadow in self.shadows:
            shadow.close()
        self.open_shadows()
        self.is_recorded = True

    def is_for_once(self) -> bool:
        """Let acts that have nothing to do be tried now and then, not all the time."""
        return self.clock % 8 == 1

    def name_message(self) -> str:
        self.serial += 1
        return f"m{self.serial:04}"

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
        self.safe |= {blob for path in seen.covered if (blob := modelled.blob_of(seen.disk[path]))}

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
                for other in self.sessions
                if other is not session
                for happening in other.story
                if happening.message is None and happening.number > since and path in happening.changes
            ]
            states = [change[0], *(new for old, new in acts if old != new)]
            olds = [old for old, new in acts if old != new]
            if olds == states[:-1] and states[-1] == change[1]:
                del left[path]
        return left

    # Acts

    @precondition(lambda self: any(session.messages for session in self.sessions) or self.is_for_once())
    @rule(
        number=sessions,
        turns=st.integers(1, 3),
        way=ways,
        is_dry=st.sampled_from([False] * 4 + [True]),
        answer=answers,
    )
    def undo(self, number: int, turns: int, way: str, is_dry: bool, answer: bool | None) -> None:
        session = self.sessions[number]
        chosen = session.choose_undo(turns)

        def call(**options: object) -> Outcome:
            return self.shadows[number].undo(turns, **options)  # type: ignore[arg-type]

        outcome = self.travel(session, chosen, call, way, is_dry, answer, is_forward=False)
        if outcome is not None:
            count = sum(m.starts_turn for m in chosen) + bool(chosen and not chosen[0].starts_turn)
            assert outcome.turns == count

    @precondition(lambda self: any(session.undone for session in self.sessions) or self.is_for_once())
    @rule(
        number=sessions,
        turns=st.sampled_from([1, 2, 3, None]),
        way=ways,
        is_dry=st.sampled_from([False] * 4 + [True]),
        answer=answers,
    )
    def redo(self, number: int, turns: int | None, way: str, is_dry: bool, answer: bool | None) -> None:
        session = self.sessions[number]
        chosen = session.choose_redo(turns)

        def call(**options: object) -> Outcome:
            return self.shadows[number].redo(turns, **options)  # type: ignore[arg-type]

        self.travel(session, chosen, call, way, is_dry, answer, is_forward=True)

    @precondition(lambda self: any(session.messages for session in self.sessions))
    @rule(
        number=sessions,
        place=places,
        way=ways,
        is_dry=st.sampled_from([False] * 4 + [True]),
        answer=answers,
        only=st.one_of(st.none(), st.none(), st.lists(paths, min_size=1, max_size=3)),
        step=st.one_of(st.none(), st.none(), places),
    )
    def revert(
        self,
        number: int,
        place: int,
        way: str,
        is_dry: bool,
        answer: bool | None,
        only: list[str] | None,
        step: int | None,
    ) -> None:
        session = self.sessions[number]
        if not session.messages:
            return
        disk = self.disk
        if only and any(isinstance(disk.get(above), Link) for p in only for above in modelled.ancestors(p)):
            only = None
        message = list(session.messages.values())[-1 - place % min(len(session.messages), 8)]
        name = list(message.steps)[step % len(message.steps)] if step is not None and message.steps else None

        def call(**options: object) -> Outcome:
            return self.shadows[number].revert(message.id, step=name, paths=only, **options)  # type: ignore[arg-type]

        state = session.state_of(message.id)
        if state == "archived" or (state == "undone" and name is not None):
            with pytest.raises(InvalidInput):
                call()
            return
        is_forward = state == "undone"
        chosen = session.choose_forward(message.id) if is_forward else session.choose_back(message.id)
        if only is None and name is None:
            self.travel(session, chosen, call, way, is_dry, answer, is_forward=is_forward)
        else:
            wishes = self.wish(session, chosen, is_forward=is_forward, step=name)
            if only is not None:
                wishes = {
                    path: wish
                    for path, wish in wishes.items()
                    if any(modelled.is_below(path, each) for each in only)
                }
                if not wishes:
                    self.do_nothing(call, way)
                    return
            self.act(session, wishes, call, way, is_dry, answer, head=session.head, tip=session.tip)

    @precondition(lambda self: any(session.acts for session in self.sessions) or self.is_for_once())
    @rule(number=sessions, way=ways, is_dry=st.sampled_from([False] * 4 + [True]), answer=answers)
    def unrevert(self, number: int, way: str, is_dry: bool, answer: bool | None) -> None:
        session = self.sessions[number]
        call = self.shadows[number].unrevert
        if not session.acts:
            self.do_nothing(call, way)
            return
        last = session.acts[-1]
        story = self.tell(session)
        gone = [(first, end) for first, end in session.taken_back if first > last.number]
        since = [
            happening
            for happening in story
            if happening.number >= last.number
            and not any(first <= happening.number <= end for first, end in gone)
        ]
        wishes = modelled.wish_back(
            {happening.number for happening in since}, since, self.find_others(session), last.number
        )
        # An act that was taken back counts for nothing, or for what it and its unrevert did: either will do.
        whole = [happening for happening in story if happening.number >= last.number]
        told = modelled.wish_back({h.number for h in since}, whole, self.find_others(session), last.number)
        for path, wish in wishes.items():
            wish.is_vague |= (wish.expected, wish.is_troubled) != (
                told[path].expected,
                told[path].is_troubled,
            )
        others = modelled.doubt({p: w for p, w in wishes.items() if p not in since[0].changes}, last.seen)
        before = self.disk
        outcome = self.act(
            session,
            {**wishes, **others},
            call,
            way,
            is_dry,
            answer,
            head=last.head,
            tip=last.tip,
            is_unrevert=True,
        )
        if outcome is None or is_dry:
            return
        if before == last.disk_after and not outcome.kept and not outcome.skipped:
            assert self.disk == last.disk_before, "unrevert gives back exactly what was there"

    @rule(
        number=sessions,
        place=places,
        kind=st.sampled_from(["after", "before", "tree"]),
        way=ways,
        is_dry=st.sampled_from([False] * 4 + [True]),
        answer=answers,
    )
    def restore(
        self, number: int, place: int, kind: str, way: str, is_dry: bool, answer: bool | None
    ) -> None:
        session = self.sessions[number]
        ended = [message for message in session.messages.values() if message.after is not None]
        if kind == "tree" or not ended:
            ref, then = list(self.trees.items())[-1 - place % len(self.trees)]
        else:
            message = ended[-1 - place % len(ended)]
            assert message.after is not None
            ref = message.id + "^" * (kind == "before")
            then = message.before if kind == "before" else message.after

        def call(**options: object) -> Outcome:
            return self.shadows[number].restore(ref, **options)  # type: ignore[arg-type]

        wishes = modelled.wish_tree(self.see(), then)
        self.act(session, wishes, call, way, is_dry, answer, head=session.head, tip=session.tip)

    def travel(
        self,
        session: Session,
        chosen: list[Message],
        call: Call,
        way: str,
        is_dry: bool,
        answer: bool | None,
        *,
        is_forward: bool,
    ) -> Outcome | None:
        """Undo or redo messages."""
        if not chosen:
            return self.do_nothing(call, way)
        wishes = self.wish(session, chosen, is_forward=is_forward)
        head = chosen[-1].id if is_forward else chosen[0].parent
        outcome = self.act(session, wishes, call, way, is_dry, answer, head=head, tip=session.tip)
        if outcome is not None:
            assert outcome.messages == [message.id for message in chosen]
            assert outcome.head == head
        return outcome

    def do_nothing(self, call: Call, way: str) -> Outcome:
        before = modelled.read_disk(self.root)
        outcome = call(on_conflict=way)
        assert (outcome.restored, outcome.deleted, outcome.messages) == ([], [], [])
        assert outcome.notes
        assert modelled.read_disk(self.root) == before
        return outcome

    def tell(self, session: Session) -> list[Happening]:
        """Tell all that a session did, as if its open message ended now."""
        ending = self.foresee_end(session, self.see())
        return [*session.story, *([ending] if ending is not None else [])]

    def wish(
        self, session: Session, chosen: list[Message], *, is_forward: bool, step: str | None = None
    ) -> dict[str, Wish]:
        story = self.tell(session)
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
            later = [
                happening.changes[path]
                for other in self.sessions
                if other is not session
                for happening in other.story
                if happening.number > since and path in happening.changes
                if happening.message in {message.id for message in other.walk_back(other.head)}
            ]
            if any(not any(isinstance(side, modelled.Unknown) for side in sides) for sides in later):
                return "yes"
            # What an act did during one of our messages is in the way, and what it did later is not.
            return "perhaps" if later or self.has_acted(session, path, since) else "no"

        return find

    def has_acted(self, session: Session, path: str, since: int) -> bool:
        """Tell whether an act of the other session changed a path after something of ours began."""
        return any(
            happening.number > since and path in happening.changes and not happening.message
            for other in self.sessions
            if other is not session
            for happening in other.story
        )

    def act(
        self,
        session: Session,
        wishes: dict[str, Wish],
        call: Call,
        way: str,
        is_dry: bool,
        answer: bool | None,
        *,
        head: str | None,
        tip: str | None,
        is_unrevert: bool = False,
    ) -> Outcome | None:
        """Do an act and compare what came of it with the wishes; None if it was refused, rightly."""
        seen = self.see()
        now, marks = modelled.read_disk(self.root)
        forecast = Forecast(wishes, now, way)
        counted["acts"] += 1
        if is_dry:
            outcome = call(on_conflict=way, dry_run=True)
            assert modelled.read_disk(self.root) == (now, marks), "a dry run changes nothing"
            assert outcome.dry_run
            forecast.check_conflicts(
                [conflict.path for conflict in outcome.conflicts], is_refused=bool(outcome.conflicts)
            )
            return None
        try:
            outcome = call(on_conflict=way, confirm=None if answer is None else lambda plan: answer)
        except Conflict as error:
            assert modelled.read_disk(self.root) == (now, marks), "what is refused changes nothing"
            if isinstance(error, NotConfirmed):
                assert answer is False
            else:
                counted["conflicts"] += 1
                forecast.check_conflicts([conflict.path for conflict in error.conflicts], is_refused=True)
            return None
        counted["done"] += 1
        after, marks_after = modelled.read_disk(self.root)
        self.end_open(session, seen)
        self.take(outcome.before, seen)
        self.take(outcome.after, Seen(after, LARGEST, self.was_covered))
        agreed: modelled.Changes = {
            path: (wish.target, wish.target)
            for path, wish in wishes.items()
            if now.get(path) == wish.target != wish.expected
        }
        self.note_act(session, seen, now, after, agreed, head=head, tip=tip, is_unrevert=is_unrevert)
        forecast.check_conflicts([], is_refused=False)
        forecast.check_worktree(after, marks, marks_after, outcome)
        self.check_safe(now, after)
        return outcome

    def note_act(
        self,
        session: Session,
        seen: Seen,
        now: Disk,
        after: Disk,
        agreed: modelled.Changes,
        *,
        head: str | None,
        tip: str | None,
        is_unrevert: bool,
    ) -> None:
        number = self.tick(session, Seen(after, LARGEST, self.was_covered))
        changes = modelled.compare_disks(now, after)
        session.story.append(Happening(number, number, {**agreed, **changes}))
        if is_unrevert:
            session.taken_back.append((session.acts.pop().number, number))
        elif changes or (head, tip) != (session.head, session.tip):
            session.acts.append(modelled.Act(number, seen, now, after, session.head, session.tip))
        session.head, session.tip = head, tip

    def check_safe(self, now: Disk, after: Disk) -> None:
        """P0: what was there is there, or in the store."""
        gone = {modelled.blob_of(entry) for path, entry in now.items() if after.get(path) != entry}
        objects = Objects(StoreLayout(str(self.store)).objects)
        try:
            for blob in gone - {None}:
                assert blob is not None
                objects.read(b"blob", bytes.fromhex(blob))
                self.safe.add(blob)
        finally:
            objects.close()

    # At all times

    @invariant()
    def all_is_well(self) -> None:
        counted["steps"] += 1
        assert modelled.read_disk(self.outside) == self.canary
        assert sorted(os.listdir(self.top)) == ["outside", "store", "worktree"]
        assert not [path for path in self.disk if ".shadowtree-tmp-" in path]
        if self.is_recorded:
            self.check_positions()
            self.is_recorded = False

    def check_positions(self) -> None:
        for session, shadow in zip(self.sessions, self.shadows, strict=True):
            status = shadow.status()
            assert status.head == session.finished_head
            assert status.open == session.open
            assert status.undone == [message.id for message in session.undone]
            found = {message.id: message.state for message in shadow.messages(last=10)}
            assert found == {id: session.state_of(id) for id in list(session.messages)[-10:]}

    def teardown(self) -> None:
        try:
            for shadow in self.shadows:
                shadow.close()
            assert_sound_store(self.store)
            assert_folds(self.store)
            assert_kept(self.store, self.safe)
        finally:
            shutil.rmtree(self.top)


class Forecast:
    """What the wishes come to in a worktree: which paths have to be in conflict, which may be."""

    def __init__(self, wishes: dict[str, Wish], now: Disk, way: str) -> None:
        self.wishes = wishes
        self.now = now
        self.way = way
        self.frozen = {path for path, wish in wishes.items() if wish.target == UNKNOWN}
        self.must = {path for path in wishes if self.has_to_conflict(path)}
        self.vague = {
            path for path, wish in wishes.items() if wish.is_vague or wish.target == UNSURE
        } - self.frozen
        self.unsettled = self.vague | {path for path in wishes if self.is_directory_only(path)}
        self.may = self.unsettled | {path for path in wishes if self.is_shape_in_doubt(path)}

    def is_open(self, path: str) -> bool:
        """Tell whether something is to be done to a path."""
        wish = self.wishes[path]
        return path not in self.frozen and self.now.get(path) != wish.target

    def is_directory_only(self, path: str) -> bool:
        """Tell whether only a directory comes or goes though somebody did that already, or undid it."""
        wish, present = self.wishes[path], self.now.get(path)
        sides = (wish.target, present)
        return all(side in (None, DIRECTORY) for side in sides) and (
            wish.is_troubled or present != wish.expected
        )

    def has_to_conflict(self, path: str) -> bool:
        wish, present = self.wishes[path], self.now.get(path)
        if not self.is_open(path) or wish.is_vague or self.is_directory_only(path):
            return False
        if wish.expected == UNKNOWN:
            return present is not None
        return wish.is_troubled or present != wish.expected

    def is_shape_in_doubt(self, path: str) -> bool:
        """Tell whether a directory becomes something else, or the other way round, with trouble near."""
        if not self.is_open(path):
            return False
        wish, present = self.wishes[path], self.now.get(path)
        above = list(modelled.ancestors(path))
        blocks = [each for each in above if self.now.get(each, DIRECTORY) != DIRECTORY]
        turned = [
            each for each in above if each in self.wishes and modelled.is_file(self.wishes[each].target)
        ]
        is_turned = present == DIRECTORY and wish.target != DIRECTORY
        if not (blocks or turned or is_turned) and wish.target is not None:
            # Only what is left in the way above can matter.
            return any(each in self.must | self.unsettled | self.frozen for each in above)
        if wish.target is None and not is_turned:
            return False
        near = {
            each
            for each in self.wishes
            if modelled.is_below(each, path)
            or each in above
            or any(modelled.is_below(each, b) for b in blocks + turned)
        }
        if (near - {path}) & (self.frozen | self.must | self.unsettled):
            return True
        if any(each not in self.wishes for each in blocks) or (turned and wish.target is not None):
            return True
        return any(
            modelled.is_below(each, path)
            and (each not in self.wishes or self.wishes[each].target is not None)
            for each in self.now
            if each != path
        )

    def check_conflicts(self, found: list[str], *, is_refused: bool) -> None:
        if self.way == "keep":
            assert not is_refused, ("with keep nothing is refused", found)
            return
        expected = self.must if self.way == "abort" else set()
        allowed = expected | self.may
        # What is in the way of a directory is in the way of all that should come into it.
        allowed |= {p for p in found if any(modelled.is_file(self.now.get(a)) for a in modelled.ancestors(p))}
        assert is_refused == bool(found)
        assert set(found) <= allowed, (
            "no conflict",
            set(found) - allowed,
            self.explain(set(found) - allowed),
        )
        assert expected <= set(found), ("conflicts not seen", self.explain(expected - set(found)))

    def check_worktree(self, after: Disk, marks: Marks, marks_after: Marks, outcome: Outcome) -> None:
        for path in self.wishes.keys() | self.now.keys() | after.keys():
            was, became = self.now.get(path), after.get(path)
            assert self.is_right(path, was, became, after), (
                path, "was", was, "became", became, self.explain({path}), outcome,
            )  # fmt: skip
            if was == became and modelled.is_file(was):
                assert marks[path] == marks_after[path], (path, "was touched")
        changed = {path for path in self.now.keys() | after.keys() if self.now.get(path) != after.get(path)}
        assert set(outcome.restored) == {path for path in changed if modelled.is_file(after.get(path))}
        assert set(outcome.deleted) == {
            path
            for path in changed
            if modelled.is_file(self.now.get(path)) and not modelled.is_file(after.get(path))
        }
        assert outcome.complete or outcome.skipped or outcome.notes, outcome
        if self.way == "keep":
            assert set(outcome.kept) <= self.must | self.may, self.explain(set(outcome.kept))
            assert self.must <= set(outcome.kept)
        else:
            assert not outcome.kept
        assert not outcome.conflicts

    def is_right(
        self, path: str, was: modelled.Entry | None, became: modelled.Entry | None, after: Disk
    ) -> bool:
        wish = self.wishes.get(path)
        is_full = any(modelled.is_below(each, path) for each in after if each != path)
        if wish is None or path in self.frozen:
            if became == was:
                return True
            is_led_to = any(modelled.is_below(each, path) for each in self.wishes if each != path)
            is_free = was is None or (self.way == "overwrite" and modelled.is_file(was))
            return became == DIRECTORY and is_led_to and is_full and is_free
        if path in self.must and self.way == "keep":
            return became == was
        if became == wish.target:
            return True
        if became == was and path in self.may:
            return True
        if wish.target == UNSURE and became in (None, DIRECTORY):
            return True
        # A directory that should go stays when something is left in it, or has to be put into it.
        return wish.target is None and became == DIRECTORY and is_full

    def explain(self, paths: set[str]) -> list[object]:
        return [
            (
                path,
                "now",
                self.now.get(path),
                self.wishes.get(path),
                "must" * (path in self.must),
                "may" * (path in self.may),
            )
            for path in sorted(paths)
        ]


def assert_patch(files: object, changes: modelled.Changes) -> None:
    """Compare a patch with what the model says that changed."""
    unsure = {path for path, sides in changes.items() if UNSURE in sides}
    expected = {
        path: (modelled.blob_of(old), modelled.blob_of(new), modelled.mode_of(old), modelled.mode_of(new))
        for path, (old, new) in changes.items()
        if UNKNOWN not in (old, new) and (modelled.is_file(old) or modelled.is_file(new))
    }
    found = {
        file.path: (file.old_blob, file.new_blob, file.old_mode, file.new_mode)
        for file in files  # type: ignore[attr-defined]
    }
    assert {path: found[path] for path in found if path not in unsure} == {
        path: expected[path] for path in expected if path not in unsure
    }


def assert_folds(store: Path) -> None:
    """Where each session stands is the fold over all that happened in it."""
    journal = Journal(StoreLayout(str(store)).timeline)
    try:
        for number in journal.session_names():
            position = Position()
            for event in journal.events_after(0, number):
                position = fold(position, event)
                assert position == event.position, event
        assert not journal.open_intents()
    finally:
        journal.close()


def assert_kept(store: Path, blobs: set[str]) -> None:
    """Real git can read everything that is said to be safe, also after it removed what nothing needs."""
    run = ["git", "--git-dir", str(store)]
    subprocess.run([*run, "gc", "--quiet", "--prune=now"], check=True, capture_output=True)
    asked = "".join(blob + "\n" for blob in sorted(blobs)).encode()
    done = subprocess.run([*run, "cat-file", "--batch-check"], input=asked, check=True, capture_output=True)
    missing = [line for line in done.stdout.decode().splitlines() if " blob " not in line]
    assert not missing, missing


@pytest.fixture
def budget() -> Iterator[None]:
    """Count the steps that were made, and tell."""
    counted.update(dict.fromkeys(counted, 0))
    yield
    print(f"seed {SEED}: {counted}")  # noqa: T201  # for whoever runs it with -s


@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_worktree_is_always_as_the_model_says(shard: int, budget: None) -> None:
    """Each shard is a run of its own, so that they can be spread over processes."""
    wanted = STEPS // SHARDS
    run_machine(SEED * SHARDS + shard, wanted)

    assert counted["steps"] >= wanted


def run_machine(number: int, steps: int, *, shrinks: bool = True) -> None:
    machine = seed(number)(type(f"Worktrees{number}", (Worktrees,), {}))
    examples = -(-steps // STEPS_EACH)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS_EACH,
            deadline=None,
            database=None,
            print_blob=True,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink] if shrinks else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
