"""The session that is meant when the user names none: the one that recorded last.

Acts are then refused while a message of another session is open, because either could be meant.
"""

from __future__ import annotations

from shadowtree.base.errors import AmbiguousSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.timeline.journal import Journal


class LastSession(str):
    """The name of the session that recorded last, not given by the caller; acts check it for ambiguity."""

    __slots__ = ()


def find_last_session(journal: Journal) -> LastSession:
    """Return the name of the session that recorded last; `default` if none did."""
    last = journal.last_recorded()
    return LastSession("default" if last is None else journal.session_names()[last.session])


def refuse_ambiguous_session(journal: Journal, session: LastSession) -> None:
    """Refuse an act if the caller named no session and a message of another session is open."""
    own, names = journal.session_number(session), journal.session_names()
    others = {
        names[number]: journal.message(message).id
        for number, message in journal.open_messages().items()
        if number != own
    }
    if others:
        raise AmbiguousSession(session, others)
