"""Find the target of a request: where the head goes, which messages are passed, what each path becomes.

A target is worked out from the journal and the present state; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile

from shadowtree.base.errors import ForgottenMessage, InvalidInput, UnknownMessage
from shadowtree.base.frozen import field, frozen, replace
from shadowtree.base.paths import DIRECTORY, Change, PathState, RelPath, ancestors, to_text
from shadowtree.capture.recorded_tree import list_changes
from shadowtree.revert.history import History, Route, is_same_place, paths_of, with_session
from shadowtree.revert.requests import Redo, Request, Restore, Revert, Switch, Undo, Unrevert
from shadowtree.revert.wanted import (
    Past,
    Wanted,
    join_wanted,
    narrow,
    want_across,
    want_back,
    want_forward,
    want_states,
    want_tree,
)
from shadowtree.timeline.position import (
    Span,
    Travel,
    choose_line,
    choose_only,
    choose_redo,
    choose_revert,
    choose_switch,
    choose_undo,
    compare_positions,
    find_gone,
    in_force,
    is_head_only,
    standing_acts,
    walk_back,
)
from shadowtree.timeline.resolve import resolve_message, resolve_ref, resolve_tree
from shadowtree.timeline.session import require_live
from shadowtree.timeline.sqlite.schema import (
    JOIN,
    REDO,
    RESTORE,
    REVERT,
    SWITCH,
    UNDO,
    UNREVERT,
    Event,
    MessageRow,
    Position,
)

LAST = "-"
"""Where the session was before the last switch."""


@frozen
class Target:
    """What an act should achieve."""

    kind: str
    wanted: list[Wanted]
    position: Position
    """Where the session stands afterwards."""
    messages: list[MessageRow] = field(default_factory=list)
    """The messages undone, then those redone, each oldest first."""
    redone: list[MessageRow] = field(default_factory=list)
    over: list[MessageRow] = field(default_factory=list)
    """The messages on the way, in the same order, including those reversed only in part."""
    undone: list[MessageRow] = field(default_factory=list)
    """The messages whose changes it reverses, wholly or in part."""
    turns: int | None = None
    is_short: bool = False
    """Less than was requested can be done."""
    takes_back: int | None = None
    """The act that this one reverses."""
    reverses: str | None = None
    """The name of that act."""
    part_of: int | None = None
    """The message of which only a part is reverted."""
    inferred: frozenset[RelPath] = frozenset()
    """Paths that should become absent because of a message with an inferred end."""
    noted: list[Change] = field(default_factory=list)
    """Changes to record for paths that the act does not touch."""
    notes: list[str] = field(default_factory=list)
    is_nothing: bool = False
    """There is nothing to do."""


def find_target(request: Request, history: History) -> Target:
    """Find the target of a request in one session."""
    position, find = history.position, history.session.find
    match request:
        case Undo(turns):
            return _find_turns(history, UNDO, choose_undo(position, turns, find), turns)
        case Redo(up_to):
            return _find_turns(history, REDO, choose_redo(position, up_to, find), up_to)
        case Revert():
            return _find_revert(history, request)
        case Switch(ref):
            return _find_switch(history, ref)
        case Unrevert(undo):
            return _find_unrevert(history, is_undo=undo)
        case Restore(ref, paths):
            return _find_restore(history, ref, paths)


def _nothing(history: History, kind: str, *notes: str) -> Target:
    return Target(kind, [], history.position, notes=[*notes], is_nothing=True)


# Undo, redo, revert


def _find_turns(history: History, verb: str, travel: Travel, turns: int | None) -> Target:
    end = travel.stopped_at
    notes = [] if end is None else [f"{verb} stops at message {end.id!r}, which was forgotten"]
    if not travel.messages:
        # There is more to redo beyond a forgotten message, but nothing more to undo before one.
        is_short = bool(notes) and verb == REDO
        is_unknown = history.session.number is None
        notes += _note_others(history) if verb == UNDO or is_unknown else _note_branch(history)
        return replace(_nothing(history, verb, f"nothing to {verb}", *notes), turns=0, is_short=is_short)
    if turns is not None and travel.turns < turns:
        done = "undone" if verb == UNDO else "redone"
        notes.append(f"only {travel.turns:,} of {turns:,} turns could be {done}")
    return replace(_follow(history, verb, travel), turns=travel.turns, notes=notes, is_short=bool(notes))


def _note_others(history: History) -> Iterator[str]:
    """Note that other sessions have messages: the name may be mistyped, or another session meant."""
    session = history.session
    if session.journal.live_sessions().keys() - {session.number}:
        if session.number is None:
            yield f"session {session.name!r} has no messages"
        yield "other sessions have messages: run 'shadowtree sessions', then --session ID"


def _note_branch(history: History) -> Iterator[str]:
    """Note which branch has the messages that the last turn archived, or that continue from the head."""
    position, session = history.position, history.session
    if position.head is None:
        return
    turn = session.find(position.head).turn
    own = list(takewhile(lambda row: row.turn == turn, walk_back(position.head, session.find)))
    before = own[-1].parent
    forks = {*(row.id for row in own), None if before is None else session.find(before).id}
    found = [each for each in session.read_branches() if each.fork in forks and each.state == "archived"]
    for branch in found[-1:]:
        from shlex import quote

        command = with_session(f"shadowtree switch {quote(branch.name)}", session)
        yield f"{branch.label or branch.messages[0]!r} is on branch {branch.name}: run '{command}'"


def _find_revert(history: History, request: Revert) -> Target:
    """Go to just before a message; or, with `only`, take it out of the line and keep the later ones.

    With a step or paths, only some paths change: the head stays, and the message stays in the line.
    """
    position, find = history.position, history.session.find
    row = resolve_message(history.session, request.id)
    if request.only:
        travel = choose_only(position, row, history.journal.newest_number(row.session), find)
    else:
        travel = choose_revert(position, row, find)
    if not travel.messages and (request.only or request.step is None):
        return _nothing(history, REVERT, f"nothing to revert: {row.id!r} is not active")
    if request.step is not None and not travel.back:
        raise InvalidInput(f"message {row.id!r} is not active, so its steps cannot be reverted")
    target = _follow(history, REVERT, travel, step=request.step, is_only=request.only)
    if not request.is_part:
        return target
    target = replace(
        target, position=history.position, messages=[], redone=[], part_of=row.number if travel.back else None
    )
    return _narrow(history, target, request.paths, "no message changed")


def _narrow(history: History, target: Target, paths: Collection[RelPath] | None, otherwise: str) -> Target:
    """Keep only these paths, and note those at which nothing would be done."""
    if paths is None:
        return target
    missed = [path for path in sorted(paths) if not narrow(target.wanted, {path})]
    unknown = [path for path in missed if path and not isinstance(history.root.find(path), PathState)]
    return replace(
        target,
        wanted=narrow(target.wanted, paths),
        notes=[*target.notes, *(f"{otherwise} {to_text(path) or '.'}" for path in missed)],
        is_short=bool(unknown),
        is_nothing=len(missed) == len(paths),
    )


# Restore


def _find_restore(history: History, ref: str, paths: Collection[RelPath] | None) -> Target:
    """Make everything equal to a tree, or only some paths."""
    record = resolve_tree(history.session, ref)
    wanted = want_tree(list_changes(history.root, history.open(record.number)))
    return _narrow(history, Target(RESTORE, wanted, history.position), paths, "nothing to restore at")


# Switch


def _find_switch(history: History, name: str) -> Target:
    """Go to just after a message, or to the end of a branch."""
    if name == LAST and history.session.find_id(name) is None:
        row, branch = history.session.find(_find_left(history)), None
    else:
        row, branch = resolve_ref(history.session, name)
    position, find = history.position, history.session.find
    tip = history.session.find_tip(row, branch)
    # An open message ends now, where the session stands, and so does the present line.
    end, end_of_line = history.end_of(row.number), None if tip == position.tip else history.end_of(tip)
    out = position.out if end is None else end.position.out
    out_at_tip = position.out if end_of_line is None else end_of_line.position.out
    travel = choose_switch(position, row, *choose_line(row.number, tip, out, out_at_tip), find)
    target = _follow(history, SWITCH, travel)
    if end is not None and end.after is not None:
        wanted = _mend_forward(history, target.wanted, travel, end.after)
        wanted = _mend_since(history, wanted, travel, end.number)
        target = replace(target, wanted=[*wanted, *_want_directories_away(history, wanted, travel)])
    if not target.messages and not target.wanted:
        return _nothing(history, SWITCH, f"already at {row.id!r}")
    return target


def _find_left(history: History) -> int:
    """Return the last message in force before the last switch that was not reversed."""
    acts = [] if history.session.number is None else history.journal.acts_of(history.session.number)
    last = next((act for act, _ in standing_acts(acts) if act.kind == SWITCH), None)
    if last is None:
        raise UnknownMessage(LAST, "there was no switch to go back from")
    head = history.position_before(last).head
    if head is None:
        raise UnknownMessage(LAST, "no message was active before the last switch")
    return require_live(history.session.find(head)).number


def _mend_forward(history: History, wanted: list[Wanted], travel: Travel, after: int) -> list[Wanted]:
    """Take the targets of some paths from the tree after the message.

    These are the paths that messages on the way forward changed, and paths on the way back whose recorded
    states contain changes of messages that are out of the line.
    """
    paths = paths_of(history.changes_of(travel.forward))
    paths |= _find_merged(history, history.route(travel), travel.position)
    tree = history.open(after)
    return want_states({path: tree.find(path) for path in paths}, wanted)


def _mend_since(history: History, wanted: list[Wanted], travel: Travel, end: int) -> list[Wanted]:
    """Reverse everything that the session did to some paths since the message ended, unless it cancels out.

    These are the paths of messages that leave the line or come back into it; of later messages that are out
    of it, because undoing others may have brought back parts of them; and of acts that did not move the head.
    The tree after the message would not do: it lacks edits that somebody made before the first of these.
    """
    head = travel.position.head or 0
    stay_out = {taken.message for taken in travel.position.out if taken.message <= head}
    were_out = [taken.message for taken in history.position.out if taken.message not in stay_out]
    rows = [*travel.removed, *map(history.session.find, were_out)]
    paths = paths_of(history.changes_of(rows)) | paths_of(history.acts_since_fork(travel))
    past = history.trace_since(paths, end)
    since = want_back({event.number for event in past.events}, past)
    since = [want for want in since if want.edits and want.target != want.expected]
    return join_wanted([want for want in wanted if want.path not in paths], since)


# Unrevert


def _find_unrevert(history: History, *, is_undo: bool) -> Target:
    """Go back to before the last act that was not reversed, or, if `is_undo`, before the very last one.

    It never goes back over a message: undo does that.
    """
    act, cancelled = _find_act(history, is_undo=is_undo)
    if act is None:
        return _nothing(history, UNREVERT, "nothing to unrevert")
    newest = history.journal.last_of_messages(act.session)
    if newest is not None and newest.number > act.number:
        return _nothing(history, UNREVERT, *_note_newer(history, act, newest))
    position = history.position_before(act)
    events = history.events_since(act.number)
    over = [e.number for e in events if not any(first <= e.number <= last for first, last in cancelled)]
    noted: list[Change] = []
    if is_head_only(act, history.journal.event):
        # It touched no file, so reversing it touches none either.
        over = [number for number in over if number != act.number]
        moved = [change for e in events if e.number == act.number for change in e.changes]
        later = {change.path for e in events if e.number > act.number for change in e.changes}
        noted = [Change(c.path, c.new, c.old) for c in moved if c.path not in later]
    undone, redone = compare_positions(history.position, position, history.session.find)
    return Target(
        UNREVERT,
        want_back(over, Past(events, history.find_others(events, dict.fromkeys(over, act.number)))),
        Position(head=position.head, tip=position.tip, out=position.out),
        messages=[*undone, *redone],
        redone=redone,
        undone=undone,
        takes_back=act.number,
        reverses=history.name_act(act),
        noted=noted,
    )


def _find_act(history: History, *, is_undo: bool) -> tuple[Event | None, list[Span]]:
    """Find the last act that changed anything; unless `is_undo`, the last one that was not reversed.

    Also return the spans of events that cancel out, each from an act to the unrevert that reversed it.
    """
    if history.session.number is None:
        return None, []
    acts = history.journal.acts_of(history.session.number)
    # Before messages of another machine were joined, the session stood elsewhere.
    live = takewhile(lambda act: act.forgotten_ms is None and act.kind != JOIN, acts)
    for act, cancelled in ((act, []) for act in live) if is_undo else standing_acts(live):
        changes = history.journal.changes_of([act.number])[act.number]
        is_move = not is_same_place(history.position_before(act), act.position)
        # An unrevert counts even if it kept every path: otherwise its act would be reversed twice.
        is_unrevert = act.takes_back is not None
        if is_move or is_unrevert or any(change.old != change.new for change in changes):
            return act, cancelled
    return None, []


def _note_newer(history: History, act: Event, newest: Event) -> Iterator[str]:
    """Note why an act is not reversed, and which commands lead back instead."""
    assert newest.message is not None
    kind, id = history.name_act(act), history.session.find(newest.message).id
    yield f"nothing to unrevert: message {id!r} was recorded after the last {kind}"
    if act.before is not None and not history.journal.is_forgotten_tree(act.before):
        tree = history.journal.tree(act.before).tree.hex()
        yield "to undo that message: shadowtree undo"
        yield f"to restore all files to before the {kind}: shadowtree restore {tree}"


# Following the way over messages


def _follow(
    history: History, kind: str, travel: Travel, step: str | None = None, *, is_only: bool = False
) -> Target:
    """Find the target of a way over messages."""
    gone = find_gone(history.position, travel, history.session.find)
    if gone is not None and gone.forgotten_ms is not None:
        raise ForgottenMessage(gone.id, gone.forgotten_ms, is_on_way=True)
    route = history.route(travel)
    if step is not None:
        route.messages[0] = history.limit_to_step(route.messages[0], step, is_only=is_only)
    merged: set[RelPath] = set()
    if is_only:
        merged = paths_of(route.messages)
    elif kind != SWITCH:
        merged = _find_merged(history, route, travel.position)
    past = history.trace(route.messages)
    wanted = want_back(route.back, past, merged, route.passed)
    if route.forward:
        wanted = want_across(wanted, want_forward(route.forward, past, merged))
    return Target(
        kind,
        [*wanted, *_want_directories_away(history, wanted, travel)],
        travel.position,
        messages=travel.messages,
        redone=travel.redone,
        over=travel.messages,
        undone=[*travel.back, *travel.removed],
        inferred=_find_inferred(route),
    )


def _find_inferred(route: Route) -> frozenset[RelPath]:
    """Return the paths that are absent at the end of the way because of a message with an inferred end.

    On the way back, that is the message that created them; on the way forward, the one that deleted them.
    """
    causes: dict[RelPath, bool] = {}
    for message in route.messages:
        for change in message.changes:
            if message.number in route.forward and change.new is None:
                causes[change.path] = message.is_inferred
            elif message.number in route.back and change.old is None:
                causes.setdefault(change.path, message.is_inferred)
    return frozenset(path for path, is_inferred in causes.items() if is_inferred)


def _want_directories_away(history: History, wanted: Sequence[Wanted], travel: Travel) -> list[Wanted]:
    """Return emptied directories to remove: those that only messages out of the line created."""
    going = [want.path for want in wanted if want.target is None]
    above = {above for path in going for above in ancestors(path)} - {want.path for want in wanted}
    out = [history.session.find(taken.message) for taken in travel.position.out]
    made = {
        change.path
        for message in history.changes_of([*out, *travel.passed])
        for change in message.changes
        if change.old is None and change.new == DIRECTORY
    }
    going_too = (above & made) - _find_made(history, above & made, travel.position)
    return [Wanted(path, None, DIRECTORY) for path in sorted(going_too)]


def _find_made(history: History, paths: set[RelPath], position: Position) -> set[RelPath]:
    """Return the directories among some paths that messages in force created."""
    if not paths:
        return set()
    changes = history.journal.changes_since(paths, 0, history.session.require_number())
    events = history.journal.events([number for number, change in changes if change.new == DIRECTORY])
    messages = {row.number for row in in_force(position, history.session.find)}
    return {
        change.path for number, change in changes if number in events and events[number].message in messages
    }


def _find_merged(history: History, route: Route, position: Position) -> set[RelPath]:
    """Return the paths whose states on the way contain changes of a message that stays out of the line.

    That is so if the message at which the way ends for a path came after the one that is out, and was
    recorded before that one was taken out. Changes at these paths must be merged.
    """
    merged: set[RelPath] = set()
    for taken in position.out:
        (out,) = history.changes_of([history.session.find(taken.message)])
        ends: dict[RelPath, int] = {}
        for message in route.messages:
            for path in paths_of([message]) & paths_of([out]):
                if message.number in route.forward or path not in ends:
                    ends[path] = message.message
        merged |= {path for path, end in ends.items() if taken.message < end <= taken.newest}
    return merged
