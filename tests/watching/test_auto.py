"""Bursts of changes: when one ends, what is recorded of it, and the loop that records them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from shadowtree import DuplicateMessage, InvalidInput, Message, NotWrapped, Shadow, ShadowError
from shadowtree.config.settings import parse_duration
from shadowtree.store.directory import StoreLayout
from shadowtree.store.lock import Lock
from shadowtree.watching.auto import Auto, Burst, longest_burst, name_burst, note_change
from tests.support.referee import assert_sound_store
from tests.support.terminal import Terminal
from tests.support.trees import assert_tree, make_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.watching.auto import RecordsBursts

# The rule


def test_a_burst_is_over_after_the_quiet() -> None:
    burst = note_change(None, 100.0)

    assert burst == Burst(100.0, 100.0)
    assert burst.ends_at(5) == 105.0


def test_a_change_prolongs_a_burst() -> None:
    """As drawn in the module: a change that comes in time belongs to the burst."""
    burst = note_change(note_change(note_change(None, 100.0), 103.0), 107.5)

    assert burst == Burst(100.0, 107.5)
    assert burst.ends_at(5) == 112.5


def test_a_burst_that_never_rests_is_over_all_the_same() -> None:
    burst = note_change(None, 0.0)
    for second in range(1, 200):
        burst = note_change(burst, float(second))

    assert burst.ends_at(5) == 60.0
    assert burst.ends_at(10) == 120.0


@pytest.mark.parametrize(("quiet_s", "longest_s"), [(0.5, 60.0), (5, 60.0), (6, 72.0), (60, 720.0)])
def test_the_longest_burst_is_twelve_times_the_quiet_and_at_least_a_minute(
    quiet_s: float, longest_s: float
) -> None:
    assert longest_burst(quiet_s) == longest_s


def test_the_id_of_a_burst_is_made_of_its_time() -> None:
    assert name_burst(1794824100.7, 2) == "auto-20261116T101500Z-2"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5),
        ("500ms", 0.5),
        ("2m", 120),
        ("5", 5),
        ("1.5s", 1.5),
        (" 3 ", 3),
        ("24h", 86400),
        ("0.5", 0.5),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "0",
        "0s",
        "-5s",
        "5 minutes",
        "5sm",
        "s5",
        "inf",
        "nan",
        "25h",
        "1.2.3",
        ".",
        "9" * 99,
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidInput, match="a duration must be like 500ms, 5s or 2m, up to a day"):
        parse_duration(text)


# Records


def changes(message: Message | None) -> list[tuple[str, str]]:
    assert message is not None
    return [(changed.path, changed.status) for changed in message.patch.files]


def ids(shadow: Shadow) -> list[str]:
    return [message.id for message in shadow.messages()]


@pytest.fixture
def wrapped(shadow: Shadow, worktree: Path) -> Shadow:
    make_tree(worktree, {"a": "one\n", "b": "two\n", ".gitignore": "*.log\n"})
    shadow.wrap()
    return shadow


def test_a_burst_is_a_finished_message_marked_as_inferred(wrapped: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("new\n")
    (worktree / "c").write_text("")

    message = wrapped.record_burst("auto-1", text="by somebody")

    assert changes(message) == [("a", "modified"), ("c", "added")]
    assert message is not None
    assert (message.state, message.inferred, message.is_burst) == ("active", True, True)
    assert message.text == "by somebody"
    assert message.to_dict()["inferred"] is True


def test_nothing_is_recorded_where_nothing_changed(wrapped: Shadow, worktree: Path) -> None:
    before = wrapped.take_snapshot()

    assert wrapped.record_burst("auto-1") is None
    assert ids(wrapped) == []
    (worktree / "x.log").write_text("ignored\n")
    assert wrapped.record_burst("auto-2") is None
    assert ids(wrapped) == []
    assert wrapped.take_snapshot().tree == before.tree


def test_a_directory_is_a_change_and_what_nobody_can_read_is_none(wrapped: Shadow, worktree: Path) -> None:
    (worktree / "empty").mkdir()
    assert changes(wrapped.record_burst("auto-1")) == []
    wrapped.undo()
    assert not (worktree / "empty").exists()
    with Shadow(worktree, settings={"min_free": 0, "max_file_size": 10}) as strict:
        (worktree / "big").write_text("x" * 100)

        assert strict.record_burst("auto-2") is None


def test_a_directory_that_is_not_wrapped_has_no_bursts(shadow: Shadow) -> None:
    with pytest.raises(NotWrapped):
        shadow.record_burst("auto-1")


def test_an_id_is_taken_once(wrapped: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("new\n")
    wrapped.record_burst("auto-1")
    (worktree / "a").write_text("newer\n")

    with pytest.raises(DuplicateMessage):
        wrapped.record_burst("auto-1")


@pytest.mark.parametrize("session", ["default", "other"])
def test_while_a_message_is_open_a_burst_is_part_of_it(wrapped: Shadow, worktree: Path, session: str) -> None:
    agent = wrapped.for_session(session)
    agent.begin("m1")
    (worktree / "a").write_text("new\n")

    assert wrapped.record_burst("auto-1") is None
    assert changes(agent.end("m1")) == [("a", "modified")]
    assert wrapped.record_burst("auto-2") is None
    assert "auto-1" not in ids(wrapped)


@pytest.mark.parametrize("session", ["default", "other"])
def test_what_a_message_changed_is_not_told_twice(wrapped: Shadow, worktree: Path, session: str) -> None:
    agent = wrapped.for_session(session)
    (worktree / "a").write_text("by a burst\n")
    wrapped.record_burst("auto-1")
    with agent.message("m1"):
        (worktree / "b").write_text("by m1\n")
    (worktree / "c").write_text("by a burst\n")
    second = wrapped.record_burst("auto-2")
    with agent.message("m2"):
        (worktree / "d").write_text("by m2\n")

    assert changes(second) == [("c", "added")]
    assert wrapped.record_burst("auto-3") is None
    assert {message.id: changes(message) for message in wrapped.messages(all_sessions=True)} == {
        "auto-1": [("a", "modified")],
        "m1": [("b", "modified")],
        "auto-2": [("c", "added")],
        "m2": [("d", "added")],
    }


@pytest.mark.parametrize("session", ["default", "other"])
def test_what_an_act_did_is_no_burst(wrapped: Shadow, worktree: Path, session: str) -> None:
    agent = wrapped.for_session(session)
    with agent.message("m1"):
        (worktree / "a").write_text("by m1\n")
    agent.undo()
    assert wrapped.record_burst("auto-1") is None
    agent.redo()
    assert wrapped.record_burst("auto-2") is None
    (worktree / "a").write_text("by somebody\n")
    agent.restore("m1^")

    assert wrapped.record_burst("auto-3") is None
    assert ids(agent) == ["m1"]


def test_bursts_are_undone_and_redone_like_messages(wrapped: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("1\n")
    wrapped.record_burst("auto-1")
    (worktree / "a").write_text("2\n")
    (worktree / "c").write_text("2\n")
    wrapped.record_burst("auto-2")

    wrapped.undo()
    assert_tree(worktree, {"a": "1\n", "b": "two\n", ".gitignore": "*.log\n"})
    wrapped.undo()
    assert_tree(worktree, {"a": "one\n", "b": "two\n", ".gitignore": "*.log\n"})
    wrapped.redo(None)
    assert_tree(worktree, {"a": "2\n", "b": "two\n", "c": "2\n", ".gitignore": "*.log\n"})
    wrapped.revert("auto-1")
    assert_tree(worktree, {"a": "one\n", "b": "two\n", ".gitignore": "*.log\n"})


def test_a_burst_after_an_undo_archives_what_was_undone(wrapped: Shadow, worktree: Path) -> None:
    """As any new message does."""
    (worktree / "a").write_text("1\n")
    wrapped.record_burst("auto-1")
    wrapped.undo()
    (worktree / "b").write_text("2\n")
    wrapped.record_burst("auto-2")

    assert [(m.id, m.state) for m in wrapped.messages()] == [("auto-1", "archived"), ("auto-2", "active")]
    wrapped.switch("auto-1")
    assert_tree(worktree, {"a": "1\n", "b": "two\n", ".gitignore": "*.log\n"})


def test_an_edit_after_a_burst_is_a_conflict_for_its_undo(wrapped: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("by a burst\n")
    wrapped.record_burst("auto-1")
    (worktree / "a").write_text("by the user, a moment ago\n")

    with pytest.raises(ShadowError, match="1 path in conflict"):
        wrapped.undo()

    assert (worktree / "a").read_text() == "by the user, a moment ago\n"


def test_a_burst_of_another_session_on_the_same_path_is_a_conflict(wrapped: Shadow, worktree: Path) -> None:
    agent = wrapped.for_session("agent")
    with agent.message("m1"):
        (worktree / "a").write_text("by m1\n")
    (worktree / "a").write_text("by somebody\n")
    wrapped.record_burst("auto-1")

    with pytest.raises(ShadowError, match="1 path in conflict"):
        agent.undo()


def test_what_the_last_snapshot_of_anybody_has_is_no_burst(wrapped: Shadow, worktree: Path) -> None:
    (worktree / "a").write_text("seen by track\n")
    wrapped.track()

    assert wrapped.record_burst("auto-1") is None


def test_an_unwatched_and_a_watched_shadow_record_the_same(worktree: Path) -> None:
    make_tree(worktree, {"d": {"a": "one\n"}, "b": "two\n"})
    with Shadow(worktree, settings={"min_free": 0}, watch=True) as shadow:
        shadow.wrap()
        for number, content in enumerate(["1", "2", "3"]):
            (worktree / "d" / "a").write_text(content)
            assert changes(shadow.record_burst(f"auto-{number}")) == [("d/a", "modified")]
            assert shadow.record_burst(f"none-{number}") is None
        tree = shadow.track()
    with Shadow(worktree) as cold:
        assert cold.track() == tree
    assert_sound_store(shadow.store)


def test_the_log_marks_what_is_inferred(terminal: Terminal, project: Path) -> None:
    with Shadow(project) as shadow:
        shadow.wrap()
        (project / "a.txt").write_text("new\n")
        shadow.record_burst("auto-1")

    assert "inferred" in terminal.run("log")
    assert "inferred" in terminal.run("log", "--graph")
    assert "recorded from changes outside any message" in terminal.run("show", "auto-1")
    assert terminal.run_json("log")[0]["burst"] is True


# The loop


class Time:
    """A clock that only advances in waits; each wait plays the next scene."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.scenes: list[Callable[[], None]] = []
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def wait(self, shadow: RecordsBursts | None, timeout_s: float, stop: Event) -> bool:
        del stop
        self.waits.append(timeout_s)
        if self.scenes:
            self.scenes.pop(0)()
        else:
            self.now_s += timeout_s
        return shadow is not None and shadow.drain()

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something this long after the wait began."""

        def play() -> None:
            self.now_s += seconds
            act()

        self.scenes.append(play)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def watched(worktree: Path) -> Iterator[Shadow]:
    make_tree(worktree, {"a": "one\n", "src": {"b": "two\n"}})
    with Shadow(worktree, settings={"min_free": 0}, watch=True) as shadow:
        yield shadow
    assert_sound_store(shadow.store)


def make_auto(shadow: Shadow, time: Time, **options: Callable[..., None]) -> Auto:
    return Auto(shadow, 5.0, wait=time.wait, clock=time, now=lambda: 1794824100.0, **options)


def play(auto: Auto, time: Time, *, quiet: int = 0) -> None:
    """Play all scenes, and then this many waits in which nothing happens."""
    stop = Event()
    for _ in range(len(time.scenes) + quiet):
        auto.turn(stop)


def test_a_burst_is_recorded_when_it_is_quiet(watched: Shadow, worktree: Path, time: Time) -> None:
    auto = make_auto(watched, time)
    time.after(3, lambda: (worktree / "a").write_text("1\n"))
    time.after(4, lambda: (worktree / "src" / "b").write_text("2\n"))
    time.after(4, lambda: (worktree / "a").write_text("3\n"))
    play(auto, time)
    assert ids(watched) == []
    play(auto, time, quiet=1)

    (message,) = watched.messages()
    assert message.id == "auto-20261116T101500Z-1"
    assert changes(message) == [("a", "modified"), ("src/b", "modified")]
    assert time.waits == [60.0, 5.0, 5.0, 5.0]


def test_two_bursts_are_two_messages_though_the_clock_gives_one_id(
    watched: Shadow, worktree: Path, time: Time
) -> None:
    told: list[Message] = []
    auto = make_auto(watched, time, on_message=told.append)
    for content in ("1\n", "2\n"):
        time.after(1, lambda content=content: (worktree / "a").write_text(content))  # type: ignore[misc]  # a loop
        play(auto, time, quiet=1)

    assert ids(watched) == ["auto-20261116T101500Z-1", "auto-20261116T101500Z-2"]
    assert told == watched.messages()


def test_what_was_changed_before_is_not_in_the_first_burst(
    watched: Shadow, worktree: Path, time: Time
) -> None:
    watched.wrap()
    (worktree / "src" / "b").write_text("before anybody watched\n")
    auto = make_auto(watched, time)
    time.after(1, lambda: (worktree / "a").write_text("1\n"))
    play(auto, time, quiet=1)

    assert [changes(message) for message in watched.messages()] == [[("a", "modified")]]


def test_a_burst_that_never_rests_is_recorded_now_and_then(
    watched: Shadow, worktree: Path, time: Time
) -> None:
    auto = make_auto(watched, time)
    for second in range(130):
        time.after(1, lambda second=second: (worktree / "a").write_text(f"{second}\n"))  # type: ignore[misc]
    play(auto, time)

    assert len(watched.messages()) == 2


def test_nothing_happens_and_nothing_is_done(watched: Shadow, time: Time) -> None:
    auto = make_auto(watched, time)
    play(auto, time, quiet=10)

    assert ids(watched) == []
    assert time.waits == [60.0] * 10


def test_a_change_between_two_waits_counts(watched: Shadow, worktree: Path, time: Time) -> None:
    auto = make_auto(watched, time)
    play(auto, time, quiet=1)
    (worktree / "a").write_text("1\n")
    play(auto, time, quiet=2)

    assert len(watched.messages()) == 1


def test_where_nobody_can_say_it_is_looked_now_and_then(shadow: Shadow, worktree: Path, time: Time) -> None:
    """For example on a network file system: the shadow watches nothing."""
    auto = make_auto(shadow, time)
    (worktree / "a").write_text("one\n")
    play(auto, time, quiet=1)
    (worktree / "a").write_text("1\n")
    play(auto, time, quiet=10)
    assert ids(shadow) == []
    play(auto, time, quiet=4)

    assert len(shadow.messages()) == 1


def test_changes_in_a_directory_that_came_are_bursts(watched: Shadow, worktree: Path, time: Time) -> None:
    auto = make_auto(watched, time)
    time.after(1, lambda: make_tree(worktree, {"new": {"deep": {"c": "3\n"}}}))
    play(auto, time, quiet=2)
    time.after(1, lambda: (worktree / "new/deep/c").write_text("4\n"))
    play(auto, time, quiet=2)

    assert [changes(message) for message in watched.messages()] == [
        [("new/deep/c", "added")],
        [("new/deep/c", "modified")],
    ]


def test_bursts_while_a_message_is_open_belong_to_it(watched: Shadow, worktree: Path, time: Time) -> None:
    agent = watched.for_session("agent")
    auto = make_auto(watched, time)
    time.after(1, lambda: agent.begin("m1"))
    time.after(1, lambda: (worktree / "a").write_text("1\n"))
    play(auto, time, quiet=3)
    time.after(1, lambda: agent.end("m1"))
    play(auto, time, quiet=3)

    assert ids(watched) == []
    assert [changes(message) for message in agent.messages()] == [[("a", "modified")]]


def test_a_look_in_between_takes_nothing_away(watched: Shadow, worktree: Path, time: Time) -> None:
    """`status` empties the watcher's queue."""
    auto = make_auto(watched, time)

    def edit_and_look() -> None:
        (worktree / "a").write_text("1\n")
        watched.status()

    time.after(1, edit_and_look)
    play(auto, time, quiet=1)

    assert len(watched.messages()) == 1


