"""The store: its place, access to it, what is refused, and the effects of damage."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from shadowtree import (
    BroadWorktree,
    InvalidInput,
    OutOfSpace,
    Patch,
    Shadow,
    ShadowError,
    StoreDamaged,
    UnsafePath,
    find_worktree,
)
from shadowtree.all_stores import list_stores
from shadowtree.base.errors import StoreTooNew, WorktreeReplaced, WorktreeTooBig, describe_size
from shadowtree.cli.main import main
from shadowtree.store import directory as stores
from shadowtree.store.identity import FORMAT, read_identity
from shadowtree.store.objects import Objects
from shadowtree.system import disk
from shadowtree.system.locations import store_of as name_store
from shadowtree.system.syscalls import directory_generation, host_name
from tests.support.processes import Child, Raised, in_child
from tests.support.referee import assert_sound_store, git, git_tree
from tests.support.stores import (
    SETTINGS,
    assert_no_leftovers,
    assert_records_whole,
    put_back,
    read_below,
    recorded_trees,
    store_of,
    track,
)
from tests.support.trees import assert_tree, link, make_tree
from tests.support.turns import choose, some_or_all

STRANGER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def store(worktree: Path) -> Path:
    """The store of a wrapped worktree."""
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    track(worktree)
    return store_of(worktree)


class Terminal:
    """Runs command lines in this process, and keeps their output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def run(self, *words: str | Path) -> int:
        """Run a line, and return its exit code."""
        self._capsys.readouterr()
        exit_code = main([*map(str, words), "--set", "min_free=0"])
        self.out, self.err = self._capsys.readouterr()
        return exit_code


