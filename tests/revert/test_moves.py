"""Moves on a real directory: carried out, cleaned up, rolled back, and interrupted at every point."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadowtree.base.errors import Conflict, StoreDamaged, WorktreeFailed
from shadowtree.base.paths import DIRECTORY, MODE_LINK, Change, PathState, RelPath, Unknown
from shadowtree.revert.intents import FINISHED, ROLLED_BACK, ActIntent, Move, decode_intent, order_moves
from shadowtree.revert.moves import carry_out, clean_up, identify_files, roll_back
from shadowtree.revert.writer import BEING_WRITTEN, NO_FILE, Writer
from shadowtree.store.git_format import object_id
from shadowtree.system import disk
from shadowtree.system import syscalls as system
from tests.support.trees import File, Link, Tree, assert_tree, executable, file, link, make_tree, read_tree

State = PathState | None


def state_of(value: object) -> State:
    """Return the state of an entry of a tree in the tests."""
    if value is None:
        return None
    if isinstance(value, dict):
        return DIRECTORY
    if isinstance(value, Link):
        return PathState(MODE_LINK, object_id(b"blob", value.target))
    entry = value if isinstance(value, File) else File(_bytes(value))
    return PathState(stat.S_IFREG | entry.mode, object_id(b"blob", entry.content))


def flatten(tree: Tree, above: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in tree.items():
        found[above + name] = value
        if isinstance(value, dict):
            found.update(flatten(value, f"{above}{name}/"))
    return found


def _content(value: object) -> bytes:
    return value.content if isinstance(value, File) else _bytes(value)


def _bytes(value: object) -> bytes:
    assert isinstance(value, str | bytes)
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


class Contents:
    """A store that contains the files of some trees, and yields them in small pieces."""

    def __init__(self, *trees: Tree) -> None:
        self.contents: dict[bytes, bytes] = {}
        for tree in trees:
            for value in flatten(tree).values():
                if isinstance(value, dict):
                    continue
                content = value.target if isinstance(value, Link) else _content(value)
                self.contents[object_id(b"blob", content)] = content

    def read(self, blob: bytes) -> Iterator[bytes]:
        content = self.contents[blob]
        return (content[start : start + 3] for start in range(0, len(content), 3))


def plan(before: Tree, after: Tree) -> list[Move]:
    """Order the moves from one tree to another."""
    old, new = flatten(before), flatten(after)
    changes = [
        Change(RelPath(os.fsencode(path)), state_of(old.get(path)), state_of(new.get(path)))
        for path in sorted({*old, *new}, key=os.fsencode)
        if state_of(old.get(path)) != state_of(new.get(path))
    ]
    return order_moves(changes, "t")


def plan_in(worktree: Path, before: Tree, after: Tree) -> list[Move]:
    """Order the moves, and note which files they are about."""
    make_tree(worktree, before)
    with Writer(str(worktree)) as writer:
        return identify_files(plan(before, after), writer)


def clean(moves: list[Move], writer: Writer, contents: Contents) -> list[RelPath]:
    return clean_up(moves, writer)


def temporaries(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob(".shadowtree-tmp-*"))


def stamps(root: Path) -> dict[str, tuple[int, int, int]]:
    """Show which files were not written again: by inode, mtime and mode, and for directories by inode."""
    found = {}
    for path in root.rglob("*"):
        status = path.lstat()
        is_directory = stat.S_ISDIR(status.st_mode)
        found[str(path.relative_to(root))] = (
            status.st_ino,
            0 if is_directory else status.st_mtime_ns,
            status.st_mode,
        )
    return found


CASES: dict[str, tuple[Tree, Tree]] = {
    "edited": ({"a": "old"}, {"a": "new content"}),
    "made": ({}, {"a": "new"}),
    "made empty": ({}, {"a": ""}),
    "deleted": ({"a": "old"}, {}),
    "bits": ({"a": file("same", 0o600)}, {"a": file("same", 0o755)}),
    "bits and content": ({"a": file("old", 0o600)}, {"a": executable("new")}),
    "link made": ({}, {"ln": link("to")}),
    "link changed": ({"ln": link("one")}, {"ln": link("two")}),
    "link deleted": ({"ln": link("nowhere")}, {}),
    "link to file": ({"x": link("y")}, {"x": "y"}),
    "file to link": ({"x": "y"}, {"x": link("y")}),
    "link to directory": ({"x": link("s"), "s": {}}, {"x": {"in": "1"}, "s": {}}),
    "directory to link": ({"x": {"in": "1"}, "s": {}}, {"x": link("s"), "s": {}}),
    "directory made": ({}, {"d": {}}),
    "directory deleted": ({"d": {}}, {}),
    "deep made": ({}, {"d": {"e": {"f": {"a": "1", "ln": link("a")}, "g": {}}}}),
    "deep deleted": ({"d": {"e": {"f": {"a": "1", "ln": link("a")}, "g": {}}}}, {}),
    "file to directory": ({"p": "old"}, {"p": {"q": {"x": "1"}, "y": "2"}}),
    "directory to file": ({"p": {"q": {"x": "1"}, "y": "2"}}, {"p": "new"}),
    "places changed": ({"a": "1", "b": {"x": "2"}}, {"a": {"x": "3"}, "b": "4"}),
    "in a directory that stays": ({"s": {"a": "1", "keep": "k"}}, {"s": {"b": "2", "keep": "k"}}),
    "no UTF-8": (
        {"\udcff": {"\udcfe": b"\xff\0"}, "ln": link(b"\xff")},
        {"\udcff": {"\udcfd": b"\0\xff"}, "ln": link(b"\xfe\xff")},
    ),
    "bits that forbid": ({"a": file("old", 0o400)}, {"a": file("new", 0o444), "b": file("1", 0o000)}),
    "all at once": (
        {
            "gone": "1",
            "edit": "1",
            "bits": file("1", 0o600),
            "d": {"e": {"x": "1"}},
            "p": "1",
            "l": link("x"),
        },
        {"new": "2", "edit": "2", "bits": file("1", 0o640), "d": "2", "p": {"q": "2"}, "l": link("y")},
    ),
}

every_case = pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """End at this write, counted from 0; yield the writes until then."""
    writes: list[str] = []

    def announce(act: str, path: str) -> None:
        if len(writes) == number:
            raise Killed
        writes.append(act)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "before_write", announce)
        yield writes


# Carried out


@every_case
def test_moves_bring_one_tree_to_another(worktree: Path, before: Tree, after: Tree) -> None:
    make_tree(worktree, before)
    moves, contents = plan(before, after), Contents(before, after)
    with Writer(str(worktree)) as writer:
        done = carry_out(moves, writer, contents.read)
        left = clean(moves, writer, contents)

    assert done == moves
    assert left == []
    assert_tree(worktree, after)


@every_case
def test_what_is_replaced_waits_until_it_is_cleaned_up(worktree: Path, before: Tree, after: Tree) -> None:
    make_tree(worktree, before)
    moves, contents = plan(before, after), Contents(before, after)
    inodes = {stamp[0] for stamp in stamps(worktree).values()}
    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)

    assert inodes == inodes & {stamp[0] for stamp in stamps(worktree).values()}


@every_case
def test_moves_taken_back_give_the_very_same_files(worktree: Path, before: Tree, after: Tree) -> None:
    moves, contents = plan_in(worktree, before, after), Contents(before, after)
    was = stamps(worktree)
    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)
        left = roll_back(moves, writer, contents.read).left

    assert left == []
    assert_tree(worktree, before)
    assert stamps(worktree) == was


@every_case
def test_what_never_began_can_be_taken_back(worktree: Path, before: Tree, after: Tree) -> None:
    make_tree(worktree, before)
    was = stamps(worktree)
    with Writer(str(worktree)) as writer:
        assert roll_back(plan(before, after), writer, Contents(before, after).read).left == []

    assert_tree(worktree, before)
    assert stamps(worktree) == was


@pytest.mark.parametrize("umask", [0, 0o077, 0o777], ids=oct)
@pytest.mark.parametrize("mode", [0o000, 0o400, 0o600, 0o644, 0o666, 0o755, 0o777], ids=oct)
def test_bits_are_exact_whatever_the_umask(worktree: Path, umask: int, mode: int) -> None:
    before: Tree = {"bits": file("1", 0o640), "edit": file("1", 0o640)}
    after: Tree = {"bits": file("1", mode), "edit": file("2", mode), "new": file("3", mode)}
    make_tree(worktree, before)
    moves, contents = plan(before, after), Contents(before, after)
    old = os.umask(umask)
    try:
        with Writer(str(worktree)) as writer:
            carry_out(moves, writer, contents.read)
            clean(moves, writer, contents)
    finally:
        os.umask(old)

    assert_tree(worktree, after)


def test_many_files_are_made_durable_at_once(worktree: Path) -> None:
    after: Tree = {f"d{number}": {"a": str(number)} for number in range(30)}
    moves, contents = plan({}, after), Contents(after)
    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)
        clean(moves, writer, contents)

    assert_tree(worktree, after)


# Interrupted at every write


@every_case
@pytest.mark.parametrize("breaks_off", [carry_out, roll_back])
def test_what_is_broken_off_anywhere_is_taken_back(
    worktree: Path,
    before: Tree,
    after: Tree,
    breaks_off: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moves, contents = plan_in(worktree, before, after), Contents(before, after)
    was = stamps(worktree)
    for number in range(1000):
        if breaks_off is roll_back:
            with Writer(str(worktree)) as writer:
                carry_out(moves, writer, contents.read)
        with killed_at(number, monkeypatch) as writes, Writer(str(worktree)) as writer:
            try:
                breaks_off(moves, writer, contents.read)
            except Killed:
                pass
        with Writer(str(worktree)) as writer:
            assert roll_back(moves, writer, contents.read).left == []
        assert_tree(worktree, before)
        assert stamps(worktree) == was
        if len(writes) < number:
            break

    assert number > 1


@every_case
def test_cleaning_up_broken_off_anywhere_goes_on_where_it_was(
    tmp_path: Path, before: Tree, after: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves, contents = plan(before, after), Contents(before, after)
    for number in range(1000):
        root = make_tree(tmp_path / str(number), before)
        with Writer(str(root)) as writer:
            carry_out(moves, writer, contents.read)
        with killed_at(number, monkeypatch) as writes, Writer(str(root)) as writer:
            try:
                clean(moves, writer, contents)
            except Killed:
                pass
        with Writer(str(root)) as writer:
            assert clean(moves, writer, contents) == []
        assert_tree(root, after)
        if len(writes) < number or not writes:
            break


@pytest.mark.parametrize("so_far", [b"", b"new", b"new content"], ids=["empty", "half", "all but its bits"])
@pytest.mark.parametrize("old", [{"a": "old"}, {}], ids=["edited", "made"])
def test_a_file_that_was_staged_in_part_is_removed(worktree: Path, old: Tree, so_far: bytes) -> None:
    after: Tree = {"a": file("new content", 0o640)}
    make_tree(worktree, old)
    (move,) = moves = plan(old, after)
    place = worktree / os.fsdecode(move.temporary)
    place.write_bytes(so_far)
    place.chmod(0o600)
    with Writer(str(worktree)) as writer:
        assert roll_back(moves, writer, Contents(old, after).read).left == []

    assert_tree(worktree, old)


# File systems that cannot swap in one step


def swapped_in_part(root: Path, move: Move, *, steps: int) -> None:
    """Do the first of the three renames of a swap: path → temporary is the second."""
    path, place = (root / os.fsdecode(name) for name in (move.path, move.temporary))
    third = place.with_name(place.name + "-x")
    place.rename(third)
    if steps > 1:
        path.rename(place)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("case", ["edited", "link changed", "file to link", "link to file"])
def test_a_swap_that_died_between_its_renames_is_taken_back(worktree: Path, case: str, steps: int) -> None:
    before, after = CASES[case]
    make_tree(worktree, before)
    (move,) = moves = plan(before, after)
    make_tree(worktree, {os.fsdecode(move.temporary): next(iter(after.values()))})
    swapped_in_part(worktree, move, steps=steps)
    with Writer(str(worktree)) as writer:
        assert roll_back(moves, writer, Contents(before, after).read).left == []

    assert_tree(worktree, before)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("case", ["edited", "file to directory", "directory to file", "places changed"])
def test_a_swap_back_that_died_between_its_renames_goes_on(worktree: Path, case: str, steps: int) -> None:
    before, after = CASES[case]
    make_tree(worktree, before)
    moves, contents = plan(before, after), Contents(before, after)
    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)
    # Rolling back begins with the last swap, after the moves that follow it.
    swap = [move for move in moves if move.old is not None and move.new is not None][-1]
    with Writer(str(worktree)) as writer:
        roll_back(moves[moves.index(swap) + 1 :], writer, contents.read)
    swapped_in_part(worktree, swap, steps=steps)
    with Writer(str(worktree)) as writer:
        assert roll_back(moves, writer, contents.read).left == []

    assert_tree(worktree, before)


@pytest.fixture
def plain_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a file system that can neither swap nor refuse to replace."""

    def refuse(*values: object) -> None:
        raise OSError(95, "not offered")

    monkeypatch.setattr(system, "_rename", refuse)


