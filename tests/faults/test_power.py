"""Power cuts: separate file systems are shut down in the middle of the work, and mounted again.

Afterwards only synced data is there, as after a real cut. Everything that was acknowledged has to be there:
recorded messages, finished reverts, objects and refs that were written through `Shadow.repo`; and nothing
that is torn or empty may count as stored.
`tox -e power` runs these; they need root, loop devices and `mkfs`.

    SHADOWTREE_POWER_CUTS   how many cuts for each file system, 100 if it is not set
"""

from __future__ import annotations

import fcntl
import os
import pickle
import random
import shutil
import signal
import struct
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from dulwich.objects import Blob
from dulwich.refs import Ref

from shadowtree import Shadow
from shadowtree.system import disk
from tests.support.limits import TINY, change_limits, use_limits
from tests.support.processes import Child
from tests.support.referee import assert_sound_store
from tests.support.stores import assert_no_leftovers, assert_records_whole
from tests.support.stories import Story
from tests.support.trees import copy_of

pytestmark = pytest.mark.power

CUTS = int(os.environ.get("SHADOWTREE_POWER_CUTS", "100"))
SHUT_DOWN = 0x8004587D
"""FS_IOC_SHUTDOWN."""
WITHOUT_THE_LOG = 2
"""Nothing more is written, not even the log of the file system."""
SIZES = {"ext4": 64 << 20, "xfs": 320 << 20}


class Disk:
    """A file system in a file."""

    def __init__(self, place: Path, kind: str) -> None:
        self.root = place / kind
        self._image = place / f"{kind}.image"
        self._kind = kind
        self._is_mounted = False

    def __enter__(self) -> Disk:
        make = shutil.which(f"mkfs.{self._kind}")
        if os.geteuid() != 0 or make is None:
            pytest.skip(f"needs root and mkfs.{self._kind}")
        self.root.mkdir()
        self._image.touch()
        os.truncate(self._image, SIZES[self._kind])
        subprocess.run([make, "-q", self._image], check=True, capture_output=True)
        if not self.mount():
            pytest.skip("file systems cannot be mounted here")
        return self

    def __exit__(self, *exc: object) -> None:
        if self._is_mounted:
            subprocess.run(["umount", "--lazy", self.root], check=True)

    def mount(self) -> bool:
        """Mount it; return whether that worked."""
        done = subprocess.run(
            ["mount", "-t", self._kind, "-o", "loop", self._image, self.root],
            capture_output=True,
            check=False,
        )
        self._is_mounted = done.returncode == 0
        return self._is_mounted

    def sync(self) -> None:
        """Make durable what users wrote: the library is not responsible for their files."""
        subprocess.run(["sync", "--file-system", self.root], check=True)

    def cut(self) -> None:
        """Cut the power."""
        fd = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUT_DOWN, struct.pack("I", WITHOUT_THE_LOG))
        finally:
            os.close(fd)

    def come_back(self) -> None:
        """Mount the file system again after a cut."""
        subprocess.run(["umount", self.root], check=True)
        self._is_mounted = False
        assert self.mount()


