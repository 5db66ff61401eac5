"""Textual diffs: two contents in, a patch in git's format out.

A patch is text for people and for JSON. Bytes that are not UTF-8 become U+FFFD in it, so that it can always
be printed and encoded; `exact` has them as surrogate escapes. With that, `git apply` turns the old content
into the new one, or refuses if the patch is incomplete. Files are never restored from a patch.

The changes are those that git finds (`linediff`). If that takes too long, all lines between the first and the
last difference are replaced: the limit affects how short a patch is, never whether it is correct.
"""

from __future__ import annotations

import stat
import zlib
from base64 import b85encode
from collections.abc import Iterator

from shadowtree.base.frozen import frozen
from shadowtree.text.linediff import (
    MAX_STEPS,
    OutOfStepsError,
    Part,
    Steps,
    Text,
    find_changes,
    is_binary,
    is_too_large,
    split_texts,
    trim,
)

Blobs = tuple[str | None, str | None]
"""The ids of both contents, if they are known."""
Names = tuple[str, str]
"""The names of both contents in a patch, quoted; `/dev/null` for an absent one."""

CONTEXT_LINES = 3
"""How many unchanged lines surround a change by default."""
_SHORT_ID = 7


@frozen
class TextDiff:
    """How two contents of one path differ."""

    additions: int
    deletions: int
    binary: bool
    """Whether the contents differ, and one of them is not text."""
    patch: str
    """Empty if nothing differs, and for contents that are binary or too large to compare, unless a binary
    patch was requested. For such contents the counts are 0."""
    exact: str = ""
    """The patch for git, if `patch` is not it: with bytes that are not UTF-8, or a line that git refuses."""

    @property
    def applicable(self) -> str:
        """The patch for git."""
        return self.exact or self.patch


def diff_text(
    path: str,
    old: bytes | None,
    new: bytes | None,
    *,
    old_mode: int | None,
    new_mode: int | None,
    renamed_from: str | None = None,
    blobs: Blobs = (None, None),
    binary: bool = False,
    context: int = CONTEXT_LINES,
) -> TextDiff:
    """Compare two contents of `path`; None stands for an absent one, which has no mode.

    With `renamed_from`, the old content is that of another path. The content of a link is its target. Modes
    are written with all permission bits, though git uses only one of them. A file that became a link is
    deleted and created again, as in git. With `binary`, contents that are binary or too large to compare get
    a binary patch, which names `blobs`, the ids of both contents.
    """
    assert (old is None) == (old_mode is None)
    assert (new is None) == (new_mode is None)
    if (old, old_mode) == (new, new_mode) and renamed_from is None:
        return TextDiff(0, 0, binary=False, patch="")
    if old_mode is not None and new_mode is not None and stat.S_IFMT(old_mode) != stat.S_IFMT(new_mode):
        gone = diff_text(
            path, old, None, old_mode=old_mode, new_mode=None, blobs=(blobs[0], None), binary=binary
        )
        made = diff_text(
            path, None, new, old_mode=None, new_mode=new_mode, blobs=(None, blobs[1]), binary=binary
        )
        return _join_halves(gone, made)
    old_path = path if renamed_from is None else renamed_from
    header = _format_header(old_path, path, old_mode, new_mode)
    if old == new:
        return TextDiff(0, 0, binary=False, patch=header)
    contents = (old or b"", new or b"")
    names = _quote_names(old_path, path, old_mode, new_mode)
    if any(map(is_binary, contents)) or any(map(is_too_large, contents)):
        return _diff_whole(header, names, contents, blobs, binary=binary)
    return _diff_lines(header, names, contents, context)


def _join_halves(gone: TextDiff, made: TextDiff) -> TextDiff:
    """Join the diff that deletes a content and the diff that creates another one."""
    is_binary_change = gone.binary or made.binary
    exact = gone.applicable + made.applicable
    if not (gone.patch and made.patch):
        return TextDiff(0, 0, binary=is_binary_change, patch="", exact=exact)
    patch = gone.patch + made.patch
    exact = exact if exact != patch else ""
    return TextDiff(made.additions, gone.deletions, binary=is_binary_change, patch=patch, exact=exact)


def _diff_whole(
    header: str, names: Names, contents: tuple[bytes, bytes], blobs: Blobs, *, binary: bool
) -> TextDiff:
    """Make a binary patch, or one that only says that the contents differ."""
    is_data = any(map(is_binary, contents))
    if binary:
        patch = header + _format_index(blobs) + _format_binary(*contents)
        return TextDiff(0, 0, binary=is_data, patch=patch)
    exact = header + _format_index(blobs, _SHORT_ID) + _tell_difference(*names, is_data)
    return TextDiff(0, 0, binary=is_data, patch="", exact=exact)


def _diff_lines(header: str, names: Names, contents: tuple[bytes, bytes], context: int) -> TextDiff:
    """Compare two texts line by line."""
    old, new = split_texts(*contents)
    changes = list_changes(old, new)
    if changes:  # none if an empty file was added or deleted
        header += _format_names(*names)
    hunks = b"".join(_format_hunks(changes, old.lines, new.lines, context))
    patch = header + hunks.decode("utf-8", "replace")
    exact = header + hunks.decode("utf-8", "surrogateescape")
    return TextDiff(
        additions=sum(len(change.new) for change in changes),
        deletions=sum(len(change.old) for change in changes),
        binary=False,
        patch=patch,
        exact=exact if exact != patch else "",
    )


def diff_unread(path: str, *, old_mode: int | None, new_mode: int | None, blobs: Blobs) -> TextDiff:
    """Make the diff of contents that are too large to read: it says only that they differ."""
    header = _format_header(path, path, old_mode, new_mode) + _format_index(blobs, _SHORT_ID)
    names = _quote_names(path, path, old_mode, new_mode)
    return TextDiff(0, 0, binary=False, patch="", exact=header + _tell_difference(*names, is_data=False))


