"""`subscribe`: a host is notified of what this process or another one records or undoes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue

import pytest

from shadowtree import AsyncShadow, Shadow
from shadowtree.results.messages import Update
from shadowtree.system import inotify
from tests.support.processes import surroundings

SETTINGS = {"min_free": 0}
WAIT_S = 20.0


def next_update(updates: Queue[Update]) -> tuple[str, str, str | None]:
    update = updates.get(timeout=WAIT_S)
    return update.kind, update.session, update.message


def record(shadow: Shadow, id: str) -> None:
    with shadow.message(id):
        (shadow.worktree / "a").write_text(id)


@pytest.fixture(params=[True, False], ids=["inotify", "polling"])
def updates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Queue[Update]:
    if not request.param:
        monkeypatch.setattr(inotify, "IS_LINUX", False)
    return Queue()


def test_messages_and_acts_of_all_sessions_are_told_in_order(shadow: Shadow, updates: Queue[Update]) -> None:
    record(shadow, "m0")
    with shadow.subscribe(updates.put):
        record(shadow, "m1")
        shadow.undo()
        shadow.for_session("other").snapshot("m2")
        found = [next_update(updates) for _ in range(4)]

    assert found == [
        ("begin", "default", "m1"),
        ("end", "default", "m1"),
        ("undo", "default", None),
        ("snapshot", "other", "m2"),
    ]
    with pytest.raises(Empty):
        updates.get_nowait()


def test_what_another_process_records_is_told(shadow: Shadow, updates: Queue[Update]) -> None:
    shadow.wrap()
    with shadow.subscribe(updates.put):
        command = [sys.executable, "-m", "shadowtree", "-C", str(shadow.worktree), "snapshot", "m1"]
        subprocess.run(command, env=surroundings(SHADOWTREE_MIN_FREE="0"), check=True)
        assert next_update(updates) == ("snapshot", "default", "m1")


def test_a_directory_that_is_not_wrapped_yet_can_be_subscribed_to(
    shadow: Shadow, updates: Queue[Update]
) -> None:
    with shadow.subscribe(updates.put):
        shadow.snapshot("m1")
        assert next_update(updates) == ("snapshot", "default", "m1")


def test_it_goes_on_from_a_number(shadow: Shadow, updates: Queue[Update]) -> None:
    record(shadow, "m1")
    number = shadow.last_number()
    record(shadow, "m2")
    with shadow.subscribe(updates.put, after=number):
        assert next_update(updates) == ("begin", "default", "m2")


def test_what_is_recorded_right_after_a_message_was_dropped_is_told(
    shadow: Shadow, updates: Queue[Update]
) -> None:
    """It gets the numbers of the dropped message, which had been reported."""
    is_over = threading.Event()

    def wait(update: Update) -> None:
        updates.put(update)
        is_over.wait(WAIT_S)

    other = shadow.for_session("other")
    record(shadow, "m1")
    shadow.begin("open")
    with shadow.subscribe(wait):
        other.begin("empty")
        other.begin_step("step")
        assert next_update(updates) == ("begin", "other", "empty")
        other.end_step("step")
        assert other.end_or_drop("empty") is None
        record(other, "m2")
        shadow.end()
        is_over.set()
        found = [next_update(updates) for _ in range(3)]

    assert found == [("begin", "other", "m2"), ("end", "other", "m2"), ("end", "default", "open")]


def test_a_message_that_was_open_already_may_be_dropped(shadow: Shadow, updates: Queue[Update]) -> None:
    record(shadow, "m1")
    shadow.begin("empty")
    with shadow.subscribe(updates.put, after=shadow.last_number()):
        assert shadow.end_or_drop("empty") is None
        record(shadow, "m2")
        found = [next_update(updates) for _ in range(2)]

    assert found == [("begin", "default", "m2"), ("end", "default", "m2")]


def test_no_thread_is_left(shadow: Shadow, updates: Queue[Update]) -> None:
    before = threading.active_count()
    subscription = shadow.subscribe(updates.put)
    assert threading.active_count() == before + 1
    subscription.close()
    subscription.close()
    shadow.snapshot("m1")

    assert threading.active_count() == before
    assert updates.empty()


def test_a_callback_may_use_the_shadow_and_end_the_subscription(
    shadow: Shadow, updates: Queue[Update]
) -> None:
    seen: Queue[list[str]] = Queue()

    def look(update: Update) -> None:
        seen.put([message.id for message in shadow.messages()])
        subscription.close()

    subscription = shadow.subscribe(look)
    shadow.snapshot("m1")

    assert seen.get(timeout=WAIT_S) == ["m1"]
    subscription.close()


class Broken(Exception):
    pass


def raise_broken(update: Update) -> None:
    raise Broken(update.kind)


def test_what_a_callback_raises_is_raised_by_close(shadow: Shadow) -> None:
    subscription = shadow.subscribe(raise_broken)
    shadow.snapshot("m1")
    subscription._thread.join(WAIT_S)

    with pytest.raises(Broken):
        subscription.close()
    subscription.close()


def test_or_it_is_told_at_once(shadow: Shadow) -> None:
    """With `on_error`, an exception of the callback is reported before `close`."""
    errors: Queue[BaseException] = Queue()
    with shadow.subscribe(raise_broken, on_error=errors.put):
        shadow.snapshot("m1")
        assert isinstance(errors.get(timeout=WAIT_S), Broken)


def test_what_the_body_raises_comes_first(shadow: Shadow) -> None:
    subscription = shadow.subscribe(raise_broken)
    shadow.snapshot("m1")
    subscription._thread.join(WAIT_S)

    with pytest.raises(KeyError), subscription:
        raise KeyError


# asyncio


def in_loop(tell: Callable[[AsyncShadow], object], worktree: Path) -> None:
    async def run() -> None:
        async with AsyncShadow(worktree, settings=SETTINGS) as shadow:
            await asyncio.wait_for(tell(shadow), WAIT_S)  # type: ignore[arg-type]  # a coroutine

    asyncio.run(run())


def test_updates_are_iterated_over(worktree: Path) -> None:
    async def tell(shadow: AsyncShadow) -> None:
        await shadow.wrap()
        number = await shadow.last_number()
        async with shadow.message("m1"):
            pass
        kinds = []
        updates = shadow.subscribe(after=number)
        async for update in updates:
            kinds.append(update.kind)
            if len(kinds) == 2:
                await shadow.undo()
            if len(kinds) == 3:
                break
        await updates.aclose()
        assert kinds == ["begin", "end", "undo"]

    before = threading.active_count()
    in_loop(tell, worktree)
    assert threading.active_count() <= before + 1, "the loop keeps threads of its own"


def test_a_task_that_waits_for_updates_can_be_cancelled(worktree: Path) -> None:
    async def tell(shadow: AsyncShadow) -> None:
        task = asyncio.ensure_future(anext(shadow.subscribe()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [each for each in threading.enumerate() if "subscription" in each.name]

    in_loop(tell, worktree)