class Machine:
    """A worktree and its store on a disk that loses its power again and again."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self.disk = disk
        self.worktree, self.store = disk.root / "worktree", disk.root / "store"
        self.chance = random.Random(seed)
        self.story = Story(self.worktree, self.store, seed)
        self.serial = 0
        self.kept: list[str] = []
        """The acknowledged messages that were never to be forgotten, oldest first."""
        self.listed: list[str] = []
        """All messages, oldest first, including recorded ones that a cut kept from being acknowledged."""
        self.written: dict[str, bytes] = {}
        """The contents of blobs that were written through the repository, by ref."""
        self.done: Counter[str] = Counter()

    def begin(self) -> None:
        """Record something before the first cut."""
        self.worktree.mkdir()
        with self.story.open() as shadow:
            self.story.begin(shadow)
            for _ in range(4):
                self._note(self._record(shadow))
        self.disk.sync()

    # The acts

    def _record(self, shadow: Shadow) -> Any:
        self.serial += 1
        id = f"m{self.serial}"
        self.story.edit(self.serial, self.chance.choice([0, 0, 0, 300_000]))
        self.disk.sync()
        tree = shadow.snapshot(id, text="about it").after
        return "recorded", id, tree, copy_of(self.worktree)

    def _undo(self, shadow: Shadow) -> Any:
        # Files that were restored between two messages are in conflict with an undo of both.
        shadow.undo(self.chance.randint(1, 3), on_conflict="overwrite")
        return "reverted", copy_of(self.worktree)

    def _redo(self, shadow: Shadow) -> Any:
        shadow.redo(None, on_conflict="overwrite")
        return "reverted", copy_of(self.worktree)

    def _forget(self, shadow: Shadow) -> Any:
        shadow.forget(keep_last=self.chance.choice([5, 8]))
        return ("forgot",)

    def _tidy(self, shadow: Shadow) -> Any:
        shadow.tidy(100)
        return ("tidied",)

    def _write_object(self, shadow: Shadow) -> Any:
        blob = Blob.from_string(self.chance.randbytes(self.chance.choice([10, 10_000])))
        ref = f"refs/tags/mine-{len(self.written)}"
        with shadow.repo as repo:
            repo.object_store.add_object(blob)
            repo.refs[Ref(ref.encode())] = blob.id
        self.written[ref] = blob.data
        return "wrote", ref, blob.data

    def work(self, acknowledge: Callable[[object], None]) -> None:
        """Work until the power fails, and report each act before it begins and when it is done."""
        with self.story.open() as shadow:
            while True:
                upkeep = [self._forget, self._tidy, self._write_object]
                act = self.chance.choice([self._record, self._record, self._record, self._undo, *upkeep])
                acknowledge(("begins", act.__name__))
                acknowledge(act(shadow))
                if act == self._undo:
                    acknowledge(("begins", "_redo"))
                    acknowledge(self._redo(shadow))

    # Cuts, and checks after them

    def run_until_cut(self, said: Path, *, after_write: int, after_act: int) -> None:
        """Have a process work, and cut the power before one of its writes, or right after an act."""
        said.write_bytes(b"")
        ended = Child(lambda: self._work_and_fail(said, after_write, after_act)).wait()
        assert ended.signal == signal.SIGKILL, ended

    def _work_and_fail(self, said: Path, after_write: int, after_act: int) -> None:
        writes, acts = count(1), count(1)

        def fail(act: str, path: str) -> None:
            if next(writes) == after_write:
                self.disk.cut()
                os.kill(os.getpid(), signal.SIGKILL)

        def acknowledge(what: object) -> None:
            with said.open("ab") as file:
                pickle.dump(what, file)
            if what[0] != "begins" and next(acts) == after_act:  # type: ignore[index]
                self.disk.cut()
                os.kill(os.getpid(), signal.SIGKILL)

        disk.before_write = fail
        self.work(acknowledge)

    def check(self, said: Path) -> None:
        """Check after a cut that acknowledged work is there, live objects are whole, and work goes on."""
        last: Any = ("nothing",)
        for what in read_all(said):
            last = what
            self._note(what)
        assert_records_whole(self.store)
        with self.story.open() as shadow:
            shadow.status()
            if last[0] == "reverted":
                assert copy_of(self.worktree) == last[1], "what was acknowledged is done"
            messages = {message.id: message.after for message in shadow.messages()}
            self.listed = list(messages)
            assert {id: messages.get(id) for id in self.kept} == {
                id: self.story.trees[id] for id in self.kept
            }
            with shadow.repo as repo:
                assert {ref: repo[Ref(ref.encode())].as_raw_string() for ref in self.written} == self.written
            for id in {*self.chance.sample(self.kept, min(2, len(self.kept))), self.kept[-1]}:
                shadow.restore(id)
                assert copy_of(self.worktree) == self.story.copies[id], id
            self.serial = max(self.serial, *(int(id[1:]) for id in messages))
            self._note(self._record(shadow))
            shadow.revert(self.kept[-1])
            shadow.redo(None)
            assert copy_of(self.worktree) == self.story.copies[self.kept[-1]]
        assert_records_whole(self.store)
        assert_no_leftovers(self.store)
        assert_sound_store(self.store)

    def _note(self, what: Any) -> None:
        if what[0] == "recorded":
            _, id, tree, copy = what
            self.kept.append(id)
            self.listed.append(id)
            self.story.trees[id], self.story.copies[id] = tree, copy
            self.serial = max(self.serial, int(id[1:]))
        elif what[0] == "wrote":
            self.written[what[1]] = what[2]
        elif what == ("begins", "_forget"):
            # Messages that were not acknowledged count too.
            self.kept = [id for id in self.kept if id in self.listed[-4:]]
        self.done[what[0] if what[0] != "begins" else what[1]] += 1


def read_all(said: Path) -> Iterator[Any]:
    """Read what a process reported before the power failed."""
    with said.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)


@pytest.mark.parametrize("kind", SIZES)
def test_what_was_acknowledged_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    use_limits(monkeypatch, TINY)
    said = tmp_path / "said"
    with Disk(tmp_path, kind) as disk:
        machine = Machine(disk, seed=5)
        machine.begin()
        for cut in range(CUTS):
            change_limits(monkeypatch, boot_id=str(cut))
            disk.sync()
            after_act = machine.chance.choice([0, 0, machine.chance.randrange(1, 6)])
            after_write = 0 if after_act else machine.chance.randrange(1, 400)
            machine.run_until_cut(said, after_write=after_write, after_act=after_act)
            disk.come_back()
            try:
                machine.check(said)
            except BaseException as error:
                error.add_note(f"cut {cut}, before write {after_write} or after act {after_act}")
                raise

    assert machine.done["recorded"] > CUTS
    assert machine.done["wrote"]
