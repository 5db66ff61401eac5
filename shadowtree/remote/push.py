"""Push sessions to a remote: encode them, send what it lacks, and note what it has then.

Each store writes refs of its own, so nobody is in the way of anybody, and nothing is ever overwritten. The
lock is held while a session is encoded, not while it is sent.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from shadowtree.access.access import Access
from shadowtree.base.errors import NotConfirmed, RemoteFailed, StoreDamaged, UnknownName
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import to_text
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.rules.git_repository import find_around, read_tracked
from shadowtree.conversation.decode import list_kept
from shadowtree.conversation.encode import commit_rows, encode_line, encode_rows
from shadowtree.conversation.ref_names import read_rows_ref
from shadowtree.conversation.session_rows import (
    LocalSession,
    list_sessions,
    read_session_rows,
    withhold_local_paths,
    withhold_texts,
)
from shadowtree.purge.exclude import exclude_paths, list_included
from shadowtree.remote.state import RemoteState, find_remote, note_refs, save_remote
from shadowtree.remote.transport import Transport
from shadowtree.results.remotes import Pushed, PushPreview
from shadowtree.store.repo import ShadowRefs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shadowtree.conversation.session_rows import Rows
    from shadowtree.store.objects import ObjectSink

    Confirm = Callable[[PushPreview], bool]

_EXAMPLES = 10
_LINES = b"refs/heads/sessions/"


@frozen
class PushOptions:
    """What is pushed, and how."""

    sessions: Collection[str] | None = None
    """None: all that were recorded here."""
    text: bool = False
    """With the texts of messages."""
    exclude: tuple[str, ...] = ()
    replaces: bool = False
    """Nothing that was pushed before stays reachable there."""


class Push:
    """One push, from what the remote has to what it has afterwards."""

    def __init__(self, access: Access, remote: RemoteState, options: PushOptions) -> None:
        self._access = access
        self._remote = remote
        self._options = options
        self._sent: set[str] = set()
        self._updates: dict[bytes, bytes | None] = {}
        self._told = dict(remote.told)
        self.unknown: list[LocalSession] = []
        """Sessions of which the remote has what this store did not push: that has to be fetched first."""
        self.notes: list[str] = []
        self._has_lines = True
        self.sent_bytes = 0

    def run(self, transport: Transport) -> Pushed:
        """Push, and note what the remote has then; RemoteFailed if it refused anything that is needed.

        The lines of commits are for people. A server may protect its branches, or never let them go back:
        then the rows are pushed without them.
        """
        refused = self._send(transport)
        if refused and any(ref.startswith(_LINES) for ref in self._updates):
            self._has_lines = False
            first, refused = refused, self._send(transport)
            if not refused:
                why = next(iter(first.values()))
                self.notes.append(f"the branches on the server were not updated: {why}")
        if refused:
            listed = ", ".join(f"{ref.decode()}: {why}" for ref, why in sorted(refused.items()))
            raise RemoteFailed(self._remote.url, f"it refused {listed}")
        self.sent_bytes = transport.sent_bytes
        with self._access.locked() as opened:
            self._note(opened)
        return self.describe()

    def _send(self, transport: Transport) -> dict[bytes, str]:
        """Push once, and give what was refused, with the reasons."""
        status = transport.push_planned(self.plan, [_LINES, b"refs/shadowtree/sessions/"], replace=True)
        return {ref: why for ref, why in status.items() if why is not None}

    def describe(self) -> Pushed:
        """Return what was pushed."""
        return Pushed(
            self._remote.name,
            self._remote.url,
            sorted(self._sent),
            sorted(ref.decode() for ref in self._updates),
            self.sent_bytes,
            self.notes,
        )

    def plan(self, advertised: Mapping[bytes, bytes]) -> Mapping[bytes, bytes | None]:
        """Decide what to send to a remote that has these refs."""
        self._sent, self._updates, self.unknown, self.notes = set(), {}, [], []
        with self._access.locked() as opened:
            opened.journal.require_sound()
            sessions = list_sessions(opened.journal.database)
            with opened.adding_objects() as pack:
                for session in self._choose(sessions, advertised):
                    self._encode(opened, session, advertised, pack)
            opened.rest()
            self._drop_gone(sessions, advertised)
        return self._updates

    def _choose(
        self, sessions: Iterable[LocalSession], advertised: Mapping[bytes, bytes]
    ) -> Iterator[LocalSession]:
        """Choose the sessions to push: those asked for, or all but those that others pushed there."""
        wanted = self._options.sessions
        there = {wire.origin for ref in advertised if (wire := read_rows_ref(ref)) is not None}
        found = {session.name: session for session in sessions}
        for name in wanted or ():
            if name not in found:
                raise UnknownName(name, f"no session named {name!r}")
        for session in sessions:
            is_wanted = wanted is None or session.name in wanted
            if is_wanted and (session.is_own or session.wire.origin not in there):
                yield session

    def _encode(
        self, opened: OpenStore, session: LocalSession, advertised: Mapping[bytes, bytes], pack: ObjectSink
    ) -> None:
        wire, objects = session.wire, opened.objects
        old = advertised.get(wire.rows_ref)
        if old is not None and not self._remote.knows(wire.rows_ref, old) and not objects.is_listed(old):
            self.unknown.append(session)
            return
        others = [
            id
            for ref, id in advertised.items()
            if (each := read_rows_ref(ref)) is not None
            and each.origin == wire.origin
            and ref != wire.rows_ref
        ]
        self._note_others(session, others)
        rows = self._read_rows(opened, session, pack)
        here = [id for id in others if _find_tree(opened, id) is not None]
        parents = [] if self._options.replaces else [old] if old is not None else here[:1]
        tree = encode_rows(rows, objects, pack)
        updates: dict[bytes, bytes | None] = {}
        if self._has_lines:
            updates[wire.line_ref] = encode_line(rows, objects, pack)
        if self._options.replaces or _find_tree(opened, old) != tree:
            kept = _list_kept(opened, parents)
            updates[wire.rows_ref] = commit_rows(rows, tree, objects, pack, parents, kept)
        updates = {ref: id for ref, id in updates.items() if id is not None and advertised.get(ref) != id}
        if updates:
            self._updates |= updates
            self._sent.add(session.name)

    def _read_rows(self, opened: OpenStore, session: LocalSession, pack: ObjectSink) -> Rows:
        rows = withhold_local_paths(read_session_rows(opened.journal.database, session.number))
        ref = session.wire.rows_ref.decode()
        told = len(rows["messages"]) if self._options.text else self._remote.told.get(ref, 0)
        rows, self._told[ref] = withhold_texts(rows, told), told
        if self._options.exclude:
            rows = exclude_paths(rows, self._options.exclude, opened.objects, pack)
        return rows

    def _note_others(self, session: LocalSession, others: Iterable[bytes]) -> None:
        """Note that other machines pushed something of a session that is not here."""
        known = set(self._remote.known.values())
        if any(id.hex() not in known for id in others):
            self.notes.append(
                f"another machine has pushed to session {session.name!r}; run 'shadowtree fetch'"
            )

    def _drop_gone(self, sessions: Iterable[LocalSession], advertised: Mapping[bytes, bytes]) -> None:
        """Remove what this store pushed of sessions that are dropped here, if nothing old is to stay."""
        if not self._options.replaces or self._options.sessions is not None:
            return
        live = {session.wire.rows_ref for session in sessions}
        for ref in map(str.encode, self._remote.known):
            wire = read_rows_ref(ref)
            if wire is not None and ref in advertised and ref not in live and self._is_ours(ref):
                self._updates[ref] = None
                if wire.line_ref in advertised:
                    self._updates[wire.line_ref] = None

    def _is_ours(self, ref: bytes) -> bool:
        """Return whether this store pushed a ref: then it knows the line of commits too."""
        wire = read_rows_ref(ref)
        return wire is not None and wire.line_ref.decode() in self._remote.known

    def _note(self, opened: OpenStore) -> None:
        """Remember what the remote has now."""
        database, remote = opened.journal.database, find_remote(opened.journal.database, self._remote.name)
        known = note_refs(remote.known, self._updates)
        now_ms = self._access.now_ms
        save_remote(
            database,
            remote,
            known=known,
            told=self._told,
            pushed_ms=now_ms,
            failures=0,
            why="",
            retry_ms=0,
            is_confirmed=True,
        )
        track_refs(opened, self._remote.name, self._updates)
        opened.rest()


def track_refs(opened: OpenStore, remote: str, refs: Mapping[bytes, bytes | None]) -> None:
    """Let refs of this store lead to what a remote has, so that it is here when only the rest is sent."""
    tracked = {
        wire.tracked_ref(remote): id for ref, id in refs.items() if (wire := read_rows_ref(ref)) is not None
    }
    ShadowRefs(opened.layout.store).update(tracked)


def _find_tree(opened: OpenStore, commit: bytes | None) -> bytes | None:
    """Return the tree of a commit that is here."""
    if commit is None or not opened.objects.is_listed(commit):
        return None
    try:
        head = opened.objects.read(b"commit", commit).partition(b"\n")[0]
        tree = bytes.fromhex(head.removeprefix(b"tree ").decode())
        opened.objects.read_tree(tree)
    except (StoreDamaged, ValueError):
        return None
    return tree


def _list_kept(opened: OpenStore, parents: Iterable[bytes]) -> set[tuple[bytes, ...]]:
    """List what is known to be there of what recorded trees need."""
    trees = [tree for id in parents if (tree := _find_tree(opened, id)) is not None]
    with suppress(StoreDamaged):
        return set().union(*(list_kept(tree, opened.objects) for tree in trees))
    return set()


# The first push


def preview_push(access: Access, remote: RemoteState, options: PushOptions) -> PushPreview:
    """Count what a push makes readable for others: all files in what is recorded, even if deleted since.

    What your own git tracks is probably there already; what it does not track may be private.
    """
    with access.locked() as opened:
        database = opened.journal.database
        sessions = [each for each in list_sessions(database) if _is_chosen(each, options.sessions)]
        rows = [row for each in sessions for row in read_session_rows(database, each.number)["trees"]]
        trees = {row["tree"] for row in rows if row["forgotten"] is None}
        paths = list_included(trees, options.exclude, opened.objects)
    tracked = list_tracked(access.worktree)
    untracked = sorted(path for path in paths if path not in tracked)
    return PushPreview(
        remote.name,
        remote.url,
        sorted(each.name for each in sessions),
        len(paths),
        len(untracked),
        [to_text(path) for path in untracked[:_EXAMPLES]],
        options.text,
    )


def _is_chosen(session: LocalSession, wanted: Collection[str] | None) -> bool:
    return session.is_own if wanted is None else session.name in wanted


def require_confirmed(
    access: Access, remote: RemoteState, options: PushOptions, confirm: Confirm | None
) -> None:
    """Ask before the first push to a remote, if there is somebody to ask; NotConfirmed if he says no."""
    if remote.is_confirmed or confirm is None:
        return
    preview = preview_push(access, remote, options)
    if not confirm(preview):
        raise NotConfirmed(preview, f"push {preview.files:,} files to {remote.url}", plan=preview)


def list_tracked(worktree: str) -> set[bytes]:
    """List the files that the user's own repository around a worktree tracks, relative to the worktree."""
    root = os.fsencode(worktree)
    repository = next(find_around(root), None)
    if repository is None:
        return set()
    place = os.path.relpath(root, repository.top)
    start = b"" if place == b"." else place + b"/"
    return {name[len(start) :] for name in read_tracked(repository).names if name.startswith(start)}
