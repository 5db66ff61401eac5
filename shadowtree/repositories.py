"""The user's own git repositories: where they are, what their index tracks, what they exclude.

Everything here only reads, runs no command and obeys no `GIT_*` variable. A repository may be damaged or
hostile: every size is bounded by the file that claims it, only regular files are opened, and what cannot
be understood is answered quietly (`Tracked.problem`, None, no bytes).
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b, sha1, sha256
from itertools import islice

MAX_TEXT_BYTES = 1024 * 1024
"""A larger HEAD, config or excludes file counts as unreadable: nobody wrote it by hand."""
MAX_INDEX_BYTES = 1024 * 1024 * 1024
"""A larger index is a problem; one of three million files stays well below."""
MAX_PACKED_REFS_BYTES = 64 * 1024 * 1024
MAX_INCLUDE_DEPTH = 10
"""How deep one config may include another, as in git."""
MAX_CONFIG_FILES = 100
"""How many files one config may include in all."""

SYSTEM_CONFIG = b"/etc/gitconfig"


@dataclass(frozen=True, slots=True)
class Repository:
    """A git repository with a directory of checked out files."""

    top: bytes
    """The absolute path of the directory that has the `.git` entry."""
    git_dir: bytes
    """Where its index and HEAD are."""
    common_dir: bytes
    """Where its config, refs and `info/exclude` are: not `git_dir` in a linked worktree."""


@dataclass(frozen=True, slots=True)
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
        # They nearly always come in order, which a set would lose: sorting is then no more than a look.
        ordered = list(dict.fromkeys(sorted(names)))
        return cls(ordered, blake2b(b"\0".join(ordered), digest_size=16).digest(), problem)

    def has(self, path: bytes) -> bool:
        """Tell whether exactly this path is a tracked file or link."""
        at = bisect_left(self.names, path)
        return at < len(self.names) and self.names[at] == path

    def has_below(self, path: bytes) -> bool:
        """Tell whether anything below this directory is tracked; the empty path is the top."""
        if not path:
            return bool(self.names)
        prefix = path + b"/"
        at = bisect_left(self.names, prefix)
        return at < len(self.names) and self.names[at].startswith(prefix)

    def below(self, path: bytes) -> list[bytes]:
        """List what is tracked below this directory, with full names."""
        if not path:
            return list(self.names)
        # `0` is the byte after `/`, so nothing sorts between the last name below and it.
        return self.names[bisect_left(self.names, path + b"/") : bisect_left(self.names, path + b"0")]


def find_at(top: bytes) -> Repository | None:
    """Find the repository whose `.git` entry is in `top`.

    The entry is a directory, a link to one, or a file that names one (`gitdir:`). One that git would not
    take for a repository with files is none.
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
    if not _is_git_dir(git_dir, common_dir) or (not link and _is_bare(common_dir)):
        return None
    return Repository(top, git_dir, common_dir)


def find_around(start: bytes) -> Repository | None:
    """Find the nearest repository at or above the absolute path `start`."""
    top = start
    while (repository := find_at(top)) is None:
        parent = os.path.dirname(top)
        if parent == top or not parent:
            return None
        top = parent
    return repository


def read_tracked(repository: Repository) -> Tracked:
    """Read which files and links the index tracks.

    Files added with intent only and files in conflict count; submodules do not, nor does a directory
    that a sparse index holds as one entry. No index: nothing is tracked. A damaged one: the same, with
    `problem` set.
    """
    try:
        return Tracked.of(_read_index_names(repository))
    except FileNotFoundError:
        return Tracked.of(())
    except OSError as err:
        return Tracked.of((), f"the git index cannot be read: {err.strerror}")
    except _IndexDamaged as err:
        return Tracked.of((), f"the git index cannot be read: {err}")


def index_stamp(repository: Repository) -> tuple[int, ...] | None:
    """Describe the index file so that an equal answer later means equal content; None if there is none.

    The files that a split index may link to are described too: which one it is only the content tells.
    """
    try:
        stamp = _stamp_file(os.path.join(repository.git_dir, b"index"))
        shared = sorted(name for name in os.listdir(repository.git_dir) if name.startswith(_SHARED))
        for name in shared:
            stamp += _stamp_file(os.path.join(repository.git_dir, name))
    except OSError:
        return None
    return stamp


