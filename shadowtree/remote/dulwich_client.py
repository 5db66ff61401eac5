"""dulwich's clients, with limits on every wait and every read, and independent of the user's configuration.

Unchanged, they wait forever (git, ssh), try a request four times (HTTP), open a connection for each request,
read proxies and `GIT_*` from the environment, and collect the errors of ssh in a pipe that can fill up.

These private names of dulwich are used here, and nowhere else in `remote/`: `_connect`, `_http_request`,
`_host`, `_port`, `_origin`, `_fetch_capabilities`.
"""

from __future__ import annotations

import os
import select
import shlex
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import IO, Any
from urllib.parse import unquote, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed has it for macOS only

import urllib3
from dulwich.client import (
    HTTPProxyUnauthorized,
    HTTPUnauthorized,
    SSHGitClient,
    SSHVendor,
    TCPGitClient,
    Urllib3HttpGitClient,
)
from dulwich.errors import GitProtocolError, NotGitRepository
from dulwich.protocol import CAPABILITY_PACKFILE_URIS, Protocol

from shadowtree.remote.credentials import Credentials
from shadowtree.remote.url import RemoteUrl

_MOST_KEPT = 1 << 16
"""How many bytes are read to keep a connection usable; if there are more, a new connection is cheaper."""
_GATHERED_BYTES = 1 << 16
_LAST_WORDS_S = 5.0
"""How long a child may take to print its last errors..."""
_END_S = 0.5
"""...and how long to exit by itself."""


class Throttled:
    """Reports progress, but not too often."""

    def __init__(self, tell: Callable[[str, int, int | None], None] | None, pause_s: float) -> None:
        self._tell = tell
        self._pause_s = pause_s
        self._next_s = 0.0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Report progress, unless the last report is more recent than the pause."""
        if self._tell is not None and monotonic() >= self._next_s:
            self._next_s = monotonic() + self._pause_s
            self._tell(what, done, total)


class Meter:
    """Counts the bytes sent and received, and stops reading when there are too many."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.sent = 0
        self.received = 0

    def reading(self, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Return a function that reads and counts the bytes."""

        def metered(size: int = -1) -> bytes:
            piece = read(size)
            self.received += len(piece)
            if self.received > self.most_bytes:
                raise GitProtocolError("it sends without end")
            return piece

        return metered

    def writing(self, write: Callable[[bytes], Any]) -> Callable[[bytes], Any]:  # Any: it is not used
        """Return a function that writes and counts the bytes."""

        def metered(piece: bytes) -> None:
            write(piece)
            self.sent += len(piece)

        return metered


class _Gathered:
    """Buffers what is written, and sends it in large pieces, at the latest before an answer is read."""

    def __init__(self, read: Callable[[int], bytes], write: Callable[[bytes], Any]) -> None:  # Any: as above
        self._read, self._write = read, write
        self._waiting = bytearray()

    def read(self, size: int) -> bytes:
        """Send what is buffered, then read."""
        self.flush()
        return self._read(size)

    def write(self, piece: bytes) -> None:
        """Buffer a piece, and send the buffer when it is full."""
        self._waiting += piece
        if len(self._waiting) >= _GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is buffered."""
        if self._waiting:
            piece, self._waiting = bytes(self._waiting), bytearray()
            self._write(piece)

    def end(self) -> None:
        """Send the buffer only if it is a lone flush packet: an abandoned push is not sent."""
        if self._waiting == b"0000":
            with suppress(OSError):
                self.flush()


# git://


class DaemonClient(TCPGitClient):
    """A client for `git daemon`."""

    def __init__(self, url: RemoteUrl, timeout_s: float, meter: Meter) -> None:
        super().__init__(url.host, url.port)
        self._timeout_s = timeout_s
        self._meter = meter
        self._proto: Protocol | None = None

    def close(self) -> None:
        """Close the connection, which dulwich leaves open if the first exchange fails."""
        if self._proto is not None:
            self._proto.close()

    def _connect(
        self, cmd: bytes, path: str | bytes, protocol_version: int | None = None
    ) -> tuple[Protocol, Callable[[], bool], IO[bytes] | None]:
        connection = socket.create_connection((self._host, self._port), self._timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = connection.makefile("rb")

        def close() -> None:
            gathered.end()
            reader.close()
            connection.close()

        gathered = _Gathered(self._meter.reading(reader.read), self._meter.writing(connection.sendall))

        def shutdown_write() -> None:
            gathered.flush()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)

        proto = self._proto = Protocol(
            gathered.read,
            gathered.write,
            close,
            shutdown_write=shutdown_write,
        )
        self.protocol_version = _version(cmd, protocol_version)
        host = b"host=" + self._host.encode("idna" if not self._host.isascii() else "ascii")
        extra = b"\0\0version=%d\0" % self.protocol_version if self.protocol_version else b""
        raw_path = path.encode() if isinstance(path, str) else path
        path = raw_path[1:] if raw_path.startswith(b"/~") else raw_path
        proto.send_cmd(b"git-" + cmd, path, host + extra)

        def can_read() -> bool:
            gathered.flush()
            return _is_ready(connection.fileno(), select.POLLIN, 0)

        return proto, can_read, None


def _is_ready(fd: int, event: int, timeout_s: float) -> bool:
    """Wait until a descriptor is ready; return False on a timeout. Unlike `select`, this takes any number."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(timeout_s * 1000))


def _version(cmd: bytes, wanted: int | None) -> int:
    """Return the version of git's protocol to use: only fetching supports version 2."""
    return 0 if cmd != b"upload-pack" else 2 if wanted is None else wanted


# ssh


class SshClient(SSHGitClient):
    """A client for git over the `ssh` program, which uses the keys of its agent and never prompts."""

    def __init__(
        self,
        url: RemoteUrl,
        timeout_s: float,
        meter: Meter,
        *,
        environ: Mapping[str, str],
        command: str | None,
    ) -> None:
        vendor = _Ssh(environ, timeout_s, meter, shlex.split(command or "ssh"))
        super().__init__(url.host, url.port, url.user, vendor=vendor, ssh_command="ssh")
        self._proto: Protocol | None = None

    def close(self) -> None:
        """End the child, which dulwich leaves running if the first exchange fails."""
        if self._proto is not None:
            self._proto.close()

    def _connect(
        self, cmd: bytes, path: str | bytes, protocol_version: int | None = None
    ) -> tuple[Protocol, Callable[[], bool], IO[bytes] | None]:
        self.protocol_version = _version(cmd, protocol_version)
        connection = super()._connect(cmd, path, self.protocol_version)
        self._proto = connection[0]
        return connection


class _Ssh(SSHVendor):
    """Runs `ssh`."""

    def __init__(
        self, environ: Mapping[str, str], timeout_s: float, meter: Meter, command: list[str]
    ) -> None:
        self._environ = environ
        self._timeout_s = timeout_s
        self._meter = meter
        self._command = command

    # Any: other options that dulwich passes, which are not used
    def run_command(  # type: ignore[override]  # as in dulwich, whose own vendors return such an object
        self,
        host: str,
        command: bytes,
        username: str | None = None,
        port: int | None = None,
        protocol_version: int | None = None,
        **rest: Any,
    ) -> _Child:
        seconds = max(1, int(self._timeout_s))
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": seconds,
            "ServerAliveInterval": seconds,
            "ServerAliveCountMax": 1,
        }
        arguments = [
            *self._command,
            "-x",
            *(part for item in options.items() for part in ("-o", f"{item[0]}={item[1]}")),
        ]
        if port is not None:
            arguments += ["-p", str(port)]
        if protocol_version:
            arguments += ["-o", f"SetEnv=GIT_PROTOCOL=version={protocol_version}"]
        arguments += ["--", f"{username}@{host}" if username else host, os.fsdecode(command)]
        return _Child(arguments, self._environ, self._timeout_s, self._meter)


