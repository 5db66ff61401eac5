"""What differs between platforms: swapping and moving names, who writes to a file, syncing many files."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Shadow
from shadowtree.base.limits import Limits
from shadowtree.system import syscalls as system
from shadowtree.system.syscalls import exchange, is_being_written, move, start_writeback, sync_file_system
from tests.support.mounts import mounted_ext4, mounted_tmpfs
from tests.support.processes import Child, in_child, surroundings
from tests.support.sweeps import Faults
from tests.support.trees import Tree, assert_tree, link, make_tree

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what Linux offers")


@pytest.fixture(
    params=[
        "disk",
        "tmpfs",
        pytest.param("ext4", marks=pytest.mark.slow),
        pytest.param("overlay", marks=pytest.mark.slow),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """An empty directory on one file system after the other."""
    if request.param == "disk":
        path = tmp_path / "place"
        path.mkdir()
        yield path
    elif request.param == "tmpfs":
        with mounted_tmpfs(tmp_path / "mount", "size=1M") as mount:
            yield make_tree(mount / "place", {})
    elif request.param == "ext4":
        with mounted_ext4(tmp_path / "mount", tmp_path / "image") as mount:
            yield make_tree(mount / "place", {})
    else:
        with mounted_overlay(tmp_path) as mount:
            yield make_tree(mount / "place", {})


@contextmanager
def mounted_overlay(scratch: Path) -> Iterator[Path]:
    """Mount what containers have as their root."""
    with mounted_tmpfs(scratch / "layers", "size=1M") as layers:
        lower, upper, work, mount = (make_tree(layers / name, {}) for name in ("l", "u", "w", "m"))
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        done = subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", mount], check=False)
        if done.returncode:
            pytest.skip("no overlay can be mounted here")
        try:
            yield mount
        finally:
            subprocess.run(["umount", "--lazy", mount], check=True)


@pytest.fixture
def only_plain_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that knows no other way to rename."""
    monkeypatch.setitem(system._c_functions, "renameat2", lambda *arguments: errno.ENOSYS)


