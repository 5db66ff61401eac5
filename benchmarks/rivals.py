"""The rivals: the git commands that OpenCode issues, and plain `git add -A` with `git write-tree`.

OpenCode starts git for every act. The commands, their order and their options are issued here as OpenCode
1.18 does; what it computes between them is done in the cheapest way with the same result, in its favour.
OpenCode takes no snapshot outside of a repository. For a folder that is not one, the same sequence is issued
with nothing to seed from; the commands that query the user's repository then fail at once, as they would.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.contestants import Ended

LARGEST_UNTRACKED_BYTES = 2 * 1024 * 1024
"""OpenCode leaves untracked files above this out."""
REVERT_BATCH = 100
"""How many paths OpenCode passes to one checkout."""

CORE = ("-c", "core.longpaths=true", "-c", "core.symlinks=true")
EXACT = ("-c", "core.autocrlf=false", *CORE)
UNQUOTED = (*EXACT, "-c", "core.quotepath=false")
FROM_STDIN = ("--pathspec-from-file=-", "--pathspec-file-nul")
OPENCODE_CONFIG = (
    ("core.autocrlf", "false"),
    ("core.longpaths", "true"),
    ("core.symlinks", "true"),
    ("core.fsmonitor", "false"),
    ("feature.manyFiles", "true"),
    ("index.version", "4"),
    ("index.threads", "true"),
    ("core.untrackedCache", "true"),
)


class Git:
    """The git binary in a clean environment: only a repository's own configuration, no repository above."""

    def __init__(self, home: Path, ceiling: Path) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(ceiling),
        }

    def start(
        self, arguments: Sequence[str], cwd: Path, variables: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start git without waiting for it."""
        return subprocess.Popen(
            ["git", *arguments],
            cwd=cwd,
            env={**self._environment, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ask(self, arguments: Sequence[str], cwd: Path, *, stdin: bytes = b"") -> tuple[int, bytes]:
        """Run git, which may fail, and return its exit status and output."""
        process = self.start(arguments, cwd)
        output, _ = process.communicate(stdin)
        return process.returncode, output

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        *,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
    ) -> bytes:
        """Run git and return its output; raise `GitFailed` if it fails."""
        return finish(self.start(arguments, cwd, variables), stdin)


class GitFailed(Exception):
    """A git command that must succeed did not."""


def finish(process: subprocess.Popen[bytes], stdin: bytes = b"") -> bytes:
    """Wait for git and return its output; raise `GitFailed` if it fails."""
    output, complaint = process.communicate(stdin)
    if process.returncode:
        raise GitFailed(f"{process.args!r} ended with {process.returncode}: {os.fsdecode(complaint)}")
    return output


def commit_all(worktree: Path) -> None:
    """Make the worktree a git repository in which every file is committed, each in a loose object."""
    git = Git(home=worktree.parent, ceiling=worktree.parent)
    git.run(["init", "--quiet"], worktree)
    git.run(["add", "--all"], worktree)
    author = ["-c", "user.name=benchmarks", "-c", "user.email=benchmarks@localhost"]
    # Without gc.auto=0 a large commit starts a gc that goes on in the background.
    git.run([*author, "-c", "gc.auto=0", "commit", "--quiet", "--message=all"], worktree)


def pack_all(worktree: Path) -> None:
    """Put all objects of the worktree's repository into one pack, as they are after a clone."""
    Git(home=worktree.parent, ceiling=worktree.parent).run(["gc", "--quiet"], worktree)


class GitAdd:
    """Plain `git add -A` and `git write-tree`, with a GIT_DIR away from the worktree."""

    def __init__(self, worktree: Path, store: Path) -> None:
        self.worktree = worktree
        self._store = store
        self._git = Git(home=store.parent, ceiling=worktree.parent)
        self._variables = {"GIT_DIR": str(store), "GIT_WORK_TREE": str(worktree)}

    def prime(self) -> None:
        self.track()

    def track(self) -> str:
        if not self._store.exists():
            self._run("init", "--quiet")
        self._run("add", "-A")
        return self._run("write-tree").decode().strip()

    def close(self) -> None:
        """Nothing is held."""

    def _run(self, *arguments: str) -> bytes:
        return self._git.run(arguments, self.worktree, variables=self._variables)


class OpenCode:
    """The sequence of git commands that OpenCode issues for track, patch and revert."""

    def __init__(self, worktree: Path, store: Path) -> None:
        self.worktree = worktree
        self._store = store
        self._git = Git(home=store.parent, ceiling=worktree.parent)
        self._where = ("--git-dir", str(store), "--work-tree", str(worktree))
        self._before = ""
        self._changed: list[str] = []

    def prime(self) -> None:
        """Fill the store by one `git add -A`: OpenCode's way has the same result in quadratic time."""
        if not self._store.exists():
            self._create()
            self._git.run([*EXACT, *self._where, "add", "--all"], self.worktree)
        self.track()

    def track(self) -> str:
        if not self._store.exists():
            self._create()
        self._add()
        return self._git.run([*self._where, "write-tree"], self.worktree).decode().strip()

    def patch(self, tree: str) -> list[str]:
        """List the paths in which the worktree differs from the tree."""
        self._add()
        compare = ["diff", "--cached", "--no-ext-diff", "--name-only", tree, "--", "."]
        output = self._git.run([*UNQUOTED, *self._where, *compare], self.worktree)
        changed = output.decode().splitlines()
        ignored = self._ignored(changed)
        return [path for path in changed if path not in ignored]

    def revert(self, tree: str, paths: Sequence[str]) -> None:
        """Restore the paths from the tree; those that are not in it are unlinked."""
        for start in range(0, len(paths), REVERT_BATCH):
            batch = paths[start : start + REVERT_BATCH]
            if len(batch) == 1:
                self._revert_one(tree, batch[0])
            else:
                self._revert_batch(tree, batch)

    def begin_message(self) -> None:
        self._before = self.track()

    def end_message(self) -> Ended:
        after = self.track()
        self._changed = self.patch(self._before)
        return Ended(self._before, after, self._changed)

    def revert_message(self) -> None:
        """Take a snapshot, which its redo needs, and then restore the paths.

        The diffs that it makes afterwards for its screen are left out, in its favour.
        """
        self.track()
        self.revert(self._before, self._changed)

    def close(self) -> None:
        """Nothing is held."""

    def _create(self) -> None:
        self._store.mkdir(parents=True)
        places = {"GIT_DIR": str(self._store), "GIT_WORK_TREE": str(self.worktree)}
        self._git.run(["init"], self.worktree, variables=places)
        for key, value in OPENCODE_CONFIG:
            self._git.run(["--git-dir", str(self._store), "config", key, value], self.worktree)
        if (self.worktree / ".git").exists():
            self._seed()

    def _seed(self) -> None:
        """Borrow the objects of the user's repository; copy its index so that clean files are not read."""
        question = ["rev-parse", "--path-format=absolute", "--git-common-dir"]
        source = Path(os.fsdecode(self._git.run(question, self.worktree).strip()))
        alternates = self._store / "objects" / "info" / "alternates"
        alternates.parent.mkdir(exist_ok=True)
        alternates.write_text(f"{source / 'objects'}\n")
        shutil.copyfile(source / "index", self._store / "index")

    def _add(self) -> None:
        self._write_excludes()
        modified, untracked = self._list_candidates()
        candidates = list(dict.fromkeys(modified + untracked))
        if not candidates:
            return
        ignored = self._ignored(candidates)
        if ignored:
            self._stage(["rm", "--cached", "-f", "--ignore-unmatch"], ignored)
        allowed = [path for path in candidates if path not in ignored]
        large = self._find_large(allowed).intersection(untracked)
        self._write_excludes(sorted(large))
        staged = [path for path in allowed if path not in large]
        if staged:
            self._stage(["add", "--all", "--sparse"], staged)

    def _write_excludes(self, paths: Iterable[str] = ()) -> None:
        """Write the user's excludes and the paths into the store's exclude file."""
        question = ["rev-parse", "--path-format=absolute", "--git-path", "info/exclude"]
        _, answer = self._git.ask(question, self.worktree)
        users = Path(os.fsdecode(answer.strip()))
        lines = [users.read_text().rstrip()] if answer and users.is_file() else []
        lines += [f"/{path}" for path in paths]
        (self._store / "info").mkdir(exist_ok=True)
        (self._store / "info" / "exclude").write_text("".join(f"{line}\n" for line in lines))

    def _list_candidates(self) -> tuple[list[str], list[str]]:
        """List modified and untracked paths."""
        modified = self._git.start(
            [*UNQUOTED, *self._where, "diff-files", "--name-only", "-z", "--", "."], self.worktree
        )
        others = ["ls-files", "--full-name", "--others", "--exclude-standard", "-z", "--", "."]
        untracked = self._git.start([*UNQUOTED, *self._where, *others], self.worktree)
        # Both run at the same time; the second one waits at a full pipe until the first has ended.
        return _split(finish(modified)), _split(finish(untracked))

    def _ignored(self, paths: Sequence[str]) -> set[str]:
        """Ask the user's repository which of the paths it ignores; a failure means none, as in OpenCode."""
        if not paths:
            return set()
        users = ("--git-dir", str(self.worktree / ".git"), "--work-tree", str(self.worktree))
        question = [*UNQUOTED, *users, "check-ignore", "--no-index", "--stdin", "-z"]
        _, answer = self._git.ask(question, self.worktree, stdin=_join(paths))
        return set(_split(answer))

    def _find_large(self, paths: Iterable[str]) -> set[str]:
        return {path for path in paths if self._is_large(path)}

    def _is_large(self, path: str) -> bool:
        try:
            found = os.stat(os.path.join(self.worktree, path))
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size > LARGEST_UNTRACKED_BYTES

    def _stage(self, command: Sequence[str], paths: Iterable[str]) -> None:
        pathspecs = _join(f":(top,literal){path}" for path in paths)
        self._git.run([*EXACT, *self._where, *command, *FROM_STDIN], self.worktree, stdin=pathspecs)

    def _revert_batch(self, tree: str, paths: Sequence[str]) -> None:
        question = [*CORE, *self._where, "ls-tree", "--name-only", tree, "--", *paths]
        present = set(self._git.run(question, self.worktree).decode().splitlines())
        restored = [path for path in paths if path in present]
        if restored:
            self._git.run([*CORE, *self._where, "checkout", tree, "--", *restored], self.worktree)
        for path in paths:
            if path not in present:
                (self.worktree / path).unlink(missing_ok=True)

    def _revert_one(self, tree: str, path: str) -> None:
        status, _ = self._git.ask([*CORE, *self._where, "checkout", tree, "--", path], self.worktree)
        if status == 0:
            return
        if not self._git.run([*CORE, *self._where, "ls-tree", tree, "--", path], self.worktree):
            (self.worktree / path).unlink(missing_ok=True)


def _join(paths: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def _split(output: bytes) -> list[str]:
    return [os.fsdecode(path) for path in output.split(b"\0") if path]
