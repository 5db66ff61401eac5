"""Incidents in which other agents' undo lost work, replayed: I1 to I19 of the research on reliability."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from shadowtree import Conflict, NotConfirmed, OutOfSpace, Shadow, ShadowError, StoreDamaged
from shadowtree.results.outcomes import Plan
from tests.api.test_revert import manifest, replace_tree
from tests.support.processes import in_child, surroundings
from tests.support.referee import assert_sound_store, git, init
from tests.support.stores import SETTINGS, leftovers
from tests.support.sweeps import sweep_kills
from tests.support.trees import Tree, assert_tree, file, link, make_tree, read_tree


def commit(top: Path, tree: Tree | None = None) -> Path:
    """Make a directory a repository if it is not one, and commit everything in it."""
    make_tree(top, tree or {})
    if not (top / ".git").exists():
        init(top)
    git("add", "--all", "--force", cwd=top)
    git("commit", "--quiet", "--allow-empty", "-m", "commit", cwd=top)
    return top


@pytest.fixture
def unchecked(worktree: Path) -> Iterator[Shadow]:
    """A shadow whose store somebody else will write to, so it is not checked at the end."""
    with Shadow(worktree, settings=SETTINGS) as shadow:
        yield shadow


# I1: edited files deleted on undo, because the snapshots had been wiped


@pytest.mark.usefixtures("large_packs")
def test_i01_an_undo_with_wiped_objects_is_an_error_and_deletes_nothing(
    unchecked: Shadow, worktree: Path
) -> None:
    """OpenCode 3148: a tree that could not be read counted as one without the file."""
    make_tree(worktree, {"edited": "work of weeks", "same": "1"})
    with unchecked.message("m1"):
        make_tree(worktree, {"edited": "work of weeks, edited"})
    shutil.rmtree(unchecked.store / "objects" / "pack")
    (unchecked.store / "objects" / "pack").mkdir(mode=0o700)
    before = manifest(worktree)

    with pytest.raises(StoreDamaged):
        unchecked.undo()
    assert manifest(worktree) == before


@pytest.mark.parametrize("is_same_process", [True, False], ids=["same process", "new process"])
def test_i01_an_undo_with_a_wiped_store_is_an_error_and_deletes_nothing(
    unchecked: Shadow, worktree: Path, is_same_process: bool
) -> None:
    make_tree(worktree, {"edited": "1"})
    with unchecked.message("m1"):
        make_tree(worktree, {"edited": "2"})
    if not is_same_process:
        unchecked.close()
    shutil.rmtree(unchecked.store)
    before = manifest(worktree)

    with pytest.raises(ShadowError):
        unchecked.revert("m1")
    assert manifest(worktree) == before


# I2: trees that nothing refers to are collected


def test_i02_every_message_can_be_reverted_after_git_gc_prune_now_on_the_store(
    unchecked: Shadow, worktree: Path
) -> None:
    """OpenCode prunes after seven days, and an undo of an old message then deletes."""
    make_tree(worktree, {"a": "0"})
    for number in range(1, 6):
        with unchecked.message(f"m{number}"):
            make_tree(worktree, {"a": f"{number}", f"f{number}": "x"})
    unchecked.undo(2)
    with unchecked.message("new"):
        make_tree(worktree, {"a": "new"})
    make_tree(worktree, {"a": "user"})
    unchecked.revert("m2", on_conflict="overwrite")
    unchecked.close()

    git("--git-dir", unchecked.store, "reflog", "expire", "--expire=now", "--all")
    git("--git-dir", unchecked.store, "gc", "--quiet", "--prune=now")

    unchecked.unrevert()
    assert_tree(worktree, {"a": "user", "f1": "x", "f2": "x", "f3": "x"})
    unchecked.restore("m5")
    assert_tree(worktree, {"a": "5", **{f"f{n}": "x" for n in range(1, 6)}})
    unchecked.restore("m1^")
    assert_tree(worktree, {"a": "0"})
    git("--git-dir", unchecked.store, "fsck", "--full", "--strict", "--no-dangling")


# I3: a file of the user's, made while the agent ran, was deleted


def test_i03_a_file_that_the_user_made_while_the_agent_ran_stays_when_paths_are_named(
    shadow: Shadow, worktree: Path
) -> None:
    """OpenCode 46783; F69."""
    shadow.begin("m1")
    make_tree(worktree, {"agent": "1", "user": "made in the same minute"})
    shadow.end("m1", paths=["agent"])

    shadow.undo()

    assert_tree(worktree, {"user": "made in the same minute"})


def test_i03_a_file_that_the_user_wrote_to_since_is_a_conflict(shadow: Shadow, worktree: Path) -> None:
    with shadow.message("m1"):
        make_tree(worktree, {"notes": "of the agent"})
    make_tree(worktree, {"notes": "of the agent, and a page of mine"})

    with pytest.raises(Conflict):
        shadow.undo()
    assert_tree(worktree, {"notes": "of the agent, and a page of mine"})


def test_i03_what_was_taken_for_the_agents_comes_back(shadow: Shadow, worktree: Path) -> None:
    """Without named paths nothing distinguishes the two, but nothing is lost."""
    with shadow.message("m1"):
        make_tree(worktree, {"agent": "1", "user": "only copy"})

    shadow.undo()
    shadow.unrevert()

    assert_tree(worktree, {"agent": "1", "user": "only copy"})


# I4: other directories of a monorepo reset to their state of weeks ago


def test_i04_other_directories_of_the_repository_are_never_set_back(worktree: Path) -> None:
    """OpenCode 10287, 3176; E3: undo and redo in one folder wrote an old index over the others."""
    commit(worktree, {"front": {"f": "0"}, "back": {"b": "0"}, "docs": {f"d{n}": "0" for n in range(35)}})
    with Shadow(worktree / "front", settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"front": {"f": "1", "new": "1"}})
        make_tree(worktree, {"back": {"b": "weeks of work"}, "docs": {f"d{n}": "edited" for n in range(35)}})
        others = [manifest(worktree / name) for name in ("back", "docs", ".git")]

        shadow.undo()
        assert_tree(worktree / "front", {"f": "0"})
        shadow.redo()
        assert_tree(worktree / "front", {"f": "1", "new": "1"})

        assert [manifest(worktree / name) for name in ("back", "docs", ".git")] == others
    assert_sound_store(shadow.store)


def test_i04_files_that_no_message_changed_are_never_set_back(shadow: Shadow, worktree: Path) -> None:
    """About 1,300 lines in 35 files: the user's edits between the first snapshot and the undo."""
    make_tree(worktree, {f"f{number}": "old" for number in range(35)})
    shadow.snapshot("m0")
    make_tree(worktree, {f"f{number}": "weeks of work" for number in range(35)})
    with shadow.message("m1"):
        make_tree(worktree, {"agent": "1"})

    shadow.undo()
    shadow.redo()
    shadow.undo(2)

    assert_tree(worktree, {f"f{number}": "weeks of work" for number in range(35)})


