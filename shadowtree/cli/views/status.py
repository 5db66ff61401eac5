"""Snapshots, messages and the status of a worktree as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shadowtree.base.limits import MOST_STAMPED
from shadowtree.cli.format import count, escape, escape_line, list_first
from shadowtree.cli.output import paint
from shadowtree.results.messages import ChangedPath, FileDiff, Patch, Skipped, Snapshot, Status, join_renames

LETTERS = {
    "added": ("A", "green"),
    "modified": ("M", "yellow"),
    "deleted": ("D", "red"),
    "type": ("T", "cyan"),
}


def render_wrap(worktree: str, store: str, snapshot: Snapshot) -> Iterator[str]:
    """Show what is protected now, where it is kept, and what is not protected."""
    are = "is" if snapshot.files == 1 else "are"
    yield f"{count(snapshot.files, 'file')} in {escape(worktree)} {are} protected now"
    yield f"The store is {escape(store)}"
    yield from list_skipped(snapshot.skipped, "not protected")
    yield (
        "Not protected: git-ignored files and dependency directories. Run 'shadowtree status' for details."
    )


def render_status(status: Status) -> Iterator[str]:
    """Show the state of the shadow, and clearly what is not protected."""
    yield f"{escape(status.worktree)} is protected"
    yield f"The store is {escape(status.store)}"
    yield f"The session is {escape(status.session)}{_describe_timeline(status)}"
    yield from _list_changed(status)
    if status.watching:
        yield "Changes are being watched"
    if status.ignored:
        yield paint("yellow", describe_ignored(status.ignored))
    yield from list_skipped(status.skipped, "not protected")
    yield from list_unprotected(status.unprotected, since=f" {_describe_base(status)}")
    if not (status.ignored or status.skipped or status.warnings):
        yield "Everything in it is protected"
    for warning in status.warnings:
        yield paint("yellow", escape(warning))


def describe_ignored(number: int) -> str:
    """Say how many files and directories are left out by ignore rules."""
    return f"{number:,} ignored {'entry is' if number == 1 else 'entries are'} not protected"


def render_patch(patch: Patch) -> list[str]:
    """List the changed paths, each after the letter of its status."""
    return [_describe_change(changed) for changed in patch.files]


def render_diff(diffs: Sequence[FileDiff], *, escape_content: bool) -> Iterator[str]:
    """Yield the patches one after the other; with `escape_content`, safe for a terminal.

    Without it, they are exactly what git accepts.
    """
    for file_diff in join_renames(diffs):
        patch = (escape_content and file_diff.patch) or file_diff.exact or file_diff.patch
        is_header = True
        for line in patch.removesuffix("\n").split("\n"):
            # Lines of a file begin with a blank, a sign or a backslash, so these are headers.
            if line.startswith(("diff ", "@@ ")):
                is_header = line.startswith("diff ")
            shown = escape_line(line) if is_header or escape_content else line
            yield _paint_diff_line(shown, is_header=is_header)


def describe_diff(file_diff: FileDiff) -> tuple[str, str, str]:
    """Return the letter, its colour, and the path; of a renamed file, `OLD -> NEW`."""
    path = escape(file_diff.path)
    if file_diff.renamed_from is None:
        return *LETTERS[file_diff.status], path
    return "R", "cyan", f"{escape(file_diff.renamed_from)} -> {path}"


def summarise_skipped(skipped: Sequence[Skipped]) -> str:
    """Name the first skipped path with its reason, and count the others."""
    first = skipped[0]
    others = len(skipped) - 1
    return f"{first.path} ({first.reason})" + (f" and {count(others, 'other path')}" if others else "")


def list_skipped(skipped: Sequence[Skipped], what: str) -> Iterator[str]:
    """List the first skipped paths with their reasons; `what` describes them, such as `not protected`."""
    if not skipped:
        return
    yield paint("yellow", f"{count(len(skipped), 'path')} {what}:")
    yield from list_first(skipped, lambda each: f"  {escape(each.path)} ({escape(each.reason)})")


def summarise_unprotected(paths: Sequence[str]) -> str:
    """Say in one line which files changed and are not protected, and how to protect them."""
    others = len(paths) - 1
    what = f"{paths[0]} and {_at_least(paths)}{count(others, 'other file')}" if others else paths[0]
    return f"{what} changed but {'are' if others else 'is'} not protected; {advise_protecting(paths)}"


def list_unprotected(
    paths: Sequence[str], *, since: str = "", is_act: bool = False, is_planned: bool = False
) -> Iterator[str]:
    """List files that changed `since` something and are not protected, and how to protect them."""
    if not paths:
        return
    they, are, were = ("it", "is", "was") if len(paths) == 1 else ("they", "are", "were")
    rest = f", so {they} {'would be' if is_planned else were} left alone" if is_act else ""
    changed = f"{_at_least(paths)}{count(len(paths), 'file')} changed{since}"
    yield paint("yellow", f"{changed[:1].upper()}{changed[1:]}, but {they} {are} not protected{rest}:")
    yield from list_first(paths, lambda path: f"  {escape(path)}")
    yield f"    {advise_protecting(paths)}"


def explain_unprotected(path: str, why: str) -> Iterator[str]:
    """Say why no snapshot covers a path, and how to protect it."""
    yield paint("yellow", f"{escape(path)} is not protected: {escape(why)}")
    yield f"    {advise_protecting([path])}"


def _at_least(paths: Sequence[str]) -> str:
    """Return words to put before the number of unprotected files, if not all of them were checked."""
    return "at least " if len(paths) >= MOST_STAMPED else ""


def advise_protecting(paths: Sequence[str]) -> str:
    """Name the command that protects files from now on."""
    from shlex import quote

    if all(path.startswith("/") for path in paths):
        return "files outside this directory cannot be protected here"
    if len(paths) == 1:
        return f"to protect it: shadowtree protect {quote(paths[0]) if paths[0].isprintable() else 'PATH'}"
    return "to protect one of them: shadowtree protect PATH"


def _list_changed(status: Status) -> Iterator[str]:
    """Count the paths that changed, and list the first outside any message."""
    outside = status.outside
    changed = f"{count(status.changed, 'path')} changed {_describe_base(status)}"
    if not outside:
        yield changed
        return
    # Acts since the last message are recorded too, so the two numbers may differ.
    if len(outside) == status.changed:
        yield f"{changed}, outside any message:"
    else:
        yield changed
        yield f"{count(len(outside), 'path')} changed outside any message:"
    yield from list_first(outside, lambda each: f"  {_describe_change(each)}")


def _describe_base(status: Status) -> str:
    """Say since when changes count: a later `track` matters only to a session without messages."""
    has_messages = status.head is not None or status.open is not None or status.undone
    return "since the session last recorded" if has_messages else "since the last snapshot"


def _describe_change(changed: ChangedPath) -> str:
    letter, colour = LETTERS[changed.status]
    return f"{paint(colour, letter)} {escape(changed.path)}"


def _describe_timeline(status: Status) -> str:
    parts = []
    if status.head is not None:
        parts.append(f"last message {escape(status.head)}")
    if status.open is not None:
        parts.append(f"open message {escape(status.open)}")
    if status.undone:
        parts.append(count(len(status.undone), "undone message"))
    return "".join(f", {part}" for part in parts)


def _paint_diff_line(line: str, *, is_header: bool) -> str:
    if is_header:
        return paint("bold", line)
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return paint(colour, line) if colour else line
