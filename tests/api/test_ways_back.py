"""The way back from every act: the printed command restores files and log exactly."""

from __future__ import annotations

import os
import random
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadowtree import Conflict, InvalidInput, Outcome, Shadow, UnknownName
from shadowtree.base.frozen import replace
from tests.support.stores import SETTINGS
from tests.support.terminal import Terminal
from tests.support.trees import make_tree, read_tree


def read_log(shadow: Shadow) -> object:
    """Read everything that a user sees of a session; an open message counts as one that has just ended."""
    status = shadow.status()
    messages = [
        (each.id, each.state.replace("open", "active"), each.branch, each.is_out, each.is_partly_reverted)
        for each in shadow.messages()
    ]
    # The files that a branch changed are not known while its last message is open.
    branches = [replace(branch, files=0) for branch in shadow.branches()]
    return status.open or status.head, status.undone, messages, branches


def read_all(shadow: Shadow) -> tuple[object, object]:
    return read_tree(shadow.worktree), read_log(shadow)


def go_back(outcome: Outcome) -> None:
    """Run the printed command."""
    assert outcome.back is not None
    program, *words = shlex.split(outcome.back)
    assert program == "shadowtree"
    Terminal().run(*words)


@pytest.fixture
def line(shadow: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch) -> Shadow:
    """Three messages; each writes its number into `a` and creates a file."""
    monkeypatch.chdir(worktree)
    make_tree(worktree, {"a": "0"})
    for number in (1, 2, 3):
        record(shadow, number)
    return shadow


def record(shadow: Shadow, number: int) -> None:
    with shadow.message(f"m{number}", text=f"message {number}"):
        make_tree(shadow.worktree, {"a": f"{number}", f"f{number}": "x"})


# Acts in sequence


Act = Callable[[Shadow], Outcome]
ACTS: dict[str, Act] = {
    "undo": lambda shadow: shadow.undo(),
    "undo 2": lambda shadow: shadow.undo(2),
    "revert": lambda shadow: shadow.revert("m2"),
    "revert --path": lambda shadow: shadow.revert("m2", paths=["f2"]),
    "revert --only": lambda shadow: shadow.revert("m1", only=True, on_conflict="overwrite"),
    "revert --only --path": lambda shadow: shadow.revert("m2", paths=["f2"], only=True),
    "revert --no-files": lambda shadow: shadow.revert("m2", files=False),
    "switch": lambda shadow: shadow.switch("m1"),
    "restore": lambda shadow: shadow.restore("m1"),
    "restore --path": lambda shadow: shadow.restore("m1", paths=["a"]),
}


@pytest.mark.parametrize("name", ACTS)
def test_the_printed_command_leads_back_and_forth(line: Shadow, name: str) -> None:
    """First-hour row B7."""
    before = read_all(line)
    outcome = ACTS[name](line)
    after = read_all(line)

    assert outcome.back == "shadowtree unrevert"
    way_back = line.unrevert()
    assert read_all(line) == before
    assert way_back.back == "shadowtree unrevert --undo"
    go_back(way_back)
    assert read_all(line) == after
    go_back(way_back)
    assert read_all(line) == before


def test_a_switch_and_back_leaves_the_branches_as_they_were(line: Shadow) -> None:
    line.undo(2)
    record(line, 4)
    before = read_all(line)
    outcome = line.switch("m3")
    after = read_all(line)

    assert [branch.name for branch in line.branches()] == ["message-2", "message-4"]
    go_back(outcome)
    assert read_all(line) == before
    assert [branch.name for branch in line.branches()] == ["message-2"]
    line.unrevert(undo=True)
    assert read_all(line) == after


def test_a_branch_that_a_switch_dropped_is_listed_again(worktree: Path) -> None:
    with Shadow(worktree, settings={**SETTINGS, "max_branches": 1}) as shadow:
        make_tree(worktree, {"a": "0"})
        record(shadow, 1)
        shadow.undo()
        record(shadow, 2)
        shadow.undo()
        record(shadow, 3)
        before = read_all(shadow)
        shadow.switch("m1")

        shadow.unrevert()
        assert read_all(shadow) == before