def read_exclude(repository: Repository) -> bytes:
    """Read the patterns that only this repository excludes."""
    return _read_text(os.path.join(repository.common_dir, b"info", b"exclude"))


def read_global_excludes(
    repository: Repository | None, *, home: bytes | None, config_home: bytes | None
) -> bytes:
    """Read the patterns that the user excludes everywhere: what `core.excludesFile` names, or git's default.

    `home` and `config_home` are what `$HOME` and `$XDG_CONFIG_HOME` say.
    """
    config_home = config_home or (os.path.join(home, b".config") if home else None)
    named = None
    for config in _list_configs(repository, home=home, config_home=config_home):
        for name, value in _load_config(config, home):
            if name == b"core.excludesfile" and value is not None:
                named = value
    if named is None:
        return _read_text(os.path.join(config_home, b"git", b"ignore")) if config_home else b""
    path = _expand_user(named, home)
    if path is None or not (repository or os.path.isabs(path)):
        return b""
    # A relative path starts where git stands while it reads it: at the top.
    return _read_text(os.path.join(repository.top, path) if repository else path)


def read_head(repository: Repository) -> str | None:
    """Read the id of the commit that HEAD stands at; None if it is unborn or cannot be told.

    Refs kept in the reftable format are not read.
    """
    ref = b"HEAD"
    for _ in range(_MAX_SYMREF_DEPTH):
        content = _read_ref(repository, ref)
        if _ID.fullmatch(content):
            return content.decode("ascii")
        if not content.startswith(b"ref:"):
            return None
        ref = content[len(b"ref:") :].strip()
        if not ref.startswith(b"refs/") or b".." in ref or b"\0" in ref:
            return None
    return None


# Where repositories are.

_MAX_SYMREF_DEPTH = 5
_ID = re.compile(rb"[0-9a-f]{40}|[0-9a-f]{64}")
_OWN_REFS = (b"refs/bisect/", b"refs/rewritten/", b"refs/worktree/")
"""The refs that each linked worktree has for itself."""


def _follow_git_file(path: bytes) -> bytes | None:
    content = _read_path(path)
    if not content.startswith(b"gitdir: "):
        return None
    return os.path.realpath(os.path.join(os.path.dirname(path), content[len(b"gitdir: ") :]))


def _is_git_dir(git_dir: bytes, common_dir: bytes) -> bool:
    return (
        os.path.isdir(os.path.join(common_dir, b"objects"))
        and os.path.isdir(os.path.join(common_dir, b"refs"))
        and _is_head(os.path.join(git_dir, b"HEAD"))
    )


def _is_head(path: bytes) -> bool:
    return re.match(rb"ref:\s*refs/|[0-9a-f]{40}", _read_head_file(path)) is not None


def _read_head_file(path: bytes) -> bytes:
    try:
        # HEAD of old: a link to the ref, which need not exist yet.
        return b"ref: " + os.readlink(path)
    except OSError:
        return _read_line(path)


def _is_bare(common_dir: bytes) -> bool:
    settings = _read_settings(common_dir)
    return b"core.bare" in settings and _is_true(settings[b"core.bare"])


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


# What the index says.
#
#   header     "DIRC", version, number of entries
#   entries    in the order of their names
#   extensions a signature and a size each; `link` tells that this is a split index
#   checksum
#
# An entry has 40 bytes of what stat says (the mode is the 7th number), the id of the blob, flags, and the
# name. Versions 2 and 3 write the whole name and pad the entry to a multiple of 8; version 4 writes how
# many bytes of the name before to drop, and what to add:
#
#   src/paths.py            0  "src/paths.py"
#   src/patience.py         5  "ience.py"

_SHARED = b"sharedindex."
_HEADER = struct.Struct(">4sII")
_EXTENSION = struct.Struct(">4sI")
_STAT_BYTES = 40
_EXTENDED = 0x4000
_LENGTH_MASK = 0xFFF
_FILE_BITS = stat.S_IFREG & stat.S_IFLNK
_FILE_MASK = 0o170000 ^ stat.S_IFREG ^ stat.S_IFLNK
"""A mode with these bits equal to `_FILE_BITS` is that of a file or a link."""
_MAX_EXPANSION = 16
"""How many times its own size the names of an index of version 4 may take: a kilobyte each."""


