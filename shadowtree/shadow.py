"""The front door: a worktree together with its store.

`Shadow` takes the lock, calls the rules in order and records what they found. It decides nothing about
files itself.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from time import time_ns

from shadowtree import store as stores
from shadowtree.arguments import check_name, check_on_conflict, encode_meta, parse_paths
from shadowtree.capture import (
    Capture,
    capture,
    list_skipped,
    look,
    scan_site,
)
from shadowtree.errors import InvalidInput, NotWrapped, ShadowError
from shadowtree.gate import Gate, real_directory
from shadowtree.handles import MessageHandle, StepHandle
from shadowtree.journal import TreeRecord
from shadowtree.layout import is_inside
from shadowtree.model import FileDiff, Message, Outcome, Patch, Plan, Snapshot, Status, Step
from shadowtree.objects import Objects
from shadowtree.opened import OpenStore
from shadowtree.patch import compare, diff_patch
from shadowtree.places import Places
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.recorder import Recorder, Said
from shadowtree.repositories import find_around, read_head
from shadowtree.scan import Scan
from shadowtree.sessions import Session
from shadowtree.settings import Settings
from shadowtree.snapshot import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import TypeVar

    from shadowtree.aims import Aim, Aims
    from shadowtree.model import OnConflict
    from shadowtree.reverting import Confirm

    Result = TypeVar("Result")

StrPath = str | os.PathLike[str]
_DIFF_BYTES = 256 << 20
"""How much of what changed a diff looks at; of files beyond that it tells only that they changed."""


class Shadow:
    """A worktree with its store. Wraps the worktree when something is first recorded.

    Usable from several threads; one act at a time is done, in this process and among all.
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
    ) -> None:
        if watch:
            raise InvalidInput("watching is not there yet")
        self._session = check_name(session, "session")
        places = Places(os.environ)
        self._gate = Gate(worktree, store, Settings.of(settings), places, allow_broad=allow_broad)
        self._mutex = RLock()

    @classmethod
    def adopt(
        cls,
        worktree: StrPath,
        store: StrPath,
        *,
        session: str = "default",
        settings: Mapping[str, object] | Settings | None = None,
        allow_broad: bool = False,
    ) -> Shadow:
        """Let the store of a worktree that was moved belong to where it is now, with all it recorded.

        A store in the directory of stores is moved to the place where the worktree looks for it.
        """
        if os.path.lexists(store) and not stores.exists(os.path.realpath(store)):
            raise InvalidInput(f"{os.fspath(store)} is no store")
        shadow = cls(worktree, store=store, session=session, settings=settings, allow_broad=allow_broad)
        shadow._gate.adopt()
        return shadow

    @property
    def worktree(self) -> Path:
        """The directory that is wrapped, by its real path."""
        return _path(self._gate.worktree)

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return _path(self._gate.store)

    @property
    def session(self) -> str:
        """The session whose timeline this is."""
        return self._session

    @property
    def recovered(self) -> list[str]:
        """What was interrupted and has been finished or taken back on the way, a sentence each."""
        return list(self._gate.recovered)

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store already."""
        return self._gate.is_wrapped

    def __enter__(self) -> Shadow:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of every file. The shadow can be used again and opens what it needs."""
        with self._mutex:
            self._gate.close()

    # Snapshots

    def track(self) -> str:
        """Record the present state of everything covered, and give its tree id."""
        return self.take_snapshot().tree

    def take_snapshot(self, *, progress: Progress | None = None) -> Snapshot:
        """Record the present state of everything covered.

        When this returns, tree and record are durable. `progress` is called with how many files were read
        and how many have to be.
        """
        return self._take_snapshot(progress, is_wrap=False)

    def wrap(self, *, progress: Progress | None = None) -> Snapshot:
        """Do the same, and remember it as the state that sessions start from."""
        return self._take_snapshot(progress, is_wrap=True)

    def patch(self, tree: str) -> Patch:
        """List what changed from a recorded tree to the present state. Records nothing."""
        with self._mutex:
            opened = self._gate.open()
            before = self._find_tree(opened, tree)
            with look(self._gate.site, opened) as (objects, after):
                return compare(_read(objects, before), after)

    def diff(self, a: str | None = None, b: str | None = None) -> list[FileDiff]:
        """Show how two states differ, path by path. Records nothing.

        Each is named by a message (`ID` is the state after it, `ID^` the one before it) or by the id of a
        tree. Without `b` the present state is compared, without `a` the one that the session recorded last.
        """
        with self._mutex:
            opened = self._gate.open()
            before = self._last_tree(opened) if a is None else self._find_tree(opened, a)
            if before is None:
                raise NotWrapped(self._gate.worktree, "nothing is recorded of it")
            if b is not None:
                after = _read(opened.objects, self._find_tree(opened, b))
                return diff_patch(compare(_read(opened.objects, before), after), opened.objects)
            with look(self._gate.site, opened, file_bytes=_DIFF_BYTES) as (objects, present):
                return diff_patch(compare(_read(objects, before), present), objects)

    def status(self) -> Status:
        """Tell where the shadow stands and what is not protected. Records nothing."""
        with self._mutex:
            opened = self._gate.open()
            opened.refresh()
            session = Session(opened.journal, self._session)
            last = self._last_tree(opened)
            scan = scan_site(self._gate.site, opened)
            changed = scan.files
            if last is not None:
                with look(self._gate.site, opened, scan) as (objects, after):
                    changed = len(compare(_read(objects, last), after).files)
            head, open_message = session.head, session.open
            return Status(
                worktree=self._gate.worktree,
                store=self._gate.store,
                session=self._session,
                head=None if head is None else head.id,
                open=None if open_message is None else open_message.id,
                undone=[row.id for row in session.undone()],
                changed=changed,
                ignored=scan.ignored,
                watching=False,
                skipped=list_skipped(scan),
            )

    # Messages

    def begin(
        self,
        id: str,
        *,
        text: str = "",
        role: str | None = None,
        meta: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> Message:
        """Begin a message: record the state before it. When this returns, the agent may start to work.

        Another message of the session that is open is ended first. The open one again: nothing happens.
        """
        said = _say(id, text, role, meta)
        return self._record(lambda recorder: recorder.begin(said), progress)

    def end(
        self,
        id: str | None = None,
        *,
        paths: Collection[StrPath] | None = None,
        progress: Progress | None = None,
    ) -> Message:
        """End the open message: record the state after it, and what it changed.

        With `paths`, files or directories in the worktree, only those are the message's; what else changed is
        nobody's. A message that is ended already stays as it is.
        """
        own = parse_paths(paths, self._gate.worktree)
        return self._record(lambda recorder: recorder.end(id, own), progress, wraps=False)

    def snapshot(
        self,
        id: str,
        *,
        text: str = "",
        role: str | None = None,
        meta: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> Message:
        """Record a message that is over; it began at the state that was last known to the session."""
        said = _say(id, text, role, meta)
        return self._record(lambda recorder: recorder.snapshot(said), progress)

    @contextmanager
    def message(
        self,
        id: str,
        *,
        text: str = "",
        role: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> Iterator[MessageHandle]:
        """Record what the body does as one message, also when it raises."""
        handle = MessageHandle(self.begin(id, text=text, role=role, meta=meta))
        with _ending(lambda: handle.finish(self.end(id))):
            yield handle

    def begin_step(self, name: str) -> Step:
        """Begin a step of the open message; a step that is open is ended first."""
        check_name(name, "step")
        return self._record(lambda recorder: recorder.begin_step(name), wraps=False)

    def end_step(self, name: str) -> Step:
        """End the open step. One that is ended already stays as it is."""
        return self._record(lambda recorder: recorder.end_step(name), wraps=False)

    @contextmanager
    def step(self, name: str) -> Iterator[StepHandle]:
        """Record what the body does as one step of the open message, also when it raises."""
        handle = StepHandle(self.begin_step(name))
        with _ending(lambda: handle.finish(self.end_step(name))):
            yield handle

    def messages(self, *, all_sessions: bool = False, last: int | None = None) -> list[Message]:
        """List the messages of this session, or of all, oldest first; with `last`, only the newest ones."""
        if last is not None and last < 1:
            raise InvalidInput(f"a number of messages is 1 or more, not {last}")
        with self._mutex:
            opened = self._gate.open()
            session = Session(opened.journal, self._session)
            if not all_sessions and session.number is None:
                return []
            rows = opened.journal.last_messages(None if all_sessions else session.number, last)
            names = opened.journal.session_names() if all_sessions else {}
            found: dict[int, Message] = {}
            for number in dict.fromkeys(row.session for row in rows):
                own = [row for row in rows if row.session == number]
                of = session if number == session.number else Session(opened.journal, names[number])
                found.update(zip((row.number for row in own), of.read_messages(own), strict=True))
            return [found[row.number] for row in rows]

    def show(self, name: str) -> tuple[Message, list[FileDiff]]:
        """Give a message and how what it changed differs.

        It may be named by its id, the beginning of it, `#7`, `@` (the last one in force) or `@~2`.
        """
        with self._mutex:
            opened = self._gate.open()
            session = Session(opened.journal, self._session)
            message = session.read_message(session.resolve(name))
            return message, diff_patch(message.patch, opened.objects)

    def diff_message(self, message: Message) -> list[FileDiff]:
        """Show how what a message changed differs, whichever session it is of."""
        with self._mutex:
            return diff_patch(message.patch, self._gate.open().objects)

    # Acts

    def plan_revert(
        self,
        id: str,
        *,
        step: str | None = None,
        paths: Collection[StrPath] | None = None,
        on_conflict: OnConflict = "abort",
    ) -> Plan:
        """Work out what `revert` would do, and change nothing."""
        return self._plan(self._choose_revert(id, step, paths), on_conflict)

    def revert(
        self,
        id: str,
        *,
        step: str | None = None,
        paths: Collection[StrPath] | None = None,
        on_conflict: OnConflict = "abort",
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Take the worktree to where it was before a message: all paths that it and later ones changed.

        With `step`, to before that step of it; with `paths`, only these files and directories. Neither moves
        the head.
        """
        return self._act(self._choose_revert(id, step, paths), on_conflict, dry_run, confirm)

    def unrevert(
        self,
        *,
        on_conflict: OnConflict = "abort",
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Take back the last revert, undo, redo or restore that changed anything; then the one before it."""
        return self._act(lambda aims: aims.unrevert(), on_conflict, dry_run, confirm)

    def undo(
        self,
        turns: int = 1,
        *,
        on_conflict: OnConflict = "abort",
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go back by turns."""
        return self._act(lambda aims: aims.undo(turns), on_conflict, dry_run, confirm)

    def redo(
        self,
        turns: int | None = 1,
        *,
        on_conflict: OnConflict = "abort",
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go forward again by turns; None: to the end."""
        return self._act(lambda aims: aims.redo(turns), on_conflict, dry_run, confirm)

    def restore(
        self,
        ref: str,
        *,
        on_conflict: OnConflict = "abort",
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Make all that is covered equal to a tree: that after a message, before it (`ID^`), or any one."""
        return self._act(lambda aims: aims.restore(ref), on_conflict, dry_run, confirm)

    def _choose_revert(
        self, id: str, step: str | None, paths: Collection[StrPath] | None
    ) -> Callable[[Aims], Aim]:
        own = parse_paths(paths, self._gate.worktree)

        def choose(aims: Aims) -> Aim:
            row = aims.resolve(id)
            if step is None and own is None:
                return aims.revert(row)
            return aims.revert_part(row, step, own)

        return choose

    def _act(
        self,
        choose: Callable[[Aims], Aim],
        on_conflict: OnConflict,
        dry_run: bool,
        confirm: Confirm | None,
    ) -> Outcome:
        if dry_run:
            return self._plan(choose, on_conflict).outcome
        from shadowtree import reverting

        check_on_conflict(on_conflict)
        known = len(self._gate.recovered)
        with self._mutex, self._gate.locked() as opened:
            try:
                recorder = self._make_recorder(opened, None)
                outcome = reverting.run(
                    opened, self._gate.site, recorder, choose, on_conflict, confirm, git_head=self._git_head()
                )
            except BaseException:
                self._gate.forget(opened, is_new=False)
                raise
            return _with_notes(outcome, self._gate.recovered[known:])

    def _plan(self, choose: Callable[[Aims], Aim], on_conflict: OnConflict) -> Plan:
        from shadowtree import reverting
        from shadowtree.staging import Bench

        check_on_conflict(on_conflict)
        with self._mutex:
            opened = self._gate.open()
            opened.refresh()
            scan = scan_site(self._gate.site, opened)
            with look(self._gate.site, opened, scan) as (objects, root), Bench(self._gate.worktree) as bench:
                recorder = self._make_recorder(opened, None)
                prepared = reverting.prepare(
                    recorder,
                    objects,
                    root,
                    bench,
                    choose,
                    on_conflict,
                    scan=scan,
                    git_head=self._git_head(),
                )
                return prepared.to_plan()

    # Recording

    def _record(
        self,
        act: Callable[[Recorder], Result],
        progress: Progress | None = None,
        *,
        wraps: bool = True,
    ) -> Result:
        """Let a recorder do something under the lock; the first time, that wraps the worktree."""
        with self._mutex:
            first_scan = self._gate.wrap() if wraps and not self.is_wrapped else None
            with self._gate.locked() as opened:
                try:
                    return act(self._make_recorder(opened, first_scan, progress))
                except BaseException:
                    self._gate.forget(opened, is_new=first_scan is not None)
                    raise

    def _make_recorder(
        self, opened: OpenStore, first_scan: Scan | None, progress: Progress | None = None
    ) -> Recorder:
        site = self._gate.site

        @contextmanager
        def take() -> Iterator[Capture]:
            with capture(site, opened, first_scan=first_scan, progress=progress) as taken:
                yield taken

        return Recorder(opened, self._session, take, time_ms=time_ns() // 1_000_000, git_head=self._git_head)

    def _take_snapshot(self, progress: Progress | None, *, is_wrap: bool) -> Snapshot:
        def take(recorder: Recorder) -> Snapshot:
            with recorder.take() as taken:
                with taken.record(recorder.time_s) as record:
                    if is_wrap:
                        recorder.add_wrap(record)
                return Snapshot(
                    record.tree.hex(), record.facts.hex(), record.files, taken.skipped, taken.warnings
                )

        return self._record(take, progress)

    def _find_tree(self, opened: OpenStore, name: str) -> TreeRecord:
        from shadowtree.aims import find_tree

        return find_tree(opened.journal, Session(opened.journal, self._session), name)

    def _last_tree(self, opened: OpenStore) -> TreeRecord | None:
        """Give what the session recorded last, or else what anybody did."""
        event = Session(opened.journal, self._session).last_event
        number = None if event is None else event.after if event.after is not None else event.before
        return opened.journal.last_tree() if number is None else opened.journal.tree(number)

    def _git_head(self) -> str | None:
        repository = find_around(os.fsencode(self._gate.worktree))
        return None if repository is None else read_head(repository)


def find_worktree(start: StrPath, *, store: StrPath | None = None) -> str | None:
    """Find the nearest wrapped directory at or above `start`; with a store, the worktree of that one."""
    places = Places(os.environ)
    directory = real_directory(start)
    given = places.given_store(store)
    if given is not None:
        worktree = stores.read_identity(given).worktree if stores.exists(given) else None
        return worktree if worktree is not None and is_inside(directory, worktree) else None
    while not stores.exists(places.usual_store(directory)):
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above
    return directory


def _say(id: str, text: str, role: str | None, meta: Mapping[str, object] | None) -> Said:
    check_name(id, "message id")
    if not isinstance(text, str):
        raise InvalidInput(f"the text of a message is text, not {text!r}")
    if role is not None:
        check_name(role, "role")
    return Said(id, text, role, encode_meta(meta))


@contextmanager
def _ending(end: Callable[[], None]) -> Iterator[None]:
    """Call `end` after the body, also when it raises; the body's own error is the one that is raised."""
    try:
        yield
    except BaseException as error:
        try:
            end()
        except ShadowError as failure:
            error.add_note(f"and its end was not recorded: {failure}")
        raise
    end()


def _with_notes(outcome: Outcome, notes: list[str]) -> Outcome:
    from shadowtree.frozen import replace

    return replace(outcome, notes=[*outcome.notes, *notes]) if notes else outcome


def _read(objects: Objects, record: TreeRecord) -> RecordedDirectory:
    return open_recorded(objects, record.tree, record.facts)


def _path(path: str) -> Path:
    from pathlib import Path

    return Path(path)
