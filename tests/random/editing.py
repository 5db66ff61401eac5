"""Random edits of a worktree, from few names and contents, so that edits often collide."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

from tests.support.modelled import DIRECTORY, Disk, Entry, ancestors, is_below, read_disk
from tests.support.trees import File, Link

LARGEST = 64
"""The setting `max_file_size`."""
NAMES = ["a", "b", "x.log", "d", "build", "n\udcff"]
PATHS = [
    *NAMES,
    *[f"{directory}/{name}" for directory in ("d", "build", "a") for name in ("a", "x.log", "d", "build")],
    *[f"d/d/{name}" for name in ("a", "b", "x.log")],
]
CONTENTS = [b"", b"1", b"2", b"one\ntwo\n", b"\0binary"]
LARGE = [b"x" * 100, b"y" * 100]
MODES = [0o644, 0o600, 0o755]
TARGETS = [b"a", b"nowhere", b"d", b"..", b"../outside/kept", b"../outside", b"../../outside"]
IGNORE_FILES = [".gitignore", ".gitignore", "d/.gitignore", ".shadowtreeignore"]
IGNORE_LINES = ["*.log", "build/", "/a", "b", "d", "!x.log", "!b", "d/a", "!build/"]


class Editor:
    """Edits a worktree at random; with `uncovered`, also paths that no snapshot covers."""

    def __init__(self, root: Path, random: Random, *, uncovered: bool) -> None:
        self.root = root
        self.random = random
        self._paths = [*PATHS, "node_modules/a"] if uncovered else PATHS
        self._contents = [*CONTENTS, *LARGE] if uncovered else CONTENTS

    @property
    def disk(self) -> Disk:
        return read_disk(self.root)[0]

    # What to do

    def draw_path(self) -> str:
        return self.random.choice(self._paths)

    def draw_paths(self) -> list[str] | None:
        """Draw a few paths to narrow an act or a message to; most often none."""
        if self.random.random() < 0.67:
            return None
        drawn = [self.draw_path() for _ in range(self.random.randint(1, 3))]
        # A path through a link names another place, which the model does not support.
        disk = self.disk
        is_led_away = any(isinstance(disk.get(above), Link) for path in drawn for above in ancestors(path))
        return None if is_led_away else drawn

    def draw_file(self) -> File:
        return File(self.random.choice(self._contents), self.random.choice(MODES))

    def draw_entry(self) -> Entry:
        kind = self.random.choice(["file", "file", "link", "directory"])
        if kind == "file":
            return self.draw_file()
        return Link(self.random.choice(TARGETS)) if kind == "link" else DIRECTORY

    def put_some(self, most: int = 3) -> None:
        """Write files, links and directories, over whatever is there; sometimes delete something."""
        for _ in range(self.random.randint(1, most)):
            self.put(self.draw_path(), self.draw_entry())
        if self.random.random() < 0.4:
            self.delete()

    def change(self) -> None:
        """Change something that exists."""
        files = sorted(path for path, entry in self.disk.items() if isinstance(entry, File))
        plain = [path for path in files if "ignore" not in path]
        kind = self.random.choice(["delete", "rename", "chmod", "edit"])
        if kind == "delete":
            self.delete()
        elif kind == "rename":
            self.rename()
        elif kind == "chmod" and files:
            (self.root / self.random.choice(files)).chmod(self.random.choice(MODES))
        elif kind == "edit" and plain:
            # This keeps the inode.
            (self.root / self.random.choice(plain)).write_bytes(self.random.choice(self._contents))

    def change_rules(self) -> None:
        """Write or remove a file with rules for what is ignored."""
        path = self.random.choice(IGNORE_FILES)
        lines = self.random.choices(IGNORE_LINES, k=self.random.randint(0, 3))
        if lines:
            self._clear(path)
            (self.root / path).write_text("".join(line + "\n" for line in lines))
        elif (self.root / path).exists():
            (self.root / path).unlink()

    def delete(self) -> None:
        found = sorted(self.disk)
        if found:
            self._remove(self.root / self.random.choice(found))

    def rename(self) -> None:
        found, to = sorted(self.disk), self.draw_path()
        path = self.random.choice(found) if found else to
        if not (is_below(to, path) or is_below(path, to)):
            self._clear(to)
            if os.path.lexists(self.root / path):
                (self.root / path).rename(self.root / to)

    # How it is done

    def put(self, path: str, entry: Entry) -> None:
        """Put an entry at a path, in place of whatever is there."""
        self._clear(path)
        target = self.root / path
        if isinstance(entry, File):
            target.write_bytes(entry.content)
            target.chmod(entry.mode)
        elif isinstance(entry, Link):
            os.symlink(entry.target, os.fsencode(target))
        else:
            target.mkdir()

    def _clear(self, path: str) -> None:
        """Make the directories above a path, and remove what is at it."""
        for above in reversed(list(ancestors(path))):
            directory = self.root / above
            if directory.is_symlink() or not directory.is_dir():
                self._remove(directory)
                directory.mkdir()
        self._remove(self.root / path)

    def _remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif os.path.lexists(path):
            path.unlink()
