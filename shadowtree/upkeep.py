"""What keeps a store small and sound."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import ExitStack, closing, suppress
from time import gmtime, monotonic, strftime, time_ns

from shadowtree.disk import require_own
from shadowtree.door import Door
from shadowtree.errors import (
    InvalidInput,
    Locked,
    NotWrapped,
    OutOfSpace,
    ShadowError,
    StoreDamaged,
    StoreFailed,
    UnknownName,
    UnsafePath,
)
from shadowtree.frozen import replace
from shadowtree.layout import StoreLayout
from shadowtree.model import Message
from shadowtree.settings import read_seconds
from shadowtree.snapshot import Progress
from shadowtree.store import open_up, refuse_another

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.check import Check
    from shadowtree.figures import Swept
    from shadowtree.forgetting import Forgetting
    from shadowtree.journal import Journal
    from shadowtree.opened import OpenStore
    from shadowtree.recorder import Recorder
    from shadowtree.repair import Repair
    from shadowtree.reports import CheckReport, Forgotten, Purged
    from shadowtree.retention import Keep, Remaining
    from shadowtree.sweeping import Sweep
    from shadowtree.totalbudget import Look


class Upkeep(Door):
    """The upkeep of a shadow's store."""

    def tidy(self, seconds: float) -> bool:
        """Spend up to so long on storing more tightly what was recorded; True when nothing is left to do.

        For idle time: whoever else is at work is not waited for. Nothing goes, unless all stores together are
        over their budget: then they shrink, and it is told with the next record. Whoever calls this once goes
        on to, since looks at that budget are left to it.
        """
        deadline = monotonic() + seconds
        with self._mutex:
            self._gate.idle.is_used = True
            try:
                with self._gate.locked(timeout_s=0) as opened:
                    while opened.shelve_idly():
                        if monotonic() >= deadline:
                            return False
            except Locked:
                return False
            return not self._gate.idle.has_to_look or self._look_around_idly(deadline)

    def _look_around_idly(self, deadline: float) -> bool:
        """Let stores shrink, this one too, if all together take too much; True if that is done."""
        from shadowtree.totalbudget import shrink_stores

        idle, stores = self._gate.idle, self._gate.stores
        assert stores is not None
        now_ms = time_ns() // 1_000_000
        look = shrink_stores(stores, self._gate.settings, now_ms, lambda: monotonic() >= deadline)
        idle.told += look.told
        idle.has_to_look = not look.is_through
        with suppress(ShadowError):
            # Whoever cannot write it down finds the same with the next look.
            self._note_if_over(look)
        return look.is_through

    # Retention

    def forget(
        self,
        *,
        keep_last: int | None = None,
        keep_within: float | str | None = None,
        keep_sessions: Collection[str] = (),
        dry_run: bool = False,
        gc: bool = True,
    ) -> Forgotten:
        """Forget old messages of all sessions, and with `gc` free what only they needed.

        By the settings: what is neither among the newest `keep_last` of its session nor within `keep_within`
        goes, but for the newest `keep_turns` turns. If one of the first two is given here, it alone counts,
        or both do; then only the newest turn stays in any case. Pinned and open messages are never forgotten.
        With `gc`, nothing is forgotten that could not be freed because of damage, or for want of room. If
        nothing is given here, and with `gc`, the oldest go until the store is within its budget, too.
        """
        keep = self._read_keep(keep_last, keep_within)
        is_by_settings = keep_last is None and keep_within is None and not keep_sessions and gc
        if dry_run:
            return self._foresee_forgetting(keep, keep_sessions, with_budget=is_by_settings)
        done = self._forget_old(keep, keep_sessions, gc=gc)
        return self._forget_over_budgets(done, lambda: None) if is_by_settings else done

    def gc(self) -> Swept:
        """Forget what the settings and the budgets do not keep, and free what nothing that is left needs.

        If all stores together are over their budget, others shrink too.
        """
        from shadowtree.figures import Swept

        done = self._forget_old(self._read_keep(None, None), (), gc=True)
        done = self._forget_over_budgets(done, self._look_through)
        return Swept(done.removed, done.freed, done.warnings)

    def _forget_old(self, keep: Keep, keep_sessions: Collection[str], *, gc: bool) -> Forgotten:
        """Forget what is not to be kept, and with `gc` free what only that needed."""
        from shadowtree.forgetting import forget
        from shadowtree.reports import Forgotten
        from shadowtree.sweeping import Sweep

        now_ms = time_ns() // 1_000_000
        sweep = Sweep(is_brief=True)
        with self._mutex, self._gate.locked() as opened:
            planned = _plan(opened, keep, keep_sessions, now_ms)
            if not planned.is_nothing:
                if gc:
                    sweep.prove(opened, planned.trees)
                forget(opened.journal, planned, now_ms)
        if gc:
            self._sweep(sweep)
        return Forgotten(planned.messages, len(planned.trees), sweep.removed, sweep.freed, False)

    def _forget_over_budgets(self, done: Forgotten, look_around: Callable[[], Look | None]) -> Forgotten:
        """Keep the budgets as it is done after a record; tell of that with what was forgotten before."""
        from shadowtree.budget import Relief

        relief = Relief()
        self._relieve(relief, look_around)
        if self._tell_still_over() and not relief.forgotten:
            # Where nothing may be forgotten, there may be something that a brief sweep left.
            self._sweep_for(relief)
        return replace(
            done,
            messages=[*done.messages, *(each for more in relief.forgotten for each in more.messages)],
            trees=done.trees + sum(len(more.trees) for more in relief.forgotten),
            removed=done.removed + relief.removed,
            freed=done.freed + relief.freed,
            warnings=[*relief.lines, *relief.told, *self._tell_still_over()],
        )

    def _tell_still_over(self) -> list[str]:
        from shadowtree.budget import tell_still_over

        with self._mutex:
            return tell_still_over(self._gate.open(), self._gate.settings)

    def _foresee_forgetting(
        self, keep: Keep, keep_sessions: Collection[str], *, with_budget: bool
    ) -> Forgotten:
        from shadowtree.budget import plan_over, tell_foreseen
        from shadowtree.reports import Forgotten

        with self._mutex, self._gate.locked() as opened:
            settings = self._gate.settings
            old = _plan(opened, keep, keep_sessions, time_ns() // 1_000_000)
            planned = plan_over(opened, settings, old) if with_budget else old
            more = len(planned.messages) - len(old.messages)
            warnings = [tell_foreseen(more, opened, settings)] if planned is not old else []
        return Forgotten(planned.messages, len(planned.trees), 0, 0, True, warnings)

    def pin(self, id: str) -> Message:
        """Keep a message from being forgotten."""
        return self._record(lambda recorder: recorder.pin(id), wraps=False, takes=False)

    def unpin(self, id: str) -> Message:
        """Let a message be forgotten when its time comes."""
        return self._record(lambda recorder: recorder.unpin(id), wraps=False, takes=False)

    # Purging

    def purge(
        self,
        what: str | os.PathLike[str],
        *,
        everywhere: bool = False,
        dry_run: bool = False,
        confirm: Callable[[Purged], bool] | None = None,
    ) -> Purged:
        """Remove a path, or a content by its id, from everything that is recorded, for good.

        A path is relative to the worktree; of a directory all goes. Nothing is known of it afterwards, in any
        tree, and no snapshot covers it until `allow` is called; the file itself is left alone. If other paths
        hold the same bytes, those stay, unless it is `everywhere`. `confirm` is asked before anything goes.
        """
        from shadowtree.doomed import read_doomed
        from shadowtree.purging import purge

        doomed = read_doomed(what, str(self._gate.worktree))
        with self._mutex, self._gate.locked() as opened:
            return purge(
                opened,
                doomed,
                everywhere=everywhere,
                dry_run=dry_run,
                confirm=confirm,
                time_ms=time_ns() // 1_000_000,
            )

    def allow(self, what: str | os.PathLike[str]) -> list[str]:
        """Cover a path or a content again that was purged, from the next snapshot on; tell what that is."""
        from shadowtree.doomed import read_doomed
        from shadowtree.purging import allow

        doomed = read_doomed(what, str(self._gate.worktree))
        with self._mutex, self._gate.locked() as opened:
            return allow(opened, doomed)

    def destroy(self) -> int:
        """Remove the store whole, with all that was recorded, and tell how many bytes that frees.

        The worktree stays as it is; what was interrupted in it is made good first. At any moment there is all
        of the store or none. Raise StoreFailed if something in it is not shadowtree's.
        """
        with self._mutex:
            freed = self._gate.destroy()
            self._dismiss()
            return freed

    def _read_keep(self, keep_last: int | None, keep_within: float | str | None) -> Keep:
        from shadowtree.retention import Keep

        settings = self.settings
        if keep_last is None and keep_within is None:
            return Keep(settings.keep_last, int(settings.keep_within * 1000), max(1, settings.keep_turns))
        if keep_last is not None and keep_last < 1:
            raise InvalidInput(f"a number of messages to keep is 1 or more, not {keep_last}")
        within_s = 0.0 if keep_within is None else read_seconds("keep_within", keep_within)
        return Keep(keep_last or 0, int(within_s * 1000), 1)

    # Soundness

    def check(self, *, read_data: bool = False, progress: Progress | None = None) -> CheckReport:
        """Look whether the store holds what was put there, and name the messages that are hurt if not.

        With `read_data` every stored object is read and hashed; `progress` is called with how many were, and
        how many there are. Works on a store that is too damaged to be opened. Changes nothing, but as any
        command does, it finishes or takes back an act that was interrupted first. Raise WorktreeReplaced if
        the store is another directory's.
        """
        with self._mutex:
            self._require_store()
            # What is wrong with a store that cannot be opened is just what is asked for.
            with suppress(ShadowError):
                self._gate.open()
            report = self._look_at_store(read_data, progress)
            if report.ok and not report.harmless:
                return report
            # Somebody at work may remove what was forgotten, or not be through: what is still wrong while
            # nobody is at work is wrong.
            try:
                with self._gate.held():
                    return self._look_at_store(read_data, progress)
            except Locked as error:
                return _with_doubt(report, error)
            except (StoreFailed, OutOfSpace, UnsafePath):
                return report

    def repair(
        self, *, dry_run: bool = False, forget_lost: bool = False, progress: Progress | None = None
    ) -> CheckReport:
        """Make good what a check that reads everything finds, as far as that can be proved, and check again.

        What is changed is copied into the store's quarantine first. Lost content that is still in the
        worktree is stored again. What stays lost is in the report, with the messages that it hurts; with
        `forget_lost` these are forgotten. Raise WorktreeReplaced if the store is another directory's.
        """
        from shadowtree.check import Check

        with self._mutex:
            self.close()
            if dry_run:
                return self._foresee_repair(progress)
            opened = self._open_up()
            self._require_store()
            with self._gate.held(), closing(Check(self._layout, self._gate.worktree, progress)) as found:
                found.run(read_data=True)
                repair = self._start_repair(found, dry_run=False)
                repair.run()
            healed = self._heal() if repair.has_to_heal else []
            with self._gate.held():
                healed += self._remake() if repair.has_to_heal else []
            healed += self._forget_lost() if forget_lost else []
            with self._gate.held():
                after = self._look_at_store(True, progress)
            return replace(after, repaired=[*opened, *repair.done, *healed], quarantine=repair.quarantine)

    @property
    def _layout(self) -> StoreLayout:
        return StoreLayout(self._gate.store)

    def _require_store(self) -> None:
        """Refuse where there is no store, or another directory's, as any command does."""
        if not self._gate.is_wrapped:
            raise NotWrapped(self._gate.worktree)
        refuse_another(self._gate.store, self._gate.worktree)

    def _look_at_store(self, read_data: bool, progress: Progress | None) -> CheckReport:
        from shadowtree.check import Check

        with closing(Check(self._layout, self._gate.worktree, progress)) as check:
            return check.run(read_data=read_data)

    def _start_repair(self, found: Check, dry_run: bool) -> Repair:
        from shadowtree.repair import Repair

        now_ns = time_ns()
        name = strftime("%Y%m%dT%H%M%S", gmtime(now_ns // 10**9)) + f".{now_ns // 10**6 % 1000:03}Z"
        return Repair(found, self._layout, self._gate.worktree, name=name, dry_run=dry_run)

    def _foresee_repair(self, progress: Progress | None) -> CheckReport:
        from shadowtree.check import Check

        self._require_store()
        with ExitStack() as stack:
            # Where the lock cannot be taken for the modes of files, that is what has to be told.
            with suppress(StoreFailed):
                stack.enter_context(self._gate.held())
            found = stack.enter_context(closing(Check(self._layout, self._gate.worktree, progress)))
            report = found.run(read_data=True)
            repair = self._start_repair(found, dry_run=True)
            repair.run()
        return replace(report, repaired=repair.done, dry_run=True)

    def _open_up(self) -> list[str]:
        """Mend the modes that keep us from everything else, the lock too."""
        if not self._gate.is_wrapped:
            raise NotWrapped(self._gate.worktree)
        require_own(self._gate.store)
        return list(open_up(self._gate.store))

    def _remake(self) -> list[str]:
        """Make again what is lost and not in the worktree as it is now, from what else is known of it."""
        from shadowtree.check import Check

        with closing(Check(self._layout, self._gate.worktree)) as check:
            check.run()
            repair = self._start_repair(check, dry_run=False)
            repair.remake()
        return repair.done

    def _forget_lost(self) -> list[str]:
        """Forget the messages, acts and trees that need what is lost, if that frees the store of it."""
        from shadowtree.check import Check
        from shadowtree.sweeping import Sweep

        with closing(Check(self._layout, self._gate.worktree)) as check:
            check.run()
        if not check.hurt_trees and not check.hurt_events:
            return []
        sweep = Sweep()
        try:
            done = [self._forget_hurt(check, sweep)]
        except ShadowError as error:
            return [f"what needs what is lost could not be forgotten: {error}"]
        try:
            self._sweep(sweep)
        except ShadowError as error:
            done.append(f"what was forgotten is not freed yet: {error}")
        return done

    def _forget_hurt(self, check: Check, sweep: Sweep) -> str:
        """Forget what a check found hurt, after a proof that the sweep can be done then; tell what it was."""
        from shadowtree.forgetting import forget, plan_forgetting, read_remaining
        from shadowtree.retention import choose_lost

        with self._gate.locked() as opened:
            remaining = read_remaining(opened.journal)
            choice = choose_lost(remaining, check.hurt_messages, check.hurt_events, check.hurt_trees)
            _refuse_staying(opened.journal, remaining, check.hurt_messages - set(choice.messages))
            planned = plan_forgetting(opened.journal, opened.objects, choice)
            sweep.prove(opened, planned.trees)
            forget(opened.journal, planned, time_ns() // 1_000_000)
        counts = f"messages: {len(planned.messages)}, trees: {len(planned.trees)}"
        return f"what needs what is lost was forgotten; {counts}"

    def _heal(self) -> list[str]:
        """Take a snapshot that trusts nothing: whatever the worktree has and the store has not is stored."""

        def take(recorder: Recorder) -> None:
            with recorder.take() as taken, taken.record(recorder.time_s):
                pass

        try:
            # Whatever the budget says: nothing is to be forgotten because something is lost.
            self._record(take, wraps=False, takes=False)
        except ShadowError as error:
            return [f"nothing could be healed from the worktree: {error}"]
        return ["what the worktree still has was stored again"]


def _with_doubt(report: CheckReport, error: Locked) -> CheckReport:
    """Say that somebody is at work, who may be what seems wrong."""
    from shadowtree.reports import Problem

    why = f"this could not be looked at once more: {error}"
    return replace(report, harmless=[*report.harmless, Problem("locked", "lock", why)])


def _plan(opened: OpenStore, keep: Keep, keep_sessions: Collection[str], now_ms: int) -> Forgetting:
    """Find out what is not to be kept, by age and number. Changes nothing."""
    from shadowtree.forgetting import plan_forgetting, read_remaining
    from shadowtree.retention import choose

    keep = _with_sessions(opened.journal, keep, keep_sessions)
    choice = choose(read_remaining(opened.journal), keep, now_ms)
    return plan_forgetting(opened.journal, opened.objects, choice)


def _with_sessions(journal: Journal, keep: Keep, names: Collection[str]) -> Keep:
    numbers = {name: journal.session_number(name) for name in names}
    for name, number in numbers.items():
        if number is None:
            raise UnknownName(name, f"no session is called {name!r}")
    return replace(keep, sessions=frozenset(number for number in numbers.values() if number is not None))


def _refuse_staying(journal: Journal, remaining: Remaining, hurt: Collection[int]) -> None:
    """Raise StoreDamaged if messages that need what is lost are never forgotten."""
    staying = [each.number for each in remaining.messages if each.number in hurt]
    if staying:
        rows = journal.messages_by_number(staying)
        named = ", ".join(rows[number].id for number in staying)
        raise StoreDamaged(f"messages that are pinned or open need it: {named}")
