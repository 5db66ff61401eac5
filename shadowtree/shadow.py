"""The front door: each method reads its arguments, opens or locks the store, and calls who does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from shadowtree.access import upkeep
from shadowtree.access.access import Access, real_directory, refuse_no_store
from shadowtree.base.arguments import StrPath, check_count, check_name, encode_meta, parse_path, parse_paths
from shadowtree.base.errors import ShadowError
from shadowtree.base.frozen import replace
from shadowtree.base.interrupts import Cancellation, ending
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.capture.read_files import Progress
from shadowtree.config.settings import Settings
from shadowtree.messages import blame, read
from shadowtree.messages.record import Recorder, read_said
from shadowtree.results.messages import Message, MessageHandle, Snapshot, Status, Step, StepHandle
from shadowtree.revert import requests
from shadowtree.store import directory as stores
from shadowtree.system.user_dirs import Places
from shadowtree.timeline.session import LastSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self, TypeVar, Unpack

    from shadowtree.access.access import AdoptOptions
    from shadowtree.base.arguments import DiffOptions, MessageFilter, MessageOptions, Paths
    from shadowtree.purge.purge import PurgeOptions
    from shadowtree.results import messages as values
    from shadowtree.results import reports
    from shadowtree.results.outcomes import Outcome, Plan
    from shadowtree.retention.forget import ForgetOptions
    from shadowtree.retention.sessions import DropOptions
    from shadowtree.store.repo import ShadowRepo
    from shadowtree.watching.subscription import OnError, OnUpdate, Subscription

    Recorded = TypeVar("Recorded", Message, Snapshot, Step, Message | None)


class Shadow:
    """A worktree with its store, made when something is first recorded. Threads may share it."""

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
        self._cancellation = Cancellation()
        if watch:
            self._access.start_watch()
        self._news = None if self._access.watch is None else self._access.watch.news

    @classmethod
    def adopt(cls, worktree: StrPath, store: StrPath, **options: Unpack[AdoptOptions]) -> Self:
        """Bind the store of a worktree that was moved to where it is now, and move it along if need be."""
        refuse_no_store(store)
        shadow = cls(worktree, store=store, **options)
        shadow._access.adopt()
        return shadow

    def for_session(self, session: str) -> Self:
        """Give the same shadow for another session: both share the store, the watcher and the memory."""
        other = type(self).__new__(type(self))
        other._session, other._access = check_name(session, "session"), self._access
        other._cancellation = Cancellation()
        other._news = None if self._access.watch is None else self._access.watch.news
        return other

    def for_last_session(self) -> Self:
        """Do the same for the session that recorded last; acts are refused if one of another is open."""
        return self.for_session(self._access.glance(LastSession(self._session), read.find_last_session))

    def only_wrapped(self) -> Self:
        """Raise NotWrapped from now on where nothing is recorded, instead of answering so."""
        self._access.needs_store = True
        return self

    def only_look(self) -> Self:
        """Take no lock and recover nothing from now on, as when a shell completes."""
        self._access.recovers = False
        return self

    @property
    def worktree(self) -> Path:
        """The directory that is wrapped, by its real path."""
        from pathlib import Path

        return Path(self._access.worktree)

    @property
    def store(self) -> Path:
        """The directory of the store."""
        from pathlib import Path

        return Path(self._access.store)

    @property
    def repo(self) -> ShadowRepo:
        """The store as a bare dulwich `Repo`, each time opened anew, with the messages so far as commits."""
        return self._access.open_repo()

    @property
    def session(self) -> str:
        """The session whose timeline this is."""
        return str(self._session)

    @property
    def settings(self) -> Settings:
        """The settings in force now: given ones, those of the environment, the project's and the user's."""
        return self._access.config.read()

    @property
    def recovered(self) -> list[str]:
        """What was interrupted and has been finished or taken back on the way, a sentence each."""
        return list(self._access.recovered)

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store already."""
        return self._access.is_wrapped

    def __repr__(self) -> str:
        return f"Shadow({self._access.worktree!r}, session={self._session!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file and every watch, after repacking for 0.1 s at most. What is needed is reopened."""
        self._access.tidy_before_close()
        self._access.close()

    def cancel(self) -> None:
        """Raise KeyboardInterrupt in what this shadow does in other threads, before anything is recorded."""
        self._cancellation.is_wanted = True

    # Snapshots and messages

    def track(self) -> str:
        """Record the present state of everything covered, and give its tree id."""
        return self.take_snapshot().tree

    def take_snapshot(self, *, progress: Progress | None = None) -> Snapshot:
        """Record the present state of everything covered; `progress` gets the files read and to be read."""
        return self._keep_budget(self._track(progress))

    def wrap(self, *, progress: Progress | None = None) -> Snapshot:
        """Do the same, and remember it as the state that sessions start from."""
        taken = self._keep_budget(self._track(progress, is_wrap=True))
        return replace(taken, warnings=[*taken.warnings, *self._access.place.warn_of_around()])

    def patch(self, tree: str) -> values.Patch:
        """List what changed from a recorded tree to the present state. Records nothing."""
        return self._access.read(read.read_patch, self._session, tree)

    def diff(
        self, a: str | None = None, b: str | None = None, **how: Unpack[DiffOptions]
    ) -> list[values.FileDiff]:
        """Show how two states differ: messages (`ID`, or `ID^`: before it), trees, or the last and now.

        With `paths`, only there; with `binary`, patches hold binary contents, as `git apply` takes them.
        """
        empty: list[values.FileDiff] | None = [] if a is None and b is None else None
        return self._access.read_or(empty, read.read_diff, self._session, a, b, how)

    def read_file(self, ref: str, path: StrPath) -> bytes:
        """Give the content of a file as of a message or a tree; of a link, its target."""
        return self._access.read(read.read_file, self._session, ref, os.fspath(path))

    def cat(self, name: str, write: Callable[[bytes], object]) -> None:
        """Write a file named as `REF:PATH`, piece by piece; the longest REF that means something counts."""
        self._access.read(read.copy_file, self._session, None, name, write)

    def status(self) -> Status:
        """Say where the shadow stands and what is not protected. Records nothing."""
        return upkeep.read_status(self._access, self._session)

    def begin(
        self, id: str | None = None, *, progress: Progress | None = None, **said: Unpack[MessageOptions]
    ) -> Message:
        """Begin a message: record the state before it. An open message is ended first, with a warning."""
        checked = read_said(id, said)
        with self._recording(progress, wraps=True) as recorder:
            message = recorder.begin(checked)
        return self._keep_budget(message)

    def end(self, id: str | None = None, *, paths: Paths = None, progress: Progress | None = None) -> Message:
        """End the open message: record the state after it and what it changed, or only its `paths`."""
        with self._recording(progress) as recorder:
            message = recorder.end(id, parse_paths(paths, self._access.worktree))
        return self._keep_budget(message)

    def end_or_drop(self, id: str, *, progress: Progress | None = None) -> Message | None:
        """End a message; if it changed nothing, remove it from the timeline and return None."""
        with self._recording(progress) as recorder:
            message = recorder.end_or_drop(id)
        return self._keep_budget(message)

    def snapshot(
        self,
        id: str | None = None,
        *,
        inferred: bool = False,
        progress: Progress | None = None,
        **said: Unpack[MessageOptions],
    ) -> Message:
        """Record a message that is over, from the state that the session knew last; `inferred`: a burst."""
        checked = read_said(id, said)
        with self._recording(progress, wraps=True) as recorder:
            message = recorder.snapshot(checked, is_inferred=inferred)
        return self._keep_budget(message)

    def record_burst(self, id: str, *, text: str = "") -> Message | None:
        """Record what nobody announced as a message; None if nothing changed, or one is open anywhere."""
        with self._recording() as recorder:
            message = recorder.record_burst(read_said(id, {"text": text}))
        return self._keep_budget(message)

    @contextmanager
    def message(self, id: str | None = None, **said: Unpack[MessageOptions]) -> Iterator[MessageHandle]:
        """Record what the body does as one message, also when it raises. InvalidInput inside another one."""
        with self._access.in_message(self._session):
            handle = MessageHandle(self.begin(id, **said))
            with ending(lambda: handle.finish(self.end(handle.id))):
                yield handle

    def begin_step(self, name: str, *, meta: Mapping[str, object] | None = None) -> Step:
        """Begin a step of the open message. Steps may overlap."""
        with self._recording() as recorder:
            step = recorder.begin_step(check_name(name, "step"), encode_meta(meta))
        return self._keep_budget(step)

    def end_step(self, name: str) -> Step:
        """End an open step. One that is ended already stays as it is."""
        with self._recording() as recorder:
            step = recorder.end_step(name)
        return self._keep_budget(step)

    @contextmanager
    def step(self, name: str, *, meta: Mapping[str, object] | None = None) -> Iterator[StepHandle]:
        """Record what the body does as one step of the open message, also when it raises."""
        handle = StepHandle(self.begin_step(name, meta=meta))
        with ending(lambda: handle.finish(self.end_step(name))):
            yield handle

    def messages(self, **which: Unpack[MessageFilter]) -> list[Message]:
        """List the messages of this session, or of `all_sessions`, oldest first; with `last`, the newest.

        With `since`, those that began then or later; with `paths`, those that changed something there.
        """
        return self._access.read_or([], read.list_messages, self._session, which)

    def show(self, name: str, **how: Unpack[DiffOptions]) -> tuple[Message, list[values.FileDiff]]:
        """Show a message and its diff. Name it by (the start of) its id, `#7`, `@` (the last) or `@~2`."""
        return self._access.read(read.show_message, self._session, name, how)

    def diff_message(self, message: Message, **how: Unpack[DiffOptions]) -> list[values.FileDiff]:
        """Show how what a message changed differs, whichever session it is of."""
        return self._access.read(read.diff_message, message, how)

    def blame(self, path: StrPath) -> list[values.BlameEntry]:
        """List who changed a file, newest first: messages of all sessions, or nobody. Records nothing."""
        found = parse_path(path, self._access.worktree)
        return self._access.read_or([], blame.blame_path, self._session, found)

    def blame_lines(self, path: StrPath) -> list[values.BlameLine]:
        """List the lines of a file as it is now, each with the message that wrote it. Records nothing."""
        return self._access.read_or([], read.blame_lines, self._session, path)

    def why_unprotected(self, path: StrPath) -> str | None:
        """Say why snapshots leave out a path; None if they do not. Records nothing."""
        return self._access.read(blame.why_unprotected, parse_path(path, self._access.worktree))

    def protect(self, *paths: StrPath, dry_run: bool = False) -> list[reports.Protected]:
        """Cover ignored or too big files from now on, by rules in `.shadowtreeignore`, or write nothing."""
        return upkeep.protect(self._access, paths, dry_run=dry_run)

    def subscribe(
        self, callback: OnUpdate, *, after: int | None = None, on_error: OnError | None = None
    ) -> Subscription:
        """Call `callback` for what is recorded or undone in any session, by any process, until `close()`.

        From now on, or `after` the number of an update. It runs in a thread of its own. If it raises, the
        subscription ends: `on_error` is called with what was raised, or else `close()` raises it.
        """
        return upkeep.subscribe(self._access, callback, after, on_error)

    def last_number(self) -> int:
        """Wait for whoever is at work; return a number that grows with each recorded message and act."""
        return upkeep.last_number(self._access)

    # Acts and branches

    def plan_revert(self, id: str, **how: Unpack[requests.RevertOptions]) -> Plan:
        """Plan what `revert` would do, and change nothing."""
        return self._plan(*requests.read_revert(id, how, self._access.worktree))

    def revert(self, id: str, **how: Unpack[requests.RevertOptions]) -> Outcome:
        """Restore the state before a message: all paths that it and later ones changed.

        With `only`, reverse that message alone. With `step`, go to before that step, or reverse it alone;
        with `paths`, only these. Neither moves the head; with `files=False` nothing else moves.
        """
        return self._act(*requests.read_revert(id, how, self._access.worktree))

    def unrevert(self, **how: Unpack[requests.UnrevertOptions]) -> Outcome:
        """Reverse the last act, then the ones before it, up to the newest message; `undo`: reverse that."""
        return self._act(*requests.read_unrevert(how, self._access.worktree))

    def undo(self, turns: int = 1, **how: Unpack[requests.ActOptions]) -> Outcome:
        """Go back by turns."""
        return self._act(requests.Undo(turns), requests.read_options(how, self._access.worktree))

    def redo(self, turns: int | None = 1, **how: Unpack[requests.ActOptions]) -> Outcome:
        """Go forward again by turns; None: to the end."""
        return self._act(requests.Redo(turns), requests.read_options(how, self._access.worktree))

    def switch(self, ref: str, **how: Unpack[requests.ActOptions]) -> Outcome:
        """Go to just after a message, to the end of a branch, or (`-`) to where the last switch began."""
        return self._act(requests.Switch(ref), requests.read_options(how, self._access.worktree))

    def restore(self, ref: str, **how: Unpack[requests.RestoreOptions]) -> Outcome:
        """Make all files, or `paths`, equal to a tree: that after a message, before it (`ID^`), or any."""
        return self._act(*requests.read_restore(ref, how, self._access.worktree))

    def branches(self) -> list[values.Branch]:
        """List the branches of this session, oldest first."""
        return self._access.read_or([], read.list_branches, self._session)

    def rename_branch(self, name: str, new: str) -> values.Branch:
        """Give a branch another name."""
        check_name(new, "branch")
        with self._recording() as recorder:
            return recorder.writer.rename_branch(name, new)

    def drop_branch(self, name: str) -> values.Branch:
        """Take a branch from the list; each of its messages can still be switched to by its id."""
        with self._recording() as recorder:
            return recorder.writer.drop_branch(name)

    # Watching

    @property
    def watching(self) -> values.Watching | None:
        """How well the worktree is in sight; None for a shadow that does not watch."""
        return None if self._access.watch is None else self._access.watch.report

    def look_over(self, seconds: float) -> bool:
        """Spend idle time on files whose changes no watcher reports; True when a round is complete."""
        watch = self._access.watch
        return watch is None or self._access.read_or(True, watch.look_over, seconds)

    def drain(self) -> bool:
        """Read the watcher's queue, in any thread; True if something may have changed since the last call."""
        if (watch := self._access.watch) is None:
            return True
        watch.drain()
        known, self._news = self._news, watch.news
        return known is not self._news

    def fileno(self) -> int | None:
        """Give a descriptor that becomes readable when there is something to drain, if there is one."""
        return None if self._access.watch is None else self._access.watch.fileno()

    # Upkeep

    def sessions(self) -> list[values.SessionEntry]:
        """List the sessions of which something is left, the one that recorded last at the end."""
        return self._access.read_or([], read.list_sessions)

    def drop_session(self, id: str, **how: Unpack[DropOptions]) -> reports.Forgotten:
        """Forget a session and free what only it needed; `force` it if a message is open or pinned."""
        return upkeep.drop_session(self._access, id, how)

    def forget(self, *, all_sessions: bool = False, **how: Unpack[ForgetOptions]) -> reports.Forgotten:
        """Forget old messages of this session, or of all, and unless `gc` is false free what they needed.

        Keeps the newest `keep_last` of each session, what is within `keep_within`, pinned and open messages,
        and the newest turns: one, if you give either here. For all, `keep_sessions` are kept whole.
        """
        return upkeep.forget(self._access, None if all_sessions else self._session, how)

    def gc(self, *, dry_run: bool = False) -> reports.Swept:
        """Forget what the settings and the budget do not keep, and free what nothing that is left needs."""
        return upkeep.gc(self._access, dry_run=dry_run)

    def tidy(self, seconds: float) -> bool:
        """Spend idle time on repacking; True when all is done. From then on records leave more to it."""
        return upkeep.tidy(self._access, seconds)

    def pin(self, id: str) -> Message:
        """Keep a message from being forgotten."""
        with self._recording() as recorder:
            return recorder.writer.pin(id)

    def unpin(self, id: str) -> Message:
        """Let a message be forgotten when its time comes."""
        with self._recording() as recorder:
            return recorder.writer.unpin(id)

    def purge(
        self, what: StrPath | None = None, *, text: str | None = None, **how: Unpack[PurgeOptions]
    ) -> reports.Purged:
        """Remove a path, a content by its id, or a `text` from everything that is recorded, for good.

        The file stays; no snapshot covers it until `allow`. Messages lose its lines and values, or the
        `text`. Other paths with the same bytes, or the text, stay unless `everywhere`.
        """
        return upkeep.purge(self._access, what, text, how)

    def allow(self, what: StrPath) -> list[str]:
        """Cover a path or a content again that was purged, from the next snapshot on; say what that is."""
        return upkeep.allow(self._access, what)

    def destroy(self) -> int:
        """Remove the store; return how many bytes that frees. Raise StoreFailed if it holds foreign files."""
        return upkeep.destroy(self._access)

    def check(self, *, read_data: bool = False, progress: Progress | None = None) -> reports.CheckReport:
        """Verify the store, even one too damaged to open; with `read_data`, hash every stored object."""
        return upkeep.check(self._access, progress, read_data=read_data)

    def repair(
        self, *, dry_run: bool = False, forget_lost: bool = False, progress: Progress | None = None
    ) -> reports.CheckReport:
        """Repair what a full check finds, keep what that changes in quarantine, and check again."""
        return upkeep.repair(self._access, self._track, progress, dry_run=dry_run, forget_lost=forget_lost)

    def stats(self) -> reports.Stats:
        """Say what the store holds, and what that takes. Every object that is needed is looked up."""
        return upkeep.read_stats(self._access)

    def du(self, path: StrPath = ".", *, depth: int = 1) -> reports.Usage:
        """Measure all versions of a path and of those below it. An object counts once, at its newest path."""
        check_count(depth, "a depth", at_least=0)
        return upkeep.measure(self._access, parse_path(path, self._access.worktree), depth)

    def du_by_session(self) -> list[reports.SessionFigure]:
        """Say what each session alone needs, the most first; what several need is in none of them."""
        return upkeep.measure_sessions(self._access)

    @contextmanager
    def _recording(self, progress: Progress | None = None, *, wraps: bool = False) -> Iterator[Recorder]:
        """Hold the lock to record in this session; if it `wraps`, make the store where there is none."""
        with self._access.writing(wraps=wraps) as (opened, site, first_scan):
            now_ms, cancellation = self._access.now_ms, self._cancellation
            yield Recorder(opened, site, self._session, now_ms, cancellation, first_scan, progress)
            with suppress(ShadowError):  # It is recorded, so nothing after it can fail (invariant 11).
                opened.rest()

    def _track(self, progress: Progress | None = None, *, is_wrap: bool = False) -> Snapshot:
        with self._recording(progress, wraps=True) as recorder:
            return recorder.track(is_wrap=is_wrap)

    def _keep_budget(self, recorded: Recorded) -> Recorded:
        """Keep the store within its budget, now that something is recorded; add what there is to say."""
        lines: list[str] = self._access.keep_budget()
        return replace(recorded, warnings=[*recorded.warnings, *lines]) if recorded and lines else recorded

    def _plan(self, request: requests.Request, options: requests.Options) -> Plan:
        from shadowtree.revert.act import preview
        from shadowtree.revert.outcome import plan_nothing

        asked = self._session, request, options, self._access.now_ms
        return self._access.read_or(plan_nothing(request), preview, *asked)

    def _act(self, request: requests.Request, options: requests.Options) -> Outcome:
        """Do an act, or plan it; add what was recovered before it and freed after it."""
        if options.dry_run or self._access.lacks_store:
            return replace(self._plan(request, options).outcome, dry_run=options.dry_run)
        from shadowtree.revert.act import run, start_act

        access, known, now_ms = self._access, len(self._access.recovered), self._access.now_ms
        with access.writing() as (opened, site, _):
            done = run(start_act(opened, site, self._session, request, options, now_ms, self._cancellation))
        notes = [*done.notes, *access.recovered[known:], *access.keep_budget()]
        return replace(done, back=access.complete(done.back), notes=notes)


def find_worktree(start: StrPath, *, store: StrPath | None = None) -> str | None:
    """Find the nearest wrapped directory at or above `start`; with a store, the worktree of that one."""
    return stores.find_wrapped(real_directory(start), Places(os.environ), store)
