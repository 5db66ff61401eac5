"""Push sessions to a remote: encode them, send what it lacks, and save what it has afterwards.

Each store writes only refs of its own, so stores never conflict with or overwrite one another. The lock is
held while sessions are encoded, not while they are sent.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from shadowtree.access.access import Access
from shadowtree.base.arguments import is_agreed
from shadowtree.base.errors import NotConfirmed, RemoteFailed, StoreDamaged, UnknownName
from shadowtree.base.frozen import frozen
from shadowtree.base.paths import to_text
from shadowtree.capture.open_store import OpenStore
from shadowtree.capture.rules.git_repository import find_around, read_tracked
from shadowtree.conversation.read_commits import list_kept
from shadowtree.conversation.ref_names import read_rows_ref
from shadowtree.conversation.session_rows import (
    LocalSession,
    list_sessions,
    read_session_rows,
    withhold_local_paths,
    withhold_texts,
)
from shadowtree.conversation.write_commits import commit_rows, encode_line, encode_rows
from shadowtree.purge.exclude import exclude_paths, list_included
from shadowtree.remote.state import RemoteState, find_remote, note_refs, save_remote
from shadowtree.remote.transport import Transport
from shadowtree.results.remotes import Pushed, PushPreview
from shadowtree.store.dulwich_refs import ShadowRefs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shadowtree.conversation.session_rows import Rows
    from shadowtree.store.packs.pack_writer import ObjectSink

    Confirm = Callable[[PushPreview], bool]

_EXAMPLES = 10
_LINES = b"refs/heads/sessions/"


@frozen
class PushOptions:
    """What is pushed, and how."""

    sessions: Collection[str] | None = None
    """None: all that were recorded here, and those from elsewhere that the remote lacks."""
    text: bool = False
    """Also push the texts of messages."""
    exclude: tuple[str, ...] = ()
    replaces: bool = False
    """Keep nothing reachable there that was pushed before."""


class Push:
    """One push to a remote."""

    def __init__(self, access: Access, remote: RemoteState, options: PushOptions) -> None:
        self._access = access
        self._remote = remote
        self._options = options
        self._sent: set[str] = set()
        self._updates: dict[bytes, bytes | None] = {}
        self._told = dict(remote.told)
        self.unknown: list[LocalSession] = []
        """Sessions whose refs there name commits that this store did not push: they must be fetched first."""
        self.notes: list[str] = []
        self._has_lines = True
        self.sent_bytes = 0

    def run(self, transport: Transport) -> Pushed:
        """Push, and save what the remote has afterwards; raise RemoteFailed if it refuses the rows.

        The lines of commits are only for people. If the server refuses them, because it protects branches or
        allows only fast-forwards, the rows are pushed without them.
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
        """Push once, and return the refs that were refused, with the reasons."""
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
        """Encode sessions for a remote that has the `advertised` refs; return the refs to change there."""
        self._sent, self._updates, self.unknown, self.notes = set(), {}, [], []
        with self._access.locked() as opened:
            opened.journal.require_sound()
            sessions = list_sessions(opened.journal.database)
            with opened.adding_objects() as pack:
                for session in self._choose(sessions, advertised):
                    self._encode(opened, session, advertised, pack)
            opened.mark_clean()
            self._drop_gone(sessions, advertised)
        return self._updates

    def _choose(
        self, sessions: Iterable[LocalSession], advertised: Mapping[bytes, bytes]
    ) -> Iterator[LocalSession]:
        """Yield the sessions to push: the wanted ones or all, but none that was only fetched and is there."""
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
        """Add a note if other machines pushed something to a session that was not fetched yet."""
        known = set(self._remote.known.values())
        if any(id.hex() not in known for id in others):
            self.notes.append(
                f"another machine has pushed to session {session.name!r}; run 'shadowtree fetch'"
            )

    def _drop_gone(self, sessions: Iterable[LocalSession], advertised: Mapping[bytes, bytes]) -> None:
        """If the push replaces, remove the refs that this store pushed for sessions dropped since."""
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
        """Return whether this store pushed a ref: only then is the line of commits known too."""
        wire = read_rows_ref(ref)
        return wire is not None and wire.line_ref.decode() in self._remote.known

    def _note(self, opened: OpenStore) -> None:
        """Save what the remote has now."""
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
        opened.mark_clean()


def track_refs(opened: OpenStore, remote: str, refs: Mapping[bytes, bytes | None]) -> None:
    """Update the refs here that keep what a remote has, so that later pushes can send only the rest."""
    tracked = {
        wire.tracked_ref(remote): id for ref, id in refs.items() if (wire := read_rows_ref(ref)) is not None
    }
    ShadowRefs(opened.layout.store).update(tracked)


def _find_tree(opened: OpenStore, commit: bytes | None) -> bytes | None:
    """Return the tree of a commit, or None if either is missing or damaged here."""
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
    """Return the keys of the recorded trees in `parents`, which the remote has; none if one is damaged."""
    trees = [tree for id in parents if (tree := _find_tree(opened, id)) is not None]
    with suppress(StoreDamaged):
        return set().union(*(list_kept(tree, opened.objects) for tree in trees))
    return set()


# The first push


def preview_push(access: Access, remote: RemoteState, options: PushOptions) -> PushPreview:
    """Count the files that a push makes readable for others, including those deleted since.

    Files that your own git tracks are probably shared already; others may be private.
    """
    with access.locked() as opened:
        database = opened.journal.database
        wanted = options.sessions
        # Sessions that were fetched count too: a remote that lacks them gets them.
        sessions = [each for each in list_sessions(database) if wanted is None or each.name in wanted]
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


def require_confirmed(
    access: Access, remote: RemoteState, options: PushOptions, confirm: Confirm | None
) -> None:
    """Call `confirm`, if given, before the first push to a remote; raise NotConfirmed if it returns False."""
    if remote.is_confirmed or confirm is None:
        return
    preview = preview_push(access, remote, options)
    if not is_agreed(confirm, preview):
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
