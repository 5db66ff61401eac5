"""Trees as data: `make_tree` writes one, `read_tree` reads one, `assert_tree` compares, extras included.

A tree is written down like this:

    make_tree(root, {"src": {"a.py": "x", "run.sh": executable("#!")}, "ln": link("src"), "empty": {}})
"""

from __future__ import annotations

import os
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
    """Write a tree below `root`, over what is there."""
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