def test_what_fails_is_told_and_tried_again(watched: Shadow, worktree: Path, time: Time) -> None:
    failures: list[ShadowError] = []
    with Shadow(worktree, settings={"min_free": 0, "lock_timeout": 0}, watch=True) as impatient:
        auto = make_auto(impatient, time, on_failure=failures.append)
        time.after(1, lambda: (worktree / "a").write_text("1\n"))
        play(auto, time)
        with Lock(StoreLayout(str(watched.store)).lock, 0):
            play(auto, time, quiet=2)
            assert [type(failure).__name__ for failure in failures] == ["Locked", "Locked"]
        assert impatient.messages() == []
        play(auto, time, quiet=1)

        assert len(impatient.messages()) == 1


def test_if_it_cannot_even_begin_it_tries_again(watched: Shadow, worktree: Path, time: Time) -> None:
    failures: list[ShadowError] = []
    watched.wrap()
    with Shadow(worktree, settings={"min_free": 0, "lock_timeout": 0}, watch=True) as impatient:
        auto = make_auto(impatient, time, on_failure=failures.append)
        with Lock(StoreLayout(str(watched.store)).lock, 0):
            play(auto, time, quiet=2)
        assert len(failures) == 2
        time.after(1, lambda: (worktree / "a").write_text("1\n"))
        play(auto, time, quiet=2)

        assert [changes(message) for message in impatient.messages()] == [[("a", "modified")]]


