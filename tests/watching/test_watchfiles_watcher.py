"""The watcher that uses watchfiles: what it reports, and that it rescans if watchfiles fails."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree
from threading import Timer
from typing import Any

import pytest
from watchfiles import _rust_notify

from shadowtree import Shadow
from shadowtree.base.frozen import replace
from shadowtree.base.limits import Limits
from shadowtree.base.paths import ROOT, RelPath
from shadowtree.watching.watcher import Dirty, Doubt, Rescan
from shadowtree.watching.watchfiles_watcher import WatchfilesWatcher
from tests.support.trees import link, make_tree

LONG_S = 60.0

NOTHING = Dirty(set(), set(), is_new=False)


def paths(*names: str) -> set[RelPath]:
    return {RelPath(os.fsencode(name)) for name in names}


class FakeNotify:
    """Replaces watchfiles, and returns what a test gives it."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self._answer = answer

    def __call__(self, *words: Any, **options: Any) -> FakeNotify:  # Any: any arguments
        return self

    def watch(self, *words: Any) -> object:  # Any: any arguments
        return self._answer()

    def close(self) -> None:
        return


def refuse(error: Exception) -> Callable[..., Any]:  # Any: it does not return
    def raise_it(*words: Any, **options: Any) -> Any:
        raise error

    return raise_it


@pytest.fixture
def tree(worktree: Path) -> Path:
    return make_tree(worktree, {"a": "one", "src": {"b": "two", "deep": {"c": "three"}}})


# The watcher


@pytest.fixture
def cookies(tmp_path: Path) -> Path:
    return tmp_path / "cookies"


@pytest.fixture
def watcher(tree: Path, cookies: Path) -> Iterator[WatchfilesWatcher]:
    watcher = WatchfilesWatcher(str(tree), str(cookies))
    add_watches(watcher, "", "src", "src/deep")
    yield watcher
    watcher.close()
    assert list(cookies.iterdir()) == []


def add_watches(watcher: WatchfilesWatcher, *names: str) -> None:
    for name in names:
        fd = os.open(os.path.join(watcher.root, name), os.O_RDONLY)
        assert watcher.add_watch(RelPath(name.encode()), fd)
        os.close(fd)


def dirty(watcher: WatchfilesWatcher) -> Dirty:
    told = watcher.dirty()
    assert isinstance(told, Dirty), told
    return replace(told, writing=frozenset())


def test_nothing_happened(watcher: WatchfilesWatcher) -> None:
    assert dirty(watcher) == NOTHING
    assert not watcher.drain()
    assert watcher.fileno() is None
    assert watcher.count == 3
    assert watcher.is_watched(ROOT)
    watcher.remove_watch(ROOT)
    assert not watcher.is_watched(ROOT)


def test_each_change_is_told_by_the_next_call(watcher: WatchfilesWatcher, tree: Path) -> None:
    """There is no pause between the change and the call."""
    (tree / "a").write_text("new")
    assert dirty(watcher).paths == paths("a")
    (tree / "src" / "b").chmod(0o600)
    assert dirty(watcher).paths == paths("src/b")
    (tree / "src" / "b").rename(tree / "b")
    assert dirty(watcher).paths == paths("src/b", "b")
    (tree / "b").unlink()
    assert dirty(watcher).paths == paths("b")
    os.symlink("a", tree / "ln")
    assert dirty(watcher).paths == paths("ln")
    assert dirty(watcher) == NOTHING


def test_hundreds_of_changes_right_before_the_call(watcher: WatchfilesWatcher, tree: Path) -> None:
    dice = random.Random(5)
    for number in range(300):
        names = {f"f{dice.randrange(20)}" for _ in range(dice.randrange(1, 4))}
        for name in names:
            (tree / "src" / name).write_text(f"{number}")

        assert dirty(watcher).paths >= {RelPath(b"src/" + name.encode()) for name in names}


def test_what_was_drained_is_told(watcher: WatchfilesWatcher, tree: Path) -> None:
    (tree / "a").write_text("new")
    assert watcher.drain()
    assert not watcher.drain()
    (tree / "a").write_text("newer")
    assert watcher.drain()

    assert dirty(watcher).paths == paths("a")


def test_files_that_changed_may_still_be_written(watcher: WatchfilesWatcher, tree: Path) -> None:
    """Writes by a name that was removed are not reported."""
    (tree / "a").write_text("new")
    (tree / "src" / "b").write_text("new")
    told = watcher.dirty()
    assert isinstance(told, Dirty)
    assert told.writing == paths("a", "src/b")
    (tree / "a").unlink()
    told = watcher.dirty()
    assert isinstance(told, Dirty)
    assert told.writing == paths("src/b")


def test_a_directory_that_came_is_looked_at_twice(watcher: WatchfilesWatcher, tree: Path) -> None:
    """Files that are created in it before it is watched are not reported."""
    make_tree(tree, {"p": {"q": {"r": {"f": "x"}}}})

    assert RelPath(b"p") in dirty(watcher).trees
    assert RelPath(b"p") in dirty(watcher).trees
    assert dirty(watcher) == NOTHING


