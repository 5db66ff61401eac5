"""Pages of text: the help, files, steps and diffs, as styled lines that are safe to show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap

from shadowtree.base.display import count, escape, escape_line, measure
from shadowtree.picker.pages import TextPage
from shadowtree.results.messages import ChangedPath, FileDiff, Message, Step, join_renames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.picker.pages import Line

_TAB = 4
"""How many columns a tab takes in a diff."""
LETTERS = {
    "added": ("A", "green"),
    "modified": ("M", "yellow"),
    "deleted": ("D", "red"),
    "type": ("T", "cyan"),
}
_PLAIN_SIGNS = {r"\S{0,2}…": "...", "↑": "^", "↓": "v", "⑂": "fork"}
_HELP = """\
Choose a message with the arrow keys and press Enter. You see what would happen
to each file; nothing changes until you confirm. Press z to reverse it.

  Up, Down, j, k  move; PgUp, PgDn, Home and End move further
  Enter           go back to before this message; if undone, redo up to it
  o               undo only this message, and keep later ones
  u, r            undo or redo one turn
  z               reverse the last undo, redo or switch (shadowtree unrevert)
  d, f, s         show the diff, list the files, list the steps
  b               list the branches from here, or all, and switch to one
  /               filter by words in the number, text, agent or file names
  q, Esc          go back, or leave

In a preview, Enter or y confirms, Esc or n goes back, and d shows the diff.
For a file in conflict, m merges, k keeps your version, o overwrites it, and d
shows your edit. M, K, O choose for all. There, move with the arrow keys or j.

Marks:  ~    files changed since the message before, outside this session's work
        ?    nobody recorded its end, so it was inferred
        !    files changed that are not protected: no undo brings them back
        ⑂ 2  2 branches continue from here (press b)
"""
HELP = TextPage("Help", tuple(((line, ""),) for line in _HELP.splitlines()))


def make_text(title: str, sentences: Sequence[str], command: str, columns: int) -> TextPage:
    """Make a page of sentences, which are wrapped, and a command, which is not."""
    lines = [line for sentence in sentences for line in wrap(escape(sentence), max(10, columns - 1))]
    return TextPage(title, tuple(((line, ""),) for line in (*lines, *split_command(command, columns))))


def replace_signs(text: str, can_show: Callable[[str], bool]) -> str:
    """Replace our own signs by ASCII if they cannot be shown; a text that was cut keeps its width."""
    for sign, plain in _PLAIN_SIGNS.items():
        if not can_show(sign):
            text = re.sub(sign, plain, text)
    return text


def split_command(command: str, columns: int) -> list[str]:
    """Return a command on a line of its own; if it is too long, on several, with nothing added."""
    shown = f" {escape(command)}" if measure(escape(command)) < columns else escape(command)
    size = columns if shown.isascii() else columns // 2
    return [shown[at : at + size] for at in range(0, len(shown), size)] if command else []


def describe_steps(steps: Sequence[Step]) -> Iterator[Line]:
    """List steps, each with the files that it changed."""
    for step in steps:
        changed = "open" if step.after is None else count(len(step.patch.files), "file")
        yield ((escape(step.name), "bold"), (f"  {changed}", "dim"))
        yield from (_describe_change(each) for each in step.patch.files)


def describe_files(message: Message, diffs: Sequence[FileDiff]) -> Iterator[Line]:
    """List the files of a message: what it changed, what was left out, what is not protected."""
    if message.state == "open":
        yield (("Not ended yet; so far:", "dim"),)
    if not diffs:
        yield (("No files changed", ""),)
    yield from map(_describe_diff, join_renames(diffs))
    for skipped in message.skipped:
        yield (("! ", "yellow"), (f"{escape(skipped.path)} ({escape(skipped.reason)})", ""))
    for path in message.unprotected:
        yield (("! ", "yellow"), (f"{escape(path)} (changed, but it is not protected)", ""))


def describe_outside(changed: Sequence[ChangedPath]) -> Iterator[Line]:
    """List what changed since the last message."""
    if not changed:
        yield (("No files changed since the last message", ""),)
    yield from (_describe_change(each) for each in changed)


def describe_diffs(diffs: Sequence[FileDiff]) -> Iterator[Line]:
    """Yield the patches one after the other."""
    for file_diff in join_renames(diffs):
        is_header = True
        for line in file_diff.patch.removesuffix("\n").split("\n"):
            if line.startswith(("diff ", "@@ ")):
                is_header = line.startswith("diff ")
            yield ((escape_line(line).expandtabs(_TAB), _style_of(line, is_header=is_header)),)
    if not diffs:
        yield (("No differences", ""),)


def _style_of(line: str, *, is_header: bool) -> str:
    if is_header:
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _describe_diff(file_diff: FileDiff) -> Line:
    letter, style = LETTERS[file_diff.status]
    path = escape(file_diff.path)
    if file_diff.renamed_from is not None:
        letter, style, path = "R", "cyan", f"{escape(file_diff.renamed_from)} -> {path}"
    counts = "binary" if file_diff.binary else f"+{file_diff.additions} -{file_diff.deletions}"
    return ((f"{letter} ", style), (path, ""), (f"  {counts}", "dim"))


def _describe_change(changed: ChangedPath) -> Line:
    letter, style = LETTERS[changed.status]
    return ((f"  {letter} ", style), (escape(changed.path), ""))