@every_case
@pytest.mark.usefixtures("plain_renames")
def test_moves_need_nothing_but_plain_renames(worktree: Path, before: Tree, after: Tree) -> None:
    moves, contents = plan_in(worktree, before, after), Contents(before, after)
    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)
        assert roll_back(moves, writer, contents.read).left == []
    assert_tree(worktree, before)
    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)
        assert clean(moves, writer, contents) == []

    assert_tree(worktree, after)


def test_a_file_that_has_both_names_is_taken_back(worktree: Path) -> None:
    """If a move uses a hard link, a process that dies in between leaves both the old and the new name."""
    after: Tree = {"a": "new"}
    (move,) = moves = plan({}, after)
    make_tree(worktree, {"a": "new", ".shadowtree-tmp-t-00": file("", 0o600)})
    os.link(worktree / "a", worktree / os.fsdecode(move.temporary))
    with Writer(str(worktree)) as writer:
        assert roll_back(moves, writer, Contents(after).read).left == []

    assert_tree(worktree, {})


def test_a_deleted_file_that_has_both_names_is_taken_back(worktree: Path) -> None:
    before: Tree = {"a": "old"}
    make_tree(worktree, before)
    (move,) = moves = plan(before, {})
    os.link(worktree / "a", worktree / os.fsdecode(move.temporary))
    with Writer(str(worktree)) as writer:
        assert roll_back(moves, writer, Contents(before).read).left == []

    assert_tree(worktree, before)