@pytest.fixture(params=["at once", "by fallback"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With what the kernel offers, and without."""
    name: str = request.param
    if name == "by fallback":
        request.getfixturevalue("only_plain_renames")
    return name


Act = Callable[[int, bytes, int, bytes], None]


def rename(act: Act, a: Path, b: Path) -> None:
    """Exchange or move two paths, from the descriptors of their directories."""
    a_fd, b_fd = (os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY) for path in (a, b))
    try:
        act(a_fd, os.fsencode(a.name), b_fd, os.fsencode(b.name))
    finally:
        os.close(a_fd)
        os.close(b_fd)


# Exchange

PAIRS: dict[str, tuple[Tree, Tree]] = {
    "files": ({"x": "1"}, {"x": "2"}),
    "file and directory": ({"x": "1"}, {"x": {"inside": "2"}}),
    "directory and file": ({"x": {"inside": "1"}}, {"x": "2"}),
    "file and empty directory": ({"x": "1"}, {"x": {}}),
    "link and file": ({"x": link("nowhere")}, {"x": "2"}),
    "link to a directory and directory": ({"x": link("..")}, {"x": {"inside": "2"}}),
    "links": ({"x": link("a")}, {"x": link("b")}),
    "directories": ({"x": {"a": "1"}}, {"x": {"b": "2"}}),
}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_two_names_in_two_directories_are_swapped(place: Path, pair: tuple[Tree, Tree]) -> None:
    make_tree(place, {"here": pair[0], "there": pair[1]})

    rename(exchange, place / "here" / "x", place / "there" / "x")

    assert_tree(place, {"here": pair[1], "there": pair[0]})


@pytest.mark.usefixtures("way")
def test_two_names_in_one_directory_are_swapped(place: Path) -> None:
    make_tree(place, {"a": "1", "b": link("a")})

    rename(exchange, place / "a", place / "b")

    assert_tree(place, {"a": link("a"), "b": "1"})


@pytest.mark.usefixtures("way")
def test_two_names_of_one_file_are_swapped_for_nothing(place: Path) -> None:
    """A plain rename between them would do nothing, and leave one name too many."""
    make_tree(place, {"a": "1"})
    os.link(place / "a", place / "b")

    rename(exchange, place / "a", place / "b")

    assert_tree(place, {"a": "1", "b": "1"})


@pytest.mark.usefixtures("way")
def test_names_are_bytes(tmp_path: Path) -> None:
    make_tree(tmp_path / "place", {})
    fd = os.open(tmp_path / "place", os.O_RDONLY)
    for name in (b"\xff\n", b"b"):
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fd))

    exchange(fd, b"\xff\n", fd, b"b")
    move(fd, b"\xff\n", fd, b" ")

    assert sorted(os.listdir(b"/proc/self/fd/%d" % fd)) == [b" ", b"b"]
    os.close(fd)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("missing", ["a", "b"])
def test_a_name_that_is_missing_is_told_and_nothing_is_swapped(place: Path, missing: str) -> None:
    there = {"a": "b", "b": "a"}[missing]
    make_tree(place, {there: "1"})

    with pytest.raises(FileNotFoundError):
        rename(exchange, place / "a", place / "b")

    assert_tree(place, {there: "1"})


def test_the_error_has_both_names(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        rename(exchange, tmp_path / "a", tmp_path / "b")

    assert (caught.value.filename, caught.value.filename2) == (b"a", b"b")


@pytest.mark.usefixtures("way")
def test_a_directory_is_not_swapped_with_what_is_in_it(place: Path) -> None:
    make_tree(place, {"d": {"f": "1"}})

    with pytest.raises(OSError) as caught:
        rename(exchange, place / "d", place / "d" / "f")

    assert caught.value.errno == errno.EINVAL
    assert_tree(place, {"d": {"f": "1"}})


@pytest.mark.parametrize("act", [exchange, move])
def test_a_name_with_a_zero_byte_is_refused(tmp_path: Path, act: Act) -> None:
    """C would take it for the end of the name."""
    make_tree(tmp_path / "place", {"a": "1", "b": "2"})
    fd = os.open(tmp_path / "place", os.O_RDONLY)

    with pytest.raises(ValueError):
        act(fd, b"a\0b", fd, b"b")

    os.close(fd)
    assert_tree(tmp_path / "place", {"a": "1", "b": "2"})


def test_names_are_swapped_in_one_instant_on_the_file_systems_of_this_machine(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel does it; there is nothing to fall back to."""
    make_tree(place, {"a": "1", "b": "2"})
    for fallback in ("_exchange_by_moves", "_move_by_link", "_move_after_a_look"):
        monkeypatch.setattr(system, fallback, lambda *_: pytest.fail("not by the kernel"))

    rename(exchange, place / "a", place / "b")
    rename(move, place / "a", place / "c")

    assert_tree(place, {"b": "1", "c": "2"})


def test_a_c_library_without_the_function_is_passed_by(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As some are; the kernel is called by number."""
    import ctypes

    class Poor(ctypes.CDLL):
        def __getattr__(self, name: str) -> Any:  # Any: whatever it has
            if name == "renameat2":
                raise AttributeError(name)
            return super().__getattr__(name)

    monkeypatch.setattr(ctypes, "CDLL", Poor)
    monkeypatch.setattr(system, "_c_functions", {})
    make_tree(place, {"a": "1", "b": "2"})

    test_names_are_swapped_in_one_instant_on_the_file_systems_of_this_machine(place, monkeypatch)


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.ENOTSUP])
def test_whatever_way_the_kernel_says_no_there_is_a_fallback(
    place: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(system._c_functions, "renameat2", lambda *arguments: code)
    make_tree(place, {"a": "1", "b": {"c": "2"}})

    rename(exchange, place / "a", place / "b")

    assert_tree(place, {"a": {"c": "2"}, "b": "1"})


def test_a_python_without_ctypes_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    monkeypatch.setattr(system, "_c_functions", {})
    make_tree(tmp_path / "place", {"a": "1", "b": "2"})

    rename(exchange, tmp_path / "place" / "a", tmp_path / "place" / "b")

    assert_tree(tmp_path / "place", {"a": "2", "b": "1"})


@pytest.mark.usefixtures("only_plain_renames")
def test_the_fallback_replaces_no_file_that_has_its_third_name(place: Path) -> None:
    make_tree(place, {"a": "1", "b": "2", "b-x": "3"})

    with pytest.raises(FileExistsError):
        rename(exchange, place / "a", place / "b")

    assert_tree(place, {"a": "1", "b": "2", "b-x": "3"})


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_fallback_that_fails_midway_is_taken_back(
    place: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(place, {"a": "1", "b": {"c": "2"}})
    calls: list[int] = []

    def fail_once(*arguments: int) -> int:
        if arguments[4] == system._EXCHANGE:
            return errno.ENOSYS
        calls.append(arguments[4])
        return errno.EIO if len(calls) == number else real(*arguments)

    real = system._find_c("renameat2")
    monkeypatch.setitem(system._c_functions, "renameat2", fail_once)
    with pytest.raises(OSError) as caught:
        rename(exchange, place / "a", place / "b")

    assert caught.value.errno == errno.EIO
    assert_tree(place, {"a": "1", "b": {"c": "2"}})


def test_a_file_that_comes_while_the_fallback_is_at_it_stays_and_nothing_is_lost(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor saves in the moment in which the name is free."""
    make_tree(place, {"mine": "old", "tmp": "new"})
    real = system.move

    def move_while_somebody_saves(a_fd: int, a: bytes, b_fd: int, b: bytes) -> None:
        if a == b"tmp-x":
            make_tree(place, {"mine": "saved"})
        real(a_fd, a, b_fd, b)

    monkeypatch.setitem(system._c_functions, "renameat2", lambda *arguments: errno.ENOSYS)
    monkeypatch.setattr(system, "move", move_while_somebody_saves)
    with pytest.raises(FileExistsError):
        rename(exchange, place / "mine", place / "tmp")

    assert_tree(place, {"mine": "saved", "tmp": "old", "tmp-x": "new"})


# Move


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("thing", [{"x": "1"}, {"x": link("nowhere")}, {"x": {}}, {"x": {"a": "1"}}], ids=str)
def test_a_move_gives_a_free_name(place: Path, thing: Tree) -> None:
    make_tree(place, {"here": thing, "there": {}})

    rename(move, place / "here" / "x", place / "there" / "x")

    assert_tree(place, {"here": {}, "there": thing})


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("target", [{"y": "2"}, {"y": link("nowhere")}, {"y": {}}, {"y": {"b": ""}}], ids=str)
@pytest.mark.parametrize("thing", [{"x": "1"}, {"x": link("nowhere")}, {"x": {"a": "1"}}], ids=str)
def test_a_move_never_replaces(place: Path, thing: Tree, target: Tree) -> None:
    make_tree(place, {**thing, **target})

    with pytest.raises(FileExistsError):
        rename(move, place / "x", place / "y")

    assert_tree(place, {**thing, **target})


@pytest.mark.usefixtures("way")
def test_a_move_to_another_name_of_the_same_file_is_refused(place: Path) -> None:
    make_tree(place, {"a": "1"})
    os.link(place / "a", place / "b")

    with pytest.raises(FileExistsError):
        rename(move, place / "a", place / "b")

    assert_tree(place, {"a": "1", "b": "1"})


@pytest.mark.usefixtures("way")
def test_a_move_of_what_is_missing_is_told(place: Path) -> None:
    with pytest.raises(FileNotFoundError):
        rename(move, place / "a", place / "b")


@pytest.mark.usefixtures("only_plain_renames")
@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK])
def test_a_file_system_without_hard_links_moves_files_too(
    place: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    make_tree(place, {"a": "1", "b": "2"})

    rename(move, place / "a", place / "c")
    with pytest.raises(FileExistsError):
        rename(move, place / "b", place / "c")

    assert_tree(place, {"b": "2", "c": "1"})


@pytest.mark.usefixtures("only_plain_renames")
def test_a_file_that_is_saved_while_the_fallback_moves_it_is_not_unlinked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(place, {"a": "old"})
    real = os.link

    def link_while_somebody_saves(*arguments: bytes, **named: int) -> None:
        real(*arguments, **named)  # type: ignore[arg-type]  # whatever it was called with
        make_tree(place, {"a~": "saved"})
        (place / "a~").rename(place / "a")

    monkeypatch.setattr(os, "link", link_while_somebody_saves)

    rename(move, place / "a", place / "b")

    assert_tree(place, {"a": "saved", "b": "old"})


# Who writes


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    fd = os.open(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def is_written(path: Path) -> bool:
    with opened(path) as fd:
        return is_being_written(fd)


@pytest.fixture
def written(place: Path) -> Path:
    """A file."""
    make_tree(place, {"f": "content"})
    return place / "f"


def test_a_file_that_nobody_has_open_is_not_being_written(written: Path) -> None:
    assert not is_written(written)


def test_a_file_that_others_read_is_not_being_written(written: Path) -> None:
    with opened(written):
        assert not is_written(written)


@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND], ids=str)
def test_a_file_is_being_written_until_it_is_closed(written: Path, flags: int) -> None:
    with opened(written, flags):
        assert is_written(written)

    assert not is_written(written)


def test_a_file_that_another_process_writes_is_being_written(written: Path) -> None:
    program = "import sys; file = open(sys.argv[1], 'a'); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(written)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        during = is_written(written)
        other.communicate()

    assert during
    assert not is_written(written)


def test_a_file_that_is_mapped_for_writing_is_being_written_though_it_is_closed(written: Path) -> None:
    with opened(written, os.O_RDWR) as fd:
        mapping = mmap.mmap(fd, 0)
    during = is_written(written)
    mapping.close()

    assert during
    assert not is_written(written)


def test_a_file_that_is_mapped_for_reading_is_not_being_written(written: Path) -> None:
    with opened(written) as fd, mmap.mmap(fd, 0, access=mmap.ACCESS_READ):
        assert not is_written(written)


def test_a_program_that_runs_is_not_being_written(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    with subprocess.Popen([program, "60"]) as running:
        during = is_written(program)
        running.kill()

    assert not during


def test_a_file_that_has_other_names_is_asked_for_by_any(written: Path) -> None:
    other = written.with_name("other")
    os.link(written, other)

    with opened(written, os.O_WRONLY):
        assert is_written(other)


def test_whoever_opens_a_file_for_writing_while_it_is_asked_for_waits_and_ends_no_process(
    tmp_path: Path,
) -> None:
    """The kernel signals the holder of a lease that it breaks; SIGIO would end the child."""
    make_tree(tmp_path, {"f": "1"})
    real = fcntl.fcntl

    def give_back_when_asked_to(fd: int, act: int, argument: int) -> None:
        if (act, argument) == (fcntl.F_SETLEASE, fcntl.F_UNLCK):
            openers.append(subprocess.Popen([sys.executable, "-c", OPEN, tmp_path / "f"]))
            while real(fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK:
                assert openers[0].poll() is None
        real(fd, act, argument)

    def ask() -> tuple[bool, int]:
        fcntl.fcntl = give_back_when_asked_to  # type: ignore[assignment]  # it ends with this process
        return is_written(tmp_path / "f"), openers[0].wait()

    openers: list[subprocess.Popen[bytes]] = []

    assert in_child(ask).value() == (False, 0)


OPEN = "import os, sys; os.open(sys.argv[1], os.O_WRONLY)"


def test_many_openers_and_askers_do_not_hurt_each_other(tmp_path: Path) -> None:
    make_tree(tmp_path, {"f": "1"})

    def write_often() -> None:
        for _ in range(2000):
            os.close(os.open(tmp_path / "f", os.O_WRONLY))

    def ask_often() -> set[bool]:
        return {is_written(tmp_path / "f") for _ in range(2000)}

    children = [Child(write_often), Child(ask_often), Child(ask_often)]

    for child in children:
        child.wait().value()
    assert not is_written(tmp_path / "f")


def test_what_has_no_leases_is_taken_not_to_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    with opened(tmp_path) as fd, opened(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK) as fifo_fd:
        assert not is_being_written(fd)
        assert not is_being_written(fifo_fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="root may ask for all")
def test_a_file_of_another_user_is_taken_not_to_be_written(tmp_path: Path) -> None:
    make_tree(tmp_path, {"f": "1"})

    def ask_as_nobody() -> bool:
        fd = os.open(tmp_path / "f", os.O_RDONLY)
        os.setuid(65534)
        return is_being_written(fd)

    with opened(tmp_path / "f", os.O_WRONLY):
        assert in_child(ask_as_nobody).value() is False


# Syncing


def test_a_file_system_is_synced(place: Path) -> None:
    make_tree(place, {"f": "1"})

    with opened(place) as directory_fd, opened(place / "f") as fd:
        start_writeback(fd)

        assert sync_file_system(directory_fd)
        assert sync_file_system(fd)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("6.18.44-fc-v445", (6, 18)),
        ("5.4.0-150-generic", (5, 4)),
        ("5.17-rc3", (5, 17)),
        ("4.4.0", (4, 4)),
        ("odd", (0, 0)),
    ],
)
def test_the_version_of_the_kernel_is_read(
    release: str, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "vm", release, "#1", "x86_64")))

    assert system._linux_version() == expected


