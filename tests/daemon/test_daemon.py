"""The daemon: who may use it, what it serves and how long, and what happens to work if a side dies."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import pytest

import shadowtree
from shadowtree import (
    Conflict,
    ConflictingPath,
    DuplicateMessage,
    Hunk,
    InvalidInput,
    Locked,
    NotConfirmed,
    OutOfSpace,
    Shadow,
    ShadowError,
    UnknownMessage,
)
from shadowtree.base.errors import AmbiguousMessage, DaemonFailed, PerhapsDone, PlanOutdated, WorktreeTooBig
from shadowtree.daemon.client import Client, connect, find_remote
from shadowtree.daemon.endpoint import Endpoint, Timing
from shadowtree.daemon.launch import find_daemon
from shadowtree.daemon.server import LOG, log_to
from shadowtree.daemon.wire import METHODS, decode, decode_error, encode, encode_error, may_repeat
from shadowtree.timeline.journal import Journal
from tests.support.daemons import (
    HOLD_AT,
    KILL_AT,
    PATIENCE_S,
    daemon,
    greet,
    list_served,
    serve,
    serve_kept,
    use_timing,
    wait_until,
)
from tests.support.processes import surroundings
from tests.support.referee import assert_sound_store
from tests.support.trees import assert_tree, make_tree
from tests.support.values import make_message, make_outcome


def is_found(worktree: Path) -> bool:
    """Return whether a command would use the daemon."""
    found = find_remote(os.environ, str(worktree), store=None, session="default")
    if found is not None:
        found.close()
    return found is not None


def require(worktree: Path, session: str = "default") -> Shadow:
    """Return the shadow of a command that uses the daemon."""
    found = find_remote(os.environ, str(worktree), store=None, session=session)
    assert found is not None
    return found


@pytest.fixture
def place() -> Endpoint:
    return Endpoint(os.environ)


# Frames and values


def test_a_frame_comes_out_as_it_went_in(place: Endpoint) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Client(place, ours).send("kind", 1, "\udcff\x00", [None, True, {"a": 1.5}], ("t", []))

        assert Client(place, theirs).receive() == (
            "kind",
            1,
            "\udcff\x00",
            [None, True, {"a": 1.5}],
            ("t", []),
        )


@pytest.mark.parametrize("content", [b"\0", b"\0\0\0\x05ab", b"\xff\xff\xff\xff", b"\0\0\0\x03abc"])
def test_what_is_no_frame_is_an_error(place: Endpoint, content: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(content)
        ours.shutdown(socket.SHUT_WR)

        with pytest.raises(ConnectionError):
            Client(place, theirs).receive()


def test_the_end_of_a_conversation_is_an_error(place: Endpoint) -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.raises(ConnectionError, match="has closed"):
        Client(place, theirs).receive()


@pytest.mark.parametrize(
    "value",
    [
        None,
        [make_message(1), make_message(2, meta={"Message": [1], "": {"a": None}})],
        (make_message(), [shadowtree.FileDiff("\udcff", "added", 1, 2, False, "+x\n")]),
        [
            shadowtree.FileDiff(
                "b", "added", 1, 0, False, "", "a", shadowtree.FileDiff("b", "added", 0, 0, False, "", "a")
            )
        ],
        make_outcome(conflicts=[ConflictingPath("a", "b", "c", [Hunk(1, "o", "b", "t")])]),
        shadowtree.Plan(make_outcome(), [shadowtree.PlannedChange("a", None, "b" * 40, None, 0o100644)]),
    ],
    ids=["none", "messages", "show", "rename", "outcome", "plan"],
)
def test_a_value_comes_out_as_it_went_in(value: object) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("that is nothing"),
        DuplicateMessage("m", "s"),
        AmbiguousMessage("m", ["m1", "m2"]),
        UnknownMessage("m"),
        Locked("store", 12, "host", 10.0),
        OutOfSpace("p", free=1, needed=2, min_free=3),
        WorktreeTooBig("w", setting="max_files", found=2, limit=1),
        Conflict([ConflictingPath("a", "r", "a")], make_outcome()),
        NotConfirmed(make_outcome(deleted=["a"])),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_comes_out_as_it_was_raised(error: ShadowError) -> None:
    error.add_note("a note")

    again = decode_error(encode_error(error))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_an_interrupt_and_an_error_of_the_system_come_out_too() -> None:
    failed = decode_error(encode_error(PermissionError(13, "Permission denied", b"/x\xff")))

    assert isinstance(decode_error(encode_error(KeyboardInterrupt())), KeyboardInterrupt)
    assert isinstance(failed, PermissionError)
    assert (failed.errno, failed.filename) == (13, "/x\udcff")


def test_an_error_that_nobody_expected_is_told_as_one() -> None:
    assert "ZeroDivisionError: by zero" in str(decode_error(encode_error(ZeroDivisionError("by zero"))))


def test_every_method_that_the_daemon_does_is_one_of_a_shadow() -> None:
    assert all(callable(getattr(Shadow, method)) for method in METHODS)


def test_the_log_is_of_bounded_size(tmp_path: Path) -> None:
    log_to(str(tmp_path / "log"))
    try:
        for number in range(3000):
            LOG.info("line %d %s", number, "x" * 100)
    finally:
        for handler in list(LOG.handlers):
            LOG.removeHandler(handler)
            handler.close()

    sizes = [path.stat().st_size for path in tmp_path.glob("log*")]
    assert len(sizes) == 2
    assert max(sizes) < 70_000
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("log*")} == {0o600}


# The endpoint


def test_directory_and_socket_are_for_their_owner_alone(place: Endpoint) -> None:
    old = os.umask(0)
    try:
        with daemon():
            wait_until(lambda: os.path.exists(place.log))
            modes = {
                Path(path).name: stat.S_IMODE(os.lstat(path).st_mode)
                for path in (place.directory, place.socket, place.lock, place.log)
            }
    finally:
        os.umask(old)

    assert modes == {"daemon": 0o700, "socket": 0o600, "lock": 0o600, "log": 0o600}


def test_a_directory_that_others_can_write_to_is_refused(place: Endpoint) -> None:
    os.makedirs(place.directory)
    os.chmod(place.directory, 0o777)

    with pytest.raises(shadowtree.UnsafePath):
        place.listen()


def test_the_path_of_the_socket_may_be_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worktree: Path
) -> None:
    monkeypatch.setenv("SHADOWTREE_HOME", str(tmp_path / ("long" * 30) / ("longer" * 30)))

    with daemon():
        serve_kept(worktree)

        with require(worktree) as remote:
            assert remote.take_snapshot().tree == Shadow(worktree).track()


def test_there_is_one_daemon_at_a_time(place: Endpoint) -> None:
    with daemon():
        assert place.listen() is None

    listening = place.listen()
    assert listening is not None
    listening.close()


def test_a_socket_that_a_dead_daemon_left_is_replaced(worktree: Path, place: Endpoint) -> None:
    with daemon() as process:
        process.kill()
        process.wait()
        assert os.path.exists(place.socket)
        assert not is_found(worktree)

    with daemon():
        serve_kept(worktree)
        assert is_found(worktree)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_talked_to(place: Endpoint, worktree: Path) -> None:
    with daemon():
        serve_kept(worktree)
        # This is checked even if the directory let them in.
        for path in (place.directory, place.socket):
            os.chmod(path, 0o777)
        raw = (
            "import os, socket, sys\n"
            "os.chdir(sys.argv[1])\n"
            "os.setgid(12345); os.setuid(12345)\n"
            "s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect('socket')\n"
            "print(s.recv(10))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", raw, place.directory], capture_output=True, text=True, check=False
        )

        assert done.stdout == "b''\n", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_daemon_of_another_user_is_not_talked_to(
    place: Endpoint, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon():
        connection = place.connect()
        assert connection is not None
        connection.close()
        monkeypatch.setattr("shadowtree.daemon.endpoint.peer_user", lambda connection: 12345)

        assert place.connect() is None


# Circumstances


def test_a_daemon_of_another_version_is_not_talked_to(worktree: Path) -> None:
    with daemon("import shadowtree; shadowtree.__version__ = '0.0.1'"):
        assert not is_found(worktree)
        with pytest.raises(DaemonFailed, match=r"version 0\.0\.1"):
            find_daemon(Endpoint(os.environ))


def test_any_version_can_be_ended(place: Endpoint) -> None:
    with daemon("import shadowtree; shadowtree.__version__ = '0.0.1'") as process:
        client = connect(place)
        assert client is not None
        with client:
            client.end()

        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("name", ["HOME", "XDG_CONFIG_HOME"])
def test_a_command_with_another_environment_does_without(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with daemon():
        serve_kept(worktree)
        monkeypatch.setenv(name, str(tmp_path))

        assert not is_found(worktree)


def test_a_command_with_another_umask_does_without(worktree: Path) -> None:
    """The umask determines the bits of new files."""
    with daemon():
        serve_kept(worktree)
        old = os.umask(0o077)
        try:
            assert not is_found(worktree)
        finally:
            os.umask(old)


def test_a_worktree_that_is_not_served_is_left_to_the_command(worktree: Path, tmp_path: Path) -> None:
    other = make_tree(tmp_path / "other", {"a": "1"})
    Shadow(other).track()
    with daemon():
        serve_kept(worktree)

        assert not is_found(other)
        assert not is_found(tmp_path)


def test_a_path_that_is_another_directory_for_the_command_is_left_to_it(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with daemon():
        serve_kept(worktree)
        monkeypatch.setattr("shadowtree.daemon.client.identify", lambda *paths: [1, 2, 3, 4])

        assert not is_found(worktree)


def test_a_worktree_is_found_from_inside_it(worktree: Path) -> None:
    make_tree(worktree, {"a": {"b": {"c": "1"}}})
    with daemon():
        serve_kept(worktree)

        with require(worktree / "a" / "b") as remote:
            assert remote.take_snapshot().tree == Shadow(worktree).track()


def test_a_store_of_its_own_is_served_to_those_who_name_it(worktree: Path, tmp_path: Path) -> None:
    """A store that is not in the usual place is served only to commands that name it."""
    store = tmp_path / "own store"
    with daemon():
        with greet() as client:
            client.ask("serve", {"worktree": str(worktree), "store": str(store)}, True)

        assert not is_found(worktree)
        found = find_remote(os.environ, str(worktree), store=str(store), session="s")
        assert found is not None
        with found as remote:
            assert remote.begin("m1").session == "s"


def test_messages_and_steps_are_recorded_as_without(worktree: Path) -> None:
    with daemon():
        serve_kept(worktree)
        with require(worktree) as remote:
            made = remote.begin(None)
            remote.begin_step("s1", meta={"tool": "edit"})
            remote.begin_step("s2")
            make_tree(worktree, {"a": "1"})
            remote.end_step("s1")
            remote.end_step("s2")
            make_tree(worktree, {"b": "mine"})
            second = remote.begin("m2", role="assistant")
            remote.end("m2")
            first, _ = remote.show(made.id)
            outcome = remote.undo(2)

    assert second.warnings == [
        f"message {made.id!r} was never ended: it ends with its last step, without later changes"
    ]
    assert [(step.name, step.meta) for step in first.steps] == [("s1", {"tool": "edit"}), ("s2", None)]
    assert (second.turn, outcome.deleted) == (1, ["a"])
    assert_tree(worktree, {"b": "mine"})


@pytest.mark.parametrize("method", ["begin", "end"])
def test_a_call_without_an_id_is_not_made_twice(method: str) -> None:
    assert not may_repeat(method, [None], {})
    assert may_repeat(method, ["m1"], {})


# What is served


def test_what_the_daemon_records_is_what_is_there(worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    with daemon():
        serve_kept(worktree)
        for number in range(20):
            make_tree(worktree, {f"f{number}": str(number), "a": f"a{number}"})

            with require(worktree) as remote:
                assert remote.take_snapshot().tree == Shadow(worktree).track()


def test_many_worktrees_are_served_at_once(tmp_path: Path) -> None:
    worktrees = [make_tree(tmp_path / f"w{number}", {"a": str(number)}) for number in range(8)]
    failed: list[BaseException] = []

    def work(worktree: Path) -> None:
        try:
            with require(worktree, session=worktree.name) as remote:
                for number in range(5):
                    remote.begin(f"m{number}")
                    make_tree(worktree, {"a": f"{worktree.name} {number}"})
                    assert [each.path for each in remote.end(f"m{number}").patch.files] == ["a"]
        except BaseException as error:  # noqa: BLE001  # told by the test itself
            failed.append(error)

    with daemon():
        for worktree in worktrees:
            serve_kept(worktree)
        threads = [threading.Thread(target=work, args=[worktree]) for worktree in worktrees]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert not failed
        assert list_served() == [str(worktree) for worktree in worktrees]


def test_many_sessions_of_one_worktree_take_their_places(worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    done: list[str] = []

    def work(session: str) -> None:
        with require(worktree, session=session) as remote:
            for number in range(4):
                done.append(remote.snapshot(f"{session}-{number}").id)

    with daemon():
        serve_kept(worktree)
        threads = [threading.Thread(target=work, args=[f"s{number}"]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(done) == 24
    assert {each.id for each in Shadow(worktree).messages(all_sessions=True)} == set(done)


def test_what_is_not_used_is_dropped_and_a_daemon_without_work_ends(worktree: Path) -> None:
    with daemon(timing="unused_s=0.5, tick_s=0.05, round_s=0.05, linger_s=0.05") as process:
        serve_kept(worktree)

        assert process.wait(PATIENCE_S) == 0
    assert "it has not been used for a while" in Path(Endpoint(os.environ).log).read_text()


def test_a_worktree_may_be_dropped_sooner_than_others(worktree: Path) -> None:
    """Hooks request that."""
    wish = {"worktree": str(worktree), "store": None, "idle_s": 0.2, "watch_share": 0.25}
    with daemon(timing="tick_s=0.05, round_s=0.05, linger_s=0.05") as process:
        with greet() as client:
            client.ask("serve", wish, True)

        assert process.wait(PATIENCE_S) == 0
    assert "it has not been used for a while" in Path(Endpoint(os.environ).log).read_text()


def test_what_somebody_holds_is_kept_until_he_goes(worktree: Path) -> None:
    with daemon(timing="unused_s=0.0, tick_s=0.05, round_s=0.05, linger_s=0.05") as process:
        holder = serve(worktree, is_kept=False)
        serve_kept(worktree)
        with require(worktree) as remote:
            remote.take_snapshot()
        assert process.poll() is None

        holder.close()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("what", ["worktree", "store"])
def test_what_is_no_longer_there_is_dropped(worktree: Path, what: str) -> None:
    with daemon(timing="tick_s=0.05, round_s=0.05, linger_s=0.05") as process:
        serve_kept(worktree)
        shutil.rmtree(worktree if what == "worktree" else Shadow(worktree).store)

        assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("name", ["directory", "lock", "socket"])
def test_a_daemon_that_nobody_finds_any_more_ends(worktree: Path, place: Endpoint, name: str) -> None:
    with daemon(timing="tick_s=0.05") as process:
        holder = serve(worktree, is_kept=False)
        path = Path(getattr(place, name))
        shutil.rmtree(path) if path.is_dir() else path.unlink()

        assert process.wait(PATIENCE_S) == 0
        holder.close()


def test_a_daemon_whose_place_another_one_has_taken_leaves_it_alone(worktree: Path, place: Endpoint) -> None:
    with daemon(timing="tick_s=0.05") as process:
        serve_kept(worktree)
        process.send_signal(signal.SIGSTOP)
        shutil.rmtree(place.directory)
        with daemon():
            serve_kept(worktree)
            process.send_signal(signal.SIGCONT)

            assert process.wait(PATIENCE_S) == 0
            assert list_served() == [str(worktree)]


def test_the_owner_of_the_lock_is_known_without_the_socket(place: Endpoint) -> None:
    assert place.find_owner() is None
    with daemon() as process:
        assert place.find_owner() == str(process.pid)
    assert place.find_owner() is None


def test_a_quiet_worktree_is_looked_over(worktree: Path) -> None:
    """Nothing reports writes through a mapping."""
    make_tree(worktree, {"a": "1"})
    looked = (
        "from shadowtree import Shadow\n"
        "look = Shadow.look_over\n"
        "def look_over(self, seconds):\n"
        "    is_done = look(self, seconds)\n"
        "    if is_done: open(os.environ['LOOKED'], 'w').close()\n"
        "    return is_done\n"
        "Shadow.look_over = look_over\n"
    )
    mark = worktree.parent / "looked"
    timing = "tick_s=0.01, quiet_s=0.0, look_every_s=0.0, look_pause_s=0.01"
    with daemon(looked, timing=timing, LOOKED=str(mark)):
        serve_kept(worktree)
        with require(worktree) as remote:
            remote.take_snapshot()

        wait_until(mark.exists)


def test_the_store_of_a_quiet_worktree_is_tidied(worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    at_once = (
        "from shadowtree import Shadow\n"
        "from shadowtree.base.limits import Limits, PackLimits\n"
        "limits = Limits(packs=PackLimits(idle_bytes=0, idle_part=1_000_000, worth_part=1 << 40))\n"
        "Shadow.__init__.__kwdefaults__['limits'] = limits\n"
    )
    with daemon(at_once, timing="tick_s=0.01, tidy_after_s=0.0, look_pause_s=0.01"):
        serve_kept(worktree)
        with require(worktree) as remote:
            for number in range(4):
                (worktree / "a").write_text(f"{number}\n" * 100)
                remote.take_snapshot()
            store = remote.store

        with closing(Journal(f"{store}/timeline.db")) as journal:
            wait_until(lambda: not journal.packs.rows())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(worktree: Path, place: Endpoint, number: signal.Signals) -> None:
    with daemon() as process:
        holder = serve(worktree, is_kept=False)
        process.send_signal(number)

        assert process.wait(PATIENCE_S) == 0
        assert holder.wait(lambda message: None) == "the daemon has stopped"
        holder.close()
    assert not os.path.exists(place.socket)


# Work


def test_an_error_is_the_same_as_without(worktree: Path) -> None:
    with daemon():
        serve_kept(worktree)
        with require(worktree) as remote:
            remote.begin("m1")
            remote.end("m1")
            with pytest.raises(DuplicateMessage, match="m1") as caught:
                remote.snapshot("m1")
            assert caught.value.session == "default"
            # The conversation continues.
            assert remote.begin("m2").id == "m2"


def test_a_name_of_a_session_is_checked(worktree: Path) -> None:
    with daemon():
        serve_kept(worktree)
        with require(worktree, session="\x00") as remote, pytest.raises(InvalidInput, match="session"):
            remote.begin("m1")


def test_progress_is_told(worktree: Path) -> None:
    make_tree(worktree, {f"f{number}": str(number) for number in range(50)})
    told: list[tuple[int, int]] = []
    with daemon(timing="first_progress_s=0.0, progress_s=0.0"):
        with greet() as client:
            client.ask(
                "serve",
                {"worktree": str(worktree), "store": None},
                True,
                progress=lambda *far: told.append(far),
            )

    assert told
    assert all(done <= total == 50 for done, total in told)


def prepare_undo(worktree: Path) -> None:
    make_tree(worktree, {"a": "1", "b": "1"})
    with Shadow(worktree) as shadow:
        shadow.begin("m1")
        make_tree(worktree, {"a": "2", "b": "2"})
        shadow.end("m1")


@contextmanager
def held_undo(worktree: Path, held: Path, at: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command whose undo the daemon has begun; it waits before the first call of `at`."""
    prepare_undo(worktree)
    with daemon(HOLD_AT.format(at=at, held=str(held), patience=PATIENCE_S)):
        serve_kept(worktree)
        with subprocess.Popen(
            [sys.executable, "-m", "shadowtree", "undo"],
            cwd=worktree,
            env=surroundings(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as command:
            wait_until(held.exists)
            yield command


@pytest.mark.parametrize("is_agreed", [True, False])
def test_a_person_is_asked_by_the_command(worktree: Path, is_agreed: bool) -> None:
    make_tree(worktree, {"a": "1"})
    tree = Shadow(worktree).track()
    make_tree(worktree, {"b": "2", "c": "3"})
    asked: list[shadowtree.Plan] = []

    def confirm(plan: shadowtree.Plan) -> bool:
        asked.append(plan)
        return is_agreed

    with daemon():
        serve_kept(worktree)
        with require(worktree) as remote:
            if is_agreed:
                assert remote.restore(tree, confirm=confirm).deleted == ["b", "c"]
            else:
                with pytest.raises(NotConfirmed):
                    remote.restore(tree, confirm=confirm)

    assert asked[0].deleted == ["b", "c"]
    assert_tree(worktree, {"a": "1"} if is_agreed else {"a": "1", "b": "2", "c": "3"})


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_a_command_that_is_left_while_it_asks_changes_nothing(
    worktree: Path, error: type[BaseException]
) -> None:
    make_tree(worktree, {"a": "1"})
    tree = Shadow(worktree).track()
    make_tree(worktree, {"b": "2"})

    def leave(plan: shadowtree.Plan) -> bool:
        raise error

    with daemon():
        serve_kept(worktree)
        with require(worktree) as remote, pytest.raises(error):
            remote.restore(tree, confirm=leave)

        # The daemon can serve the next command.
        with require(worktree) as remote:
            assert remote.begin("m1").id == "m1"
    assert_tree(worktree, {"a": "1", "b": "2"})


def test_a_command_that_dies_takes_its_act_with_it(worktree: Path, tmp_path: Path) -> None:
    with held_undo(worktree, tmp_path / "held", at="exchange") as command:
        command.kill()
        command.wait()

        with require(worktree) as remote:
            assert remote.status().undone == []
    assert_tree(worktree, {"a": "2", "b": "2"})


def test_ctrl_c_in_a_command_stops_its_act(worktree: Path, tmp_path: Path) -> None:
    with held_undo(worktree, tmp_path / "held", at="exchange") as command:
        command.send_signal(signal.SIGINT)
        _, err = command.communicate()

        assert (command.returncode, err) == (130, "shadowtree: interrupted\n")
    assert_tree(worktree, {"a": "2", "b": "2"})
    assert Shadow(worktree).status().undone == []


def test_ctrl_c_that_comes_too_late_is_told_as_done(worktree: Path, tmp_path: Path) -> None:
    # Files that were moved aside are removed once the act is recorded.
    with held_undo(worktree, tmp_path / "held", at="unlink") as command:
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate()

        assert command.returncode == 0
        assert "Interrupted, but it was already done" in out
    assert_tree(worktree, {"a": "1", "b": "1"})


@pytest.mark.parametrize("is_served", [True, False])
def test_nobody_waits_for_somebody_who_is_asked(worktree: Path, is_served: bool) -> None:
    make_tree(worktree, {"a": "1"})
    tree = Shadow(worktree).track()
    make_tree(worktree, {"b": "2"})
    found: list[str] = []

    def open_other() -> Shadow:
        if is_served:
            return require(worktree, session="other")
        return Shadow(worktree, session="other")

    def work(plan: shadowtree.Plan) -> bool:
        with open_other() as other:
            found.append(other.begin("m1").id)
            found.append(other.end("m1").id)
        return True

    with daemon():
        if is_served:
            serve_kept(worktree)
        with require(worktree) if is_served else Shadow(worktree) as shadow:
            assert shadow.restore(tree, confirm=work).deleted == ["b"]

    assert found == ["m1", "m1"]
    assert_tree(worktree, {"a": "1"})


@pytest.mark.parametrize("is_served", [True, False])
def test_only_what_was_confirmed_is_done(worktree: Path, is_served: bool) -> None:
    make_tree(worktree, {"a": "1"})
    tree = Shadow(worktree).track()
    make_tree(worktree, {"b": "2"})

    def change_more(plan: shadowtree.Plan) -> bool:
        assert plan.deleted == ["b"]
        make_tree(worktree, {"c": "3"})
        return True

    with daemon():
        if is_served:
            serve_kept(worktree)
        with (
            require(worktree) if is_served else Shadow(worktree) as shadow,
            pytest.raises(PlanOutdated) as now,
        ):
            shadow.restore(tree, confirm=change_more)

    assert now.value.plan.deleted == ["b", "c"]
    assert_tree(worktree, {"a": "1", "b": "2", "c": "3"})


def test_a_reader_does_not_wait_for_an_act(worktree: Path, tmp_path: Path) -> None:
    """A command without the daemon would not wait either; the reader then reads by itself."""
    with held_undo(worktree, tmp_path / "held", at="exchange") as command:
        with require(worktree) as reader:
            assert reader.status().undone == []
            assert vars(reader)["_local"] is not None
        command.send_signal(signal.SIGINT)


@pytest.mark.parametrize("is_waiting", [True, False])
def test_who_waits_for_others_can_be_cancelled_at_once(
    worktree: Path, tmp_path: Path, is_waiting: bool
) -> None:
    with held_undo(worktree, tmp_path / "held", at="exchange") as command:
        with greet() as client:
            assert client.find(str(worktree), None) is not None
            client.send("call", "take_snapshot", "default", [], {}, [False, False])
            if is_waiting:
                client.ask("status")
            client.send("cancel")
            kind, content = client.receive()
        assert (kind, type(decode_error(content))) == ("error", KeyboardInterrupt)
        command.send_signal(signal.SIGINT)
        command.wait()
        with require(worktree) as remote:
            assert remote.take_snapshot().files == 2


def test_who_records_is_told_that_the_daemon_is_at_work(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHADOWTREE_LOCK_TIMEOUT", "0.1")
    with held_undo(worktree, tmp_path / "held", at="exchange") as command:
        with require(worktree) as other, pytest.raises(Locked) as caught:
            other.begin("m1")
        assert caught.value.pid != command.pid
        command.send_signal(signal.SIGINT)


# A daemon that dies


@pytest.mark.parametrize("at", ["first", "commit", "answer"])
@pytest.mark.parametrize("is_named", [True, False], ids=["named", "open one"])
def test_a_message_is_recorded_once_whenever_the_daemon_dies(worktree: Path, at: str, is_named: bool) -> None:
    make_tree(worktree, {"a": "1"})
    with Shadow(worktree) as shadow:
        shadow.begin("m1")
    make_tree(worktree, {"a": "2"})

    with daemon(KILL_AT.format(at=at)) as process:
        serve_kept(worktree)
        with require(worktree) as remote:
            if at == "answer" and not is_named:
                with pytest.raises(PerhapsDone):
                    remote.end()
            else:
                assert [each.path for each in remote.end("m1" if is_named else None).patch.files] == ["a"]
        assert process.wait(PATIENCE_S) == -signal.SIGKILL

    (message,) = Shadow(worktree).messages()
    assert message.state == "active"
    assert [each.path for each in message.patch.files] == ["a"]


@pytest.mark.parametrize("at", ["first", "commit", "answer"])
def test_a_message_begins_once_whenever_the_daemon_dies(worktree: Path, at: str) -> None:
    make_tree(worktree, {"a": "1"})
    with daemon(KILL_AT.format(at=at)) as process:
        serve_kept(worktree)
        make_tree(worktree, {"a": "2"})
        with require(worktree) as remote:
            assert remote.begin("m1", text="a text").text == "a text"
        assert process.wait(PATIENCE_S) == -signal.SIGKILL

    assert [(each.id, each.state) for each in Shadow(worktree).messages()] == [("m1", "open")]


@pytest.mark.parametrize("at", ["first", "stage", "exchange", "commit", "unlink", "answer"])
def test_an_act_is_done_once_whenever_the_daemon_dies(worktree: Path, at: str) -> None:
    """`unlink` comes after the record: from then on nothing shows which of the two did it."""
    prepare_undo(worktree)
    with daemon(KILL_AT.format(at=at)) as process:
        serve_kept(worktree)
        with require(worktree) as remote:
            if at in ("unlink", "answer"):
                with pytest.raises(PerhapsDone, match="stopped during 'undo'"):
                    remote.undo()
            else:
                assert remote.undo().messages == ["m1"]
        assert process.wait(PATIENCE_S) == -signal.SIGKILL

    assert_tree(worktree, {"a": "1", "b": "1"})
    with Shadow(worktree) as shadow:
        assert shadow.status().undone == ["m1"]
        assert shadow.redo().messages == ["m1"]


@pytest.mark.slow
def test_an_act_is_done_once_at_whichever_write_the_daemon_dies(tmp_path: Path) -> None:
    for number in count(1):
        worktree = tmp_path / f"w{number}"
        prepare_undo(worktree)
        with daemon(KILL_AT.format(at=number)):
            serve_kept(worktree)
            with require(worktree) as remote:
                try:
                    assert remote.undo().messages == ["m1"]
                except PerhapsDone:
                    pass
                has_survived = vars(remote)["_local"] is None

        assert_tree(worktree, {"a": "1", "b": "1"})
        with Shadow(worktree) as shadow:
            assert shadow.status().undone == ["m1"]
            assert_sound_store(shadow.store)
        if has_survived:
            break
    assert number > 10


def test_a_snapshot_that_may_have_been_recorded_is_not_recorded_again(worktree: Path) -> None:
    make_tree(worktree, {"a": "1"})
    with daemon(KILL_AT.format(at="answer")):
        serve_kept(worktree)
        with require(worktree) as remote, pytest.raises(PerhapsDone):
            remote.snapshot("m1")

    assert [each.id for each in Shadow(worktree).messages()] == ["m1"]


def test_a_dry_run_is_done_again(worktree: Path) -> None:
    prepare_undo(worktree)
    with daemon(KILL_AT.format(at="answer")):
        serve_kept(worktree)
        with require(worktree) as remote:
            assert remote.undo(dry_run=True).restored == ["a", "b"]

    assert_tree(worktree, {"a": "2", "b": "2"})


def test_what_a_dead_daemon_began_is_taken_back_and_told(worktree: Path) -> None:
    prepare_undo(worktree)
    with daemon(KILL_AT.format(at="exchange")):
        serve_kept(worktree)
        with require(worktree) as remote:
            remote.undo()

            assert remote.recovered == ["an interrupted undo was rolled back"]


# A daemon that hangs

FAST_BEAT = "beat_s=0.1"


def test_a_daemon_that_hangs_is_not_waited_for(worktree: Path) -> None:
    with daemon() as process:
        serve_kept(worktree)
        process.send_signal(signal.SIGSTOP)

        assert not is_found(worktree)


def test_a_daemon_that_falls_silent_is_not_waited_for(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing predicts what it will do when it wakes up, so the command does nothing itself."""
    prepare_undo(worktree)
    held = tmp_path / "held"
    code = HOLD_AT.format(at="exchange", held=str(held), patience=PATIENCE_S)
    with daemon(code, timing=FAST_BEAT) as process:
        serve_kept(worktree)
        use_timing(monkeypatch, Timing(silence_s=2.0))

        def stop() -> None:
            wait_until(held.exists)
            process.send_signal(signal.SIGSTOP)

        stopping = threading.Thread(target=stop)
        stopping.start()
        with require(worktree) as remote, pytest.raises(PerhapsDone, match="stopped responding"):
            remote.undo()
        stopping.join()
        process.send_signal(signal.SIGCONT)

        # It notices that the command has gone, and rolls the act back.
        with require(worktree) as remote:
            assert remote.status().undone == []
    assert_tree(worktree, {"a": "2", "b": "2"})


def test_work_that_takes_long_is_not_silent(worktree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = (
        "import time\n"
        "from shadowtree import Shadow\n"
        "status = Shadow.status\n"
        "def slow_status(self):\n"
        "    time.sleep(3)\n"
        "    return status(self)\n"
        "Shadow.status = slow_status\n"
    )
    with daemon(slow, timing=FAST_BEAT):
        serve_kept(worktree)
        use_timing(monkeypatch, Timing(silence_s=2.0))
        with require(worktree) as remote:
            assert remote.status().changed == 0
            assert vars(remote)["_local"] is None
