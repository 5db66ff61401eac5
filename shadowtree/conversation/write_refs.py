"""Export the conversation as refs of the store, when `Shadow.repo` is used, never while recording.

What was exported is not recorded on disk: the refs made from the current timeline are compared with those
that exist. Within one process, an unchanged stamp of the rows makes this unnecessary.
"""

from __future__ import annotations

from shadowtree.capture.open_store import OpenStore
from shadowtree.conversation.ref_names import TRACKED, session_ref
from shadowtree.conversation.write_commits import encode_conversation
from shadowtree.store.directory import HEAD_REF, begin_ref
from shadowtree.store.dulwich_refs import ShadowRefs
from shadowtree.store.refs import is_own, read_refs

_HEAD = HEAD_REF.encode()


def is_up_to_date(opened: OpenStore) -> bool:
    """Return whether this process wrote the refs, and neither rows nor refs have changed since."""
    if opened.exported is None:
        return False
    stamp, refs = opened.exported
    return stamp == opened.journal.stamp() and refs == _list_present(opened)


def bring_up_to_date(opened: OpenStore) -> None:
    """Update the refs of the conversation to match the timeline. The caller must hold the lock.

    HEAD points to the session that recorded last. Missing or damaged objects are written again.
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
    # Remove refs first: a new ref may need a directory where an old one has its file.
    ShadowRefs(opened.layout.store).update({**gone, **changed})
    stamp = opened.journal.stamp()
    opened.exported = None if stamp is None else (stamp, _list_present(opened))
    opened.mark_clean()


def _find_head(opened: OpenStore, made: dict[str, bytes]) -> bytes | None:
    """Return the commit of the session that recorded last, or None if no session has a commit."""
    names = opened.journal.session_names()
    events = [event for session in names if (event := opened.journal.last_event(session)) is not None]
    for event in sorted(events, key=lambda event: event.number, reverse=True):
        commit = made.get(session_ref(names[event.session]))
        if commit is not None:
            return commit
    return None


def _list_present(opened: OpenStore) -> dict[bytes, bytes | None]:
    refs, tracked = read_refs(opened.layout.store), TRACKED.encode()
    return {ref: id for ref, id in refs.items() if is_own(ref) and not ref.startswith(tracked)}