class _Child:
    """A child process that is reached through pipes, with a limit on every wait."""

    def __init__(
        self, arguments: list[str], environ: Mapping[str, str], timeout_s: float, meter: Meter
    ) -> None:
        self._timeout_s = timeout_s
        self._words = tempfile.TemporaryFile()  # noqa: SIM115  # `close` does
        try:
            self._process = subprocess.Popen(
                arguments,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                env=dict(environ),
                start_new_session=True,
            )
        except BaseException:
            self._words.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        self._buffer = b""
        self._gathered = _Gathered(meter.reading(self._read), meter.writing(self._write))
        self.read, self.write = self._gathered.read, self._gathered.write

    def can_read(self) -> bool:
        """Return whether there is something to read."""
        self._gathered.flush()
        return bool(self._buffer) or _is_ready(self._out, select.POLLIN, 0)

    @property
    def stderr(self) -> _Child:
        """The object that dulwich reads the error output from."""
        return self

    def readlines(self) -> list[bytes]:
        """Wait briefly for the child to exit, and return the lines of its error output."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_WORDS_S)
        self._words.seek(0)
        return self._words.read(_MOST_KEPT).splitlines()

    def close(self) -> None:
        """Close the pipes, and kill the child if it does not exit soon."""
        self._gathered.end()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            # The request was answered, or the answer is no longer needed.
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._words.close()

    def _read(self, size: int) -> bytes:
        """Read `size` bytes, or fewer if the output ends before."""
        pieces, left = [self._buffer[:size]], size - len(self._buffer[:size])
        self._buffer = self._buffer[size:]
        while left > 0:
            self._wait(self._out, select.POLLIN)
            piece = os.read(self._out, 1 << 16)
            if not piece:
                break
            pieces.append(piece[:left])
            self._buffer = piece[left:]
            left -= len(pieces[-1])
        return b"".join(pieces)

    def _write(self, content: bytes) -> None:
        view = memoryview(content)
        while view:
            self._wait(self._in, select.POLLOUT)
            with suppress(BlockingIOError):
                view = view[os.write(self._in, view[: 1 << 16]) :]

    def _wait(self, fd: int, event: int) -> None:
        if not _is_ready(fd, event, self._timeout_s):
            raise TimeoutError(f"no answer for {self._timeout_s:g} s")


# HTTP


class HttpClient(Urllib3HttpGitClient):
    """A client for git over HTTP: one connection, no retries, credentials for one origin only."""

    def __init__(
        self,
        url: RemoteUrl,
        timeout_s: float,
        meter: Meter,
        *,
        credentials: Credentials | None,
        environ: Mapping[str, str],
    ) -> None:
        self._meter = meter
        self._origins = {self._origin(base_url(url))}
        super().__init__(
            base_url(url),
            pool_manager=_pool(url, timeout_s, environ),
            username=credentials.user if credentials else None,
            password=credentials.password if credentials else None,
        )

        # With it, a server could direct the client to any address.
        self._fetch_capabilities.discard(CAPABILITY_PACKFILE_URIS)

    def close(self) -> None:
        """Close the connection."""
        self.pool_manager.clear()

    def _http_request(
        self,
        url: str,
        headers: dict[str, str] | None = None,
        data: bytes | Iterator[bytes] | None = None,
        raise_for_status: bool = True,
    ) -> tuple[Any, Callable[[int], bytes]]:  # Any: as in dulwich
        if isinstance(data, bytes):
            self._meter.sent += len(data)
        elif data is not None:
            data = self._count(data)
        origin = self._origin(url)
        if origin not in self._origins:
            raise GitProtocolError("it leads to another server")
        response: Any  # Any: of urllib3, with what dulwich adds
        response, read = super()._http_request(url, headers, data, raise_for_status=False)
        if raise_for_status and response.status != 200:
            # dulwich would leave the response open.
            response.close()
            raise _error_of(response, url)
        if url.partition("?")[0].endswith("/info/refs"):
            if not str(response.content_type).startswith("application/x-git-"):
                response.close()
                raise GitProtocolError("it does not speak git's smart protocol")
            # From here on, requests to a redirect's target are allowed, without credentials.
            self._origins.add(self._origin(str(response.geturl() or url)))
        if url.startswith("https:") and not str(response.geturl() or url).startswith("https:"):
            response.close()
            raise GitProtocolError("it redirects to an address without encryption")
        close = response.close

        def release() -> None:
            with suppress(urllib3.exceptions.HTTPError, OSError):
                if len(response.read(_MOST_KEPT)) < _MOST_KEPT:
                    response.release_conn()
                    return
            close()

        response.close = release
        return response, self._meter.reading(read)

    def _count(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._meter.sent += len(piece)
            yield piece


def _error_of(response: Any, url: str) -> Exception:  # Any: as above
    if response.status == 401:
        return HTTPUnauthorized(response.headers.get("WWW-Authenticate"), url)
    if response.status == 407:
        return HTTPProxyUnauthorized(response.headers.get("Proxy-Authenticate"), url)
    if response.status == 404:
        return NotGitRepository()
    return GitProtocolError(f"it answers with HTTP status {response.status}")


def base_url(url: RemoteUrl) -> str:
    """Return the URL without a user."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    port = "" if url.port is None else f":{url.port}"
    return f"{url.scheme}://{host}{port}{url.path}"


