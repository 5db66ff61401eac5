"""One worktree, two sessions and a user, compared with a model that copies the directory.

A `Model` does random steps by the weights of a profile. `modelled` implements the contract a second time, on
plain dicts; after every step the worktree, the log, the branches and the positions of the sessions are
compared with it.

The model computes the result of an act path by path, with all conflicts. If messages are out of the line, or
a switch found somebody's edits, it does not: the act may be refused or not (`vague`), and everything else
still has to hold. As long as the work is quiet, which means that only the messages of one session change
anything, every act leads exactly to the copy that was made after a message.
"""

from __future__ import annotations

import os
import shutil

import pytest

from shadowtree.base.errors import ForgottenMessage
from tests.random.actor import Actor
from tests.random.checks import assert_folds, assert_kept
from tests.random.world import blobs_of
from tests.support import modelled
from tests.support.referee import assert_sound_store, git
from tests.support.stores import assert_records_whole


class Model(Actor):
    """A worktree and its shadows, and what must hold for them."""

    def run(self, steps: int | None = None) -> None:
        """Make the steps of one story, and check everything that is left at its end."""
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

    # Forgetting, and work in idle time

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
        """Expect only what messages need, because old acts and snapshots may be forgotten too."""
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
        """Do the work of idle time."""
        self.shadows[0].tidy(self.random.choice([0, 100]))
        while self.profile.is_watched and not self.shadows[0].look_over(10):
            pass

    def pack(self) -> None:
        """Pack the store with real git."""
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

    def check_store(self) -> None:
        """Check that the store is whole, by its own check and by git's, and holds all safe blobs."""
        assert self.shadows[0].check().ok
        for shadow in self.shadows:
            shadow.close()
        assert_records_whole(self.store)
        assert_sound_store(self.store)
        if not any(session.forgotten for session in self.sessions):
            assert_folds(self.store)
        assert_kept(self.store, self.safe)