class _IndexDamaged(Exception):
    """An index that git did not write, or that was changed since; the text tells why."""


@dataclass(slots=True)
class _Index:
    """The parts of an index file that matter here."""

    names: list[bytes] = field(default_factory=list)
    """One for each entry, in order: repeated for the stages of a conflict."""
    not_files: set[int] = field(default_factory=set)
    """The positions of submodules, of sparse directories and of what a split index deletes."""
    link: bytes = b""
    """The content of the extension of a split index."""
    checksum: bytes = b""

    def files(self) -> list[bytes]:
        """List the names of files and links."""
        if not self.not_files:
            return self.names
        return [name for at, name in enumerate(self.names) if at not in self.not_files]


def _read_index_names(repository: Repository) -> list[bytes]:
    settings = _read_settings(repository.common_dir)
    id_bytes = 32 if settings.get(b"extensions.objectformat") == b"sha256" else 20
    index = _read_index(os.path.join(repository.git_dir, b"index"), id_bytes)
    shared_id = index.link[:id_bytes]
    if any(shared_id):
        shared_path = os.path.join(repository.git_dir, _SHARED + shared_id.hex().encode("ascii"))
        index = _merge_shared(_read_shared(shared_path, shared_id), index, id_bytes)
    names = index.files()
    _check_names(names)
    return names


def _read_shared(path: bytes, shared_id: bytes) -> _Index:
    try:
        shared = _read_index(path, len(shared_id))
    except FileNotFoundError:
        raise _IndexDamaged("the shared index that it links to is missing") from None
    if shared.checksum != shared_id or any(shared.link):
        raise _IndexDamaged("the shared index that it links to is another one")
    return shared


def _read_index(path: bytes, id_bytes: int) -> _Index:
    content = _read_file(path, MAX_INDEX_BYTES)
    checksum = content[-id_bytes:]
    body = memoryview(content)[:-id_bytes]
    # Git writes zeros instead of a checksum where `index.skipHash` is set.
    if any(checksum) and (sha1 if id_bytes == 20 else sha256)(body).digest() != checksum:
        raise _IndexDamaged("its checksum is wrong")
    try:
        index = _parse_index(content, len(body), id_bytes)
    except (struct.error, IndexError, ValueError):
        raise _IndexDamaged("it is cut short") from None
    index.checksum = checksum
    return index


def _parse_index(content: bytes, size: int, id_bytes: int) -> _Index:
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise _IndexDamaged("its format is unknown")
    if count * (_STAT_BYTES + id_bytes + 2) > size:
        raise _IndexDamaged("it is cut short")
    index = _Index()
    parse = _parse_packed_entries if version == 4 else _parse_padded_entries
    at = parse(content, count, id_bytes, index)
    while at < size:
        signature, length = _EXTENSION.unpack_from(content, at)
        at += _EXTENSION.size + length
        if signature == b"link":
            index.link = content[at - length : at]
        elif signature[:1].islower() and signature != b"sdir":
            raise _IndexDamaged(f"it needs the extension {signature!r}")
    if at != size:
        raise _IndexDamaged("it is cut short")
    return index


def _parse_padded_entries(content: bytes, count: int, id_bytes: int, index: _Index) -> int:
    """Read the entries of versions 2 and 3; tell where they end.

    This loop is most of the time that a large repository takes, so it leaves out what can be checked
    afterwards: an entry beyond the end fails to unpack, or ends too far.
    """
    unpack = struct.Struct(f">24xI{_STAT_BYTES - 28 + id_bytes}xH").unpack_from
    head_bytes = _STAT_BYTES + id_bytes + 2
    append = index.names.append
    at = _HEADER.size
    for position in range(count):
        mode, flags = unpack(content, at)
        start = at + head_bytes + (2 if flags & _EXTENDED else 0)
        length = flags & _LENGTH_MASK
        end = start + length if length < _LENGTH_MASK else content.index(b"\0", start)
        append(content[start:end])
        if mode & _FILE_MASK != _FILE_BITS:
            index.not_files.add(position)
        at += (end - at + 8) & ~7
    return at


