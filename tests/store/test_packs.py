"""Packs and objects on disk: what is written is what git reads, and what git writes can be read."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadowtree import Shadow
from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.base.limits import Limits, PackLimits
from shadowtree.store import packs
from shadowtree.store.git_format import EMPTY_TREE, MODE_FILE, TreeEntry, deflate, encode_tree, object_id
from shadowtree.store.objects import Objects
from shadowtree.store.pack_set import merge_packs
from shadowtree.store.pack_writer import PackWriter
from shadowtree.store.packs import Pack
from shadowtree.store.repack import Shelving
from shadowtree.system import disk
from tests.support.referee import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A bare repository, in which real git can look at our packs."""
    path = tmp_path / "repository"
    git("init", "--quiet", "--bare", path)
    return path


@pytest.fixture
def objects(repository: Path) -> Iterator[Objects]:
    opened = Objects(str(repository / "objects"))
    opened.refresh()
    yield opened
    opened.close()


def blob(content: bytes) -> bytes:
    return object_id(b"blob", content)


def add(writer: PackWriter, content: bytes, kind: bytes = b"blob") -> bytes:
    id = object_id(kind, content)
    writer.add(kind, id, len(content), deflate(content))
    return id


def stream(writer: PackWriter, *pieces: bytes) -> bytes:
    return writer.add_stream(sum(map(len, pieces)), iter(pieces), lambda id: False)


def finish(writer: PackWriter) -> Pack:
    [name] = writer.finish()
    return Pack(name + ".idx")


def write_pack(directory: Path, *contents: bytes) -> Pack:
    writer = PackWriter(str(directory))
    for content in contents:
        add(writer, content)
    return finish(writer)


def content_of(pack: Pack, id: bytes) -> bytes | None:
    offset = pack.find(id)
    return None if offset is None else b"".join(pack.inflate(pack.read_entry(offset)))


def noise(size: int, seed: int = 0) -> bytes:
    """Give bytes that do not deflate."""
    return random.Random(seed).randbytes(size)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# Writing


def test_git_finds_every_object_of_a_pack(objects: Objects, repository: Path) -> None:
    writer = objects.start_pack()
    contents = [b"", b"x", b"y" * 100_000, noise(3_000_000), *[b"%d" % number for number in range(300)]]
    ids = [add(writer, content) for content in contents]
    tree = add(writer, encode_tree([TreeEntry(b"a", MODE_FILE, ids[0])]), b"tree")
    large = stream(writer, noise(1_500_000, 1), b"", noise(1_500_000, 2))
    objects.publish(writer)

    [pack] = (repository / "objects" / "pack").glob("*.pack")
    verified = git("verify-pack", "-v", pack).splitlines()
    listed = {line.split()[0]: line.split()[1] for line in verified if line[:40].isalnum() and len(line) > 50}

    assert listed == {**{id.hex(): "blob" for id in (*ids, large)}, tree.hex(): "tree"}
    assert git("--git-dir", repository, "cat-file", "-p", tree.hex()).endswith("\ta")
    assert pack.stat().st_mode & 0o777 == 0o600


def test_a_pack_reads_back_what_was_put_in(tmp_path: Path) -> None:
    contents = [b"", b"x", noise(2_000_000), b"z" * 5_000_000]
    pack = write_pack(tmp_path, *contents)

    assert [content_of(pack, blob(content)) for content in contents] == contents
    assert content_of(pack, blob(b"other")) is None
    assert pack.count == len(contents)
    pack.close()