def test_a_kernel_that_hides_errors_is_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "_linux_version", lambda: (5, 16))

    with opened(tmp_path) as fd:
        assert not sync_file_system(fd)


def test_a_file_system_of_a_kind_that_is_not_known_is_not_relied_on() -> None:
    with opened(Path("/proc")) as fd:
        assert not sync_file_system(fd)


def test_a_system_that_cannot_sync_a_whole_file_system_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(system._c_functions, "syncfs", lambda fd: errno.ENOSYS)

    with opened(tmp_path) as fd:
        assert not sync_file_system(fd)


def test_a_sync_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(system._c_functions, "syncfs", lambda fd: errno.EIO)

    with opened(tmp_path) as fd, pytest.raises(OSError) as caught:
        sync_file_system(fd)

    assert caught.value.errno == errno.EIO


_SHUT_DOWN = 0x8004587D
_WITHOUT_THE_LOG = (2).to_bytes(4, sys.byteorder)


@pytest.mark.slow
@pytest.mark.parametrize("is_synced", [True, False], ids=["synced", "not synced"])
def test_what_was_synced_with_its_file_system_outlives_a_power_cut(tmp_path: Path, is_synced: bool) -> None:
    """Contents, modes, links and names; the other half of the test shows that the cut is one."""
    image, mount = tmp_path / "image", tmp_path / "mount"
    tree: Tree = {f"d{number}": {"f": f"{number}" * 5000, "ln": link("f")} for number in range(20)}
    with mounted_ext4(mount, image):
        make_tree(mount / "place", {})
        with opened(mount) as fd:
            assert sync_file_system(fd)
            make_tree(mount / "place", tree)
            if is_synced:
                assert sync_file_system(fd)
            fcntl.ioctl(fd, _SHUT_DOWN, _WITHOUT_THE_LOG)

    with mounted_ext4(mount, image):
        assert_tree(mount / "place", tree if is_synced else {})