@pytest.fixture
def terminal(worktree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.chdir(worktree)
    return Terminal(capsys)


# Its place


def test_the_store_lies_in_shadowtree_home_named_by_folder_and_path(worktree: Path, tmp_path: Path) -> None:
    digest = sha256(os.fsencode(worktree)).hexdigest()[:12]

    assert store_of(worktree) == tmp_path / "stores" / f"worktree-{digest}"


def test_the_name_of_a_store_never_changes() -> None:
    assert name_store("/home/ann/notes", "/s") == "/s/notes-6f929a5f8026"
    assert name_store("/", "/s") == "/s/root-8a5edab28263"


def test_the_name_of_a_store_is_plain_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "a b\n\x1b[31m;é\udcff"
    folder.mkdir()

    name = store_of(folder).name

    assert name.startswith("a_b")
    assert name.isprintable()
    assert " " not in name
    assert len(name) <= 93


@pytest.mark.parametrize(
    "name", ["x" * 255, "\u6728" * 85, "x" + "\u6728" * 84], ids=["ascii", "cjk", "mixed"]
)
def test_a_folder_may_have_as_long_a_name_as_there_is(tmp_path: Path, name: str) -> None:
    """File systems count bytes, and temporary names are even longer."""
    worktree = make_tree(tmp_path / name, {"a": "1"})

    track(worktree)

    assert len(os.fsencode(store_of(worktree).name)) <= 80 + 13
    assert_sound_store(store_of(worktree))


def test_two_folders_of_the_same_name_have_two_stores(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_tree(tmp_path / name / "project", {"a": name})

    assert store_of(tmp_path / "one" / "project") != store_of(tmp_path / "two" / "project")


def test_a_symlink_to_the_worktree_leads_to_the_same_store(worktree: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(worktree)

    assert store_of(tmp_path / "link") == store_of(worktree)
    assert Shadow(tmp_path / "link").worktree == worktree


def test_without_shadowtree_home_the_store_lies_in_the_data_directory(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHADOWTREE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    assert store_of(worktree).parent == tmp_path / "data" / "shadowtree"


@pytest.mark.parametrize("given", ["", "relative/data"])
def test_without_a_data_directory_the_store_lies_in_the_home_directory(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.delenv("SHADOWTREE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", given)

    assert store_of(worktree).parent == tmp_path / "home" / ".local" / "share" / "shadowtree"


def test_without_a_home_directory_there_is_no_place_for_a_store(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHADOWTREE_HOME")
    monkeypatch.delenv("HOME")

    with pytest.raises(InvalidInput):
        Shadow(worktree)


def test_a_given_store_goes_before_the_environment_and_that_before_the_home(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWTREE_STORE", str(tmp_path / "of-the-environment"))

    assert store_of(worktree) == tmp_path / "of-the-environment"
    assert Shadow(worktree, store=tmp_path / "given").store == tmp_path / "given"


def test_the_command_keeps_its_store_where_it_is_told(terminal: Terminal, tmp_path: Path) -> None:
    assert terminal.run("--store", tmp_path / "given", "track") == 0

    assert (tmp_path / "given" / "shadowtree.json").exists()
    assert not (tmp_path / "stores").exists()


def test_a_store_in_a_directory_that_is_not_there_yet_is_made_with_its_parents(
    worktree: Path, tmp_path: Path
) -> None:
    track(worktree, tmp_path / "a" / "b" / "store")

    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert_sound_store(tmp_path / "a" / "b" / "store")


def test_an_empty_directory_becomes_a_store(worktree: Path, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir(mode=0o755)

    track(worktree, tmp_path / "given")

    assert_sound_store(tmp_path / "given")


def test_a_directory_with_something_in_it_does_not_become_a_store(worktree: Path, tmp_path: Path) -> None:
    make_tree(tmp_path / "given", {"mine": "precious"})

    with pytest.raises(UnsafePath):
        track(worktree, tmp_path / "given")

    assert [path.name for path in (tmp_path / "given").iterdir()] == ["mine"]


def test_a_file_in_the_place_of_the_store_is_refused(worktree: Path, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("precious")

    with pytest.raises(ShadowError):
        track(worktree, tmp_path / "given")

    assert (tmp_path / "given").read_text() == "precious"


def test_nothing_inside_the_worktree_can_redirect_the_store(worktree: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    settings = f"store = {elsewhere}\nSHADOWTREE_STORE={elsewhere}\nSHADOWTREE_HOME={elsewhere}\n"
    identity = json.dumps({"format": FORMAT, "worktree": str(elsewhere), "inode": 1, "generation": 1})
    make_tree(
        worktree,
        {
            ".shadowtree": settings,
            ".shadowtree.toml": f'[shadowtree]\nstore = "{elsewhere}"\n',
            ".env": settings,
            "pyproject.toml": f'[tool.shadowtree]\nstore = "{elsewhere}"\n',
            "shadowtree.json": identity,
            "config": f"[core]\n\tworktree = {elsewhere}\n",
            ".git": f"gitdir: {elsewhere}\n",
            ".shadowtreeignore": f"store={elsewhere}\n",
        },
    )
    usual = store_of(worktree)

    track(worktree)

    assert usual.exists()
    assert recorded_trees(usual)
    assert not elsewhere.exists()


def test_the_worktree_is_found_from_any_directory_inside(worktree: Path, store: Path) -> None:
    assert find_worktree(worktree / "sub") == str(worktree)
    assert find_worktree(worktree.parent) is None


# Its owner


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o377, 0o777], ids=oct)
def test_only_the_owner_can_enter_a_store_whatever_the_umask(worktree: Path, umask: int) -> None:
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    before = os.umask(umask)
    try:
        with Shadow(worktree, settings=SETTINGS) as shadow:
            for number in range(3):
                (worktree / "a").write_text(f"{number}")
                shadow.track()
                shadow.status()
            assert_private(shadow.store.parent)
    finally:
        os.umask(before)
    assert_private(shadow.store.parent)


def assert_private(directory: Path) -> None:
    for path in [directory, *directory.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


@needs_root
@pytest.mark.parametrize("part", ["", "shadowtree.json"], ids=["directory", "identity"])
def test_a_store_that_another_user_owns_is_refused(
    worktree: Path, store: Path, terminal: Terminal, part: str
) -> None:
    os.chown(store / part, STRANGER, -1)

    for act in everything(worktree):
        with pytest.raises(UnsafePath, match=f"user {STRANGER} owns it"):
            act()
    assert terminal.run("track") == 1
    assert f"user {STRANGER} owns it" in terminal.err


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777], ids=oct)
def test_a_store_that_others_can_write_to_is_refused(worktree: Path, store: Path, mode: int) -> None:
    store.chmod(mode)

    for act in everything(worktree):
        with pytest.raises(UnsafePath, match="other users can write to it"):
            act()


@needs_root
def test_a_store_is_not_made_in_a_directory_of_another_user(worktree: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    os.chown(theirs, STRANGER, -1)

    with pytest.raises(UnsafePath, match=f"user {STRANGER} owns it"):
        track(worktree, theirs / "store")

    assert list(theirs.iterdir()) == []


def test_a_store_is_not_made_in_a_directory_that_everybody_can_write_to(
    worktree: Path, tmp_path: Path
) -> None:
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)

    with pytest.raises(UnsafePath, match="every user can write to it"):
        track(worktree, public / "store")

    assert list(public.iterdir()) == []


def test_a_store_may_lie_in_a_directory_like_tmp(worktree: Path, tmp_path: Path) -> None:
    """The sticky bit prevents others from replacing it."""
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o1777)

    assert track(worktree, public / "store")


@needs_root
def test_a_store_that_another_user_put_there_beforehand_is_refused(worktree: Path, tmp_path: Path) -> None:
    track(worktree)
    theirs = store_of(worktree)
    for path in [theirs, *theirs.rglob("*")]:
        os.chown(path, STRANGER, -1)
    before = sorted(path.name for path in theirs.rglob("*"))

    with pytest.raises(UnsafePath):
        track(worktree)

    assert sorted(path.name for path in theirs.rglob("*")) == before


def test_a_symlink_in_the_usual_place_of_the_store_is_refused(
    worktree: Path, store: Path, tmp_path: Path
) -> None:
    store.rename(tmp_path / "elsewhere")
    store.symlink_to(tmp_path / "elsewhere")

    for act in everything(worktree):
        with pytest.raises(UnsafePath):
            act()


def test_a_dangling_symlink_in_the_usual_place_of_the_store_is_refused(
    worktree: Path, tmp_path: Path
) -> None:
    place = store_of(worktree)
    place.parent.mkdir()
    place.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UnsafePath):
        track(worktree)

    assert not (tmp_path / "elsewhere").exists()


def test_a_given_symlink_leads_to_the_store(worktree: Path, tmp_path: Path) -> None:
    """A user who names a store by a link means its target."""
    real = tmp_path / "disk" / "store"
    (tmp_path / "link").symlink_to(real)

    tree = track(worktree, tmp_path / "link")

    assert recorded_trees(real)[-1].tree.hex() == tree
    assert Shadow(worktree, store=tmp_path / "link").store == real


def test_a_lock_in_a_store_that_others_can_write_to_is_not_written(worktree: Path, tmp_path: Path) -> None:
    """It might be another name of any of the user's files, and a directory of the store may be a link."""
    precious, victim = tmp_path / "precious", tmp_path / "victim"
    make_tree(tmp_path, {"precious": "my only copy", "victim": {"shadowtree-tmp-1": "mine"}})
    place = make_tree(tmp_path / "place", {"shadowtree.json": "{}", "refs": {"heads": link(str(victim))}})
    place.chmod(0o777)
    os.link(precious, place / "lock")

    with pytest.raises(UnsafePath):
        Shadow(worktree, store=place).track()

    assert precious.read_text() == "my only copy"
    assert stat.S_IMODE(precious.stat().st_mode) == 0o644
    assert_tree(victim, {"shadowtree-tmp-1": "mine"})


@needs_root
def test_what_another_user_left_beside_the_store_stays_and_disturbs_nobody(
    worktree: Path, store: Path
) -> None:
    dead = Child(lambda: None)
    dead.wait()
    planted = Path(f"{store}.{host_name()}-{dead.pid}-x.new")
    make_tree(planted, {"theirs": "1"})
    os.chown(planted, STRANGER, STRANGER)

    assert len(track(worktree)) == 40
    assert_tree(planted, {"theirs": "1"})


def test_a_directory_of_stores_that_cannot_be_listed_disturbs_nobody(
    worktree: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may be in a directory that its user can enter and not list."""
    real = os.listdir

    def listdir(path: str) -> list[str]:
        if path == str(store.parent):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)

    assert len(track(worktree)) == 40


def everything(worktree: Path) -> list[Callable[[], object]]:
    """Return every method of the library, each to be called on a new shadow."""
    tree = "0" * 40

    def act(do: Callable[[Shadow], object]) -> Callable[[], object]:
        def run() -> object:
            with Shadow(worktree, settings=SETTINGS) as shadow:
                return do(shadow)

        return run

    return [
        act(Shadow.track),
        act(Shadow.take_snapshot),
        act(Shadow.status),
        act(Shadow.diff),
        act(lambda shadow: shadow.patch(tree)),
    ]


COMMANDS = [("track",), ("wrap",), ("status",), ("diff",), ("patch", "0" * 40)]


# Refusals


def test_broad_worktrees_are_refused(worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(worktree / "ann"))
    (worktree / "ann").mkdir()

    for broad, why in [
        (Path("/"), "the root of the file system"),
        (worktree / "ann", "it is your home directory"),
        (worktree, "it contains your home directory"),
    ]:
        with pytest.raises(BroadWorktree, match=why):
            track(broad)
    assert not (tmp_path / "stores").exists()


def test_a_worktree_that_holds_the_directory_of_stores_is_refused(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWTREE_HOME", str(worktree / "stores"))

    with pytest.raises(BroadWorktree, match="it contains the directory of stores"):
        track(worktree)

    assert list(worktree.iterdir()) == []


def test_a_worktree_that_holds_its_own_store_is_refused(worktree: Path, terminal: Terminal) -> None:
    assert terminal.run("--store", worktree / ".store", "track") == 1

    assert "it contains its own store" in terminal.err
    assert list(worktree.iterdir()) == []


def test_a_symlink_does_not_hide_that_a_worktree_is_broad(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(worktree)
    monkeypatch.setenv("HOME", str(tmp_path / "link"))

    with pytest.raises(BroadWorktree):
        track(worktree)


@pytest.mark.parametrize("place", ["stores", "given"])
def test_a_broad_worktree_is_wrapped_on_demand_without_its_stores(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("HOME", str(worktree))
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    expected = git_tree(worktree, tmp_path / "scratch")
    given = worktree / "sub" / "store" if place == "given" else None
    if place == "stores":
        monkeypatch.setenv("SHADOWTREE_HOME", str(worktree / "sub" / "stores"))
        make_tree(tmp_path / "other", {"c": "3"})
        track(tmp_path / "other")

    with Shadow(worktree, store=given, settings=SETTINGS, allow_broad=True) as shadow:
        trees = [shadow.track() for _ in range(3)]

    assert trees == [expected] * 3
    assert worktree / "sub" in shadow.store.parents


def test_the_command_wraps_a_broad_worktree_on_demand(
    worktree: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(worktree))

    assert terminal.run("track") == 1
    assert terminal.err.startswith("shadowtree: ")
    assert "--allow-broad" in terminal.err
    assert terminal.run("track", "--allow-broad") == 0


def test_a_worktree_inside_its_own_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "given" / "inner").mkdir(parents=True)

    with pytest.raises(UnsafePath):
        Shadow(tmp_path / "given" / "inner", store=tmp_path / "given")


def test_a_worktree_inside_any_store_is_refused(store: Path) -> None:
    for inside in (store, store / "objects"):
        with pytest.raises(ShadowError):
            track(inside)


@pytest.mark.parametrize(
    ("setting", "limit", "figures"),
    [
        ("max_files", 2, "it has 3 files, and max_files is 2"),
        ("max_bytes", 9, "it has 10 B, and max_bytes is 9 B"),
    ],
)
def test_a_first_snapshot_that_is_too_big_is_refused_with_the_figures(
    worktree: Path, tmp_path: Path, setting: str, limit: int, figures: str
) -> None:
    make_tree(worktree, {"a": "12345", "sub": {"b": "678", "c": "90"}})

    with (
        Shadow(worktree, settings={**SETTINGS, setting: limit}) as shadow,
        pytest.raises(WorktreeTooBig) as caught,
    ):
        shadow.track()

    assert figures in str(caught.value)
    assert (caught.value.found, caught.value.limit) == (limit + 1, limit)
    assert not (tmp_path / "stores").exists()
    with Shadow(worktree, settings={**SETTINGS, setting: limit + 1}) as shadow:
        assert shadow.track()


def test_a_first_snapshot_that_would_fill_the_disk_is_refused_with_the_figures(
    worktree: Path, tmp_path: Path
) -> None:
    make_tree(worktree, {"a": "12345"})

    with (
        Shadow(worktree, settings={"min_free": 1 << 59}) as shadow,
        pytest.raises(OutOfSpace) as caught,
    ):
        shadow.track()

    assert caught.value.needed == 5
    assert caught.value.min_free == 1 << 59
    assert caught.value.free is not None
    assert 0 < caught.value.free < 1 << 59
    for figure in (caught.value.free, caught.value.needed, caught.value.min_free):
        assert describe_size(figure) in str(caught.value)
    assert not (tmp_path / "stores").exists()


def test_a_later_snapshot_that_would_fill_the_disk_is_refused_too(worktree: Path, store: Path) -> None:
    before = recorded_trees(store)
    make_tree(worktree, {"a": "changed"})

    with Shadow(worktree, settings={"min_free": 1 << 59}) as shadow, pytest.raises(OutOfSpace):
        shadow.track()

    assert recorded_trees(store) == before
    assert track(worktree) != before[-1].tree.hex()


@pytest.fixture
def nearly_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every disk has a gigabyte and a thousand bytes free."""
    statvfs = os.statvfs

    def claim(path: str) -> SimpleNamespace:
        found = statvfs(path)
        free = {"f_frsize": 1, "f_bavail": 10**9 + 1000}
        return SimpleNamespace(**free, f_files=found.f_files, f_favail=found.f_favail, f_fsid=found.f_fsid)

    monkeypatch.setattr(os, "statvfs", claim)


@pytest.mark.usefixtures("nearly_full")
def test_what_a_snapshot_is_about_to_store_counts_as_taken(worktree: Path, store: Path) -> None:
    before = recorded_trees(store)
    make_tree(worktree, {"new": "x" * 1100})

    with Shadow(worktree, settings={"min_free": 10**9}) as shadow:
        with pytest.raises(OutOfSpace) as caught:
            shadow.track()
        assert caught.value.free == 10**9 + 1000
        assert recorded_trees(store) == before
        make_tree(worktree, {"new": "x" * 900})
        assert shadow.track()


@pytest.mark.usefixtures("store", "nearly_full")
def test_an_act_may_take_what_has_to_stay_free_for_recording(worktree: Path) -> None:
    make_tree(worktree, {"large": "x" * 1100, "small": "x" * 900})
    with Shadow(worktree, settings=SETTINGS) as shadow, shadow.message("m1"):
        (worktree / "large").unlink()
        (worktree / "small").unlink()

    with Shadow(worktree, settings={"min_free": 10**9}) as shadow:
        shadow.undo()

    assert (worktree / "small").exists()
    assert (worktree / "large").exists()


def test_limits_on_the_first_snapshot_do_not_stop_later_ones(worktree: Path, store: Path) -> None:
    make_tree(worktree, {"c": "3", "d": "4"})

    with Shadow(worktree, settings={**SETTINGS, "max_files": 1, "max_bytes": 1}) as shadow:
        assert shadow.track()


def test_limits_on_the_first_snapshot_hold_after_a_crash_left_a_store_without_records(
    worktree: Path,
) -> None:
    make_tree(worktree, {"a": "1", "b": "2"})

    def die_at_the_record() -> None:
        def die(act: str, path: str) -> None:
            if act == "commit":
                os.kill(os.getpid(), signal.SIGKILL)

        disk.before_write = die
        track(worktree)

    assert in_child(die_at_the_record).signal == signal.SIGKILL
    assert stores.exists(str(store_of(worktree)))

    with pytest.raises(WorktreeTooBig):
        Shadow(worktree, settings={**SETTINGS, "max_files": 1}).track()


def test_the_command_refuses_with_the_figures_and_leaves_nothing(
    worktree: Path, terminal: Terminal, tmp_path: Path
) -> None:
    make_tree(worktree, {"a": "1", "b": "2"})

    assert terminal.run("wrap", "--set", "max_files=1") == 1
    assert "it has 2 files, and max_files is 1" in terminal.err
    assert terminal.err.count("\n") == 1
    assert not (tmp_path / "stores").exists()


# Worktrees that move


def test_a_moved_worktree_goes_on_with_its_store(worktree: Path, store: Path, tmp_path: Path) -> None:
    first = recorded_trees(store)[-1].tree.hex()
    moved = worktree.rename(tmp_path / "moved")
    make_tree(moved, {"a": "changed"})

    with Shadow.adopt(moved, store, settings=SETTINGS) as shadow:
        tree = shadow.track()
        patch = shadow.patch(first)

    assert shadow.store == store_of(moved)
    assert not store.exists()
    assert [record.tree.hex() for record in recorded_trees(shadow.store)] == [first, tree]
    assert [(file.path, file.status) for file in patch.files] == [("a", "modified")]
    assert git("--git-dir", shadow.store, "config", "core.worktree") == str(moved)
    assert_sound_store(shadow.store)


def test_the_command_adopts_a_store(
    worktree: Path, store: Path, tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = worktree.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)

    assert terminal.run("wrap", "moved", "--adopt", store, "--json") == 0
    assert json.loads(terminal.out)["store"] == str(store_of(moved))
    monkeypatch.chdir(moved)
    assert terminal.run("status") == 0


def test_a_given_store_stays_where_it_is_when_it_is_adopted(worktree: Path, tmp_path: Path) -> None:
    given = tmp_path / "disk" / "store"
    tree = track(worktree, given)
    moved = worktree.rename(tmp_path / "moved")

    with Shadow.adopt(moved, given, settings=SETTINGS) as shadow:
        assert shadow.store == given
        assert shadow.track() == tree


def test_only_a_store_can_be_adopted(worktree: Path, tmp_path: Path, terminal: Terminal) -> None:
    make_tree(tmp_path / "folder", {"mine": "precious"})

    for wrong in (tmp_path / "folder", tmp_path / "nowhere", worktree):
        with pytest.raises(InvalidInput):
            Shadow.adopt(worktree, wrong)
        assert terminal.run("wrap", "--adopt", wrong) == 2


@needs_root
def test_the_store_of_another_user_is_not_adopted(worktree: Path, store: Path, tmp_path: Path) -> None:
    os.chown(store, STRANGER, -1)
    moved = worktree.rename(tmp_path / "moved")

    with pytest.raises(UnsafePath):
        Shadow.adopt(moved, store)

    assert store.exists()


def test_a_store_is_not_adopted_over_another_one(worktree: Path, store: Path, tmp_path: Path) -> None:
    other = make_tree(tmp_path / "other", {"mine": "2"})
    tree = track(other)

    with pytest.raises(ShadowError):
        Shadow.adopt(other, store)

    assert store.exists()
    assert track(other) == tree


READING = [("status",), ("diff",), ("log",), ("undo",), ("patch", "0" * 40)]


@pytest.mark.parametrize("words", READING, ids=lambda words: words[0])
def test_another_project_at_the_old_path_is_noticed_by_commands_that_read(
    worktree: Path,
    store: Path,
    tmp_path: Path,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    worktree.rename(tmp_path / "moved")
    make_tree(worktree, {"mine": "2"})
    monkeypatch.chdir(worktree)

    assert terminal.run(*words) == 10
    assert "belongs to another directory" in terminal.err
    assert str(store) in terminal.err
    assert terminal.err.count("\n") == 1


@pytest.mark.parametrize("is_open", [False, True])
def test_another_project_at_the_old_path_gets_a_store_of_its_own(
    worktree: Path, store: Path, tmp_path: Path, is_open: bool
) -> None:
    """B11: and the old one is kept."""
    before = recorded_trees(store)
    with Shadow(worktree, settings=SETTINGS) as shadow:
        if is_open:
            shadow.status()
        moved = worktree.rename(tmp_path / "moved")
        make_tree(worktree, {"mine": "2"})
        assert shadow.messages() == []
        shadow.snapshot("m1")
        aside = Path(f"{store}-old")

        assert [message.id for message in shadow.messages()] == ["m1"]
        assert shadow.recovered == [
            f"another directory used to be at this path; its history is kept in {aside}"
        ]
    assert shadow.store == store
    assert recorded_trees(aside) == before
    assert sorted(known.store for known in list_stores(os.environ)) == sorted([str(store), str(aside)])
    with Shadow.adopt(moved, aside, settings=SETTINGS) as adopted:
        assert len(recorded_trees(adopted.store)) == len(before)


def test_a_directory_that_came_back_to_its_path_gets_its_store_back(
    worktree: Path, store: Path, tmp_path: Path
) -> None:
    before = recorded_trees(store)
    worktree.rename(tmp_path / "moved")
    make_tree(worktree, {"mine": "2"})
    track(worktree)
    shutil.rmtree(worktree)
    (tmp_path / "moved").rename(worktree)

    track(worktree)

    assert recorded_trees(store)[: len(before)] == before
    assert stores.exists(f"{store}-old2")


def test_a_worktree_that_is_gone_is_told_of(worktree: Path, store: Path) -> None:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        shadow.track()
        shutil.rmtree(worktree)

        for act in (shadow.track, shadow.status, shadow.diff):
            with pytest.raises(ShadowError):
                act()


def test_a_new_directory_with_the_old_inode_number_is_another_one(worktree: Path) -> None:
    """File systems reuse the number of a removed directory, often for the very next one."""
    make_tree(worktree, {"a": "1"})
    track(worktree)
    if directory_generation(str(worktree)) is None:
        pytest.skip("this file system does not tell directories apart that had the same number")
    inode, reused = worktree.stat().st_ino, 0
    for number in range(30):
        shutil.rmtree(worktree)
        make_tree(worktree, {"a": f"{number}"})
        reused += worktree.stat().st_ino == inode

        with Shadow(worktree, settings=SETTINGS) as shadow, pytest.raises(WorktreeReplaced):
            shadow.repair()
    if not reused:
        pytest.skip("this file system did not use the number again")


def test_the_device_number_is_no_part_of_the_identity(
    worktree: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes between boots."""
    identity = json.loads((store / "shadowtree.json").read_text())

    assert set(identity) == {"format", "worktree", "inode", "generation", "check"}


# Real git and the user's repository


def test_real_git_reads_the_store(worktree: Path, store: Path) -> None:
    first = recorded_trees(store)[-1].tree.hex()
    make_tree(worktree, {"a": "changed"})
    tree = track(worktree)

    assert git("--git-dir", store, "config", "core.worktree") == str(worktree)
    assert git("--git-dir", store, "rev-parse", "--show-toplevel") == str(worktree)
    assert "D  a" not in git("--git-dir", store, "status", "--short")
    assert git("--git-dir", store, "log", "--format=%s").splitlines() == ["A store of shadowtree"]
    assert git("--git-dir", store, "cat-file", "-p", f"{tree}:a") == "changed"
    assert git("--git-dir", store, "diff", "--name-status", first, tree) == "M\ta"


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "new\nline", "#hash;semi", " space "])
def test_real_git_finds_the_worktree_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    worktree = make_tree(tmp_path / name, {"a": "1"})
    track(worktree)

    found = git("--git-dir", store_of(worktree), "config", "--null", "core.worktree")

    assert found == f"{worktree}\0"


def test_what_git_packed_anew_is_read_like_ours(worktree: Path, store: Path, tmp_path: Path) -> None:
    """Somebody put all objects into one pack of git, with its deltas, and removed ours."""
    trees, text = [], [f"line {number} {random.random()}\n" for number in range(500)]
    for number in range(8):
        text[number * 50] = f"changed {number}\n"
        make_tree(worktree, {"text": "".join(text), "sub": {f"f{number}": "".join(text[::-1])}})
        trees.append(track(worktree))
    before = [patch_from(worktree, tree) for tree in trees]

    pack_with_git(store)

    assert "chain length" in git("--git-dir", store, "verify-pack", "-v", *map(str, store.rglob("*.idx")))
    assert [patch_from(worktree, tree) for tree in trees] == before
    assert_records_whole(store)
    assert track(worktree) == trees[-1]
    make_tree(worktree, {"after": "gc"})
    assert track(worktree) == git_tree(worktree, tmp_path / "scratch")
    with Shadow(worktree, settings=SETTINGS) as shadow:
        assert sum(file.additions for file in shadow.diff(trees[0], trees[1])) > 0
    git("--git-dir", store, "fsck", "--full", "--strict")
    assert_records_whole(store)


def pack_with_git(store: Path) -> None:
    """Put everything into one pack made by git."""
    ids = git("--git-dir", store, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    ours = list((store / "objects" / "pack").iterdir())
    subprocess.run(
        ["git", "--git-dir", store, "pack-objects", "-q", store / "objects" / "pack" / "pack"],
        input=ids.encode(),
        check=True,
        capture_output=True,
    )
    for path in ours:
        path.unlink()


def patch_from(worktree: Path, tree: str) -> Patch:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        return shadow.patch(tree)


def test_git_gc_under_an_open_shadow_disturbs_nothing(worktree: Path, store: Path, tmp_path: Path) -> None:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        first = shadow.track()
        for number in range(3):
            make_tree(worktree, {"a": f"round {number}"})
            shadow.track()
            git("--git-dir", store, "gc", "--quiet", "--prune=now")

            assert [file.path for file in shadow.patch(first).files] == ["a"]
            assert shadow.diff(first)
        assert shadow.track() == git_tree(worktree, tmp_path / "scratch")
    assert_records_whole(store)


def test_many_snapshots_beside_a_pack_of_git_still_merge_their_packs(worktree: Path, store: Path) -> None:
    pack_with_git(store)

    for number in range(60):
        make_tree(worktree, {"a": f"{number}"})
        track(worktree)

    assert len(list(store.rglob("*.pack"))) < 40
    assert_records_whole(store)
    assert_no_leftovers(store)


def test_the_store_outlives_the_repository_of_the_user(worktree: Path, tmp_path: Path) -> None:
    git("init", "--quiet", worktree)
    make_tree(worktree, {"a": "1", "sub": {"b": "2"}})
    git("add", "--all", cwd=worktree)
    git("commit", "--quiet", "-m", "one", cwd=worktree)
    first = track(worktree)
    make_tree(worktree, {"a": "changed"})

    shutil.rmtree(worktree / ".git")

    assert [file.path for file in patch_from(worktree, first).files] == ["a"]
    assert track(worktree) == git_tree(worktree, tmp_path / "scratch")
    assert_records_whole(store_of(worktree))
    assert_sound_store(store_of(worktree))


def test_the_repository_of_the_user_is_only_read(worktree: Path) -> None:
    git("init", "--quiet", worktree)
    make_tree(worktree, {"a": "1", ".gitignore": "ignored\n", "ignored": "x"})
    git("add", "a", cwd=worktree)
    before = manifest(worktree)

    track(worktree)
    for act in everything(worktree)[:-1]:
        act()

    assert manifest(worktree) == before


def manifest(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """List everything in a directory, with times."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_ino, content)
    return found


def test_git_variables_have_no_effect(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git("init", "--quiet", worktree)
    make_tree(worktree, {"a": "1", ".gitignore": "ignored\n*.log\n", "ignored": "x", "tracked.log": "y"})
    git("add", "--force", "a", "tracked.log", cwd=worktree)
    with Shadow(worktree, settings=SETTINGS) as shadow:
        expected = shadow.track(), shadow.store, shadow.take_snapshot().files
    elsewhere = tmp_path / "elsewhere"
    for name in (
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_CONFIG",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_SYSTEM",
        "GIT_CEILING_DIRECTORIES",
        "GIT_TEMPLATE_DIR",
        "GIT_NAMESPACE",
        "GIT_ATTR_SOURCE",
        "GIT_DEFAULT_HASH",
    ):
        monkeypatch.setenv(name, str(elsewhere))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.excludesFile")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", str(make_tree(tmp_path / "x", {"all": "*\n"}) / "all"))

    with Shadow(worktree, settings=SETTINGS) as shadow:
        assert (shadow.track(), shadow.store, shadow.take_snapshot().files) == expected
    shutil.rmtree(tmp_path / "stores")
    with Shadow(worktree, settings=SETTINGS) as shadow:
        assert (shadow.track(), shadow.store, shadow.take_snapshot().files) == expected
    assert not elsewhere.exists()


# Damage


def test_a_store_of_a_newer_format_is_refused(worktree: Path, store: Path, terminal: Terminal) -> None:
    identity = json.loads((store / "shadowtree.json").read_text())
    (store / "shadowtree.json").write_text(json.dumps({**identity, "format": FORMAT + 1, "new": "thing"}))

    for act in everything(worktree):
        with pytest.raises(StoreTooNew) as caught:
            act()
        assert (caught.value.found, caught.value.known) == (FORMAT + 1, FORMAT)
    for words in COMMANDS:
        assert terminal.run(*words) == 1
        assert "upgrade shadowtree" in terminal.err


def test_a_timeline_of_a_newer_format_is_refused(worktree: Path, store: Path, terminal: Terminal) -> None:
    with closing(sqlite3.connect(store / "timeline.db")) as connection:
        connection.execute("PRAGMA user_version = 99")

    for act in everything(worktree):
        with pytest.raises(StoreTooNew):
            act()
    assert terminal.run("track") == 1
    assert "upgrade shadowtree" in terminal.err


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"null",
        b'{"format": "1"}',
        b'{"format": 1}',
        b'{"format": null, "worktree": 1, "inode": 2, "generation": 3}',
        b'{"format": 1, "worktree": "/x", "inode": 2, "generation": 3, "more": 4}',
        b"[" * 100_000,
    ],
    ids=lambda content: content[:12].decode("latin-1"),
)
def test_an_identity_that_cannot_be_read_is_damage(
    worktree: Path, store: Path, terminal: Terminal, content: bytes
) -> None:
    (store / "shadowtree.json").write_bytes(content)

    assert_told_of_damage(worktree, terminal)


def assert_told_of_damage(worktree: Path, terminal: Terminal) -> None:
    """Check that every method raises for a damaged store, and that commands report it in one line."""
    for act in everything(worktree):
        with pytest.raises(StoreDamaged):
            act()
    for command in ("track", "status"):
        assert terminal.run(command) == 15
        assert terminal.err.startswith("shadowtree: the store is damaged: ")
        assert terminal.err.count("\n") == 1


def cut_to(size: int) -> Callable[[bytes], bytes]:
    return lambda content: content[:size]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"garbage",
        lambda content: random.Random(1).randbytes(len(content)),
        lambda content: b"\0" * len(content),
        cut_to(0),
        cut_to(50),
        cut_to(4096),
    ],
    ids=["garbage", "noise", "zeros", "empty", "cut in its header", "cut after a page"],
)
def test_a_timeline_that_cannot_be_read_is_damage(
    worktree: Path, store: Path, terminal: Terminal, damage: Callable[[bytes], bytes]
) -> None:
    path = store / "timeline.db"
    path.write_bytes(damage(path.read_bytes()))

    assert_told_of_damage(worktree, terminal)


def test_a_timeline_that_is_missing_is_damage(worktree: Path, store: Path, terminal: Terminal) -> None:
    (store / "timeline.db").unlink()

    for act in everything(worktree):
        with pytest.raises(StoreDamaged):
            act()
    assert terminal.run("track") == 15
    assert not (store / "timeline.db").exists()


@some_or_all(20)
def test_a_flipped_byte_of_the_timeline_never_gives_a_wrong_tree(
    worktree: Path, store: Path, tmp_path: Path, most: int | None
) -> None:
    make_tree(worktree, {"a": "changed"})
    tree = track(worktree)
    saved = save(store, tmp_path)
    content = (store / "timeline.db").read_bytes()
    for position in choose(range(0, len(content), 251), most):
        put_back(saved, store)
        flip(store / "timeline.db", position)

        ended = in_child(lambda: track(worktree))

        assert ended.signal is None, position
        if isinstance(ended.result, Raised):
            assert "ShadowError" in ended.result.names, (position, ended.last_words)
        else:
            assert ended.result == tree, position


# The cache


def spoil_cache(store: Path, content: bytes | None) -> None:
    for path in store.glob("cache.db*"):
        path.unlink()
    if content is not None:
        (store / "cache.db").write_bytes(content)
        (store / "cache.db").chmod(0o600)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: None,
        cut_to(0),
        cut_to(99),
        cut_to(4096),
        cut_to(8192),
        lambda content: b"garbage" * 1000,
        lambda content: b"\0" * len(content),
        lambda content: content + b"more",
        lambda content: content.replace(b"directories", b"directoriez"),
    ],
    ids=["deleted", "empty", "header", "page", "pages", "garbage", "zeros", "longer", "table"],
)
def test_a_spoilt_cache_only_costs_time(
    worktree: Path, store: Path, damage: Callable[[bytes], bytes | None]
) -> None:
    make_tree(worktree, {f"d{number}": {"a": f"{number}", "b": ""} for number in range(20)})
    tree = track(worktree)
    before = len(recorded_trees(store))
    spoil_cache(store, damage((store / "cache.db").read_bytes()))

    assert track(worktree) == tree
    assert len(recorded_trees(store)) == before
    (worktree / "a").write_text("changed")
    assert track(worktree) != tree
    assert_sound_store(store)


@some_or_all(15)
def test_a_flipped_byte_of_the_cache_only_costs_time(
    worktree: Path, store: Path, tmp_path: Path, most: int | None
) -> None:
    for name in ("d1", "d2"):
        make_tree(worktree, {name: {"a": name, "b": "", "c": {"d": name}}})
    expected = git_tree(worktree, tmp_path / "scratch")
    set_back_times(worktree)
    track(worktree)
    content = (store / "cache.db").read_bytes()
    used = [position for position in range(len(content)) if content[position]]
    for position in choose(random.Random(2).sample(used, 80), most):
        spoil_cache(store, content)
        flip(store / "cache.db", position)

        ended = in_child(lambda: track(worktree))

        assert ended.signal is None, position
        assert ended.result == expected, (position, ended.last_words)


def set_back_times(directory: Path) -> None:
    """Make files old enough for the cache to trust their stamps."""
    for path in [directory, *directory.rglob("*")]:
        os.utime(path, (1_000_000_000, 1_000_000_000))


def test_a_cache_that_cannot_be_written_only_costs_time(worktree: Path, store: Path) -> None:
    spoil_cache(store, None)
    (store / "cache.db").mkdir(mode=0o700)
    make_tree(worktree, {"a": "changed"})

    assert track(worktree) == track(worktree) == recorded_trees(store)[-1].tree.hex()


# Objects


def flip(path: Path, position: int) -> None:
    """Change one byte in place."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x41]))


@contextmanager
def times_kept(path: Path) -> Iterator[None]:
    """Change a file without changing its times, as a failing disk does."""
    status = path.stat()
    yield
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def save(store: Path, tmp_path: Path) -> Path:
    saved = tmp_path / "saved"
    shutil.copytree(store, saved)
    return saved


def damages(path: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Return ways to damage a file: flipped bytes in several places, cuts, emptying."""
    size = path.stat().st_size
    for position in sorted({*range(0, size, max(1, size // 5)), size - 1, size - 21, size - 41}):
        yield f"{path.suffix} flipped at {position}", lambda position=position: flip(path, position)  # type: ignore[misc]  # mypy cannot see the default
    for left in (size - 1, size // 2, 3):
        yield f"{path.suffix} cut to {left}", lambda left=left: os.truncate(path, left)  # type: ignore[misc]  # as above
    yield f"{path.suffix} emptied", lambda: os.truncate(path, 0)
    yield f"{path.suffix} removed", path.unlink


def all_damages(store: Path) -> list[tuple[Path, str, Callable[[], None]]]:
    paths = sorted(path for path in (store / "objects" / "pack").iterdir() if path.suffix != ".keep")
    return [(path, what, damage) for path in paths for what, damage in damages(path)]


@pytest.fixture
def two_packs(worktree: Path, large_packs: None) -> tuple[Path, str, str]:
    """A store with two packs, and the trees that were recorded in it."""
    make_tree(worktree, {"a": "1" * 50, "sub": {"b": "2", "c": {"d": "3"}}, "e": ""})
    first = track(worktree)
    make_tree(worktree, {"a": "changed", "sub": {"c": {"d": "changed too"}}})
    set_back_times(worktree)
    return store_of(worktree), first, track(worktree)


@some_or_all(9)
def test_damage_to_packs_that_shows_is_healed_from_the_worktree(
    worktree: Path, two_packs: tuple[Path, str, str], tmp_path: Path, most: int | None
) -> None:
    store, first, last = two_packs
    saved, before = save(store, tmp_path), patch_from(worktree, first)
    for _, what, damage in choose(all_damages(store), most):
        put_back(saved, store)
        track(worktree)
        damage()

        check_damaged(worktree, what, first, last, before)
        assert_last_whole(store, what)


def check_damaged(worktree: Path, what: str, first: str, last: str, before: Patch) -> None:
    """Check that every result is right, or an error that the store is damaged."""
    ended = in_child(lambda: track(worktree))
    assert ended.signal is None, what
    assert ended.result == last, (what, ended.last_words)
    for tree, expected in ((first, before.files), (last, [])):
        ended = in_child(lambda tree=tree: patch_from(worktree, tree).files)  # type: ignore[misc]  # mypy cannot see the default
        assert ended.signal is None, what
        if isinstance(ended.result, Raised):
            assert ended.result.names[0] == "StoreDamaged", (what, ended.last_words)
            assert tree == first, (what, ended.last_words)
        else:
            assert ended.result == expected, what


def assert_last_whole(store: Path, what: str) -> None:
    record, objects = recorded_trees(store)[-1], Objects(str(store / "objects"))
    try:
        for tree in (record.tree, record.facts):
            read_below(objects, tree, set())
    except StoreDamaged as error:
        error.add_note(what)
        raise
    finally:
        objects.close()


@some_or_all(9)
def test_damage_to_packs_that_does_not_show_is_found_by_whoever_reads(
    worktree: Path, two_packs: tuple[Path, str, str], tmp_path: Path, most: int | None
) -> None:
    """A disk that loses data leaves times and sizes unchanged."""
    store, first, last = two_packs
    saved, before = save(store, tmp_path), patch_from(worktree, first)
    flips = [each for each in all_damages(store) if "flipped" in each[1]]
    for path, what, damage in choose(flips, most):
        put_back(saved, store)
        track(worktree)
        with times_kept(path):
            damage()

        for tree, expected in ((first, before.files), (last, [])):
            ended = in_child(lambda tree=tree: patch_from(worktree, tree).files)  # type: ignore[misc]  # mypy cannot see the default
            assert ended.signal is None, what
            if isinstance(ended.result, Raised):
                assert ended.result.names[0] == "StoreDamaged", (what, ended.last_words)
            else:
                assert ended.result == expected, what
        ended = in_child(lambda: track(worktree))
        assert ended.signal is None, what
        assert ended.result == last or ended.result.names[0] == "StoreDamaged", (what, ended.last_words)


@pytest.mark.usefixtures("large_packs")
def test_packs_that_go_under_an_open_shadow_are_written_again(worktree: Path, store: Path) -> None:
    """An object that a process has proved to be stored may have been removed since."""
    with Shadow(worktree, settings=SETTINGS) as shadow:
        tree = shadow.track()
        for path in (store / "objects" / "pack").iterdir():
            path.unlink()

        assert shadow.track() == tree
    assert_last_whole(store, "after the packs were removed")


@pytest.mark.usefixtures("large_packs")
@pytest.mark.parametrize("size", [0, 40])
@pytest.mark.parametrize("suffix", [".idx", ".pack"])
def test_a_pack_cut_under_an_open_shadow_does_not_kill_the_process(
    worktree: Path, store: Path, suffix: str, size: int
) -> None:
    def go_on() -> str:
        with Shadow(worktree, settings=SETTINGS) as shadow:
            with shadow.message("m1"):
                make_tree(worktree, {"a": "2" * 50})
            shadow.diff_message(shadow.messages()[-1])
            for path in (store / "objects" / "pack").glob(f"*{suffix}"):
                os.truncate(path, size)
            make_tree(worktree, {"a": "changed"})
            with suppress(ShadowError):
                shadow.diff_message(shadow.messages()[-1])
            with suppress(ShadowError):
                shadow.gc()
            with suppress(ShadowError):
                shadow.tidy(60)
            return shadow.track()

    ended = in_child(go_on)

    assert ended.signal is None
    if isinstance(ended.result, Raised):
        assert "ShadowError" in ended.result.names, ended.last_words


@pytest.mark.parametrize("damage", ["emptied", "removed", "of nothing"])
def test_no_recorded_tree_depends_on_the_branch(worktree: Path, store: Path, damage: str) -> None:
    """The branch exists only for git; `git gc` keeps the packs because of their `.keep` files."""
    ref = store / "refs" / "heads" / "shadowtree"
    if damage == "removed":
        ref.unlink()
    else:
        ref.write_text("" if damage == "emptied" else f"{'1' * 40}\n")
    make_tree(worktree, {"a": "changed"})
    track(worktree)
    with suppress(AssertionError):
        git("--git-dir", store, "gc", "--quiet", "--prune=now")

    assert_records_whole(store)
    with Shadow(worktree, settings=SETTINGS) as shadow:
        shadow.repair()
        assert shadow.check(read_data=True).ok
    assert_sound_store(store)


def test_a_missing_directory_of_objects_is_damage(worktree: Path, store: Path, terminal: Terminal) -> None:
    shutil.rmtree(store / "objects")

    with pytest.raises(ShadowError):
        track(worktree)
    assert terminal.run("track") in (1, 15)
    assert "internal error" not in terminal.err


# Creating a store


def test_an_unchanged_worktree_writes_no_object(worktree: Path, store: Path) -> None:
    set_back_times(worktree)
    track(worktree)
    before = sorted(path.name for path in store.rglob("pack-*"))
    records = recorded_trees(store)

    track(worktree)

    assert sorted(path.name for path in store.rglob("pack-*")) == before
    assert recorded_trees(store) == records


@pytest.mark.parametrize("by_another", [False, True], ids=["by itself", "by another"])
def test_a_store_that_is_removed_and_made_anew_under_an_open_shadow_is_opened_again(
    worktree: Path, store: Path, tmp_path: Path, by_another: bool
) -> None:
    with Shadow(worktree, settings=SETTINGS) as shadow:
        shadow.track()
        shutil.rmtree(store)
        make_tree(worktree, {"a": "changed"})
        if by_another:
            assert in_child(lambda: track(worktree)).value()
            make_tree(worktree, {"a": "changed again"})
        tree = shadow.track()

    assert tree == git_tree(worktree, tmp_path / "scratch")
    assert recorded_trees(store)[-1].tree.hex() == tree
    assert_records_whole(store)
    assert_sound_store(store)


def test_a_store_that_another_process_just_made_is_as_good(worktree: Path, tmp_path: Path) -> None:
    place = tmp_path / "stores" / "store"
    made: list[str] = []

    def race(layout: object) -> None:
        if not made:
            made.append("first")
            stores.create(str(place), str(worktree), lambda layout: None)

    stores.create(str(place), str(worktree), race)

    assert [path.name for path in place.parent.iterdir()] == ["store"]
    assert read_identity(str(place)).worktree == str(worktree)


def test_a_store_whose_making_fails_leaves_nothing(worktree: Path, tmp_path: Path) -> None:
    place = tmp_path / "stores" / "store"

    def fail(layout: object) -> None:
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        stores.create(str(place), str(worktree), fail)

    assert list(place.parent.iterdir()) == []
