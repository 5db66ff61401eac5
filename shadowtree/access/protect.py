"""Protect a path that no snapshot covers, by a `!` rule at the end of `.shadowtreeignore`.

Rules are only appended: nothing in the file is ever overwritten, whatever happens meanwhile. Whether a rule
is needed, and is enough, is decided before anything is written.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence

from shadowtree.base.errors import InvalidInput, WorktreeFailed
from shadowtree.base.frozen import replace
from shadowtree.base.paths import ROOT, RelPath, Unknown, ancestors, is_forbidden, to_text
from shadowtree.capture.capture import Site, capture_in_memory
from shadowtree.capture.list_directory import is_limit
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.recorded_tree import LEFT_OUT_THEN, RecordedDirectory
from shadowtree.capture.rules.gitignore import MAX_FILE_BYTES, Stack, parse
from shadowtree.capture.rules.sources import OWN_IGNORE
from shadowtree.results.reports import Protected
from shadowtree.revert.writer import Writer
from shadowtree.system.files import Cursor, Unreadable, read_small_file

_SPECIAL = re.compile(rb"[\\*?\[]")
_LAST_BLANK = re.compile(rb" \Z")


def protect(opened: OpenStore, site: Site, paths: Sequence[RelPath], *, dry_run: bool) -> list[Protected]:
    """Make snapshots cover some paths from the next one on; those already covered need no rule.

    Raises InvalidInput, before anything is written, if one of them cannot be covered.
    """
    for path in paths:
        _refuse_place(site.worktree, path)
    with capture_in_memory(site, opened) as (_, root):
        found = [_find_rule(site.worktree, root, path, dry_run=dry_run) for path in paths]
    rules = list(dict.fromkeys(each.rule for each in found if each.rule is not None))
    if rules:
        text = _read_rules(site.worktree)
        addition = _write_rules(text, [os.fsencode(rule) for rule in rules])
        for path, each in zip(paths, found, strict=True):
            if each.rule is not None and not _brings_back(text + addition, path, each.rule):
                raise InvalidInput(f"{to_text(OWN_IGNORE)} has too many rules to add another")
        if not dry_run:
            with Writer(site.worktree) as writer:
                writer.append(RelPath(OWN_IGNORE), addition)
            if not _read_rules(site.worktree).endswith(addition):
                raise WorktreeFailed(to_text(OWN_IGNORE), "it was replaced in the meantime; try again")
    return found


def _refuse_place(worktree: str, path: RelPath) -> None:
    """Refuse a path that no rule can include."""
    name = to_text(path) or "."
    if path == ROOT:
        raise InvalidInput("the whole worktree cannot be protected at once; name files in it")
    if any(is_forbidden(part) for part in path.split(b"/")):
        raise InvalidInput(f"{name} cannot be protected: git's own files are never recorded")
    if b"\n" in bytes(path):
        raise InvalidInput(f"{name!r} cannot be protected: its name contains a line break")
    top = os.fsencode(worktree)
    for above in ancestors(path):
        if os.path.islink(os.path.join(top, above)):
            raise InvalidInput(f"{name} cannot be protected: {to_text(above)} is a link; name its target")
    real = os.path.realpath(os.path.join(top, path))
    if os.path.commonpath([top, real]) != top:
        raise InvalidInput(f"{name} cannot be protected: it is a link that points outside the worktree")


def _find_rule(worktree: str, root: RecordedDirectory, path: RelPath, *, dry_run: bool) -> Protected:
    """Find the rule that makes a path covered; no rule if it is covered, or would be if it existed."""
    try:
        mode = os.lstat(os.path.join(os.fsencode(worktree), path)).st_mode
    except OSError:
        mode = 0
    is_directory = stat.S_ISDIR(mode)
    answer = root.find(path, as_directory=is_directory)
    known = Protected(to_text(path), None, exists=mode != 0, dry_run=dry_run)
    if not isinstance(answer, Unknown):
        return known
    if answer.reason != LEFT_OUT_THEN and not is_limit(answer.reason):
        raise InvalidInput(f"{to_text(path)} cannot be protected: {answer.reason}")
    return replace(known, rule=os.fsdecode(write_rule(path, is_directory=is_directory)))


def write_rule(path: RelPath, *, is_directory: bool) -> bytes:
    r"""Return the rule that includes this path and no other, as in `!/a\*b`."""
    escaped = _LAST_BLANK.sub(rb"\\ ", _SPECIAL.sub(rb"\\\g<0>", path))
    if escaped.endswith(b"\r"):
        # Git drops a carriage return at the end of a line.
        escaped = escaped[:-1] + b"[\r]"
    return b"!/" + escaped + (b"/" if is_directory else b"")


def _write_rules(text: bytes, rules: list[bytes]) -> bytes:
    """Return the lines to append to the text of a rule file, with its kind of line breaks."""
    newline = b"\r\n" if text.endswith(b"\r\n") or (b"\r\n" in text and text[-1:] != b"\n") else b"\n"
    start = newline if text and not text.endswith(b"\n") else b""
    return start + b"".join([rule + newline for rule in rules])


def _brings_back(text: bytes, path: RelPath, rule: str) -> bool:
    """Return whether rules include a path: a file with very many rules is not read to its end."""
    *above, name = path.split(b"/")
    stack = Stack.root(parse(text))
    for part in above:
        stack = stack.enter(part)
    return stack.verdict(name, rule.endswith("/")) is False


def _read_rules(worktree: str) -> bytes:
    try:
        with Cursor(worktree) as cursor:
            fd = cursor.enter(ROOT)
            found = read_small_file(fd, OWN_IGNORE, MAX_FILE_BYTES)
            if found is None and os.path.lexists(os.path.join(os.fsencode(worktree), OWN_IGNORE)):
                raise WorktreeFailed(to_text(OWN_IGNORE), "it is not a regular file")
    except Unreadable as error:
        raise WorktreeFailed(to_text(OWN_IGNORE), error.reason) from error
    return b"" if found is None else found[1]