# What is not imported


def test_ctypes_is_imported_by_those_alone_who_need_it(tmp_path: Path) -> None:
    program = """
import os, sys
from shadowtree.system import syscalls as system
assert "ctypes" not in sys.modules
open("a", "w").close(), open("b", "w").close()
fd = os.open(".", os.O_RDONLY)
system.exchange(fd, b"a", fd, b"b")
assert "ctypes" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=surroundings(), check=True)


# The faults that other tests inject


class _Listener(Faults):
    """Lets every call through, and remembers it."""

    def strike(self, what: str) -> None:
        """Let it be."""


@pytest.mark.limits(Limits(unwritten_bytes=0))
def test_faults_reach_what_writes_into_the_worktree(worktree: Path) -> None:
    """All that an act of many files does to the worktree, links and directories included."""
    files = {f"f{number}": "text" for number in range(10)}
    make_tree(worktree, {"gone": {"link": link("f1")}, **files})
    with Shadow(worktree, settings={"min_free": 0}) as shadow:
        with shadow.message("m"):
            shutil.rmtree(worktree / "gone")
            make_tree(worktree, {"made": {}, **dict.fromkeys(files, "other")})
        with _Listener(1, errno.EIO, forever=True) as faults:
            shadow.undo()

    calls = {hit.partition(" ")[0] for hit in faults.hits}
    assert calls >= {"renameat2", "syncfs", "open", "write", "symlink", "mkdir", "unlink", "rmdir", "fchmod"}


# Boots


@pytest.mark.skipif(not system.IS_LINUX, reason="other systems do not tell boots apart")
def test_a_boot_is_the_same_for_every_process() -> None:
    told = system.boot_id()

    assert len(told) > 30
    assert in_child(system.boot_id).value() == told


def test_a_boot_that_nobody_can_name_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", fail)

    assert system.boot_id() == ""
