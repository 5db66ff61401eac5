"""The pages over the list of messages: a text, the preview of an act, the branches; each with its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from shadowtree.base.display import escape
from shadowtree.base.frozen import field, frozen, replace
from shadowtree.picker import previews, scrolling
from shadowtree.picker.previews import CONFLICT, Entry
from shadowtree.picker.requests import Act, Carry, Preview, PreviewDiff, Request, ShowDiff, ShowFiles
from shadowtree.results.messages import Branch, Message
from shadowtree.results.outcomes import ConflictingPath, Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.arguments import OnConflict
    from shadowtree.picker.previews import Numbers
    from shadowtree.picker.requests import Choices

    Style = str
    Line = tuple[tuple[str, Style], ...]
    """A line of the screen: texts, each in a style of `draw`."""

CHOICES: dict[str, OnConflict] = {"m": "merge", "k": "keep", "o": "overwrite"}
"""What a key chooses for a file in conflict."""
NOT_YET = "Choose for every conflict first; the keys are below"
_NO_CONFLICT = "This file is not in conflict, so there is nothing to choose"


@frozen
class TextPage:
    """Lines to read."""

    title: str
    lines: tuple[Line, ...]
    top: int = 0

    def press(self, key: str, height: int) -> tuple[TextPage, Request | None]:
        """Scroll."""
        key = scrolling.LETTERS.get(key, key)
        if key not in scrolling.MOVES:
            return self, None
        places = max(1, len(self.lines) - height + 1)
        return replace(self, top=scrolling.move(key, self.top, total=places, height=height)), None


@frozen
class PlanPage:
    """What an act would do to each file, for the user to confirm."""

    act: Act
    outcome: Outcome
    numbers: Numbers
    choices: Choices = field(default_factory=dict)
    known: Mapping[str, ConflictingPath] = field(default_factory=dict)
    """All conflicts that were seen so far, by path."""
    entries: tuple[Entry, ...] = ()
    at: int = 0
    top: int = 0
    warning: str = ""

    def press(self, key: str, height: int) -> tuple[PlanPage, Request | None]:
        """Move, choose what happens to a file in conflict, or confirm."""
        if not (key == "k" and self.has_conflicts):
            key = scrolling.LETTERS.get(key, key)
        if key in scrolling.MOVES:
            return self._move(key, height), None
        if key.lower() in CHOICES and self.has_conflicts:
            return self._choose(CHOICES[key.lower()], is_for_all=key.isupper())
        if key in ("enter", "y"):
            deeds = [entry.deed for entry in self.entries]
            if CONFLICT in deeds:
                return replace(self, at=deeds.index(CONFLICT), warning=NOT_YET), None
            return self, Carry(self.act, self.choices, self.outcome.id)
        if key == "d":
            path = self.entry.path if self.entry and self.entry.deed == CONFLICT else ""
            return self, PreviewDiff(self.act, self.choices, path)
        return self, None

    @property
    def entry(self) -> Entry | None:
        """The file under the cursor; None if there are no files."""
        return self.entries[self.at] if self.entries else None

    @property
    def has_conflicts(self) -> bool:
        """Whether there is, or was, something to choose."""
        return any(entry.is_conflict for entry in self.entries)

    def make_summary(self, width: int) -> list[str]:
        """Say what would happen to the messages and files."""
        effect = previews.describe_effect(self.outcome)
        goal = previews.describe_goal(self.act, self.numbers)
        headline = previews.describe_act(self.act, self.outcome, self.numbers)
        return _wrap([headline, f"{goal} {effect[:1].upper()}{effect[1:]}.".strip()], width)

    def make_header(self, width: int) -> list[str]:
        """Return the summary and the remarks."""
        return self.make_summary(width) + _wrap(previews.list_remarks(self.outcome, self.numbers), width)

    def _move(self, key: str, height: int) -> PlanPage:
        total = max(1, len(self.entries))
        at = scrolling.move(key, self.at, total=total, height=height)
        top = scrolling.keep_in_sight(self.top, at, total=total, height=height)
        return replace(self, at=at, top=top, warning="")

    def _choose(self, how: OnConflict, *, is_for_all: bool) -> tuple[PlanPage, Request | None]:
        """Request the plan with another choice for the file under the cursor, or for all that allow it."""
        chosen = self.entries if is_for_all else self.entries[self.at : self.at + 1]
        paths = [entry.path for entry in chosen if how in entry.choices]
        if paths:
            return self, Preview(self.act, {**self.choices, **dict.fromkeys(paths, how)})
        hint = next((entry.hint for entry in chosen if entry.hint), _NO_CONFLICT)
        return replace(self, warning=hint), None


def _wrap(sentences: Sequence[str], width: int) -> list[str]:
    return [line for sentence in sentences for line in wrap(sentence, max(10, width - 2))]


def show_plan(
    act: Act, outcome: Outcome, numbers: Numbers, choices: Choices, last: PlanPage | None = None
) -> PlanPage:
    """Make the page of a plan; if it replaces the `last` one, the cursor stays on its file."""
    known = {**(last.known if last else {}), **{each.path: each for each in outcome.conflicts}}
    entries = previews.list_entries(outcome, choices, known, numbers)
    path = last.entries[last.at].path if last and last.entries else None
    at = next((place for place, entry in enumerate(entries) if entry.path == path), 0)
    top = last.top if last else 0
    return PlanPage(act, outcome, numbers, choices, known, entries, at, top)


@frozen
class BranchRow:
    """A branch, or one of its messages."""

    branch: Branch
    message: Message | None = None
    """None: the branch itself."""


@frozen
class BranchPage:
    """Branches with their messages, to switch to."""

    title: str
    rows: tuple[BranchRow, ...]
    at: int = 0
    top: int = 0

    def press(self, key: str, height: int) -> tuple[BranchPage, Request | None]:
        """Move, go to the next branch, or show what a switch would do."""
        key = scrolling.LETTERS.get(key, key)
        if key in scrolling.MOVES:
            at = scrolling.move(key, self.at, total=len(self.rows), height=height)
            return self._go(at, height), None
        if key in ("left", "right", "tab"):
            return self._go(self._find_branch(-1 if key == "left" else 1), height), None
        row = self.rows[self.at]
        if key == "enter" and row.message is not None:
            return self, Preview(Act("switch", row.message.id))
        if key == "enter":
            # By its last message: the name of a branch may also be the id of a message.
            return self, Preview(Act("switch", row.branch.messages[-1], row.branch.name))
        if key in ("d", "f") and row.message is not None:
            return self, ShowDiff(row.message) if key == "d" else ShowFiles(row.message)
        return self, None

    def _go(self, at: int, height: int) -> BranchPage:
        top = scrolling.keep_in_sight(self.top, at, total=len(self.rows), height=height)
        return replace(self, at=at, top=top)

    def _find_branch(self, step: int) -> int:
        """Return the nearest row of a branch before or after the cursor; the cursor, if there is none."""
        places = [place for place, row in enumerate(self.rows) if row.message is None]
        there = [place for place in places if (place - self.at) * step > 0]
        return self.at if not there else there[0] if step > 0 else there[-1]


def list_branches(
    branches: Sequence[Branch], messages: Sequence[Message], fork: Message | None
) -> BranchPage | None:
    """Make the page of the branches that fork after a message, or of all; None if there are none."""
    listed = [branch for branch in branches if branch.messages]
    found = [branch for branch in listed if fork is None or branch.fork == fork.id]
    by_id = {message.id: message for message in messages}
    rows: list[BranchRow] = []
    for branch in reversed(found):
        rows.append(BranchRow(branch))
        rows += [BranchRow(branch, by_id[id]) for id in branch.messages if id in by_id]
    title = "All branches"
    if fork is not None:
        is_on_one = any(branch.state == "active" for branch in found)
        title = f"{'Branches' if is_on_one else 'Other branches'} after #{fork.number}"
    return BranchPage(title, tuple(rows)) if rows else None


def render_hunks(conflicts: Sequence[ConflictingPath], numbers: Numbers) -> Iterator[Line]:
    """Show where texts collide, with the lines of each side."""
    for conflict in conflicts:
        reason = previews.name_messages(conflict.reason, numbers)
        yield ((f"{escape(conflict.path)}: {escape(reason)}", "yellow"),)
        for hunk in conflict.hunks:
            yield ((f"  line {hunk.line:,}", "cyan"),)
            for name, text in (("now", hunk.ours), ("recorded", hunk.base), ("would be", hunk.theirs)):
                for line in text.splitlines() or ["(nothing)"]:
                    yield ((f"    {name:9}| ", "dim"), (escape(line.expandtabs(4)), ""))
        yield ()


Page = TextPage | PlanPage | BranchPage
