"""Packs and loose objects: ours and git's are read correctly, and damage never yields other content."""

from __future__ import annotations

import os
import random
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from shadowtree.base.errors import StoreDamaged
from shadowtree.store.git_format import EMPTY_TREE, deflate, object_id
from shadowtree.store.objects import Objects
from shadowtree.store.packs import pack as pack_module
from shadowtree.store.packs.pack import Pack
from shadowtree.store.packs.pack_writer import PackWriter
from tests.support.packs import (
    add,
    blob,
    content_of,
    depths_in,
    finish,
    flip,
    noise,
    text,
    write_pack,
)
from tests.support.processes import in_child
from tests.support.referee import git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A bare repository, so that real git can read our packs."""
    path = tmp_path / "repository"
    git("init", "--quiet", "--bare", path)
    return path


@pytest.fixture
def objects(repository: Path) -> Iterator[Objects]:
    opened = Objects(str(repository / "objects"))
    opened.refresh()
    yield opened
    opened.close()


def write_chain(directory: Path, versions: list[bytes]) -> Pack:
    """Write a pack in which each version is a delta of the next one, as a repack does."""
    from dulwich.pack import create_delta

    writer = PackWriter(str(directory))
    add(writer, versions[-1])
    for older, newer in reversed(list(pairwise(versions))):
        delta = b"".join(create_delta(newer, older))
        writer.add_delta(blob(older), blob(newer), len(delta), deflate(delta))
    return finish(writer, directory)


# Reading our packs


def test_a_pack_reads_back_what_was_put_in(tmp_path: Path) -> None:
    contents = [b"", b"x", noise(2_000_000), b"z" * 5_000_000]
    pack = write_pack(tmp_path, *contents)

    assert [content_of(pack, blob(content)) for content in contents] == contents
    assert content_of(pack, blob(b"other")) is None
    assert pack.count == len(contents)
    assert pack.is_whole()
    pack.close()


def test_a_chain_of_deltas_is_read(tmp_path: Path) -> None:
    versions = [text("a", version) for version in range(12)]
    pack = write_chain(tmp_path, versions)

    assert [content_of(pack, blob(version)) for version in versions] == versions
    assert max(depths_in(Path(pack.path)).values()) == 11
    pack.close()


def test_whole_objects_are_read_without_dulwich(tmp_path: Path) -> None:
    """A recording command mostly reads these, and loading dulwich would take a third of its time."""
    pack = write_pack(tmp_path, b"a", noise(3000))

    def read() -> bool:
        import sys

        for name in [name for name in sys.modules if name.partition(".")[0] == "dulwich"]:
            del sys.modules[name]
        read = [content_of(pack, blob(content)) for content in (b"a", noise(3000))]
        return read == [b"a", noise(3000)] and "dulwich" not in sys.modules

    assert in_child(read).value()
    pack.close()


def test_a_pack_in_memory_is_read_like_one_with_files(tmp_path: Path) -> None:
    contents = [b"", b"x", text("a", 1)]
    writer = PackWriter(str(tmp_path))
    for content in contents:
        add(writer, content)
    sealed = writer.seal(1 << 20)
    assert sealed is not None

    pack = Pack.in_memory(str(tmp_path / f"{sealed.name}.pack"), sealed)

    assert [content_of(pack, blob(content)) for content in contents] == contents
    assert pack.is_whole()
    assert not os.path.exists(pack.path)


@pytest.mark.parametrize("few", [4096, 2], ids=["small", "large"])
def test_a_pack_finds_what_it_has_and_nothing_else(
    few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large pack only the beginnings of ids are searched, and several may be equal."""
    monkeypatch.setattr(pack_module, "_FEW_OBJECTS", few)
    contents = [b"%d" % number for number in range(300)]
    written = write_pack(tmp_path, *contents)
    ids = [blob(content) for content in contents]
    alike = [id[:size] + end * (20 - size) for id in ids for size in (4, 8) for end in (b"\0", b"\xff")]

    assert {written.find(id) for id in ids} == {offset for _, offset, _ in written.entries()}
    assert {written.find(id) for id in (*alike, blob(b"other"), bytes(20), b"\xff" * 20)} == {None}
    written.close()