# I5: nine days without snapshots, and no warning


def test_i05_stale_lock_files_disable_nothing(shadow: Shadow, worktree: Path) -> None:
    """OpenCode 48848, 22275."""
    commit(worktree, {"a": "0"})
    shadow.track()
    for stale in (worktree / ".git" / "index.lock", shadow.store / "index.lock"):
        stale.touch(mode=0o600)
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})

    shadow.undo()

    assert_tree(worktree, {"a": "0"})


def test_i05_eight_processes_recording_at_once_lose_no_message(shadow: Shadow, worktree: Path) -> None:
    """There, 56 of 64 failed."""
    make_tree(worktree, {f"d{n}": {f"f{m}": f"{n} {m}" for m in range(10)} for n in range(10)})
    shadow.track()
    program = (
        "import sys; from pathlib import Path; from shadowtree import Shadow\n"
        "me = sys.argv[1]\n"
        "with Shadow('.', session=me, settings={'min_free': 0, 'lock_timeout': 300}) as shadow:\n"
        "    for n in range(4):\n"
        "        shadow.begin(f'{me} {n}')\n"
        "        Path(me).write_text(str(n))\n"
        "        shadow.end(paths=[me])\n"
    )
    crew = [
        subprocess.Popen([sys.executable, "-c", program, f"s{n}"], cwd=worktree, env=surroundings())
        for n in range(8)
    ]

    assert [process.wait() for process in crew] == [0] * 8
    for number in range(8):
        with Shadow(worktree, session=f"s{number}", settings=SETTINGS) as session:
            found = session.messages()
            assert [message.id for message in found] == [f"s{number} {n}" for n in range(4)]
            assert [[c.path for c in message.patch.files] for message in found] == [[f"s{number}"]] * 4
            session.undo(4)
    assert all(not (worktree / f"s{number}").exists() for number in range(8))


