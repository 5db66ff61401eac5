"""The picker's calls to a shadow: messages, plans, acts. Errors become a line on the screen."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from shadowtree.base.display import escape
from shadowtree.base.errors import AmbiguousSession, PlanOutdated, ShadowError
from shadowtree.base.frozen import replace
from shadowtree.picker import model, previews
from shadowtree.picker.model import State
from shadowtree.picker.pages import Page, PlanPage, TextPage, list_branches, render_hunks, show_plan
from shadowtree.picker.requests import (
    Act,
    Carry,
    Preview,
    PreviewDiff,
    Request,
    ShowBranches,
    ShowDiff,
    ShowFiles,
)
from shadowtree.picker.texts import describe_diffs, describe_files, describe_outside, make_text
from shadowtree.results.messages import Message, join_renames
from shadowtree.results.outcomes import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from shadowtree.picker.requests import Choices
    from shadowtree.shadow import Shadow

Complete = Callable[[str | None], str | None]
"""Adds the options that a command needs where the user types it."""
FIRST = 200
"""How many messages are read before the first screen; the others follow."""
_COUNTED_FILES = 200
"""Lines of messages that changed more files are not counted."""
_OUTDATED = "Something changed meanwhile. This is what would happen now; nothing was done."


class Actions:
    """Carries out requests, and remembers what was done, to report it at the end."""

    def __init__(self, shadow: Shadow, complete: Complete = lambda back: back) -> None:
        self._shadow = shadow
        self._complete = complete
        self.done: list[str] = []
        """What was done, one line each."""
        self.back: str | None = None
        """The command that reverses the last act."""
        self.counts: dict[str, tuple[int, int] | None] = {}
        """How many lines messages added and removed, by id; None: not counted."""

    def read_first(self, state: State) -> State:
        """Read the newest messages."""
        messages = self._shadow.messages(last=FIRST)
        return model.load(state, messages, has_all=len(messages) < FIRST)

    def serve(self, state: State, request: Request) -> State:
        """Carry out a request; show an error in one line."""
        try:
            return self._serve(state, request)
        except PlanOutdated as outdated:
            assert isinstance(request, Carry)
            state = self._show_plan(state, request.act, outdated.plan.outcome, request.choices)
            return model.tell(state, _OUTDATED, is_error=True)
        except AmbiguousSession as error:
            return model.tell(state, f"{error}; leave, and choose one with --session", is_error=True)
        except ShadowError as error:
            told = previews.name_messages(str(error), number_messages(state.messages))
            return model.tell(state, told, is_error=True)

    def count_lines(self, state: State) -> bool:
        """Count the lines of one visible message that has no count yet; return False if there is none."""
        for row in state.rows[state.top : state.top + state.height]:
            message = row.message
            if message is not None and message.state != "open" and message.id not in self.counts:
                self.counts[message.id] = self._count_lines(message)
                return True
        return False

    def _count_lines(self, message: Message) -> tuple[int, int] | None:
        if not 0 < len(message.patch.files) <= _COUNTED_FILES:
            return None
        try:
            diffs = join_renames(self._shadow.diff_message(message))
        except ShadowError:
            # Forgotten meanwhile, or damaged: showing its diff reports that.
            return None
        return sum(each.additions for each in diffs), sum(each.deletions for each in diffs)

    def _serve(self, state: State, request: Request) -> State:
        if isinstance(request, Preview):
            outcome = self._run(request.act, request.choices, dry_run=True)
            can_merge = any("merge" in conflict.choices for conflict in outcome.conflicts)
            if can_merge and len(outcome.files) <= _COUNTED_FILES:
                # With a diff, the plan also shows which files can really be merged.
                outcome = self._run(request.act, request.choices, dry_run=True, diff=True)
            return self._show_plan(state, request.act, outcome, request.choices)
        if isinstance(request, Carry):
            return self._carry(state, request)
        page = self._make_page(state, request)
        if page is None:
            return model.tell(
                state, "There are no branches. Undo, and then record something: that makes one."
            )
        return model.open_page(state, page)

    def _make_page(self, state: State, request: Request) -> Page | None:
        if isinstance(request, PreviewDiff) and request.path:
            return self._show_edit(state, request)
        if isinstance(request, PreviewDiff):
            planned = self._run(request.act, request.choices, dry_run=True, diff=True)
            hunks = render_hunks(planned.conflicts, number_messages(state.messages))
            return TextPage("What would change", (*hunks, *describe_diffs(planned.diff)))
        if isinstance(request, ShowBranches):
            messages = self._shadow.messages() if not state.has_all else state.messages
            return list_branches(self._shadow.branches(), messages, request.fork)
        assert isinstance(request, ShowDiff | ShowFiles)
        return self._show_message(state, request, is_diff=isinstance(request, ShowDiff))

    def _show_message(self, state: State, request: ShowDiff | ShowFiles, *, is_diff: bool) -> TextPage:
        message = request.message
        if message is None:
            return self._show_outside(state, is_diff=is_diff)
        is_open = message.state == "open"
        diffs = self._shadow.diff(f"{message.id}^") if is_open else self._shadow.diff_message(message)
        lines = describe_diffs(diffs) if is_diff else describe_files(message, diffs)
        return TextPage(f"{'Diff' if is_diff else 'Files'} of #{message.number}", tuple(lines))

    def _show_outside(self, state: State, *, is_diff: bool) -> TextPage:
        """Show what changed since the last message, outside any message."""
        changed = self._shadow.status().outside
        lines = describe_outside(changed)
        if is_diff and changed:
            paths = [each.path for each in changed]
            lines = describe_diffs(self._shadow.diff(_find_last(state), paths=paths))
        return TextPage("Changes since the last message", tuple(lines))

    def _show_edit(self, state: State, request: PreviewDiff) -> TextPage:
        """Show the edits in a file in conflict, which would be lost if it were overwritten."""
        path = request.path
        diffs = self._shadow.diff(_find_last(state), paths=[path])
        title = f"Your edit of {escape(path)}"
        if not diffs:
            # The edit is older than the last message.
            planned = self._run(request.act, {**request.choices, path: "overwrite"}, dry_run=True, diff=True)
            diffs = [each for each in planned.diff if each.path == path]
            title = f"What overwriting {escape(path)} would change"
        conflicts = [state.page.known[path]] if isinstance(state.page, PlanPage) else []
        hunks = render_hunks(conflicts, number_messages(state.messages))
        return TextPage(title, (*hunks, *describe_diffs(diffs)))

    # Acts

    def _show_plan(self, state: State, act: Act, outcome: Outcome, choices: Choices) -> State:
        """Show a plan, or say that there is nothing to do."""
        numbers = number_messages(state.messages)
        if not (outcome.messages or outcome.restored or outcome.deleted or outcome.kept or outcome.conflicts):
            told = previews.list_remarks(outcome, numbers)
            return model.tell(model.close_pages(state), "; ".join(told) or "There is nothing to do")
        last = state.page if isinstance(state.page, PlanPage) else None
        return model.open_page(state, show_plan(act, outcome, numbers, choices, last))

    def _carry(self, state: State, request: Carry) -> State:
        """Carry out the plan that was shown; then reload the list, and put the cursor on now."""
        outcome = self._run(request.act, request.choices, expect=request.plan)
        outcome = replace(outcome, back=self._complete(outcome.back))
        numbers = number_messages(state.messages)
        told = f"{previews.describe_act(request.act, outcome, numbers)}: {previews.describe_effect(outcome)}"
        self.done.append(told)
        self.back = outcome.back
        page, command = state.page, outcome.back or ""
        key = "" if request.act.kind == "unrevert" else "press z, or "
        way_back = f"To get back: {key}run" if command else ""
        with suppress(ShadowError):  # The act is done and must be reported; the news update the list.
            messages = self._shadow.messages(last=None if state.has_all else FIRST)
            state = model.load(state, messages, has_all=state.has_all)
        state = replace(model.go_to_now(model.close_pages(state)), outside=None)
        state = model.tell(state, f"{told}. {way_back}", command=command)
        known = previews.list_remarks(page.outcome, numbers) if isinstance(page, PlanPage) else []
        news = [remark for remark in previews.list_remarks(outcome, numbers) if remark not in known]
        if news:
            done = make_text("Done", [told, *news, way_back], command, state.columns)
            state = model.open_page(state, done)
        return state

    def _run(self, act: Act, choices: Choices, **how: Any) -> Outcome:  # Any: options of acts
        root = os.fspath(self._shadow.worktree)
        how["on_conflict"] = {os.path.join(root, path): choice for path, choice in choices.items()}
        shadow, target = self._shadow, act.target
        acts: dict[str, Callable[[], Outcome]] = {
            "back": lambda: shadow.revert(target, **how),
            "only": lambda: shadow.revert(target, only=True, **how),
            "redo_to": lambda: shadow.switch(target, **how),
            "switch": lambda: shadow.switch(target, **how),
            "undo": lambda: shadow.undo(**how),
            "redo": lambda: shadow.redo(**how),
            "unrevert": lambda: shadow.unrevert(**how),
        }
        return acts[act.kind]()


def _find_last(state: State) -> str | None:
    """Return the id of the last message in force."""
    active = (message.id for message in reversed(state.messages) if message.state == "active")
    return next(active, None)


def number_messages(messages: Sequence[Message]) -> dict[str, int]:
    """Return the numbers of messages, by id."""
    return {message.id: message.number for message in messages}
