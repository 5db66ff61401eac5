"""What `remote` uses of dulwich: a release that changes it must be reviewed first."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from dulwich.client import (
    GitClient,
    SSHGitClient,
    SubprocessSSHVendor,
    TCPGitClient,
    TraditionalGitClient,
    Urllib3HttpGitClient,
)
from dulwich.pack import UnpackedObject

import shadowtree.remote

PRIVATE = {"_connect", "_fetch_capabilities", "_host", "_http_request", "_origin", "_port"}


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (TCPGitClient, "_connect", ["self", "cmd", "path", "protocol_version"]),
        (SSHGitClient, "_connect", ["self", "cmd", "path", "protocol_version"]),
        (Urllib3HttpGitClient, "_http_request", ["self", "url", "headers", "data", "raise_for_status"]),
        (Urllib3HttpGitClient, "_origin", ["url"]),
        (
            TraditionalGitClient,
            "send_pack",
            ["self", "path", "update_refs", "generate_pack_data", "progress", "push_options", "atomic"],
        ),
        (
            SubprocessSSHVendor,
            "run_command",
            [
                *("self", "host", "command", "username", "port", "password", "key_filename"),
                *("ssh_command", "protocol_version"),
            ],
        ),
    ],
)
def test_dulwich_has_what_is_relied_upon(owner: object, name: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_dulwich_has_the_fields_that_are_relied_upon() -> None:
    assert {"_fetch_capabilities", "_send_capabilities"} <= vars(GitClient()).keys()
    assert {"_host", "_port"} <= vars(TCPGitClient("host")).keys()
    assert {"comp_chunks", "decomp_chunks"} <= set(UnpackedObject.__slots__)


def test_private_names_of_dulwich_are_used_in_one_module() -> None:
    folder = Path(shadowtree.remote.__file__).parent
    names = re.compile(rf"\b(?:{'|'.join(PRIVATE)})\b(?=[(. ]|\)|,)")
    using = {path.stem for path in folder.glob("*.py") if names.search(path.read_text("utf-8"))}

    assert using == {"dulwich_client"}
