"""Packs: contents to put into them, packs by themselves, and a store whose packs are recorded by hand."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from shadowtree.base.limits import DEFAULT_LIMITS, Limits, PackLimits
from shadowtree.capture.open_store import OpenStore
from shadowtree.store.directory import StoreLayout, create
from shadowtree.store.git_format import deflate, object_id
from shadowtree.store.objects import Objects
from shadowtree.store.packs.pack import Pack
from shadowtree.store.packs.pack_writer import PackWriter, name_pack
from shadowtree.store.packs.repack import Repacker
from shadowtree.timeline.sqlite.database import create_journal
from shadowtree.timeline.tidy import run_job
from tests.support.referee import git

# Contents


def noise(size: int, seed: int = 0) -> bytes:
    """Return bytes that do not deflate, different for each seed."""
    return random.Random(seed).randbytes(size)


def text(name: str, version: int) -> bytes:
    """Make a text whose versions each differ from the previous one in two lines."""
    return b"".join(
        b"%s: line %d\n" % (name.encode(), line + 100 * (line % 40 == version)) for line in range(99)
    )


def blob(content: bytes) -> bytes:
    """Return the id of a blob."""
    return object_id(b"blob", content)


# Packs by themselves


def add(writer: PackWriter, content: bytes, kind: bytes = b"blob") -> bytes:
    """Append an object, and return its id."""
    id = object_id(kind, content)
    writer.add(kind, id, len(content), deflate(content))
    return id


def stream(writer: PackWriter, *pieces: bytes) -> bytes:
    """Append a blob piece by piece, and return its id."""
    return writer.add_stream(sum(map(len, pieces)), iter(pieces), lambda id: False)


def finish(writer: PackWriter, directory: Path) -> Pack:
    """Complete a pack with its files, and open it."""
    [file] = writer.complete()
    name_pack(str(directory), file)
    return Pack.open(str(directory / f"{file.name}.pack"))


def write_pack(directory: Path, *contents: bytes) -> Pack:
    """Write a pack of some blobs, and open it."""
    writer = PackWriter(str(directory))
    for content in contents:
        add(writer, content)
    return finish(writer, directory)


def content_of(pack: Pack, id: bytes) -> bytes | None:
    """Read an object of a pack; None: the pack does not have it."""
    return None if pack.find(id) is None else b"".join(pack.read(id)[2])


def flip(path: Path, at: int) -> None:
    """Invert one byte of a file, in place."""
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def names_in(directory: Path) -> list[str]:
    """List the names of files, except `.keep` files, of which every pack has one."""
    return sorted(path.name for path in directory.iterdir() if path.suffix != ".keep")


def depths_in(pack: Path) -> dict[str, int]:
    """Return the length of the delta chain of each object in a pack, from git, which checks all of it."""
    found = {}
    for line in git("verify-pack", "-v", pack).splitlines():
        words = line.split()
        if len(words) >= 5 and len(words[0]) == 40:
            found[words[0]] = int(words[5]) if len(words) > 5 else 0
    return found


def read_all(store: Path) -> dict[str, bytes]:
    """Have git read every object of a store; return their contents by id."""
    done = subprocess.run(
        ["git", "--git-dir", store, "cat-file", "--batch-all-objects", "--batch", "--buffer"],
        capture_output=True,
        check=True,
    )
    found, position = {}, 0
    while position < len(done.stdout):
        end = done.stdout.index(b"\n", position)
        id, _, size = done.stdout[position:end].split()
        found[id.decode()] = done.stdout[end + 1 : end + 1 + int(size)]
        position = end + 2 + int(size)
    return found


def assert_git_is_silent(store: Path) -> None:
    """Have git check every object, pack, index and ref, and say nothing at all."""
    done = subprocess.run(
        ["git", "--git-dir", store, "fsck", "--full", "--strict", "--no-dangling", "--no-progress"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# Packs of a store


class PackStore:
    """A store without messages, whose packs are recorded, repacked and swept one by one."""

    def __init__(self, place: Path, limits: PackLimits = DEFAULT_LIMITS.packs) -> None:
        self.path = place / "store"
        worktree = place / "of-the-store"
        worktree.mkdir(parents=True)
        create(str(self.path), str(worktree), lambda layout: create_journal(layout.timeline))
        self.limits = limits
        self.opened = OpenStore(StoreLayout(str(self.path)), Limits(packs=limits))
        self.opened.recover()
        self.packs = self.path / "objects" / "pack"

    @property
    def objects(self) -> Objects:
        """Its objects."""
        return self.opened.objects

    def reopen(self, boot: str | None = None) -> None:
        """Open it as the next process does, maybe after another start of the machine."""
        self.opened.close()
        self.opened = OpenStore(StoreLayout(str(self.path)), Limits(packs=self.limits, boot_id=boot))
        self.opened.recover()

    def record(self, *contents: bytes, before: Mapping[bytes, bytes] | None = None) -> Pack:
        """Record a fresh pack of blobs, stored or not; `before` maps contents to their older versions."""
        return self._record(contents, before or {}, is_settled=False)

    def settle(self, *contents: bytes) -> Pack:
        """Record a pack of blobs as a part, as a repack writes it."""
        return self._record(contents, {}, is_settled=True)

    def _record(self, contents: Iterable[bytes], before: Mapping[bytes, bytes], *, is_settled: bool) -> Pack:
        writer = self.objects.start_pack()
        for content in contents:
            id = add(writer, content)
            if content in before:
                writer.note_version(id, blob(before[content]))
        self.opened.publisher.publish(writer, is_settled=is_settled)
        with self.opened.publisher.recording():
            pass
        return self.objects.packs()[-1]

    def look(self, live: set[bytes] | None = None) -> Repacker:
        """Return a repacker for the current packs."""
        return Repacker(self.objects, self.opened.journal.packs.versions(), self.limits, live)

    def repack(self) -> int:
        """Do every job that is worth it; return how many there were."""
        count = 0
        while (job := (repacker := self.look()).choose()) is not None:
            run_job(repacker, job, self.opened.publisher)
            count += 1
            assert count < 100, "it does not end"
        return count

    def sweep(self, live: Iterable[bytes], *, is_thorough: bool = True) -> int:
        """Keep only the blobs of `live`; return how many jobs that took."""
        wanted, count = {blob(content) for content in live}, 0
        while (job := (repacker := self.look(wanted)).choose_stale(is_thorough=is_thorough)) is not None:
            run_job(repacker, job, self.opened.publisher)
            count += 1
            assert count < 100, "it does not end"
        with self.opened.publisher.recording(gone=self.look(wanted).find_empty()):
            pass
        return count

    def close(self) -> None:
        """Close the store."""
        self.opened.close()