def test_entries_stand_one_behind_the_other(tmp_path: Path) -> None:
    """The size of an entry is known from the offset of the next one; the last one ends at the checksum."""
    pack = write_pack(tmp_path, *[noise(size, size) for size in (10, 200, 3000)])
    sizes = [pack.stored_size(id) or 0 for id, _, _ in pack.entries()]

    assert 12 + sum(sizes) + 20 == pack.size
    for id, _, crc in pack.entries():
        span = pack.span_of(id)
        raw = pack.read_span(span)
        assert span == pack.spans()[id] == (pack.find(id), len(raw), crc)
        assert (len(raw), zlib.crc32(raw)) == (pack.stored_size(id), crc)
        assert b"".join(pack.stream_span(span)) == raw
    pack.close()


def test_what_is_stored_is_not_put_again(objects: Objects, repository: Path) -> None:
    write_pack(repository / "objects" / "pack", b"x").close()
    objects.refresh()
    again = objects.start_pack()
    objects.put(again, b"blob", b"x")
    objects.put(again, b"tree", b"")

    assert again.ids <= {EMPTY_TREE}
    again.abandon()


# Packs of git


def commit_versions(path: Path) -> dict[bytes, bytes]:
    """Make git store many versions of a file, so that it makes deltas."""
    git("init", "--quiet", path)
    dice = random.Random(5)
    lines = [f"line {number} {dice.random()}" for number in range(400)]
    contents = {}
    for version in range(12):
        lines[dice.randrange(len(lines))] = f"changed in {version}"
        written = "\n".join(lines).encode()
        contents[blob(written)] = written
        (path / "file").write_bytes(written)
        git("add", "--all", cwd=path)
        git("commit", "--quiet", "-m", str(version), cwd=path)
    return contents


@pytest.mark.parametrize("by_offset", ["true", "false"], ids=["by offset", "by id"])
def test_deltas_of_git_are_read(by_offset: str, tmp_path: Path) -> None:
    contents = commit_versions(tmp_path / "work")
    setting = f"repack.useDeltaBaseOffset={by_offset}"
    git("-c", setting, "repack", "-a", "-d", "-f", "-q", cwd=tmp_path / "work")
    [index] = (tmp_path / "work" / ".git" / "objects" / "pack").glob("*.idx")
    with closing(Objects(str(tmp_path / "work" / ".git" / "objects"))) as objects:
        objects.refresh()

        assert "chain length = 2" in git("verify-pack", "-v", index)
        assert {id: objects.read(b"blob", id) for id in contents} == contents
        assert all(objects.can_read(id) for id in contents)


def test_loose_objects_are_read(tmp_path: Path) -> None:
    contents = commit_versions(tmp_path / "work")
    tree = bytes.fromhex(git("rev-parse", "HEAD^{tree}", cwd=tmp_path / "work"))
    with closing(Objects(str(tmp_path / "work" / ".git" / "objects"))) as objects:
        objects.refresh()

        assert {id: objects.read(b"blob", id) for id in contents} == contents
        assert [entry.name for entry in objects.read_tree(tree)] == [b"file"]


def test_a_loose_object_that_is_gone_is_not_stored_any_more(tmp_path: Path) -> None:
    """`git prune` removes it, and no pack changes."""
    objects = Objects(str(tmp_path / "objects"))
    (tmp_path / "objects" / "pack").mkdir(parents=True)
    wanted = blob(b"content")
    path = tmp_path / "objects" / wanted.hex()[:2] / wanted.hex()[2:]
    path.parent.mkdir()
    path.write_bytes(zlib.compress(b"blob 7\0content"))
    objects.refresh()
    was_there = objects.can_read(wanted)
    path.unlink()
    objects.refresh()

    assert was_there
    assert not objects.can_read(wanted)


