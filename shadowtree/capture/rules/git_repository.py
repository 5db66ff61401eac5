"""The user's own git repositories: where they are, what their index tracks, what they exclude.

Everything here only reads, runs no command and obeys no `GIT_*` variable. A repository may be damaged or
hostile: every size is bounded by the file that claims it, only regular files are read, and invalid content
raises no error (the result is `Tracked.problem`, None, or no bytes).
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from shadowtree.base.frozen import frozen
from shadowtree.capture.rules.git_index import (
    MAX_INDEX_BYTES,
    Index,
    IndexDamaged,
    check_names,
    merge_shared,
    parse_index,
)
from shadowtree.system.files import stamp_of

MAX_TEXT_BYTES = 1024 * 1024
"""A larger HEAD, config or excludes file counts as unreadable: it was not written by hand."""
_NO_PATTERNS = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.EFBIG),
}
"""If a file of patterns cannot be read because of one of these errors, we take it for empty, as git does."""
MAX_PACKED_REFS_BYTES = 64 * 1024 * 1024
MAX_INCLUDE_DEPTH = 10
"""How deep one config may include another, as in git."""
MAX_CONFIG_FILES = 100
"""How many files one config may include in all."""

SYSTEM_CONFIG = b"/etc/gitconfig"


@frozen
class Repository:
    """A git repository with a directory of checked out files."""

    top: bytes
    """The absolute path of the directory that has the `.git` entry."""
    git_dir: bytes
    """Where its index and HEAD are."""
    common_dir: bytes
    """Where its config, refs and `info/exclude` are: not `git_dir` in a linked worktree."""


@frozen
class Tracked:
    """The files and links that an index tracks, by their paths relative to the repository's top."""

    names: list[bytes]
    """Sorted, each once."""
    digest: bytes
    """16 bytes, equal if and only if the names are equal."""
    problem: str | None = None
    """Why the index could not be read, in one line; the names are then empty."""

    @classmethod
    def of(cls, names: Iterable[bytes], problem: str | None = None) -> Tracked:
        """Put the names in order and make their digest."""
        # Names nearly always come in order, so sorting them is cheap; a set would lose the order.
        ordered = list(dict.fromkeys(sorted(names)))
        return cls(ordered, blake2b(b"\0".join(ordered), digest_size=16).digest(), problem)

    def has(self, path: bytes) -> bool:
        """Return whether exactly this path is a tracked file or link."""
        at = bisect_left(self.names, path)
        return at < len(self.names) and self.names[at] == path

    def has_below(self, path: bytes) -> bool:
        """Return whether anything below this directory is tracked; the empty path is the top."""
        return bool(self.below(path))

    def children(self, path: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield each name in this directory with something tracked at it, or below it (True)."""
        prefix = path + b"/" if path else b""
        at, end = bisect_left(self.names, prefix), len(self.names)
        while at < end and self.names[at].startswith(prefix):
            name, slash, _ = self.names[at][len(prefix) :].partition(b"/")
            yield name, bool(slash)
            # `0` is the byte after `/`: the next name is the first one that is not below this one.
            at = bisect_left(self.names, prefix + name + b"0", at) if slash else at + 1

    def below(self, path: bytes) -> list[bytes]:
        """List the paths that are tracked below this directory."""
        if not path:
            return list(self.names)
        # `0` is the byte after `/`, so nothing sorts between the last name below and it.
        return self.names[bisect_left(self.names, path + b"/") : bisect_left(self.names, path + b"0")]


def find_at(
    top: bytes, owner: int | None = None, note_foreign: Callable[[bytes], None] | None = None
) -> Repository | None:
    """Find the repository whose `.git` entry is in `top`.

    The entry is a directory, a link to one, or a file that names one (`gitdir:`). Return None if git would
    not take it for a repository with files, or if it does not belong to this user, to root or to `owner`, who
    has the worktree; `note_foreign` is then called with `top`.
    """
    entry = os.path.join(top, b".git")
    try:
        mode = os.stat(entry).st_mode
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None
    git_dir = entry if stat.S_ISDIR(mode) else _follow_git_file(entry)
    if git_dir is None:
        return None
    link = _read_path(os.path.join(git_dir, b"commondir"))
    common_dir = os.path.realpath(os.path.join(git_dir, link)) if link else git_dir
    owners = {_find_owner(path) for path in (top, git_dir, common_dir)}
    if not _is_git_dir(git_dir, common_dir) or None in owners:
        return None
    if not owners <= {os.geteuid(), 0, owner}:
        if note_foreign is not None:
            note_foreign(top)
        return None
    if not link and _is_true(_read_settings(common_dir).get(b"core.bare", b"")):
        return None
    return Repository(top, git_dir, common_dir)


def _find_owner(path: bytes) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def find_around(start: bytes, note_foreign: Callable[[bytes], None] | None = None) -> Iterator[Repository]:
    """Find the repositories at and above a worktree, given by its absolute path, the nearest first.

    Those that neither this user, root nor the worktree's owner owns are left out; `note_foreign` is called
    with the top of each.
    """
    owner = _find_owner(start)
    top, below = start, b""
    while top not in (below, b""):
        repository = find_at(top, owner, note_foreign)
        if repository is not None:
            yield repository
        top, below = os.path.dirname(top), top


def read_tracked(repository: Repository) -> Tracked:
    """Read which files and links the index tracks.

    Files added with intent only and files in conflict count; submodules do not, nor does a directory that a
    sparse index holds as one entry. Without an index nothing is tracked; nor with a damaged one, but then
    `problem` is set.
    """
    try:
        return _read_tracked(repository)
    except FileNotFoundError:
        return Tracked.of(())
    except OSError as err:
        return Tracked.of((), f"the git index cannot be read: {err.strerror}")
    except IndexDamaged as err:
        return Tracked.of((), f"the git index cannot be read: {err}")


def index_stamp(repository: Repository) -> tuple[int, ...] | None:
    """Return the stamp of the index: as long as it is equal, so is the content; None if there is no index.

    It includes all files that a split index may link to, because only its content names the right one.
    """
    try:
        shared = sorted(name for name in os.listdir(repository.git_dir) if name.startswith(_SHARED))
        paths = [os.path.join(repository.git_dir, name) for name in (b"index", *shared)]
        return tuple([number for path in paths for number in stamp_of(os.stat(path))])
    except OSError:
        return None


def read_exclude(repository: Repository) -> bytes:
    """Read the patterns that only this repository excludes; raise OSError if they cannot be determined."""
    return _read_patterns(os.path.join(repository.common_dir, b"info", b"exclude"))


def read_global_excludes(
    repository: Repository | None, *, home: bytes | None, config_home: bytes | None
) -> bytes:
    """Read the patterns that the user excludes everywhere: what `core.excludesFile` names, or git's default.

    `home` and `config_home` are the values of `$HOME` and `$XDG_CONFIG_HOME`. Raise OSError like
    `read_exclude`.
    """
    config_home = config_home or (os.path.join(home, b".config") if home else None)
    named = None
    for config in _list_configs(repository, home=home, config_home=config_home):
        for name, value in _load_config(config, home):
            if name == b"core.excludesfile" and value is not None:
                named = value
    if named is None:
        return _read_patterns(os.path.join(config_home, b"git", b"ignore")) if config_home else b""
    path = _expand_user(named, home)
    if path is None or not (repository or os.path.isabs(path)):
        return b""
    # A relative path starts at git's working directory when it reads the path: the top.
    return _read_patterns(os.path.join(repository.top, path) if repository else path)


def _read_patterns(path: bytes) -> bytes:
    """Read patterns; a file that is missing or not accessible has none, as in git."""
    try:
        return _read_file(path, MAX_TEXT_BYTES)
    except ValueError:  # a NUL in the path
        return b""
    except OSError as error:
        if error.errno in _NO_PATTERNS:
            return b""
        raise OSError(error.errno, error.strerror, path) from error


def find_head(worktree: str) -> str | None:
    """Return the commit at HEAD of the user's repository around a worktree, if there is one."""
    repository = next(find_around(os.fsencode(worktree)), None)
    return None if repository is None else read_head(repository)


def read_head(repository: Repository) -> str | None:
    """Read the id of the commit at HEAD; return None if HEAD is unborn or cannot be read.

    Refs kept in the reftable format are not read.
    """
    ref = b"HEAD"
    for _ in range(_MAX_SYMREF_DEPTH):
        content = _read_ref(repository, ref)
        if _is_id(content):
            return content.decode("ascii")
        if not content.startswith(b"ref:"):
            return None
        ref = content[len(b"ref:") :].strip()
        if not ref.startswith(b"refs/") or b".." in ref or b"\0" in ref:
            return None
    return None


# Where repositories are.

_MAX_SYMREF_DEPTH = 5
_HEX = frozenset(b"0123456789abcdef")
_OWN_REFS = (b"refs/bisect/", b"refs/rewritten/", b"refs/worktree/")
"""The refs that each linked worktree has for itself."""


def _follow_git_file(path: bytes) -> bytes | None:
    content = _read_path(path)
    if not content.startswith(b"gitdir: "):
        return None
    return os.path.realpath(os.path.join(os.path.dirname(path), content[len(b"gitdir: ") :]))


def _is_git_dir(git_dir: bytes, common_dir: bytes) -> bool:
    if not all(os.path.isdir(os.path.join(common_dir, name)) for name in (b"objects", b"refs")):
        return False
    head = _read_head_file(os.path.join(git_dir, b"HEAD"))
    if head.startswith(b"ref:"):
        return head[len(b"ref:") :].lstrip().startswith(b"refs/")
    return _is_id(head[:40])


def _is_id(text: bytes) -> bool:
    return len(text) in (40, 64) and _HEX.issuperset(text)


def _read_head_file(path: bytes) -> bytes:
    try:
        # An old form of HEAD: a link to the ref, which need not exist yet.
        return b"ref: " + os.readlink(path)
    except OSError:
        return _read_line(path)


def _read_ref(repository: Repository, ref: bytes) -> bytes:
    if ref == b"HEAD":
        return _read_head_file(os.path.join(repository.git_dir, ref))
    holder = repository.git_dir if ref.startswith(_OWN_REFS) else repository.common_dir
    return _read_line(os.path.join(holder, ref)) or _find_packed_ref(repository.common_dir, ref)


def _find_packed_ref(common_dir: bytes, ref: bytes) -> bytes:
    try:
        packed = _read_file(os.path.join(common_dir, b"packed-refs"), MAX_PACKED_REFS_BYTES)
    except OSError:
        return b""
    at = packed.find(b" " + ref + b"\n")
    return packed[packed.rfind(b"\n", 0, at) + 1 : at] if at >= 0 else b""


# The index.

_SHARED = b"sharedindex."


def _read_tracked(repository: Repository) -> Tracked:
    settings = _read_settings(repository.common_dir)
    id_bytes = 32 if settings.get(b"extensions.objectformat") == b"sha256" else 20
    content = _read_file(os.path.join(repository.git_dir, b"index"), MAX_INDEX_BYTES)
    index = parse_index(content, id_bytes)
    shared_id = index.link[:id_bytes]
    if any(shared_id):
        shared_path = os.path.join(repository.git_dir, _SHARED + shared_id.hex().encode("ascii"))
        index = merge_shared(_read_shared(shared_path, shared_id), index, id_bytes)
    names = index.files()
    check_names(names)
    return Tracked.of(names)


def _read_shared(path: bytes, shared_id: bytes) -> Index:
    try:
        shared = parse_index(_read_file(path, MAX_INDEX_BYTES), len(shared_id))
    except FileNotFoundError:
        raise IndexDamaged("the shared index it refers to is missing") from None
    if shared.checksum != shared_id or any(shared.link):
        raise IndexDamaged("the shared index it refers to does not match")
    return shared


# Git's config.


def _list_configs(
    repository: Repository | None, *, home: bytes | None, config_home: bytes | None
) -> Iterator[bytes]:
    """Yield the config files that apply, the one with the highest precedence last."""
    yield SYSTEM_CONFIG
    if config_home:
        yield os.path.join(config_home, b"git", b"config")
    if home:
        yield os.path.join(home, b".gitconfig")
    if repository:
        yield os.path.join(repository.common_dir, b"config")
        if _is_true(_read_settings(repository.common_dir).get(b"extensions.worktreeconfig", b"")):
            yield os.path.join(repository.git_dir, b"config.worktree")


def _read_settings(common_dir: bytes) -> dict[bytes, bytes | None]:
    """Read the repository's own config without included files, as git does to find its format."""
    return dict(_read_config(os.path.join(common_dir, b"config")))


_WORDS = (b"bare", b"excludesfile", b"include", b"objectformat", b"worktreeconfig")
"""Each variable that matters here has one of these in its name; the line of `git init` is ignored below."""


def _read_config(path: bytes) -> Iterable[tuple[bytes, bytes | None]]:
    """Return the variables of one config file; none if it cannot contain one that matters here."""
    content = _read_text(path)
    lowered = content.lower().replace(b"bare = false\n", b"")
    return parse_config(content) if any(word in lowered for word in _WORDS) else ()


_BLANK = rb"(?:\s++|[#;][^\n]*+)*+"
_SECTION = rb'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*+)")?\]'
_VARIABLE = (
    rb"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+"
    rb'(?:=((?:[^"\\\n#;]|\\[\\"ntb\n]|"(?:[^"\\\n]|\\[\\"ntb\n])*+")*+))?+'
    rb"(?=[\n#;]|\Z)"
)
_QUOTED = {rb"\\": b"\\", rb"\"": b'"', rb"\n": b"\n", rb"\t": b"\t", rb"\b": b"\b", b'"': b""}


def parse_config(content: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the variables in order, named as in `core.bare`; None is the value of one without `=`.

    Git refuses a file with an invalid line; here the lines before it count.
    """
    # Imported and compiled only here, because that takes longer than a thousand stat calls.
    import re

    blank, read_section, read_variable = (re.compile(part).match for part in (_BLANK, _SECTION, _VARIABLE))
    content = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    section, at = None, 0
    while True:
        skipped = blank(content, at)
        at = skipped.end() if skipped else at
        if found := read_section(content, at):
            section = found[1].lower() + (b"" if found[2] is None else b"." + found[2])
        elif section is not None and (found := read_variable(content, at)):
            yield section + b"." + found[1].lower(), None if found[2] is None else _unquote(found[2])
        else:
            return
        at = found.end()


def _unquote(raw: bytes) -> bytes:
    import re

    # A line break in `raw` always follows a backslash, which keeps the blanks before it. Other blanks at the
    # ends are dropped first, and then the quotes, which keep the blanks inside them.
    lines, joint, last = raw.rpartition(b"\\\n")
    value = (lines + joint + last.rstrip()).replace(b"\\\n", b"").lstrip()
    return re.sub(rb'\\.|"', lambda found: _QUOTED[found[0]], value)


def _is_true(value: bytes | None) -> bool:
    """Return whether a value means true; a variable without a value is true."""
    return value is None or value.lower() in (b"true", b"yes", b"on", b"1")


def _load_config(path: bytes, home: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the variables of a config file and, in their places, of the files that it includes.

    `[includeIf]` is ignored: its conditions on branches and remotes would need half of git.
    """
    opened = [(path, _read_config(path))]
    budget = MAX_CONFIG_FILES
    while opened:
        path, variables = opened[-1]
        for name, value in variables:
            yield name, value
            included = _expand_user(value, home) if name == b"include.path" and value else None
            if included and budget and len(opened) <= MAX_INCLUDE_DEPTH:
                included = os.path.join(os.path.dirname(path), included)
                opened.append((included, _read_config(included)))
                budget -= 1
                break
        else:
            opened.pop()


def _expand_user(path: bytes, home: bytes | None) -> bytes | None:
    if not path.startswith(b"~"):
        return path
    user, slash, rest = path[1:].partition(b"/")
    if user:
        try:
            home = os.fsencode(pwd.getpwnam(os.fsdecode(user)).pw_dir)
        except (KeyError, ValueError):
            return None
    return home + slash + rest if home else None


# Reading files.


def _read_file(path: bytes, limit: int) -> bytes:
    """Read a regular file of up to `limit` bytes; raise OSError for anything else, as a pipe could block."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if found.st_size > limit:
            raise OSError(errno.EFBIG, "it is too large")
        return os.read(fd, found.st_size)
    finally:
        os.close(fd)


def _read_text(path: bytes) -> bytes:
    try:
        return _read_file(path, MAX_TEXT_BYTES)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return b""


def _read_line(path: bytes) -> bytes:
    return _read_text(path).strip()


def _read_path(path: bytes) -> bytes:
    """Read a file that holds a path; return no bytes if it contains a NUL."""
    content = _read_text(path).rstrip(b"\r\n")
    return b"" if b"\0" in content else content