def test_the_way_back_from_an_undo_that_kept_a_conflict(line: Shadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "mine"})
    before = read_all(line)
    outcome = line.undo(on_conflict="keep")

    go_back(outcome)
    assert read_all(line) == before


def test_the_way_back_from_an_undo_after_a_step_was_reverted(shadow: Shadow, worktree: Path) -> None:
    os.chdir(worktree)
    with shadow.message("m1"):
        with shadow.step("one"):
            make_tree(worktree, {"a": "1"})
        with shadow.step("two"):
            make_tree(worktree, {"a": "2"})
    shadow.revert("m1", step="two")
    before = read_all(shadow)
    outcome = shadow.undo()

    go_back(outcome)
    assert read_all(shadow) == before


def test_where_nothing_was_changed_there_is_no_way_back(line: Shadow) -> None:
    assert line.redo().back is None
    assert line.unrevert().back is None
    assert line.restore("m3").back is None
    assert line.undo(dry_run=True).back is None


def test_the_way_back_names_the_session_if_there_are_several(line: Shadow) -> None:
    other = line.for_session("o t")
    record(other, 9)
    before = read_all(other)

    outcome = other.undo()
    assert outcome.back == "shadowtree unrevert --session 'o t'"
    go_back(outcome)
    assert read_all(other) == before
    assert line.undo(on_conflict="overwrite").back == "shadowtree unrevert --session default"


def test_the_way_back_names_a_store_elsewhere(worktree: Path, tmp_path: Path) -> None:
    os.chdir(worktree)
    with Shadow(worktree, store=tmp_path / "else where", settings=SETTINGS) as shadow:
        record(shadow, 1)
        before = read_all(shadow)

        outcome = shadow.undo()
        assert outcome.back == f"shadowtree unrevert --store '{tmp_path}/else where'"
        go_back(outcome)
        assert read_all(shadow) == before