def test_a_pack_that_git_took_away_is_not_missed_if_its_objects_are_elsewhere(repository: Path) -> None:
    """`git gc` may put all objects into one pack while ours are open."""
    place = repository / "objects" / "pack"
    for content in (b"a", b"b"):
        write_pack(place, content).close()
    listed = "\n".join(blob(content).hex() for content in (b"a", b"b")).encode()
    with closing(Objects(str(repository / "objects"))) as objects:
        objects.refresh()
        old = list(place.iterdir())
        subprocess.run(
            ["git", "pack-objects", "-q", "objects/pack/pack"],
            cwd=repository,
            input=listed,
            capture_output=True,
            check=True,
        )
        for path in old:
            path.unlink()

        assert objects.read(b"blob", blob(b"a")) == b"a"
        assert objects.read(b"blob", blob(b"b")) == b"b"


# Damage


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
    with closing(Objects(str(tmp_path / ".git" / "objects"))) as objects:
        objects.refresh()

        assert not objects.has(bytes.fromhex(id))
        with pytest.raises(StoreDamaged):
            objects.read(b"blob", bytes.fromhex(id))


def test_a_damaged_copy_does_not_hide_a_sound_one(objects: Objects, repository: Path) -> None:
    content = noise(1000)
    place = repository / "objects" / "pack"
    write_pack(place, content).close()
    other = write_pack(place, content, b"x")
    other.close()
    flip(Path(other.path), 100)
    objects.refresh()

    assert objects.has(blob(content))
    assert objects.read(b"blob", blob(content)) == content


@pytest.mark.parametrize("is_proved", [False, True], ids=["unread", "proved"])
@pytest.mark.parametrize("damaged", [0, 1], ids=["the older one", "the newer one"])
def test_a_stream_comes_from_a_copy_that_is_whole(
    objects: Objects, repository: Path, damaged: int, is_proved: bool
) -> None:
    content = noise(1_000_000)
    place = repository / "objects" / "pack"
    packs = [write_pack(place, content), write_pack(place, content, b"x")]
    for pack in packs:
        pack.close()
    objects.refresh()
    assert not is_proved or objects.has(blob(content))
    flip(Path(packs[damaged].path), 900_000)

    assert b"".join(objects.stream_blob(blob(content))) == content


@pytest.mark.parametrize("suffix", [".pack", ".idx"])
def test_damage_anywhere_never_gives_other_content(suffix: str, repository: Path) -> None:
    """Every error is one of ours, even in a delta, which dulwich reads."""
    place = repository / "objects" / "pack"
    contents = [text("a", version)[:300] for version in range(4)] + [noise(30, seed) for seed in range(3)]
    write_pack(place, *contents[4:]).close()
    write_chain(place, contents[:4]).close()
    for path in place.glob(f"*{suffix}"):
        whole = path.read_bytes()
        for at in range(0, len(whole), 7):
            flip(path, at)
            with closing(Objects(str(repository / "objects"))) as objects:
                objects.refresh()
                for content in contents:
                    try:
                        assert objects.read(b"blob", blob(content)) == content
                    except StoreDamaged:
                        assert not objects.prove(blob(content))
            path.write_bytes(whole)


