"""Transfer refs and objects between a store and a remote, over HTTP, SSH, git:// or a path.

A push is one atomic change if the server supports that. It is compared with the refs that are there, and only
fast-forwards unless it replaces. A push that was cut may have succeeded, so its refs are read again before it
counts as failed. What is fetched is checked before it is added to the store. The store's lock is not held
during transfers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import sleep
from typing import Any

from dulwich.client import GitClient, HTTPUnauthorized
from dulwich.errors import GitProtocolError
from dulwich.object_store import ObjectStoreGraphWalker
from dulwich.objects import ZERO_SHA, ObjectID, RawObjectID, hex_to_sha, sha_to_hex, valid_hexsha
from dulwich.pack import UnpackedObject
from dulwich.refs import Ref

from shadowtree.base.errors import InvalidInput, RemoteDamaged, RemoteFailed, ShadowError
from shadowtree.base.frozen import frozen
from shadowtree.remote.credentials import (
    Credentials,
    CredentialSources,
    ask_helper,
    child_environment,
    find_at_once,
)
from shadowtree.remote.dulwich_client import DaemonClient, HttpClient, Meter, SshClient, Throttled
from shadowtree.remote.failures import OUTSIDE_ERRORS, as_line, is_passing, translate
from shadowtree.remote.path_remote import PathRemote
from shadowtree.remote.receive import ReceiveLimits, Receiver, is_ref
from shadowtree.remote.thin_pack import (
    ObjectSource,
    PackedObject,
    StoreSource,
    encode_entry,
    is_ancestor,
    plan_pack,
    read_commit,
    write_pack,
)
from shadowtree.remote.url import RemoteUrl, parse_url, strip_password
from shadowtree.store.git_format import KIND_NUMBERS
from shadowtree.store.repo import ShadowObjectStore, ShadowRepo

Update = tuple[bytes | None, bytes | None]
"""The old and the new id of a ref; None: there is no such ref."""
Status = dict[bytes, str | None]
"""For each ref, None if it was changed, otherwise the reason why it was not."""
Progress = Callable[[str, int, int | None], None]
"""Called with the current activity, how much of it is done, and the total if known."""

CHANGED = "changed meanwhile"
NOT_FORWARD = "not a fast-forward"
_LISTED_BYTES = 256 << 20
"""The most bytes that a list of refs may have."""


@frozen
class TransportOptions:
    """All outside input: nothing else is read from the environment or the user's home."""

    environ: Mapping[str, str]
    """Used for credentials, proxies and the environment of `ssh`, without `GIT_*`."""
    credential_helper: str | bool | None = None
    """The command of a credential helper, from the user's settings; True: `git credential`."""
    ssh_command: str | None = None
    timeout_s: float = 60
    """How long an answer may take."""
    limits: ReceiveLimits = ReceiveLimits()
    progress: Progress | None = None
    progress_s: float = 0.1
    """The shortest time between two progress reports."""
    look_again_s: tuple[float, ...] = (0, 0.3, 1)
    """The pauses before checking whether a cut push succeeded, or retrying one that found a ref locked."""


def check_url(text: str) -> str:
    """Return a URL as it is shown and saved; raise InvalidInput if malformed or with a password."""
    return parse_url(text).text


def open_transport(url: str, repo: ShadowRepo, options: TransportOptions) -> Transport:
    """Prepare to use a remote; raise InvalidInput if its URL is malformed or contains a password."""
    return Transport(parse_url(url), repo, options)


