"""Real git servers on loopback: `git daemon`, `git http-backend` behind lighttpd, sshd, gitolite.

Each writes to files, because a server that is left over could hold a pipe open. Each is stopped by its id.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

USER, PASSWORD = "worker", "pass-9f3c-word"
NAMES = ("daemon", "http", "ssh", "gitolite")
"""Every kind of server."""

_LIGHTTPD = """
server.modules = ("mod_alias", "mod_cgi", "mod_setenv", "mod_auth", "mod_authn_file")
server.bind = "127.0.0.1"
server.port = {port}
server.document-root = "{root}"
server.errorlog = "{root}/lighttpd.log"
server.upload-dirs = ("{root}")
alias.url = ("/" => "{backend}/")
cgi.assign = ("" => "")
setenv.set-environment = ("GIT_PROJECT_ROOT" => "{root}", "GIT_HTTP_EXPORT_ALL" => "1", "HOME" => "{root}")
auth.backend = "plain"
auth.backend.plain.userfile = "{root}/users"
auth.require = ("/" => ("method" => "basic", "realm" => "git", "require" => "valid-user"))
"""
_SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {root}/host_key
AuthorizedKeysFile {authorized}
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
AcceptEnv GIT_PROTOCOL
{more}
"""


@dataclass
class Server:
    """A running server."""

    name: str
    port: int
    root: Path
    """The directory of its repositories."""
    url: Callable[[str, int], str]
    """Returns the URL of a repository at a port, which may be that of a proxy."""
    ssh_command: str | None = None
    environ: dict[str, str] = field(default_factory=dict)
    """The environment of a client that may push."""
    make: Callable[[str], None] | None = None
    pid: int = 0
    """The leader of its process group."""

    def make_repository(self, name: str) -> Path:
        """Make an empty repository; return its path."""
        path = self.root / f"{name}.git"
        if self.make is not None:
            self.make(name)
        else:
            template = self.root / "template"
            if not template.exists():
                git("init", "-q", "--bare", "--template=", str(template), cwd=self.root)
                git("config", "http.receivepack", "true", cwd=template)
            shutil.copytree(template, path)
        return path


def environment(**variables: str) -> dict[str, str]:
    """Return an environment in which git reads no configuration."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        **variables,
    }


def git(*arguments: str, cwd: Path, **variables: str) -> str:
    """Run real git; return its output."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def assert_clean(repository: Path) -> None:
    """Fail unless real git finds a repository sound."""
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", "fsck", "--full", "--strict", "--no-dangling"],
        cwd=repository,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if "unborn branch" not in line]
    assert (done.returncode, said) == (0, [])


def require(program: str) -> str:
    """Find a program. Without it the tests fail, so that nobody believes that they passed."""
    found = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
    if found is None and sys.platform == "darwin":
        import pytest  # the benchmarks can do without it

        pytest.skip(f"there is no {program} on macOS")
    assert found, f"{program} is not installed; see CONTRIBUTING.md for what the tests need"
    return found


