"""Install hooks and slash commands for an agent, remove them, and report what is installed.

Every file is read and its new content decided before the first one is written. What others wrote into an
agent's settings stays, byte for byte; a file that cannot be parsed is refused, not repaired.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from shadowtree.agents import targets
from shadowtree.agents.agent_files import read_whole, remove_file, replace_file
from shadowtree.agents.executable import can_run, make_line, read_line
from shadowtree.agents.hook_settings import add_hooks, find_hooks, is_without_hooks, list_events, remove_hooks
from shadowtree.agents.installed_files import InstalledFiles
from shadowtree.agents.json_text import BadJson, blank_comments
from shadowtree.agents.known_agents import AGENTS
from shadowtree.agents.targets import Target
from shadowtree.base.errors import InvalidInput
from shadowtree.base.frozen import field, frozen
from shadowtree.results.result import Result

_BOM = "\ufeff"
_MARK = b"shadowtree"
_COMMENTED = frozenset({"gemini", "qwen"})
"""Agents that allow comments in their settings, where hooks may have been added by hand."""
_PROGRAM = re.compile(
    rb"""(?:exec |!`|!\{|PROGRAM = "|"command": ")('[^']*/shadowtree'|[^\s'"]*/shadowtree)"""
)
"""Finds the program in files that we wrote."""
_ANY = "/shadowtree"
"""A placeholder, if it does not matter which program it is."""

ADDED, CHANGED, REMOVED, KEPT, EDITED = "added", "changed", "removed", "unchanged", "edited"


@frozen
class FileChange(Result):
    """What is done to one file of an agent."""

    agent: str
    scope: str
    path: str
    """The path that the agent uses, which may be a link."""
    action: str
    """`added`, `changed`, `removed`, `unchanged`; `edited`: you have changed it, so it is left as it is."""
    backup: str | None = None
    """Where its original content is kept, if this change was the first."""


@frozen
class AgentStatus(Result):
    """Whether the hooks of an agent are installed in one scope."""

    agent: str
    scope: str
    is_detected: bool
    """The agent itself seems to be installed."""
    state: str
    """`installed`, `partly`, `no`, or `unreadable`: the file cannot be read, but it names shadowtree."""
    path: str
    """The settings, or the first file of ours."""
    executable: str | None
    """The program that the hooks run."""
    is_executable_there: bool
    missing: list[str] = field(default_factory=list)
    """Events without a hook, and missing files."""
    problem: str | None = None
    """Why the settings cannot be read, or changed."""


@frozen
class _Decided:
    target: Target
    path: str
    """Where the file really is: links are followed, so that a dotfile manager keeps its link."""
    before: bytes | None
    after: bytes | None
    action: str


def list_installed(stores: str) -> list[tuple[str, str, str]]:
    """List recorded installations: agent, scope, and project, which is empty for all projects."""
    files = InstalledFiles(stores).files.values()
    return sorted({(entry.agent, entry.scope, entry.project or "") for entry in files})


class Installer:
    """Installs hooks for one user, or in one project."""

    def __init__(self, environ: Mapping[str, str], stores: str, *, project: str) -> None:
        self._environ = environ
        self._project = project
        self._record = InstalledFiles(stores)

    def install(self, name: str, scope: str, executable: str, *, dry_run: bool = False) -> list[FileChange]:
        """Install the hooks and slash commands of an agent; check every file before writing the first."""
        with nullcontext() if dry_run else self._record.locked():
            return self._install(name, scope, executable, dry_run=dry_run)

    def _install(self, name: str, scope: str, executable: str, *, dry_run: bool) -> list[FileChange]:
        decided = [self._decide(name, target, executable) for target in self._list(name, scope, executable)]
        done = []
        for each in decided:
            backup = None
            if each.after is not None and each.after != each.before and not dry_run:
                backup = self._record.write(
                    each.path,
                    each.after,
                    each.before,
                    agent=name,
                    scope=scope,
                    project=None if scope == targets.USER else self._project,
                    is_program=each.target.is_program,
                )
            done.append(FileChange(name, scope, each.target.path, each.action, backup))
        return done

    def uninstall(self, name: str, scope: str, *, dry_run: bool = False) -> list[FileChange]:
        """Remove what `install` wrote; a file that nobody else changed gets its original bytes back."""
        with nullcontext() if dry_run or not self._record.can_exist() else self._record.locked():
            return self._uninstall(name, scope, dry_run=dry_run)

    def _uninstall(self, name: str, scope: str, *, dry_run: bool) -> list[FileChange]:
        decided = []
        for target in self._list(name, scope, _ANY):
            removal = self._decide_removal(name, target)
            if removal is not None:
                decided.append(removal)
            elif not dry_run:
                # Another program, or the user, has removed our lines.
                self._record.forget(os.path.realpath(target.path))
        done = []
        for each in decided:
            if not dry_run and each.action != EDITED:
                if each.after is None:
                    remove_file(each.path, each.before)
                elif each.after != each.before:
                    replace_file(each.path, each.after, each.before)
                self._record.forget(each.path)
            done.append(FileChange(name, scope, each.target.path, each.action))
        return done

    def find_status(self, name: str, scope: str) -> AgentStatus:
        """Return which of an agent's hooks are installed."""
        listed = self._list(name, scope, _ANY)
        hooks = [target for target in listed if not target.is_command]
        found: list[str] = []
        missing: list[str] = []
        problem, is_ours = None, False
        try:
            for target in hooks:
                executables, absent = _inspect(name, target)
                found += executables
                missing += absent
            missing += [each.path for each in listed if each.is_command and not os.path.isfile(each.path)]
        except InvalidInput as error:
            problem, is_ours = str(error), _mentions_us(hooks[0].path)
        gone = [executable for executable in found if not can_run(executable)]
        state = "unreadable" if is_ours else "no" if not found else "partly" if missing else "installed"
        return AgentStatus(
            name,
            scope,
            targets.is_detected(name, self._environ),
            state,
            listed[0].path,
            next(iter(gone or found), None),
            bool(found) and not gone,
            missing if found else [],
            problem,
        )

    def _list(self, name: str, scope: str, executable: str) -> list[Target]:
        return targets.list_targets(name, scope, self._environ, project=self._project, executable=executable)

    def _decide(self, name: str, target: Target, executable: str) -> _Decided:
        path = os.path.realpath(target.path)
        before = read_whole(path)
        if before is None and os.path.islink(target.path):
            raise InvalidInput(f"{target.path} is a link to {path}, where nothing is")
        if target.content is None:
            text, bom = _decode(path, before)
            with _naming(target.path):
                after = add_hooks(text or "{}\n", AGENTS[name], make_line(executable, name))
            content = (bom + after).encode("utf-8")
        else:
            content = target.content.encode("utf-8")
            is_ours = before is None or before == content or self._record.is_untouched(path, before)
            if not is_ours and target.is_command:
                return _Decided(target, path, before, before, EDITED)
            if not is_ours:
                whose = "you have edited it" if before is not None and _MARK in before else "it is not ours"
                raise InvalidInput(f"{target.path} is there already, and {whose}; move it away first")
        action = ADDED if before is None else KEPT if before == content else CHANGED
        return _Decided(target, path, before, content, action)

    def _decide_removal(self, name: str, target: Target) -> _Decided | None:
        """Decide what a file contains after the removal; None: it has nothing of ours."""
        path = os.path.realpath(target.path)
        before = read_whole(path)
        if before is None:
            return _Decided(target, path, None, None, REMOVED) if path in self._record.files else None
        if self._record.is_untouched(path, before):
            first = self._record.read_first(path)
            if first is not None or self._record.was_made(path):
                return _Decided(target, path, before, first, REMOVED if first is None else CHANGED)
        if target.content is not None:
            if not _is_own_file(name, target, before):
                return None
            is_ours = path not in self._record.files and _is_as_written(target, before)
            return _Decided(target, path, before, None, REMOVED if is_ours else EDITED)
        if _MARK not in before:
            return None
        text, bom = _decode(path, before)
        with _naming(target.path):
            if not text or not find_hooks(text, AGENTS[name]):
                return None
            after = remove_hooks(text, AGENTS[name])
            if self._record.was_made(path) and is_without_hooks(after):
                return _Decided(target, path, before, None, REMOVED)
        return _Decided(target, path, before, (bom + after).encode("utf-8"), CHANGED)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the path to errors about the content of a file."""
    try:
        yield
    except BadJson as error:
        raise InvalidInput(f"{path}, line {error.line}: {error.why}") from error
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def _decode(path: str, content: bytes | None) -> tuple[str, str]:
    """Return the text of settings without its byte order mark, and that mark."""
    try:
        text = (content or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8") from error
    bom = _BOM if text.startswith(_BOM) else ""
    text = text.removeprefix(_BOM)
    return (text if text.strip() else ""), bom


def _inspect(name: str, target: Target) -> tuple[list[str], list[str]]:
    """Return the programs that our hooks in a file run, and what is missing there."""
    content = read_whole(os.path.realpath(target.path))
    if content is None:
        return [], [target.path]
    if target.content is not None:
        executable = _find_executable(name, content)
        if executable is None:
            return [], [target.path]
        return [executable], [] if _is_as_written(target, content) else [f"this version of {target.path}"]
    text, _ = _decode(target.path, content)
    with _naming(target.path):
        hooks = find_hooks(blank_comments(text), AGENTS[name]) if text and name in _COMMENTED else []
        hooks = hooks or find_hooks(text or "{}", AGENTS[name])
    there = {hook.event for hook in hooks}
    missing = [event for event in list_events(AGENTS[name]) if event not in there]
    return [hook.executable for hook in hooks], missing


def _mentions_us(path: str) -> bool:
    """Return whether settings that cannot be parsed may have hooks of ours."""
    try:
        return _MARK in (read_whole(os.path.realpath(path)) or b"")
    except InvalidInput:
        return False


def _find_executable(name: str, content: bytes) -> str | None:
    """Find the program that a file of ours runs; None: it is not ours."""
    import json

    for line in content.decode("utf-8", "replace").splitlines():
        try:
            if line.startswith("exec "):
                return read_line(line.removeprefix("exec "), name)
            if line.startswith("const PROGRAM = "):
                return str(json.loads(line.removeprefix("const PROGRAM = ")))
            if line.lstrip().startswith('"command": '):
                return read_line(json.loads(line.partition('"command": ')[2].rstrip(",")), name)
        except ValueError:
            return None
    return None


def _is_own_file(name: str, target: Target, content: bytes) -> bool:
    """Return whether a file was written by us, edited or not."""
    return _MARK in content and (target.is_command or _find_executable(name, content) is not None)


def _is_as_written(target: Target, content: bytes) -> bool:
    """Return whether a file is exactly what we write, for whatever program."""
    assert target.content is not None
    program = _PROGRAM.search(content)
    return program is not None and content.replace(program[1], _ANY.encode()) == target.content.encode()
