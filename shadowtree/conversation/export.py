"""The conversation as refs of the store: made when `Shadow.repo` is read, not while recording.

Nothing on the disk says what was exported. What the timeline gives now is compared with the refs that are
there; within one process the stamp of the rows spares that.
"""

from __future__ import annotations

from shadowtree.capture.open_store import OpenStore
from shadowtree.conversation.encode import encode_conversation
from shadowtree.conversation.ref_names import TRACKED, session_ref
from shadowtree.store.directory import HEAD_REF, begin_ref, list_own_refs, list_refs
from shadowtree.store.repo import ShadowRefs

_HEAD = HEAD_REF.encode()


def is_up_to_date(opened: OpenStore) -> bool:
    """Return whether this process made the refs, and neither rows nor refs changed since."""
    if opened.exported is None:
        return False
    stamp, refs = opened.exported
    return stamp == opened.journal.stamp() and refs == _list_present(opened)


def bring_up_to_date(opened: OpenStore) -> None:
    """Let the refs of the conversation name what the timeline is now. Only for the holder of the lock.

    HEAD is at the session that recorded last. What is missing or damaged of the objects is written again.
    """
    with opened.adding_objects() as pack:
        made = encode_conversation(opened.journal.database, opened.objects, pack)
    wanted: dict[bytes, bytes | None] = {ref.encode(): id for ref, id in made.items()}
    head = _find_head(opened, made)
    if head is None:
        begin_ref(opened.layout)
    else:
        wanted[_HEAD] = head
    present = _list_present(opened)
    gone = dict.fromkeys(present.keys() - wanted.keys() - {_HEAD})
    changed = {ref: id for ref, id in wanted.items() if present.get(ref) != id}
    # Those that go are first: where a ref was a directory has to be.
    ShadowRefs(opened.layout.store).update({**gone, **changed})
    stamp = opened.journal.stamp()
    opened.exported = None if stamp is None else (stamp, _list_present(opened))
    opened.rest()


def _find_head(opened: OpenStore, made: dict[str, bytes]) -> bytes | None:
    """Return the commit of the session that recorded last; None: no session has any."""
    names = opened.journal.session_names()
    events = [event for session in names if (event := opened.journal.last_event(session)) is not None]
    for event in sorted(events, key=lambda event: event.number, reverse=True):
        commit = made.get(session_ref(names[event.session]))
        if commit is not None:
            return commit
    return None


def _list_present(opened: OpenStore) -> dict[bytes, bytes]:
    store, tracked = opened.layout.store, TRACKED.encode()
    own = {ref: id for ref, id in list_own_refs(store).items() if not ref.startswith(tracked)}
    return own | {ref: id for ref, id in list_refs(store).items() if ref == _HEAD}
