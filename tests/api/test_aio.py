"""`AsyncShadow`: the names of `Shadow` as coroutines, and acts that are done completely or not at all."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path

import pytest

import shadowtree
from shadowtree import Conflict, NotConfirmed, NotWrapped, Plan, Shadow, UnknownMessage
from shadowtree.aio import AsyncShadow
from tests.support.referee import assert_sound_store
from tests.support.trees import assert_tree, make_tree


@pytest.fixture
def host(worktree: Path) -> Iterator[AsyncShadow]:
    """An `AsyncShadow` whose store is checked when the test is over."""
    host = AsyncShadow(worktree, settings={"min_free": 0})
    yield host
    asyncio.run(host.close())
    if host.is_wrapped:
        assert_sound_store(host.store)


def run(story: Callable[[], Coroutine[None, None, None]]) -> None:
    """Run a coroutine, and fail if it hangs."""

    async def timed() -> None:
        await asyncio.wait_for(story(), 60)

    asyncio.run(timed())


def members(kind: type) -> dict[str, object]:
    return {name: value for base in reversed(kind.__mro__) for name, value in vars(base).items()}


def public(kind: type) -> dict[str, object]:
    return {name: value for name, value in members(kind).items() if not name.startswith("_")}


# The same names

NAMES = sorted(public(Shadow))


def test_it_is_offered_beside_the_other_one() -> None:
    assert shadowtree.AsyncShadow is AsyncShadow
    assert "AsyncShadow" in shadowtree.__all__


def test_it_has_every_name_of_the_other_one_and_no_more() -> None:
    assert sorted(public(AsyncShadow)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_of_the_same_kind(name: str) -> None:
    theirs, ours = public(Shadow)[name], public(AsyncShadow)[name]

    if isinstance(theirs, property):
        assert isinstance(ours, property)
    elif name in ("message", "step"):
        assert not inspect.iscoroutinefunction(ours), "these are contexts"
    elif name in ("cancel", "fileno", "for_session", "only_look", "only_wrapped"):
        assert not inspect.iscoroutinefunction(ours), "these answer at once"
    elif name == "subscribe":
        assert inspect.isasyncgenfunction(ours), "it is iterated over, and takes no callback"
    else:
        assert inspect.iscoroutinefunction(_function(ours))


@pytest.mark.parametrize("name", ["__init__", *NAMES])
def test_a_name_takes_the_same_arguments(name: str) -> None:
    theirs, ours = members(Shadow)[name], members(AsyncShadow)[name]
    if isinstance(theirs, property) or name == "subscribe":
        return

    assert _arguments(ours) == _arguments(theirs)


def _arguments(function: object) -> dict[str, tuple[object, object]]:
    parameters = inspect.signature(_function(function)).parameters
    return {name: (each.kind, each.default) for name, each in parameters.items()}


def _function(value: object) -> Callable[..., object]:
    value = value.__func__ if isinstance(value, classmethod) else value
    assert callable(value)
    return value


# Every method does the same as that of `Shadow`


def test_a_whole_story(host: AsyncShadow, worktree: Path) -> None:
    make_tree(worktree, {"a": "0", "b": "0"})

    async def story() -> None:
        await host.wrap()
        assert host.is_wrapped
        async with host.message("m1", text="one", role="user", meta={"k": 1}) as message:
            assert message.state == "open"
            async with host.step("write") as step:
                (worktree / "a").write_text("1")
            assert [each.path for each in step.patch.files] == ["a"]
            await host.begin_step("more")
            (worktree / "b").write_text("1")
            await host.end_step("more")
        assert [each.path for each in message.patch.files] == ["a", "b"]
        assert (message.text, message.role, message.meta) == ("one", "user", {"k": 1})
        await host.begin("m2")
        make_tree(worktree, {"c": "2", "d": "2"})
        ended = await host.end("m2", paths=["c"])
        assert [each.path for each in ended.patch.files] == ["c"]
        make_tree(worktree, {"e": "3"})
        await host.snapshot("m3")
        assert [each.id for each in await host.messages()] == ["m1", "m2", "m3"]
        assert [each.id for each in await host.messages(last=1, all_sessions=True)] == ["m3"]
        assert [diff.path for diff in (await host.show("m3"))[1]] == ["e"]

        plan = await host.plan_revert("m2", paths=["c"])
        assert plan.deleted == ["c"]
        assert (await host.undo(2)).turns == 2
        assert_tree(worktree, {"a": "1", "b": "1", "d": "2"})
        assert (await host.redo(None)).turns == 2
        assert (await host.revert("m1", step="more", dry_run=True)).restored == ["b"]
        assert (await host.revert("m1")).messages == ["m1", "m2", "m3"]
        assert_tree(worktree, {"a": "0", "b": "0", "d": "2"})
        assert (await host.unrevert()).restored == ["a", "b", "c", "e"]
        assert (await host.restore("m1")).deleted == ["c", "d", "e"]
        status = await host.status()
        assert (status.head, status.undone, status.changed) == ("m3", [], 0)
        tree = await host.track()
        assert (await host.take_snapshot()).tree == tree
        assert (await host.patch(tree)).files == []
        assert await host.diff(tree) == []
        assert host.recovered == []

    run(story)
    assert (host.worktree, host.session) == (worktree.resolve(), "default")


def test_which_session_is_meant_and_what_is_there_can_be_narrowed(host: AsyncShadow, worktree: Path) -> None:
    async def story() -> None:
        with pytest.raises(NotWrapped):
            await AsyncShadow(worktree).only_wrapped().messages()
        make_tree(worktree, {"a": "0"})
        await host.wrap()
        await host.for_session("other").snapshot("m1")
        last = await host.for_last_session()
        assert last.session == "other"
        assert [each.id for each in await last.only_look().messages()] == ["m1"]

    run(story)


def test_the_store_of_a_moved_directory_is_adopted(host: AsyncShadow, worktree: Path) -> None:
    async def story() -> None:
        make_tree(worktree, {"a": "0"})
        await host.snapshot("m1")
        copy = worktree.with_name("moved")
        shutil.copytree(worktree, copy)
        shutil.rmtree(worktree)
        adopted = await AsyncShadow.adopt(copy, host.store, settings={"min_free": 0})
        assert [each.id for each in await adopted.messages()] == ["m1"]
        await adopted.close()
        await host.close()

    run(story)


def test_a_story_of_branches(host: AsyncShadow, worktree: Path) -> None:
    lines = "".join(f"{number}\n" for number in range(9))
    make_tree(worktree, {"t": lines})

    async def write(id: str, text: str) -> None:
        async with host.message(id, text=f"work on {id}"):
            (worktree / "t").write_text(text)

    async def story() -> None:
        await host.wrap()
        await write("m1", lines.replace("2", "two"))
        await host.undo()
        await write("m2", lines.replace("6", "six"))
        await write("m3", lines.replace("6", "six").replace("8", "eight"))

        assert [each.messages for each in await host.branches()] == [["m1"]]
        assert (await host.rename_branch("work-on-m1", "first")).name == "first"
        dry = await host.switch("first", dry_run=True)
        assert (dry.messages, dry.undone) == (["m2", "m3", "m1"], [])
        assert (await host.switch("first")).head == "m1"
        assert_tree(worktree, {"t": lines.replace("2", "two")})
        assert (await host.switch("m3")).messages == ["m1", "m2", "m3"]
        assert (await host.drop_branch("first")).messages == ["m1"]
        assert [each.state for each in await host.branches()] == ["active"]

        plan = await host.plan_revert("m2", only=True)
        assert (plan.messages, plan.restored) == (["m2"], ["t"])
        outcome = await host.revert("m2", only=True)
        assert (outcome.mode, outcome.merged) == ("only", ["t"])
        assert_tree(worktree, {"t": lines.replace("8", "eight")})
        (worktree / "t").write_text(lines.replace("8", "eight").replace("0", "mine"))
        assert [each.path for each in (await host.status()).outside] == ["t"]
        assert [each.message and each.message.id for each in await host.blame("t")][:2] == [None, "m3"]
        assert (await host.undo(on_conflict="merge")).merged == ["t"]
        assert_tree(worktree, {"t": lines.replace("0", "mine")})
        (worktree / "t").write_text(lines.replace("8", "my eight"))
        assert (await host.redo(markers=True)).marked == ["t"]
        assert (await host.revert("m3", files=False)).undone == ["m3"]

    run(story)


def test_it_can_be_used_as_a_context_and_opens_again_after_it(worktree: Path) -> None:
    async def story() -> None:
        async with AsyncShadow(worktree, settings={"min_free": 0}, session="other") as host:
            tree = await host.track()
        assert await host.track() == tree
        await host.close()
        assert host.session == "other"

    run(story)


def test_another_session_has_messages_of_its_own(host: AsyncShadow, worktree: Path) -> None:
    async def story() -> None:
        other = host.for_session("other")
        assert (host.session, other.session) == ("default", "other")
        async with host.message("m1"):
            make_tree(worktree, {"a": "1"})
        async with other.message("m2"):
            make_tree(worktree, {"b": "2"})
        assert [each.id for each in await host.messages()] == ["m1"]
        assert [each.id for each in await other.messages()] == ["m2"]
        assert (await host.undo()).messages == ["m1"]
        assert_tree(worktree, {"b": "2"})

    run(story)


def test_errors_come_out_as_they_are(host: AsyncShadow, worktree: Path) -> None:
    async def story() -> None:
        await host.track()
        with pytest.raises(UnknownMessage):
            await host.revert("nobody")
        make_tree(worktree, {"a": "0"})
        await host.snapshot("m1")
        make_tree(worktree, {"a": "1"})
        await host.snapshot("m2")
        (worktree / "a").write_text("mine")
        with pytest.raises(Conflict) as caught:
            await host.undo()
        assert [each.path for each in caught.value.conflicts] == ["a"]
        outcome = await host.undo(on_conflict="overwrite", confirm=lambda plan: True)
        assert outcome.restored == ["a"]

    run(story)


# Bodies that raise or are cancelled


class Accident(Exception):
    """The exception that a body raises."""


def test_what_a_body_did_is_recorded_when_it_raises(host: AsyncShadow, worktree: Path) -> None:
    async def work() -> None:
        async with host.message("m1"), host.step("s"):
            make_tree(worktree, {"a": "1"})
            raise Accident

    async def story() -> None:
        with pytest.raises(Accident):
            await work()
        (message,) = await host.messages()
        assert message.state == "active"
        assert [each.path for each in message.patch.files] == ["a"]
        assert not message.inferred

    run(story)


def test_what_a_body_did_is_recorded_when_it_is_cancelled(host: AsyncShadow, worktree: Path) -> None:
    async def work(started: asyncio.Event) -> None:
        async with host.message("m1"), host.step("s"):
            make_tree(worktree, {"a": "1"})
            started.set()
            await asyncio.Event().wait()

    async def story() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(work(started))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (message,) = await host.messages()
        assert message.state == "active"
        assert [each.path for each in message.patch.files] == ["a"]
        assert not message.inferred

    run(story)


def test_an_end_that_fails_is_noted_on_what_the_body_raised(host: AsyncShadow, worktree: Path) -> None:
    async def work() -> None:
        async with host.message("m1"):
            worktree.rename(worktree.parent / "away")
            raise Accident

    async def story() -> None:
        with pytest.raises(Accident) as caught:
            await work()
        (worktree.parent / "away").rename(worktree)
        assert any("its end was not recorded" in note for note in caught.value.__notes__)

    run(story)


def test_a_message_that_cannot_begin_has_no_body(host: AsyncShadow) -> None:
    async def story() -> None:
        await host.snapshot("m1")
        with pytest.raises(shadowtree.DuplicateMessage):
            async with host.message("m1"):
                pytest.fail("the body ran")

    run(story)


# Cancelled during a call


class Gate:
    """Holds a call in its thread until it is released."""

    def __init__(self, host: AsyncShadow, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.finished = threading.Event()
        inner: Shadow = vars(host)["_shadow"]
        real = getattr(inner, name)

        def held(*values: object, **named: object) -> object:
            self.entered.set()
            assert self.open.wait(30)
            try:
                return real(*values, **named)
            finally:
                self.finished.set()

        monkeypatch.setattr(inner, name, held)


async def reached(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 30)


@pytest.fixture
def one_message(host: AsyncShadow, worktree: Path) -> AsyncShadow:
    """A message that changed a file."""
    make_tree(worktree, {"a": "0"})
    inner: Shadow = vars(host)["_shadow"]
    inner.wrap()
    make_tree(worktree, {"a": "1"})
    inner.snapshot("m1")
    return host


@pytest.mark.parametrize("times", [1, 3])
def test_who_is_cancelled_waits_for_the_act_that_runs(
    one_message: AsyncShadow, worktree: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A cancelled coroutine ends only when the act in its thread has ended."""
    gate = Gate(one_message, "undo", monkeypatch)

    async def story() -> None:
        task = asyncio.create_task(one_message.undo())
        await reached(gate.entered)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert not task.done()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.finished.is_set()
        assert_tree(worktree, {"a": "0"})
        assert (await one_message.status()).undone == ["m1"]

    run(story)