@contextmanager
def running(
    arguments: list[str], root: Path, port: int, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the end of the block, and wait until it listens."""
    with open(root / f"{port}.log", "wb") as log:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(**variables),
            start_new_session=True,
        )
    try:
        _wait_for(port, process, root)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)


def _wait_for(port: int, process: subprocess.Popen[bytes], root: Path) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            said = (root / f"{port}.log").read_text(errors="replace")
            assert process.poll() is None, said
            assert time.monotonic() < deadline, said
            time.sleep(0.005)
        else:
            return


def free_port() -> int:
    """Find a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def start(name: str, root: Path) -> Iterator[Server]:
    """Run one kind of server, with its repositories in `root`."""
    root.mkdir(parents=True, exist_ok=True)
    starters = {"daemon": _daemon, "http": _http, "ssh": _ssh, "gitolite": _gitolite}
    with starters[name](root) as server:
        yield server


@contextmanager
def _daemon(root: Path) -> Iterator[Server]:
    port, programs = free_port(), git("--exec-path", cwd=root).strip()
    arguments = [
        # `git daemon` would start one process more.
        *(f"{programs}/git-daemon", "--listen=127.0.0.1", f"--port={port}", f"--base-path={root}"),
        *("--export-all", "--enable=receive-pack", "--reuseaddr", str(root)),
    ]
    with running(arguments, root, port) as process:
        yield Server(
            "daemon", port, root, lambda name, port: f"git://127.0.0.1:{port}/{name}.git", pid=process.pid
        )


@contextmanager
def _http(root: Path) -> Iterator[Server]:
    port = free_port()
    backend = git("--exec-path", cwd=root).strip()
    assert os.path.exists(f"{backend}/git-http-backend")
    (root / "users").write_text(f"{USER}:{PASSWORD}\n")
    config = root / "lighttpd.conf"
    config.write_text(_LIGHTTPD.format(port=port, root=root, backend=f"{backend}/git-http-backend"))
    with running([require("lighttpd"), "-D", "-f", str(config)], root, port):
        yield Server(
            "http",
            port,
            root,
            lambda name, port: f"http://127.0.0.1:{port}/{name}.git",
            environ={"SHADOWTREE_REMOTE_USER": USER, "SHADOWTREE_REMOTE_PASSWORD": PASSWORD},
        )


@contextmanager
def _sshd(root: Path, authorized: Path, more: str = "") -> Iterator[tuple[int, str]]:
    port = free_port()
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    for key in ("host_key", "user_key"):
        if not (root / key).exists():
            make_key(root / key)
    config = root / "sshd.conf"
    config.write_text(_SSHD.format(port=port, root=root, authorized=authorized, more=more))
    host_key = (root / "host_key.pub").read_text()
    (root / "known").write_text(f"* {host_key}")
    command = (
        f"ssh -F none -i {root}/user_key -o IdentitiesOnly=yes -o UserKnownHostsFile={root}/known"
        " -o GlobalKnownHostsFile=none"
    )
    with running([require("sshd"), "-D", "-e", "-f", str(config)], root, port):
        yield port, command


def make_key(path: Path) -> None:
    """Make an SSH key."""
    arguments = [require("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(arguments, check=True, stdin=subprocess.DEVNULL)


@contextmanager
def _ssh(root: Path) -> Iterator[Server]:
    make_key(root / "user_key")
    shutil.copy(root / "user_key.pub", root / "authorized")
    user = getpass.getuser()
    with _sshd(root, root / "authorized", f"SetEnv GIT_CONFIG_GLOBAL=/dev/null HOME={root}") as (
        port,
        command,
    ):
        yield Server(
            "ssh", port, root, lambda name, port: f"ssh://{user}@127.0.0.1:{port}{root}/{name}.git", command
        )


@contextmanager
def _gitolite(root: Path) -> Iterator[Server]:
    """Run gitolite, in which everybody with a key can create repositories by pushing to them."""
    home = root / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    make_key(root / "user_key")
    shutil.copy(root / "user_key.pub", root / "admin.pub")
    gitolite = require("gitolite")
    surroundings = environment(HOME=str(home), USER=getpass.getuser())
    subprocess.run(
        [gitolite, "setup", "-pk", str(root / "admin.pub")],
        env=surroundings,
        cwd=home,
        check=True,
        capture_output=True,
    )
    config = home / ".gitolite" / "conf" / "gitolite.conf"
    config.write_text(config.read_text() + "\nrepo t[a-z0-9-]*\n    C = @all\n    RW+ = @all\n")
    subprocess.run([gitolite, "compile"], env=surroundings, cwd=home, check=True, capture_output=True)
    user = getpass.getuser()
    authorized = home / ".ssh" / "authorized_keys"
    with _sshd(root, authorized, f"SetEnv HOME={home} GIT_CONFIG_GLOBAL=/dev/null") as (port, command):

        def make(name: str) -> None:
            subprocess.run(
                [gitolite, "create", name, "admin"],
                env={**surroundings, "GL_USER": "admin"},
                cwd=home,
                check=False,
                capture_output=True,
            )
            ssh = [*command.split(), "-p", str(port), f"{user}@127.0.0.1", f"git-upload-pack '{name}'"]
            subprocess.run(ssh, input=b"0000", env=environment(), check=True, capture_output=True)

        yield Server(
            "gitolite",
            port,
            home / "repositories",
            lambda name, port: f"ssh://{user}@127.0.0.1:{port}/{name}",
            command,
            make=make,
        )