def test_i05_a_snapshot_that_fails_is_an_error_and_records_nothing(shadow: Shadow, worktree: Path) -> None:
    shadow.track()
    make_tree(worktree, {"a": "1"})
    with Shadow(worktree, settings={"min_free": 10**17}) as full, pytest.raises(OutOfSpace):
        full.begin("m1")

    assert shadow.messages() == []


# I6: objects borrowed from the user's repository, and temporaries that nobody removes


def test_i06_the_store_borrows_nothing_and_survives_the_users_gc(shadow: Shadow, worktree: Path) -> None:
    """OpenCode 46034: alternates pruned by the user's gc, 62 GB of temporary packs."""
    commit(worktree, {"a": "only in the index", "b": "0" * 5000})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "b": "1"})
    git("rm", "--quiet", "-r", "--cached", "--force", ".", cwd=worktree)
    git("update-ref", "-d", "HEAD", cwd=worktree)
    git("reflog", "expire", "--expire=now", "--all", cwd=worktree)
    git("gc", "--quiet", "--prune=now", cwd=worktree)

    shadow.undo()

    assert_tree(worktree, {"a": "only in the index", "b": "0" * 5000})
    assert not (shadow.store / "objects" / "info" / "alternates").exists()


@pytest.mark.usefixtures("no_tidying")
def test_i06_temporaries_of_a_dead_process_are_removed_by_the_next(shadow: Shadow, worktree: Path) -> None:
    """It is killed at every write of a recording; nothing piles up."""
    numbers = count()
    shadow.track()

    def write() -> None:
        make_tree(worktree, {"large": os.urandom(100_000)})

    def record() -> None:
        with Shadow(worktree, settings=SETTINGS) as dying:
            dying.snapshot(f"dying {next(numbers)}")

    def check() -> None:
        shadow.snapshot(f"next {next(numbers)}")
        assert leftovers(shadow.store) == []

    assert sweep_kills(write, record, check) > 3


# I7: a recursive removal where a file was expected


@pytest.fixture
def replaced(shadow: Shadow, worktree: Path) -> Shadow:
    """A message that created a file; then the user put a directory in its place."""
    with shadow.message("m1"):
        make_tree(worktree, {"out": "file of the agent"})
    (worktree / "out").unlink()
    make_tree(worktree, {".gitignore": "*.bin\n", "out": {"result": "1", "deep": {"x.bin": "only copy"}}})
    return shadow


def test_i07_a_directory_put_where_the_agent_had_a_file_is_never_removed(
    replaced: Shadow, worktree: Path
) -> None:
    """OpenCode's V2 removes recursively and by force."""
    before = read_tree(worktree)

    with pytest.raises(Conflict):
        replaced.undo()
    assert read_tree(worktree) == before
    replaced.undo(on_conflict="keep")

    assert read_tree(worktree) == before


def test_i07_what_overwrite_did_not_take_away_is_said(replaced: Shadow, worktree: Path) -> None:
    """The directory contains a file that no snapshot covers: it stays, and the outcome reports it."""
    before = read_tree(worktree)
    try:
        outcome = replaced.undo(on_conflict="overwrite")
    except Conflict:
        told = True
    else:
        told = not outcome.complete or "out" in outcome.kept

    assert read_tree(worktree) == before
    assert told


# I8: a file above the size limit that shrinks looks new


def test_i08_a_file_that_shrank_below_the_limit_is_not_deleted(worktree: Path) -> None:
    make_tree(worktree, {"data": "x" * 5000, "a": "0"})
    with Shadow(worktree, settings={**SETTINGS, "max_file_size": 1000}) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"data": "small now", "a": "1"})

        outcome = shadow.undo()

    assert_tree(worktree, {"data": "small now", "a": "0"})
    assert ([skip.path for skip in outcome.skipped], outcome.complete) == (["data"], False)


# I9: `git clean -fd` on restore


