"""Choose which messages, acts and trees to forget: by age, by number, by budget, by damage. Pure.

The oldest go first. Pinned and open messages are never forgotten, nor are the newest turns: the newest ones
of the store, and the newest ones in force, so that these can be undone.

    session a    m1  m3  m4 ────── m7      keep_last 2 keeps m4, m7 and m5, m6
    session b        m2p m5  m6            m2 is pinned; m1 and m3 go if they are older than keep_within too
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shadowtree.base.frozen import field, frozen
from shadowtree.timeline.sqlite.removal import Act, Age, Named


@frozen
class Keep:
    """What to keep: everything that any of these keeps."""

    last: int = 0
    """How many of the newest messages of each session."""
    within_ms: int = 0
    """Everything that is not older than this."""
    turns: int = 1
    """How many of the newest turns of the store."""
    sessions: frozenset[int] = frozenset()
    """Everything of these sessions."""


@frozen
class Remaining:
    """What is left of a store."""

    messages: list[Age]
    """Oldest first, like the other lists."""
    acts: list[Act] = field(default_factory=list)
    bare: list[tuple[int, int]] = field(default_factory=list)
    """Trees that no message and no act ever named: number, and time in seconds."""
    open: frozenset[int] = frozenset()
    """The messages that are open."""
    in_force: frozenset[int] = frozenset()
    """The messages in force that the sessions would undo first."""
    out: Mapping[int, int] = field(default_factory=dict)
    """The messages out of their lines, each with the last message recorded before it was taken out."""
    last_acts: frozenset[int] = frozenset()
    """The last acts of each session, down to the one that `unrevert` would reverse."""
    passed: frozenset[int] = frozenset()
    """The messages that those acts undid or redid: without them, nothing leads back to before the acts."""

    def of_session(self, session: int | None) -> Remaining:
        """Return what is left of one session; bare trees belong to no session."""
        messages = [each for each in self.messages if each.session == session]
        acts = [each for each in self.acts if each.session == session]
        return Remaining(messages, acts, [], self.open, self.in_force, self.out)


@frozen
class Choice:
    """What to forget."""

    messages: list[int]
    acts: list[int]
    """By the numbers of their events."""
    bare: list[int]
    """By their numbers."""
    lost: frozenset[int] = frozenset()
    """Trees with lost objects, by number: they stay only if something that stays names them."""

    @property
    def is_nothing(self) -> bool:
        """Whether everything is kept."""
        return not (self.messages or self.acts or self.bare)


def choose(remaining: Remaining, keep: Keep, now_ms: int) -> Choice:
    """Choose what is neither among the newest nor young enough."""
    protected = find_protected(remaining, keep.turns)
    newest = _find_newest(remaining.messages, keep.last)
    oldest_ms = now_ms - keep.within_ms
    old = [
        message
        for message in remaining.messages
        if message.number not in protected
        and message.number not in newest
        and message.session not in keep.sessions
        and message.time_ms < oldest_ms
    ]
    going = _without_needed(remaining, old)
    most = max(keep.last, keep.turns)
    older = remaining.bare[: max(0, len(remaining.bare) - most)]
    bare = [number for number, time_s in older if time_s * 1000 < oldest_ms]
    newest_acts = _find_newest(remaining.acts, most) | protected_acts(remaining, keep.turns)
    acts = {
        act.number
        for act in remaining.acts
        if act.number not in newest_acts and act.session not in keep.sessions and act.time_ms < oldest_ms
    }
    return Choice([each.number for each in going], sorted(acts | _find_acts(remaining, going)), bare)


def choose_sessions(remaining: Remaining, sessions: Collection[int]) -> Choice:
    """Choose all messages and acts of some sessions."""
    messages = [each.number for each in remaining.messages if each.session in sessions]
    return Choice(messages, [each.number for each in remaining.acts if each.session in sessions], [])


def list_kept(remaining: Remaining, session: int) -> list[int]:
    """List the messages that keep a session from being dropped unless forced: those open or pinned."""
    own = [each for each in remaining.messages if each.session == session]
    return [each.number for each in own if each.number in remaining.open or each.is_pinned]


def find_surplus(remaining: Remaining, most: int) -> list[int]:
    """Find the sessions beyond the `most` that last began a message, except kept ones; 0 finds none."""
    newest_first = list(dict.fromkeys(each.session for each in reversed(remaining.messages)))
    surplus = newest_first[most:] if most else []
    return sorted(session for session in surplus if not list_kept(remaining, session))


def choose_up_to(remaining: Remaining, turns: int, named: Sequence[Named], last: int) -> Choice:
    """Choose whatever began while no tree newer than `last` was recorded, if a budget may forget it.

    What leads back from the last act of each session stays: the act may have been done, and its way back
    reported, right before the budget is checked.
    """
    old = {each for each, place in _find_places(named).items() if place <= last}
    numbers = {number for number, _ in old} - find_protected(remaining, turns) - remaining.passed
    going = _without_needed(remaining, [each for each in remaining.messages if each.number in numbers])
    old_acts = {event for message, event in old if message is None and event is not None}
    old_acts -= protected_acts(remaining, turns) | remaining.last_acts
    acts = sorted(old_acts | _find_acts(remaining, going))
    bare = [number for number, _ in remaining.bare[: max(0, len(remaining.bare) - turns)] if number <= last]
    return Choice([each.number for each in going], acts, bare)


def join_choices(one: Choice, other: Choice) -> Choice:
    """Choose everything that either of two chose."""
    return Choice(
        sorted({*one.messages, *other.messages}),
        sorted({*one.acts, *other.acts}),
        sorted({*one.bare, *other.bare}),
        one.lost | other.lost,
    )


def rank_trees(named: Sequence[Named]) -> dict[int, int]:
    """Rank each named tree by the tree up to which everything must be forgotten before nothing needs it.

    A session that was idle for long starts from an old tree, which is needed as long as much newer ones:

        trees      1    2    3    4    5
        session a  a1 ───────────────▶ a2      1 is ranked as 5: it goes with a2, not before b1 and b2
        session b       b1   b2   b3
    """
    places = _find_places(named)
    ranks: dict[int, int] = {}
    for each in named:
        for tree in each.trees:
            ranks[tree] = max(ranks.get(tree, 0), places[_key_of(each)])
    return ranks


_Key = tuple[int | None, int | None]
"""A message, by its number, or an act, by its event."""


def _key_of(named: Named) -> _Key:
    return (named.message, None) if named.message is not None else (None, named.event)


def _find_places(named: Iterable[Named]) -> dict[_Key, int]:
    """Map each message and act to the tree that was the last one when it began."""
    places: dict[_Key, int] = {}
    newest = 0
    for each in named:
        newest = max((newest, *each.trees))
        places.setdefault(_key_of(each), newest)
    return places


def choose_lost(
    remaining: Remaining, messages: Collection[int], acts: Collection[int], trees: Collection[int]
) -> Choice:
    """Choose the given messages, acts and trees, which need lost objects, except pinned or open messages."""
    going = set(messages) - find_protected(remaining, 0)
    return Choice(
        [each.number for each in remaining.messages if each.number in going],
        [each.number for each in remaining.acts if each.number in acts],
        [number for number, _ in remaining.bare if number in trees],
        frozenset(trees),
    )


def protected_acts(remaining: Remaining, turns: int) -> set[int]:
    """Find the acts that neither age nor a budget forgets: those since the newest turns began."""
    turn_of = find_turns(remaining.messages)
    newest = _newest_turns(remaining.messages, turn_of, turns)
    events = [act.number for act in remaining.acts]
    if not newest:
        return set(events[max(0, len(events) - turns) :])
    first = min(each.event for each in remaining.messages if turn_of[each.number] in newest)
    return {event for event in events if event > first}


def find_protected(remaining: Remaining, turns: int) -> set[int]:
    """Find the messages that are never forgotten: pinned, open, and of the newest turns."""
    turn_of = find_turns(remaining.messages)
    in_force = [each for each in remaining.messages if each.number in remaining.in_force]
    newest = _newest_turns(remaining.messages, turn_of, turns) | _newest_turns(in_force, turn_of, turns)
    return {
        each.number
        for each in remaining.messages
        if each.is_pinned or each.number in remaining.open or turn_of[each.number] in newest
    }


def find_turns(messages: Sequence[Age]) -> dict[int, int]:
    """Map each message to its turn, named by the number of the turn's first message."""
    turn_of: dict[int, int] = {}
    present: dict[int, int] = {}
    for each in messages:
        if each.role in (None, "user") or each.session not in present:
            present[each.session] = each.number
        turn_of[each.number] = present[each.session]
    return turn_of


