"""The public methods: each checks its arguments, opens or locks the store, and delegates the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from shadowtree.access import queries, upkeep
from shadowtree.access.access import Access, as_path, real_directory
from shadowtree.access.nested_messages import refuse_nested
from shadowtree.base.arguments import StrPath, check_name, encode_meta, parse_path, parse_paths
from shadowtree.base.errors import ShadowError
from shadowtree.base.frozen import replace
from shadowtree.base.interrupts import Cancellation, ending
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.capture.read_files import Progress
from shadowtree.config.settings import Settings
from shadowtree.messages import read, unprotected
from shadowtree.messages.record import Recorder, read_new_message
from shadowtree.results.messages import Message, MessageHandle, Snapshot, Status, Step, StepHandle
from shadowtree.revert import requests
from shadowtree.store import directory as stores
from shadowtree.system.locations import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self, Unpack

    from shadowtree.access.access import AdoptOptions
    from shadowtree.base.arguments import DiffOptions, MessageFilter, MessageOptions, Paths
    from shadowtree.purge.purge import PurgeOptions
    from shadowtree.remote.remotes import Remotes
    from shadowtree.results import messages as values
    from shadowtree.results import overview, reports, turns
    from shadowtree.results.outcomes import Outcome, Plan
    from shadowtree.retention.forget import DropOptions, ForgetOptions
    from shadowtree.store.repo import ShadowRepo
    from shadowtree.watching.subscription import OnError, OnUpdate, Subscription


class Shadow:
    """A directory and its store, which is created when something is first recorded. Threads may share it.

    Any method may raise Locked, OutOfSpace, StoreFailed, WorktreeFailed, StoreDamaged or UnsafePath. Acts may
    also raise Conflict, NotConfirmed or PlanOutdated, with nothing changed.
    """

    def __init__(
        self,
        worktree: StrPath,
        *,
        store: StrPath | None = None,
        session: str = "default",
        watch: bool = False,
        settings: Mapping[str, object] | Settings | None = None,
        allow_broad: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._session, places = check_name(session, "session"), Places(os.environ)
        self._access = Access(worktree, store, settings, places, allow_broad=allow_broad, limits=limits)
        if watch:
            self._access.start_watch()
        self._cancellation, self._news = Cancellation(), self._access.news

    @classmethod
    def adopt(cls, worktree: StrPath, store: StrPath, **options: Unpack[AdoptOptions]) -> Self:
        """Bind the store of a moved directory to its new path. Raises InvalidInput if it is not a store."""
        stores.refuse_no_store(store)
        shadow = cls(worktree, store=store, **options)
        shadow._access.adopt()
        return shadow

    def for_session(self, session: str) -> Self:
        """Return a shadow for another session; both share the store and the watcher."""
        other = type(self).__new__(type(self))
        other._session, other._access = check_name(session, "session"), self._access
        other._cancellation, other._news = Cancellation(), self._access.news
        return other

    def for_last_session(self) -> Self:
        """Return a shadow for the session that recorded last; acts fail if another has an open message."""
        return self.for_session(queries.find_last_session(self._access, self._session))

    def only_wrapped(self) -> Self:
        """Raise NotWrapped from now on if there is no store, instead of returning empty results."""
        self._access.needs_store = True
        return self

    def only_look(self) -> Self:
        """Read from now on without taking the lock or recovering anything, as for shell completion."""
        self._access.recovers = False
        return self

    @property
    def worktree(self) -> Path:
        """The real path of the wrapped directory."""
        return as_path(self._access.worktree)

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return as_path(self._access.store)

    @property
    def repo(self) -> ShadowRepo:
        """The store as a bare dulwich `Repo`, with messages as commits. Each access opens it again."""
        return self._access.open_repo()

    @property
    def remotes(self) -> Remotes:
        """The remotes of this directory: push to them, fetch from them, resume a session."""
        from shadowtree.remote.remotes import Remotes

        return Remotes(self._access, os.environ, self._cancellation)

    @property
    def session(self) -> str:
        """The session that this shadow records in."""
        return str(self._session)

    @property
    def settings(self) -> Settings:
        """The settings in force: given ones, then environment, project and user settings."""
        return self._access.config.read()

    @property
    def recovered(self) -> list[str]:
        """Recovered operations and other notices, such as a moved directory, one sentence each."""
        return list(self._access.recovered)

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store."""
        return self._access.is_wrapped

    def __repr__(self) -> str:
        return f"Shadow({self._access.worktree!r}, session={self._session!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Repack for up to 0.1 s, then close all files and the watcher. They reopen when needed."""
        self._access.tidy_before_close()
        self._access.close()

    def cancel(self) -> None:
        """Make the recording or act that is running, or else the next one, raise KeyboardInterrupt.

        One that is already recorded is not stopped.
        """
        self._cancellation.is_wanted = True

    # Snapshots and messages

    def track(self) -> str:
        """Record everything covered as it is now, and return the tree id."""
        return self.take_snapshot().tree

    def take_snapshot(self, *, progress: Progress | None = None) -> Snapshot:
        """Record everything covered as it is now; `progress(done, total)` counts the files read."""
        return self._access.warn_of_budget(self._track(progress))

    def wrap(self, *, progress: Progress | None = None) -> Snapshot:
        """Record everything covered, as the state that new sessions start from. Raises BroadWorktree."""
        taken = self._access.warn_of_budget(self._track(progress, is_wrap=True))
        return replace(taken, warnings=[*taken.warnings, *self._access.place.warn_of_around()])

    def patch(self, tree: str) -> values.Patch:
        """List what changed since a tree. Raises UnknownTree."""
        return self._access.read(read.read_patch, self._session, tree)

    def diff(
        self, a: str | None = None, b: str | None = None, **how: Unpack[DiffOptions]
    ) -> list[values.FileDiff]:
        """Compare two messages (`ID`; `ID^` means before it) or trees, by default the last record and now."""
        empty: list[values.FileDiff] | None = [] if a is None and b is None else None
        return self._access.read_or(empty, read.read_diff, self._session, a, b, how)

    def read_file(self, ref: str, path: StrPath) -> bytes:
        """Return a file, or the target of a link, as of a message or tree. Raises UnknownName."""
        return self._access.read(read.read_file, self._session, ref, path)

    def cat(self, name: str, write: Callable[[bytes], object]) -> None:
        """Pass the file `REF:PATH` to `write`, piece by piece; the longest REF that exists is used."""
        self._access.read(read.copy_file, self._session, None, name, write)

    def status(self) -> Status:
        """Return the session's position, what changed since its last record, and what is unprotected."""
        return queries.read_status(self._access, self._session)

    def begin(
        self, id: str | None = None, *, progress: Progress | None = None, **options: Unpack[MessageOptions]
    ) -> Message:
        """Begin a message; an open one is ended first, with a warning. Raises DuplicateMessage."""
        checked = read_new_message(id, options)
        with self._recording(progress, wraps=True) as recorder:
            message = recorder.begin(checked)
        return self._access.warn_of_budget(message)

    def end(self, id: str | None = None, *, paths: Paths = None, progress: Progress | None = None) -> Message:
        """End the open message and record what it changed, or only `paths`. Raises UnknownMessage."""
        with self._recording(progress) as recorder:
            message = recorder.end(id, parse_paths(paths, self._access.worktree))
        return self._access.warn_of_budget(message)

    def end_or_drop(self, id: str, *, progress: Progress | None = None) -> Message | None:
        """End a message, or remove it and return None if it changed nothing."""
        with self._recording(progress) as recorder:
            message = recorder.end_or_drop(id)
        return self._access.warn_of_budget(message)

    def snapshot(
        self,
        id: str | None = None,
        *,
        inferred: bool = False,
        progress: Progress | None = None,
        **options: Unpack[MessageOptions],
    ) -> Message:
        """Record changes since the last record as a message; `inferred`: a burst. Raises DuplicateMessage."""
        checked = read_new_message(id, options)
        with self._recording(progress, wraps=True) as recorder:
            message = recorder.snapshot(checked, is_inferred=inferred)
        return self._access.warn_of_budget(message)

    def record_burst(self, id: str, *, text: str = "") -> Message | None:
        """Record unannounced changes as a message; return None if there are none, or a message is open."""
        with self._recording() as recorder:
            message = recorder.record_burst(read_new_message(id, {"text": text}))
        return self._access.warn_of_budget(message)

    def record_turn(self, event: turns.TurnEvent) -> turns.TurnRecord:
        """Record what an agent's hook reports (see `messages.turns`). Only a `begin` wraps the directory."""
        from shadowtree.messages.turns import record_turn

        return self._access.warn_of_budget(record_turn(self._recording, event))

    @contextmanager
    def message(self, id: str | None = None, **options: Unpack[MessageOptions]) -> Iterator[MessageHandle]:
        """Record what the body does as a message, even if it raises. Raises InvalidInput if nested."""
        with refuse_nested(self._access.store, self._session):
            handle = MessageHandle(self.begin(id, **options))
            with ending(lambda: handle.finish(self.end(handle.id))):
                yield handle

    def begin_step(self, name: str, *, meta: Mapping[str, object] | None = None) -> Step:
        """Begin a step of the open message; steps may overlap. Raises UnknownMessage if none is open."""
        with self._recording() as recorder:
            step = recorder.begin_step(check_name(name, "step"), encode_meta(meta))
        return self._access.warn_of_budget(step)

    def end_step(self, name: str, *, message: str | None = None) -> Step:
        """End a step of `message` or the open one, if it is open. Raises UnknownMessage or InvalidInput."""
        with self._recording() as recorder:
            step = recorder.end_step(name, message)
        return self._access.warn_of_budget(step)

    @contextmanager
    def step(self, name: str, *, meta: Mapping[str, object] | None = None) -> Iterator[StepHandle]:
        """Record what the body does as a step of the open message, even if it raises."""
        handle = StepHandle(self.begin_step(name, meta=meta))
        with ending(lambda: handle.finish(self.end_step(name, message=handle.message))):
            yield handle

    def messages(self, **which: Unpack[MessageFilter]) -> list[Message]:
        """List the messages of this session, or of `all_sessions`, oldest first."""
        return self._access.read_or([], read.list_messages, self._session, which)

    def timeline(self, *, last: int | None = None, before: int | None = None) -> overview.Timeline:
        """List messages as short rows, oldest first: the `last` of those with a number below `before`."""
        return queries.read_timeline(self._access, self._session, last, before)

    def state(self) -> overview.SessionState:
        """Return the session's position and its branches, counted in turns."""
        return queries.read_state(self._access, self._session)

    def show(self, name: str, **how: Unpack[DiffOptions]) -> tuple[Message, list[values.FileDiff]]:
        """Return a message and its diff. Name it by (the start of) its id, `#7`, `@` or `@~2`."""
        return self._access.read(read.show_message, self._session, name, how)

    def diff_message(self, message: Message, **how: Unpack[DiffOptions]) -> list[values.FileDiff]:
        """Return the diff of a message of any session."""
        return self._access.read(read.diff_message, message, how)

    def blame(self, path: StrPath) -> list[values.BlameEntry]:
        """List what changed a file, newest first: messages of all sessions, or edits outside them."""
        return queries.blame(self._access, self._session, path)

    def blame_lines(self, path: StrPath) -> list[values.BlameLine]:
        """List the current lines of a file, each with the message that wrote it. Raises UnknownName."""
        return self._access.read_or([], read.blame_lines, self._session, path)

    def why_unprotected(self, path: StrPath) -> str | None:
        """Return why snapshots leave out a path; None if they record it."""
        return self._access.read(unprotected.why_unprotected, parse_path(path, self._access.worktree))

    def unprotected(self) -> list[values.Skipped]:
        """List the files that changed in this session but that snapshots leave out, with the reasons."""
        return self._access.read_or([], unprotected.list_all_unprotected, self._session)

    def protect(self, *paths: StrPath, dry_run: bool = False) -> list[reports.Protected]:
        """Record ignored or too big files from now on, by `.shadowtreeignore`. Raises InvalidInput."""
        return upkeep.protect(self._access, paths, dry_run=dry_run)

    def subscribe(
        self, callback: OnUpdate, *, after: int | None = None, on_error: OnError | None = None
    ) -> Subscription:
        """Call `callback` for each record or act of any process, from now on or `after` an update.

        It runs in its own thread until `close()`, or until it raises; `on_error` or `close()` reports that.
        """
        return queries.subscribe(self._access, callback, after, on_error)

    def last_number(self) -> int:
        """Wait for the lock, and return a number that grows with each recorded message and act."""
        return queries.last_number(self._access)

    # Acts and branches

    def plan_revert(self, id: str, **how: Unpack[requests.RevertOptions]) -> Plan:
        """Return what `revert` would do, and change nothing. Raises UnknownMessage."""
        return self._plan(*requests.read_revert(id, how, self._access.worktree))

    def revert(self, id: str, **how: Unpack[requests.RevertOptions]) -> Outcome:
        """Go back to the state before a message, or undo `only` that message. Raises UnknownMessage.

        `step` or `paths` revert only a part, and leave the head in place. `files=False` moves only the head.
        """
        return self._act(*requests.read_revert(id, how, self._access.worktree))

    def unrevert(self, **how: Unpack[requests.UnrevertOptions]) -> Outcome:
        """Reverse the last act since the newest message; with `undo`, even an unrevert."""
        return self._act(*requests.read_unrevert(how, self._access.worktree))

    def undo(self, turns: int = 1, **how: Unpack[requests.ActOptions]) -> Outcome:
        """Undo the last turns."""
        return self._act(requests.read_undo(turns), requests.read_options(how, self._access.worktree))

    def redo(self, turns: int | None = 1, **how: Unpack[requests.ActOptions]) -> Outcome:
        """Redo the next turns, or all if None."""
        return self._act(requests.read_redo(turns), requests.read_options(how, self._access.worktree))

    def switch(self, ref: str, **how: Unpack[requests.ActOptions]) -> Outcome:
        """Go to a message, the end of a branch, or back (`-`). Raises UnknownMessage."""
        return self._act(requests.Switch(ref), requests.read_options(how, self._access.worktree))

    def restore(self, ref: str, **how: Unpack[requests.RestoreOptions]) -> Outcome:
        """Restore all files, or `paths`, as of a message (`ID`, `ID^`) or tree. Raises UnknownName."""
        return self._act(*requests.read_restore(ref, how, self._access.worktree))

    def branches(self) -> list[values.Branch]:
        """List the branches of this session, oldest first."""
        return self._access.read_or([], read.list_branches, self._session)

    def rename_branch(self, name: str, new: str) -> values.Branch:
        """Rename a branch. Raises UnknownMessage or InvalidInput."""
        new = check_name(new, "branch")
        with self._recording() as recorder:
            return recorder.writer.rename_branch(name, new)

    def drop_branch(self, name: str) -> values.Branch:
        """Remove a branch from the list; you can still switch to its messages. Raises UnknownMessage."""
        with self._recording() as recorder:
            return recorder.writer.drop_branch(name)

    # Watching

    @property
    def watching(self) -> values.Watching | None:
        """How well the directory is watched; None if it is not."""
        return None if self._access.watch is None else self._access.watch.report

    def look_over(self, seconds: float) -> bool:
        """Spend idle time checking for changes that no watcher reports; return True after a full round."""
        return (watch := self._access.watch) is None or self._access.read_or(True, watch.look_over, seconds)

    def drain(self) -> bool:
        """Read the watcher's queue; return True if something may have changed since the last call."""
        if (watch := self._access.watch) is None:
            return True
        watch.drain()
        known, self._news = self._news, watch.news
        return known is not self._news

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when `drain` has something to read, or None."""
        return None if self._access.watch is None else self._access.watch.fileno()

    # Upkeep

    def sessions(self) -> list[values.SessionEntry]:
        """List the sessions; the one that recorded last comes last."""
        return self._access.read_or([], read.list_sessions)

    def drop_session(self, id: str, **how: Unpack[DropOptions]) -> reports.Forgotten:
        """Forget a session; `force` includes open or pinned messages. Raises UnknownName or InvalidInput."""
        return upkeep.drop_session(self._access, id, how)

    def forget(self, *, all_sessions: bool = False, **how: Unpack[ForgetOptions]) -> reports.Forgotten:
        """Forget old messages of this session or of all, and free what they needed unless `gc` is false.

        Keeps pinned and open messages, and the newest turns (with `keep_last` or `keep_within`, only one).
        """
        return upkeep.forget(self._access, None if all_sessions else self._session, how)

    def gc(self, *, dry_run: bool = False) -> reports.Swept:
        """Forget what the settings and the budget do not keep, and free objects that nothing needs."""
        return upkeep.gc(self._access, dry_run=dry_run)

    def tidy(self, seconds: float) -> bool:
        """Spend idle time on repacking; return True when nothing is left to do."""
        return upkeep.tidy(self._access, seconds)

    def pin(self, id: str) -> Message:
        """Keep a message from being forgotten. Raises UnknownMessage."""
        with self._recording() as recorder:
            return recorder.writer.pin(id)

    def unpin(self, id: str) -> Message:
        """Allow a message to be forgotten again. Raises UnknownMessage."""
        with self._recording() as recorder:
            return recorder.writer.unpin(id)

    def purge(
        self, what: StrPath | None = None, *, text: str | None = None, **how: Unpack[PurgeOptions]
    ) -> reports.Purged:
        """Remove a path, a blob id or a `text` from everything recorded, for good. Raises UnknownName.

        Your file stays, but is not recorded again until you `allow` it. Messages lose the lines that they
        repeat from it. Other paths with the same content keep it unless `everywhere` is set.
        """
        return upkeep.purge(self._access, what, text, how)

    def allow(self, what: StrPath) -> list[str]:
        """Record a purged path or content again from now on; return its paths and ids. Raises UnknownName."""
        return upkeep.allow(self._access, what)

    def destroy(self) -> int:
        """Remove the store; return the bytes freed. Raises StoreFailed if it contains foreign files."""
        return upkeep.destroy(self._access)

    def check(self, *, read_data: bool = False, progress: Progress | None = None) -> reports.CheckReport:
        """Verify the store, even if it is too damaged to open; `read_data` hashes every stored object."""
        return upkeep.check(self._access, progress, read_data=read_data)

    def repair(
        self, *, dry_run: bool = False, forget_lost: bool = False, progress: Progress | None = None
    ) -> reports.CheckReport:
        """Repair what a full check finds, then check again; quarantine keeps the files as they were."""
        return upkeep.repair(self._access, self._track, progress, dry_run=dry_run, forget_lost=forget_lost)

    def stats(self) -> reports.Stats:
        """Return what the store holds and how much space it takes."""
        return queries.read_stats(self._access)

    def du(self, path: StrPath = ".", *, depth: int = 1) -> reports.Usage:
        """Measure how much space the versions of a path take; an object counts once, at its newest path."""
        return queries.measure(self._access, parse_path(path, self._access.worktree), depth)

    def du_by_session(self) -> list[reports.SessionFigure]:
        """Return how much space each session alone needs, largest first."""
        return queries.measure_sessions(self._access)

    @contextmanager
    def _recording(self, progress: Progress | None = None, *, wraps: bool = False) -> Iterator[Recorder]:
        """Hold the lock to record in this session; with `wraps`, create the store if there is none."""
        with self._access.writing(wraps=wraps) as (opened, site, first_scan):
            now_ms, cancellation = self._access.now_ms, self._cancellation
            yield Recorder(opened, site, self._session, now_ms, cancellation, first_scan, progress)
            with suppress(ShadowError):  # The record is made, so nothing after it may fail (invariant 11).
                opened.mark_clean()
        self._cancellation.take()

    def _track(self, progress: Progress | None = None, *, is_wrap: bool = False) -> Snapshot:
        with self._recording(progress, wraps=True) as recorder:
            return recorder.track(is_wrap=is_wrap)

    def _plan(self, request: requests.Request, options: requests.Options) -> Plan:
        from shadowtree.access import acts

        return acts.plan(self._access, self._session, request, options)

    def _act(self, request: requests.Request, options: requests.Options) -> Outcome:
        from shadowtree.access import acts

        outcome = acts.act(self._access, self._session, request, options, self._cancellation)
        self._cancellation.take()
        return outcome


def find_worktree(start: StrPath, *, store: StrPath | None = None) -> str | None:
    """Return the nearest wrapped directory at or above `start`, or the worktree of `store`, or None."""
    return stores.find_wrapped(real_directory(start), Places(os.environ), store)