@pytest.mark.parametrize("watcher", ["inotify", "watchfiles"])
def test_it_runs_in_a_thread_and_stops(watcher: str, worktree: Path) -> None:
    """With the real clock, wait and watcher."""
    make_tree(worktree, {"a": "one\n", "src": {"b": "two\n"}})
    watched = Shadow(worktree, settings={"min_free": 0, "watcher": watcher}, watch=True)
    recorded, stop = Event(), Event()
    auto = Auto(watched, 0.05, on_message=lambda message: recorded.set())
    thread = Thread(target=auto.run, args=(stop,))
    thread.start()
    try:
        number = 0
        while not recorded.wait(0.5):
            # The first changes may come before it watches, and belong to no burst.
            number += 1
            (worktree / "src" / "b").write_text(f"{number}\n")
            assert number < 100
    finally:
        stop.set()
        thread.join(60)

    assert not thread.is_alive()
    assert changes(watched.messages()[0]) == [("src/b", "modified")]
    watched.close()


def test_told_to_stop_it_records_what_goes_on(watched: Shadow, worktree: Path, time: Time) -> None:
    stop = Event()
    auto = make_auto(watched, time)
    time.after(1, lambda: (worktree / "a").write_text("1\n"))
    time.after(1, stop.set)
    auto.run(stop)

    assert [changes(message) for message in watched.messages()] == [[("a", "modified")]]
