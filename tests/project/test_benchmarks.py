"""The benchmarks compare like with like: the same trees, rivals that agree, right arithmetic."""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import trees
from benchmarks.area import Area
from benchmarks.collecting import LockNotSeen, time_lock
from benchmarks.contestants import GIT_ADD, OPENCODE, OURS, enter, enter_for_messages
from benchmarks.history import Recorded, list_worst
from benchmarks.holding import count_held
from benchmarks.later import WATCHED, measure_snapshots
from benchmarks.measure import Effort, disk_usage, measure_first, take_turns
from benchmarks.ours import Daemon, NotServed, NotWatched, Ours, idle
from benchmarks.report import Row, Unit, render_figures, render_plot, render_table, spread, to_json
from benchmarks.rivals import GitAdd, OpenCode, commit_all
from benchmarks.works import WORKS
from shadowtree import Shadow, Watching
from tests.support.daemons import wait_until

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def worktree(tmp_path: Path) -> Path:
    root = tmp_path / "worktree"
    trees.build_tree(root, 60)
    return root


def contents(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path: ((root / path).read_bytes(), (root / path).stat().st_mode) for path in trees.list_files(root)
    }


def test_the_same_seed_gives_the_same_tree(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        trees.build_tree(tmp_path / name, 60, seed=seed)

    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert contents(tmp_path / "a") != contents(tmp_path / "c")


def test_a_tree_has_exactly_as_many_files_as_asked_for_and_no_path_is_too_deep(tmp_path: Path) -> None:
    trees.build_tree(tmp_path / "tree", 700)
    paths = trees.list_files(tmp_path / "tree")

    assert len(paths) == 700
    assert max(path.count("/") + 1 for path in paths) <= trees.DEEPEST


def test_change_files_rewrites_as_many_files_as_asked_for(worktree: Path) -> None:
    before = contents(worktree)
    trees.change_files(worktree, trees.list_files(worktree), changes=10, seed=1)
    after = contents(worktree)

    assert before.keys() == after.keys()
    assert sum(before[path] != after[path] for path in before) == 10


def test_edit_files_changes_few_lines_of_as_many_texts_as_asked_for(worktree: Path) -> None:
    (worktree / "noise.bin").write_bytes(b"\0\n" * 100)
    before = contents(worktree)
    paths = trees.list_files(worktree)
    written = sum(trees.edit_files(worktree, paths, edits=10, seed=seed) for seed in range(3))
    after = contents(worktree)

    edited = [path for path in before if before[path] != after[path]]
    assert 10 <= len(edited) <= 30
    assert after["noise.bin"] == before["noise.bin"]
    assert written >= sum(len(after[path][0]) for path in edited)
    for path in edited:
        old, new = (side[path][0].splitlines() for side in (before, after))
        assert len(set(new) - set(old)) <= 3 * 6
        assert len(set(old) - set(new)) <= 3 * 6


def test_idle_time_leaves_nothing_to_do_and_every_message_whole(tmp_path: Path, worktree: Path) -> None:
    with Shadow(worktree, store=tmp_path / "store") as shadow:
        for seed in range(10):
            with shadow.message(f"m{seed}"):
                trees.edit_files(worktree, trees.list_files(worktree), edits=5, seed=seed)
        idle(shadow)
        left = disk_usage(tmp_path / "store" / "objects")
        idle(shadow)

        assert disk_usage(tmp_path / "store" / "objects") == left
        assert shadow.check(read_data=True).ok


def test_a_given_directory_is_copied_without_its_repository(tmp_path: Path, worktree: Path) -> None:
    commit_all(worktree)
    area = Area(tmp_path / "area", files=60, tree=worktree, settle_s=0)

    assert contents(area.folder) == contents(worktree)
    assert not (area.folder / ".git").exists()


def test_a_rival_keeps_its_store_and_its_worktree_and_finds_what_ours_alone_changed(tmp_path: Path) -> None:
    area = Area(tmp_path / "area", files=60, tree=None, settle_s=0)
    first = enter(OPENCODE, area.worktree_of(OPENCODE), area.store_of(OPENCODE))
    first.prime()
    area.change_on(5)
    second = enter(OPENCODE, area.worktree_of(OPENCODE), area.store_of(OPENCODE))
    second.prime()

    assert area.worktree_of(OURS) == area.folder != second.worktree == first.worktree
    assert area.digest(second.worktree) == area.digest(area.folder)
    assert area.store_of(GIT_ADD) != area.store_of(OPENCODE)
    assert area.store_of(OURS) != area.store_of(OURS)
    assert second.track() == GitAdd(area.folder, area.new_store()).track()


def test_the_same_seed_makes_the_same_changes_in_worktrees_of_their_own(tmp_path: Path) -> None:
    area = Area(tmp_path / "area", files=60, tree=None, settle_s=0)
    ours, rival = area.worktree_of(OURS), area.worktree_of(OPENCODE)
    before, seed = area.digest(ours), area.next_seed()
    area.change(ours, 5, seed)
    assert area.digest(ours) != before == area.digest(rival)

    area.change(rival, 5, seed)
    assert area.digest(ours) == area.digest(rival)


def test_nothing_comes_between_a_change_and_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent's hook fires at once. What others left to be written is flushed before the change."""
    area = Area(tmp_path / "area", files=60, tree=None, settle_s=0)
    places = [area.worktree_of(name) for name in (OURS, OPENCODE)]
    happened: list[str] = []
    note(monkeypatch, happened, os, "sync")
    note(monkeypatch, happened, time, "sleep")
    note(monkeypatch, happened, trees, "change_files")
    for contestant in (Ours, OpenCode):
        note(monkeypatch, happened, contestant, "track")
    effort = Effort(runs=1, long_runs=1, only_targets=True, skip_slow=True, idle_s=0, messages=1)
    rows = measure_snapshots(WATCHED, area, 60, effort)

    begin = happened.index("sync")
    assert happened[begin:] == ["sync", "change_files", "track"] * 2 * 2 * len(rows)
    assert [area.digest(place) for place in places] == [area.digest(area.folder)] * 2


def note(monkeypatch: pytest.MonkeyPatch, happened: list[str], owner: object, name: str) -> None:
    """Note in a list that something is called, and call it."""
    call = getattr(owner, name)

    def noted(*arguments: object, **named: object) -> object:
        happened.append(name)
        return call(*arguments, **named)

    monkeypatch.setattr(owner, name, noted)


@pytest.mark.parametrize("is_repository", [False, True], ids=["folder", "repository"])
def test_the_rivals_agree_on_the_tree_before_and_after_changes(
    tmp_path: Path, worktree: Path, is_repository: bool
) -> None:
    if is_repository:
        commit_all(worktree)
    plain = GitAdd(worktree, tmp_path / "plain")
    opencode = OpenCode(worktree, tmp_path / "opencode")
    paths = trees.list_files(worktree)

    first = plain.track()
    assert opencode.track() == first

    trees.change_files(worktree, paths, changes=5, seed=1)
    (worktree / paths[7]).unlink()
    (worktree / "new ü [1].txt").write_text("new\n")
    second = plain.track()
    assert opencode.track() == second != first


def test_opencodes_store_is_the_same_whether_primed_or_tracked(tmp_path: Path, worktree: Path) -> None:
    """Only then are its later snapshots the same; its own first one takes too long in a large tree."""
    for directory, _, names in os.walk(worktree):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            os.utime(path, (1, 1))  # git writes the entries of young files otherwise
    stores = [tmp_path / "primed", tmp_path / "tracked"]
    OpenCode(worktree, stores[0]).prime()
    OpenCode(worktree, stores[1]).track()

    primed, tracked = ((store / "index").read_bytes() for store in stores)
    assert primed == tracked
    primed_objects, tracked_objects = (trees.list_files(store / "objects") for store in stores)
    assert primed_objects == tracked_objects


def test_opencode_leaves_out_what_the_repository_ignores_and_large_untracked_files(
    tmp_path: Path, worktree: Path
) -> None:
    commit_all(worktree)
    opencode = OpenCode(worktree, tmp_path / "store")
    tree = opencode.track()
    (worktree / "large.bin").write_bytes(bytes(2 * 1024 * 1024 + 1))
    assert opencode.track() == tree

    (worktree / ".git" / "info" / "exclude").write_text("*.log\n")
    (worktree / "noise.log").write_text("noise\n")
    assert opencode.track() == tree


@pytest.mark.parametrize("changes", [1, 10])
def test_opencodes_revert_undoes_its_patch(tmp_path: Path, worktree: Path, changes: int) -> None:
    opencode = OpenCode(worktree, tmp_path / "store")
    before = contents(worktree)
    tree = opencode.track()
    trees.change_files(worktree, list(before), changes=changes, seed=1)
    (worktree / "new.txt").write_text("new\n")

    paths = opencode.patch(tree)
    assert len(paths) == changes + 1

    opencode.revert(tree, paths)
    assert contents(worktree) == before


def test_contestants_say_the_same_of_a_message_and_take_it_back_alike(tmp_path: Path, worktree: Path) -> None:
    before = contents(worktree)
    places = {OURS: worktree, OPENCODE: tmp_path / "copy"}
    trees.copy_tree(worktree, places[OPENCODE])
    contestants = {name: enter_for_messages(name, places[name], tmp_path / name) for name in places}
    said = {}
    for name, contestant in contestants.items():
        contestant.begin_message()
        trees.change_files(places[name], list(before), changes=10, seed=1)
        said[name] = contestant.end_message()
        assert contents(places[name]) != before

        contestant.revert_message()
        assert contents(places[name]) == before
        contestant.close()

    assert said[OURS] == said[OPENCODE]
    assert len(said[OURS].paths) == 10


def test_a_watching_contestant_names_the_trees_of_the_others(tmp_path: Path, worktree: Path) -> None:
    watching = enter(OURS, worktree, tmp_path / "watching", watch=True)
    opencode = enter(OPENCODE, worktree, tmp_path / "opencode")
    watching.prime()
    opencode.prime()
    paths = trees.list_files(worktree)
    named = []
    for seed in range(3):
        trees.change_files(worktree, paths, changes=10, seed=seed)
        named.append(watching.track())
        assert named[-1] == opencode.track()
    watching.close()

    assert len(set(named)) == 3


def test_a_contestant_that_cannot_watch_is_not_measured(
    tmp_path: Path, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = Watching(
        is_active=False, directories=0, unwatched=1, rescans=1, reason="no watches are left", missed=0
    )
    monkeypatch.setattr(Shadow, "watching", blind)
    contestant = enter(OURS, worktree, tmp_path / "store", watch=True)

    with pytest.raises(NotWatched, match="no watches are left"):
        contestant.prime()
    contestant.close()


def test_what_a_process_holds_are_its_threads_and_descriptors() -> None:
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    with open(os.devnull):
        held = count_held()
    is_over.set()
    thread.join()

    # To the kernel a thread is over a moment after it is to Python: so may one of the test before be.
    wait_until(lambda: count_held() <= held - 2)


def test_commands_that_the_daemon_did_not_serve_are_not_measured(tmp_path: Path, worktree: Path) -> None:
    with Daemon(worktree, tmp_path / "daemon") as daemon:
        daemon.command("begin", "m1")
        daemon.require_served(1)

        with pytest.raises(NotServed):
            daemon.require_served(100)

    assert json.loads(daemon.command("watch", "status", "--json"))["pid"] is None


def test_equal_worktrees_have_equal_digests(worktree: Path) -> None:
    paths = trees.list_files(worktree)
    before = trees.digest_files(worktree, paths)
    content = (worktree / paths[0]).read_bytes()

    (worktree / paths[0]).write_bytes(content + b"x")
    assert trees.digest_files(worktree, paths) != before

    (worktree / paths[0]).write_bytes(content)
    assert trees.digest_files(worktree, paths) == before

    (worktree / paths[0]).chmod(0o600)
    assert trees.digest_files(worktree, paths) != before


def test_a_first_snapshot_in_its_own_process_tells_time_memory_and_store(
    tmp_path: Path, worktree: Path
) -> None:
    taken = measure_first(GIT_ADD, worktree, tmp_path / "store")

    assert taken.tree == GitAdd(worktree, tmp_path / "other").track()
    assert taken.seconds > 0
    assert taken.peak_bytes > 1_000_000
    assert (taken.store_bytes, taken.store_disk_bytes) == disk_usage(tmp_path / "store")


def test_every_contestant_begins_in_turn() -> None:
    assert list(take_turns(["a", "b", "c"], 4)) == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_the_ratio_is_the_rivals_median_divided_by_ours() -> None:
    row = Row(
        "w",
        1000,
        Unit.SECONDS,
        {OURS: [0.1, 9, 0.2], OPENCODE: [0.5, 0.4, 0.3], GIT_ADD: [0.2]},
        {OPENCODE: 2, GIT_ADD: 1.5},
    )

    assert row.ratio(OPENCODE) == 2
    assert row.is_reached(OPENCODE) is True
    assert row.is_reached(GIT_ADD) is False


def test_a_limit_is_for_the_worst_of_our_own_figures() -> None:
    samples = {OURS: [20e6, 80e6, 20e6], OPENCODE: [90e6]}

    assert Row("w", 1, Unit.BYTES, samples, limit=80e6).is_reached(OPENCODE) is True
    assert Row("w", 1, Unit.BYTES, samples, limit=79e6).is_reached(OPENCODE) is False
    assert Row("w", 1, Unit.BYTES, samples).is_reached(OPENCODE) is None


def test_a_spread_is_the_median_the_95th_of_a_hundred_and_the_worst() -> None:
    assert spread(range(100, 0, -1)) == (50.5, 95, 100)
    assert spread([3]) == (3, 3, 3)
    assert spread([1, 9]) == (5, 9, 9)


def test_the_table_has_a_line_for_each_rival_and_the_sizes_of_a_work_together() -> None:
    def row(files: int) -> Row:
        samples = {OURS: [0.5, 0.4, 0.7], OPENCODE: [1.5], GIT_ADD: [0.25]}
        return Row("first", files, Unit.SECONDS, samples, {OPENCODE: 3.5})

    other = Row("other", 1_000, Unit.SECONDS, {OURS: [1]})
    figures = "500.0 / 700.0 / 700.0 ms"

    assert cells(render_table([row(1_000), other, row(10_000)]))[2:] == [
        ["first", "1,000", "3.5", "3.00", figures, OPENCODE, "1,500.0 ms", "MISSED"],
        ["first", "1,000", "", "0.50", figures, GIT_ADD, "250.0 ms", ""],
        ["first", "10,000", "3.5", "3.00", figures, OPENCODE, "1,500.0 ms", "MISSED"],
        ["first", "10,000", "", "0.50", figures, GIT_ADD, "250.0 ms", ""],
        ["other", "1,000", "", "", "1,000.0 / 1,000.0 / 1,000.0 ms", "", "", ""],
    ]


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


def test_the_figures_stand_by_work_and_size_with_what_is_to_be_reached() -> None:
    rows = [
        Row("snapshot", 1_000, Unit.SECONDS, {OURS: [1], OPENCODE: [6.5]}, {OPENCODE: 6}),
        Row("worst", 1_000, Unit.SECONDS, {OURS: [0.001, 0.03]}, limit=0.02),
        Row("snapshot", 10_000, Unit.SECONDS, {OURS: [1], OPENCODE: [9], GIT_ADD: [1]}, {OPENCODE: 15}),
        Row("worst", 10_000, Unit.SECONDS, {OURS: [0.001, 0.02]}, limit=0.02),
        Row("snapshot", 50, Unit.SECONDS, {OURS: [1], OPENCODE: [3]}),
    ]
    heading, _, *lines = cells(render_figures(rows))

    assert heading == ["work", "50 files", "1,000 files", "10,000 files"]
    assert lines == [
        ["snapshot", "3.00", "6.50 (6) reached", "9.00 (15) MISSED"],
        ["worst", "", "30.0 ms (at most 20.0 ms) MISSED", "20.0 ms (at most 20.0 ms) reached"],
    ]


def test_a_row_without_rivals_has_a_verdict_and_a_note_of_its_own() -> None:
    row = Row("threads", 10_000, Unit.COUNT, {OURS: [0]}, limit=0, note="  none at all")
    table, note = render_table([row]).split("\n\n")

    assert cells(table)[-1] == ["threads", "10,000", "at most 0", "", "0 / 0 / 0", "", "", "reached"]
    assert note == "threads, 10,000 files:\n  none at all"
    assert to_json([row])["rows"][0]["reached"] == {OURS: True}


def test_the_worst_messages_are_listed_by_number_with_what_they_took() -> None:
    recorded = [Recorded(0.001, 0.002, 0.003) for _ in range(9)]
    recorded[6] = Recorded(0.001, 0.049, 0.004, 0.002)
    lines = list_worst(recorded).splitlines()

    taken = "begin 1.0 ms, end 49.0 ms, processor 4.0 ms, of it Python's garbage collector 2.0 ms"
    assert lines[0] == f"  no. 7: 50.0 ms ({taken})"
    assert len(lines) == 5


def test_the_time_that_a_lock_is_held_is_seen_from_outside_the_library(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    with open(place, "w") as file, open(tmp_path / "other", "w") as other, open(place) as rival:
        lock, flock = file.fileno(), fcntl.flock
        with time_lock(place) as holds:
            for fd in (lock, other.fileno()):
                fcntl.flock(fd, fcntl.LOCK_EX)
                fcntl.flock(fd, fcntl.LOCK_UN)
            fcntl.flock(rival.fileno(), fcntl.LOCK_EX)
            with pytest.raises(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert fcntl.flock is flock

    assert len(holds) == 2
    assert min(holds) > 0
    with pytest.raises(LockNotSeen), time_lock(place):
        pass


def test_contestants_that_name_different_trees_get_no_verdict() -> None:
    row = Row("first", 1, Unit.SECONDS, {OURS: [1], OPENCODE: [9]}, {OPENCODE: 2}, same_trees=False)

    assert "trees differ" in render_table([row])
    assert "reached" not in render_table([row])


def test_json_and_plot_hold_every_contestant() -> None:
    rows = [Row("a < b", 10, Unit.BYTES, {OURS: [4e6, 2e6], OPENCODE: [6e6, 6e6]}, limit=5e6)]
    (row,) = json.loads(json.dumps(to_json(rows)))["rows"]
    drawn = [text for text in ET.fromstring(render_plot(rows)).itertext() if text.strip()]

    assert row["samples"] == {OURS: [4e6, 2e6], OPENCODE: [6e6, 6e6]}
    assert row["ratios"] == {OPENCODE: 2}
    assert drawn == ["a < b, 10 files", OURS, "3.00 MB", OPENCODE, "6.00 MB"]


@pytest.fixture
def work_area(tmp_path: Path) -> Path:
    (tmp_path / "area").mkdir()
    return tmp_path / "area"


def measure(work_area: Path, *arguments: str) -> tuple[str, list[str]]:
    """Measure a small tree by the command, and give what it prints and the works of its rows."""
    quick = ["--sizes", "50", "60", "--runs=1", "--long-runs=1", "--settle=0", "--idle=0.1", "--messages=10"]
    outputs = [f"--work={work_area}", f"--json={work_area / 'out.json'}", f"--plot={work_area / 'out.svg'}"]
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks", *quick, *arguments, *outputs],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    rows = json.loads((work_area / "out.json").read_text())["rows"]
    assert "trees differ" not in result.stdout
    assert sorted(path.name for path in work_area.iterdir()) == ["out.json", "out.svg"]
    assert [row["work"] for row in rows if row["files"] == 50] == [
        row["work"] for row in rows if row["files"] == 60
    ]
    return result.stdout, [row["work"] for row in rows if row["files"] == 50]


def test_the_table_has_every_figure_to_reach(work_area: Path) -> None:
    printed, works = measure(work_area, "--table")

    assert works == [
        "watched: snapshot, 1 changed",
        "watched: snapshot, 10 changed",
        "watched: message, 10 changed",
        "watched: revert of 10 files",
        "full scan: snapshot, 1 changed",
        "full scan: message, 10 changed",
        "full scan: revert of 10 files",
        "first snapshot, no repository",
        "worst of 4 messages, 10 changed, watched",
        "growth by 2 turns of 5 edits, as left: on disk",
        "growth by 2 turns of 5 edits, after idle time",
        "growth by 2 turns of 5 edits, after gc",
        "gc, 10 messages, half of them forgotten",
        "gc, 10 messages, half of them forgotten: peak memory",
        "gc, 10 messages, half of them forgotten: lock held",
        "gc, 10 messages, half of them forgotten: store left",
    ]
    *_, figures = printed.strip().split("\n\n")
    assert [line[0] for line in cells(figures)[2:]] == works


def test_the_command_measures_what_it_is_asked_for(work_area: Path) -> None:
    names = ("watched", "later", "first", "thousandth", "watched-memory", "command", "daemon")
    assert {*names} < {work.name for work in WORKS}
    _, works = measure(work_area, *(f"--only={name}" for name in names))

    assert works == [
        "watched: snapshot, 0 changed",
        "watched: snapshot, 1 changed",
        "watched: snapshot, 10 changed",
        "full scan: snapshot, 0 changed",
        "full scan: snapshot, 1 changed",
        "full scan: snapshot, 10 changed",
        "first snapshot, no repository",
        "first snapshot, no repository: peak memory",
        "first snapshot, no repository: store on disk",
        "first snapshot, no repository: store file sizes",
        "message 10 of 5 edits, watched",
        "message 10 of 5 edits, watched: mean of 100",
        "watching: resident memory",
        "watching: peak memory",
        "watching: processor time in an idle minute",
        "watching: threads and descriptors left by close",
        "one-shot command",
        "begin with the daemon",
        "end with the daemon",
    ]


def test_a_work_that_builds_no_worktree_first_has_a_place_for_its_stores(tmp_path: Path) -> None:
    area = Area(tmp_path / "area", files=1, tree=None, settle_s=0)

    assert area.new_store().parent.is_dir()
