"""Run a check or a repair on a store that may be too damaged to be opened: which lock, in which order."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, suppress

from shadowtree.base.errors import Locked, OutOfSpace, ShadowError, StoreFailed, UnsafePath
from shadowtree.base.frozen import replace
from shadowtree.check.check import Check, Progress
from shadowtree.check.repair import Repair
from shadowtree.results.reports import CheckReport, Problem
from shadowtree.store.layout import StoreLayout

Held = Callable[[], AbstractContextManager[None]]
"""Takes the lock without opening the store."""


def check_store(
    held: Held, store: str, worktree: str, *, read_data: bool, progress: Progress | None
) -> CheckReport:
    """Check a store, and once more under the lock if anything seems wrong.

    Another process may be in the middle of a write: only what is still wrong under the lock is wrong.
    """
    report = check_once(store, worktree, read_data=read_data, progress=progress)
    if report.ok and not report.harmless:
        return report
    try:
        with held():
            return check_once(store, worktree, read_data=read_data, progress=progress)
    except Locked as error:
        doubt = Problem("locked", "lock", f"this could not be looked at once more: {error}")
        return replace(report, harmless=[*report.harmless, doubt])
    except (StoreFailed, OutOfSpace, UnsafePath):
        return report


def check_once(
    store: str, worktree: str, *, read_data: bool, progress: Progress | None = None
) -> CheckReport:
    """Check a store as it is now."""
    with closing(Check(StoreLayout(store), worktree, progress)) as check:
        return check.run(read_data=read_data)


def find_hurt(store: str, worktree: str) -> tuple[set[int], set[int], set[int]]:
    """Find the messages, events and trees, by their numbers, that need something that is lost."""
    with closing(Check(StoreLayout(store), worktree)) as check:
        check.run()
        return set(check.hurt_messages), set(check.hurt_events), set(check.hurt_trees)


def repair_store(held: Held, store: str, worktree: str, now_ns: int, progress: Progress | None) -> Repair:
    """Repair what a check that reads everything finds, under the lock."""
    with held(), closing(Check(StoreLayout(store), worktree, progress)) as found:
        found.run(read_data=True)
        repair = Repair(found, now_ns)
        repair.run()
    return repair


def heal(record: Callable[[], object], held: Held, store: str, worktree: str, now_ns: int) -> list[str]:
    """Store again what the worktree still has: what a snapshot covers, and lost content of other files."""
    try:
        record()
        done = ["what the worktree still has was stored again"]
    except ShadowError as error:
        done = [f"nothing could be healed from the worktree: {error}"]
    with held(), closing(Check(StoreLayout(store), worktree)) as found:
        found.run()
        repair = Repair(found, now_ns)
        repair.heal_from_worktree()
    return done + repair.done


def foresee_repair(
    held: Held, store: str, worktree: str, now_ns: int, progress: Progress | None
) -> CheckReport:
    """Say what a repair would do, and change nothing."""
    with ExitStack() as stack:
        # If the modes of files keep us from the lock, that is what the report is about.
        with suppress(StoreFailed):
            stack.enter_context(held())
        found = stack.enter_context(closing(Check(StoreLayout(store), worktree, progress)))
        report = found.run(read_data=True)
        repair = Repair(found, now_ns, dry_run=True)
        repair.run()
    return replace(report, repaired=repair.done, dry_run=True)