def test_a_directory_that_was_moved_or_went_is_looked_at(watcher: WatchfilesWatcher, tree: Path) -> None:
    (tree / "src" / "deep").rename(tree / "moved")
    assert dirty(watcher).trees >= paths("src/deep", "moved")
    add_watches(watcher, "moved")
    rmtree(tree / "moved")
    assert RelPath(b"moved") in dirty(watcher).trees


def test_what_happens_in_a_directory_that_nobody_watches_is_not_told(
    watcher: WatchfilesWatcher, tree: Path
) -> None:
    (tree / "ignored").mkdir()
    dirty(watcher)
    dirty(watcher)
    (tree / "ignored" / "x").write_text("x")
    assert not watcher.drain()
    assert dirty(watcher) == NOTHING
    add_watches(watcher, "ignored")
    (tree / "ignored" / "x").write_text("y")
    assert dirty(watcher).paths == paths("ignored/x")


def test_what_went_and_was_not_watched_may_have_been_a_link(watcher: WatchfilesWatcher, tree: Path) -> None:
    make_tree(tree, {"ignored": {"x": "x"}})
    dirty(watcher)
    rmtree(tree / "ignored")

    assert_rescan(watcher, tree, "may be at another path")


def test_our_own_temporaries_are_not_told(watcher: WatchfilesWatcher, tree: Path) -> None:
    (tree / ".shadowtree-tmp-0123456789ab-1").touch()

    assert not watcher.drain()


def test_a_change_that_is_told_by_the_name_of_a_link_is_found(tree: Path, cookies: Path) -> None:
    """watchfiles follows links, and reports a directory with two names by one of them."""
    make_tree(
        tree, {"packages": {"x": "1"}, "node_modules": {"pkg": link("../packages")}, "z": link("packages")}
    )
    watcher = WatchfilesWatcher(str(tree), str(cookies))
    add_watches(watcher, "", "packages")
    (tree / "packages" / "x").write_text("2")

    assert RelPath(b"packages/x") in dirty(watcher).paths
    watcher.close()


def test_what_a_vanished_link_may_have_told_is_doubtful(tree: Path, cookies: Path) -> None:
    make_tree(tree, {"packages": {"x": "1"}, "z": link("packages")})
    watcher = WatchfilesWatcher(str(tree), str(cookies))
    add_watches(watcher, "", "packages")
    (tree / "packages" / "x").write_text("2")
    (tree / "z").unlink()

    told = watcher.dirty()
    assert isinstance(told, Rescan) or RelPath(b"packages/x") in told.paths
    watcher.close()


def test_what_happens_behind_a_link_that_leads_out_is_not_told(
    tree: Path, tmp_path: Path, cookies: Path
) -> None:
    (tmp_path / "outside").mkdir()
    os.symlink(tmp_path / "outside", tree / "out")
    watcher = WatchfilesWatcher(str(tree), str(cookies))
    add_watches(watcher, "")
    (tmp_path / "outside" / "x").touch()

    assert dirty(watcher) == NOTHING
    watcher.close()


def assert_rescan(watcher: WatchfilesWatcher, tree: Path, reason: str) -> None:
    """Assert that it reports the reason once, and then works again."""
    told = watcher.dirty()
    assert isinstance(told, Rescan)
    assert reason in told.reason
    assert watcher.count == 0
    add_watches(watcher, "")
    (tree / "after").touch()
    assert dirty(watcher).paths == paths("after")


def test_a_name_that_is_no_utf8_is_a_rescan(watcher: WatchfilesWatcher, tree: Path) -> None:
    with open(os.fsencode(tree) + b"/\xff", "wb"):
        pass

    assert_rescan(watcher, tree, "watchfiles gave up")


def test_another_directory_in_place_of_the_root_is_a_rescan(watcher: WatchfilesWatcher, tree: Path) -> None:
    tree.rename(tree.with_name("away"))
    tree.mkdir()

    assert_rescan(watcher, tree, "the directory was replaced")


def test_more_than_can_be_told_is_a_rescan(tree: Path, cookies: Path) -> None:
    watcher = WatchfilesWatcher(str(tree), str(cookies), Limits(most_watchfiles_paths=40))
    add_watches(watcher, "")
    for number in range(50):
        (tree / f"n{number}").touch()

    assert_rescan(watcher, tree, "too many changes at once")
    watcher.close()


