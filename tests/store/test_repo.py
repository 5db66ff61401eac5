"""A store as a dulwich repository: what dulwich would do by itself, and must not do to a store.

Each known trap of dulwich has a test here.
"""

from __future__ import annotations

import inspect
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha1
from pathlib import Path

import dulwich.object_store
import dulwich.pack
import dulwich.refs
import dulwich.repo
import pytest
from dulwich import bundle, porcelain
from dulwich.client import LocalGitClient
from dulwich.errors import ChecksumMismatch, NoIndexPresent, ObjectFormatException
from dulwich.object_format import SHA1
from dulwich.object_store import MissingObjectFinder
from dulwich.objects import Blob, Commit, ObjectID, Tree
from dulwich.pack import PackChunkGenerator, UnpackedObject, UnresolvedDeltas, create_delta, write_pack_data
from dulwich.refs import Ref
from dulwich.repo import Repo

from shadowtree import InvalidInput, Shadow, ShadowError, StoreDamaged
from shadowtree.store.repo import ShadowObjectStore, ShadowRepo
from shadowtree.system import disk
from tests.support.packs import noise
from tests.support.processes import surroundings
from tests.support.referee import git
from tests.support.stores import put_back
from tests.support.trees import make_tree
from tests.support.turns import this_turn

ABSENT = ObjectID(b"1" * 40)
NOTE = "written through Shadow.repo\n"


@pytest.fixture
def repo(shadow: Shadow, worktree: Path) -> Iterator[ShadowRepo]:
    """The repository of a store with two messages."""
    make_tree(worktree, {"a.txt": "one\n", "sub": {"b.txt": "b\n"}})
    with shadow.message("m1", text="First"):
        (worktree / "a.txt").write_text("two\n")
    with shadow.message("m2", text="Second"):
        (worktree / "a.txt").write_text("three\n")
        (worktree / "c.txt").write_text("c\n")
    with shadow.repo as repo:
        yield repo


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Repo]:
    """An ordinary repository of somebody else, with one commit."""
    path = tmp_path / "other"
    with porcelain.init(path) as repo:
        (path / "theirs.txt").write_text("theirs\n")
        porcelain.add(repo, [str(path / "theirs.txt")])
        porcelain.commit(repo, message=b"Theirs", author=b"x <x@y>", committer=b"x <x@y>")
        yield repo


def packs(store: Path, suffix: str = ".pack") -> set[Path]:
    return set((store / "objects" / "pack").glob(f"pack-*{suffix}"))


def blob_of(repo: ShadowRepo, name: bytes, ref: bytes = b"HEAD") -> ObjectID:
    commit = repo[ref]
    assert isinstance(commit, Commit)
    tree = repo[commit.tree]
    assert isinstance(tree, Tree)
    return tree[name][1]


def put_loose(store: Path, content: bytes, raw: bytes | None = None) -> ObjectID:
    """Put a loose blob into the store as git does, or other bytes in its place."""
    blob = Blob.from_string(content)
    path = store / "objects" / blob.id[:2].decode() / blob.id[2:].decode()
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_bytes(zlib.compress(b"blob %d\0" % len(content) + content) if raw is None else raw)
    path.chmod(0o600)
    return blob.id


# A bare repository


def test_it_is_bare_though_the_configuration_names_the_worktree(repo: ShadowRepo, shadow: Shadow) -> None:
    """dulwich follows `core.worktree`, whatever its arguments are."""
    assert repo.get_config().get(b"core", b"worktree") == os.fsencode(shadow.worktree)

    assert (repo.bare, repo.path, repo.controldir()) == (True, str(shadow.store), str(shadow.store))
    assert not repo.has_index()
    assert repo.hooks == {}


def test_it_is_a_repository_of_dulwich(repo: ShadowRepo) -> None:
    assert isinstance(repo, Repo)
    assert isinstance(repo.object_store, ShadowObjectStore)


@pytest.mark.parametrize(
    "act",
    [
        lambda repo: porcelain.reset(repo, "hard"),
        lambda repo: porcelain.checkout(repo, "sessions/default", force=True),
        lambda repo: porcelain.add(repo, [repo.path + "/a.txt"]),
        lambda repo: porcelain.clean(repo, repo.path),
        lambda repo: porcelain.stash_push(repo),
        lambda repo: porcelain.commit(repo, message=b"x"),
        lambda repo: repo.get_worktree().reset_index(),
        lambda repo: repo.open_index(),
        lambda repo: repo.index_path(),
    ],
    ids=["reset", "checkout", "add", "clean", "stash", "commit", "reset_index", "open_index", "index_path"],
)
def test_what_needs_a_working_copy_fails_and_writes_no_file(
    repo: ShadowRepo, shadow: Shadow, worktree: Path, act: Callable[[ShadowRepo], object]
) -> None:
    """Otherwise a user's file named `config` would replace that of the store."""
    with shadow.message("m3"):
        make_tree(worktree, {"config": "evil", "timeline.db": "evil"})
    repo = shadow.repo
    before = {path: path.read_bytes() for path in worktree.rglob("*") if path.is_file()}
    names = {path.name for path in shadow.store.iterdir()}

    with pytest.raises(NoIndexPresent):
        act(repo)

    assert {path: path.read_bytes() for path in worktree.rglob("*") if path.is_file()} == before
    assert {path.name for path in shadow.store.iterdir()} <= names | {"timeline.db-wal", "timeline.db-shm"}
    assert shadow.check().ok


