"""A story: messages that edit, add, replace and remove files, and a copy of the directory after each.

The copies are the model: whatever is forgotten, packed, swept or interrupted, the rest of the story has to
come back exactly as it was.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from shadowtree import Shadow
from shadowtree.base.frozen import replace
from tests.support.limits import TINY
from tests.support.referee import assert_sound_store, git
from tests.support.stores import SETTINGS, assert_no_leftovers, assert_records_whole
from tests.support.trees import Copy, copy_of, refill

FOLDERS = ("", "one", "one/two")


def lines(name: str, version: int) -> bytes:
    """Make a text whose versions each differ from the others in two lines."""
    return b"".join(b"%s %d %d\n" % (name.encode(), line, line % 30 == version % 30) for line in range(60))


def text_of(id: str) -> str:
    """Make the text of a message, so long that it takes room in the timeline."""
    return f"about {id} " * 2000


class Story:
    """A worktree in which messages were recorded, and a copy of it after each."""

    def __init__(self, worktree: Path, store: Path, seed: int = 3) -> None:
        self.worktree = worktree
        self.store = store
        self.copies: dict[str, Copy] = {}
        """A copy of the worktree after each message, by message."""
        self.trees: dict[str, str] = {}
        self._chance = random.Random(seed)
        self._checks = 0

    def open(self, **settings: object) -> Shadow:
        """Open the shadow as a new process would."""
        return Shadow(self.worktree, store=self.store, settings={**SETTINGS, **settings})

    def begin(self, shadow: Shadow) -> None:
        """Make the first files, and wrap them."""
        for folder in FOLDERS:
            (self.worktree / folder).mkdir(exist_ok=True)
            for name in "abc":
                (self.worktree / folder / name).write_bytes(lines(folder + name, 0))
        (self.worktree / "one" / "ln").symlink_to("a")
        shadow.wrap()
        self.copies[""] = copy_of(self.worktree)

    def tell(self, shadow: Shadow, number: int, *, size: int = 0) -> str:
        """Record one more message; `size` is the size of a file in it that does not compress."""
        id = f"m{number}"
        with shadow.message(id, text=text_of(id)) as message:
            self.edit(number, size)
        assert message.after is not None
        self.copies[id], self.trees[id] = copy_of(self.worktree), message.after
        return id

    def edit(self, number: int, size: int = 0) -> None:
        """Change some files."""
        chance = self._chance
        for _ in range(2):
            path = self.worktree / chance.choice(FOLDERS) / chance.choice("abc")
            path.write_bytes(lines(path.name, number + 1))
        new = self.worktree / "one" / f"new{number}"
        new.write_text(f"only in {number}")
        new.chmod(0o600 if number % 2 else 0o755)
        (self.worktree / "one" / f"new{number - 3}").unlink(missing_ok=True)
        if size:
            (self.worktree / "noise").write_bytes(chance.randbytes(size))

    # What must be true

    def check(self, *, most: int = 2, is_ours: bool = True) -> None:
        """Check that the next commands work, and that everything live is whole and comes back exactly.

        Every object that a live record needs is read, and up to `most` messages are reverted, different ones
        each time. `is_ours` is False if real git wrote some of the files.
        """
        now = copy_of(self.worktree)
        assert_records_whole(self.store)
        with self.open() as shadow:
            shadow.status()
            messages = {m.id: m for m in shadow.messages() if m.id in self.trees}
            assert {id: m.after for id, m in messages.items()} == {id: self.trees[id] for id in messages}
            assert messages
            assert all(m.text == text_of(id) for id, m in messages.items())
            for id in self._some(list(messages), most):
                self.check_revert(shadow, id)
            shadow.track()
        assert copy_of(self.worktree) == now
        self.check_store(is_ours=is_ours)

    def check_store(self, *, is_ours: bool = True) -> None:
        """Check that the store is whole and private, that git finds no fault, and that nothing is left."""
        assert_records_whole(self.store)
        assert_no_leftovers(self.store)
        if is_ours:
            assert_sound_store(self.store)
        else:
            git("--git-dir", self.store, "fsck", "--full", "--strict", "--no-dangling")

    def check_revert(self, shadow: Shadow, id: str) -> None:
        """Go back to before a message and come back."""
        now = copy_of(self.worktree)
        before = f"m{int(id[1:]) - 1}"
        shadow.revert(id)
        assert copy_of(self.worktree) == self.copies["" if before == "m-1" else before], f"before {id}"
        shadow.unrevert()
        assert copy_of(self.worktree) == now, f"after {id}"

    def check_restores(self) -> None:
        """Check that every live message can be restored exactly, one after the other."""
        with self.open() as shadow:
            for message in shadow.messages():
                if message.id in self.copies:
                    shadow.restore(message.id)
                    assert copy_of(self.worktree) == self.copies[message.id], message.id

    def _some(self, ids: list[str], most: int) -> Iterator[str]:
        """Choose messages, different ones each time, until each was chosen."""
        for place in range(min(most, len(ids))):
            yield ids[(self._checks * most + place) % len(ids)]
        self._checks += 1


class Told(Story):
    """A story that is saved, so that something can be done to its store again and again."""

    def __init__(self, worktree: Path, store: Path, saved: Path, messages: int = 12) -> None:
        super().__init__(worktree, store)
        self._saved = saved
        with self.open() as shadow:
            self.begin(shadow)
            for number in range(messages):
                self.tell(shadow, number)
        self.save()

    def save(self) -> None:
        """Save the worktree and the store as they are now."""
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self.worktree, self._saved / "worktree", symlinks=True)
        shutil.copytree(self.store, self._saved / "store")

    def put_back(self) -> None:
        """Restore the worktree and the store as they were saved."""
        refill(self.worktree, self._saved / "worktree")
        refill(self.store, self._saved / "store")


def forget(shadow: Shadow) -> object:
    """Mark messages as forgotten, and free nothing."""
    return shadow.forget(keep_last=4, gc=False)


def sweep(shadow: Shadow) -> object:
    """Forget and sweep: mark, rewrite parts, remove packs, free the room."""
    return shadow.forget(keep_last=4)


def sweep_briefly(shadow: Shadow) -> object:
    """Forget and sweep if no part is worth a rewrite: fresh packs stay fresh, without dead objects."""
    # The last part always has room, however well the ids deflate, because a new part is always worth it.
    packs = replace(TINY.packs, worth_part=1, spared_part=1, part_bytes=4_000)
    limits = replace(TINY, packs=packs)
    with Shadow(shadow.worktree, store=shadow.store, settings=shadow.settings, limits=limits) as other:
        return other.forget(keep_last=4)


def tidy(shadow: Shadow) -> object:
    """Do what the daemon does in idle time."""
    return shadow.tidy(1000)


def let_git_pack(told: Told) -> None:
    """Put a pack and a multi-pack index of real git into the store, and one snapshot as loose objects."""
    git("--git-dir", told.store, "gc", "--quiet", "--prune=now")
    with told.open() as shadow:
        told.tell(shadow, len(told.trees))
    newest = max((told.store / "objects" / "pack").glob("*.pack"), key=lambda path: path.stat().st_mtime_ns)
    for path in newest.parent.glob(newest.stem + ".*"):
        path.rename(told.store / path.name)
    with (told.store / newest.name).open("rb") as pack:
        unpack = ["git", "--git-dir", str(told.store), "unpack-objects", "-q"]
        subprocess.run(unpack, stdin=pack, check=True, capture_output=True)
    for path in told.store.glob("pack-*"):
        path.unlink()
    git("--git-dir", told.store, "multi-pack-index", "write")
    for path in told.store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


# Stories of tiny objects


def tell_deep(shadow: Shadow) -> None:
    """Change one tiny file at the end of a long path, again and again."""
    path = shadow.worktree.joinpath(*"abcdefghijklmno", "file")
    path.parent.mkdir(parents=True)
    shadow.track()
    for number in range(40):
        path.write_text(f"{number}\n")
        shadow.snapshot(f"m{number}")


def tell_wide(shadow: Shadow) -> None:
    """Have many tiny files, and change some."""
    for number in range(300):
        path = shadow.worktree / f"{number % 7}" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")
    shadow.track()
    for number in range(0, 300, 9):
        (shadow.worktree / f"{number % 7}" / f"{number}").write_text(f"another {number}\n")
    shadow.snapshot("m0")