def test_a_cookie_that_is_not_told_in_time_is_a_rescan(
    watcher: WatchfilesWatcher, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(watcher, "_notify", FakeNotify(lambda: "timeout"))
        assert watcher.drain()

    monkeypatch.setattr(watcher, "_notify", None)
    assert_rescan(watcher, tree, "a test change was not reported in time")


def test_no_room_for_a_cookie_is_a_rescan(watcher: WatchfilesWatcher, tree: Path, cookies: Path) -> None:
    cookies.rename(cookies.with_name("elsewhere"))
    assert watcher.drain()
    cookies.with_name("elsewhere").rename(cookies)

    assert_rescan(watcher, tree, "a cookie file cannot be created")


def test_after_a_fork_everything_is_looked_at(
    watcher: WatchfilesWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(watcher, "_process", os.getpid() + 1)

        assert watcher.dirty() == Rescan("another process is watching")
        assert watcher.dirty() == Rescan("another process is watching")


def test_one_that_is_closed_stays_so(tree: Path, cookies: Path) -> None:
    watcher = WatchfilesWatcher(str(tree), str(cookies))
    watcher.close()
    watcher.close()

    assert watcher.drain()
    assert watcher.dirty() == Rescan("it was closed")
    assert watcher.dirty() == Rescan("it was closed")


def test_one_that_cannot_begin_again_does_not_try_each_time(
    watcher: WatchfilesWatcher, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(os.fsencode(tree) + b"/\xff", "wb"):
        pass
    tries: list[object] = []

    def refuse_and_count(*words: Any, **options: Any) -> None:
        tries.append(words)
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(_rust_notify, "RustNotify", refuse_and_count)
    for _ in range(5):
        assert isinstance(watcher.dirty(), Rescan)

    assert len(tries) == 1


@pytest.mark.parametrize(
    "error", [OSError("OS file watch limit reached"), RuntimeError("who knows")], ids=["limit", "other"]
)
def test_a_system_that_does_not_let_us_watch_is_an_error(
    tree: Path, cookies: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rust_notify, "RustNotify", refuse(error))

    with pytest.raises(Doubt, match="watchfiles cannot watch"):
        WatchfilesWatcher(str(tree), str(cookies))


def test_watching_that_does_not_begin_is_an_error(
    tree: Path, cookies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rust_notify, "RustNotify", FakeNotify(lambda: "timeout"))

    with pytest.raises(Doubt, match="was not reported in time"):
        WatchfilesWatcher(str(tree), str(cookies))


def test_ctrl_c_is_not_swallowed(watcher: WatchfilesWatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """watchfiles returns a word instead of raising."""
    with monkeypatch.context() as patched:
        patched.setattr(watcher, "_notify", FakeNotify(lambda: "signal"))
        with pytest.raises(KeyboardInterrupt):
            watcher.dirty()
        patched.setattr(watcher, "_notify", None)
        assert isinstance(watcher.dirty(), Rescan)


def test_a_real_ctrl_c_while_it_waits(tree: Path, cookies: Path) -> None:
    watcher = WatchfilesWatcher(str(tree), str(cookies), Limits(cookie_timeout_s=LONG_S))
    # The directory in its place is not watched, so no cookie in it is reported.
    cookies.rmdir()
    cookies.mkdir()
    timer = Timer(0.2, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()

    with pytest.raises(KeyboardInterrupt):
        watcher.dirty()
    timer.join()
    watcher.close()


def test_cookies_that_were_left_behind_are_removed(tree: Path, cookies: Path) -> None:
    cookies.mkdir()
    (cookies / "cookie-1-2-old").touch()
    os.utime(cookies / "cookie-1-2-old", (0, 0))
    (cookies / "cookie-1-3-new").touch()

    WatchfilesWatcher(str(tree), str(cookies)).close()

    assert [entry.name for entry in cookies.iterdir()] == ["cookie-1-3-new"]
    (cookies / "cookie-1-3-new").unlink()


# Instead of the kernel's own interface


def test_a_shadow_that_watches_this_way_sees_what_a_cold_one_sees(tree: Path, tmp_path: Path) -> None:
    """Random edits, with a snapshot right after each."""
    (tree / ".gitignore").write_text("*.log\nbuild/\n")
    dice = random.Random(7)
    with (
        Shadow(tree, settings={"min_free": 0, "watcher": "watchfiles"}, watch=True) as shadow,
        Shadow(tree, store=tmp_path / "cold", settings={"min_free": 0}) as cold,
    ):
        for number in range(120):
            _edit(tree, dice, number)

            assert shadow.track() == cold.track(), number
        watching = shadow.watching
        assert watching is not None
        assert watching.is_active
        assert watching.rescans < 60


def _edit(root: Path, dice: random.Random, number: int) -> None:
    """Make one change of the kinds that people and programs make."""
    names = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    directories = [root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())]
    directory, act = dice.choice(directories), dice.randrange(8)
    if act == 0 and len(directories) > 3 and directory != root:
        rmtree(directory)
    elif act == 1:
        make_tree(directory, {f"d{number}": {"e": {"f": f"{number}"}}, f"build{number % 2}": {"o": "x"}})
    elif act == 2 and directory != root:
        directory.rename(root / f"moved{number}")
    elif act == 3 and names:
        dice.choice(names).unlink()
    elif act == 4 and names:
        old = dice.choice(names)
        new = old.with_name(f"{old.name}~")
        new.write_text(f"{number}")
        new.rename(old)
    elif act == 5:
        (directory / f"x{number}.log").write_text("ignored")
    else:
        (directory / f"f{dice.randrange(6)}").write_text(f"{number}")
