"""What must hold for patches, branches and stores, whatever happened."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from shadowtree import Branch, ChangedPath, Message
from shadowtree.store.directory import StoreLayout
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import fold
from shadowtree.timeline.sqlite.schema import Position
from tests.support.modelled import UNKNOWN, UNSURE, Changes, Session, blob_of, is_file, mode_of


def assert_patch(files: Iterable[ChangedPath], changes: Changes) -> None:
    """Compare a patch with the changes in the model."""
    unsure = {path for path, sides in changes.items() if UNSURE in sides}
    expected = {
        path: (blob_of(old), blob_of(new), mode_of(old), mode_of(new))
        for path, (old, new) in changes.items()
        if UNKNOWN not in (old, new) and (is_file(old) or is_file(new))
    }
    found = {file.path: (file.old_blob, file.new_blob, file.old_mode, file.new_mode) for file in files}
    assert {path: found[path] for path in found if path not in unsure} == {
        path: expected[path] for path in expected if path not in unsure
    }


def assert_folds(store: Path) -> None:
    """Check that each session's position is the fold over all of its events."""
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
    """Check that real git can read all safe blobs, even after it removed unneeded objects."""
    run = ["git", "--git-dir", str(store)]
    subprocess.run([*run, "gc", "--quiet", "--prune=now"], check=True, capture_output=True)
    asked = "".join(blob + "\n" for blob in sorted(blobs)).encode()
    done = subprocess.run([*run, "cat-file", "--batch-check"], input=asked, check=True, capture_output=True)
    missing = [line for line in done.stdout.decode().splitlines() if " blob " not in line]
    assert not missing, missing


class Branches:
    """The branches of one session: they lose no message, and no name disappears without a note."""

    def __init__(self, session: Session, most: int) -> None:
        self._session = session
        self._most = most
        self.known: dict[str, Branch] = {}
        """The branches after the last step, by name."""
        self._seen: dict[str, set[str]] = {}
        """All messages that were ever on a branch with a name."""
        self._orphans: set[str] = set()
        """Messages whose branch was dropped."""

    def hear(self, notes: list[str]) -> None:
        """Record the branches that notes report as dropped."""
        for note in notes:
            if note.startswith("branch "):
                name = note.split("'")[1]
                assert name in self._seen, note
                self._orphans |= self._seen[name]

    def go_back_to(self, names: frozenset[str]) -> None:
        """Record that the branches are again those from before an act."""
        self.known = {name: branch for name, branch in self.known.items() if name in names}

    def check(self, messages: dict[str, Message], branches: dict[str, Branch]) -> None:
        """Compare the branches with the messages."""
        places: dict[str, list[str]] = {}
        for branch in branches.values():
            self._check_branch(branch)
            for id in branch.messages:
                places.setdefault(id, []).append(branch.name)
        for id, message in messages.items():
            on = places.get(id, [])
            assert len(on) <= 1, (id, on)
            if message.state != "archived":
                assert message.branch is None
            else:
                assert on == ([] if message.branch is None else [message.branch]), (id, message)
                assert on or self._is_orphan(id), (id, "is on no branch")
        archived = [name for name, branch in branches.items() if branch.state == "archived"]
        assert len(archived) <= self._most, archived
        for name in self.known.keys() - branches.keys():
            assert set(self.known[name].messages) <= self._orphans, (name, "went without a word")
        self.known = branches
        for name, branch in branches.items():
            self._seen.setdefault(name, set()).update(branch.messages)

    def _check_branch(self, branch: Branch) -> None:
        messages = self._session.messages
        assert branch.messages
        parents = [messages[id].parent for id in branch.messages]
        assert parents == [branch.fork, *branch.messages[:-1]]
        assert branch.label == messages[branch.messages[0]].text
        line = self._walk(self._session.place.tip)
        on_line = line & {*branch.messages}
        assert on_line == ({*branch.messages} if branch.state == "active" else set()), branch
        self._check_name(branch)

    def _check_name(self, branch: Branch) -> None:
        """Check that a name was made from the text of a message on the branch, and stays with those."""
        messages = self._session.messages
        assert branch.name not in messages, "a message's id would come first"
        own = self._seen.get(branch.name, set()) | set(branch.messages)
        bases = {_slug(messages[id].text or f"branch {id}") for id in own}
        base, _, number = branch.name.rpartition("-")
        assert branch.name in bases or (base in bases and number.isdigit()), (branch, bases)
        if branch.name in self.known:
            last = branch.messages[-1]
            before = self.known[branch.name].messages
            assert any(id in self._walk(last) or last in self._walk(id) for id in before), (branch, before)

    def _is_orphan(self, id: str) -> bool:
        """Return whether the branch of a message was dropped, perhaps just when it received the message."""
        return any(id in self._walk(orphan) for orphan in self._orphans)

    def _walk(self, id: str | None) -> set[str]:
        return {message.id for message in self._session.walk_back(id)}


def _slug(text: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words)[:40].strip("-") or "branch"