class Transport:
    """The connection of a store to a remote. A context manager."""

    def __init__(self, url: RemoteUrl, repo: ShadowRepo, options: TransportOptions) -> None:
        assert isinstance(repo.object_store, ShadowObjectStore)
        self._url = url
        self._options = options
        self._limits = options.limits
        self._store = repo.object_store
        self._source = StoreSource(self._store)
        self._progress = Throttled(options.progress, options.progress_s)
        self._meter = Meter(_LISTED_BYTES)
        self._credentials: Credentials | None = None
        self._client: GitClient | None = None
        self._own_error: Exception | None = None
        self._path: PathRemote | None = None

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            self._client.close()
        if self._path is not None:
            self._path.close()
        self._client = self._path = None

    @property
    def url(self) -> str:
        """The URL of the remote, without credentials."""
        return self._url.text

    @property
    def sent_bytes(self) -> int:
        """How many bytes were sent so far."""
        return self._meter.sent

    @property
    def received_bytes(self) -> int:
        """How many bytes were received so far."""
        return self._meter.received

    # Listing

    def list_refs(self, prefixes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the refs that begin with one of `prefixes`, and the id that each names."""
        with self._errors():
            if self._url.scheme == "file":
                return self._check_refs(self._open_path().list_refs(), prefixes)
            result = self._ask(
                lambda client, path: client.get_refs(path, ref_prefix=list(prefixes)), _LISTED_BYTES
            )
            found = {bytes(ref): bytes(id) for ref, id in result.refs.items() if id is not None}
            return self._check_refs(self._as_raw(found), prefixes)

    def _as_raw(self, refs: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        if not all(valid_hexsha(id) and len(id) == 40 for id in refs.values()):
            raise RemoteDamaged(self.url, "it lists a ref without an id")
        return {ref: bytes(hex_to_sha(ObjectID(id))) for ref, id in refs.items()}

    def _check_refs(self, refs: Mapping[bytes, bytes], prefixes: Sequence[bytes]) -> dict[bytes, bytes]:
        """Leave out refs that were not requested; raise RemoteDamaged for an invalid name."""
        asked = tuple(prefixes)
        found = {ref: id for ref, id in refs.items() if ref.startswith(asked) and not ref.endswith(b"^{}")}
        for ref in found:
            if not is_ref(ref):
                raise RemoteDamaged(self.url, f"it has a ref with a forbidden name: {as_line(repr(ref))}")
        return found

    # Fetching

    def fetch(self, wanted: Collection[bytes], haves: Sequence[bytes]) -> None:
        """Fetch commits and what they need into the store, durably; what `haves` need is already there.

        Raises RemoteDamaged, with nothing stored, if what is received cannot be accepted.
        """
        missing = [id for id in dict.fromkeys(wanted) if not self._source.has(id)]
        if not missing:
            return
        with self._errors(), Receiver(self._store, self.url, self._limits) as receiver:
            known = [id for id in dict.fromkeys(haves) if self._source.has(id)]
            if self._url.scheme == "file":
                self._fetch_from_path(missing, known, receiver)
            else:
                self._fetch_from_server(missing, known, receiver)
            with self._ours():
                receiver.publish(
                    missing,
                    complete=known,
                    progress=lambda done, total: self._progress("check objects", done, total),
                )

    def _fetch_from_path(self, wanted: list[bytes], haves: list[bytes], receiver: Receiver) -> None:
        source = self._open_path().source
        if not all(map(source.has, wanted)):
            raise RemoteFailed(self.url, "what was asked for is not there any more")
        objects = plan_pack(source, wanted, haves, most_bytes=self._limits.object_bytes)
        for piece in write_pack(source, objects):
            receiver.write(piece)
            self._meter.received += len(piece)
            self._progress("receive bytes", receiver.bytes, None)

    def _fetch_from_server(self, wanted: list[bytes], haves: list[bytes], receiver: Receiver) -> None:
        wants = [_as_hex(id) for id in wanted]

        def take(piece: bytes) -> int:
            with self._ours():
                self._progress("receive bytes", receiver.bytes, None)
                return receiver.write(piece)

        def ask(client: GitClient, path: bytes) -> object:
            walker = ObjectStoreGraphWalker([_as_hex(id) for id in haves], self._parents)
            # The ids are known, so no refs need to be listed: none has this prefix.
            return client.fetch_pack(
                path, lambda refs, depth=None: wants, walker, take, ref_prefix=[b"refs/shadowtree-none/"]
            )

        self._ask(ask, self._limits.pack_bytes + self._limits.pack_bytes // 8 + _LISTED_BYTES)

    def _parents(self, id: ObjectID) -> list[ObjectID]:
        commit = read_commit(self._source, bytes(hex_to_sha(id)))
        return [_as_hex(parent) for parent in commit.parents] if commit else []

    # Pushing

    def push(self, updates: Mapping[bytes, Update], *, replace: bool = False) -> Status:
        """Change refs of the remote, and send what it lacks; all or none if the server is able to.

        Each update holds the expected old id. A ref that has another id by now is `CHANGED`; without
        `replace`, one whose new id does not descend from the old id is `NOT_FORWARD`. In both cases no ref is
        changed. Any other reason comes from the server.
        """
        return self._push(_Push(self._source, lambda present: updates, self._limits, replace=replace))

    def push_planned(
        self,
        plan: Callable[[dict[bytes, bytes]], Mapping[bytes, bytes | None]],
        prefixes: Sequence[bytes],
        *,
        replace: bool = False,
    ) -> Status:
        """Push in one connection what `plan` returns: the new id of each ref, or None to remove it.

        `plan` is called with the refs there that begin with `prefixes`, and again at each retry.
        """

        def decide(present: dict[bytes, bytes]) -> Mapping[bytes, Update]:
            planned = plan(self._check_refs(present, prefixes))
            return {ref: (present.get(ref), new) for ref, new in planned.items()}

        return self._push(_Push(self._source, decide, self._limits, replace=replace))

    def _push(self, push: _Push) -> Status:
        with self._errors():
            if self._url.scheme == "file":
                return self._push_to_path(push)
            return self._push_to_server(push)

    def _push_to_path(self, push: _Push) -> Status:
        remote = self._open_path()
        present = remote.list_refs()
        with self._ours():
            is_needed = push.decide(present)
        if is_needed:
            checked_out = [ref for ref in push.updates if remote.is_checked_out(ref)]
            if checked_out:
                return {
                    ref: "it is checked out there" if ref in checked_out else "not tried"
                    for ref in push.updates
                }
            self._meter.sent += remote.store(self._source, push.objects)
            for ref in remote.update(push.updates):
                push.status[ref] = CHANGED
        return push.status

    def _push_to_server(self, push: _Push) -> Status:
        # An earlier push that was cut may still have locked the refs, or be about to change them.
        for pause_s in self._options.look_again_s:
            status = self._push_once(push)
            if not any(map(is_passing, status.values())):
                return status
            sleep(pause_s)
        return self._push_once(push)

    def _push_once(self, push: _Push) -> Status:
        try:
            return self._send(push, is_atomic=True)
        except OUTSIDE_ERRORS as error:
            if not push.is_under_way or error is self._own_error:
                raise
            reason = self._translate(error)
        # The push may have succeeded all the same.
        for pause_s in self._options.look_again_s if push.is_sent else (0,):
            # The server may still be processing what it received.
            sleep(pause_s)
            try:
                refs = self.list_refs(list(push.updates))
            except RemoteFailed:
                raise RemoteFailed(self.url, f"{reason.why}; the push may or may not have arrived") from None
            if all(refs.get(ref) == new for ref, (_, new) in push.updates.items()):
                return push.status
        raise reason

    def _send(self, push: _Push, *, is_atomic: bool) -> Status:
        def update_refs(advertised: Mapping[Ref, ObjectID]) -> dict[Ref, ObjectID]:
            refs = {bytes(ref): bytes(id) for ref, id in advertised.items() if not ref.endswith(b"^{}")}
            present = self._as_raw(refs)
            with self._ours():
                if not push.decide(present):
                    return {}
            push.is_under_way = True
            return {Ref(ref): _as_hex(new) if new else ZERO_SHA for ref, (_, new) in push.updates.items()}

        def generate(*args: object, **named: object) -> tuple[int, Iterator[UnpackedObject]]:
            return len(push.objects), self._encode(push)

        def ask(client: GitClient, path: bytes) -> Any:  # Any: SendPackResult, whose fields are not typed
            return client.send_pack(path, update_refs, generate, atomic=is_atomic)

        try:
            result = self._ask(ask, _LISTED_BYTES)
        except GitProtocolError as error:
            if is_atomic and not push.is_under_way and "atomic" in str(error):
                return self._send(push, is_atomic=False)
            raise
        if not push.is_under_way:
            return push.status
        if result.ref_status is None:
            raise GitProtocolError("it does not say whether the push arrived")
        for ref in push.updates:
            reason = result.ref_status.get(ref, "not reported")
            push.status[ref] = None if reason is None else as_line(self._hide(str(reason)))
        return push.status

    def _encode(self, push: _Push) -> Iterator[UnpackedObject]:
        for number, object in enumerate(push.objects):
            self._progress("send objects", number, len(push.objects))
            unpacked = UnpackedObject(KIND_NUMBERS[b"blob"], sha=object.id, decomp_chunks=[])
            # dulwich sends these bytes as they are, including the header of the entry.
            unpacked.comp_chunks = self._pieces(object)  # type: ignore[assignment]  # it only iterates
            yield unpacked
        push.is_sent = True

    def _pieces(self, object: PackedObject) -> Iterator[bytes]:
        pieces = encode_entry(self._source, object)
        while True:
            with self._ours():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    # Connections

    def _open_path(self) -> PathRemote:
        if self._path is None:
            self._path = PathRemote(self.url, self._url.path)
        return self._path

    def _ask(
        self, ask: Callable[[Any, bytes], Any], most_bytes: int
    ) -> Any:  # Any: a client; what it answers
        """Call `ask` with a client; if the server requires credentials, call it once more with them."""
        self._meter.most_bytes = self._meter.received + most_bytes
        if self._client is None:
            self._client = self._open_client()
        is_http = isinstance(self._client, HttpClient)
        path = b"" if is_http else self._url.path.encode()
        try:
            return ask(self._client, path)
        except HTTPUnauthorized:
            self.close()
            found = ask_helper(self._url, self._sources()) if self._credentials is None else None
            if found is None:
                raise
            self._credentials = found
        except BaseException:
            self.close()
            raise
        return self._ask(ask, most_bytes)

    def _open_client(self) -> GitClient:
        url, options = self._url, self._options
        environ = child_environment(options.environ)
        if url.scheme == "git":
            return DaemonClient(url, options.timeout_s, self._meter)
        if url.scheme == "ssh":
            command = options.ssh_command
            return SshClient(url, options.timeout_s, self._meter, environ=environ, command=command)
        if self._credentials is None:
            self._credentials = find_at_once(url, self._sources())
        return HttpClient(url, options.timeout_s, self._meter, credentials=self._credentials, environ=environ)

    def _sources(self) -> CredentialSources:
        helper = self._options.credential_helper
        command = "git credential" if helper is True else helper or None
        return CredentialSources(self._options.environ, command, self._options.timeout_s)

    # Errors

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors from outside into our own, in one line, without credentials."""
        try:
            yield
        except ShadowError:
            raise
        except OUTSIDE_ERRORS as error:
            if error is self._own_error:
                raise
            raise self._translate(error) from None

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Mark errors that our own code raises when dulwich calls it: they are no fault of the remote."""
        try:
            yield
        except Exception as error:
            self._own_error = error
            raise

    def _translate(self, error: Exception) -> RemoteFailed:
        timeout_s = self._options.timeout_s
        has_credentials = self._credentials is not None
        return translate(error, self._url, timeout_s, self._hide, has_credentials=has_credentials)

    def _hide(self, text: str) -> str:
        """Remove credentials from a text."""
        if self._credentials is not None and self._credentials.password:
            text = text.replace(self._credentials.password, "***")
        return strip_password(text)


class _Push:
    """The refs and objects of one push, and its progress."""

    def __init__(
        self,
        source: ObjectSource,
        plan: Callable[[dict[bytes, bytes]], Mapping[bytes, Update]],
        limits: ReceiveLimits,
        *,
        replace: bool,
    ) -> None:
        self._source = source
        self._plan = plan
        self._limits = limits
        self._replace = replace
        self.updates: dict[bytes, Update] = {}
        self.status: Status = {}
        self.objects: list[PackedObject] = []
        self.is_under_way = False
        """The server may have changed its refs already."""
        self.is_sent = False
        """The server may have received all objects."""

    def decide(self, present: dict[bytes, bytes]) -> bool:
        """Compare the plan with the refs that are there; return whether anything is to be sent or changed."""
        self.is_under_way = self.is_sent = False
        updates = self._plan(present)
        self.status = dict.fromkeys(updates)
        for ref, (old, new) in updates.items():
            there = present.get(ref)
            if not is_ref(ref):
                raise InvalidInput(f"not the name of a ref: {ref!r}")
            if there == new:
                continue
            if there != old:
                self.status[ref] = CHANGED
            elif old and new and not self._replace and not is_ancestor(self._source, old, new):
                self.status[ref] = NOT_FORWARD
        self.updates = {ref: update for ref, update in updates.items() if present.get(ref) != update[1]}
        if not self.updates or any(self.status.values()):
            return False
        wants = [new for _, new in self.updates.values() if new]
        haves = dict.fromkeys(present.values())
        self.objects = plan_pack(self._source, wants, haves, most_bytes=self._limits.object_bytes)
        return True


def _as_hex(id: bytes) -> ObjectID:
    return sha_to_hex(RawObjectID(id))