@pytest.mark.parametrize("size", [0, 1, 11, 12, 13, 40, 200, -1, -20, -21])
@pytest.mark.parametrize("suffix", [".pack", ".idx"])
@pytest.mark.parametrize("is_open", [False, True], ids=["before it is opened", "while it is open"])
def test_a_file_cut_short_never_gives_other_content_nor_kills_the_process(
    suffix: str, size: int, is_open: bool, repository: Path
) -> None:
    """With a mapped file it would: reading beyond its end raises a signal."""
    versions = [text("a", version) for version in range(3)]
    place = repository / "objects" / "pack"
    pack = write_chain(place, versions)
    pack.close()
    path = Path(pack.path).with_suffix(suffix)

    def read() -> int:
        objects = Objects(str(repository / "objects"))
        if is_open:
            objects.refresh()
            assert objects.read(b"blob", blob(versions[-1])) == versions[-1]
        length = size if size >= 0 else path.stat().st_size + size
        os.truncate(path, length)
        found = 0
        for version in versions:
            try:
                assert objects.read(b"blob", blob(version)) == version
                found += 1
            except StoreDamaged:
                assert not objects.prove(blob(version))
        assert not any(known.is_whole() for known in objects.packs() if suffix == ".pack")
        return found

    assert in_child(read).value() in range(4)


def test_an_entry_larger_than_it_claims_is_not_there(objects: Objects, repository: Path) -> None:
    """It could fill the memory."""
    content = b"x" * 10_000_000
    writer = objects.start_pack()
    writer.add(b"blob", blob(content), 5, deflate(content))
    finish(writer, repository / "objects" / "pack").close()
    objects.refresh()

    assert not objects.has(blob(content))
    with pytest.raises(StoreDamaged):
        objects.read(b"blob", blob(content))


@pytest.mark.parametrize("damage", ["ring", "no base"])
def test_deltas_that_lead_nowhere_are_damage(damage: str, objects: Objects, repository: Path) -> None:
    one, two = text("a", 1), text("a", 2)
    writer = objects.start_pack()
    delta = deflate(b"\x05\x05\x90\x05")
    writer.add_delta(blob(one), blob(two), 4, delta)
    if damage == "ring":
        writer.add_delta(blob(two), blob(one), 4, delta)
    finish(writer, repository / "objects" / "pack").close()
    objects.refresh()

    def read() -> None:
        with pytest.raises(StoreDamaged):
            objects.read(b"blob", blob(one))

    in_child(read).value()


@pytest.mark.parametrize("size", [0, 12, 40])
def test_a_pack_cut_short_has_no_entry_to_copy(size: int, tmp_path: Path) -> None:
    contents = [noise(30, seed) for seed in range(5)]
    pack = write_pack(tmp_path, *contents)
    pack.close()
    os.truncate(pack.path, size)
    with closing(Pack.open(pack.path)) as cut:
        for content in contents:
            with pytest.raises(StoreDamaged):
                cut.read_span(cut.span_of(blob(content)))
            with pytest.raises(StoreDamaged):
                list(cut.stream_span(cut.span_of(blob(content))))
        assert not cut.is_whole()


@pytest.mark.parametrize("at", [0, 9, 12, 40, -30, -1])
def test_a_pack_with_damage_anywhere_is_not_whole(at: int, tmp_path: Path) -> None:
    pack = write_pack(tmp_path, noise(40, 1), noise(40, 2))
    flip(Path(pack.path), at)

    assert not pack.is_whole()
    pack.close()


def test_a_directory_in_the_place_of_a_pack_hides_nothing_else(objects: Objects, repository: Path) -> None:
    place = repository / "objects" / "pack"
    pack = write_pack(place, b"a")
    pack.close()
    os.unlink(pack.path)
    os.mkdir(pack.path)
    write_pack(place, b"b").close()
    objects.refresh()

    assert objects.read(b"blob", blob(b"b")) == b"b"
    with pytest.raises(StoreDamaged):
        objects.read(b"blob", blob(b"a"))


def test_a_commit_is_none_by_another_kind(objects: Objects, repository: Path) -> None:
    writer = objects.start_pack()
    commit = add(writer, b"tree " + EMPTY_TREE.hex().encode() + b"\n\n", b"commit")
    finish(writer, repository / "objects" / "pack").close()
    objects.refresh()

    with pytest.raises(StoreDamaged):
        objects.read(b"blob", commit)
    assert objects.read_any(commit)[0] == b"commit"
    assert object_id(b"commit", objects.read(b"commit", commit)) == commit
