"""The front door: a worktree together with its store.

`Shadow` takes the lock, calls the rules in order and records what they found. It decides nothing about
files itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from shadowtree import store as stores
from shadowtree.acts import Acts
from shadowtree.arguments import check_name, encode_meta, parse_path, parse_paths
from shadowtree.blame import list_outside
from shadowtree.capture import list_skipped, look, scan_site
from shadowtree.door import StrPath
from shadowtree.errors import InvalidInput, NotWrapped, ShadowError, StoreDamaged, UnknownName
from shadowtree.events import TreeRecord
from shadowtree.gate import real_directory
from shadowtree.handles import MessageHandle, StepHandle
from shadowtree.identity import read_identity
from shadowtree.journal import Journal
from shadowtree.layout import is_inside
from shadowtree.model import BlameEntry, ChangedPath, FileDiff, Message, Patch, Snapshot, Status, Step
from shadowtree.objects import Objects
from shadowtree.opened import OpenStore
from shadowtree.patch import compare, diff_patch
from shadowtree.places import Places
from shadowtree.recorded import RecordedDirectory, open_recorded
from shadowtree.recorder import Recorder
from shadowtree.scribe import Said
from shadowtree.seeing import Seeing
from shadowtree.sessions import Session
from shadowtree.snapshot import Progress
from shadowtree.state import DIRECTORY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.events import Event

_DIFF_BYTES = 256 << 20
"""How much of what changed a diff looks at; of files beyond that it tells only that they changed."""


class Shadow(Acts, Seeing):
    """A worktree with its store. Wraps the worktree when something is first recorded.

    Usable from several threads; one act at a time is done, in this process and among all.
    """

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

        def read(opened: OpenStore) -> Patch:
            before = self._find_tree(opened, tree)
            with look(self._gate.site, opened) as (objects, after):
                return compare(_read(objects, before), after)

        return self._look(read)

    def diff(self, a: str | None = None, b: str | None = None) -> list[FileDiff]:
        """Show how two states differ, path by path. Records nothing.

        Each is named by a message (`ID` is the state after it, `ID^` the one before it) or by the id of a
        tree. Without `b` the present state is compared, without `a` the one that the session recorded last.
        """

        def read(opened: OpenStore) -> list[FileDiff]:
            before = self._last_tree(opened) if a is None else self._find_tree(opened, a)
            if before is None:
                raise NotWrapped(self._gate.worktree, "nothing is recorded of it")
            if b is not None:
                after = _read(opened.objects, self._find_tree(opened, b))
                return diff_patch(compare(_read(opened.objects, before), after), opened.objects)
            with look(self._gate.site, opened, file_bytes=_DIFF_BYTES) as (objects, present):
                return diff_patch(compare(_read(objects, before), present), objects)

        return self._look(read)

    def status(self) -> Status:
        """Tell where the shadow stands and what is not protected. Records nothing."""
        return self._look(self._read_status)

    def _read_status(self, opened: OpenStore) -> Status:
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
            warnings=[*self._gate.config.warnings, *self._list_budget_warnings(opened)],
        )

    def _list_budget_warnings(self, opened: OpenStore) -> list[str]:
        from shadowtree.budget import warn_near
        from shadowtree.totalbudget import measure_stores

        settings, stores = self.settings, self._gate.stores
        found = warn_near("the store takes", opened.measure(), settings.store_budget)
        if stores is not None and settings.total_budget:
            total = sum(size.bytes for size in measure_stores(stores))
            found += warn_near("all stores together take", total, settings.total_budget)
        return found

    def _list_outside(
        self, opened: OpenStore, session: Session, objects: Objects, present: RecordedDirectory
    ) -> list[ChangedPath]:
        """List what changed since the last message, and is neither a message's nor an act's."""
        journal = opened.journal
        event = None if session.number is None else journal.last_of_messages(session.number)
        number = _tree_of(journal, event)
        record = journal.last_tree() if number is None else journal.tree(number)
        assert record is not None
        since = 0 if event is None else event.number if number is not None else journal.last_number()
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
        inferred: bool = False,
        progress: Progress | None = None,
    ) -> Message:
        """Record a message that is over; it began at the state that was last known to the session.

        `inferred` marks it as one that nobody announced.
        """
        said = _say(id, text, role, meta)
        return self._record(lambda recorder: recorder.snapshot(said, is_inferred=inferred), progress)

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

        def read(opened: OpenStore) -> list[Message]:
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

        return self._look(read)

    def show(self, name: str) -> tuple[Message, list[FileDiff]]:
        """Give a message and how what it changed differs.

        It may be named by its id, the beginning of it, `#7`, `@` (the last one in force) or `@~2`.
        """

        def read(opened: OpenStore) -> tuple[Message, list[FileDiff]]:
            session = Session(opened.journal, self._session)
            message = session.read_message(session.resolve(name))
            return message, diff_patch(message.patch, opened.objects)

        return self._look(read)

    def blame(self, path: StrPath) -> list[BlameEntry]:
        """List who changed a file, newest first: messages of all sessions, or nobody. Records nothing."""
        from shadowtree.blame import Blame

        own = parse_path(path, self._gate.worktree)

        def read(opened: OpenStore) -> list[BlameEntry]:
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

        return self._look(read)

    def diff_message(self, message: Message) -> list[FileDiff]:
        """Show how what a message changed differs, whichever session it is of."""

        def read(opened: OpenStore) -> list[FileDiff]:
            try:
                return diff_patch(message.patch, opened.objects)
            except StoreDamaged:
                # It may have been forgotten since it was read, which says so.
                Session(opened.journal, message.session).resolve(message.id)
                raise

        return self._look(read)

    # How it is done

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
        number = _tree_of(opened.journal, Session(opened.journal, self._session).last_event)
        return opened.journal.last_tree() if number is None else opened.journal.tree(number)


def find_worktree(start: StrPath, *, store: StrPath | None = None) -> str | None:
    """Find the nearest wrapped directory at or above `start`; with a store, the worktree of that one."""
    places = Places(os.environ)
    directory = real_directory(start)
    given = places.given_store(store)
    if given is not None:
        worktree = read_identity(given).worktree if stores.exists(given) else None
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


def _tree_of(journal: Journal, event: Event | None) -> int | None:
    """Give the record that an event left, if any, and if it was not forgotten."""
    number = None if event is None else event.after if event.after is not None else event.before
    return None if number is None or journal.is_forgotten_tree(number) else number


def _read(objects: Objects, record: TreeRecord) -> RecordedDirectory:
    return open_recorded(objects, record.tree, record.facts)