def _without_needed(remaining: Remaining, going: list[Age]) -> list[Age]:
    """Leave out messages that are out of a line, if messages that contain their changes stay on it."""
    numbers = {each.number for each in going}
    staying = [each for each in remaining.messages if each.number not in numbers]

    def is_needed(message: Age) -> bool:
        newest = remaining.out.get(message.number, 0)
        return newest > 0 and any(
            other.session == message.session and message.number < other.number <= newest for other in staying
        )

    return [each for each in going if not is_needed(each)]


def _newest_turns(messages: Sequence[Age], turn_of: dict[int, int], count: int) -> set[int]:
    found: set[int] = set()
    for each in reversed(messages):
        if len(found) == count and turn_of[each.number] not in found:
            break
        found.add(turn_of[each.number])
    return found


def _find_newest(items: Sequence[Age | Act], count: int) -> set[int]:
    """Find the `count` newest messages, or acts, of each session."""
    counts: dict[int, int] = {}
    found: set[int] = set()
    for each in reversed(items):
        counts[each.session] = counts.get(each.session, 0) + 1
        if counts[each.session] <= count:
            found.add(each.number)
    return found


def _find_acts(remaining: Remaining, going: Collection[Age]) -> set[int]:
    """Find the acts before a message of their session that goes: reversing them would have to pass it."""
    newest: dict[int, int] = {}
    for each in going:
        newest[each.session] = max(newest.get(each.session, 0), each.event)
    return {act.number for act in remaining.acts if act.number < newest.get(act.session, 0)}
