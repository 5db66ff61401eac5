"""Worktrees that are served: recording what happens by itself, begun and ended by several at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shadowtree
from shadowtree.daemon.served import Served, Wish
from tests.daemons import wait_until
from tests.trees import make_tree


@pytest.fixture
def served(worktree: Path) -> Iterator[Served]:
    make_tree(worktree, {"a": "1"})
    served = Served(Wish(str(worktree), None))
    served.warm_up(None)
    yield served
    served.drop()


def record(served: Served, holder: object, quiet_s: float = 60.0) -> None:
    wish = Wish(served.worktree, None, auto_s=quiet_s)
    served.record_bursts(wish, holder, lambda message: None, lambda error: None)


def forget(served: Served, holder: object) -> None:
    served.forget_wish(holder, lambda message: None, lambda error: None)


def count_recorders() -> int:
    return sum(thread.name == "auto" for thread in threading.enumerate())


def test_to_ask_for_the_status_is_no_use(served: Served) -> None:
    """It would keep an unused worktree served, and put off what is done in idle time."""
    before = served.idle_since_s, served.uses, served.used_s

    told = served.to_dict()["watching"]

    assert told is not None
    assert told["active"]
    assert (served.idle_since_s, served.uses, served.used_s) == before


def test_no_command_pays_for_shelves_while_idle_time_is_to_come(
    served: Served, worktree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shadowtree.intake._MANY_PACKS", 2)
    monkeypatch.delattr("shadowtree.shelving.Shelving.shelve_due")

    for number in range(5):
        make_tree(worktree, {"file": f"{number}"})
        served.shadow.snapshot(f"m{number}")

    monkeypatch.undo()
    assert served.shadow.tidy(60)
    assert served.shadow.check().ok


def test_what_is_dropped_while_recording_begins_is_not_recorded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody could end it: no list has it any more."""
    has_begun, may_go_on = threading.Event(), threading.Event()

    def begin(auto: shadowtree.Auto) -> None:
        has_begun.set()
        may_go_on.wait()

    with monkeypatch.context() as patch:
        patch.setattr(shadowtree.Auto, "begin", begin)
        beginning = threading.Thread(target=record, args=(served, None))
        beginning.start()
        has_begun.wait()
        dropping = threading.Thread(target=served.drop)
        dropping.start()
        wait_until(lambda: served.is_dropped)
        may_go_on.set()
        beginning.join()
        dropping.join()

    assert served.auto is None
    assert count_recorders() == 0


def test_what_is_dropped_before_recording_begins_is_not_recorded(served: Served) -> None:
    served.drop()

    record(served, None)

    assert served.auto is None
    assert count_recorders() == 0


def test_who_records_goes_on_when_another_one_who_wanted_it_too_has_gone(served: Served) -> None:
    record(served, "first", 60.0)
    record(served, "second", 30.0)
    assert served.to_dict()["auto_s"] == 30.0

    forget(served, "second")
    assert served.to_dict()["auto_s"] == 60.0

    forget(served, "first")
    assert served.to_dict()["auto_s"] is None
    assert count_recorders() == 0


def test_a_bug_in_recording_is_told(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """`watch status` must not say that bursts are recorded when they are not."""

    def fail(auto: shadowtree.Auto, stop: threading.Event) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(shadowtree.Auto, "turn", fail)
    record(served, None)

    wait_until(lambda: served.to_dict()["failure"] == "RuntimeError: a bug")
