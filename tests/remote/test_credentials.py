"""Credentials: where they are found, and that no password is ever shown."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shadowtree.base.errors import InvalidInput, RemoteFailed, RemoteRefused
from shadowtree.remote.credentials import Credentials
from shadowtree.remote.transport import TransportOptions, check_url, open_transport
from shadowtree.remote.url import parse_url, strip_password
from shadowtree.store.repo import ShadowRepo
from tests.remote.commits import Line
from tests.remote.conftest import Remote
from tests.remote.fault_proxy import FaultProxy
from tests.remote.servers import PASSWORD, USER

SESSION = b"refs/heads/sessions/default"


@pytest.fixture
def http(make_remote: Callable[[str], Remote]) -> Remote:
    """A repository behind a web server that requires a password, and a client without one."""
    return make_remote("http")


def surroundings(**variables: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables}


def write_netrc(directory: Path, password: str) -> str:
    path = directory / ".netrc"
    path.write_text(f"machine 127.0.0.1 login {USER} password {password}\n")
    path.chmod(0o600)
    return str(path)


def write_helper(directory: Path, password: str) -> str:
    """Write a credential helper for git."""
    path = directory / "helper.py"
    path.write_text(
        "import sys\n"
        "asked = sys.stdin.read()\n"
        "assert sys.argv[1] == 'get' and 'protocol=http' in asked and 'host=127.0.0.1' in asked\n"
        f"print('username={USER}')\nprint('password={password}')\n"
    )
    return f"{sys.executable} {path}"


def push_something(remote: Remote, repo: ShadowRepo, **options: Any) -> None:
    tip = Line(repo).commit({"a": os.urandom(2_000_000)})
    with remote.connect(repo, **options) as transport:
        assert transport.push({SESSION: (None, tip)}) == {SESSION: None}
    assert remote.refs() == {SESSION: tip}


def test_by_environment(http: Remote, repo: ShadowRepo) -> None:
    environ = surroundings(SHADOWTREE_REMOTE_USER=USER, SHADOWTREE_REMOTE_PASSWORD=PASSWORD)
    push_something(http, repo, environ=environ)


def test_by_environment_for_another_host(http: Remote, repo: ShadowRepo) -> None:
    environ = surroundings(
        SHADOWTREE_REMOTE_USER=USER, SHADOWTREE_REMOTE_PASSWORD=PASSWORD, SHADOWTREE_REMOTE_HOST="example.org"
    )
    with http.connect(repo, environ=environ) as transport, pytest.raises(RemoteRefused, match="asks for"):
        transport.list_refs([b"refs/"])


@pytest.mark.parametrize("by", ["HOME", "NETRC"])
def test_by_netrc(http: Remote, repo: ShadowRepo, tmp_path: Path, by: str) -> None:
    path = write_netrc(tmp_path, PASSWORD)
    push_something(http, repo, environ=surroundings(**{by: str(tmp_path) if by == "HOME" else path}))


def test_by_helper_above_a_megabyte(http: Remote, repo: ShadowRepo, tmp_path: Path) -> None:
    """The server requires the password before anything is sent, so a large push is not sent twice."""
    push_something(http, repo, environ=surroundings(), credential_helper=write_helper(tmp_path, PASSWORD))


def test_by_the_helpers_of_git(http: Remote, repo: ShadowRepo, tmp_path: Path) -> None:
    (tmp_path / "store").write_text(f"http://{USER}:{PASSWORD}@127.0.0.1%3a{http.server.port}\n")
    (tmp_path / ".gitconfig").write_text(f"[credential]\n\thelper = store --file={tmp_path}/store\n")
    environ = surroundings(HOME=str(tmp_path), GIT_CONFIG_GLOBAL="/dev/null")
    push_something(http, repo, environ=environ, credential_helper=True)


def test_no_helper_is_asked_unless_the_setting_says_so(
    http: Remote, repo: ShadowRepo, tmp_path: Path
) -> None:
    (tmp_path / ".gitconfig").write_text(f"[credential]\n\thelper = !touch {tmp_path}/asked\n")
    environ = surroundings(HOME=str(tmp_path))
    with http.connect(repo, environ=environ) as transport, pytest.raises(RemoteRefused, match="asks for"):
        transport.list_refs([b"refs/"])

    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("by", ["environment", "netrc", "helper"])
def test_a_wrong_password_is_refused_and_never_seen(
    http: Remote, repo: ShadowRepo, tmp_path: Path, by: str
) -> None:
    wrong = "secret-4711-wrong"
    options: dict[str, Any] = {"environ": surroundings()}
    if by == "environment":
        options["environ"] = surroundings(SHADOWTREE_REMOTE_USER=USER, SHADOWTREE_REMOTE_PASSWORD=wrong)
    elif by == "netrc":
        write_netrc(tmp_path, wrong)
        options["environ"] = surroundings(HOME=str(tmp_path))
    else:
        options["credential_helper"] = write_helper(tmp_path, wrong)

    with http.connect(repo, **options) as transport, pytest.raises(RemoteRefused) as caught:
        transport.push({SESSION: (None, Line(repo).commit({"a": b"1"}))})

    assert str(caught.value) == f"{http.url()}: wrong credentials"
    assert wrong not in repr(caught.value) + repr(Credentials(USER, wrong))
    assert http.refs() == {}


def test_a_damaged_netrc_is_named_and_not_quoted(http: Remote, repo: ShadowRepo, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login x pass secret-4711\n")
    (tmp_path / ".netrc").chmod(0o600)
    with http.connect(repo, environ=surroundings(HOME=str(tmp_path))) as transport:
        with pytest.raises(RemoteRefused, match=r"\.netrc.* cannot be read") as caught:
            transport.list_refs([b"refs/"])

    assert "secret" not in str(caught.value)


def test_a_wrong_key_is_refused(
    make_remote: Callable[[str], Remote], repo: ShadowRepo, tmp_path: Path
) -> None:
    from tests.remote.servers import make_key

    remote = make_remote("ssh")
    make_key(tmp_path / "key")
    assert remote.server.ssh_command
    command = remote.server.ssh_command.replace(f"{remote.server.root}/user_key", str(tmp_path / "key"))
    with remote.connect(repo, ssh_command=command) as transport:
        with pytest.raises(RemoteFailed, match="Permission denied"):
            transport.list_refs([b"refs/"])


def test_a_host_with_another_key_is_refused(
    make_remote: Callable[[str], Remote], repo: ShadowRepo, tmp_path: Path
) -> None:
    remote = make_remote("ssh")
    assert remote.server.ssh_command
    command = remote.server.ssh_command.replace(f"{remote.server.root}/known", str(tmp_path / "none"))
    with remote.connect(repo, ssh_command=command) as transport:
        with pytest.raises(RemoteFailed, match="Host key verification failed"):
            transport.list_refs([b"refs/"])


def test_no_git_variable_and_no_password_reaches_a_child(
    make_remote: Callable[[str], Remote], repo: ShadowRepo, tmp_path: Path
) -> None:
    remote = make_remote("ssh")
    script = tmp_path / "ssh"
    script.write_text(f'#!/bin/sh\nenv > {tmp_path}/env\nexec {remote.server.ssh_command} "$@"\n')
    script.chmod(0o755)
    environ = surroundings(GIT_DIR="/x", GIT_SSH_COMMAND="false", SHADOWTREE_REMOTE_PASSWORD="p", KEPT="yes")

    with remote.connect(repo, environ=environ, ssh_command=str(script)) as transport:
        transport.list_refs([b"refs/"])

    names = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert "KEPT" in names
    assert not {name for name in names if name.startswith(("GIT_", "SHADOWTREE_"))}


def test_a_proxy_of_the_environment_is_used(http: Remote, repo: ShadowRepo) -> None:
    environ = surroundings(SHADOWTREE_REMOTE_USER=USER, SHADOWTREE_REMOTE_PASSWORD=PASSWORD)
    with FaultProxy(http.server.port) as proxy:
        environ["http_proxy"] = f"http://somebody:pa%3Ass@127.0.0.1:{proxy.port}"
        with http.connect(repo, environ=environ) as transport:
            transport.list_refs([b"refs/"])
        assert proxy.counts.connections == 1
        login = b64encode(b"somebody:pa:ss")
        assert b"proxy-authorization: basic " + login.lower() in bytes(proxy.counts.content["up"]).lower()
        with http.connect(repo, environ={**environ, "no_proxy": "127.0.0.1"}) as transport:
            transport.list_refs([b"refs/"])
        assert proxy.counts.connections == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.org/a/b.git", ("https", "example.org", None, None, "/a/b.git")),
        ("https://me@example.org:8443/b", ("https", "example.org", 8443, "me", "/b")),
        ("ssh://me@example.org:2222/~/b", ("ssh", "example.org", 2222, "me", "/~/b")),
        ("me@example.org:a/b.git", ("ssh", "example.org", None, "me", "a/b.git")),
        ("example.org:b", ("ssh", "example.org", None, None, "b")),
        ("[::1]:b", ("ssh", "::1", None, None, "b")),
        ("git://example.org/b%20c", ("git", "example.org", None, None, "/b c")),
        ("file:///a/b%20c", ("file", "", None, None, "/a/b c")),
        ("/a/b", ("file", "", None, None, "/a/b")),
    ],
)
def test_urls_as_users_of_git_write_them(text: str, expected: tuple[object, ...]) -> None:
    url = parse_url(text)

    assert (url.scheme, url.host, url.port, url.user, url.path) == expected
    assert check_url(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://example.org/x",
        "ext::sh -c touch% /tmp/x",
        "ssh://-oProxyCommand=touch/x",
        "-oProxyCommand=touch@host:x",
        "https:///x",
        "https://example.org:99999/x",
        "https://example.org/x\nHost: y",
        "file://elsewhere/x",
        "https://example.org/x?token=1",
    ],
)
def test_other_texts_are_no_remotes(text: str, repo: ShadowRepo) -> None:
    if text.startswith("ext::"):
        # A path with a strange name: no command is run.
        with open_transport(text, repo, TransportOptions(environ={})) as transport:
            with pytest.raises(RemoteFailed):
                transport.list_refs([b"refs/"])
        return
    with pytest.raises(InvalidInput):
        check_url(text)


@pytest.mark.parametrize(
    "text", ["https://me:secret@example.org/x", "ssh://me:sec@ret@example.org/x", "http://:secret@h/x"]
)
def test_a_url_with_a_password_is_refused_without_it(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_url(text)

    assert "sec" not in str(caught.value)
    assert "sec" not in strip_password(f"fatal: {text} failed")
