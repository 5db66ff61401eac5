"""Worktrees to measure on: made from a seed, or copied from a directory that is given.

A made tree looks like a source project: sizes are log-normal (half of the files below 2 kB, 4 to 5 kB on
average, a long tail up to 512 KiB), 4 to 30 files lie in a directory, up to 8 levels deep, and most content
is text that deflates like source code. The same number and seed give the same names, bytes and modes.
"""

from __future__ import annotations

import math
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha1
from itertools import count
from pathlib import Path
from random import Random

MEDIAN_BYTES = 2000
SPREAD = 1.3
"""Sigma of the log-normal sizes: the mean is `MEDIAN_BYTES * exp(SPREAD**2 / 2)`, about 4,650 bytes."""
LARGEST_BYTES = 512 * 1024
DEEPEST = 8
"""How many names the longest path has."""
EXTENSIONS = {
    ".py": 30,
    ".ts": 25,
    ".go": 12,
    ".md": 10,
    ".json": 10,
    ".css": 5,
    ".txt": 4,
    ".sh": 2,
    ".png": 2,
}
"""How many files of a hundred have each extension; .png is noise that does not deflate, .sh is executable."""

_PROSE_BYTES = 1024 * 1024
_MOST_LINES = 5
"""The most lines that an edit inserts or deletes."""


def build_tree(root: Path, files: int, *, seed: int = 1) -> None:
    """Write `files` files below `root`, which must not exist yet."""
    random = Random(seed)
    root.mkdir(parents=True)
    written = 0
    for directory in _make_directories(root, random):
        here = min(random.randint(4, 30), files - written)
        for number in range(written, written + here):
            _write_file(directory, number, random)
        written += here
        if written == files:
            return


def copy_tree(source: Path, root: Path) -> None:
    """Copy files, links and directories of `source`, without `.git` and special files, to a new `root`."""

    def left_out(directory: str, names: list[str]) -> list[str]:
        return [name for name in names if name == ".git" or _is_special(os.path.join(directory, name))]

    shutil.copytree(source, root, symlinks=True, ignore=left_out)


def list_files(root: Path) -> list[str]:
    """List the regular files below `root`, sorted, each as a path relative to it; `.git` is left out."""
    return sorted(walk_files(root))


def walk_files(root: Path) -> Iterator[str]:
    """Yield the paths of `list_files` one by one, in the order of the file system."""
    for directory, subdirectories, names in os.walk(root):
        if ".git" in subdirectories:
            subdirectories.remove(".git")
        above = "" if directory == os.fspath(root) else f"{os.path.relpath(directory, root)}/"
        for name in names:
            if not os.path.islink(os.path.join(directory, name)):
                yield above + name


def read_files(root: Path, paths: Iterable[str]) -> None:
    """Read every file once, so that the first contestant finds the page cache as warm as the last one."""
    for path in paths:
        (root / path).read_bytes()


def digest_files(root: Path, paths: Iterable[str]) -> str:
    """Return a digest of names, modes and contents, equal for equal worktrees."""
    digest = sha1(usedforsecurity=False)
    for path in paths:
        content = (root / path).read_bytes()
        digest.update(f"{path}\0{os.lstat(root / path).st_mode:o} {len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def change_files(root: Path, paths: Sequence[str], *, changes: int, seed: int) -> None:
    """Rewrite some of the files in place with new text of about their own size; another seed, other files."""
    random = Random(seed)
    for path in random.sample(paths, min(changes, len(paths))):
        size = os.lstat(root / path).st_size
        (root / path).write_bytes(_text(f"{path}, change {seed}", size, random))


def edit_files(root: Path, paths: Sequence[str], *, edits: int, seed: int) -> int:
    """Insert, change or delete some lines in `edits` texts; return their new size in bytes."""
    random = Random(seed)
    written = 0
    for path in random.sample(paths, len(paths)):
        if edits == 0:
            break
        content = (root / path).read_bytes()
        if b"\0" not in content:
            edited = _edit(content, random)
            (root / path).write_bytes(edited)
            written += len(edited)
            edits -= 1
    return written


def _edit(content: bytes, random: Random) -> bytes:
    """Replace some lines by others; the numbers of old and new lines are independent."""
    lines = content.splitlines(keepends=True)
    at = random.randint(0, len(lines))
    gone, new = random.randint(0, _MOST_LINES), random.randint(0, _MOST_LINES)
    # Not cut out of the prose, because new lines of a user are in no other file yet.
    written = [" ".join(random.choices(_words(), k=random.randint(1, 10))) + "\n" for _ in range(new)]
    edited = b"".join([*lines[:at], *(line.encode() for line in written), *lines[at + gone :]])
    return edited if edited != content else b"%s%016x\n" % (content, random.getrandbits(64))


def _make_directories(root: Path, random: Random) -> Iterator[Path]:
    """Make and yield `root`, then without end new directories, each below a random one of those before it."""
    yield root
    parents = [(root, 1)]
    for number in count(1):
        parent, file_depth = random.choice(parents)
        directory = parent / f"{random.choice(_words())}_{number}"
        directory.mkdir()
        yield directory
        if file_depth + 1 < DEEPEST:
            parents.append((directory, file_depth + 1))


def _write_file(directory: Path, number: int, random: Random) -> None:
    extension = random.choices(list(EXTENSIONS), list(EXTENSIONS.values()))[0]
    name = f"{random.choice(_words())}_{number}{extension}"
    size = min(int(random.lognormvariate(math.log(MEDIAN_BYTES), SPREAD)), LARGEST_BYTES)
    content = random.randbytes(size) if extension == ".png" else _text(name, size, random)
    mode = 0o755 if extension == ".sh" else 0o644
    fd = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def _text(title: str, size: int, random: Random) -> bytes:
    """Cut text of about `size` bytes out of the prose; its first line makes it unlike any other file."""
    head = f"# {title} {random.getrandbits(64):016x}\n".encode()
    start = random.randrange(_PROSE_BYTES - LARGEST_BYTES)
    return head + _prose()[start : start + max(0, size - len(head))]


@cache
def _words() -> list[str]:
    random = Random("words")
    return ["".join(random.choices("etaoinshrdlucmfw", k=random.randint(2, 10))) for _ in range(3000)]


@cache
def _prose() -> bytes:
    """Make lines of words, the early words far more frequent than the late ones, indented as code is."""
    random = Random("prose")
    words = random.choices(_words(), [1 / rank for rank in range(1, 3001)], k=_PROSE_BYTES // 5)
    lines, at = [], 0
    while at < len(words):
        length = random.randint(1, 10)
        lines.append("    " * random.randint(0, 4) + " ".join(words[at : at + length]))
        at += length
    prose = "\n".join(lines).encode()
    assert len(prose) >= _PROSE_BYTES
    return prose[:_PROSE_BYTES]


def _is_special(path: str) -> bool:
    mode = os.lstat(path).st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