# Somebody changes a path after the plan was made: before the act

MEANWHILE: dict[str, tuple[Tree, Tree, Tree]] = {
    "edited, saved over": ({"a": "old"}, {"a": "new"}, {"a": "user's"}),
    "edited, bits changed": ({"a": "old"}, {"a": "new"}, {"a": file("old", 0o600)}),
    "edited, now a link": ({"a": "old"}, {"a": "new"}, {"a": link("user's")}),
    "edited, now a directory": ({"a": "old"}, {"a": "new"}, {"a": {"u": "user's"}}),
    "deleted, saved over": ({"a": "old"}, {}, {"a": "user's"}),
    "deleted, now a directory": ({"a": "old"}, {}, {"a": {"u": "user's"}}),
    "made, occupied": ({}, {"a": "new"}, {"a": "user's"}),
    "made, occupied by a directory": ({}, {"a": "new"}, {"a": {}}),
    "made, occupied by a link": ({}, {"a": "new"}, {"a": link("nowhere")}),
    "bits, saved over": ({"a": file("1", 0o600)}, {"a": file("1", 0o644)}, {"a": file("user's", 0o600)}),
    "directory made, occupied": ({}, {"d": {}}, {"d": "user's"}),
    "directory made, already": ({}, {"d": {"a": "1"}}, {"d": {"u": "user's"}}),
    "file to directory, saved over": ({"p": "old"}, {"p": {"x": "1"}}, {"p": "user's"}),
    "file to directory, now one": ({"p": "old"}, {"p": {"x": "1"}}, {"p": {"u": "user's"}}),
    "directory to file, filled": ({"p": {"x": "1"}}, {"p": "new"}, {"p": {"x": "1", "u": "user's"}}),
    "directory deleted, now a file": ({"p": {"q": {"x": "1"}}}, {}, {"p": "user's"}),
    "directory to file, gone": ({"p": {"x": "1"}}, {"p": "new"}, {"p": "user's"}),
}


