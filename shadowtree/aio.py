"""`Shadow` for asyncio: the same methods as coroutines.

Each call runs in a thread, because reading files blocks. A call that has started runs to its end even if the
caller is cancelled, so an act is done completely or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, suppress
from contextvars import copy_context
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from shadowtree.base.arguments import StrPath
from shadowtree.base.limits import DEFAULT_LIMITS, Limits
from shadowtree.config.settings import Settings
from shadowtree.shadow import Shadow

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator
    from typing import Self, Unpack

    from shadowtree.access.access import AdoptOptions
    from shadowtree.remote.remotes import Remotes
    from shadowtree.results.messages import Update, Watching
    from shadowtree.store.repo import ShadowRepo
    from shadowtree.watching.subscription import Subscription

P = ParamSpec("P")
Result = TypeVar("Result")


def in_thread(
    method: Callable[Concatenate[Shadow, P], Result],
) -> Callable[Concatenate[AsyncShadow, P], Coroutine[Any, Any, Result]]:  # Any: nothing is sent to it
    """Wrap a method in a coroutine that runs it in a thread."""

    @wraps(method)
    async def call(self: AsyncShadow, /, *args: P.args, **named: P.kwargs) -> Result:
        call_it: Callable[P, Result] = getattr(self._shadow, method.__name__)
        if callable(confirm := named.get("confirm")):
            named["confirm"] = partial(_confirm, asyncio.get_running_loop(), confirm)
        return await finish_in_thread(call_it, *args, **named)

    return call


def _confirm(loop: asyncio.AbstractEventLoop, confirm: Callable[[object], object], planned: object) -> object:
    """Call `confirm` in the thread of the work; if it is a coroutine, wait until the loop has run it."""
    answer = confirm(planned)
    return asyncio.run_coroutine_threadsafe(answer, loop).result() if asyncio.iscoroutine(answer) else answer


def around(
    method: Callable[Concatenate[Shadow, P], AbstractContextManager[Result]],
) -> Callable[Concatenate[AsyncShadow, P], AbstractAsyncContextManager[Result]]:
    """Wrap a recording context manager in an asynchronous one that records even if its body is cancelled."""

    @wraps(method)
    @asynccontextmanager
    async def enter(self: AsyncShadow, /, *args: P.args, **named: P.kwargs) -> AsyncIterator[Result]:
        recording = method(self._shadow, *args, **named)
        entered: list[Result] = []  # also filled if the caller is cancelled meanwhile
        try:
            await finish_in_thread(lambda: entered.append(recording.__enter__()))
            yield entered[0]
        except BaseException as error:
            if entered:
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

    @classmethod
    def _around(cls, shadow: Shadow) -> Self:
        other = cls.__new__(cls)
        other._shadow = shadow
        return other

    @classmethod
    async def adopt(cls, worktree: StrPath, store: StrPath, **options: Unpack[AdoptOptions]) -> Self:
        """Bind the store of a moved directory to its new path. Raises InvalidInput if it is not a store."""
        return cls._around(await finish_in_thread(Shadow.adopt, worktree, store, **options))

    def for_session(self, session: str) -> Self:
        """Return a shadow for another session; both share the store and the watcher."""
        return self._around(self._shadow.for_session(session))

    async def for_last_session(self) -> Self:
        """Return a shadow for the session that recorded last; acts fail if another has an open message."""
        return self._around(await finish_in_thread(self._shadow.for_last_session))

    def only_wrapped(self) -> Self:
        """Raise NotWrapped from now on if there is no store, instead of returning empty results."""
        self._shadow.only_wrapped()
        return self

    def only_look(self) -> Self:
        """Read from now on without taking the lock or recovering anything, as for shell completion."""
        self._shadow.only_look()
        return self

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
        """The remotes of this directory; their methods block."""
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
        """Recovered operations and other notices, such as a moved directory, one sentence each."""
        return self._shadow.recovered

    @property
    def watching(self) -> Watching | None:
        """How well the directory is watched; None if it is not."""
        return self._shadow.watching

    def fileno(self) -> int | None:
        """Return a descriptor that becomes readable when `drain` has something to read, or None."""
        return self._shadow.fileno()

    def cancel(self) -> None:
        """Make the recording or act that is running, or else the next one, raise KeyboardInterrupt."""
        self._shadow.cancel()

    async def subscribe(self, *, after: int | None = None) -> AsyncGenerator[Update, None]:
        """Iterate over the records and acts of all processes, from now on or `after` an update.

        The iteration ends with `aclose()`, or when the iterating task is cancelled.
        """
        updates: asyncio.Queue[Update | BaseException] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def put(update: Update | BaseException) -> None:
            loop.call_soon_threadsafe(updates.put_nowait, update)

        def subscribe() -> None:
            subscriptions.append(self._shadow.subscribe(put, after=after, on_error=put))

        subscriptions: list[Subscription] = []  # also filled if the caller is cancelled meanwhile
        try:
            await finish_in_thread(subscribe)
            while True:
                update = await updates.get()
                if isinstance(update, BaseException):
                    raise update
                yield update
        finally:
            for subscription in subscriptions:
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
    """Run a call in a thread and wait for its end even when cancelled: it cannot be stopped halfway."""
    # Not a task: `asyncio.run` cancels those that are left when it ends.
    run = partial(copy_context().run, call, *args, **named)
    future = asyncio.get_running_loop().run_in_executor(None, run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            # The thread still runs after another cancellation, such as from a timeout around a timeout.
            with suppress(asyncio.CancelledError):
                await asyncio.wait([future])
        if not future.cancelled():
            future.exception()
        raise
