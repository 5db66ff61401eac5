"""The remotes of a directory: what `Shadow.remotes` returns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from shadowtree.access.access import Access
from shadowtree.base.errors import InvalidInput, RemoteFailed, ShadowError, describe
from shadowtree.base.interrupts import Cancellation
from shadowtree.conversation.ref_names import read_rows_ref
from shadowtree.remote.bundle import read_bundle, write_bundle
from shadowtree.remote.fetch import choose_session, fetch_sessions, resume_session, take_in, wrap_first
from shadowtree.remote.push import Push, PushOptions, require_confirmed
from shadowtree.remote.state import (
    RemoteState,
    add_remote,
    find_remote,
    list_remotes,
    remove_remote,
    save_remote,
)
from shadowtree.remote.transport import Transport, TransportOptions, check_url, open_transport
from shadowtree.results.remotes import Fetched, Pushed, PushPreview, Remote, Resumed
from shadowtree.system.syscalls import move

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shadowtree.base.arguments import StrPath

Progress = Callable[[str, int, int | None], None]
"""Called with the current activity, how much of it is done, and the total if known."""
_FIRST_RETRY_S = 30.0
_LAST_RETRY_S = 3600.0
_TRIES = 3


class Remotes:
    """Git repositories to which the sessions of one directory are pushed, and from which they are fetched.

    A remote is kept in the store. Its password is not: it comes from netrc, the environment, an SSH agent or,
    if your settings say so, git's credential helper.
    """

    def __init__(
        self, access: Access, environ: Mapping[str, str], cancellation: Cancellation | None = None
    ) -> None:
        self._access = access
        self._environ = environ
        self._cancellation = cancellation or Cancellation()

    def all(self) -> list[Remote]:
        """List the remotes, sorted by name."""
        return [remote.to_remote() for remote in self._list()]

    def add(self, name: str, url: str) -> Remote:
        """Add a remote. Raises InvalidInput if the name is taken, or the URL contains a password."""
        address = self._absolute(check_url(url))
        wrap_first(self._access)
        with self._access.locked() as opened:
            return add_remote(opened.journal.database, name, address).to_remote()

    def remove(self, name: str) -> Remote:
        """Remove a remote from the list; what was pushed stays there. Raises UnknownName."""
        with self._access.locked() as opened:
            found = find_remote(opened.journal.database, name)
            remove_remote(opened.journal.database, found)
        return found.to_remote()

    def push(
        self,
        name: str | None = None,
        *,
        sessions: tuple[str, ...] | None = None,
        text: bool | None = None,
        replaces: bool = False,
        confirm: Callable[[PushPreview], bool] | None = None,
        progress: Progress | None = None,
    ) -> Pushed:
        """Push `sessions`, or all. Raises UnknownName, RemoteFailed or NotConfirmed.

        Texts of messages are pushed only with `text`, or if your settings say so. With `replaces`, the
        remote keeps nothing that is forgotten or purged here. `confirm` is called before the first push.
        """
        remote, options = self._find(name), self._push_options(sessions, text, replaces=replaces)
        require_confirmed(self._access, remote, options, confirm)
        with self._open(remote.url, progress) as transport:
            for _ in range(_TRIES):
                push = Push(self._access, self._find(remote.name), options)
                pushed = push.run(transport)
                if not push.unknown:
                    return pushed
                # Another store pushed under this store's id: a copy of it, or its state before a restore.
                for session in push.unknown:
                    fetch_sessions(self._access, self._find(remote.name), transport, session.wire.session)
        raise RemoteFailed(remote.url, "others keep pushing the same session; try again later")

    def fetch(
        self, name: str | None = None, *, session: str | None = None, progress: Progress | None = None
    ) -> Fetched:
        """Fetch what other machines pushed, and add it to the timeline. Touches no file.

        Raises UnknownName or RemoteFailed. Sessions that cannot be trusted are listed as refused.
        """
        remote = self._find(name)
        with self._open(remote.url, progress) as transport:
            return fetch_sessions(self._access, remote, transport, session)

    def resume(
        self,
        url: str,
        *,
        session: str | None = None,
        at: str | None = None,
        overwrite: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Resumed:
        """Continue a session in this directory, which must be empty or equal to its head, or to `at`.

        `url` may be the name of a remote, or a git bundle; any other URL is added as a remote. Without
        `session`, it is the one with the latest event. With `overwrite`, files that differ are recorded and
        replaced. A dry run fetches, but changes no file. Raises UnknownName, RemoteFailed or Conflict.
        """
        address = self._find_url(url)
        wrap_first(self._access)
        if os.path.isfile(address):
            fetched, refs = self._read_file(address)
        else:
            remote = self._remember(address)
            with self._open(address, progress) as transport:
                name = None if session is None else session.partition("@")[0]
                fetched = fetch_sessions(self._access, remote, transport, name, only_new=False)
            refs = [ref.encode() for ref in self._find(remote.name).known]
        wires = [wire for ref in refs if (wire := read_rows_ref(ref)) is not None]
        here = choose_session(self._access, fetched, wires, session)
        how = {"overwrites": overwrite, "dry_run": dry_run}
        done, head = resume_session(self._access, here, at, self._cancellation, **how)
        where = self._access.worktree, self._access.store
        return Resumed(*where, here, head, len(done.restored), fetched.remote, address, done)

    def export_file(self, file: StrPath, *, text: bool | None = None, overwrite: bool = False) -> Pushed:
        """Write all sessions to a git bundle. Raises RemoteFailed if the file cannot be written.

        Raises InvalidInput if there is nothing to export, or if the file exists and `overwrite` is not set.
        """
        path, options = os.fspath(file), self._push_options(None, text, replaces=True)
        if os.path.lexists(path) and not overwrite:
            raise InvalidInput(f"{path} exists already")
        push = Push(self._access, RemoteState(0, path, path), options)
        refs = {ref: id for ref, id in push.plan({}).items() if id is not None}
        if not refs:
            raise InvalidInput("there is nothing to export: no message was recorded")
        temporary = f"{path}.{os.getpid()}.tmp"
        with _file_errors(path), self._access.open_objects() as repo:
            try:
                with open(temporary, "wb") as stream:
                    write_bundle(stream, repo, refs)
                    stream.flush()
                    os.fsync(stream.fileno())
                    push.sent_bytes = stream.tell()
                _put_in_place(temporary, path, overwrite=overwrite)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        return push.describe()

    def import_file(self, file: StrPath) -> Fetched:
        """Add the sessions in a git bundle to the timeline. Touches no file. Raises RemoteFailed."""
        wrap_first(self._access)
        return self._read_file(os.fspath(file))[0]

    def _read_file(self, path: str) -> tuple[Fetched, list[bytes]]:
        """Read a git bundle and join its sessions; return the result and their refs."""
        with _file_errors(path), self._access.open_objects() as repo, open(path, "rb") as stream:
            refs = read_bundle(stream, repo, name=path)
        rows = {ref: id for ref, id in refs.items() if read_rows_ref(ref) is not None}
        if not rows:
            raise RemoteFailed(path, "no session in it")
        return take_in(self._access, RemoteState(0, path, path), rows), [*rows]

    # In idle time

    def push_if_due(self) -> float | None:
        """Push to the remote that the setting `auto_push` names, unless a message is open.

        Failures are saved with the remote, for `status` and `doctor`. Returns the seconds until the next try,
        or None if there is nothing to do until something is recorded.
        """
        name = self._access.config.read().auto_push
        if not name or not self._access.is_wrapped:
            return None
        opened = self._access.read(lambda opened, site: opened.journal.open_messages())
        remote = next((each for each in self._list() if each.name == name), None)
        if opened or remote is None or not remote.is_confirmed:
            return None
        if remote.retry_ms > self._access.now_ms:
            return (remote.retry_ms - self._access.now_ms) / 1000
        try:
            self.push(name)
        except ShadowError as error:
            return self._note_failure(remote, str(error))
        return None

    def _note_failure(self, remote: RemoteState, why: str) -> float:
        """Save that a push failed, and return the seconds until the next try."""
        wait_s = min(_LAST_RETRY_S, _FIRST_RETRY_S * (1 << min(remote.failures, 10)))
        retry_ms = self._access.now_ms + int(wait_s * 1000)
        with self._access.locked() as opened:
            database = opened.journal.database
            save_remote(database, remote, failures=remote.failures + 1, why=why[:500], retry_ms=retry_ms)
        return wait_s

    # Helpers

    def _list(self) -> list[RemoteState]:
        return self._access.read_or([], lambda opened, site: list_remotes(opened.journal.database))

    def _find(self, name: str | None) -> RemoteState:
        return self._access.read(lambda opened, site: find_remote(opened.journal.database, name))

    def _find_url(self, url: str) -> str:
        """Return the URL of a remote, given its name or its URL."""
        for remote in self.all():
            if remote.name == url:
                return remote.url
        return self._absolute(check_url(url))

    def _absolute(self, url: str) -> str:
        """Make the path of a remote absolute, because later commands may run in another directory."""
        is_path = "://" not in url and (url.startswith((".", "/", "~")) or os.path.isdir(url))
        return os.path.abspath(url) if is_path else url

    def _remember(self, url: str) -> RemoteState:
        """Find the remote with a URL, or add it as `origin` or, if that is taken, `origin-2` and so on."""
        with self._access.locked() as opened:
            database = opened.journal.database
            remotes = list_remotes(database)
            found = next((remote for remote in remotes if remote.url == url), None)
            if found is not None:
                return found
            names = {remote.name for remote in remotes}
            name = next(
                each for each in ("origin", *(f"origin-{n}" for n in range(2, 1000))) if each not in names
            )
            return add_remote(database, name, url)

    def _push_options(
        self, sessions: tuple[str, ...] | None, text: bool | None, *, replaces: bool
    ) -> PushOptions:
        settings = self._access.config.read()
        with_text = settings.push_text if text is None else text
        return PushOptions(sessions, with_text, settings.push_exclude, replaces)

    def _options(self, progress: Progress | None) -> TransportOptions:
        settings = self._access.config.read()
        return TransportOptions(
            self._environ,
            credential_helper=settings.credential_helper or None,
            ssh_command=settings.ssh_command or None,
            timeout_s=settings.remote_timeout,
            progress=self._heed(progress),
        )

    def _heed(self, progress: Progress | None) -> Progress:
        """Return a progress function that also stops the transfer if it was cancelled."""

        def heed(what: str, done: int, total: int | None) -> None:
            self._cancellation.check()
            if progress is not None:
                progress(what, done, total)

        return heed

    @contextmanager
    def _open(self, url: str, progress: Progress | None) -> Iterator[Transport]:
        with (
            self._access.open_objects() as repo,
            open_transport(url, repo, self._options(progress)) as transport,
        ):
            yield transport


def _put_in_place(temporary: str, path: str, *, overwrite: bool) -> None:
    """Move a file to its final name; without `overwrite`, raise FileExistsError if the name is taken."""
    if overwrite:
        os.replace(temporary, path)
        return
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        old, new = (os.fsencode(os.path.basename(name)) for name in (temporary, path))
        move(directory, old, directory, new)
    finally:
        os.close(directory)


@contextmanager
def _file_errors(path: str) -> Iterator[None]:
    """Turn an OSError about a bundle into RemoteFailed."""
    try:
        yield
    except OSError as error:
        raise RemoteFailed(path, describe(error)) from error
