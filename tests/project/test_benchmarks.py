"""The benchmarks compare like with like: the same trees, rivals that agree, right arithmetic."""

import json
import os
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import trees
from benchmarks.area import Area
from benchmarks.contestants import GIT_ADD, OPENCODE, OURS, enter, enter_for_messages
from benchmarks.holding import count_held
from benchmarks.measure import disk_usage, measure_first, take_turns
from benchmarks.ours import Daemon, NotServed, NotWatched
from benchmarks.report import Row, Unit, compare_sizes, render_plot, render_table, to_json
from benchmarks.rivals import GitAdd, OpenCode, collect_garbage, commit_all, take_over_branch
from benchmarks.works import WORKS
from shadowtree import Shadow, Watching
from shadowtree.store.directory import KEEPER_REF
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


def test_git_gc_of_a_store_with_the_branch_of_another_leaves_what_that_one_has(
    tmp_path: Path, worktree: Path
) -> None:
    """Only then has git the same to do as shadowtree, which forgets in its timeline."""
    long, short = tmp_path / "long", tmp_path / "short"
    with Shadow(worktree, store=long) as shadow:
        for seed in range(4):
            with shadow.message(f"m{seed}"):
                trees.edit_files(worktree, trees.list_files(worktree), edits=5, seed=seed)
    shutil.copytree(long, short)
    with Shadow(worktree, store=short) as shadow:
        shadow.forget(keep_last=1)
    take_over_branch(long, short, KEEPER_REF)
    collect_garbage(long, aggressive=False)

    assert list_objects(long) == list_objects(short)


def list_objects(store: Path) -> list[str]:
    command = ["git", "--git-dir", str(store), "cat-file", "--batch-all-objects", "--batch-check"]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return output.splitlines()


def test_a_given_directory_is_copied_without_its_repository(tmp_path: Path, worktree: Path) -> None:
    commit_all(worktree)
    area = Area(tmp_path / "area", files=60, tree=worktree, settle_s=0)

    assert contents(area.folder) == contents(worktree)
    assert not (area.folder / ".git").exists()


def test_a_rival_keeps_its_store_from_work_to_work(tmp_path: Path) -> None:
    area = Area(tmp_path / "area", files=60, tree=None, settle_s=0)
    first = enter(OPENCODE, area.folder, area.store_of(OPENCODE))
    first.prime()
    area.change_folder(5)
    second = enter(OPENCODE, area.folder, area.store_of(OPENCODE))
    second.prime()

    assert area.store_of(GIT_ADD) != area.store_of(OPENCODE)
    assert second.track() == GitAdd(area.folder, area.new_store()).track()


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


def test_a_limit_is_for_our_own_median() -> None:
    samples = {OURS: [79e6], OPENCODE: [20e6]}

    assert Row("w", 1, Unit.BYTES, samples, limit=80e6).is_reached(OPENCODE) is True
    assert Row("w", 1, Unit.BYTES, samples, limit=79e6).is_reached(OPENCODE) is False
    assert Row("w", 1, Unit.BYTES, samples).is_reached(OPENCODE) is None


def test_the_table_has_a_line_for_each_rival() -> None:
    row = Row("first", 10_000, Unit.SECONDS, {OURS: [0.5], OPENCODE: [1.5], GIT_ADD: [0.25]}, {OPENCODE: 3.5})
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in render_table([row]).splitlines()]

    assert lines[2:] == [
        ["first", "10,000", "500.0 ms", OPENCODE, "1,500.0 ms", "3.00", "3.5", "MISSED"],
        ["first", "10,000", "500.0 ms", GIT_ADD, "250.0 ms", "0.50", "", ""],
    ]


def test_a_row_without_rivals_has_a_verdict_of_its_own() -> None:
    row = Row("threads", 10_000, Unit.COUNT, {OURS: [0]}, limit=1)
    line = render_table([row]).splitlines()[-1]

    assert [cell.strip() for cell in line.split("|")[1:-1]] == [
        *("threads", "10,000", "0"),
        *("", "", "", "under 1", "reached"),
    ]
    assert to_json([row])["rows"][0]["reached"] == {OURS: True}


def test_what_must_not_grow_is_compared_between_the_smallest_and_the_largest_tree() -> None:
    def row(work: str, files: int, seconds: float, most_growth: float | None) -> Row:
        samples = {OURS: [seconds], OPENCODE: [9.0]}
        return Row(work, files, Unit.SECONDS, samples, most_growth=most_growth)

    small, middle, large = (row("w", files, files / 1e6, 1.5) for files in (10_000, 12_000, 16_000))
    (growth,) = compare_sizes([middle, large, small, row("other", 10, 1, None), row("other", 20, 1, None)])

    assert (growth.work, growth.files, growth.rivals) == ("w: growth", 16_000, ["at 10,000 files"])
    assert growth.ratio("at 10,000 files") == pytest.approx(1 / 1.6)
    assert growth.is_reached("at 10,000 files") is False
    assert compare_sizes([small, middle])[0].is_reached("at 10,000 files") is True
    assert compare_sizes([small, small]) == []


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
    assert drawn == ["a < b, 10 files", OURS, "3.0 MB", OPENCODE, "6.0 MB"]


def test_the_command_measures_what_it_is_asked_for(tmp_path: Path) -> None:
    names = {work.name for work in WORKS} - {"packed", "loose", "switch"}
    works = [f"--only={name}" for name in names]
    area = tmp_path / "area"
    area.mkdir()
    quick = ["--settle=0", "--idle=0.1", "--messages=10"]
    outputs = [f"--work={area}", f"--json={area / 'out.json'}", f"--plot={area / 'out.svg'}"]
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--sizes=50", "--runs=1", *quick, *works, *outputs],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    rows = json.loads((area / "out.json").read_text())["rows"]

    assert [row["work"] for row in rows] == [
        "first snapshot, no repository",
        "first snapshot, no repository: peak memory",
        "first snapshot, no repository: store on disk",
        "first snapshot, no repository: store file sizes",
        "later snapshot, 0 changed",
        "later snapshot, 1 changed",
        "later snapshot, 10 changed",
        "message, 10 changed",
        "watched snapshot, 0 changed",
        "watched snapshot, 1 changed",
        "watched snapshot, 10 changed",
        "watched message, 10 changed",
        "watching: resident memory",
        "watching: peak memory",
        "watching: processor time in an idle minute",
        "watching: threads and descriptors left by close",
        "revert, 10 changed",
        "growth by 2 turns of 5 edits, as left",
        "growth by 2 turns of 5 edits, as left: on disk",
        "growth by 2 turns of 5 edits, after idle time",
        "growth by 2 turns of 5 edits, after idle time: on disk",
        "growth by 2 turns of 5 edits, after gc",
        "growth by 2 turns of 5 edits, after gc: on disk",
        "largest moment of the store",
        "message 10 of 5 edits, watched",
        "message 10 of 5 edits, watched: mean of 100",
        "gc, 10 messages, half of them forgotten",
        "gc, 10 messages, half of them forgotten: peak memory",
        "gc, 10 messages, half of them forgotten: objects left",
        "one-shot command",
        "begin with the daemon",
        "end with the daemon",
    ]
    assert "trees differ" not in result.stdout
    assert sorted(path.name for path in area.iterdir()) == ["out.json", "out.svg"]


def test_a_work_that_builds_no_worktree_first_has_a_place_for_its_stores(tmp_path: Path) -> None:
    area = Area(tmp_path / "area", files=1, tree=None, settle_s=0)

    assert area.new_store().parent.is_dir()
