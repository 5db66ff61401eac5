"""Bundles: real git verifies and reads ours, we read git's, and nothing incomplete is accepted."""

from __future__ import annotations

import os
import subprocess
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from shadowtree.base.errors import InvalidInput, RemoteDamaged
from shadowtree.remote.bundle import read_bundle, write_bundle
from shadowtree.remote.receive import ReceiveLimits
from shadowtree.store.repo import ShadowRepo
from tests.remote.commits import Line
from tests.remote.servers import assert_clean, environment, git

SESSION = b"refs/heads/sessions/default"
ROWS = b"refs/shadowtree/sessions/default"


def make_bundle(repo: ShadowRepo, refs: dict[bytes, bytes], *prerequisites: bytes) -> bytes:
    file = BytesIO()
    write_bundle(file, repo, refs, prerequisites)
    return file.getvalue()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """An empty repository made by real git."""
    git("init", "-q", "--bare", str(tmp_path / "target.git"), cwd=tmp_path)
    return tmp_path / "target.git"


def test_real_git_verifies_and_reads_ours(repo: ShadowRepo, target: Path) -> None:
    line = Line(repo)
    first = line.commit({f"d/{number}": b"text\n" * 30 + b"%d" % number for number in range(20)})
    second = line.commit({"d/3": b"text\n" * 30 + b"changed"})
    (target / "whole").write_bytes(make_bundle(repo, {SESSION: first, ROWS: first}))
    (target / "rest").write_bytes(make_bundle(repo, {SESSION: second}, first))

    for name in ("whole", "rest"):
        git("bundle", "verify", name, cwd=target)
        git("fetch", "-q", name, "refs/*:refs/*", cwd=target)

    assert git("rev-parse", SESSION.decode(), cwd=target).strip() == second.hex()
    assert_clean(target)
    assert (target / "rest").stat().st_size < 600


def test_we_read_those_of_real_git(
    repo: ShadowRepo, make_repo: Callable[[], ShadowRepo], target: Path
) -> None:
    line, here = Line(repo), make_repo()
    first = line.commit({f"d/{number}": b"text\n" * 30 + b"%d" % number for number in range(20)})
    second = line.commit({"d/3": b"text\n" * 30 + b"changed"})
    (target / "whole").write_bytes(make_bundle(repo, {SESSION: second}))
    git("fetch", "-q", "whole", "refs/*:refs/*", cwd=target)
    git("update-ref", "refs/heads/first", first.hex(), cwd=target)
    git("bundle", "create", "-q", "one", "refs/heads/first", cwd=target)
    git("bundle", "create", "-q", "two", "refs/heads/first..refs/heads/sessions/default", cwd=target)

    with (
        open(target / "two", "rb") as file,
        pytest.raises(RemoteDamaged, match=f"it needs commit {first.hex()}"),
    ):
        read_bundle(file, here)
    for name, refs in (("one", {b"refs/heads/first": first}), ("two", {SESSION: second})):
        with open(target / name, "rb") as file:
            assert read_bundle(file, here) == refs

    assert here[second.hex().encode()].as_raw_string() == repo[second.hex().encode()].as_raw_string()


def test_damaged_bundles_are_refused_and_leave_nothing(
    repo: ShadowRepo, make_repo: Callable[[], ShadowRepo]
) -> None:
    tip, here = Line(repo).commit({"a": b"1", "b": b"2"}), make_repo()
    good = make_bundle(repo, {SESSION: tip})
    packs = Path(here.object_store.path, "pack")
    before = sorted(packs.iterdir())

    for damaged in [
        *(good[:size] for size in range(0, len(good), 7)),
        b"# v9 git bundle\n" + good[16:],
        good.replace(b"refs/heads/", b"../../../x/"),
        good.replace(b"refs/heads/", b"refs/he..s/"),
        good[:-30] + b"x" + good[-29:],
        b"# v2 git bundle\n" + b"x" * 100_000,
        good + b"more",
    ]:
        with pytest.raises(RemoteDamaged):
            read_bundle(BytesIO(damaged), here)

    assert sorted(packs.iterdir()) == before
    assert read_bundle(BytesIO(good), here) == {SESSION: tip}


def test_a_bundle_does_not_make_refs_of_what_is_not_in_it(
    repo: ShadowRepo, make_repo: Callable[[], ShadowRepo]
) -> None:
    line, here = Line(repo), make_repo()
    first, second = line.commit({"a": b"1"}), line.commit({"a": b"2"})
    good = make_bundle(repo, {SESSION: first})
    with pytest.raises(RemoteDamaged, match="missing"):
        read_bundle(BytesIO(good.replace(first.hex().encode(), second.hex().encode(), 1)), here)


def test_a_large_file_is_sent_piece_by_piece(repo: ShadowRepo, tmp_path: Path) -> None:
    tip = Line(repo).commit({"large": os.urandom(1 << 20) * 24})
    file = tmp_path / "bundle"

    tracemalloc.start()
    try:
        with open(file, "wb") as target:
            write_bundle(target, repo, {SESSION: tip})
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 8 << 20
    done = subprocess.run(
        ["git", "bundle", "list-heads", str(file)], env=environment(), capture_output=True, check=True
    )
    assert tip.hex().encode() in done.stdout


def test_a_file_that_is_too_large_is_refused_before_anything_is_written(repo: ShadowRepo) -> None:
    tip, file = Line(repo).commit({"large": bytes(5000)}), BytesIO()
    with pytest.raises(InvalidInput, match=r"has 4\.9 KiB; at most 1 KiB can be sent"):
        write_bundle(file, repo, {SESSION: tip}, limits=ReceiveLimits(object_bytes=1024))

    assert file.getvalue() == b""
