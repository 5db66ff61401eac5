"""The front door for asyncio: the same names as `Shadow`, as coroutines.

Each call runs in a thread, because reading a worktree blocks. One that was begun is finished even if its
caller is cancelled: an act is done whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from shadowtree.door import StrPath
from shadowtree.figures import SessionFigure, Stats, Swept, Usage
from shadowtree.handles import MessageHandle, StepHandle
from shadowtree.model import BlameEntry, Branch, FileDiff, Message, Patch, Snapshot, Status, Step, Watching
from shadowtree.outcome import Outcome, Plan
from shadowtree.reports import CheckReport, Forgotten, Purged
from shadowtree.reverting import Confirm
from shadowtree.settings import Settings
from shadowtree.shadow import Shadow

if TYPE_CHECKING:
    from shadowtree.outcome import OnConflict

Result = TypeVar("Result")


class AsyncShadow:
    """A worktree with its store, for asyncio. Acts on it are done one after the other."""

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
        self._shadow = Shadow(
            worktree,
            store=store,
            session=session,
            watch=watch,
            settings=settings,
            allow_broad=allow_broad,
        )

    @property
    def worktree(self) -> Path:
        """The directory that is wrapped, by its real path."""
        return self._shadow.worktree

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return self._shadow.store

    @property
    def session(self) -> str:
        """The session whose timeline this is."""
        return self._shadow.session

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store already."""
        return self._shadow.is_wrapped

    @property
    def settings(self) -> Settings:
        """The settings in force now: given ones, those of the environment, the project's and the user's."""
        return self._shadow.settings

    @property
    def recovered(self) -> list[str]:
        """What was interrupted and has been finished or taken back on the way, a sentence each."""
        return self._shadow.recovered

    async def __aenter__(self) -> AsyncShadow:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of every file and every watch. The shadow can be used again and opens what it needs."""
        await _in_thread(self._shadow.close)

    def for_session(self, session: str) -> AsyncShadow:
        """Give the same shadow for another session: both share the store, the watcher and the memory."""
        other = AsyncShadow.__new__(AsyncShadow)
        other._shadow = self._shadow.for_session(session)
        return other

    # Watching

    @property
    def watching(self) -> Watching | None:
        """How well the worktree is in sight; None for a shadow that does not watch."""
        return self._shadow.watching

    async def look_over(self, seconds: float) -> bool:
        """Spend up to so long on looking at all that nobody told of; True when a round is complete."""
        return await _in_thread(partial(self._shadow.look_over, seconds))

    async def read_ahead(self) -> bool:
        """Read what changed, so that the next record finds it done; True if it will, if nothing happens."""
        return await _in_thread(self._shadow.read_ahead)

    async def drain(self) -> bool:
        """Read what the watcher was told, lest its queue run over; True if something may have changed."""
        return await _in_thread(self._shadow.drain)

    def fileno(self) -> int | None:
        """Give a descriptor that becomes readable when there is something to drain, if there is one."""
        return self._shadow.fileno()

    async def watched_directories(self) -> list[str]:
        """Name the directories that are watched, by their full paths."""
        return await _in_thread(self._shadow.watched_directories)

    def cancel(self) -> None:
        """Stop what this shadow does or is about to do, as Ctrl-C would, where that does no harm."""
        self._shadow.cancel()

    async def last_number(self) -> int:
        """Give a number that grows with everything that is recorded of messages and acts; 0: nothing is."""
        return await _in_thread(self._shadow.last_number)

    # Snapshots

    async def track(self) -> str:
        """Record the present state of everything covered, and give its tree id."""
        return await _in_thread(self._shadow.track)

    async def take_snapshot(self) -> Snapshot:
        """Record the present state of everything covered."""
        return await _in_thread(self._shadow.take_snapshot)

    async def wrap(self) -> Snapshot:
        """Do the same, and remember it as the state that sessions start from."""
        return await _in_thread(self._shadow.wrap)

    async def patch(self, tree: str) -> Patch:
        """List what changed from a recorded tree to the present state."""
        return await _in_thread(partial(self._shadow.patch, tree))

    async def diff(self, a: str | None = None, b: str | None = None) -> list[FileDiff]:
        """Show how two states differ, path by path."""
        return await _in_thread(partial(self._shadow.diff, a, b))

    async def status(self) -> Status:
        """Tell where the shadow stands and what is not protected."""
        return await _in_thread(self._shadow.status)

    # Messages

    async def begin(
        self,
        id: str,
        *,
        text: str = "",
        role: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> Message:
        """Begin a message: record the state before it."""
        return await _in_thread(partial(self._shadow.begin, id, text=text, role=role, meta=meta))

    async def end(self, id: str | None = None, *, paths: Collection[StrPath] | None = None) -> Message:
        """End the open message: record the state after it, and what it changed."""
        return await _in_thread(partial(self._shadow.end, id, paths=paths))

    async def snapshot(
        self,
        id: str,
        *,
        text: str = "",
        role: str | None = None,
        meta: Mapping[str, object] | None = None,
        inferred: bool = False,
    ) -> Message:
        """Record a message that is over; `inferred` marks it as one that nobody announced."""
        return await _in_thread(
            partial(self._shadow.snapshot, id, text=text, role=role, meta=meta, inferred=inferred)
        )

    async def record_burst(self, id: str, *, text: str = "") -> Message | None:
        """Record a burst of changes that nobody announced as a message; None: there is nothing to record."""
        return await _in_thread(partial(self._shadow.record_burst, id, text=text))

    @asynccontextmanager
    async def message(
        self,
        id: str,
        *,
        text: str = "",
        role: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> AsyncIterator[MessageHandle]:
        """Record what the body does as one message, also when it raises or is cancelled."""
        recording = self._shadow.message(id, text=text, role=role, meta=meta)
        handle = await _in_thread(recording.__enter__)
        async with _leaving(recording.__exit__):
            yield handle

    async def begin_step(self, name: str) -> Step:
        """Begin a step of the open message."""
        return await _in_thread(partial(self._shadow.begin_step, name))

    async def end_step(self, name: str) -> Step:
        """End the open step."""
        return await _in_thread(partial(self._shadow.end_step, name))

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[StepHandle]:
        """Record what the body does as one step of the open message, also when it raises or is cancelled."""
        recording = self._shadow.step(name)
        handle = await _in_thread(recording.__enter__)
        async with _leaving(recording.__exit__):
            yield handle

    async def messages(self, *, all_sessions: bool = False, last: int | None = None) -> list[Message]:
        """List the messages of this session, or of all, oldest first."""
        return await _in_thread(partial(self._shadow.messages, all_sessions=all_sessions, last=last))

    async def show(self, name: str) -> tuple[Message, list[FileDiff]]:
        """Give a message and how what it changed differs."""
        return await _in_thread(partial(self._shadow.show, name))

    async def diff_message(self, message: Message) -> list[FileDiff]:
        """Show how what a message changed differs, whichever session it is of."""
        return await _in_thread(partial(self._shadow.diff_message, message))

    async def blame(self, path: StrPath) -> list[BlameEntry]:
        """List who changed a file, newest first."""
        return await _in_thread(partial(self._shadow.blame, path))

    # Branches

    async def branches(self) -> list[Branch]:
        """List the branches of this session, oldest first."""
        return await _in_thread(self._shadow.branches)

    async def rename_branch(self, name: str, new: str) -> Branch:
        """Give a branch another name."""
        return await _in_thread(partial(self._shadow.rename_branch, name, new))

    async def drop_branch(self, name: str) -> Branch:
        """Take a branch from the list."""
        return await _in_thread(partial(self._shadow.drop_branch, name))

    # Upkeep

    async def tidy(self, seconds: float) -> bool:
        """Spend up to so long on storing more tightly what was recorded; True when nothing is left to do."""
        return await _in_thread(partial(self._shadow.tidy, seconds))

    async def purge(
        self,
        what: StrPath,
        *,
        everywhere: bool = False,
        dry_run: bool = False,
        confirm: Callable[[Purged], bool] | None = None,
    ) -> Purged:
        """Remove a path, or a content by its id, from everything that is recorded, for good."""
        purge = partial(self._shadow.purge, what, everywhere=everywhere, dry_run=dry_run, confirm=confirm)
        return await _in_thread(purge)

    async def allow(self, what: StrPath) -> list[str]:
        """Cover a path or a content again that was purged, from the next snapshot on; tell what that is."""
        return await _in_thread(partial(self._shadow.allow, what))

    async def forget(
        self,
        *,
        keep_last: int | None = None,
        keep_within: float | str | None = None,
        keep_sessions: Collection[str] = (),
        dry_run: bool = False,
        gc: bool = True,
    ) -> Forgotten:
        """Forget old messages of all sessions, and with `gc` free what only they needed."""
        return await _in_thread(
            partial(
                self._shadow.forget,
                keep_last=keep_last,
                keep_within=keep_within,
                keep_sessions=keep_sessions,
                dry_run=dry_run,
                gc=gc,
            )
        )

    async def pin(self, id: str) -> Message:
        """Keep a message from being forgotten."""
        return await _in_thread(partial(self._shadow.pin, id))

    async def unpin(self, id: str) -> Message:
        """Let a message be forgotten when its time comes."""
        return await _in_thread(partial(self._shadow.unpin, id))

    # Acts

    async def plan_revert(
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
        plan = partial(self._shadow.plan_revert, id, step=step, paths=paths, only=only, files=files)
        return await _in_thread(partial(plan, on_conflict=on_conflict, markers=markers))

    async def revert(
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
        """Take the worktree to where it was before a message, or take that one message out."""
        act = partial(self._shadow.revert, id, step=step, paths=paths, only=only, files=files)
        return await _act(act, on_conflict, markers, dry_run, confirm)

    async def unrevert(
        self,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Take back the last of these acts that changed anything."""
        return await _act(self._shadow.unrevert, on_conflict, markers, dry_run, confirm)

    async def undo(
        self,
        turns: int = 1,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go back by turns."""
        return await _act(partial(self._shadow.undo, turns), on_conflict, markers, dry_run, confirm)

    async def redo(
        self,
        turns: int | None = 1,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go forward again by turns; None: to the end."""
        return await _act(partial(self._shadow.redo, turns), on_conflict, markers, dry_run, confirm)

    async def switch(
        self,
        ref: str,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Go to the state after a message, on whatever branch, or to the end of a branch."""
        return await _act(partial(self._shadow.switch, ref), on_conflict, markers, dry_run, confirm)

    async def restore(
        self,
        ref: str,
        *,
        on_conflict: OnConflict = "abort",
        markers: bool = False,
        dry_run: bool = False,
        confirm: Confirm | None = None,
    ) -> Outcome:
        """Make all that is covered equal to a tree."""
        return await _act(partial(self._shadow.restore, ref), on_conflict, markers, dry_run, confirm)

    # Seeing

    async def stats(self) -> Stats:
        """Tell what the store holds, and what that takes."""
        return await _in_thread(self._shadow.stats)

    async def du(self, path: StrPath = ".", *, depth: int = 1) -> Usage:
        """Tell what all versions of a path take in the store, and of the paths below it down to `depth`."""
        return await _in_thread(partial(self._shadow.du, path, depth=depth))

    async def du_by_session(self) -> list[SessionFigure]:
        """Tell what each session alone needs, the most first; what several need is in none of them."""
        return await _in_thread(self._shadow.du_by_session)

    async def gc(self) -> Swept:
        """Forget what the settings and the budgets do not keep, and free what nothing that is left needs."""
        return await _in_thread(self._shadow.gc)

    async def destroy(self) -> int:
        """Remove the store whole, with all that was recorded, and tell how many bytes that frees."""
        return await _in_thread(self._shadow.destroy)

    async def check(self, *, read_data: bool = False) -> CheckReport:
        """Look whether the store holds what was put there, and name the messages that are hurt if not."""
        return await _in_thread(partial(self._shadow.check, read_data=read_data))

    async def repair(self, *, dry_run: bool = False, forget_lost: bool = False) -> CheckReport:
        """Make good what a check finds, as far as that can be proved, and check again."""
        return await _in_thread(partial(self._shadow.repair, dry_run=dry_run, forget_lost=forget_lost))


async def _act(
    act: Callable[..., Outcome],
    on_conflict: OnConflict,
    markers: bool,
    dry_run: bool,
    confirm: Confirm | None,
) -> Outcome:
    manner = partial(act, on_conflict=on_conflict, markers=markers)
    return await _in_thread(partial(manner, dry_run=dry_run, confirm=confirm))


async def _in_thread(call: Callable[[], Result]) -> Result:
    """Run a call in a thread, and wait for its end even when cancelled: it cannot be stopped halfway."""
    task = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            # Cancelled again, as by a timeout around a timeout: it still runs.
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise


@asynccontextmanager
async def _leaving(leave: Callable[..., object]) -> AsyncIterator[None]:
    try:
        yield
    except BaseException as error:
        await _in_thread(partial(_leave_with, leave, error))
        raise
    await _in_thread(partial(leave, None, None, None))


def _leave_with(leave: Callable[..., object], error: BaseException) -> None:
    """Tell a context manager of an error; that it raises the same one again is no news."""
    try:
        leave(type(error), error, error.__traceback__)
    except BaseException as again:
        if again is not error:
            raise