def test_an_act_that_fails_after_its_caller_was_cancelled_leaves_no_noise(
    one_message: AsyncShadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio would report a task whose exception nobody retrieves."""
    (worktree / "a").write_text("mine")
    gate = Gate(one_message, "undo", monkeypatch)
    complaints: list[object] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        task = asyncio.create_task(one_message.undo())
        await reached(gate.entered)
        task.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(story)
    assert complaints == []
    assert_tree(worktree, {"a": "mine"})


def test_a_message_whose_begin_is_cancelled_has_ended(
    host: AsyncShadow, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message has begun in its thread, so it is ended, and another one can begin."""
    gate = Gate(host, "begin", monkeypatch)

    async def work() -> None:
        async with host.message("m1"):
            pytest.fail("the body ran")

    async def story() -> None:
        task = asyncio.create_task(work())
        await reached(gate.entered)
        task.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [(each.id, each.state) for each in await host.messages()] == [("m1", "active")]
        async with host.message("m2") as message:
            make_tree(worktree, {"a": "1"})
        assert [each.path for each in message.patch.files] == ["a"]
        assert message.warnings == []

    run(story)


def test_a_step_whose_begin_is_cancelled_has_ended(
    host: AsyncShadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(host, "begin_step", monkeypatch)

    async def work() -> None:
        async with host.step("s"):
            pytest.fail("the body ran")

    async def story() -> None:
        await host.begin("m1")
        task = asyncio.create_task(work())
        await reached(gate.entered)
        task.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        (message,) = await host.messages()
        assert message.state == "open"
        assert [(each.name, each.inferred, each.after) for each in message.steps] == [
            ("s", False, message.before)
        ]

    run(story)


def test_a_message_that_begins_while_the_loop_shuts_down_has_ended(
    host: AsyncShadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.run` cancels every task that is left, at once."""
    gate = Gate(host, "begin", monkeypatch)
    left: list[asyncio.Task[None]] = []  # keeps the block, which would end when it is collected

    async def work() -> None:
        async with host.message("m1"):
            pytest.fail("the body ran")

    async def story() -> None:
        left.append(asyncio.create_task(work()))
        await reached(gate.entered)
        threading.Timer(0.1, gate.open.set).start()

    run(story)
    (message,) = host._shadow.messages()
    assert (message.id, message.state) == ("m1", "active")


def test_a_subscription_whose_begin_is_cancelled_is_closed(
    host: AsyncShadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(host, "subscribe", monkeypatch)

    async def story() -> None:
        await host.wrap()
        known = set(threading.enumerate())
        task = asyncio.ensure_future(anext(host.subscribe()))
        await reached(gate.entered)
        task.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [each for each in set(threading.enumerate()) - known if "asyncio" not in each.name]

    run(story)


# Several at once


def test_several_tasks_share_one_shadow(host: AsyncShadow, worktree: Path) -> None:
    files = make_tree(worktree.parent / "files", {f"f{number}": str(number) for number in range(8)})

    async def work(number: int) -> None:
        # A file that is written in place may be recorded by another task while it is still empty.
        (files / f"f{number}").rename(worktree / f"f{number}")
        await host.snapshot(f"m{number}")

    async def story() -> None:
        await host.wrap()
        await _together(work(number) for number in range(8))
        messages = await host.messages()
        assert sorted(each.id for each in messages) == [f"m{number}" for number in range(8)]
        found = [each.path for message in messages for each in message.patch.files]
        assert sorted(found) == [f"f{number}" for number in range(8)]
        assert (await host.undo(8)).turns == 8
        assert_tree(worktree, {})

    run(story)


def test_the_loop_goes_on_while_an_act_runs(
    one_message: AsyncShadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(one_message, "undo", monkeypatch)

    async def story() -> None:
        act = asyncio.create_task(one_message.undo())
        await reached(gate.entered)
        assert [each.id for each in await one_message.messages()] == ["m1"]
        gate.open.set()
        assert (await act).turns == 1

    run(story)


async def _together(tasks: Iterator[Awaitable[None]]) -> None:
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("is_agreed", [True, False])
def test_a_confirmation_may_be_a_coroutine(host: AsyncShadow, worktree: Path, is_agreed: bool) -> None:
    plans: list[str] = []

    async def confirm(plan: Plan) -> bool:
        plans.append(plan.id)
        return is_agreed

    async def story() -> None:
        async with host.message("m1"):
            make_tree(worktree, {"a": "1"})
        if is_agreed:
            await host.restore("m1^", confirm=confirm)
        else:
            with pytest.raises(NotConfirmed):
                await host.restore("m1^", confirm=confirm)
        assert len(plans) == 1
        assert_tree(worktree, {} if is_agreed else {"a": "1"})

    run(story)
