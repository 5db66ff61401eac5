"""List, fetch and push against real servers."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shadowtree.base.errors import RemoteFailed, RemoteRefused
from shadowtree.remote.transport import CHANGED, NOT_FORWARD
from shadowtree.store.repo import ShadowRepo
from tests.remote.commits import Line
from tests.remote.conftest import Remote
from tests.remote.fault_proxy import FaultProxy
from tests.remote.servers import assert_clean, git

SESSION = b"refs/heads/sessions/default"
ROWS = b"refs/shadowtree/sessions/default"
PREFIXES = [b"refs/heads/sessions/", b"refs/shadowtree/"]


def many_files(seed: int = 1) -> dict[str, bytes]:
    """Make 400 files in 20 directories that compress like source code."""
    chance = random.Random(seed)
    words = [f"word{number}" for number in range(500)]
    return {
        f"d{number % 20}/f{number}.py": " ".join(chance.choices(words, k=200)).encode() + b"\n"
        for number in range(400)
    }


def test_what_was_pushed_is_fetched_elsewhere(
    remote: Remote, repo: ShadowRepo, make_repo: Callable[[], ShadowRepo]
) -> None:
    line, rows = Line(repo), Line(repo)
    first = line.commit({"a.py": b"one\n", "src/b.py": b"two\n" * 50})
    row = rows.commit({"rows/1": b"a row"})
    elsewhere = make_repo()

    with remote.connect(repo) as transport:
        assert transport.push({SESSION: (None, first), ROWS: (None, row)}) == {SESSION: None, ROWS: None}
    assert_clean(remote.path)
    with remote.connect(elsewhere) as transport:
        refs = transport.list_refs(PREFIXES)
        transport.fetch(refs.values(), [])

    assert refs == {SESSION: first, ROWS: row} == remote.refs()
    assert elsewhere[first.hex().encode()].as_raw_string() == repo[first.hex().encode()].as_raw_string()
    assert git("-c", "safe.directory=*", "show", f"{first.hex()}:src/b.py", cwd=remote.path) == "two\n" * 50


def test_a_second_push_and_a_second_fetch_carry_only_what_is_new(
    remote: Remote, repo: ShadowRepo, make_repo: Callable[[], ShadowRepo]
) -> None:
    line, elsewhere = Line(repo), make_repo()
    files = many_files()
    first = line.commit(files)
    with remote.connect(repo) as transport:
        transport.push({SESSION: (None, first)})
        whole = transport.sent_bytes
    with remote.connect(elsewhere) as transport:
        transport.fetch([first], [])
    changed = {path: content + b"a line more\n" for path, content in list(files.items())[:10]}
    second = line.commit(changed)

    with remote.connect(repo) as transport:
        assert transport.push({SESSION: (first, second)}) == {SESSION: None}
        sent = transport.sent_bytes
    with remote.connect(elsewhere) as transport:
        transport.fetch([second], [first])
        received = transport.received_bytes

    # Packs on disk have no deltas between each other; `git gc` makes them.
    assert sent < (20_000 if remote.server.name == "path" else 4_000) < 100_000 < whole
    assert received < 8_000
    assert_clean(remote.path)
    assert elsewhere.object_store[repo[second.hex().encode()].tree]  # type: ignore[attr-defined]  # a commit


def test_a_push_is_refused_if_somebody_else_pushed_meanwhile(remote: Remote, repo: ShadowRepo) -> None:
    line, other = Line(repo), Line(repo)
    first = line.commit({"a": b"1"})
    theirs = other.commit({"b": b"2"})
    with remote.connect(repo) as transport:
        transport.push({SESSION: (None, theirs)})

        status = transport.push({SESSION: (None, first), ROWS: (None, first)})

    assert status == {SESSION: CHANGED, ROWS: None}
    assert remote.refs() == {SESSION: theirs}


def test_a_push_goes_only_forward_unless_it_replaces(remote: Remote, repo: ShadowRepo) -> None:
    first = Line(repo).commit({"a": b"1"})
    other = Line(repo).commit({"b": b"2"})
    with remote.connect(repo) as transport:
        transport.push({SESSION: (None, first)})

        assert transport.push({SESSION: (first, other)}) == {SESSION: NOT_FORWARD}
        assert remote.refs() == {SESSION: first}
        assert transport.push({SESSION: (first, other)}, replace=True) == {SESSION: None}
        assert transport.push({SESSION: (other, None)}, replace=True) == {SESSION: None}
    assert remote.refs() == {}


def test_what_is_there_already_is_not_sent_again(remote: Remote, repo: ShadowRepo) -> None:
    first = Line(repo).commit({"a": b"1"})
    with remote.connect(repo) as transport:
        transport.push({SESSION: (None, first)})

        assert transport.push({SESSION: (first, first)}) == {SESSION: None}
        # As after a push that was cut and had arrived.
        assert transport.push({SESSION: (None, first)}) == {SESSION: None}
        assert transport.push({ROWS: (None, first)}) == {ROWS: None}
    assert remote.refs() == {SESSION: first, ROWS: first}


def test_only_refs_that_were_asked_for_are_listed(remote: Remote, repo: ShadowRepo) -> None:
    first = Line(repo).commit({"a": b"1"})
    with remote.connect(repo) as transport:
        transport.push(
            {SESSION: (None, first), b"refs/heads/main": (None, first), b"refs/tags/x": (None, first)}
        )

        assert transport.list_refs([b"refs/heads/sessions/"]) == {SESSION: first}
        assert transport.list_refs([b"refs/none/"]) == {}


@pytest.mark.parametrize("kind", ["daemon", "http", "ssh", "path"])
def test_a_thousand_refs(kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo) -> None:
    remote, line = make_remote(kind), Line(repo)
    first = line.commit({"a": b"1"})
    refs = {b"refs/heads/sessions/%d" % number: first for number in range(1_000)}

    with remote.connect(repo) as transport:
        status = transport.push({ref: (None, id) for ref, id in refs.items()})
        assert set(status.values()) == {None}
        assert transport.list_refs(PREFIXES) == refs
        received = transport.received_bytes
        second = line.commit({"a": b"2"})
        transport.push({b"refs/heads/sessions/7": (first, second)})
    with remote.connect(repo) as transport:
        assert transport.list_refs([b"refs/heads/sessions/77"]).keys() == {
            ref for ref in refs if ref.startswith(b"refs/heads/sessions/77")
        }
        assert transport.received_bytes < max(received // 10, 1) or kind == "path"


@pytest.mark.parametrize("kind", ["daemon", "http", "ssh", "path"])
def test_a_repository_that_is_not_there(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    remote = make_remote(kind)
    remote.name = "nothing-here"
    with remote.connect(repo) as transport, pytest.raises(RemoteFailed) as caught:
        transport.list_refs(PREFIXES)

    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, RemoteRefused)


def test_a_server_that_is_not_there(repo: ShadowRepo, make_remote: Callable[[str], Remote]) -> None:
    for kind in ("daemon", "http", "ssh"):
        remote = make_remote(kind)
        with remote.connect(repo, port=1) as transport, pytest.raises(RemoteFailed, match="refused"):
            transport.list_refs(PREFIXES)


@pytest.mark.parametrize("kind", ["daemon", "http"])
def test_a_push_takes_two_round_trips(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    remote, line = make_remote(kind), Line(repo)
    first, second = line.commit({"a": b"1" * 100}), line.commit({"a": b"2" * 100})
    with remote.connect(repo) as transport:
        transport.push({SESSION: (None, first)})

    with FaultProxy(remote.server.port) as proxy, remote.connect(repo, port=proxy.port) as transport:
        transport.push({SESSION: (first, second)})

    assert (proxy.counts.turns, proxy.counts.connections) == (2, 1)


@pytest.mark.parametrize("kind", ["daemon", "path"])
def test_versions_of_all_kinds_arrive(
    kind: str, make_remote: Callable[[str], Remote], repo: ShadowRepo, make_repo: Callable[[], ShadowRepo]
) -> None:
    """Whatever deltas are made between them."""
    remote, line, elsewhere, chance = make_remote(kind), Line(repo), make_repo(), random.Random(5)
    files = {f"f{number}": chance.randbytes(number * 7) * (1 + number % 3) for number in range(60)}
    files |= {"empty": b"", "zeros": bytes(70_000), "long": b"".join(b"%d\n" % n for n in range(30_000))}
    tip = line.commit(files)
    with remote.connect(repo) as transport:
        transport.push({SESSION: (None, tip)})
        for _ in range(6):
            changed = {}
            for path, content in files.items():
                edited = bytearray(content)
                for _ in range(chance.randrange(4)):
                    at = chance.randrange(len(edited) + 1)
                    edited[at : at + chance.randrange(30)] = chance.randbytes(chance.randrange(200))
                changed[path] = files[path] = bytes(edited)
            old, tip = tip, line.commit(changed)
            assert transport.push({SESSION: (old, tip)}) == {SESSION: None}
    assert_clean(remote.path)
    with remote.connect(elsewhere) as transport:
        transport.fetch([tip], [])


def test_a_push_takes_no_more_bytes_and_round_trips_than_that_of_git(
    make_remote: Callable[[str], Remote], repo: ShadowRepo
) -> None:
    ours, theirs, line, chance = make_remote("daemon"), make_remote("daemon"), Line(repo), random.Random(7)
    files = many_files()
    first = line.commit(files)
    for remote in (ours, theirs):
        with remote.connect(repo) as transport:
            transport.push({SESSION: (None, first)})
    edited = {
        path: files[path].replace(b"word7", b"another word") for path in chance.sample(sorted(files), 10)
    }
    second = line.commit(edited)

    with FaultProxy(ours.server.port) as proxy, ours.connect(repo, port=proxy.port) as transport:
        transport.push({SESSION: (first, second)})
    with FaultProxy(theirs.server.port) as rival:
        what = f"{second.hex()}:{SESSION.decode()}"
        git("push", "--quiet", theirs.url(rival.port), what, cwd=ours.path, GIT_DIR=repo.controldir())

    assert proxy.counts.up + proxy.counts.down <= 1.2 * (rival.counts.up + rival.counts.down)
    assert proxy.counts.turns <= rival.counts.turns


def test_a_directory_without_files(
    remote: Remote, repo: ShadowRepo, make_repo: Callable[[], ShadowRepo]
) -> None:
    """Real git needs the empty tree too."""
    line, elsewhere = Line(repo), make_repo()
    first, second, third = line.commit({}), line.commit({"a": b"1"}), line.commit({"a": None})
    with remote.connect(repo) as transport:
        for old, new in ((None, first), (first, second), (second, third)):
            assert transport.push({SESSION: (old, new)}) == {SESSION: None}
            assert_clean(remote.path)
    with remote.connect(elsewhere) as transport:
        transport.fetch([third], [])


def test_a_damaged_repository_at_a_path(
    make_remote: Callable[[str], Remote], repo: ShadowRepo, make_repo: Callable[[], ShadowRepo]
) -> None:
    remote, elsewhere = make_remote("path"), make_repo()
    tip = Line(repo).commit({"a": b"1" * 1000})
    with remote.connect(repo) as transport:
        transport.push({SESSION: (None, tip)})
    (pack,) = remote.path.glob("objects/pack/*.pack")
    whole = pack.read_bytes()
    pack.chmod(0o644)
    for damaged in (whole[:12] + bytes(len(whole) - 12), whole[:40], b""):
        pack.write_bytes(damaged)
        with remote.connect(elsewhere) as transport, pytest.raises(RemoteFailed):
            transport.fetch([tip], [])
