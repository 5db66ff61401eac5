"""Real git as the referee: the right id of a tree, and whether a store is sound."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

NEUTRAL_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !eol\n"


def git(*arguments: str | os.PathLike[str], cwd: Path | None = None, **environment: str) -> str:
    """Run git without any user's configuration, and return what it prints."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    clean |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, **environment}
    done = subprocess.run(
        [
            "git",
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@localhost",
            *[os.fspath(argument) for argument in arguments],
        ],
        cwd=cwd,
        env=clean,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


def init(top: Path) -> Path:
    """Make a repository without an `info/exclude`."""
    git("init", "--quiet", "--template=", top)
    (top / ".git" / "info").mkdir(exist_ok=True)
    return top


def files_in(store: Path, tree: str) -> list[str]:
    """List the paths of the files and links that a tree holds."""
    return git("--git-dir", store, "ls-tree", "-r", "-z", "--name-only", tree).split("\0")[:-1]


def git_tree(worktree: Path, scratch: Path) -> str:
    """Return the tree id of `git add -A` and `git write-tree`, with attributes neutralised."""
    git("init", "--quiet", "--bare", scratch)
    (scratch / "info").mkdir(exist_ok=True)
    (scratch / "info" / "attributes").write_text(NEUTRAL_ATTRIBUTES)
    environment = {"GIT_DIR": str(scratch), "GIT_WORK_TREE": str(worktree)}
    git("-c", "core.bare=false", "add", "--all", "--force", ".", cwd=worktree, **environment)
    return git("-c", "core.bare=false", "write-tree", cwd=worktree, **environment)


def assert_sound_store(store: Path, *, asks_git: bool = True) -> None:
    """Check a store: real git finds no fault, no other user can read it, and no temporary file is left."""
    if asks_git:
        git("--git-dir", store, "fsck", "--full", "--strict", "--no-dangling")
    for path in [store, *store.rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
        assert "tmp" not in path.name, path
