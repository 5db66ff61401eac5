"""`Shadow` for asyncio: the same names as coroutines.

Each call runs in a thread, because reading files blocks. Once started it is finished, even if its caller is
cancelled: an act is done completely or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from shadowtree.base.arguments import StrPath
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.config.settings import Settings
from shadowtree.shadow import Shadow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from shadowtree.remote.remotes import Remotes
    from shadowtree.results.messages import Update, Watching
    from shadowtree.store.repo import ShadowRepo

P = ParamSpec("P")
Result = TypeVar("Result")


def in_thread(
    method: Callable[Concatenate[Shadow, P], Result],
) -> Callable[Concatenate[AsyncShadow, P], Coroutine[Any, Any, Result]]:  # Any: nobody sends anything
    """Make a coroutine of a method that runs it in a thread."""

    @wraps(method)
    async def call(self: AsyncShadow, /, *args: P.args, **named: P.kwargs) -> Result:
        call_it: Callable[P, Result] = getattr(self._shadow, method.__name__)
        return await finish_in_thread(call_it, *args, **named)

    return call


def around(
    method: Callable[Concatenate[Shadow, P], AbstractContextManager[Result]],
) -> Callable[Concatenate[AsyncShadow, P], AbstractAsyncContextManager[Result]]:
    """Make an asynchronous context manager of one that records; it does so too when the body is cancelled."""

    @wraps(method)
    @asynccontextmanager
    async def enter(self: AsyncShadow, /, *args: P.args, **named: P.kwargs) -> AsyncIterator[Result]:
        recording = method(self._shadow, *args, **named)
        handle = await finish_in_thread(recording.__enter__)
        try:
            yield handle
        except BaseException as error:
            await finish_in_thread(recording.__exit__, type(error), error, error.__traceback__)
            raise
        await finish_in_thread(recording.__exit__, None, None, None)

    return enter


class AsyncShadow:
    """A directory and its store, for asyncio. Calls run one after the other and raise as in `Shadow`."""

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
        self._shadow = Shadow(
            worktree,
            store=store,
            session=session,
            watch=watch,
            settings=settings,
            allow_broad=allow_broad,
            limits=limits,
        )

    def for_session(self, session: str) -> AsyncShadow:
        """Return a shadow for another session; both share the store and the watcher."""
        other = AsyncShadow.__new__(AsyncShadow)
        other._shadow = self._shadow.for_session(session)
        return other

    async def __aenter__(self) -> AsyncShadow:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    @property
    def worktree(self) -> Path:
        """The real path of the wrapped directory."""
        return self._shadow.worktree

    @property
    def store(self) -> Path:
        """The directory of the store."""
        return self._shadow.store

    @property
    def remotes(self) -> Remotes:
        """The remotes of this directory; its methods block."""
        return self._shadow.remotes

    @property
    def repo(self) -> ShadowRepo:
        """The store as a bare dulwich `Repo`. dulwich blocks, so use it in `asyncio.to_thread`."""
        return self._shadow.repo

    @property
    def session(self) -> str:
        """The session that this shadow records in."""
        return self._shadow.session

    @property
    def is_wrapped(self) -> bool:
        """Whether there is a store."""
        return self._shadow.is_wrapped

    @property
    def settings(self) -> Settings:
        """The settings in force: given ones, then environment, project and user settings."""
        return self._shadow.settings

    @property
    def recovered(self) -> list[str]:
        """What was interrupted before and is finished or rolled back now, one sentence each."""
        return self._shadow.recovered

    @property
    def watching(self) -> Watching | None:
        """How well the directory is watched; None if it is not."""
        return self._shadow.watching

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when there is something to drain; None if there is none."""
        return self._shadow.fileno()

    def cancel(self) -> None:
        """Raise KeyboardInterrupt in what this shadow is doing, unless it is recorded."""
        self._shadow.cancel()

    async def subscribe(self, *, after: int | None = None) -> AsyncGenerator[Update, None]:
        """Iterate over whatever any process records or undoes, from now on or `after` an update.

        It ends with `aclose()`, or when the iterating task is cancelled.
        """
        updates: asyncio.Queue[Update | BaseException] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(update: Update | BaseException) -> None:
            loop.call_soon_threadsafe(updates.put_nowait, update)

        subscription = await finish_in_thread(self._shadow.subscribe, put, after=after, on_error=put)
        try:
            while True:
                update = await updates.get()
                if isinstance(update, BaseException):
                    raise update
                yield update
        finally:
            await finish_in_thread(subscription.close)

    message = around(Shadow.message)
    step = around(Shadow.step)

    allow = in_thread(Shadow.allow)
    begin = in_thread(Shadow.begin)
    begin_step = in_thread(Shadow.begin_step)
    blame = in_thread(Shadow.blame)
    blame_lines = in_thread(Shadow.blame_lines)
    branches = in_thread(Shadow.branches)
    cat = in_thread(Shadow.cat)
    check = in_thread(Shadow.check)
    close = in_thread(Shadow.close)
    destroy = in_thread(Shadow.destroy)
    diff = in_thread(Shadow.diff)
    diff_message = in_thread(Shadow.diff_message)
    drain = in_thread(Shadow.drain)
    drop_branch = in_thread(Shadow.drop_branch)
    drop_session = in_thread(Shadow.drop_session)
    du = in_thread(Shadow.du)
    du_by_session = in_thread(Shadow.du_by_session)
    end = in_thread(Shadow.end)
    end_or_drop = in_thread(Shadow.end_or_drop)
    end_step = in_thread(Shadow.end_step)
    forget = in_thread(Shadow.forget)
    gc = in_thread(Shadow.gc)
    last_number = in_thread(Shadow.last_number)
    look_over = in_thread(Shadow.look_over)
    messages = in_thread(Shadow.messages)
    patch = in_thread(Shadow.patch)
    pin = in_thread(Shadow.pin)
    plan_revert = in_thread(Shadow.plan_revert)
    protect = in_thread(Shadow.protect)
    purge = in_thread(Shadow.purge)
    read_file = in_thread(Shadow.read_file)
    record_burst = in_thread(Shadow.record_burst)
    record_turn = in_thread(Shadow.record_turn)
    redo = in_thread(Shadow.redo)
    rename_branch = in_thread(Shadow.rename_branch)
    repair = in_thread(Shadow.repair)
    restore = in_thread(Shadow.restore)
    revert = in_thread(Shadow.revert)
    sessions = in_thread(Shadow.sessions)
    show = in_thread(Shadow.show)
    snapshot = in_thread(Shadow.snapshot)
    state = in_thread(Shadow.state)
    stats = in_thread(Shadow.stats)
    status = in_thread(Shadow.status)
    switch = in_thread(Shadow.switch)
    take_snapshot = in_thread(Shadow.take_snapshot)
    tidy = in_thread(Shadow.tidy)
    timeline = in_thread(Shadow.timeline)
    track = in_thread(Shadow.track)
    undo = in_thread(Shadow.undo)
    unpin = in_thread(Shadow.unpin)
    unprotected = in_thread(Shadow.unprotected)
    unrevert = in_thread(Shadow.unrevert)
    why_unprotected = in_thread(Shadow.why_unprotected)
    wrap = in_thread(Shadow.wrap)


async def finish_in_thread(call: Callable[P, Result], *args: P.args, **named: P.kwargs) -> Result:
    """Run a call in a thread, and wait for its end even when cancelled: it cannot be stopped halfway."""
    task = asyncio.ensure_future(asyncio.to_thread(call, *args, **named))
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
