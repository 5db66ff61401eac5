"""Hostile packs and refs are refused before anything of them is visible."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from hashlib import sha1
from pathlib import Path

import pytest
from dulwich.objects import Blob, Commit, ShaFile, Tree
from dulwich.refs import Ref

from shadowtree.base.errors import InvalidInput, RemoteDamaged
from shadowtree.remote.receive import ReceiveLimits, Receiver
from shadowtree.store.repo import ShadowObjectStore, ShadowRepo
from tests.remote.commits import Line
from tests.remote.conftest import Remote
from tests.remote.machines import Machine

COMMIT, TREE, BLOB, TAG, OFS_DELTA, REF_DELTA = 1, 2, 3, 4, 6, 7
URL = "https://example.org/x"
NOWHERE = bytes(20)


def entry(kind: int, content: bytes, base: bytes = b"", *, size: int | None = None) -> bytes:
    """Make an entry of a pack, perhaps with a wrong size."""
    size = len(content) if size is None else size
    head, size = (kind << 4) | (size & 15), size >> 4
    out = bytearray()
    while size:
        out.append(head | 0x80)
        head, size = size & 0x7F, size >> 7
    out.append(head)
    return bytes(out) + base + zlib.compress(content)


def pack(*entries: bytes, count: int | None = None) -> bytes:
    """Make a pack of entries."""
    body = b"PACK" + struct.pack(">LL", 2, len(entries) if count is None else count) + b"".join(entries)
    return body + sha1(body).digest()


def raw(object: ShaFile) -> bytes:
    return bytes.fromhex(object.id.decode())


def entry_of(object: ShaFile) -> bytes:
    return entry(object.type_num, object.as_raw_string())


def tree_bytes(*rows: tuple[bytes, bytes, bytes]) -> bytes:
    return b"".join(mode + b" " + name + b"\0" + id for mode, name, id in rows)


def commit_of(tree: bytes, *parents: bytes) -> Commit:
    commit = Commit()
    commit.tree = tree.hex().encode()
    commit.parents = [parent.hex().encode() for parent in parents]  # type: ignore[misc]
    commit.author = commit.committer = b"a <a@b>"
    commit.author_time = commit.commit_time = 1
    commit.author_timezone = commit.commit_timezone = 0
    commit.message = b"x"
    return commit


def tree_id(content: bytes) -> bytes:
    return sha1(b"tree %d\0" % len(content) + content).digest()


BLOB_A = Blob.from_string(b"a")
A = raw(BLOB_A)


@pytest.fixture
def receive(repo: ShadowRepo) -> Iterator[Callable[..., None]]:
    """Return a function that receives a pack; at the end nothing of it may be in the store."""
    store = repo.object_store
    assert isinstance(store, ShadowObjectStore)
    packs = Path(store.path, "pack")
    before = sorted(packs.iterdir())

    def take(content: bytes, *wants: bytes, **limits: int) -> None:
        with Receiver(store, URL, ReceiveLimits(**limits)) as receiver:
            for start in range(0, len(content), 1000):
                receiver.write(content[start : start + 1000])
            receiver.publish(wants)

    yield take
    assert sorted(packs.iterdir()) == before


def with_tree(content: bytes, *others: bytes) -> tuple[bytes, bytes]:
    """Make a pack with a commit of this tree; return both."""
    commit = commit_of(tree_id(content))
    return pack(entry(TREE, content), entry_of(commit), *others), raw(commit)


@pytest.mark.parametrize(
    "name",
    [
        *(
            b".git",
            b".GIT",
            b".Git",
            b".git.",
            b".git ",
            b".git. .",
            b"git~1",
            b"GIT~1",
            b".git::$INDEX_ALLOCATION",
        ),
        *(b".g\xe2\x80\x8cit", b"\xef\xbb\xbf.git", b".gi\xe2\x80\x8dt", b"x\\.git\\config", b".git\\x"),
        *(b"..", b".", b"a/b", b"/", b"../x"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("mode", [b"100644", b"40000"])
def test_names_that_git_forbids(receive: Callable[..., None], name: bytes, mode: bytes) -> None:
    content = tree_bytes((mode, name, A))
    with pytest.raises(RemoteDamaged):
        receive(*with_tree(content, entry_of(BLOB_A)))


@pytest.mark.parametrize(
    "content",
    [
        tree_bytes((b"120000", b".gitmodules", A)),
        tree_bytes((b"40000", b".gitattributes", A)),
        tree_bytes((b"160000", b"sub", A)),
        tree_bytes((b"100666", b"a", A)),
        tree_bytes((b"0100644", b"a", A)),
        tree_bytes((b"100644", b"", A)),
        tree_bytes((b"100644", b"a\0b", A)),
        tree_bytes((b"100644", b"b", A), (b"100644", b"a", A)),
        tree_bytes((b"100644", b"a", A), (b"100644", b"a", A)),
        tree_bytes((b"100644", b"a", A), (b"40000", b"a", A)),
        tree_bytes((b"100644", b"a", A))[:-1],
        b"no tree at all",
    ],
    ids=[
        "link",
        "directory",
        "submodule",
        "mode",
        "zero",
        "empty",
        "nul",
        "order",
        "twice",
        "both",
        "cut",
        "none",
    ],
)
def test_malformed_trees(receive: Callable[..., None], content: bytes) -> None:
    with pytest.raises(RemoteDamaged):
        receive(*with_tree(content, entry_of(BLOB_A)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"tree " + b"0" * 39 + b"\n",
        b"tree %s\nparent x\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nx" % (b"1" * 40),
        b"tree %s\n\nno author" % (b"1" * 40),
        b"tree %s\nauthor a <b> 1 +0000\ncommitter a <b> 1 +0000\n\nx\0y"
        % (b"4b825dc642cb6eb9a060e54bf8d69288fbee4904"),
    ],
)
def test_malformed_commits(receive: Callable[..., None], content: bytes) -> None:
    id = sha1(b"commit %d\0" % len(content) + content).digest()
    with pytest.raises(RemoteDamaged):
        receive(pack(entry(COMMIT, content)), id)


def test_what_is_missing(receive: Callable[..., None]) -> None:
    content = tree_bytes((b"100644", b"a", A))
    with pytest.raises(RemoteDamaged, match="missing"):
        receive(*with_tree(content))
    with pytest.raises(RemoteDamaged, match="missing"):
        receive(pack(entry_of(commit_of(tree_id(content)))), raw(commit_of(tree_id(content))))
    with pytest.raises(RemoteDamaged, match="missing"):
        receive(pack(entry_of(BLOB_A)), NOWHERE)
    parentless = commit_of(tree_id(b""), NOWHERE)
    with pytest.raises(RemoteDamaged, match="missing"):
        receive(pack(entry_of(parentless)), raw(parentless))


def test_objects_of_the_wrong_kind(receive: Callable[..., None]) -> None:
    as_tree = tree_bytes((b"40000", b"a", A))
    with pytest.raises(RemoteDamaged, match="is no tree"):
        receive(*with_tree(as_tree, entry_of(BLOB_A)))
    with pytest.raises(RemoteDamaged, match="is no commit"):
        receive(pack(entry_of(BLOB_A)), A)
    inner = tree_bytes((b"100644", b"x", A))
    as_blob = tree_bytes((b"100644", b"a", tree_id(inner)))
    with pytest.raises(RemoteDamaged, match="missing"):
        receive(*with_tree(as_blob, entry_of(BLOB_A), entry(TREE, inner)))


def test_kinds_of_objects_that_nobody_needs(receive: Callable[..., None]) -> None:
    with pytest.raises(RemoteDamaged, match="a tag"):
        receive(pack(entry(TAG, b"object x")), A)
    for kind in (0, 5):
        with pytest.raises(RemoteDamaged, match="unknown kind"):
            receive(pack(entry(kind, b"x")), A)


def test_a_billion_files(receive: Callable[..., None]) -> None:
    content, entries = tree_bytes((b"100644", b"a", A)), [entry_of(BLOB_A)]
    for _ in range(9):
        entries.append(entry(TREE, content))
        content = tree_bytes(*((b"40000", b"%d" % number, tree_id(content)) for number in range(10)))
    with pytest.raises(RemoteDamaged, match="too many files"):
        receive(*with_tree(content, *entries))


def test_directories_without_end(receive: Callable[..., None]) -> None:
    content, entries = tree_bytes((b"100644", b"a", A)), [entry_of(BLOB_A)]
    for _ in range(600):
        entries.append(entry(TREE, content))
        content = tree_bytes((b"40000", b"d", tree_id(content)))
    with pytest.raises(RemoteDamaged, match="too many files or directories"):
        receive(*with_tree(content, *entries))


def delta(base_size: int, size: int, *commands: bytes) -> bytes:
    def number(value: int) -> bytes:
        out = bytearray()
        while value >= 0x80:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes([*out, value])

    return number(base_size) + number(size) + b"".join(commands)


def test_deltas_in_a_loop(receive: Callable[..., None]) -> None:
    one, two = b"\1" * 20, b"\2" * 20
    change = delta(4, 4, b"\x04abcd")
    with pytest.raises(RemoteDamaged, match="base is missing"):
        receive(pack(entry(REF_DELTA, change, one), entry(REF_DELTA, change, two)), A)
    with pytest.raises(RemoteDamaged, match="no base"):
        receive(pack(entry(OFS_DELTA, change, b"\0")), A)


@pytest.mark.parametrize(
    "change",
    [
        b"",
        b"\x01",
        delta(2, 1, b"\x01a"),
        delta(1, 5, b"\x01a"),
        delta(1, 2, b"\x91\x00\x02"),
        delta(1, 1, b"\x00"),
        delta(1, 4, b"\x04ab"),
        b"\xff" * 30,
    ],
    ids=["empty", "short", "base", "size", "beyond", "reserved", "cut", "endless"],
)
def test_deltas_that_do_not_fit(receive: Callable[..., None], change: bytes) -> None:
    with pytest.raises(RemoteDamaged):
        receive(pack(entry_of(BLOB_A), entry(REF_DELTA, change, A)), A)


def test_too_many_deltas_one_after_the_other(receive: Callable[..., None]) -> None:
    blob, entries = BLOB_A, [entry_of(BLOB_A)]
    for number in range(60):
        text = b"%03d" % number
        entries.append(entry(REF_DELTA, delta(len(blob.data), 3, b"\x03" + text), raw(blob)))
        blob = Blob.from_string(text)
    with pytest.raises(RemoteDamaged, match="more than 50 deltas"):
        receive(pack(*entries), A, chain=50)


def test_sizes(receive: Callable[..., None]) -> None:
    large = bytes(1 << 20)
    with pytest.raises(RemoteDamaged, match="an object has 1 MiB"):
        receive(pack(entry(BLOB, large)), A, object_bytes=1000)
    with pytest.raises(RemoteDamaged, match="larger than it says"):
        receive(pack(entry(BLOB, large, size=10)), A)
    with pytest.raises(RemoteDamaged, match="smaller than it says"):
        receive(pack(entry(BLOB, b"abc", size=10)), A)
    with pytest.raises(RemoteDamaged, match="an object has"):
        receive(pack(entry_of(BLOB_A), entry(REF_DELTA, delta(1, 1 << 40, b"\x01a"), A)), A)
    with pytest.raises(RemoteDamaged, match="the objects have more"):
        receive(pack(*(entry(BLOB, large + b"%d" % number) for number in range(5))), A, total_bytes=3 << 20)
    with pytest.raises(RemoteDamaged, match="the pack has more"):
        receive(pack(entry_of(BLOB_A)), A, pack_bytes=30)
    with pytest.raises(RemoteDamaged, match=r"4,294,967,295 objects"):
        receive(pack(entry_of(BLOB_A), count=0xFFFFFFFF), A)


def test_packs_that_are_none(receive: Callable[..., None]) -> None:
    good = pack(entry_of(BLOB_A))
    for damaged in (
        b"",
        b"PACK",
        b"KCAP" + good[4:],
        good[:-21] + good[-20:],
        good[:-1],
        good + b"x",
        pack(entry_of(BLOB_A), b"more"),
        pack(entry_of(BLOB_A), count=2),
        pack(entry_of(BLOB_A), entry_of(BLOB_A)),
        pack(entry_of(BLOB_A), b"\xb0" * 70, count=2),
        pack(b"\x31not deflated at all"),
    ):
        with pytest.raises(RemoteDamaged):
            receive(damaged, A)


def test_every_byte_of_a_pack_counts(receive: Callable[..., None]) -> None:
    content = tree_bytes((b"100644", b"a", A))
    good, want = with_tree(content, entry_of(BLOB_A))
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 0x11
        with pytest.raises(RemoteDamaged):
            receive(bytes(damaged), want)
        # With a correct checksum, as an attacker would send it.
        body = bytes(damaged[:-20])
        if position < len(body):
            with pytest.raises(RemoteDamaged):
                receive(body + sha1(body).digest(), want)


def test_a_server_that_sends_a_forbidden_tree(make_remote: Callable[[str], Remote], repo: ShadowRepo) -> None:
    """Real git stores such trees unless configured otherwise, and sends them to everybody."""
    from dulwich.repo import Repo

    remote = make_remote("daemon")
    with Repo(str(remote.path)) as there:
        tree = Tree()
        tree.add(b".git", 0o100644, BLOB_A.id)
        commit = commit_of(raw(tree))
        for object in (BLOB_A, tree, commit):
            there.object_store.add_object(object)
        there.refs[b"refs/heads/sessions/x"] = commit.id  # type: ignore[index]  # as a ref
    with remote.connect(repo) as transport:
        refs = transport.list_refs([b"refs/heads/"])
        with pytest.raises(RemoteDamaged, match="invalid entry"):
            transport.fetch(refs.values(), [])

    assert commit.id not in repo.object_store


def test_a_server_that_sends_more_than_is_accepted(
    repo: ShadowRepo, make_repo: Callable[[], ShadowRepo], make_remote: Callable[[str], Remote]
) -> None:
    remote, here = make_remote("daemon"), make_repo()
    tip = Line(repo).commit({f"f{number}": b"x%d" % number for number in range(50)})
    with remote.connect(repo) as transport:
        transport.push({b"refs/heads/a": (None, tip)})
    with remote.connect(here, limits=ReceiveLimits(pack_bytes=500)) as transport:
        with pytest.raises(RemoteDamaged, match="the pack has more than 500 B"):
            transport.fetch([tip], [])


def test_names_of_refs_that_are_none(repo: ShadowRepo, make_remote: Callable[[str], Remote]) -> None:
    remote = make_remote("path")
    tip = Line(repo).commit({"a": b"1"})
    with remote.connect(repo) as transport:
        for ref in (
            b"HEAD",
            b"refs/../x",
            b"refs/heads/a..b",
            b"refs/heads/x.lock",
            b"refs/heads/a b",
            b"refs//a",
        ):
            with pytest.raises(InvalidInput, match="not the name of a ref"):
                transport.push({ref: (None, tip)})


@pytest.mark.parametrize("kind", ["daemon", "path"])
def test_one_bad_session_does_not_keep_others_away(
    kind: str, make_remote: Callable[[str], Remote], tmp_path: Path
) -> None:
    """Anybody who can push to a server can put anything there."""
    from dulwich.repo import Repo

    remote = make_remote(kind)
    worker, laptop = Machine(tmp_path / "worker", remote.url()), Machine(tmp_path / "laptop", remote.url())
    worker.tell("m1", {"a": "1"})
    worker.push()
    with Repo(str(remote.path)) as there:
        tree = Tree()
        tree.add(b"..", 0o100644, BLOB_A.id)
        commit = commit_of(raw(tree))
        for object in (BLOB_A, tree, commit):
            there.object_store.add_object(object)
        there.refs[Ref(b"refs/shadowtree/sessions/evil/0123456789ab")] = commit.id

    fetched = laptop.fetch()

    assert [(each.session, "invalid entry" in each.reason) for each in fetched.refused] == [("evil", True)]
    assert laptop.ids() == ["m1"]