def test_the_way_back_names_a_store_that_the_environment_named(
    worktree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another shell may not have that variable."""
    monkeypatch.setenv("SHADOWTREE_STORE", str(tmp_path / "elsewhere"))
    with Shadow(worktree, settings=SETTINGS) as shadow:
        with shadow.message("m1"):
            make_tree(worktree, {"a": "1"})

        assert shadow.undo().back == f"shadowtree unrevert --store {tmp_path / 'elsewhere'}"


def test_the_command_prints_what_is_needed_where_it_was_typed(
    line: Shadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(worktree.parent)
    terminal = Terminal()
    before = read_all(line)
    printed = terminal.run("-C", "worktree", "undo").splitlines()[-1]

    assert printed == "To get back: shadowtree unrevert -C worktree"
    monkeypatch.chdir(worktree.parent)
    terminal.run(*shlex.split(printed.removeprefix("To get back: shadowtree ")))
    assert read_all(line) == before


# Random acts


TEXT = "".join(f"line {number}\n" for number in range(12))


class Story:
    """Edits, records and acts at random, in two sessions."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.chance = random.Random(seed)
        self.shadow = Shadow(root, settings={**SETTINGS, "max_branches": 3})
        self.shadows = [self.shadow, self.shadow.for_session("other")]
        self.shadow.wrap()
        self.count = 0
        self.told: list[str] = []
        self.trees: list[str] = []

    def edit(self) -> None:
        chance = self.chance
        for _ in range(chance.randint(1, 3)):
            path = self.root / chance.choice(["a", "b", "d/c", "d/e/f", "g"])
            if path.parent.is_symlink() or path.parent.is_file():
                path.parent.unlink()
            path.parent.mkdir(parents=True, exist_ok=True)
            kind = chance.choice(["line", "line", "new", "delete", "mode", "link"])
            if path.is_symlink() or (kind in ("delete", "link", "new") and path.exists()):
                path.unlink()
            if kind == "link":
                path.symlink_to(chance.choice(["a", "nowhere"]))
            elif kind != "delete":
                lines = (path.read_text() if path.exists() else TEXT).splitlines(keepends=True)
                lines[chance.randrange(len(lines))] = f"edit {chance.random()}\n"
                path.write_text("".join(lines))
                path.chmod(chance.choice([0o644, 0o600, 0o755]))
        if chance.random() < 0.1:
            shutil.rmtree(self.root / "d", ignore_errors=True)

    def record(self, shadow: Shadow) -> None:
        self.count += 1
        id = f"m{self.count}"
        role = self.chance.choice([None, "user", "assistant"])
        shadow.begin(id, text=f"text {self.count % 3}", role=role)
        self.edit()
        if self.chance.random() < 0.3:
            with shadow.step("s"):
                self.edit()
        if self.chance.random() < 0.9:
            message = shadow.end(id)
            assert message.after is not None
            self.trees.append(message.after)

    def draw(self, shadow: Shadow) -> tuple[str, Callable[..., Outcome]]:
        chance = self.chance
        ids = [message.id for message in shadow.messages()] or ["m1"]
        id, paths = chance.choice(ids), chance.sample(["a", "b", "d", "g"], 2)
        refs = [*ids, *(branch.name for branch in shadow.branches()), "-"]
        trees = [id, f"{id}^", *self.trees[-3:]]
        ref, tree, turns = chance.choice(refs), chance.choice(trees), chance.randint(1, 3)
        return chance.choice(
            [
                (f"undo {turns}", lambda **how: shadow.undo(turns, **how)),
                (f"undo {turns}", lambda **how: shadow.undo(turns, **how)),
                (f"redo {turns}", lambda **how: shadow.redo(turns, **how)),
                ("redo all", lambda **how: shadow.redo(None, **how)),
                (f"revert {id}", lambda **how: shadow.revert(id, **how)),
                (f"revert {id} {paths}", lambda **how: shadow.revert(id, paths=paths, **how)),
                (f"revert {id} only", lambda **how: shadow.revert(id, only=True, **how)),
                (f"revert {id} step", lambda **how: shadow.revert(id, step="s", **how)),
                (f"revert {id} no files", lambda **how: shadow.revert(id, files=False, **how)),
                (f"switch {ref}", lambda **how: shadow.switch(ref, **how)),
                (f"switch {ref}", lambda **how: shadow.switch(ref, **how)),
                (f"restore {tree}", lambda **how: shadow.restore(tree, **how)),
                (f"restore {tree} {paths}", lambda **how: shadow.restore(tree, paths=paths, **how)),
                ("unrevert", lambda **how: shadow.unrevert(**how)),
                ("unrevert --undo", lambda **how: shadow.unrevert(undo=True, **how)),
            ]
        )

    def act(self, shadow: Shadow) -> None:
        chance = self.chance
        name, call = self.draw(shadow)
        how: dict[str, Any] = {"on_conflict": chance.choice(["abort", "keep", "overwrite", "merge"])}
        if how["on_conflict"] == "merge":
            how["markers"] = chance.random() < 0.5
        self.told.append(f"{name} {how} in {shadow.session}")
        before = read_all(shadow)
        try:
            plan = call(dry_run=True, **how)
            outcome = call(expect=plan.id, **how)
        except (Conflict, InvalidInput, UnknownName):
            assert read_all(shadow) == before
            return
        if outcome.back is None:
            assert read_all(shadow) == before
            return
        after = read_all(shadow)
        if chance.random() < 0.7:
            self.told.append(outcome.back)
            go_back(outcome)
            assert read_all(shadow) == before
            if chance.random() < 0.5:
                self.told.append("and forth")
                shadow.unrevert(undo=True)
                assert read_all(shadow) == after

    def run(self, steps: int) -> None:
        for _ in range(steps):
            shadow = self.shadows[self.chance.random() < 0.2]
            kind = self.chance.choice(["record", "record", "edit", "act", "act", "act"])
            if kind == "edit":
                self.edit()
            elif kind == "record":
                self.told.append(f"record m{self.count + 1} in {shadow.session}")
                self.record(shadow)
            else:
                self.act(shadow)


@pytest.mark.parametrize("seed", range(10))
def test_the_way_back_is_exact_in_random_histories(
    worktree: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(worktree)
    story = Story(worktree, seed)
    try:
        story.run(40)
    except BaseException as error:
        error.add_note("\n".join(story.told))
        raise
    finally:
        story.shadow.close()
