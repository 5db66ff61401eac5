"""Writing packs: git reads exactly what was added, nothing is visible too early, and nothing is left over."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from shadowtree.base.errors import StoreDamaged, StoreFailed
from shadowtree.store.git_format import MODE_FILE, TreeEntry, deflate, encode_tree
from shadowtree.store.objects import Objects
from shadowtree.store.packs.pack import Pack
from shadowtree.store.packs.pack_writer import (
    PackFile,
    PackWriter,
    is_written,
    name_pack,
    remove_pack,
    write_pack,
)
from shadowtree.system import disk
from tests.support.packs import (
    add,
    blob,
    content_of,
    depths_in,
    finish,
    flip,
    noise,
    stream,
    text,
)
from tests.support.packs import write_pack as make_pack
from tests.support.referee import git


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory for packs in a bare repository, so that real git can read them."""
    git("init", "--quiet", "--bare", tmp_path / "repository")
    return tmp_path / "repository" / "objects" / "pack"


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every write from now on: the kind and the path."""
    found: list[tuple[str, str]] = []
    monkeypatch.setattr(disk, "before_write", lambda act, path: found.append((act, path)))
    return found


def all_names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


# Content


def test_git_finds_every_object_of_a_pack(directory: Path) -> None:
    writer = PackWriter(str(directory))
    contents = [b"", b"x", b"y" * 100_000, noise(3_000_000), *[b"%d" % number for number in range(300)]]
    ids = [add(writer, content) for content in contents]
    tree = add(writer, encode_tree([TreeEntry(b"a", MODE_FILE, ids[0])]), b"tree")
    large = stream(writer, noise(1_500_000, 1), b"", noise(1_500_000, 2))
    pack = Path(finish(writer, directory).path)

    assert depths_in(pack) == {id.hex(): 0 for id in (*ids, large, tree)}
    assert git("--git-dir", directory.parents[1], "cat-file", "-p", tree.hex()).endswith("\ta")
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_the_same_object_is_written_once(directory: Path) -> None:
    writer = PackWriter(str(directory))
    for _ in range(3):
        add(writer, b"x")
        stream(writer, b"x")
    pack = finish(writer, directory)

    assert pack.count == 1
    assert content_of(pack, blob(b"x")) == b"x"
    pack.close()


def test_a_delta_names_its_base_by_id_and_may_stand_before_it(directory: Path) -> None:
    """Entries are copied from pack to pack, so their places must not matter."""
    from dulwich.pack import create_delta

    older, newer = text("a", 1), text("a", 2)
    delta = b"".join(create_delta(newer, older))
    writer = PackWriter(str(directory))
    writer.add_delta(blob(older), blob(newer), len(delta), deflate(delta))
    add(writer, newer)
    pack = finish(writer, directory)

    assert content_of(pack, blob(older)) == older
    assert depths_in(Path(pack.path)) == {blob(older).hex(): 1, blob(newer).hex(): 0}
    pack.close()


def test_entries_are_copied_as_they_stand(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    old = make_pack(tmp_path / "old", b"a", noise(2_000_000))
    writer = PackWriter(str(directory))
    for id, _, crc in old.entries():
        writer.copy(id, old.stream_span(old.span_of(id)), crc)
    new = finish(writer, directory)

    assert Path(new.path).read_bytes() == Path(old.path).read_bytes()
    assert new.index == old.index
    assert writer.copied == writer.ids == {blob(b"a"), blob(noise(2_000_000))}
    depths_in(Path(new.path))
    old.close()
    new.close()


@pytest.mark.parametrize("size", [50, 2_000_000], ids=["in the buffer", "beyond the buffer"])
def test_an_entry_that_cannot_be_copied_leaves_the_pack_as_it_was(
    size: int, directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "old").mkdir()
    old = make_pack(tmp_path / "old", noise(size))
    flip(Path(old.path), 30)
    writer = PackWriter(str(directory))
    add(writer, b"before")
    with pytest.raises(StoreDamaged):
        writer.copy(blob(noise(size)), old.stream_span(old.span_of(blob(noise(size)))), 0)
    add(writer, b"after")
    pack = finish(writer, directory)

    assert set(depths_in(Path(pack.path))) == {blob(b"before").hex(), blob(b"after").hex()}
    assert writer.copied == set()
    old.close()
    pack.close()


# Streams


def test_a_stream_that_is_known_is_not_kept(directory: Path) -> None:
    writer = PackWriter(str(directory))
    add(writer, b"a")

    given = writer.add_stream(3_000_000, iter([noise(3_000_000)]), lambda id: id == blob(noise(3_000_000)))
    add(writer, b"b")
    pack = finish(writer, directory)

    assert given == blob(noise(3_000_000))
    assert given not in writer
    assert pack.size < 1000
    assert content_of(pack, blob(b"b")) == b"b"
    pack.close()


class _Interrupted(Exception):
    """The exception of a source that is interrupted."""


def _raising(*pieces: bytes) -> Iterator[bytes]:
    yield from pieces
    raise _Interrupted


@pytest.mark.parametrize("size", [10, 3_000_000], ids=["in the buffer", "beyond the buffer"])
@pytest.mark.parametrize("fault", ["raises", "raises at once", "too little", "too much"])
def test_a_stream_that_fails_leaves_the_pack_as_it_was(fault: str, size: int, directory: Path) -> None:
    writer = PackWriter(str(directory))
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
    pack = finish(writer, directory)

    assert set(depths_in(Path(pack.path))) == {id.hex() for id in (*before, *after)}
    assert writer.ids == {*before, *after}
    pack.close()


def test_a_stream_that_fails_first_leaves_an_empty_pack(directory: Path) -> None:
    writer = PackWriter(str(directory))
    with pytest.raises(_Interrupted):
        writer.add_stream(3_000_000, _raising(noise(2_000_000)), lambda id: False)

    assert writer.complete() == []
    writer.abandon()
    assert all_names(directory) == []


def test_large_blobs_go_in_and_out_in_little_memory(directory: Path) -> None:
    """Neither writing nor reading keeps more than some pieces in memory."""
    piece = noise(1 << 20)
    tracemalloc.start()
    writer = PackWriter(str(directory))
    id = writer.add_stream(24 << 20, (piece for _ in range(24)), lambda id: False)
    pack = finish(writer, directory)
    with closing(Objects(str(directory.parent))) as objects:
        objects.refresh()
        count = sum(len(part) for part in objects.stream_blob(id))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 24 << 20
    assert pack.size > 24 << 20
    assert most < 8 << 20
    pack.close()


# Parts


def test_many_objects_become_parts_of_about_the_size(directory: Path) -> None:
    writer = PackWriter(str(directory), part_size=5_000)
    contents = [noise(1000, seed) for seed in range(23)]
    for content in contents:
        add(writer, content)
    files = writer.complete()
    for file in files:
        name_pack(str(directory), file)
    parts = [Pack.open(str(directory / f"{file.name}.pack")) for file in files]

    assert [part.count for part in parts] == [5, 5, 5, 5, 3]
    assert {id for part in parts for id in part.ids()} == {blob(content) for content in contents}
    for part in parts:
        depths_in(Path(part.path))
        part.close()


def test_a_pack_of_several_parts_is_not_sealed(directory: Path) -> None:
    writer = PackWriter(str(directory), part_size=100)
    for seed in range(3):
        add(writer, noise(100, seed))

    assert writer.seal(1 << 30) is None
    writer.abandon()
    assert all_names(directory) == []


# As bytes


def test_a_small_pack_as_bytes_is_what_its_files_would_be(directory: Path) -> None:
    writers = [PackWriter(str(directory)) for _ in range(2)]
    for writer in writers:
        stream(writer, b"12345")
        stream(writer, b"678")
    sealed, pack = writers[0].seal(10_000), finish(writers[1], directory)

    assert sealed is not None
    assert sealed.is_whole()
    assert sealed.name == pack.name
    assert sealed.pack == Path(pack.path).read_bytes()
    assert sealed.index == pack.index
    pack.close()


@pytest.mark.parametrize("spare", [0, -1], ids=["just small", "just too large"])
def test_a_pack_is_small_together_with_its_index(directory: Path, spare: int) -> None:
    def make() -> PackWriter:
        writer = PackWriter(str(directory))
        stream(writer, b"abc")
        return writer

    whole = make().seal(1 << 20)
    assert whole is not None
    sealed = make().seal(len(whole.pack) + len(whole.index) + spare)

    assert (sealed == whole) is (spare == 0)
    assert all_names(directory) == []


def test_an_empty_pack_is_none(directory: Path) -> None:
    writer = PackWriter(str(directory))

    assert writer.seal(1 << 20) is None
    assert writer.complete() == []
    assert all_names(directory) == []


def test_a_pack_that_is_not_sealed_can_be_completed(directory: Path) -> None:
    writer = PackWriter(str(directory))
    add(writer, b"x")

    assert writer.seal(10) is None
    assert content_of(finish(writer, directory), blob(b"x")) == b"x"


# Its files


def test_nothing_of_a_pack_can_be_seen_before_it_has_its_name(directory: Path) -> None:
    writer = PackWriter(str(directory))
    id = add(writer, b"x")
    [file] = writer.complete()
    with closing(Objects(str(directory.parent))) as stranger:
        stranger.refresh()

        assert not stranger.has(id)
        assert [name for name in all_names(directory) if name.startswith("pack-")] == [f"{file.name}.keep"]
        name_pack(str(directory), file)
        assert stranger.read(b"blob", id) == b"x"


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_pack_is_durable_under_its_temporary_name(
    size: int, directory: Path, acts: list[tuple[str, str]]
) -> None:
    writer = PackWriter(str(directory))
    stream(writer, noise(size))
    acts.clear()
    found = writer.complete()

    [file] = found
    for name in (file.temporary, file.index):
        done = [act for act, path in acts if path == str(directory / name)]
        assert done[-1] == "fsync"
        assert done.count("fsync") == 1
    assert acts[-1] == ("fsync directory", str(directory))
    assert not [path for act, path in acts if act == "rename"]
    assert sorted(all_names(directory)) == sorted([file.temporary, file.index, f"{file.name}.keep"])


def test_git_gc_leaves_a_pack_alone_that_has_no_name_yet(directory: Path) -> None:
    """With `--prune=now`, git removes what it takes for its own temporary files, however young."""
    writer = PackWriter(str(directory))
    id = stream(writer, noise(300_000))
    [file] = writer.complete()
    git("--git-dir", directory.parents[1], "gc", "--quiet", "--prune=now")
    name_pack(str(directory), file)

    assert git("--git-dir", directory.parents[1], "cat-file", "-t", id.hex()) == "blob"


def test_what_keeps_a_pack_from_git_comes_first_and_goes_last(
    directory: Path, acts: list[tuple[str, str]]
) -> None:
    """Without it, `git gc` would remove objects that no ref leads to."""
    writer = PackWriter(str(directory))
    add(writer, b"x")
    acts.clear()
    [file] = writer.complete()
    kept = acts[-2:]
    name_pack(str(directory), file)
    named = [Path(path).suffix for act, path in acts if act == "rename"]
    acts.clear()
    remove_pack(str(directory), file.name)
    removed = [Path(path).suffix for act, path in acts if act == "unlink"]

    assert kept == [("create", f"{directory / file.name}.keep"), ("fsync directory", str(directory))]
    assert named == [".pack", ".idx"]
    assert removed[:2] == [".idx", ".pack"]
    assert removed[-1] == ".keep"
    assert all_names(directory) == []


def test_files_that_git_put_beside_a_pack_go_with_it(directory: Path) -> None:
    pack = make_pack(directory, b"x")
    pack.close()
    for suffix in (".rev", ".bitmap", ".mtimes", ".promisor"):
        Path(pack.path).with_suffix(suffix).touch()

    remove_pack(str(directory), pack.name)

    assert all_names(directory) == []


class _Stopped(Exception):
    """The exception of a process that ends here."""


@pytest.mark.parametrize("gc", [False, True], ids=["at once", "after git gc"])
@pytest.mark.parametrize("step", range(4))
def test_naming_a_pack_that_was_interrupted_is_done_once_more(step: int, gc: bool, directory: Path) -> None:
    """In between, git may remove an index without a pack, and what it takes for its own temporary files."""
    writer = PackWriter(str(directory))
    id = add(writer, b"x")
    [file] = writer.complete()
    renames = 0

    def stop(act: str, path: str) -> None:
        nonlocal renames
        renames += act == "rename"
        if act == "rename" and renames > step:
            raise _Stopped

    with pytest.MonkeyPatch.context() as patch, suppress(_Stopped):
        patch.setattr(disk, "before_write", stop)
        name_pack(str(directory), file)
    if gc:
        git("--git-dir", directory.parents[1], "gc", "--quiet", "--prune=now")
    name_pack(str(directory), file)
    name_pack(str(directory), file)

    with closing(Pack.open(str(directory / f"{file.name}.pack"))) as pack:
        assert content_of(pack, id) == b"x"
    assert all_names(directory) == [f"{file.name}{suffix}" for suffix in (".idx", ".keep", ".pack")]


def test_naming_a_pack_whose_files_are_gone_makes_none(directory: Path) -> None:
    """They have their final names already, or somebody removed them."""
    file = PackFile(f"pack-{'0' * 40}", f"{disk.TEMPORARY_PREFIX}1-2")
    name_pack(str(directory), file)

    assert all_names(directory) == [f"{file.name}.keep"]


def test_files_are_written_just_when_they_are_not_whole(directory: Path) -> None:
    writer = PackWriter(str(directory))
    add(writer, b"x")
    content = writer.seal(1 << 20)
    assert content is not None
    states = [is_written(str(directory), content)]
    write_pack(str(directory), content)
    states.append(is_written(str(directory), content))
    for suffix in (".pack", ".idx"):
        flip(directory / f"{content.name}{suffix}", 20)
        states.append(is_written(str(directory), content))
        write_pack(str(directory), content)
    (directory / f"{content.name}.keep").unlink()
    states.append(is_written(str(directory), content))
    write_pack(str(directory), content)
    states.append(is_written(str(directory), content))

    assert states == [False, True, False, False, False, True]
    git("verify-pack", directory / f"{content.name}.pack")


# Failures


def test_an_abandoned_pack_leaves_nothing(directory: Path) -> None:
    writer = PackWriter(str(directory))
    add(writer, b"x")
    stream(writer, noise(3_000_000))
    during = all_names(directory)
    writer.abandon()
    writer.abandon()

    assert len(during) == 1
    assert all_names(directory) == []


@pytest.mark.parametrize("act", ["create", "write", "fsync"])
def test_a_pack_that_cannot_be_completed_leaves_nothing(
    act: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = PackWriter(str(directory), part_size=1000)
    for seed in range(5):
        stream(writer, noise(800, seed))
    count = 0

    def fail(done: str, path: str) -> None:
        nonlocal count
        count += done == act
        if count == 2 and done == act:
            raise StoreFailed(path, "no more")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "before_write", fail)
        with pytest.raises(StoreFailed):
            writer.complete()
    writer.abandon()

    assert not [name for name in all_names(directory) if not name.endswith(".keep")]