@pytest.mark.parametrize("act", ["undo", "restore"])
def test_i09_outputs_that_the_agent_never_touched_are_not_cleaned_away(
    shadow: Shadow, worktree: Path, act: str
) -> None:
    """Gemini CLI; Copilot CLI 1675: 1 GB of outputs."""
    outputs: Tree = {"outputs": {"run1": {"model.bin": "1"}}, "venv": {"lib": "1"}, "x.log": "1"}
    commit(worktree, {".gitignore": "outputs/\n*.log\n", "a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, outputs)
    before = {name: manifest(worktree / name) for name in ("outputs", "venv")}

    if act == "undo":
        shadow.undo()
    else:
        shadow.restore("m1^")

    assert_tree(worktree, {".gitignore": "outputs/\n*.log\n", "a": "0", **outputs})
    assert {name: manifest(worktree / name) for name in ("outputs", "venv")} == before


def test_i09_untracked_files_of_the_user_are_not_cleaned_away(shadow: Shadow, worktree: Path) -> None:
    commit(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    make_tree(worktree, {"untracked": "user", "d": {"untracked": "user"}})

    shadow.undo()

    assert_tree(worktree, {"a": "0", "untracked": "user", "d": {"untracked": "user"}})


# I10: everything deleted on restore to a wrong or empty base


def test_i10_an_undo_over_an_inferred_end_that_would_delete_many_files_asks_first(
    shadow: Shadow, worktree: Path
) -> None:
    """Cline 1213, Roo 6209; F62. Nothing shows that all of these files belong to the message."""
    make_tree(worktree, {"readme": "1"})
    shadow.begin("m1")
    make_tree(worktree, {f"f{number}": "1" for number in range(50)})
    before = manifest(worktree)
    plans: list[Plan] = []

    def refuse(plan: Plan) -> bool:
        plans.append(plan)
        return False

    with pytest.raises(NotConfirmed):
        shadow.undo(confirm=refuse)
    assert manifest(worktree) == before
    assert (len(plans), len(plans[0].deleted), plans[0].outcome.covered) == (1, 50, 51)


def test_i10_a_restore_to_an_empty_base_can_be_taken_back(shadow: Shadow, worktree: Path) -> None:
    shadow.snapshot("empty")
    tree: Tree = {f"d{n}": {f"f{m}": f"{n} {m}" for m in range(5)} for n in range(5)}
    make_tree(worktree, tree)

    shadow.restore("empty")
    assert_tree(worktree, {})
    shadow.unrevert()

    assert_tree(worktree, tree)


# I11: the ignore file is reverted first, then the files that it hid are removed


@pytest.mark.parametrize("act", ["undo", "restore"])
def test_i11_files_hidden_by_a_rule_that_the_message_wrote_are_not_removed(
    shadow: Shadow, worktree: Path, act: str
) -> None:
    """Cline 14367; F48: the agent adds a rule, and creates a file that it hides."""
    make_tree(worktree, {".gitignore": "", "a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {".gitignore": "secret\nout/\n", "secret": "s", "out": {"x": "1"}, "a": "1"})

    if act == "undo":
        shadow.undo()
    else:
        shadow.restore("m1^")

    assert_tree(worktree, {".gitignore": "", "a": "0", "secret": "s", "out": {"x": "1"}})


@pytest.mark.parametrize("act", ["undo", "restore"])
def test_i11_files_shown_by_a_rule_that_the_message_removed_are_not_removed(
    shadow: Shadow, worktree: Path, act: str
) -> None:
    make_tree(worktree, {".gitignore": "secret\nout/\n", "secret": "s", "out": {"x": "1"}})
    with shadow.message("m1"):
        make_tree(worktree, {".gitignore": "", "a": "1"})

    outcome = shadow.undo() if act == "undo" else shadow.restore("m1^")

    assert_tree(worktree, {".gitignore": "secret\nout/\n", "secret": "s", "out": {"x": "1"}})
    assert [skip.path for skip in outcome.skipped] == ["out/x", "secret"]


def test_i11_redo_does_not_remove_them_either(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "secret\n", "secret": "s"})
    with shadow.message("m1"):
        make_tree(worktree, {".gitignore": "", "a": "1"})
    shadow.undo()

    shadow.redo()

    assert_tree(worktree, {".gitignore": "", "a": "1", "secret": "s"})


# I12: a nested repository left renamed


def test_i12_nested_repositories_are_never_renamed_not_even_for_a_moment(
    shadow: Shadow, worktree: Path
) -> None:
    """Cline 9317, 4388: `.git_disabled` was left by a kill."""
    commit(worktree / "nested", {"x": "0"})
    commit(worktree / "deep" / "er", {"y": "0"})
    before = {top: manifest(worktree / top / ".git") for top in ("nested", "deep/er")}

    def work_and_die() -> None:
        with Shadow(worktree, settings=SETTINGS) as dying:
            dying.begin("m1")
            make_tree(worktree, {"nested": {"x": "1"}, "deep": {"er": {"y": "1"}}})
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(work_and_die).signal == signal.SIGKILL
    shadow.end("m1")
    shadow.undo()

    assert_tree(worktree, {"nested": {"x": "0"}, "deep": {"er": {"y": "0"}}})
    assert {top: manifest(worktree / top / ".git") for top in ("nested", "deep/er")} == before


# I13, I14, I15: the user's repository


def test_i13_commits_made_since_the_message_stay_on_the_branch(shadow: Shadow, worktree: Path) -> None:
    """Cline 13550: reset --hard in the user's repository."""
    commit(worktree, {"a": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1"})
    commit(worktree)
    commit(worktree, {"b": "user"})
    before = (git("log", "--format=%H %D", cwd=worktree), manifest(worktree / ".git"))

    shadow.undo()

    assert_tree(worktree, {"a": "0", "b": "user"})
    assert (git("log", "--format=%H %D", cwd=worktree), manifest(worktree / ".git")) == before


def test_i14_staged_changes_stay_staged(shadow: Shadow, worktree: Path) -> None:
    """Codex 8214."""
    commit(worktree, {"a": "0", "b": "0"})
    make_tree(worktree, {"b": "staged"})
    git("add", "b", cwd=worktree)
    make_tree(worktree, {"b": "staged, and more"})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "b": "of the agent", "new": "1"})
    before = manifest(worktree / ".git")

    shadow.undo()
    shadow.redo()
    shadow.undo()
    shadow.restore("m1")

    assert manifest(worktree / ".git") == before
    assert git("diff", "--cached", "--name-only", cwd=worktree) == "b"
    assert git("show", ":b", cwd=worktree) == "staged"


def test_i15_no_object_is_ever_put_into_the_users_repository(shadow: Shadow, worktree: Path) -> None:
    """Codex 29388: 102 GB of orphans."""
    commit(worktree, {"a": "0"})
    objects = worktree / ".git" / "objects"
    before = manifest(objects)
    for number in range(5):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {"a": f"{number} again", f"f{number}": os.urandom(2000)})

    shadow.undo(3)
    shadow.redo(None)

    assert manifest(objects) == before


# I16: files that were only viewed come back empty


def test_i16_files_that_the_agent_only_visited_are_not_touched(shadow: Shadow, worktree: Path) -> None:
    """Cursor: undo emptied or deleted visited files."""
    make_tree(worktree, {"read": "content", "empty": "", "touched": "1", "rewritten": "same", "a": "0"})
    with shadow.message("m1"):
        (worktree / "read").read_text()
        os.utime(worktree / "touched")
        make_tree(worktree, {"rewritten": "same", "a": "1"})
    visited = ("read", "empty", "touched", "rewritten")
    before = {path: manifest(worktree)[path] for path in visited}

    outcome = shadow.undo()

    assert {path: manifest(worktree)[path] for path in visited} == before
    assert (outcome.restored, outcome.deleted) == (["a"], [])
    assert (worktree / "a").read_text() == "0"


def test_i16_a_file_that_was_emptied_by_the_message_has_its_content_again(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"a": "content", "b": ""})
    with shadow.message("m1"):
        make_tree(worktree, {"a": "", "b": "content"})

    shadow.undo()

    assert_tree(worktree, {"a": "content", "b": ""})


# I17: files that a shell command deleted


def test_i17_what_a_shell_command_deleted_or_moved_comes_back(shadow: Shadow, worktree: Path) -> None:
    """Claude Code 34368, 14002: only changes by the edit tool were tracked."""
    tree: Tree = {
        "src": {"a.py": "1", "deep": {"b.py": file("2", 0o600)}, "empty": {}},
        "ln": link("src"),
        "old": "3",
    }
    make_tree(worktree, tree)
    with shadow.message("m1"):
        subprocess.run(["sh", "-c", "rm -rf src ln && mv old new && echo 4 > made"], cwd=worktree, check=True)

    shadow.undo()

    assert_tree(worktree, tree)


def test_i17_what_cannot_come_back_is_said_before(worktree: Path) -> None:
    make_tree(worktree, {"big": "x" * 5000, "a": "0"})
    with Shadow(worktree, settings={**SETTINGS, "max_file_size": 1000}) as shadow:
        with shadow.message("m1"):
            (worktree / "big").write_text("x")
            (worktree / "a").unlink()

        plan = shadow.plan_revert("m1")

    assert ([skip.path for skip in plan.skipped], plan.restored) == (["big"], ["a"])
    assert not plan.outcome.complete


# I18: it said "reverted" and did nothing


@pytest.mark.parametrize("kind", ["no repository", "fresh repository", "repository"])
def test_i18_the_first_session_in_any_folder_is_undone_for_real(
    shadow: Shadow, worktree: Path, kind: str
) -> None:
    """OpenCode 4704, 3073, 29520."""
    make_tree(worktree, {"a": "0"})
    if kind == "fresh repository":
        init(worktree)
    elif kind == "repository":
        commit(worktree)
    with shadow.message("m1"):
        make_tree(worktree, {"a": "1", "new": "1"})

    outcome = shadow.undo()

    assert_tree(worktree, {"a": "0"})
    assert (outcome.restored, outcome.deleted, outcome.complete) == (["a"], ["new"], True)


def test_i18_an_undo_that_did_nothing_never_says_that_it_did(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {".gitignore": "*.log\n", "x.log": "0"})
    with shadow.message("m1"):
        make_tree(worktree, {"x.log": "1"})

    outcome = shadow.undo()

    assert (outcome.restored, outcome.deleted) == ([], [])
    assert_tree(worktree, {".gitignore": "*.log\n", "x.log": "1"})


def test_i18_what_the_outcome_claims_is_on_the_disk(shadow: Shadow, worktree: Path) -> None:
    make_tree(worktree, {f"f{number}": "0" for number in range(10)})
    with shadow.message("m1"):
        replace_tree(worktree, {f"f{number}": "1" for number in range(5, 15)})

    outcome = shadow.undo()

    assert {path: (worktree / path).read_text() for path in outcome.restored} == {
        f"f{number}": "0" for number in range(10)
    }
    assert outcome.deleted == [f"f{number}" for number in range(10, 15)]
    assert shadow.track() == outcome.after


# I19: the tool ran before the first snapshot


def test_i19_a_tool_that_is_done_at_once_is_in_the_patch(shadow: Shadow, worktree: Path) -> None:
    """F68: same size, same tick of the clock, right after begin returned."""
    make_tree(worktree, {"a": "0"})
    for number in range(30):
        before = (worktree / "a").read_text()
        shadow.begin(f"m{number}")
        (worktree / "a").write_text(f"{1 - int(before)}")
        message = shadow.end()

        assert [changed.path for changed in message.patch.files] == ["a"], number


def test_i19_an_undo_right_after_the_tool_right_after_the_undo_is_exact(
    shadow: Shadow, worktree: Path
) -> None:
    make_tree(worktree, {"a": "0"})
    for number in range(20):
        with shadow.message(f"m{number}"):
            make_tree(worktree, {"a": "1"})
        shadow.undo()
        assert_tree(worktree, {"a": "0"})


def test_i19_a_message_of_two_processes_is_whole(shadow: Shadow, worktree: Path) -> None:
    """One hook runs before the tool and one after it, in separate processes."""
    make_tree(worktree, {"a": "0"})

    def hook(call: str) -> None:
        with Shadow(worktree, settings=SETTINGS) as hooked:
            getattr(hooked, call)("m1")

    in_child(lambda: hook("begin")).value()
    (worktree / "a").write_text("1")
    in_child(lambda: hook("end")).value()

    assert [changed.path for changed in shadow.messages()[0].patch.files] == ["a"]
    shadow.undo()
    assert read_tree(worktree) == {"a": file("0", stat.S_IMODE((worktree / "a").stat().st_mode))}