@pytest.mark.parametrize(("before", "after", "now"), MEANWHILE.values(), ids=MEANWHILE)
def test_what_somebody_did_meanwhile_stops_the_act_and_stays(
    worktree: Path, before: Tree, after: Tree, now: Tree
) -> None:
    """In addition to another path, which is moved and rolled back."""
    other: Tree = {"other": "1", "zz": {"other": "1"}}
    make_tree(worktree, {**now, **other})
    moves = plan({**before, **other}, {**after, "other": "2"})
    contents = Contents(before, after, {"other": "2"}, other)
    was = stamps(worktree)
    with Writer(str(worktree)) as writer:
        with pytest.raises((Conflict, WorktreeFailed)):
            carry_out(moves, writer, contents.read)
        roll_back(moves, writer, contents.read)

    assert_tree(worktree, {**now, **other})
    assert stamps(worktree) == was


def test_a_directory_that_somebody_filled_stays_and_the_rest_is_done(worktree: Path) -> None:
    before: Tree = {"d": {"e": {"x": "1"}, "y": "1"}}
    make_tree(worktree, {"d": {"e": {"x": "1", "u": "user's"}, "y": "1"}})
    moves, contents = plan(before, {}), Contents(before)
    with Writer(str(worktree)) as writer:
        done = carry_out(moves, writer, contents.read)
        assert clean(moves, writer, contents) == []

    assert [move.path for move in done] == [b"d/e/x", b"d/y"]
    assert_tree(worktree, {"d": {"e": {"u": "user's"}}})


