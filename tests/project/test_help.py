"""Every help text and every error: short lines, an example, a group, and the page that is made of them."""

from __future__ import annotations

import re

import pytest

from shadowtree.base import errors
from shadowtree.cli.app import COMMANDS, EVERYDAY, GROUPS, SHARED_OPTIONS
from shadowtree.cli.errors import ANSWERS, explain
from tests.project.commands_page import PAGE, list_commands, make_page
from tests.support.values import make_outcome

WIDEST = 100
HELPS = {words: (command, command.get_help(context)) for words, command, context in list_commands()}


def test_every_command_is_in_one_group_and_ten_come_first() -> None:
    grouped = [name for names in GROUPS.values() for name in names]

    assert sorted(grouped) == sorted(COMMANDS), "name the group of a new command in GROUPS"
    assert len(EVERYDAY) == 10
    assert set(EVERYDAY) <= set(grouped)


@pytest.mark.parametrize("words", HELPS)
def test_a_help_has_short_lines_and_an_example(words: str) -> None:
    _, text = HELPS[words]
    first = text.splitlines()[2]

    assert max(map(len, text.splitlines())) <= WIDEST
    assert f"Examples:\n    {words}" in text or words in text.partition("Examples:")[2].split("\n\n")[0]
    assert not first.endswith(".")


def test_no_line_about_a_command_is_cut() -> None:
    _, text = HELPS["shadowtree"]

    assert [line for line in text.splitlines() if line.endswith("...")] == []


@pytest.mark.parametrize("words", HELPS)
def test_global_options_stand_once(words: str) -> None:
    command, text = HELPS[words]
    flags = [option.opts[-1] for option in SHARED_OPTIONS]
    listed = [flag for flag in flags if re.search(rf"^  (-\w, )?{flag}\b", text, re.MULTILINE)]

    assert listed == (flags if words == "shadowtree" else [])
    assert set(SHARED_OPTIONS) <= set(command.params)


def test_the_page_of_commands_is_what_the_help_says() -> None:
    assert PAGE.read_text("utf-8") == make_page(), "run python -m tests.project.commands_page"


def _examples() -> dict[str, BaseException]:
    """Make an error of every class that has an answer, with values as short as they come."""
    made: dict[type[BaseException], BaseException] = {
        errors.ArchivedMessage: errors.ArchivedMessage("m1", 32),
        errors.DuplicateMessage: errors.DuplicateMessage("m1", "default"),
        errors.UnknownRemote: errors.UnknownRemote("origin"),
        errors.UnknownStep: errors.UnknownStep("edit-1", "m1"),
        errors.AmbiguousMessage: errors.AmbiguousMessage("msg_", ["msg_1", "msg_2"]),
        errors.ForgottenMessage: errors.ForgottenMessage("m1", 0),
        errors.ForgottenTree: errors.ForgottenTree("3f2a91c", 0),
        errors.Conflict: errors.Conflict([], make_outcome()),
        errors.NotConfirmed: errors.NotConfirmed(make_outcome(), "remove it"),
        errors.PlanOutdated: errors.PlanOutdated(make_outcome(), None),
    }
    found: dict[str, BaseException] = {}
    for kind in ANSWERS:
        error = made.get(kind) or kind.__new__(kind)
        if kind not in made:
            error.args = ("what happened, to what",)
            error.__dict__.update(
                setting="max_files", found=1000, extra="mcp", session="s", worktree="/p", store="/s"
            )
        found[kind.__name__] = error
    return found


@pytest.mark.parametrize(("name", "error"), _examples().items())
def test_an_error_is_one_short_line(name: str, error: BaseException) -> None:
    failure = explain(error)
    line = f"shadowtree: {failure.message}; {failure.advice}" if failure.advice else failure.message

    assert "\n" not in line
    assert len(line) <= WIDEST, line
