"""Names of refs: readable if they are plain, valid for git, unique on any disk, and decoded exactly."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowtree.conversation.ref_names import (
    Wire,
    branch_ref,
    decode_name,
    encode_name,
    read_rows_ref,
    session_ref,
    undone_ref,
)
from tests.support.referee import git

ORIGIN = "0123456789ab"
PIECES = ["a", "A", ".", "..", "/", "//", " ", "@", "@{", ".lock", "lock", "~", "%", "+", "-", "\\", "é", "É"]
PIECES += [
    "e\u0301",
    "🙂",
    "\ud800",
    "\udfff",
    "ß",
    "\u0131",
    "İ",
    "\n",
    "\x7f",
    "%2f",
    "+a",
    "HEAD",
    "*",
    "[",
    "#1",
]
names = st.one_of(
    st.text(st.characters(), min_size=0, max_size=256),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=60).map(lambda pieces: "".join(pieces)[:256]),
)
ODD = [*PIECES, "", "x" * 256, "🙂" * 256, "." * 256, "A" * 256, "a." * 128, "é" * 33 + "x", "é" * 34]
ODD += [
    "x" * 200,
    "x" * 201,
    "x" * 200 + ".",
    "x" * 199 + ".a",
    "x" * 200 + ".a",
    "x" * 199 + "..",
    "x" * 197 + ".lock",
]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("default", "default"),
        ("agent-7_b@host", "agent-7_b@host"),
        ("v1.2", "v1.2"),
        ("MyApp", "+my+app"),
        ("fix it/é", "fix%20it%2f%c3%a9"),
        ("a..b", "a%2e.b"),
        (".hidden.", "%2ehidden%2e"),
        ("c.lock", "c%2elock"),
        ("lock.lock.lock", "lock.lock%2elock"),
        ("@{u}", "@%7bu%7d"),
        ("+a%2f", "%2ba%252f"),
        ("\ud800", "%ed%a0%80"),
        ("", "+"),
        ("é" * 34, "%c3%a9" * 33 + "%c%/3%a9"),
    ],
)
def test_a_name_is_written_so(name: str, written: str) -> None:
    assert encode_name(name) == written
    assert decode_name(written) == name


@given(names)
@settings(max_examples=300)
def test_a_name_comes_back_exactly(name: str) -> None:
    assert decode_name(encode_name(name)) == name
    for writer in (ORIGIN, "0" * 12):
        wire = Wire(name, ORIGIN, writer)
        assert read_rows_ref(wire.rows_ref) == wire
    assert encode_name(name) == encode_name(name).lower()
    assert max(map(len, encode_name(name).split("/"))) <= 201


@pytest.mark.parametrize(
    "ref",
    [
        "refs/heads/main",
        f"refs/heads/sessions/a/{ORIGIN}",
        f"refs/shadowtree/sessions/A/{ORIGIN}",
        f"refs/shadowtree/sessions/a%zz/{ORIGIN}",
        f"refs/shadowtree/sessions/a/{ORIGIN}-{ORIGIN}",
        "refs/shadowtree/sessions/a",
    ],
)
def test_another_ref_holds_no_rows(ref: str) -> None:
    assert read_rows_ref(ref.encode()) is None


def rows_ref(session: str) -> str:
    return Wire(session, ORIGIN, ORIGIN).rows_ref.decode()


def is_valid(ref: str) -> bool:
    return subprocess.run(["git", "check-ref-format", ref], check=False).returncode == 0


@given(names, names)
@settings(max_examples=150, deadline=None)
def test_git_takes_every_name(session: str, branch: str) -> None:
    assert is_valid(session_ref(session))
    assert is_valid(branch_ref(session, branch, 7))
    assert is_valid(rows_ref(session))


def test_git_writes_and_lists_all_of_them_beside_each_other(tmp_path: Path) -> None:
    """No ref may need a file where another one needs a directory, whatever the names of sessions."""
    git("init", "--quiet", "--bare", tmp_path)
    commit = git("commit-tree", "-m", "x", git("mktree", cwd=tmp_path), cwd=tmp_path)
    sessions = list(dict.fromkeys([*ODD, *(one + other for one in PIECES for other in PIECES)]))
    refs = [session_ref(session) for session in sessions]
    refs += [undone_ref(session) for session in sessions]
    refs += [rows_ref(session) for session in sessions]
    refs += [
        branch_ref(session, branch, 3) for session in sessions[:40] for branch in ("a", "A", "a/b", "x" * 250)
    ]

    for start in range(0, len(refs), 500):
        lines = "".join(f"create {ref} {commit}\n" for ref in refs[start : start + 500])
        subprocess.run(["git", "update-ref", "--stdin"], input=lines.encode(), cwd=tmp_path, check=True)

    listed = git("for-each-ref", "--format=%(refname)", cwd=tmp_path).splitlines()
    assert sorted(listed) == sorted(refs)
    assert len({ref.lower() for ref in refs}) == len(refs)
    read = [wire.session for ref in listed if (wire := read_rows_ref(ref.encode())) is not None]
    assert sorted(read) == sorted(sessions)
