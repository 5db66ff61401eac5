"""The steps that change the worktree: the model first computes the result of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shadowtree import Conflict, InvalidInput, NotConfirmed, Outcome, UnknownTree
from shadowtree.base.errors import ForgottenMessage
from shadowtree.store.directory import StoreLayout
from shadowtree.store.objects import Objects
from tests.random.editing import LARGEST
from tests.random.forecast import Forecast, check_lists
from tests.random.recorder import Recorder
from tests.support import modelled
from tests.support.modelled import Disk, Happening, Message, Place, Seen, Session, Wish

Call = Callable[..., Outcome]


class Actor(Recorder):
    """Undo, redo, revert, switch, unrevert and restore."""

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
        """Revert only some paths, or only a step and everything after it; the head stays."""
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
        # The model does not know which branches are left after something was forgotten.
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
        """Read how the line continues after a switch; it has to be a line."""
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
        is_on_line = target in {message.id for message in session.walk_back(before.tip)}
        if is_on_line and not (out | before.out) and before.tip not in session.forgotten:
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
        # A reversed act counts for nothing, or for what it and its unrevert did: both are right.
        told = modelled.wish_back(over, whole, self.find_others(session), last.number)
        for path, wish in wishes.items():
            other = told[path]
            wish.is_vague |= (wish.expected, wish.is_troubled) != (other.expected, other.is_troubled)
        modelled.doubt({p: w for p, w in wishes.items() if p not in since[0].changes}, last.seen)
        before = self.disk
        outcome = self.act(number, wishes, shadow.unrevert, last.place, is_unrevert=True)
        is_exact = len(since) == 1 and before == last.disk_after
        if outcome is not None and is_exact and not outcome.kept and not outcome.skipped:
            assert self.disk == last.disk_before, "unrevert gives back exactly what was there"

    def restore(self) -> None:
        """Restore the state before or after a message, or of a tree; the head stays."""
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
        """Restore the state after a message, even an archived one, and come back; a forgotten one fails."""
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

    # How an act is done

    def act(
        self,
        number: int,
        wishes: dict[str, Wish] | None,
        call: Call,
        place: Place | Callable[[], Place],
        *,
        is_unrevert: bool = False,
    ) -> Outcome | None:
        """Do an act and compare its result with the wishes; return None if it was rightly refused.

        Without wishes, the result is not known: see `model`.
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
        if any(note.startswith("already at ") for note in outcome.notes):
            assert after == now
            return outcome
        self.counted["done"] += 1
        self.kept.update(outcome.kept)
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
        branches = self.branches[self.sessions.index(session)]
        if is_unrevert:
            reversed_act = session.acts.pop()
            session.taken_back.append((reversed_act.number, number))
            branches.go_back_to(reversed_act.branches)
        elif changes or place != session.place:
            known = frozenset(branches.known)
            session.acts.append(modelled.Act(number, seen, now, after, session.place, known))
        session.place = place

    def do_nothing(self, call: Call) -> Outcome:
        before = modelled.read_disk(self.root)
        outcome = call(on_conflict=self.draw_way())
        assert (outcome.restored, outcome.deleted, outcome.messages) == ([], [], [])
        assert outcome.notes
        assert modelled.read_disk(self.root) == before
        return outcome

    def check_quiet(self, session: Session, was: Place, outcome: Outcome) -> None:
        """Check that each place on the line equals its copy, as long as only messages changed anything."""
        head = session.place.head
        session.ever_out |= was.out | session.place.out
        is_exact = not session.ever_out or (outcome.act == "switch" and session.ever_out == was.out)
        if not self.profile.is_quiet or not is_exact or outcome.act in ("restore", "unrevert"):
            return
        assert outcome.complete or outcome.notes
        first = next(iter(session.messages.values()))
        then = first.before if head is None else session.messages[head].after
        assert then is not None
        assert self.without_kept(self.disk) == self.without_kept(then.disk)

    def without_kept(self, disk: Disk) -> Disk:
        """Leave out the paths that an act had to keep, and those below and above them, which may stay."""
        return {
            path: entry
            for path, entry in disk.items()
            if not any(f"{path}/".startswith(f"{kept}/") or kept.startswith(f"{path}/") for kept in self.kept)
        }

    def check_safe(self, now: Disk, after: Disk) -> None:
        """Check that every previous content is still there, or in the store."""
        gone = {modelled.blob_of(entry) for path, entry in now.items() if after.get(path) != entry}
        objects = Objects(StoreLayout(str(self.store)).objects)
        try:
            for blob in gone - {None}:
                assert blob is not None
                objects.read(b"blob", bytes.fromhex(blob))
                self.safe.add(blob)
        finally:
            objects.close()

    # The expected results

    def is_vague(self, session: Session, chosen: list[Message], place: Place) -> bool:
        """Return whether the model does not know the result of an act over these messages."""
        if session.place.out or place.out:
            return True
        first = min((m.ended.number for m in chosen if m.ended is not None), default=self.clock + 1)
        return not self.profile.is_quiet and first <= session.vague_until

    def tell_story(self, session: Session) -> list[Happening]:
        """List everything that a session did, as if its open message ended now."""
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
            after = first.after or self.find_end(session, self.see())
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
        """Return a function that finds changes of a path by messages in force of the other session."""

        def find(path: str, since: int) -> str:
            in_force = {m.id for other in self.sessions if other is not session for m in other.in_force}
            story = [h for h in self.others_story(session) if h.number > since and path in h.changes]
            later = [happening.changes[path] for happening in story if happening.message in in_force]
            if any(not any(isinstance(side, modelled.Unknown) for side in sides) for sides in later):
                return "yes"
            # Changes by an act during one of our messages are a conflict, and later ones are not.
            if later or any(not happening.message for happening in story):
                return "perhaps"
            # Once an act of ours changed the path, it no longer shows what they undid there.
            theirs = {h.message for h in self.others_story(session) if path in h.changes} - {None}
            has_acted = any(path in happening.changes for happening in session.story if not happening.message)
            # Nor does it if their act left the path alone, because it was as wanted already.
            has_acted |= any(h.number > since for h in self.others_story(session) if not h.message)
            return "perhaps" if has_acted and theirs - in_force else "no"

        return find