def _parse_packed_entries(content: bytes, count: int, id_bytes: int, index: _Index) -> int:
    """Read the entries of version 4; tell where they end."""
    unpack = struct.Struct(f">24xI{_STAT_BYTES - 28 + id_bytes}xH").unpack_from
    head_bytes = _STAT_BYTES + id_bytes + 2
    append = index.names.append
    budget = _MAX_EXPANSION * len(content)
    at = _HEADER.size
    name = b""
    length = 0
    for position in range(count):
        mode, flags = unpack(content, at)
        at += head_bytes + (2 if flags & _EXTENDED else 0)
        dropped = content[at]
        if dropped < 0x80:
            at += 1
        else:
            dropped, at = _read_varint(content, at)
        kept = length - dropped
        length = flags & _LENGTH_MASK
        if length == _LENGTH_MASK:
            length = kept + content.index(b"\0", at) - at
        budget -= length
        if not 0 <= kept <= length or budget < 0:
            raise _IndexDamaged("its names make no sense")
        end = at + length - kept
        name = name[:kept] + content[at:end]
        append(name)
        if mode & _FILE_MASK != _FILE_BITS:
            index.not_files.add(position)
        at = end + 1
    return at


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    """Read a number of 7 bits a byte, the highest first, and tell where it ends.

    Each further byte adds one to what stands before it, so that no number can be written in two ways:
    `7f` is 127, `80 00` is 128.
    """
    value = content[at] & 0x7F
    while content[at] & 0x80 and value < MAX_INDEX_BYTES:
        at += 1
        value = (value + 1) << 7 | (content[at] & 0x7F)
    return value, at + 1


def _check_names(names: list[bytes]) -> None:
    """Refuse names that git would not track, so that each can be trusted to lead below the top.

    All are searched at once: a loop over the names would double the time.
    """
    joined = b"/".join((b"", *names, b""))
    if names and any(part in joined for part in (b"\0", b"//", b"/./", b"/../", b"/.git/")):
        raise _IndexDamaged("its names make no sense")


def _merge_shared(shared: _Index, index: _Index, id_bytes: int) -> _Index:
    """Apply a split index to the shared one that it links to.

    Its two bitmaps tell which entries of the shared index are deleted, and which are replaced. The first
    entries of the split index, which have no name, are the replacements in order; the rest are new.

        shared    a  b  c  d
        delete    0  1
        replace   0  0  1          split index    ""  e
        result    a     c  d  e    where c has the mode of ""
    """
    bitmaps = index.link[id_bytes:]
    count = len(shared.names)
    try:
        deleted, at = _read_bitmap(bitmaps, 0, count) if bitmaps else ([], 0)
        replaced, _ = _read_bitmap(bitmaps, at, count) if bitmaps else ([], 0)
    except struct.error:
        raise _IndexDamaged("its bitmaps are cut short") from None
    if len(replaced) > len(index.names):
        raise _IndexDamaged("its bitmaps make no sense")
    not_files = shared.not_files.difference(replaced).union(deleted)
    not_files.update(at for new, at in enumerate(replaced) if new in index.not_files)
    added = range(len(replaced), len(index.names))
    not_files.update(count + at - len(replaced) for at in added if at in index.not_files)
    return _Index(shared.names + index.names[len(replaced) :], not_files)


def _read_bitmap(content: bytes, at: int, limit: int) -> tuple[list[int], int]:
    """Read a compressed bitmap (EWAH): its set bits, all below `limit`, and where it ends.

    Its words have 64 bits. A marker stands for a run of equal words (bit 0 tells of which bits, bits 1 to
    32 how many words) and tells how many words follow that stand for themselves (bits 33 to 63).
    """
    _, count = struct.unpack_from(">II", content, at)
    words = iter(struct.unpack_from(f">{count}Q", content, at + 8))
    bits: list[int] = []
    first = 0
    for marker in words:
        run_end = first + 64 * (marker >> 1 & 0xFFFFFFFF)
        if marker & 1:
            bits.extend(range(first, min(run_end, limit)))
        first = run_end
        for literal in islice(words, marker >> 33):
            bits.extend(first + bit for bit in range(64) if literal >> bit & 1)
            first += 64
    if bits and bits[-1] >= limit:
        raise _IndexDamaged("its bitmaps make no sense")
    return bits, at + 8 + 8 * count + 4


