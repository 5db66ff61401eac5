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
from shadowtree.arguments import check_name, encode_meta, parse_path, parse_paths, read_manner
from shadowtree.blame import list_outside
from shadowtree.capture import (
    Capture,
    capture,
    list_skipped,
    look,
    scan_site,
)
from shadowtree.errors import InvalidInput, NotWrapped, ShadowError, UnknownName
from shadowtree.gate import Gate, real_directory
from shadowtree.handles import MessageHandle, StepHandle
from shadowtree.interrupts import Cancellation
from shadowtree.journal import TreeRecord
from shadowtree.layout import is_inside
from shadowtree.model import (
    BlameEntry,
    Branch,
    ChangedPath,
    FileDiff,
    Message,
    Outcome,
    Patch,
    Plan,
    Snapshot,
    Status,
    Step,
    Watching,
)
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
from shadowtree.state import DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import TypeVar

    from shadowtree.aims import Aim, Aims
    from shadowtree.arguments import Manner
    from shadowtree.events import Event
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
        self._session = check_name(session, "session")
        places = Places(os.environ)
        self._gate = Gate(worktree, store, Settings.of(settings), places, allow_broad=allow_broad)
        self._mutex = RLock()
        self._cancellation = Cancellation()
        self._news: object = None
        if watch:
            from shadowtree.watch import Watch

            self._gate.watch = Watch(self._gate.worktree, self._gate.store)
            self._news = self._gate.watch.news

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
        """Let go of every file and every watch. The shadow can be used again and opens what it needs."""
        with self._mutex:
            self._gate.close()

    def for_session(self, session: str) -> Shadow:
        """Give the same shadow for another session: both share the store, the watcher and the memory."""
        other = Shadow.__new__(Shadow)
        other._session = check_name(session, "session")
        other._gate = self._gate
        other._mutex = self._mutex
        other._cancellation = Cancellation()
        other._news = None if self._gate.watch is None else self._gate.watch.news
        return other

    # Watching

    @property
    def watching(self) -> Watching | None:
        """How well the worktree is in sight; None for a shadow that does not watch."""
        return None if self._gate.watch is None else self._gate.watch.report

    def look_over(self, seconds: float) -> bool:
        """Spend up to so long on looking at all that nobody told of; True when a round is complete.

        For idle time: what was written through a mapping, or by another name from outside, is found this way.
        """
        with self._mutex:
            watch, site = self._gate.watch, self._gate.site
            if watch is None:
                return True
            opened = self._gate.open()
            opened.refresh()
            return watch.look_over(
                site.settings, site.surroundings, opened.cache, opened.was_covered, seconds=seconds
            )

    def drain(self) -> bool:
        """Read what the watcher was told, lest its queue run over.

        True if something that is covered may have changed since the last call of this very shadow, whoever
        read it. May be called by any thread.
        """
        watch = self._gate.watch
        if watch is None:
            return True
        watch.drain()
        known, self._news = self._news, watch.news
        return known is not self._news

    def fileno(self) -> int | None:
        """Give a descriptor that becomes readable when there is something to drain, if there is one."""
        return None if self._gate.watch is None else self._gate.watch.fileno()

    def watched_directories(self) -> list[str]:
        """Name the directories that are watched, by their full paths."""
        with self._mutex:
            paths = [] if self._gate.watch is None else self._gate.watch.directories()
        root = os.fsencode(self._gate.worktree)
        return [os.fsdecode(os.path.join(root, path)) for path in paths]

    def cancel(self) -> None:
        """Stop what this shadow does or is about to do in other threads, as Ctrl-C stops the main one.

        It raises KeyboardInterrupt where that does no harm: nothing is recorded, and no path is changed. What
        is recorded by then is done. Shadows of other sessions that were made of this one go on.
        """
        self._cancellation.is_wanted = True

    def mark(self) -> int:
        """Give a number that grows with everything that is recorded of messages and acts; 0: nothing is.

        Whoever is at work is waited for, and what was interrupted is made good: if the number is the same as
        before something was begun, that was not done, and will not be.
        """
        with self._mutex:
            if not self.is_wrapped:
                return 0
            with self._gate.locked() as opened:
                return opened.journal.last_number()

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
            outside: list[ChangedPath] = []
            if last is not None:
                with look(self._gate.site, opened, scan) as (objects, after):
                    changed = len(compare(_read(objects, last), after).files)
                    outside = self._list_outside(opened, session, objects, after)
            head, open_message = session.head, session.open
            return Status(
                worktree=self._gate.worktree,
                store=self._gate.store,
                session=self._session,
                head=None if head is None else head.id,
                open=None if open_message is None else open_message.id,
                undone=[row.id for row in session.redoable()],
                changed=changed,
                ignored=scan.ignored,
                watching=self._gate.watch is not None and self._gate.watch.report.is_active,
                skipped=list_skipped(scan),
                outside=outside,
            )

    def _list_outside(
        self, opened: OpenStore, session: Session, objects: Objects, present: RecordedDirectory
    ) -> list[ChangedPath]:
        """List what changed since the last message, and is neither a message's nor an act's."""
        journal = opened.journal
        event = None if session.number is None else journal.last_of_messages(session.number)
        number = _tree_of(event)
        record = journal.last_tree() if number is None else journal.tree(number)
        assert record is not None
        since = 0 if event is None else event.number
        return list_outside(journal, session, since, _read(objects, record), present)

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

    def record_burst(self, id: str, *, text: str = "") -> Message | None:
        """Record a burst of changes that nobody announced as a message, marked as inferred.

        It began at the tree that was recorded last, by whomever: what messages and acts did is not in it.
        None, and nothing is recorded, if nothing has changed since, or if a message is open in any session:
        then it is that one's.
        """
        said = _say(id, text, None, None)
        return self._record(lambda recorder: recorder.record_burst(said), wraps=False)

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

    def blame(self, path: StrPath) -> list[BlameEntry]:
        """List who changed a file, newest first: messages of all sessions, or nobody. Records nothing."""
        from shadowtree.blame import Blame

        own = parse_path(path, self._gate.worktree)
        with self._mutex:
            opened = self._gate.open()
            opened.refresh()
            found = Blame(opened.journal, own)
            records = [opened.journal.first_tree(), opened.journal.last_tree()]
            with look(self._gate.site, opened) as (objects, root):
                present = root.find(own)
                trees = [
                    (_read(objects, record).find(own), record.time_s * 1000) for record in records if record
                ]
            answers = [present, *(answer for answer, _ in trees)]
            if DIRECTORY in answers or not own:
                raise InvalidInput(f"{os.fspath(path)} is a directory, not a file")
            if not found.is_known and answers == [None] * len(answers):
                raise UnknownName(os.fspath(path), f"nothing is known of {os.fspath(path)}")
            return found.read(trees, present, Session(opened.journal, self._session))

    def diff_message(self, message: Message) -> list[FileDiff]:
        """Show how what a message changed differs, whichever session it is of."""
        with self._mutex:
            return diff_patch(message.patch, self._gate.open().objects)

    # Acts
    #
    # Each can be told what to do where somebody else changed the same paths: stop (`abort`), leave them
    # (`keep`), take what is wished (`overwrite`), or `merge`. `markers` puts both versions of colliding texts
    # between markers; `dry_run` changes nothing; `confirm` is asked before an act that deletes much.

    def plan_revert(
        self,
        id: str,
        *,
        step: str | None = None,
        paths: Collection[StrPath] | None = None,
        only: bool = False,
        files: bool = True,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
    ) -> Plan:
        """Work out what `revert` would do, and change nothing."""
        choose = self._choose_revert(id, step, paths, only=only, files=files)
        return self._plan(choose, read_manner(on_conflict, markers, files))

    def revert(
        self,
        id: str,
        *,
        step: str | None = None,
        paths: Collection[StrPath] | None = None,
        only: bool = False,
        files: bool = True,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Take the worktree to where it was before a message: all paths that it and later ones changed.

        With `only`, take that one message out from under the later ones, which stay. With `step`, to before
        that step of it, or that step alone; with `paths`, only these files and directories. Neither moves the
        head. Without `files` only the head moves, and no file is touched.
        """
        choose = self._choose_revert(id, step, paths, only=only, files=files)
        return self._act(choose, read_manner(on_conflict, markers, files), dry_run, confirm)

    def unrevert(
        self,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Take back the last of these acts that changed anything; repeated, the ones before it."""
        return self._act(lambda aims: aims.unrevert(), read_manner(on_conflict, markers), dry_run, confirm)

    def undo(
        self,
        turns: int = 1,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go back by turns."""
        return self._act(lambda aims: aims.undo(turns), read_manner(on_conflict, markers), dry_run, confirm)

    def redo(
        self,
        turns: int | None = 1,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go forward again by turns; None: to the end."""
        return self._act(lambda aims: aims.redo(turns), read_manner(on_conflict, markers), dry_run, confirm)

    def switch(
        self,
        ref: str,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go to the state after a message, on whatever branch, or to the end of a branch.

        What is left is archived first, under the name that it had or a new one.
        """
        return self._act(lambda aims: aims.switch(ref), read_manner(on_conflict, markers), dry_run, confirm)

    def restore(
        self,
        ref: str,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Make all that is covered equal to a tree: that after a message, before it (`ID^`), or any one."""
        return self._act(lambda aims: aims.restore(ref), read_manner(on_conflict, markers), dry_run, confirm)

    def _choose_revert(
        self,
        id: str,
        step: str | None,
        paths: Collection[StrPath] | None,
        *,
        only: bool,
        files: bool,
    ) -> Callable[[Aims], Aim]:
        own = parse_paths(paths, self._gate.worktree)
        is_part = step is not None or own is not None
        if not files and (is_part or only):
            raise InvalidInput("without files only the head moves, so there is no part of them to revert")

        def choose(aims: Aims) -> Aim:
            row = aims.resolve(id)
            if only:
                return aims.revert_only(row, step, own)
            return aims.revert_part(row, step, own) if is_part else aims.revert(row)

        return choose

    def _act(
        self, choose: Callable[[Aims], Aim], manner: Manner, dry_run: bool, confirm: Confirm | None
    ) -> Outcome:
        if dry_run:
            return self._plan(choose, manner).outcome
        from shadowtree import reverting

        known = len(self._gate.recovered)
        with self._mutex, self._gate.locked() as opened:
            try:
                recorder = self._make_recorder(opened, None)
                outcome = reverting.run(
                    opened,
                    self._gate.site,
                    recorder,
                    choose,
                    manner,
                    confirm,
                    git_head=self._git_head(),
                    cancellation=self._cancellation,
                )
            except BaseException:
                self._gate.forget(opened, is_new=False)
                raise
            return _with_notes(outcome, self._gate.recovered[known:])

    def _plan(self, choose: Callable[[Aims], Aim], manner: Manner) -> Plan:
        from shadowtree import reverting
        from shadowtree.staging import Bench

        with self._mutex:
            opened = self._gate.open()
            opened.refresh()
            scan = scan_site(self._gate.site, opened)
            with look(self._gate.site, opened, scan) as (objects, root), Bench(self._gate.worktree) as bench:
                recorder = self._make_recorder(opened, None)
                prepared = reverting.prepare(
                    recorder, objects, root, bench, choose, manner, scan=scan, git_head=self._git_head()
                )
                return prepared.to_plan()

    # Branches

    def branches(self) -> list[Branch]:
        """List the branches of this session, oldest first."""
        with self._mutex:
            return Session(self._gate.open().journal, self._session).read_branches()

    def rename_branch(self, name: str, new: str) -> Branch:
        """Give a branch another name."""
        check_name(new, "branch")
        return self._record(
            lambda recorder: recorder.branches.rename(recorder.session, name, new), wraps=False
        )

    def drop_branch(self, name: str) -> Branch:
        """Take a branch from the list; each of its messages can still be switched to by its id."""
        return self._record(lambda recorder: recorder.branches.drop(recorder.session, name), wraps=False)

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
        heeding = self._cancellation.heed(progress)

        @contextmanager
        def take() -> Iterator[Capture]:
            self._cancellation.check()
            with capture(site, opened, first_scan=first_scan, progress=heeding) as taken:
                yield taken

        return Recorder(
            opened,
            self._session,
            take,
            settings=site.settings,
            time_ms=time_ns() // 1_000_000,
            git_head=self._git_head,
        )

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
        from shadowtree.refs import find_tree

        return find_tree(opened.journal, Session(opened.journal, self._session), name)

    def _last_tree(self, opened: OpenStore) -> TreeRecord | None:
        """Give what the session recorded last, or else what anybody did."""
        number = _tree_of(Session(opened.journal, self._session).last_event)
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


def _tree_of(event: Event | None) -> int | None:
    """Give the record that an event left, if any."""
    return None if event is None else event.after if event.after is not None else event.before


def _read(objects: Objects, record: TreeRecord) -> RecordedDirectory:
    return open_recorded(objects, record.tree, record.facts)


def _path(path: str) -> Path:
    from pathlib import Path

    return Path(path)