# … and after the process died


@pytest.mark.parametrize(("before", "after", "now"), MEANWHILE.values(), ids=MEANWHILE)
@pytest.mark.parametrize("way", ["staged", "swapped"])
def test_what_somebody_did_after_the_crash_stays(
    worktree: Path, before: Tree, after: Tree, now: Tree, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(worktree, before)
    moves, contents = plan(before, after), Contents(before, after)
    ways = {"staged": _count_stages(moves), "swapped": 1000}
    with killed_at(ways[way], monkeypatch), Writer(str(worktree)) as writer:
        try:
            carry_out(moves, writer, contents.read)
        except Killed:
            pass
    for name in {*before, *after}:
        _remove(worktree / name)
    make_tree(worktree, now)
    was = stamps(worktree)
    with Writer(str(worktree)) as writer:
        roll_back(moves, writer, contents.read)
        # A second attempt succeeds, whatever was left.
        roll_back(moves, writer, contents.read)

    assert temporaries(worktree) == []
    found = stamps(worktree)
    for name in flatten(now):
        assert found[name] == was[name]
    assert [path for path, value in flatten(read_tree(worktree)).items() if value == File(b"user's")] == [
        path for path, value in flatten(now).items() if value == "user's"
    ]


def _count_stages(moves: list[Move]) -> int:
    return sum(move.new is not None and not move.is_mode_only for move in moves)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for entry in path.iterdir():
            _remove(entry)
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def test_what_somebody_saved_before_the_swap_goes_back_to_its_place(worktree: Path) -> None:
    """The temporary has the only copy of the user's bytes."""
    before: Tree = {"a": "old"}
    after: Tree = {"a": "new"}
    (move,) = moves = plan(before, after)
    make_tree(worktree, {"a": "new", os.fsdecode(move.temporary): "user's"})
    with Writer(str(worktree)) as writer:
        roll_back(moves, writer, Contents(before, after).read)

    assert_tree(worktree, {"a": "user's"})


def test_a_temporary_with_unknown_bytes_stays_if_its_place_is_taken(worktree: Path) -> None:
    before: Tree = {"a": "old"}
    after: Tree = {"a": "new"}
    (move,) = moves = plan(before, after)
    tree: Tree = {"a": "user's other", os.fsdecode(move.temporary): "user's"}
    make_tree(worktree, tree)
    with Writer(str(worktree)) as writer:
        assert roll_back(moves, writer, Contents(before, after).read).left == [b"a"]

    assert_tree(worktree, tree)


@pytest.mark.parametrize("old", [{"a": "old"}, {}], ids=["edited", "made"])
def test_cleaning_up_leaves_what_is_unexpected(worktree: Path, old: Tree) -> None:
    after: Tree = {"a": "new"}
    (move,) = moves = plan(old, after)
    tree: Tree = {"a": "new", os.fsdecode(move.temporary): "user's"}
    make_tree(worktree, tree)
    with Writer(str(worktree)) as writer:
        assert clean(moves, writer, Contents(old, after)) == [move.temporary]

    assert_tree(worktree, tree)


@pytest.mark.parametrize("inside", ["", "e"], ids=["at the top", "deep"])
def test_cleaning_up_brings_back_a_directory_that_somebody_put_something_into(
    worktree: Path, inside: str
) -> None:
    """With the directories above it, each under its own name."""
    before: Tree = {"d": {"x": "1", "e": {"y": "1"}}}
    make_tree(worktree, before)
    moves, contents = plan(before, {}), Contents(before)
    inode = (worktree / "d" / inside).stat().st_ino
    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)
        (aside,) = [path for path in worktree.rglob("*") if path.stat().st_ino == inode]
        make_tree(aside, {"u": "user's"})
        left = clean(moves, writer, contents)

    assert left == ([b"d", b"d/e"] if inside else [b"d"])
    assert_tree(worktree, {"d": {"e": {"u": "user's"}} if inside else {"u": "user's"}})


