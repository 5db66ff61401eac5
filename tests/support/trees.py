"""Trees as data: `make_tree` writes one, `read_tree` reads one, `assert_tree` compares, even for extras.

A tree looks like this:

    make_tree(root, {"src": {"a.py": "x", "run.sh": executable("#!")}, "ln": link("src"), "empty": {}})
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Union


@dataclass(frozen=True)
class Link:
    """A symbolic link."""

    target: bytes


@dataclass(frozen=True)
class File:
    """A file with its permission bits."""

    content: bytes
    mode: int = 0o644


Tree = dict[str, Union[str, bytes, Link, File, "Tree"]]


def link(target: str | bytes) -> Link:
    """Describe a symbolic link."""
    return Link(os.fsencode(target))


def executable(content: str | bytes) -> File:
    """Describe a file with the exec bit."""
    return File(_bytes(content), 0o755)


def file(content: str | bytes, mode: int) -> File:
    """Describe a file with these permission bits."""
    return File(_bytes(content), mode)


def make_tree(root: Path, tree: Tree) -> Path:
    """Write a tree below `root`, over existing files."""
    root.mkdir(exist_ok=True, parents=True)
    for name, value in tree.items():
        path = root / name
        if isinstance(value, dict):
            make_tree(path, value)
        elif isinstance(value, Link):
            os.symlink(value.target, os.fsencode(path))
        else:
            entry = value if isinstance(value, File) else File(_bytes(value))
            path.write_bytes(entry.content)
            path.chmod(entry.mode)
    return root


def read_tree(root: Path) -> Tree:
    """Read everything below `root`, apart from `.git`."""
    found: Tree = {}
    for entry in sorted(os.scandir(root), key=lambda entry: entry.name):
        if entry.name == ".git":
            continue
        path = root / entry.name
        if entry.is_symlink():
            found[entry.name] = Link(os.readlink(os.fsencode(path)))
        elif entry.is_dir():
            found[entry.name] = read_tree(path)
        else:
            found[entry.name] = File(path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
    return found


def assert_tree(root: Path, tree: Tree) -> None:
    """Compare what is below `root` with a tree; anything extra fails too."""
    assert read_tree(root) == _normal(tree)


def _normal(tree: Tree) -> Tree:
    return {
        name: _normal(value)
        if isinstance(value, dict)
        else value
        if isinstance(value, File | Link)
        else File(_bytes(value))
        for name, value in tree.items()
    }


def _bytes(content: str | bytes) -> bytes:
    return content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content


# The identity of files

Mark = tuple[str, int, bytes, int, int]
"""An entry: kind, permission bits, content or target, inode, mtime in ns."""
Copy = dict[str, tuple[str, int, bytes]]
"""The entries of a directory by path: kind, permission bits, content or target."""


def read_marks(root: Path) -> dict[str, Mark]:
    """Read everything below a directory, with the identity of each file."""
    found: dict[str, Mark] = {}
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(directory, name)
            status = path.lstat()
            identity = status.st_ino, status.st_mtime_ns
            if path.is_symlink():
                mark: Mark = ("link", 0, os.fsencode(path.readlink()), *identity)
            elif path.is_dir():
                mark = ("directory", status.st_mode & 0o7777, b"", 0, 0)
            else:
                mark = ("file", status.st_mode & 0o7777, path.read_bytes(), *identity)
            found[str(path.relative_to(root))] = mark
    return found


def plain(marks: dict[str, Mark]) -> Copy:
    """Drop the identity of files."""
    return {path: mark[:3] for path, mark in marks.items()}


def copy_of(root: Path) -> Copy:
    """Copy everything below a directory."""
    return plain(read_marks(root))


def become(root: Path, old: Tree, new: Tree) -> None:
    """Turn one tree into another, without touching what is the same."""
    for name in sorted({*old, *new}):
        path, a, b = root / name, old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            become(path, a, b)
        elif a != b:
            if isinstance(a, File) and isinstance(b, File) and a.content == b.content:
                path.chmod(b.mode)
                continue
            if isinstance(a, dict):
                shutil.rmtree(path)
            elif a is not None:
                path.unlink()
            if b is not None:
                make_tree(root, {name: b})


def refill(root: Path, saved: Path) -> None:
    """Replace the contents of a directory by saved ones; it stays the same directory."""
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(saved, root, symlinks=True, dirs_exist_ok=True)
