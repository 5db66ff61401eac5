"""Forget: mark messages, acts and trees as forgotten, in one transaction, and free what only they needed.

Marking alone frees nothing: a sweep removes what no live tree needs any more. If space should be freed, that
is proved possible before anything is marked. The lock is passed in as a function that takes it, because a
sweep releases it between two steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

from shadowtree.base.arguments import is_agreed, refuse_unknown
from shadowtree.base.errors import InvalidInput, NotConfirmed, ShadowError, StoreDamaged, UnknownName
from shadowtree.base.frozen import frozen, replace
from shadowtree.capture.open_store import OpenStore
from shadowtree.config.settings import Settings, read_seconds
from shadowtree.results.reports import Forgotten
from shadowtree.retention.gc import Locked, Sweep
from shadowtree.retention.policy import (
    Choice,
    Keep,
    Remaining,
    choose,
    choose_lost,
    choose_sessions,
    find_surplus,
    join_choices,
    list_kept,
)
from shadowtree.store.refs import list_own_refs
from shadowtree.timeline.journal import Journal
from shadowtree.timeline.position import compare_positions
from shadowtree.timeline.sqlite.schema import Event, Position

TYPE_CHECKING = False


@frozen
class Forgetting:
    """What is about to be forgotten."""

    messages: list[tuple[str, str]]
    """The session and the id of each, oldest first."""
    choice: Choice
    trees: list[int]
    """The numbers of the trees that nothing needs afterwards."""
    sessions: Sequence[int]
    """The sessions that are dropped with it: nothing of them is left afterwards."""

    @property
    def is_nothing(self) -> bool:
        """Whether everything is kept."""
        return not (self.choice.messages or self.choice.acts or self.trees or self.sessions)


if TYPE_CHECKING:
    from typing import TypedDict

    class ForgetOptions(TypedDict, total=False):
        """What is kept, and how the rest is forgotten."""

        keep_last: int | None
        """The newest messages of each session."""
        keep_within: float | str | None
        """Whatever is not older than this: seconds, or text such as `30d`."""
        keep_sessions: Collection[str]
        """Everything of these sessions."""
        dry_run: bool
        """Change nothing, and return what would be forgotten."""
        gc: bool
        """If False, free nothing yet."""

    class DropOptions(TypedDict, total=False):
        """How a session is dropped."""

        force: bool
        """Drop it even if one of its messages is open or pinned."""
        dry_run: bool
        """Change nothing, and return what would be forgotten."""
        confirm: Callable[[Forgotten], bool | Awaitable[bool]] | None
        """Called before anything is forgotten; False stops it."""


def read_keep(
    settings: Settings, keep_last: int | None = None, keep_within: float | str | None = None
) -> Keep:
    """Return what to keep: what the settings say, or, if anything is given, only that and the newest turn."""
    if keep_last is None and keep_within is None:
        return Keep(settings.keep_last, int(settings.keep_within * 1000), max(1, settings.keep_turns))
    if keep_last is not None and keep_last < 1:
        raise InvalidInput(f"keep_last must be 1 or more, not {keep_last}")
    within_s = 0.0 if keep_within is None else read_seconds("keep_within", keep_within)
    return Keep(keep_last or 0, int(within_s * 1000), 1)


def drop_session(locked: Locked, name: str, how: DropOptions) -> Forgotten:
    """Forget a whole session, and free what only it needed; its name can be used again.

    A session with an open or pinned message is refused, unless `force` is given. Nothing is locked during
    `confirm`.
    """
    refuse_unknown(how, "force", "dry_run", "confirm")
    confirm = how.get("confirm")
    if confirm is not None and not how.get("dry_run"):
        planned = drop_session(locked, name, {**how, "dry_run": True})
        if not is_agreed(confirm, planned):
            raise NotConfirmed(planned, f"forget session {name!r}")
    sweep = Sweep()
    with locked() as opened:
        forgetting = _plan_drop(opened.journal, name, is_forced=bool(how.get("force")))
        done = Forgotten(forgetting.messages, len(forgetting.trees), 0, 0, dry_run=bool(how.get("dry_run")))
        if done.dry_run:
            return done
        forget(opened, forgetting, sweep)
    sweep.run(locked)
    return replace(done, removed=sweep.removed, freed=sweep.freed)


def forget_lost(locked: Locked, messages: set[int], events: set[int], trees: set[int]) -> list[str]:
    """Forget the messages, acts and trees that need lost objects, and free them; return what was done."""
    if not events and not trees:
        return []
    sweep = Sweep()
    try:
        with locked() as opened:
            planned = _plan_lost(opened.journal, messages, events, trees)
            forget(opened, planned, sweep)
    except ShadowError as error:
        return [f"not done: messages that need lost objects forgotten: {error}"]
    counts = f"messages: {len(planned.messages)}, trees: {len(planned.trees)}"
    done = [f"everything that needs lost objects forgotten ({counts})"]
    try:
        sweep.run(locked)
    except ShadowError as error:
        done.append(f"what was forgotten has not been freed yet: {error}")
    return done


def forget(opened: OpenStore, planned: Forgetting, sweep: Sweep | None) -> None:
    """Mark all of a plan as forgotten, or nothing; with a `sweep`, only if that can free the space."""
    if list_own_refs(opened.layout.store):
        from shadowtree.store.dulwich_refs import drop_own_refs

        drop_own_refs(opened.layout)
        opened.objects.refresh()
    if sweep is not None:
        sweep.prove(opened, planned.trees)
    journal, time_ms = opened.journal, opened.limits.clock_ns() // 1_000_000
    with journal.transaction():
        journal.retention.forget_messages(planned.choice.messages, time_ms)
        journal.retention.forget_acts(planned.choice.acts, time_ms)
        journal.retention.forget_trees(planned.trees, time_ms)
        journal.retention.forget_sessions(planned.sessions, time_ms)
        sessions = journal.session_names()
        journal.retention.forget_changes(sessions)
        for branch in (branch for session in sessions for branch in journal.branches(session)):
            rows = journal.line(branch.tip, (branch.fork or 0) + 1)
            if all(row.forgotten_ms is not None for row in rows):
                journal.drop_branch(branch.number)


# Plans, which change nothing


def plan_old(
    opened: OpenStore,
    keep: Keep,
    session: str | None = None,
    keep_sessions: Collection[str] = (),
    *,
    most_sessions: int = 0,
) -> Forgetting:
    """Find what is not kept, of one session or of all, by age and number, and surplus sessions."""
    journal = opened.journal
    sessions = frozenset(_require_session(journal, name) for name in keep_sessions)
    remaining = read_remaining(journal)
    if session is not None:
        remaining = remaining.of_session(journal.session_number(session))
    surplus = find_surplus(remaining, most_sessions)
    old = choose(remaining, replace(keep, sessions=sessions), opened.limits.clock_ns() // 1_000_000)
    return plan_forgetting(journal, join_choices(old, choose_sessions(remaining, surplus)), surplus)


def _require_session(journal: Journal, name: str) -> int:
    number = journal.session_number(name)
    if number is None:
        raise UnknownName(name, f"no session named {name!r}")
    return number


def _plan_drop(journal: Journal, name: str, *, is_forced: bool) -> Forgetting:
    number, remaining = _require_session(journal, name), read_remaining(journal)
    kept = list_kept(remaining, number)
    if kept and not is_forced:
        id = journal.message(kept[0]).id
        raise InvalidInput(f"message {id!r} of session {name!r} is open or pinned; use force to drop it")
    return plan_forgetting(journal, choose_sessions(remaining, [number]), [number])


def _plan_lost(journal: Journal, messages: set[int], events: set[int], trees: set[int]) -> Forgetting:
    """Plan to forget everything that is hurt; raise StoreDamaged if some of it is pinned or open."""
    remaining = read_remaining(journal)
    choice = choose_lost(remaining, messages, events, trees)
    hurt = messages - set(choice.messages)
    staying = [each.number for each in remaining.messages if each.number in hurt]
    if staying:
        rows = journal.messages_by_number(staying)
        named = ", ".join(rows[number].id for number in staying)
        raise StoreDamaged(f"pinned or open messages need it: {named}")
    return plan_forgetting(journal, choice)


def plan_forgetting(journal: Journal, choice: Choice, sessions: Sequence[int] = ()) -> Forgetting:
    """Find the trees that nothing needs once the choice is forgotten; `sessions` are dropped with it."""
    journal.require_sound()
    names = journal.session_names()
    rows = journal.messages_by_number(choice.messages)
    trees = {record.number for record in journal.live_trees()} - find_needed(journal, choice)
    messages = [(names[rows[number].session], rows[number].id) for number in choice.messages]
    return Forgetting(messages, choice, sorted(trees), sessions)


def read_remaining(journal: Journal) -> Remaining:
    """Read what is left of a store."""
    open_: set[int] = set()
    in_force: set[int] = set()
    out: dict[int, int] = {}
    last_acts: set[int] = set()
    passed: set[int] = set()
    for session in journal.session_names():
        last = journal.last_event(session)
        if last is None:
            continue
        position = last.position
        if position.open is not None:
            open_.add(position.open)
        out.update((taken.message, taken.newest) for taken in position.out)
        if position.head is not None:
            line = journal.line(position.head, journal.retention.first_live(session))
            in_force |= {row.number for row in line if not position.is_out(row.number)}
        for act in _list_last_acts(journal, session):
            last_acts.add(act.number)
            passed |= _find_passed(journal, act)
    rows = journal.retention
    return Remaining(
        rows.ages(),
        rows.live_acts(),
        rows.bare_trees(),
        open=frozenset(open_),
        in_force=frozenset(in_force),
        out=out,
        last_acts=frozenset(last_acts),
        passed=frozenset(passed),
    )


def _list_last_acts(journal: Journal, session: int) -> Iterator[Event]:
    """List the acts since the newest message, newest first, up to one that changed something."""
    newest = journal.last_of_messages(session)
    for act in journal.acts_of(session):
        if act.forgotten_ms is not None or (newest is not None and act.number < newest.number):
            return
        yield act
        if _find_passed(journal, act) or journal.changes_of([act.number])[act.number]:
            return


def _find_passed(journal: Journal, act: Event) -> set[int]:
    """Find the messages that an act undid or redid."""
    before = journal.last_event(act.session, before=act.number)
    then = Position() if before is None else before.position
    undone, redone = compare_positions(act.position, then, journal.message)
    return {row.number for row in (*undone, *redone)}


def find_needed(journal: Journal, choice: Choice) -> set[int]:
    """Find the trees that are still needed once the choice is forgotten.

    These are the last tree; the trees of live messages, steps and acts; bare trees that stay; and, unless it
    is lost, the tree of the last wrap, from which sessions start.
    """
    gone = set(choice.messages)
    needed = {
        tree
        for named in journal.retention.named_trees()
        if named.message not in gone and named.event not in choice.acts
        for tree in named.trees
    }
    needed |= {number for number, _ in journal.retention.bare_trees()} - set(choice.bare)
    last, wrap = journal.last_tree(), journal.last_wrap()
    if last is not None:
        needed.add(last.number)
    if wrap is not None and wrap.after is not None and wrap.after not in choice.lost:
        needed.add(wrap.after)
    return needed
