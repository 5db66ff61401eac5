"""Worktrees that the daemon serves: automatic recording, started and stopped by several commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from shadowtree.base.limits import Limits, PackLimits
from shadowtree.daemon.worktrees import Served, Wish
from shadowtree.watching.auto import Auto
from tests.support.trees import make_tree

Holder = Callable[[str, object], None]
Story = Callable[[Served], Coroutine[object, object, None]]


def tell(worktree: Path, story: Story) -> None:
    """Run a coroutine with a worktree that is served, in a separate event loop."""

    async def run() -> None:
        wish = Wish(str(worktree), None)
        served = Served(wish.open(0), is_usual=True)
        served.warm_up(None)
        try:
            await asyncio.wait_for(story(served), 60)
        finally:
            await served.close()

    make_tree(worktree, {"a": "1"})
    asyncio.run(run())


async def record(served: Served, holder: Holder | None, quiet_s: float = 60.0) -> None:
    served.auto_wishes[holder] = Wish(served.worktree, None, auto_s=quiet_s)
    await served.record_as_wished()


async def forget(served: Served, holder: Holder | None) -> None:
    del served.auto_wishes[holder]
    await served.record_as_wished()


def count_recorders() -> int:
    return sum(thread.name == "auto" for thread in threading.enumerate())


def test_to_ask_for_the_status_is_no_use(worktree: Path) -> None:
    """It would keep an unused worktree served, and delay the work of idle time."""

    async def story(served: Served) -> None:
        before = served.idle_since_s, served.is_tidy, served.used_s

        told = (await served.describe())["watching"]

        assert told is not None
        assert told["active"]
        assert (served.idle_since_s, served.is_tidy, served.used_s) == before

    tell(worktree, story)


@pytest.mark.limits(Limits(packs=PackLimits(many=2, much_bytes=0, slice_records=1)))
def test_no_command_pays_for_repacking_while_idle_time_is_to_come(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(served: Served) -> None:
        with monkeypatch.context() as patched:
            patched.delattr("shadowtree.timeline.tidy.drain_rows")
            for number in range(5):
                make_tree(worktree, {"file": f"{number}"})
                served.shadow.snapshot(f"m{number}")

        assert served.shadow.tidy(60)
        assert served.shadow.check().ok

    tell(worktree, story)


def test_what_is_dropped_while_recording_begins_is_not_recorded(
    worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise nothing could stop it, because no list contains it any more."""
    has_begun, may_go_on = threading.Event(), threading.Event()

    def begin(auto: Auto) -> None:
        has_begun.set()
        may_go_on.wait()

    async def story(served: Served) -> None:
        beginning = asyncio.create_task(record(served, None))
        await asyncio.to_thread(has_begun.wait)
        dropping = asyncio.create_task(served.close())
        await asyncio.sleep(0)
        assert served.is_dropped
        may_go_on.set()
        await asyncio.gather(beginning, dropping)

        assert served.auto is None

    monkeypatch.setattr(Auto, "begin", begin)
    tell(worktree, story)
    assert count_recorders() == 0


def test_what_is_dropped_before_recording_begins_is_not_recorded(worktree: Path) -> None:
    async def story(served: Served) -> None:
        await served.close()

        await record(served, None)

        assert served.auto is None
        assert count_recorders() == 0

    tell(worktree, story)


def test_who_records_goes_on_when_another_one_who_wanted_it_too_has_gone(worktree: Path) -> None:
    """The latest wish that is left counts; without one, recording stops."""

    def first(kind: str, content: object) -> None:
        pass

    def second(kind: str, content: object) -> None:
        pass

    async def story(served: Served) -> None:
        await record(served, first, 60.0)
        await record(served, second, 30.0)
        assert (await served.describe())["auto_s"] == 30.0

        await forget(served, second)
        assert (await served.describe())["auto_s"] == 60.0

        await forget(served, first)
        assert (await served.describe())["auto_s"] is None
        assert count_recorders() == 0

    tell(worktree, story)


def test_a_bug_in_recording_is_told(worktree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch status` must not claim that bursts are recorded if they are not."""

    def fail(auto: Auto, stop: threading.Event) -> None:
        raise RuntimeError("a bug")

    async def story(served: Served) -> None:
        await record(served, None)

        while (await served.describe())["failure"] != "RuntimeError: a bug":
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Auto, "turn", fail)
    tell(worktree, story)


def test_a_request_waits_for_the_one_before_it_and_gives_up_in_time(worktree: Path) -> None:
    async def story(served: Served) -> None:
        from shadowtree.daemon.worktrees import Gone

        async with served.in_use(1):
            with pytest.raises(Gone, match="in use"):
                async with served.in_use(0.01):
                    pass
            with pytest.raises(Gone, match="in use"):
                async with served.alone(0):
                    pass
        async with served.alone(0):
            assert served.is_in_use

    tell(worktree, story)