def test_cleaning_up_leaves_a_directory_with_something_in_it_aside_if_its_path_is_taken(
    worktree: Path,
) -> None:
    before: Tree = {"d": {"x": "1"}}
    make_tree(worktree, before)
    moves, contents = plan(before, {}), Contents(before)
    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)
        aside = moves[-1].temporary
        make_tree(worktree, {os.fsdecode(aside): {"u": "user's"}, "d": "user's other"})
        assert clean(moves, writer, contents) == [aside]

    assert_tree(worktree, {os.fsdecode(aside): {"u": "user's"}, "d": "user's other"})


def test_a_file_that_is_open_for_writing_is_not_replaced(worktree: Path) -> None:
    before: Tree = {"a": "old"}
    make_tree(worktree, before)
    moves, contents = plan(before, {"a": "new"}), Contents(before, {"a": "new"})
    with (worktree / "a").open("r+b") as file, Writer(str(worktree)) as writer:
        with pytest.raises(Conflict) as caught:
            carry_out(moves, writer, contents.read)
        assert roll_back(moves, writer, contents.read).left == []
        file.write(b"now")

    assert [each.reason for each in caught.value.conflicts] == [BEING_WRITTEN]
    assert_tree(worktree, {"a": "now"})


@contextmanager
def just_before(
    act: str, path: str, do: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Make somebody do something right before the first write of a kind to a path."""
    waiting = [do]

    def announce(announced: str, at: str) -> None:
        if (announced, at) == (act, path) and waiting:
            waiting.pop()()

    with monkeypatch.context() as patched:
        patched.setattr(disk, "before_write", announce)
        yield
    assert not waiting


def test_what_is_saved_in_the_moment_of_swapping_back_stays(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = CASES["edited"]
    make_tree(worktree, before)
    moves, contents = plan(before, after), Contents(before, after)

    def save() -> None:
        (worktree / "a").write_text("user's")

    with Writer(str(worktree)) as writer:
        carry_out(moves, writer, contents.read)
        with just_before("exchange", "a", save, monkeypatch):
            assert roll_back(moves, writer, contents.read).left == [b"a"]

    assert (worktree / "a").read_text() == "user's"


def test_a_directory_that_is_led_away_after_its_file_was_swapped_is_noticed(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: Tree = {"s": {"a": "1"}, "z": "1"}
    after: Tree = {"s": {"a": "2"}, "z": "2"}
    make_tree(worktree, before)
    make_tree(tmp_path / "outside", {"a": "2"})
    moves, contents = plan(before, after), Contents(before, after)

    def lead_away() -> None:
        (worktree / "s").rename(tmp_path / "moved")
        (worktree / "s").symlink_to(tmp_path / "outside")

    with just_before("exchange", "z", lead_away, monkeypatch), Writer(str(worktree)) as writer:
        with pytest.raises(Conflict) as caught:
            carry_out(moves, writer, contents.read)

    assert [each.path for each in caught.value.conflicts] == ["s/a"]
    assert_tree(tmp_path / "outside", {"a": "2"})


# The writer


@pytest.fixture
def writer(worktree: Path) -> Iterator[Writer]:
    """The worktree, open for writing."""
    with Writer(str(worktree)) as writer:
        yield writer


P = RelPath(b"s/a")


@pytest.fixture
def led_away(worktree: Path, tmp_path: Path, writer: Writer) -> Path:
    """A directory outside. A link leads there now, in place of a directory that the writer had opened."""
    outside = make_tree(tmp_path / "outside", {"a": "secret", "d": {}})
    make_tree(worktree, {"s": {"a": "1"}, "t": "1"})
    assert writer.state_of(P) is not None
    (worktree / "s").rename(tmp_path / "moved")
    (worktree / "s").symlink_to(outside)
    return outside


def test_a_fresh_bench_sees_nothing_through_a_link(led_away: Path, worktree: Path) -> None:
    """A new writer does not follow the link."""
    with Writer(str(worktree)) as writer:
        assert writer.state_of(P) is None
        assert writer.identify(P) is None
        assert writer.list_names(RelPath(b"s")) is None
        assert not writer.is_directory(RelPath(b"s"))
        assert not writer.is_beginning(P, [b"secret"])


def test_a_fresh_bench_writes_nothing_through_a_link(led_away: Path, worktree: Path) -> None:
    """A new writer does not follow the link."""
    with Writer(str(worktree)) as writer:
        for write in (
            lambda: writer.remove(P),
            lambda: writer.remove_directory(RelPath(b"s/d")),
            lambda: writer.change_mode(P, 0o600, None),
            lambda: writer.move(RelPath(b"t"), RelPath(b"s/t")),
            lambda: writer.move(P, RelPath(b"stolen")),
            lambda: writer.exchange(RelPath(b"t"), P),
            lambda: writer.open_content(P),
            lambda: writer.sync_directories([RelPath(b"s")]),
        ):
            with pytest.raises(WorktreeFailed):
                write()

    assert_tree(led_away, {"a": "secret", "d": {}})
    assert (worktree / "t").read_text() == "1"


@pytest.mark.parametrize("case", [{"s": {"a": "2"}}, {"s": {}}, {"s": {"a": "1", "b": "2"}}, {}])
def test_an_act_follows_no_link_that_somebody_put_there(led_away: Path, worktree: Path, case: Tree) -> None:
    before: Tree = {"s": {"a": "1"}}
    moves, contents = plan(before, case), Contents(before, case)
    with Writer(str(worktree)) as writer:
        with pytest.raises((Conflict, WorktreeFailed)):
            carry_out(moves, writer, contents.read)
        roll_back(moves, writer, contents.read)

    assert_tree(led_away, {"a": "secret", "d": {}})
    assert temporaries(worktree) == []
    assert (worktree / "s").is_symlink()


def test_a_bench_that_was_there_before_notices_at_the_end(
    led_away: Path, worktree: Path, writer: Writer
) -> None:
    """Its descriptor leads to the directory that was moved away; its changes there are rolled back."""
    before: Tree = {"s": {"a": "1"}}
    after: Tree = {"s": {"a": "2"}}
    moves, contents = plan(before, after), Contents(before, after)
    with pytest.raises((Conflict, WorktreeFailed)):
        carry_out(moves, writer, contents.read)
    roll_back(moves, writer, contents.read)

    assert_tree(led_away, {"a": "secret", "d": {}})
    assert_tree(led_away.parent / "moved", {"a": "1"})


@pytest.mark.parametrize(
    ("value", "state"),
    [
        ("1", state_of("1")),
        ("", state_of("")),
        (file("1", 0o4755), PathState(stat.S_IFREG | 0o755, object_id(b"blob", b"1"))),
        (file("1", 0), state_of(file("1", 0))),
        (link(b"\xff"), state_of(link(b"\xff"))),
        ({}, DIRECTORY),
    ],
)
def test_a_path_is_seen_by_reading_it(worktree: Path, writer: Writer, value: File, state: PathState) -> None:
    make_tree(worktree, {"\udcfe": value})

    assert writer.state_of(RelPath(b"\xfe")) == state


def test_what_is_no_file_is_seen_as_such(worktree: Path, writer: Writer) -> None:
    os.mkfifo(worktree / "pipe")

    assert writer.state_of(RelPath(b"pipe")) == Unknown(NO_FILE)
    assert writer.state_of(RelPath(b"nothing")) is None
    assert writer.state_of(RelPath(b"pipe/below")) is None


def test_a_move_replaces_nothing(worktree: Path, writer: Writer) -> None:
    make_tree(worktree, {"a": "1", "b": "2", "d": {}})
    for target in (b"b", b"d"):
        with pytest.raises(WorktreeFailed):
            writer.move(RelPath(b"a"), RelPath(target))

    assert_tree(worktree, {"a": "1", "b": "2", "d": {}})


@pytest.mark.parametrize(
    ("content", "is_beginning"),
    [
        (b"", True),
        (b"ab", True),
        (b"abc", True),
        (b"abcd", True),
        (b"abcdef", True),
        (b"abx", False),
        (b"abcdefg", False),
    ],
)
def test_the_beginning_of_a_content_is_told(
    worktree: Path, writer: Writer, content: bytes, is_beginning: bool
) -> None:
    make_tree(worktree, {"a": content})

    assert writer.is_beginning(RelPath(b"a"), [b"abc", b"def"]) is is_beginning


# Intents


@every_case
@pytest.mark.parametrize("waits_to_be", [None, FINISHED, ROLLED_BACK])
def test_an_act_that_was_written_down_is_read_as_it_was(
    before: Tree, after: Tree, waits_to_be: str | None
) -> None:
    intent = ActIntent("undo", plan(before, after), waits_to_be)

    assert decode_intent(intent.encode()) == intent


BAD_PATHS = [
    b"",
    b"..",
    b"../x",
    b"a/../b",
    b"a/..",
    b".",
    b"a/./b",
    b"/etc/passwd",
    b"a//b",
    b"a/",
    b".git/config",
    b"a/.git",
]


@pytest.mark.parametrize("path", BAD_PATHS, ids=repr)
@pytest.mark.parametrize("which", [0, 1], ids=["path", "temporary"])
def test_an_act_on_what_is_never_touched_is_not_read(path: bytes, which: int) -> None:
    row: list[object] = [b"fine".hex(), b"fine-too".hex(), None, None]
    row[which] = path.hex()

    with pytest.raises(StoreDamaged):
        decode_intent(json.dumps(["undo", [row]]).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{",
        b"null",
        b"7",
        b"[]",
        b'["undo"]',
        b'["undo", 7]',
        b'["undo", [], "done"]',
        b'["undo", [], []]',
        b'["undo", [], "finished", 7]',
        b'["undo", [[]]]',
        b'["undo", [["61", "62", null, null]]]',
        b'["undo", [["61", "62", null, null, null, null]]]',
        b'["undo", [["6", "62", null, null, null]]]',
        b'["undo", [["zz", "62", null, null, null]]]',
        b'["undo", [[61, "62", null, null, null]]]',
        b'["undo", [["61", "62", 7, null, null]]]',
        b'["undo", [["61", "62", [], null, null]]]',
        b'["undo", [["61", "62", {}, null, null]]]',
        b'["undo", [["61", "62", ["x", ""], null, null]]]',
        b'["undo", [["61", "62", [33188], null, null]]]',
        b'["undo", [["61", "62", [33188, "zz"], null, null]]]',
    ],
    ids=lambda content: content.decode("ascii", "replace"),
)
def test_an_act_that_cannot_be_read_is_damage(content: bytes) -> None:
    with pytest.raises(StoreDamaged):
        decode_intent(content)