# What git's config says.

_BLANK = re.compile(rb"(?:\s++|[#;][^\n]*+)*+")
_SECTION = re.compile(rb'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*+)")?\]')
_VARIABLE = re.compile(
    rb"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+"
    rb'(?:=((?:[^"\\\n#;]|\\[\\"ntb\n]|"(?:[^"\\\n]|\\[\\"ntb\n])*+")*+))?+'
    rb"(?=[\n#;]|\Z)"
)
_QUOTING = re.compile(rb'\\.|"')
_QUOTED = {rb"\\": b"\\", rb"\"": b'"', rb"\n": b"\n", rb"\t": b"\t", rb"\b": b"\b", b'"': b""}


def _list_configs(
    repository: Repository | None, *, home: bytes | None, config_home: bytes | None
) -> Iterator[bytes]:
    """List the config files that count, the one that has the last word last."""
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
    """Read the repository's own config without what it includes, as git does to learn its format."""
    return dict(_parse_config(_read_text(os.path.join(common_dir, b"config"))))


def _load_config(path: bytes, home: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the variables of a config file and, in their places, of the files that it includes.

    `[includeIf]` is passed over: its conditions on branches and remotes would need half of git.
    """
    opened = [(path, _parse_config(_read_text(path)))]
    budget = MAX_CONFIG_FILES
    while opened:
        path, variables = opened[-1]
        for name, value in variables:
            yield name, value
            included = _expand_user(value, home) if name == b"include.path" and value else None
            if included and budget and len(opened) <= MAX_INCLUDE_DEPTH:
                included = os.path.join(os.path.dirname(path), included)
                opened.append((included, _parse_config(_read_text(included))))
                budget -= 1
                break
        else:
            opened.pop()


def _parse_config(content: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the variables in order, named as in `core.bare`; None is the value of one without `=`.

    Git refuses a file with a line that makes no sense; here what stands before that line counts.
    """
    content = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    section = None
    at = _skip_blank(content, 0)
    while at < len(content):
        if found := _SECTION.match(content, at):
            section = found[1].lower() + (b"" if found[2] is None else b"." + found[2])
        elif section is not None and (found := _VARIABLE.match(content, at)):
            yield section + b"." + found[1].lower(), None if found[2] is None else _unquote(found[2])
        else:
            return
        at = _skip_blank(content, found.end())


def _skip_blank(content: bytes, at: int) -> int:
    blank = _BLANK.match(content, at)
    return blank.end() if blank else at


def _unquote(raw: bytes) -> bytes:
    # A line break in `raw` always belongs to the backslash before it, which protects the blanks that stand
    # before it. The other blanks at the ends are dropped before the quotes are, which protect theirs.
    lines, joint, last = raw.rpartition(b"\\\n")
    value = (lines + joint + last.rstrip()).replace(b"\\\n", b"").lstrip()
    return _QUOTING.sub(lambda found: _QUOTED[found[0]], value)


def _is_true(value: bytes | None) -> bool:
    return value is None or value.lower() in (b"true", b"yes", b"on", b"1")


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


# How files are read.


def _read_file(path: bytes, limit: int) -> bytes:
    """Read a regular file of up to `limit` bytes; anything else is an OSError: a pipe could block."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        if found.st_size > limit:
            raise OSError(errno.EFBIG, "it is too large")
        return file.read(found.st_size)


def _read_text(path: bytes) -> bytes:
    try:
        return _read_file(path, MAX_TEXT_BYTES)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return b""


def _read_line(path: bytes) -> bytes:
    return _read_text(path).strip()


def _read_path(path: bytes) -> bytes:
    """Read a file that holds a path; one with a NUL is none."""
    content = _read_text(path).rstrip(b"\r\n")
    return b"" if b"\0" in content else content


def _stamp_file(path: bytes) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