def test_a_pack_keeps_its_index_when_it_cannot_be_written_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same objects give the same name, so the index was there before."""
    write_pack(tmp_path, b"x").close()
    before = names_in(tmp_path)

    def fail(act: str, path: str) -> None:
        if act == "rename" and path.endswith(".pack"):
            raise disk.as_store_error(path, OSError(errno.EIO, "Input/output error"))

    writer = PackWriter(str(tmp_path))
    add(writer, b"x")
    with monkeypatch.context() as patched:
        patched.setattr(disk, "before_write", fail)
        with pytest.raises(StoreFailed):
            writer.finish()
        writer.abandon()

    assert names_in(tmp_path) == before


def test_the_same_object_is_written_once(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path))
    for _ in range(3):
        add(writer, b"x")
        stream(writer, b"x")
    pack = finish(writer)

    assert pack.count == 1
    assert content_of(pack, blob(b"x")) == b"x"
    pack.close()


def test_a_stream_that_is_known_is_not_kept(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path))
    add(writer, b"a")

    given = writer.add_stream(3_000_000, iter([noise(3_000_000)]), lambda id: id == blob(noise(3_000_000)))
    add(writer, b"b")
    pack = finish(writer)

    assert given == blob(noise(3_000_000))
    assert given not in writer
    assert pack.size < 1000
    assert content_of(pack, blob(b"b")) == b"b"
    pack.close()


class _Interrupted(Exception):
    """What a source of pieces may raise."""


def _raising(*pieces: bytes) -> Iterator[bytes]:
    yield from pieces
    raise _Interrupted


@pytest.mark.parametrize("size", [10, 3_000_000], ids=["in the buffer", "beyond the buffer"])
@pytest.mark.parametrize("fault", ["raises", "raises at once", "too little", "too much"])
def test_a_stream_that_fails_leaves_the_pack_as_it_was(
    fault: str, size: int, objects: Objects, repository: Path
) -> None:
    writer = objects.start_pack()
    before = [add(writer, b"a"), stream(writer, noise(2_500_000, 3))]
    pieces = {
        "raises": _raising(noise(size)),
        "raises at once": _raising(),
        "too little": iter([noise(size)[:-1]]),
        "too much": iter([noise(size), b"x"]),
    }[fault]
    with pytest.raises((_Interrupted, ValueError)):
        writer.add_stream(size, pieces, lambda id: False)
    after = [add(writer, b"b"), stream(writer, noise(100, 4)), stream(writer, noise(size))]
    objects.publish(writer)

    [pack] = (repository / "objects" / "pack").glob("*.pack")
    git("verify-pack", pack)
    assert all(objects.has(id) for id in before + after)
    assert set(writer.ids) == {*before, *after}


def test_a_stream_that_fails_first_leaves_an_empty_pack(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path / "packs"))
    (tmp_path / "packs").mkdir()
    with pytest.raises(_Interrupted):
        writer.add_stream(3_000_000, _raising(noise(2_000_000)), lambda id: False)

    assert writer.finish() == []
    assert names_in(tmp_path / "packs") == []


def test_an_empty_pack_is_none(tmp_path: Path) -> None:
    (tmp_path / "packs").mkdir()

    assert PackWriter(str(tmp_path / "packs")).finish() == []
    assert names_in(tmp_path / "packs") == []


def test_an_abandoned_pack_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "packs").mkdir()
    writer = PackWriter(str(tmp_path / "packs"))
    add(writer, b"x")
    stream(writer, noise(3_000_000))
    during = names_in(tmp_path / "packs")
    writer.abandon()
    writer.abandon()

    assert len(during) == 1
    assert names_in(tmp_path / "packs") == []


def test_nothing_of_a_pack_can_be_seen_before_it_is_published(objects: Objects, repository: Path) -> None:
    writer = objects.start_pack()
    id = objects.put(writer, b"blob", b"x")
    stranger = Objects(str(repository / "objects"))
    stranger.refresh()

    assert not stranger.has(id)
    assert not any(name.startswith("pack-") for name in names_in(repository / "objects" / "pack"))
    objects.publish(writer)
    with pytest.raises(StoreDamaged):
        stranger.read(b"tree", id)
    assert stranger.read(b"blob", id) == b"x"
    stranger.close()


def test_what_is_stored_is_not_put_again(objects: Objects) -> None:
    writer = objects.start_pack()
    objects.put(writer, b"blob", b"x")
    objects.publish(writer)
    again = objects.start_pack()
    objects.put(again, b"blob", b"x")
    objects.put(again, b"tree", b"")

    assert set(again.ids) <= {EMPTY_TREE}
    again.abandon()


def test_temporaries_of_the_dead_are_removed(objects: Objects, repository: Path) -> None:
    stream(objects.start_pack(), noise(3_000_000))
    packs = repository / "objects" / "pack"
    (packs / "tmp_pack_of_git").write_text("x")
    before = names_in(packs)
    objects.pack_set.remove_temporaries()

    assert len(before) == 2
    assert names_in(packs) == ["tmp_pack_of_git"]


# Reading


def _commit_versions(path: Path) -> dict[bytes, bytes]:
    """Let git hold many versions of a file, so that it makes deltas."""
    git("init", "--quiet", path)
    dice = random.Random(5)
    lines = [f"line {number} {dice.random()}" for number in range(400)]
    contents = {}
    for version in range(12):
        lines[dice.randrange(len(lines))] = f"changed in {version}"
        text = "\n".join(lines).encode()
        contents[blob(text)] = text
        (path / "file").write_bytes(text)
        git("add", "--all", cwd=path)
        git("commit", "--quiet", "-m", str(version), cwd=path)
    return contents


@pytest.mark.parametrize("by_offset", ["true", "false"], ids=["by offset", "by id"])
def test_deltas_of_git_are_read(by_offset: str, tmp_path: Path) -> None:
    contents = _commit_versions(tmp_path / "work")
    git(
        "-c",
        f"repack.useDeltaBaseOffset={by_offset}",
        "repack",
        "-a",
        "-d",
        "-f",
        "-q",
        cwd=tmp_path / "work",
    )
    [index] = (tmp_path / "work" / ".git" / "objects" / "pack").glob("*.idx")
    objects = Objects(str(tmp_path / "work" / ".git" / "objects"))
    objects.refresh()

    assert "chain length = 2" in git("verify-pack", "-v", index)
    assert {id: objects.read(b"blob", id) for id in contents} == contents
    assert all(objects.has(id) for id in contents)
    objects.close()


def test_loose_objects_are_read(tmp_path: Path) -> None:
    contents = _commit_versions(tmp_path / "work")
    tree = bytes.fromhex(git("rev-parse", "HEAD^{tree}", cwd=tmp_path / "work"))
    objects = Objects(str(tmp_path / "work" / ".git" / "objects"))
    objects.refresh()

    assert {id: objects.read(b"blob", id) for id in contents} == contents
    assert [entry.name for entry in objects.read_tree(tree)] == [b"file"]
    objects.close()


def test_a_loose_object_that_is_gone_is_not_stored_any_more(tmp_path: Path) -> None:
    """`git prune` takes it away, and no pack tells of that."""
    objects = Objects(str(tmp_path / "objects"))
    (tmp_path / "objects" / "pack").mkdir(parents=True)
    wanted = object_id(b"blob", b"content")
    path = tmp_path / "objects" / wanted.hex()[:2] / wanted.hex()[2:]
    path.parent.mkdir()
    path.write_bytes(zlib.compress(b"blob 7\0content"))
    objects.refresh()
    was_there = objects.has(wanted)
    path.unlink()
    objects.refresh()

    assert was_there
    assert not objects.has(wanted)


@pytest.mark.parametrize("damage", ["empty", "cut", "garbage", "other content"])
def test_a_damaged_loose_object_is_not_there(damage: str, tmp_path: Path) -> None:
    git("init", "--quiet", tmp_path)
    (tmp_path / "x").write_bytes(noise(1000))
    id = git("hash-object", "-w", "x", cwd=tmp_path)
    path = tmp_path / ".git" / "objects" / id[:2] / id[2:]
    whole = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(
        {
            "empty": b"",
            "cut": whole[:-20],
            "garbage": b"garbage",
            "other content": zlib.compress(b"blob 1\0x"),
        }[damage]
    )
    objects = Objects(str(tmp_path / ".git" / "objects"))
    objects.refresh()

    assert not objects.has(bytes.fromhex(id))
    with pytest.raises(StoreDamaged):
        objects.read(b"blob", bytes.fromhex(id))
    objects.close()


def _flip(path: Path, at: int) -> None:
    path.chmod(0o600)
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def test_a_damaged_copy_does_not_hide_a_sound_one(objects: Objects, repository: Path) -> None:
    content = noise(1000)
    packs = repository / "objects" / "pack"
    write_pack(packs, content).close()
    other = write_pack(packs, content, b"x")
    other.close()
    for pack in packs.glob("*.pack"):
        if str(pack) == other.path:
            _flip(pack, 100)
    objects.refresh()

    assert objects.has(blob(content))
    assert objects.read(b"blob", blob(content)) == content


@pytest.mark.parametrize("what", [".pack", ".idx"])
def test_damage_anywhere_never_gives_other_content(what: str, repository: Path) -> None:
    packs = repository / "objects" / "pack"
    contents = [noise(30, seed) for seed in range(4)]
    pack = write_pack(packs, *contents)
    pack.close()
    path = Path(pack.path).with_suffix(what)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        _flip(path, at)
        objects = Objects(str(repository / "objects"))
        objects.refresh()
        for content in contents:
            try:
                assert objects.read(b"blob", blob(content)) == content
            except StoreDamaged:
                continue
        objects.close()
        path.write_bytes(whole)


@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 40, 1000, -1, -20, -21])
@pytest.mark.parametrize("what", [".pack", ".idx"])
def test_a_file_cut_short_never_gives_other_content(what: str, size: int, repository: Path) -> None:
    content = noise(2000)
    pack = write_pack(repository / "objects" / "pack", b"x", content)
    pack.close()
    path = Path(pack.path).with_suffix(what)
    path.write_bytes(path.read_bytes()[:size])
    objects = Objects(str(repository / "objects"))
    objects.refresh()

    for expected in (b"x", content):
        try:
            assert objects.read(b"blob", blob(expected)) == expected
        except StoreDamaged:
            assert not objects.has(blob(expected))
    objects.close()


def test_an_entry_larger_than_it_claims_is_not_there(objects: Objects) -> None:
    """It could fill the memory."""
    content = b"x" * 10_000_000
    writer = objects.start_pack()
    writer.add(b"blob", blob(content), 5, deflate(content))
    pack = finish(writer)
    objects.refresh()

    assert not objects.has(blob(content))
    with pytest.raises(StoreDamaged):
        objects.read(b"blob", blob(content))
    pack.close()


# Taking over and putting together


@pytest.mark.parametrize("size", [0, 12, 40])
def test_a_pack_cut_short_has_no_entry_to_copy(size: int, tmp_path: Path) -> None:
    pack = write_pack(tmp_path, *[noise(30, seed) for seed in range(5)])
    path = Path(pack.path)
    pack.close()
    path.write_bytes(path.read_bytes()[:size])
    cut = Pack(str(path.with_suffix(".idx")))
    found = []
    for seed in range(5):
        try:
            found.append(cut.find_entry(blob(noise(30, seed))))
        except StoreDamaged:
            found.append(None)

    assert found == [None] * 5
    cut.close()


def test_packs_put_together_keep_every_object(repository: Path) -> None:
    packs = repository / "objects" / "pack"
    contents = [[noise(100, 10 * number + seed) for seed in range(3)] + [b"shared"] for number in range(4)]
    several = [write_pack(packs, *few) for few in contents]
    merged = merge_packs(several, PackWriter(str(packs)))

    assert merged is not None
    git("verify-pack", packs / f"{merged}.pack")
    assert sorted(os.listdir(packs)) == [f"{merged}.idx", f"{merged}.pack"]
    pack = Pack(str(packs / f"{merged}.idx"))
    assert pack.count == 13
    for content in {content for few in contents for content in few}:
        assert content_of(pack, blob(content)) == content
    for old in (*several, pack):
        old.close()


@pytest.mark.parametrize("count", [1, 2], ids=["one pack", "two packs of the same objects"])
def test_packs_of_the_same_objects_put_together_keep_them(count: int, tmp_path: Path) -> None:
    """The new pack has the name of an old one, and must not be removed in its place."""
    packs = [write_pack(tmp_path, b"a", b"b"), write_pack(tmp_path, b"b", b"a")][:count]
    merged = merge_packs(packs, PackWriter(str(tmp_path)))

    assert merged is not None
    pack = Pack(str(tmp_path / f"{merged}.idx"))
    assert [content_of(pack, blob(content)) for content in (b"a", b"b")] == [b"a", b"b"]


def test_packs_with_deltas_are_left_alone(tmp_path: Path) -> None:
    _commit_versions(tmp_path / "work")
    git("repack", "-a", "-d", "-f", "-q", cwd=tmp_path / "work")
    packs = tmp_path / "work" / ".git" / "objects" / "pack"
    ours = write_pack(packs, b"a")
    [index] = [path for path in packs.glob("*.idx") if str(path) != ours.path.replace(".pack", ".idx")]
    before = names_in(packs)
    of_git = Pack(str(index))

    merge_packs([ours, of_git], PackWriter(str(packs)))
    assert names_in(packs) == before
    git("fsck", "--full", "--strict", cwd=tmp_path / "work")
    ours.close()
    of_git.close()


@pytest.mark.parametrize("at", [12, 60, 100])
def test_packs_with_damage_are_left_alone(at: int, tmp_path: Path) -> None:
    sound = write_pack(tmp_path, b"a")
    damaged = write_pack(tmp_path, noise(40, 1), noise(40, 2))
    _flip(Path(damaged.path), at)
    before = names_in(tmp_path)

    merge_packs([sound, damaged], PackWriter(str(tmp_path)))
    assert names_in(tmp_path) == before
    sound.close()
    damaged.close()


def test_many_small_packs_become_few(objects: Objects, repository: Path) -> None:
    ids = []
    for number in range(60):
        writer = objects.start_pack()
        ids.append(objects.put(writer, b"blob", noise(200, number)))
        objects.publish(writer)
        fresh_names = [pack.name for pack in objects.packs()]
        if len(fresh_names) > 5:
            Shelving(objects, fresh_names, {}, lambda names: None).merge()

    fresh = Objects(str(repository / "objects"))
    fresh.refresh()

    assert len(list((repository / "objects" / "pack").glob("*.pack"))) <= 5
    assert all(fresh.has(id) for id in ids)
    fresh.close()
    for pack in (repository / "objects" / "pack").glob("*.pack"):
        git("verify-pack", pack)


@pytest.mark.parametrize("few", [4096, 2], ids=["small", "large"])
def test_what_another_process_stores_moves_and_removes_is_known_after_a_refresh(
    few: int, objects: Objects, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "_FEW_OBJECTS", few)
    place = repository / "objects" / "pack"
    assert not objects.has(blob(b"a"))
    sources = [write_pack(place, b"a", b"b", b"c"), write_pack(place, b"d", b"e", b"f")]
    ids = [blob(content) for content in (b"a", b"b", b"c", b"d", b"e", b"f")]
    objects.refresh()

    assert all(objects.has(id) for id in ids)
    merge_packs(sources, PackWriter(str(place)))
    objects.refresh()
    assert all(objects.has(id) for id in ids)
    for path in place.iterdir():
        path.unlink()
    objects.refresh()
    assert not any(objects.has(id) for id in ids)


@pytest.mark.limits(Limits(packs=PackLimits(many=4)))
def test_a_pack_that_cannot_be_read_is_left_alone_and_fails_no_snapshot(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (worktree / "f").write_text("first")
    shadow.track()
    packs = shadow.store / "objects" / "pack"
    (bad,) = packs.glob("*.pack")
    pread = os.pread

    def fail(fd: int, size: int, offset: int) -> bytes:
        if size > 64 and os.readlink(f"/proc/self/fd/{fd}") == str(bad):
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, size, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        for number in range(8):
            (worktree / "f").write_text(f"{number}" * 10)
            shadow.track()

    assert bad.exists()
    assert shadow.status().changed == 0


@pytest.mark.parametrize(
    "error", [StoreFailed("a pack", "no room"), StoreDamaged("a pack")], ids=["failed", "damaged"]
)
@pytest.mark.limits(Limits(packs=PackLimits(many=1)))
def test_a_merge_that_fails_does_not_fail_the_snapshot(
    shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It is recorded by then, and whoever asked for it must be told so."""
    (worktree / "f").write_text("1")

    def fail(*arguments: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("shadowtree.timeline.publish.Shelving.merge", fail)
        tree = shadow.track()

    assert shadow.patch(tree).files == []


def test_packs_that_vanish_while_they_are_listed_are_passed_over(
    objects: Objects, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder of the lock merges them, or `git gc` does, while somebody reads."""
    packs = repository / "objects" / "pack"
    kept, going = (write_pack(packs, content).path for content in (b"kept", b"going"))
    scandir = os.scandir

    @contextmanager
    def list_too_early(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(path) as entries:
            listed = list(entries)
        for entry in listed:
            if Path(going).stem in entry.name:
                Path(entry.path).unlink(missing_ok=True)
        yield listed

    monkeypatch.setattr(os, "scandir", list_too_early)
    objects.refresh()
    stamps = objects.pack_set.stamps()

    assert {name.partition(".")[0] for name in stamps} == {Path(kept).stem}
    assert objects.has(blob(b"kept"))
    assert not objects.has(blob(b"going"))


def test_a_pack_that_git_took_away_is_not_missed_if_its_objects_are_elsewhere(repository: Path) -> None:
    """`git gc` by hand puts all objects into one pack of its own while ours are open."""
    objects = Objects(str(repository / "objects"))
    for content in (b"a", b"b"):
        writer = objects.start_pack()
        objects.put(writer, b"blob", content)
        objects.publish(writer)
    fresh = Objects(str(repository / "objects"))
    fresh.refresh()
    listed = "\n".join(blob(content).hex() for content in (b"a", b"b")).encode()
    packs = repository / "objects" / "pack"
    old = list(packs.iterdir())
    subprocess.run(
        ["git", "pack-objects", "-q", "objects/pack/pack"],
        cwd=repository,
        input=listed,
        capture_output=True,
        check=True,
    )
    for path in old:
        path.unlink()

    assert fresh.read(b"blob", blob(b"a")) == b"a"
    assert fresh.read(b"blob", blob(b"b")) == b"b"
    fresh.close()
    objects.close()


def test_a_large_pack_finds_what_it_has_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks for the beginnings of ids, and several may begin alike."""
    contents = [b"%d" % number for number in range(300)]
    written = write_pack(tmp_path, *contents)
    ids = [blob(content) for content in contents]
    alike = [id[:size] + end * (20 - size) for id in ids for size in (4, 8) for end in (b"\0", b"\xff")]
    expected = [written.find(id) for id in ids]
    monkeypatch.setattr(packs, "_FEW_OBJECTS", 2)

    assert None not in expected
    assert [written.find(id) for id in ids] == expected
    assert {written.find(id) for id in (*alike, blob(b"other"), bytes(20), b"\xff" * 20)} == {None}
    written.close()
