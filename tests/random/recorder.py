"""The steps that work and record, compared with the model."""

from __future__ import annotations

import pytest

from shadowtree import Shadow, UnknownMessage
from tests.random.checks import assert_patch
from tests.random.world import World
from tests.support import modelled
from tests.support.modelled import Happening, Message
from tests.support.watching import view

WORDS = ["fix login", "Fix: login!", "add tests", "", "rename all of it", "zwölf", "m 3"]


class Recorder(World):
    """Work by anyone, and messages, steps and snapshots of it."""

    def edit(self) -> None:
        self.random.choice([self.editor.put_some, self.editor.change])()

    def change_rules(self) -> None:
        self.editor.change_rules()

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
        self.end_open(session, seen, paths, is_inferred=False)
        assert recorded.after is not None
        self.take(recorded.after, seen)
        assert_patch(recorded.patch.files, message.changes)
        again = shadow.end(message.id)
        assert (again.patch, again.after) == (recorded.patch, recorded.after)

    def message(self) -> None:
        """Record a whole message at once, so that there are many; sometimes it stays open."""
        number = self.draw_number()
        self.begin(number)
        self.editor.put_some(4)
        if self.random.random() < 0.8:
            self.end(number, is_whole=True)

    def snapshot(self) -> None:
        """Record a message after its work; if another one was open, the work belongs to that."""
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
        if session.open_steps and self.random.random() < 0.6:
            name = self.random.choice(session.open_steps)
            ended = shadow.end_step(name)
            assert_patch(ended.patch.files, modelled.compare(message.steps[name], seen))
            assert ended.after is not None
            self.take(ended.after, seen)
            session.open_steps.remove(name)
            message.last_step, message.last_step_number = seen, self.tick(session, seen)
        else:
            name = f"s{len(message.steps)}"
            self.take(shadow.begin_step(name).before, seen)
            session.open_steps.append(name)
            message.steps[name] = seen
            self.tick(session, seen)

    def track(self) -> None:
        """Take a snapshot outside messages; another `Shadow`, which scans everything, finds the same."""
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
