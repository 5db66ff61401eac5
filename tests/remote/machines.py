"""Machines for stories about remotes: each has a directory and a store, and all use one server."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shadowtree import Shadow
from tests.support.referee import git
from tests.support.stores import SETTINGS


@dataclass
class Machine:
    """A directory with its own store."""

    top: Path
    url: str
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def worktree(self) -> Path:
        return self.top / "project"

    @property
    def store(self) -> Path:
        return self.top / "store"

    def open(self, session: str = "default", **settings: object) -> Shadow:
        """Open it as a new process would."""
        self.worktree.mkdir(parents=True, exist_ok=True)
        chosen = {**SETTINGS, **self.settings, **settings}
        return Shadow(self.worktree, store=self.store, session=session, settings=chosen)

    def tell(self, id: str, files: dict[str, str | None], session: str = "default", **said: Any) -> None:
        """Record a message that writes some files, or deletes them."""
        with self.open(session) as shadow, shadow.message(id, text=f"text of {id}", **said):
            for name, content in files.items():
                path = self.worktree / name
                if content is None:
                    path.unlink()
                else:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(content)

    def push(self, **how: Any) -> Any:
        with self.open() as shadow:
            if not shadow.remotes.all():
                shadow.remotes.add("origin", self.url)
            return shadow.remotes.push(**{"text": True, **how})

    def fetch(self, **how: Any) -> Any:
        with self.open() as shadow:
            if not shadow.remotes.all():
                shadow.remotes.add("origin", self.url)
            return shadow.remotes.fetch(**how)

    def resume(self, **how: Any) -> Any:
        with self.open() as shadow:
            return shadow.remotes.resume(self.url, **how)

    def log(self, session: str | None = None) -> list[dict[str, Any]]:
        """Return the log as the command prints it."""
        with self.open(session or "default") as shadow:
            messages = shadow.messages(all_sessions=session is None)
            found: list[dict[str, Any]] = json.loads(json.dumps([message.to_dict() for message in messages]))
            return found

    def ids(self, session: str = "default", state: str | None = None) -> list[str]:
        return [each["id"] for each in self.log(session) if state in (None, each["state"])]

    def files(self) -> dict[str, str]:
        """Return the files of the directory."""
        found = [path for path in sorted(self.worktree.rglob("*")) if path.is_file()]
        return {str(path.relative_to(self.worktree)): path.read_text() for path in found}

    def check(self) -> None:
        """Check that the store is sound."""
        with self.open() as shadow:
            report = shadow.check(read_data=True)
        assert report.ok, report.problems
        assert git("--git-dir", self.store, "fsck", "--full", "--strict", "--no-dangling") == ""


def make_server(top: Path) -> Path:
    """Make an empty repository, as on a server."""
    git("init", "--quiet", "--bare", top)
    # Every push must be a fast-forward.
    git("--git-dir", top, "config", "receive.denyNonFastForwards", "true")
    git("--git-dir", top, "config", "transfer.fsckObjects", "true")
    return top


def fsck(server: Path) -> str:
    return git("--git-dir", server, "fsck", "--full", "--strict", "--no-dangling")


def list_refs(server: Path, *under: str) -> list[str]:
    return git("--git-dir", server, "for-each-ref", "--format=%(refname)", *under).split()
