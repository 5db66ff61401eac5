"""Record what the hooks of an agent report: turns as messages, tool calls as steps.

Hooks may run twice, late, or not at all, so each event counts as evidence rather than as a command:

- A turn that begins again while its message is open continues. If its message has ended, for example because
  another hook sent the agent back to work, it continues in another message of the same turn: `ID+2`.
- An event of a turn that never began records nothing. Only a step begins the turn: files may change now.
- Work that an agent left running belongs to the turn that started it, and so does its reaction to the result.

All of this is decided under the lock, so hooks that run at the same time agree.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from shadowtree.base.arguments import encode_meta
from shadowtree.base.paths import PathState, RelPath, Unknown, to_text
from shadowtree.messages.record import Recorder, read_new_message
from shadowtree.results.turns import BEGIN, CLOSE, END, MISSED, STEP, STEP_END, TurnEvent, TurnRecord
from shadowtree.timeline.position import first_line, is_head_only, undone_messages
from shadowtree.timeline.session import MessageEvents, Session
from shadowtree.timeline.sqlite.schema import ACTS, MessageRow

_USER = "user"
_AGENT = "assistant"
"""The role of messages that belong to the turn before them."""
_AGAIN_MS = 5000
"""If an agent has no ids for turns, the same prompt within this time is the same turn: the hook ran twice."""
_LABEL_CHARACTERS = 60
NOT_PROTECTED = "the first snapshot was not finished when it began"


def record_turn(recording: Callable[..., AbstractContextManager[Recorder]], event: TurnEvent) -> TurnRecord:
    """Record what a hook reports, if there is anything to record. `recording` takes the lock."""
    with recording(wraps=event.kind == BEGIN) as recorder:
        return _RECORDS[event.kind](recorder, event)


def _begin(recorder: Recorder, event: TurnEvent) -> TurnRecord:
    session = recorder.writer.session
    row = _find_open(session, event)
    if row is None and event.is_dated:
        row = _find_same_prompt(recorder, event)
    if row is not None:
        return TurnRecord(row.id)
    is_first = recorder.writer.journal.last_tree() is None
    if event.is_report and session.open is not None:
        recorder.end(None, None)
    undone, paths = _list_undone(session) if recorder.settings.tell_model else ([], [])
    id = _begin_message(recorder, event, _AGENT if event.is_report or _goes_on(recorder, event) else _USER)
    return TurnRecord(id, is_new=True, is_first=is_first, undone=undone, paths=paths)


def _step(recorder: Recorder, event: TurnEvent) -> TurnRecord:
    session, is_new = recorder.writer.session, False
    row = _find_open(session, event)
    if row is None and _is_known(session, event):
        # The event is late, or the agent continued after the turn ended.
        row = session.open
    if row is None:
        if event.id is None and session.position.head is None:
            return TurnRecord()
        goes_on = event.id is None or _is_known(session, event)
        _begin_message(recorder, event, _AGENT if goes_on else _USER)
        row, is_new = session.open, True
        assert row is not None
    steps = MessageEvents(recorder.writer.journal.events_of([row.number])).steps_of(row.number)
    names = [begin.step for begin, _ in steps]
    name = event.step
    if event.is_numbered:
        name = f"{name}-{1 + sum(known is not None and _is_call(known, name) for known in names)}"
    if name not in names:
        recorder.begin_step(name, encode_meta(event.meta))
    return TurnRecord(row.id, is_new=is_new)


def _end_step(recorder: Recorder, event: TurnEvent) -> TurnRecord:
    session = recorder.writer.session
    row = session.open
    if row is None:
        return TurnRecord()
    begun = MessageEvents(recorder.writer.journal.events_of([row.number])).open_steps(row.number)
    for step in begun:
        assert step.step is not None
        if step.step == event.step or (event.is_numbered and _is_call(step.step, event.step)):
            recorder.end_step(step.step)
            return TurnRecord(row.id)
    return TurnRecord()


def _end(recorder: Recorder, event: TurnEvent) -> TurnRecord:
    row = _find_open(recorder.writer.session, event)
    return TurnRecord() if row is None else TurnRecord(recorder.end(row.id, None).id)


def _close(recorder: Recorder, event: TurnEvent) -> TurnRecord:
    row = recorder.writer.session.open
    if row is None:
        return TurnRecord()
    recorder.close()
    return TurnRecord(row.id)


def _miss(recorder: Recorder, event: TurnEvent) -> TurnRecord:
    """Record a turn whose changes are not known, so that people see that it is not protected."""
    assert event.id is not None
    if _is_known(recorder.writer.session, event):
        return TurnRecord(event.id)
    meta = {**(event.meta or {}), "not_protected": NOT_PROTECTED}
    new = read_new_message(event.id, {"text": _text_of(recorder, event), "role": _USER, "meta": meta})
    return TurnRecord(recorder.snapshot(new).id, is_new=True)


_RECORDS: dict[str, Callable[[Recorder, TurnEvent], TurnRecord]] = {
    BEGIN: _begin,
    STEP: _step,
    STEP_END: _end_step,
    END: _end,
    CLOSE: _close,
    MISSED: _miss,
}


def _begin_message(recorder: Recorder, event: TurnEvent, role: str) -> str:
    """Begin a message for a turn; if a step begins it, only the agent's name is kept of the step's meta."""
    meta = event.meta if event.kind == BEGIN else _only_agent(event)
    session = recorder.writer.session
    wanted = event.id
    if wanted is None:
        assert session.position.head is not None
        wanted = session.find(session.position.head).id.partition("+")[0]
    id, number = wanted, 1
    while session.find_id(id) is not None:
        number += 1
        id = f"{wanted}+{number}"
    new = read_new_message(id, {"text": _text_of(recorder, event), "role": role, "meta": meta})
    return recorder.begin(new).id


def _only_agent(event: TurnEvent) -> dict[str, object] | None:
    return {"agent": event.meta["agent"]} if event.meta and "agent" in event.meta else None


def _text_of(recorder: Recorder, event: TurnEvent) -> str:
    return event.text if recorder.settings.store_prompts else ""


def _find_open(session: Session, event: TurnEvent) -> MessageRow | None:
    """Find the open message that an event belongs to."""
    row = session.open
    if row is None or event.id is None or row.id == event.id or row.id.startswith(f"{event.id}+"):
        return row
    return None


def _find_same_prompt(recorder: Recorder, event: TurnEvent) -> MessageRow | None:
    """Find the open message that another run of the same hook has just begun."""
    row = recorder.writer.session.open
    if row is None or row.text != _text_of(recorder, event):
        return None
    events = MessageEvents(recorder.writer.journal.events_of([row.number]))
    age_ms = recorder.writer.time_ms - events.begins[row.number].time_ms
    return row if age_ms < _AGAIN_MS and not events.steps else None


def _goes_on(recorder: Recorder, event: TurnEvent) -> bool:
    """Return whether a turn that begins continues an earlier one: it has no prompt, or the same one."""
    row = None if event.id is None else recorder.writer.session.find_id(event.id)
    return row is not None and (not event.text or row.text == _text_of(recorder, event))


def _is_known(session: Session, event: TurnEvent) -> bool:
    return event.id is not None and session.find_id(event.id) is not None


def _is_call(step: str, tool: str) -> bool:
    """Return whether a step is a numbered call of a tool."""
    name, _, number = step.rpartition("-")
    return name == tool and number.isdecimal()


def _list_undone(session: Session) -> tuple[list[tuple[int, str]], list[str]]:
    """List the turns that were undone since the last message, and the paths that acts left different.

    If there is no such path, list nothing: what the agent knows about the files is still true.
    """
    journal = session.journal
    last = None if session.number is None else journal.last_of_messages(session.number)
    if last is None:
        return [], []
    acts = [act for act in journal.events_after(last.number, last.session) if act.kind in ACTS]
    # If an act touched no file, the agent undid the changes itself.
    acts = [act for act in acts if not is_head_only(act, journal.event)]
    if not acts:
        return [], []
    changes = journal.changes_of([act.number for act in acts])
    first: dict[RelPath, PathState | Unknown | None] = {}
    now: dict[RelPath, PathState | Unknown | None] = {}
    for act in acts:
        for change in changes[act.number]:
            first.setdefault(change.path, change.old)
            now[change.path] = change.new
    paths = sorted(to_text(path) for path in now if now[path] != first[path])
    if not paths:
        return [], []
    turns: dict[int, tuple[int, str]] = {}
    for row in undone_messages(session.position, session.find):
        turns.setdefault(row.turn, (row.ordinal, first_line(row.text)[:_LABEL_CHARACTERS]))
    return sorted(turns.values()), paths