def test_neither_the_user_nor_the_environment_configures_it(
    repo: ShadowRepo, shadow: Shadow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dulwich reads `~/.gitconfig`, `GIT_CONFIG_*`, and the files that these include."""
    config = '[user]\n\tname = Eve\n[core]\n\tbare = true\n[filter "x"]\n\tclean = touch /\n'
    (Path(os.environ["HOME"]) / ".gitconfig").write_text(config)
    elsewhere = tmp_path / "elsewhere"
    git("init", "--quiet", "--bare", elsewhere)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    for name, value in {
        "GIT_DIR": elsewhere,
        "GIT_WORK_TREE": tmp_path,
        "GIT_COMMON_DIR": elsewhere,
        "GIT_INDEX_FILE": tmp_path / "index",
        "GIT_OBJECT_DIRECTORY": elsewhere / "objects",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": elsewhere / "objects",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "user.name",
        "GIT_CONFIG_VALUE_0": "Eve",
        "GIT_NAMESPACE": "evil",
    }.items():
        monkeypatch.setenv(name, str(value))

    with shadow.repo as fresh:
        blob = Blob.from_string(b"new")
        fresh.object_store.add_object(blob)
        stack = fresh.get_config_stack()

        assert (fresh.path, fresh.bare) == (str(shadow.store), True)
        assert fresh.refs.as_dict() == repo.refs.as_dict()
        assert blob.id in repo.object_store
        assert not list((elsewhere / "objects" / "pack").iterdir())
    with pytest.raises(KeyError):
        stack.get((b"user",), b"name")
    with pytest.raises(KeyError):
        stack.get((b"filter", b"x"), b"clean")


def test_its_configuration_is_not_written(repo: ShadowRepo, shadow: Shadow) -> None:
    before = (shadow.store / "config").read_bytes()

    with pytest.raises(InvalidInput, match="cannot be changed"):
        porcelain.remote_add(repo, "origin", "https://example.org/x.git")

    assert (shadow.store / "config").read_bytes() == before


def test_no_attribute_of_a_file_runs_a_filter(repo: ShadowRepo, shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m3"):
        make_tree(worktree, {".gitattributes": "* filter=lfs text eol=crlf\n", "d.txt": "d\n"})
    repo = shadow.repo
    blob = repo[blob_of(repo, b"d.txt")]
    assert isinstance(blob, Blob)

    assert repo.get_blob_normalizer().checkout_normalize(blob, b"d.txt").data == b"d\n"


def test_a_store_stands_alone(repo: ShadowRepo, shadow: Shadow, other: Repo) -> None:
    alternates = shadow.store / "objects" / "info" / "alternates"
    alternates.write_text(os.fspath(other.object_store.path) + "\n")
    try:
        assert ObjectID(other.head()) not in shadow.repo.object_store
    finally:
        alternates.unlink()


# Reading


def test_every_object_is_read_as_git_reads_it(repo: ShadowRepo, shadow: Shadow) -> None:
    listed = git("--git-dir", shadow.store, "cat-file", "--batch-check", "--batch-all-objects").splitlines()

    assert {id.decode() for id in repo.object_store} == {line.split()[0] for line in listed}
    for line in listed:
        id, kind, size = line.split()
        found = repo[id.encode()]
        assert (found.type_name.decode(), found.raw_length(), found.id) == (kind, int(size), id.encode())
        assert ObjectID(id.encode()) in repo.object_store
        assert repo.object_store.contains_packed(ObjectID(id.encode()))
        assert list(repo.object_store.iter_prefix(id[:10].encode())) == [id.encode()]


def test_what_is_not_there_is_a_key_error(repo: ShadowRepo) -> None:
    store = repo.object_store

    for id in (ABSENT, bytes.fromhex(ABSENT.decode())):
        with pytest.raises(KeyError):
            store.get_raw(id)  # type: ignore[arg-type]  # both kinds of ids
    with pytest.raises(KeyError):
        repo[ABSENT]
    assert ABSENT not in store
    assert not store.contains_packed(ABSENT)
    assert not store.contains_loose(ABSENT)
    assert list(store.iterobjects_subset([ABSENT], allow_missing=True)) == []
    with pytest.raises(KeyError):
        list(store.iter_unpacked_subset([ABSENT]))


def test_the_empty_tree_is_always_there(repo: ShadowRepo) -> None:
    empty = Tree()

    assert empty.id in repo.object_store
    assert repo[empty.id] == empty


def test_loose_objects_of_git_are_read(repo: ShadowRepo, shadow: Shadow) -> None:
    id = put_loose(shadow.store, b"loose")

    assert repo[id].as_raw_string() == b"loose"
    assert repo.object_store.contains_loose(id)
    assert id in set(repo.object_store)


def test_packs_of_git_are_read_deltas_too(repo: ShadowRepo, shadow: Shadow, tmp_path: Path) -> None:
    """git's deltas name their bases by offset."""
    top = tmp_path / "git"
    git("init", "--quiet", top)
    lines = [f"line {number}\n" for number in range(2000)]
    for number in range(5):
        lines[number * 100] = f"changed {number}\n"
        (top / "long").write_text("".join(lines))
        git("add", ".", cwd=top)
        git("commit", "--quiet", "-m", f"{number}", cwd=top)
    git("repack", "-adfq", cwd=top)
    for path in (top / ".git" / "objects" / "pack").glob("pack-*"):
        shutil.copy(path, shadow.store / "objects" / "pack" / path.name)
        (shadow.store / "objects" / "pack" / path.name).chmod(0o600)
    head = git("rev-parse", "HEAD", cwd=top).encode()

    texts = [entry.commit.message for entry in repo.get_walker(include=[ObjectID(head)])]
    blob = git("rev-parse", "HEAD:long", cwd=top).encode()

    assert texts == [b"4\n", b"3\n", b"2\n", b"1\n", b"0\n"]
    assert repo[blob].as_raw_string() == "".join(lines).encode()


def test_a_pack_that_only_the_timeline_holds_is_read(repo: ShadowRepo, shadow: Shadow) -> None:
    """As between a record and writing the files of its pack."""
    before, ids = blob_of(repo, b"c.txt"), set(repo.object_store)
    for path in packs(shadow.store, ".*"):
        path.unlink()
    with suppress(ShadowError):
        repo.object_store.close()

    assert repo[before].as_raw_string() == b"c\n"
    assert ids - set(repo.object_store) <= {Tree().id, *_root_ids(repo)}
    shadow.track()
    with shadow._access.locked() as opened:
        from shadowtree.store.directory import begin_ref

        begin_ref(opened.layout)


def _root_ids(repo: ShadowRepo) -> set[ObjectID]:
    from shadowtree.store import directory
    from shadowtree.store.git_format import object_id

    return {ObjectID(object_id(b"commit", directory._ROOT_COMMIT).hex().encode())}


@pytest.mark.parametrize("damage", ["empty", "cut", "flip", "missing"])
@pytest.mark.parametrize("suffix", [".pack", ".idx"])
@pytest.mark.parametrize("is_open", [True, False], ids=["while open", "before"])
@pytest.mark.usefixtures("large_packs")
def test_a_damaged_pack_gives_no_wrong_bytes_and_kills_nobody(
    worktree: Path, suffix: str, damage: str, is_open: bool
) -> None:
    """dulwich maps packs and indexes: reading a truncated one raises a bus error."""
    make_tree(worktree, {"a.txt": "one\n" * 1000})
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        with shadow.message("m1"):
            (worktree / "a.txt").write_text("two\n" * 1000)
        repo = shadow.repo
        contents = {id: repo.object_store.get_raw(id) for id in repo.object_store}
        assert len(contents) > 10
        if not is_open:
            repo.close()
        for path in packs(shadow.store, suffix):
            _damage(path, damage)

        for id, content in contents.items():
            with suppress(StoreDamaged, *[KeyError] * (damage == "missing")):
                assert repo.object_store.get_raw(id) == content
            assert id not in repo.object_store or repo.object_store.get_raw(id) == content
        repo.close()


def _damage(path: Path, damage: str) -> None:
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "flip":
        with path.open("r+b") as file:
            middle = len(content) // 2
            file.seek(middle)
            file.write(bytes(byte ^ 255 for byte in content[middle : middle + 40]))
    else:
        os.truncate(path, 0 if damage == "empty" else len(content) // 2)


def test_the_next_copy_serves_if_one_is_damaged(repo: ShadowRepo, shadow: Shadow) -> None:
    """dulwich leaves an empty loose object empty, however often it is added."""
    id = put_loose(shadow.store, b"twice", raw=b"")
    with pytest.raises(StoreDamaged):
        repo[id]
    assert id not in repo.object_store

    repo.object_store.add_object(Blob.from_string(b"twice"))

    assert repo[id].as_raw_string() == b"twice"
    assert id in repo.object_store
    shadow.gc()
    (shadow.store / "objects" / id[:2].decode() / id[2:].decode()).unlink(missing_ok=True)


def test_a_damaged_object_is_told_from_one_that_is_not_there(repo: ShadowRepo, shadow: Shadow) -> None:
    id = put_loose(shadow.store, b"text", raw=zlib.compress(b"blob 4\0evil"))

    with pytest.raises(StoreDamaged):
        repo.object_store.get_raw(id)
    with pytest.raises(StoreDamaged):
        list(repo.object_store.iterobjects_subset([id], allow_missing=True))
    (shadow.store / "objects" / id[:2].decode() / id[2:].decode()).unlink()


def test_what_git_derives_from_packs_is_not_trusted(repo: ShadowRepo, shadow: Shadow) -> None:
    """A commit graph or multi-pack-index may be outdated or damaged."""
    head, objects = repo.head(), shadow.store / "objects"
    for path in (
        objects / "info" / "commit-graph",
        objects / "pack" / "multi-pack-index",
        next(iter(packs(shadow.store))).with_suffix(".bitmap"),
    ):
        path.write_bytes(b"garbage")
    with shadow.repo as fresh:
        assert fresh[head].id == head
        assert len(list(fresh.get_walker())) == 3
        assert head in fresh.object_store.get_reachability_provider().get_reachable_commits([head])
    for path in (*packs(shadow.store, ".bitmap"), objects / "info" / "commit-graph"):
        path.unlink()
    (objects / "pack" / "multi-pack-index").unlink()


def test_a_pack_made_of_unpacked_objects_is_whole(repo: ShadowRepo) -> None:
    """For objects that are deflated in packs, `PackChunkGenerator` omits the headers of entries."""
    ids = set(repo.object_store)
    unpacked = list(repo.object_store.iter_unpacked_subset(ids, include_comp=True))
    content = b"".join(PackChunkGenerator(SHA1, records=iter(unpacked), num_records=len(unpacked)))
    path = Path(repo.path).parent / "made"
    git("init", "--quiet", "--bare", path)

    done = subprocess.run(["git", "index-pack", "--stdin", "--strict"], input=content, cwd=path, check=False)

    assert done.returncode == 0
    assert set(git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)", cwd=path).split()) == {
        id.decode() for id in ids
    }


def test_little_is_kept_in_memory_of_what_deltas_are_made_of(repo: ShadowRepo) -> None:
    """dulwich caches 96 MiB of each pack."""
    limits = [pack.data._offset_cache._max_size for pack in repo.object_store.packs]

    assert limits
    assert max(limits) <= 4 << 20


def test_a_tree_with_names_that_lead_elsewhere_is_no_tree_to_restore(worktree: Path) -> None:
    """dulwich checks neither the names nor the order of what it parses."""
    tree = Tree()
    tree.add(b"..", 0o100644, ABSENT)
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        shadow.track()
        shadow.repo.object_store.add_object(tree)
        assert shadow.repo[tree.id].as_raw_string() == tree.as_raw_string()

        with pytest.raises(ShadowError):
            shadow.restore(tree.id.decode())
        with shadow._access.locked() as opened, pytest.raises(StoreDamaged):
            opened.objects.read_tree(bytes.fromhex(tree.id.decode()))


def test_the_objects_between_two_messages_are_found(repo: ShadowRepo) -> None:
    head = repo[repo.head()]
    assert isinstance(head, Commit)
    finder = MissingObjectFinder(repo.object_store, haves=head.parents, wants=[head.id])

    found = {id for id, _ in finder}

    assert found == {head.id, head.tree, blob_of(repo, b"a.txt"), blob_of(repo, b"c.txt")}


# Writing


def note_syncs(patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the inode of each file that is synced."""
    synced: list[int] = []
    sync = os.fsync

    def note(fd: int) -> None:
        sync(fd)
        synced.append(os.fstat(fd).st_ino)

    patch.setattr(os, "fsync", note)
    return synced


def test_an_object_is_durable_before_the_call_returns(
    repo: ShadowRepo, shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dulwich syncs no directory, and names the pack before its index exists."""
    acts: list[tuple[str, str]] = []
    monkeypatch.setattr(disk, "before_write", lambda act, path: acts.append((act, os.path.basename(path))))
    before = packs(shadow.store)

    repo.object_store.add_object(Blob.from_string(b"durable"))

    (pack,) = packs(shadow.store) - before
    name, names = pack.stem, [act for act in acts if act[0] in ("fsync", "rename", "fsync directory")]
    renamed = {suffix: names.index(("rename", name + suffix)) for suffix in (".keep", ".idx", ".pack")}
    temporary = next(path for act, path in acts if act == "create" and path.startswith("shadowtree-tmp-"))
    assert names.index(("fsync", temporary)) < renamed[".idx"]
    assert names.index(("fsync", temporary + "-index")) < renamed[".idx"]
    assert renamed[".keep"] < renamed[".idx"] < renamed[".pack"]
    assert ("fsync directory", "pack") in names[renamed[".keep"] : renamed[".idx"]]
    assert names[-1] == ("fsync directory", "pack")


def test_a_stream_is_durable_before_the_call_returns(
    repo: ShadowRepo, shadow: Shadow, other: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = note_syncs(monkeypatch)
    before = packs(shadow.store)

    LocalGitClient().fetch(other.path, repo)

    (pack,) = packs(shadow.store) - before
    for suffix in (".pack", ".idx", ".keep"):
        assert pack.with_suffix(suffix).stat().st_ino in synced
    assert synced[-1] == pack.parent.stat().st_ino


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277])
def test_what_is_written_is_private_whatever_the_umask(
    repo: ShadowRepo, shadow: Shadow, other: Repo, umask: int
) -> None:
    """dulwich makes packs that everybody can read."""
    before = os.umask(umask)
    try:
        repo.object_store.add_object(Blob.from_string(b"private"))
        LocalGitClient().fetch(other.path, repo)
        repo.refs[Ref(b"refs/heads/a/b/c")] = other.head()
        repo.refs.pack_refs(all=True)
        repo.refs[Ref(b"refs/heads/d/e")] = other.head()
        repo.set_description(b"mine")
    finally:
        os.umask(before)

    for path in shadow.store.rglob("*"):
        assert stat.S_IMODE(path.lstat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_pack_that_was_written_through_it_says_so(repo: ShadowRepo, shadow: Shadow, other: Repo) -> None:
    before = packs(shadow.store, ".keep")

    repo.object_store.add_object(Blob.from_string(b"one"))
    repo.object_store.add_objects([(Blob.from_string(b"two"), None), (Blob.from_string(b"three"), None)])
    LocalGitClient().fetch(other.path, repo)

    assert [path.read_text() for path in packs(shadow.store, ".keep") - before] == [NOTE] * 3
    assert {path.read_bytes() for path in before} == {b""}


def test_nothing_to_add_adds_nothing(repo: ShadowRepo, shadow: Shadow) -> None:
    before = packs(shadow.store)

    assert repo.object_store.add_objects([]) is None
    assert repo.object_store.add_pack_data(0, iter([])) is None
    _, commit, _ = repo.object_store.add_pack()
    commit()
    _, _, abort = repo.object_store.add_pack()
    abort()

    assert packs(shadow.store) == before


def test_many_objects_one_by_one_become_few_packs(repo: ShadowRepo, shadow: Shadow) -> None:
    blobs = [Blob.from_string(b"%d" % number) for number in range(50)]
    before = len(packs(shadow.store))

    for blob in blobs:
        repo.object_store.add_object(blob)

    assert len(packs(shadow.store)) - before < 20
    assert all(repo[blob.id] == blob for blob in blobs)


def test_packs_stay_if_the_one_that_joins_them_is_not_written_correctly(
    repo: ShadowRepo, shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = [Blob.from_string(noise(300, number)) for number in range(16)]
    write_all = disk.write_all

    def write_badly(fd: int, content: bytes, path: str) -> None:
        is_joined = content[:4] == b"PACK" and len(content) > 4000
        write_all(fd, content[:1000] + b"damaged" + content[1007:] if is_joined else content, path)

    monkeypatch.setattr(disk, "write_all", write_badly)
    for blob in blobs:
        repo.object_store.add_object(blob)

    assert all(repo[blob.id] == blob for blob in blobs)
    assert not list(shadow.store.rglob("shadowtree-tmp-*"))


def test_the_same_objects_added_again_are_kept_when_packs_are_joined(
    repo: ShadowRepo, shadow: Shadow
) -> None:
    """The joined pack has the name of the one that holds all of them, and must not be removed as that."""
    blobs = [Blob.from_string(b"object %d\n" % number) for number in range(15)]
    repo.object_store.add_objects([(blob, None) for blob in blobs])
    for blob in blobs:
        repo.object_store.add_object(blob)

    assert all(repo[blob.id] == blob for blob in blobs)
    for blob in blobs:
        git("--git-dir", shadow.store, "cat-file", "-e", blob.id.decode())


def test_a_delta_whose_base_does_not_come_along_is_completed(repo: ShadowRepo, shadow: Shadow) -> None:
    base = Blob.from_string(b"line\n" * 1000)
    wanted = Blob.from_string(b"line\n" * 1000 + b"more\n")
    repo.object_store.add_object(base)
    delta = UnpackedObject(
        7,
        delta_base=base.sha().digest(),
        decomp_chunks=list(create_delta(base.data, wanted.data)),
        sha=wanted.sha().digest(),
    )
    stream = io.BytesIO()
    write_pack_data(stream.write, iter([delta]), num_records=1, object_format=SHA1)
    stream.seek(0)

    pack = repo.object_store.add_thin_pack(stream.read, None)

    assert set(pack) == {base.id, wanted.id}
    assert repo[wanted.id].as_raw_string() == wanted.data
    git("--git-dir", shadow.store, "verify-pack", os.fspath(pack.data.path))


def make_pack(*objects: Blob | Tree) -> bytes:
    stream = io.BytesIO()
    records = (dulwich.pack.full_unpacked_object(each) for each in objects)
    write_pack_data(stream.write, records, num_records=len(objects), object_format=SHA1)
    return stream.getvalue()


class NoTree(Blob):
    """An object that claims to be a tree."""

    type_name, type_num = b"tree", 2


def _make_junk() -> bytes:
    """Return bytes that belong to no object, although the checksum is right."""
    whole = make_pack(Blob.from_string(b"x"))[:-20] + b"junk" * 10
    return whole + sha1(whole).digest()


def _make_lost_delta() -> bytes:
    stream = io.BytesIO()
    delta = UnpackedObject(7, delta_base=b"\1" * 20, decomp_chunks=[b"\1\1\1x"], sha=b"\2" * 20)
    write_pack_data(stream.write, iter([delta]), num_records=1, object_format=SHA1)
    return stream.getvalue()


BAD_STREAMS: dict[str, tuple[Callable[[], bytes], type[BaseException] | tuple[type[BaseException], ...]]] = {
    "cut": (lambda: make_pack(Blob.from_string(b"x" * 999))[:-30], (AssertionError, zlib.error, OSError)),
    "no checksum": (lambda: make_pack(Blob.from_string(b"x"))[:-20] + bytes(20), ChecksumMismatch),
    "flipped": (
        lambda: make_pack(Blob.from_string(b"x" * 99))[:-25] + bytes(25),
        (zlib.error, AssertionError),
    ),
    "no pack": (lambda: b"<html>not found</html>", AssertionError),
    "no tree": (lambda: make_pack(NoTree.from_string(b"100644 a\0short")), ObjectFormatException),
    "no base": (_make_lost_delta, UnresolvedDeltas),
    "junk": (_make_junk, (StoreDamaged, ChecksumMismatch)),
}


@pytest.mark.parametrize("how", ["add_pack", "add_thin_pack"])
@pytest.mark.parametrize("name", BAD_STREAMS)
def test_a_stream_that_is_no_whole_pack_leaves_nothing(
    repo: ShadowRepo, shadow: Shadow, name: str, how: str
) -> None:
    make, error = BAD_STREAMS[name]
    before = set(shadow.store.rglob("*"))

    def send() -> None:
        if how == "add_thin_pack":
            repo.object_store.add_thin_pack(io.BytesIO(make()).read, None)
        else:
            file, commit, _ = repo.object_store.add_pack()
            file.write(make())
            commit()

    with pytest.raises(error):
        send()

    assert set(shadow.store.rglob("*")) <= before


def test_a_tree_that_nobody_could_walk_is_not_written(repo: ShadowRepo, shadow: Shadow) -> None:
    before = packs(shadow.store)

    with pytest.raises(ShadowError):
        repo.object_store.add_object(NoTree.from_string(b"100644 a\0short"))

    assert packs(shadow.store) == before


def test_a_stream_may_have_a_limit(repo: ShadowRepo, shadow: Shadow) -> None:
    content = make_pack(Blob.from_string(os.urandom(5000)))
    before = set(shadow.store.rglob("*"))

    with pytest.raises(dulwich.object_store.PackInputTooLarge):
        repo.object_store.add_thin_pack(io.BytesIO(content).read, None, max_input_size=1000)

    assert set(shadow.store.rglob("*")) <= before


def test_the_lock_is_not_held_while_a_stream_comes_in(repo: ShadowRepo, shadow: Shadow) -> None:
    """And no lock holder takes the unfinished file for that of a dead process."""
    blob = Blob.from_string(b"slow")
    stream = io.BytesIO(make_pack(blob))

    def read(size: int) -> bytes:
        with Shadow(shadow.worktree, settings={"min_free": 0, "lock_timeout": 0}) as another:
            another.track()
        return stream.read(size)

    repo.object_store.add_thin_pack(read, None)

    assert repo[blob.id] == blob


@pytest.mark.parametrize("act", ["create", "write", "fsync", "rename", "fsync directory"])
@pytest.mark.parametrize("how", ["add_object", "add_thin_pack"])
def test_a_failure_on_the_way_leaves_a_store_that_is_sound(
    repo: ShadowRepo, shadow: Shadow, monkeypatch: pytest.MonkeyPatch, act: str, how: str
) -> None:
    blob = Blob.from_string(b"x" * 999)
    for place in range(6):
        left = [place]

        def fail(done: str, path: str, left: list[int] = left) -> None:
            left[0] -= done == act and "/pack" in path
            if left[0] < 0:
                left[0] = 1 << 30
                raise OSError(5, "failed")

        with monkeypatch.context() as patch:
            patch.setattr(disk, "before_write", fail)
            with suppress(ShadowError, OSError):
                if how == "add_object":
                    repo.object_store.add_object(blob)
                else:
                    repo.object_store.add_thin_pack(io.BytesIO(make_pack(blob)).read, None)
        shadow.track()

        assert shadow.check(read_data=True).ok
        assert {path.stem for path in packs(shadow.store)} == {
            path.stem for path in packs(shadow.store, ".idx")
        }


KILLED = """
import os, signal, sys
from dulwich.objects import Blob
from dulwich.refs import Ref
from shadowtree import Shadow
from shadowtree.system import disk
shadow = Shadow(sys.argv[1], settings={"min_free": 0})
repo, left = shadow.repo, int(sys.argv[2])
def count(act, path):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
disk.before_write = count
repo.object_store.add_object(Blob.from_string(b"killed"))
print("written", flush=True)
repo.refs[Ref(b"refs/heads/mine")] = repo.head()
print("named", flush=True)
"""


def test_a_kill_at_any_write_leaves_a_store_that_goes_on(repo: ShadowRepo, shadow: Shadow) -> None:
    id = Blob.from_string(b"killed").id
    for place in range(1, 100):
        words = [sys.executable, "-c", KILLED, str(shadow.worktree), str(place)]
        done = subprocess.run(words, env=surroundings(), capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        shadow.track()

        assert shadow.check().ok
        if "written" in done.stdout:
            assert repo[id].as_raw_string() == b"killed"
        if "named" in done.stdout:
            assert repo.refs[Ref(b"refs/heads/mine")] == repo.head()
        del shadow.repo.refs[Ref(b"refs/heads/mine")]
        if done.returncode == 0:
            assert place > 15
            break
    else:
        pytest.fail("it never came to its end")


@pytest.mark.parametrize("act", ["export", "forget", "purge"])
def test_a_kill_while_the_refs_of_the_conversation_change_is_made_good(
    shadow: Shadow, worktree: Path, act: str
) -> None:
    """Every sixth write is tested; which ones depends on the commit."""
    for number in range(4):
        with shadow.message(f"m{number}"):
            (worktree / "a.txt").write_text(f"{number}")
            (worktree / f"secret-{number}").write_text(f"secret {number}")
    if act != "export":
        shadow.repo.refs.pack_refs(all=True)
    shadow.close()
    saved = worktree.with_name("saved")
    shutil.copytree(shadow.store, saved)
    for place in range(1 + this_turn() % 6, 200, 6):
        put_back(saved, shadow.store)
        is_killed = _kill(worktree, place, act)
        with Shadow(worktree, settings={"min_free": 0}) as after:
            after.track()
            assert after.check().ok
            git("--git-dir", shadow.store, "fsck", "--full", "--strict", "--no-dangling")
            with after.repo as repo:
                texts = [entry.commit.message for entry in repo.get_walker()]
                assert texts[0].startswith(b"message m3\n")
                refs = sorted(repo.refs.allkeys())
                assert refs[:-1] == [b"HEAD", b"refs/heads/sessions/default", b"refs/heads/shadowtree"]
                assert refs[-1].startswith(b"refs/shadowtree/sessions/default/")
        if not is_killed:
            assert place > 5
            break
    else:
        pytest.fail("it never came to its end")


def _kill(worktree: Path, place: int, act: str) -> bool:
    """Run something in a process that dies before one of its writes; return whether it got that far."""
    child = os.fork()
    if child == 0:
        left = [place]

        def count(done: str, path: str) -> None:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            shadow = Shadow(worktree, settings={"min_free": 0})
            disk.before_write = count
            if act == "export":
                shadow.repo.close()
            elif act == "forget":
                shadow.forget(keep_last=2)
            else:
                shadow.purge("secret-0")
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize(
    "refused",
    [
        lambda repo: repo.object_store.prune(),
        lambda repo: repo.object_store.repack(),
        lambda repo: repo.object_store.pack_loose_objects(),
        lambda repo: repo.object_store.delete_loose_object(ABSENT),
        lambda repo: repo.object_store._remove_pack(repo.object_store.packs[0]),
        lambda repo: repo.object_store.write_midx(),
        lambda repo: repo.object_store.write_commit_graph(),
        lambda repo: repo.object_store.generate_pack_bitmaps({}),
        lambda repo: repo.object_store.add_alternate_path("/"),
        lambda repo: repo.object_store.packs[0].unkeep(),
        lambda repo: repo.object_store.packs[0].keep(b"mine"),
        lambda repo: porcelain.repack(repo),
        lambda repo: porcelain.gc(repo),
        lambda repo: porcelain.prune(repo),
    ],
)
def test_what_would_lose_something_is_refused(
    repo: ShadowRepo, shadow: Shadow, refused: Callable[[ShadowRepo], object]
) -> None:
    put_loose(shadow.store, b"kept")
    before = {path: path.stat().st_size for path in (shadow.store / "objects").rglob("*")}

    with pytest.raises(InvalidInput, match=r"Shadow\.gc"):
        refused(repo)

    assert {path: path.stat().st_size for path in (shadow.store / "objects").rglob("*")} == before


# Refs


def test_a_ref_is_durable_before_the_call_returns(
    repo: ShadowRepo, shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = note_syncs(monkeypatch)

    repo.refs[Ref(b"refs/heads/deep/er")] = repo.head()

    heads = shadow.store / "refs" / "heads"
    content = synced.index((heads / "deep" / "er").stat().st_ino)
    assert {(heads / "deep").stat().st_ino, heads.stat().st_ino} <= set(synced[content:])

    synced.clear()
    del repo.refs[Ref(b"refs/heads/deep/er")]

    assert heads.stat().st_ino in synced


@pytest.mark.parametrize("name", ["refs/heads/mine.lock", "packed-refs.lock", "refs/heads/other.lock"])
def test_a_lock_that_a_dead_process_left_stops_nobody(repo: ShadowRepo, shadow: Shadow, name: str) -> None:
    """dulwich would take it for locked forever."""
    mine = Ref(b"refs/heads/mine")
    for act in (
        lambda: repo.refs.__setitem__(mine, repo.head()),
        lambda: repo.refs.pack_refs(all=True),
        lambda: repo.refs.__delitem__(mine),
        lambda: repo.refs.add_if_new(mine, repo.head()),
        lambda: repo.refs.set_symbolic_ref(Ref(b"HEAD"), Ref(b"refs/heads/shadowtree")),
    ):
        (shadow.store / name).write_bytes(b"")
        os.utime(shadow.store / name, (1, 1))
        act()

        assert not (shadow.store / name).exists()
    assert repo.refs[mine] == repo.head()


def test_head_stays_where_it_is(repo: ShadowRepo, shadow: Shadow) -> None:
    """Otherwise real git would not take the directory for the store of this session."""
    with pytest.raises(InvalidInput):
        porcelain.update_head(repo, b"sessions/default")

    assert shadow.check().ok


def test_no_reflog_is_written(repo: ShadowRepo, shadow: Shadow) -> None:
    repo.refs.set_if_equals(Ref(b"refs/heads/mine"), None, repo.head(), message=b"told")

    assert not (shadow.store / "logs").exists()


@pytest.mark.parametrize(
    "name", [b"refs/heads/../../../evil", b"refs/heads/a..b", b"nowhere", b"refs/heads/x.lock"]
)
def test_a_ref_that_leads_elsewhere_is_refused(repo: ShadowRepo, shadow: Shadow, name: bytes) -> None:
    before = set(shadow.store.parent.parent.rglob("*"))

    with pytest.raises(dulwich.errors.RefFormatError):
        repo.refs[Ref(name)] = repo.head()

    assert {
        path for path in set(shadow.store.parent.parent.rglob("*")) - before if "timeline" not in path.name
    } == set()


def test_refs_are_compared_and_follow_each_other_as_in_dulwich(repo: ShadowRepo) -> None:
    mine, head = Ref(b"refs/heads/mine"), repo.head()

    assert repo.refs.add_if_new(mine, head)
    assert not repo.refs.add_if_new(mine, head)
    assert not repo.refs.set_if_equals(mine, ABSENT, head)
    assert not repo.refs.remove_if_equals(mine, ABSENT)
    repo.refs.set_symbolic_ref(Ref(b"refs/heads/alias"), mine)
    assert repo.refs[Ref(b"refs/heads/alias")] == head
    assert repo.refs.remove_if_equals(mine, head)
    assert mine not in repo.refs
    del repo.refs[Ref(b"refs/heads/alias")]


# Other repositories


def test_another_repository_is_fetched_into_it(repo: ShadowRepo, shadow: Shadow, other: Repo) -> None:
    result = LocalGitClient().fetch(other.path, repo)
    repo.refs[Ref(b"refs/heads/theirs")] = result.refs[Ref(b"HEAD")]  # type: ignore[assignment]  # it exists

    assert git("--git-dir", shadow.store, "log", "--format=%s", "theirs") == "Theirs"
    assert git("--git-dir", shadow.store, "show", "theirs:theirs.txt") == "theirs"


def test_git_sends_into_it_through_dulwich(repo: ShadowRepo, shadow: Shadow, tmp_path: Path) -> None:
    """A pack of real git, with deltas that name their bases by offset, through the server side."""
    top = tmp_path / "git"
    git("init", "--quiet", top)
    for number in range(4):
        (top / "long").write_text("line\n" * 2000 + f"{number}\n")
        git("add", ".", cwd=top)
        git("commit", "--quiet", "-m", f"{number}", cwd=top)
    stream = subprocess.run(
        ["git", "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q"],
        input=b"HEAD\n",
        cwd=top,
        capture_output=True,
        check=True,
    ).stdout

    repo.object_store.add_thin_pack(io.BytesIO(stream).read, None)
    repo.refs[Ref(b"refs/heads/theirs")] = ObjectID(git("rev-parse", "HEAD", cwd=top).encode())

    assert git("--git-dir", shadow.store, "log", "--format=%s", "theirs").split() == ["3", "2", "1", "0"]


def test_it_is_cloned_fetched_and_pushed_from(repo: ShadowRepo, tmp_path: Path) -> None:
    with porcelain.clone(repo, tmp_path / "clone", bare=True, errstream=io.BytesIO()) as clone:
        assert clone[repo.head()] == repo[repo.head()]
    with Repo.init_bare(tmp_path / "fetched", mkdir=True) as fetched:
        repo.fetch(fetched)
        assert {id for id in repo.object_store if id in fetched.object_store} >= {repo.head()}
    with Repo.init_bare(tmp_path / "pushed", mkdir=True):
        porcelain.push(
            repo,
            str(tmp_path / "pushed"),
            ["refs/heads/sessions/default:refs/heads/main"],
            outstream=io.BytesIO(),
            errstream=io.BytesIO(),
        )

    assert git("log", "--format=%s", "main", cwd=tmp_path / "pushed").splitlines() == [
        "Second",
        "First",
        "State before the first message",
    ]
    git("fsck", "--full", "--strict", cwd=tmp_path / "pushed")


def test_a_bundle_is_made_of_it_and_taken_in(repo: ShadowRepo, shadow: Shadow, tmp_path: Path) -> None:
    path = tmp_path / "all.bundle"
    with path.open("wb") as file, bundle.create_bundle_from_repo(repo) as made:
        bundle.write_bundle(file, made)
    git("bundle", "verify", path, cwd=shadow.store)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Shadow(elsewhere, settings={"min_free": 0}) as another:
        another.track()
        with another.repo as target, path.open("rb") as source, bundle.read_bundle(source) as read:
            read.store_objects(target.object_store)

            assert target[repo.head()] == repo[repo.head()]
            assert len(list(target.get_walker(include=[repo.head()]))) == 3


# Private parts of dulwich


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (dulwich.pack.Pack, "resolve_object", ["self", "offset", "type", "obj", "get_ref"]),
        (dulwich.pack.PackData, "_init_offset_cache", ["self", "max_size"]),
        (dulwich.pack.PackData, "_buffer", ["self"]),
        (dulwich.pack.PackData, "get_unpacked_object_at", ["self", "offset", "include_comp"]),
        (dulwich.pack.PackData, "_cache_object_at", ["self", "offset", "type_num", "chunks"]),
        (dulwich.pack.PackIndex, "_itersha", ["self"]),
        (dulwich.pack.PackIndex, "object_offset", ["self", "sha"]),
        (dulwich.pack.PackIndexer, "_result", ["self", "unpacked"]),
        (dulwich.pack.PackIndexer, "ext_refs", ["self"]),
        (dulwich.object_store.DiskObjectStore, "_update_pack_cache", ["self"]),
        (dulwich.object_store.DiskObjectStore, "_remove_pack", ["self", "pack"]),
        (
            dulwich.object_store,
            "_bound_read_callables",
            ["read_all", "read_some", "max_input_size"],
        ),
        (dulwich.repo.Repo, "_put_named_file", ["self", "path", "contents"]),
        (dulwich.repo.Repo, "index_path", ["self"]),
        (dulwich.repo.Repo, "get_config_stack", ["self"]),
        (dulwich.refs.DiskRefsContainer, "refpath", ["self", "name"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_dulwich_has_what_is_relied_upon(owner: object, name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_a_pack_of_dulwich_holds_what_is_relied_upon(tmp_path: Path) -> None:
    """`dulwich_packs` sets these itself, because dulwich would map the file."""
    with Repo.init_bare(tmp_path / "x", mkdir=True) as repo:
        pack = repo.object_store.add_objects([(Blob.from_string(b"x"), None)])
        assert pack is not None
        data = pack.data

        assert {"_basename", "_data", "_idx", "_data_load", "_idx_load", "_data_path"} <= vars(pack).keys()
        assert vars(data).keys() == {
            "_filename",
            "object_format",
            "_header_size",
            "delta_window_size",
            "window_memory",
            "delta_cache_size",
            "depth",
            "threads",
            "big_file_threshold",
            "delta_base_cache_limit",
            "_contents",
            "_file",
            "_close_file",
            "_size",
            "_num_objects",
            "_offset_cache",
            "_offset_cache_lock",
        }


def test_dulwich_has_no_other_way_to_write_or_remove_objects() -> None:
    """A new method in a release must be reviewed before it is used on a store."""
    known = {name for name in vars(ShadowObjectStore) if not name.startswith("__")}
    inherited = {
        name
        for name, value in inspect.getmembers(dulwich.object_store.DiskObjectStore, inspect.isfunction)
        if not name.startswith("_")
    }

    assert inherited - known == {
        "add_pack_data",
        "count_loose_objects",
        "count_pack_files",
        "determine_wants_all",
        "find_common_revisions",
        "find_missing_objects",
        "generate_pack_data",
        "get_object_mtime",
        "iter_tree_contents",
        "peel",
        "peel_sha",
        "tree_changes",
    }