def list_changes(old: Text, new: Text, max_steps: int = MAX_STEPS) -> list[Part]:
    """List the changes; if that takes too many steps, one change from the first difference to the last."""
    try:
        return find_changes(old.numbers, new.numbers, Steps(max_steps))
    except OutOfStepsError:
        whole = Part(range(len(old.lines)), range(len(new.lines)))
        return [trim(whole, old.numbers, new.numbers)]


def _format_header(old_path: str, path: str, old_mode: int | None, new_mode: int | None) -> str:
    header = f"diff --git {_quote('a/' + old_path)} {_quote('b/' + path)}\n"
    if old_mode is None:
        return f"{header}new file mode {new_mode:06o}\n"
    if new_mode is None:
        return f"{header}deleted file mode {old_mode:06o}\n"
    if old_mode != new_mode:
        header += f"old mode {old_mode:06o}\nnew mode {new_mode:06o}\n"
    if old_path != path:
        header += f"rename from {_quote(old_path)}\nrename to {_quote(path)}\n"
    return header


def _format_index(blobs: Blobs, length: int = 40) -> str:
    """Write the line with both ids. Git applies binary contents only if it has the full ids."""
    old, new = ((blob or "0" * 40)[:length] for blob in blobs)
    return f"index {old}..{new}\n"


def _quote_names(old_path: str, path: str, old_mode: int | None, new_mode: int | None) -> Names:
    old_name = "/dev/null" if old_mode is None else _quote("a/" + old_path)
    return old_name, "/dev/null" if new_mode is None else _quote("b/" + path)


def _format_names(old_name: str, new_name: str) -> str:
    return f"--- {_end_name(old_name)}\n+++ {_end_name(new_name)}\n"


def _tell_difference(old_name: str, new_name: str, is_data: bool) -> str:
    """Write the line that replaces the hunks; git knows both forms, and refuses to apply such a patch."""
    if is_data:
        return f"Binary files {old_name} and {new_name} differ\n"
    return f"Files {old_name} and {new_name} differ\n(too large to compare line by line)\n"


def _end_name(name: str) -> str:
    # The tab shows `patch` where a name with a space ends.
    return name + "\t" if " " in name else name


_ESCAPES = {ord(char): "\\" + name for char, name in zip('\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True)}
_ESCAPES |= {code: f"\\{code:03o}" for code in (*range(0x20), 0x7F) if code not in _ESCAPES}
_ESCAPES |= {0xDC00 + byte: f"\\{byte:03o}" for byte in range(0x80, 0x100)}
"""How characters are escaped in a quoted name; surrogates stand for bytes that are not UTF-8."""


def _quote(name: str) -> str:
    """Quote a name as git does, but leave the letters of all scripts readable."""
    quoted = name.translate(_ESCAPES)
    if not quoted.isprintable():
        # Invisible and bidirectional characters would make a name look like another.
        quoted = "".join(char if char.isprintable() else _write_octal(char) for char in quoted)
    return name if quoted == name else f'"{quoted}"'


def _write_octal(char: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogatepass"))


def _format_hunks(changes: list[Part], old: list[bytes], new: list[bytes], context: int) -> Iterator[bytes]:
    for group in _group(changes, context):
        before = min(context, group[0].old.start)
        after = min(context, len(old) - group[-1].old.stop)
        old_range = _format_range(group[0].old.start - before, group[-1].old.stop + after)
        new_range = _format_range(group[0].new.start - before, group[-1].new.stop + after)
        yield f"@@ -{old_range} +{new_range} @@\n".encode("ascii")
        at = group[0].old.start - before
        for change in group:
            yield from _format_lines(b" ", old[at : change.old.start])
            yield from _format_lines(b"-", old[change.old.start : change.old.stop])
            yield from _format_lines(b"+", new[change.new.start : change.new.stop])
            at = change.old.stop
        yield from _format_lines(b" ", old[at : at + after])


def _group(changes: list[Part], context: int) -> list[list[Part]]:
    """Group the changes whose contexts touch: each group is one hunk."""
    groups: list[list[Part]] = []
    for change in changes:
        if groups and change.old.start - groups[-1][-1].old.stop <= 2 * context:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _format_range(start: int, end: int) -> str:
    """Write a range as git does: its first line, or the line before it if it is empty, and its length."""
    if end - start == 1:
        return str(end)
    return f"{start + (end > start)},{end - start}"


def _format_lines(mark: bytes, lines: list[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + line
        if not line.endswith(b"\n"):
            yield b"\n\\ No newline at end of file\n"


# Binary contents

_LINE_BYTES = 52


def _format_binary(old: bytes, new: bytes) -> str:
    """Write the part of a binary patch after the index line: both contents whole, deflated, in base 85.

    The new content comes first, then the old one, for `git apply --reverse`:

        GIT binary patch
        literal 12
        Tcmc~$...             up to 52 bytes a line, after a letter for their number

        literal 9
        Qcmd...
    """
    return "\n".join(["GIT binary patch", *_format_literal(new), *_format_literal(old)]) + "\n"


def _format_literal(content: bytes) -> Iterator[str]:
    yield f"literal {len(content)}"
    deflated = zlib.compress(content)
    for at in range(0, len(deflated), _LINE_BYTES):
        piece = deflated[at : at + _LINE_BYTES]
        yield _length_letter(len(piece)) + b85encode(piece, pad=True).decode("ascii")
    yield ""


def _length_letter(length: int) -> str:
    """Write 1 to 26 as A to Z, and 27 to 52 as a to z."""
    return chr(ord("A") + length - 1) if length <= 26 else chr(ord("a") + length - 27)