def _pool(url: RemoteUrl, timeout_s: float, environ: Mapping[str, str]) -> urllib3.PoolManager:
    """Return a connection pool that checks certificates and uses the proxy from the environment."""
    retries = urllib3.Retry(total=5, connect=0, read=0, redirect=3, status=0, other=0)
    timeout = urllib3.Timeout(connect=timeout_s, read=timeout_s)
    # GitHub only answers clients that call themselves git.
    headers = {"User-agent": "git/shadowtree"}
    proxies = {
        name.lower().removesuffix("_proxy"): value
        for name, value in environ.items()
        if name.lower().endswith("_proxy") and value
    }
    proxy = proxies.get(url.scheme) or proxies.get("all")
    if not proxy or proxy_bypass_environment(url.host, proxies):
        return urllib3.PoolManager(
            headers=headers, retries=retries, timeout=timeout, cert_reqs="CERT_REQUIRED"
        )
    login = urlsplit(proxy)
    user = f"{unquote(login.username)}:{unquote(login.password or '')}" if login.username else None
    return urllib3.ProxyManager(
        proxy,
        proxy_headers=urllib3.make_headers(proxy_basic_auth=user) if user else None,
        headers=headers,
        retries=retries,
        timeout=timeout,
        cert_reqs="CERT_REQUIRED",
    )
